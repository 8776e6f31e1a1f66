"""Answers for an agent: JSON values that it cannot mistake for instructions, in parts of bounded size.

A client may name its transactional id, group or client as it likes: "ignore your instructions", line breaks, megabytes.
A name is in its own field, escaped and cut; our sentences contain ``<transactional_id>`` or ``name-1`` instead.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.errors import UsageError
from toolkit.schema import Row
from toolkit.views.row_formats import json_default, printable, spellings

MAX_TEXT = 1_000
MAX_ITEMS = 100
NAMES = {"transactional_id", "transactional_ids", "group_id", "groups", "groups_held", "client_id", "key"}
"""Columns whose values are names: the only ones that show them."""

OF_PLACES = {"topic", "topics", "topic_partitions", "verdict", "source"}
LONG_NAME = 12  # shorter names are replaced only in quotes: "1" is part of many sentences
PLAIN_NAME = re.compile(r"[\w.:@/-]{1,64}", re.ASCII)
MAX_WORDS = 2  # of letters in a plain name: more of them may be a sentence
OTHER_ID = re.compile(
    r"(?<=\bits id \").+(?=\" has expired: __transaction_state-\d|\" now has producer id \d)"
    r"|(?<=(?:of|en|on) \").+(?=\" in __transaction_state-\d)|(?<=, which \").+(?=\" had, too)"
    r"|(?<=['\"]).+(?=['\"] was not open at )",
    re.DOTALL,
)
"""An id in a sentence of ours that no column has: that of a former owner, or of another client."""
PLACEHOLDERS = {"transactional_id": "<transactional_id>", "group_id": "<group>", "groups_held": "<group>"}


def inert(value: Any, *, max_items: int = MAX_ITEMS, max_text: int = MAX_TEXT) -> Any:
    """A value of a row as JSON: texts escaped and cut, lists cut with a note of how many are left out, ISO times."""
    if isinstance(value, str):
        text = printable(value[: max_text + 1])
        return text if len(text) <= max_text else f"{text[:max_text]}... ({len(value):,} characters)"
    if isinstance(value, dt.datetime):
        return json_default(value)
    if isinstance(value, Mapping):
        return {str(name): inert(item, max_items=max_items, max_text=max_text) for name, item in value.items()}
    if isinstance(value, Sequence):
        items = [inert(item, max_items=max_items, max_text=max_text) for item in value[:max_items]]
        more = len(value) - len(items)
        return [*items, {"left_out": more} if isinstance(value[0], Mapping) else f"... {more} more"] if more else items
    return value


def is_plain(name: str) -> bool:
    """Whether a name cannot be read as a sentence."""
    words = [each for each in re.split(r"[\W_]", name, flags=re.ASCII) if len(each) > 1 and each.isalpha()]
    return bool(PLAIN_NAME.fullmatch(name)) and len(words) <= MAX_WORDS


def inert_finding(row: Row) -> Row:
    """A row about one transaction or group without names of clients in its sentences."""
    names: dict[str, str] = {}
    for column, placeholder in PLACEHOLDERS.items():
        for name in _texts(row.get(column)):
            names.setdefault(name, placeholder)
    inert_row = {  # placeholders in every column but those of names and places
        column: value if column in NAMES or column in OF_PLACES else without_names(value, names)
        for column, value in row.items()
    }
    if row.get("owner") and any(not is_plain(name) for name in names):
        inert_row["owner"] = "<owner of transactional_id>"  # made of parts of the id, and names of group and host
    return inert_row


class Aliases:
    """Aliases for names that are not plain: ``name-1``, ``name-2`` ..., in the order of the names.

    `names`: every name that may occur in the rows.
    """

    def __init__(self, names: Iterable[str | None]) -> None:
        odd = sorted({name for name in names if name and not is_plain(name)})
        self._aliases = {name: f"name-{number}" for number, name in enumerate(odd, start=1)}

    @property
    def names(self) -> dict[str, str]:
        """What the aliases stand for, as data."""
        return {alias: inert(name) for name, alias in self._aliases.items()}

    def applied(self, value: Any) -> Any:
        """A row, rows or a text with aliases instead of the names."""
        return without_names(value, self._aliases)


def names_in(value: Any) -> Iterator[str]:
    """Values of all columns of names, at any depth of rows."""
    if isinstance(value, Mapping):
        for column, item in value.items():
            if column in NAMES:
                yield from _texts(item)
            elif not isinstance(item, str):
                yield from names_in(item)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from names_in(item)


def without_names(value: Any, names: Mapping[str, str]) -> Any:
    """Replace names in texts, as they are and as they are escaped: in quotes, and elsewhere as complete words."""
    if isinstance(value, str):
        for name in sorted(filter(None, names), key=len, reverse=True):
            for written in spellings(name):
                value = value.replace(f'"{written}"', f'"{names[name]}"').replace(f"'{written}'", f"'{names[name]}'")
                if len(name) >= LONG_NAME or not is_plain(name):
                    value = value.replace(written, names[name])
        return OTHER_ID.sub(_other_id, value)
    if isinstance(value, Mapping):
        return {key: without_names(item, names) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [without_names(item, names) for item in value]
    return value


def _other_id(found: re.Match[str]) -> str:
    return found[0] if is_plain(found[0]) or found[0] in PLACEHOLDERS.values() else "<another id>"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Sequence):
        yield from (each for each in value if isinstance(each, str))


MAX_CHARACTERS = 40_000
"""Of the JSON of an answer's rows, or of its text: about 10,000 tokens."""

