"""How a transaction ended, by the records that its coordinator wrote.

A commit is always its client's. An abort is its client's, or the coordinator's own: because the transaction passed its
timeout, or because a new instance asked for the id (InitProducerId) and so fenced it. KIP-588 and KAFKA-9803 are about
telling these two apart; no field of a record does. What the records do tell, tried with Java, librdkafka and raw
clients on Kafka 3.5.2, 3.9.2, 4.0.1 and 4.3.1:

- Before transaction version 2 a client ends its transaction with the epoch it has, and the coordinator's own aborts
  raise it by one. With version 2 every end raises it by one: all three aborts are the same, byte for byte, and only
  times are left. (Kafka 4.0.0 raises it by two in its own, KAFKA-19367.)
- The client's version stands in its Ongoing records. That of a PrepareAbort may be the server's.
- The coordinator looks for timeouts every ``transaction.abort.timed.out.transaction.cleanup.interval.ms`` (10 s), and
  aborts what has passed its own: start_time + timeout < last_update_time of PrepareAbort.
- A fencing instance is told to come back. So its Empty record, with the epoch raised once more or with a new producer
  id, stands one retry behind CompleteAbort: 0.1 s for Java, 0.5 s for librdkafka. Only Admin.fenceProducers of Kafka
  3.5 gave up instead.

Where that leaves a choice, the ending is called an abort and the reason names the choice.

Sources: ``TransactionCoordinator`` (endTransaction, abortTimedOutTransactions) and ``TransactionMetadata``
(prepareFenceProducerEpoch, prepareAbortOrCommit, prepareComplete) in Kafka.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from toolkit.analysis.cases import TWO_PHASE_COMMIT
from toolkit.analysis.wording import duration
from toolkit.schema import Row

__all__ = ["LAST_EPOCH", "Ending", "Records", "ending"]

LAST_EPOCH = 32766  # that a client may have; 32767 is the coordinator's own
COMES_BACK = dt.timedelta(seconds=3)  # longer than clients wait before they ask again: 1 s at most in Java
MILLISECOND = dt.timedelta(milliseconds=1)
CLIENT, COORDINATOR, EITHER = "client", "coordinator", "either"


class Ending(NamedTuple):
    """How a transaction ended, as in ``schema.HISTORIES``, and a sentence for what shows it."""

    ended: str | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The records of one transaction.

    Parameters
    ----------
    events
        Rows of ``schema.COORDINATOR_EVENTS`` in their order, at least one.
    after
        The next record of the same id; null if none was read.
    unread
        What could not be read after them and may be of the same id; null where nothing is missing.
    epoch_raised_before
        Whether the same instance of the client raised its epoch with a commit before: transaction version 2.
    """

    events: Sequence[Row]
    after: Row | None = None
    unread: str | None = None
    epoch_raised_before: bool = False

    @property
    def last(self) -> Row:
        """The last record."""
        return self.events[-1]

    @property
    def ongoing(self) -> Row | None:
        """Its first record as Ongoing."""
        return self._first("Ongoing")

    @property
    def complete(self) -> Row | None:
        """Its first record as Complete*: every marker is written."""
        return self._first("Complete")

    @property
    def decided(self) -> Row | None:
        """Its Prepare* record, or else its Complete* record."""
        return self._first("PrepareCommit") or self._first("PrepareAbort") or self.complete

    @property
    def is_commit(self) -> bool:
        """Whether it is decided to be committed."""
        return self.decided is not None and str(self.decided["state"]).endswith("Commit")

    @property
    def is_unused(self) -> bool:
        """Whether it was aborted with no partition in it: a client of version 2 that wanted its epoch raised."""
        first = self.events[0]
        return (
            first["state"] == "PrepareAbort"
            and not first["topic_partitions"]
            and first["last_update_time"] == first["start_time"]
        )

    @property
    def is_whole(self) -> bool:
        """Whether none of its records is missing; compaction takes the oldest first."""
        first = self.events[0]
        begins = first["state"] == "Ongoing" and first["last_update_time"] == first["start_time"]
        return (begins or self.is_unused) and (self.complete is None or self._first("Prepare") is not None)

    @property
    def start_time(self) -> dt.datetime | None:
        """When it became Ongoing: each of its records tells."""
        start: dt.datetime | None = self.events[0]["start_time"]
        return start

    @property
    def decided_at(self) -> dt.datetime | None:
        """When it became Prepare*.

        A Complete* record has that time as well, because it is made up as soon as Prepare* is written; but a
        coordinator that takes over makes it up again.
        """
        return None if self.decided is None else self.decided["last_update_time"]

    @property
    def end_time(self) -> dt.datetime | None:
        """When it became Complete*: the record's own time, as its last_update_time is `decided_at`."""
        return None if self.complete is None else self.complete["timestamp"] or self.complete["last_update_time"]

    @property
    def producer_id(self) -> int | None:
        """Producer id that it was written with: an end that uses up the epochs has another one in Complete*."""
        first = self.events[0]
        if not self._ends_with_next_id:
            return None if first["producer_id"] is None else int(first["producer_id"])
        return None if first["previous_producer_id"] is None else int(first["previous_producer_id"])

    @property
    def producer_epoch(self) -> int | None:
        """Epoch that it was written with; null where its end may have raised it."""
        first, version = self.events[0], self.events[0]["client_transaction_version"] or 0
        if self.ongoing is not None or (self.is_commit and version < 2):
            return int(first["producer_epoch"])
        if version < 2:
            return None  # raised, if it was the coordinator that aborted it
        return LAST_EPOCH if self._ends_with_next_id else int(first["producer_epoch"]) - 1

    @property
    def next_producer_id(self) -> int | None:
        """Producer id that the id went on with, where the end used up the epochs."""
        complete = self.complete
        if complete is None or complete["producer_id"] == self.producer_id:
            return None
        return int(complete["producer_id"])

    @property
    def topic_partitions(self) -> list[dict[str, object]] | None:
        """Every partition that was in it; null where only records after the markers are left."""
        listed = [event["topic_partitions"] or [] for event in self.events if event is not self.complete]
        if not listed:
            return None
        found = {(each["topic"], each["partition"]) for partitions in listed for each in partitions}
        return [{"topic": topic, "partition": partition} for topic, partition in sorted(found)]

    @property
    def client_transaction_version(self) -> int | None:
        """Of its client; null where only the server's may be there."""
        told = self.decided if self.is_commit or self.is_unused else self.ongoing
        version = None if told is None else told["client_transaction_version"]
        return None if version is None else int(version)

    @property
    def raised_by(self) -> int | None:
        """By how much its end raised the epoch; null where the records that tell are gone."""
        if self.ongoing is None or self.decided is None or self.decided["producer_id"] != self.ongoing["producer_id"]:
            return None
        return int(self.decided["producer_epoch"]) - int(self.ongoing["producer_epoch"])

    @property
    def shows_version_2(self) -> bool:
        """Whether its client raises the epoch itself."""
        ongoing = 0 if self.ongoing is None else self.ongoing["client_transaction_version"] or 0
        return ongoing >= 2 or (self.is_commit and bool(self.raised_by)) or self.is_unused

    @property
    def _ends_with_next_id(self) -> bool:
        """Whether all that is left is a Complete* record whose end used up the epochs."""
        first = self.events[0]
        version = first["client_transaction_version"] or 0
        return first is self.complete and version >= 2 and first["producer_epoch"] == 0

    def _first(self, state: str) -> Row | None:
        return next((event for event in self.events if (event["state"] or "").startswith(state)), None)


