"""Tables in a notebook, and their rows as text: statistics, exposure, the visibility of an offset."""

from __future__ import annotations

import datetime as dt
import gzip
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolkit.analysis.diagnosis.evidence_text import at, number
from toolkit.analysis.transaction_owners import prefix_of
from toolkit.errors import UsageError
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema import FINDINGS, TABLES, Row, Table
from toolkit.schema.coerce import Data, one_table, records_of, rows_of, table_of, tables_with
from toolkit.schema.durations import duration
from toolkit.schema.live import Exposure, Finding, GroupLag, OffsetVisibility
from toolkit.schema.log import LogTransaction, TransactionStatistics
from toolkit.schema.table import FLOAT64, INT16, INT32, INT64, MADE_OF, TIME, TableRow, TopicPartition, utc_now
from toolkit.schema.verdict import TONES, Verdict
from toolkit.views.document import Command, Count, Field, Fields, Grid, Paragraph, Part, Section, Value
from toolkit.views.finding_document import (
    age,
    by_source,
    clusters,
    explained_fields,
    finding_groups,
    first_names,
    group_sentences,
    newest,
    partition_name,
    parts_of_groups,
    place,
    summary,
    urgency_key,
)
from toolkit.views.renderers import class_html, package_text, page, text_lines, value_html
from toolkit.views.row_formats import cell_text, count, grid_lines, printable, table_grid

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.actions.plan import Plan, PlanList

PLANS = ("Plan", "PlanList")
COUNTS = ("committed", "aborted", "empty", "undecided", "open")
ALWAYS = {"committed", "aborted", "open"}  # shown even if it is zero
LABELS = {"batches": "batches", "ms": "duration_ms"}
SUMMARY = ("count", "sum", "min", "mean", "max")


def statistic_sections(statistics: Data, *, opened: Iterable[LogTransaction] = ()) -> list[Section]:
    """Statistics, a section for each replica of a partition; those without transactions in one, and the total last.

    `statistics`: ``schema.STATISTICS``. `opened`: transactions without a marker, which are named.
    """
    named: dict[tuple[object, ...], list[LogTransaction]] = {}
    for txn in opened:
        named.setdefault((txn.topic, txn.partition, txn.broker_id), []).append(txn)
    sections = []
    rows = [(record, record.row()) for record in records_of(statistics, TransactionStatistics)]
    busy = [(record, row) for record, row in rows if not record.topic or record.error or any(map(row.get, COUNTS))]
    if (idle := len(rows) - len(busy)) > 1:
        sections.append(Section(title=f"{idle:,} logs without transactions", parts=()))
        rows = busy
    for record, row in rows:
        here = named.get((record.topic, record.partition, record.broker_id), ())
        found = [text for txn in here for text in _open_texts(txn)]
        shown = [kind for kind in COUNTS if row[kind] or kind in ALWAYS]
        fields = [Field(kind, (f"{row[kind]:,}", *(found if kind == "open" else ()))) for kind in shown]
        fields += [Field("error", (record.error,))] if record.error else []
        measured = {label: name for label, name in LABELS.items() if row[f"{name}_count"]}
        sizes = tuple((kind, *(_size(row[f"{name}_{kind}"]) for name in measured.values())) for kind in SUMMARY)
        name = "all" if record.topic is None else f"{record.topic}-{record.partition}"
        title = name if record.broker_id is None else f"{name} (broker {record.broker_id})"
        grids = (Grid(title="", columns=("", *measured), rows=sizes),) if measured else ()
        sections.append(Section(title=title, parts=(Fields(tuple(fields)), *grids)))
    return sections


def _open_texts(txn: LogTransaction) -> Iterator[str]:
    yield f"producer {txn.producer_id} epoch {txn.producer_epoch} from offset {txn.first_offset:,}"
    if txn.start:
        yield f"since {at(txn.start)} by the {txn.start_clock}'s clock"


def _size(value: float) -> object:
    return Count(value) if isinstance(value, int) else round(value, 1)


ASIDE = {"topic", "partition", "offset", "status", "reason", "broker_id", "observed_at"}


