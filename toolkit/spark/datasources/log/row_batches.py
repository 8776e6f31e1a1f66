"""Tables as a data source yields them: the columns and types that Spark requires, in batches of one size."""

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
from toolkit.spark.datasources.arrow_types import spark_schema
from toolkit.spark.datasources.log.log_options import INTERNAL
from toolkit.spark.datasources.log.log_schema import schema_of

__all__ = ["record_batches", "selected", "without_damage"]

ROWS = 1 << 16
TORN = "TORN_TAIL"
NAMES = re.compile(r"(?:^|; )([A-Z_]+):")  # figures of a log name all that could not be read of it


def selected(schema: StructType, table: str) -> pa.Schema:
    """The Arrow schema of the columns that are wanted of a table.

    Raises
    ------
    UsageError
        If one is not of the table, or has another type there.
    """
    declared = {field.name: field.dataType for field in schema_of(table)}
    for field in schema:
        if declared.get(field.name) != field.dataType:
            of_it = declared[field.name].simpleString() if field.name in declared else "no such column"
            raise UsageError(
                f"The schema has {field.name} {field.dataType.simpleString()}; the table {table} has {of_it}.",
                do="Load without a schema, and select or cast then.",
            )
    types = to_arrow_schema(schema_of(table)) if table in INTERNAL else spark_schema(TABLES[table].arrow_schema)
    return pa.schema([pa.field(field.name, types.field(field.name).type, field.nullable) for field in schema])


def without_damage(tables: Iterable[pa.Table], mode: str) -> Iterator[pa.Table]:
    """Rows with `error` as they are (PERMISSIVE), left out (DROPMALFORMED), or the end of it all (FAILFAST).

    Raises
    ------
    DecodeError
        In FAILFAST, at the first row with `error` that is more than a torn end.
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
                do="Without the mode FAILFAST, damaged ranges are rows with error.",
            )


def _location(row: dict[str, Any]) -> str:
    of_log = f"{row['topic']}-{row['partition']}" if row.get("topic") else "the selection"
    at = "" if row.get("position") is None else f" at {row['position']}"
    return f"{row.get('file') or of_log} cannot be read{at}"


def record_batches(tables: Iterable[pa.Table], columns: pa.Schema, *, rows: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Batches of about so many rows: each costs Spark some time, however small it is.

    Parameters
    ----------
    tables
        Tables of one kind.
    columns
        Those that are wanted, with the types that they are cast to.
    rows
        How many rows a batch has at most.
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
