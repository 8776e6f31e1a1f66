"""The data of a timeline: end of the log and LSO over time, transactions as bars, states of their ids.

Offsets only grow, and so does a broker's time. A producer's time is limited by the brokers' times around it, so a
client clock that is 50 minutes ahead bends no line.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby, zip_longest
from typing import NamedTuple

from toolkit.analysis.cluster_events import events_around
from toolkit.analysis.transaction_owners import EXPIRED
from toolkit.schema.live import Finding, Partition
from toolkit.schema.log import ClusterEvent, LogTransaction, LsoStep, PastTransaction
from toolkit.schema.verdict import Verdict
from toolkit.views.plots.plot_theme import place_name

CLOCKS_APART = dt.timedelta(minutes=1)
EARLIEST = dt.datetime.min.replace(tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The log end offset at a time, with the LSO."""

    time: dt.datetime
    offset: int
    by_broker: bool
    sampled_lso: int | None = None  # that of the same sample
    lso: int | None = None  # of a sample, by the log, or by a finding; null if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class LsoCurve:
    """The log end and the LSO over time."""

    points: Sequence[CurvePoint]  # in the order of offset and time
    failed: Sequence[dt.datetime] = ()  # times of samples that failed, where no log tells what was between the others

    @staticmethod
    def of(
        *,
        log_transactions: Iterable[LogTransaction],
        steps: Iterable[LsoStep],
        partitions: Iterable[Partition | Finding],
        now: dt.datetime | None = None,
        behind: dt.timedelta = dt.timedelta(0),
    ) -> LsoCurve:
        """From what the log, samples and findings of one partition say.

        `log_transactions`, `steps`, `partitions`: transactions and steps of the log, and the partition as observed;
            each may be empty.
        `now`: time of the read: no time is after it.
        `behind`: how far the observer's clock is behind the brokers'.
        """
        partitions = list(partitions)
        steps = list(steps)
        read = sorted((each for each in steps if not each.error), key=lambda each: (each.offset, each.event == "end"))
        brokers = {each.broker_id for each in read or steps}  # another replica's damage hides nothing of this one
        failures = [each.offset or 0 for each in steps if each.error and each.broker_id in brokers]
        unread, steps = min(failures, default=None), read
        points = [
            *_of_log_transactions(log_transactions),
            *(
                CurvePoint(step.at, step.offset, by_broker=step.event in {"commit", "abort"})
                for step in steps
                if step.at is not None and step.offset is not None
            ),
            *(
                # if the clocks differ, the observer's limits no time of the log
                CurvePoint(each.observed_at + behind, each.high_watermark, not behind, each.last_stable_offset)
                for each in partitions
                if each.high_watermark is not None and each.observed_at is not None
            ),
        ]
        points = _steady(sorted(points, key=lambda point: (point.offset, point.time)), now)
        offsets = [step.offset or 0 for step in steps]
        points = [
            CurvePoint(each.time, each.offset, each.by_broker, each.sampled_lso, _lso(each, steps, offsets, unread))
            for each in points
        ]
        failed = [] if steps else sorted(each.observed_at + behind for each in partitions if each.error)
        return LsoCurve(points=points, failed=failed)

    def held(self, lso: int, *, since: dt.datetime) -> LsoCurve:
        """Add an LSO that is known to be held since a time, where it is otherwise unknown."""
        points = [
            replace(point, lso=lso) if point.lso is None and point.time >= since else point for point in self.points
        ]
        return replace(self, points=points)

    def passed_at(self, offset: int) -> dt.datetime | None:
        """When the LSO was first observed beyond an offset, so that what began there had ended; null if it was not."""
        return min((point.time for point in self.points if (point.sampled_lso or 0) > offset), default=None)

    def failed_between(self, since: dt.datetime, until: dt.datetime) -> dt.datetime | None:
        """Time of the first sample that failed between two times."""
        index = bisect_right(self.failed, since)
        return self.failed[index] if index < len(self.failed) and self.failed[index] < until else None

    def time_at(self, offset: int) -> dt.datetime | None:
        """Time at which the log reached an offset; null after the last one."""
        index = bisect_right(self.points, offset - 1, key=lambda point: point.offset)
        return self.points[index].time if index < len(self.points) else None

    def thinned(self, edges: Sequence[dt.datetime]) -> LsoCurve:
        """The first and the last point between consecutive edges, which draw the same lines."""
        kept: dict[int, None] = {}
        sections = [bisect_right(edges, point.time) for point in self.points]
        for index, section in enumerate(sections):
            if index in {0, len(sections) - 1} or sections[index - 1] != section or sections[index + 1] != section:
                kept[index] = None
        return replace(self, points=[self.points[index] for index in kept])


