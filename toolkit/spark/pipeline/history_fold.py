"""The history of transactional ids, from new records of ``__transaction_state`` and the stored state of each id.

One task gets the records of an id in order, after the state from the last run. The meaning of its last records depends
on later records and on the newest time of all ids: every run computes those rows again (`current_transaction_history`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from toolkit.analysis.coordinator.transaction_history import HistoryState, advance, current
from toolkit.formats.columns import from_ipc, to_ipc
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.headers import DamagedRange
from toolkit.schema import TRANSACTION_HISTORY, TRANSACTION_LOG, Row
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.spark.arrow_types import spark_schema, spark_table, struct_type
from toolkit.spark.datasources.log_identity import LogIdentity, Origin
from toolkit.spark.datasources.partial_transactions import whole_runs
from toolkit.spark.pipeline.tables.staging_table import (
    IS_FINAL,
    LOG,
    STAGE,
    STAGE_SCHEMA,
    STATE,
    StoredState,
    damaged_segments,
    stage_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEW, BEFORE, LAST, UNREAD, NEWEST = "new", "before", "last", "unread", "newest"
"""Roles of records: new, or from the state: the one before the last ones of an id, the last ones, an unread one, and
the newest time of all."""

RECORDS = StructType(
    [
        *(StructField(field.name, field.dataType) for field in struct_type(TRANSACTION_LOG)),
        StructField("role", StringType()),
        StructField("known_producer_id", LongType()),
        StructField("is_version_2", BooleanType()),
        StructField(LOG, StringType()),
    ]
)
"""Spark's schema of records, new and from the state."""

RECORDS_SCHEMA = pa.schema(
    [
        *(field.with_nullable(True) for field in spark_schema(TRANSACTION_LOG.arrow_schema)),
        ("role", pa.string()),
        ("known_producer_id", pa.int64()),
        ("is_version_2", pa.bool_()),
        (LOG, pa.string()),
    ]
)
PARTITION = "txn_state_partition"
POSITION = (("file", str), ("position", int), ("offset", int))
CURRENT = StructType(
    [*struct_type(TRANSACTION_HISTORY), StructField(LOG, StringType()), StructField(IS_FINAL, BooleanType())]
)
NOTHING = {"known_producer_id": None, "is_version_2": None}


def fold_transaction_history(events: DataFrame, remembered: DataFrame) -> DataFrame:
    """The final rows of the history of transactional ids, which no later record changes.

    `events`: rows of ``schema.TRANSACTION_LOG``, of one replica of each partition, with `LOG`.
    `remembered`: records of `remembered_records`.
    Returns: rows of `toolkit.spark.pipeline.tables.staging_table.STAGE`: ``transaction_history``, and one of ``state``
    per partition.
    """
    types = {field.name: field.dataType for field in RECORDS}
    new = events.withColumns(
        {"role": sf.lit(NEW), **{name: sf.lit(None).cast(types[name]) for name in NOTHING}}
    ).select(*RECORDS.names)
    records = new.unionByName(remembered).repartition(PARTITION).sortWithinPartitions(PARTITION)
    return records.mapInArrow(_folded, STAGE)


def fold_history_table(events: pa.Table, remembered: pa.Table) -> pa.Table:
    """`fold_transaction_history` in this process."""
    new = events.append_column("role", pa.repeat(NEW, len(events)))
    records = pa.concat_tables([new, remembered], promote_options="default").select(RECORDS_SCHEMA.names)
    in_order = records.cast(RECORDS_SCHEMA).sort_by(PARTITION)
    return pa.Table.from_batches(_folded(in_order.to_batches()), STAGE_SCHEMA)


