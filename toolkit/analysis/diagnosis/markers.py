"""Markers of the producer: which decided transactions they close, and what those on other partitions contradict.

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

The coordinators' log can lose its tail, or come back from a backup: then a COMMIT marker is left of a transaction that
it does not have. So markers on other partitions are read before a transaction is said to hang.

With transaction version 2 each transaction has an epoch of its own, and its markers have the next one (KIP-890). So a
COMMIT marker with the next epoch, right after data of the open records' epoch, is of the same transaction, if the epoch
itself began with the commit before: a client can go from version 1 to 2 within an epoch, and coordinators raise the
epoch in aborts of version 1, too. With version 1 a COMMIT marker has the data's own epoch, and proves nothing here.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.decision import ABORT, COMMIT, UNKNOWN, Outcome
from toolkit.analysis.diagnosis.evidence_text import FILES, REQUESTS, at, elsewhere_entry, record_entry
from toolkit.analysis.diagnosis.log_excerpts import Excerpt, OpenPart, producer_batches, search_from
from toolkit.analysis.transaction_history import IdHistory
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import ABORT as ABORT_MARKER
from toolkit.formats.headers import COMMIT as COMMIT_MARKER
from toolkit.formats.headers import Headers
from toolkit.schema import utc
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.schema.live import EvidenceEntry, Producer
from toolkit.schema.log import PastTransaction
from toolkit.schema.table import TopicPartition

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case


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
        is_same = marker is not None and marker.is_commit == transaction.is_commit
        if marker is not None and is_same and epoch is not None and marker.epoch == epoch + 1:
            return True  # its own marker: a leader that had forgotten the producer has taken a late batch
        # A leader that has appended its marker, which has the next epoch, refuses the open records.
        has_own_epoch = transaction.is_version_2 and epoch is not None and epoch >= self.lowest_epoch
        if has_own_epoch and (marker is None or marker.is_commit or marker.epoch != epoch):
            return False
        if marker is None:  # if the excerpt begins before the decision, a marker of the transaction would be in it
            is_older = self.has_clocks and self.read_from < transaction.decided_from - MAX_DIFFERENCE_MS
            return False if is_older and not self.has_gaps else None
        if epoch is not None and marker.epoch > epoch:
            return True
        if epoch is not None and marker.epoch < epoch and marker.is_commit:
            return None if self.has_gaps else False
        return None

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
        found = {index for index, each in self._ranges(last, time, differences) if _meet([each], differences)}
        if self.began is not None and _meet([(time - self.began, MAX_DIFFERENCE_MS)], differences):
            found.add(-1)
        if not found and self.is_one_clock:
            return set(self._after_decision(time, differences))
        if found and self._may_be_by_hand(len(self.markers) - 1):
            found |= self._completed(time, differences)
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


END = 2**63 - 1
RESTART = dt.timedelta(seconds=3)  # no broker starts again and loads its log sooner


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMarker:
    """A marker of a producer, of an open transaction's own partition or of another one."""

    # tp, offset: where it is
    tp: TopicPartition
    offset: int
    # producer_id, epoch: as in the marker
    producer_id: int
    epoch: int
    # whether it repeats no other marker: data of the producer is between them, nothing of it is before in the log, or
    # it is a COMMIT and differs from the one before
    is_first: bool
    is_raised: bool  # whether the data right before it has the epoch below its own, as with transaction version 2
    is_commit: bool  # COMMIT, or ABORT
    coordinator_epoch: int  # leader epoch of the coordinator that wrote it
    time: dt.datetime | None  # when it was written, by its leader's clock; null if it has no time
    # time of the same marker before it, if it was written twice: nothing of the producer is between them; else null
    first_time: dt.datetime | None
    entry: EvidenceEntry  # the marker as evidence

    @property
    def name(self) -> str:
        """``the COMMIT marker at offset 12 of orders-0``."""
        topic, partition = self.tp
        return f"the {'COMMIT' if self.is_commit else 'ABORT'} marker at offset {self.offset} of {topic}-{partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerSearch:
    """Markers of producers on other partitions, and why they are not known to be all, by producer id.

    `ahead`: where a producer has an epoch that the coordinators' log does not have, by producer id.
    """

    markers: Sequence[OtherMarker] = ()
    unread: Mapping[int, str] = field(default_factory=dict)
    ahead: Mapping[int, Producer] = field(default_factory=dict)


