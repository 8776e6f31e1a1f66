"""Findings as text for a terminal.

In the order of ``schema.FINDINGS``: topic, partition, queue position. Each partition has a block: who holds the LSO,
why, what is safe, and what is open behind it. The sentences are columns of the row; no verdict is made here.
"""

from __future__ import annotations

import datetime as dt
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.evidence.cause_table import CAUSES
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.diagnosis.outcome import OUTCOMES
from toolkit.analysis.diagnosis.verdicts import HEALTHY
from toolkit.schema import FINDINGS, Column, Table
from toolkit.schema.docs_links import cause_page, verdict_page
from toolkit.schema.durations import duration
from toolkit.schema.table import STRING
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    from rich.text import Text

    from toolkit.schema import Row


_NAMES = re.compile(r"\(([a-z-]+(?:, [a-z-]+)*)\)$")  # at the end of a cause

LINKED_FINDINGS = Table(
    FINDINGS.name,
    FINDINGS.row,
    (*FINDINGS.columns, Column("docs", STRING, "Page of the docs about its cause, or about its verdict.")),
    FINDINGS.key,
    FINDINGS.sort,
)
"""Findings with the page of the docs, for JSON and CSV."""


def finding_page(row: Row) -> str:
    """Address of the page about a finding's deciding cause, or about its verdict if the cause has no name."""
    found = _NAMES.search(row.get("cause") or "")
    names = [name for name in found[1].split(", ") if name in CAUSES] if found else []
    return cause_page(names[0]) if names else verdict_page(row["verdict"])


def with_page(row: Row) -> Row:
    """A row of `LINKED_FINDINGS`."""
    return {**row, "docs": finding_page(row)}


TICK = dt.timedelta(seconds=1)
"""A file's time may be a clock tick older than its last record."""

_LABEL = 9
_NULLABLE = (
    "queue_position", "producer_id", "producer_epoch", "transactional_id", "owner", "start_offset", "outcome", "cause",
    "opened_at", "opened_at_clock", "expires_at", "last_stable_offset", "offsets_held", "records_held", "bytes_held",
    "groups_held", "compaction_held", "held_from", "held_to", "held_ms", "error",
)  # fmt: skip
_COMMAND = re.compile(r"kafka-txn (?:abort|complete) --topic \S+ --partition \d+ --start-offset \d+")
_STYLES = (
    (re.compile(r"^\S+(?= +LSO)", re.MULTILINE), "bold"),
    (re.compile(r"(^  |(?<=^ {11}))hanging\b", re.MULTILINE), "bold red"),
    (re.compile(r"^  (unknown|overdue|stuck_ending|prepared|unreplicated)\b", re.MULTILINE), "bold yellow"),
    (re.compile(r"\b(ongoing|long|ending|ended|clear)(?=  producer)"), "green"),
    (re.compile(r"^  (owner|why|outcome|cause|error|missing|remedy|docs|next)\b", re.MULTILINE), "dim"),
    (_COMMAND, "cyan"),
)


def finding_lines(findings: Iterable[Row], *, now: dt.datetime, width: int | None = None) -> list[str]:
    """Findings as lines of text, a block per partition, healthy partitions in a line per transaction.

    Parameters
    ----------
    findings
        Rows of ``schema.FINDINGS`` in its order; a null column may be missing.
    now
        Time up to which ages are counted.
    width
        Columns to wrap at, between words; a command to copy is never wrapped. Null for no wrapping.
    """
    partitions = [
        ("all topics" if topic is None else f"{topic}-{partition}", [_complete(row) for row in group])
        for (topic, partition), group in groupby(findings, key=lambda row: (row["topic"], row["partition"]))
    ]
    paragraphs: list[list[str]] = []
    for healthy, group in groupby(
        partitions, key=lambda each: all(_is_healthy(row) or _is_over(row) for row in each[1])
    ):
        if healthy:
            paragraphs.append(_short_lines(list(group), now=now, width=width))
        else:
            paragraphs += [list(_block(name, rows, now=now, width=width)) for name, rows in group]
    return [line for paragraph in paragraphs for line in [*paragraph, ""]][:-1]


