"""Which decided transactions are closed: a marker on the partition, before the open records, came after the decision.

A marker closes all data of its producer that is in the log before it, whosever marker it is. A transaction's data is in
the log before its decision. So a transaction is closed if the last marker before the open records is younger than its
decision. Epochs tell that for certain: a leader appends no batch with an epoch below that of the producer's last
marker, and with transaction version 2 each transaction has an epoch of its own, and its marker the next one.

With transaction version 1, transactions of one instance share an epoch, and times have to tell. They are times of two
brokers, whose clocks may differ by `CLOCKS_DIFFER`. Within that, COMMIT markers show by how much they do: each is of a
transaction, written after its decision and before its completion. ABORT markers show nothing, as an operator may have
written them. Nor does a COMMIT marker that an operator may have written because it was missing: `kafka-txn complete`
does so some seconds after the decision, so the producer has no other marker shortly before it.

Clocks that are further apart than the bound can make each marker pass for that of the next transaction. If a greater
difference explains the COMMIT markers as well, with no more missing ones, what follows from it is possible, too.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER

MAX_DIFFERENCE_MS = CLOCKS_DIFFER.total_seconds() * 1000  # ms
FOR_EVER = float("inf")
COMPARED = 100_000  # ms before the last marker: of older ones, the clocks may have differed more or less
MOST_COMPARED = 1_000  # markers, the last ones: fewer leave more that is possible
DRIFT = 0.0005  # that two clocks, which NTP slews, drift apart
ROUNDING = 1  # ms: times are cut to milliseconds
MAX_SIGN_MS = 600_000  # of a difference beyond the bound: clocks further apart break logins and certificates
MAX_SIGN_MARKERS = 20  # the first and the last ones that are compared for it
COMPLETED_AFTER = 9_000  # ms after the producer's last marker: `kafka-txn complete` waits for 10 s

Range = tuple[float, float]
"""Lowest and highest difference in ms: the leader's clock minus the coordinator's."""

WITHIN_LIMIT: Sequence[Range] = [(-MAX_DIFFERENCE_MS, MAX_DIFFERENCE_MS)]
BEYOND_LIMIT: Sequence[Range] = [(-MAX_SIGN_MS, -MAX_DIFFERENCE_MS), (MAX_DIFFERENCE_MS, MAX_SIGN_MS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedTransaction:
    """A decided transaction that includes the partition, or may."""

    # is_commit, is_version_2: the decision; and whether its client raises the epoch with every transaction
    is_commit: bool
    is_version_2: bool
    epoch: int | None  # epoch of its data; null if its records do not show it
    # decided_from, decided_at: when it was decided, in ms by the coordinator's clock: not before, and at the latest
    decided_from: float
    decided_at: float
    ended_at: float = FOR_EVER  # when all of its markers were written; infinite if they are not yet

    @property
    def closed_at(self) -> float:
        """When it was decided and had its markers, in ms; infinite if it has not."""
        return max(self.decided_at, self.ended_at)

    def can_have(self, marker: ProducerMarker) -> bool:
        """Whether a marker can be of this transaction, by decision and epoch."""
        return marker.is_commit == self.is_commit and (
            self.epoch is None or marker.epoch in {self.epoch, self.epoch + 1}
        )

    def has_raised(self, marker: ProducerMarker) -> bool:
        """Whether a marker has the decision of this transaction, and the epoch after that of its data."""
        return marker.is_commit == self.is_commit and self.epoch is not None and marker.epoch == self.epoch + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerMarker:
    """A marker of the producer on the partition.

    `offset`, `epoch`, `is_commit`, `leader_epoch`: as in the log.
    `time`: in ms by the leader's clock; null if unknown.
    `is_by_hand`: whether it has no coordinator epoch of the coordinators that wrote the records.
    """

    offset: int
    epoch: int
    is_commit: bool
    time: float | None
    leader_epoch: int
    is_by_hand: bool = False


@dataclass(frozen=True, kw_only=True)
class ClosedTransactions:
    """Decided transactions, compared with the markers before the open records."""

    decided: Sequence[DecidedTransaction]  # decided transactions that include the partition, or may, in order
    markers: Sequence[ProducerMarker]  # the producer's markers before the open records, in order
    lowest_epoch: int  # epoch of the first open batch, as far as known
    # when the first transaction of the records began, or their first record was written; earlier transactions, which
    # ended before, may be missing. Null if none is, as the producer began with it
    began: float | None
    # earliest broker's time in the excerpt of the partition, in ms; infinity if it was not read, or has none. That it
    # begins at offset 0 proves nothing: a topic that was created again has no marker from before
    read_from: float
    # whether the excerpt begins at offset 0 and the records with the producer id, so that every transaction should have
    # its marker in it; it only counts as a sign of clocks that are too far apart
    is_whole: bool
    has_gaps: bool  # whether batches before the open records were removed by the cleaner: markers may be among them
    has_clocks: bool  # whether no broker's time shows that clocks are further apart than the bound
    is_one_coordinator: bool  # whether one broker has written all records that are compared
    is_one_clock: bool  # whether that broker has written the markers too

    def last(self) -> set[int]:
        """Possible indices in `decided` of the last closed transaction, -1 for none; empty if times contradict."""
        closed = [self._by_epochs(each) for each in self.decided]
        first_open = closed.index(False) if False in closed else len(closed)
        last_closed = max((index for index, is_closed in enumerate(closed) if is_closed), default=-1)
        possible = set(range(last_closed, first_open))
        if not self.markers or self.markers[-1].time is None or not self.has_clocks:
            return possible
        by_times = self._within_bound | self.beyond_bound
        if self.has_gaps and by_times:
            by_times = set(range(min(by_times), len(closed)))  # a later marker may have been removed
        return possible & by_times

    def _by_epochs(self, transaction: DecidedTransaction) -> bool | None:
        """Whether a transaction is closed; null if epochs do not tell."""
        marker, epoch = (self.markers[-1] if self.markers else None), transaction.epoch
        if marker is not None and transaction.has_raised(marker):
            return True  # its own marker: a leader that had forgotten the producer has taken a late batch
        if self._has_own_epoch(transaction) and (marker is None or marker.is_commit or marker.epoch != epoch):
            return False
        if marker is None:
            return False if self._is_older_than(transaction) and not self.has_gaps else None
        if epoch is not None and marker.epoch > epoch:
            return True
        if epoch is not None and marker.epoch < epoch and marker.is_commit:
            return None if self.has_gaps else False
        return None

    def _is_older_than(self, transaction: DecidedTransaction) -> bool:
        """Whether the excerpt begins before the decision: a marker of the transaction would be in it."""
        return self.has_clocks and self.read_from < transaction.decided_from - MAX_DIFFERENCE_MS

    def _has_own_epoch(self, transaction: DecidedTransaction) -> bool:
        """Whether a leader that has appended its marker, which has the next epoch, refuses the open records."""
        epoch = transaction.epoch
        return transaction.is_version_2 and epoch is not None and epoch >= self.lowest_epoch

    @cached_property
    def _within_bound(self) -> set[int]:
        """As `last`, by the differences of the clocks that explain every COMMIT marker; empty if there are none."""
        last, time = self.markers[-1], self.markers[-1].time
        assert time is not None
        found = self._by_differences(last, time, self._differences(time))
        for index in self._compared:
            if found and self._may_be_by_hand(index):
                found |= self._by_differences(last, time, self._differences(time, by_hand=index))
        return found

    @cached_property
    def beyond_bound(self) -> set[int]:
        """As `last`, by clocks further apart than the bound, if they explain the COMMIT markers as well.

        If there is any, no order of times by these clocks proves anything.
        """
        last, time = (self.markers[-1], self.markers[-1].time) if self.markers else (None, None)
        if last is None or time is None or not self.has_clocks or self.is_one_clock or not self.is_one_coordinator:
            return set()
        found = self._within_bound
        if not found or not last.is_commit or last.is_by_hand:
            return set()
        within = {index: _meet([each], WITHIN_LIMIT) for index, each in self._ranges(last, time, WITHIN_LIMIT)}
        explained = {index: sum(ranges[0]) / 2 for index, ranges in within.items() if ranges}
        fewest = min(self._unexplained(index, explained.get(index, 0)) for index in found)
        beyond = set()
        for low, high in self._differences(time, within=BEYOND_LIMIT):
            for index, each in self._ranges(last, time, [(low, high)]):
                for lowest, highest in _meet([each], [(low, high)]) if index not in explained else ():
                    unexplained = self._unexplained(index, (lowest + highest) / 2)
                    if unexplained < fewest or (unexplained == fewest and len(self._compared) > 0):
                        beyond.add(index)
        return beyond

    def _unexplained(self, last_closed: int, difference: float) -> int:
        """What lacks a counterpart if clocks differ by this: commits, markers, and open records if no marker does."""
        since = -FOR_EVER if self.is_whole else self.read_from - difference - ROUNDING
        closed = sum(each.is_commit and each.closed_at >= since for each in self.decided[: last_closed + 1])
        first = -FOR_EVER if self.began is None else self.began + difference  # earlier markers are of earlier records
        markers = sum(each.is_commit and (each.time is None or each.time >= first) for each in self.markers)
        missing = sum(each.is_commit for each in self.decided[last_closed + 1 :])
        return abs(closed - markers) + (missing or 1)

    def _by_differences(self, last: ProducerMarker, time: float, differences: Sequence[Range]) -> set[int]:
        """As `last`, by these differences of the clocks."""
        if not last.is_commit or last.is_by_hand:
            return set(self._after_decision(time, differences))
        found = self._of_coordinator(last, time, differences)
        if not found and self.is_one_clock:
            return set(self._after_decision(time, differences))
        if found and self._may_be_by_hand(len(self.markers) - 1):
            found |= self._completed(time, differences)
        return found

    def _of_coordinator(self, last: ProducerMarker, time: float, differences: Sequence[Range]) -> set[int]:
        """As `last`, if a coordinator has written the COMMIT marker."""
        found = {index for index, each in self._ranges(last, time, differences) if _meet([each], differences)}
        if self.began is not None and _meet([(time - self.began, MAX_DIFFERENCE_MS)], differences):
            found.add(-1)
        return found

    def _completed(self, time: float, differences: Sequence[Range]) -> set[int]:
        """As `last`, if an operator has written it: all that was decided since the marker before it are commits."""
        return {
            index
            for before, ranges in self._before_last_marker
            for index in self._after_decision(time, _meet(ranges, differences))
            if max(before.start, self._completable[index].start) < min(before.stop, self._completable[index].stop)
        }

    @cached_property
    def _completable(self) -> Sequence[range]:
        """What `before` may be if an operator has completed, by the last marker, all from there to each index; -1 last.

        They are commits, and the marker can be of one of them.
        """
        completable, without, last = [], -1, -1
        for index, each in enumerate(self.decided):
            without = without if each.is_commit else index
            last = index if each.can_have(self.markers[-1]) else last
            completable.append(range(without, last))
        return [*completable, range(0)]

    @property
    def _before_last_marker(self) -> Iterator[tuple[range, Sequence[Range]]]:
        """As `last`, for the marker before the last one, each with the differences of the clocks that explain it."""
        any_difference = [(-FOR_EVER, FOR_EVER)]
        last, marker = self.markers[-1], self.markers[-2] if len(self.markers) > 1 else None
        if marker is None:
            yield range(-1, 0), any_difference
        elif marker.time is None or last.time is None or not marker.is_commit or marker.is_by_hand:
            yield range(-1, len(self.decided)), any_difference
        else:
            is_compared = self.is_one_coordinator and len(self.markers) - 2 in self._compared
            for index, each in self._earlier_ranges(marker, last.time, WITHIN_LIMIT):
                if _meet([each], WITHIN_LIMIT):
                    # The clocks of another leader, or of long ago, differed by something else.
                    yield range(index, index + 1), [each] if is_compared else any_difference

    def _earlier_ranges(
        self, marker: ProducerMarker, time: float, within: Sequence[Range]
    ) -> Iterator[tuple[int, Range]]:
        """As `_ranges`, at a later time, and with -1 for an older transaction."""
        assert marker.time is not None
        drift = (time - marker.time) * DRIFT
        for index, (lowest, highest) in self._ranges(marker, marker.time, within, drift):
            yield index, (lowest - drift, highest + drift)
        if self.began is not None:
            yield -1, (marker.time - self.began - drift, FOR_EVER)

    def _ranges(
        self, marker: ProducerMarker, time: float, within: Sequence[Range], margin: float = 0
    ) -> Iterator[tuple[int, Range]]:
        """The difference of the clocks if a marker is of a transaction: of all that meet these, and perhaps others."""
        if within:
            for index in self._between(
                time - within[-1][1] - margin - ROUNDING, time - within[0][0] + margin + ROUNDING
            ):
                if self.decided[index].can_have(marker):
                    yield index, self._range(time, self.decided[index])

    def _between(self, first: float, last: float) -> range:
        """Indices of the transactions that ended since the first time and were decided until the last, or more."""
        return range(bisect_left(self._latest, first), bisect_right(self._earliest, last))

    @cached_property
    def _latest(self) -> Sequence[float]:
        """The latest time in each transaction and those before it."""
        return [*accumulate((each.closed_at for each in self.decided), max)]

    @cached_property
    def _earliest(self) -> Sequence[float]:
        """The earliest time in each transaction and those after it."""
        earliest = (min(each.decided_from, each.ended_at) for each in reversed(self.decided))
        return [*accumulate(earliest, min)][::-1]

    def _range(self, time: float, transaction: DecidedTransaction) -> Range:
        """The difference of the clocks if a marker of this time is of the transaction."""
        exact = 0 if self.is_one_clock else ROUNDING
        after_decision, before_end = time - transaction.decided_from, time - transaction.ended_at
        # One coordinator may have decided it, and another, by a clock of its own, have ended it.
        return min(after_decision, before_end) - exact, max(after_decision, before_end) + exact

    def _differences(
        self, time: float, *, by_hand: int | None = None, within: Sequence[Range] = WITHIN_LIMIT
    ) -> Sequence[Range]:
        """The differences of the clocks that explain the COMMIT markers before the last one, but for one by hand."""
        if self.is_one_clock:
            return [(0, 0)]
        differences = within
        if not self.is_one_coordinator:
            return differences
        compared = self._compared
        if within is not WITHIN_LIMIT and len(compared) > 2 * MAX_SIGN_MARKERS:
            compared = [*compared[:MAX_SIGN_MARKERS], *compared[-MAX_SIGN_MARKERS:]]
        for index in compared:
            if index != by_hand:
                ranges = self._earlier_ranges(self.markers[index], time, differences)
                differences = _meet(differences, _union(each for _, each in ranges))
        return differences

    @cached_property
    def _compared(self) -> Sequence[int]:
        """Indices of the COMMIT markers that the same leader wrote shortly before the last marker."""
        last = self.markers[-1]
        compared = [
            index
            for index, each in enumerate(self.markers[:-1])
            if each.is_commit
            and not each.is_by_hand
            and each.leader_epoch == last.leader_epoch
            and each.time is not None
            and last.time is not None
            and 0 <= last.time - each.time <= COMPARED
        ]
        return compared[-MOST_COMPARED:]

    def _may_be_by_hand(self, index: int) -> bool:
        """Whether `complete` may have written a marker: a commit lacked it for a while, and no other one came."""
        marker, before = self.markers[index], self.markers[index - 1] if index else None
        assert marker.time is not None
        is_comparable = before is not None and before.leader_epoch == marker.leader_epoch
        since = before.time if before is not None and is_comparable else None
        if since is not None and marker.time - since < COMPLETED_AFTER:
            return False
        return self.began is not None or any(
            each.can_have(marker)
            and marker.time - each.decided_from >= COMPLETED_AFTER - MAX_DIFFERENCE_MS
            and (since is None or since - each.decided_at <= MAX_DIFFERENCE_MS)
            for each in self.decided
        )

    def _after_decision(self, time: float, differences: Sequence[Range]) -> Iterator[int]:
        """Which transaction can be the last one that was decided before a marker of this time, whosever it is."""
        if not differences:
            return
        exact = 0 if self.is_one_clock else ROUNDING
        possible = self._between(time - differences[-1][1] - exact, time - differences[0][0] + exact)
        for index in range(possible.start - 1, possible.stop):
            lowest = self.decided[index].decided_from if index >= 0 else -FOR_EVER
            highest = self.decided[index + 1].decided_at if index + 1 < len(self.decided) else FOR_EVER
            if any(time - low + exact >= lowest and time - high - exact < highest for low, high in differences):
                yield index


def _union(ranges: Iterable[Range]) -> list[Range]:
    """The same in order, and apart from each other."""
    union: list[Range] = []
    for lowest, highest in sorted(ranges):
        if union and lowest <= union[-1][1]:
            union[-1] = union[-1][0], max(highest, union[-1][1])
        else:
            union.append((lowest, highest))
    return union


def _meet(some: Sequence[Range], others: Sequence[Range]) -> list[Range]:
    """What is in both, each in order and apart from each other."""
    both, i, j = [], 0, 0
    while i < len(some) and j < len(others):
        lowest, highest = max(some[i][0], others[j][0]), min(some[i][1], others[j][1])
        if lowest <= highest:
            both.append((lowest, highest))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return both
