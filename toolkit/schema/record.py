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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Self, TypeVar

from toolkit.schema.table import (
    BOOL,
    FLOAT64,
    INT8,
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

__all__ = ["Int8", "Int16", "Int32", "Int64", "TableRow", "TopicPartition", "Unit", "declares"]


@dataclass(frozen=True, slots=True)
class Width:
    """The Arrow type of an integer."""

    type: str


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a column."""

    name: str


Int8 = Annotated[int, Width(INT8)]
Int16 = Annotated[int, Width(INT16)]
Int32 = Annotated[int, Width(INT32)]
Int64 = Annotated[int, Width(INT64)]

PLAIN: Mapping[Any, Type] = {str: STRING, bool: BOOL, float: FLOAT64, dt.datetime: TIME}


class TableRow:
    """A row of a table; immutable, changed by a copy (`dataclasses.replace`).

    Each field is a column, annotated with its type, its meaning and its unit. A list is a tuple, a struct is another
    record, and a column that may be null is ``| None``.
    """

    __slots__ = ()
    table: ClassVar[Table]
    _structs: ClassVar[Mapping[str, type["TableRow"]]]
    _names: ClassVar[tuple[str, ...]]
    _columns: ClassVar[frozenset[str]]
    _required: ClassVar[tuple[str, ...]]  # columns that are never null
    _lists: ClassVar[tuple[str, ...]]  # columns of lists; pairs and structs among them
    _pairs: ClassVar[tuple[str, ...]]  # columns of topic partitions

    def row(self) -> dict[str, Any]:
        """The record as plain values: its form at the borders (JSON, Arrow, pandas, Spark)."""
        found = {name: getattr(self, name) for name in self._names}
        for name in self._lists:
            if found[name] is not None:
                found[name] = list(found[name])
        for name in self._pairs:
            if found[name] is not None:
                found[name] = [{"topic": topic, "partition": partition} for topic, partition in found[name]]
        for name in self._structs:
            if found[name] is not None:
                found[name] = [each.row() for each in found[name]]
        return found

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """The record of a row; columns that it lacks are null, so that rows of an older version can be read.

        Raises
        ------
        TypeError
            If it lacks a column that is never null.
        """
        is_complete = row.keys() == cls._columns  # as most are: no look-up per column, of hundreds of thousands of rows
        values: dict[str, Any] = {**row} if is_complete else {name: row.get(name) for name in cls._names}
        for name in cls._required:
            if values[name] is None:
                raise TypeError(f"A row of {cls.table.name} needs {name}.")
        for name in cls._lists:
            if values[name] is not None:
                values[name] = tuple(values[name])
        for name in cls._pairs:
            if values[name] is not None:
                values[name] = tuple(map(_pair, values[name]))
        for name, struct in cls._structs.items():
            if values[name] is not None:
                values[name] = tuple(each if isinstance(each, struct) else struct.of(each) for each in values[name])
        return cls(**values)


R = TypeVar("R", bound=type[TableRow])


def declares(name: str, *, row: str, key: tuple[str, ...] = (), sort: tuple[str, ...] = ()) -> Callable[[R], R]:
    """Derive the table that a record class declares.

    Parameters
    ----------
    name, row, key, sort
        As for `Table`; for a struct inside a record, only what one is.
    """

    def declare(cls: R) -> R:
        hints = typing.get_type_hints(cls, include_extras=True)
        columns: list[Column] = []
        structs: dict[str, type[TableRow]] = {}
        for field in fields(cls):  # type: ignore[arg-type]
            column, struct = _column(field.name, hints[field.name])
            columns.append(column)
            structs |= {field.name: struct} if struct else {}
        cls.table, cls._structs = Table(name, row, tuple(columns), key=key, sort=sort), structs
        cls._names, cls._columns = tuple(cls.table.names), frozenset(cls.table.names)
        cls._required = tuple(column.name for column in columns if not column.nullable)
        cls._lists = tuple(column.name for column in columns if isinstance(column.type, ListOf))
        cls._pairs = tuple(column.name for column in columns if column.type == TOPIC_PARTITIONS)
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
    return PLAIN[hint]


def _pair(value: Any) -> TopicPartition:
    return (value["topic"], value["partition"]) if isinstance(value, Mapping) else (value[0], value[1])
