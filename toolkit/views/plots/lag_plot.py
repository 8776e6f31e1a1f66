"""The lag of a group per partition: offsets to read, held offsets, and offsets without a record to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from toolkit.schema.coerce import Data, records_of
from toolkit.schema.live import GroupLag
from toolkit.views.plots.notebook_figure import NotebookFigure, empty_figure
from toolkit.views.plots.plot_text import hover, number, plain, row_axis
from toolkit.views.plots.plot_text import lines as wrapped
from toolkit.views.plots.plot_theme import Theme, ThemeName, apply_theme, theme_named
from toolkit.views.row_formats import count

NAME_WIDTH = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class _LagPart:
    offsets: Callable[[GroupLag], int]
    name: str
    role: str
    hatch: str


PARTS = (
    _LagPart(offsets=lambda lag: lag.behind or 0, name="behind: it has yet to read them", role="calm", hatch=""),
    _LagPart(offsets=lambda lag: lag.held or 0, name="held: they follow the LSO", role="alarm", hatch="/"),
    _LagPart(
        offsets=lambda lag: lag.markers or 0, name="nothing to read: markers, aborted records", role="muted", hatch="."
    ),
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
    lags = records_of(rows, GroupLag)
    name = group if group is not None else next((lag.group_id for lag in lags), None)
    mine = [lag for lag in lags if lag.group_id == name]
    if name is None or not mine:
        missing = "No row of group_lag was given" + (f" of {plain(name, longest=50)}." if name is not None else ".")
        return empty_figure(colours, title="No lag to draw", missing=missing)
    lagging = sorted(
        (lag for lag in mine if lag.lag != 0),
        key=lambda lag: (not lag.held, -(lag.held or 0), -(lag.lag or 0), lag.topic, lag.partition),
    )
    visible = lagging[:most]
    title = f"{plain(name, longest=40)}: {_answer(mine)}"
    if not visible:
        return empty_figure(colours, title=title, missing=f"{count(len(mine), 'partition')} read: no lag.")
    figure = NotebookFigure()
    names = [f"{lag.topic}-{lag.partition}" for lag in visible]
    labels = [plain(name) for name in names]
    for part in PARTS:
        figure.add_trace(_bars(part, visible, labels, colours))
    _add_words(figure, visible, labels, colours)
    apply_theme(
        figure, colours, title=title, subtitle=_subtitle(mine, lagging, visible), height=210 + 40 * len(visible)
    )
    figure.update_layout(barmode="stack", legend_traceorder="normal")
    longest = max((lag.lag or 0 for lag in visible), default=1)
    figure.update_xaxes(range=[0, max(longest, 1) * 1.5], tickformat=",d", nticks=6,
                        title={"text": "offsets", "standoff": 6})  # fmt: skip
    figure.update_yaxes(row_axis(names, longest=NAME_WIDTH))
    return figure


def _bars(part: _LagPart, lags: Sequence[GroupLag], labels: Sequence[str], theme: Theme) -> go.Bar:
    colour = theme[part.role]
    return go.Bar(
        orientation="h",
        x=[part.offsets(lag) for lag in lags],
        y=labels,
        width=0.6,
        marker={
            "color": theme.background if part.hatch else colour,
            "line": {"color": colour, "width": 1.5},
            "pattern": {"shape": part.hatch, "fgcolor": colour, "bgcolor": theme.background, "size": 7,
                        "solidity": 0.35},
        },
        hovertext=[_hover(lag) for lag in lags],
        hoverinfo="text",
        name=part.name,
    )  # fmt: skip


def _add_words(figure: go.Figure, lags: Sequence[GroupLag], labels: Sequence[str], theme: Theme) -> None:
    for lag, label in zip(lags, labels, strict=True):
        figure.add_annotation(x=lag.lag or 0, y=label, xanchor="left", xshift=8, showarrow=False, text=_words(lag),
                              font={"size": 12, "color": theme.text})  # fmt: skip


def _words(lag: GroupLag) -> str:
    """``<b>2,115</b> held, 12 behind, 1 marker``."""
    if lag.lag is None:
        return f"not known: {plain(lag.error or 'nothing committed', longest=40)}"
    parts = [f"<b>{lag.held:,} held</b>"] if lag.held else []
    parts += [f"{lag.behind:,} behind"] if lag.behind else []
    parts += [count(lag.markers, "marker")] if lag.markers else []
    return ", ".join(parts)


def _hover(lag: GroupLag) -> str:
    facts: list[tuple[str, object]] = [
        ("partition", f"{lag.topic}-{lag.partition}"),
        ("group", lag.group_id),
        ("committed offset", lag.committed_offset),
        ("LSO", lag.last_stable_offset),
        ("high watermark", lag.high_watermark),
        ("lag", lag.lag),
        ("behind", lag.behind),
        ("held", lag.held),
        ("nothing to read", "not counted" if lag.markers is None else lag.markers),
        ("error", lag.error),
    ]
    return hover(facts)


def _answer(lags: Sequence[GroupLag]) -> str:
    """The title: held before behind, behind before markers."""
    behind, held, markers = (sum(map(part.offsets, lags)) for part in PARTS)
    if held:
        places = [lag for lag in lags if lag.held]
        where = f" on {places[0].topic}-{places[0].partition}" if len(places) == 1 else ""
        where = where or f" on {len(places)} partitions"
        return f"{count(held, 'record')} held from it{plain(where, longest=50)}"
    if behind:
        return f"nothing is held; it has {count(behind, 'record')} yet to read"
    if markers:
        return "it has read everything; its lag is only markers"
    unknown = sum(lag.lag is None for lag in lags)
    return f"{count(unknown, 'partition')} not known" if unknown else "it has read everything"


def _subtitle(lags: Sequence[GroupLag], lagging: Sequence[GroupLag], visible: Sequence[GroupLag]) -> str:
    total = sum(lag.lag or 0 for lag in lags)
    texts = [f"lag {number(total)} on {len(lagging):,} of {count(len(lags), 'partition')}"]
    uncounted = sum(lag.lag not in {None, 0} and lag.markers is None for lag in lags)
    if uncounted:
        texts.append(f"markers not counted on {count(uncounted, 'partition')}, where the log was not read")
    if len(visible) < len(lagging):
        texts.append(f"{len(lagging) - len(visible):,} more not drawn")
    return wrapped("; ".join(texts))
