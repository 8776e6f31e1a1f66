"""A report as Markdown: the same content, with tables in place of the picture."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from toolkit.views.report.report_parts import Fact, Grid, ReportSection

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&])")


def markdown(title: str, summary: Sequence[str], sections: Sequence[ReportSection]) -> str:
    """The text of a report.

    Parameters
    ----------
    title
        Heading.
    summary
        Sentences under the heading.
    sections
        Content.
    """
    lines = [f"# {escaped(title)}", "", *(line for one in summary for line in (escaped(one), ""))]
    for section in sections:
        lines += _section(section)
    return "\n".join(lines).rstrip() + "\n"


def escaped(text: str) -> str:
    """Text escaped for Markdown, and for the HTML within it."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _section(section: ReportSection) -> Iterator[str]:
    verdict = f": {escaped(section.verdict)}" if section.verdict else ""
    yield from (f"## {escaped(section.title)}{verdict}", "")
    if section.lead:
        yield from (f"**{escaped(section.lead)}**" if section.verdict else escaped(section.lead), "")
    if section.facts:
        yield from (*(_fact(fact) for fact in section.facts), "")
    for grid in section.grids:
        yield from _grid(grid)


def _fact(fact: Fact) -> str:
    return f"- {escaped(fact.label)}: {'; '.join(_value(fact, line) for line in fact.lines)}"


def _value(fact: Fact, line: str) -> str:
    if fact.link:
        return f"<{line}>"
    return f"`{line.replace('`', chr(39))}`" if fact.command else escaped(line)


def _grid(grid: Grid) -> Iterator[str]:
    yield from (f"### {escaped(grid.title)}", "")
    if grid.note:
        yield from (escaped(grid.note), "")
    if not grid.rows:
        yield from ("None.", "")
        return
    yield _row(map(escaped, grid.columns))
    yield _row("---:" if name in grid.numbers else "---" for name in grid.columns)
    yield from (_row(map(escaped, row)) for row in grid.rows)
    yield ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
