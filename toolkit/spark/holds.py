"""Who held the LSO of each partition from when to when, section by section of each log; and what waited behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType

from toolkit.analysis.amounts import records_inside
from toolkit.analysis.holders import stretch
from toolkit.analysis.holds import HOLDS, SPAN_COLUMNS, candidates, settled
from toolkit.analysis.ordering import taken
from toolkit.spark.amounts import AMOUNT, OFFSETS_PER_SLOT
from toolkit.spark.packing import unpack, whole_runs
from toolkit.spark.types import spark_table, struct_type

__all__ = ["HOLD", "best_logs", "counted", "holds", "with_stretches"]

PLACE = ("topic", "partition")
HOLD = (*PLACE, "first_offset")
READ_FROM = (*PLACE, "broker_id", "file")
OFFSETS_PER_TASK = 1 << 20

Array = npt.NDArray[Any]

STRETCH = ("count_from", "count_to")
COUNTS = ("records_held", "bytes_held")
SLOT = (*PLACE, "log", "slot")
NO_SLOT = -1
HELD = StructType([*struct_type(HOLDS), *(StructField(name, LongType()) for name in STRETCH)])


def best_logs(amounts: DataFrame) -> DataFrame:
    """The files of the log that has most of its partition, as `toolkit.LogDir` chooses it.

    Parameters
    ----------
    amounts
        Rows of `toolkit.spark.amounts.AMOUNTS`.

    Returns
    -------
    DataFrame
        topic, partition, broker_id, file (null where a broker sent it), log_end_offset.
    """
    files = (
        amounts.where("topic is not null and partition is not null")
        .groupBy(*READ_FROM)
        .agg(
            sf.max("is_damaged").alias("damaged"),
            sf.coalesce(sf.max("leader_epoch"), sf.lit(-1)).alias("leader_epoch"),
            sf.coalesce(sf.max("log_end_offset"), sf.lit(-1)).alias("end"),
        )
    )
    logs = files.groupBy(*PLACE, _log()).agg(
        sf.max("damaged").alias("damaged"),
        sf.max("leader_epoch").alias("leader_epoch"),
        sf.max("end").alias("log_end_offset"),
        sf.collect_list(sf.struct("broker_id", "file")).alias("files"),
    )
    # The least of these: sound before damaged, then the newest leader epoch, then the longest, then as they are listed.
    order = sf.struct("damaged", -sf.col("leader_epoch"), -sf.col("log_end_offset"), "log")
    best = logs.groupBy(*PLACE).agg(sf.min_by(sf.struct("files", "log_end_offset"), order).alias("best"))
    each = best.select(*PLACE, sf.explode("best.files").alias("read"), "best.log_end_offset")
    return each.select(*PLACE, "read.broker_id", "read.file", "log_end_offset")


def holds(
    spans: DataFrame, logs: DataFrame, *, min_held_ms: int, offsets_per_task: int = OFFSETS_PER_TASK
) -> DataFrame:
    """Who held the LSO of one log of each partition for long enough, or still does.

    Parameters
    ----------
    spans
        Rows of ``schema.SPANS``.
    logs
        From `best_logs`; the spans of other logs do not count.
    min_held_ms
        As `toolkit.analysis.holds.holds` takes it.
    offsets_per_task
        Transactions that touch so many offsets are held in memory at a time.

    Returns
    -------
    DataFrame
        Rows of `toolkit.analysis.holds.HOLDS`.
    """
    known = spans.where("first_offset is not null or marker_offset is not null")
    first = _part_of("coalesce(first_offset, marker_offset)", offsets_per_task)
    last = _part_of("coalesce(marker_offset, log_end_offset - 1)", offsets_per_task)
    touched = _of(known, logs).select(*SPAN_COLUMNS, "log_end_offset", _each(first, last).alias("section"))

    # Functions with hints of their own: Spark 4.3 fails on a partial.
    def of_section(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        start = key[0].as_py() * offsets_per_task
        found = candidates(rows, start=start, stop=start + offsets_per_task, min_held_ms=min_held_ms)
        return spark_table(found)

    def of_log(rows: pa.Table) -> pa.Table:
        return spark_table(settled(rows, min_held_ms=min_held_ms))

    schema = struct_type(HOLDS)
    # The section comes first, for what is sorted by numbers is sorted quickly.
    return (
        touched.groupBy("section", *PLACE).applyInArrow(of_section, schema).groupBy(*PLACE).applyInArrow(of_log, schema)
    )


def with_stretches(held: DataFrame, answers: DataFrame | None) -> DataFrame:
    """Holds with from where (``count_from``) to before where (``count_to``) what waited behind them is to be counted.

    Parameters
    ----------
    held
        From `holds`.
    answers
        Rows of ``schema.FINDINGS`` of now, which bound what waits behind what is open; null where there are none.
    """
    if answers is None:
        unknown = sf.lit(None).cast("long")
        known = held.withColumns({"lso": unknown, "high_watermark": unknown})
    else:
        now = answers.groupBy(*PLACE).agg(
            sf.max("last_stable_offset").alias("lso"), sf.max("high_watermark").alias("high_watermark")
        )
        known = held.join(now, list(PLACE), "left")
    return known.mapInArrow(_stretches, HELD)


def counted(held: DataFrame, amounts: DataFrame, *, offsets_per_slot: int = OFFSETS_PER_SLOT) -> DataFrame:
    """Holds with what waited behind them; null where that is not to be counted.

    Parameters
    ----------
    held
        From `with_stretches`.
    amounts
        Rows of `toolkit.spark.amounts.AMOUNTS`, of these and of other logs.
    offsets_per_slot
        What `amounts` was made with: batches and holds meet by stretches of so many offsets. No batch may have more.

    Returns
    -------
    DataFrame
        The rows of `held`, with ``records_held`` and ``bytes_held``.
    """
    # A batch belongs to the slot that it ends in; one that ends behind a stretch ends in the slot behind it at most.
    first, last = _part_of("count_from", offsets_per_slot), _part_of("count_to - 1", offsets_per_slot) + 1
    slots = sf.when(sf.expr("count_from < count_to"), sf.sequence(first, last)).otherwise(sf.array(sf.lit(NO_SLOT)))
    asked = held.select(*held.columns, _log(), sf.explode(slots).alias("slot"))
    given = amounts.where("packed is not null").select(*PLACE, _log(), "slot", "packed")
    # One union, and no join: whoever would use holds twice has the log read twice.
    both = asked.unionByName(given, allowMissingColumns=True).withColumn("log", sf.to_json("log"))
    parts = both.repartition(*SLOT).sortWithinPartitions(*SLOT).mapInArrow(_counts, HELD)
    others = [name for name in HELD.names if name not in {*HOLD, *COUNTS}]
    sums = parts.groupBy(*HOLD).agg(
        *(sf.sum(name).alias(name) for name in COUNTS), sf.any_value(sf.struct(*others)).alias("held")
    )
    return sums.select(*HOLD, *COUNTS, "held.*").select(*HELD.names)


def _of(rows: DataFrame, logs: DataFrame) -> DataFrame:
    """Rows that were read from these logs."""
    named = logs.select(*(sf.col(name).alias(f"of_{name}") for name in READ_FROM), "log_end_offset")
    same = [sf.col(name).eqNullSafe(sf.col(f"of_{name}")) for name in READ_FROM]
    return rows.join(sf.broadcast(named), same)


def _log() -> Column:
    """One log is a folder on its broker; or what brokers sent of a partition, whichever sent it, which is null."""
    folder = sf.regexp_replace("file", r"[^/\\]*$", "").alias("folder")
    on_broker = sf.struct(sf.coalesce("broker_id", sf.lit(-1)).alias("broker_id"), folder)
    return sf.when(sf.col("file").isNotNull(), on_broker).alias("log")


def _part_of(offset: str, width: int) -> Column:
    return sf.expr(f"({offset}) div {width}")


def _each(first: Column, last: Column) -> Column:
    return sf.explode(sf.sequence(first, sf.greatest(first, last)))


def _stretches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    names = HELD.names
    for rows in batches:
        found = [stretch(row, lso=row["lso"], high_watermark=row["high_watermark"]) for row in rows.to_pylist()]
        ends = [pa.array([each and each[end] for each in found], pa.int64()) for end in (0, 1)]
        columns = [*(rows.column(name) for name in names[:-2]), *ends]
        yield pa.RecordBatch.from_arrays(columns, names)


def _counts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Holds of each slot, with what waited there."""
    for rows in whole_runs(batches, SLOT):
        is_hold = rows["packed"].is_null()
        holds = rows.filter(is_hold).select(HELD.names).combine_chunks()
        if not holds.num_rows:
            continue
        packs = rows.filter(pc.invert(is_hold))
        found, _ = unpack(packs["packed"].combine_chunks(), AMOUNT)
        sent_twice = rows["log"].null_count > 0
        counts = _inside(found, holds, is_unique=not sent_twice)
        for name, each in zip(COUNTS, counts, strict=True):
            column = pa.array(each, pa.int64(), mask=holds["count_from"].is_null().to_numpy())
            holds = holds.set_column(HELD.names.index(name), name, column)
        yield from holds.to_batches()


