"""An open transaction with its log evidence: its producer's batches, and its coordinator's records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from toolkit.analysis.coordinator.producer_id_owners import names_any
from toolkit.analysis.coordinator.transaction_history import transaction_history
from toolkit.analysis.diagnosis.evidence.log_excerpts import LogEvidence, ProducerBatches, producer_batches
from toolkit.analysis.diagnosis.open_transactions import OpenTransaction
from toolkit.schema import Row

__all__ = ["DiagnosisContext"]


@dataclass(frozen=True)
class DiagnosisContext:
    """An open transaction and its log evidence.

    Parameters
    ----------
    txn
        The open transaction.
    log
        The log evidence.
    """

    txn: OpenTransaction
    log: LogEvidence

    @cached_property
    def producer_batches(self) -> ProducerBatches | None:
        """The producer's batches around the start offset; null if the log was not read, or has no data of it yet."""
        excerpt = self.log.excerpts.get(self.txn.tp)
        if excerpt is None or self.txn.start is None:
            return None
        return producer_batches(excerpt, self.txn.producer["producer_id"], self.txn.start)

    @cached_property
    def first_batch(self) -> ProducerBatches | None:
        """`producer_batches`, if they include the batch that opened the transaction; else null."""
        return (
            self.producer_batches
            if self.producer_batches is not None and len(self.producer_batches.first_batch)
            else None
        )

    @cached_property
    def epoch(self) -> int:
        """Epoch that opened the transaction; its current epoch if the first batch was not read."""
        return int(self.first_batch.first_batch["producer_epoch"][0]) if self.first_batch else self.txn.epoch

    @cached_property
    def events(self) -> Sequence[Row]:
        """Records of its transactional id; if no id has its producer id any more, of every id that had it."""
        producer_id = self.txn.producer["producer_id"]
        if self.txn.owner:
            ids = {self.txn.owner["transactional_id"]}
        else:
            ids = {row["transactional_id"] for row in self.log.events if names_any(row, {producer_id})} - {None}
        return [row for row in self.log.events if row["transactional_id"] in ids and not row["error"]]

    @cached_property
    def of_epoch(self) -> Sequence[Row]:
        """Records with the producer id and the epoch that opened the transaction."""
        key = self.txn.producer["producer_id"], self.epoch
        return [row for row in self.events if (row["producer_id"], row["producer_epoch"]) == key]

    @cached_property
    def transactions(self) -> Sequence[Row]:
        """The producer's transactions according to `events` (``schema.TRANSACTION_HISTORY``), in order."""
        producer_id = self.txn.producer["producer_id"]
        past = transaction_history(self.events)
        return [row for row in past if row["kind"] == "transaction" and row["producer_id"] == producer_id]

    @cached_property
    def transactions_here(self) -> Sequence[Row]:
        """Transactions that included the partition, of the epoch that opened the open one."""
        return [row for row in self.transactions if row["producer_epoch"] == self.epoch and self.has(row)]

    def has(self, transaction: Row) -> bool:
        """Whether the partition was added to a transaction."""
        return any((each["topic"], each["partition"]) == self.txn.tp for each in transaction["topic_partitions"] or ())

    @cached_property
    def was_never_added(self) -> bool:
        """Whether no transaction of the epoch included the partition; false unless all its records were read."""
        first = next(iter(self.of_epoch), None)
        if first is None or self.transactions_here or self.log.unread:
            return False
        # Compaction removes an id's earlier records first: if the record that began the epoch is left, all are.
        begun_by_end = first["client_transaction_version"] == 2 and (first["state"] or "").startswith("Complete")
        return first["state"] == "Empty" or begun_by_end

    @cached_property
    def is_late(self) -> bool:
        """Whether its first batch belongs to a transaction that a marker had already ended."""
        if self.first_batch is None or not self.first_batch.is_late or self.was_never_added:
            return False
        return not self._began_elsewhere_since(int(self.first_batch.marker_before["max_timestamp"][0]))

    def _began_elsewhere_since(self, marker_ms: int) -> bool:
        """Whether the producer has begun another transaction since the marker, without this partition."""
        if self.txn.state == "Ongoing" and self.epoch == self.txn.owner_epoch:
            return not self.txn.listed
        last = self.transactions[-1] if self.transactions else None
        if last is None or last["start_time"] is None or self.has(last):
            return False
        return milliseconds(last["start_time"]) > marker_ms

    @cached_property
    def lost_its_marker(self) -> bool:
        """Whether the coordinator ended its transaction, but the log has no marker of it.

        True only if the epoch's last transaction included the partition, and the log was read from before its end.
        """
        last = self.transactions[-1] if self.transactions else None
        if self.first_batch is None or self.is_late or last is None or last not in self.transactions_here:
            return False
        if last["decided_at"] is None or last["end_time"] is None:
            return False
        marker = self.first_batch.marker_before
        if len(marker):
            began = last["start_time"]
            return began is not None and int(marker["max_timestamp"][0]) < milliseconds(began)
        excerpt, earliest = self.first_batch.excerpt, self.first_batch.brokers_time_first
        if excerpt.log_start_offset is not None and excerpt.start <= excerpt.log_start_offset:
            return True
        return earliest is not None and earliest < last["decided_at"]


def milliseconds(time: dt.datetime) -> float:
    return time.timestamp() * 1000