def summary(findings: Iterable[Row]) -> str:
    """The summary in one line: ``2 partitions hang, 1 unknown, 14 open transactions are healthy``."""
    rows = list(findings)
    hanging = len({(row["topic"], row["partition"]) for row in rows if row["verdict"] == "hanging"})
    undelivered = [row for row in rows if row.get("action") == "complete"]  # decided, and the marker is missing
    healthy = sum(_is_healthy(row) for row in rows if row.get("producer_id") is not None)
    counted = (row for row in rows if row["verdict"] != "hanging" and row.get("action") != "complete")
    others = Counter(row["verdict"] for row in counted if not _is_healthy(row))
    parts = [_count(hanging, "partition hangs", "partitions hang")] if hanging else []
    parts += [_missing_markers(undelivered)] if undelivered else []
    parts = parts or ["nothing hangs"]
    parts += [f"{number:,} {verdict}" for verdict, number in sorted(others.items())]
    if healthy:
        parts.append(_count(healthy, "open transaction is healthy", "open transactions are healthy"))
    elif not rows:
        parts.append("no transaction is open")
    return ", ".join(parts)


def _missing_markers(findings: Sequence[Row]) -> str:
    """What decided transactions hold: ``2 partitions are held because their COMMIT markers are missing``."""
    outcomes = {str(row["outcome"]).upper() for row in findings}
    marker = f"{min(outcomes)} marker" if len(outcomes) == 1 else "marker"
    partitions = len({(row["topic"], row["partition"]) for row in findings})
    return _count(
        partitions,
        f"partition is held because its {marker} is missing",
        f"partitions are held because their {marker}s are missing",
    )


def wrap(text: str, *, before: str, width: int | None) -> list[str]:
    """Text as lines with a hanging indent after `before`; a command to copy is not wrapped."""
    if width is None:
        return [before + text]
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", "\xa0"), text)  # no line breaks at a no-break space
    lines = textwrap.wrap(
        whole,
        max(width, len(before) + 30),
        initial_indent=before,
        subsequent_indent=" " * len(before),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in lines]


def paint(lines: Iterable[str]) -> Text:
    """Print lines in the colours of a terminal, if it has any."""
    from rich.text import Text

    text = Text("\n".join(lines))
    for pattern, style in _STYLES:
        text.highlight_regex(pattern, style)
    return text


def _complete(row: Row) -> Row:
    return {**dict.fromkeys(_NULLABLE), **row}


def _is_healthy(row: Row) -> bool:
    return row["verdict"] in HEALTHY and not row.get("cause")


def _is_over(row: Row) -> bool:
    return bool(row["verdict"] == "ended")


def _short_lines(partitions: Sequence[tuple[str, Sequence[Row]]], *, now: dt.datetime, width: int | None) -> list[str]:
    longest = max(_LABEL, *(len(name) for name, _ in partitions))
    lines = ((f"{name:<{longest}}  ", _short(row, now=now)) for name, rows in partitions for row in rows)
    return [line for name, text in lines for line in wrap(text, before=name, width=width)]


def _short(row: Row, *, now: dt.datetime) -> str:
    line = f"{row['verdict']}  {_past(row) if _is_over(row) else _who(row) or printable(row['reason'])}"
    if row["transactional_id"]:
        line += f' · id "{printable(row["transactional_id"])}"'
        if row["owner"]:
            line += f": {printable(row['owner'])}"
    if row["expires_at"] and row["expires_at"] > now:
        line += f" · expires in {duration(row['expires_at'] - now)}"
    return line


def _block(name: str, rows: Sequence[Row], *, now: dt.datetime, width: int | None) -> Iterator[str]:
    first, *behind = (row for row in rows if not _is_over(row))
    over = [_short(row, now=now).removeprefix("ended  ") for row in rows if _is_over(row)]
    entries = [*_entries(first), *_next(first, behind), *_listed("ended", over)]
    label = max(_LABEL, *(len(label) + 2 for label, _ in entries))
    yield f"{name:<{label}}  {_headline(first, now=now)}".rstrip()
    for title, text in entries:
        yield from wrap(text, before=f"  {title:<{label}}", width=width)


