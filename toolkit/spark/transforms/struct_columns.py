"""Rows of several tables in one DataFrame: a struct for each table, null in the rows of the other tables."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from toolkit.schema import Table
from toolkit.spark.datasources.arrow_types import spark_schema, spark_table, struct_type


def struct_fields(tables: Iterable[tuple[str, Table]]) -> list[StructField]:
    """Spark's field for each table; nested fields are nullable, as pyarrow could not cast null structs otherwise."""
    return [StructField(name, StructType([_nullable(field) for field in struct_type(table)])) for name, table in tables]


def arrow_fields(tables: Iterable[tuple[str, Table]]) -> list[pa.Field]:
    """`struct_fields` for Arrow."""
    return [pa.field(name, _struct(table)) for name, table in tables]


def struct_arrays(tables: Iterable[tuple[str, Table]], name: str, rows: pa.Table) -> list[pa.Array]:
    """An array for each table: that of the named table has the rows, all others are null.

    Parameters
    ----------
    tables
        Names and tables, in the order of the fields.
    name
        Name of the rows' table.
    rows
        Rows of that table, from `Table.arrow`.
    """
    return [_array(table, rows if each == name else None, len(rows)) for each, table in tables]


def _array(table: Table, rows: pa.Table | None, count: int) -> pa.Array:
    if rows is None:
        return pa.nulls(count, _struct(table))
    columns = spark_table(rows).combine_chunks().columns
    arrays = [column.chunk(0) if column.num_chunks else pa.nulls(0, column.type) for column in columns]
    return pa.StructArray.from_arrays(arrays, fields=list(_struct(table)))


def _nullable(field: StructField) -> StructField:
    return StructField(field.name, field.dataType, metadata=field.metadata)


def _struct(table: Table) -> pa.StructType:
    return pa.struct([field.with_nullable(True) for field in spark_schema(table.arrow_schema)])
