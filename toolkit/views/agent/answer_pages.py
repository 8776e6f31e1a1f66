"""Answers of bounded size, with a cursor to the next part."""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.errors import UsageError
from toolkit.views.agent.inert_values import inert

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

        Parameters
        ----------
        tool
            Name of the tool.
        rows
            All rows.
        limit
            Maximum number of rows in this part.
        shared
            Other fields, in each part; of `names` those that occur in it.
        """
        return self._part(_Answer(tool=tool, rows=rows, shared=shared or {}), None, 0, limit)

    def of_text(self, tool: str, text: str, *, shared: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The first part of a Markdown text."""
        return self._part(_Answer(tool=tool, text=text, shared=shared or {}), None, 0, 0)

    def next_part(self, tool: str, cursor: str, *, limit: int = DEFAULT_LIMIT) -> dict[str, Any]:
        """The part that a cursor names.

        Raises
        ------
        UsageError
            If it is not the cursor of an answer of this tool, or too old.
        """
        token, _, position = cursor.partition(":")
        with self._lock:
            answer = self._kept.get(token)
        if answer is None or answer.tool != tool or not position.isdigit():
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
    found: list[Any] = []
    size = 0
    for row in rows[:limit]:
        value = short_enough(row)
        size += len(json.dumps(value))
        if found and size > MAX_CHARACTERS:
            break
        found.append(value)
    return found


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
