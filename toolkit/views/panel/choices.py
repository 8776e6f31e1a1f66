"""Findings to choose from, the most urgent first, each in a line that begins with its verdict."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.schema.durations import duration
from toolkit.views.report.finding_sections import by_weight
from toolkit.views.report.report_parts import counted, named
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    from toolkit.schema import Row

__all__ = ["MAX_CHOICES", "choice", "next_hanging", "rank_findings", "same", "tone"]

MAX_CHOICES = 60
"""Maximum number of choices, each a button."""

_TONES = {
    "hanging": "alarm",
    "unknown": "warn",
    "stuck_ending": "warn",
    "overdue": "warn",
    "prepared": "warn",
    "unreplicated": "warn",
}


def rank_findings(rows: Sequence[Row]) -> list[Row]:
    """The findings to choose from: the most urgent first, then those that hold the most records."""
    return by_weight(sorted(rows, key=lambda row: -(row["records_held"] or row["offsets_held"] or 0)))


def tone(row: Row) -> str:
    """The colour of a verdict: ``alarm``, ``warn`` or ``calm``."""
    return _TONES.get(row["verdict"], "calm")


def choice(row: Row) -> str:
    """``HANGING · orders-0 at offset 12 · 23 records wait · for 2 min · group billing cannot move``."""
    verdict = row["verdict"].upper() if row["verdict"] == "hanging" else row["verdict"]
    offset = "" if row["start_offset"] is None else f" at offset {row['start_offset']}"
    parts = [verdict, f"{named(row)}{offset}"]
    if row["records_held"]:
        parts.append(f"{counted(row['records_held'], 'record', 'records')} held")
    elif row["offsets_held"]:
        parts.append(f"{counted(row['offsets_held'], 'offset', 'offsets')} held")
    if (length := _age(row)) is not None:
        parts.append(f"for {duration(length)}")
    if (row["queue_position"] or 1) > 1:
        parts.append(f"behind {counted(row['queue_position'] - 1, 'other', 'others')}")
    if row["groups_held"]:
        groups = ", ".join(map(printable, row["groups_held"][:3])) + (" and more" if row["groups_held"][3:] else "")
        parts.append(f"{groups} cannot read on")
    return " · ".join(parts)


def same(row: Row | None, other: Row | None) -> bool:
    """Whether two findings are about the same transaction, or the same partition if none is open."""
    names = ("topic", "partition", "producer_id", "start_offset")
    return row is not None and other is not None and all(row[name] == other[name] for name in names)


def next_hanging(rows: Sequence[Row]) -> Row | None:
    """The next finding to choose; null if nothing hangs."""
    return next((row for row in rank_findings(rows) if row["verdict"] == "hanging"), None)


def _age(row: Row) -> dt.timedelta | None:
    if row["held_ms"] is not None:
        return dt.timedelta(milliseconds=row["held_ms"])
    since = row["held_from"] or row["opened_at"]
    return row["observed_at"] - since if since and since <= row["observed_at"] else None
