"""The timeline of a partition: its LSO and its end over time, its transactions, and what their coordinator knew."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from toolkit.analysis.wording import duration
from toolkit.schema import COORDINATOR_EVENTS, FINDINGS, HISTORIES, LSO_TIMELINE, PARTITIONS, SPANS, Row
from toolkit.views.given import Data, rows_of
from toolkit.views.plots.bars import Bar, Crowd, bars_of, thin
from toolkit.views.plots.curve import EARLIEST, Curve
from toolkit.views.plots.held import add_held, add_past_holds, label_past_hold, past_holds
from toolkit.views.plots.intervals import Interval, intervals
from toolkit.views.plots.lanes import add_lanes
from toolkit.views.plots.theme import KINDS, Theme, ThemeName, dress, empty_figure, theme_named
from toolkit.views.plots.words import count, finding_facts, hover, id_text, lines, number, place_name, plain, when

__all__ = ["plot_timeline"]

LOWER_TITLE = "what their coordinator knew"
SECTIONS = 240  # of the time that is shown; a line has two points in each at most
LANES = 5  # transactional ids in the lower lane
FEW = 6  # bars of a kind that may be thick
CROWDED = 50  # bars of a kind; their symbols are smaller then
LABELS = 3  # transactions with a label of their own


def plot_timeline(
    spans: Data,
    *,
    lso_timeline: Data = None,
    partitions: Data = None,
    findings: Data = None,
    histories: Data = None,
    coordinator_events: Data = None,
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
    spans
        ``schema.SPANS``. Of one partition, or `topic` and `partition` name it.
    lso_timeline
        ``schema.LSO_TIMELINE``; without it, and without `partitions`, no LSO is drawn.
    partitions
        ``schema.PARTITIONS``: one look, or the looks of a recording.
    findings
        ``schema.FINDINGS``: they tell what hangs. Without them an open transaction is drawn as open.
    histories, coordinator_events
        ``schema.HISTORIES`` or ``COORDINATOR_EVENTS``; either will do, the events show every state.
    topic, partition
        Which partition; the first one that is found if null.
    now
        Where open transactions end; by default when the newest row was observed, else the last time in the log.
    most
        How many transactions to draw one by one; the rest is put together by time. Those that are open, and those
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
    given = {
        SPANS.name: rows_of(spans, SPANS),
        LSO_TIMELINE.name: rows_of(lso_timeline, LSO_TIMELINE),
        PARTITIONS.name: rows_of(partitions, PARTITIONS),
        FINDINGS.name: rows_of(findings, FINDINGS),
    }
    place = _place(given, topic, partition)
    of_place = {
        name: [row for row in rows if (row["topic"], row["partition"]) == place] for name, rows in given.items()
    }
    if not any(of_place.values()):
        name = place_name(*place)
        return empty_figure(colours, title=f"{name}: nothing to draw", missing=_missing(name, given))
    scene = _scene(of_place, place, rows_of(histories, HISTORIES), rows_of(coordinator_events, COORDINATOR_EVENTS), now)
    return _draw(scene, colours, most=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """What there is to draw of one partition."""

    name: str
    curve: Curve
    bars: Sequence[Bar]
    findings: Sequence[Row]
    steps: Sequence[Row]
    states: Sequence[Interval]
    ids: Sequence[str]  # those in the lower lane
    was_coordinator_read: bool
    now: dt.datetime
    start: dt.datetime  # of the time that is shown at first
    first: dt.datetime  # of all times

    @property
    def open(self) -> list[Bar]:
        """What is open now, the one that holds the LSO first."""
        return [bar for bar in self.bars if bar.end_offset is None]

    @property
    def edges(self) -> list[dt.datetime]:
        """Borders of sections of time: narrow ones in what is shown at first, and some before it."""
        before = [self.first + (self.start - self.first) * part / 40 for part in range(40)]
        return before + [self.start + (self.now - self.start) * part / SECTIONS for part in range(SECTIONS)]


def _place(given: dict[str, list[Row]], topic: str | None, partition: int | None) -> tuple[str | None, int | None]:
    """The partition that is meant: as named, else that of the first finding, else of the first row."""
    for row in chain(given["findings"], *given.values()):
        if topic in (None, row["topic"]) and partition in (None, row["partition"]) and row["topic"] is not None:
            return row["topic"], row["partition"]
    return topic, partition


def _missing(name: str, given: dict[str, list[Row]]) -> str:
    there = [f"{rows_name}: {count(len(rows), 'row')} of others" for rows_name, rows in given.items() if rows]
    what = "No transactions, LSO steps, looks or findings"
    return f"{what} of {name} were given.<br>{'; '.join(there) or 'Every table is empty.'}"


def _scene(
    rows: dict[str, list[Row]],
    place: tuple[str | None, int | None],
    histories: Sequence[Row],
    events: Sequence[Row],
    now: dt.datetime | None,
) -> _Scene:
    spans, steps, partitions, findings = (rows[t.name] for t in (SPANS, LSO_TIMELINE, PARTITIONS, FINDINGS))
    seen = [row["observed_at"] for row in (*findings, *partitions) if row["observed_at"] is not None]
    looked = now or max(seen, default=None)
    told = [_of_finding(row) for row in findings if row["observed_at"] is not None]
    curve = Curve.of(spans=[*spans, *map(_opened, findings)], steps=steps, partitions=[*partitions, *told], now=looked)
    curve = _held(curve, findings)
    times = [point.time for point in curve.points if point.time > EARLIEST]
    until = looked or max(times, default=dt.datetime.now(dt.UTC))
    owners = {row["producer_id"]: row["transactional_id"] for row in (*events, *histories)}
    bars = bars_of(spans, findings, curve=curve, owners=owners, now=until)
    ids = _ids(bars, findings)
    states = intervals(
        events=[row for row in events if row["transactional_id"] in ids],
        histories=[row for row in histories if row["transactional_id"] in ids],
        now=until,
    )
    first = min([*times, *(bar.start for bar in bars)], default=until)
    return _Scene(
        name=place_name(*place),
        curve=curve,
        bars=bars,
        findings=sorted(findings, key=lambda row: (row["position"] is None, row["position"])),
        steps=steps,
        states=states,
        ids=ids,
        was_coordinator_read=bool(histories or events),
        now=until,
        start=_shown_from(bars, first, until),
        first=first,
    )


def _of_finding(row: Row) -> Row:
    return {name: row[name] for name in ("high_watermark", "last_stable_offset", "observed_at")}


def _held(curve: Curve, findings: Sequence[Row]) -> Curve:
    holder = next((row for row in findings if row["position"] == 1 and row["held_to"] is None), None)
    if holder is None or holder["last_stable_offset"] is None:
        return curve
    since = holder["held_from"] or holder["observed_at"]
    return curve.held(holder["last_stable_offset"], since=since) if since else curve


def _opened(row: Row) -> Row:
    """When a transaction opened, as far as a finding tells: it has weighed the clocks."""
    first, clock = row["start_offset"], "broker" if row["opened_by"] in {"broker", "coordinator"} else "producer"
    nothing = dict.fromkeys(("first_batch_last_offset", "end", "marker_offset"))
    return nothing | {"first_offset": first, "start": row["opened_at"], "start_by": clock}


def _ids(bars: Sequence[Bar], findings: Iterable[Row]) -> list[str]:
    """Ids for the lower lane: of what hangs, of what is open, of what was open for longest."""
    worst = sorted(bars, key=lambda bar: (bar.kind != "hanging", not bar.is_kept, -bar.length.total_seconds()))
    named = [row["transactional_id"] for row in findings] + [bar.transactional_id for bar in worst]
    return list(dict.fromkeys(name for name in named if name is not None))[:LANES]


def _shown_from(bars: Sequence[Bar], first: dt.datetime, now: dt.datetime) -> dt.datetime:
    """Where the time begins that is shown at first: what is open takes about two thirds of it."""
    opened = min((bar.start for bar in bars if bar.end_offset is None), default=first)
    return max(first, opened - (now - opened) * 0.5)


def _draw(scene: _Scene, theme: Theme, *, most: int) -> go.Figure:
    edges = scene.edges
    drawn, crowds = thin(scene.bars, edges=edges, most=most)
    lanes = max(1, len(scene.ids) if scene.states else 1)
    heights = [420, 60 + 34 * lanes]
    figure = make_subplots(
        rows=2,
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=0.07,
        subplot_titles=(None, LOWER_TITLE),
    )
    curve = scene.curve.thinned(edges)
    add_past_holds(figure, scene.findings, curve, theme)
    if scene.open:
        add_held(figure, scene.open[0], curve, theme, now=scene.now)
    _add_crowds(figure, crowds, theme)
    _add_bars(figure, drawn, theme)
    _add_lines(figure, curve, scene.now, theme)
    _add_labels(figure, scene, theme)
    add_lanes(figure, scene.states, ids=scene.ids if scene.states else (), theme=theme, row=2,
              shown_from=scene.start, now=scene.now, nothing=_no_states(scene))  # fmt: skip
    subtitle = _subtitle(scene, crowds)
    dress(figure, theme, title=_title(scene), subtitle=subtitle, height=sum(heights) + 190)
    figure.update_annotations(
        selector={"text": LOWER_TITLE}, x=0, xanchor="left", font={"size": 13, "color": theme.muted}
    )
    _axes(figure, scene)
    return figure


def _axes(figure: go.Figure, scene: _Scene) -> None:
    length = max(scene.now - scene.start, dt.timedelta(seconds=1))
    shown = [when(scene.start - length * 0.02), when(scene.now + length * 0.04)]
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
    offsets = [point.offset for point in scene.curve.points if point.time >= scene.start - length * 0.02]
    offsets += [bar.first_offset for bar in scene.bars if bar.end >= scene.start]
    low, high = min(offsets, default=0), max(offsets, default=1)
    room = max(high - low, 4)
    figure.update_yaxes(
        range=[low - room * 0.16, high + room * 0.14],
        tickformat=",d",
        nticks=6,
        title={"text": "offset", "standoff": 8},
        row=1,
        col=1,
    )


def _add_lines(figure: go.Figure, curve: Curve, now: dt.datetime, theme: Theme) -> None:
    points = [(point, lso) for point, lso in zip(curve.points, curve.lso, strict=True) if point.time > EARLIEST]
    if not points:
        return
    last, last_lso = points[-1]
    xs = [when(point.time) for point, _ in points] + [when(now)]
    ends = [point.offset for point, _ in points] + [last.offset]
    lsos = [lso for _, lso in points] + [last_lso]
    line = {"shape": "hv"}
    figure.add_trace(
        go.Scatter(x=xs, y=ends, mode="lines", name="high watermark", line=line | {"color": theme.muted, "dash": "dash",
                   "width": 2}, hovertemplate="high watermark <b>%{y:,d}</b><br>%{x}<extra></extra>", legendrank=11),
        row=1, col=1,
    )  # fmt: skip
    if any(lso is not None for lso in lsos):
        figure.add_trace(
            go.Scatter(x=xs, y=lsos, mode="lines", name="LSO", line=line | {"color": theme.lso, "width": 2.5},
                       hovertemplate="LSO <b>%{y:,d}</b><br>%{x}<extra></extra>", legendrank=10),
            row=1, col=1,
        )  # fmt: skip


def _add_crowds(figure: go.Figure, crowds: Sequence[Crowd], theme: Theme) -> None:
    if not crowds:
        return
    xs, ys, texts = [], [], []
    for each in crowds:
        time = when(each.start + (each.end - each.start) / 2)
        text = _crowd_hover(each)
        xs += [time, time, None]
        ys += [each.first_offset, each.end_offset, None]
        texts += [text, text, ""]
    figure.add_trace(
        go.Scatter(
            x=xs,
            y=ys,
            mode="lines+markers",
            line={"color": theme.muted, "width": 1},
            marker={"symbol": "line-ew-open", "size": 6, "color": theme.muted},
            text=texts,
            hoverinfo="text",
            name="many short ones",
            legendrank=40,
        ),
        row=1,
        col=1,
    )


def _crowd_hover(each: Crowd) -> str:
    facts: list[tuple[str, object]] = [
        ("transactions", each.committed + each.aborted + each.others),
        ("committed", each.committed),
        ("aborted", each.aborted),
        ("others", each.others or None),
        ("offsets", f"{each.first_offset:,} to {each.end_offset:,}"),
        ("from", each.start),
        ("to", each.end),
        ("longest", each.longest),
        ("producers", [str(producer) for producer in each.producers]),
    ]
    return hover(facts)


NAMES = {
    "commit": "committed ▲",
    "abort": "aborted ✕",
    "empty": "marker without data",
    "undecided": "ended, marker not read",
    "open": "open ○",
    "hanging": "HANGING ◆",
}


def _add_bars(figure: go.Figure, bars: Sequence[Bar], theme: Theme) -> None:
    for rank, (kind, look) in enumerate(KINDS.items()):
        of_kind = [bar for bar in bars if bar.kind == kind]
        if not of_kind:
            continue
        start_size, end_size = (5, 3) if len(of_kind) > CROWDED else (9, 8)
        width = look.width if len(of_kind) <= FEW else min(look.width, 5)
        xs: list[str | None] = []
        ys: list[int | None] = []
        texts: list[str] = []
        symbols: list[str] = []
        for bar in of_kind:
            text, at_end = _bar_hover(bar), bar.first_offset if bar.end_offset is None else bar.end_offset
            xs += [when(bar.start), when(bar.end), when(bar.end), None]
            ys += [bar.first_offset, bar.first_offset, at_end, None]
            texts += [text, "", text, ""]
            symbols += ["line-ns-open", "line-ns-open", look.symbol, look.symbol]
        figure.add_trace(
            go.Scatter(
                x=xs,
                y=ys,
                mode="lines+markers",
                line={"color": theme[look.role], "dash": look.dash, "width": width},
                marker={
                    "symbol": symbols,
                    "size": [start_size, 0, end_size + width, 0] * len(of_kind),
                    "opacity": [1, 0, 1, 0] * len(of_kind),
                    "color": theme[look.role],
                    "line": {"width": 1 if len(of_kind) > CROWDED else 1.5, "color": theme[look.role]},
                },
                text=texts,
                hoverinfo="text",
                name=NAMES[kind],
                legendrank=30 - rank,
            ),
            row=1,
            col=1,
        )


def _bar_hover(bar: Bar) -> str:
    span = bar.span
    marker = None
    if span["marker_offset"] is not None:
        marker = f"{span['marker'] or 'not read'} at {span['marker_offset']:,}, epoch {span['marker_epoch']}"
    facts: list[tuple[str, object]] = [
        ("transaction", "hanging" if bar.kind == "hanging" else bar.kind),
        ("producer", id_text(span["producer_id"])),
        ("epoch", id_text(span["producer_epoch"])),
        ("transactional id", bar.transactional_id),
        ("first offset", span["first_offset"]),
        ("last offset", span["last_offset"]),
        ("marker", marker),
        ("coordinator epoch", id_text(span["coordinator_epoch"])),
        ("opened", bar.start),
        ("ended", bar.end if bar.end_offset is not None else None),
        ("open for", bar.length),
        ("records", span["records"]),
        ("bytes", span["bytes"]),
        ("its beginning was read", "no" if span["truncated"] else None),
        ("error", span["error"]),
    ]
    if bar.finding is not None:
        known = {"producer", "epoch", "transactional id", "opened"}
        facts = [*facts, *(fact for fact in finding_facts(bar.finding) if fact[0] not in known)]
    return hover(facts)


def _add_labels(figure: go.Figure, scene: _Scene, theme: Theme) -> None:
    """A label on what hangs, else on what is open; and the LSO and the log's end as numbers at the right."""
    worst = sorted(scene.open, key=lambda bar: bar.kind != "hanging")
    hangs = any(bar.kind == "hanging" for bar in worst)
    offsets = [point.offset for point in scene.curve.points] or [0]
    apart = max(max(offsets) - min(bar.first_offset for bar in worst), 1) * 0.09 if worst else 1
    taken: list[int] = []
    for bar in worst:
        if len(taken) == (LABELS if hangs and len(worst) <= FEW else 1):
            break
        if any(abs(bar.first_offset - other) < apart for other in taken):
            continue
        taken.append(bar.first_offset)
        _add_label(figure, scene, bar, theme, is_lowest=bar is scene.open[0])
    for row in past_holds(scene.findings)[: 0 if worst else 1]:
        label_past_hold(figure, row, theme)
    if not scene.curve.points:
        return
    end, lso = scene.curve.points[-1].offset, next((lso for lso in scene.curve.lso[::-1] if lso is not None), None)
    style: dict[str, Any] = {"x": when(scene.now), "xanchor": "right", "showarrow": False, "row": 1, "col": 1,
                             "font": {"size": 12, "color": theme.text}, "bgcolor": theme.background}  # fmt: skip
    same = "LSO = " if lso == end else ""
    figure.add_annotation(y=end, yshift=12, text=f"{same}high watermark <b>{number(end)}</b>", **style)
    if lso is not None and lso not in {end, *taken}:
        figure.add_annotation(y=lso, yshift=-15, text=f"LSO <b>{number(lso)}</b>", **style)