def _of_log_transactions(log_transactions: Iterable[LogTransaction]) -> Iterator[CurvePoint]:
    for txn in log_transactions:
        if txn.start is not None and txn.first_offset is not None:
            first_batch = txn.first_batch_last_offset
            offset = (txn.first_offset if first_batch is None else first_batch) + 1
            yield CurvePoint(txn.start, offset, by_broker=txn.start_clock == "broker")
        if txn.end is not None and txn.marker_offset is not None:
            yield CurvePoint(txn.end, txn.marker_offset + 1, by_broker=True)


def _steady(points: Sequence[CurvePoint], now: dt.datetime | None) -> list[CurvePoint]:
    """Points in the order of offsets, with rising times."""
    latest = now or max((point.time for point in points), default=EARLIEST)
    ahead = accumulate(reversed(points), lambda soonest, point: _bound(soonest, point, latest), initial=latest)
    not_after = list(ahead)[1:][::-1]
    steady: list[CurvePoint] = []
    before = EARLIEST
    for point, bound in zip(points, not_after, strict=True):
        before = max(before, min(point.time, bound))
        steady.append(CurvePoint(before, point.offset, point.by_broker, point.sampled_lso))
    return steady


def _bound(soonest: dt.datetime, point: CurvePoint, latest: dt.datetime) -> dt.datetime:
    return min(soonest, point.time, latest) if point.by_broker else soonest


def _lso(point: CurvePoint, steps: Sequence[LsoStep], offsets: Sequence[int], unread: int | None) -> int | None:
    """The LSO at a log end; without an open transaction, it is the log end. `unread`: offset of the first damage."""
    if point.sampled_lso is not None:
        return point.sampled_lso
    if not steps or (unread is not None and point.offset > unread):
        return None
    index = bisect_right(offsets, point.offset) - 1
    return steps[index].last_stable_offset if index >= 0 and steps[index].open_count else point.offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionBar:
    """A transaction as a bar."""

    kind: str  # a key of `toolkit.views.plots.plot_theme.KINDS`
    # start, end: from when to when it was open; an open one ends now
    start: dt.datetime
    end: dt.datetime
    # first_offset, end_offset: its first offset, and that of its marker; null while it is open
    first_offset: int
    end_offset: int | None
    # log_transaction, finding: its rows; without a transaction of the log, unknown columns are null
    log_transaction: LogTransaction
    finding: Finding | None = None
    transactional_id: str | None = None  # its transactional id, if known
    has_ended: bool = (
        False  # whether it is known to have ended; what lost its end among missing offsets is not open either
    )

    @property
    def length(self) -> dt.timedelta:
        return self.end - self.start

    @property
    def held_from(self) -> dt.datetime:
        """Since when the transaction that holds the LSO holds it, as far as that is known."""
        return (self.finding.held_from if self.finding else None) or self.start

    @property
    def is_kept(self) -> bool:
        """Whether it is always drawn as a single bar."""
        return self.end_offset is None or self.finding is not None


