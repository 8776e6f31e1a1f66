"""Who held the LSO of each partition from when to when, section by section of each log; and what waited behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from toolkit.analysis.amounts import records_inside
from toolkit.analysis.holders import stretch
from toolkit.analysis.holds import HOLDS, SPAN_COLUMNS, candidates, settled
from toolkit.spark.types import spark_table, struct_type

__all__ = ["HOLD", "best_logs", "counted", "holds", "with_stretches"]

LOG = ("topic", "partition", "log")
HOLD = ("topic", "partition", "first_offset")
OFFSETS_PER_TASK = 1 << 20
OFFSETS_PER_SLOT = 1 << 18
OF_BATCHES = ("base_offset", "last_offset", "size", "record_count", "is_control")
COUNTED = ("part", "records", "bytes")

_LOG = StructField("log", StringType())
_STRETCH = [StructField(name, LongType()) for name in ("count_from", "count_to")]
OF_LOG = StructType([*struct_type(HOLDS), _LOG])
HELD = StructType([*OF_LOG, *_STRETCH])
COUNTS = StructType([*(HELD[name] for name in HOLD), *(StructField(name, LongType()) for name in COUNTED)])


def best_logs(batches: DataFrame) -> DataFrame:
    """Of each partition the log that has most of it, as `toolkit.LogDir` chooses.

    Parameters
    ----------
    batches
        Rows of ``schema.BATCHES``.

    Returns
    -------
    DataFrame
        topic, partition, log, log_end_offset.
    """
    is_damage = sf.col("error").isNotNull() & ~sf.col("error").startswith("TORN_TAIL")
    logs = (
        _with_log(batches)
        .groupBy(*LOG)
        .agg(
            sf.max(is_damage).alias("damaged"),
            sf.coalesce(sf.max("leader_epoch"), sf.lit(-1)).alias("leader_epoch"),
            sf.coalesce(sf.max("last_offset") + 1, sf.lit(-1)).alias("log_end_offset"),
            sf.coalesce(sf.min("broker_id"), sf.lit(-1)).alias("broker_id"),
        )
    )
    # The least of these: sound before damaged, then the newest leader epoch, then the longest, then as they are listed.
    order = sf.struct(
        "damaged",
        (-sf.col("leader_epoch")).alias("epoch"),
        (-sf.col("log_end_offset")).alias("end"),
        "broker_id",
        "log",
    )
    best = logs.groupBy("topic", "partition").agg(sf.min(order).alias("best"))
    return best.select("topic", "partition", "best.log", (-sf.col("best.end")).alias("log_end_offset"))


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
        Rows of `toolkit.analysis.holds.HOLDS`, with the log.
    """
    needed = _with_log(spans).where("first_offset is not null or marker_offset is not null")
    of_logs = needed.select(*SPAN_COLUMNS, "log").join(sf.broadcast(logs), list(LOG))
    first = _part_of("coalesce(first_offset, marker_offset)", offsets_per_task)
    last = _part_of("coalesce(marker_offset, log_end_offset - 1)", offsets_per_task)
    touched = of_logs.select(*SPAN_COLUMNS, "log_end_offset", "log", _each(first, last).alias("section"))

    # Functions with hints of their own: Spark 4.3 fails on a partial.
    def of_section(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        start = key[3].as_py() * offsets_per_task
        stop = start + offsets_per_task
        return _of_log(key, candidates(rows, start=start, stop=stop, min_held_ms=min_held_ms))

    def of_log(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        return _of_log(key, settled(rows, min_held_ms=min_held_ms))

    found = touched.groupBy(*LOG, "section").applyInArrow(of_section, OF_LOG)
    return found.groupBy(*LOG).applyInArrow(of_log, OF_LOG)


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
        now = answers.groupBy("topic", "partition").agg(
            sf.max("last_stable_offset").alias("lso"), sf.max("high_watermark").alias("high_watermark")
        )
        known = held.join(now, ["topic", "partition"], "left")
    # Several things are made of these few rows. Brought together, and with all their columns, they are found once.
    return known.repartition("topic", "partition").mapInArrow(_stretches, HELD)


def counted(held: DataFrame, batches: DataFrame, *, offsets_per_slot: int = OFFSETS_PER_SLOT) -> DataFrame:
    """What waited behind each hold, where there was anything.

    Parameters
    ----------
    held
        From `with_stretches`.
    batches
        Rows of ``schema.BATCHES``.
    offsets_per_slot
        Batches and holds meet by stretches of so many offsets.

    Returns
    -------
    DataFrame
        topic, partition, first_offset, records, bytes.
    """
    first, last = _part_of("count_from", offsets_per_slot), _part_of("count_to - 1", offsets_per_slot)
    stretches = held.where("count_from < count_to").select(*LOG, "first_offset", "count_from", "count_to")
    by_slot = stretches.select("*", first.alias("first_slot"), _each(first, last).alias("slot"))

    first, last = _part_of("base_offset", offsets_per_slot), _part_of("last_offset", offsets_per_slot)
    read = _with_log(batches).where("base_offset is not null").na.fill(0, ["record_count"])
    pairs = (
        read.select(*LOG, *OF_BATCHES, first.alias("own_slot"), _each(first, last).alias("slot"))
        .join(sf.broadcast(by_slot), [*LOG, "slot"])
        .where("last_offset >= count_from and base_offset < count_to")
        .where("slot = greatest(own_slot, first_slot)")  # once, although a batch may reach into the next slot
    )
    parts = pairs.select(*LOG, "first_offset", "count_from", *OF_BATCHES).mapInArrow(_counts, COUNTS)
    once = parts.groupBy(*HOLD, "part").agg(sf.max("records").alias("records"), sf.max("bytes").alias("bytes"))
    return once.groupBy(*HOLD).agg(sf.sum("records").alias("records"), sf.sum("bytes").alias("bytes"))


def _with_log(rows: DataFrame) -> DataFrame:
    """Rows of a partition, with what tells its logs apart; it is empty for what brokers sent.

    The same as `toolkit.spark.pieces.log_name`.
    """
    folder = sf.concat(
        sf.coalesce(sf.col("broker_id").cast("string"), sf.lit("")),
        sf.lit(":"),
        sf.regexp_replace("file", r"[^/\\]*$", ""),
    )
    known = rows.where("topic is not null and partition is not null")
    return known.withColumn("log", sf.when(sf.col("file").isNull(), "").otherwise(folder))


def _part_of(offset: str, width: int) -> Column:
    return sf.expr(f"({offset}) div {width}")


def _each(first: Column, last: Column) -> Column:
    return sf.explode(sf.sequence(first, sf.greatest(first, last)))


def _of_log(key: tuple[pa.Scalar, ...], found: pa.Table) -> pa.Table:
    return spark_table(found).append_column("log", pa.repeat(key[2], found.num_rows))


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
        columns = {name: rows.column(name).to_numpy(zero_copy_only=False) for name in OF_BATCHES}
        size = columns.pop("size")
        records = records_inside(rows.column("count_from").to_numpy(), **columns)
        base = rows.column("base_offset")
        counts = {name: rows.column(name) for name in HOLD} | {
            "part": base,
            "sent": pc.if_else(pc.equal(rows.column("log"), ""), base, -1),
            "records": pa.array(records, pa.int64()),
            "bytes": pa.array(size),
        }
        sums = (
            pa.table(counts)
            .group_by([*HOLD, "sent"])
            .aggregate([("part", "min"), ("records", "sum"), ("bytes", "sum")])
        )
        named = sums.select([*HOLD, "part_min", "records_sum", "bytes_sum"]).rename_columns(COUNTS.names)
        yield from named.cast(to_arrow_schema(COUNTS)).to_batches()
