"""What a table is: columns, types, units, key and order; what a frame, an Arrow table and rows derive from it.

A record class declares a table, and each instance is one of its rows.

>>> @declares("lag", key=("topic",))
... @dataclass(frozen=True, slots=True, kw_only=True)
... class Lag(TableRow):
...     "The lag of a partition."
...     topic: Annotated[str, "Topic name."]
...     lag: Annotated[Int64 | None, "Offsets to read.", Unit("offsets")] = None
>>> Lag(topic="orders").row()
{'topic': 'orders', 'lag': None}
"""

from __future__ import annotations

import datetime as dt
import typing
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum, StrEnum, auto
from functools import cached_property
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Protocol, Self, TypedDict, TypeVar

from toolkit.command_line import command_line

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


Row = Mapping[str, Any]


class TypedRow(Protocol):
    """A row as a record: a `toolkit.schema.table.TableRow`."""

    def row(self) -> dict[str, Any]:
        """The record as plain values."""


R = TypeVar("R", bound=TypedRow)


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def flags(self) -> str:
        """The flags that name it in a command, as a shell takes them: ``--topic orders --partition 0``."""
        return command_line(self.options)

    @property
    def options(self) -> tuple[str, ...]:
        """The same as arguments."""
        return ("--topic", self.topic, "--partition", str(self.partition))


class LogColumns(TypedDict):
    topic: str | None
    partition: int | None
    broker_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogId:
    """The columns that identify a log on every row; null if unknown."""

    topic: str | None = None
    partition: int | None = None
    broker_id: int | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def tp(self) -> TopicPartition:
        """The partition; of an unknown topic, one that no checkpoint has."""
        return TopicPartition(self.topic or "", self.partition or 0)

    @property
    def columns(self) -> LogColumns:
        return {"topic": self.topic, "partition": self.partition, "broker_id": self.broker_id}


UNKNOWN_LOG = LogId()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The partitions that an observation is about; all by default."""

    topics: Container[str] | None = None  # of these topics only; null for all
    partitions: Container[TopicPartition] | None = None  # these only; null for all
    without: Container[TopicPartition] = ()  # those that another observation is about

    def __contains__(self, tp: TopicPartition) -> bool:
        return (
            (self.topics is None or tp.topic in self.topics)
            and (self.partitions is None or tp in self.partitions)
            and tp not in self.without
        )


EVERYTHING = Selection()


class Error(NamedTuple):
    """What a column ``error`` says: a name of Kafka's or ours, and a text."""

    code: str
    text: str = ""

    @classmethod
    def of(cls, error: str | None) -> Error:
        """The error of a column; without a colon, all of it is the code."""
        code, _, text = (error or "").partition(":")
        return cls(code, text.strip())

    def __str__(self) -> str:
        return f"{self.code}: {self.text}" if self.text else self.code


