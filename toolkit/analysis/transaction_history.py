"""What records of ``__transaction_state`` show: the history of each transactional id, and how each transaction ended.

Compaction keeps the last record of an id in the cleaned part. So a history is complete from its first record on. The
first transaction may lack earlier records, but every record has the transaction's start time. The remaining records of
an expired or rotated id are the only evidence of an orphaned producer id's owner.

Only the client commits. The client or the coordinator aborts; the coordinator because the transaction passed its
timeout, or because a new instance fenced it with InitProducerId. KIP-588 and KAFKA-9803 ask to distinguish these two;
no field of a record does. Records do show the following, tested with Java, librdkafka and raw clients on Kafka 3.5.2,
3.9.2, 4.0.1 and 4.3.1:

- Before transaction version 2, a client ends its transaction with its current epoch, and the coordinator's own aborts
  raise the epoch by one. With version 2, every end raises it by one: all three aborts are the same, byte for byte, and
  only times differ. (Kafka 4.0.0 raises it by two in its own aborts, KAFKA-19367.)
- Ongoing records have the client's transaction version. A PrepareAbort may have the server's.
- The coordinator checks timeouts every ``transaction.abort.timed.out.transaction.cleanup.interval.ms`` (10 s), and
  aborts a transaction past its own: start_time + timeout < last_update_time of PrepareAbort.
- A fencing instance has to retry. So its Empty record, with the epoch raised again or with a new producer id, follows
  CompleteAbort after one retry: 0.1 s for Java, 0.5 s for librdkafka. Only Admin.fenceProducers of Kafka 3.5 did not
  retry.

If several causes remain, the ending is `abort` and the reason names them. The log of the coordinator's broker tells
more: it has a line for each timeout ("Completed rollback ... due to timeout"), written between PrepareAbort and
CompleteAbort. If the same file has no such line, but those before and after, it was not the timeout.

Sources: ``TransactionStateManager``, ``TransactionCoordinator`` (endTransaction, abortTimedOutTransactions) and
``TransactionMetadata`` (prepareFenceProducerEpoch, prepareAbortOrCommit, prepareComplete) in Kafka.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, NamedTuple

from toolkit.analysis.transaction_owners import (
    EXPIRED,
    OPEN_STATES,
    PREPARE_GRACE,
    TWO_PHASE_COMMIT,
    IdReplica,
    replica_of,
    state_of,
)
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema.durations import duration
from toolkit.schema.live import Transaction
from toolkit.schema.log import ClusterEvent, PastTransaction, TransactionLogRecord
from toolkit.schema.table import Error, Int64, TableRow, TopicPartition, declares

LAST_EPOCH = 32766  # the highest epoch of a client; 32767 is the coordinator's own
LOST_ID = " The producer id that its client got for the next one is lost (KAFKA-20310): it has to be restarted."
TORN_TAIL = "TORN_TAIL"  # a broker may be writing it
MAX_RETRY_DELAY = dt.timedelta(seconds=3)  # longer than clients wait to retry: 1 s at most in Java
TIMED_OUT, INITIALIZED = "transaction_timed_out", "producer_initialized"  # events of brokers' logs
MILLISECOND = dt.timedelta(milliseconds=1)
CLIENT, COORDINATOR, EITHER = "client", "coordinator", "either"
CLOCK_STEP = dt.timedelta(milliseconds=100)  # between a record and a line of one broker
MAX_APPEND = dt.timedelta(seconds=60)  # of a record to all replicas; its line follows


class Ending(NamedTuple):
    """How a transaction ended, as in ``schema.TRANSACTION_HISTORY``, and the evidence in a sentence."""

    ended: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLines:
    """What brokers' own logs have of a transactional id."""

    # timeouts, inits: lines of aborts for its timeout, and of InitProducerId
    timeouts: Sequence[ClusterEvent]
    inits: Sequence[ClusterEvent]
    file_starts: Mapping[str | None, dt.datetime]  # time of the first event of each file that was read to its end

    def timeout_of(self, records: TransactionRecords) -> ClusterEvent | None:
        """The line that says that the coordinator aborted this transaction for its timeout; null if none does."""
        start, end = records.decided_at, records.end_time
        if start is None or end is None:
            return None
        within = (each for each in self.timeouts if each.timestamp and start <= each.timestamp + CLOCK_STEP)
        return next((each for each in within if each.timestamp and each.timestamp <= end + CLOCK_STEP), None)

    def excludes_timeout(self, records: TransactionRecords) -> bool:
        """Whether the file in which a timeout would have its line has those before and after, and not this one."""
        decided, after = records.decided, records.after
        if decided is None or decided.leader_epoch is None or after is None or after.state != "Empty":
            return False
        if decided.leader_epoch != after.leader_epoch or records.decided_at is None:  # maybe of two coordinators
            return False
        begun = {file for file, start in self.file_starts.items() if start < records.decided_at - CLOCK_STEP}
        return self.timeout_of(records) is None and any(
            # a line about this InitProducerId; if the zone of its time is wrong, that is not known
            line.file in begun
            and line.timestamp is not None
            and after.timestamp is not None
            and -CLOCK_STEP <= line.timestamp - after.timestamp <= MAX_APPEND
            and (line.producer_id, line.producer_epoch) == (after.producer_id, after.producer_epoch)
            for line in self.inits
        )


