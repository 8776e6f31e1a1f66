"""Who held the LSO of each partition from when to when, section by section of each log; and what waited behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from toolkit.analysis.amounts import records_inside
from toolkit.analysis.holders import stretch
from toolkit.analysis.holds import HOLDS, SPAN_COLUMNS, candidates, settled
from toolkit.spark.amounts import AMOUNT, OFFSETS_PER_SLOT
from toolkit.spark.packing import unpack
from toolkit.spark.types import spark_table, struct_type

__all__ = ["HOLD", "best_logs", "counted", "holds", "with_stretches"]

PLACE = ("topic", "partition")
HOLD = (*PLACE, "first_offset")
READ_FROM = (*PLACE, "broker_id", "file")
OFFSETS_PER_TASK = 1 << 20

COUNTED = ("part", "records", "bytes")
STRETCH = ("count_from", "count_to")
HELD = StructType([*struct_type(HOLDS), *(StructField(name, LongType()) for name in STRETCH)])
COUNTS = StructType([*(HELD[name] for name in HOLD), *(StructField(name, LongType()) for name in COUNTED)])


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
    # One log is a folder on its broker; or what brokers sent of a partition, whichever sent it.
    folder = sf.regexp_replace("file", r"[^/\\]*$", "").alias("folder")
    on_broker = sf.struct(sf.coalesce("broker_id", sf.lit(-1)).alias("broker_id"), folder)
    logs = files.groupBy(*PLACE, sf.when(sf.col("file").isNotNull(), on_broker).alias("log")).agg(
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
    # Several things are made of these few rows. Brought together, and with all their columns, they are found once.
    return known.repartition(*PLACE).mapInArrow(_stretches, HELD)


def counted(
    held: DataFrame, amounts: DataFrame, logs: DataFrame, *, offsets_per_slot: int = OFFSETS_PER_SLOT
) -> DataFrame:
    """What waited behind each hold, where there was anything.

    Parameters
    ----------
    held
        From `with_stretches`.
    amounts
        Rows of `toolkit.spark.amounts.AMOUNTS`.
    logs
        From `best_logs`.
    offsets_per_slot
        What `amounts` was made with: batches and holds meet by stretches of so many offsets. No batch may have more.

    Returns
    -------
    DataFrame
        topic, partition, first_offset, records, bytes.
    """
    # A batch belongs to the slot that it ends in; one that ends behind a stretch ends in the slot behind it at most.
    first, last = _part_of("count_from", offsets_per_slot), _part_of("count_to - 1", offsets_per_slot) + 1
    stretches = held.where("count_from < count_to").select(*HOLD, *STRETCH, _each(first, last).alias("slot"))
    read = amounts.where("packed is not null").select(*READ_FROM, "slot", "packed")
    pairs = _of(read.join(sf.broadcast(stretches), [*PLACE, "slot"]), logs)
    parts = pairs.select(*HOLD, *STRETCH, "packed", sf.col("file").isNull().alias("is_sent")).mapInArrow(
        _counts, COUNTS
    )
    once = parts.groupBy(*HOLD, "part").agg(sf.max("records").alias("records"), sf.max("bytes").alias("bytes"))
    return once.groupBy(*HOLD).agg(sf.sum("records").alias("records"), sf.sum("bytes").alias("bytes"))


def _of(rows: DataFrame, logs: DataFrame) -> DataFrame:
    """Rows that were read from these logs."""
    named = logs.select(*(sf.col(name).alias(f"of_{name}") for name in READ_FROM), "log_end_offset")
    same = [sf.col(name).eqNullSafe(sf.col(f"of_{name}")) for name in READ_FROM]
    return rows.join(sf.broadcast(named), same)


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


def _counts(pairs: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Partial counts; ``part`` names the first batch of each, for a batch that a broker sent twice counts once."""
    for rows in pairs:
        batches, counts = unpack(rows.column("packed"), AMOUNT)
        pair = np.repeat(np.arange(rows.num_rows), counts)
        count_from, count_to = (rows.column(name).to_numpy()[pair] for name in STRETCH)
        inside = (batches["last_offset"] >= count_from) & (batches["base_offset"] < count_to)
        if not inside.any():
            continue
        batches, pair = batches[inside], pa.array(pair[inside])
        columns = {name: batches[name] for name in ("base_offset", "last_offset", "record_count", "is_control")}
        base = pa.array(columns["base_offset"])
        found = {name: rows.column(name).take(pair) for name in HOLD} | {
            "part": base,
            "sent": pc.if_else(rows.column("is_sent").take(pair), base, None),
            "records": pa.array(records_inside(count_from[inside], **columns), pa.int64()),
            "bytes": pa.array(batches["size"]),
        }
        sums = (
            pa.table(found).group_by([*HOLD, "sent"]).aggregate([("part", "min"), ("records", "sum"), ("bytes", "sum")])
        )
        named = sums.select([*HOLD, "part_min", "records_sum", "bytes_sum"]).rename_columns(COUNTS.names)
        yield from named.cast(to_arrow_schema(COUNTS)).to_batches()
