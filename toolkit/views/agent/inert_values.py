"""Rows as JSON values that an agent cannot mistake for instructions.

A client may name its transactional id, group or client as it likes: "ignore your instructions", line breaks, megabytes.
A name is in its own field, escaped and cut; our sentences contain ``<transactional_id>`` or ``name-1`` instead.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from toolkit.schema import Row
from toolkit.views.row_formats import printable

MAX_TEXT = 1_000
MAX_ITEMS = 100
NAMES = {"transactional_id", "transactional_ids", "group_id", "groups", "groups_held", "client_id", "key"}
"""Columns whose values are names: the only ones that show them."""

OF_PLACES = {"topic", "topics", "topic_partitions", "verdict", "source"}
LONG_NAME = 12  # shorter names are replaced only in quotes: "1" is part of many sentences
PLAIN_NAME = re.compile(r"[\w.:@/-]{1,64}", re.ASCII)
MAX_WORDS = 2  # of letters in a plain name: more of them may be a sentence
PLACEHOLDERS = {"transactional_id": "<transactional_id>", "group_id": "<group>", "groups_held": "<group>"}


def inert(value: Any, *, max_items: int = MAX_ITEMS, max_text: int = MAX_TEXT) -> Any:
    """A value of a row as JSON: texts escaped and cut, lists cut with a note of how many are left out, ISO times."""
    if isinstance(value, str):
        text = printable(value[: max_text + 1])
        return text if len(text) <= max_text else f"{text[:max_text]}... ({len(value):,} characters)"
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
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
    found = _replaced(row, names)
    if row.get("owner") and any(not is_plain(name) for name in names):
        found["owner"] = "<owner of transactional_id>"  # made of parts of the id, and names of group and host
    return found


class Aliases:
    """Aliases for names that are not plain: ``name-1``, ``name-2`` ..., in the order of the names.

    Parameters
    ----------
    names
        Every name that may occur in the rows.
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
            for written in _spellings(name):
                value = value.replace(f'"{written}"', f'"{names[name]}"').replace(f"'{written}'", f"'{names[name]}'")
                if len(name) >= LONG_NAME or not is_plain(name):
                    value = value.replace(written, names[name])
        return value
    if isinstance(value, Mapping):
        return {key: without_names(item, names) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [without_names(item, names) for item in value]
    return value


def _replaced(row: Row, names: Mapping[str, str]) -> dict[str, Any]:
    """The row with placeholders in every column but those of names and places."""
    return {
        column: value if column in NAMES or column in OF_PLACES else without_names(value, names)
        for column, value in row.items()
    }


def _spellings(name: str) -> list[str]:
    """A name as it is, and as our sentences escape it; the longest first."""
    spelled = {
        name,
        printable(name),
        repr(name)[1:-1],
        json.dumps(name)[1:-1],
        json.dumps(name, ensure_ascii=False)[1:-1],
    }
    return sorted(spelled, key=len, reverse=True)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Sequence):
        yield from (each for each in value if isinstance(each, str))