DEFAULT_LIMIT, MAX_LIMIT = 20, 100  # rows
MAX_ANSWERS = 8  # that can be continued; older cursors end
SHORTER = ((25, 1_000), (5, 300), (1, 100))  # items of a list and characters of a text, for a row that is too large


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    tool: str
    rows: Sequence[Mapping[str, Any]] = ()
    text: str = ""
    shared: Mapping[str, Any]


class AnswerPages:
    """Answers that are given in parts. The rest of an answer is kept, so that its parts are of one moment."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Answer] = OrderedDict()
        self._lock = threading.Lock()  # tools run on several threads

    def of_rows(
        self, tool: str, rows: Sequence[Mapping[str, Any]], *, limit: int, shared: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The first part of rows.

        `limit`: maximum number of rows in this part.
        `shared`: other fields, in each part; of `names` those that occur in it.
        """
        return self._part(_Answer(tool=tool, rows=rows, shared=shared or {}), None, 0, limit)

    def of_text(self, tool: str, text: str, *, shared: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The first part of a Markdown text."""
        return self._part(_Answer(tool=tool, text=text, shared=shared or {}), None, 0, 0)

    def next_part(self, tool: str, cursor: str, *, limit: int = DEFAULT_LIMIT) -> dict[str, Any]:
        """The part that a cursor names.

        Raises UsageError if it is not the cursor of an answer of this tool, or too old.
        """
        token, _, position = cursor.partition(":")
        with self._lock:
            answer = self._kept.get(token)
        if answer is None or answer.tool != tool or not position.isdecimal():
            raise UsageError(
                "This cursor is not of a recent answer of this tool.", do="Call the tool again without a cursor."
            )
        return self._part(answer, token, int(position), limit)

    def _part(self, answer: _Answer, token: str | None, position: int, limit: int) -> dict[str, Any]:
        if answer.text:
            end = _end_of_text(answer.text, position)
            part: dict[str, Any] = {"markdown": answer.text[position:end]}
            left = len(answer.text) - end
        else:
            rows = _fitting(answer.rows[position:], limit)
            part, end = {"rows": rows}, position + len(rows)
            left = len(answer.rows) - end
        cursor = f"{token or self._keep(answer)}:{end}" if left else None
        shared = dict(answer.shared)
        if "names" in shared:
            used = set(re.findall(r"\bname-\d+\b", json.dumps([part, shared.get("remarks")])))
            shared["names"] = {alias: name for alias, name in shared["names"].items() if alias in used}
        return {**shared, **part, "left_out": left, "next_cursor": cursor}

    def _keep(self, answer: _Answer) -> str:
        token = secrets.token_hex(4)
        with self._lock:
            self._kept[token] = answer
            while len(self._kept) > MAX_ANSWERS:
                self._kept.popitem(last=False)
        return token


def _fitting(rows: Sequence[Mapping[str, Any]], limit: int) -> list[Any]:
    """The first rows that fit, at least one."""
    fitting: list[Any] = []
    size = 0
    for row in rows[:limit]:
        value = short_enough(row)
        size += len(json.dumps(value))
        if fitting and size > MAX_CHARACTERS:
            break
        fitting.append(value)
    return fitting


def short_enough(row: Mapping[str, Any]) -> Any:
    """A row as JSON, with its lists and texts cut so that it fits into an answer."""
    value = inert(row)
    for max_items, max_text in SHORTER:
        if len(json.dumps(value)) <= MAX_CHARACTERS:
            break
        value = inert(row, max_items=max_items, max_text=max_text)
    return value


def _end_of_text(text: str, start: int) -> int:
    """The end of a part: after a line, if one ends in it."""
    end = start + MAX_CHARACTERS
    if end >= len(text):
        return len(text)
    return text.rfind("\n", start + 1, end) + 1 or end