def _add_label(figure: go.Figure, scene: _Scene, bar: Bar, theme: Theme, *, is_lowest: bool) -> None:
    look = KINDS[bar.kind]
    verdict = bar.finding["verdict"] if bar.finding else "open"
    text = f"<b>{'◆ HANGING' if verdict == 'hanging' else plain(verdict)}</b> · producer {bar.span['producer_id']}"
    text += f" epoch {bar.span['producer_epoch']} at {number(bar.first_offset)}"
    length = max(scene.now - scene.start, dt.timedelta(milliseconds=1))
    is_right = (bar.start - scene.start) / length > 0.4
    figure.add_annotation(
        x=when(scene.now if is_right else max(bar.start, scene.start)),
        y=bar.first_offset,
        xanchor="right" if is_right else "left",
        yshift=-22 if is_lowest and not is_right else 19,
        xshift=0 if is_right else 6,
        text=text,
        showarrow=False,
        font={"size": 13, "color": theme[look.role]},
        bgcolor=theme.background,
        bordercolor=theme[look.role],
        borderwidth=1,
        borderpad=3,
        row=1,
        col=1,
    )


def _no_states(scene: _Scene) -> str:
    if not scene.was_coordinator_read:
        return "No record of __transaction_state was read: give histories or coordinator_events."
    if not scene.ids:
        return "None of these producers has a transactional id that a coordinator knows."
    return "No record of these ids was read."