def ending(records: Records, *, as_of: dt.datetime | None, settled: bool = False, stuck_after: dt.timedelta) -> Ending:
    """How a transaction ended.

    Parameters
    ----------
    records
        Its records.
    as_of
        When they were read, by the coordinator's clock.
    settled
        Whether there is nothing more to come, as in a copy of a log.
    stuck_after
        From when on Prepare* is stuck.
    """
    if records.complete is None and records.after is None and records.unread is None:
        return _not_ended(records, as_of, stuck_after)
    if records.decided is None:
        return Ending(None, "Its end is not among the records that could be read.")
    if records.is_commit:
        ending = Ending("commit", f"Its client committed it{_when(records)}.")
    else:
        ending = _abort(records, soon=_comes_soon(records, None if settled else as_of))
    if records.next_producer_id is None:
        return ending
    goes_on = f" Its epochs were used up: the id went on with producer id {records.next_producer_id}."
    return ending._replace(reason=ending.reason + goes_on)


def _not_ended(records: Records, as_of: dt.datetime | None, stuck_after: dt.timedelta) -> Ending:
    since = records.start_time if records.decided is None else records.decided_at
    lasted = None if since is None or as_of is None else as_of - since
    text = records.last["state"] + ("" if lasted is None else f" for {_span(lasted)}") + " when the reading ended"
    if records.decided is not None:
        stuck = lasted is not None and lasted > stuck_after
        return Ending("stuck" if stuck else "open", f"{text}: not every marker is written.")
    timeout = records.last["timeout_ms"] * MILLISECOND
    if records.last["timeout_ms"] == TWO_PHASE_COMMIT:
        text += ", in two-phase commit, which has no timeout"
    elif lasted is not None and lasted > timeout:
        text += f", past its timeout of {_span(timeout)}"
    return Ending("open", f"{text}.")


