"""Names from outside as an attacker, or a careless application, may choose them."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

from tests.distinct import distinct_rows
from toolkit.schema import Table

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
