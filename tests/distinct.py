"""Rows in which no two columns have the same value, so that one in a wrong place is noticed; and hostile ones."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import count
from typing import Any

from toolkit.schema.table import ListOf, StructOf, Table, Type
from toolkit.schema.verdict import Verdict

START = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
ROWS = 4  # a boolean has two values; so many tell 15 columns of them apart


def distinct_rows(table: Table) -> list[dict[str, Any]]:
    """Rows of a table, in its order; the values of each row differ in all columns, and booleans over all rows."""
    numbers = count(1)
    flags = [column.name for column in table.columns if column.type == "bool"]
    assert len(flags) < 2**ROWS
    rows = [{column.name: _value(column.name, column.type, numbers) for column in table.columns} for _ in range(ROWS)]
    for number, row in enumerate(rows):
        row |= {name: bool((1 + order) >> number & 1) for order, name in enumerate(flags)}
    return [dict(row) for row in table.ordered(rows)]


def _value(name: str, type_: Type, numbers: Iterator[int]) -> Any:
    match type_:
        case "string" if name == "verdict":
            return list(Verdict)[next(numbers) % len(Verdict)].value
        case ListOf(item):
            return [_value(name, item, numbers) for _ in range(2)]
        case StructOf(fields):
            return {inner: _value(inner, each, numbers) for inner, each in fields}
        case "string":
            return f"{name} {next(numbers)}"
        case "binary":
            return b"%d" % next(numbers)
        case "bool":
            return bool(next(numbers) % 2)
        case "int8":  # few columns of a table are so short: their values stay different
            return next(numbers) % 2**7
        case "float64":
            return next(numbers) + 0.5
        case "timestamp[ms, UTC]":
            return START + dt.timedelta(milliseconds=1001 * next(numbers))
    return next(numbers)


HOSTILE = "a\x1b[31m\n\tb\r'\"`$(touch x)`;|c\\<script>alert(1)</script>&\u202e\x9b2J**_[d](e)"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]|31m\n")


def hostile_rows(table: Table, **fields: Any) -> list[dict[str, Any]]:
    """Rows whose texts are all hostile, and different; `fields` replace columns, where the table has them."""
    known = {name: value for name, value in fields.items() if name in table.names}
    return [{**hostile(row), **known} for row in distinct_rows(table)]


def hostile(value: Any) -> Any:
    """A value whose texts are hostile."""
    if isinstance(value, str):
        return f"{value}{HOSTILE}"
    if isinstance(value, list):
        return [hostile(each) for each in value]
    return {name: hostile(each) for name, each in value.items()} if isinstance(value, dict) else value


class Tags(HTMLParser):
    """The tags and attributes of a page, without the texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.attributes: set[str] = set()
        self._in_script = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_script = tag == "script"
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        self.scripts += [data] if self._in_script else []


def cells(markdown: str) -> Iterator[tuple[str, int, int]]:
    """Each line of a table in Markdown, its number of cells, and that of the line above; the first line has its own."""
    before = None
    for line in markdown.splitlines():
        number = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
        if number is not None:
            yield line, number, before or number
        before = number
