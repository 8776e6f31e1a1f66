"""The timeline of a partition: its LSO and its end over time, its transactions, and what their coordinator knew."""

from __future__ import annotations

import datetime as dt
from itertools import chain

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from toolkit.schema import (
    FINDINGS,
    LOG_TRANSACTIONS,
    LSO_TIMELINE,
    PARTITIONS,
    TRANSACTION_HISTORY,
    TRANSACTION_LOG,
    Row,
)
from toolkit.schema.coerce import Data, rows_of
from toolkit.views.plots.plot_text import count, place_name, when
from toolkit.views.plots.plot_theme import Theme, ThemeName, apply_theme, empty_figure, theme_named
from toolkit.views.plots.state_lanes import add_lanes
from toolkit.views.plots.timeline.held_areas import add_held, add_past_holds
from toolkit.views.plots.timeline.timeline_data import TimelineData, timeline_data
from toolkit.views.plots.timeline.timeline_headings import no_states, subtitle_of, title_of
from toolkit.views.plots.timeline.timeline_labels import add_labels
from toolkit.views.plots.timeline.timeline_traces import add_aggregated_bars, add_bars, add_lines
from toolkit.views.plots.timeline.transaction_bars import aggregate_bars

LOWER_TITLE = "what their coordinator knew"


def plot_timeline(
    log_transactions: Data,
    *,
    lso_timeline: Data = None,
    partitions: Data = None,
    findings: Data = None,
    transaction_history: Data = None,
    transaction_log: Data = None,
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
    transactions
        ``schema.LOG_TRANSACTIONS``. Of one partition, or `topic` and `partition` name it.
    lso_timeline
        ``schema.LSO_TIMELINE``; without it, and without `partitions`, no LSO is drawn.
    partitions
        ``schema.PARTITIONS``: one sample, or the samples of a recording.
    findings
        ``schema.FINDINGS``: they show what hangs. Without them an open transaction is drawn as open.
    transaction_history, transaction_log
        ``schema.TRANSACTION_HISTORY`` or ``TRANSACTION_LOG``; either will do, the events show every state.
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
    tables = {
        LOG_TRANSACTIONS.name: rows_of(log_transactions, LOG_TRANSACTIONS),
        LSO_TIMELINE.name: rows_of(lso_timeline, LSO_TIMELINE),
        PARTITIONS.name: rows_of(partitions, PARTITIONS),
        FINDINGS.name: rows_of(findings, FINDINGS),
    }
    tp = _topic_partition(tables, topic, partition)
    of_partition = {
        name: [row for row in rows if (row["topic"], row["partition"]) == tp] for name, rows in tables.items()
    }
    if not any(of_partition.values()):
        name = place_name(*tp)
        return empty_figure(colours, title=f"{name}: nothing to draw", missing=_missing(name, tables))
    known = rows_of(transaction_history, TRANSACTION_HISTORY), rows_of(transaction_log, TRANSACTION_LOG)
    timeline = timeline_data(of_partition, tp, *known, now)
    return _draw(timeline, colours, most=most)


def _topic_partition(
    tables: dict[str, list[Row]], topic: str | None, partition: int | None
) -> tuple[str | None, int | None]:
    """The partition that is meant: as named, else that of the first finding, else of the first row."""
    for row in chain(tables["findings"], *tables.values()):
        if topic in (None, row["topic"]) and partition in (None, row["partition"]) and row["topic"] is not None:
            return row["topic"], row["partition"]
    return topic, partition


def _missing(name: str, tables: dict[str, list[Row]]) -> str:
    there = [f"{rows_name}: {count(len(rows), 'row')} of others" for rows_name, rows in tables.items() if rows]
    what = "No transactions, LSO steps, samples or findings"
    return f"{what} of {name}.<br>{'; '.join(there) or 'Every table is empty.'}"


def _draw(timeline: TimelineData, theme: Theme, *, most: int) -> go.Figure:
    edges = timeline.edges
    drawn, crowds = aggregate_bars(timeline.bars, edges=edges, most=most)
    lanes = max(1, len(timeline.ids) if timeline.states else 1)
    heights = [420, 60 + 34 * lanes]
    figure = make_subplots(
        rows=2,
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=0.07,
        subplot_titles=(None, LOWER_TITLE),
    )
    curve = timeline.curve.thinned(edges)
    add_past_holds(figure, timeline.findings, curve, theme)
    if timeline.open:
        add_held(figure, timeline.open[0], curve, theme, now=timeline.now)
    add_aggregated_bars(figure, crowds, theme)
    add_bars(figure, drawn, theme)
    add_lines(figure, curve, timeline.now, theme)
    add_labels(figure, timeline, theme)
    add_lanes(figure, timeline.states, ids=timeline.ids if timeline.states else (), theme=theme, row=2,
              shown_from=timeline.start, now=timeline.now, nothing=no_states(timeline))  # fmt: skip
    subtitle = subtitle_of(timeline, crowds)
    apply_theme(figure, theme, title=title_of(timeline), subtitle=subtitle, height=sum(heights) + 190)
    figure.update_annotations(
        selector={"text": LOWER_TITLE}, x=0, xanchor="left", font={"size": 13, "color": theme.muted}
    )
    _axes(figure, timeline)
    return figure


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
    offsets = [point.offset for point in timeline.curve.points if point.time >= timeline.start - length * 0.02]
    offsets += [bar.first_offset for bar in timeline.bars if bar.end >= timeline.start]
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
