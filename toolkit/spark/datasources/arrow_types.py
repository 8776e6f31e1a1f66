"""Spark's schemas of declared tables, and Arrow data of exactly the types that Spark requires."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types
from pyspark.sql.types import DataType, StructField, StructType

from toolkit.schema import Table
from toolkit.schema.table import ListOf, StructOf, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

PLAIN: dict[str, DataType] = {
    "int8": types.ByteType(),
    "int16": types.ShortType(),
    "int32": types.IntegerType(),
    "int64": types.LongType(),
    "float64": types.DoubleType(),
    "string": types.StringType(),
    "bool": types.BooleanType(),
    "binary": types.BinaryType(),
    "timestamp[ms, UTC]": types.TimestampType(),
}


def struct_type(table: Table) -> StructType:
    """The schema of a declared table: names, types, nullability; each field's doc is its comment."""
    return StructType([StructField(c.name, _spark_type(c.type), c.nullable, {"comment": c.doc}) for c in table.columns])


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """An Arrow schema with times in microseconds, as Spark requires."""
    import pyarrow as pa  # not needed for Spark's schema alone

    return pa.schema([pa.field(field.name, _in_microseconds(field.type), field.nullable) for field in schema])


def spark_table(table: pa.Table) -> pa.Table:
    """Arrow data of a declared table with the types that Spark requires."""
    schema = spark_schema(table.schema)
    return table.cast(schema) if table.num_rows else schema.empty_table()  # Spark rejects a column without chunks


def mapped(frame: DataFrame, function: Callable[[pa.Table], pa.Table], schema: StructType) -> DataFrame:
    """Apply a function of Arrow tables to the rows, one Arrow batch at a time."""

    def of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            yield from function(pa.Table.from_batches([batch])).to_batches()

    return frame.mapInArrow(of_batches, schema)


def _spark_type(type_: Type) -> DataType:
    match type_:
        case ListOf(item):
            return types.ArrayType(_spark_type(item))
        case StructOf(fields):
            return types.StructType([types.StructField(name, _spark_type(inner)) for name, inner in fields])
    return PLAIN[type_]


def _in_microseconds(type_: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_list(type_):
        return pa.list_(_in_microseconds(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(field.name, _in_microseconds(field.type)) for field in type_])
    return type_