class TransactionKey(NamedTuple):
    """What identifies a transaction on a partition; without the epoch, as one transaction may have several."""

    topic: str | None
    partition: int | None
    producer_id: int | None
    start_offset: int | None


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list type."""

    item: Type


@dataclass(frozen=True, slots=True)
class StructOf:
    """A struct type: names and types of its fields."""

    fields: tuple[tuple[str, Type], ...]


Type = str | ListOf | StructOf  # plain names, so that a command that only prints rows need not import Arrow

INT8, INT16, INT32, INT64 = "int8", "int16", "int32", "int64"
FLOAT64, STRING, BOOL, BINARY = "float64", "string", "bool", "binary"
TIME = "timestamp[ms, UTC]"
TOPIC_PARTITIONS = ListOf(StructOf((("topic", STRING), ("partition", INT32))))


def arrow_type(type_: Type) -> pa.DataType:
    """The Arrow type of a column's type."""
    import pyarrow as pa

    match type_:
        case ListOf(item):
            return pa.list_(arrow_type(item))
        case StructOf(fields):
            return pa.struct([pa.field(name, arrow_type(inner)) for name, inner in fields])
        case "timestamp[ms, UTC]":
            return pa.timestamp("ms", tz="UTC")
    return pa.type_for_alias(type_)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, Arrow type, whether it may be null, its unit and what it means."""

    name: str
    type: Type
    doc: str
    nullable: bool = True
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """A table: what one row is, its columns, the key of every row, and the order of rows."""

    name: str
    row: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    sort: tuple[str, ...]
    version: int = 1  # of its columns in JSON, as `tests.schemas` stores them; raised when one of them changes

    @cached_property
    def names(self) -> list[str]:
        """Column names in order."""
        return [column.name for column in self.columns]

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The table as an Arrow schema; nullability and docs included."""
        import pyarrow as pa

        fields = [pa.field(c.name, arrow_type(c.type), nullable=c.nullable) for c in self.columns]
        return pa.schema([field.with_metadata({"doc": c.doc}) for field, c in zip(fields, self.columns, strict=True)])

    def arrow(self, rows: Iterable[Row] | Iterable[TypedRow]) -> pa.Table:
        """Rows or records to an Arrow table in key order; a field that a row lacks is null.

        Raises
        ------
        KeyError
            If a row has a field that the table does not declare.
        """
        import pyarrow as pa

        found: list[Any] = list(rows)
        is_of_records = bool(found) and not isinstance(found[0], Mapping)
        columns = type(found[0]).columns(found) if is_of_records else self._columns_of_rows(found)
        schema = self.arrow_schema
        kept = type(found[0])._tables if is_of_records else ()
        arrays = [
            list_array(values, field.type) if field.name in kept else pa.array(values, type=field.type)
            for values, field in zip(columns, schema, strict=True)
        ]
        return self._sorted(pa.Table.from_arrays(arrays, schema=schema))

    def struct_array(self, rows: Iterable[Row] | Iterable[TypedRow]) -> pa.StructArray:
        """Rows or records as a column of a record has them (`RowsOf`)."""
        return self.arrow(rows).combine_chunks().to_struct_array().combine_chunks()

    def _columns_of_rows(self, rows: list[Row]) -> list[list[Any]]:
        names = self.names
        known = set(names)
        for row in rows:
            if not row.keys() <= known:
                raise KeyError(f"{self.name} has no column {sorted(row.keys() - known)}")
        return [[row.get(name) for row in rows] for name in names]

    def frame(self, rows: Iterable[Row] | Iterable[TypedRow] | Iterable[pa.Table] = ()) -> pd.DataFrame:
        """Rows, records, or Arrow tables of this schema, to a DataFrame with the declared columns, dtypes and order."""
        import pandas as pd
        import pyarrow as pa

        found: list[Any] = list(rows)
        table = self._joined(found) if found and isinstance(found[0], pa.Table) else self.arrow(found)
        frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
        frame.attrs[MADE_OF] = self.name  # stays in a selection of it: two columns do not tell a table
        return frame

    def ordered(self, rows: Iterable[Row] | Iterable[TypedRow] | Iterable[pa.Table]) -> list[Row]:
        """Rows, or those of records or Arrow tables, with every column, in the table's order; an unknown sorts last."""
        found: list[Any] = list(rows)
        if found and hasattr(found[0], "to_pylist"):
            found = self._joined(found).to_pylist()
        elif found and not isinstance(found[0], Mapping):
            found = [record.row() for record in found]
        names, count = self.names, len(self.columns)
        whole = [row if len(row) == count else {**dict.fromkeys(names), **row} for row in found]
        return sorted(whole, key=lambda row: [(row[name] is None, row[name]) for name in self.sort])

    def in_order(self, records: Iterable[R]) -> list[R]:
        """Records in the table's order; an unknown sorts last."""
        return sorted(records, key=lambda each: [((value := getattr(each, name)) is None, value) for name in self.sort])

    def _joined(self, tables: list[pa.Table]) -> pa.Table:
        import pyarrow as pa

        return self._sorted(pa.concat_tables([self.arrow_schema.empty_table(), *tables]))

    def _sorted(self, table: pa.Table) -> pa.Table:
        return table.sort_by([(name, "ascending") for name in self.sort]) if self.sort and len(table) > 1 else table

    def rows(self, frame: pd.DataFrame) -> list[Row]:
        """A frame of this table back to rows of plain Python values; null is ``None``."""
        rows: list[Row] = self.of_frame(frame).to_pylist()
        return rows

    def of_frame(self, frame: pd.DataFrame) -> pa.Table:
        """A frame of this table as an Arrow table; what a time has below the milliseconds is cut off."""
        import pandas as pd
        import pyarrow as pa

        frame = frame.copy(deep=False)
        for name in frame:
            if pd.api.types.is_datetime64_any_dtype(frame[name]):
                frame[name] = frame[name].dt.floor("ms")
        frame.attrs = {}  # a frame of Spark Connect has its plan in there, and Arrow warns that it keeps none of it
        return pa.Table.from_pandas(frame, schema=self.arrow_schema, preserve_index=False)


