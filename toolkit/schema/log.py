"""Tables of what logs hold: batches, transactions, steps of the LSO, records of coordinators and controllers."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from toolkit.schema.table import INT8, Int16, Int32, Int64, TableRow, TopicPartition, Unit, Width, declares

_Topic = Annotated[str | None, "Topic name; null for a loose file whose path does not name it."]
_Partition = Annotated[Int32 | None, "Partition number; null as topic."]
_ProducerId = Annotated[Int64 | None, "Producer id (PID)."]
_Broker = Annotated[Int32 | None, "Broker that sent it, or whose log directory it was found in; null if not known."]
_File = Annotated[str | None, "File it was read from; null where a broker sent it."]
_Position = Annotated[Int64 | None, "Byte in that file, or line of a text.", Unit("bytes")]
_ReadError = Annotated[str | None, "What could not be read, as NAME: sentence; null where the row is whole."]


@declares(
    "batches", key=("topic", "partition", "base_offset"), sort=("topic", "partition", "file", "position", "base_offset")
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(TableRow):
    """The header of a record batch, or a range of bytes that could not be read as one."""

    topic: _Topic = None
    partition: _Partition = None
    base_offset: Annotated[Int64 | None, "Offset of the first record; null on a row with error."] = None
    last_offset: Annotated[Int64 | None, "Offset of the last record as written, by last_offset_delta."] = None
    position: _Position = None
    size: Annotated[Int64 | None, "Bytes of the whole batch, or of the unreadable range.", Unit("bytes")] = None
    producer_id: _ProducerId = None
    producer_epoch: Annotated[
        Int16 | None, "Producer epoch; transaction version 2 writes epoch + 1 in its markers."
    ] = None
    base_sequence: Annotated[Int32 | None, "Sequence number of the first record."] = None
    leader_epoch: Annotated[Int32 | None, "Partition leader epoch when it was appended."] = None
    is_transactional: Annotated[bool | None, "Whether it is part of a transaction, as data or as marker."] = None
    is_control: Annotated[bool | None, "Whether it is a control batch and no data."] = None
    marker: Annotated[str | None, "COMMIT or ABORT; on other control batches null."] = None
    coordinator_epoch: Annotated[Int32 | None, "Coordinator epoch of a marker."] = None
    base_timestamp: Annotated[
        dt.datetime | None, "Time of the first record by its producer; null where delete_horizon is set."
    ] = None
    max_timestamp: Annotated[
        dt.datetime | None, "Newest record time; the broker's append time under LogAppendTime."
    ] = None
    delete_horizon: Annotated[dt.datetime | None, "From when on the cleaner may drop this batch (KIP-534)."] = None
    timestamp_type: Annotated[str | None, "CreateTime (the producer's clock) or LogAppendTime (the broker's)."] = None
    compression: Annotated[str | None, "none, gzip, snappy, lz4, zstd."] = None
    record_count: Annotated[
        Int32 | None, "Records in it; fewer than its offsets span after compaction.", Unit("records")
    ] = None
    magic: Annotated[int | None, "Format: 2; 0 and 1 (before Kafka 0.11) carry no transactions.", Width(INT8)] = None
    crc: Annotated[Int64 | None, "Checksum as written: CRC32C; CRC32 for magic 0 and 1."] = None
    crc_ok: Annotated[bool | None, "Whether the bytes match it; null where that was not checked."] = None
    broker_id: _Broker = None
    file: _File = None
    error: _ReadError = None


@declares(
    "log_transactions",
    key=("topic", "partition", "broker_id", "producer_id", "first_offset", "marker_offset"),
    sort=("topic", "partition", "broker_id", "first_offset", "marker_offset"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class LogTransaction(TableRow):
    """One transaction on one partition."""

    topic: _Topic = None
    partition: _Partition = None
    producer_id: _ProducerId = None
    producer_epoch: Annotated[Int16 | None, "Epoch of its last data batch; of its marker where it has no data."] = None
    first_epoch: Annotated[Int16 | None, "Epoch of its first data batch: a lower one is a dead epoch's."] = None
    first_offset: Annotated[
        Int64 | None, "Offset of its first record; null where it is empty or that was not read."
    ] = None
    first_batch_last_offset: Annotated[
        Int64 | None, "Offset of the last record of its first batch; null as first_offset."
    ] = None
    last_offset: Annotated[Int64 | None, "Offset of its last record."] = None
    marker_offset: Annotated[Int64 | None, "Offset of its marker; null while it is open."] = None
    marker_epoch: Annotated[Int16 | None, "Producer epoch in the marker: epoch + 1 from transaction version 2 on."] = (
        None
    )
    coordinator_epoch: Annotated[Int32 | None, "Coordinator epoch in the marker."] = None
    outcome: Annotated[
        str | None,
        "commit, abort, open, or empty (a marker without data); null where a marker ended it whose record "
        "was not read, or where its end may be among missing offsets, as error says.",
    ] = None
    marker: Annotated[str | None, "COMMIT or ABORT; null while it is open."] = None
    start: Annotated[dt.datetime | None, "Time of its first batch, by the clock that start_clock names."] = None
    start_clock: Annotated[str | None, "broker (LogAppendTime) or producer (CreateTime)."] = None
    end: Annotated[dt.datetime | None, "Time of its marker, by the partition leader's clock."] = None
    batches: Annotated[Int64 | None, "Data batches.", Unit("batches")] = None
    records: Annotated[Int64 | None, "Data records.", Unit("records")] = None
    bytes: Annotated[Int64 | None, "Bytes of its data batches.", Unit("bytes")] = None
    first_sequence: Annotated[Int32 | None, "Sequence number of its first record."] = None
    last_sequence: Annotated[Int32 | None, "Sequence number of its last record."] = None
    truncated: Annotated[
        bool | None,
        "Whether it begins before the first batch that was read, so that its counts are lower bounds; "
        "null where that cannot be known.",
    ] = None
    broker_id: _Broker = None
    file: Annotated[
        str | None,
        "File of its first batch, else of its marker; of the log's first batch where nothing of it was "
        "read; null where a broker sent it.",
    ] = None
    position: Annotated[Int64 | None, "Byte of that batch in the file.", Unit("bytes")] = None
    error: _ReadError = None


@declares(
    "lso_timeline",
    key=("topic", "partition", "broker_id", "offset", "event"),
    sort=("topic", "partition", "broker_id", "offset"),
    version=2,
)
@dataclass(frozen=True, slots=True, kw_only=True)
class LsoStep(TableRow):
    """A step of the LSO: who held it from here on.

    Of an error row, what is open is not known from its offset on, or nowhere without one.
    """

    topic: _Topic = None
    partition: _Partition = None
    at: Annotated[
        dt.datetime | None, "Time of the batch that made the step; a data batch's clock is its producer's."
    ] = None
    offset: Annotated[
        Int64 | None, "Log end offset right after that batch; of an error row, the first one that was not read."
    ] = None
    last_stable_offset: Annotated[
        Int64 | None, "LSO right after that batch, replication aside; null on a row with error."
    ] = None
    event: Annotated[
        str | None, "open, commit, abort, or end (of what was read); null for a marker whose record was not read."
    ] = None
    open_count: Annotated[Int64 | None, "Open transactions right after that batch; null on a row with error."] = None
    holder_producer_id: Annotated[Int64 | None, "Producer of the lowest open transaction; null where none is open."] = (
        None
    )
    holder_producer_epoch: Annotated[Int16 | None, "Its epoch."] = None
    holder_first_offset: Annotated[Int64 | None, "Its first offset."] = None
    broker_id: _Broker = None
    error: _ReadError = None


@declares(
    "aborted",
    key=("topic", "partition", "producer_id", "first_offset"),
    sort=("topic", "partition", "broker_id", "file", "position", "last_offset"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class TxnIndexEntry(TableRow):
    """An aborted transaction of the index that read_committed consumers receive (.txnindex)."""

    topic: _Topic = None
    partition: _Partition = None
    producer_id: _ProducerId = None
    first_offset: Annotated[Int64 | None, "Offset of its first record."] = None
    last_offset: Annotated[Int64 | None, "Offset of its marker."] = None
    last_stable_offset: Annotated[Int64 | None, "LSO right after its marker."] = None
    broker_id: _Broker = None
    file: _File = None
    position: _Position = None
    error: _ReadError = None


@declares("checkpoints", key=("name", "topic", "partition", "leader_epoch", "key"), sort=("name", "file", "position"))
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEntry(TableRow):
    """An entry of a checkpoint or properties file of a log directory."""

    name: Annotated[str, "File name: cleaner-offset-checkpoint, leader-epoch-checkpoint, ..."]
    topic: _Topic = None
    partition: _Partition = None
    leader_epoch: Annotated[Int32 | None, "Leader epoch (leader-epoch-checkpoint)."] = None
    offset: Annotated[Int64 | None, "Offset; the start offset of the epoch in leader-epoch-checkpoint."] = None
    key: Annotated[str | None, "Key of a properties file (meta.properties, partition.metadata)."] = None
    value: Annotated[str | None, "Its value."] = None
    broker_id: _Broker = None
    file: _File = None
    position: Annotated[Int64 | None, "Line of the file, from 1."] = None
    error: _ReadError = None


@declares("snapshots", key=("topic", "partition", "broker_id", "snapshot_offset", "producer_id"))
@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotProducer(TableRow):
    """The state of a producer in a .snapshot file, as of the offset that the file is named after."""

    topic: _Topic = None
    partition: _Partition = None
    snapshot_offset: Annotated[
        Int64 | None, "Offset up to which the file reaches; null for a folder that was not read."
    ] = None
    producer_id: Annotated[Int64 | None, "Producer id (PID); null where the file holds none, or was not read."] = None
    producer_epoch: Annotated[Int16 | None, "Newest epoch of this producer on the partition."] = None
    last_sequence: Annotated[Int32 | None, "Last sequence number written."] = None
    last_offset: Annotated[Int64 | None, "Offset of its last record."] = None
    offset_delta: Annotated[Int32 | None, "Offsets from the first to the last record of its last batch."] = None
    last_timestamp: Annotated[dt.datetime | None, "Newest record time."] = None
    coordinator_epoch: Annotated[Int32 | None, "Coordinator epoch of its last marker."] = None
    current_txn_start_offset: Annotated[Int64 | None, "First offset of the open transaction; null if none is open."] = (
        None
    )
    broker_id: _Broker = None
    file: _File = None
    error: _ReadError = None


@declares("segments", key=("file",), sort=("topic", "partition", "broker_id", "file"))
@dataclass(frozen=True, slots=True, kw_only=True)
class LogSegment(TableRow):
    """A segment of a log in files."""

    topic: _Topic = None
    partition: _Partition = None
    base_offset: Annotated[
        Int64 | None, "Offset that the file is named after; null for a folder that was not read."
    ] = None
    size: Annotated[Int64 | None, "Bytes.", Unit("bytes")] = None
    modified: Annotated[dt.datetime | None, "When it was last written."] = None
    broker_id: _Broker = None
    file: Annotated[str, "Its path."]
    error: _ReadError = None


@declares(
    "transaction_log",
    key=("txn_state_partition", "offset"),
    sort=("txn_state_partition", "broker_id", "file", "position", "offset"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogRecord(TableRow):
    """A record of __transaction_state."""

    txn_state_partition: Annotated[Int32 | None, "Partition of __transaction_state; null where that is not known."] = (
        None
    )
    offset: Annotated[Int64 | None, "Offset of the record."] = None
    timestamp: Annotated[dt.datetime | None, "Time of the record, by the coordinator's clock."] = None
    transactional_id: Annotated[str | None, "Transactional id."] = None
    producer_id: _ProducerId = None
    producer_epoch: Annotated[
        Int16 | None, "Producer epoch; version 2 raises it in PrepareCommit and PrepareAbort."
    ] = None
    previous_producer_id: Annotated[Int64 | None, "Producer id of the last transaction (value version 1)."] = None
    next_producer_id: Annotated[Int64 | None, "The client's next producer id (value version 1)."] = None
    next_producer_epoch: Annotated[Int16 | None, "Epoch that goes with it (KIP-939)."] = None
    state: Annotated[str | None, "Empty, Ongoing, PrepareCommit, ...; null on a tombstone."] = None
    timeout_ms: Annotated[
        Int32 | None, "The transaction's own timeout; Int32.MAX marks two-phase commit.", Unit("ms")
    ] = None
    topic_partitions: Annotated[tuple[TopicPartition, ...] | None, "Partitions whose marker is still expected."] = None
    start_time: Annotated[
        dt.datetime | None, "Start of the transaction, by the coordinator's clock; stays after its end."
    ] = None
    last_update_time: Annotated[dt.datetime | None, "When the coordinator changed to this state."] = None
    client_transaction_version: Annotated[
        Int16 | None, "2: the epoch grows with every transaction; null in version 0."
    ] = None
    tombstone: Annotated[bool | None, "Whether the record deletes the id (expired)."] = None
    value_version: Annotated[Int16 | None, "Version of the value: 0 or 1."] = None
    leader_epoch: Annotated[Int32 | None, "Leader epoch of the batch: the coordinator epoch at that time."] = None
    broker_id: _Broker = None
    file: _File = None
    position: _Position = None
    error: _ReadError = None


@declares(
    "transaction_history",
    key=("transactional_id", "txn_state_partition", "first_offset", "error"),  # one without an id is of a partition
    sort=("transactional_id", "broker_id", "first_offset"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class PastTransaction(TableRow):
    """What became of a transactional id: a transaction, a new producer id or epoch, or its expiry."""

    transactional_id: Annotated[str, "Transactional id."]
    txn_state_partition: Annotated[Int32 | None, "Partition of __transaction_state."] = None
    kind: Annotated[str, "transaction, init (InitProducerId), expired (tombstone)."]
    producer_id: _ProducerId = None
    producer_epoch: Annotated[Int16 | None, "Epoch that the transaction was written with."] = None
    ended: Annotated[
        str | None, "commit, abort, timeout, fence, open or stuck; null where kind is not transaction."
    ] = None
    reason: Annotated[str, "What shows that, as a sentence."]
    state: Annotated[str | None, "Last state that was read."] = None
    start_time: Annotated[dt.datetime | None, "When it became Ongoing, by the coordinator's clock."] = None
    decided_at: Annotated[dt.datetime | None, "When it became Prepare*; null while nothing is decided."] = None
    end_time: Annotated[
        dt.datetime | None, "When it became Complete*; for init and expired, when that was written."
    ] = None
    ongoing_ms: Annotated[Int64 | None, "Time as Ongoing, to the last record read where it is open.", Unit("ms")] = None
    prepare_ms: Annotated[Int64 | None, "Time as Prepare*, likewise.", Unit("ms")] = None
    timeout_ms: Annotated[Int32 | None, "Its own timeout.", Unit("ms")] = None
    topic_partitions: Annotated[tuple[TopicPartition, ...] | None, "Every partition that it ever had."] = None
    client_transaction_version: Annotated[Int16 | None, "Transaction version of the client, where recorded."] = None
    previous_producer_id: Annotated[Int64 | None, "Producer id before, where it changed."] = None
    records: Annotated[Int64 | None, "Records of __transaction_state that it is made of.", Unit("records")] = None
    first_offset: Annotated[Int64 | None, "Offset of the first of them."] = None
    last_offset: Annotated[Int64 | None, "Offset of the last of them."] = None
    truncated: Annotated[bool | None, "Whether compaction or retention took records of it before it was read."] = None
    broker_id: _Broker = None
    error: _ReadError = None


@declares(
    "offsets_log",
    key=("group_partition", "offset"),
    sort=("group_partition", "broker_id", "file", "position", "offset"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsLogRecord(TableRow):
    """A record of __consumer_offsets."""

    group_partition: Annotated[Int32 | None, "Partition of __consumer_offsets; null where that is not known."] = None
    offset: Annotated[Int64 | None, "Offset of the record."] = None
    timestamp: Annotated[dt.datetime | None, "Time of the record, by the group coordinator's clock."] = None
    kind: Annotated[str | None, "offset_commit, group_metadata, or the key's type of the new protocols."] = None
    group_id: Annotated[str | None, "Group id."] = None
    topic: Annotated[str | None, "Topic of a committed offset."] = None
    partition: Annotated[Int32 | None, "Partition of a committed offset."] = None
    committed_offset: Annotated[Int64 | None, "Committed offset."] = None
    committed_leader_epoch: Annotated[Int32 | None, "Leader epoch committed with it."] = None
    commit_timestamp: Annotated[dt.datetime | None, "When it was committed."] = None
    expire_timestamp: Annotated[dt.datetime | None, "When it expires (value version 1)."] = None
    generation: Annotated[Int32 | None, "Generation of the group."] = None
    protocol_type: Annotated[str | None, "Protocol type of the group: consumer, connect, ..."] = None
    protocol: Annotated[str | None, "Assignor."] = None
    leader_member_id: Annotated[str | None, "Member id of the group's leader."] = None
    member_ids: Annotated[tuple[str, ...] | None, "Members of the group."] = None
    producer_id: _ProducerId = None
    producer_epoch: Annotated[Int16 | None, "Producer epoch of a transactional commit."] = None
    is_transactional: Annotated[bool | None, "Whether it only counts once its transaction is committed."] = None
    tombstone: Annotated[bool | None, "Whether the record deletes the key."] = None
    broker_id: _Broker = None
    file: _File = None
    position: _Position = None
    error: _ReadError = None


@declares("statistics", key=("topic", "partition", "broker_id"))
@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStatistics(TableRow):
    """The transactions of a partition: how they ended, their size and duration."""

    topic: _Topic = None
    partition: _Partition = None
    committed: Annotated[Int64, "Transactions with data and a COMMIT marker.", Unit("transactions")]
    aborted: Annotated[Int64, "Transactions with data and an ABORT marker.", Unit("transactions")]
    empty: Annotated[Int64, "Markers without data before them.", Unit("transactions")]
    open: Annotated[Int64, "Transactions without a marker.", Unit("transactions")]
    undecided: Annotated[Int64, "Transactions with a marker that was not read.", Unit("transactions")]
    batches_count: Annotated[Int64, "Ended transactions whose beginning was read: those below.", Unit("transactions")]
    batches_sum: Annotated[Int64, "Their batches of data, together.", Unit("batches")]
    batches_min: Annotated[Int64 | None, "Batches of the smallest.", Unit("batches")] = None
    batches_mean: Annotated[float | None, "Mean of their batches.", Unit("batches")] = None
    batches_max: Annotated[Int64 | None, "Batches of the largest.", Unit("batches")] = None
    duration_ms_count: Annotated[Int64, "Those of them whose times are known.", Unit("transactions")]
    duration_ms_sum: Annotated[
        Int64,
        "Times from the first batch to the marker, together. The first batch has its producer's time (unless the topic "
        "has LogAppendTime), the marker its leader's: a negative one shows how far these clocks are apart.",
        Unit("ms"),
    ]
    duration_ms_min: Annotated[Int64 | None, "The shortest.", Unit("ms")] = None
    duration_ms_mean: Annotated[float | None, "Mean duration.", Unit("ms")] = None
    duration_ms_max: Annotated[Int64 | None, "The longest.", Unit("ms")] = None
    broker_id: _Broker = None
    error: _ReadError = None


@declares("metadata_log", key=("offset", "file", "position"), sort=("metadata_node_id", "offset", "file", "position"))
@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogRecord(TableRow):
    """A record of __cluster_metadata.

    A column that its type does not have is null.
    """

    offset: Annotated[
        Int64 | None, "Offset of the record; of one in a snapshot, the last offset that the snapshot includes."
    ] = None
    timestamp: Annotated[dt.datetime | None, "Time of the record, by the controller's clock."] = None
    type: Annotated[
        str | None, "Kafka's name without Record, such as PartitionChange; type 99 for one of a newer Kafka."
    ] = None
    version: Annotated[Int16 | None, "Version of the record."] = None
    topic: Annotated[str | None, "Name of the topic that it is about."] = None
    topic_id: Annotated[str | None, "Id of that topic."] = None
    partition: Annotated[Int32 | None, "Partition that it is about."] = None
    leader: Annotated[Int32 | None, "Broker id of the leader from then on; null if there is none."] = None
    leader_epoch: Annotated[Int32 | None, "Epoch of that leader; each change of the leader raises it."] = None
    replicas: Annotated[tuple[Int32, ...] | None, "Broker ids of the replicas from then on."] = None
    isr: Annotated[tuple[Int32, ...] | None, "Broker ids of the in-sync replicas from then on."] = None
    eligible_leader_replicas: Annotated[
        tuple[Int32, ...] | None, "Broker ids that may lead although they are not in sync (KIP-966)."
    ] = None
    affected_broker: Annotated[
        Int32 | None, "Broker that registered, was fenced or unfenced, or got a block of producer ids."
    ] = None
    broker_epoch: Annotated[Int64 | None, "Epoch of that broker: the offset of its registration."] = None
    fenced: Annotated[
        bool | None, "Whether that broker is fenced from then on, so that it leads nothing; null if unchanged."
    ] = None
    in_controlled_shutdown: Annotated[bool | None, "Whether it is shutting down; null if unchanged."] = None
    max_metadata_version: Annotated[
        Int16 | None, "Highest metadata.version that the broker supports, by its registration: it shows its release."
    ] = None
    feature: Annotated[str | None, "Feature that was finalized, such as transaction.version."] = None
    feature_level: Annotated[Int16 | None, "Its level from then on."] = None
    config_resource: Annotated[str | None, "What a setting is for: topic orders, broker 1, broker for all."] = None
    config_name: Annotated[str | None, "Name of the setting."] = None
    config_value: Annotated[str | None, "Its value from then on, [hidden] if it may be a secret; null: removed."] = None
    next_producer_id: Annotated[Int64 | None, "The first producer id after the blocks that brokers have got."] = None
    metadata_node_id: Annotated[Int32 | None, "Node in whose log directory it was found; null if not known."] = None
    file: Annotated[str | None, "File it was read from: a segment or a snapshot."] = None
    position: Annotated[Int64 | None, "Byte of its batch in that file.", Unit("bytes")] = None
    error: Annotated[str | None, "What could not be read, as NAME: sentence; null where the row is whole."] = None


EVENTS: Mapping[str, str] = {
    "leader_changed": "the partition has another leader, or the same one with a new leader epoch",
    "unclean_election": "a replica leads that was not in sync, and may lack records and markers",
    "no_leader": "the partition has no leader any more",
    "isr_changed": "other replicas are in sync",
    "topic_created": "the topic was created",
    "topic_deleted": "the topic was deleted",
    "broker_registered": "a broker started and registered",
    "broker_unregistered": "a broker was removed from the cluster",
    "broker_fenced": "a broker was fenced: it leads nothing",
    "broker_unfenced": "a broker was unfenced",
    "broker_stopping": "a broker began its controlled shutdown",
    "setting_changed": "a setting was changed",
    "feature_finalized": "a feature level was finalized",
    "producer_ids_allocated": "a broker got a block of producer ids",
    "transaction_timed_out": "the coordinator aborted a transaction that was past its timeout",
    "timeout_abort_failed": "the coordinator could not abort a transaction that was past its timeout",
    "producer_initialized": "InitProducerId gave an instance of the transactional id this producer id and epoch",
    "producer_init_refused": "InitProducerId failed",
    "producer_fenced": "an older instance of a producer was refused",
    "epoch_fence_failed": "the epoch was raised, but the coordinator could not write it to its log",
    "transaction_end_failed": "a client could not end its transaction",
    "marker_skipped": "the coordinator completed a transaction without the marker of this partition",
    "marker_retried": "the leader did not write a marker, and the coordinator sends it again",
    "marker_refused": "the leader refused a marker, and the coordinator sends no more of it",
    "markers_cancelled": "a coordinator stopped sending markers, as another one took over",
    "marker_request_failed": "a broker refused markers in a version that it does not know (KAFKA-20322)",
    "coordinator_elected": "a broker became coordinator of this partition of __transaction_state",
    "coordinator_resigned": "a broker is no longer coordinator of this partition of __transaction_state",
    "coordinator_loading": "a coordinator began to load its transactions",
    "coordinator_loaded": "a coordinator has loaded its transactions",
    "coordinator_load_failed": "a coordinator could not load its transactions, or not all of them",
    "out_of_order_sequence": "a batch was refused: sequence numbers before it are missing",
    "invalid_producer_epoch": "a batch or a marker was refused: its epoch is too old",
    "invalid_txn_state": "a batch was refused: its producer has no, or another, transaction there",
    "verification_failed": "a batch was refused: its transaction does not include the partition, or that is not known",
    "id_not_removed": "the coordinator could not remove an expired transactional id",
    "partition_uncleanable": "the log cleaner leaves the partition out from then on",
    "cleaner_died": "a thread of the log cleaner ended: nothing is compacted any more",
    "log_truncated": "a replica removed its records from an offset on, markers among them",
    "log_recovered": "a segment was read again after an unclean shutdown",
    "unclean_shutdown": "a broker starts without having been shut down cleanly, or, up to 3.3, for the first time",
    "log_dir_failed": "a log directory failed, and all its replicas with it",
    "broker_started": "a broker is started",
    "broker_stopped": "a broker was shut down",
}
"""What each event of the metadata log, or of a broker's log, means."""