def coordinator_lines(events: Iterable[ClusterEvent]) -> Mapping[str | None, CoordinatorLines]:
    """What brokers' own logs have, by transactional id."""
    found: defaultdict[str | None, dict[str | None, list[ClusterEvent]]] = defaultdict(lambda: defaultdict(list))
    file_starts: dict[str | None, dt.datetime] = {}
    for event in events:
        if event.error:
            file_starts[event.file] = dt.datetime.max.replace(tzinfo=dt.UTC)
        elif event.timestamp is not None:
            file_starts.setdefault(event.file, event.timestamp)
        if event.event in (TIMED_OUT, INITIALIZED):
            found[event.transactional_id][event.event].append(event)
    return {
        name: CoordinatorLines(timeouts=of[TIMED_OUT], inits=of[INITIALIZED], file_starts=file_starts)
        for name, of in found.items()
    }


@declares("history_state")
@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryState(TableRow):
    """The state from which the history of a transactional id on one replica continues.

    Later records show how its last transaction ended.
    """

    events: Annotated[tuple[TransactionLogRecord, ...], "Records of its last transaction, or its last other one."] = ()
    previous: Annotated[tuple[TransactionLogRecord, ...], "The record before ``events``, if one is known."] = ()
    producer_id: Annotated[Int64 | None, "Producer id before ``events``."] = None
    is_version_2: Annotated[
        bool | None,
        "Whether earlier records of the client instance show transaction version 2, which raises the epoch with every "
        "end; null if they show neither.",
    ] = None

    @property
    def before(self) -> TransactionLogRecord | None:
        """The record before `events`; null if none is known."""
        return self.previous[0] if self.previous else None


