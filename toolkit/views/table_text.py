"""Statistics of transactions, exposure, and the visibility of an offset, as text for a terminal."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator

from toolkit.analysis.coordinator.transaction_owners import prefix_of
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.live import Exposure, OffsetVisibility
from toolkit.schema.log import LogTransaction, TransactionStatistics
from toolkit.views.document import Command, Field, Fields, Paragraph, Part, Section, with_commands
from toolkit.views.finding_groups import first_names
from toolkit.views.row_formats import cell_text, count, printable

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
    for kind in COUNTS:
        if row[kind] or kind in ALWAYS:
            yield f"  {kind:<{LABEL - 2}}{row[kind]:>{CELL},}"
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


_STATE_PARTITION = re.compile(rf"{STATE_TOPIC}-(\d+)")
MAX_PREFIXES = 20  # of ids that are named
_EXPOSED = {True: "exposed", False: "not exposed", None: ""}


def exposure_parts(exposure: Data) -> list[Section]:
    """Settings, bugs and clients: one block for all brokers and ids of which the same is said, the exposed first."""
    alike: dict[tuple[object, ...], list[Exposure]] = {}
    for each in records_of(exposure, Exposure):
        name = () if each.subject == "prefix" else (each.name, each.value)
        means = _STATE_PARTITION.sub(STATE_TOPIC, each.means)
        alike.setdefault((each.subject, *name, each.exposed, means, each.error), []).append(each)
    ranks = {True: 0, None: 1, False: 2}
    groups = sorted(alike.values(), key=lambda group: ranks[group[0].exposed] + 2 * (_lead(group[0]) == ""))
    return [_exposure_section(group) for group in groups]


def _lead(exposed: Exposure) -> str:
    return "not known" if exposed.exposed is None and exposed.error else _EXPOSED[exposed.exposed]


def _exposure_section(group: list[Exposure]) -> Section:
    first = group[0]
    brokers = sorted({each.broker_id for each in group if each.broker_id is not None})
    ids: dict[str, list[str]] = {}
    for each in group:
        if (name := each.transactional_id) is not None:
            ids.setdefault(prefix_of(name), []).append(f'"{name}"')
    by_prefix = sorted(((f'"{prefix}"', names) for prefix, names in ids.items()), key=lambda pair: -len(pair[1]))
    of_ids = [f"{count(len(names), 'id')} of {prefix}: {first_names(names, 3)}" for prefix, names in by_prefix]
    more = len(of_ids) - MAX_PREFIXES
    partitions = sorted({int(each) for row in group for each in _STATE_PARTITION.findall(row.means)})
    named = [f'"{each.name}": {each.value}' for each in group] if first.subject == "prefix" else []
    values = () if named or first.value is None else (first.value,)
    said = (
        ("value", values),
        ("prefix", named),
        ("ids", [*of_ids[:MAX_PREFIXES], *([count(more, "more prefix", "more prefixes")] if more > 0 else [])]),
        ("where", [f"{STATE_TOPIC}: {first_names(list(map(str, partitions)))}"] if partitions else ()),
        ("broker", [", ".join(map(str, brokers))] if brokers else ()),
        ("means", (_STATE_PARTITION.sub(STATE_TOPIC, first.means),)),
        ("error", (first.error,) if first.error else ()),
    )
    fields = tuple(Field(label, tuple(values)) for label, values in said if values)
    title = first.subject.replace("_", " ") + ("" if named else f": {first.name}")
    return Section(title=title, lead=_lead(first), parts=(Fields(fields),))
