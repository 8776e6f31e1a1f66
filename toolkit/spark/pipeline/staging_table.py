"""Rows of several tables in one DataFrame: what one pass over logs gives is written once, and shared out then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from toolkit.schema import LOG_TRANSACTIONS, LSO_TIMELINE, TRANSACTION_HISTORY, Column, Table
from toolkit.schema.table import BOOL, INT32, INT64, STRING, TIME
from toolkit.spark.transforms.struct_columns import arrow_fields, struct_arrays, struct_fields

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["IS_FINAL", "LOG", "STAGE", "STAGE_SCHEMA", "STATE", "rows_of", "stage_rows", "staged_rows"]

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
        Column("is_held", BOOL, "Whether its LSO is or was held."),
        Column("remembered", "binary", "Open transactions and LSO holds (LogState)."),
    ),
    key=("log",),
    sort=("log",),
)

STAGED = [(each.name, each) for each in (LOG_TRANSACTIONS, LSO_TIMELINE, TRANSACTION_HISTORY, STATE)]

STAGE = StructType(
    [
        StructField("table", StringType()),
        StructField(LOG, StringType()),
        StructField(IS_FINAL, BooleanType()),
        *struct_fields(STAGED),
    ]
)
"""Spark's schema: the name of the table that a row is of, its log, and a struct for each table, null for all others."""

STAGE_SCHEMA = pa.schema([("table", pa.string()), (LOG, pa.string()), (IS_FINAL, pa.bool_()), *arrow_fields(STAGED)])


def stage_rows(table: str, rows: pa.Table, *, log: str, is_final: bool) -> pa.RecordBatch:
    """Rows of a declared table as rows of `STAGE`."""
    leading = [pa.repeat(value, len(rows)) for value in (table, log, is_final)]
    return pa.RecordBatch.from_arrays([*leading, *struct_arrays(STAGED, table, rows)], schema=STAGE_SCHEMA)


def staged_rows(staged: pa.Table, table: str) -> pa.Table:
    """The same of Arrow data as `rows_of`."""
    of_it = staged.filter(pc.equal(staged["table"], table)).combine_chunks()
    fields = STAGE_SCHEMA.field(table).type
    structs = of_it[table].chunk(0) if of_it.num_rows else pa.nulls(0, fields)
    columns = dict(zip([field.name for field in fields], structs.flatten(), strict=True))
    return pa.table(columns if table == STATE.name else {**columns, LOG: of_it[LOG], IS_FINAL: of_it[IS_FINAL]})


def rows_of(staged: DataFrame, table: str) -> DataFrame:
    """The rows of one table, with `LOG` and `IS_FINAL`."""
    of_it = staged.where(sf.col("table") == table)
    beside = () if table == STATE.name else (LOG, IS_FINAL)
    return of_it.select(f"{table}.*", *beside)