def remembered_records(states: pa.Table) -> pa.Table:
    """The states of ids as records, from rows of `toolkit.spark.pipeline.tables.staging_table.STATE`."""
    found = [RECORDS_SCHEMA.empty_table()]
    for state in states.select([LOG, "remembered"]).to_pylist():
        records = from_ipc(state["remembered"])
        name = pa.repeat(state[LOG], len(records))  # the log may have been renamed since
        found.append(records.set_column(records.column_names.index(LOG), RECORDS_SCHEMA.field(LOG), name))
    return pa.concat_tables(found)


def current_transaction_history(states: pa.Table, *, latest: dt.datetime | None) -> pa.Table:
    """The last row of each id's history, with `LOG` and `IS_FINAL`, in Arrow's types of `CURRENT`.

    `states`: rows of `toolkit.spark.pipeline.tables.staging_table.STATE` of partitions of ``__transaction_state``.
    `latest`: the newest time of all partitions.
    """
    others = [pa.field(LOG, pa.string()), pa.field(IS_FINAL, pa.bool_())]
    empty = pa.schema([*spark_schema(TRANSACTION_HISTORY.arrow_schema), *others]).empty_table()
    return pa.concat_tables([empty, *(_current(row, latest) for row in states.to_pylist())])


def current_of_clusters(states: pa.Table, *, latest: Mapping[Origin, dt.datetime]) -> pa.Table:
    """`current_transaction_history` of the logs of several clusters.

    `states`: as there.
    `latest`: the newest time of each cluster.
    """
    names = states[LOG].to_pylist()
    found = [current_transaction_history(states.slice(0, 0), latest=None)]
    for number, name in enumerate(names):
        newest = latest.get(LogIdentity.of(name).origin)
        found.append(current_transaction_history(states.slice(number, 1), latest=newest))
    return pa.concat_tables(found)


def _current(state: Row, latest: dt.datetime | None) -> pa.Table:
    records = from_ipc(state["remembered"]).to_pylist()
    unread = [each for each in records if each["role"] == UNREAD]
    found: list[PastTransaction] = []
    for transactional_id, group in groupby(records, key=lambda each: each["transactional_id"]):
        if transactional_id is not None:
            of_id = _state_of(list(group))
            found += current(of_id, latest=latest, unread=_unread_after(of_id, unread))
    table = spark_table(TRANSACTION_HISTORY.arrow(found))
    for name, value in ((LOG, state["log"]), (IS_FINAL, False)):
        table = table.append_column(name, pa.repeat(value, len(found)))
    return table


def _folded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in whole_runs(batches, (PARTITION,)):
        yield from _of_partition(rows)


