"""Who held an LSO over a day or a month: a row for each transactional id, the longest first, its holds as bars."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import plotly.graph_objects as go

from toolkit.schema.coerce import Data, records_of
from toolkit.schema.durations import duration
from toolkit.schema.recorded import LsoHold
from toolkit.schema.verdict import Verdict
from toolkit.views.plots.notebook_figure import NotebookFigure, empty_figure
from toolkit.views.plots.plot_text import hover, id_text, plain, row_axis, when
from toolkit.views.plots.plot_theme import Theme, ThemeName, apply_theme, theme_named
from toolkit.views.row_formats import count

NAME_WIDTH = 24
THINNEST = 300  # share of the time for the shortest bar
KINDS = (("held", Verdict.ENDED, True), ("holds it still", Verdict.UNKNOWN, False))


def plot_holds(
    lso_holds: Data, *, now: dt.datetime | None = None, most: int = 20, theme: ThemeName = "light"
) -> go.Figure:
    """Draw who held an LSO, and when: a row for each transactional id, or producer id where no id is known.

    Parameters
    ----------
    lso_holds
        ``schema.LSO_HOLDS``, of a log directory or a recording, or as the pipeline stored them; of any partitions.
    now
        Where holds that go on end; the last time in the table if null.
    most
        Maximum number of rows, those that held for the longest time in all; the rest is counted below the title.
    theme
        ``light`` or ``dark``.

    Raises
    ------
    UsageError
        If there is no such theme, or this is another table.
    """
    colours = theme_named(theme)
    holds = [each for each in records_of(lso_holds, LsoHold) if each.held_from is not None]
    times = [time for each in holds for time in (each.held_from, each.held_to) if time is not None]
    if not times:
        return empty_figure(colours, title="No hold of an LSO", missing="The table has no hold whose time is known.")
    until = now or max(times)
    by_name: dict[str, list[LsoHold]] = {}
    for hold in holds:
        by_name.setdefault(hold.transactional_id or f"producer {hold.producer_id}", []).append(hold)
    ranked = sorted(by_name.items(), key=lambda item: -sum((_length(each, until) for each in item[1]), dt.timedelta()))
    figure = NotebookFigure()
    for name, verdict, is_over in KINDS:
        bars = [
            (row, each) for row, of_row in ranked[:most] for each in of_row if (each.held_to is not None) is is_over
        ]
        if bars:
            figure.add_trace(_bars(bars, theme=colours, name=name, verdict=verdict, first=min(times), until=until))
    figure.update_yaxes(row_axis([name for name, _ in ranked[:most]], longest=NAME_WIDTH))
    figure.update_xaxes(type="date", title={"text": "time (UTC)", "standoff": 6}, nticks=7)
    longest, of_longest = ranked[0]
    total = sum((_length(each, until) for each in of_longest), dt.timedelta())
    partitions = {(each.topic, each.partition) for each in holds}
    rest = f"; {count(len(ranked) - most, 'more')} not drawn" if ranked[most:] else ""
    subtitle = (
        f"{count(len(holds), 'hold')} of {count(len(partitions), 'partition')} by {count(len(ranked), 'id')}{rest}"
    )
    title = f"{plain(longest, longest=40)} held an LSO longest: {duration(total)} in {count(len(of_longest), 'hold')}"
    return apply_theme(figure, colours, title=title, subtitle=subtitle, height=220 + 30 * len(ranked[:most]))


def _length(hold: LsoHold, until: dt.datetime) -> dt.timedelta:
    return max((hold.held_to or until) - (hold.held_from or until), dt.timedelta())


def _bars(
    bars: Sequence[tuple[str, LsoHold]],
    *,
    theme: Theme,
    name: str,
    verdict: Verdict,
    first: dt.datetime,
    until: dt.datetime,
) -> go.Bar:
    shortest = max(until - first, dt.timedelta(seconds=1)) / THINNEST
    colour = theme[verdict.tone]
    facts: list[list[tuple[str, object]]] = [
        [
            ("id", hold.transactional_id),
            ("producer", id_text(hold.producer_id)),
            ("partition", f"{hold.topic}-{hold.partition}"),
            ("offset", hold.first_offset),
            ("from", hold.held_from),
            ("to", hold.held_to),
            ("for", _length(hold, until)),
            ("records held", hold.records_held),
            ("marker", hold.marker),
        ]
        for _, hold in bars
    ]
    return go.Bar(
        orientation="h",
        base=[when(hold.held_from) for _, hold in bars],
        x=[max(_length(hold, until), shortest) / dt.timedelta(milliseconds=1) for _, hold in bars],
        y=[plain(row) for row, _ in bars],
        width=0.56,
        marker={"color": colour, "line": {"color": colour, "width": 1}},
        hovertext=list(map(hover, facts)),
        hoverinfo="text",
        name=name,
    )
