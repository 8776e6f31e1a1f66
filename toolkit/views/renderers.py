"""Writers of a document: for a terminal, as HTML, as Markdown and as JSON. They quote, and nothing else does."""

from __future__ import annotations

import datetime as dt
import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import groupby
from typing import Any, assert_never

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.command_line import command_line
from toolkit.schema.durations import duration
from toolkit.schema.verdict import DOCS_URL, TONES
from toolkit.views.document import (
    NOWHERE,
    Bullets,
    Code,
    Command,
    Connection,
    Field,
    Fields,
    Grid,
    Inline,
    Options,
    Paragraph,
    Part,
    Quote,
    Section,
    Sentence,
    Value,
)
from toolkit.views.row_formats import GridTexts, grid_lines, printable, wrap

LABEL = 9  # columns of the labels of fields
LONG_WORD = 40  # characters


def sentence_text(sentence: Sentence) -> str:
    """A sentence in one line of printable characters, as a terminal shows it."""
    parts = (sentence,) if isinstance(sentence, str) else sentence
    return "".join(map(_plain, parts))


def _plain(part: Inline) -> str:
    match part:
        case str():
            return printable(part)
        case Code(text):
            return f"`{printable(text)}`"
        case Options(argv):
            return command_line(argv)
        case dt.datetime():
            return at(part)
        case dt.timedelta():
            return duration(part)
        case int():
            return str(part)
        case _:
            assert_never(part)


def text_lines(parts: Iterable[Part], *, connection: Connection = NOWHERE, width: int | None = None) -> list[str]:
    """A document for a terminal.

    `width`: columns to wrap at, between words; a command is never wrapped. Null for no wrapping.
    """
    lines: list[str] = []
    was_block = False
    for part in parts:
        is_titled = isinstance(part, Section) or (isinstance(part, Grid) and part.title != "")
        is_block = is_titled or (isinstance(part, Fields) and not part.indent)
        if lines and (is_block or was_block):
            lines.append("")
        was_block = is_block
        match part:
            case Paragraph(text):
                lines += wrap(sentence_text(text), before="", width=width)
            case Bullets(items):
                lines += [line for item in items for line in wrap(sentence_text(item), before="- ", width=width)]
            case Command():
                lines.append(command_line(connection.argv(part)))
            case Fields():
                lines += _field_lines(part, connection, width)
            case Quote(text):
                lines += [printable(line) for line in text.splitlines()]
            case Grid():
                above = map(printable, filter(None, (part.title, part.note)))
                lines += [line for text in above for line in wrap(text, before="", width=width)]
                lines += grid_lines(part, width=width)
            case Section():
                title = printable(part.title)
                beside = part.badge or printable(part.lead)
                if beside and width is not None and len(title) > width // 2:  # a name may have 249 characters
                    lines += [title, *wrap(beside, before=" " * 4, width=width)]
                else:
                    lines += wrap(beside, before=f"{title:<{LABEL}}  ", width=width) if beside else [title]
                lines += text_lines(part.parts, connection=connection, width=width)
            case _:
                assert_never(part)
    return lines


def _field_lines(part: Fields, connection: Connection, width: int | None) -> Iterator[str]:
    """The labels in a column of their own; a command is a line of its own."""
    indent = " " * part.indent
    label = max([LABEL + 2 - part.indent, *(len(each.label) + 2 for each in part.fields)])
    for each in part.fields:
        title = printable(each.label)
        for value in each.values:
            if isinstance(value, Command):
                yield from [f"{indent}{title}"] if title else ()
                yield f"{indent}{'':<{label}}{command_line(connection.argv(value))}"
            else:
                yield from wrap(sentence_text(value), before=f"{indent}{title:<{label}}", width=width)
            title = ""


TEXT_WIDTH = 100


@dataclass(frozen=True, slots=True)
class DocumentView:
    """A document in a notebook: HTML without network access, elsewhere text."""

    parts: tuple[Part, ...]
    connection: Connection = NOWHERE

    def __repr__(self) -> str:
        return "\n".join(text_lines(self.parts, connection=self.connection, width=TEXT_WIDTH))

    def _repr_html_(self) -> str:
        style, body = package_text(__package__, "document.css"), html_text(self.parts, connection=self.connection)
        return f'<style>\n{style}</style>\n<div class="kafka-txn-document">\n{body}\n</div>'


def escaped_html(text: object) -> str:
    """Any text in HTML."""
    return html.escape(printable(str(text)))


def html_text(parts: Iterable[Part], *, connection: Connection = NOWHERE, level: int = 3) -> str:
    """A document as HTML; `level`: of its headings."""
    return "".join(_html(part, connection, level) for part in parts)


