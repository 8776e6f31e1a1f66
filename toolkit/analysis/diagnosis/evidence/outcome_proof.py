"""Prove what was decided about records that are still open, by the coordinator's log.

A coordinator's *current* state proves nothing about an earlier transaction of the same producer. Its log does: each
transaction of the producer that included the partition and was decided has to have its marker on the partition. The
records that are open belong to such a transaction if its marker is not there: the coordinator skipped it (KAFKA-20734),
or it was lost, compacted or refused. `closed_transactions` tells which transactions have theirs.

The log has to reach back to before the open records: of two decisions without a marker, it may have lost the first.

Sources: ``ProducerAppendInfo`` (epochs), ``TransactionMetadata`` and ``TransactionMarkerChannelManager`` in Kafka;
KIP-890.
"""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from toolkit.analysis.coordinator.coordinator_log import CoordinatorLog, IdHistory
from toolkit.analysis.diagnosis.evidence.closed_transactions import (
    COMPARED,
    ClosedTransactions,
    DecidedTransaction,
    ProducerMarker,
)
from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER, ProducerBatches
from toolkit.analysis.diagnosis.evidence_text import at, record_entry
from toolkit.analysis.diagnosis.observation import OpenTransaction
from toolkit.analysis.diagnosis.verdicts import ABORT, COMMIT, UNDECIDED, UNKNOWN, Outcome
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.headers import COMMIT as COMMIT_MARKER
from toolkit.schema.live import EvidenceEntry
from toolkit.schema.log import PastTransaction, TransactionLogRecord