def visibility_section(row: Row) -> Section:
    """What is known of an offset; unknown values are left out. `row`: of ``schema.OFFSET_VISIBILITY``."""
    visibility = OffsetVisibility.of(row)
    status = (visibility.status or "unknown").replace("_", " ")
    values = {name: value for name, value in visibility.row().items() if name not in ASIDE and value is not None}
    waits = (
        [_diagnose(TopicPartition(visibility.topic, visibility.partition))]
        if visibility.read_committed is False
        else []
    )
    fields = (
        Field(name.replace("_", " "), ((value,) if isinstance(value, dt.datetime) else cell_text(value),))
        for name, value in values.items()
    )
    return Section(
        title=f"{visibility.topic}-{visibility.partition}@{visibility.offset}",
        lead=status,
        parts=(Paragraph(visibility.reason or "-"), *waits, Fields(tuple(fields))),
    )


def lag_parts(rows: Iterable[Row]) -> list[Part]:
    """The reasons of lags, where the numbers alone mislead: something is held, nothing of a lag is to read, or there is
    no such offset.

    `rows`: of ``schema.GROUP_LAG``.
    """
    fields = []
    lags = records_of(rows, GroupLag)
    are_several = len({each.group_id for each in lags}) > 1
    for lag in lags:
        if lag.reason and (lag.held or lag.beyond_end or (lag.lag and not lag.behind)):
            tp = TopicPartition(lag.topic or "", lag.partition or 0)
            name = f'"{lag.group_id}", {tp}' if are_several else str(tp)
            fields.append(Field(name, (lag.reason, *([_diagnose(tp)] if lag.held else []))))
    return [Fields(tuple(fields), indent=0)] if fields else []


def _diagnose(tp: TopicPartition) -> Command:
    """The command that shows what something waits for."""
    return Command(("kafka-txn", "diagnose", *tp.options))


_STATE_PARTITION = re.compile(rf"{STATE_TOPIC}-(\d+)")
MAX_PREFIXES = 20  # of ids that are named
_EXPOSED = {True: "exposed", False: "not exposed", None: ""}


def exposure_parts(exposure: Data) -> list[Section]:
    """Settings, bugs and clients: one block for all brokers and ids of which the same is said, the exposed first."""
    alike: dict[tuple[object, ...], list[Exposure]] = {}
    for each in records_of(exposure, Exposure):
        means = _STATE_PARTITION.sub(STATE_TOPIC, each.means)
        alike.setdefault((each.subject, each.name, each.value, each.exposed, means, each.error), []).append(each)
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
    said = (
        ("value", () if first.value is None else (first.value,)),
        ("ids", [*of_ids[:MAX_PREFIXES], *([count(more, "more prefix", "more prefixes")] if more > 0 else [])]),
        ("where", [f"{STATE_TOPIC}: {first_names(list(map(str, partitions)))}"] if partitions else ()),
        ("broker", [", ".join(map(str, brokers))] if brokers else ()),
        ("means", (_STATE_PARTITION.sub(STATE_TOPIC, first.means),)),
        ("error", (first.error,) if first.error else ()),
    )
    fields = tuple(Field(label, tuple(values)) for label, values in said if values)
    title = f"{first.subject.replace('_', ' ')}: {first.name}"
    return Section(title=title, lead=_lead(first), parts=(Fields(fields),))


LONG = 40  # characters
NUMBERS = {INT16, INT32, INT64, FLOAT64}


class ColumnHeading(NamedTuple):
    """The heading of a column."""

    name: str
    doc: str
    kind: str = ""  # number; time, whose keys are milliseconds; key: texts with numbers as keys


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """A cell of a table."""

    lines: Sequence[tuple[str, str]]  # label and text of each line; a line may have no label
    key: int | str | None = None  # sort key; null sorts last in both directions
    verdict: str | None = None  # the verdict, if it has one

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
            column.name,
            f"{column.doc} ({column.unit})" if column.unit else column.doc,
            "number" if column.type in NUMBERS else "time" if column.type == TIME else "",
        )
        for column in columns
    ]
    return headings, [[_plain(column.name, row[column.name]) for column in columns] for row in rows]


def _plain(name: str, value: Any) -> TableCell:
    text = cell_text(value)
    return TableCell(lines=[("", text)], key=_key(value, text), verdict=value if name == "verdict" else None)


def _key(value: Any, text: str) -> int | str | None:
    if isinstance(value, dt.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, float):
        return str(value)  # without separators
    return value if value is None or (isinstance(value, int) and not isinstance(value, bool)) else text


