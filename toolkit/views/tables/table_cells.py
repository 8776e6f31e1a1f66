"""Cells of a table: texts, and the sort keys of its headings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.diagnosis.outcome import OUTCOMES
from toolkit.analysis.diagnosis.verdicts import HEALTHY
from toolkit.schema.durations import duration
from toolkit.schema.table import INT16, INT32, INT64, TIME
from toolkit.views.finding_links import finding_page
from toolkit.views.row_formats import cell_text, printable

if TYPE_CHECKING:
    from toolkit.schema import Column, Row, Table

LONG = 40  # characters
NUMBERS = {INT16, INT32, INT64}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnHeading:
    """The heading of a column.

    Parameters
    ----------
    name
        Heading.
    doc
        Description.
    is_number
        Whether its cells are numbers, aligned to the right.
    sorts_by_number
        Whether its sort keys are numbers, as for times.
    """

    name: str
    doc: str
    is_number: bool = False
    sorts_by_number: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """A cell of a table.

    Parameters
    ----------
    lines
        Label and text of each line; a line may have no label.
    key
        Sort key; null sorts last in both directions.
    verdict
        The verdict, if it has one.
    """

    lines: Sequence[tuple[str, str]]
    key: int | str | None = None
    verdict: str | None = None

    @property
    def is_long(self) -> bool:
        """Whether it needs a wide column."""
        return any(len(text) > LONG for _, text in self.lines)


def column_cells(
    table: Table, rows: Sequence[Row], names: Sequence[str]
) -> tuple[list[ColumnHeading], list[list[TableCell]]]:
    """Columns of a table, unchanged."""
    columns = [column for name in names for column in table.columns if column.name == name]
    headings = [
        ColumnHeading(
            name=column.name,
            doc=_doc(column),
            is_number=column.type in NUMBERS,
            sorts_by_number=column.type in NUMBERS or column.type == TIME,
        )
        for column in columns
    ]
    return headings, [[_plain(column.name, row[column.name]) for column in columns] for row in rows]


def _doc(column: Column) -> str:
    return f"{column.doc} ({column.unit})" if column.unit else column.doc


def _plain(name: str, value: Any) -> TableCell:
    text = cell_text(value)
    return TableCell(lines=[("", text)], key=_key(value, text), verdict=value if name == "verdict" else None)


def _key(value: Any, text: str) -> int | str | None:
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1000)
    return value if value is None or (isinstance(value, int) and not isinstance(value, bool)) else text


def answer_cells(rows: Sequence[Row], *, now: dt.datetime | None) -> tuple[list[ColumnHeading], list[list[TableCell]]]:
    """Summary of findings: who, where, for how long, why, and what is safe."""
    counted = {"held for", "waiting"}
    headings = [
        ColumnHeading(
            name=name, doc=doc, is_number=name in counted, sorts_by_number=name in counted or name == "transaction"
        )
        for name, doc in ANSWERS
    ]
    return headings, [[make(row, now or row["observed_at"]) for make in MADE.values()] for row in rows]


ANSWERS = (
    ("verdict", "The verdict; explained below."),
    ("partition", "The partition, and the offset at which its LSO is held."),
    ("held for", "How long it has held the LSO, or has been open where it does not hold it yet; times are UTC."),
    ("waiting", "Data records from the LSO to the high watermark; offsets where the log was not read so far."),
    ("transaction", "The producer, and the start offset of its transaction."),
)


def _verdict(row: Row, now: dt.datetime) -> TableCell:
    return TableCell(lines=[("", row["verdict"])], key=row["verdict"], verdict=row["verdict"])


def _partition(row: Row, now: dt.datetime) -> TableCell:
    if row["topic"] is None:
        return TableCell(lines=[("", "all topics")])
    name = f"{printable(row['topic'])}-{row['partition']}"
    held = "held at" if row["queue_position"] == 1 else "LSO"
    lso = [(held, str(row["last_stable_offset"]))] if row["last_stable_offset"] is not None else []
    return TableCell(lines=[("", name), *lso], key=name)


def _held(row: Row, now: dt.datetime) -> TableCell:
    since = row["held_from"] or row["opened_at"]
    if row["held_ms"] is None and since is None:
        return TableCell(lines=[])
    log_transaction = now - since if row["held_ms"] is None else dt.timedelta(milliseconds=row["held_ms"])
    lines = [("", duration(log_transaction)), *([("since", at(since).removesuffix(" UTC"))] if since else [])]
    return TableCell(lines=lines, key=max(0, round(log_transaction.total_seconds() * 1000)))


def _waiting(row: Row, now: dt.datetime) -> TableCell:
    count = row["offsets_held"] if row["records_held"] is None else row["records_held"]
    if count is None:
        return TableCell(lines=[])
    unit = "offset" if row["records_held"] is None else "record"
    groups = [("group", printable(group)) for group in row["groups_held"] or ()]
    return TableCell(lines=[("", f"{count:,} {unit}{'' if count == 1 else 's'}"), *groups], key=count)


def _transaction(row: Row, now: dt.datetime) -> TableCell:
    epoch = "unknown" if row["producer_epoch"] is None else row["producer_epoch"]
    facts = (
        ("id", None if row["transactional_id"] is None else printable(row["transactional_id"])),
        ("producer", None if row["producer_id"] is None else f"{row['producer_id']}, epoch {epoch}"),
        ("from offset", row["start_offset"]),
    )
    return TableCell(lines=[(label, str(value)) for label, value in facts if value is not None], key=row["producer_id"])


def reason_lines(row: Row) -> Iterator[tuple[str, str]]:
    """Lines below a finding: reason, outcome, cause, missing evidence, and remedy."""
    yield "", printable(row["reason"])
    if row.get("outcome") and row["verdict"] not in HEALTHY:
        yield "outcome", f"{row['outcome']}: {OUTCOMES.get(row['outcome'], '')}"
    for label in ("cause", "error"):
        if row[label]:
            yield label, printable(row[label])
    for text in row["missing"]:
        if text != row["error"]:
            yield "missing", printable(text)
    yield "remedy", printable(row["remedy"])
    if row["verdict"] not in HEALTHY or row["cause"]:
        yield "docs", finding_page(row)


MADE: Mapping[str, Callable[[Row, dt.datetime], TableCell]] = {
    "verdict": _verdict,
    "partition": _partition,
    "held for": _held,
    "waiting": _waiting,
    "transaction": _transaction,
}