def bars_of(
    log_transactions: Iterable[LogTransaction],
    findings: Iterable[Finding],
    *,
    curve: LsoCurve,
    owners: Mapping[int | None, str | None],
    now: dt.datetime,
) -> list[TransactionBar]:
    """A bar for every transaction of the log or of a finding, by first offset.

    `log_transactions`, `findings`: of one partition.
    `curve`: the log end over time, for the times of offsets.
    `owners`: transactional id by producer id.
    `now`: end of open transactions.
    """
    by_key = {
        (finding.producer_id, finding.start_offset): finding for finding in findings if finding.start_offset is not None
    }
    opened = {producer: start for (producer, start), each in by_key.items() if each.verdict.is_open}
    once = {
        (txn.producer_id, txn.first_offset, txn.marker_offset): txn
        for txn in (_from_its_start(txn, opened) for txn in log_transactions)
    }
    drawn = [txn for txn in once.values() if txn.first_offset is not None or txn.marker_offset is not None]
    keys = {(txn.producer_id, txn.first_offset) for txn in drawn}
    drawn += [
        LogTransaction(
            topic=finding.topic,
            partition=finding.partition,
            producer_id=finding.producer_id,
            producer_epoch=finding.producer_epoch,
            first_offset=finding.start_offset,
            end=finding.held_to,
        )
        for key, finding in by_key.items()
        if key not in keys
    ]
    bars = []
    for txn in drawn:
        finding = None if txn.first_offset is None else by_key.get((txn.producer_id, txn.first_offset))
        bars.append(_bar(txn, finding, curve=curve, owners=owners, now=now))
    return sorted(bars, key=lambda bar: (bar.first_offset, bar.end))


def _from_its_start(txn: LogTransaction, opened: Mapping[int | None, int | None]) -> LogTransaction:
    """An open transaction whose beginning was not read, from where its finding says that it began."""
    start = opened.get(txn.producer_id)
    if txn.marker_offset is not None or not txn.truncated or start is None or start >= (txn.first_offset or 0):
        return txn
    return replace(txn, first_offset=start, first_batch_last_offset=None)


def aggregate_bars(
    bars: Sequence[TransactionBar], *, edges: Sequence[dt.datetime], most: int
) -> tuple[list[TransactionBar], list[list[TransactionBar]]]:
    """The single bars, and the rest: short ones that ended in the same interval are drawn as one.

    All open transactions and those with a finding are single bars; of the others the longest, and some of every
    interval, up to a maximum.

    `bars`: from `bars_of`.
    `edges`: borders of the intervals of aggregated bars; at least two.
    `most`: maximum number of single bars, unless more are required.
    """
    kept = [bar for bar in bars if bar.is_kept]
    others = _ranked([bar for bar in bars if not bar.is_kept], edges)
    room = max(0, most - len(kept))
    sections: dict[int, list[TransactionBar]] = {}
    for bar in others[room:]:
        sections.setdefault(bisect_right(edges, bar.end), []).append(bar)
    drawn = sorted([*kept, *others[:room]], key=lambda bar: (bar.first_offset, bar.end))
    return drawn, [each for _, each in sorted(sections.items())]


def _ranked(bars: Iterable[TransactionBar], edges: Sequence[dt.datetime]) -> list[TransactionBar]:
    """First the bars that are long enough to be visible, then the longest of each interval, and so on."""
    visible = edges[-1] - edges[-2]
    rank: dict[int, int] = {}
    ranked = []
    for bar in sorted(bars, key=lambda bar: bar.length, reverse=True):
        section = bisect_right(edges, bar.end)
        rank[section] = rank.get(section, 0) + 1
        ranked.append((0 if bar.length > visible else rank[section], bar))
    return [bar for _, bar in sorted(ranked, key=lambda pair: pair[0])]


