"""Parts of a report, and their forms: a self-contained HTML page, Markdown with tables, or a notebook to edit."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.schema.docs_links import DOCS_URL
from toolkit.views.html_page import page
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from toolkit.schema.actions import ActionStep
    from toolkit.schema.live import Exposure, Finding, Partition
    from toolkit.schema.log import LogTransaction, LsoStep, OffsetsLogRecord, PastTransaction
    from toolkit.schema.metadata import ClusterEvent
    from toolkit.views.plots.plot_theme import ThemeName

UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and its text in one or more lines; a command is shown to copy, a link as a link."""

    label: str
    lines: tuple[str, ...]
    command: bool = False
    link: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of texts, with a sentence about omitted rows, or one without rows; columns in `numbers` are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[str] = frozenset()
    note: str = ""
    empty: str = "None."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """A section of the page with a heading."""

    title: str
    verdict: str = ""
    lead: str = ""
    facts: tuple[Fact, ...] = ()
    grids: tuple[Grid, ...] = ()
    charts: tuple[Callable[[ThemeName], go.Figure], ...] = ()  # drawn when they are called
    figure: bool = False
    appendix: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTables:
    """The tables beside the findings; of a recording with the times of its samples."""

    log_transactions: Sequence[LogTransaction] = ()
    lso_timeline: Sequence[LsoStep] = ()
    transaction_history: Sequence[PastTransaction] = ()
    partitions: Sequence[Partition] = ()
    sampled_at: Sequence[dt.datetime | None] = ()  # of each of these partitions, when its sample was due
    recorded_findings: Sequence[tuple[dt.datetime, Finding]] = ()  # each with the time of its sample
    offsets_log: Sequence[OffsetsLogRecord] = ()
    exposure: Sequence[Exposure] = ()
    cluster_events: Sequence[ClusterEvent] = ()
    actions: Sequence[ActionStep] = ()
    absent: Collection[str] = ()  # names of tables that were not given
    problems: Sequence[str] = ()  # what could not be read

    def partition_samples(self, finding: Finding) -> Iterator[tuple[dt.datetime, Partition]]:
        """The samples of a finding's partition that could be read, with the time of each."""
        for sampled_at, sample in zip(self.sampled_at, self.partitions, strict=False):
            is_own = (sample.topic, sample.partition) == (finding.topic, finding.partition)
            if is_own and sampled_at is not None and sample.error is None:
                yield sampled_at, sample


def text(value: dt.datetime | int | str | None) -> str:
    """A value as text, without control characters."""
    if value is None:
        return "-"
    if isinstance(value, dt.datetime):
        return f"{value.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03}"
    return printable(str(value))


def partition_name(finding: Finding) -> str:
    """``orders-0``, or "the whole cluster"."""
    return "the whole cluster" if finding.topic is None else f"{printable(finding.topic)}-{finding.partition}"


def moment(time: dt.datetime | None, *, otherwise: str = UNKNOWN) -> str:
    """A time to the second, or "not known"."""
    return otherwise if time is None else at(time)


Figure = Any
"""A plotly Figure, or a function that returns one for ``"light"`` and for ``"dark"``; plotly is not imported here."""


def html(
    title: str,
    summary: Sequence[str],
    sections: Sequence[ReportSection],
    *,
    pictures: Sequence[str] = (),
    figure: Figure | None = None,
) -> str:
    """The page of a report.

    `title`, `summary`, `sections`: as for `markdown`. `pictures`: SVG of each chart, all in one section.
    `figure`: figure under the findings.
    """
    dark = ""
    if pictures:
        from toolkit.views.plots.plot_theme import DARK_VARIABLES, follow_theme

        pictures, dark = list(map(follow_theme, pictures)), DARK_VARIABLES
    values = {
        "title": title,
        "summary": summary,
        "sections": sections,
        "figures": _figures(figure),
        "pictures": pictures,
        "dark_pictures": dark,
        "docs_url": DOCS_URL,
    }
    return page(__name__.rpartition(".")[0], "page.html", **values) + "\n"


def _figures(figure: Figure | None) -> dict[str, str]:
    """HTML of the figure by theme, plotly's script in the first one only."""
    if figure is None:
        return {}
    made = {theme: figure(theme) for theme in ("light", "dark")} if callable(figure) else {"": figure}
    options = {"full_html": False, "config": {"responsive": True, "displaylogo": False}}
    return {
        theme: each.to_html(include_plotlyjs=number == 0, **options)
        for number, (theme, each) in enumerate(made.items())
    }


_PAGE = re.compile(rf"{re.escape(DOCS_URL)}[\w/#-]*")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")


def markdown(
    title: str, summary: Sequence[str], sections: Sequence[ReportSection], *, pictures: Sequence[str] = ()
) -> str:
    """The text of a report.

    `summary`: sentences under the heading. `pictures`: Markdown of each chart, in their order; none if empty.
    """
    return "\n".join(markdown_parts(title, summary, sections, pictures=pictures))


def markdown_parts(
    title: str, summary: Sequence[str], sections: Sequence[ReportSection], *, pictures: Sequence[str] = ()
) -> list[str]:
    """The text as parts: the heading with the summary, and each section.

    `title`, `summary`, `sections`, `pictures`: as for `markdown`.
    """
    head = [f"# {escaped(title)}", "", *(line for one in summary for line in (escaped(one), ""))]
    parts = [head, *(list(_section(section, pictures)) for section in sections)]
    return ["\n".join(lines).rstrip() + "\n" for lines in parts]


def escaped(text: str) -> str:
    """Text escaped for Markdown, and for the HTML within it; an address of the docs is a link."""
    return " ".join(f"<{word}>" if _PAGE.fullmatch(word) else _SPECIAL.sub(r"\\\1", word) for word in text.split())


def _section(section: ReportSection, pictures: Sequence[str]) -> Iterator[str]:
    verdict = f": {escaped(section.verdict)}" if section.verdict else ""
    appendix = "Appendix: " if section.appendix else ""
    yield from (f"## {appendix}{escaped(section.title)}{verdict}", "")
    if section.lead:
        yield from (f"**{escaped(section.lead)}**" if section.verdict else escaped(section.lead), "")
    if section.facts:
        for fact in section.facts:
            yield f"- {escaped(fact.label)}: {'; '.join(_value(fact, line) for line in fact.lines)}"
        yield ""
    for picture in pictures if section.charts else ():
        yield from (picture, "")
    for grid in section.grids:
        yield from _grid(grid)


def _value(fact: Fact, line: str) -> str:
    if fact.link:
        return f"<{line}>"
    return f"`{line.replace('`', chr(39))}`" if fact.command else escaped(line)


def _grid(grid: Grid) -> Iterator[str]:
    yield from (f"### {escaped(grid.title)}", "")
    if grid.note:
        yield from (escaped(grid.note), "")
    if not grid.rows:
        yield from (escaped(grid.empty), "")
        return
    yield _row(map(escaped, grid.columns))
    yield _row("---:" if name in grid.numbers else "---" for name in grid.columns)
    yield from (_row(map(escaped, row)) for row in grid.rows)
    yield ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def notebook(
    title: str, summary: Sequence[str], sections: Sequence[ReportSection], *, pictures: Sequence[str] = ()
) -> str:
    """The JSON of a notebook (nbformat 4.5) without code: a Markdown cell for each section.

    `title`, `summary`, `sections`, `pictures`: as for `markdown`.
    """
    cells = [
        {"cell_type": "markdown", "id": f"section-{number}", "metadata": {}, "source": part.splitlines(keepends=True)}
        for number, part in enumerate(markdown_parts(title, summary, sections, pictures=pictures))
    ]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"
