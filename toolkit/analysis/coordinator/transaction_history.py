"""The history of each transactional id, from the records of ``__transaction_state``.

Compaction keeps the last record of an id in the cleaned part. So a history is complete from its first record on. The
first transaction may lack earlier records, but every record has the transaction's start time.

Sources: ``TransactionMetadata``, ``TransactionCoordinator`` and ``TransactionStateManager`` in Kafka; for each
ending see `toolkit.analysis.coordinator.transaction_endings`.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from toolkit.analysis.coordinator.transaction_endings import (
    LAST_EPOCH,
    CoordinatorLines,
    TransactionRecords,
    coordinator_lines,
    ending,
)
from toolkit.analysis.coordinator.transaction_states import EXPIRED, OPEN_STATES, IdReplica, replica_of, state_of
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import Transaction
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.schema.metadata import ClusterEvent

MILLISECOND = dt.timedelta(milliseconds=1)
STAGES = {  # of a transaction, in their order
    "Ongoing": 0,
    "PrepareEpochFence": 0,
    "PrepareCommit": 1,
    "PrepareAbort": 1,
    "CompleteCommit": 2,
    "CompleteAbort": 2,
}


def transaction_history(
    events: Iterable[TransactionLogRecord],
    *,
    as_of: dt.datetime | None = None,
    latest: dt.datetime | None = None,
    broker_log_events: Iterable[ClusterEvent] = (),
) -> list[PastTransaction]:
    """The history of each transactional id: transactions with their endings, InitProducerId, expiry.

    With an ``error`` if one of its records may be unreadable.
    `events`: the records, in offset order within a partition; compacted or not, of one replica or several.
    `as_of`: when they were read, by the coordinators' clock: open transactions last until then, and records may still
        follow a recent end. By default the newest time in the records, after which no record follows.
    `latest`: the newest time in the records of all partitions, if `events` are only some; by default the newest in
        `events`.
    `broker_log_events`: events in brokers' own logs: they distinguish a timeout from other aborts.
    """
    found, unreadable, latest_read = _by_replica(events)
    latest = max((time for time in (latest, latest_read) if time is not None), default=None)
    past: list[PastTransaction] = []
    lines = coordinator_lines(broker_log_events)
    for replica in sorted(found):
        of_id = lines.get(replica.transactional_id)
        settled, id_state = advance(HistoryState(), [event.record for event in found[replica]], lines=of_id)
        last = found[replica][-1]
        unreadable_records = unreadable.get(replica._replace(transactional_id=""), ())
        unread = next((each.record.error for each in unreadable_records if each.comes_after(last)), None)
        past += settled
        past += current(id_state, as_of=as_of, latest=latest, unread=unread, lines=of_id)
    return past


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryState:
    """The state from which the history of a transactional id on one replica continues."""

    # the records of its last transaction, or its last other record: later records show how it ended
    events: tuple[TransactionLogRecord, ...] = ()
    before: TransactionLogRecord | None = None  # the record before `events`
    producer_id: int | None = None  # the id's producer id before `events`
    # whether earlier records of the client instance show that it raises its epoch with every end
    is_version_2: bool | None = None


def advance(
    state: HistoryState, events: Iterable[TransactionLogRecord], *, lines: CoordinatorLines | None = None
) -> tuple[list[PastTransaction], HistoryState]:
    """Continue the history of an id: what is final, and the new state.

    `state`: the previous state; an empty one at the beginning.
    `events`: the id's next records on that replica, in offset order.
    `lines`: what brokers' own logs have of the id.
    """
    past: list[PastTransaction] = []
    groups = list(_groups([*state.events, *events]))
    for group, after in pairwise(groups):
        if group[0].error:  # the rows before and after it have the error
            state = replace(state, before=group[0])
            continue
        window = _RecordWindow(replace(state, events=tuple(group)), after=after[0], lines=lines)
        past.append(window.past_transaction())
        state = window.next_state(past[-1])
    return past, replace(state, events=tuple(groups[-1]) if groups else ())


def current(
    state: HistoryState,
    *,
    as_of: dt.datetime | None = None,
    latest: dt.datetime | None = None,
    unread: str | None = None,
    lines: CoordinatorLines | None = None,
) -> list[PastTransaction]:
    """The last entry of an id's history, which later records may change.

    `as_of`, `latest`: as for `transaction_history`.
    `unread`: error of later records that could not be read and may be of the same id.
    `lines`: as for `advance`.
    """
    if not state.events or (state.events[0].error and state.before is not None):
        return []
    window = _RecordWindow(state, unread=unread, as_of=as_of or latest, settled=as_of is None, lines=lines)
    return [window.past_transaction()]


def _by_replica(
    events: Iterable[TransactionLogRecord],
) -> tuple[dict[IdReplica, list[_NumberedRecord]], dict[IdReplica, list[_NumberedRecord]], dt.datetime | None]:
    """The records of each id, the last unreadable records of each replica, and the newest time in the records."""
    found: defaultdict[IdReplica, list[_NumberedRecord]] = defaultdict(list)
    unreadable: defaultdict[IdReplica, list[_NumberedRecord]] = defaultdict(list)
    latest: dt.datetime | None = None
    for number, record in enumerate(events):
        event, time = _NumberedRecord(number, record), record.timestamp
        if record.transactional_id is not None:
            found[replica_of(record)].append(event)
        elif record.error:
            unreadable[replica_of(record)].append(event)
        latest = time if latest is None or (time is not None and time > latest) else latest
    return found, {replica: _last(events) for replica, events in unreadable.items()}, latest


def unread_histories(
    partitions: Mapping[str, int | None], log_records: Iterable[TransactionLogRecord]
) -> Iterator[PastTransaction]:
    """An error for each id whose records may be among those that could not be read.

    `partitions`: the partition of ``__transaction_state`` of each id without a readable record.
    `log_records`: those of these partitions, readable or not.
    """
    unread: dict[int | None, TransactionLogRecord] = {}
    for each in log_records:
        if each.error and each.transactional_id is None:
            unread.setdefault(each.txn_state_partition, each)
    for transactional_id, partition in partitions.items():
        if partition in unread:
            yield PastTransaction(
                transactional_id=transactional_id,
                txn_state_partition=partition,
                kind="transaction",
                reason="No record of the id could be read.",
                broker_id=unread[partition].broker_id,
                error=unread[partition].error,
            )


def newest(events: Iterable[TransactionLogRecord], *, observed_at: dt.datetime) -> list[Transaction]:
    """The state of each transactional id, by id, without expired ids.

    `events`: the newest readable record of each id. `observed_at`: when they were read.
    """
    return [
        Transaction.of_record(
            event,
            start_time=event.start_time if event.state in OPEN_STATES else None,
            source=STATE_TOPIC,
            observed_at=observed_at,
        )
        for event in sorted(events, key=lambda event: str(event.transactional_id))
        if not event.tombstone
    ]


class _NumberedRecord(NamedTuple):
    """A record, readable or not, and its number."""

    number: int
    record: TransactionLogRecord

    @property
    def location(self) -> tuple[str, int, int] | None:
        """File, position and offset, null if unknown; the names of a log's files sort in log order."""
        file, position = self.record.file, self.record.position
        return None if file is None or position is None else (file, position, self.record.offset or 0)

    def comes_after(self, other: _NumberedRecord) -> bool:
        """Compare locations if both are known: damaged records of a file are listed after the readable ones."""
        location, other_location = self.location, other.location
        return self.number > other.number if location is None or other_location is None else location > other_location


