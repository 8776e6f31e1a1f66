"""The tables that a pipeline keeps: raw rows (bronze), what follows from them (silver), answers (gold).

Every table has the columns that ``toolkit.schema`` declares, in their order; then `run`, the number of the run that
wrote the row; then the names of what the row is replaced with, if anything of it changes: a part of a log (``log``,
``segment``), a partition (``topic_partition``), or a day of a recording (``day``). Nothing but Spark is needed to read
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from toolkit import schema
from toolkit.errors import UsageError
from toolkit.formats.group_records import OFFSETS_TOPIC
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import Table
from toolkit.spark.store import RUN, Store, open_store
from toolkit.spark.units import LOG, SEGMENT, TOPIC_PARTITION, log_column, partition_column, segment_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["DAY", "KEPT", "PART", "RECORDED_AS", "Kept", "by_partition", "chosen", "read", "stored", "write"]

PART = (LOG, SEGMENT)
"""Columns that name a part of a log."""

DAY = "day"
"""Column that names a day of a recording."""

RECORDED_AS = {name: f"recorded_{name}" for name in schema.RECORDED}
"""Names of the tables of a recording, as they are kept: most of them are tables of a cluster, too."""

ERRORS = "errors"
MOST_NAMED = 500  # values in a filter


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A table that is kept.

    Parameters
    ----------
    table
        Its columns.
    layer
        bronze, silver or gold.
    units
        Columns that name what its rows are replaced with; none if it is replaced as a whole.
    topic
        The topic that all its rows are of, where they do not say so.
    number
        Its column with the number of the partition.
    offset
        Its column with the offset, for rows that brokers sent.
    """

    table: Table
    layer: str
    units: tuple[str, ...] = ()
    topic: str | None = None
    number: str = "partition"
    offset: str = "offset"

    @property
    def is_raw(self) -> bool:
        """Whether its rows are what files hold or brokers answer, and follow from nothing else."""
        return self.layer == "bronze"

    @property
    def place(self) -> tuple[Column, Column]:
        """Topic and partition of a row."""
        return sf.col("topic") if self.topic is None else sf.lit(self.topic), sf.col(self.number)


KEPT: Mapping[str, Kept] = {
    "batches": Kept(table=schema.BATCHES, layer="bronze", units=PART, offset="base_offset"),
    "coordinator_events": Kept(
        table=schema.COORDINATOR_EVENTS, layer="bronze", units=PART, topic=STATE_TOPIC, number="txn_state_partition"
    ),
    "group_events": Kept(
        table=schema.GROUP_EVENTS, layer="bronze", units=PART, topic=OFFSETS_TOPIC, number="group_partition"
    ),
    "aborted": Kept(table=schema.ABORTED, layer="bronze", units=PART, offset="last_offset"),
    "snapshots": Kept(table=schema.SNAPSHOTS, layer="bronze", units=PART, offset="snapshot_offset"),
    "segments": Kept(table=schema.SEGMENTS, layer="bronze"),
    "checkpoints": Kept(table=schema.CHECKPOINTS, layer="bronze"),
    "partitions": Kept(table=schema.PARTITIONS, layer="bronze"),
    "producers": Kept(table=schema.PRODUCERS, layer="bronze"),
    "transactions": Kept(table=schema.TRANSACTIONS, layer="bronze"),
    "answers": Kept(table=schema.FINDINGS, layer="bronze"),
    "spans": Kept(table=schema.SPANS, layer="silver", units=(TOPIC_PARTITION,)),
    "lso_timeline": Kept(table=schema.LSO_TIMELINE, layer="silver", units=(TOPIC_PARTITION,)),
    "histories": Kept(
        table=schema.HISTORIES,
        layer="silver",
        units=(TOPIC_PARTITION,),
        topic=STATE_TOPIC,
        number="txn_state_partition",
    ),
    **{RECORDED_AS[name]: Kept(table=table, layer="bronze", units=(DAY,)) for name, table in schema.RECORDED.items()},
    "findings": Kept(table=schema.FINDINGS, layer="gold"),
}
"""By name, raw ones first."""


def read(spark: SparkSession, target: str, table: str, *, format: str = "parquet") -> DataFrame:
    """A table that was written, with exactly the columns that are declared; empty if it is not there.

    Parameters
    ----------
    target
        Where tables are: a folder (with a slash in it), or ``catalog.schema``.
    table
        Name of the table.
    format
        ``parquet`` or ``delta``, as it was written.

    Raises
    ------
    UsageError, NotFound
        If there is no such table, format, or schema.
    """
    kept = _kept(table)
    return stored(open_store(spark, target, format=format), table).select(*kept.table.names)


