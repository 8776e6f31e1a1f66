"""The history of transactional ids, from new records of ``__transaction_state`` and the stored state of each id.

The meaning of an id's last records depends on later records and on the newest time of all ids: every run computes those
rows again (`current_transaction_history`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from toolkit.analysis.coordinator.transaction_history import HistoryState, advance, current
from toolkit.formats.headers import from_ipc, to_ipc
from toolkit.schema import TRANSACTION_HISTORY, TRANSACTION_LOG
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.sources.log_tables import LogId, ReadError
from toolkit.spark.arrow_types import spark_schema, spark_table, struct_type
from toolkit.spark.datasources.log_identity import LogIdentity, Origin
from toolkit.spark.pipeline.log_states import TRUNCATED, LogPlan
from toolkit.spark.pipeline.stored_tables import IS_FINAL, LOG, STATE, FoldedRows, StoredState, damaged_segments

NEW, BEFORE, LAST, UNREAD = "new", "before", "last", "unread"
"""Roles of records: new, or from the state: the one before the last ones of an id, the last ones, and an unread one."""

RECORDS_SCHEMA = pa.schema(
    [
        *(field.with_nullable(True) for field in spark_schema(TRANSACTION_LOG.arrow_schema)),
        ("role", pa.string()),
        ("known_producer_id", pa.int64()),
        ("is_version_2", pa.bool_()),
    ]
)
CURRENT = StructType(
    [*struct_type(TRANSACTION_HISTORY), StructField(LOG, StringType()), StructField(IS_FINAL, BooleanType())]
)


class FoldRecord(NamedTuple):
    """A record, and what it is to the fold: a row of `RECORDS_SCHEMA`."""

    record: TransactionLogRecord
    role: str = NEW
    known_producer_id: int | None = None  # of the last records of an id, as is_version_2: from `HistoryState`
    is_version_2: bool | None = None


def fold_records(
    name: str, where: LogId, records: Iterable[TransactionLogRecord], plan: LogPlan, before: StoredState | None
) -> Iterator[FoldedRows]:
    """Fold new records onto the state of a partition of ``__transaction_state``: final rows, and last its new state.

    `name`: name of the log of the records.
    `where`: the replica that was read.
    `records`: its records from the start of the plan on.
    `plan`, `before`: why it is read, and the stored state.
    """
    known = [] if before is None else _records_in(from_ipc(before.remembered or b""))
    new = list(map(FoldRecord, records))
    obsolete_from = (plan.offset or 0) if plan.remembered == TRUNCATED else None
    if obsolete_from is not None:  # of an id that has nothing from there on, the state knows more than what is left
        by_id: defaultdict[str | None, list[FoldRecord]] = defaultdict(list)
        for each in known:
            by_id[each.record.transactional_id].append(each)
        by_id.pop(None, None)
        valid = {
            transactional_id: of_id
            for transactional_id, of_id in by_id.items()
            if all(each.record.offset is not None and each.record.offset < obsolete_from for each in of_id)
        }
        known = [each for of_id in valid.values() for each in of_id]
        new = [
            each
            for each in new
            if each.record.transactional_id not in valid or (each.record.offset or 0) >= obsolete_from
        ]
    ordered = sorted(_without_duplicates([*known, *new]), key=_order)
    kept: list[FoldRecord] = []
    found: list[PastTransaction] = []
    for transactional_id, group in groupby(ordered, key=lambda each: each.record.transactional_id):
        of_id = list(group)
        if transactional_id is None:
            unread = (  # new, or not read again by the next run
                each.record
                for each in of_id
                if each.role == NEW or (each.role == UNREAD and not _is_read_again(each.record))
            )
            kept += [FoldRecord(each, UNREAD) for each in _last(unread)]
            continue
        final, id_state = advance(_state_of(of_id), [each.record for each in of_id if each.role == NEW])
        found += [each for each in final if obsolete_from is None or (each.last_offset or 0) >= obsolete_from]
        kept += _records_of(id_state)
    if found:
        yield FoldedRows(TRANSACTION_HISTORY.name, TRANSACTION_HISTORY.arrow(found), is_final=True)
    times = [each.record.timestamp for each in ordered]
    if before is not None and obsolete_from is None:
        times.append(before.latest)
    ends = [each.record.offset + 1 for each in kept if each.record.offset is not None]
    epochs = [each.record.leader_epoch for each in kept if each.record.leader_epoch is not None]
    errors = [_read_error(each.record) for each in new if each.record.error is not None]
    stored = StoredState(
        log=name,
        **where.columns,
        log_end_offset=max(ends, default=None),
        leader_epoch=max(epochs, default=-1),
        is_damaged=any(each.record.error is not None for each in kept),
        damaged_segments=json.dumps(sorted(damaged_segments(errors))),
        is_unread=any(each.damage.is_unreadable for each in errors),
        latest=max((each for each in times if each is not None), default=None),
        remembered=to_ipc(_record_table(kept)),
    )
    yield FoldedRows(STATE.name, STATE.arrow([stored]), is_final=False)


def current_transaction_history(states: pa.Table, *, latest: Mapping[Origin, dt.datetime | None]) -> pa.Table:
    """The last row of each id's history, with `LOG` and `IS_FINAL`, in Arrow's types of `CURRENT`.

    `states`: rows of `toolkit.spark.pipeline.stored_tables.STATE` of partitions of ``__transaction_state``.
    `latest`: the newest time of all partitions of each cluster.
    """
    others = [pa.field(LOG, pa.string()), pa.field(IS_FINAL, pa.bool_())]
    empty = pa.schema([*spark_schema(TRANSACTION_HISTORY.arrow_schema), *others]).empty_table()
    found = [_current(each, latest.get(LogIdentity.of(each.log).origin)) for each in StoredState.of_table(states)]
    return pa.concat_tables([empty, *found])


def _current(state: StoredState, latest: dt.datetime | None) -> pa.Table:
    records = _records_in(from_ipc(state.remembered or b""))
    unread = [each.record for each in records if each.role == UNREAD]
    found: list[PastTransaction] = []
    for transactional_id, group in groupby(records, key=lambda each: each.record.transactional_id):
        if transactional_id is not None:
            of_id = _state_of(list(group))
            found += current(of_id, latest=latest, unread=_unread_after(of_id, unread))
    table = spark_table(TRANSACTION_HISTORY.arrow(found))
    for name, value in ((LOG, state.log), (IS_FINAL, False)):
        table = table.append_column(name, pa.repeat(value, len(found)))
    return table


def _records_in(rows: pa.Table) -> list[FoldRecord]:
    others = (rows[name].to_pylist() for name in ("role", "known_producer_id", "is_version_2"))
    return list(map(FoldRecord, TransactionLogRecord.of_table(rows), *others))


def _record_table(records: Sequence[FoldRecord]) -> pa.Table:
    columns = TransactionLogRecord.columns([each.record for each in records])
    columns += [[each[number] for each in records] for number in range(1, len(FoldRecord._fields))]
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, RECORDS_SCHEMA.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=RECORDS_SCHEMA)


def _order(each: FoldRecord) -> tuple[bool, str, bool]:
    """Sort key: by id, none first; then the state before new records, each in the order of the log."""
    transactional_id = each.record.transactional_id
    return transactional_id is not None, transactional_id or "", each.role == NEW


def _without_duplicates(records: list[FoldRecord]) -> list[FoldRecord]:
    """Records without duplicates: brokers send the complete batch even if it begins before the start offset."""
    if any(each.record.file is not None for each in records):
        return records
    by_key: dict[tuple[Any, ...], FoldRecord] = {}
    for each in records:
        record = each.record
        by_key.setdefault((record.transactional_id, each.role == BEFORE, record.offset, record.error), each)
    return list(by_key.values())


def _read_error(unread: TransactionLogRecord) -> ReadError:
    return ReadError(unread.file, unread.position, unread.error or "")


def _is_read_again(unread: TransactionLogRecord) -> bool:
    """Whether the next run reads it again: a torn end, or records that no broker sent."""
    has_no_offset = _position(unread) is None and unread.offset is None
    return has_no_offset or _read_error(unread).damage.is_torn


def _last(unread: Iterable[TransactionLogRecord]) -> list[TransactionLogRecord]:
    """The last unread row that the next run reads again, and the last one that it does not."""
    in_order = sorted(unread, key=lambda each: (_position(each) or (), each.offset is None, each.offset or 0))
    again = [each for each in in_order if _is_read_again(each)]
    others = [each for each in in_order if not _is_read_again(each)]
    return again[-1:] + others[-1:]


def _state_of(records: list[FoldRecord]) -> HistoryState:
    last = [each for each in records if each.role == LAST]
    if not last:
        return HistoryState()
    return HistoryState(
        events=tuple(each.record for each in last),
        before=next((each.record for each in records if each.role == BEFORE), None),
        producer_id=last[0].known_producer_id,
        is_version_2=last[0].is_version_2,
    )


def _records_of(state: HistoryState) -> Iterator[FoldRecord]:
    if state.before is not None:
        yield FoldRecord(state.before, BEFORE)
    for event in state.events:
        yield FoldRecord(event, LAST, state.producer_id, state.is_version_2)


def _unread_after(state: HistoryState, unread: Iterable[TransactionLogRecord]) -> str | None:
    """The error of an unread row after the last record of an id; null if there is none."""
    if not state.events:
        return None
    last = state.events[-1]
    return next((str(each.error) for each in unread if _is_after(each, last)), None)


def _is_after(unread: TransactionLogRecord, record: TransactionLogRecord) -> bool:
    """Whether an unread row is after a record, or their order is unknown."""
    one, other = _position(unread), _position(record)
    if one is None and other is None:
        return unread.offset is None or record.offset is None or unread.offset > record.offset
    return one is None or other is None or one > other


def _position(record: TransactionLogRecord) -> tuple[str, int, int] | None:
    if record.file is None or record.position is None:
        return None
    return record.file, record.position, record.offset or 0