@dataclass(frozen=True, kw_only=True)
class TransactionRecords:
    """The records of one transaction, or another record of an id; and the records around them."""

    state: HistoryState  # the records, in offset order, at least one; and what is known from before them
    following: TransactionLogRecord | None = None  # the next record of the same id, readable or not; null if none is
    later_error: str | None = None  # error of later records that may be of the id; null if there are none
    as_of: dt.datetime | None = None  # when they were read, by the coordinator's clock
    settled: bool = True  # whether no records can follow, as in a copy of a log
    lines: CoordinatorLines | None = None  # what brokers' own logs have of the id; null if none was read

    @property
    def events(self) -> Sequence[TransactionLogRecord]:
        """The records."""
        return self.state.events

    @property
    def after(self) -> TransactionLogRecord | None:
        """The next record of the same id; null if none was read."""
        return None if self.following is None or self.following.error else self.following

    @property
    def unread(self) -> str | None:
        """Error of later records that could not be read and may be of the same id; null if there are none."""
        return self.later_error if self.following is None else self.following.error

    @property
    def last(self) -> TransactionLogRecord:
        """The last record."""
        return self.events[-1]

    @cached_property
    def first_by_state(self) -> Mapping[str | None, TransactionLogRecord]:
        """Its first record of each state."""
        return {event.state: event for event in reversed(self.events)}

    @property
    def ongoing(self) -> TransactionLogRecord | None:
        """Its first Ongoing record."""
        return self.first_by_state.get("Ongoing")

    @property
    def prepared(self) -> TransactionLogRecord | None:
        """Its first Prepare* record: the outcome is decided."""
        return self.first_by_state.get("PrepareCommit") or self.first_by_state.get("PrepareAbort")

    @property
    def complete(self) -> TransactionLogRecord | None:
        """Its first Complete* record: every marker is written."""
        return self.first_by_state.get("CompleteCommit") or self.first_by_state.get("CompleteAbort")

    @property
    def decided(self) -> TransactionLogRecord | None:
        """Its Prepare* record, otherwise its Complete* record."""
        return self.prepared or self.complete

    @property
    def is_commit(self) -> bool:
        """Whether the decision is to commit."""
        return self.decided is not None and (self.decided.state or "").endswith("Commit")

    @property
    def is_unused(self) -> bool:
        """Whether it was aborted without a partition: a client of version 2 raised its epoch."""
        first = self.events[0]
        return first.state == "PrepareAbort" and not first.topic_partitions and self._has_beginning is True

    @property
    def is_whole(self) -> bool | None:
        """Whether none of its records is missing, null if unknown; compaction removes the oldest first."""
        if self.complete is not None and self.prepared is None:
            return False
        return self._has_beginning if self.events[0].state == "Ongoing" or self.is_unused else False

    @property
    def start_time(self) -> dt.datetime | None:
        """When it became Ongoing: each of its records has the time, except in dumps of Kafka before 4.1."""
        first = self.events[0]
        return first.last_update_time if self.is_whole else first.start_time

    @property
    def decided_at(self) -> dt.datetime | None:
        """When it became Prepare*.

        A Complete* record has the same time, because it is prepared as soon as Prepare* is written; a new coordinator
        prepares it again.
        """
        return None if self.decided is None else self.decided.last_update_time

    @property
    def end_time(self) -> dt.datetime | None:
        """When it became Complete*: the record's own time, as its last_update_time is `decided_at`."""
        return None if self.complete is None else self.complete.timestamp or self.complete.last_update_time

    @property
    def producer_id(self) -> int | None:
        """Producer id of its data. Complete* has another one if the end exhausted the epochs."""
        first = self.events[0]
        return first.previous_producer_id if self._ends_with_next_id else first.producer_id

    @property
    def producer_epoch(self) -> int | None:
        """Epoch of its data; null if the records may only have the epoch that its end raised."""
        first, version = self.events[0], self.events[0].client_transaction_version or 0
        if self.ongoing is not None or (self.is_commit and version < 2):
            return first.producer_epoch
        if version < 2:
            return None  # raised if the coordinator aborted it
        if self._ends_with_next_id:
            return LAST_EPOCH
        return None if first.producer_epoch is None else first.producer_epoch - 1

    @property
    def next_producer_id(self) -> int | None:
        """The id's next producer id, if the end exhausted the epochs."""
        complete = self.complete
        return None if complete is None or complete.producer_id == self.producer_id else complete.producer_id

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...] | None:
        """Every partition that it included; null if only records after the markers are left."""
        listed = [event.topic_partitions or () for event in self.events if event is not self.complete]
        return tuple(sorted(set().union(*listed))) if listed else None

    @property
    def client_transaction_version(self) -> int | None:
        """Transaction version of its client; null if the records may only have the server's."""
        record = self.decided if self.is_commit or self.is_unused else self.ongoing
        return None if record is None else record.client_transaction_version

    @property
    def raised_by(self) -> int | None:
        """By how much its end raised the epoch; null if records are missing."""
        ongoing, decided = self.ongoing, self.decided
        if ongoing is None or decided is None or decided.producer_id != ongoing.producer_id:
            return None
        if ongoing.producer_epoch is None or decided.producer_epoch is None:
            return None
        return decided.producer_epoch - ongoing.producer_epoch

    @property
    def is_of_version_2(self) -> bool | None:
        """Whether its client raises the epoch with every end; null if unknown."""
        if self.state.is_version_2 or self.shows_version_2:
            return True
        return self.state.is_version_2 if self.shows_version_2 is None else False

    @property
    def shows_version_2(self) -> bool | None:
        """As `is_of_version_2`, by its own records only."""
        if self.raised_by == 0:
            return False
        if self.is_unused or (self.is_commit and self.raised_by):
            return True
        ongoing = self.ongoing
        if ongoing is None or ongoing.client_transaction_version is None:
            return False if ongoing is not None and ongoing.value_version == 0 else None
        return ongoing.client_transaction_version >= 2

    @property
    def _has_beginning(self) -> bool | None:
        """Whether its first record is the first that was written; null if unknown."""
        first = self.events[0]
        if first.start_time is None:  # if its previous record is known, no record is missing in between
            return True if self.state.before is not None and not self.state.before.error else None
        return first.start_time == first.last_update_time

    @property
    def _ends_with_next_id(self) -> bool:
        """Whether only a Complete* record is left, and the end exhausted the epochs."""
        first = self.events[0]
        version = first.client_transaction_version or 0
        return first is self.complete and version >= 2 and first.producer_epoch == 0