def find_outcome(txn: OpenTransaction, batches: ProducerBatches | None, log: CoordinatorLog | None) -> Outcome:
    """What was decided about the open records of a transaction.

    `batches`: its producer's batches around its start; null if the partition's log was not read.
    `log`: the coordinators' log, read after the leader has shown the transaction open; null if it was not read.
    """
    if txn.start is None:
        return Outcome(name=UNDECIDED, reason="it has written nothing here yet")
    whether = f"whether a commit includes these records of {txn.tp[0]}-{txn.tp[1]}"
    if log is None:
        return _unknown(f"the coordinators' log, which was not read: {whether}")
    if log.gaps:
        return _unknown(*(f"{why}: {whether}" for why in log.gaps))
    histories = log.of(txn.producer_id, txn.transactional_id)
    if len(histories) != 1 or (first := histories[0].first_of(txn.producer_id)) is None:
        found = f"{len(histories)} ids have it" if len(histories) > 1 else f"none is left{_since(log)}"
        return _unknown(f"records of producer {txn.producer_id} in {STATE_TOPIC} ({found}): {whether}")
    leader = None if first.txn_state_partition is None else log.leaders.get(first.txn_state_partition)
    return _Proof(
        txn=txn, batches=batches, history=histories[0], first=first, leader_of_records=leader, whether=whether
    ).outcome


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
    leader_of_records: tuple[int, int] | None
    whether: str

    @cached_property
    def outcome(self) -> Outcome:
        if not self._last_closed:
            return _unknown(f"markers and records of {self.name} that agree: {self.whether}")
        least, most = self._without_markers(max(self._last_closed)), self._without_markers(min(self._last_closed))
        decisions = {_is_commit(each) for each in most}
        if not least and True not in decisions:
            return self._undecided()  # if one of them wrote the records, it was aborted
        if not least or (len(least) < len(most) and len(decisions) > 1):
            return _unknown(f"{self._what_decides}: {self._transaction_text(self.decided[-1])}, {self.whether}")
        return self._decided(least)

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
        """The producer's transactions that include the partition, or may, in order."""
        return [
            each
            for each in sorted(self.history.transactions, key=lambda each: each.first_offset or 0)
            if each.producer_id in {self.txn.producer_id, None}
            and (each.topic_partitions is None or self.txn.tp in each.topic_partitions)
        ]

    @cached_property
    def decided(self) -> Sequence[PastTransaction]:
        """Those of them that were decided."""
        return [each for each in self.transactions if each.decided_at is not None]

    def _may_have_written(self, transaction: PastTransaction) -> bool:
        """Whether a transaction can have written the open records: its epoch is between their first and their last."""
        epoch = transaction.producer_epoch
        return epoch is None or ((self.first_epoch or -1) <= epoch and (self.txn.epoch < 0 or epoch <= self.txn.epoch))

    def _without_markers(self, last_closed: int) -> Sequence[PastTransaction]:
        return [each for each in self.decided[last_closed + 1 :] if self._may_have_written(each)]

    @cached_property
    def markers(self) -> Sequence[ProducerMarker]:
        """The producer's markers before the transaction, in order."""
        if self.batches is None:
            return []
        return [
            ProducerMarker(
                offset=int(each["base_offset"]),
                epoch=int(each["producer_epoch"]),
                is_commit=bool(each["marker"] == COMMIT_MARKER),
                time=None if each["max_timestamp"] < 0 else float(each["max_timestamp"]),
                leader_epoch=int(each["leader_epoch"]),
                is_by_hand=self._is_by_hand(int(each["coordinator_epoch"])),
            )
            for each in self.batches.markers_before
        ]

    def _is_by_hand(self, coordinator_epoch: int) -> bool:
        """Whether a marker has another coordinator epoch than the records, of those from the first one on."""
        known = self._coordinator_epochs
        return bool(known) and coordinator_epoch not in known and coordinator_epoch > min(known)

    @cached_property
    def _coordinator_epochs(self) -> frozenset[int]:
        """Epochs of the coordinators that wrote the records: the leader epochs of their batches."""
        return frozenset(each.leader_epoch for each in self.history.records if each.leader_epoch is not None)

    @property
    def _what_decides(self) -> str:
        if self.markers:
            return f"clocks that agree on which transaction the marker at offset {self._marker_offset} ended"
        name = f"{self.txn.tp[0]}-{self.txn.tp[1]}"
        if self.batches is not None and self.batches.excerpt.start == 0:
            return f"a proof that {name} was not created again, or lost its log, after this decision"
        return f"the log of {name} from before offset {self.txn.start}, with its markers"

    @property
    def _marker_offset(self) -> int | None:
        return self.markers[-1].offset if self.markers else None

    @cached_property
    def _last_closed(self) -> set[int]:
        """Possible indices in `decided` of the last transaction whose marker is there; -1 for none of them."""
        began = None if self._begins_the_producer else self.first.start_time or self.first.timestamp
        return ClosedTransactions(
            decided=[self._compared(each) for each in self.decided],
            markers=self.markers,
            lowest_epoch=self._lowest_epoch,
            began=None if began is None else _milliseconds(began),
            read_from=self._read_from,
            written_at=self._written_at,
            has_gaps=self.batches is not None and self.batches.has_gaps,
            is_one_coordinator=self._is_one_coordinator,
            is_one_clock=self._is_one_clock,
        ).last()

    def _compared(self, transaction: PastTransaction) -> DecidedTransaction:
        assert transaction.decided_at is not None
        decided_at = _milliseconds(transaction.decided_at)
        decided_from = decided_at
        if not any((record.state or "").startswith("Prepare") for record in self._records_of(transaction)):
            # A coordinator that took over has decided again, and only its record is left.
            start = transaction.start_time
            decided_from = -math.inf if start is None else _milliseconds(start)
        return DecidedTransaction(
            is_commit=_is_commit(transaction),
            is_version_2=_is_version_2(transaction),
            epoch=transaction.producer_epoch,
            decided_from=decided_from,
            decided_at=decided_at,
            ended_at=math.inf if transaction.end_time is None else _milliseconds(transaction.end_time),
        )

    @property
    def _read_from(self) -> float:
        """The earliest time in the excerpt of the partition."""
        if self.batches is None:
            return math.inf
        earliest = self.batches.brokers_time_first
        return math.inf if earliest is None else _milliseconds(earliest)

    @property
    def _written_at(self) -> float:
        """When a log that was read from offset 0 existed, by the client: its producer had begun by then, too."""
        began = self.first.start_time or self.first.timestamp
        if self.batches is None or self.batches.excerpt.start != 0 or not len(self.batches.first_batch) or not began:
            return math.inf
        written = float(self.batches.first_batch["max_timestamp"][0])
        return written if written >= _milliseconds(began - CLOCKS_DIFFER) else math.inf

    @cached_property
    def _compared_records(self) -> Sequence[TransactionLogRecord]:
        """The records from shortly before the last marker on."""
        since = (self.markers[-1].time or 0) - 2 * COMPARED if self.markers else 0
        return [
            each for each in self.history.records if each.timestamp is None or _milliseconds(each.timestamp) >= since
        ]

    @cached_property
    def _is_one_coordinator(self) -> bool:
        """Whether one broker, in one term, has written the records that are compared."""
        epochs = {record.leader_epoch for record in self._compared_records}
        return len(epochs) <= 1 and None not in epochs

    @cached_property
    def _is_one_clock(self) -> bool:
        """Whether the broker that wrote the last marker has written these records too."""
        leader, known = self.txn.leader, self.leader_of_records
        return (
            known is not None
            and all(record.leader_epoch == known[1] for record in self._compared_records)
            and leader.leader == known[0]
            and bool(self.markers)
            and self.markers[-1].leader_epoch == leader.leader_epoch
        )

    @cached_property
    def _begins_the_producer(self) -> bool:
        """Whether the first record is the one with which the id got this producer id."""
        return self.first.state == "Empty" and self.first.producer_epoch == 0

    def _undecided(self) -> Outcome:
        why = self._why_complete()
        if why is None:
            return self._incomplete()
        return Outcome(
            name=UNDECIDED,
            reason=f"no transaction with this partition was decided without its marker here, as {why}",
            evidence=(record_entry(self.first, name="outcome_from"),),
        )

    def _incomplete(self) -> Outcome:
        return _unknown(
            f"records of {self.name} from before {_time(self.first.timestamp)}, which are compacted or were not read: "
            f"{self.whether}"
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
        of_producer = (each for each in self.history.transactions if each.producer_id == self.txn.producer_id)
        earliest = next(of_producer, None)
        if earliest is not None and _is_version_2(earliest) and earliest.producer_epoch == epoch:
            return f"{since} include the transaction of epoch {epoch}, which wrote these"
        if min(self._last_closed) >= 0:
            return f"{since} include the transaction whose marker is at offset {self._marker_offset}"
        earlier = None if self.batches is None else self.batches.brokers_time_before
        if earlier is not None and first.timestamp is not None and first.timestamp + CLOCKS_DIFFER <= earlier:
            return f"{since} begin before the batch of {_time(earlier)}, which is before these"
        return None

    def _decided(self, without: Sequence[PastTransaction]) -> Outcome:
        if self._why_complete() is None:
            return self._incomplete()
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
        for record in self._records_of(transaction):
            yield record_entry(record, name="outcome_record")

    def _records_of(self, transaction: PastTransaction) -> Sequence[TransactionLogRecord]:
        first, last, offsets = transaction.first_offset, transaction.last_offset, self._offsets
        if first is None or last is None:
            return ()
        return self.history.records[bisect_left(offsets, first) : bisect_right(offsets, last)]

    @cached_property
    def _offsets(self) -> Sequence[int]:
        return [record.offset or 0 for record in self.history.records]


def _is_commit(transaction: PastTransaction) -> bool:
    return (transaction.state or "").endswith("Commit")


def _is_version_2(transaction: PastTransaction) -> bool:
    """Whether its client raised the epoch with every transaction (KIP-890)."""
    return (transaction.client_transaction_version or 0) >= 2


def _milliseconds(time: dt.datetime) -> float:
    return time.timestamp() * 1000


def _time(time: dt.datetime | None) -> str:
    return "an unknown time" if time is None else at(time)
