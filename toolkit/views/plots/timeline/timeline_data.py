"""The data of a timeline: curve, transactions, and states of their ids."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from toolkit.schema import FINDINGS, LOG_TRANSACTIONS, LSO_TIMELINE, PARTITIONS, Row
from toolkit.views.plots.plot_text import place_name
from toolkit.views.plots.state_intervals import StateInterval, intervals
from toolkit.views.plots.timeline.lso_curve import EARLIEST, LsoCurve
from toolkit.views.plots.timeline.transaction_bars import TransactionBar, bars_of

SECTIONS = 240  # of the visible time; a line has at most two points in each
LANES = 5  # transactional ids in the lower lane
FEW = 6  # bars of a kind that may be thick


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineData:
    """The data of a partition's timeline."""

    name: str
    curve: LsoCurve
    bars: Sequence[TransactionBar]
    findings: Sequence[Row]
    steps: Sequence[Row]
    states: Sequence[StateInterval]
    ids: Sequence[str]  # those in the lower lane
    was_coordinator_read: bool
    now: dt.datetime
    start: dt.datetime  # of the initially visible time
    first: dt.datetime  # of all times

    @property
    def open(self) -> list[TransactionBar]:
        """Open transactions, the one that holds the LSO first."""
        return [bar for bar in self.bars if bar.end_offset is None]

    @property
    def edges(self) -> list[dt.datetime]:
        """Borders of time intervals: narrow ones in the visible time, wider ones before it."""
        before = [self.first + (self.start - self.first) * part / 40 for part in range(40)]
        return before + [self.start + (self.now - self.start) * part / SECTIONS for part in range(SECTIONS)]


def timeline_data(
    rows: dict[str, list[Row]],
    tp: tuple[str | None, int | None],
    transaction_history: Sequence[Row],
    events: Sequence[Row],
    now: dt.datetime | None,
) -> TimelineData:
    """Collect the data of a partition's timeline.

    Parameters
    ----------
    rows
        Rows of ``schema.LOG_TRANSACTIONS``, ``LSO_TIMELINE``, ``PARTITIONS`` and ``FINDINGS`` of the partition, by
        table.
    tp
        Its topic and number.
    transaction_history, events
        Rows of ``schema.TRANSACTION_HISTORY`` and ``TRANSACTION_LOG``.
    now
        End of open transactions; null for the time of observation.
    """
    log_transactions, steps, partitions, findings = (
        rows[t.name] for t in (LOG_TRANSACTIONS, LSO_TIMELINE, PARTITIONS, FINDINGS)
    )
    observed_times = [row["observed_at"] for row in (*findings, *partitions) if row["observed_at"] is not None]
    last = now or max(observed_times, default=None)
    from_findings = [_of_finding(row) for row in findings if row["observed_at"] is not None]
    curve = LsoCurve.of(
        log_transactions=[*log_transactions, *map(_opened, findings)],
        steps=steps,
        partitions=[*partitions, *from_findings],
        now=last,
    )
    curve = _held(curve, findings)
    times = [point.time for point in curve.points if point.time > EARLIEST]
    until = last or max(times, default=dt.datetime.now(dt.UTC))
    owners = {row["producer_id"]: row["transactional_id"] for row in (*events, *transaction_history)}
    bars = bars_of(log_transactions, findings, curve=curve, owners=owners, now=until)
    ids = _ids(bars, findings)
    states = intervals(
        events=[row for row in events if row["transactional_id"] in ids],
        transaction_history=[row for row in transaction_history if row["transactional_id"] in ids],
        now=until,
    )
    first = min([*times, *(bar.start for bar in bars)], default=until)
    return TimelineData(
        name=place_name(*tp),
        curve=curve,
        bars=bars,
        findings=sorted(findings, key=lambda row: (row["queue_position"] is None, row["queue_position"])),
        steps=steps,
        states=states,
        ids=ids,
        was_coordinator_read=bool(transaction_history or events),
        now=until,
        start=_visible_start(bars, first, until),
        first=first,
    )


def _of_finding(row: Row) -> Row:
    return {name: row[name] for name in ("high_watermark", "last_stable_offset", "observed_at")}


def _held(curve: LsoCurve, findings: Sequence[Row]) -> LsoCurve:
    holder = next((row for row in findings if row["queue_position"] == 1 and row["held_to"] is None), None)
    if holder is None or holder["last_stable_offset"] is None:
        return curve
    since = holder["held_from"] or holder["observed_at"]
    return curve.held(holder["last_stable_offset"], since=since) if since else curve


def _opened(row: Row) -> Row:
    """When a transaction opened, from its finding, which has compared the clocks."""
    first, clock = row["start_offset"], "broker" if row["opened_at_clock"] in {"broker", "coordinator"} else "producer"
    nothing = dict.fromkeys(("first_batch_last_offset", "end", "marker_offset"))
    return nothing | {"first_offset": first, "start": row["opened_at"], "start_clock": clock}


def _ids(bars: Sequence[TransactionBar], findings: Iterable[Row]) -> list[str]:
    """Ids for the lower lane: of hanging, then open, then the longest transactions."""
    worst = sorted(bars, key=lambda bar: (bar.kind != "hanging", not bar.is_kept, -bar.length.total_seconds()))
    named = [row["transactional_id"] for row in findings] + [bar.transactional_id for bar in worst]
    return list(dict.fromkeys(name for name in named if name is not None))[:LANES]


def _visible_start(bars: Sequence[TransactionBar], first: dt.datetime, now: dt.datetime) -> dt.datetime:
    """Start of the initially visible time, two thirds of which is the oldest open transaction."""
    opened = min((bar.start for bar in bars if bar.end_offset is None), default=first)
    return max(first, opened - (now - opened) * 0.5)
