"""Statistics of transactions, and the visibility of an offset, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.schema import OFFSET_VISIBILITY, Row
from toolkit.views.findings_text import wrap
from toolkit.views.row_formats import cell_text, printable

COLUMNS = ("min", "mean", "p50", "p95", "p99", "max")
ENDINGS = {"commit": "committed", "abort": "aborted", "empty": "empty", "open": "open", "undecided": "undecided"}
ALWAYS = {"commit", "abort", "open"}  # shown even if it is zero
LABEL, CELL = 16, 14

Replica = tuple[str | None, int | None, int | None]


def statistic_lines(rows: Iterable[Row], *, opened: Iterable[Row] = ()) -> list[str]:
    """Rows of ``schema.STATISTICS`` as lines, a block for each replica of a partition.

    Parameters
    ----------
    rows
        The statistics.
    opened
        Rows of ``schema.LOG_TRANSACTIONS`` without a marker, which are listed below the number of open transactions.
    """
    named: dict[Replica, list[Row]] = {}
    for row in opened:
        named.setdefault(_replica(row), []).append(row)
    blocks = [list(_block(list(group), named.get(replica, ()))) for replica, group in groupby(rows, key=_replica)]
    return [line for block in blocks for line in [*block, ""]][:-1]


def _replica(row: Row) -> Replica:
    return row["topic"], row["partition"], row.get("broker_id")


def _block(rows: Sequence[Row], opened: Sequence[Row]) -> Iterator[str]:
    topic, partition, broker_id = _replica(rows[0])
    name = "all" if topic is None else f"{printable(topic)}-{partition}"
    yield f"{name} (broker {broker_id})" if broker_id is not None else name
    if any(row.get("measure") for row in rows):
        yield " " * LABEL + "".join(f"{column:>{CELL}}" for column in COLUMNS)
    for outcome, group in groupby(rows, key=lambda row: row["outcome"]):
        figures = list(group)
        transactions = figures[0]["transactions"]
        if transactions or outcome in ALWAYS:
            yield f"  {ENDINGS[outcome]:<{LABEL - 2}}{transactions:>{CELL},}"
        if outcome == "open":
            yield from map(_open_line, opened)
        for row in figures:
            if row.get("measure"):
                unit = "ms" if row["measure"] == "duration_ms" else row["measure"]
                cells = "".join(f"{_number(row[column]):>{CELL}}" for column in COLUMNS)
                yield f"    {unit:<{LABEL - 4}}{cells}"


def _open_line(row: Row) -> str:
    since = f", since {at(row['start'])} by the {row['start_clock']}'s clock" if row["start"] else ""
    who = f"producer {row['producer_id']} epoch {row['producer_epoch']}"
    return f"    {who} from offset {row['first_offset']:,}{since}"


def _number(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


ASIDE = {"topic", "partition", "offset", "status", "reason", "broker_id", "observed_at"}
LONGEST = max(len(name) for name in OFFSET_VISIBILITY.names)


def visibility_lines(row: Row, *, width: int | None = None) -> Iterator[str]:
    """Lines of a row of ``schema.OFFSET_VISIBILITY``; unknown values are left out.

    Parameters
    ----------
    row
        The row.
    width
        Columns of the terminal; null for no limit.
    """
    status = (row["status"] or "unknown").replace("_", " ")
    yield f"{cell_text(row['topic'])}-{row['partition']}@{row['offset']}  {status}"
    yield from wrap(cell_text(row["reason"]), before="  ", width=width)
    for name in OFFSET_VISIBILITY.names:
        if name not in ASIDE and row[name] is not None:
            yield f"  {name.replace('_', ' '):<{LONGEST}}  {cell_text(row[name])}"
