"""Histories of transactional ids from new records of ``__transaction_state``, and from what is remembered of each id.

The records of an id come in order to one task, behind what the run before remembered of it. What its last records mean
depends on what comes next, and on the newest time of all: those rows are made anew by every run (`current_histories`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from toolkit.analysis.coordinator import IdState, advance, current
from toolkit.formats.columns import from_ipc, to_ipc
from toolkit.formats.headers import Damage
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import COORDINATOR_EVENTS, HISTORIES, Row
from toolkit.spark.packing import whole_runs
from toolkit.spark.stage import IS_FINAL, LOG, STAGE, STATE, stage_rows
from toolkit.spark.types import spark_schema, spark_table, struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["current_histories", "fold_histories", "remembered_records"]

NEW, BEFORE, LAST, UNREAD, NEWEST = "new", "before", "last", "unread", "newest"
"""What a record is: one to read, or of what is remembered: the one before the last of its id, those, what could not be
read, or the newest time of all."""

RECORDS = StructType(
    [
        *(StructField(field.name, field.dataType) for field in struct_type(COORDINATOR_EVENTS)),
        StructField("role", StringType()),
        StructField("known_producer_id", LongType()),
        StructField("is_version_2", BooleanType()),
        StructField(LOG, StringType()),
    ]
)
"""Spark's schema of records, with what is remembered around them."""

RECORDS_SCHEMA = pa.schema(
    [
        *(field.with_nullable(True) for field in spark_schema(COORDINATOR_EVENTS.arrow_schema)),
        ("role", pa.string()),
        ("known_producer_id", pa.int64()),
        ("is_version_2", pa.bool_()),
        (LOG, pa.string()),
    ]
)
NOTHING = {"known_producer_id": None, "is_version_2": None}


def fold_histories(events: DataFrame, remembered: DataFrame) -> DataFrame:
    """What became of each transactional id, as far as no later record changes it.

    Parameters
    ----------
    events
        Rows of ``schema.COORDINATOR_EVENTS``, of one replica of each partition, with `LOG`.
    remembered
        From `remembered_records`.

    Returns
    -------
    DataFrame
        Rows of `toolkit.spark.stage.STAGE`: ``histories``, and one of ``state`` for each partition.
    """
    types = {field.name: field.dataType for field in RECORDS}
    new = events.withColumns(
        {"role": sf.lit(NEW), **{name: sf.lit(None).cast(types[name]) for name in NOTHING}}
    ).select(*RECORDS.names)
    by_id: list[Any] = [
        "txn_state_partition",
        sf.asc_nulls_first("transactional_id"),
        sf.when(sf.col("role") == NEW, 1),
    ]
    in_order = [sf.asc_nulls_last(name) for name in ("file", "position", "offset")]
    together = new.unionByName(remembered).repartition("txn_state_partition")
    return together.sortWithinPartitions(*by_id, *in_order).mapInArrow(_folded, STAGE)


def remembered_records(states: DataFrame) -> DataFrame:
    """What is remembered of ids, as records: from rows of `toolkit.spark.stage.STATE`."""
    return states.select("remembered").mapInArrow(_unpacked, RECORDS)


def current_histories(states: DataFrame, *, latest: dt.datetime | None) -> DataFrame:
    """The last row of each id's history, with `LOG` and `IS_FINAL`.

    Parameters
    ----------
    states
        Rows of `toolkit.spark.stage.STATE` of all partitions of ``__transaction_state``.
    latest
        The newest time in them.
    """
    schema = StructType([*struct_type(HISTORIES), StructField(LOG, StringType()), StructField(IS_FINAL, BooleanType())])
    return states.select("log", "remembered").mapInArrow(partial(_current, latest=latest), schema)


def _folded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in whole_runs(batches, ("txn_state_partition",)):
        yield from _of_partition(rows)


