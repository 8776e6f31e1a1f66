"""The overview of a cluster: held partitions with duration, amount and verdict."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from toolkit.schema.coerce import Data, records_of
from toolkit.schema.durations import duration
from toolkit.schema.live import Finding, Partition
from toolkit.schema.verdict import Verdict
from toolkit.views.finding_document import age, by_urgency, newest, place
from toolkit.views.plots.notebook_figure import NotebookFigure, empty_figure
from toolkit.views.plots.plot_text import finding_facts, hover, plain, row_axis
from toolkit.views.plots.plot_text import lines as wrapped
from toolkit.views.plots.plot_theme import Theme, ThemeName, apply_theme, theme_named
from toolkit.views.row_formats import count

NAME_WIDTH = 24
ROOM = 0.42  # share of the panel for the longest bar; the text after it takes the rest


def plot_overview(
    findings: Data,
    *,
    partitions: Data = None,
    now: dt.datetime | None = None,
    most: int = 25,
    theme: ThemeName = "light",
) -> go.Figure:
    """Draw every partition that is not clear, worst first: how long it is held, and how many records wait.

    Parameters
    ----------
    findings
        ``schema.FINDINGS``. Each partition has one line: that of its worst verdict.
    partitions
        ``schema.PARTITIONS``, for the number of partitions read.
    now
        Time up to which ages are counted; that of the newest finding if null.
    most
        Maximum number of lines, the most urgent ones; the rest is counted by verdict below the title.
    theme
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        Two panels with one line per partition; scales are logarithmic.

    Raises
    ------
    UsageError
        If there is no such theme.
    """
    colours = theme_named(theme)
    records, read = records_of(findings, Finding), records_of(partitions, Partition)
    until = now or newest(records)
    lines = partition_lines(records, until)
    if not lines:
        title = "Nothing is held" if records or read else "Nothing to draw"
        return empty_figure(colours, title=title, missing=_checked_text(records, read))
    visible = lines[:most]
    figure = make_subplots(figure=NotebookFigure(), rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.03,
                           column_widths=[0.56, 0.44],
                           subplot_titles=("held for (logarithmic)", "records waiting (logarithmic)"))  # fmt: skip
    _add_panel(figure, visible, [line.age_s for line in visible], [line.age_text for line in visible], colours, col=1)
    _add_panel(
        figure, visible, [line.waiting for line in visible], [line.waiting_text for line in visible], colours, col=2
    )
    _add_legend(figure, visible, colours)
    figure.update_yaxes(row_axis([line.name for line in visible], longest=NAME_WIDTH))
    apply_theme(
        figure, colours, title=_title(lines), subtitle=_subtitle(lines, visible), height=210 + 34 * len(visible)
    )
    figure.update_annotations(selector={"yanchor": "bottom"}, xanchor="left", font={"size": 13, "color": colours.muted})
    for note, axis in zip(figure.layout.annotations[:2], ("xaxis", "xaxis2"), strict=True):
        note.x = figure.layout[axis].domain[0]
    figure.layout.margin.t += 18  # for the titles of the panels
    return figure


TILES_STYLE = (
    "<style>.kafka-txn-tiles{display:flex;flex-wrap:wrap;gap:8px 40px;margin:4px 0 14px}.kafka-txn-tiles div{font:14px "
    "system-ui,sans-serif}.kafka-txn-tiles b{display:block;font-size:38px;line-height:1.15;font-variant-numeric:"
    "tabular-nums}.kafka-txn-tiles .alarm b{color:var(--kafka-txn-alarm,#b83a00)}</style>"
)


def number_tiles(findings: Data, *, now: dt.datetime | None = None) -> str:
    """What is held, in four numbers as HTML for a page on a screen: partitions, records, the longest hold, groups.

    Parameters
    ----------
    findings
        ``schema.FINDINGS``.
    now
        As for `plot_overview`.
    """
    records = records_of(findings, Finding)
    lines = partition_lines(records, now or newest(records))
    held = [line for line in lines if line.finding.queue_position == 1]
    hanging = sum(line.verdict is Verdict.HANGING for line in lines)
    unknown = sum(line.verdict is Verdict.UNKNOWN for line in lines)
    longest = max((line.age for line in held if line.age is not None), default=None)
    groups = {(each.cluster_id, group) for each in records for group in each.groups_held or ()}
    doubt = f", {unknown:,} unknown" if unknown else ""
    waiting = "records waiting"
    if any(line.waiting is None or line.unit for line in held):
        waiting = "records or offsets waiting, at least"
    stuck = "groups cannot move"
    if any(each.groups_held is None for each in records if each.queue_position == 1):
        stuck = "groups cannot move, of those that were read"
    tiles = (
        (f"{len(held):,}", f"{'partition' if len(held) == 1 else 'partitions'} held, {hanging:,} hanging{doubt}",
         "alarm" if hanging else ""),
        (f"{sum(line.waiting or 0 for line in held):,}", waiting, ""),
        ("-" if longest is None else duration(longest), "longest hold", ""),
        (f"{len(groups):,}", stuck, ""),
    )  # fmt: skip
    body = "".join(f'<div class="{tone}"><b>{value}</b>{label}</div>' for value, label, tone in tiles)
    return f'{TILES_STYLE}<div class="kafka-txn-tiles">{body}</div>'


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLine:
    """A partition, by the worst of its findings."""

    name: str
    verdict: Verdict
    finding: Finding
    others: int
    age: dt.timedelta | None
    waiting: int | None
    unit: str

    @property
    def label(self) -> str:
        return plain(self.name)

    @property
    def age_s(self) -> float | None:
        return None if self.age is None else max(self.age.total_seconds(), 1.0)

    @property
    def age_text(self) -> str:
        more = f" +{self.others:,} more" if self.others else ""
        return f"<b>{self.verdict}</b> · {'since when is not known' if self.age is None else duration(self.age)}{more}"

    @property
    def waiting_text(self) -> str:
        return (
            "not known" if self.waiting is None else count(self.waiting, "offset") if self.unit else f"{self.waiting:,}"
        )


def partition_lines(findings: Iterable[Finding], now: dt.datetime) -> list[PartitionLine]:
    """The lines of the overview: a partition each that is not clear, by its most urgent finding, the worst first."""
    by_partition: dict[tuple[str | None, str | None, int | None], list[Finding]] = {}
    for finding in by_urgency(findings, now):
        if finding.verdict not in {Verdict.CLEAR, Verdict.ENDED}:
            by_partition.setdefault(place(finding), []).append(finding)
    many = len({cluster for cluster, _, _ in by_partition}) > 1
    lines = []
    for (cluster, topic, partition), here in by_partition.items():
        worst = here[0]
        records = [finding.records_held for finding in here if finding.records_held is not None]
        offsets = [finding.offsets_held for finding in here if finding.offsets_held is not None]
        lines.append(
            PartitionLine(
                name=("all topics" if topic is None else f"{topic}-{partition}") + (f" ({cluster})" if many else ""),
                verdict=worst.verdict,
                finding=worst,
                others=len(here) - 1,
                age=age(worst, now),
                waiting=max(records or offsets, default=None),
                unit="" if records else "offset",
            )
        )
    return lines


def _add_panel(
    figure: go.Figure,
    lines: Sequence[PartitionLine],
    values: Sequence[float | None],
    texts: Sequence[str],
    theme: Theme,
    *,
    col: int,
) -> None:
    """A line from the left to each value, with the verdict's symbol at its end, and a text."""
    greatest = max([value for value in values if value], default=1)
    low, high = -0.12, math.log10(max(greatest, 10)) / ROOM
    at = [max(value or 1, 1) for value in values]
    for line, value in zip(lines, at, strict=True):
        figure.add_trace(
            go.Scatter(x=[10**low, value], y=[line.label] * 2, mode="lines", hoverinfo="skip", showlegend=False,
                       line={"color": theme[line.verdict.tone], "width": 7 if line.verdict is Verdict.HANGING else 2,
                             "dash": "solid" if line.verdict is Verdict.HANGING else "dot"}),
            row=1, col=col,
        )  # fmt: skip
    colours = [theme[line.verdict.tone] for line in lines]
    figure.add_trace(
        go.Scatter(
            x=at,
            y=[line.label for line in lines],
            mode="markers+text",
            marker={"symbol": [line.verdict.symbol for line in lines], "color": colours, "size": 13,
                    "line": {"width": 1.5, "color": colours}},
            text=[f"   {text}" for text in texts],
            textposition="middle right",
            textfont={"size": 12, "color": theme.text},
            cliponaxis=False,
            hovertext=[hover([("partition", line.label), *finding_facts(line.finding)]) for line in lines],
            hoverinfo="text",
            name="waiting" if col == 2 else "held for",
            showlegend=False,
        ),
        row=1, col=col,
    )  # fmt: skip
    figure.update_xaxes(type="log", range=[low, high], showticklabels=False, ticks="", showgrid=False, row=1, col=col)