MADE_OF = "kafka_txn_table"

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
LAST_TIME = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, in ms: a producer may write any number as a time


def utc(milliseconds: int | None) -> dt.datetime | None:
    """Kafka's epoch milliseconds as a UTC time; Kafka's -1, and times beyond the year 9999, are null."""
    if milliseconds is None or not 0 <= milliseconds <= LAST_TIME:
        return None
    return EPOCH + dt.timedelta(milliseconds=milliseconds)


def utc_now() -> dt.datetime:
    """This machine's time in milliseconds, as all times: what is recorded is what was observed."""
    now = dt.datetime.now(dt.UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


@dataclass(frozen=True, slots=True)
class Width:
    """The Arrow type of an integer."""

    type: str


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a column."""

    name: str


@dataclass(frozen=True, slots=True)
class RowsOf:
    """The table of a column of rows that a record has as a ``pa.StructArray``, as they may be many."""

    table: Table


class Merge(Enum):
    """What a column of a record has once another record of the same thing is merged into it."""

    OWN = auto()  # its own, known or not; the default
    KNOWN = auto()  # its own if that is known, else the other's
    OPEN = auto()  # as KNOWN while it is open: the state of now
    ALL = auto()  # its own entries, and then the other's
    DECISION = auto()  # its own: a decision is one whole, and only another decision replaces it


Int16 = Annotated[int, Width(INT16)]
Int32 = Annotated[int, Width(INT32)]
Int64 = Annotated[int, Width(INT64)]

PLAIN: Mapping[Any, Type] = {str: STRING, bool: BOOL, float: FLOAT64, bytes: BINARY, dt.datetime: TIME}


class TableRow:
    """A row of a table; immutable, changed by a copy (`dataclasses.replace`).

    Each field is a column, annotated with its type, its meaning and its unit. A list is a tuple, a struct is another
    record, and a column that may be null is ``| None``.
    """

    __slots__ = ()
    table: ClassVar[Table]
    _structs: ClassVar[Mapping[str, type[TableRow]]]
    _tables: ClassVar[Mapping[str, Table]]  # of columns of rows that stay Arrow arrays
    _names: ClassVar[tuple[str, ...]]
    _numbers: ClassVar[Mapping[str, int]]  # of the columns, by name
    _required: ClassVar[tuple[str, ...]]  # columns that are never null
    _values: ClassVar[Any]  # an attrgetter of all columns
    _lists: ClassVar[tuple[str, ...]]  # columns of lists; pairs and structs among them
    _pairs: ClassVar[tuple[str, ...]]  # columns of topic partitions
    enums: ClassVar[Mapping[str, type[StrEnum]]]  # columns of names that have a type of their own
    policies: ClassVar[Mapping[str, Merge]]  # of each column, where records are merged

    def row(self) -> dict[str, Any]:
        """The record as plain values: its form at the borders (JSON, Arrow, pandas, Spark)."""
        found: dict[str, Any] = dict(zip(self._names, self._values(self), strict=True))
        for name in self._lists:
            if found[name] is not None:
                found[name] = list(found[name])
        for name in self._pairs:
            if found[name] is not None:
                found[name] = [{"topic": topic, "partition": partition} for topic, partition in found[name]]
        for name in self._structs:
            if found[name] is not None:
                found[name] = [each.row() for each in found[name]]
        for name in self._tables:
            if found[name] is not None:
                found[name] = found[name].to_pylist()
        for name in self.enums:
            if found[name] is not None:
                found[name] = str(found[name])
        return found

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """The record of a row; columns that it lacks are null: the audit trail has no nulls.

        Raises TypeError if it lacks a column that is never null.
        """
        for name in cls._required:
            if row.get(name) is None:
                raise TypeError(f"A row of {cls.table.name} needs {name}.")
        return cls.of_columns(row)

    @classmethod
    def of_columns(cls, row: Mapping[str, Any]) -> Self:
        """The record of some columns, as a frame may have; the others are null, even where the table never is."""
        values: dict[str, Any] = {name: row.get(name) for name in cls._names}
        for name in cls._lists:
            if values[name] is not None:
                values[name] = tuple(values[name])
        for name in cls._pairs:
            if values[name] is not None:
                values[name] = tuple(map(_pair, values[name]))
        for name, struct in cls._structs.items():
            if values[name] is not None:
                values[name] = tuple(each if isinstance(each, struct) else struct.of(each) for each in values[name])
        for name, table in cls._tables.items():
            if isinstance(values[name], list):
                values[name] = table.struct_array(values[name])
        for name, enum in cls.enums.items():
            if values[name] is not None:
                values[name] = enum(values[name])
        return cls(**values)

    @classmethod
    def of_record(cls, record: TableRow, **values: Any) -> Self:
        """The record with these values, and those that a record of another table has in columns of the same names."""
        return cls(**{name: getattr(record, name) for name in cls._names if name in record._numbers} | values)

    @classmethod
    def of_table(cls, table: pa.Table) -> list[Self]:
        """The records of an Arrow table, as by `of_columns`: converted by column, in a third of the time."""
        known, nulls = set(table.column_names), [None] * table.num_rows
        columns = (
            nulls
            if name not in known
            else struct_arrays(table[name])
            if name in cls._tables
            else column_values(table[name], cls._structs.get(name), cls.enums.get(name))
            for name in cls._names
        )
        return [cls(**dict(zip(cls._names, values, strict=True))) for values in zip(*columns, strict=True)]

    @classmethod
    def columns(cls, records: Sequence[Self]) -> list[list[Any]]:
        """The values of each column, in the table's order, as Arrow takes them: a struct is a tuple."""
        columns = [list(map(attrgetter(name), records)) for name in cls._names]
        for name, struct in cls._structs.items():
            lists = columns[cls._numbers[name]]
            values: Callable[[Any], Any] = TableRow.row if struct._structs else struct._values
            columns[cls._numbers[name]] = [None if each is None else list(map(values, each)) for each in lists]
        return columns


DeclaredRow = TypeVar("DeclaredRow", bound=type[TableRow])


def declares(
    name: str, *, key: tuple[str, ...] = (), sort: tuple[str, ...] | None = None, version: int = 1
) -> Callable[[DeclaredRow], DeclaredRow]:
    """Derive the table that a record class declares; what one row is, is the first sentence of its docstring.

    `name`, `key`, `sort`, `version`: as for `Table`, sorted by its key if nothing else is said; a struct has a name.
    """

    def declare(cls: DeclaredRow) -> DeclaredRow:
        said = " ".join((cls.__doc__ or "").partition("\n\n")[0].split()).rstrip(".")
        row = said[:1].lower() + said[1:]
        hints = typing.get_type_hints(cls, include_extras=True)
        columns: list[Column] = []
        structs: dict[str, type[TableRow]] = {}
        for field in fields(cls):  # type: ignore[arg-type]
            column, struct = _column(field.name, hints[field.name])
            columns.append(column)
            structs |= {field.name: struct} if struct else {}
        cls.table, cls._structs = Table(name, row, tuple(columns), key, key if sort is None else sort, version), structs
        cls._names = tuple(cls.table.names)
        cls._tables = {name: found for name in cls._names if (found := _rows_of(hints[name]))}
        cls._numbers = {name: number for number, name in enumerate(cls._names)}
        cls._required = tuple(column.name for column in columns if not column.nullable)
        cls._values = attrgetter(*cls._names)
        cls._lists = tuple(
            column.name for column in columns if isinstance(column.type, ListOf) and column.name not in cls._tables
        )
        cls._pairs = tuple(column.name for column in columns if column.type == TOPIC_PARTITIONS)
        cls.enums = {name: enum for name in cls._names if (enum := _enum(hints[name]))}
        notes = {name: typing.get_args(hints[name]) for name in cls._names}
        cls.policies = {name: next((n for n in notes[name] if isinstance(n, Merge)), Merge.OWN) for name in cls._names}
        return cls

    return declare


def _column(name: str, hint: Any) -> tuple[Column, type[TableRow] | None]:
    type_, *notes = typing.get_args(hint)
    doc = next(each for each in notes if isinstance(each, str))
    unit = next((each.name for each in notes if isinstance(each, Unit)), "")
    width = next((each.type for each in notes if isinstance(each, Width)), None)  # of a plain Annotated, flattened
    members = [each for each in typing.get_args(type_) if each is not type(None)]
    nullable = type(None) in typing.get_args(type_)
    inner = members[0] if nullable else type_
    found = _rows_of(hint)
    type_of_column = width or (_arrow(inner) if found is None else ListOf(_struct_of(found)))
    return Column(name, type_of_column, doc, nullable=nullable, unit=unit), _struct(inner)


def _rows_of(hint: Any) -> Table | None:
    return next((each.table for each in typing.get_args(hint) if isinstance(each, RowsOf)), None)


def _struct_of(table: Table) -> StructOf:
    return StructOf(tuple((column.name, column.type) for column in table.columns))


def _struct(hint: Any) -> type[TableRow] | None:
    item = typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else None
    return item if isinstance(item, type) and issubclass(item, TableRow) else None


def _enum(hint: Any) -> type[StrEnum] | None:
    type_ = typing.get_args(hint)[0]
    known = [each for each in typing.get_args(type_) or [type_] if isinstance(each, type) and issubclass(each, StrEnum)]
    return known[0] if known else None


def _arrow(hint: Any) -> Type:
    if hint == TopicPartition:
        return StructOf((("topic", STRING), ("partition", INT32)))
    if typing.get_origin(hint) is tuple:
        return ListOf(_arrow(typing.get_args(hint)[0]))
    if isinstance(hint, type) and issubclass(hint, TableRow):
        return _struct_of(hint.table)
    if typing.get_origin(hint) is Annotated:
        width: Width = typing.get_args(hint)[1]
        return width.type
    return STRING if isinstance(hint, type) and issubclass(hint, StrEnum) else PLAIN[hint]


def column_values(
    column: pa.ChunkedArray, struct: type[TableRow] | None = None, enum: type[StrEnum] | None = None
) -> list[Any]:
    """The values of an Arrow column as fields of records have them.

    `column`: the column.
    `struct`: the record of its structs; null if it has none.
    `enum`: the type of its names; null for other texts.
    """
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):  # Arrow looks up the time zone of each
        milliseconds = column.cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_pylist()
        return [None if each is None else EPOCH + dt.timedelta(milliseconds=each) for each in milliseconds]
    if struct is not None:
        return _struct_values(column.combine_chunks(), struct)
    values: list[Any] = column.to_pylist()
    if enum is not None:
        return [None if value is None else enum(value) for value in values]
    if not pa.types.is_list(column.type):
        return values
    item = _pair if pa.types.is_struct(column.type.value_type) else None
    return [None if value is None else tuple(map(item, value) if item else value) for value in values]