def _last(events: Sequence[_NumberedRecord]) -> list[_NumberedRecord]:
    """The last record by location, and the last by number."""
    return [sorted(events, key=lambda event: event.location or ("", 0, 0))[-1], events[-1]]


@dataclass(frozen=True)
class _RecordWindow:
    """The last records of an id, and the records around them."""

    state: HistoryState
    after: TransactionLogRecord | None = None
    unread: str | None = None  # error of later records that may be of the id
    as_of: dt.datetime | None = None
    settled: bool = True
    lines: CoordinatorLines | None = None

    @cached_property
    def records(self) -> TransactionRecords:
        after, before = self.after, self.state.before
        return TransactionRecords(
            events=self.state.events,
            after=None if after is None or after.error else after,
            unread=self.unread if after is None else after.error,
            follows=before is not None and not before.error,
            version_2_before=self.state.is_version_2,
            lines=self.lines,
        )

    def next_state(self, past: PastTransaction) -> HistoryState:
        """The state after these records."""
        records = self.records
        return HistoryState(
            before=records.last,
            producer_id=past.producer_id or self.state.producer_id,
            is_version_2=None if records.events[0].state == "Empty" else records.is_of_version_2,
        )

    def past_transaction(self) -> PastTransaction:
        """What these records show."""
        records, before = self.records, self.state.before
        first, last = records.events[0], records.last
        past = PastTransaction(
            transactional_id=last.transactional_id or "",
            txn_state_partition=last.txn_state_partition,
            kind="transaction",
            reason="No record of the id could be read.",
            state=last.state,
            timeout_ms=last.timeout_ms,
            previous_producer_id=self._previous_id(None),
            records=len(records.events),
            first_offset=first.offset,
            last_offset=last.offset,
            truncated=False,
            broker_id=last.broker_id,
            error=first.error,
        )
        if first.error:
            return past
        if state_of(first) == EXPIRED:
            producer_id = None if before is None else before.producer_id
            return replace(
                past,
                kind="expired",
                producer_id=producer_id,
                producer_epoch=None if before is None else before.producer_epoch,
                previous_producer_id=self._previous_id(producer_id),
                reason="Its coordinator expired the id: idle for transactional.id.expiration.ms.",
                state=None if before is None else before.state,
                end_time=last.timestamp,
            )
        if first.state == "Empty":
            return replace(
                past,
                kind="init",
                producer_id=last.producer_id,
                producer_epoch=last.producer_epoch,
                previous_producer_id=self._previous_id(last.producer_id),
                reason=_why_init(last, before),
                end_time=last.timestamp or last.last_update_time,
            )
        how = ending(records, as_of=self.as_of, settled=self.settled)
        start, decided_at, end = records.start_time, records.decided_at, records.end_time
        until = self.as_of if how.ended in {"open", "stuck"} else None
        unread_before = before.error if before is not None and not records.is_whole else None
        return replace(
            past,
            producer_id=records.producer_id,
            producer_epoch=records.producer_epoch,
            previous_producer_id=self._previous_id(records.producer_id),
            ended=how.ended,
            reason=how.reason,
            start_time=start,
            decided_at=decided_at,
            end_time=end,
            ongoing_ms=_between(start, decided_at or until),
            prepare_ms=_between(decided_at, end or until),
            topic_partitions=records.topic_partitions,
            client_transaction_version=records.client_transaction_version,
            truncated=None if records.is_whole is None else not records.is_whole,
            error=unread_before or (None if how.ended in {"commit", "fence"} else records.unread),
        )

    def _previous_id(self, producer_id: int | None) -> int | None:
        """The previous producer id if it differs, otherwise null."""
        last_id, first = self.state.producer_id, self.state.events[0]
        before = first.previous_producer_id if last_id is None and first.state == "Empty" else last_id
        return None if before == producer_id else before