def ending(records: TransactionRecords) -> Ending:
    """How a transaction ended."""
    if records.complete is None and records.after is None and records.unread is None:
        return _not_ended(records)
    if records.decided is None:
        return Ending(None, "No record of its end could be read.")
    if records.is_commit:
        is_lost = records.complete is not None and (records.complete.producer_epoch or 0) > LAST_EPOCH
        ending = Ending("commit", f"Its client committed it{_when(records)}.{LOST_ID if is_lost else ''}")
    else:
        ending = _abort(records)
    if records.next_producer_id is None:
        return ending
    next_id = f" Its epochs were exhausted: the id continued with producer id {records.next_producer_id}."
    return ending._replace(reason=ending.reason + next_id)


def _not_ended(records: TransactionRecords) -> Ending:
    since, as_of = records.start_time if records.decided is None else records.decided_at, records.as_of
    lasted = None if since is None or as_of is None else as_of - since
    text = str(records.last.state) + ("" if lasted is None else f" for {_time(lasted)}") + " as of the last read"
    if records.decided is not None:
        stuck = lasted is not None and lasted > PREPARE_GRACE
        return Ending("stuck" if stuck else "open", f"{text}: not every marker is written.")
    timeout = _timeout(records)
    if records.last.timeout_ms == TWO_PHASE_COMMIT:
        text += ", in two-phase commit, which has no timeout"
    elif lasted is not None and timeout is not None and lasted > timeout:
        text += f", past its timeout of {_time(timeout)}"
    return Ending("open", f"{text}.")


def _abort(records: TransactionRecords) -> Ending:
    """The ending of an aborted transaction."""
    by, reason = _aborted_by(records)
    late, when, followed = _is_late(records), _when(records), _is_followed(records)
    if records.lines is not None and by != CLIENT:
        if (line := records.lines.timeout_of(records)) is not None:
            logged = f"broker {line.broker_id}" if line.broker_id is not None else "its broker"
            return Ending("timeout", f"The coordinator aborted it{when}: {logged} logged the timeout.")
        if records.lines.excludes_timeout(records):
            late, reason = False, f"{reason}, and its broker logged no timeout"
    if by == CLIENT:
        return Ending("abort", f"Its client aborted it{when}: {reason}.")
    if by == COORDINATOR and late is False:
        return Ending("fence", f"A new instance sent InitProducerId, so the coordinator aborted it{when}: {reason}.")
    if by == COORDINATOR and late and followed is False:
        return Ending("timeout", f"The coordinator aborted it{when}: {reason}, and no new instance followed at once.")
    if late is False and followed is False:
        return Ending("abort", f"Aborted by its client{when}: no new instance followed at once.")
    return Ending("abort", _undecided(records, by, reason, late=late, followed=followed))


def _undecided(records: TransactionRecords, by: str, reason: str, *, late: bool | None, followed: bool | None) -> str:
    """The possible causes of an abort, and why the records do not decide."""
    causes = ["by its client"] if by == EITHER else []
    if late is not False:
        causes.append("by the coordinator for its timeout")
    if followed:
        causes.append(f"by the fence of a new instance, which followed {_time(_gap(records))} later")
    elif followed is None:
        causes.append("by the fence of a new instance whose record is not written yet")
    elif late is None:
        causes.append("by the fence of a new instance that did not retry")
    text = f"Aborted{_when(records)}: {' or '.join(causes)}. The records do not decide: {reason}."
    if followed and by == EITHER:
        text += " No broker logs a fence: if it was one, the earlier client got PRODUCER_FENCED."
    if late is not False:
        text += ' If it was the timeout, the broker logged "Completed rollback ... due to timeout".'
    return text