def _inside(batches: Array, holds: pa.Table, *, is_unique: bool) -> tuple[Array, Array]:
    """Records and bytes in the stretch of each hold; of batches that came more than once, once.

    The batches of a log do not overlap: those of a stretch lie together, and only the first may be partly before it.
    """
    order = np.argsort(batches["base_offset"], kind="stable")
    batches = taken(batches, order)
    if not is_unique:
        batches = batches[np.append(True, np.diff(batches["base_offset"]) > 0)[: len(batches)]]
    start, stop = (np.asarray(holds[name].fill_null(0)) for name in STRETCH)
    first = np.searchsorted(batches["last_offset"], start)
    end = np.maximum(np.searchsorted(batches["base_offset"], stop), first)
    records = np.where(batches["is_control"], 0, batches["record_count"])
    before = np.minimum(first, len(batches) - 1)
    cut = np.where(end > first, records[before] - _left(batches[before], start), 0) if len(batches) else 0
    totals = [np.append(0, np.cumsum(each)) for each in (records, batches["size"])]
    return totals[0][end] - totals[0][first] - cut, totals[1][end] - totals[1][first]


def _left(batches: Array, start: Array) -> Array:
    names = ("base_offset", "last_offset", "record_count", "is_control")
    return records_inside(start, **{name: batches[name] for name in names})