def write(frame: DataFrame, target: str, *, table: str | None = None, format: str = "parquet") -> None:
    """Add rows of a declared table to what is stored; the same rows again change nothing.

    What is read from files replaces what is stored of the same segments. Of what brokers sent only what lies behind the
    offsets that are stored is added. Rows of derived tables replace those of the same partitions, and the tables of
    answers are replaced as a whole. After a crash, write again.

    Parameters
    ----------
    frame
        Rows with the columns of the table.
    target
        Where tables are: a folder (with a slash in it), or ``catalog.schema``.
    table
        Name of the table; by its columns if null.
    format
        ``parquet`` or ``delta``.

    Raises
    ------
    UsageError, NotFound
        If the columns are those of no table, or there is no such table, format, or schema.
    """
    name = _named(frame) if table is None else table
    kept = _kept(name)
    if missing := [column for column in kept.table.names if column not in frame.columns]:
        raise UsageError(f"The rows have no column {missing[0]}, which {name} has.", do="Write whole rows.")
    store = open_store(frame.sparkSession, target, format=format)
    rows = frame.select(*kept.table.names, sf.lit(0).cast("long").alias(RUN))
    with store.writing():
        if not kept.units:
            store.replace(name, rows)
        elif kept.units == PART:
            store.replace_units(name, _parted(rows, store, name), PART)
        elif kept.units == (DAY,):
            store.replace_units(name, rows.withColumn(DAY, sf.date_format("sample", "yyyy-MM-dd")), (DAY,))
        else:
            store.replace_units(name, by_partition(rows, name), kept.units)


def stored(store: Store, table: str) -> DataFrame:
    """A stored table, with `run` and its units."""
    return store.load(table, KEPT[table].table, units=KEPT[table].units)


def by_partition(frame: DataFrame, table: str) -> DataFrame:
    """Rows with the partition that they are replaced with; those of one partition in few files."""
    named = frame.withColumn(TOPIC_PARTITION, partition_column(*KEPT[table].place))
    return named.hint("rebalance", sf.col(TOPIC_PARTITION))


def chosen(frame: DataFrame, column: str, values: Iterable[str]) -> DataFrame:
    """The rows of which a column has one of some values; of a unit, so that only its files are read."""
    values = sorted(values)
    if len(values) <= MOST_NAMED:
        return frame.where(sf.col(column).isin(values))
    wanted = frame.sparkSession.createDataFrame([(value,) for value in values], f"{column} string")
    return frame.join(sf.broadcast(wanted), column, "left_semi")


def _kept(table: str) -> Kept:
    if table not in KEPT:
        raise UsageError(f"There is no table {table}.", do=f"Say one of {', '.join(KEPT)}.")
    return KEPT[table]


def _named(frame: DataFrame) -> str:
    have = set(frame.columns)
    for name, kept in KEPT.items():
        if set(kept.table.names) == have:
            return name
    raise UsageError("The columns are those of no table.", do=f"Say table=, one of {', '.join(KEPT)}.")


def _parted(rows: DataFrame, store: Store, name: str) -> DataFrame:
    """Rows with the part of their log that they are: the file, or what is behind all that is stored."""
    kept = KEPT[name]
    log = log_column(*kept.place, sf.col("broker_id"), sf.col("file"))
    named = rows.withColumn(LOG, log)
    ends = (
        stored(store, name)
        .where(sf.col("file").isNull() & sf.col("error").isNull())
        .groupBy(LOG)
        .agg((sf.max(kept.offset) + 1).alias("end"))
    )
    known = named.join(sf.broadcast(ends), LOG, "left")
    behind = sf.col(kept.offset) >= sf.coalesce(sf.col("end"), sf.lit(0))
    begin = sf.lpad(sf.coalesce(sf.col("end"), sf.lit(0)).cast("string"), 20, "0")
    sent = sf.when(sf.col("error").isNull(), begin).otherwise(ERRORS)
    is_sent = sf.col("file").isNull()
    return known.where(~is_sent | sf.col("error").isNotNull() | behind).select(
        *rows.columns, LOG, sf.when(is_sent, sent).otherwise(segment_column(sf.col("file"))).alias(SEGMENT)
    )
