"""Statistics of transactions, and the visibility of an offset, as text for a terminal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.schema import Row
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.log import LogTransaction, TransactionStatistics
from toolkit.schema.offsets import OffsetVisibility
from toolkit.views.document import Command, Field, Fields, Paragraph, Part, Section, with_commands
from toolkit.views.row_formats import cell_text, printable

COUNTS = ("committed", "aborted", "empty", "undecided", "open")
ALWAYS = {"committed", "aborted", "open"}  # shown even if it is zero
SUMMARY = ("count", "sum", "min", "mean", "max")
LABEL, CELL = 16, 14

Replica = tuple[str | None, int | None, int | None]


def statistic_lines(statistics: Data, *, opened: Data = ()) -> list[str]:
    """Statistics as lines, a block for each replica of a partition.

    `statistics`: ``schema.STATISTICS``.
    `opened`: ``schema.LOG_TRANSACTIONS`` without a marker, which are listed below the number of open transactions.
    """
    open_lines: dict[Replica, list[str]] = {}
    for txn in records_of(opened, LogTransaction):
        open_lines.setdefault(_replica(txn), []).append(_open_line(txn))
    records = records_of(statistics, TransactionStatistics)
    blocks = [list(_block(record, open_lines.get(_replica(record), ()))) for record in records]
    return [line for block in blocks for line in [*block, ""]][:-1]


def _replica(record: TransactionStatistics | LogTransaction) -> Replica:
    return record.topic, record.partition, record.broker_id


def _block(record: TransactionStatistics, open_lines: Iterable[str]) -> Iterator[str]:
    name = "all" if record.topic is None else f"{printable(record.topic)}-{record.partition}"
    yield name if record.broker_id is None else f"{name} (broker {record.broker_id})"
    row = record.row()
    for count in COUNTS:
        if row[count] or count in ALWAYS:
            yield f"  {count:<{LABEL - 2}}{row[count]:>{CELL},}"
    yield from open_lines
    if record.batches_count:
        yield " " * LABEL + "".join(f"{column:>{CELL}}" for column in SUMMARY)
    for measure, label in (("batches", "batches"), ("duration_ms", "ms")):
        if row[f"{measure}_count"]:
            values = (row[f"{measure}_{column}"] for column in SUMMARY)
            yield f"  {label:<{LABEL - 2}}{''.join(f'{_number(value):>{CELL}}' for value in values)}"


def _open_line(txn: LogTransaction) -> str:
    since = f", since {at(txn.start)} by the {txn.start_clock}'s clock" if txn.start else ""
    return f"    producer {txn.producer_id} epoch {txn.producer_epoch} from offset {txn.first_offset:,}{since}"


def _number(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


ASIDE = {"topic", "partition", "offset", "status", "reason", "broker_id", "observed_at"}


def visibility_section(row: Row) -> Section:
    """What is known of an offset; unknown values are left out. `row`: of ``schema.OFFSET_VISIBILITY``."""
    visibility = OffsetVisibility.of(row)
    status = (visibility.status or "unknown").replace("_", " ")
    values = {name: value for name, value in visibility.row().items() if name not in ASIDE and value is not None}
    fields = (
        Field(name.replace("_", " "), ((value,) if isinstance(value, dt.datetime) else cell_text(value),))
        for name, value in values.items()
    )
    return Section(
        title=f"{visibility.topic}-{visibility.partition}@{visibility.offset}",
        lead=status,
        parts=(*reason_parts(visibility.reason), Fields(tuple(fields))),
    )


def reason_parts(reason: str | None) -> list[Part]:
    """A reason, and the commands in it."""
    return [each if isinstance(each, Command) else Paragraph(each) for each in with_commands(reason or "-")]
