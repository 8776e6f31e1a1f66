"""What a table is: columns, types, units, key and order; what a frame, an Arrow table and rows derive from it."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Row = Mapping[str, Any]


class TypedRow(Protocol):
    """A row as a record: a `toolkit.schema.record.TableRow`."""

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
        return f"--topic {shlex.quote(self.topic)} --partition {self.partition}"


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


@dataclass(frozen=True, slots=True)
class Table:
    """A table: what one row is, its columns, the key of every row, and the order of rows."""

    name: str
    row: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    sort: tuple[str, ...]
    version: int = 1  # of its columns in JSON, as `tests.schemas` stores them; raised when one of them changes

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return [column.name for column in self.columns]

    @property
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
        arrays = [pa.array(values, type=type_) for values, type_ in zip(columns, schema.types, strict=True)]
        return self._sorted(pa.Table.from_arrays(arrays, schema=schema))

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
        return table.sort_by([(name, "ascending") for name in self.sort]) if self.sort else table

    def rows(self, frame: pd.DataFrame) -> list[Row]:
        """A frame of this table back to rows of plain Python values; null is ``None``."""
        rows: list[Row] = self.of_frame(frame).to_pylist()
        return rows

    def of_frame(self, frame: pd.DataFrame) -> pa.Table:
        """A frame of this table as an Arrow table."""
        import pyarrow as pa

        frame = frame.copy(deep=False)
        frame.attrs = {}  # a frame of Spark Connect has its plan in there, and Arrow warns that it keeps none of it
        return pa.Table.from_pandas(frame, schema=self.arrow_schema, preserve_index=False)


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
