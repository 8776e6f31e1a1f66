"""Held offsets: the area between LSO and log end, hatched while an LSO was held."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from itertools import pairwise

import plotly.graph_objects as go

from toolkit.schema import Row
from toolkit.schema.durations import duration
from toolkit.views.plots.plot_text import number, when
from toolkit.views.plots.plot_theme import KINDS, Theme
from toolkit.views.plots.timeline.lso_curve import CurvePoint, LsoCurve
from toolkit.views.plots.timeline.transaction_bars import TransactionBar

MAX_AREAS = 50  # ended holds, the longest ones

Outline = tuple[list[str | None], list[int | None]]


def past_holds(findings: Iterable[Row]) -> list[Row]:
    """Findings with an ended hold, with its start and end; the longest first."""
    over = [row for row in findings if row["verdict"] == "ended" and row["held_from"] and row["held_to"]]
    return sorted(
        (row for row in over if row["start_offset"] is not None), key=lambda row: row["held_from"] - row["held_to"]
    )


def add_held(figure: go.Figure, holder: TransactionBar, curve: LsoCurve, theme: Theme, *, now: dt.datetime) -> None:
    """Hatch the offsets behind the transaction that holds the LSO.

    Parameters
    ----------
    figure
        The figure, whose first row has the offsets over time.
    holder
        The lowest open transaction.
    curve
        The end of the log over time.
    theme
        Its colours.
    now
        End of the area.
    """
    since = (holder.finding or {}).get("held_from") or holder.start
    hangs = holder.kind == "hanging"
    _hatch(
        figure,
        _outline(curve, offset=holder.first_offset, since=since, until=now),
        name="held back",
        fill=theme.held if hangs else theme.grid,
        colour=theme[KINDS[holder.kind].role],
    )


def add_past_holds(figure: go.Figure, findings: Iterable[Row], curve: LsoCurve, theme: Theme) -> None:
    """Hatch the offsets behind ended transactions that held the LSO.

    Parameters
    ----------
    figure, curve, theme
        As for `add_held`.
    findings
        Rows of ``schema.FINDINGS`` of the partition.
    """
    past = past_holds(findings)[:MAX_AREAS]
    xs: list[str | None] = []
    ys: list[int | None] = []
    for row in past:
        x, y = _outline(curve, offset=row["start_offset"], since=row["held_from"], until=row["held_to"])
        xs += [*x, None] if x else []
        ys += [*y, None] if y else []
    _hatch(figure, (xs, ys), name="was held back", fill=theme.grid, colour=theme.warn)


def label_past_hold(figure: go.Figure, row: Row, theme: Theme) -> None:
    """Label an ended hold with its duration and producer.

    Parameters
    ----------
    figure, theme
        As for `add_held`.
    row
        One of `past_holds`.
    """
    length = row["held_to"] - row["held_from"]
    figure.add_annotation(
        x=when(row["held_from"] + length / 2),
        y=row["start_offset"],
        yshift=-16,
        text=f"<b>held for {duration(length)}</b> · producer {row['producer_id']} at {number(row['start_offset'])}",
        showarrow=False,
        font={"size": 13, "color": theme.warn},
        bgcolor=theme.background,
        bordercolor=theme.warn,
        borderwidth=1,
        borderpad=3,
        row=1,
        col=1,
    )


def _outline(curve: LsoCurve, *, offset: int, since: dt.datetime, until: dt.datetime) -> Outline:
    """The outline of the area between an offset and the log end; empty if there is none."""
    inside = [point for point in curve.points if since < point.time <= until]
    top = [CurvePoint(since, inside[0].offset, by_broker=True), *inside] if inside else []
    top = [point for point in top if point.offset > offset]
    if not top:
        return [], []
    xs, ys = _stairs([*top, CurvePoint(until, top[-1].offset, by_broker=True)])
    return [*xs, when(until), when(since)], [*ys, offset, offset]


def _stairs(points: Sequence[CurvePoint]) -> tuple[list[str | None], list[int]]:
    """Corners of a stepped line."""
    corners = [(points[0].time, points[0].offset)]
    for before, point in pairwise(points):
        corners += [(point.time, before.offset), (point.time, point.offset)]
    return [when(time) for time, _ in corners], [offset for _, offset in corners]


def _hatch(figure: go.Figure, outline: Outline, *, name: str, fill: str, colour: str) -> None:
    xs, ys = outline
    if not xs:
        return
    figure.add_trace(
        go.Scatter(
            x=xs,
            y=ys,
            mode="none",
            fill="toself",
            fillcolor=fill,
            fillpattern={"shape": "/", "size": 12, "solidity": 0.12, "fgcolor": colour},
            name=name,
            hoverinfo="skip",
            legendrank=20,
        ),
        row=1,
        col=1,
    )