def _title(scene: _Scene) -> str:
    """``orders-0: LSO held at 913,095,344 for 3 h by producer 4711``."""
    holder = next((row for row in scene.findings if row["position"] == 1 and row["verdict"] != "ended"), None)
    if holder is not None:
        since = holder["held_from"] or holder["opened_at"]
        for_ = f" for {duration(scene.now - since)}" if since and since <= scene.now else ""
        by = f" by producer {holder['producer_id']}" if holder["producer_id"] is not None else ""
        held = f"LSO held at {number(holder['last_stable_offset'])}{for_}{by}"
        hanging = [row for row in scene.findings if row["verdict"] == "hanging" and row is not holder]
        behind = f", {count(len(hanging), 'more hangs', 'more hang')} behind it" if hanging else ""
        return f"{scene.name}: {held}{behind}"
    past = past_holds(scene.findings)
    return f"{scene.name}: {_title_of_past(past) if past and not scene.open else _title_by_the_log(scene)}"


def _title_of_past(past: Sequence[Row]) -> str:
    longest = past[0]
    for_ = duration(longest["held_to"] - longest["held_from"])
    more = f", and {count(len(past) - 1, 'more time', 'more times')}" if past[1:] else ""
    return f"LSO was held at {number(longest['start_offset'])} for {for_} by producer {longest['producer_id']}{more}"