def _html(part: Part, connection: Connection, level: int) -> str:
    match part:
        case Paragraph(text, kind):
            return f"<p{class_html(kind)}>{value_html(text, connection)}</p>"
        case Bullets(items):
            return f"<ul>{''.join(f'<li>{value_html(each, connection)}</li>' for each in items)}</ul>"
        case Command():
            return value_html(part, connection)
        case Fields(fields):
            return f"<dl>{''.join(_html_field(each, connection) for each in fields)}</dl>"
        case Quote(text):
            return f"<pre tabindex='0'>{chr(10).join(map(escaped_html, text.splitlines()))}</pre>"
        case Grid():
            return _html_grid(part, level)
        case Section():
            inside = html_text(part.parts, connection=connection, level=level + 1)
            if part.lead:
                inside = f'<p class="lead">{_linked(part.lead)}</p>{inside}'
            if part.is_folded:
                head = f"<summary>{escaped_html(part.title)}</summary>"
                return f'<details class="fold">{head}{inside}</details>' if inside else ""
            badge = f'<span class="badge {part.tone}">{escaped_html(part.badge)}</span> ' if part.badge else ""
            role = ' role="alert"' if part.tone == "problem" else ""
            head = f"<h{level}>{badge}{escaped_html(part.title)}</h{level}>"
            return f'<div class="card {part.tone or "plain"}"{role}>{head}{inside}</div>'
        case _:
            assert_never(part)


def _html_field(field: Field, connection: Connection) -> str:
    lines = "".join(f"<div>{value_html(each, connection)}</div>" for each in field.values)
    return f"<dt>{escaped_html(field.label)}</dt><dd>{lines}</dd>"


def value_html(value: Value, connection: Connection = NOWHERE) -> str:
    """What a field says, in HTML."""
    if isinstance(value, Command):
        return f'<code class="command">{escaped_html(command_line(connection.argv(value)))}</code>'
    return "".join(map(_html_inline, (value,) if isinstance(value, str) else value))


def _html_inline(part: Inline) -> str:
    match part:
        case Code(text):
            return f"<code>{escaped_html(text)}</code>"
        case Options(argv):
            return f"<code>{escaped_html(command_line(argv))}</code>"
        case _:
            return _linked(_plain(part))


def _linked(text: str) -> str:
    """A text in HTML, with links to the pages of the docs in it."""
    return _PAGE.sub(r'<a href="\g<0>" target="_blank" rel="noopener noreferrer">\g<0></a>', escaped_html(text))


def _html_grid(grid: Grid, level: int) -> str:
    head = f"<h{level}>{escaped_html(grid.title)}</h{level}>" if grid.title else ""
    if grid.note:
        head += f'<p class="note">{_linked(grid.note)}</p>'
    if not grid.rows:
        return f'{head}<p class="none">{escaped_html(grid.empty)}</p>'
    names, lines, kinds = GridTexts.of(grid)
    heads = "".join(
        f"<th scope='col'{class_html(kind)}>{escaped_html(name)}</th>" for name, kind in zip(names, kinds, strict=True)
    )
    rows = ""
    for row in lines:
        cells = ((cell, _cell_kind(cell, kind)) for cell, kind in zip(row, kinds, strict=True))
        rows += f"<tr>{''.join(f'<td{class_html(kind)}>{value_html(cell)}</td>' for cell, kind in cells)}</tr>\n"
    region = f'<div class="scroll" role="group" aria-label="{escaped_html(grid.title)}" tabindex="0">'
    wide = class_html("wide" if len(grid.columns) > 6 else "")
    return f"{head}{region}<table{wide}><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"


def _cell_kind(cell: str, kind: str) -> str:
    """The class of a cell: one with a word that is too long for its column is broken anywhere."""
    return (kind if max(map(len, cell.split())) <= LONG_WORD else "long") if cell.strip() else "blank"


def class_html(kind: str) -> str:
    """The attribute of an element of some class; of one without a class, nothing."""
    return f' class="{kind}"' if kind else ""


_PAGE = re.compile(rf"{re.escape(DOCS_URL)}[\w/#-]*")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~&$])")  # of Markdown, and of the formulas in a notebook


def escaped_markdown(text: str) -> str:
    """Any text in Markdown, and in the HTML within it; an address of the docs is a link."""
    words = printable(text).split()
    return " ".join(f"<{word}>" if _PAGE.fullmatch(word) else _SPECIAL.sub(r"\\\1", word) for word in words)


def markdown_lines(parts: Iterable[Part], *, connection: Connection = NOWHERE, level: int = 3) -> list[str]:
    """A document as Markdown; `level`: of its headings."""
    lines: list[str] = []
    for part in parts:
        lines += [*_markdown(part, connection, level), ""]
    return lines


