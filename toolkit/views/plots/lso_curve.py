"""The end of a log and its LSO over time, from batches, samples and transactions.

Offsets only grow, and so does a broker's time. A producer's time is limited by the brokers' times around it, so a
client clock that is 50 minutes ahead bends no line.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from toolkit.schema.live import Finding, Partition
from toolkit.schema.log import LogTransaction, LsoStep

EARLIEST = dt.datetime.min.replace(tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The log end offset at a time, with the LSO of the same sample."""

    time: dt.datetime
    offset: int
    by_broker: bool
    lso: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LsoCurve:
    """The log end over time, in the order of offsets, and the LSO at each point."""

    points: Sequence[CurvePoint]  # in the order of offset and time
    lso: Sequence[int | None]  # LSO at each of them; null if unknown

    @staticmethod
    def of(
        *,
        log_transactions: Iterable[LogTransaction],
        steps: Iterable[LsoStep],
        partitions: Iterable[Partition | Finding],
        now: dt.datetime | None = None,
    ) -> LsoCurve:
        """From what the log, samples and findings of one partition say.

        `log_transactions`, `steps`, `partitions`: transactions and steps of the log, and the partition as observed;
            each may be empty.
        `now`: time of the read: no time is after it.
        """
        steps = sorted(steps, key=lambda step: (step.offset, step.event == "end"))
        points = [
            *_of_log_transactions(log_transactions),
            *(
                CurvePoint(step.at, step.offset, by_broker=step.event in {"commit", "abort"})
                for step in steps
                if step.at is not None
            ),
            *(
                CurvePoint(each.observed_at, each.high_watermark, by_broker=True, lso=each.last_stable_offset)
                for each in partitions
                if each.high_watermark is not None and each.observed_at is not None
            ),
        ]
        points = _steady(sorted(points, key=lambda point: (point.offset, point.time)), now)
        offsets = [step.offset for step in steps]
        return LsoCurve(points=points, lso=[_lso(point, steps, offsets) for point in points])

    def held(self, lso: int, *, since: dt.datetime) -> LsoCurve:
        """Add an LSO that is known to be held since a time, where it is otherwise unknown."""
        known = [
            lso if known_lso is None and point.time >= since else known_lso
            for point, known_lso in zip(self.points, self.lso, strict=True)
        ]
        return LsoCurve(points=self.points, lso=known)

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
        return LsoCurve(points=[self.points[index] for index in kept], lso=[self.lso[index] for index in kept])


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
        steady.append(CurvePoint(before, point.offset, point.by_broker, point.lso))
    return steady


def _bound(soonest: dt.datetime, point: CurvePoint, latest: dt.datetime) -> dt.datetime:
    return min(soonest, point.time, latest) if point.by_broker else soonest


def _lso(point: CurvePoint, steps: Sequence[LsoStep], offsets: Sequence[int]) -> int | None:
    """The LSO at a log end; without an open transaction, it is the log end."""
    if point.lso is not None:
        return point.lso
    index = bisect_right(offsets, point.offset) - 1
    if not steps or index < 0:
        return point.offset if steps else None
    step = steps[index]
    return step.last_stable_offset if step.open_count else point.offset
