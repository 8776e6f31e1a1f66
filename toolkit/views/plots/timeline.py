"""The timeline of a partition: its LSO and its end over time, its transactions, and what their coordinator knew."""

from __future__ import annotations

import datetime as dt
from itertools import chain

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from toolkit.schema import COORDINATOR_EVENTS, FINDINGS, HISTORIES, LSO_TIMELINE, PARTITIONS, SPANS, Row
from toolkit.views.given import Data, rows_of
from toolkit.views.plots.bars import thin
from toolkit.views.plots.headings import no_states, subtitle_of, title_of
from toolkit.views.plots.held import add_held, add_past_holds
from toolkit.views.plots.labels import add_labels
from toolkit.views.plots.lanes import add_lanes
from toolkit.views.plots.scene import Scene, scene_of
from toolkit.views.plots.theme import Theme, ThemeName, dress, empty_figure, theme_named
from toolkit.views.plots.traces import add_bars, add_crowds, add_lines
from toolkit.views.plots.words import count, place_name, when

__all__ = ["plot_timeline"]

LOWER_TITLE = "what their coordinator knew"


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
    known = rows_of(histories, HISTORIES), rows_of(coordinator_events, COORDINATOR_EVENTS)
    scene = scene_of(of_place, place, *known, now)
    return _draw(scene, colours, most=most)


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


def _draw(scene: Scene, theme: Theme, *, most: int) -> go.Figure:
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
    add_crowds(figure, crowds, theme)
    add_bars(figure, drawn, theme)
    add_lines(figure, curve, scene.now, theme)
    add_labels(figure, scene, theme)
    add_lanes(figure, scene.states, ids=scene.ids if scene.states else (), theme=theme, row=2,
              shown_from=scene.start, now=scene.now, nothing=no_states(scene))  # fmt: skip
    subtitle = subtitle_of(scene, crowds)
    dress(figure, theme, title=title_of(scene), subtitle=subtitle, height=sum(heights) + 190)
    figure.update_annotations(
        selector={"text": LOWER_TITLE}, x=0, xanchor="left", font={"size": 13, "color": theme.muted}
    )
    _axes(figure, scene)
    return figure


def _axes(figure: go.Figure, scene: Scene) -> None:
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
