"""Prove what was decided about records that are still open, by the coordinator's log.

A coordinator's *current* state proves nothing about an earlier transaction of the same producer. Its log does: each
transaction of the producer that included the partition and was decided has to have its marker on the partition. The
records that are open belong to such a transaction if its marker is not there: the coordinator skipped it (KAFKA-20734),
or it was lost, compacted or refused.

Which marker ends which transaction follows from the epochs, where they tell: a leader appends no batch with an epoch
below that of the producer's last marker, and with transaction version 2 each transaction has an epoch of its own. With
transaction version 1, transactions of one instance share an epoch, and times have to tell: the marker is written after
the decision (PrepareCommit, PrepareAbort) and before its completion. These are times of two brokers, whose clocks may
differ by `CLOCKS_DIFFER`; within that, the markers of earlier transactions show by how much they do.

Sources: ``ProducerAppendInfo`` (epochs), ``TransactionMetadata`` and ``TransactionMarkerChannelManager`` in Kafka;
KIP-890.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from toolkit.analysis.coordinator.coordinator_log import CoordinatorLog, IdHistory
from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER, ProducerBatches
from toolkit.analysis.diagnosis.evidence_text import at, record_entry
from toolkit.analysis.diagnosis.open_transactions import OpenTransaction
from toolkit.analysis.diagnosis.outcome import ABORT, COMMIT, UNDECIDED, UNKNOWN, Outcome
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.headers import COMMIT as COMMIT_MARKER
from toolkit.schema import utc
from toolkit.schema.live import EvidenceEntry
from toolkit.schema.log import PastTransaction, TransactionLogRecord

__all__ = ["find_outcome"]

SLACK = dt.timedelta(milliseconds=50)  # by which the difference of two clocks may drift among a few markers
MAX_MARKERS = 20  # before the open records, to compare clocks with


def find_outcome(txn: OpenTransaction, batches: ProducerBatches | None, log: CoordinatorLog | None) -> Outcome:
    """What was decided about the open records of a transaction.

    Parameters
    ----------
    txn
        The open transaction.
    batches
        Its producer's batches around its start; null if the partition's log was not read.
    log
        The coordinators' log, read after the leader has shown the transaction open; null if it was not read.
    """
    if txn.start is None:
        return Outcome(name=UNDECIDED, reason="it has written nothing here yet")
    whether = f"whether a commit includes these records of {txn.tp[0]}-{txn.tp[1]}"
    if log is None:
        return _unknown(f"the coordinators' log, which was not read: {whether}")
    if log.unread:
        return _unknown(*(f"{why}: {whether}" for why in log.unread))
    histories = log.of(txn.producer_id, txn.transactional_id)
    if len(histories) != 1 or (first := histories[0].first_of(txn.producer_id)) is None:
        found = f"{len(histories)} ids have it" if len(histories) > 1 else f"none is left{_since(log)}"
        return _unknown(f"records of producer {txn.producer_id} in {STATE_TOPIC} ({found}): {whether}")
    return _Proof(txn=txn, batches=batches, history=histories[0], first=first, whether=whether).outcome


def _unknown(*missing: str) -> Outcome:
    return Outcome(name=UNKNOWN, reason=missing[0], missing=missing)


def _since(log: CoordinatorLog) -> str:
    return f" since {at(min(log.since.values()))}" if log.since else ""


@dataclass(frozen=True, kw_only=True)
class _Proof:
    """Decided transactions of a producer on a partition, compared with its markers there."""

    txn: OpenTransaction
    batches: ProducerBatches | None
    history: IdHistory
    first: TransactionLogRecord
    whether: str

    @cached_property
    def outcome(self) -> Outcome:
        unread = [each.error for each in self.transactions if each.error]
        if unread:
            return _unknown(f"records of {self.name} that can be read ({unread[0]}): {self.whether}")
        found = {self._without_markers(last) for last in self._last_closed()}
        if not found:
            return _unknown(f"markers and records of {self.name} that agree: {self.whether}")
        if len(found) > 1 and not any(_is_commit(each) for without in found for each in without):
            return self._undecided()  # if one of them wrote the records, it was aborted
        if len(found) > 1:
            return _unknown(f"{self._what_decides}: {self._transaction_text(self.decided[-1])}, {self.whether}")
        (without,) = found
        if not without:
            return self._undecided()
        return self._decided(without)

    @property
    def name(self) -> str:
        return f'"{self.history.transactional_id}" in {STATE_TOPIC}-{self.first.txn_state_partition}'

    @cached_property
    def first_epoch(self) -> int | None:
        """Epoch of the batch that opened the transaction; null if it was not read."""
        if self.batches is not None and len(self.batches.first_batch):
            return int(self.batches.first_batch["producer_epoch"][0])
        return self.txn.first_epoch

    @property
    def _lowest_epoch(self) -> int:
        """Epoch of the batch that opened the transaction; of its newest batch if that was not read."""
        return self.txn.epoch if self.first_epoch is None else self.first_epoch

    @cached_property
    def transactions(self) -> Sequence[PastTransaction]:
        """The producer's transactions that may include the partition, and may be the one that wrote these records."""
        return [
            each
            for each in self.history.transactions
            if each.producer_id in {self.txn.producer_id, None}
            and (each.topic_partitions is None or self.txn.tp in each.topic_partitions)
            and (self.first_epoch is None or each.producer_epoch is None or each.producer_epoch >= self.first_epoch)
        ]

    @cached_property
    def decided(self) -> Sequence[PastTransaction]:
        """Those of them that were decided."""
        return [each for each in self.transactions if each.decided_at is not None]

    @cached_property
    def decided_here(self) -> Sequence[PastTransaction]:
        """Decided transactions of every epoch that included the partition: the markers are theirs."""
        return [
            each
            for each in self.history.transactions
            if each.decided_at is not None and each.topic_partitions and self.txn.tp in each.topic_partitions
        ]

    @cached_property
    def markers(self) -> Sequence[_Marker]:
        """The producer's markers before the transaction, in order."""
        if self.batches is None:
            return []
        return [
            _Marker(
                offset=int(each["base_offset"]),
                epoch=int(each["producer_epoch"]),
                is_commit=bool(each["marker"] == COMMIT_MARKER),
                time=utc(int(each["max_timestamp"])),
                leader_epoch=int(each["leader_epoch"]),
            )
            for each in self.batches.markers_before[-MAX_MARKERS:]
        ]

    @property
    def _what_decides(self) -> str:
        if self.markers:
            return f"clocks that agree on which transaction the marker at offset {self._marker_offset} ended"
        return f"the log of {self.txn.tp[0]}-{self.txn.tp[1]} from before offset {self.txn.start}, with its markers"

    @property
    def _marker_offset(self) -> int | None:
        return self.markers[-1].offset if self.markers else None

    def _last_closed(self) -> set[int]:
        """Possible indices in `decided` of the last transaction whose records are closed; -1 for none of them."""
        closed = [self._is_closed(each) for each in self.decided]
        possible = {
            last
            for last in range(-1, len(closed))
            if False not in closed[: last + 1] and True not in closed[last + 1 :]
        }
        by_clocks = self._by_clocks() if len(possible) > 1 else None
        return possible if by_clocks is None else possible & by_clocks

    def _is_closed(self, transaction: PastTransaction) -> bool | None:
        """Whether a marker before the open records was written after the decision; null if that is not known."""
        assert transaction.decided_at is not None
        epoch = transaction.producer_epoch
        if _is_version_2(transaction) and epoch is not None and epoch >= self._lowest_epoch:
            return False  # after its marker, which has the next epoch, the leader appends no batch of this one
        if not self.markers:
            return False if self._reaches(transaction.decided_at) else None
        marker = self.markers[-1]
        if epoch is not None and marker.epoch != epoch:
            return marker.epoch > epoch
        if marker.time is None:
            return None
        later, differ = marker.time - transaction.decided_at, dt.timedelta(0) if self._is_one_clock else CLOCKS_DIFFER
        return True if later >= differ else False if later < -differ else None

    def _reaches(self, time: dt.datetime) -> bool:
        """Whether the partition's log was read back to before a time."""
        if self.batches is None:
            return False
        earliest = self.batches.brokers_time_first
        return self.batches.excerpt.start == 0 or (earliest is not None and earliest < time - CLOCKS_DIFFER)

    @cached_property
    def _is_one_clock(self) -> bool:
        """Whether one broker wrote the last marker and all records of the id."""
        leader, owner = self.txn.leader, self.txn.owner
        if owner is None or not self.markers or leader.leader is None or leader.leader != owner.coordinator_id:
            return False
        epochs = {record.leader_epoch for record in self.history.records}
        return self.markers[-1].leader_epoch == leader.leader_epoch and len(epochs) == 1

    def _by_clocks(self) -> set[int] | None:
        """As `_last_closed`, where one difference of the two clocks explains every marker; null where none does."""
        if not self.markers or any(each.time is None for each in self.markers):
            return None
        possible = set()
        for index, transaction in enumerate(self.decided):
            window = _Window.of(self.markers[-1], transaction)
            if window is not None and all(self._explains(window, marker) for marker in self.markers):
                possible.add(index)
        began = self.decided[0].start_time
        if not self._begins_the_producer and began is not None and self._time(self.markers[-1]) < began + CLOCKS_DIFFER:
            possible.add(-1)  # it may be of a transaction before the first record that is left
        return possible or None

    def _explains(self, window: _Window, marker: _Marker) -> bool:
        """Whether a marker is of one of the transactions, or older than all of them."""
        began = self.first.timestamp
        if began is not None and self._time(marker) < began + window.lowest and not self._begins_the_producer:
            return True
        return any(window.fits(marker, transaction) for transaction in self.decided_here)

    @staticmethod
    def _time(marker: _Marker) -> dt.datetime:
        assert marker.time is not None
        return marker.time

    @cached_property
    def _begins_the_producer(self) -> bool:
        """Whether the first record is the one with which the id got this producer id."""
        first = self.first
        begins = first.state == "Empty" or ((first.client_transaction_version or 0) >= 2 and _is_complete(first))
        return begins and first.producer_epoch == 0

    def _without_markers(self, last_closed: int) -> tuple[PastTransaction, ...]:
        return tuple(self.decided[last_closed + 1 :])

    def _undecided(self) -> Outcome:
        why = self._why_complete()
        if why is None:
            return _unknown(
                f"records of {self.name} from before {_time(self.first.timestamp)}, which are compacted or were not "
                f"read: {self.whether}"
            )
        return Outcome(
            name=UNDECIDED,
            reason=f"no transaction with this partition was decided without its marker here, as {why}",
            evidence=(record_entry(self.first, name="outcome_from"),),
        )

    def _why_complete(self) -> str | None:
        """Why no record of the producer from the time of these records on is missing; null if one may be."""
        first, epoch = self.first, self.first_epoch
        since = f"the records of {self.name} from {_time(first.timestamp)} on"
        if self._begins_the_producer:
            return f"{since} begin with its producer id"
        if epoch is not None and first.producer_epoch is not None:
            begins = first.state == "Empty" or (first.client_transaction_version or 0) >= 2
            if first.producer_epoch < epoch or (first.producer_epoch == epoch and begins):
                return f"{since} begin at epoch {first.producer_epoch}, and these at epoch {epoch}"
        if self.decided and self._last_closed() == {len(self.decided) - 1}:
            return f"{since} include the transaction whose marker is at offset {self._marker_offset}"
        earlier = None if self.batches is None else self.batches.brokers_time_before
        if earlier is not None and first.timestamp is not None and first.timestamp + CLOCKS_DIFFER <= earlier:
            return f"{since} begin before the batch of {_time(earlier)}, which is before these"
        return None

    def _decided(self, without: Sequence[PastTransaction]) -> Outcome:
        names = {COMMIT if _is_commit(each) else ABORT for each in without}
        last = without[-1]
        if len(names) > 1:
            texts = " and ".join(map(self._transaction_text, without))
            return _unknown(f"which of these wrote the records, as both lack their marker here: {texts}")
        if last.topic_partitions is None and not (_is_version_2(last) and last.producer_epoch == self.first_epoch):
            return _unknown(
                f"the partitions of {self._transaction_text(last)}: the record that lists them is compacted, "
                f"{self.whether}"
            )
        (name,) = names
        return Outcome(
            name=name,
            reason=f"{self._transaction_text(last)}, and the log has no marker of it",
            transaction=last,
            evidence=tuple(self._records(last)),
        )

    def _transaction_text(self, transaction: PastTransaction) -> str:
        what = "committed" if _is_commit(transaction) else "aborted"
        return (
            f"the transaction of {self.name} with epoch {transaction.producer_epoch} was {what} at "
            f"{_time(transaction.decided_at)}"
        )

    def _records(self, transaction: PastTransaction) -> Iterator[EvidenceEntry]:
        first, last = transaction.first_offset, transaction.last_offset
        for record in self.history.records:
            if first is not None and last is not None and first <= (record.offset or 0) <= last:
                yield record_entry(record, name="outcome_record")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marker:
    """A producer's marker on the partition."""

    offset: int
    epoch: int
    is_commit: bool
    time: dt.datetime | None
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """By how much the leader's clock is ahead of the coordinator's: at least and at most."""

    lowest: dt.timedelta
    highest: dt.timedelta

    @staticmethod
    def of(marker: _Marker, transaction: PastTransaction) -> _Window | None:
        """The difference if the marker is of the transaction; null if it cannot be."""
        if marker.time is None or transaction.decided_at is None or marker.is_commit != _is_commit(transaction):
            return None
        ended = transaction.end_time or marker.time + CLOCKS_DIFFER
        lowest = max(marker.time - ended, -CLOCKS_DIFFER)
        highest = min(marker.time - transaction.decided_at, CLOCKS_DIFFER)
        return _Window(lowest=lowest - SLACK, highest=highest + SLACK) if lowest <= highest else None

    def fits(self, marker: _Marker, transaction: PastTransaction) -> bool:
        """Whether a marker can be of a transaction with this difference."""
        if marker.time is None or transaction.decided_at is None or marker.is_commit != _is_commit(transaction):
            return False
        ended = transaction.end_time or marker.time + CLOCKS_DIFFER
        return transaction.decided_at + self.lowest <= marker.time <= ended + self.highest


def _is_commit(transaction: PastTransaction) -> bool:
    return transaction.ended == "commit" or (transaction.state or "").endswith("Commit")


def _is_version_2(transaction: PastTransaction) -> bool:
    """Whether its client raised the epoch with every transaction (KIP-890)."""
    return (transaction.client_transaction_version or 0) >= 2


def _is_complete(record: TransactionLogRecord) -> bool:
    return (record.state or "").startswith("Complete")


def _time(time: dt.datetime | None) -> str:
    return "an unknown time" if time is None else at(time)
