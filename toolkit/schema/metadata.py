"""The tables of what the cluster itself did: the metadata log of KRaft's controllers, and events of the cluster."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from toolkit.schema.record import Int16, Int32, Int64, TableRow, Unit, declares
from toolkit.schema.table import TopicPartition


@declares(
    "metadata_log",
    row="a record of __cluster_metadata",
    key=("offset", "file", "position"),
    sort=("metadata_node_id", "offset", "file", "position"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogRecord(TableRow):
    """A record of __cluster_metadata; a column that its type does not have is null."""

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


METADATA_LOG = MetadataLogRecord.table


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
    row="an event of the cluster",
    key=("file", "position", "event", "topic", "partition", "transactional_id"),
    sort=("timestamp", "broker_id", "file", "position"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent(TableRow):
    """Something that happened to the cluster around a transaction; a column that an event does not have is null."""

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


CLUSTER_EVENTS = ClusterEvent.table
FROM_METADATA, FROM_BROKER_LOG = "metadata log", "broker log"
"""Values of ``source``."""
