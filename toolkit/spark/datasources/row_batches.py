"""Tables as record batches of one size, with the columns and types that Spark requires."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from toolkit.errors import DecodeError, UsageError
from toolkit.schema import TABLES
from toolkit.spark.arrow_types import spark_schema

ROWS = 1 << 16
TORN = "TORN_TAIL"
NAMES = re.compile(r"(?:^|; )([A-Z_]+):")  # an error of statistics lists several


def selected(schema: StructType, table: str, whole: StructType) -> pa.Schema:
    """The Arrow schema of the requested columns of a table.

    Raises UsageError if a column is not in the table, or has another type there.
    `schema`: the requested columns.
    `table`: name of the table, declared or internal.
    `whole`: all its columns.
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

    `tables`: tables with the same columns.
    `columns`: the requested columns, with the types to cast to.
    `rows`: maximum number of rows per batch.
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
