"""Convert user input: a frame, rows or records of a table, one finding, a time; and what an answer is about."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, TypeVar, cast

from toolkit.errors import UsageError
from toolkit.schema import FINDINGS, TABLES
from toolkit.schema.table import Row, Table, TableRow

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How many were read, and how many could not be."""

    seen: int
    not_seen: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBrokers:
    """Ids of the brokers that answered, or whose files were read, and of those that did not."""

    seen: Sequence[int] = ()
    not_seen: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What an answer is about; a kind of thing that it is not about is null."""

    partitions: Seen | None = None
    brokers: SeenBrokers | None = None
    transactional_ids: Seen | None = None
    # of what was read for findings, else null: ids that are open, but on none of these partitions; and whether the ids
    # are open ones only, as coordinators were not asked for others
    open_elsewhere: int | None = None
    open_only: bool | None = None
    missing: Sequence[str] = ()  # what may be hidden, and why, a sentence each

    def text(self, principal: str | None = None) -> str | None:
        """As an all-clear names it: ``57 partitions of brokers 1, 2; 12 transactional ids, 1 of them open elsewhere``.

        Null of what was not read for findings. `principal`: who read it; null if that is not known.
        """
        if self.partitions is None or self.brokers is None or self.transactional_ids is None or self.open_only is None:
            return None
        number, ids = self.partitions.seen, self.transactional_ids.seen
        brokers = ", ".join(map(str, self.brokers.seen))
        of = f"broker{'s' if len(self.brokers.seen) > 1 else ''} {brokers}" if brokers else "an unknown broker"
        texts = [
            f"{number:,} partition{'' if number == 1 else 's'} of {of}",
            f"{ids:,} {'open ' if self.open_only else ''}transactional id{'' if ids == 1 else 's'}"
            + (f", {self.open_elsewhere:,} of them open elsewhere" if self.open_elsewhere else ""),
        ]
        return "; ".join([*texts, *([f"as {principal}"] if principal else [])])

    @classmethod
    def of_rows(cls, table: Table, rows: Iterable[Row], *, missing: Sequence[str] = ()) -> Scope:
        """What rows are about: seen if a row without an error names it, and not seen if only rows with one do.

        `missing`: what may be hidden; the error of a row that names nothing is added.
        """
        kinds = [("topic", "partition"), ("broker_id",), ("transactional_id",)]
        kinds = [kind for kind in kinds if {*kind} <= {*table.names}]
        seen: dict[tuple[str, ...], set[Any]] = {kind: set() for kind in kinds}
        failed: dict[tuple[str, ...], set[Any]] = {kind: set() for kind in kinds}
        of_nothing: dict[str, None] = {}
        for row in rows:
            error = row.get("error")
            names = {kind: tuple(row.get(column) for column in kind) for kind in kinds}
            names = {kind: name for kind, name in names.items() if None not in name}
            for kind, name in names.items():
                (failed if error else seen)[kind].add(name)
            if error and not names:
                of_nothing[error] = None
        numbers = {kind: Seen(seen=len(seen[kind]), not_seen=len(failed[kind] - seen[kind])) for kind in kinds}
        brokers = None
        if (of_broker := ("broker_id",)) in seen:
            answered, silent = seen[of_broker], failed[of_broker] - seen[of_broker]
            brokers = SeenBrokers(seen=[n for (n,) in sorted(answered)], not_seen=[n for (n,) in sorted(silent)])
        return cls(
            partitions=numbers.get(("topic", "partition")),
            brokers=brokers,
            transactional_ids=numbers.get(("transactional_id",)),
            missing=[*missing, *of_nothing],
        )


Frames: TypeAlias = "pd.DataFrame | Iterable[pd.DataFrame] | Mapping[str, pd.DataFrame]"
Data: TypeAlias = "Frames | Iterable[Row] | Iterable[TableRow] | None"
"""A frame of a declared table or those of several sources, or rows or records of it."""

R = TypeVar("R", bound=TableRow)

OffsetSpec: TypeAlias = SupportsIndex | dt.datetime | str
"""An offset, a time, or the name of either or of an offset of the partition."""
FindingLike: TypeAlias = "Row | pd.Series[Any] | pd.DataFrame"
"""A row of ``schema.FINDINGS``, or a row of its frame."""


def one_table(data: Any, table: Table = FINDINGS) -> Any:
    """Frames of several sources as one, also by name; raises UsageError for a source, which has tables by name."""
    if isinstance(data, Mapping):
        data = list(data.values())
    if hasattr(data, "columns") or isinstance(data, Iterable):
        if not isinstance(data, list | tuple) or not data or not all(hasattr(each, "iloc") for each in data):
            return data
        import pandas as pd

        return pd.concat(data, ignore_index=True)
    raise UsageError(
        f"A table is needed, not a {type(data).__name__}.", do=f"Call its method of that name: source.{table.name}()."
    )


def rows_of(data: Data, table: Table) -> list[Row]:
    """Rows of a table from a frame, several frames, rows or records; a missing column is null.

    Raises UsageError if they are of another table.
    """
    if data is None:
        return []
    data = one_table(data, table)
    nulls: dict[str, object] = dict.fromkeys(table.names)
    if hasattr(data, "columns"):
        return [{**nulls, **row} for row in _of_frame(data, table).to_pylist()]
    items = [item.row() if isinstance(item, TableRow) else item for item in cast("Iterable[Row | TableRow]", data)]
    check_table(items[0] if items else (), table)
    return [{**nulls, **item} for item in items]


def records_of(data: Data, record: type[R], *, some_columns: bool = False) -> list[R]:
    """Records of a table from what `rows_of` takes; what a row lacks is null, even where a table has none.

    `some_columns`: whether a frame may lack columns; else what is not there would read as nothing.
    Raises UsageError if they are of another table, or a frame lacks columns.
    """
    if data is None:
        return []
    data = one_table(data, record.table)
    if hasattr(data, "columns"):
        return record.of_table(_of_frame(data, record.table, is_whole=not some_columns))
    items = list(cast("Iterable[Row | TableRow]", data))
    if items and not isinstance(items[0], record):
        check_table(items[0].table.names if isinstance(items[0], TableRow) else items[0], record.table)
    return [item if isinstance(item, record) else record.of_columns(cast("Row", item)) for item in items]


def _of_frame(frame: Any, table: Table, *, is_whole: bool = False) -> pa.Table:
    """The table's columns that a frame has: a null in one that is never null would be refused."""
    check_table(list(map(str, frame.columns)), table)
    lacking = [name for name in table.names if name not in frame.columns]
    if is_whole and lacking and len(frame):
        raise UsageError(
            f"The whole table {table.name} is needed; this frame lacks {', '.join(lacking[:5])}"
            f"{' and others' if lacking[5:] else ''}.",
            do=f"Select rows, not columns; of an older one: frame.reindex(columns=schema.{table.name.upper()}.names).",
        )
    known = tuple(column for column in table.columns if column.name in frame.columns)
    return replace(table, columns=known).of_frame(frame)


