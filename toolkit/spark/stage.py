"""Rows of several tables in one DataFrame: what one pass over logs gives is written once, and shared out then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from toolkit.schema import HISTORIES, LSO_TIMELINE, SPANS, Column, Table
from toolkit.schema.table import BOOL, INT32, INT64, STRING, TIME
from toolkit.spark.types import spark_schema, spark_table, struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["IS_FINAL", "LOG", "STAGE", "STATE", "rows_of", "stage_rows"]

LOG, IS_FINAL = "log", "is_final"
"""Columns of every row of a log: which log, and whether the next run keeps the row."""

STATE = Table(
    "state",
    "what a run of the pipeline remembers of a log, for the next run",
    (
        Column("log", STRING, "The log, or what else is remembered by this name.", nullable=False),
        Column("topic", STRING, "Topic."),
        Column("partition", INT32, "Partition."),
        Column("broker_id", INT32, "Broker whose log it is; null where several may have sent it."),
        Column("log_end_offset", INT64, "Offset up to before which it was read."),
        Column("leader_epoch", INT32, "Highest leader epoch of its batches; -1 if not known."),
        Column("is_damaged", BOOL, "Whether something of it could not be read, a torn end apart."),
        Column("is_unread", BOOL, "Whether a file of it could not be opened: it is read again as a whole."),
        Column("bytes_read", INT64, "Size of the batches that were read last.", unit="bytes"),
        Column("listing", STRING, "Digest of its files when they were listed."),
        Column("topic_id", STRING, "Id of the topic."),
        Column("latest", TIME, "Newest time in it."),
        Column("is_held", BOOL, "Whether somebody holds its LSO, or has held it."),
        Column("remembered", "binary", "What is open, and who held the LSO."),
    ),
    key=("log",),
    sort=("log",),
)

STAGED: Mapping[str, Table] = {each.name: each for each in (SPANS, LSO_TIMELINE, HISTORIES, STATE)}


def _nullable(struct: StructType) -> StructType:
    return StructType([StructField(field.name, field.dataType) for field in struct])


STAGE = StructType(
    [
        StructField("table", StringType()),
        StructField(LOG, StringType()),
        StructField(IS_FINAL, BooleanType()),
        *(StructField(name, _nullable(struct_type(table))) for name, table in STAGED.items()),
    ]
)
"""Spark's schema: the name of the table that a row is of, its log, and a struct for each table, null for all others."""

STAGE_SCHEMA = pa.schema(
    [
        pa.field("table", pa.string()),
        pa.field(LOG, pa.string()),
        pa.field(IS_FINAL, pa.bool_()),
        *(
            pa.field(name, pa.struct([field.with_nullable(True) for field in spark_schema(table.arrow_schema)]))
            for name, table in STAGED.items()
        ),
    ]
)


def stage_rows(table: str, rows: pa.Table, *, log: str, is_final: bool) -> list[pa.RecordBatch]:
    """Rows of a declared table as rows of `STAGE`."""
    found = []
    for batch in spark_table(rows).combine_chunks().to_batches():
        columns: list[pa.Array] = [pa.repeat(table, batch.num_rows), pa.repeat(log, batch.num_rows)]
        columns.append(pa.repeat(is_final, batch.num_rows))
        for name in STAGED:
            type_ = STAGE_SCHEMA.field(name).type
            if name == table:
                arrays = [column.cast(each.type) for column, each in zip(batch.columns, type_, strict=True)]
                columns.append(pa.StructArray.from_arrays(arrays, fields=list(type_)))
            else:
                columns.append(pa.nulls(batch.num_rows, type_))
        found.append(pa.RecordBatch.from_arrays(columns, schema=STAGE_SCHEMA))
    return found


def rows_of(staged: DataFrame, table: str) -> DataFrame:
    """The rows of one table, with `LOG` and `IS_FINAL`."""
    of_it = staged.where(sf.col("table") == table)
    beside = () if table == STATE.name else (LOG, IS_FINAL)
    return of_it.select(f"{table}.*", *beside)