def markers_found(
    tp: TopicPartition,
    excerpt: Excerpt,
    cases: Sequence[Case],
    states: Mapping[tuple[TopicPartition, int], Producer],
    *,
    errors: Sequence[str],
    end: int,
) -> MarkerSearch:
    """The markers of open transactions' producers in what was read of a partition, and of which others may be there.

    `states`: as in `MarkerSearchPlan`. `errors`: what could not be read.
    `end`: where the partition ended; it may have been read up to an earlier offset, from `search_from` on.
    """
    found = {each.producer_id: list(other_markers(tp, excerpt, each.producer_id)) for each in cases}
    has_times = all(each.opened_after is not None for each in cases)
    is_from_end = search_from(cases) is None and excerpt.start > (excerpt.log_start_offset or 0)
    unread = dict[int, str]()
    for case in cases:
        own, state = found[case.producer_id], states.get((tp, case.producer_id))
        if errors:
            unread[case.producer_id] = f"{tp} could not be read ({errors[0]})"
        elif is_from_end or (excerpt.stop < end and not (has_times and _is_enough(case, own, state, excerpt.stop))):
            offsets = excerpt.stop - excerpt.start
            unread[case.producer_id] = f"more than {offsets:,} offsets of {tp} would have to be read"
    return MarkerSearch(markers=[each for own in found.values() for each in own], unread=unread)


def _is_enough(case: Case, own: Sequence[OtherMarker], state: Producer | None, stop: int) -> bool:
    """Whether the marker of a transaction that includes open records is among the producer's own on a partition that
    was read up to an offset, if it has one there.

    It is none after the first one that is younger than the open records, nor after the producer's last one, nor after
    the beginning of what is open there.
    `state`: the producer there, before the partition was read: without an open transaction, it ended with a marker.
    """
    times = [each.time for each in own if each.time is not None]
    before = case.open_parts[-1].before
    if before is not None and any(each.timestamp() * 1000 >= before.time + MAX_DIFFERENCE_MS for each in times):
        return True
    if state is None or state.last_timestamp is None or case.opened_after is None:
        return False
    if state.current_txn_start_offset is not None:
        return state.current_txn_start_offset <= stop
    return state.last_timestamp < case.opened_after or state.last_timestamp in times


def other_markers(tp: TopicPartition, excerpt: Excerpt, producer_id: int) -> Iterator[OtherMarker]:
    """The markers of a producer in an excerpt."""
    batches, headers = producer_batches(excerpt, producer_id, END), excerpt.headers
    own = headers[headers["producer_id"] == producer_id]
    for number in range(len(batches.markers_before)):
        marker = batches.markers_before[number : number + 1]
        offset, epoch = int(marker["base_offset"][0]), int(marker["producer_epoch"][0])
        is_commit = bool(marker["marker"][0] == COMMIT_MARKER)
        before: Headers = own[own["base_offset"] < offset][-1:]
        is_first, is_raised, first_time = excerpt.start == 0 and excerpt.is_contiguous(0, offset), False, None
        if len(before):
            (last,) = before
            # One that differs from the marker before it repeats nothing: its data is elsewhere, or was compacted.
            is_repeat = (int(last["marker"]), int(last["producer_epoch"])) == (COMMIT_MARKER, epoch)
            is_others = is_commit and last["marker"] in {ABORT_MARKER, COMMIT_MARKER} and not is_repeat
            is_first = last["attributes"] & CONTROL == 0 or is_others
            # A missing batch may have the marker's own epoch, as with version 1.
            if excerpt.is_contiguous(int(last["base_offset"]), offset):
                is_data = last["attributes"] & (CONTROL | TRANSACTIONAL) == TRANSACTIONAL
                is_raised = is_data and int(last["producer_epoch"]) == epoch - 1
                if not is_first and last["marker"] == marker["marker"][0] and int(last["producer_epoch"]) == epoch:
                    first_time = utc(int(last["max_timestamp"]))
        yield OtherMarker(
            tp=tp,
            offset=offset,
            producer_id=producer_id,
            epoch=epoch,
            is_first=bool(is_first),
            is_raised=bool(is_raised),
            is_commit=is_commit,
            coordinator_epoch=int(marker["coordinator_epoch"][0]),
            time=utc(int(marker["max_timestamp"][0])),
            first_time=first_time,
            entry=batches.entry("marker_elsewhere", marker),
        )


