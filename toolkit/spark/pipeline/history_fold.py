"""The history of transactional ids, from new records of ``__transaction_state`` and the stored state of each id.

The meaning of an id's last records depends on later records and on the newest time of all ids: every run computes those
rows again (`current_transaction_history`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from toolkit.analysis.transaction_history import HistoryState, advance, current, location, unread_partitions
from toolkit.schema import TRANSACTION_HISTORY
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.schema.table import LogId
from toolkit.sources.log_tables import ReadError
from toolkit.spark.arrow_types import spark_schema, spark_table, struct_type
from toolkit.spark.datasources.log_reader import LogIdentity, Origin
from toolkit.spark.pipeline.log_states import TRUNCATED, LogPlan
from toolkit.spark.pipeline.stored_tables import IS_FINAL, LOG, STATE, FoldedRows, StoredState, damaged_segments

CURRENT = StructType(
    [*struct_type(TRANSACTION_HISTORY), StructField(LOG, StringType()), StructField(IS_FINAL, BooleanType())]
)


def fold_records(
    name: str, where: LogId, records: Iterable[TransactionLogRecord], plan: LogPlan, before: StoredState | None
) -> Iterator[FoldedRows]:
    """Fold new records onto the state of a partition of ``__transaction_state``: final rows, and last its new state.

    `records`: its records from the start of the plan on.
    `plan`, `before`: why it is read, and the stored state.
    """
    known = {} if before is None else _stored(before)
    unread = [each for each in known.pop(None, HistoryState()).events if not _is_unread_again(each)]
    new: defaultdict[str | None, list[TransactionLogRecord]] = defaultdict(list)
    for record in _without_duplicates(records):
        new[record.transactional_id].append(record)
    obsolete_from = (plan.offset or 0) if plan.mode == TRUNCATED else None
    if obsolete_from is not None:  # of an id that has nothing from there on, the state knows more than what is left
        unread = []
        known = {
            transactional_id: state
            for transactional_id, state in known.items()
            if all(each.offset is not None and each.offset < obsolete_from for each in _records(state))
        }
        for transactional_id in known.keys() & new.keys():
            of_id = new[transactional_id]
            new[transactional_id] = [each for each in of_id if (each.offset or 0) >= obsolete_from]
    read = [each for of_id in new.values() for each in of_id]
    times = [each.timestamp for each in (*read, *(each for state in known.values() for each in _records(state)))]
    if before is not None and obsolete_from is None:
        times.append(before.latest)
    unread = _last([*unread, *new.pop(None, ())])
    found: list[PastTransaction] = []
    for transactional_id, of_id in new.items():
        final, known[transactional_id] = advance(known.get(transactional_id, HistoryState()), of_id)
        found += [each for each in final if obsolete_from is None or (each.last_offset or 0) >= obsolete_from]
    if found:
        yield FoldedRows(TRANSACTION_HISTORY.name, TRANSACTION_HISTORY.arrow(found), is_final=True)
    states = [HistoryState(events=tuple(unread)), *known.values()]
    kept = [each for state in states for each in _records(state)]
    errors = [_read_error(each) for each in read if each.error is not None]
    stored = StoredState(
        log=name,
        **where.columns,
        log_end_offset=max((each.offset + 1 for each in kept if each.offset is not None), default=None),
        leader_epoch=max((each.leader_epoch for each in kept if each.leader_epoch is not None), default=-1),
        is_damaged=any(each.error is not None for each in kept),
        damaged_segments=json.dumps(sorted(damaged_segments(errors))),
        is_unread=any(each.damage.is_unreadable for each in errors),
        latest=max((each for each in times if each is not None), default=None),
        ids=HistoryState.table.struct_array(states),
    )
    yield FoldedRows(STATE.name, stored, is_final=False)


def current_transaction_history(states: pa.Table, *, latest: Mapping[Origin, dt.datetime | None]) -> pa.Table:
    """The last row of each id's history, and what was not read: with `LOG` and `IS_FINAL`, in the types of `CURRENT`.

    `states`: rows of `toolkit.spark.pipeline.stored_tables.STATE` of partitions of ``__transaction_state``.
    `latest`: the newest time of all partitions of each cluster.
    """
    others = [pa.field(LOG, pa.string()), pa.field(IS_FINAL, pa.bool_())]
    empty = pa.schema([*spark_schema(TRANSACTION_HISTORY.arrow_schema), *others]).empty_table()
    found = [_current(each, latest.get(LogIdentity.of(each.log).origin)) for each in StoredState.of_table(states)]
    return pa.concat_tables([empty, *found])


def _current(stored: StoredState, latest: dt.datetime | None) -> pa.Table:
    states = _stored(stored)
    unread = states.pop(None, HistoryState()).events
    found: list[PastTransaction] = []
    for state in states.values():
        found += current(state, latest=latest, unread=_unread_after(state, unread))
    found += unread_partitions(found, unread)  # also an error that only a final row has
    table = spark_table(TRANSACTION_HISTORY.arrow(found))
    for name, value in ((LOG, stored.log), (IS_FINAL, False)):
        table = table.append_column(name, pa.repeat(value, len(found)))
    return table


def _stored(state: StoredState) -> dict[str | None, HistoryState]:
    """The stored states by transactional id; records that could not be read are without one."""
    states = [] if state.ids is None else HistoryState.of_table(pa.Table.from_struct_array(state.ids))
    return {records[-1].transactional_id: each for each in states if (records := _records(each))}


def _records(state: HistoryState) -> tuple[TransactionLogRecord, ...]:
    return state.previous + state.events


def _without_duplicates(records: Iterable[TransactionLogRecord]) -> list[TransactionLogRecord]:
    """Records without duplicates: brokers send the complete batch even if it begins before the start offset."""
    found = list(records)
    if any(each.file is not None for each in found):
        return found
    by_key: dict[tuple[str | None, int | None, str | None], TransactionLogRecord] = {}
    for each in found:
        by_key.setdefault((each.transactional_id, each.offset, each.error), each)
    return list(by_key.values())


def _read_error(unread: TransactionLogRecord) -> ReadError:
    return ReadError(unread.file, unread.position, unread.error or "")


def _is_unread_again(unread: TransactionLogRecord) -> bool:
    """Whether the next run reads it again: a torn end, or records that no broker sent."""
    has_no_offset = location(unread) is None and unread.offset is None
    return has_no_offset or _read_error(unread).damage.is_torn


def _last(unread: Iterable[TransactionLogRecord]) -> list[TransactionLogRecord]:
    """Of each error, the last unread rows that the next run reads again or not, with and without a location."""
    last = {(each.error, location(each) is None, _is_unread_again(each)): each for each in sorted(unread, key=_order)}
    return sorted(last.values(), key=_order, reverse=True)


def _order(unread: TransactionLogRecord) -> tuple[object, ...]:
    return location(unread) or (), unread.offset is None, unread.offset or 0


def _unread_after(state: HistoryState, unread: Iterable[TransactionLogRecord]) -> str | None:
    """The error of an unread row after the last record of an id; null if there is none."""
    if not state.events:
        return None
    last = state.events[-1]
    return next((str(each.error) for each in unread if _is_after(each, last)), None)


def _is_after(unread: TransactionLogRecord, record: TransactionLogRecord) -> bool:
    """Whether an unread row is after a record, or their order is unknown."""
    one, other = location(unread), location(record)
    if one is None and other is None:
        return unread.offset is None or record.offset is None or unread.offset > record.offset
    return one is None or other is None or one > other
