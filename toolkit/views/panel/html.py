"""HTML elements of the panel; all values are escaped here."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    from toolkit.views.report.report_parts import Fact, Grid


def line(text: object) -> str:
    """An escaped text."""
    return html.escape(printable(str(text)))


def paragraph(text: object, *, kind: str = "") -> str:
    """A paragraph."""
    return f'<p class="{kind}">{line(text)}</p>' if kind else f"<p>{line(text)}</p>"


def bullets(texts: Iterable[str]) -> str:
    """A list of sentences."""
    return f"<ul>{''.join(f'<li>{line(text)}</li>' for text in texts)}</ul>"


def command(text: str) -> str:
    """A command to copy."""
    return f"<code>{line(text)}</code>"


def link(address: str) -> str:
    """A link that opens in a new page."""
    return f'<a href="{line(address)}" target="_blank" rel="noopener noreferrer">{line(address)}</a>'


def card(kind: str, *parts: str, role: str = "") -> str:
    """A framed section; `kind` is the class of its colour, `role` that of the section for a screen reader."""
    return f'<div class="card {kind}"{f" role={role}" if role else ""}>{"".join(parts)}</div>'


def facts(rows: Iterable[Fact]) -> str:
    """Labels with their texts."""
    lines = (
        f"<dt>{line(fact.label)}</dt><dd>"
        + "".join(f"<div>{_value(fact, text)}</div>" for text in fact.lines)
        + "</dd>"
        for fact in rows
    )
    return f"<dl>{''.join(lines)}</dl>"


def _value(fact: Fact, text: str) -> str:
    return link(text) if fact.link else command(text) if fact.command else line(text)


def grid(table: Grid) -> str:
    """A table of texts."""
    heads = "".join(f"<th>{line(name)}</th>" for name in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{line(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