def _bar(
    txn: LogTransaction,
    finding: Finding | None,
    *,
    curve: LsoCurve,
    owners: Mapping[int | None, str | None],
    now: dt.datetime,
) -> TransactionBar:
    marker, first = txn.marker_offset, txn.first_offset
    first_offset = marker if first is None else first
    assert first_offset is not None, "without both, nothing is drawn"
    is_ended = marker is not None or txn.end is not None or (finding is not None and finding.verdict is Verdict.ENDED)
    # nor is it open if its end was not read: it may be among missing offsets, or the LSO was seen beyond it
    is_passed = not is_ended and finding is None and curve.passed_at(first_offset) is not None
    is_over = is_ended or is_passed or (finding is None and txn.outcome is None)
    end = now
    if is_over:
        known = (curve.time_at(marker + 1) if marker is not None else None) or txn.end or curve.passed_at(first_offset)
        end = known or _start(txn, finding, curve=curve, end=now)
    return TransactionBar(
        kind=_kind(txn, finding, is_over=is_over),
        start=min(_start(txn, finding, curve=curve, end=end), end),
        end=end,
        first_offset=first_offset,
        end_offset=marker if marker is not None else (first if is_over else None),
        log_transaction=txn,
        finding=finding,
        transactional_id=(finding.transactional_id if finding else None) or owners.get(txn.producer_id),
        has_ended=is_ended or is_passed,
    )


def _start(txn: LogTransaction, finding: Finding | None, *, curve: LsoCurve, end: dt.datetime) -> dt.datetime:
    """When it opened: by its finding, which has compared the clocks, or else when the log reached its offset."""
    if finding is not None and finding.opened_at is not None:
        return finding.opened_at
    if txn.first_offset is None:
        return end
    reached = txn.first_offset if txn.first_batch_last_offset is None else txn.first_batch_last_offset
    return curve.time_at(reached + 1) or txn.start or end


def _kind(txn: LogTransaction, finding: Finding | None, *, is_over: bool) -> str:
    if finding is not None and finding.verdict.is_open and not is_over:
        return str(finding.verdict)
    return ("undecided" if is_over else "open") if txn.outcome in (None, "open") else txn.outcome


MANY = "short states"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateInterval:
    """A transactional id in one state."""

    # transactional_id, state: the id and the state; `MANY` for several that are too short to draw
    transactional_id: str
    state: str
    # start, end: from when to when, by the coordinator's clock
    start: dt.datetime
    end: dt.datetime
    past: PastTransaction  # the transaction of the state; the first one for `MANY`
    goes_on: bool = False  # whether it is the last known state
    transactions: int = 0  # number of transactions in it

    @property
    def length(self) -> dt.timedelta:
        return self.end - self.start


def intervals(transaction_history: Iterable[PastTransaction], *, now: dt.datetime) -> list[StateInterval]:
    """Every state that every id was in, in the order of ids and times. `now`: end of the last state of an id."""
    once = {(past.transactional_id, past.first_offset): past for past in transaction_history}
    steps: dict[str, list[_Step]] = {}
    for (name, _), past in sorted(once.items(), key=lambda item: (item[0][1] is None, item[0][1])):
        if name is not None:
            steps.setdefault(name, []).extend(_steps(past))
    return [interval for name in sorted(steps) for interval in _between(name, steps[name], now)]


def merged(states: Sequence[StateInterval], shortest: dt.timedelta) -> list[StateInterval]:
    """Merge consecutive short intervals of an id into one of `MANY`."""
    result: list[StateInterval] = []
    for is_short, group in groupby(states, key=lambda state: state.length < shortest and not state.goes_on):
        run: list[StateInterval] = []
        for state in group:
            if run and (not is_short or state.end - run[0].start > 4 * shortest):
                result.append(_one_of(run))
                run = []
            run.append(state)
        result.append(_one_of(run))
    return result


class _Step(NamedTuple):
    since: dt.datetime
    state: str
    past: PastTransaction
    transactions: int  # that begin with it