ANSWERS = (
    ColumnHeading("verdict", "The verdict; explained below."),
    ColumnHeading("partition", "The partition, and the offset at which its LSO is held."),
    ColumnHeading(
        "held for",
        "How long it has held the LSO, or has been open where it does not hold it yet; times are UTC.",
        "number",
    ),
    ColumnHeading(
        "waiting",
        "Data records from the LSO to the high watermark; offsets where the log was not read so far.",
        "number",
    ),
    ColumnHeading("transaction", "The producer, and the start offset of its transaction.", "key"),
)


def answer_cells(
    findings: Sequence[Finding], *, now: dt.datetime | None
) -> tuple[list[ColumnHeading], list[list[TableCell]]]:
    """Summary of findings: who, where, for how long, why, and what is safe."""
    until = now or newest(findings)
    cells = [_answer_row(finding, until) for finding in findings]
    if len(clusters(named := by_source(findings))) > 1:
        for finding, row in zip(named, cells, strict=True):
            lines = [*row[1].lines, ("cluster", printable(finding.cluster_id or "not known"))]
            row[1] = replace(row[1], lines=lines, key=f"{row[1].key} {finding.cluster_id}")
    return list(ANSWERS), cells


def _answer_row(finding: Finding, now: dt.datetime) -> list[TableCell]:
    """A cell for each of `ANSWERS`."""
    name = printable(partition_name(finding))
    held = "held at" if finding.queue_position == 1 else "LSO"
    lso = [(held, str(finding.last_stable_offset))] if finding.last_stable_offset is not None else []
    since, length = finding.held_from or finding.opened_at, age(finding, now)
    times = [] if length is None else [("", duration(length))]
    if times and since:
        times.append(("since", at(since).removesuffix(" UTC")))
    waiting, unit = finding.records_held, "record"
    if waiting is None:
        waiting, unit = finding.offsets_held, "offset"
    groups = [("group", printable(group)) for group in finding.groups_held or ()]
    transaction = (
        ("id", None if finding.transactional_id is None else printable(finding.transactional_id)),
        (
            "producer",
            None if finding.producer_id is None else f"{finding.producer_id}, epoch {number(finding.producer_epoch)}",
        ),
        ("from offset", finding.start_offset),
    )
    return [
        TableCell(lines=[("", finding.verdict)], key=finding.verdict, verdict=finding.verdict),
        TableCell(lines=[("", name), *lso], key=None if finding.topic is None else name),
        TableCell(lines=times, key=None if length is None else max(0, round(length.total_seconds() * 1000))),
        TableCell(lines=[] if waiting is None else [("", count(waiting, unit)), *groups], key=waiting),
        TableCell(
            lines=[(label, str(value)) for label, value in transaction if value is not None], key=finding.producer_id
        ),
    ]


def reason_lines(finding: Finding) -> Iterator[tuple[str, Value]]:
    """Lines below a finding: what is said of it everywhere."""
    for field in explained_fields(finding):
        for line, value in enumerate(field.values):
            yield "" if line or field.label == "why" else field.label, value


TEXT_WIDTH = 120
TEXT_ROWS = 60
PAGE_ROWS = 50  # drawn at a time; table.js has the same number
MAX_ROWS = 100_000  # in a page; some 30 bytes each, packed
TEMPLATE, SCRIPT = "table.html", "table.js"


def body_html(
    cells: Sequence[TableCell], below: Sequence[tuple[str, Value]], error: str | None, headings: Sequence[ColumnHeading]
) -> str:
    """A row of a table as HTML, with the lines below it; all values are escaped."""
    row = "".join(map(_cell_html, cells, headings))
    start = f'<tr><td class="below" style="text-align:left" colspan="{len(headings)}">'
    rest = f"{start}{_lines_html(below)}</td></tr>" if below else ""
    return f"<tbody{class_html('error' if error else '')}><tr>{row}</tr>{rest}</tbody>"


def _lines_html(lines: Iterable[tuple[str, Value]]) -> str:
    """A line for each value, behind its label if it has one."""
    labelled = ((f"<i>{escape(label)}</i> " if label else "", value_html(value)) for label, value in lines)
    return "".join(f"<div>{label}{value}</div>" for label, value in labelled)


