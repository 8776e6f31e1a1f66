"""The declaration of every table: columns, types, units, key and order.

pandas dtypes, Arrow and Spark schemas, the empty frame and the documentation derive from these declarations.
Column names are Kafka's field names in snake case. An unknown value is null, never -1; times are UTC in milliseconds.
Each is a record class of one of the modules here, and a constant.
"""

from collections.abc import Mapping

from toolkit.schema import live, log, recorded
from toolkit.schema.recorded import RECORDED
from toolkit.schema.table import Column, ListOf, Row, StructOf, Table, arrow_type, utc

PARTITIONS = live.Partition.table
PRODUCERS = live.Producer.table
TRANSACTIONS = live.Transaction.table
FINDINGS = live.Finding.table
COORDINATORS = live.Coordinator.table
EXPOSURE = live.Exposure.table
TRANSACTION_OWNERS = live.IdOwner.table
OFFSET_VISIBILITY = live.OffsetVisibility.table
MISSING_OFFSETS = live.MissingOffsets.table
GROUP_LAG = live.GroupLag.table
BATCHES = log.Batch.table
LOG_TRANSACTIONS = log.LogTransaction.table
LSO_TIMELINE = log.LsoStep.table
ABORTED = log.TxnIndexEntry.table
CHECKPOINTS = log.CheckpointEntry.table
SNAPSHOTS = log.SnapshotProducer.table
SEGMENTS = log.LogSegment.table
TRANSACTION_LOG = log.TransactionLogRecord.table
TRANSACTION_HISTORY = log.PastTransaction.table
OFFSETS_LOG = log.OffsetsLogRecord.table
STATISTICS = log.TransactionStatistics.table
METADATA_LOG = log.MetadataLogRecord.table
CLUSTER_EVENTS = log.ClusterEvent.table
SAMPLES = recorded.RecordedSample.table
LATE_TRANSACTIONS = recorded.LateTransaction.table
LSO_HOLDS = recorded.LsoHold.table
OBSERVATION_TIMES = recorded.ObservationTime.table
ACTIONS = recorded.ActionStep.table
SAVED_RECORDS = recorded.SavedRecord.table

TABLES: Mapping[str, Table] = {each.name: each for each in [*globals().values()] if isinstance(each, Table)}
"""Every table by name."""
__all__ = ["RECORDED", "TABLES", "Column", "ListOf", "Row", "StructOf", "Table", "arrow_type", "utc"]
__all__ += [name.upper() for name in TABLES]
