"""The gap between LSO and log end over time, as shapes of a picture, without library or script."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolkit.views.report.report_parts import moment, partition_name, text

if TYPE_CHECKING:
    from toolkit.schema.live import Finding, Partition
    from toolkit.schema.log import LogTransaction, LsoStep

WIDTH, HEIGHT = 900, 260
LEFT, RIGHT, TOP, BOTTOM = 70, 14, 34, 40
MAX_POINTS = 900  # no more than one per pixel


def gap_chart(
    finding: Finding,
    *,
    steps: Iterable[LsoStep],
    log_transactions: Iterable[LogTransaction],
    samples: Iterable[Partition],
    others: Sequence[Finding] = (),
) -> Mapping[str, Any] | None:
    """The chart of a finding: two lines, the time for which it held the LSO, and labels; null without points.

    `steps`, `log_transactions`: steps of the LSO in their order, and transactions, from the log.
    `samples`: the partition at several times, used without a log.
    `others`: other findings that held it at other times.
    """

    def is_here(record: LsoStep | LogTransaction | Partition) -> bool:
        return (record.topic, record.partition) == (finding.topic, finding.partition)

    of_log = _of_log(list(filter(is_here, steps)), filter(is_here, log_transactions))
    newest = max((finding, *others), key=lambda each: each.observed_at)
    points = _steady(of_log, newest) or _of_samples(filter(is_here, samples))
    if len(points) < 2:
        return None
    scale = _Scale(points)
    ends, stable = ([(at, point[index]) for at, *point in points] for index in (0, 1))
    held = _held(finding)
    windows = [scale.window(*times) for times in map(_held, (finding, *others)) if times]
    return {
        "title": f"LSO and end of the log of {partition_name(finding)}",
        "caption": (
            f"LSO (red) and end of the log (grey) of {partition_name(finding)} from {moment(scale.first)} to "
            f"{moment(scale.last)}, offsets {text(scale.least)} to {text(scale.most)}; filled: held back."
        ),
        "width": WIDTH,
        "height": HEIGHT,
        "frame": {"x": LEFT, "y": TOP, "width": WIDTH - LEFT - RIGHT, "height": HEIGHT - TOP - BOTTOM},
        "gap": "M" + scale.path(ends)[1:] + scale.path(stable, back=True) + "Z",
        "ends": "M" + scale.path(ends)[1:],
        "stable": "M" + scale.path(stable)[1:],
        "windows": windows,
        "times": [
            {"x": LEFT, "anchor": "start", "text": moment(scale.first)},
            *(scale.labels(held) if held else []),
            {"x": WIDTH - RIGHT, "anchor": "end", "text": moment(scale.last)},
        ],
        "offsets": [{"y": TOP + 4, "text": text(scale.most)}, {"y": HEIGHT - BOTTOM, "text": text(scale.least)}],
    }


Point = tuple[dt.datetime, int, int]


def _of_log(steps: Sequence[LsoStep], log_transactions: Iterable[LogTransaction]) -> list[Point]:
    """Time, end of the log and LSO at each step, and at each marker between them; in the order of offsets."""
    if not steps:
        return []
    offsets = [step.offset for step in steps]
    ends = {step.offset: step.at for step in steps if step.at}
    ends |= {txn.marker_offset + 1: txn.end for txn in log_transactions if txn.end and txn.marker_offset is not None}
    points = []
    for offset, at in sorted(ends.items()):
        step = steps[max(0, bisect_right(offsets, offset) - 1)]
        points.append((at, offset, step.last_stable_offset if step.open_count else offset))
    return points


def _of_samples(samples: Iterable[Partition]) -> list[Point]:
    return sorted(
        (sample.observed_at, sample.high_watermark, sample.last_stable_offset)
        for sample in samples
        if sample.high_watermark is not None and sample.last_stable_offset is not None
    )


def _steady(points: Sequence[Point], finding: Finding) -> list[Point]:
    """Points with rising times, even if a producer's clock went back; redundant points are left out."""
    latest = finding.observed_at
    steady: list[Point] = []
    before = dt.datetime.min.replace(tzinfo=dt.UTC)
    for at, end, stable in points:
        before = max(before, min(at, latest))
        steady.append((before, end, stable))
    high, lso = finding.high_watermark, finding.last_stable_offset
    if steady and finding.queue_position == 1 and finding.held_to is None and high is not None and lso is not None:
        steady.append((max(before, latest), high, lso))
    stride = max(1, len(steady) // MAX_POINTS)
    kept = [point for number, point in enumerate(steady) if number % stride == 0 or _stops_or_starts(steady, number)]
    return [*kept, *steady[-1:]]


def _stops_or_starts(points: Sequence[Point], number: int) -> bool:
    """Whether the LSO stops or starts there; such points are always kept."""
    around = points[max(0, number - 1) : number + 2]
    return len(around) == 3 and (around[0][2] == around[1][2]) != (around[1][2] == around[2][2])


def _held(finding: Finding) -> tuple[dt.datetime, dt.datetime] | None:
    since = finding.held_from or (finding.opened_at if finding.queue_position == 1 else None)
    return (since, finding.held_to or finding.observed_at) if since else None


class _Scale:
    """Times and offsets as coordinates of the picture."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.first, self.last = points[0][0], points[-1][0]
        self.least = min(stable for _, _, stable in points)
        self.most = max(end for _, end, _ in points)
        self._seconds = max((self.last - self.first).total_seconds(), 0.001)
        self._offsets = max(self.most - self.least, 1)

    def x(self, time: dt.datetime) -> float:
        part = (time - self.first).total_seconds() / self._seconds
        return round(LEFT + min(max(part, 0.0), 1.0) * (WIDTH - LEFT - RIGHT), 1)

    def y(self, offset: int) -> float:
        part = (offset - self.least) / self._offsets
        return round(HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM), 1)

    def path(self, line: Sequence[tuple[dt.datetime, int]], *, back: bool = False) -> str:
        """A stepped line, from left to right or back, that continues the previous one."""
        corners: list[tuple[float, float]] = []
        for time, offset in line:
            if corners:
                corners.append((self.x(time), corners[-1][1]))
            corners.append((self.x(time), self.y(offset)))
        return "".join(f"L{x} {y}" for x, y in (reversed(corners) if back else corners))

    def labels(self, times: Sequence[dt.datetime]) -> list[Mapping[str, Any]]:
        """The time of each, if there is room between the ends of the axis."""
        labels: list[Mapping[str, Any]] = []
        free = LEFT + 210
        for time in times:
            if free <= (x := self.x(time)) <= WIDTH - RIGHT - 210:
                labels.append({"x": x, "anchor": "middle", "text": f"{time.astimezone(dt.UTC):%H:%M:%S}"})
                free = int(x) + 80
        return labels

    def window(self, since: dt.datetime, until: dt.datetime) -> Mapping[str, Any]:
        """An interval, at least wide enough to be visible."""
        left, right = self.x(since), self.x(until)
        return {"x": left, "y": TOP, "width": max(right - left, 2.0), "height": HEIGHT - TOP - BOTTOM}