def _steps(past: PastTransaction) -> Iterator[_Step]:
    """The states of a transaction: Ongoing, Prepare*, Complete*; its end is the last known state."""
    if past.kind != "transaction":
        if past.end_time is not None:
            yield _Step(past.end_time, EXPIRED if past.kind == "expired" else "Empty", past, 0)
        return
    commits = past.ended == "commit" or (past.state or "").endswith("Commit")
    outcome = "Commit" if commits else "Abort"
    times = {"Ongoing": past.start_time, f"Prepare{outcome}": past.decided_at, f"Complete{outcome}": past.end_time}
    for state, time in times.items():
        if time is not None:
            yield _Step(time, state, past, int(state == "Ongoing"))


def _between(name: str, steps: Sequence[_Step], now: dt.datetime) -> Iterator[StateInterval]:
    changes = [
        next(same) for _, same in groupby(steps, key=lambda step: (step.state, step.state == "Ongoing" or step.since))
    ]
    for step, following in zip_longest(changes, changes[1:]):
        yield StateInterval(
            transactional_id=name,
            state=step.state,
            start=step.since,
            end=max(step.since, following.since if following else now),
            past=step.past,
            goes_on=following is None,
            transactions=step.transactions,
        )


def _one_of(run: Sequence[StateInterval]) -> StateInterval:
    if len(run) == 1:
        return run[0]
    return replace(run[0], state=MANY, end=run[-1].end, transactions=sum(each.transactions for each in run))


SECTIONS = 240  # of the visible time; a line has at most two points in each
LANES = 5  # transactional ids in the lower lane
MAX_EVENTS = 60  # of the cluster, the newest ones
FEW = 6  # bars of a kind that may be thick


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineData:
    """The data of a partition's timeline."""

    name: str
    curve: LsoCurve
    bars: Sequence[TransactionBar]
    findings: Sequence[Finding]
    states: Sequence[StateInterval]
    ids: Sequence[str]  # those in the lower lane
    was_coordinator_read: bool
    is_unread: bool  # whether a part of it could not be read, or what is open is not known
    now: dt.datetime
    cluster_events: Sequence[ClusterEvent]  # in the initially visible time
    start: dt.datetime  # of the initially visible time
    first: dt.datetime  # of all times

    @property
    def open(self) -> list[TransactionBar]:
        """Open transactions, the one that holds the LSO first."""
        return [bar for bar in self.bars if bar.end_offset is None]

    @property
    def offset_range(self) -> tuple[int, int]:
        """Lowest and highest offset of the initially visible time."""
        start = self.start - max(self.now - self.start, dt.timedelta(seconds=1)) * 0.02
        offsets = [point.offset for point in self.curve.points if point.time >= start]
        offsets += [bar.first_offset for bar in self.bars if bar.end >= self.start]
        return min(offsets, default=0), max(offsets, default=1)

    @property
    def edges(self) -> list[dt.datetime]:
        """Borders of time intervals: narrow ones in the visible time, wider ones before it."""
        before = [self.first + (self.start - self.first) * part / 40 for part in range(40)]
        return before + [self.start + (self.now - self.start) * part / SECTIONS for part in range(SECTIONS)]


class TimelineTables(NamedTuple):
    """The tables that a timeline is drawn from."""

    log_transactions: Sequence[LogTransaction]
    lso_timeline: Sequence[LsoStep]
    partitions: Sequence[Partition]
    findings: Sequence[Finding]