def _title_by_the_log(scene: _Scene) -> str:
    if scene.open:
        first = scene.open[0]
        held = f"LSO held at {number(first.first_offset)} for {duration(first.length)}"
        return f"{held} by producer {first.span['producer_id']}"
    return f"nothing is open, {count(len(scene.bars), 'transaction')} ended"


def _subtitle(scene: _Scene, crowds: Sequence[Crowd]) -> str:
    parts = []
    first = scene.findings[0] if scene.findings else None
    if first is not None and first["position"] is None:
        first = next(iter(past_holds(scene.findings)), first)
    if first is not None:
        parts.append(f"<b>{plain(' · '.join(_facts(first)))}</b>")
        parts.append(lines(first["reason"].split(" (seen")[0].split(" (read from")[0]))
    if crowds:
        together = sum(each.committed + each.aborted + each.others for each in crowds)
        parts.append(f"{number(together)} short transactions are drawn together, by time; every open one is drawn.")
    return "<br>".join(parts)


def _facts(row: Row) -> list[str]:
    """The verdict and whom it hits, or has hit."""
    is_over = row["verdict"] == "ended"
    facts = [row["verdict"].replace("_", " ")]
    waits, wait, cannot = ("waited", "waited", "could not") if is_over else ("waits", "wait", "cannot")
    if row["records_held"] is not None:
        facts.append(count(row["records_held"], f"record {waits}", f"records {wait}"))
    elif row["offsets_held"]:
        facts.append(count(row["offsets_held"], f"offset {waits}", f"offsets {wait}"))
    if row["groups_held"]:
        facts.append(f"{count(len(row['groups_held']), 'group')} {cannot} move")
    return facts