def _cell_html(cell: TableCell, heading: ColumnHeading) -> str:
    styles = {"number": heading.kind == "number", "fixed": bool(heading.kind), "long": cell.is_long}
    (label, text), *more = cell.lines or [("", "")]
    content = value_html(text) if not (label or more) else _lines_html(cell.lines)
    if cell.verdict:
        content = f"<b{class_html(escape(cell.verdict))}>{content}</b>"
    if cell.key is None:
        key = " data-none"
    else:
        key = "" if escape(str(cell.key)) == content else f' data-key="{escape(str(cell.key))}"'
    names = " ".join(name for name, holds in styles.items() if holds)
    return f"<td{class_html(names)}{key}>{content}</td>"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableView:
    """Rows of a table, as HTML in a notebook, otherwise as text."""

    # table, rows: the rows to show
    table: Table
    rows: Sequence[Row]
    # columns to show; null for those with values; for findings, for a summary of each row
    columns: Sequence[str] | None
    now: dt.datetime | None  # time up to which ages are counted; null for the time at which the newest row was observed

    def __repr__(self) -> str:
        more = len(self.rows) - TEXT_ROWS
        if self._is_answer and self.rows:  # an empty selection says nothing of the cluster
            findings = Finding.of_table(FINDINGS.arrow(self.rows))
            groups = finding_groups(findings)
            # the rows may be a selection
            parts = parts_of_groups(groups[:TEXT_ROWS], incomplete=set(map(place, findings)))
            lines = text_lines(parts, width=TEXT_WIDTH)
            more = sum(len(partition) for group in groups[TEXT_ROWS:] for partition in group.partitions)
            end = ["", summary(findings, are_selected=True)]
        else:
            lines, end = (
                grid_lines(table_grid(self.table, self.rows[:TEXT_ROWS], columns=self._names()), widest=LONG),
                [],
            )
        return "\n".join([*lines, *([f"... and {more:,} more rows"] if more > 0 else []), *end])

    def _repr_html_(self) -> str:
        """A table that can be sorted, searched and saved as CSV over all rows, without network access."""
        rows, grouped = self.rows[:MAX_ROWS], list[str]()
        reasons: list[list[tuple[str, Value]]] = [[] for _ in rows]
        if self._is_answer:
            findings = records_of(rows, Finding)
            grouped = group_sentences(finding_groups(findings))
            headings, cells = answer_cells(findings, now=self.now or newest(findings))
            reasons = [list(reason_lines(finding)) for finding in findings]
        else:
            headings, cells = column_cells(self.table, rows, self._names())
        errors = [row.get("error") for row in rows]
        bodies = [body_html(*each, headings) for each in zip(cells, reasons, errors, strict=True)]
        rest = "".join(bodies[PAGE_ROWS:]).encode()
        verdicts_here = {row.get("verdict") for row in rows}
        return page(
            __package__,
            TEMPLATE,
            table=self.table,
            is_answer=self._is_answer,
            groups=grouped,
            headings=headings,
            bodies=bodies[:PAGE_ROWS],
            rest=b64encode(gzip.compress(rest, 6, mtime=0)).decode() if rest else "",
            count=len(rows),
            left_out=len(self.rows) - len(rows),
            colours={verdict: TONES["light"][verdict.tone] for verdict in Verdict},
            verdicts={each: each.sentence for each in Verdict if each in verdicts_here},
            script=package_text(__package__, SCRIPT),
        )

    @property
    def _is_answer(self) -> bool:
        return self.table is FINDINGS and self.columns is None

    def _names(self) -> Sequence[str]:
        """The selected columns, or else those with a value, those of error rows included."""
        if self.columns is not None:
            return self.columns
        with_value = [name for name in self.table.names if any(row[name] not in (None, []) for row in self.rows)]
        return with_value or list(self.table.names)


