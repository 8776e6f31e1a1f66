"""Rows to what a person reads in a terminal, and to JSON and CSV.

Findings come in the order of ``schema.FINDINGS``: topic, partition, position. One block answers for one partition:
who holds the LSO, why, what is safe, what is open behind it. The sentences stand in the row; nothing is judged here.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from toolkit.analysis.wording import at, duration

if TYPE_CHECKING:
    from rich.text import Text

    from toolkit.schema import Row, Table

__all__ = ["HEALTHY", "finding_lines", "paint", "row_lines", "summary", "to_csv", "to_json"]

HEALTHY = frozenset({"ongoing", "long", "ending", "clear"})
"""Verdicts that ask nothing of anybody: a line each, unless the row names a cause."""

_LABEL = 9
_COMMAND = re.compile(r"kafka-txn abort --topic \S+ --partition \d+ --start-offset \d+")
_STYLES = (
    (re.compile(r"^\S+(?= .*LSO)", re.MULTILINE), "bold"),
    (re.compile(r"^  hanging\b|(?<=^ {11})hanging\b", re.MULTILINE), "bold red"),
    (re.compile(r"^  (unknown|overdue|stuck_ending|prepared|unreplicated)\b", re.MULTILINE), "bold yellow"),
    (re.compile(r"\b(ongoing|long|ending|clear)(?=  producer)"), "green"),
    (re.compile(r"^  (why|cause|missing|error|remedy|next)\b", re.MULTILINE), "dim"),
    (_COMMAND, "cyan"),
)


def finding_lines(findings: Iterable[Row], *, now: dt.datetime, width: int | None = None) -> list[str]:
    """Findings as lines of text, a block per partition, healthy partitions in a line per transaction.

    Parameters
    ----------
    findings
        Rows of ``schema.FINDINGS`` in its order.
    now
        The time that ages are counted to.
    width
        Wrap at this many columns, between words only; a command to copy is never broken. None wraps nothing.
    """
    lines: list[str] = []
    for (topic, partition), group in groupby(findings, key=lambda row: (row["topic"], row["partition"])):
        rows, name = list(group), f"{topic}-{partition}"
        if all(map(_healthy, rows)):
            lines += [_short(name, row, now=now) for row in rows]
        else:
            block = list(_block(name, rows, now=now, width=width))
            lines += [*([""] if lines and lines[-1] else []), *block, ""]
    return lines[:-1] if lines and not lines[-1] else lines


def summary(findings: Iterable[Row]) -> str:
    """The answer in one line: ``2 partitions hang, 1 unknown, 14 open transactions are healthy``."""
    rows = list(findings)
    hanging = len({(row["topic"], row["partition"]) for row in rows if row["verdict"] == "hanging"})
    healthy = sum(_healthy(row) for row in rows if row["verdict"] != "clear")
    others = Counter(row["verdict"] for row in rows if not _healthy(row) and row["verdict"] != "hanging")
    parts = [f"{_count(hanging, 'partition hangs', 'partitions hang')}" if hanging else "nothing hangs"]
    parts += [f"{number:,} {verdict}" for verdict, number in sorted(others.items())]
    if healthy:
        parts.append(_count(healthy, "open transaction is healthy", "open transactions are healthy"))
    elif not rows:
        parts.append("no transaction is open")
    return ", ".join(parts)


def row_lines(table: Table, rows: Sequence[Row], *, width: int | None = None) -> list[str]:
    """Rows of any table as aligned columns; where they do not fit in `width`, as one block per row.

    No value is ever cut. ``observed_at``, and ``error`` where no row has one, are left out: JSON and CSV have them.
    """
    if not rows:
        return [f"no {table.name}"]
    names = [n for n in table.names if n != "observed_at" and (n != "error" or any(row["error"] for row in rows))]
    cells = [[_cell(row[name]) for name in names] for row in rows]
    numbers = [any(_is_number(row[name]) for row in rows) for name in names]
    lines = _columns(names, cells, numbers)
    if width is None or max(map(len, lines)) <= width:
        return lines
    longest = max(map(len, names))
    blocks = [[f"{name:<{longest}}  {cell}" for name, cell in zip(names, row, strict=True)] for row in cells]
    return [line for block in blocks for line in [*block, ""]][:-1]


def to_json(table: Table, rows: Iterable[Row]) -> str:
    """One JSON array, an object per row with exactly the table's columns; times are ISO 8601 in UTC."""
    objects = [json.dumps({name: row.get(name) for name in table.names}, default=_plain) for row in rows]
    return "[" + ",".join(f"\n  {text}" for text in objects) + ("\n]" if objects else "]") + "\n"