def _groups(events: Sequence[TransactionLogRecord]) -> Iterator[list[TransactionLogRecord]]:
    """The records of each entry of the history: all records of a transaction, or one other record."""
    group: list[TransactionLogRecord] = []
    for event in events:
        if group and not _continues(group[-1], event):
            yield group
            group = []
        group.append(event)
    if group:
        yield group


def _continues(before: TransactionLogRecord, event: TransactionLogRecord) -> bool:
    """Whether a record is of the same transaction as the one before; one that could not be read has no stage."""
    state, next_state = before.state or "", event.state or ""
    stage, next_stage = STAGES.get(state), STAGES.get(next_state)
    return (
        before.start_time == event.start_time
        and stage is not None
        and next_stage is not None
        and stage <= next_stage
        and (stage == 0 or state.endswith("Commit") == next_state.endswith("Commit"))
    )


def _why_init(event: TransactionLogRecord, before: TransactionLogRecord | None) -> str:
    next_id, epoch = event.producer_id, event.producer_epoch
    if before is None or before.error:
        return f"InitProducerId assigned producer id {next_id} with epoch {epoch}."
    if state_of(before) == EXPIRED:
        return f"InitProducerId assigned producer id {next_id}: the transactional id had expired."
    last_id, last_epoch = before.producer_id, before.producer_epoch
    if next_id != last_id and (last_epoch or 0) >= LAST_EPOCH:
        return f"InitProducerId assigned producer id {next_id}: {last_id} had no epochs left after {last_epoch}."
    if next_id != last_id:
        return f"InitProducerId replaced producer id {last_id} with {next_id}."
    if epoch == last_epoch:
        return f"InitProducerId returned epoch {epoch} again."
    return f"InitProducerId raised the epoch from {last_epoch} to {epoch}: a new instance, or the same after an error."


def _between(start: dt.datetime | None, end: dt.datetime | None) -> int | None:
    return None if start is None or end is None else (end - start) // MILLISECOND