def _abort(records: Records, *, soon: bool | None) -> Ending:
    """How an abort came about; `soon` is whether a new instance came at once."""
    by, shown = _aborted_by(records)
    late, when = _is_late(records), _when(records)
    timeout = _span(records.last["timeout_ms"] * MILLISECOND)
    if by == CLIENT:
        return Ending("abort", f"Its client aborted it{when}: {shown}.")
    if by == COORDINATOR and not late:
        return Ending(
            "fence",
            f"A new instance asked for the id, so the coordinator aborted it{when}, before its timeout of {timeout}: "
            f"{shown}.",
        )
    if by == COORDINATOR and soon is False:
        return Ending(
            "timeout",
            f"The coordinator aborted it{when}, past its timeout of {timeout}: {shown}, and no new instance came at "
            "once.",
        )
    return Ending("abort", _choice(records, by, shown, late=late, soon=soon))


def _choice(records: Records, by: str, shown: str, *, late: bool, soon: bool | None) -> str:
    """Who may have aborted it, and why no more can be said."""
    timeout = _span(records.last["timeout_ms"] * MILLISECOND)
    whom = ["by its client"] if by == EITHER else []
    if late:
        whom.append("by the coordinator for its timeout")
    if soon:
        whom.append(f"for the new instance that came {_span(_gap(records))} later (a fence)")
    elif soon is None:
        whom.append("for a new instance whose record is not there yet (a fence)")
    text = f"Aborted{_when(records)}, {'past' if late else 'before'} its timeout of {timeout}"
    if whom == ["by its client"]:
        return f"{text}, and no new instance came at once: by its client."
    text += f": {' or '.join(whom)}; {shown}, which does not tell them apart."
    if late:
        text += " If it was the timeout, the broker's log says so (Completed rollback ... due to timeout)."
    return text


def _aborted_by(records: Records) -> tuple[str, str]:
    """Who aborted it, and what shows that."""
    raised = records.raised_by
    if records.is_unused:
        return CLIENT, "no partition was in it, and a coordinator ends only what is Ongoing"
    if raised is None:
        return EITHER, "the record of its start is gone"
    epoch = records.events[0]["producer_epoch"]
    if raised == 0:
        return CLIENT, f"the epoch stayed {epoch}"
    if raised == 1 and (records.shows_version_2 or records.epoch_raised_before):
        return EITHER, "transaction version 2 raises the epoch with every end"
    return COORDINATOR, f"the epoch was raised from {epoch} to {epoch + raised}"


def _is_late(records: Records) -> bool:
    """Whether it was decided past its timeout."""
    timeout, start, decided_at = records.last["timeout_ms"], records.start_time, records.decided_at
    if timeout == TWO_PHASE_COMMIT or start is None or decided_at is None:
        return False
    return bool(decided_at - start > timeout * MILLISECOND)


def _comes_soon(records: Records, as_of: dt.datetime | None) -> bool | None:
    """Whether InitProducerId follows as that of a fencing instance would; null where that cannot be seen."""
    if records.after is not None:
        return records.after["state"] == "Empty" and _gap(records) <= COMES_BACK
    ended = records.end_time or records.decided_at
    too_early = as_of is not None and ended is not None and as_of - ended <= COMES_BACK
    return None if too_early or records.unread is not None else False


def _gap(records: Records) -> dt.timedelta:
    """From its end to the record after it; 0 where a time is not known."""
    end, after = records.end_time or records.decided_at, records.after
    if end is None or after is None or after["timestamp"] is None:
        return dt.timedelta(0)
    gap: dt.timedelta = after["timestamp"] - end
    return gap


def _when(records: Records) -> str:
    start, decided_at = records.start_time, records.decided_at
    return "" if start is None or decided_at is None else f" {_span(decided_at - start)} after its start"


def _span(span: dt.timedelta) -> str:
    """To the millisecond below a second, and to its tenth below ten."""
    seconds = span.total_seconds()
    if abs(seconds) < 1:
        return f"{span // MILLISECOND} ms"
    return f"{round(seconds, 1):g} s" if abs(seconds) < 10 else duration(span)
