"""A held transaction with what logs tell of it: its producer's batches, and its coordinator's records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from toolkit.analysis.cases import Case
from toolkit.analysis.coordinator import histories
from toolkit.analysis.excerpts import LogEvidence
from toolkit.analysis.owners import names_any
from toolkit.analysis.traces import Traces
from toolkit.schema import Row

__all__ = ["Scene"]


@dataclass(frozen=True)
class Scene:
    """A case, and what was read about it.

    Parameters
    ----------
    case
        The open transaction.
    log
        What was read.
    """

    case: Case
    log: LogEvidence

    @cached_property
    def traces(self) -> Traces | None:
        """The producer's batches around the start offset; null where nothing was read, or nothing is written."""
        excerpt = self.log.excerpts.get(self.case.tp)
        if excerpt is None or self.case.start is None:
            return None
        return Traces(excerpt, self.case.producer["producer_id"], self.case.start)

    @cached_property
    def opening(self) -> Traces | None:
        """The same, where the very batch that opened the transaction is among them."""
        return self.traces if self.traces is not None and len(self.traces.opening) else None

    @cached_property
    def epoch(self) -> int:
        """Epoch that opened the transaction."""
        return int(self.opening.opening["producer_epoch"][0]) if self.opening else self.case.epoch

    @cached_property
    def events(self) -> Sequence[Row]:
        """Records of its transactional id, or of every id that had its producer id where none has it any more."""
        producer_id = self.case.producer["producer_id"]
        if self.case.owner:
            ids = {self.case.owner["transactional_id"]}
        else:
            ids = {row["transactional_id"] for row in self.log.events if names_any(row, {producer_id})} - {None}
        return [row for row in self.log.events if row["transactional_id"] in ids and not row["error"]]

    @cached_property
    def of_epoch(self) -> Sequence[Row]:
        """Records with the producer id and the epoch that opened the transaction."""
        mine = self.case.producer["producer_id"], self.epoch
        return [row for row in self.events if (row["producer_id"], row["producer_epoch"]) == mine]

    @cached_property
    def transactions(self) -> Sequence[Row]:
        """The producer's transactions by these records (``schema.HISTORIES``), in order."""
        producer_id = self.case.producer["producer_id"]
        past = histories(self.events)
        return [row for row in past if row["kind"] == "transaction" and row["producer_id"] == producer_id]

    @cached_property
    def transactions_here(self) -> Sequence[Row]:
        """Those of the epoch that opened the transaction which had the partition."""
        return [row for row in self.transactions if row["producer_epoch"] == self.epoch and self.has(row)]

    def has(self, transaction: Row) -> bool:
        """Whether the partition was added to a transaction."""
        return any((each["topic"], each["partition"]) == self.case.tp for each in transaction["topic_partitions"] or ())

    @cached_property
    def was_never_added(self) -> bool:
        """Whether no transaction of the epoch had the partition, by records that reach back to the epoch's first."""
        first = next(iter(self.of_epoch), None)
        if first is None or self.transactions_here or self.log.unread:
            return False
        # Compaction takes the earlier records of an id first: where the one that began the epoch is left, all are.
        begun_by_end = first["client_transaction_version"] == 2 and (first["state"] or "").startswith("Complete")
        return first["state"] == "Empty" or begun_by_end

    @cached_property
    def is_late(self) -> bool:
        """Whether its first batch belongs to a transaction that a marker had ended already."""
        if self.opening is None or not self.opening.is_late or self.was_never_added:
            return False
        return not self._began_elsewhere_since(int(self.opening.marker_before["max_timestamp"][0]))

    def _began_elsewhere_since(self, marker_ms: int) -> bool:
        """Whether the producer began another transaction since the marker, without this partition."""
        if self.case.state == "Ongoing" and self.epoch == self.case.owner_epoch:
            return not self.case.listed
        last = self.transactions[-1] if self.transactions else None
        if last is None or last["start_time"] is None or self.has(last):
            return False
        return milliseconds(last["start_time"]) > marker_ms

    @cached_property
    def lost_its_marker(self) -> bool:
        """Whether its transaction ended for the coordinator, and the marker, which would be in what was read, is not.

        The last transaction of the epoch is the one that had the partition, and no marker stands where it ended.
        """
        last = self.transactions[-1] if self.transactions else None
        if self.opening is None or self.is_late or last is None or last not in self.transactions_here:
            return False
        if last["decided_at"] is None or last["end_time"] is None:
            return False
        marker = self.opening.marker_before
        if len(marker):
            began = last["start_time"]
            return began is not None and int(marker["max_timestamp"][0]) < milliseconds(began)
        excerpt, earliest = self.opening.excerpt, self.opening.brokers_time_first
        if excerpt.log_start_offset is not None and excerpt.start <= excerpt.log_start_offset:
            return True
        return earliest is not None and earliest < last["decided_at"]


def milliseconds(time: dt.datetime) -> float:
    return time.timestamp() * 1000
