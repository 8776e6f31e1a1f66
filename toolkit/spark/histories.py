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

TORN_TAIL = "TORN_TAIL"  # normal after a crash
SHARES = 16  # of the ids of a partition
FILE = ["txn_state_partition", "broker_id", "file"]
GROUP = ["txn_state_partition", "share"]
CHOSEN = StructType(
    [
        StructField("best_txn_state_partition", IntegerType()),
        StructField("best_broker_id", IntegerType()),
        StructField("best_file", StringType()),
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
    shared = _shared(coordinator_events, nobodys=sf.sequence(sf.lit(0), sf.lit(SHARES - 1)))
    return _together(shared).mapInArrow(partial(_histories, as_of=as_of), struct_type(HISTORIES))


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
    sound = coordinator_events.where(error.isNull() | ~error.startswith(TORN_TAIL))
    shared = _shared(sound, nobodys=sf.array(sf.lit(0)))
    newest = partial(_transactions, observed_at=observed_at)
    return _together(shared).mapInArrow(newest, struct_type(TRANSACTIONS))


def _shared(events: DataFrame, *, nobodys: Column) -> DataFrame:
    """Records of the replicas that are read, with the share of ids that each is of; what is nobody's, of `nobodys`."""
    files = events.groupBy(*FILE).agg(
        sf.max("leader_epoch").alias("leader_epoch"),
        sf.max("offset").alias("last_offset"),
        sf.count(sf.when(~sf.col("error").startswith(TORN_TAIL), True)).alias("errors"),
        sf.unix_millis(sf.max("timestamp")).alias("latest_ms"),
    )
    best = sf.broadcast(files.repartition(1).mapInArrow(_chosen, CHOSEN))
    read = events.join(best, [sf.col(name).eqNullSafe(sf.col(f"best_{name}")) for name in FILE])
    mine = sf.array(sf.pmod(sf.hash("transactional_id"), sf.lit(SHARES)))
    return read.withColumn("share", sf.explode(sf.when(sf.col("transactional_id").isNull(), nobodys).otherwise(mine)))


def _together(shared: DataFrame) -> DataFrame:
    """The records of each share in one partition, in the order of the log."""
    in_order = [sf.asc_nulls_last(name) for name in ("file", "position", "offset")]
    return shared.repartition(*GROUP).sortWithinPartitions(*GROUP, *in_order)


def _chosen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The files of the replica of each partition that is read, and the newest time in all of these."""
    replicas: defaultdict[int | None, defaultdict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in (row for batch in batches for row in batch.to_pylist()):
        name = log_name(row["file"], row["broker_id"])
        replicas[row["txn_state_partition"]][name or ""].append(row)
    best = [max((of[name] for name in sorted(of)), key=_how_far) for of in replicas.values()]
    chosen = [row for files in best for row in files]
    latest = max((row["latest_ms"] for row in chosen if row["latest_ms"] is not None), default=None)
    rows = [{f"best_{name}": row[name] for name in FILE} | {"latest_ms": latest} for row in chosen]
    yield pa.RecordBatch.from_pylist(rows, schema=CHOSEN_SCHEMA)


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
