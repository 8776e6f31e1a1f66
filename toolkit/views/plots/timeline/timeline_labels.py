"""Labels of a timeline: hanging transactions, LSO and log end."""

from __future__ import annotations

import datetime as dt
from typing import Any

import plotly.graph_objects as go

from toolkit.views.plots.plot_text import number, plain, when
from toolkit.views.plots.plot_theme import KINDS, Theme
from toolkit.views.plots.timeline.held_areas import label_past_hold, past_holds
from toolkit.views.plots.timeline.timeline_data import FEW, TimelineData
from toolkit.views.plots.timeline.transaction_bars import TransactionBar

LABELS = 3  # transactions with a label of their own


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
    for row in past_holds(timeline.findings)[: 0 if worst else 1]:
        label_past_hold(figure, row, theme)
    if not timeline.curve.points:
        return
    end, lso = (
        timeline.curve.points[-1].offset,
        next((lso for lso in timeline.curve.lso[::-1] if lso is not None), None),
    )
    style: dict[str, Any] = {"x": when(timeline.now), "xanchor": "right", "showarrow": False, "row": 1, "col": 1,
                             "font": {"size": 12, "color": theme.text}, "bgcolor": theme.background}  # fmt: skip
    same = "LSO = " if lso == end else ""
    figure.add_annotation(y=end, yshift=12, text=f"{same}high watermark <b>{number(end)}</b>", **style)
    if lso is not None and lso not in {end, *taken}:
        figure.add_annotation(y=lso, yshift=-15, text=f"LSO <b>{number(lso)}</b>", **style)


def _add_label(
    figure: go.Figure, timeline: TimelineData, bar: TransactionBar, theme: Theme, *, is_lowest: bool
) -> None:
    appearance = KINDS[bar.kind]
    verdict = bar.finding["verdict"] if bar.finding else "open"
    row = bar.log_transaction
    text = f"<b>{'◆ HANGING' if verdict == 'hanging' else plain(verdict)}</b> · producer {row['producer_id']}"
    text += f" epoch {row['producer_epoch']} at {number(bar.first_offset)}"
    length = max(timeline.now - timeline.start, dt.timedelta(milliseconds=1))
    is_right = (bar.start - timeline.start) / length > 0.4
    figure.add_annotation(
        x=when(timeline.now if is_right else max(bar.start, timeline.start)),
        y=bar.first_offset,
        xanchor="right" if is_right else "left",
        yshift=-22 if is_lowest and not is_right else 19,
        xshift=0 if is_right else 6,
        text=text,
        showarrow=False,
        font={"size": 13, "color": theme[appearance.role]},
        bgcolor=theme.background,
        bordercolor=theme[appearance.role],
        borderwidth=1,
        borderpad=3,
        row=1,
        col=1,
    )
