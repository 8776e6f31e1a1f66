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
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.analysis.lso import lso_steps, lso_table
from toolkit.analysis.spans import SPAN, spans_of
from toolkit.schema import LSO_TIMELINE, Row
from toolkit.spark.log_ends import log_ends
from toolkit.spark.packing import Gathered, pack_groups, runs, unpack, whole_runs
from toolkit.spark.pieces import END, GROUP, OF_LOG, PIECES, PLACE, TOUCHING, log_name, piece_rows, together
from toolkit.spark.types import spark_table, struct_type

__all__ = ["lso_timeline"]

Array = npt.NDArray[Any]

OFFSETS_PER_TASK = 1 << 20
SPANS_AT_ONCE = STEPS_AT_ONCE = 1 << 16
LOG = ["topic", "partition", "log"]
WHERE = ["topic", "partition", "broker_id"]
NEEDED = (  # of SPANS
    *(*PLACE, "producer_id", "producer_epoch", "first_offset", "first_batch_last_offset", "marker_offset", "outcome"),
    *("marker", "start", "end", "truncated"),
)


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
    touching = with_data.mapInArrow(partial(_touching, offsets_per_task=offsets_per_task), PIECES)
    known = together(touching.unionByName(log_ends(batches, partitions)))
    sections = together(known.mapInArrow(partial(_spread, offsets_per_task=offsets_per_task), PIECES))
    return sections.mapInArrow(partial(_steps, offsets_per_task=offsets_per_task), struct_type(LSO_TIMELINE))


def _touching(batches: Iterable[pa.RecordBatch], *, offsets_per_task: int) -> Iterator[pa.RecordBatch]:
    """Transactions in each section that they touch; as of the log where it takes its beginning or end to tell."""
    for rows in batches:
        spans = spans_of(rows)
        first, last = (spans[name] // offsets_per_task for name in ("first_offset", "marker_offset"))
        of_log = (spans["marker_offset"] < 0) | (spans["truncated"] == 1)
        which, slots = _ranges(np.where(of_log, OF_LOG, first), np.where(of_log, OF_LOG, last))
        place = rows.select(PLACE).take(pa.array(which))
        packed, like = pack_groups(spans[which], [*place.columns, pa.array(slots)])
        place = place.take(like)
        logs = map(log_name, place.column("file").to_pylist(), place.column("broker_id").to_pylist())
        columns = {name: place.column(name) for name in ("topic", "partition", "broker_id")}
        columns |= {"log": pa.array(logs, pa.string()), "slot": pa.array(slots).take(like), "packed": packed}
        yield piece_rows({**columns, "kind": TOUCHING}, rows=len(packed))


def _spread(batches: Iterable[pa.RecordBatch], *, offsets_per_task: int) -> Iterator[pa.RecordBatch]:
    """What is of the log in each section that it touches; what began before the log does is in its first section."""
    end: Row = {}
    for run in runs(batches, (*GROUP, "kind")):
        one = run.slice(0, 1).select([*GROUP, "kind", "first_offset", "log_end_offset"]).to_pylist()[0]
        if one["slot"] != OF_LOG:
            yield run
        elif one["kind"] == END:
            end = one
            yield _with_slot(run, max(one["first_offset"], one["log_end_offset"] - 1) // offsets_per_task)
        else:
            same_log = all(end.get(name) == one[name] for name in LOG)
            yield from _spread_spans(run, end if same_log else {}, offsets_per_task)


def _with_slot(rows: pa.RecordBatch, slot: int) -> pa.RecordBatch:
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    return piece_rows(columns | {"slot": slot}, rows=rows.num_rows)


def _spread_spans(rows: pa.RecordBatch, end: Row, offsets_per_task: int) -> Iterator[pa.RecordBatch]:
    spans, _ = unpack(rows.column("packed"), SPAN)
    log_first = end.get("first_offset")
    first = np.maximum(spans["first_offset"], log_first or 0)
    last = np.where(spans["marker_offset"] < 0, end.get("log_end_offset", 0) - 1, spans["marker_offset"])
    which, slots = _ranges(first // offsets_per_task, np.maximum(first, last) // offsets_per_task)
    place = {name: rows.column(name)[0].as_py() for name in (*LOG, "broker_id")}
    for start in range(0, len(which), SPANS_AT_ONCE):
        part = slice(start, start + SPANS_AT_ONCE)
        packed, like = pack_groups(spans[which[part]], [pa.array(slots[part])])
        columns = {"slot": pa.array(slots[part]).take(like), "packed": packed, "first_offset": log_first}
        yield piece_rows({**place, **columns, "kind": TOUCHING}, rows=len(packed))


def _ranges(first: Array, last: Array) -> tuple[Array, Array]:
    """Every number from each first to each last, and before it the index of its range."""
    counts = last - first + 1
    which = np.repeat(np.arange(len(first)), counts)
    return which, first[which] + np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)


def _steps(batches: Iterable[pa.RecordBatch], *, offsets_per_task: int) -> Iterator[pa.RecordBatch]:
    found = Gathered()
    for rows in whole_runs(batches, GROUP):
        steps = _section_steps(rows, offsets_per_task)
        found.add(steps, np.zeros(len(steps), np.int64), rows.select(WHERE).slice(0, 1))
        if found.count >= STEPS_AT_ONCE:
            yield from _step_rows(found)
    yield from _step_rows(found)


def _section_steps(rows: pa.Table, offsets_per_task: int) -> Array:
    """Steps that batches in a section make; in the first section of a log, those of what was open before it, too."""
    spans, _ = unpack(rows.column("packed").combine_chunks(), SPAN)
    section, log_first = rows.column("slot")[0].as_py(), pc.max(rows.column("first_offset")).as_py()
    is_first = log_first is not None and log_first // offsets_per_task == section
    ends = rows.filter(pc.equal(rows.column("kind"), END)).select(["log_end_offset", "end_time"]).to_pylist()
    log_end_offset, end_time = (ends[0]["log_end_offset"], ends[0]["end_time"]) if ends else (None, None)
    return lso_steps(
        spans,
        log_end_offset=log_end_offset,
        end_time=-1 if end_time is None else end_time,
        start=None if is_first else section * offsets_per_task,
        stop=None if ends else (section + 1) * offsets_per_task,
    )


def _step_rows(found: Gathered) -> Iterator[pa.RecordBatch]:
    if found.count:
        steps, codes, places = found.take()
        where = {name: places.column(name).take(pa.array(codes)) for name in WHERE}
        yield from spark_table(lso_table(steps, **where)).to_batches()
