"""Typed rows: a record class declares a table, and each instance is one of its rows.

>>> @declares("lag", row="the lag of a partition", key=("topic",), sort=("topic",))
... @dataclass(frozen=True, slots=True, kw_only=True)
... class Lag(TableRow):
...     topic: Annotated[str, "Topic name."]
...     lag: Annotated[Int64 | None, "Offsets to read.", Unit("offsets")] = None
>>> Lag(topic="orders").row()
{'topic': 'orders', 'lag': None}
"""

import datetime as dt
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum, StrEnum, auto
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

from toolkit.schema.table import (
    BINARY,
    BOOL,
    EPOCH,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TOPIC_PARTITIONS,
    Column,
    ListOf,
    StructOf,
    Table,
    TopicPartition,
    Type,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Width:
    """The Arrow type of an integer."""

    type: str


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a column."""

    name: str


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
    _structs: ClassVar[Mapping[str, type["TableRow"]]]
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
        for name, enum in cls.enums.items():
            if values[name] is not None:
                values[name] = enum(values[name])
        return cls(**values)

    @classmethod
    def of_record(cls, record: "TableRow", **values: Any) -> Self:
        """The record with these values, and those that a record of another table has in columns of the same names."""
        return cls(**{name: getattr(record, name) for name in cls._names if name in record._numbers} | values)

    @classmethod
    def of_table(cls, table: "pa.Table") -> list[Self]:
        """The records of an Arrow table, as by `of_columns`: converted by column, in a third of the time."""
        known, nulls = set(table.column_names), [None] * table.num_rows
        columns = (
            column_values(table[name], cls._structs.get(name), cls.enums.get(name)) if name in known else nulls
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


R = TypeVar("R", bound=type[TableRow])


def declares(
    name: str, *, row: str, key: tuple[str, ...] = (), sort: tuple[str, ...] = (), version: int = 1
) -> Callable[[R], R]:
    """Derive the table that a record class declares.

    `name`, `row`, `key`, `sort`, `version`: as for `Table`; for a struct inside a record, only what one is.
    """

    def declare(cls: R) -> R:
        hints = typing.get_type_hints(cls, include_extras=True)
        columns: list[Column] = []
        structs: dict[str, type[TableRow]] = {}
        for field in fields(cls):  # type: ignore[arg-type]
            column, struct = _column(field.name, hints[field.name])
            columns.append(column)
            structs |= {field.name: struct} if struct else {}
        cls.table, cls._structs = Table(name, row, tuple(columns), key, sort, version), structs
        cls._names = tuple(cls.table.names)
        cls._numbers = {name: number for number, name in enumerate(cls._names)}
        cls._required = tuple(column.name for column in columns if not column.nullable)
        cls._values = attrgetter(*cls._names)
        cls._lists = tuple(column.name for column in columns if isinstance(column.type, ListOf))
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
    return Column(name, width or _arrow(inner), doc, nullable=nullable, unit=unit), _struct(inner)


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
        return StructOf(tuple((column.name, column.type) for column in hint.table.columns))
    if typing.get_origin(hint) is Annotated:
        width: Width = typing.get_args(hint)[1]
        return width.type
    return STRING if isinstance(hint, type) and issubclass(hint, StrEnum) else PLAIN[hint]


def column_values(
    column: "pa.ChunkedArray", struct: type[TableRow] | None = None, enum: type[StrEnum] | None = None
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


def _struct_values(lists: "pa.ListArray", struct: type[TableRow]) -> list[tuple[TableRow, ...] | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    items = struct.of_table(pa.Table.from_batches([pa.RecordBatch.from_struct_array(lists.flatten())]))
    lengths = pc.list_value_length(lists).to_pylist()
    ends = accumulate(length or 0 for length in lengths)
    return [None if n is None else tuple(items[end - n : end]) for n, end in zip(lengths, ends, strict=True)]


def _pair(value: Any) -> TopicPartition:
    return TopicPartition(**value) if isinstance(value, Mapping) else TopicPartition(*value)