@declares(
    "cluster_events",
    key=("file", "position", "event", "topic", "partition", "transactional_id"),
    sort=("timestamp", "broker_id", "file", "position"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent(TableRow):
    """An event of the cluster.

    A column that an event does not have is null.
    """

    timestamp: Annotated[dt.datetime | None, "When, by the clock of the node that wrote it."] = None
    event: Annotated[str | None, "What happened, such as leader_changed."] = None
    topic: Annotated[str | None, "Topic that it is about."] = None
    partition: Annotated[Int32 | None, "Partition that it is about."] = None
    affected_broker: Annotated[Int32 | None, "Broker that it is about, such as the one that was fenced."] = None
    leader: Annotated[Int32 | None, "Broker id of the leader from then on."] = None
    leader_epoch: Annotated[Int32 | None, "Epoch of that leader."] = None
    transactional_id: Annotated[str | None, "Transactional id that it is about."] = None
    producer_id: Annotated[Int64 | None, "Producer that it is about."] = None
    producer_epoch: Annotated[Int16 | None, "Epoch of that producer."] = None
    text: Annotated[str | None, "The event as a sentence, or the broker's line without its time."] = None
    line_count: Annotated[
        Int64 | None, "How many lines say the same, each within 10 s of the one before; null for one."
    ] = None
    last_timestamp: Annotated[dt.datetime | None, "Time of the last of these lines; null for one."] = None
    source: Annotated[str | None, "metadata log, or broker log."] = None
    broker_id: Annotated[Int32 | None, "Node whose file it was read from; null if not known."] = None
    file: Annotated[str | None, "File it was read from."] = None
    position: Annotated[Int64 | None, "Byte in that file, of the batch or the line.", Unit("bytes")] = None
    error: Annotated[str | None, "What could not be read, as NAME: sentence; null where the row is whole."] = None

    @property
    def ended_at(self) -> dt.datetime | None:
        """Time of the last line that says it."""
        return self.last_timestamp or self.timestamp

    @property
    def tp(self) -> TopicPartition | None:
        """The partition that it is about; null if it is about none."""
        return None if self.topic is None or self.partition is None else TopicPartition(self.topic, self.partition)


FROM_METADATA, FROM_BROKER_LOG = "metadata log", "broker log"
"""Values of ``source``."""