def checked_by_markers(case: Case, outcome: Outcome) -> Outcome:
    """The outcome by the coordinators' log unless markers contradict it; where that proves none, the one by markers."""
    search, producer_id = case.marker_search, case.producer_id
    if search is None or outcome.is_contradicted:
        return outcome
    here = () if case.excerpt is None else other_markers(case.tp, case.excerpt, producer_id)
    markers = list({(each.tp, each.offset): each for each in (*search.markers, *here)}.values())
    if outcome.name == UNKNOWN:
        by_markers = outcome_by_markers(case, markers)
        return outcome if by_markers is None else replace(by_markers, offsets=outcome.offsets)
    history = case.id_histories[0] if len(case.id_histories) == 1 else None
    # An operator's ABORT marker has the epoch of the data; one that is raised is a coordinator's.
    aborts = [each for each in markers if each.is_raised or outcome.name == COMMIT]
    decided = outcome.transaction if outcome.name == COMMIT else None
    unexplained = unexplained_marker(
        producer_id, history, markers, is_commit=True, completed=decided
    ) or unexplained_marker(producer_id, history, aborts, is_commit=False)
    evidence: tuple[EvidenceEntry, ...]
    if unexplained is not None:
        when = "" if unexplained.time is None else f", of {at(unexplained.time)}"
        missing = (
            f"the decision of {unexplained.name}{when}: the coordinators' log does not have it, so it has lost "
            f"records, and may have lost a decision on {outcome.offsets}"
        )
        evidence = (unexplained.entry,)
    elif (ahead := search.ahead.get(producer_id)) is not None:
        sources = FILES if case.observation.from_files else REQUESTS
        missing = (
            f"why producer {producer_id} has epoch {ahead.producer_epoch} on {ahead.tp}: a coordinator writes an "
            "epoch to its log before anyone uses it, so the log has lost records, and may have lost a decision on "
            f"{outcome.offsets}"
        )
        evidence = (elsewhere_entry(ahead, source=sources.producers),)
    elif outcome.name != COMMIT and (lost := lost_end(case, history, markers)):
        why, evidence = lost
        missing = (
            f"why a transaction of this producer was ended twice ({why}): if the coordinators' log has lost its first "
            f"end, it may have lost a later transaction with {outcome.offsets}, too"
        )
    else:
        return outcome
    return Outcome(
        name=UNKNOWN,
        reason=missing,
        missing=(missing,),
        evidence=evidence,
        offsets=outcome.offsets,
        is_contradicted=True,
    )


def unexplained_marker(
    producer_id: int,
    history: IdHistory | None,
    markers: Sequence[OtherMarker],
    *,
    is_commit: bool,
    completed: PastTransaction | None = None,
) -> OtherMarker | None:
    """A marker whose decision the coordinators' log does not have; null if there is none.

    A marker without data before it may have been written twice. One that `kafka-txn complete` has written comes late.
    On a partition the markers are in the order of the decisions, and one decision has one of them.
    `history`: the records of the id that has the producer id; null if none is left.
    `is_commit`: which markers are looked at.
    `completed`: a commit that lacks its marker on the partition of the open records. If it did on others, too,
        `kafka-txn complete` has written it there, at any time, with the epoch of the data. With transaction version 2
        that epoch also tells it of any other commit: a coordinator raises it.
    """
    first = None if history is None else history.first_of(producer_id)
    if history is None or first is None or first.timestamp is None:
        return None
    is_whole = first.state == "Empty" and first.producer_epoch == 0  # compaction has taken nothing
    explained: dict[TopicPartition, int] = {}  # how many transactions are over for the markers of a partition
    earliest: dict[TopicPartition, dt.datetime] = {}  # the marker of a later decision was looked for
    for marker in sorted(markers, key=lambda each: (each.tp, each.offset)):
        if marker.time is not None:
            earliest.setdefault(marker.tp, marker.time)
        if not marker.is_first or marker.producer_id != producer_id or marker.time is None:
            continue
        late_after = earliest[marker.tp] + CLOCKS_DIFFER if marker.is_commit else None
        number = _decision_of(marker, history, since=explained.get(marker.tp, 0), late_after=late_after)
        if number is not None:
            explained[marker.tp] = number + 1
            continue
        by_hand = (
            number
            for number, each in enumerate(history.transactions)
            if number >= explained.get(marker.tp, 0)  # its own marker was missing there, too
            and _may_complete(marker, each)
            and (each == completed or _is_by_hand(marker, each))
        )
        if (number := next(by_hand, None)) is not None:
            explained[marker.tp] = number + 1
            continue
        # Epochs show that it is younger than the first record; a repeated InitProducerId may come after such a commit,
        # which is then taken for a lost one: unknown either way.
        epoch = -1 if first.producer_epoch is None else first.producer_epoch
        is_younger = marker.epoch > epoch or (marker.is_commit and first.state == "Empty" and marker.epoch == epoch)
        is_since = is_whole or is_younger or marker.time >= first.timestamp + CLOCKS_DIFFER
        if is_since and marker.is_commit == is_commit:
            return marker
    return None


