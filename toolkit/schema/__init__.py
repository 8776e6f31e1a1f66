"""The declaration of every table: columns, types, units, key and order.

pandas dtypes, Arrow and Spark schemas, the empty frame and the documentation derive from these declarations.
Column names are Kafka's field names in snake case. An unknown value is null, never -1; times are UTC in milliseconds.
"""

from collections.abc import Mapping

from toolkit.schema.live import (
    COORDINATORS,
    EXPOSURE,
    FINDINGS,
    GROUP_LAG,
    MISSING_OFFSETS,
    OFFSET_VISIBILITY,
    PARTITIONS,
    PRODUCERS,
    TRANSACTION_OWNERS,
    TRANSACTIONS,
)
from toolkit.schema.log import (
    ABORTED,
    BATCHES,
    CHECKPOINTS,
    CLUSTER_EVENTS,
    LOG_TRANSACTIONS,
    LSO_TIMELINE,
    METADATA_LOG,
    OFFSETS_LOG,
    SEGMENTS,
    SNAPSHOTS,
    STATISTICS,
    TRANSACTION_HISTORY,
    TRANSACTION_LOG,
)
from toolkit.schema.recorded import (
    ACTIONS,
    LATE_TRANSACTIONS,
    LSO_HOLDS,
    OBSERVATION_TIMES,
    RECORDED,
    SAMPLES,
    SAVED_RECORDS,
)
from toolkit.schema.table import Column, ListOf, Row, StructOf, Table, arrow_type, utc

__all__ = [
    "ABORTED",
    "ACTIONS",
    "BATCHES",
    "CHECKPOINTS",
    "CLUSTER_EVENTS",
    "COORDINATORS",
    "EXPOSURE",
    "FINDINGS",
    "GROUP_LAG",
    "LATE_TRANSACTIONS",
    "LOG_TRANSACTIONS",
    "LSO_HOLDS",
    "LSO_TIMELINE",
    "METADATA_LOG",
    "MISSING_OFFSETS",
    "OBSERVATION_TIMES",
    "OFFSETS_LOG",
    "OFFSET_VISIBILITY",
    "PARTITIONS",
    "PRODUCERS",
    "RECORDED",
    "SAMPLES",
    "SAVED_RECORDS",
    "SEGMENTS",
    "SNAPSHOTS",
    "STATISTICS",
    "TABLES",
    "TRANSACTIONS",
    "TRANSACTION_HISTORY",
    "TRANSACTION_LOG",
    "TRANSACTION_OWNERS",
    "Column",
    "ListOf",
    "Row",
    "StructOf",
    "Table",
    "arrow_type",
    "utc",
]

TABLES: Mapping[str, Table] = {each.name: each for each in [*globals().values()] if isinstance(each, Table)}
"""Every table by name."""
