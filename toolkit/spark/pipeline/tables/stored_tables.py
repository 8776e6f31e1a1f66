"""The declarations of the stored tables: columns, their names in SQL, and keys.

Each has the columns that ``toolkit.schema`` declares, in that order, but for names that SQL must quote
(`STORED_NAMES`); then the columns of the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql.types import StructField, StructType

from toolkit import schema
from toolkit.schema import Column, Row, Table
from toolkit.schema.table import BOOL, INT64, STRING
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.pipeline.tables.staging_table import IS_FINAL, LOG, LOGS

RUN_ID, CLUSTER_ID, TOPIC_ID, IS_CURRENT = "run_id", "cluster_id", "topic_id", "is_current"
IDS_OF_LOG = (
    Column(CLUSTER_ID, STRING, "Id of the cluster; null if meta.properties is missing."),
    Column(TOPIC_ID, STRING, "Id of the topic; null if it has none, ~1 and so on for deleted topics without an id."),
)
RUN = Column(RUN_ID, INT64, "Number of the run that wrote the row.")
OF_LOGS = (
    *IDS_OF_LOG,
    RUN,
    Column(LOG, STRING, "Name of the log: cluster, broker, topic id and partition; a path without these."),
    Column(IS_FINAL, BOOL, "Whether later runs keep the row; false while the transaction is open."),
)
CURRENT = Column(IS_CURRENT, BOOL, "Whether it was open at the newest diagnosis or sample.")
EXTRA: Mapping[str, Sequence[Column]] = {
    "findings": (*IDS_OF_LOG, CURRENT, RUN),
    "lso_holds": (*IDS_OF_LOG, RUN),
    "logs": (*IDS_OF_LOG, RUN),
    "state": (RUN,),
    "runs": (),
}

STORED_NAMES = {"start": "start_time", "end": "end_time", "at": "event_time", "offset": "log_end_offset"}
"""Stored names of columns whose declared name SQL must quote, or that belong to one of them."""

RECORDED_AS = {name: f"recorded_{name}" for name in schema.RECORDED}
"""Stored names of the tables of a recording; most of the plain names are tables of a cluster, too."""

KEPT: Mapping[str, Table] = {
    "batches": schema.BATCHES,
    "log_transactions": schema.LOG_TRANSACTIONS,
    "lso_timeline": schema.LSO_TIMELINE,
    "transaction_history": schema.TRANSACTION_HISTORY,
    **{RECORDED_AS[name]: table for name, table in schema.RECORDED.items()},
    "logs": LOGS,
    "lso_holds": schema.LSO_HOLDS,
    "findings": schema.FINDINGS,
}
"""The stored tables by name."""

KEYS: Mapping[str, Sequence[str]] = {
    "batches": (LOG, "base_offset", "position"),
    "log_transactions": (LOG, "producer_id", "first_offset", "marker_offset", "file", "position", "error"),
    "lso_timeline": (LOG, "log_end_offset", "event"),
    "transaction_history": (LOG, "transactional_id", "first_offset"),
    "logs": (LOG,),
    "lso_holds": (CLUSTER_ID, TOPIC_ID, "topic", "partition", "producer_id", "first_offset", "marker_offset"),
    "findings": (CLUSTER_ID, TOPIC_ID, "topic", "partition", "producer_id", "start_offset", "broker_id"),
}
"""The unique keys of the stored tables; nulls are equal. The broker counts in findings without a transaction only."""


FROM_OFFSET = {
    "log_transactions": "coalesce(greatest(marker_offset, first_offset) >= {offset}, true)",
    "lso_timeline": "log_end_offset > {offset}",
    "transaction_history": "last_offset >= {offset}",
    "batches": "coalesce(base_offset >= {offset}, true)",
}
"""SQL conditions for the rows of a table at or after an offset."""


OF_OBSERVATION = {RUN_ID, "observed_at", "as_of", "log_end_offset"}
"""Columns that change with every diagnosis, also of what is over."""


def with_extra(name: str, table: Table) -> Table:
    """A declared table with the columns of the pipeline."""
    extra = tuple(each for each in EXTRA.get(name, OF_LOGS) if each.name not in table.names)
    return Table(table.name, table.row, (*table.columns, *extra), table.key, table.sort)


def stored_type(name: str, table: Table) -> StructType:
    """Spark's schema of a stored table, by stored names."""
    fields = struct_type(with_extra(name, table))
    return StructType(
        [StructField(STORED_NAMES.get(f.name, f.name), f.dataType, f.nullable, f.metadata) for f in fields]
    )


def rows_by_key(name: str, rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """Rows of a table whose key has only declared names; of several with one key, the last."""
    return {tuple(row[each] for each in KEYS[name] if _counts(each, row)): row for row in rows}


def _counts(column: str, row: Row) -> bool:
    return column != "broker_id" or row["start_offset"] is None


def lasting_content(row: Row) -> Row:
    """What a change of counts as a change of the row: of what is over, not when it was last observed."""
    if row.get("verdict") != "ended" and row.get("marker_offset") is None:
        return {name: value for name, value in row.items() if name != RUN_ID}
    evidence = {"evidence": [{**each, "observed_at": None} for each in row["evidence"]]} if "evidence" in row else {}
    return {name: value for name, value in {**row, **evidence}.items() if name not in OF_OBSERVATION}