def timeline_data(
    tables: TimelineTables,
    tp: tuple[str | None, int | None],
    transaction_history: Sequence[PastTransaction],
    cluster_events: Sequence[ClusterEvent],
    now: dt.datetime | None,
) -> TimelineData:
    """Collect the data of a partition's timeline.

    `cluster_events`: events of the cluster; those around the partition, its coordinators and brokers are kept.
    `now`: end of open transactions; null for the brokers' time of the observation, or that of the observer without it.
    """
    log_transactions, steps, partitions, findings = tables
    by_brokers = [each.brokers_time for each in findings if each.brokers_time is not None]
    observed_times = [each.observed_at for each in findings] + [each.observed_at for each in partitions]
    known = by_brokers or [time for time in observed_times if time is not None]
    # a marker's time is a broker's, too, and the time of an observation may be an earlier one at least
    last = now or max([*known, *(txn.end for txn in log_transactions if known and txn.end is not None)], default=None)
    curve = LsoCurve.of(
        log_transactions=[*log_transactions, *map(_opened, findings)],
        steps=steps,
        partitions=[*partitions, *findings],
        now=last,
        behind=_behind(findings),
    )
    curve = _held(curve, findings)
    times = [point.time for point in curve.points if point.time > EARLIEST]
    until = last or max(times, default=dt.datetime.now(dt.UTC))
    owners = {past.producer_id: past.transactional_id for past in transaction_history}
    bars = bars_of(log_transactions, findings, curve=curve, owners=owners, now=until)
    ids = _ids(bars, findings)
    states = intervals((past for past in transaction_history if past.transactional_id in ids), now=until)
    first = min([*times, *(bar.start for bar in bars)], default=until)
    opened = min((bar.start for bar in bars if bar.end_offset is None), default=first)
    start = max(first, opened - (until - opened) * 0.5)  # two thirds of the visible time is the oldest open transaction
    coordinators = {past.txn_state_partition for past in transaction_history}
    around = events_around(cluster_events, tp, transactional_ids=ids, txn_state_partitions=coordinators)
    return TimelineData(
        name=place_name(*tp),
        curve=curve,
        bars=bars,
        findings=sorted(findings, key=lambda each: (each.queue_position is None, each.queue_position)),
        states=states,
        ids=ids,
        was_coordinator_read=any(past.error is None for past in transaction_history),
        is_unread=any(txn.error for txn in log_transactions)
        or any(step.error for step in steps)
        or any(sample.error for sample in partitions)
        or any(each.error or each.verdict is Verdict.UNKNOWN for each in findings),
        now=until,
        cluster_events=[each for each in around if _is_between(each, start, until)][-MAX_EVENTS:],
        start=start,
        first=first,
    )


def _behind(findings: Sequence[Finding]) -> dt.timedelta:
    """How far the observer's clock is behind the brokers'; zero for what a look may take."""
    both = [each for each in findings if each.brokers_time is not None and each.observed_at is not None]
    newest = max(both, key=lambda each: each.observed_at, default=None)
    if newest is None or newest.brokers_time is None:
        return dt.timedelta(0)
    behind = newest.brokers_time - newest.observed_at
    return behind if abs(behind) > CLOCKS_APART else dt.timedelta(0)


def _is_between(event: ClusterEvent, start: dt.datetime, until: dt.datetime) -> bool:
    begun, ended = event.timestamp, event.ended_at
    return begun is not None and ended is not None and begun <= until and ended >= start


def _held(curve: LsoCurve, findings: Iterable[Finding]) -> LsoCurve:
    holder = next((each for each in findings if each.queue_position == 1 and each.held_to is None), None)
    if holder is None or holder.last_stable_offset is None:
        return curve
    since = holder.held_from or holder.observed_at
    return curve.held(holder.last_stable_offset, since=since) if since else curve


def _opened(finding: Finding) -> LogTransaction:
    """When a transaction opened, from its finding, which has compared the clocks."""
    clock = "broker" if finding.opened_at_clock in {"broker", "coordinator"} else "producer"
    return LogTransaction(first_offset=finding.start_offset, start=finding.opened_at, start_clock=clock)


def _ids(bars: Sequence[TransactionBar], findings: Iterable[Finding]) -> list[str]:
    """Ids for the lower lane: of hanging, then open, then the longest transactions."""
    worst = sorted(bars, key=lambda bar: (bar.kind != "hanging", not bar.is_kept, -bar.length.total_seconds()))
    named = [finding.transactional_id for finding in findings] + [bar.transactional_id for bar in worst]
    return list(dict.fromkeys(name for name in named if name is not None))[:LANES]