def _markdown(part: Part, connection: Connection, level: int) -> Iterator[str]:
    match part:
        case Paragraph(text):
            yield _markdown_sentence(text)
        case Bullets(items):
            yield from (f"- {_markdown_sentence(each)}" for each in items)
        case Command():
            yield from _fenced(command_line(connection.argv(part)))
        case Fields(fields):
            for each in fields:
                yield from _markdown_field(each, connection)
        case Quote(text):
            yield from _fenced(*map(printable, text.splitlines()))
        case Grid():
            if part.title:
                yield from (f"{'#' * level} {escaped_markdown(part.title)}", "")
            if part.note:
                yield from (escaped_markdown(part.note), "")
            yield from _markdown_rows(part) if part.rows else (escaped_markdown(part.empty),)
        case Section():
            badge = f": {escaped_markdown(part.badge)}" if part.badge else ""
            yield from (f"{'#' * level} {escaped_markdown(part.title)}{badge}", "")
            if part.lead:
                yield from (f"**{escaped_markdown(part.lead)}**" if part.badge else escaped_markdown(part.lead), "")
            yield from markdown_lines(part.parts, connection=connection, level=level + 1)
        case _:
            assert_never(part)


def _markdown_field(field: Field, connection: Connection) -> Iterator[str]:
    """Its sentences in a line; a command in a line of its own, and what follows it in another paragraph."""
    start = f"- {escaped_markdown(field.label)}:"
    for is_command, values in groupby(field.values, key=lambda value: isinstance(value, Command)):
        if is_command:
            yield from [start, ""] if start.startswith("-") else [""]
            lines = (_fenced(command_line(connection.argv(each))) for each in values if isinstance(each, Command))
            yield from (f"  {line}" for each in lines for line in each)
        else:
            yield f"{start} {'; '.join(_markdown_sentence(each) for each in values if not isinstance(each, Command))}"
        start = "\n "


def _fenced(*lines: str) -> Iterator[str]:
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield from (fence, *lines, fence)


def _markdown_rows(grid: Grid) -> Iterator[str]:
    names, cells, kinds = GridTexts.of(grid)
    yield f"| {' | '.join(map(escaped_markdown, names))} |"
    yield f"| {' | '.join('---:' if kind == 'number' else '---' for kind in kinds)} |"
    yield from (f"| {' | '.join(map(escaped_markdown, row))} |" for row in cells)


def _markdown_sentence(sentence: Sentence) -> str:
    return "".join(map(_markdown_inline, (sentence,) if isinstance(sentence, str) else sentence))


def _markdown_inline(part: Inline) -> str:
    text = printable(part.text) if isinstance(part, Code) else _plain(part)
    if isinstance(part, Code | Options):
        fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
        edge = " " if "`" in text else ""
        return f"{fence}{edge}{text}{edge}{fence}"
    edges = " " * text.startswith(" "), " " * (text.endswith(" ") and bool(text.strip()))
    return f"{edges[0]}{escaped_markdown(text)}{edges[1]}"


def json_value(parts: Iterable[Part], *, connection: Connection = NOWHERE) -> list[dict[str, Any]]:
    """A document as JSON: an object for each part, a command as the list of its arguments."""
    return [_json(part, connection) for part in parts]


def _json(part: Part, connection: Connection) -> dict[str, Any]:
    match part:
        case Paragraph(text):
            return {"text": sentence_text(text)}
        case Bullets(items):
            return {"items": list(map(sentence_text, items))}
        case Command():
            return {"command": list(connection.argv(part))}
        case Fields(fields):
            return {
                "fields": {each.label: [_json_value(value, connection) for value in each.values] for each in fields}
            }
        case Quote(text):
            return {"quote": text}
        case Grid():
            names, cells, _ = GridTexts.of(part)
            return {"title": part.title, "columns": names, "rows": cells}
        case Section():
            inside = json_value(part.parts, connection=connection)
            said = {"title": part.title, "badge": part.badge, "lead": part.lead}
            return {**{name: text for name, text in said.items() if text}, "parts": inside}
        case _:
            assert_never(part)


def _json_value(value: Value, connection: Connection) -> str | dict[str, Any]:
    return {"command": list(connection.argv(value))} if isinstance(value, Command) else sentence_text(value)


@cache
def package_text(package: str, file: str) -> str:
    """A file of a package."""
    return (resources.files(package) / file).read_text(encoding="utf-8")


def page(package: str, template: str, **values: Any) -> str:
    """Render a template of a package."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(package_text(package, template)).render(**values)


DARK_PAGE = (  # JupyterLab, Voila; VS Code
    ':is([data-jp-theme-light="false"], [data-vscode-theme-kind="vscode-dark"], '
    '[data-vscode-theme-kind="vscode-high-contrast"])'
)


def tone_variables(theme: str) -> str:
    """The colours of verdicts as CSS variables: ``--alarm: #b83a00; ...``."""
    return " ".join(f"--{tone}: {colour};" for tone, colour in TONES[theme].items())
