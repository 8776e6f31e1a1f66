"""How a transaction ended, from its coordinator's records.

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

Sources: ``TransactionCoordinator`` (endTransaction, abortTimedOutTransactions) and ``TransactionMetadata``
(prepareFenceProducerEpoch, prepareAbortOrCommit, prepareComplete) in Kafka.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from toolkit.analysis.coordinator.transaction_states import PREPARE_GRACE, TWO_PHASE_COMMIT
from toolkit.schema.durations import duration
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.metadata import ClusterEvent
from toolkit.schema.table import TopicPartition

LAST_EPOCH = 32766  # the highest epoch of a client; 32767 is the coordinator's own
LOST_ID = " The producer id that its client got for the next one is lost (KAFKA-20310): it has to be restarted."
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
            each.file in begun and _is_line_of(after, each) for each in self.inits
        )


def _is_line_of(init: TransactionLogRecord, line: ClusterEvent) -> bool:
    """Whether a line is about this InitProducerId; not if the zone of its time is wrong."""
    if line.timestamp is None or init.timestamp is None:
        return False
    is_near = -CLOCK_STEP <= line.timestamp - init.timestamp <= MAX_APPEND
    return is_near and (line.producer_id, line.producer_epoch) == (init.producer_id, init.producer_epoch)


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


@dataclass(frozen=True, kw_only=True)
class TransactionRecords:
    """The records of one transaction."""

    events: Sequence[TransactionLogRecord]  # the records in offset order, at least one
    after: TransactionLogRecord | None = None  # the next record of the same id; null if none was read
    # error of later records that could not be read and may be of the same id; null if there are none
    unread: str | None = None
    follows: bool = False  # whether the id's previous record is known, so that no record is missing in between
    # whether earlier records of the same client instance show transaction version 2, which raises the epoch with every
    # end; null if they show neither
    version_2_before: bool | None = None
    lines: CoordinatorLines | None = None  # what brokers' own logs have of the id; null if none was read

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
        if self.version_2_before or self.shows_version_2:
            return True
        return self.version_2_before if self.shows_version_2 is None else False

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
        if first.start_time is None:
            return True if self.follows else None
        return first.start_time == first.last_update_time

    @property
    def _ends_with_next_id(self) -> bool:
        """Whether only a Complete* record is left, and the end exhausted the epochs."""
        first = self.events[0]
        version = first.client_transaction_version or 0
        return first is self.complete and version >= 2 and first.producer_epoch == 0


def ending(records: TransactionRecords, *, as_of: dt.datetime | None, settled: bool) -> Ending:
    """How a transaction ended.

    `as_of`: when they were read, by the coordinator's clock.
    `settled`: whether no records can follow, as in a copy of a log.
    """
    if records.complete is None and records.after is None and records.unread is None:
        return _not_ended(records, as_of)
    if records.decided is None:
        return Ending(None, "No record of its end could be read.")
    if records.is_commit:
        is_lost = records.complete is not None and (records.complete.producer_epoch or 0) > LAST_EPOCH
        ending = Ending("commit", f"Its client committed it{_when(records)}.{LOST_ID if is_lost else ''}")
    else:
        ending = _abort(records, followed=_is_followed(records, None if settled else as_of))
    if records.next_producer_id is None:
        return ending
    next_id = f" Its epochs were exhausted: the id continued with producer id {records.next_producer_id}."
    return ending._replace(reason=ending.reason + next_id)


def _not_ended(records: TransactionRecords, as_of: dt.datetime | None) -> Ending:
    since = records.start_time if records.decided is None else records.decided_at
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


def _abort(records: TransactionRecords, *, followed: bool | None) -> Ending:
    """The ending of an aborted transaction; `followed` is whether a new instance followed at once."""
    by, reason = _aborted_by(records)
    late, when = _is_late(records), _when(records)
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


def _is_followed(records: TransactionRecords, as_of: dt.datetime | None) -> bool | None:
    """Whether InitProducerId follows as soon as a fencing instance sends it; null if unknown."""
    if records.after is not None:
        return records.after.state == "Empty" and _gap(records) <= MAX_RETRY_DELAY
    ended = records.end_time
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
