"""Spark's schemas of declared tables, Arrow data of the types and sizes that Spark requires."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructField, StructType

from toolkit.errors import DecodeError, UsageError
from toolkit.schema import TABLES, Table
from toolkit.spark.spark_errors import each_without_traceback

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Item = TypeVar("Item")


def struct_type(table: Table) -> StructType:
    """The schema of a declared table: names, types, nullability; each field's doc is its comment."""
    types = from_arrow_schema(spark_schema(table.arrow_schema))
    comments = ({"comment": each.doc} for each in table.columns)
    return StructType([StructField(f.name, f.dataType, f.nullable, next(comments)) for f in types])


@cache
def spark_schema(schema: pa.Schema) -> pa.Schema:
    """An Arrow schema with times in microseconds, as Spark requires."""
    return pa.schema([pa.field(field.name, _in_microseconds(field.type), field.nullable) for field in schema])


def spark_table(table: pa.Table) -> pa.Table:
    """Arrow data of a declared table with the types that Spark requires."""
    schema = spark_schema(table.schema)
    if not table.num_rows:
        return schema.empty_table()  # Spark rejects a column without chunks
    columns = zip(table.columns, schema.types, strict=True)
    cast = [column if column.type == type_ else column.cast(type_) for column, type_ in columns]  # most need none
    return pa.Table.from_arrays(cast, schema=schema)


def from_arrow(spark: SparkSession, table: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Arrow data as a DataFrame, in one chunk: classic Spark (4.2) loses the rows after an empty chunk, silently."""
    rows = table.combine_chunks() if table.num_rows else table.schema.empty_table()
    # Connect infers no types from no rows.
    return spark.createDataFrame(rows, from_arrow_schema(table.schema) if schema is None else schema)


def mapped(frame: DataFrame, function: Callable[[pa.Table], pa.Table], schema: StructType | str) -> DataFrame:
    """Apply a function of Arrow tables to the rows, one Arrow batch at a time."""

    @each_without_traceback
    def of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from function(pa.Table.from_batches([batch])).to_batches()

    return frame.mapInArrow(of_batches, schema)


def in_tasks(
    spark: SparkSession,
    items: Sequence[Item],
    function: Callable[[Item], Iterable[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """The rows of a function of each item, which is a task."""

    @each_without_traceback
    def of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from function(items[number])
        freeze_modules()

    return spark.range(0, len(items), 1, max(1, len(items))).mapInArrow(of_task, schema)


@cache
def _freeze() -> None:
    gc.collect()
    gc.freeze()


def freeze_modules() -> None:
    """Exclude the loaded modules from garbage collection, once per worker.

    A reused worker collects garbage after each task. Scanning all modules takes longer than reading 100 MB of a log.
    """
    if TaskContext.get() is not None:
        _freeze()


def _in_microseconds(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(type_):
        return pa.list_(_in_microseconds(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _in_microseconds(field.type)) for field in type_])
    return type_


ROWS = 1 << 16
TORN = "TORN_TAIL"
NAMES = re.compile(r"(?:^|; )([A-Z_]+):")  # an error of statistics lists several


def selected(schema: StructType, table: str, whole: StructType) -> pa.Schema:
    """The Arrow schema of the requested columns of a table.

    Raises UsageError if a column is not in the table, or has another type there.
    """
    declared = {field.name: field.dataType for field in whole}
    for field in schema:
        if declared.get(field.name) != field.dataType:
            type_name = declared[field.name].simpleString() if field.name in declared else "no such column"
            raise UsageError(
                f"The schema has {field.name} {field.dataType.simpleString()}; the table {table} has {type_name}.",
                do="Load it without a schema, then select or cast columns.",
            )
    types = spark_schema(TABLES[table].arrow_schema) if table in TABLES else to_arrow_schema(whole)
    return pa.schema([pa.field(field.name, types.field(field.name).type, field.nullable) for field in schema])


def without_damage(tables: Iterable[pa.Table], mode: str) -> Iterator[pa.Table]:
    """Keep rows with `error` (PERMISSIVE), drop them (DROPMALFORMED), or fail (FAILFAST).

    Raises DecodeError in FAILFAST, for the first row with an `error` other than a torn end.
    """
    for table in tables:
        if mode == "DROPMALFORMED":
            yield table.filter(pc.is_null(table["error"]))
            continue
        if mode == "FAILFAST":
            _refuse_damage(table)
        yield table


def _refuse_damage(table: pa.Table) -> None:
    for row in table.filter(pc.is_valid(table["error"])).to_pylist():
        if set(NAMES.findall(row["error"])) != {TORN}:
            raise DecodeError(
                f"{_location(row)}: {row['error']}",
                position=row.get("position") or 0,
                do="Remove the mode FAILFAST to get damaged ranges as rows with error.",
            )


def _location(row: dict[str, Any]) -> str:
    partition = f"{row['topic']}-{row['partition']}" if row.get("topic") else "the selection"
    at = "" if row.get("position") is None else f" at {row['position']}"
    return f"{row.get('file') or partition} cannot be read{at}"


def record_batches(tables: Iterable[pa.Table], columns: pa.Schema, *, rows: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Record batches of about `rows` rows: many small ones would cost Spark more time.

    `columns`: the requested columns, with the types to cast to.
    """
    waiting: list[pa.Table] = []
    count = 0
    for table in tables:
        waiting.append(table.select(columns.names).cast(columns))
        count += table.num_rows
        if count >= rows:
            yield from _joined(waiting, rows)
            waiting, count = [], 0
    yield from _joined(waiting, rows)


def _joined(tables: list[pa.Table], rows: int) -> Iterator[pa.RecordBatch]:
    if tables:
        yield from pa.concat_tables(tables).combine_chunks().to_batches(max_chunksize=rows)
