"""The timeline of a partition: lines, bars, held areas and labels over time and offsets, and coordinators below."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import Any, NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from toolkit.analysis.cluster_events import LEADER_EVENTS
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.durations import duration
from toolkit.schema.live import Finding, Partition
from toolkit.schema.log import ClusterEvent, LogTransaction, LsoStep, PastTransaction
from toolkit.schema.verdict import Verdict
from toolkit.views.finding_document import check_cluster, held_text, of_one_replica
from toolkit.views.plots.notebook_figure import NotebookFigure, empty_figure
from toolkit.views.plots.plot_theme import (
    KINDS,
    SHOWN,
    STATES,
    Appearance,
    Theme,
    ThemeName,
    apply_theme,
    finding_facts,
    hover,
    id_text,
    lines,
    number,
    place_name,
    row_axis,
    theme_named,
    when,
)
from toolkit.views.plots.timeline_data import (
    EARLIEST,
    FEW,
    MANY,
    CurvePoint,
    LsoCurve,
    StateInterval,
    TimelineData,
    TimelineTables,
    TransactionBar,
    aggregate_bars,
    merged,
    timeline_data,
)
from toolkit.views.row_formats import count, plain

MAX_AREAS = 50  # ended holds, the longest ones


class Hold(NamedTuple):
    """A hold of the LSO, which has ended or goes on until now."""

    finding: Finding | None
    start_offset: int
    held_from: dt.datetime
    held_to: dt.datetime

    @property
    def length(self) -> dt.timedelta:
        return self.held_to - self.held_from

    @property
    def producer_id(self) -> int | None:
        return self.finding.producer_id if self.finding else None


def past_holds(findings: Iterable[Finding]) -> list[Hold]:
    """The ended holds, the longest first."""
    holds = [
        Hold(finding, finding.start_offset, finding.held_from, finding.held_to)
        for finding in findings
        if finding.verdict is Verdict.ENDED
        and finding.held_from
        and finding.held_to
        and finding.start_offset is not None
    ]
    return sorted(holds, key=lambda hold: -hold.length)


def add_holds(figure: go.Figure, timeline: TimelineData, curve: LsoCurve, theme: Theme) -> None:
    """Hatch the offsets behind transactions that held the LSO, and behind the one that holds it.

    `figure`: the figure, whose first row has the offsets over time. `curve`: the end of the log over time.
    """
    for rank, hold in enumerate(past_holds(timeline.findings)[:MAX_AREAS]):
        name, colour = "was held back", theme[Verdict.ENDED.tone]
        _hatch(figure, hold, curve, name=name, fill=theme.grid, colour=colour, is_first=rank == 0)
    if timeline.open:
        holder = timeline.open[0]
        hold = Hold(holder.finding, holder.first_offset, holder.held_from, timeline.now)
        fill = theme.held if holder.kind == "hanging" else theme.grid
        _hatch(figure, hold, curve, name="held back", fill=fill, colour=theme[KINDS[holder.kind].role])


def _outline(curve: LsoCurve, hold: Hold) -> tuple[list[str | None], list[int]]:
    """The outline of the area between an offset and the log end."""
    offset, since, until = hold.start_offset, hold.held_from, hold.held_to
    inside = [point for point in curve.points if since < point.time <= until]
    before = [point.offset for point in curve.points if point.time <= since]
    end = max(before[-1] if before else 0, offset + 1)  # the log end then; the transaction's first record is there
    top = [CurvePoint(since, end, by_broker=True), *inside]
    top = [point for point in top if point.offset > offset]
    xs, ys = _stairs([*top, CurvePoint(until, top[-1].offset, by_broker=True)])
    return [*xs, when(until), when(since)], [*ys, offset, offset]


def _stairs(points: Sequence[CurvePoint]) -> tuple[list[str | None], list[int]]:
    """Corners of a stepped line."""
    corners = [(points[0].time, points[0].offset)]
    for before, point in pairwise(points):
        corners += [(point.time, before.offset), (point.time, point.offset)]
    return [when(time) for time, _ in corners], [offset for _, offset in corners]


def _hatch(
    figure: go.Figure, hold: Hold, curve: LsoCurve, *, name: str, fill: str, colour: str, is_first: bool = True
) -> None:
    xs, ys = _outline(curve, hold)
    finding = hold.finding
    facts: list[tuple[str, object]] = [
        ("held back from offset", hold.start_offset), ("since", hold.held_from), ("for", hold.length),
        ("records", finding.records_held if finding else None), ("groups", finding.groups_held if finding else None),
    ]  # fmt: skip
    figure.add_scatter(
        x=xs,
        y=ys,
        mode="none",
        fill="toself",
        fillcolor=fill,
        fillpattern={"shape": "/", "size": 12, "solidity": 0.12, "fgcolor": colour},
        name=name,
        hoveron="fills",
        hoverinfo="text",
        text=hover(facts),
        legendgroup=name,
        showlegend=is_first,
        legendrank=20,
        row=1,
        col=1,
    )


CROWDED = 50  # bars of a kind; their symbols are smaller then


def add_lines(figure: go.Figure, curve: LsoCurve, now: dt.datetime, theme: Theme, *, row: int = 1) -> None:
    """Draw the high watermark and the LSO up to a time."""
    points = [point for point in curve.points if point.time > EARLIEST]
    if not points:
        return
    xs: list[str | None] = []
    ends: list[int | None] = []
    lsos: list[int | None] = []
    for point, following in zip(points, [*(each.time for each in points[1:]), now], strict=True):
        failed = curve.failed_between(point.time, following)
        corners = [(when(point.time), point.offset, point.lso)]
        if failed or point is points[-1]:
            corners.append((when(failed or now), point.offset, point.lso))
        for time, end, stable in (*corners, *([(None, None, None)] if failed else [])):  # a gap up to the next point
            xs.append(time)
            ends.append(end)
            lsos.append(stable)
    line = {"shape": "hv"}
    drawn: dict[str, Any] = {"x": xs, "mode": "lines", "showlegend": None if row == 1 else False, "row": row, "col": 1}
    figure.add_scatter(
        **drawn,
        y=ends,
        name="high watermark",
        line=line | {"color": theme.muted, "dash": "dash", "width": 2},
        hovertemplate="high watermark <b>%{y:,d}</b><br>%{x}<extra></extra>",
        legendrank=11,
    )
    if any(lso is not None for lso in lsos):
        figure.add_scatter(
            **drawn,
            y=lsos,
            name="LSO",
            line=line | {"color": theme.lso, "width": 2.5},
            hovertemplate="LSO <b>%{y:,d}</b><br>%{x}<extra></extra>",
            legendrank=10,
        )


def add_aggregated_bars(figure: go.Figure, groups: Sequence[Sequence[TransactionBar]], theme: Theme) -> None:
    """Draw short transactions that ended in the same interval as one."""
    if not groups:
        return
    xs, ys, texts = [], [], []
    for bars in groups:
        start, end = min(bar.start for bar in bars), max(bar.end for bar in bars)
        first = min(bar.first_offset for bar in bars)
        last = max(bar.first_offset if bar.end_offset is None else bar.end_offset for bar in bars)
        kinds = Counter(bar.kind for bar in bars)
        producers = {each for bar in bars if (each := bar.log_transaction.producer_id) is not None}
        facts: list[tuple[str, object]] = [
            ("transactions", len(bars)),
            ("committed", kinds["commit"]),
            ("aborted", kinds["abort"]),
            ("others", len(bars) - kinds["commit"] - kinds["abort"] or None),
            ("offsets", f"{first:,} to {last:,}"),
            ("from", start),
            ("to", end),
            ("longest", max(bar.length for bar in bars)),
            ("producers", list(map(str, sorted(producers)))),
        ]
        time, text = when(start + (end - start) / 2), hover(facts)
        xs += [time, time, None]
        ys += [first, last, None]
        texts += [text, text, ""]
    figure.add_scatter(
        x=xs,
        y=ys,
        mode="lines+markers",
        line={"color": theme.muted, "width": 1},
        marker={"symbol": "line-ew-open", "size": 6, "color": theme.muted},
        text=texts,
        hoverinfo="text",
        name="many short ones",
        legendrank=40,
        row=1,
        col=1,
    )


NAMES: Mapping[str, str] = {
    "commit": "committed ▲",
    "abort": "aborted ✕",
    "empty": "marker without data",
    "undecided": "its end was not read",
    "open": "open ●",
    **{verdict: f"open: {verdict.replace('_', ' ')}" for verdict in Verdict if verdict.is_open},
    "hanging": "HANGING ✕",
}


def add_bars(figure: go.Figure, bars: Sequence[TransactionBar], theme: Theme, *, row: int = 1) -> None:
    """Draw transactions one by one, a trace for each kind."""
    for rank, (kind, style) in enumerate(KINDS.items()):
        of_kind = [bar for bar in bars if bar.kind == kind]
        if not of_kind:
            continue
        start_size, end_size = (5, 3) if len(of_kind) > CROWDED else (9, 8)
        width = style.width if len(of_kind) <= FEW else min(style.width, 5)
        xs: list[str | None] = []
        ys: list[int | None] = []
        texts: list[str] = []
        symbols: list[str] = []
        for bar in of_kind:
            text, at_end = _bar_hover(bar), bar.first_offset if bar.end_offset is None else bar.end_offset
            xs += [when(bar.start), when(bar.end), when(bar.end), None]
            ys += [bar.first_offset, bar.first_offset, at_end, None]
            texts += [text, "", text, ""]
            symbols += ["line-ns-open", "line-ns-open", style.symbol, style.symbol]
        figure.add_scatter(
            x=xs,
            y=ys,
            mode="lines+markers",
            line={"color": theme[style.role], "dash": style.dash, "width": width},
            marker={
                "symbol": symbols,
                "size": [start_size, 0, end_size + width, 0] * len(of_kind),
                "opacity": [1, 0, 1, 0] * len(of_kind),
                "color": theme[style.role],
                "line": {"width": 1 if len(of_kind) > CROWDED else 1.5, "color": theme[style.role]},
            },
            text=texts,
            hoverinfo="text",
            name=NAMES[kind],
            showlegend=None if row == 1 else False,
            legendrank=30 - rank,
            row=row,
            col=1,
        )


HOVER_STEPS = 16  # of the drawn width or height, from one point of a bar that a pointer finds to the next
MAX_HOVER_POINTS = 150


def add_hover_points(figure: go.Figure, bars: Sequence[TransactionBar], timeline: TimelineData) -> None:
    """Let a pointer find bars between their ends: invisible points along them, as plotly finds points only.

    `figure`: the figure, whose first row has the offsets over time.
    `bars`: the bars, from `add_bars`.
    `timeline`: the data, for the visible range.
    """
    low, high = timeline.offset_range
    width, height = max(timeline.now - timeline.start, dt.timedelta(seconds=1)), max(high - low, 4)
    points: list[tuple[str | None, float, str]] = []
    for bar in sorted(bars, key=lambda bar: (not bar.is_kept, -bar.length)):
        across = max(int((bar.end - max(bar.start, timeline.start)) / width * HOVER_STEPS), 0)
        along = int(((bar.end_offset or bar.first_offset) - bar.first_offset) / height * HOVER_STEPS)
        if len(points) + across + along > MAX_HOVER_POINTS:
            break
        text = _bar_hover(bar, is_brief=len(bars) > FEW)
        start = max(bar.start, timeline.start)
        steps = (start + (bar.end - start) * step / (across + 1) for step in range(1, across + 1))
        points += [(when(time), bar.first_offset, text) for time in steps]
        rise = ((bar.end_offset or bar.first_offset) - bar.first_offset) / (along + 1)
        points += [(when(bar.end), bar.first_offset + rise * step, text) for step in range(1, along + 1)]
    if points:
        xs, ys, texts = zip(*points, strict=True)
        figure.add_scatter(x=xs, y=ys, mode="markers", marker={"size": 12, "opacity": 0}, hovertext=texts,
                           hoverinfo="text", name="bars", showlegend=False, row=1, col=1)  # fmt: skip


def _bar_hover(bar: TransactionBar, *, is_brief: bool = False) -> str:
    txn = bar.log_transaction
    marker = None
    if txn.marker_offset is not None:
        marker = f"{txn.marker or 'not read'} at {txn.marker_offset:,}, epoch {txn.marker_epoch}"
    facts: list[tuple[str, object]] = [
        ("transaction", "hanging" if bar.kind == "hanging" else bar.kind),
        ("producer", id_text(txn.producer_id)),
        ("epoch", id_text(txn.producer_epoch)),
        ("transactional id", bar.transactional_id),
        ("first offset", txn.first_offset),
        ("last offset", txn.last_offset),
        ("marker", marker),
        ("coordinator epoch", id_text(txn.coordinator_epoch)),
        ("opened", bar.start),
        ("ended", bar.end if bar.end_offset is not None else None),
        ("open for", bar.length),
        ("records", txn.records),
        ("bytes", txn.bytes),
        ("its beginning was read", "no" if txn.truncated else None),
        ("error", txn.error),
    ]
    if bar.finding is not None and not is_brief:
        known = {"producer", "epoch", "transactional id", "opened"}
        facts = [*facts, *(fact for fact in finding_facts(bar.finding) if fact[0] not in known)]
    return hover(facts)


def add_cluster_events(figure: go.Figure, timeline: TimelineData, theme: Theme) -> None:
    """Draw a line for each event of the cluster, with a symbol at its top; leaders' are the strongest.

    `figure`: the figure, whose first row has the offsets over time.
    """
    low, high = timeline.offset_range
    top = high + max(high - low, 4) * 0.11
    for is_of_leader, name in ((True, "leader changed"), (False, "cluster event")):
        events = [each for each in timeline.cluster_events if (each.event in LEADER_EVENTS) is is_of_leader]
        if not events:
            continue
        colour, symbol = (theme.text, "triangle-down") if is_of_leader else (theme.muted, "triangle-down-open")
        for event in events:
            style = {"color": colour, "width": 1, "dash": "dash" if is_of_leader else "dot"}
            figure.add_vline(x=when(event.timestamp), line=style, layer="below", row=1, col=1)
        figure.add_scatter(
            x=[when(each.timestamp) for each in events],
            y=[top] * len(events),
            mode="markers",
            marker={"symbol": symbol, "size": 11, "color": colour},
            hovertext=[_event_hover(each) for each in events],
            hoverinfo="text",
            name=name,
            legendrank=90,
            row=1,
            col=1,
        )


def _event_hover(event: ClusterEvent) -> str:
    facts = [("time", event.timestamp), ("what", event.text), ("topic", event.topic), ("partition", event.partition)]
    return hover([*facts, ("lines", event.line_count), ("until", event.last_timestamp), ("file", event.file)])


LABELS = 3  # transactions with a label of their own
NEAR_THE_EDGE = 0.25  # share of the visible time: a label in the middle would be cut off


def add_labels(figure: go.Figure, timeline: TimelineData, theme: Theme) -> None:
    """Label hanging transactions, or else open ones, and LSO and log end at the right."""
    worst = sorted(timeline.open, key=lambda bar: bar.kind != "hanging")
    hangs = any(bar.kind == "hanging" for bar in worst)
    offsets = [point.offset for point in timeline.curve.points] or [0]
    apart = max(max(offsets) - min(bar.first_offset for bar in worst), 1) * 0.09 if worst else 1
    taken: list[int] = []
    for bar in worst:
        if len(taken) == (LABELS if hangs and len(worst) <= FEW else 1):
            break
        if any(abs(bar.first_offset - other) < apart for other in taken):
            continue
        taken.append(bar.first_offset)
        _add_label(figure, timeline, bar, theme, is_lowest=bar is timeline.open[0])
    for hold in past_holds(timeline.findings)[: 0 if worst else 1]:
        length = duration(hold.length)
        producer = f"producer {hold.producer_id} at {number(hold.start_offset)}"
        text = f"<b>held for {length}</b> · {producer}"
        middle = hold.held_from + hold.length / 2
        across = (middle - timeline.start) / max(timeline.now - timeline.start, dt.timedelta(milliseconds=1))
        anchor = "left" if across < NEAR_THE_EDGE else "right" if across > 1 - NEAR_THE_EDGE else "center"
        place = {"x": when(middle), "xanchor": anchor, "y": hold.start_offset, "yshift": -16}
        figure.add_annotation(**place, text=text, **_label_style(theme, theme[Verdict.ENDED.tone]))
    if not timeline.curve.points:
        return
    end, lso = timeline.curve.points[-1].offset, timeline.curve.points[-1].lso
    style: dict[str, Any] = {"x": when(timeline.now), "xanchor": "right", "showarrow": False, "row": 1, "col": 1,
                             "font": {"size": 12, "color": theme.text}, "bgcolor": theme.background}  # fmt: skip
    same = "LSO = " if lso == end else ""
    figure.add_annotation(y=end, yshift=12, text=f"{same}high watermark <b>{number(end)}</b>", **style)
    if lso is not None and lso not in {end, *taken}:
        figure.add_annotation(y=lso, yshift=-15, text=f"LSO <b>{number(lso)}</b>", **style)


def _add_label(
    figure: go.Figure, timeline: TimelineData, bar: TransactionBar, theme: Theme, *, is_lowest: bool
) -> None:
    verdict = bar.finding.verdict if bar.finding else "open"
    txn = bar.log_transaction
    epoch = bar.finding.producer_epoch if bar.finding and txn.producer_epoch is None else txn.producer_epoch
    text = f"<b>{'✕ HANGING' if verdict == 'hanging' else plain(verdict)}</b> · producer {txn.producer_id}"
    text += f"{'' if epoch is None else f' epoch {epoch}'} at {number(bar.first_offset)}"
    length = max(timeline.now - timeline.start, dt.timedelta(milliseconds=1))
    is_right = (bar.start - timeline.start) / length > 0.4
    figure.add_annotation(
        x=when(timeline.now if is_right else max(bar.start, timeline.start)),
        y=bar.first_offset,
        xanchor="right" if is_right else "left",
        yshift=-22 if is_lowest and not is_right else 19,
        xshift=0 if is_right else 6,
        text=text,
        **_label_style(theme, theme[KINDS[bar.kind].role]),
    )


def _label_style(theme: Theme, colour: str) -> dict[str, Any]:
    return {"showarrow": False, "font": {"size": 13, "color": colour}, "bgcolor": theme.background,
            "bordercolor": colour, "borderwidth": 1, "borderpad": 3, "row": 1, "col": 1}  # fmt: skip


WIDE = 0.18  # minimum share of the visible time for a state with its name
MAX_WORDS = 16
ID_WIDTH = 24
NARROWEST_LANE = 400  # minimum share of the visible time for a single state
MILLISECOND = dt.timedelta(milliseconds=1)
STATE_APPEARANCE = {**STATES, MANY: Appearance(role="muted", hatch="/")}


def add_lanes(figure: go.Figure, timeline: TimelineData, theme: Theme) -> None:
    """Draw a lane for each id in the second row; an id without records has an empty one with a note.

    The initially visible time decides which states are merged, and which have a word.
    """
    states, now, shown_from = timeline.states, timeline.now, timeline.start
    ids = timeline.ids if states else ()
    shortest = (now - shown_from) / NARROWEST_LANE
    visible = [
        interval
        for name in ids
        for interval in merged([state for state in states if state.transactional_id == name], shortest)
    ]
    names = {name: plain(name) for name in ids}
    for state, style in STATE_APPEARANCE.items():
        of_state = [interval for interval in visible if interval.state == state]
        if of_state:
            figure.add_bar(
                orientation="h",
                base=[when(interval.start) for interval in of_state],
                x=[max(interval.length, shortest / 2) / MILLISECOND for interval in of_state],
                y=[names[interval.transactional_id] for interval in of_state],
                width=0.56,
                marker=_lane_marker(state, style, theme),
                hovertext=list(map(_lane_hover, of_state)),
                hoverinfo="text",
                name=state,
                legendrank=100 + list(STATES).index(state) if state in STATES else 120,
                row=2,
                col=1,
            )
    widths = [(interval.end - max(interval.start, shown_from), interval) for interval in visible]
    wide = [pair for pair in widths if pair[0] > (now - shown_from) * WIDE]
    for _, interval in sorted(wide, key=lambda pair: pair[0], reverse=True)[:MAX_WORDS]:
        figure.add_annotation(
            x=when(max(interval.start, shown_from)), y=names[interval.transactional_id], xanchor="left", xshift=6,
            text=interval.state, showarrow=False, font={"size": 12, "color": theme.text}, bgcolor=theme.background,
            borderpad=1, row=2, col=1,
        )  # fmt: skip
    silent = [name for name in ids if all(interval.transactional_id != name for interval in visible)]
    for name in silent if visible else []:
        figure.add_annotation(
            x=when(now), y=names[name], text="no record was read", xanchor="right", showarrow=False, row=2, col=1
        )
    figure.update_yaxes(row_axis(ids, longest=ID_WIDTH, margin=0.6), row=2, col=1)
    if not visible:
        figure.add_scatter(x=[when(now)], y=[""], mode="none", showlegend=False, hoverinfo="skip", row=2, col=1)
        figure.add_annotation(
            text=no_states(timeline), x=0.5, y=0.5, xref="x2 domain", yref="y2 domain", showarrow=False,
            font={"color": theme.muted},
        )  # fmt: skip


def _lane_marker(state: str, style: Appearance, theme: Theme) -> dict[str, Any]:
    colour = theme[style.role]
    pattern = {"shape": style.hatch, "fgcolor": colour, "bgcolor": theme.background, "size": 7, "solidity": 0.25}
    fill = colour if state == "Ongoing" else theme.background
    return {"color": fill, "line": {"color": colour, "width": 1.5}, "pattern": pattern}


def _lane_hover(interval: StateInterval) -> str:
    """Every id and time of a state."""
    past = interval.past
    lasted: list[tuple[str, object]] = [
        ("from", interval.start),
        ("to", None if interval.goes_on else interval.end),
        ("for", interval.length),
    ]
    named: list[tuple[str, object]] = [("state", interval.state), ("transactional id", interval.transactional_id)]
    if interval.state == MANY:  # of the first one, the rest would be said of all
        return hover([*named, *lasted, ("transactions", interval.transactions)])
    facts: list[tuple[str, object]] = [
        *named,
        ("producer", id_text(past.producer_id)),
        ("epoch", id_text(past.producer_epoch)),
        *lasted,
        ("timeout", None if past.timeout_ms is None else past.timeout_ms * MILLISECOND),
        ("partitions", list(map(str, past.topic_partitions or ())) or None),
        ("__transaction_state", f"{past.txn_state_partition} @ {past.first_offset}"),
        ("ended", past.ended),
        ("because", past.reason),
    ]
    return hover(facts)


LOWER_TITLE = "what their coordinator knew"
LONG = dt.timedelta(days=1)  # a hold so long hides how it began
BEGINNING = dt.timedelta(minutes=5)  # before and after it, in a panel of its own
MAX_BEGINNING_BARS = 60


def add_beginning(figure: go.Figure, timeline: TimelineData, since: dt.datetime, theme: Theme) -> None:
    """Draw the minutes around the beginning of a hold in the third row, with a time axis of its own."""
    first, last = since - BEGINNING, since + BEGINNING
    points = timeline.curve.points
    inside = [index for index, point in enumerate(points) if first <= point.time <= last]
    begin = inside[0] if inside else sum(point.time <= last for point in points)
    kept = range(max(begin - 1, 0), inside[-1] + 1 if inside else begin)  # with the last one before
    curve = LsoCurve(points=[replace(points[index], time=max(points[index].time, first)) for index in kept])
    bars = sorted(
        (bar for bar in timeline.bars if bar.start <= last and bar.end >= first), key=lambda bar: abs(bar.start - since)
    )[:MAX_BEGINNING_BARS]
    add_bars(figure, [replace(bar, end=min(bar.end, last + BEGINNING)) for bar in bars], theme, row=3)
    add_lines(figure, curve, last, theme, row=3)
    offsets = [point.offset for point in curve.points] + [bar.first_offset for bar in bars if bar.start >= first]
    low, high = min(offsets, default=0), max(offsets, default=1)
    room = max(high - low, 4) * 0.14
    figure.update_xaxes(matches="x2", row=1, col=1)
    figure.update_xaxes(matches=None, row=2, col=1)
    figure.update_xaxes(range=[when(first), when(last)], type="date", showticklabels=True, tickangle=0,
                        nticks=7, title={"text": "time (UTC)", "standoff": 6}, row=3, col=1)  # fmt: skip
    figure.update_yaxes(range=[low - room, high + room], tickformat=",d", nticks=4, row=3, col=1)


def plot_timeline(
    log_transactions: Data,
    *,
    lso_timeline: Data = None,
    partitions: Data = None,
    findings: Data = None,
    transaction_history: Data = None,
    cluster_events: Data = None,
    topic: str | None = None,
    partition: int | None = None,
    now: dt.datetime | None = None,
    most: int = 300,
    theme: ThemeName = "light",
) -> go.Figure:
    """Draw one partition: LSO and log end over time, transactions as bars over time and offset, and their ids' states.

    Each transaction is a bar at its first offset, where it holds the LSO once nothing older is open, from its first
    batch to its marker. The lower lane has the states of the ids behind them, by their coordinator.

    Parameters
    ----------
    log_transactions
        ``schema.LOG_TRANSACTIONS``. Of one partition, or `topic` and `partition` name it.
    lso_timeline
        ``schema.LSO_TIMELINE``; without it, and without `partitions`, no LSO is drawn.
    partitions
        ``schema.PARTITIONS``: one sample, or the samples of a recording.
    findings
        ``schema.FINDINGS``: they show what hangs. Without them an open transaction is drawn as open.
    transaction_history
        ``schema.TRANSACTION_HISTORY``, of any ids.
    cluster_events
        ``schema.CLUSTER_EVENTS``: leaders of this partition and of its coordinators, and brokers that start or stop.
    topic, partition
        Which partition; the first one that is found if null.
    now
        Where open transactions end; by default when the newest row was observed, else the last time in the log.
    most
        How many transactions to draw one by one; the rest is aggregated by time. Those that are open, and those
        that a finding speaks of, are always drawn.
    theme
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        At most about `most` bars and a few thousand points, however large the log; what hangs, beside.

    Raises
    ------
    UsageError
        If there is no such theme.
    """
    colours = theme_named(theme)
    tables = TimelineTables(
        records_of(log_transactions, LogTransaction),
        records_of(lso_timeline, LsoStep),
        records_of(partitions, Partition),
        records_of(findings, Finding),
    )
    past = records_of(transaction_history, PastTransaction)
    of_cluster = records_of(cluster_events, ClusterEvent)
    tp = _topic_partition(tables, topic, partition)
    own = [finding for finding in tables.findings if (finding.topic, finding.partition) == tp]
    of_partition = TimelineTables(
        of_one_replica([txn for txn in tables.log_transactions if (txn.topic, txn.partition) == tp], own),
        of_one_replica([step for step in tables.lso_timeline if (step.topic, step.partition) == tp], own),
        of_one_replica([sample for sample in tables.partitions if (sample.topic, sample.partition) == tp], own),
        own,
    )
    check_cluster(of_partition.findings, "A timeline")
    if not any(of_partition):
        name = place_name(*tp)
        return empty_figure(colours, title=f"{name}: nothing to draw", missing=_missing(name, tables))
    timeline = timeline_data(of_partition, tp, past, of_cluster, now)
    return _draw(timeline, colours, most=most, replica=_replica(tables, of_partition, tp))


def _topic_partition(tables: TimelineTables, topic: str | None, partition: int | None) -> tuple[str | None, int | None]:
    """The partition that is meant: as named, else that of the first finding, else of the first row."""
    rows: Iterable[Finding | LogTransaction | LsoStep | Partition] = chain(tables.findings, *tables)
    for each in rows:
        if topic in (None, each.topic) and partition in (None, each.partition) and each.topic is not None:
            return each.topic, each.partition
    return topic, partition


def _replica(tables: TimelineTables, drawn: TimelineTables, tp: tuple[str | None, int | None]) -> str:
    """Which of several replicas is drawn where no finding says which one was diagnosed; empty if that is known."""
    rows: list[LogTransaction | LsoStep] = [*tables.log_transactions, *tables.lso_timeline]
    replicas = {each.broker_id for each in rows if (each.topic, each.partition) == tp}
    if len(replicas) < 2 or any(each.broker_id is not None for each in drawn.findings):
        return ""
    kept: list[LogTransaction | LsoStep] = [*drawn.log_transactions, *drawn.lso_timeline]
    own = next((each.broker_id for each in kept if not each.error), None)
    return f"Drawn is the log of broker {own}, which reaches furthest; findings would name the one that was diagnosed."


def _missing(name: str, tables: TimelineTables) -> str:
    there = [f"{table}: {count(len(rows), 'row')} of others" for table, rows in tables._asdict().items() if rows]
    what = "No transactions, LSO steps, samples or findings"
    return f"{what} of {name}.<br>{'; '.join(there) or 'Every table is empty.'}"


def _draw(timeline: TimelineData, theme: Theme, *, most: int, replica: str) -> go.Figure:
    edges = timeline.edges
    drawn, groups = aggregate_bars(timeline.bars, edges=edges, most=most)
    lanes = max(1, len(timeline.ids) if timeline.states else 1)
    since = _long_since(timeline)
    begun = () if since is None else (f"how it began, {at(since)}",)
    heights = [420, 60 + 34 * lanes, *(200 for _ in begun)]
    figure = make_subplots(
        figure=NotebookFigure(),
        rows=len(heights),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=0.12 if begun else 0.07,
        subplot_titles=(None, LOWER_TITLE, *begun),
    )
    curve = timeline.curve.thinned(edges)
    add_holds(figure, timeline, curve, theme)
    add_aggregated_bars(figure, groups, theme)
    add_bars(figure, drawn, theme)
    add_hover_points(figure, drawn, timeline)
    add_lines(figure, curve, timeline.now, theme)
    add_cluster_events(figure, timeline, theme)
    add_labels(figure, timeline, theme)
    add_lanes(figure, timeline, theme)
    if since is not None:
        add_beginning(figure, timeline, since, theme)
    subtitle = "<br>".join(filter(None, (subtitle_of(timeline, sum(map(len, groups))), lines(replica))))
    apply_theme(figure, theme, title=title_of(timeline), subtitle=subtitle, height=sum(heights) + 190)
    for text in (LOWER_TITLE, *begun):
        figure.update_annotations(selector={"text": text}, x=0, xanchor="left", font={"size": 13, "color": theme.muted})
    _axes(figure, timeline)
    return figure


def _long_since(timeline: TimelineData) -> dt.datetime | None:
    """Since when the LSO is held, or else was held longest, if that is too long to show how it began."""
    if timeline.open:
        since, until = timeline.open[0].held_from, timeline.now
    else:
        longest = next(iter(past_holds(timeline.findings)), None)
        since, until = (longest.held_from, longest.held_to) if longest else (timeline.now, timeline.now)
    return since if until - since >= LONG else None


def _axes(figure: go.Figure, timeline: TimelineData) -> None:
    length = max(timeline.now - timeline.start, dt.timedelta(seconds=1))
    shown = [when(timeline.start - length * 0.02), when(timeline.now + length * 0.04)]
    figure.update_xaxes(range=shown, type="date", nticks=7, showticklabels=False, row=1, col=1)
    figure.update_xaxes(
        range=shown,
        type="date",
        title={"text": "time (UTC)", "standoff": 6},
        showticklabels=True,
        tickangle=0,
        nticks=7,
        row=2,
        col=1,
    )
    low, high = timeline.offset_range
    room = max(high - low, 4)
    figure.update_yaxes(
        range=[low - room * 0.16, high + room * 0.14],
        tickformat=",d",
        nticks=6,
        title={"text": "offset", "standoff": 8},
        row=1,
        col=1,
    )


def no_states(timeline: TimelineData) -> str:
    """Why the lower lane is empty."""
    if not timeline.was_coordinator_read:
        return "No record of __transaction_state was read: pass transaction_history."
    if not timeline.ids:
        return "None of these producers has a transactional id that a coordinator knows."
    return "No record of these ids was read."


def title_of(timeline: TimelineData) -> str:
    """``orders-0: LSO held at 913,095,344 for 3 h by producer 4711``."""
    holder = next(
        (each for each in timeline.findings if each.queue_position == 1 and each.verdict is not Verdict.ENDED), None
    )
    if holder is not None:
        since = holder.held_from or holder.opened_at
        is_known = since is not None and holder.brokers_time is not None and since <= timeline.now
        for_ = f" for {duration(timeline.now - since)}" if since and is_known else ""
        by = f" by producer {holder.producer_id}" if holder.producer_id is not None else ""
        held = f"LSO held at {number(holder.last_stable_offset)}{for_}{by}"
        hanging = [each for each in timeline.findings if each.verdict is Verdict.HANGING and each is not holder]
        behind = f", {count(len(hanging), 'more hangs', 'more hang')} behind it" if hanging else ""
        return f"{timeline.name}: {held}{behind}"
    if timeline.open:  # by the log
        first = timeline.open[0]
        for_ = f" for at least {duration(first.length)}" if first.length >= SHOWN else ""
        held = f"LSO held at {number(first.first_offset)}{for_}"
        return f"{timeline.name}: {held} by producer {first.log_transaction.producer_id}"
    if past := past_holds(timeline.findings):
        longest = past[0]
        more = f", and {count(len(past) - 1, 'more time', 'more times')}" if past[1:] else ""
        held = f"LSO was held at {number(longest.start_offset)} for {duration(longest.length)}"
        return f"{timeline.name}: {held} by producer {longest.producer_id}{more}"
    ended = f"{count(sum(bar.has_ended for bar in timeline.bars), 'transaction')} ended"
    if timeline.is_unread:
        return f"{timeline.name}: it is not known whether anything is open, {ended}"
    for last in timeline.curve.points[-1:]:
        if last.lso is not None and last.lso < last.offset:  # of a sample
            return f"{timeline.name}: LSO {number(last.lso)} is below the high watermark {number(last.offset)}, {ended}"
    return f"{timeline.name}: nothing is open in these tables, {ended}"


def subtitle_of(timeline: TimelineData, together: int) -> str:
    """The verdict, who is affected, and why. `together`: how many transactions are not drawn one by one."""
    parts = []
    first = timeline.findings[0] if timeline.findings else None
    if first is not None and first.queue_position is None:
        first = next((hold.finding for hold in past_holds(timeline.findings)), first)
    if first is not None:
        parts.append(f"<b>{plain(' · '.join(_facts(first)))}</b>")
        parts.append(lines(first.reason.split(" (seen")[0].split(" (read from")[0]))
    if together:
        parts.append(f"{number(together)} short transactions are drawn together, by time; every open one is drawn.")
    return "<br>".join(parts)


def _facts(finding: Finding) -> list[str]:
    """The verdict, and who is or was affected."""
    is_over = finding.verdict is Verdict.ENDED
    facts = [finding.verdict.replace("_", " ")]
    waits, wait, cannot = ("waited", "waited", "could not") if is_over else ("waits", "wait", "cannot")
    facts += held_text(finding.records_held, finding.offsets_held or None, waits, wait)
    if finding.groups_held:
        facts.append(f"{count(len(finding.groups_held), 'group')} {cannot} move")
    if since := finding.held_from or finding.opened_at:
        facts.append(f"since {at(since)}")
    return facts
