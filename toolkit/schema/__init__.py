"""Every table once: columns, types, units, key and order.

pandas dtypes, Arrow and Spark schemas, the empty frame and the documentation derive from these declarations.
Column names are Kafka's field names in snake case. An unknown is null, never -1; times are UTC in milliseconds.
"""

from collections.abc import Mapping

from toolkit.schema.actions import ACTIONS
from toolkit.schema.exposure import EXPOSURE
from toolkit.schema.live import COORDINATORS, FINDINGS, PARTITIONS, PRODUCERS, TRANSACTIONS
from toolkit.schema.log import (
    ABORTED,
    BATCHES,
    CHECKPOINTS,
    COORDINATOR_EVENTS,
    GROUP_EVENTS,
    HISTORIES,
    LSO_TIMELINE,
    SEGMENTS,
    SNAPSHOTS,
    SPANS,
    STATISTICS,
    VIOLATIONS,
)
from toolkit.schema.recorded import LATE_TRANSACTIONS, RECORDED, SAMPLES
from toolkit.schema.table import Column, ListOf, Row, StructOf, Table, arrow_type, utc

__all__ = [
    "ABORTED",
    "ACTIONS",
    "BATCHES",
    "CHECKPOINTS",
    "COORDINATORS",
    "COORDINATOR_EVENTS",
    "EXPOSURE",
    "FINDINGS",
    "GROUP_EVENTS",
    "HISTORIES",
    "LATE_TRANSACTIONS",
    "LSO_TIMELINE",
    "PARTITIONS",
    "PRODUCERS",
    "RECORDED",
    "SAMPLES",
    "SEGMENTS",
    "SNAPSHOTS",
    "SPANS",
    "STATISTICS",
    "TABLES",
    "TRANSACTIONS",
    "VIOLATIONS",
    "Column",
    "ListOf",
    "Row",
    "StructOf",
    "Table",
    "arrow_type",
    "utc",
]

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        PARTITIONS,
        PRODUCERS,
        TRANSACTIONS,
        COORDINATORS,
        FINDINGS,
        BATCHES,
        SPANS,
        LSO_TIMELINE,
        ABORTED,
        CHECKPOINTS,
        COORDINATOR_EVENTS,
        HISTORIES,
        GROUP_EVENTS,
        VIOLATIONS,
        STATISTICS,
        SNAPSHOTS,
        SEGMENTS,
        SAMPLES,
        LATE_TRANSACTIONS,
        ACTIONS,
        EXPOSURE,
    )
}