def _of_partition(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Fold one partition of ``__transaction_state``, id by id."""
    records = sorted(_without_duplicates(rows.to_pylist()), key=_order)
    log = records[0][LOG]
    rows_kept: list[Row] = []
    found: list[PastTransaction] = []
    latest: dt.datetime | None = None
    for transactional_id, group in groupby(records, key=lambda row: row["transactional_id"]):
        records_of_id = list(group)
        times = [row["timestamp"] for row in records_of_id if row["timestamp"] is not None]
        latest = max([*times, *([] if latest is None else [latest])], default=None)
        if transactional_id is None:
            unread = (  # new, or not read again by the next run
                row
                for row in records_of_id
                if row["role"] == NEW or (row["role"] == UNREAD and not _is_read_again(row))
            )
            rows_kept += [{**row, **NOTHING, "role": UNREAD} for row in _last(unread)]
            continue
        new = [TransactionLogRecord.of(row) for row in records_of_id if row["role"] == NEW]
        final, state = advance(_state_of(records_of_id), new)
        found += final
        rows_kept += _records_of(state, log)
    if found:
        yield stage_rows(TRANSACTION_HISTORY.name, TRANSACTION_HISTORY.arrow(found), log=log, is_final=True)
    ends = [row["offset"] + 1 for row in rows_kept if row["offset"] is not None]
    newest = {"role": NEWEST, "timestamp": latest, "txn_state_partition": records[0]["txn_state_partition"], LOG: log}
    unread = (row for row in records if row["role"] == NEW and row["error"] is not None)
    stored = StoredState(
        log=log,
        topic=STATE_TOPIC,
        partition=records[0]["txn_state_partition"],
        broker_id=records[0]["broker_id"],
        log_end_offset=max(ends, default=None),
        leader_epoch=max((row["leader_epoch"] for row in rows_kept if row["leader_epoch"] is not None), default=-1),
        is_damaged=any(row["error"] is not None for row in rows_kept),
        damaged_segments=json.dumps(sorted(damaged_segments(unread))),
        is_unread=any(row["role"] == NEW and DamagedRange(0, 0, str(row["error"])).is_unreadable for row in records),
        latest=latest,
        remembered=to_ipc(pa.Table.from_pylist([newest, *rows_kept], schema=RECORDS_SCHEMA)),
    )
    yield stage_rows(STATE.name, STATE.arrow([stored]), log=log, is_final=False)


def _order(record: Row) -> tuple[Any, ...]:
    """Sort key: by id, none first; then the state before new records; then by file, position and offset."""
    order = [(record[name] is None, record[name] or type_()) for name, type_ in POSITION]
    transactional_id = record["transactional_id"]
    return transactional_id is not None, transactional_id or "", record["role"] == NEW, *order


def _without_duplicates(records: list[Row]) -> list[Row]:
    """Records without duplicates: brokers send the complete batch even if it begins before the start offset."""
    if any(row["file"] is not None for row in records):
        return records
    by_key: dict[tuple[Any, ...], Row] = {}
    for row in records:
        by_key.setdefault((row["transactional_id"], row["role"] == BEFORE, row["offset"], row["error"]), row)
    return list(by_key.values())


def _is_read_again(unread: Row) -> bool:
    """Whether the next run reads it again: a torn end, or records that no broker sent."""
    has_no_offset = _position(unread) is None and unread["offset"] is None
    return has_no_offset or DamagedRange(0, 0, unread["error"]).is_torn


def _last(unread: Iterable[Row]) -> list[Row]:
    """The last unread row that the next run reads again, and the last one that it does not."""
    in_order = sorted(unread, key=lambda row: (_position(row) or (), row["offset"] is None, row["offset"] or 0))
    again = [row for row in in_order if _is_read_again(row)]
    others = [row for row in in_order if not _is_read_again(row)]
    return again[-1:] + others[-1:]


def _state_of(records: list[Row]) -> HistoryState:
    last = [row for row in records if row["role"] == LAST]
    if not last:
        return HistoryState()
    return HistoryState(
        events=tuple(map(TransactionLogRecord.of, last)),
        before=next((TransactionLogRecord.of(row) for row in records if row["role"] == BEFORE), None),
        producer_id=last[0]["known_producer_id"],
        is_version_2=last[0]["is_version_2"],
    )


def _records_of(state: HistoryState, log: str) -> Iterator[Row]:
    if state.before is not None:
        yield {**state.before.row(), **NOTHING, "role": BEFORE, LOG: log}
    columns = {"known_producer_id": state.producer_id, "is_version_2": state.is_version_2}
    for event in state.events:
        yield {**event.row(), **columns, "role": LAST, LOG: log}


def _unread_after(state: HistoryState, unread: Iterable[Row]) -> str | None:
    """The error of an unread row after the last record of an id; null if there is none."""
    if not state.events:
        return None
    last = state.events[-1]
    return next((str(row["error"]) for row in unread if _is_after(row, last)), None)


def _is_after(unread: Row, record: TransactionLogRecord) -> bool:
    """Whether an unread row is after a record, or their order is unknown."""
    unread_at, record_at = (_position(row) or row["offset"] for row in (unread, record.row()))
    return type(unread_at) is not type(record_at) or unread_at is None or unread_at > record_at


def _position(row: Row) -> tuple[str, int, int] | None:
    if row["file"] is None or row["position"] is None:
        return None
    return row["file"], row["position"], row["offset"] or 0
