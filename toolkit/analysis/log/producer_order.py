"""Find batches of a partition that violate the order of their producer: epochs, sequences, coordinator epochs.

The checks are those of the leader when it appends (``ProducerAppendInfo`` in Kafka), on arrays: the batches are sorted
by producer, and each is compared with its producer's batches before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from toolkit.analysis.log.stable_sort import stable_order, take_rows
from toolkit.formats.log.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.log.headers import ABORT, COMMIT, UNREAD_MARKER, Array, HeaderField, Headers

SEQUENCES = 2**31  # they wrap around
NO_EPOCH = -(2**16)


class OrderViolation(NamedTuple):
    """Batches that violate an invariant."""

    invariant: str  # its name
    at: Array  # indices of the batches, ascending
    detail: Callable[[int], str]  # the expected and the actual value, by index


def is_of_producer(headers: Headers) -> Array:
    """Which batches count for the order of their producer: data and markers with a producer id."""
    marker = headers["marker"]
    ends = (marker == COMMIT) | (marker == ABORT) | (marker == UNREAD_MARKER)
    is_control = (headers["attributes"] & CONTROL) != 0
    selected: Array = (headers["producer_id"] >= 0) & (headers["magic"] >= 2) & (ends | ~is_control)
    return selected


class ProducerOrder:
    """Batches sorted by producer, then in the order of the log.

    All its arrays have this order; `order` maps it to the batches.

    `carried`: earlier batches, from `remembered`.
    `headers`: batches that follow them.
    `selected`: indices of the batches that count, by `is_of_producer`.
    `compacted`: whether compaction may have removed batches, so that sequences may have gaps and markers may be
        missing.
    """

    def __init__(self, carried: Headers, headers: Headers, selected: Array, *, compacted: bool) -> None:
        self._carried, self._headers, self._selected = carried, headers, selected
        self.compacted = compacted
        self.order = stable_order(self._unsorted("producer_id"))
        self.index = np.arange(self.order.size)
        self.producer_id = self._column("producer_id")
        self.is_first = np.ones(self.order.size, np.bool_)
        self.is_first[1:] = self.producer_id[1:] != self.producer_id[:-1]
        self.start = np.maximum.accumulate(np.where(self.is_first, self.index, 0))
        self.epoch = self._column("producer_epoch").astype(np.int64)
        self.is_marker = (self._column("attributes") & CONTROL) != 0
        self.is_data_in_transaction = ~self.is_marker & ((self._column("attributes") & TRANSACTIONAL) != 0)

    def breaks(self) -> Iterator[OrderViolation]:
        """Violations of each invariant, with indices of `order`."""
        yield self._epochs_going_back()
        yield self._coordinator_epochs_going_back()
        yield self._late_after_marker_of_newer_epoch()
        if not self.compacted:
            yield self._sequence_gaps()
            yield self._late_of_version_2()

    def remembered(self) -> Headers:
        """The batches that later ones are compared with: a few of each producer, in the order of the log."""
        ends = np.flatnonzero(np.append(self.is_first[1:], True)) if self.order.size else self.index
        masks = (
            self.is_marker,
            self.is_marker & (self.coordinator_epoch >= 0),
            self.is_data_in_transaction,
            self.is_sequenced,
            self.epoch >= self.highest_epoch,
        )
        carried_rows = [
            ends,
            self.run_start[ends],
            self.run_start[ends] - 1,
            *(self._last(mask)[ends] for mask in masks),
        ]
        is_kept = np.zeros(self.order.size, np.bool_)
        for indices in carried_rows:
            is_kept[self.order[indices[indices >= 0]]] = True
        at = np.flatnonzero(is_kept)
        is_old = at < self._carried.size
        new = self._selected[at[~is_old] - self._carried.size]
        return np.concatenate((take_rows(self._carried, at[is_old]), take_rows(self._headers, new)))

    # Columns that the rules compare

    @cached_property
    def highest_epoch(self) -> Array:
        """The highest epoch of the producer up to and including this batch."""
        step = 1 << 17  # more than all epochs, so that producers do not mix
        rank = np.cumsum(self.is_first) * step
        highest: Array = np.maximum.accumulate(rank + self.epoch) - rank
        return highest

    @cached_property
    def run_start(self) -> Array:
        """The first batch of the run of batches with the same epoch that this one is in."""
        changes = self.is_first.copy()
        changes[1:] |= self.epoch[1:] != self.epoch[:-1]
        starts: Array = np.maximum.accumulate(np.where(changes, self.index, 0))
        return starts

    @cached_property
    def sequence(self) -> Array:
        """Sequence number of the first record."""
        return self._column("base_sequence").astype(np.int64)

    @cached_property
    def is_sequenced(self) -> Array:
        """Whether it is data with sequence numbers; data that a group coordinator writes for a producer has none."""
        sequenced: Array = ~self.is_marker & (self.sequence >= 0)
        return sequenced

    @cached_property
    def next_sequence(self) -> Array:
        """The sequence number that follows the last record."""
        count = self._column("last_offset") - self._column("base_offset") + 1
        following: Array = (self.sequence + count) % SEQUENCES
        return following

    @cached_property
    def coordinator_epoch(self) -> Array:
        """Coordinator epoch of a marker; -1 is unknown."""
        return self._column("coordinator_epoch")

    @cached_property
    def epoch_before(self) -> Array:
        """The highest epoch of the producer before this batch; `NO_EPOCH` for its first batch."""
        return np.where(self.is_first, NO_EPOCH, np.concatenate((self.highest_epoch[:1], self.highest_epoch[:-1])))

    # Rules

    def _epochs_going_back(self) -> OrderViolation:
        back = (self.epoch < self.epoch_before) & ~self._is_late
        return self._break(
            "producer_epoch",
            back,
            lambda i: f"Producer {self.producer_id[i]} writes with epoch {self.epoch[i]} after {self.epoch_before[i]}.",
        )

    @cached_property
    def _is_late(self) -> Array:
        marker = self._last_before(self.is_marker)
        late: Array = self.is_data_in_transaction & (marker >= 0) & (self.epoch[marker] > self.epoch)
        return late

    def _late_after_marker_of_newer_epoch(self) -> OrderViolation:
        marker = self._last_before(self.is_marker)
        return self._break(
            "late_batch",
            self._is_late,
            lambda i: (
                f"Producer {self.producer_id[i]} writes with epoch {self.epoch[i]} after its marker at offset "
                f"{self._offset(marker[i])}, which has epoch {self.epoch[marker[i]]}."
            ),
        )

    def _late_of_version_2(self) -> OrderViolation:
        """Data in an epoch that a marker has ended, from a producer that gets a new epoch with each marker.

        A producer does if a marker raised the epoch of open data and the producer continued with that epoch; no client
        may do so before transaction version 2.
        """
        start = self.run_start
        opened = np.maximum(start - 1, 0)
        raises = self.is_marker[start] & (start > self.start) & self.is_data_in_transaction[opened]
        raises &= self.epoch[opened] < self.epoch
        before = np.maximum(self.index - 1, 0)
        wrote = self._last_before(self.is_data_in_transaction) > start
        late = raises & self.is_data_in_transaction & self.is_marker[before] & (before > start) & wrote
        return self._break(
            "late_batch",
            late,
            lambda i: (
                f"Producer {self.producer_id[i]} writes with epoch {self.epoch[i]} again after its marker at offset "
                f"{self._offset(before[i])}, though its markers raise the epoch (transaction version 2)."
            ),
        )

    def _sequence_gaps(self) -> OrderViolation:
        last = self._last_before(self.is_sequenced)
        continues = (last >= 0) & (self.epoch[last] == self.epoch)
        begins = ~self.is_first & ((self.epoch > self.epoch_before) | ((last >= 0) & (self.epoch[last] < self.epoch)))
        expected = np.where(continues, self.next_sequence[last], 0)
        gap = self.is_sequenced & (continues | begins) & (self.epoch >= self.epoch_before) & (self.sequence != expected)
        return self._break(
            "sequence",
            gap,
            lambda i: (
                f"Producer {self.producer_id[i]}, epoch {self.epoch[i]}, "
                f"{'continues' if continues[i] else 'begins'} with sequence {self.sequence[i]}, not with {expected[i]}."
            ),
        )

    def _coordinator_epochs_going_back(self) -> OrderViolation:
        known = self.is_marker & (self.coordinator_epoch >= 0)
        last = self._last_before(known)
        back = known & (last >= 0) & (self.coordinator_epoch < self.coordinator_epoch[last])
        return self._break(
            "coordinator_epoch",
            back,
            lambda i: (
                f"A marker of producer {self.producer_id[i]} has coordinator epoch {self.coordinator_epoch[i]} after "
                f"{self.coordinator_epoch[last[i]]} at offset {self._offset(last[i])}."
            ),
        )

    # Arrays

    def _break(self, invariant: str, broken: Array, detail: Callable[[int], str]) -> OrderViolation:
        return OrderViolation(invariant, np.flatnonzero(broken), detail)

    def _unsorted(self, name: HeaderField) -> Array:
        column = self._headers[name]
        column = column if self._selected.size == column.size else column[self._selected]
        return np.concatenate((self._carried[name], column))

    def _column(self, name: HeaderField) -> Array:
        return self._unsorted(name)[self.order]

    def _last(self, mask: Array) -> Array:
        """The producer's last batch in the mask, up to and including this one; -1 if there is none."""
        last = np.maximum.accumulate(np.where(mask, self.index, -1))
        return np.where(last >= self.start, last, -1)

    def _last_before(self, mask: Array) -> Array:
        """As `_last`, without this batch."""
        last = np.maximum.accumulate(np.where(mask, self.index, -1))
        last = np.concatenate(([-1], last[:-1])) if last.size else last
        return np.where(last >= self.start, last, -1)

    def _offset(self, index: int) -> int:
        at = self.order[index]
        if at < self._carried.size:
            return int(self._carried["base_offset"][at])
        return int(self._headers["base_offset"][self._selected[at - self._carried.size]])