def _headline(row: Row, *, now: dt.datetime) -> str:
    """``LSO 913095344 held for 2 h 14 min · 2,115 records waiting · group my-group cannot move``."""
    if row["topic"] is None:
        return ""
    parts = ["LSO unknown" if row["last_stable_offset"] is None else f"LSO {row['last_stable_offset']}"]
    if row["queue_position"] == 1:
        parts[0] += " held"
        since = row["held_from"] or row["opened_at"]
        if since and since <= now + TICK:
            parts[0] += f" for {duration(now - since)}"
    if row["records_held"] is not None:
        parts.append(_count(row["records_held"], "record waiting", "records waiting"))
    elif row["offsets_held"] is not None:
        parts.append(_count(row["offsets_held"], "offset waiting", "offsets waiting"))
    if row["groups_held"]:
        parts.append(_groups([printable(group) for group in row["groups_held"]]))
    return " · ".join(parts)


def _groups(groups: Sequence[str]) -> str:
    if len(groups) == 1:
        return f"group {groups[0]} cannot move"
    names = [*groups[:3], *([f"{len(groups) - 3:,} more"] if len(groups) > 3 else [])]
    return f"groups {', '.join(names[:-1])} and {names[-1]} cannot move"


def _entries(row: Row) -> Iterator[tuple[str, str]]:
    """Label and sentence of each line; without a producer, only the reason."""
    who, position = _who(row), row["queue_position"] or 1
    if who:
        turn = f", behind {_count(position - 1, 'other', 'others')}" if position > 1 else ""
        yield row["verdict"], who + turn
    if row["owner"]:
        yield "owner", f'"{printable(row["transactional_id"])}": {printable(row["owner"])}'
    yield "why" if who else row["verdict"], printable(row["reason"])
    if row["outcome"] and not _is_healthy(row):
        yield "outcome", f"{row['outcome']}: {OUTCOMES.get(row['outcome'], '')}"
    for label in ("cause", "error"):
        if row[label]:
            yield label, printable(row[label])
    missing = [text for text in row["missing"] if text != row["error"]]
    yield from _listed("missing", map(printable, missing))
    yield "remedy", printable(row["remedy"])
    if not _is_healthy(row):
        yield "docs", finding_page(row)


def _next(first: Row, behind: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """The next LSO once the first transaction has ended, and what is open then."""
    texts: list[str] = []
    then = min((row["start_offset"] for row in behind if row["start_offset"] is not None), default=None)
    if first["queue_position"] is not None:
        texts.append("the LSO goes to the high watermark" if then is None else f"the LSO goes to {then}")
    for row in behind:
        texts.append(f"{row['verdict']}  {_who(row) or printable(row['reason'])}")
        if not _is_healthy(row):
            texts += [printable(row["reason"]), printable(row["remedy"])]
    if not behind and texts:
        texts[0] += ": nothing else is open"
    return _listed("next", texts)


def _listed(label: str, texts: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((label if number == 0 else "", text) for number, text in enumerate(texts))


def _who(row: Row) -> str:
    """``producer 171100 epoch 1, open since 2026-11-21 09:58:11 UTC at offset 913095344``."""
    if row["producer_id"] is None:
        return ""
    epoch = "unknown" if row["producer_epoch"] is None else row["producer_epoch"]
    since = f" since {at(row['opened_at'])}" if row["opened_at"] else ""
    clock = " by the producer's clock" if since and row["opened_at_clock"] == "producer" else ""
    where = ", nothing written here yet" if row["start_offset"] is None else f" at offset {row['start_offset']}"
    return f"producer {row['producer_id']} epoch {epoch}, open{since}{clock}{where}"


def _past(row: Row) -> str:
    """``producer 171100 epoch 1 held the LSO for 2 min until 2026-11-21 09:58:11 UTC, 2,115 records behind it``."""
    epoch = "unknown" if row["producer_epoch"] is None else row["producer_epoch"]
    text = f"producer {row['producer_id']} epoch {epoch} held the LSO"
    if row["held_ms"] is not None:
        text += f" for {duration(dt.timedelta(milliseconds=row['held_ms']))}"
    if row["held_to"]:
        text += f" until {at(row['held_to'])}"
    if row["records_held"]:
        text += f", {_count(row['records_held'], 'record', 'records')} behind it"
    return text


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
