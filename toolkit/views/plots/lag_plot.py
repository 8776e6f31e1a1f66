"""The lag of a group per partition: offsets to read, held offsets, and offsets without a record to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from toolkit.schema import GROUP_LAG, Row
from toolkit.schema.coerce import Data, rows_of
from toolkit.views.plots.plot_text import count, hover, number, plain, row_axis
from toolkit.views.plots.plot_text import lines as wrapped
from toolkit.views.plots.plot_theme import Theme, ThemeName, apply_theme, empty_figure, theme_named

NAME_WIDTH = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _LagPart:
    column: str
    name: str
    role: str
    hatch: str


PARTS = (
    _LagPart(column="behind", name="behind: it has yet to read them", role="calm", hatch=""),
    _LagPart(column="held", name="held: they follow the LSO", role="alarm", hatch="/"),
    _LagPart(column="markers", name="nothing to read: markers, aborted records", role="muted", hatch="."),
)


def plot_lag(rows: Data, *, group: str | None = None, most: int = 25, theme: ThemeName = "light") -> go.Figure:
    """Draw a group's lag per partition, in three parts, the largest first.

    Parameters
    ----------
    rows
        ``schema.GROUP_LAG``, from `toolkit.sources.offset_queries.group_lag`.
    group
        The group; the first one in the rows if null.
    most
        Maximum number of partitions; the rest is counted. Held ones come first.
    theme
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar for each partition that lags, or could not be read.

    Raises
    ------
    UsageError
        If there is no such theme.
    """
    colours = theme_named(theme)
    lag_rows = rows_of(rows, GROUP_LAG)
    name = group if group is not None else next((row["group_id"] for row in lag_rows), None)
    mine = [row for row in lag_rows if row["group_id"] == name]
    if name is None or not mine:
        missing = "No row of group_lag was given" + (f" of {plain(name, longest=50)}." if name is not None else ".")
        return empty_figure(colours, title="No lag to draw", missing=missing)
    lagging = sorted((row for row in mine if row["lag"] != 0), key=_order)
    visible = lagging[:most]
    title = f"{plain(name, longest=40)}: {_answer(mine)}"
    if not visible:
        return empty_figure(colours, title=title, missing=f"{count(len(mine), 'partition')} read: no lag.")
    figure = go.Figure()
    names = [f"{row['topic']}-{row['partition']}" for row in visible]
    labels = [plain(name) for name in names]
    for part in PARTS:
        figure.add_trace(_bars(part, visible, labels, colours))
    _add_words(figure, visible, labels, colours)
    apply_theme(
        figure, colours, title=title, subtitle=_subtitle(mine, lagging, visible), height=210 + 40 * len(visible)
    )
    figure.update_layout(barmode="stack", legend_traceorder="normal")
    longest = max((row["lag"] or 0 for row in visible), default=1)
    figure.update_xaxes(range=[0, max(longest, 1) * 1.5], tickformat=",d", nticks=6,
                        title={"text": "offsets", "standoff": 6})  # fmt: skip
    figure.update_yaxes(row_axis(names, longest=NAME_WIDTH))
    return figure


def _order(row: Row) -> tuple[bool, int, int, str, int]:
    return not row["held"], -(row["held"] or 0), -(row["lag"] or 0), row["topic"], row["partition"]


def _bars(part: _LagPart, rows: Sequence[Row], labels: Sequence[str], theme: Theme) -> go.Bar:
    colour = theme[part.role]
    return go.Bar(
        orientation="h",
        x=[row[part.column] or 0 for row in rows],
        y=labels,
        width=0.6,
        marker={
            "color": theme.background if part.hatch else colour,
            "line": {"color": colour, "width": 1.5},
            "pattern": {"shape": part.hatch, "fgcolor": colour, "bgcolor": theme.background, "size": 7,
                        "solidity": 0.35},
        },
        hovertext=[_hover(row) for row in rows],
        hoverinfo="text",
        name=part.name,
    )  # fmt: skip


def _add_words(figure: go.Figure, rows: Sequence[Row], labels: Sequence[str], theme: Theme) -> None:
    for row, label in zip(rows, labels, strict=True):
        figure.add_annotation(x=row["lag"] or 0, y=label, xanchor="left", xshift=8, showarrow=False, text=_words(row),
                              font={"size": 12, "color": theme.text})  # fmt: skip


def _words(row: Row) -> str:
    """``<b>2,115</b> held, 12 behind, 1 marker``."""
    if row["lag"] is None:
        return f"not known: {plain(row['error'] or 'nothing committed', longest=40)}"
    parts = [f"<b>{row['held']:,} held</b>"] if row["held"] else []
    parts += [f"{row['behind']:,} behind"] if row["behind"] else []
    parts += [count(row["markers"], "marker")] if row["markers"] else []
    return ", ".join(parts)


def _hover(row: Row) -> str:
    facts: list[tuple[str, object]] = [
        ("partition", f"{row['topic']}-{row['partition']}"),
        ("group", row["group_id"]),
        ("committed offset", row["committed_offset"]),
        ("LSO", row["last_stable_offset"]),
        ("high watermark", row["high_watermark"]),
        ("lag", row["lag"]),
        ("behind", row["behind"]),
        ("held", row["held"]),
        ("nothing to read", "not counted" if row["markers"] is None else row["markers"]),
        ("error", row["error"]),
    ]
    return hover(facts)


def _answer(rows: Sequence[Row]) -> str:
    """The title: held before behind, behind before markers."""
    held, behind, markers = (sum(row[part.column] or 0 for row in rows) for part in (PARTS[1], PARTS[0], PARTS[2]))
    if held:
        places = [row for row in rows if row["held"]]
        where = f" on {places[0]['topic']}-{places[0]['partition']}" if len(places) == 1 else ""
        where = where or f" on {len(places)} partitions"
        return f"{count(held, 'record')} held from it{plain(where, longest=50)}"
    if behind:
        return f"nothing is held; it has {count(behind, 'record')} yet to read"
    if markers:
        return "it has read everything; its lag is only markers"
    unknown = sum(row["lag"] is None for row in rows)
    return f"{count(unknown, 'partition')} not known" if unknown else "it has read everything"


def _subtitle(rows: Sequence[Row], lagging: Sequence[Row], visible: Sequence[Row]) -> str:
    lag = sum(row["lag"] or 0 for row in rows)
    texts = [f"lag {number(lag)} on {len(lagging):,} of {count(len(rows), 'partition')}"]
    uncounted = sum(row["lag"] not in {None, 0} and row["markers"] is None for row in rows)
    if uncounted:
        texts.append(f"markers not counted on {count(uncounted, 'partition')}, where the log was not read")
    if len(visible) < len(lagging):
        texts.append(f"{len(lagging) - len(visible):,} more not drawn")
    return wrapped("; ".join(texts))