def _may_complete(marker: OtherMarker, decision: PastTransaction) -> bool:
    """Whether a marker can be one by `kafka-txn complete` of a commit that lacked it."""
    return (
        marker.is_commit
        and marker.tp in (decision.topic_partitions or ())
        and marker.epoch == decision.producer_epoch
        and marker.time is not None
        and decision.decided_at is not None
        and decision.decided_at <= marker.time + CLOCKS_DIFFER
    )


def _is_by_hand(marker: OtherMarker, decision: PastTransaction) -> bool:
    """Whether no coordinator has written a marker with the epoch of a commit's data, long after its end."""
    ended, is_version_2 = decision.end_time, (decision.client_transaction_version or 0) >= 2
    is_late = marker.time is not None and ended is not None and marker.time > ended + CLOCKS_DIFFER
    return is_version_2 and is_late and not marker.is_raised and (decision.state or "").endswith("Commit")


def _decision_of(
    marker: OtherMarker, history: IdHistory, *, since: int, late_after: dt.datetime | None = None
) -> int | None:
    """Which transaction of the history is the first that a marker can be of; null if there is none.

    `since`: the first one to look at.
    `late_after`: markers of later decisions may come after their end; null if none does.
    """
    for number in range(since, len(history.transactions)):
        each = history.transactions[number]
        if marker.time is None or each.decided_at is None:
            continue
        is_in_time = each.end_time is None or marker.time <= each.end_time + CLOCKS_DIFFER
        if (
            each.producer_id in {marker.producer_id, None}
            and (each.state or "").endswith("Commit") == marker.is_commit
            and (each.topic_partitions is None or marker.tp in each.topic_partitions)
            and each.producer_epoch in _data_epochs(marker, each)
            and each.decided_at <= marker.time + CLOCKS_DIFFER
            and (is_in_time or (late_after is not None and each.decided_at > late_after))
        ):
            return number
    return None