def struct_arrays(column: pa.ChunkedArray) -> list[pa.StructArray | None]:
    """The rows in each list of a column, copied: a slice is pickled with the whole column; null where it has none."""
    import pyarrow as pa

    return [
        each.values.take(pa.array(range(len(each.values)), pa.int64())) if each.is_valid else None for each in column
    ]


def list_array(values: Sequence[pa.StructArray | None], type_: pa.ListType) -> pa.ListArray:
    """A column of lists, from the rows in each of them; null where it has none."""
    import pyarrow as pa

    ends = [0, *accumulate(0 if each is None else len(each) for each in values)]
    offsets = [None if each is None else end for each, end in zip(values, ends, strict=False)]
    rows = [each.cast(type_.value_type) for each in values if each is not None]
    if not rows:
        return pa.nulls(len(values), type_)
    items = pa.concat_arrays(rows)
    return pa.ListArray.from_arrays(pa.array([*offsets, ends[-1]], pa.int32()), items).cast(type_)


def _struct_values(lists: pa.ListArray, struct: type[TableRow]) -> list[tuple[TableRow, ...] | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    items = struct.of_table(pa.Table.from_batches([pa.RecordBatch.from_struct_array(lists.flatten())]))
    lengths = pc.list_value_length(lists).to_pylist()
    ends = accumulate(length or 0 for length in lengths)
    return [None if n is None else tuple(items[end - n : end]) for n, end in zip(lengths, ends, strict=True)]


def _pair(value: Any) -> TopicPartition:
    return TopicPartition(**value) if isinstance(value, Mapping) else TopicPartition(*value)
