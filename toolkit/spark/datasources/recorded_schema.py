"""Samples of the flight recorder for Spark: one table, or all of them in one schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from toolkit.schema import RECORDED, Row
from toolkit.spark.arrow_types import arrow_fields, spark_table, struct_arrays, struct_fields, struct_type

EVERYTHING = "everything"
RECORDED_TABLES = (EVERYTHING, *RECORDED)
"""Values of the option ``table``: all recorded tables together, or one by its name in ``schema.RECORDED``."""


def recorded_schema(table: str) -> StructType:
    """Spark's schema of a recorded table.

    That of ``everything`` has the time of the sample, the name of the row's table, and a struct for each table, which
    is null in the rows of all other tables.
    """
    if table != EVERYTHING:
        return struct_type(RECORDED[table])
    return StructType(
        [
            StructField("sampled_at", TimestampType(), nullable=False),
            StructField("table", StringType(), nullable=False),
            *struct_fields(RECORDED.items()),
        ]
    )


def recorded_table(tables: Mapping[str, Sequence[Row]], table: str) -> pa.Table:
    """Rows of a sample as Arrow data of `recorded_schema`."""
    if table != EVERYTHING:
        return spark_table(RECORDED[table].arrow(tables[table]))
    return pa.concat_tables([_widened(name, RECORDED[name].arrow(tables[name])) for name in RECORDED])


def _widened(name: str, rows: pa.Table) -> pa.Table:
    times = rows["sampled_at"].combine_chunks().cast(TIME)
    columns = [times, pa.repeat(name, len(rows)), *struct_arrays(RECORDED.items(), name, rows)]
    return pa.Table.from_arrays(columns, schema=EVERYTHING_SCHEMA)


TIME = pa.timestamp("us", tz="UTC")
EVERYTHING_SCHEMA = pa.schema(
    [
        pa.field("sampled_at", TIME, nullable=False),
        pa.field("table", pa.string(), nullable=False),
        *arrow_fields(RECORDED.items()),
    ]
)