def lost_end(
    case: Case, history: IdHistory | None, markers: Sequence[OtherMarker]
) -> tuple[str, tuple[EvidenceEntry, ...]] | None:
    """That a transaction was ended twice, and the evidence, if open records may be of a lost one after it; else null.

    It is a sign that the coordinators' log has lost that it had ended: it may have lost the next one, too.

    A coordinator that loads its log writes the markers of a decision again, unless the log has their end. So there are
    two on a partition. From 4.3.0 on (KAFKA-20734) it skips those without a leader, and what is left is an end of
    another coordinator, or long after the decision; it had not ended before its last first marker. The client of the
    lost transaction may go on, until it begins the next one.
    """
    parts, markers = case.open_parts, [each for each in markers if each.producer_id == case.producer_id]
    own = [] if history is None else [each for each in history.records if each.producer_id == case.producer_id]
    begun = [each.timestamp for each in own if each.state in {"Ongoing", "Empty"} and each.timestamp is not None]
    explained: dict[TopicPartition, int] = {}
    for marker in sorted(markers, key=lambda each: (each.tp, each.offset)):
        number = None if history is None else _decision_of(marker, history, since=explained.get(marker.tp, 0))
        decided_at = None
        if number is not None and history is not None:
            explained[marker.tp] = number + 1
            decided_at = history.transactions[number].decided_at
        first, last = marker.first_time, marker.time
        if first is None or last is None:
            continue
        if decided_at is not None and decided_at > first:
            continue  # it is of the next transaction, which had no records on the partition
        until = next((each for each in begun if each > last + CLOCKS_DIFFER), None)
        if _may_be_between(parts, epoch=marker.epoch, first=first, until=until):
            return f"{marker.name}, of {at(last)}, repeats that of {at(first)}", (marker.entry,)
    for decision, end in pairwise(own):
        first, last, epoch = decision.timestamp, end.timestamp, end.producer_epoch
        is_end = (decision.state or "").startswith("Prepare") and (end.state or "").startswith("Complete")
        # On its own partitions the second marker, if it is not skipped, ends what is open.
        if not is_end or first is None or last is None or epoch is None or case.tp in (decision.topic_partitions or ()):
            continue
        is_of_another = decision.leader_epoch != end.leader_epoch
        own_markers: dict[TopicPartition, OtherMarker] = {}  # on each of its partitions, the first since the decision
        for each in sorted(markers, key=lambda each: each.offset):
            is_since = each.time is not None and each.time >= first - CLOCKS_DIFFER
            if is_since and each.is_first and each.tp in (decision.topic_partitions or ()):
                own_markers.setdefault(each.tp, each)
        if is_of_another and any(each.coordinator_epoch == end.leader_epoch for each in own_markers.values()):
            continue
        times = [each.time - CLOCKS_DIFFER for each in own_markers.values() if each.time is not None]
        not_ended = max([first, *(min(each, last) for each in times)])
        if not is_of_another and last - not_ended <= RESTART:
            continue
        until = next((each for each in begun if each > last), None)
        if _may_be_between(parts, epoch=epoch, first=not_ended, until=until):
            entries = record_entry(decision, name="decision"), record_entry(end, name="end")
            return f"it was decided at {at(first)}, and ended at {at(last)}", entries
    return None


def _may_be_between(parts: Sequence[OpenPart], *, epoch: int, first: dt.datetime, until: dt.datetime | None) -> bool:
    """Whether open records of an epoch may be from between two times."""
    for part in parts:
        before = None if part.before is None else utc(int(part.before.time))
        after = None if part.after is None else utc(int(part.after.time))
        is_before = before is not None and before + CLOCKS_DIFFER < first
        is_after = after is not None and until is not None and after - CLOCKS_DIFFER > until
        if part.lowest_epoch <= epoch <= part.highest_epoch and not is_before and not is_after:
            return True
    return False


def _data_epochs(marker: OtherMarker, decision: PastTransaction) -> set[int | None]:
    """The epochs that the data of a decision can have if a marker is of it; coordinators raise them in their aborts."""
    if not marker.is_commit:
        return {None, marker.epoch, marker.epoch - 1}
    return {None, marker.epoch - ((decision.client_transaction_version or 0) >= 2)}


def outcome_by_markers(case: Case, markers: Sequence[OtherMarker]) -> Outcome | None:
    """The outcome that markers on other partitions prove; null if they do not.

    `markers`: markers of its producer, those on its own partition included.
    """
    # InitProducerId began the epoch, or a client of version 1 has it: after a restore it was given out twice.
    if any(each.state == "Empty" or (each.client_transaction_version or 1) < 2 for each in case.of_epoch):
        return None
    batches, own = case.batches, [each for each in markers if each.producer_id == case.producer_id]
    first = None if batches is None or not len(batches.first_batch) else batches.first_batch[0]
    if first is not None and first["base_sequence"] > 0:  # with version 2, a transaction begins with number 0
        return None
    epoch = case.first_epoch if first is None else int(first["producer_epoch"])
    if epoch is None or epoch != case.epoch:
        return None
    # A commit that raised the epoch to this one: the client was of version 2 when it began.
    if not any(each.is_commit and each.is_raised and each.epoch == epoch for each in own):
        return None
    found = [each for each in own if each.is_raised and each.epoch == epoch + 1 and each.tp != case.tp]
    written_after = None if batches is None else batches.brokers_time_before
    is_late = written_after is not None and any(
        each.time is None or each.time + CLOCKS_DIFFER < written_after for each in found
    )
    if is_late or len({each.is_commit for each in found}) != 1:
        return None
    marker = found[0]
    return Outcome(
        name=COMMIT if marker.is_commit else ABORT,
        reason=f"{marker.name} is of the same transaction (epoch {epoch}), and the log has no marker of it here",
        evidence=(marker.entry,),
    )
