"""Parts of a report, for every format."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    from toolkit.schema import Row

UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and its text in one or more lines; a command is shown to copy, a link as a link."""

    label: str
    lines: tuple[str, ...]
    command: bool = False
    link: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table of texts, with a sentence about omitted rows; columns in `numbers` are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[str] = frozenset()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """A section of the page with a heading."""

    title: str
    verdict: str = ""
    lead: str = ""
    facts: tuple[Fact, ...] = ()
    grids: tuple[Grid, ...] = ()
    charts: tuple[Mapping[str, Any], ...] = ()
    figure: bool = False


def text(value: object) -> str:
    """A value as text, without control characters."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dt.datetime):
        return f"{value.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}.{value.microsecond // 1000:03}"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(text, value)) or "-"
    if isinstance(value, Mapping):
        return f"{value.get('topic')}-{value.get('partition')}" if "topic" in value else text(list(value.values()))
    return printable(str(value))


def named(row: Row) -> str:
    """``orders-0``, or "the whole cluster"."""
    return "the whole cluster" if row["topic"] is None else f"{printable(row['topic'])}-{row['partition']}"


def counted(number: int, one: str, many: str) -> str:
    """``1 record``, ``2,115 records``."""
    return f"{number:,} {one if number == 1 else many}"


def moment(time: dt.datetime | None, *, otherwise: str = UNKNOWN) -> str:
    """A time to the second, or "not known"."""
    return otherwise if time is None else at(time)