OF_SAMPLES = ("sampled_at", "phase")  # columns that a recording adds
IN_MANY_TABLES = {"topic", "partition", "broker_id", "observed_at", "error"}


def tables_with(names: Collection[str]) -> list[Table]:
    """The declared tables that have these columns."""
    return [table for table in TABLES.values() if set(names) <= set(table.names)]


def table_of(names: Collection[str]) -> Table | None:
    """The declared table that has these columns, the one with the fewest other columns; null if there is none."""
    return min(tables_with(names), key=lambda table: len(table.names), default=None) if names else None


def check_table(names: Collection[str], table: Table) -> None:
    """Raise UsageError if columns are of another table: its rows would read as rows with nothing in them."""
    if set(names) <= {*table.names, *OF_SAMPLES}:
        return
    other = table_of(names)
    if other is not None and set(other.names) != set(names) and len(tables_with(names)) > 1:
        other = None  # these columns tell no table
    if other is not None or not set(names) & set(table.names) - IN_MANY_TABLES:
        found = f"this is {other.name}" if other is not None else f"the columns here are {', '.join(sorted(names)[:5])}"
        raise UsageError(
            f"The table {table.name} is needed; {found}.", do=f"toolkit.schema.{table.name.upper()} has its columns."
        )


def finding_row(finding: FindingLike) -> Row:
    """One row of ``schema.FINDINGS`` as a dict of plain values.

    Raises UsageError if the input is not exactly one finding.
    """
    if isinstance(finding, Mapping):
        return finding
    import pandas as pd

    frame = finding if isinstance(finding, pd.DataFrame) else finding.to_frame().T
    if len(frame) != 1:
        raise UsageError(f"One finding is needed, not {len(frame)}.", do="Choose one: findings.iloc[0].")
    return FINDINGS.rows(frame)[0]


def in_utc(time: dt.datetime | str) -> dt.datetime:
    """Convert a time, or its text in ISO 8601, to UTC. Raises UsageError if it is none, or has no time zone."""
    if isinstance(time, str):
        text = time
        try:
            time = dt.datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(f"{text!r} is not a time.", do="Write it as 2026-11-21T12:00:00Z.") from None
        if time.tzinfo is None:
            do = "Write it as 2026-11-21T12:00:00Z, or with +02:00 at its end."
            raise UsageError(f"The time {text} has no zone.", do=do)
    if not isinstance(time, dt.datetime):
        do = "Pass a datetime with its time zone, or text such as 2026-11-21T12:00:00Z."
        raise UsageError(f"{time!r} is not a time.", do=do)
    if time.tzinfo is None:
        raise UsageError(f"The time {time} has no time zone.", do="Add one: datetime.now(timezone.utc).")
    return time.astimezone(dt.UTC)
