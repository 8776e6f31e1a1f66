"""Texts of plots; all values are escaped."""

from __future__ import annotations

import datetime as dt
import html
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from toolkit.schema.durations import duration
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    from toolkit.schema.live import Finding

LONGEST = 60  # characters of a name in a title


def plain(text: object, *, longest: int | None = None) -> str:
    """A text escaped for plotly, which interprets markup, links and formulas."""
    cut = printable(str(text))
    if longest is not None and len(cut) > longest:
        cut = f"{cut[: longest // 2]}…{cut[-(longest - longest // 2 - 1) :]}"
    return html.escape(cut, quote=False).replace("$", "&#36;")


def place_name(topic: str | None, partition: int | None) -> str:
    """``orders-0``; a long name is cut in the middle."""
    return "all topics" if topic is None else plain(f"{topic}-{partition}", longest=LONGEST)


def row_axis(names: Sequence[str], *, longest: int, margin: float = 0.7) -> dict[str, Any]:
    """A vertical axis with a row for each name from top to bottom; names that are equal after the cut stay separate."""
    rows = [plain(name) for name in reversed(names)]
    return {
        "type": "category",
        "categoryorder": "array",
        "categoryarray": rows,
        "tickmode": "array",
        "tickvals": rows,
        "ticktext": [plain(name, longest=longest) for name in reversed(names)],
        "range": [-margin, max(len(rows), 1) - 1 + margin],
        "showgrid": False,
    }


def number(value: int | None) -> str:
    """``913,095,344``."""
    return "unknown" if value is None else f"{value:,}"


def lines(text: str, *, width: int = 100, most: int = 2) -> str:
    """A text wrapped to at most `most` lines, with an ellipsis if it is cut."""
    wrapped = textwrap.wrap(printable(text), width, break_on_hyphens=False)
    if len(wrapped) > most:
        wrapped = [*wrapped[: most - 1], wrapped[most - 1][: width - 2] + " …"]
    return "<br>".join(map(plain, wrapped))


def when(time: dt.datetime | None) -> str | None:
    """A time for plotly, in UTC."""
    if time is None:
        return None
    return time.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="milliseconds")


def hover(facts: Sequence[tuple[str, object]]) -> str:
    """A line for each label and value; null values are left out."""
    return "<br>".join(f"{label} <b>{_value_text(value)}</b>" for label, value in facts if value is not None)


def _value_text(value: object) -> str:
    if isinstance(value, dt.datetime):
        return f"{value.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
    if isinstance(value, dt.timedelta):
        return duration(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        more = f" and {len(value) - 5:,} more" if value[5:] else ""
        return ", ".join(map(_value_text, value[:5])) + more
    return "<br>   ".join(map(plain, textwrap.wrap(printable(str(value)), 70, break_on_hyphens=False)))


def finding_facts(finding: Finding) -> list[tuple[str, object]]:
    """The text of a finding for a hover; ids are without separators."""
    return [
        ("verdict", finding.verdict),
        ("producer", id_text(finding.producer_id)),
        ("epoch", id_text(finding.producer_epoch)),
        ("transactional id", finding.transactional_id),
        ("start offset", finding.start_offset),
        ("opened", finding.opened_at),
        ("by the clock of", finding.opened_at_clock),
        ("expires", finding.expires_at),
        ("LSO", finding.last_stable_offset),
        ("high watermark", finding.high_watermark),
        ("records held", finding.records_held),
        ("groups held", finding.groups_held or None),
        ("why", finding.reason),
        ("cause", finding.cause),
        ("missing", finding.missing or None),
        ("remedy", finding.remedy),
    ]


def id_text(value: int | None) -> str | None:
    """An id or an epoch, without separators."""
    return None if value is None else str(value)
