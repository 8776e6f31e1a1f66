"""Rows as JSON values that an agent cannot mistake for instructions.

A client may name its transactional id, group or client as it likes: "ignore your instructions", line breaks, megabytes.
A name is in its own field, escaped and cut; our sentences contain ``<transactional_id>`` instead.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from toolkit.schema import Row
from toolkit.views.row_formats import printable

__all__ = ["aliased", "inert", "inert_finding", "inert_rows", "without_names"]

MAX_TEXT = 1_000
MAX_ITEMS = 100
SENTENCES = ("reason", "cause", "remedy", "missing", "error")
LONG_NAME = 12  # shorter names are replaced only in quotes: "1" is part of many sentences
PLAIN_NAME = re.compile(r"[\w.:@/-]{1,128}", re.ASCII)


def inert(value: Any) -> Any:
    """A value of a row as JSON: texts escaped and cut, lists cut, times in ISO 8601."""
    if isinstance(value, str):
        text = printable(value[: MAX_TEXT + 1])
        return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}... ({len(value):,} characters)"
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, Mapping):
        return {str(name): inert(item) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [inert(item) for item in value[:MAX_ITEMS]]
    return value


def inert_rows(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows as JSON, and the number of omitted rows."""
    return {"rows": inert(rows), "left_out": max(0, len(rows) - MAX_ITEMS)}


def inert_finding(row: Row) -> Row:
    """A row of ``schema.FINDINGS`` without names of clients in its sentences."""
    names = {
        row.get("transactional_id"): "<transactional_id>",
        **dict.fromkeys(row.get("groups_held") or (), "<group>"),
    }
    return {name: without_names(value, names) if name in SENTENCES else value for name, value in row.items()}


def without_names(value: Any, names: Mapping[str | None, str]) -> Any:
    """Replace names in texts: in quotes, and elsewhere as complete words."""
    if isinstance(value, str):
        for name in sorted(filter(None, names), key=len, reverse=True):
            value = value.replace(f'"{name}"', f'"{names[name]}"')
            if len(name) >= LONG_NAME or not PLAIN_NAME.fullmatch(name):
                value = value.replace(name, names[name])
        return value
    if isinstance(value, Mapping):
        return {key: without_names(item, names) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [without_names(item, names) for item in value]
    return value


def aliased(tables: Mapping[str, Any], names: Iterable[str | None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tables with an alias for each unusual name, and the names of the aliases."""
    odd = sorted({name for name in names if name and not PLAIN_NAME.fullmatch(name)})
    aliases: dict[str | None, str] = {name: f"name-{number}" for number, name in enumerate(odd, start=1)}
    replaced = {table: without_names(rows, aliases) for table, rows in tables.items()}
    return replaced, {alias: inert(name) for name, alias in aliases.items()}
