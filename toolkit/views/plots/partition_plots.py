"""Plots with a row for each partition or group: the overview and its tiles, holds of the LSO, and lag."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from toolkit.analysis.diagnosis.consumer_lag import never_read
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.diagnosis.observation import is_held
from toolkit.errors import UsageError
from toolkit.schema.coerce import Data, in_utc, records_of
from toolkit.schema.durations import duration
from toolkit.schema.live import Finding, GroupLag, Partition
from toolkit.schema.recorded import LsoHold
from toolkit.schema.table import utc_now
from toolkit.schema.verdict import Verdict
from toolkit.views.finding_document import age, by_source, by_urgency, newest, place
from toolkit.views.plots.notebook_figure import NotebookFigure, empty_figure
from toolkit.views.plots.plot_theme import (
    SHOWN,
    Theme,
    ThemeName,
    apply_theme,
    finding_facts,
    hover,
    id_text,
    number,
    row_axis,
    theme_named,
    when,
)
from toolkit.views.plots.plot_theme import lines as wrapped
from toolkit.views.row_formats import count, plain

NAME_WIDTH = 24
MAX_LINES = 25  # of partitions, or of ids
ROOM = 0.42  # share of the panel for the longest bar; the text after it takes the rest


def plot_overview(findings: Data, *, partitions: Data = None, theme: ThemeName = "light") -> go.Figure:
    """Draw every partition that is not clear, worst first: how long it is held, and how many records wait.

    Parameters
    ----------
    findings
        ``schema.FINDINGS``. Each partition has one line: that of its worst verdict.
    partitions
        ``schema.PARTITIONS``, for the number of partitions read.
    theme
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        Two panels with one line per partition, the 25 most urgent ones; scales are logarithmic. The rest is counted by
        verdict below the title.

    Raises
    ------
    UsageError
        If there is no such theme.
    """
    colours = theme_named(theme)
    records, read = records_of(findings, Finding), records_of(partitions, Partition)
    lines = partition_lines(records, newest(records))
    if not lines:
        doubt = any(each.error is not None or is_held(each) for each in read)
        title = "What is held is not known" if doubt else _nothing_held(records, read)
        return empty_figure(colours, title=title, missing=_checked_text(records, read))
    visible = lines[:MAX_LINES]
    figure = make_subplots(figure=NotebookFigure(), rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.03,
                           column_widths=[0.56, 0.44],
                           subplot_titles=("held for (logarithmic)", "records waiting (logarithmic)"))  # fmt: skip
    _add_panel(figure, visible, [line.age_s for line in visible], [line.age_text for line in visible], colours, col=1)
    _add_panel(
        figure, visible, [line.waiting for line in visible], [line.waiting_text for line in visible], colours, col=2
    )
    there = {line.verdict for line in visible}
    for verdict in (each for each in Verdict if each in there):  # the legend
        marker: dict[str, Any] = {"symbol": verdict.symbol, "color": colours[verdict.tone], "size": 12,
                                  "line": {"width": 1.5, "color": colours[verdict.tone]}}  # fmt: skip
        figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=verdict, row=1, col=1)
    figure.update_yaxes(row_axis([line.name for line in visible], longest=NAME_WIDTH))
    subtitle = wrapped(f"partitions by verdict: {_named(Counter(line.verdict for line in lines))}")
    if rest := Counter(line.verdict for line in lines[MAX_LINES:]):
        subtitle += f"<br>{wrapped(f'not drawn: {_named(rest)}; show(findings) lists them')}"
    apply_theme(figure, colours, title=_overview_title(lines), subtitle=subtitle, height=210 + 34 * len(visible))
    figure.update_annotations(selector={"yanchor": "bottom"}, xanchor="left", font={"size": 13, "color": colours.muted})
    for note, axis in zip(figure.layout.annotations[:2], ("xaxis", "xaxis2"), strict=True):
        note.x = figure.layout[axis].domain[0]
    figure.layout.margin.t += 18  # for the titles of the panels
    return figure


TILES_STYLE = (
    "<style>.kafka-txn-tiles{display:flex;flex-wrap:wrap;gap:8px 40px;margin:4px 0 14px}.kafka-txn-tiles div{font:14px "
    "system-ui,sans-serif}.kafka-txn-tiles b{display:block;font-size:38px;line-height:1.15;font-variant-numeric:"
    "tabular-nums}.kafka-txn-tiles .alarm b{color:var(--kafka-txn-alarm,#b83a00)}"
    ".kafka-txn-earlier{display:none}</style>"  # the picture in notebook 9, for where there are no tiles
)


def number_tiles(findings: Data) -> str:
    """What is held, in four numbers as HTML for a page on a screen: partitions, records, the longest hold, groups.

    Parameters
    ----------
    findings
        ``schema.FINDINGS``.
    """
    records = records_of(findings, Finding)
    if not records:
        return f'{TILES_STYLE}<div class="kafka-txn-tiles"><div><b>-</b>no findings</div></div>'
    lines = partition_lines(records, newest(records))
    held = [line for line in lines if line.holder is not None]
    hanging = sum(line.verdict is Verdict.HANGING for line in lines)
    unknown = sum(line.verdict is Verdict.UNKNOWN for line in lines)
    ages = (age(line.holder, newest(records)) for line in held if line.holder is not None)
    longest = max((each for each in ages if each is not None), default=None)
    groups = {(each.cluster_id, group) for each in by_source(records) for group in each.groups_held or ()}
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
    holder: Finding | None  # which holds the LSO: not always the worst one
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
                holder=next((each for each in here if each.queue_position == 1), None),
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
        is_hanging = line.verdict is Verdict.HANGING
        style = {"color": theme[line.verdict.tone], "width": 7 if is_hanging else 2}
        figure.add_scatter(x=[10**low, value], y=[line.label] * 2, mode="lines", hoverinfo="skip", showlegend=False,
                           line={**style, "dash": "solid" if is_hanging else "dot"}, row=1, col=col)  # fmt: skip
    colours = [theme[line.verdict.tone] for line in lines]
    figure.add_scatter(
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
        row=1,
        col=col,
    )  # fmt: skip
    figure.update_xaxes(type="log", range=[low, high], showticklabels=False, ticks="", showgrid=False, row=1, col=col)


def _overview_title(lines: Sequence[PartitionLine]) -> str:
    """``2 partitions hang, longest orders-0 for 3 h``."""
    counted = Counter(line.verdict for line in lines)
    hanging = counted.pop(Verdict.HANGING, 0)
    if not hanging:
        hangs = "is known to hang" if counted[Verdict.UNKNOWN] else "hangs"
        return f"None of these {hangs}: {_named(counted)}"  # the caller may have left others out
    longest = max((line for line in lines if line.verdict is Verdict.HANGING), key=lambda line: line.age_s or 0)
    since = "" if longest.age is None else f" for {duration(longest.age)}"
    return f"{count(hanging, 'partition hangs', 'partitions hang')}, longest {plain(longest.name, longest=50)}{since}"


def _named(counted: Counter[Verdict]) -> str:
    return ", ".join(f"{counted[verdict]:,} {verdict.replace('_', ' ')}" for verdict in Verdict if counted[verdict])


def _nothing_held(findings: Sequence[Finding], read: Sequence[Partition]) -> str:
    """The title of an all-clear, which is about these partitions only: they may be a selection."""
    places = {*map(place, findings)} or {(None, each.topic, each.partition) for each in read}
    return f"Nothing is held on {count(len(places), 'partition')}" if places else "Nothing to draw"


def _checked_text(findings: Sequence[Finding], read: Sequence[Partition]) -> str:
    failed = sum(partition.error is not None for partition in read)
    if not findings and not read:
        return "There are no findings and no partitions: whether all is well is unknown."
    if failed:
        return f"{count(failed, 'partition')} of {len(read):,} could not be read."
    if below := sum(map(is_held, read)):
        return f"{count(len(read), 'partition')} read: the LSO of {below:,} is below the high watermark."
    if read:
        return f"{count(len(read), 'partition')} read: no LSO is held."
    return f"{count(len(findings), 'finding')}: none holds an LSO."


SAMPLES_APART = dt.timedelta(minutes=5)  # at most, between two samples of a recorder
THINNEST = 300  # share of the time for the shortest bar
SHORTEST_AXIS = dt.timedelta(minutes=1)  # of holds: milliseconds would fill the picture, as if they were long
HOLD_KINDS = (("held", Verdict.ENDED, True), ("holds it still", Verdict.UNKNOWN, False))


def plot_holds(lso_holds: Data, *, since: dt.date | str | None = None, theme: ThemeName = "light") -> go.Figure:
    """Draw who held an LSO, and when: a row for each transactional id, or producer id where no id is known.

    Parameters
    ----------
    lso_holds
        ``schema.LSO_HOLDS``, of a log directory or a recording, or as the pipeline stored them; of any partitions. Of
        several clusters a frame each, by name: ``{"east": ..., "west": ...}``.
    since
        Count holds from this time on: ``today``, another day of UTC, such as ``2026-11-21``, or a time; from the first
        one if null.
    theme
        ``light`` or ``dark``.

    Raises
    ------
    UsageError
        If there is no such theme, or this is another table.
    """
    colours = theme_named(theme)
    records = _by_cluster(lso_holds)
    holds = [HoldBar.of(cluster, each) for cluster, each in records if each.held_from is not None]
    undated = len(records) - len(holds)
    unread = sum(each.error is not None for _, each in records)
    first = None if since is None else _begin(since)
    is_earlier = 0  # what was held when it was last seen, before that time
    if first is not None:
        is_earlier = sum(each.hold.held_to is None and each.end <= first for each in holds)
        holds = [replace(each, start=max(each.start, first)) for each in holds if each.end > first]
    if not holds:
        after = "" if first is None else f" since {at(first)}"
        return empty_figure(
            colours,
            title="When an LSO was held is not known" if undated or is_earlier else f"No row has a hold{after}",
            missing=f"The table has no hold whose time is known{after}.",
        )
    by_name: dict[str, list[HoldBar]] = {}
    for bar in holds:
        by_name.setdefault(bar.name, []).append(bar)
    ranked = sorted(by_name.items(), key=lambda item: -_time_held(item[1]))
    begin = min(each.start for each in holds)
    length = max(max(each.end for each in holds) - begin, SHORTEST_AXIS)
    figure = NotebookFigure()
    for name, verdict, is_over in HOLD_KINDS:
        bars = [bar for _, of_row in ranked[:MAX_LINES] for bar in of_row if (bar.hold.held_to is not None) is is_over]
        if bars:
            colour = colours[verdict.tone]
            figure.add_bar(
                orientation="h",
                base=[when(bar.start) for bar in bars],
                x=[max(bar.end - bar.start, length / THINNEST) / dt.timedelta(milliseconds=1) for bar in bars],
                y=[plain(bar.name) for bar in bars],
                width=0.56,
                marker={"color": colour, "line": {"color": colour, "width": 1}},
                hovertext=list(map(_hold_hover, bars)),
                hoverinfo="text",
                name=name,
            )
    figure.update_yaxes(row_axis([name for name, _ in ranked[:MAX_LINES]], longest=NAME_WIDTH))
    figure.update_xaxes(type="date", title={"text": "time (UTC)", "standoff": 6}, nticks=7)
    if length == SHORTEST_AXIS:
        figure.update_xaxes(range=[when(begin - length / 50), when(begin + length)])
    longest, of_longest = ranked[0]
    total = _time_held(of_longest)
    open_holds = sum(each.hold.held_to is None for each in holds)
    rest = f", {open_holds:,} of them {'goes' if open_holds == 1 else 'go'} on" if open_holds else ""
    rest += f"; {count(len(ranked) - MAX_LINES, 'more')} not drawn" if ranked[MAX_LINES:] else ""
    rest += f"; {undated - unread:,} of unknown time not drawn" if undated > unread else ""
    rest += f"; {is_earlier:,} held when last seen, before that time, not drawn" if is_earlier else ""
    rest += f"; {count(unread, 'log')} could not be read" if unread else ""
    partitions = count(len({each.place for each in holds}), "partition")
    subtitle = f"{count(len(holds), 'hold')} of {partitions} by {count(len(ranked), 'id')}{rest}"
    if _overlap(holds):
        subtitle += (
            "<br>One partition is held twice at one time: the rows are of several clusters or logs, drawn as one."
        )
    goes_on = [each.end for each in of_longest if each.hold.held_to is None]
    lasted = f"{'at least ' if goes_on else ''}{duration(total)} in " if total >= SHOWN or not goes_on else ""
    title = f"{plain(longest, longest=40)} held an LSO longest: {lasted}{count(len(of_longest), 'hold')}"
    if goes_on:
        title += f", and held it still at {at(max(goes_on))}"
    return apply_theme(figure, colours, title=title, subtitle=subtitle, height=220 + 30 * len(ranked[:MAX_LINES]))


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldBar:
    """A hold as a bar: what is drawn of it."""

    cluster: str  # the name of its frame among several
    hold: LsoHold
    start: dt.datetime
    end: dt.datetime  # up to when it was seen, if it goes on

    @classmethod
    def of(cls, cluster: str, hold: LsoHold) -> HoldBar:
        assert hold.held_from is not None, "those of unknown time are not drawn"
        least = hold.held_from + dt.timedelta(milliseconds=hold.least_ms or 0)
        return cls(
            cluster=cluster,
            hold=hold,
            start=hold.held_from,
            end=max(hold.held_to or hold.as_of or least, hold.held_from),
        )

    @property
    def name(self) -> str:
        own = self.hold.transactional_id or f"producer {self.hold.producer_id}"
        return f"{own} ({self.cluster})" if self.cluster else own

    @property
    def place(self) -> tuple[str, str | None, int | None]:
        return self.cluster, self.hold.topic, self.hold.partition


def _by_cluster(lso_holds: Data) -> list[tuple[str, LsoHold]]:
    """The holds with the name of their frame; a hold does not say of which cluster it is."""
    if isinstance(lso_holds, Mapping):
        named = lso_holds if len(lso_holds) > 1 else {"": next(iter(lso_holds.values()), None)}
        return [(str(name), hold) for name, frame in named.items() for hold in records_of(frame, LsoHold)]
    if isinstance(lso_holds, list | tuple) and len(lso_holds) > 1 and all(hasattr(each, "iloc") for each in lso_holds):
        raise UsageError(
            "Holds do not say of which cluster they are, and these are several frames.",
            do="Name them: plot_holds({'east': ..., 'west': ...}); of one cluster: pandas.concat(frames).",
        )
    return [("", hold) for hold in records_of(lso_holds, LsoHold)]


def _overlap(holds: Iterable[HoldBar]) -> bool:
    """Whether a partition is held twice at one time, by more than samples are apart: no partition of a cluster is."""
    before: dict[object, dt.datetime] = {}
    for bar in sorted(holds, key=lambda bar: bar.start):
        place = (bar.place, bar.hold.broker_id)
        if place in before and min(before[place], bar.end) - bar.start > SAMPLES_APART:
            return True
        before[place] = max(before.get(place, bar.end), bar.end)
    return False


def _begin(since: dt.date | str) -> dt.datetime:
    """The time that is meant; a day begins in UTC, as the axis is."""
    if isinstance(since, dt.datetime):
        return in_utc(since)
    if since == "today":
        since = utc_now().date()
    try:
        return dt.datetime.combine(dt.date.fromisoformat(str(since)), dt.time(), dt.UTC)
    except ValueError:
        return in_utc(str(since))


def _time_held(holds: Iterable[HoldBar]) -> dt.timedelta:
    """For how long any LSO was held: what is held on several partitions at one time counts once."""
    total, counted = dt.timedelta(), dt.datetime.min.replace(tzinfo=dt.UTC)
    for start, end in sorted((each.start, each.end) for each in holds):
        total += max(end - max(start, counted), dt.timedelta())
        counted = max(end, counted)
    return total


def _hold_hover(bar: HoldBar) -> str:
    facts: list[tuple[str, object]] = [
        ("cluster", bar.cluster or None),
        ("id", bar.hold.transactional_id),
        ("producer", id_text(bar.hold.producer_id)),
        ("partition", f"{bar.hold.topic}-{bar.hold.partition}"),
        ("offset", bar.hold.first_offset),
        ("from", bar.hold.held_from),
        ("to", bar.hold.held_to),
        ("last seen", bar.end if bar.hold.held_to is None else None),
        ("for", bar.end - (bar.hold.held_from or bar.start)),
        ("records held", bar.hold.records_held),
        ("marker", bar.hold.marker),
    ]
    return hover(facts)


GROUP_WIDTH = 30


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
        offsets=lambda lag: lag.never_read or 0,
        name="nothing to read: markers, aborted records",
        role="muted",
        hatch=".",
    ),
)


def plot_lag(rows: Data, *, group: str | None = None, theme: ThemeName = "light") -> go.Figure:
    """Draw a group's lag per partition, in three parts, the largest first.

    Parameters
    ----------
    rows
        ``schema.GROUP_LAG``, from `toolkit.sources.offset_queries`.
    group
        The group; the first one in the rows if null.
    theme
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        A bar for each partition that lags, or could not be read, held ones first; of more than 25 the rest is counted.

    Raises
    ------
    UsageError
        If there is no such theme.
    """
    colours = theme_named(theme)
    lags = records_of(rows, GroupLag)
    name = group if group is not None else next((lag.group_id for lag in lags), None)
    mine = [lag for lag in lags if lag.group_id == name]
    if len({(lag.topic, lag.partition) for lag in mine if lag.topic is not None}) < sum(
        lag.topic is not None for lag in mine
    ):
        raise UsageError(
            "A partition has several rows of this group: they are of several clusters or times.",
            do="Draw the rows of one.",
        )
    if name is None or not mine:
        missing = "No row of group_lag was given" + (f" of {plain(name, longest=50)}." if name is not None else ".")
        return empty_figure(colours, title="No lag to draw", missing=missing)
    lagging = sorted(
        (lag for lag in mine if lag.lag != 0 or lag.beyond_end),
        key=lambda lag: (not lag.held, -(lag.held or 0), -(lag.lag or 0), lag.topic or "", lag.partition or 0),
    )
    visible = lagging[:MAX_LINES]
    title = f"{plain(name, longest=40)}: {_lag_title(mine)}"
    if not visible:
        return empty_figure(colours, title=title, missing=f"{count(len(mine), 'partition')} read: no lag.")
    figure = NotebookFigure()
    names = ["all topics" if lag.topic is None else f"{lag.topic}-{lag.partition}" for lag in visible]
    labels = [plain(name) for name in names]
    for part in PARTS:
        colour, ground = colours[part.role], colours.background
        pattern = {"shape": part.hatch, "fgcolor": colour, "bgcolor": ground, "size": 7, "solidity": 0.35}
        line = {"color": colour, "width": 1.5}
        figure.add_bar(
            orientation="h",
            x=[part.offsets(lag) for lag in visible],
            y=labels,
            width=0.6,
            marker={"color": ground if part.hatch else colour, "line": line, "pattern": pattern},
            hovertext=list(map(_lag_hover, visible)),
            hoverinfo="text",
            name=part.name,
        )
    for lag, label in zip(visible, labels, strict=True):
        figure.add_annotation(x=lag.lag or 0, y=label, xanchor="left", xshift=8, showarrow=False, text=_lag_words(lag),
                              font={"size": 12, "color": colours.text})  # fmt: skip
    apply_theme(
        figure, colours, title=title, subtitle=_lag_subtitle(mine, lagging, visible), height=210 + 40 * len(visible)
    )
    figure.update_layout(barmode="stack", legend_traceorder="normal")
    longest = max((lag.lag or 0 for lag in visible), default=1)
    figure.update_xaxes(range=[0, max(longest, 1) * 1.5], tickformat=",d", nticks=6,
                        title={"text": "offsets", "standoff": 6})  # fmt: skip
    figure.update_yaxes(row_axis(names, longest=GROUP_WIDTH))
    return figure


def _lag_words(lag: GroupLag) -> str:
    """``<b>2,115</b> held, 12 behind, 1 marker``."""
    if lag.lag is None:
        return f"not known: {plain(lag.error or 'nothing committed', longest=40)}"
    parts = [f"<b>{lag.held:,} held</b>"] if lag.held else []
    parts += [f"{lag.behind:,} behind"] if lag.behind else []
    parts += [never_read(lag)] if lag.never_read else []
    parts += [f"<b>{count(lag.beyond_end, 'offset')} beyond the end</b>"] if lag.beyond_end else []
    return ", ".join(parts)


def _lag_hover(lag: GroupLag) -> str:
    facts: list[tuple[str, object]] = [
        ("partition", f"{lag.topic}-{lag.partition}"),
        ("group", lag.group_id),
        ("committed offset", lag.committed_offset),
        ("LSO", lag.last_stable_offset),
        ("high watermark", lag.high_watermark),
        ("lag", lag.lag),
        ("behind", lag.behind),
        ("held", lag.held),
        ("beyond the end", lag.beyond_end or None),
        ("nothing to read", "not counted" if lag.never_read is None else never_read(lag) or 0),
        ("error", lag.error),
    ]
    return hover(facts)


def _lag_title(lags: Sequence[GroupLag]) -> str:
    """The title: held before behind, behind before what is never read; an all-clear only if all of it is known."""
    behind, held, rest = (sum(map(part.offsets, lags)) for part in PARTS)
    unknown = sum(None in (lag.lag, lag.behind, lag.held) for lag in lags)
    doubt = f"; {count(unknown, 'partition')} not known" if unknown else ""
    if beyond := sum(bool(lag.beyond_end) for lag in lags):
        doubt = f"; it has committed beyond the end of {count(beyond, 'partition')}{doubt}"
    unit = "offset" if any(lag.markers is None and lag.lag for lag in lags) else "record"
    if held:
        places = [lag for lag in lags if lag.held]
        where = f" on {places[0].topic}-{places[0].partition}" if len(places) == 1 else ""
        where = where or f" on {len(places)} partitions"
        return f"{count(held, unit)} held from it{plain(where, longest=50)}{doubt}"
    if behind:
        return f"{'' if unknown else 'nothing is held; '}it has {count(behind, unit)} yet to read{doubt}"
    if beyond:
        return doubt.removeprefix("; ")
    if unknown:
        return f"{count(unknown, 'partition')} of {len(lags):,} not known"
    everything = f"it has read everything on {count(len(lags), 'partition')}"
    if rest:
        only = "markers" if rest == sum(lag.markers or 0 for lag in lags) else "markers and aborted or removed records"
        return f"{everything}; its lag is only {only}"
    return everything


def _lag_subtitle(lags: Sequence[GroupLag], lagging: Sequence[GroupLag], visible: Sequence[GroupLag]) -> str:
    total = sum(lag.lag or 0 for lag in lags)
    texts = [f"lag {number(total)} on {len(lagging):,} of {count(len(lags), 'partition')}"]
    uncounted = sum(lag.lag not in {None, 0} and lag.markers is None for lag in lags)
    if uncounted:
        texts.append(f"markers not counted on {count(uncounted, 'partition')}, where the log was not read")
    if len(visible) < len(lagging):
        texts.append(f"{len(lagging) - len(visible):,} more not drawn")
    return wrapped("; ".join(texts))
