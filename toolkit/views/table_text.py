"""Statistics of transactions, and the visibility of an offset, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.schema import Row
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.log import LogTransaction, MeasureStatistics
from toolkit.schema.offsets import OffsetVisibility
from toolkit.views.findings_text import wrap
from toolkit.views.row_formats import cell_text, printable

COLUMNS = ("min", "mean", "p50", "p95", "p99", "max")
ENDINGS = {"commit": "committed", "abort": "aborted", "empty": "empty", "open": "open", "undecided": "undecided"}
ALWAYS = {"commit", "abort", "open"}  # shown even if it is zero
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
    by_replica = groupby(records_of(statistics, MeasureStatistics), key=_replica)
    blocks = [list(_block(replica, list(group), open_lines.get(replica, ()))) for replica, group in by_replica]
    return [line for block in blocks for line in [*block, ""]][:-1]


def _replica(record: MeasureStatistics | LogTransaction) -> Replica:
    return record.topic, record.partition, record.broker_id


def _block(replica: Replica, statistics: Sequence[MeasureStatistics], open_lines: Iterable[str]) -> Iterator[str]:
    topic, partition, broker_id = replica
    name = "all" if topic is None else f"{printable(topic)}-{partition}"
    yield f"{name} (broker {broker_id})" if broker_id is not None else name
    if any(each.measure for each in statistics):
        yield " " * LABEL + "".join(f"{column:>{CELL}}" for column in COLUMNS)
    for outcome, group in groupby(statistics, key=lambda each: each.outcome):
        measures = list(group)
        transactions = measures[0].transactions
        if transactions or outcome in ALWAYS:
            yield f"  {ENDINGS[outcome]:<{LABEL - 2}}{transactions:>{CELL},}"
        if outcome == "open":
            yield from open_lines
        for each in measures:
            if each.measure:
                unit = "ms" if each.measure == "duration_ms" else each.measure
                values = (each.min, each.mean, each.p50, each.p95, each.p99, each.max)
                yield f"    {unit:<{LABEL - 4}}{''.join(f'{_number(value):>{CELL}}' for value in values)}"


def _open_line(txn: LogTransaction) -> str:
    since = f", since {at(txn.start)} by the {txn.start_clock}'s clock" if txn.start else ""
    return f"    producer {txn.producer_id} epoch {txn.producer_epoch} from offset {txn.first_offset:,}{since}"


def _number(value: float | None) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


ASIDE = {"topic", "partition", "offset", "status", "reason", "broker_id", "observed_at"}
LONGEST = max(len(name) for name in OffsetVisibility.table.names)


def visibility_lines(row: Row | OffsetVisibility, *, width: int | None = None) -> Iterator[str]:
    """Lines about an offset; unknown values are left out.

    `row`: a row or record of ``schema.OFFSET_VISIBILITY``. `width`: columns of the terminal; null for no limit.
    """
    visibility = row if isinstance(row, OffsetVisibility) else OffsetVisibility.of(row)
    status = (visibility.status or "unknown").replace("_", " ")
    yield f"{cell_text(visibility.topic)}-{visibility.partition}@{visibility.offset}  {status}"
    yield from wrap(cell_text(visibility.reason), before="  ", width=width)
    for name, value in visibility.row().items():
        if name not in ASIDE and value is not None:
            yield f"  {name.replace('_', ' '):<{LONGEST}}  {cell_text(value)}"