def _aborted_by(records: TransactionRecords) -> tuple[str, str]:
    """Whether the client or the coordinator aborted it, and the evidence."""
    raised, epoch = records.raised_by, records.events[0].producer_epoch
    if records.is_unused:
        return CLIENT, "it had no partition, and a coordinator ends only Ongoing transactions"
    if raised is None or epoch is None:
        return EITHER, "the record of its start is gone"
    if raised == 0:
        return CLIENT, f"the epoch stayed {epoch}"
    change = f"the epoch was raised from {epoch} to {epoch + raised}"
    if raised > 1 or records.is_of_version_2 is False:
        return COORDINATOR, change
    if records.is_of_version_2 is None:
        return EITHER, f"{change}, maybe by a client of transaction version 2"
    return EITHER, "transaction version 2 raises the epoch with every end"


def _is_late(records: TransactionRecords) -> bool | None:
    """Whether it was decided past its timeout; null if unknown."""
    timeout, start, decided_at = _timeout(records), records.start_time, records.decided_at
    if records.last.timeout_ms == TWO_PHASE_COMMIT:
        return False
    if timeout is None or start is None or decided_at is None:
        return None
    return decided_at - start > timeout


def _timeout(records: TransactionRecords) -> dt.timedelta | None:
    milliseconds = records.last.timeout_ms
    return None if milliseconds is None else milliseconds * MILLISECOND


def _is_followed(records: TransactionRecords) -> bool | None:
    """Whether InitProducerId follows as soon as a fencing instance sends it; null if unknown."""
    if records.after is not None:
        return records.after.state == "Empty" and _gap(records) <= MAX_RETRY_DELAY
    ended, as_of = records.end_time, None if records.settled else records.as_of
    too_early = as_of is not None and ended is not None and as_of - ended <= MAX_RETRY_DELAY
    return None if too_early or records.unread is not None else False


def _gap(records: TransactionRecords) -> dt.timedelta:
    """Time from its end to the next record; 0 if unknown."""
    end, after = records.end_time or records.decided_at, records.after
    if end is None or after is None or after.timestamp is None:
        return dt.timedelta(0)
    return after.timestamp - end


def _when(records: TransactionRecords) -> str:
    """`` 1.2 s after its start``, and for an abort also whether that is past its timeout; empty if unknown."""
    start, decided_at, late = records.start_time, records.decided_at, _is_late(records)
    if start is None or decided_at is None:
        return ""
    when = f" {_time(decided_at - start)} after its start"
    timeout = _timeout(records)
    if records.is_commit or timeout is None:
        return when
    return f"{when}, {'past' if late else 'before'} its timeout of {_time(timeout)}"


def _time(time: dt.timedelta) -> str:
    """A duration: below one second in milliseconds, below ten seconds in tenths of a second."""
    seconds = time.total_seconds()
    if abs(seconds) < 1:
        return f"{time // MILLISECOND} ms"
    return f"{round(seconds, 1):g} s" if abs(seconds) < 10 else duration(time)


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
    broker_log_events: Iterable[ClusterEvent] = (),
) -> list[PastTransaction]:
    """The history of each transactional id: transactions with their endings, InitProducerId, expiry.

    With an ``error`` if one of its records may be unreadable.
    `events`: the records, in offset order within a partition; compacted or not, of one replica or several.
    `as_of`: when they were read, by the coordinators' clock: open transactions last until then, and records may still
        follow a recent end. By default the newest time in the records, after which no record follows.
    `broker_log_events`: events in brokers' own logs: they distinguish a timeout from other aborts.
    """
    found: defaultdict[IdReplica, list[TransactionLogRecord]] = defaultdict(list)
    last: dict[IdReplica, int] = {}  # number of its last record
    unreadable: defaultdict[IdReplica, list[tuple[int, TransactionLogRecord]]] = defaultdict(list)
    latest: dt.datetime | None = None
    for number, record in enumerate(events):
        replica, time = replica_of(record), record.timestamp
        if record.transactional_id is not None:
            found[replica].append(record)
            last[replica] = number
        elif record.error:
            unreadable[replica].append((number, record))
        latest = time if latest is None or (time is not None and time > latest) else latest
    # Of the unreadable ones of a replica, the last by location and the last by number are enough.
    ends = {
        replica: [max(reversed(records), key=lambda each: location(each[1]) or ("", 0, 0)), records[-1]]
        for replica, records in unreadable.items()
    }
    past: list[PastTransaction] = []
    lines = coordinator_lines(broker_log_events)
    for replica, records in sorted(found.items()):
        of_id = lines.get(replica.transactional_id)
        settled, id_state = advance(HistoryState(), records, lines=of_id)
        unread, own = None, location(records[-1])
        for number, record in ends.get(replica._replace(transactional_id=""), ()):
            # By their locations if both are known: damaged records of a file are listed after the readable ones.
            place = location(record)
            is_later = number > last[replica] if place is None or own is None else place > own
            unread = record.error if unread is None and is_later else unread
        past += settled
        past += current(id_state, as_of=as_of, latest=latest, unread=unread, lines=of_id)
    return past


