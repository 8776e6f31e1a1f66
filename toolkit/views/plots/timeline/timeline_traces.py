"""Lines, bars and aggregated bars of a timeline, with their hover texts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import plotly.graph_objects as go

from toolkit.views.plots.plot_text import finding_facts, hover, id_text, when
from toolkit.views.plots.plot_theme import KINDS, Theme
from toolkit.views.plots.timeline.lso_curve import EARLIEST, LsoCurve
from toolkit.views.plots.timeline.timeline_data import FEW
from toolkit.views.plots.timeline.transaction_bars import AggregatedBar, TransactionBar

CROWDED = 50  # bars of a kind; their symbols are smaller then


def add_lines(figure: go.Figure, curve: LsoCurve, now: dt.datetime, theme: Theme) -> None:
    """Draw the high watermark and the LSO."""
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


def add_aggregated_bars(figure: go.Figure, crowds: Sequence[AggregatedBar], theme: Theme) -> None:
    """Draw aggregated short transactions."""
    if not crowds:
        return
    xs, ys, texts = [], [], []
    for each in crowds:
        time = when(each.start + (each.end - each.start) / 2)
        text = _aggregated_hover(each)
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


def _aggregated_hover(each: AggregatedBar) -> str:
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


def add_bars(figure: go.Figure, bars: Sequence[TransactionBar], theme: Theme) -> None:
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
        figure.add_trace(
            go.Scatter(
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
                legendrank=30 - rank,
            ),
            row=1,
            col=1,
        )


def _bar_hover(bar: TransactionBar) -> str:
    row = bar.log_transaction
    marker = None
    if row["marker_offset"] is not None:
        marker = f"{row['marker'] or 'not read'} at {row['marker_offset']:,}, epoch {row['marker_epoch']}"
    facts: list[tuple[str, object]] = [
        ("transaction", "hanging" if bar.kind == "hanging" else bar.kind),
        ("producer", id_text(row["producer_id"])),
        ("epoch", id_text(row["producer_epoch"])),
        ("transactional id", bar.transactional_id),
        ("first offset", row["first_offset"]),
        ("last offset", row["last_offset"]),
        ("marker", marker),
        ("coordinator epoch", id_text(row["coordinator_epoch"])),
        ("opened", bar.start),
        ("ended", bar.end if bar.end_offset is not None else None),
        ("open for", bar.length),
        ("records", row["records"]),
        ("bytes", row["bytes"]),
        ("its beginning was read", "no" if row["truncated"] else None),
        ("error", row["error"]),
    ]
    if bar.finding is not None:
        known = {"producer", "epoch", "transactional id", "opened"}
        facts = [*facts, *(fact for fact in finding_facts(bar.finding) if fact[0] not in known)]
    return hover(facts)
