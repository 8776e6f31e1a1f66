"""Samples of the flight recorder for Spark: one table, or all of them in one schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from toolkit.schema import RECORDED, Row
from toolkit.spark.types import spark_schema, spark_table, struct_type

__all__ = ["EVERYTHING", "RECORDED_TABLES", "recorded_schema", "recorded_table"]

EVERYTHING = "everything"
RECORDED_TABLES = (EVERYTHING, *RECORDED)
"""What may be asked for: all tables in one schema, or one by its name in ``schema.RECORDED``."""


def recorded_schema(table: str) -> StructType:
    """Spark's schema of a recorded table.

    That of ``everything`` has the time of the sample, the name of the table that the row is of, and a struct for each
    table, null in the rows of all others.
    """
    if table != EVERYTHING:
        return struct_type(RECORDED[table])
    leading = [
        StructField("sample", TimestampType(), nullable=False),
        StructField("table", StringType(), nullable=False),
    ]
    return StructType([*leading, *(StructField(name, _nullable(struct_type(each))) for name, each in RECORDED.items())])


def _nullable(struct: StructType) -> StructType:
    """With fields that may be null: pyarrow casts no struct that is null, but has fields that may not be."""
    return StructType([StructField(field.name, field.dataType, metadata=field.metadata) for field in struct])


def recorded_table(tables: Mapping[str, Sequence[Row]], table: str) -> pa.Table:
    """Rows of a sample as Arrow data of `recorded_schema`."""
    if table != EVERYTHING:
        return spark_table(RECORDED[table].arrow(tables[table]))
    return pa.concat_tables([_widened(name, tables[name]) for name in RECORDED])


def _widened(name: str, rows: Sequence[Row]) -> pa.Table:
    flat = spark_table(RECORDED[name].arrow(rows)).combine_chunks()
    columns = [flat["sample"], pa.repeat(name, len(flat)), *(_struct(each, flat, name) for each in RECORDED)]
    return pa.Table.from_arrays(columns, schema=_EVERYTHING_SCHEMA)


def _struct(column: str, flat: pa.Table, name: str) -> pa.Array:
    type_ = _EVERYTHING_SCHEMA.field(column).type
    if column != name:
        return pa.nulls(len(flat), type_)
    arrays = [each.chunk(0) if each.num_chunks else pa.nulls(0, each.type) for each in flat.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(type_))


_EVERYTHING_SCHEMA = pa.schema(
    [
        pa.field("sample", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        *(
            pa.field(name, pa.struct([field.with_nullable(True) for field in spark_schema(each.arrow_schema)]))
            for name, each in RECORDED.items()
        ),
    ]
)
