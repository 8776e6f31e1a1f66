"""Histories of transactional ids, and their newest states, from the records of ``__transaction_state``.

Of several replicas of a partition the one that has most of its log is read, as `toolkit.LogDir` does. An id's records
are brought together; no task holds those of all ids of a partition.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from toolkit.analysis import coordinator
from toolkit.schema import COORDINATOR_EVENTS, HISTORIES, TRANSACTIONS, Row, utc
from toolkit.spark.packing import whole_runs
from toolkit.spark.pieces import log_name
from toolkit.spark.types import spark_table, struct_type

__all__ = ["histories", "transactions"]

SHARES = 16  # of the ids of a partition
FILE = ["txn_state_partition", "broker_id", "file"]
GROUP = ["txn_state_partition", "share"]
CHOSEN = StructType(
    [
        StructField("txn_state_partition", IntegerType()),
        StructField("broker_id", IntegerType()),
        StructField("file", StringType()),
        StructField("latest_ms", LongType()),
    ]
)

CHOSEN_SCHEMA: pa.Schema = to_arrow_schema(CHOSEN)
EVENTS_SCHEMA = pa.schema([(field.name, field.type) for field in COORDINATOR_EVENTS.arrow_schema])


def histories(coordinator_events: DataFrame, *, as_of: dt.datetime | None = None) -> DataFrame:
    """What became of each transactional id: its transactions and how each ended, InitProducerId, expiry.

    Parameters
    ----------
    coordinator_events
        Rows of ``schema.COORDINATOR_EVENTS``, in any order.
    as_of
        When they were read, by the coordinators' clock: what is open lasts until then, and what ended just before may
        still be followed by more. By default the newest time in the records, and nothing is waited for.

    Returns
    -------
    DataFrame
        Rows of ``schema.HISTORIES``.
    """
    best = _best(coordinator_events)
    latest = best.agg(sf.max("latest_ms").alias("latest_ms"))
    shared = _shared(coordinator_events, best, nobodys=sf.sequence(sf.lit(0), sf.lit(SHARES - 1)))
    told = _together(shared.crossJoin(sf.broadcast(latest)))
    return told.mapInArrow(partial(_histories, as_of=as_of), struct_type(HISTORIES))


def transactions(coordinator_events: DataFrame, *, observed_at: dt.datetime) -> DataFrame:
    """The newest state of each transactional id; expired ones are left out.

    Parameters
    ----------
    coordinator_events
        Rows of ``schema.COORDINATOR_EVENTS``, in any order.
    observed_at
        When they were read.

    Returns
    -------
    DataFrame
        Rows of ``schema.TRANSACTIONS``; with ``error`` where an id's newest record could not be read, and without id
        where nobody can tell whose record could not be read. A torn tail is none.
    """
    error = sf.col("error")
    sound = coordinator_events.where(error.isNull() | ~error.startswith("TORN_TAIL"))
    shared = _shared(sound, _best(coordinator_events), nobodys=sf.array(sf.lit(0)))
    newest = partial(_transactions, observed_at=observed_at)
    return _together(shared).mapInArrow(newest, struct_type(TRANSACTIONS))


def _best(events: DataFrame) -> DataFrame:
    """The files of the replica of each partition that is read."""
    files = events.groupBy(*FILE).agg(
        sf.max("leader_epoch").alias("leader_epoch"),
        sf.max("offset").alias("last_offset"),
        sf.count("error").alias("errors"),
        sf.unix_millis(sf.max("timestamp")).alias("latest_ms"),
    )
    by_partition = files.repartition(FILE[0]).sortWithinPartitions(FILE[0])
    return by_partition.mapInArrow(_chosen, CHOSEN)


def _shared(events: DataFrame, best: DataFrame, *, nobodys: Column) -> DataFrame:
    """Records of the replicas that are read, with the share of ids that each is of; what is nobody's, of `nobodys`."""
    files = sf.broadcast(best.select(*(sf.col(name).alias(f"best_{name}") for name in FILE)))
    read = events.join(files, [sf.col(name).eqNullSafe(sf.col(f"best_{name}")) for name in FILE], "left_semi")
    mine = sf.array(sf.pmod(sf.hash("transactional_id"), sf.lit(SHARES)))
    return read.withColumn("share", sf.explode(sf.when(sf.col("transactional_id").isNull(), nobodys).otherwise(mine)))


def _together(shared: DataFrame) -> DataFrame:
    """The records of each share in one partition, in the order of the log."""
    in_order = [sf.asc_nulls_last(name) for name in ("file", "position", "offset")]
    return shared.repartition(*GROUP).sortWithinPartitions(*GROUP, *in_order)


def _chosen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for files in whole_runs(batches, FILE[:1]):
        replicas: defaultdict[str | None, list[Row]] = defaultdict(list)
        for row in files.to_pylist():
            replicas[log_name(row["file"], row["broker_id"])].append(row)
        chosen = [
            {name: row[name] for name in CHOSEN.names}
            for row in max((replicas[name] for name in sorted(replicas, key=str)), key=_how_far)
        ]
        yield pa.RecordBatch.from_pylist(chosen, schema=CHOSEN_SCHEMA)


def _how_far(files: Sequence[Row]) -> tuple[int, int, int, int]:
    """A newer leader epoch wins over a longer log: what an old leader wrote alone is cut off again."""
    epoch, offset = (
        max(-1 if row[name] is None else row[name] for row in files) for name in ("leader_epoch", "last_offset")
    )
    return epoch, offset, -sum(row["errors"] for row in files), -(files[0]["broker_id"] or 0)


def _histories(batches: Iterable[pa.RecordBatch], *, as_of: dt.datetime | None) -> Iterator[pa.RecordBatch]:
    for rows in whole_runs(batches, GROUP):
        latest = utc(rows.column("latest_ms")[0].as_py())
        found = coordinator.histories(_events(rows), as_of=as_of, latest=latest)
        yield from spark_table(HISTORIES.arrow(found)).to_batches()


def _transactions(batches: Iterable[pa.RecordBatch], *, observed_at: dt.datetime) -> Iterator[pa.RecordBatch]:
    for rows in whole_runs(batches, GROUP):
        found = coordinator.newest(_events(rows), observed_at=observed_at)
        yield from spark_table(TRANSACTIONS.arrow(found)).to_batches()


def _events(rows: pa.Table) -> list[Row]:
    """Records of one replica. Those that brokers sent are of one, whoever led; sent twice, a record counts once."""
    events: list[Row] = rows.select(COORDINATOR_EVENTS.names).cast(EVENTS_SCHEMA).to_pylist()
    if events[0]["file"] is not None:
        return events
    once = {(event["offset"], event["error"]): event for event in events}
    return [{**event, "broker_id": events[-1]["broker_id"]} for event in once.values()]