def _add_legend(figure: go.Figure, lines: Sequence[PartitionLine], theme: Theme) -> None:
    there = {line.verdict for line in lines}
    for verdict in Verdict:
        if verdict in there:
            marker: dict[str, Any] = {"symbol": verdict.symbol, "color": theme[verdict.tone], "size": 12,
                                      "line": {"width": 1.5, "color": theme[verdict.tone]}}  # fmt: skip
            figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=verdict), row=1, col=1)


def _title(lines: Sequence[PartitionLine]) -> str:
    """``2 partitions hang, longest orders-0 for 3 h``."""
    counted = Counter(line.verdict for line in lines)
    hanging = counted.pop(Verdict.HANGING, 0)
    if not hanging:
        return f"Nothing hangs: {_named(counted)}"
    longest = max((line for line in lines if line.verdict is Verdict.HANGING), key=lambda line: line.age_s or 0)
    since = "" if longest.age is None else f" for {duration(longest.age)}"
    return f"{count(hanging, 'partition hangs', 'partitions hang')}, longest {plain(longest.name, longest=50)}{since}"


def _named(counted: Counter[Verdict]) -> str:
    return ", ".join(f"{counted[verdict]:,} {verdict.replace('_', ' ')}" for verdict in Verdict if counted[verdict])


def _subtitle(lines: Sequence[PartitionLine], visible: Sequence[PartitionLine]) -> str:
    text = wrapped(f"partitions by verdict: {_named(Counter(line.verdict for line in lines))}")
    rest = Counter(line.verdict for line in lines[len(visible) :])
    return f"{text}<br>{wrapped(f'not drawn: {_named(rest)}; show(findings) lists them')}" if rest else text


def _checked_text(findings: Sequence[Finding], read: Sequence[Partition]) -> str:
    failed = sum(partition.error is not None for partition in read)
    if not findings and not read:
        return "There are no findings and no partitions: whether all is well is unknown."
    if failed:
        return f"{count(failed, 'partition')} of {len(read):,} could not be read."
    if read:
        return f"{count(len(read), 'partition')} read: no LSO is held."
    return f"{count(len(findings), 'finding')}: none holds an LSO."
