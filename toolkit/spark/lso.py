"""Steps of the LSO from transactions, section by section of each log.

A section needs only the transactions that touch it (`toolkit.analysis.lso.lso_steps`), so each is sent to every section
that it touches, and no task holds those of a whole log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from toolkit.analysis.lso import lso_steps, lso_table
from toolkit.analysis.spans import SPAN, spans_of
from toolkit.formats.columns import numbers
from toolkit.schema import LSO_TIMELINE
from toolkit.spark.log_ends import log_ends
from toolkit.spark.packing import Gathered, pack_groups, unpack, whole_runs
from toolkit.spark.pieces import PIECES, PLACE, log_name
from toolkit.spark.types import spark_table, struct_type

__all__ = ["lso_timeline"]

Array = npt.NDArray[Any]

OFFSETS_PER_TASK = 1 << 20
STEPS_AT_ONCE = 1 << 16
LOG = ["topic", "partition", "log"]
WHERE = ["topic", "partition", "broker_id"]
NEEDED = (  # of SPANS
    *(*PLACE, "producer_id", "producer_epoch", "first_offset", "first_batch_last_offset", "marker_offset", "outcome"),
    *("marker", "start", "end"),
)
TOUCHED = StructType(  # spans, and from which section to which they go; to the last one if null
    [
        *(PIECES[name] for name in (*LOG, "broker_id")),
        *(StructField(name, LongType()) for name in ("first_section", "last_section")),
        PIECES["packed"],
    ]
)
TOUCHED_SCHEMA: pa.Schema = to_arrow_schema(TOUCHED)


def lso_timeline(
    spans: DataFrame,
    batches: DataFrame,
    *,
    partitions: DataFrame | None = None,
    offsets_per_task: int = OFFSETS_PER_TASK,
) -> DataFrame:
    """Every step of the LSO and who held it, rebuilt from the transactions; what could not be read is passed over.

    Parameters
    ----------
    spans
        Rows of ``schema.SPANS``, of any number of logs, from `toolkit.spark.spans.spans`.
    batches
        Rows of ``schema.BATCHES`` that they were made from: they tell where each log ends.
    partitions
        Rows of ``schema.PARTITIONS``: they tell where a log ends whose newest segment is empty.
    offsets_per_task
        Transactions that touch so many offsets are held in memory at a time.

    Returns
    -------
    DataFrame
        Rows of ``schema.LSO_TIMELINE``.
    """
    with_data = spans.where(sf.col("first_offset").isNotNull()).select(*NEEDED)
    touched = with_data.mapInArrow(partial(_touched, offsets_per_task=offsets_per_task), TOUCHED)
    ends = log_ends(batches, partitions)
    sections = _exploded(touched, ends, offsets_per_task).unionByName(
        _last_sections(ends, offsets_per_task), allowMissingColumns=True
    )
    by_section = sections.repartition(*LOG, "section").sortWithinPartitions(*LOG, "section")
    return by_section.mapInArrow(partial(_steps, offsets_per_task=offsets_per_task), struct_type(LSO_TIMELINE))


def _exploded(touched: DataFrame, ends: DataFrame, offsets_per_task: int) -> DataFrame:
    """Packed spans once for each section; what began before the log does goes to its first section."""
    of_log = ends.select(
        *(sf.col(name).alias(f"of_{name}") for name in (*LOG, "broker_id")),
        _section("first_offset", offsets_per_task).alias("log_first"),
        _section("log_end_offset - 1", offsets_per_task).alias("log_last"),
    )
    same = [sf.col(name).eqNullSafe(sf.col(f"of_{name}")) for name in LOG]
    first = sf.greatest("first_section", "log_first")
    last = sf.greatest(first, sf.coalesce("last_section", "log_last"))
    return touched.join(sf.broadcast(of_log), same, "left").select(
        *LOG,
        sf.coalesce("of_broker_id", "broker_id").alias("broker_id"),
        sf.explode(sf.sequence(first, last)).alias("section"),
        "log_first",
        "packed",
    )


def _last_sections(ends: DataFrame, offsets_per_task: int) -> DataFrame:
    first = _section("first_offset", offsets_per_task)
    return ends.select(
        *(*LOG, "broker_id", "log_end_offset", "end_time"),
        first.alias("log_first"),
        sf.greatest(first, _section("log_end_offset - 1", offsets_per_task)).alias("section"),
    )


def _section(offset: str, offsets_per_task: int) -> Column:
    return sf.expr(f"({offset}) div {offsets_per_task}")


def _touched(batches: Iterable[pa.RecordBatch], *, offsets_per_task: int) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        spans = spans_of(rows)
        marker = spans["marker_offset"]
        sections = {
            "first_section": numbers(spans["first_offset"] // offsets_per_task),
            "last_section": numbers(marker // offsets_per_task, null=marker < 0),
        }
        packed, like = pack_groups(spans, [*rows.select(PLACE).columns, *sections.values()])
        place = rows.select(PLACE).take(like).to_pydict()
        columns = {name: values.take(like) for name, values in sections.items()} | place
        columns["log"] = list(map(log_name, place["file"], place["broker_id"]))
        yield pa.RecordBatch.from_pydict(
            {name: columns[name] for name in TOUCHED.names[:-1]} | {"packed": packed}, TOUCHED_SCHEMA
        )


def _steps(batches: Iterable[pa.RecordBatch], *, offsets_per_task: int) -> Iterator[pa.RecordBatch]:
    found = Gathered()
    for rows in whole_runs(batches, (*LOG, "section")):
        steps = _section_steps(rows, offsets_per_task)
        found.add(steps, np.zeros(len(steps), np.int64), rows.select(WHERE).slice(0, 1))
        if found.count >= STEPS_AT_ONCE:
            yield from _step_rows(found)
    yield from _step_rows(found)


def _section_steps(rows: pa.Table, offsets_per_task: int) -> Array:
    spans, _ = unpack(rows.column("packed").combine_chunks(), SPAN)
    section, log_first = rows.column("section")[0].as_py(), rows.column("log_first")[0].as_py()
    ends = rows.filter(rows.column("log_end_offset").is_valid()).select(["log_end_offset", "end_time"]).to_pylist()
    end = ends[0] if ends else {"log_end_offset": None, "end_time": None}
    return lso_steps(
        spans,
        log_end_offset=end["log_end_offset"],
        end_time=-1 if end["end_time"] is None else end["end_time"],
        start=None if section == log_first else section * offsets_per_task,
        stop=None if ends else (section + 1) * offsets_per_task,
    )


def _step_rows(found: Gathered) -> Iterator[pa.RecordBatch]:
    if found.count:
        steps, codes, places = found.take()
        where = {name: places.column(name).take(pa.array(codes)) for name in WHERE}
        yield from spark_table(lso_table(steps, **where)).to_batches()