def show(
    data: Data, table: Table | None = None, *, columns: Sequence[str] | None = None, now: dt.datetime | None = None
) -> TableView:
    """Show a table of the toolkit: sortable, columns explained, verdicts coloured, the most urgent first.

    Parameters
    ----------
    data
        A frame of a declared table, frames of several sources, or rows; some of its columns are enough.
    table
        The table; recognized by its columns if null.
    columns
        Columns to show, in this order; for findings, null shows a summary in each row.
    now
        Time up to which ages are counted; by default the newest ``observed_at``, as in the plots.

    Returns
    -------
    Shown
        With HTML for a notebook, and text for everything else.

    Raises
    ------
    UsageError
        If it is none of `toolkit.schema.TABLES`, or has no such columns.

    Examples
    --------
    >>> show(cluster.findings())  # doctest: +SKIP
    """
    if type(data).__name__ in PLANS:
        raise UsageError("A table is needed, not a plan.", do="Show it by show_plan(plan).")
    data = one_table(data)
    if not hasattr(data, "columns"):  # an iterator is read once
        data = [item.row() if isinstance(item, TableRow) else item for item in cast("Iterable[Row | TableRow]", data)]
    names = _names_in(data)
    known = table or _table_of(data, names, columns or ())
    if known is None:
        raise UsageError(
            "These are not columns of one of the toolkit's tables.",
            do="Show the frame as it is; or name its table: show(frame, schema.LOG_TRANSACTIONS).",
        )
    unknown = [name for name in columns or () if name not in known.names]
    if unknown:
        raise UsageError(f"{known.name} has no column {', '.join(unknown)}.", do=f"It has {', '.join(known.names)}.")
    rows = _finding_rows(data) if known is FINDINGS else rows_of(data, known)
    is_whole = set(known.names if known is not FINDINGS else SUMMARY_COLUMNS) <= set(names)
    selected = columns if columns is not None or is_whole or not names else [n for n in known.names if n in set(names)]
    return TableView(table=known, rows=_by_urgency(rows, now) if known is FINDINGS else rows, columns=selected, now=now)


def _table_of(data: Any, names: Sequence[str], columns: Sequence[str]) -> Table | None:
    """The table that a frame was made of, or that its columns tell; one called rows if several have them."""
    made_of = TABLES.get(getattr(data, "attrs", {}).get(MADE_OF, ""))
    if made_of is not None and set(names) <= set(made_of.names):
        return made_of
    found = table_of(names) or table_of(columns) or _table_in(names) if names else FINDINGS
    is_told = found is None or set(found.names) <= set(names) or len(tables_with(names or columns)) < 2
    return found if found is None or is_told or not names else replace(found, name="rows")


def _table_in(names: Sequence[str]) -> Table | None:
    """The table that has most of these columns and no other one: the rest are of the user's own."""
    whole = (table for table in TABLES.values() if set(table.names) <= set(names))
    return max(whole, key=lambda table: len(table.names), default=None)


def _finding_rows(data: Data) -> list[Row]:
    """Rows of findings; of those without a text or a list that every finding has, it is empty."""
    found = rows_of(data, FINDINGS)
    texts = (("reason", ""), ("remedy", ""), ("verdict", "unknown"))
    empty: Row = dict((*texts, ("missing", []), ("evidence", []), ("observed_at", utc_now())))
    return [{**row, **{name: value for name, value in empty.items() if row[name] is None}} for row in found]


SUMMARY_COLUMNS = {"topic", "partition", "verdict", "reason"}  # without one of these, columns are shown as selected


def _by_urgency(rows: Sequence[Row], now: dt.datetime | None) -> list[Row]:
    findings = records_of(rows, Finding)
    until = now or newest(findings)
    ranked = sorted(zip(findings, rows, strict=True), key=lambda pair: urgency_key(pair[0], until))
    return [row for _, row in ranked]


def _names_in(data: object) -> list[str]:
    columns = getattr(data, "columns", None)
    if columns is not None:
        return [str(name) for name in columns]
    return list(dict.fromkeys(name for row in cast("Iterable[Row]", data) for name in row))


def load(ipython: Any) -> None:
    """Let an IPython shell display frames of declared tables as `show` does, and plans; others stay as in pandas."""
    import pandas as pd

    html = ipython.display_formatter.formatters["text/html"]
    html.for_type(pd.DataFrame, _html)
    for name in PLANS:
        html.for_type_by_name("toolkit.actions.plan", name, _plan_html)


def unload(ipython: Any) -> None:
    """Let pandas display them again."""
    import pandas as pd

    html = ipython.display_formatter.formatters["text/html"]
    for kind in (pd.DataFrame, *(f"toolkit.actions.plan.{name}" for name in PLANS)):
        html.pop(kind, None)


def _plan_html(plan: Plan | PlanList) -> str:
    from toolkit.views.action_document import show_plan

    return show_plan(plan)._repr_html_()


def _html(frame: pd.DataFrame) -> str | None:
    names = {str(name) for name in frame.columns}
    whole = (
        table for table in TABLES.values() if names <= set(table.names) and len(names) > MIN_SHARE * len(table.names)
    )
    table = min(whole, key=lambda table: len(table.names), default=None)
    if table is None:
        return frame._repr_html_()  # type: ignore[operator, no-any-return]
    return show(frame, table)._repr_html_()


MIN_SHARE = 2 / 3  # of a table's columns: a frame without a few of them is still that table