def location(record: TransactionLogRecord) -> tuple[str, int, int] | None:
    """File, position and offset, null if unknown; the names of a log's files sort in log order."""
    file, position = record.file, record.position
    return None if file is None or position is None else (file, position, record.offset or 0)


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
            state = replace(state, previous=(group[0],))
            continue
        records = TransactionRecords(state=replace(state, events=tuple(group)), following=after[0], lines=lines)
        past.append(_past_transaction(records))
        state = HistoryState(
            previous=(records.last,),
            producer_id=past[-1].producer_id or state.producer_id,
            is_version_2=None if group[0].state == "Empty" else records.is_of_version_2,
        )
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

    `as_of`: as for `transaction_history`. `latest`: the newest time in the records of all partitions.
    `unread`: error of later records that could not be read and may be of the same id.
    `lines`: as for `advance`.
    """
    if not state.events or (state.events[0].error and state.before is not None):
        return []
    return [
        _past_transaction(
            TransactionRecords(
                state=state, later_error=unread, as_of=as_of or latest, settled=as_of is None, lines=lines
            )
        )
    ]


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


def unread_partitions(
    past: Iterable[PastTransaction], log_records: Iterable[TransactionLogRecord]
) -> Iterator[PastTransaction]:
    """An error without an id for what could not be read and no row has: ids may have records there alone.

    `past`: the history of every id. `log_records`: the records that it is of, or those that could not be read.
    """
    known = {(each.txn_state_partition, each.error) for each in past}
    for each in log_records:
        key = each.txn_state_partition, each.error
        if each.error is None or each.transactional_id is not None or key in known or each.error.startswith(TORN_TAIL):
            continue
        known.add(key)
        yield PastTransaction(
            transactional_id="",
            txn_state_partition=each.txn_state_partition,
            kind="transaction",
            reason="Records of further ids may not have been read.",
            broker_id=each.broker_id,
            error=each.error,
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


def _past_transaction(records: TransactionRecords) -> PastTransaction:
    """What these records show."""
    first, last, before = records.events[0], records.last, records.state.before
    last_id = records.state.producer_id
    previous = first.previous_producer_id if last_id is None and first.state == "Empty" else last_id
    past = PastTransaction(
        transactional_id=last.transactional_id or "",
        txn_state_partition=last.txn_state_partition,
        kind="transaction",
        reason="No record of the id could be read.",
        state=last.state,
        timeout_ms=last.timeout_ms,
        previous_producer_id=previous,
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
            previous_producer_id=None if previous == producer_id else previous,
            producer_epoch=None if before is None else before.producer_epoch,
            reason="Its coordinator expired the id: idle for transactional.id.expiration.ms.",
            state=None if before is None else before.state,
            end_time=last.timestamp,
        )
    if first.state == "Empty":
        return replace(
            past,
            kind="init",
            producer_id=last.producer_id,
            previous_producer_id=None if previous == last.producer_id else previous,
            producer_epoch=last.producer_epoch,
            reason=_why_init(last, before),
            end_time=last.timestamp or last.last_update_time,
        )
    how = ending(records)
    start, decided_at, end = records.start_time, records.decided_at, records.end_time
    until = records.as_of if how.ended in {"open", "stuck"} else None
    unread_before = before.error if before is not None and not records.is_whole else None
    return replace(
        past,
        producer_id=records.producer_id,
        previous_producer_id=None if previous == records.producer_id else previous,
        producer_epoch=records.producer_epoch,
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


def _groups(events: Sequence[TransactionLogRecord]) -> Iterator[list[TransactionLogRecord]]:
    """The records of each entry of the history: all records of a transaction, or one other record.

    One that could not be read has no stage.
    """
    group: list[TransactionLogRecord] = []
    for event in events:
        if group:
            state, next_state = group[-1].state or "", event.state or ""
            stage, next_stage = STAGES.get(state), STAGES.get(next_state)
            is_next = stage is not None and next_stage is not None and stage <= next_stage
            is_same = stage == 0 or state.endswith("Commit") == next_state.endswith("Commit")
            if not is_next or not is_same or group[-1].start_time != event.start_time:
                yield group
                group = []
        group.append(event)
    if group:
        yield group


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


@dataclass(frozen=True)
class IdHistory:
    """The records of a transactional id."""

    transactional_id: str
    records: Sequence[TransactionLogRecord]  # its readable records, in offset order

    @cached_property
    def transactions(self) -> Sequence[PastTransaction]:
        """Its transactions, in order; the last one may be open."""
        return [each for each in transaction_history(self.records) if each.kind == "transaction"]

    def first_of(self, producer_id: int) -> TransactionLogRecord | None:
        """The first record that has the producer id as its own."""
        return next((record for record in self.records if record.producer_id == producer_id), None)


def begins_producer(record: TransactionLogRecord) -> bool:
    """Whether an id got its producer id with a record.

    After the last epoch of a producer id, a repeated InitProducerId returns epoch 0 of the next one again (KIP-360).
    """
    is_next = record.previous_producer_id not in {None, record.producer_id}
    return record.state == "Empty" and record.producer_epoch == 0 and not is_next


@dataclass(frozen=True, kw_only=True)
class CoordinatorLog:
    """Records of ``__transaction_state``."""

    # records of the relevant transactional ids, in offset order within a partition
    records: Sequence[TransactionLogRecord] = ()
    # why records may be missing, one sentence per reason; empty if all that are left since the time they are needed for
    # were read
    unread: Sequence[str] = ()
    # for each partition that was not read from its beginning: the time of the first record read
    since: Mapping[int, dt.datetime] = field(default_factory=dict)
    # for each partition, where known: its leader and the leader epoch when it was read
    leaders: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @cached_property
    def gaps(self) -> Sequence[str]:
        """Why records may be missing, those that could not be read included."""
        errors = sorted({Error.of(each.error).code for each in self.records if each.error})
        return [*self.unread, *([f"{STATE_TOPIC} could not be read ({', '.join(errors)})"] if errors else [])]

    @cached_property
    def histories(self) -> Mapping[str, IdHistory]:
        """The records by transactional id; of two copies of the log, the first one."""
        found: defaultdict[str, list[TransactionLogRecord]] = defaultdict(list)
        seen = set()
        for record in self.records:
            if record.transactional_id is None or record.error:
                continue
            key = record.transactional_id, record.txn_state_partition, record.offset, record.state, record.timestamp
            if record.offset is None or key not in seen:
                found[record.transactional_id].append(record)
            seen.add(key)
        return {name: IdHistory(name, records) for name, records in found.items()}

    @cached_property
    def ids_by_producer(self) -> Mapping[int, Sequence[str]]:
        """The transactional ids with a record of a producer id: as its own, as the previous, or as the next one."""
        found: defaultdict[int, dict[str, None]] = defaultdict(dict)
        for name, history in self.histories.items():
            for record in history.records:
                for producer_id in _named_ids(record):
                    found[producer_id][name] = None
        return {producer_id: list(names) for producer_id, names in found.items()}

    def other_ids(self, producer_id: int, transactional_id: str) -> Sequence[str]:
        """Other transactional ids that had a producer id as their own, as far as their records were read."""
        return [
            name
            for name in self.ids_by_producer.get(producer_id, ())
            if name != transactional_id and self.histories[name].first_of(producer_id) is not None
        ]

    def of(self, producer_id: int, transactional_id: str | None) -> Sequence[IdHistory]:
        """Histories of a producer id's owner; if it has none any more, of every id that had it."""
        names = [transactional_id] if transactional_id is not None else self.ids_by_producer.get(producer_id, ())
        return [self.histories[name] for name in names if name in self.histories]


def names_any(event: TransactionLogRecord, producer_ids: Collection[int]) -> bool:
    """Whether a record has one of these producer ids: as its own, as the previous, or as the next."""
    return any(each in producer_ids for each in _named_ids(event))


def _named_ids(event: TransactionLogRecord) -> Iterator[int]:
    """Its own producer id, the previous and the next one, as far as it has them."""
    ids = (event.producer_id, event.previous_producer_id, event.next_producer_id)
    return (each for each in ids if each is not None)