def to_csv(table: Table, rows: Iterable[Row]) -> str:
    """CSV with a header line; null is an empty cell, a list is JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.names)
    writer.writerows([_flat(row.get(name)) for name in table.names] for row in rows)
    return out.getvalue()


def paint(lines: Iterable[str]) -> Text:
    """Lines with the colours of a terminal; a console that has none prints them as they are."""
    from rich.text import Text

    text = Text("\n".join(lines))
    for pattern, style in _STYLES:
        text.highlight_regex(pattern, style)
    return text


def _block(name: str, rows: Sequence[Row], *, now: dt.datetime, width: int | None) -> Iterator[str]:
    first, *behind = rows
    entries = [entry for entry in (*_entries(first), ("next", _next(first, behind))) if entry[1]]
    label = max(_LABEL, *(len(label) + 2 for label, _ in entries))
    yield f"{name:<{label}}  {_headline(first, now=now)}"
    for title, texts in entries:
        for number, text in enumerate(texts):
            yield from _wrap(text, before=f"  {title if number == 0 else '':<{label}}", width=width)


def _healthy(row: Row) -> bool:
    return row["verdict"] in HEALTHY and not row["cause"]


def _headline(row: Row, *, now: dt.datetime) -> str:
    lso = "LSO unknown" if row["last_stable_offset"] is None else f"LSO {row['last_stable_offset']}"
    if row["position"] == 1:
        age = now - row["opened_at"] if row["opened_at"] else dt.timedelta(-1)
        lso += " held" if age < dt.timedelta() else f" held for {duration(age)}"
    parts = [lso]
    if row["records_held"] is not None:
        parts.append(_count(row["records_held"], "record waiting", "records waiting"))
    if row["groups_held"] is not None:
        parts.append(_groups(row["groups_held"]))
    return " · ".join(parts)


def _groups(groups: Sequence[str]) -> str:
    if not groups:
        return "no group waits"
    if len(groups) == 1:
        return f"group {_printable(groups[0])} cannot move"
    shown = [_printable(group) for group in groups[:3]]
    if len(groups) > len(shown):
        shown.append(f"{len(groups) - len(shown):,} more")
    return f"groups {', '.join(shown[:-1])} and {shown[-1]} cannot move"


def _entries(row: Row) -> list[tuple[str, list[str]]]:
    """The label and the sentences of a finding; where no producer is known, the reason is all there is to say."""
    who, why = _who(row), [_printable(row["reason"])]
    if who and (row["position"] or 1) > 1:
        who += f", behind {_count(row['position'] - 1, 'other', 'others')}"
    entries = [(row["verdict"], [who] if who else why), ("why", why if who else [])]
    entries += [(label, [_printable(row[label])] if row[label] else []) for label in ("cause", "error")]
    entries += [("missing", [_printable(text) for text in row["missing"]]), ("remedy", [_printable(row["remedy"])])]
    return entries


def _who(row: Row) -> str:
    if row["producer_id"] is None:
        return ""
    who = f"producer {row['producer_id']} epoch {_cell(row['producer_epoch'])}, open"
    if row["opened_at"]:
        who += f" since {at(row['opened_at'])}" + (" by the producer's clock" if row["opened_by"] == "producer" else "")
    if row["start_offset"] is None:
        return f"{who}, nothing written here yet"
    return f"{who} at offset {row['start_offset']}"


def _next(first: Row, behind: Sequence[Row]) -> list[str]:
    texts = [] if behind or first["position"] is None else ["nothing else is open behind it"]
    for row in behind:
        texts.append(f"{row['verdict']}  {_who(row) or _printable(row['reason'])}")
        if not _healthy(row):
            texts += [_printable(row["reason"]), _printable(row["remedy"])]
    return texts


def _short(name: str, row: Row, *, now: dt.datetime) -> str:
    who = _who(row) or _printable(row["reason"])
    owner = f' · id "{_printable(row["transactional_id"])}"' if row["transactional_id"] else ""
    left = row["expires_at"] - now if row["expires_at"] else None
    expires = f" · expires in {duration(left)}" if left and left > dt.timedelta() else ""
    return f"{name:<{_LABEL}}  {row['verdict']}  {who}{owner}{expires}"


def _wrap(text: str, *, before: str, width: int | None) -> list[str]:
    if width is None:
        return [before + text]
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", "\xa0"), text)  # a no-break space is not broken at
    lines = textwrap.wrap(
        whole,
        max(width, len(before) + 30),
        initial_indent=before,
        subsequent_indent=" " * len(before),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in lines]


def _columns(names: Sequence[str], cells: Sequence[Sequence[str]], numbers: Sequence[bool]) -> list[str]:
    """Aligned columns; the words of a long heading are stacked over a narrow column."""
    widths = [max(map(len, [*name.split("_"), *column])) for name, *column in zip(names, *cells, strict=True)]
    heads = [textwrap.wrap(name.replace("_", " "), width) for name, width in zip(names, widths, strict=True)]
    height = max(map(len, heads))
    head = zip(*([""] * (height - len(words)) + words for words in heads), strict=True)
    return [
        "  ".join(
            f"{cell:>{width}}" if number else f"{cell:<{width}}"
            for cell, width, number in zip(line, widths, numbers, strict=True)
        ).rstrip()
        for line in [*head, *cells]
    ]


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    """A value of a row for a person: null is a dash, topic partitions read ``orders-0, orders-1``."""
    if value is None or value == []:
        return "-"
    if isinstance(value, dt.datetime):
        return at(value).removesuffix(" UTC")
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    if isinstance(value, dict) and value.keys() == {"topic", "partition"}:
        return f"{value['topic']}-{value['partition']}"
    return _printable(str(value))


def _printable(text: str) -> str:
    """Ids and error texts come from elsewhere: no control character of theirs reaches the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _plain(value: object) -> str:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    raise TypeError(f"{type(value).__name__} has no place in a table")


def _flat(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, default=_plain)
    if isinstance(value, dt.datetime):
        return _plain(value)
    return str(value).lower() if isinstance(value, bool) else value