def _of_partition(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """One partition of ``__transaction_state``: an id at a time."""
    records = _once(rows.to_pylist())
    log = records[0][LOG]
    kept: list[Row] = []
    found: list[Row] = []
    latest: dt.datetime | None = None
    for transactional_id, group in groupby(records, key=lambda row: row["transactional_id"]):
        mine = list(group)
        times = [row["timestamp"] for row in mine if row["timestamp"] is not None]
        latest = max([*times, *([] if latest is None else [latest])], default=None)
        if transactional_id is None:
            kept += [{**row, **NOTHING, "role": UNREAD} for row in _last(row for row in mine if _is_known_still(row))]
            continue
        final, state = advance(_state_of(mine), [row for row in mine if row["role"] == NEW])
        found += final
        kept += _records_of(state, log)
    if found:
        yield stage_rows(HISTORIES.name, HISTORIES.arrow(found), log=log, is_final=True)
    ends = [row["offset"] + 1 for row in kept if row["offset"] is not None]
    newest = {"role": NEWEST, "timestamp": latest, "txn_state_partition": records[0]["txn_state_partition"], LOG: log}
    state_row = {
        "log": log,
        "topic": STATE_TOPIC,
        "partition": records[0]["txn_state_partition"],
        "broker_id": records[0]["broker_id"],
        "log_end_offset": max(ends, default=None),
        "leader_epoch": max((row["leader_epoch"] for row in kept if row["leader_epoch"] is not None), default=-1),
        "is_damaged": any(row["error"] is not None for row in kept),
        "is_unread": any(row["role"] == NEW and Damage(0, 0, str(row["error"])).is_unreadable for row in records),
        "latest": latest,
        "remembered": to_ipc(pa.Table.from_pylist([newest, *kept], schema=RECORDS_SCHEMA)),
    }
    yield stage_rows(STATE.name, STATE.arrow([state_row]), log=log, is_final=False)


def _once(records: list[Row]) -> list[Row]:
    """Records that brokers sent, each once: a batch that a bound lies in comes whole."""
    if any(row["file"] is not None for row in records):
        return records
    seen: dict[tuple[Any, ...], Row] = {}
    for row in records:
        seen.setdefault((row["transactional_id"], row["role"] == BEFORE, row["offset"], row["error"]), row)
    return list(seen.values())


def _is_known_still(row: Row) -> bool:
    """Whether it could not be read, as far as that need not be found out anew: what comes last is read again."""
    return bool(row["role"] == NEW or (row["role"] == UNREAD and not _is_read_again(row)))


def _is_read_again(unread: Row) -> bool:
    """Whether the next run looks there again: a torn end, and what brokers did not send."""
    nowhere = _place(unread) is None and unread["offset"] is None
    return nowhere or Damage(0, 0, unread["error"]).is_torn


def _last(unread: Iterable[Row]) -> list[Row]:
    """The last of them, and the last of those that the next run does not look at again."""
    in_order = sorted(unread, key=lambda row: (_place(row) or (), row["offset"] is None, row["offset"] or 0))
    again = [row for row in in_order if _is_read_again(row)]
    others = [row for row in in_order if not _is_read_again(row)]
    return again[-1:] + others[-1:]


def _state_of(records: list[Row]) -> IdState:
    last = [row for row in records if row["role"] == LAST]
    if not last:
        return IdState()
    return IdState(
        events=tuple(last),
        before=next((row for row in records if row["role"] == BEFORE), None),
        producer_id=last[0]["known_producer_id"],
        is_version_2=last[0]["is_version_2"],
    )


def _records_of(state: IdState, log: str) -> Iterator[Row]:
    if state.before is not None:
        yield {**state.before, **NOTHING, "role": BEFORE, LOG: log}
    known = {"known_producer_id": state.producer_id, "is_version_2": state.is_version_2}
    for event in state.events:
        yield {**event, **known, "role": LAST, LOG: log}


def _current(batches: Iterable[pa.RecordBatch], *, latest: dt.datetime | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            records = from_ipc(row["remembered"]).to_pylist()
            found: list[Row] = []
            unread = [each for each in records if each["role"] == UNREAD]
            for transactional_id, group in groupby(records, key=lambda each: each["transactional_id"]):
                if transactional_id is not None:
                    state = _state_of(list(group))
                    found += current(state, latest=latest, unread=_unread_after(state, unread))
            if found:
                table = spark_table(HISTORIES.arrow(found)).combine_chunks()
                for name, value in ((LOG, row["log"]), (IS_FINAL, False)):
                    table = table.append_column(name, pa.repeat(value, table.num_rows))
                yield from table.to_batches()


def _unread_after(state: IdState, unread: Iterable[Row]) -> str | None:
    """What could not be read behind the last record of an id."""
    if not state.events:
        return None
    last = state.events[-1]
    return next((str(row["error"]) for row in unread if _comes_after(row, last)), None)


def _comes_after(unread: Row, record: Row) -> bool:
    ours, theirs = (_place(row) or row["offset"] for row in (unread, record))
    return type(ours) is not type(theirs) or ours is None or ours > theirs


def _place(row: Row) -> tuple[str, int, int] | None:
    if row["file"] is None or row["position"] is None:
        return None
    return row["file"], row["position"], row["offset"] or 0


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for packed in batch.column("remembered").to_pylist():
            yield from from_ipc(packed).combine_chunks().to_batches()
