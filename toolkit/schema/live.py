"""Tables of a cluster's state: partitions, producers, transactions, coordinators, findings, offsets and their lag."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from toolkit.command_line import ACTIONS, command_in, command_line
from toolkit.schema.table import Int16, Int32, Int64, Merge, TableRow, TopicPartition, TransactionKey, Unit, declares
from toolkit.schema.verdict import Verdict

KNOWN, OPEN, ALL, DECISION = Merge.KNOWN, Merge.OPEN, Merge.ALL, Merge.DECISION

_Error = Annotated[str | None, "Kafka error name and message if the response is missing; null if it is complete."]


@declares("evidence")
@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceEntry(TableRow):
    """One observed value.

    With the API or log that has it, where and when.
    """

    source: Annotated[str | None, "API or log that has the value."] = None
    broker_id: Annotated[Int32 | None, "Broker that answered."] = None
    observed_at: Annotated[dt.datetime | None, "When it was observed; for a record, when it was written."] = None
    name: Annotated[str | None, "Name of the value."] = None
    value: Annotated[str | None, "The value as text."] = None


@declares("partitions", key=("topic", "partition"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(TableRow):
    """A partition as its leader reports it."""

    topic: Annotated[str, "Topic name."]
    partition: Annotated[Int32, "Partition number."]
    leader: Annotated[Int32 | None, "Broker id of the leader; null if there is none."] = None
    leader_epoch: Annotated[Int32 | None, "Epoch of that leader."] = None
    replicas: Annotated[tuple[Int32, ...] | None, "Broker ids of the replicas."] = None
    isr: Annotated[tuple[Int32, ...] | None, "Broker ids of the in-sync replicas."] = None
    log_start_offset: Annotated[Int64 | None, "First offset still in the log."] = None
    local_log_start_offset: Annotated[
        Int64 | None,
        "First offset on the leader's disk; what is before it is in remote storage (KIP-405). Null in recordings.",
    ] = None
    latest_tiered_offset: Annotated[
        Int64 | None, "Last offset copied to remote storage, at most the LSO; null without any, and in recordings."
    ] = None
    last_stable_offset: Annotated[Int64 | None, "Where read_committed consumers stop."] = None
    high_watermark: Annotated[Int64 | None, "Where read_uncommitted consumers stop."] = None
    log_end_offset: Annotated[Int64 | None, "Next offset the leader will write."] = None
    broker_id: Annotated[Int32 | None, "Broker that answered or should have answered."] = None
    observed_at: Annotated[dt.datetime, "When the response arrived, by this machine's clock."]
    error: _Error = None

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@declares("producers", key=("topic", "partition", "broker_id", "producer_id"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Producer(TableRow):
    """Producer state on a replica (DescribeProducers, .snapshot)."""

    topic: Annotated[str, "Topic name."]
    partition: Annotated[Int32, "Partition number."]
    producer_id: Annotated[Int64 | None, "Producer id (PID)."] = None
    producer_epoch: Annotated[Int16 | None, "Newest epoch of this producer on the partition."] = None
    last_sequence: Annotated[Int32 | None, "Last sequence number written."] = None
    last_timestamp: Annotated[
        dt.datetime | None, "Newest record time; only a hint, as it is the producer's clock under CreateTime."
    ] = None
    coordinator_epoch: Annotated[Int32 | None, "Coordinator epoch of the producer's last marker on the partition."] = (
        None
    )
    current_txn_start_offset: Annotated[Int64 | None, "First offset of the open transaction; null if none is open."] = (
        None
    )
    broker_id: Annotated[Int32 | None, "Broker that answered or should have answered."] = None
    observed_at: Annotated[dt.datetime, "When the response arrived, by this machine's clock."]
    error: _Error = None

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


@declares("transactions", key=("transactional_id",), sort=("transactional_id", "broker_id", "txn_state_partition"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction(TableRow):
    """Coordinator state of a transactional id (ListTransactions and DescribeTransactions, or __transaction_state)."""

    transactional_id: Annotated[str | None, "Transactional id; null on an error row for a broker or a partition."] = (
        None
    )
    producer_id: Annotated[Int64 | None, "Producer id (PID)."] = None
    producer_epoch: Annotated[Int16 | None, "Producer epoch."] = None
    state: Annotated[
        str | None, "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort or Dead."
    ] = None
    timeout_ms: Annotated[
        Int32 | None, "The transaction's own timeout; Int32.MAX marks two-phase commit.", Unit("ms")
    ] = None
    start_time: Annotated[
        dt.datetime | None, "Start of the transaction, by the coordinator's clock; null if none is open."
    ] = None
    last_update_time: Annotated[
        dt.datetime | None, "Time of the last state change; only __transaction_state has it."
    ] = None
    topic_partitions: Annotated[tuple[TopicPartition, ...] | None, "Partitions that still expect a marker."] = None
    coordinator_id: Annotated[Int32 | None, "Broker id of the coordinator."] = None
    txn_state_partition: Annotated[Int32 | None, "Partition of __transaction_state that holds the id."] = None
    source: Annotated[str, "ListTransactions, DescribeTransactions or __transaction_state."]
    broker_id: Annotated[Int32 | None, "Broker that answered or should have answered."] = None
    observed_at: Annotated[dt.datetime, "When the response arrived, by this machine's clock."]
    error: _Error = None


@declares(
    "findings",
    key=("cluster_id", "topic", "partition", "producer_id", "start_offset"),
    sort=("cluster_id", "topic", "partition", "queue_position", "start_offset", "producer_id"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(TableRow):
    """One verdict: who holds, held or will hold a partition's LSO, why, and what is safe to do."""

    topic: Annotated[str | None, "Topic name; null if the finding is about the cluster."] = None
    partition: Annotated[Int32 | None, "Partition number; null if the finding is about the cluster."] = None
    queue_position: Annotated[
        Int32 | None, "1 holds the LSO now, 2 holds it after 1 has ended; null if it holds nothing.", OPEN
    ] = None
    producer_id: Annotated[Int64 | None, "Producer id (PID)."] = None
    producer_epoch: Annotated[Int16 | None, "Producer epoch."] = None
    transactional_id: Annotated[
        str | None, "Transactional id that owns the producer id, if the coordinator has one.", KNOWN
    ] = None
    owner: Annotated[
        str | None, "Application that uses that id, by its form and the groups (transaction_owners).", KNOWN
    ] = None
    start_offset: Annotated[Int64 | None, "First offset of the open transaction on this partition."] = None
    verdict: Annotated[Verdict, "One of toolkit.schema.verdict.Verdict.", DECISION]
    outcome: Annotated[
        str | None,
        "What was decided about these records: undecided, abort, commit, unknown; null if nothing is open, or the "
        "partition was not read.",
        DECISION,
    ] = None
    reason: Annotated[str, "Reason for the verdict, as a sentence.", DECISION]
    cause: Annotated[str | None, "Root cause, if the log shows it.", KNOWN] = None
    remedy: Annotated[str, "What is safe to do, as sentences; its command is a line of its own.", DECISION]
    action: Annotated[
        str | None, "Command that the remedy names: abort, complete, commit or fence; null if none is safe.", DECISION
    ] = None
    missing: Annotated[tuple[str, ...], "What is missing to reach a verdict; empty if nothing is.", DECISION]
    evidence: Annotated[tuple[EvidenceEntry, ...], "Observed values, with source and time.", ALL]
    opened_at: Annotated[dt.datetime | None, "When the transaction opened, by the clock in opened_at_clock.", KNOWN] = (
        None
    )
    opened_at_clock: Annotated[
        str | None,
        "coordinator, producer (CreateTime), or broker: LogAppendTime, or the time of the last marker before "
        "the transaction if the producer's time cannot be right.",
        KNOWN,
    ] = None
    expires_at: Annotated[dt.datetime | None, "When the coordinator aborts the transaction by its timeout.", OPEN] = (
        None
    )
    last_stable_offset: Annotated[Int64 | None, "LSO of the partition.", OPEN] = None
    high_watermark: Annotated[Int64 | None, "High watermark of the partition.", OPEN] = None
    offsets_held: Annotated[
        Int64 | None, "Offsets from the LSO to the high watermark, markers included.", Unit("offsets"), KNOWN
    ] = None
    records_held: Annotated[
        Int64 | None, "Data records among them; null if the log was not read that far.", Unit("records"), KNOWN
    ] = None
    bytes_held: Annotated[
        Int64 | None, "Bytes from the LSO to the high watermark; null if records_held is.", Unit("bytes"), KNOWN
    ] = None
    groups_held: Annotated[tuple[str, ...] | None, "Groups that this LSO blocks; null if not read.", KNOWN] = None
    compaction_held: Annotated[bool | None, "Whether the LSO blocks the log cleaner; null if unknown.", KNOWN] = None
    held_from: Annotated[
        dt.datetime | None,
        "When it began to hold the LSO: when it opened, or when the last transaction before it ended; null "
        "if it has not held the LSO yet or the log was not read that far.",
        KNOWN,
    ] = None
    held_to: Annotated[
        dt.datetime | None, "When it stopped holding the LSO, by its marker's time; null if it still holds it.", KNOWN
    ] = None
    held_ms: Annotated[
        Int64 | None, "How long it held the LSO; up to brokers_time if it still holds it.", Unit("ms"), KNOWN
    ] = None
    brokers_time: Annotated[
        dt.datetime | None,
        "The time by the brokers' clocks when it was observed, up to which ages count; null if that is unknown.",
    ] = None
    broker_id: Annotated[Int32 | None, "Broker that answered or should have answered."] = None
    observed_at: Annotated[dt.datetime, "When the response arrived, by this machine's clock."]
    error: _Error = None
    cluster_id: Annotated[
        str | None, "Id of the cluster; null if its source does not know it, or has files of several.", KNOWN
    ] = None

    @property
    def tp(self) -> TopicPartition | None:
        """The partition; null if the finding is about a whole cluster."""
        return None if self.topic is None or self.partition is None else TopicPartition(self.topic, self.partition)

    @property
    def key(self) -> TransactionKey:
        """The key of its transaction."""
        return TransactionKey(self.topic, self.partition, self.producer_id, self.start_offset)

    @property
    def command(self) -> tuple[str, ...] | None:
        """The arguments of the command in `remedy`; null if it has none.

        It acts on this transaction or this id: the text of an id may look like a command, too.
        """
        of_id = ("--transactional-id", self.transactional_id)
        place = ("--topic", self.topic, "--partition", str(self.partition), "--start-offset", str(self.start_offset))
        for line in self.remedy.split("\n"):
            _, verb, *options = command_in(line) or ("", "")
            is_own = tuple(options) in {place, of_id} or (*options[:1], *options[2:]) == ("--flink-checkpoint", *of_id)
            if verb in ACTIONS and is_own:
                return ("kafka-txn", verb, *options)
        return None

    @property
    def advice(self) -> str:
        """The sentences of `remedy`, without its command."""
        own = None if self.command is None else command_line(self.command)
        return " ".join(line for line in self.remedy.split("\n") if line != own)

    def merged(self, other: "Finding") -> "Finding":
        """This finding of a transaction with what only another one of it knows, by the policy of each column."""
        filled = (KNOWN,) if self.verdict is Verdict.ENDED else (KNOWN, OPEN)
        changes: dict[str, Any] = {}
        for name, policy in self.policies.items():
            own, others = getattr(self, name), getattr(other, name)
            if policy is ALL:
                changes[name] = tuple(dict.fromkeys((*own, *others)))
            elif policy in filled and own is None:
                changes[name] = others
        return replace(self, **changes)

    @property
    def is_coordinators_only(self) -> bool:
        """Whether only its coordinator shows the transaction: its partition was not read, and `error` says why."""
        return self.producer_id is not None and self.error is not None

    @property
    def is_not_read(self) -> bool:
        """Whether its partition, or its producers alone, which leaves no `error`, could not be read."""
        return self.error is not None or (self.verdict is Verdict.UNKNOWN and self.start_offset is None)


@declares("coordinators", key=("key_type", "key"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator(TableRow):
    """The coordinator of a transactional id or a group, by hash and by FindCoordinator."""

    key_type: Annotated[str, "transaction or group."]
    key: Annotated[str, "The transactional id or group id."]
    topic: Annotated[str, "__transaction_state or __consumer_offsets."]
    partition: Annotated[Int32 | None, "Partition of that topic, by the hash of the key."] = None
    leader: Annotated[Int32 | None, "Leader of that partition, according to the metadata."] = None
    coordinator_id: Annotated[Int32 | None, "Coordinator, according to FindCoordinator."] = None
    agrees: Annotated[bool | None, "Whether leader and coordinator_id are equal; null if one is missing."] = None
    broker_id: Annotated[Int32 | None, "Broker that answered or should have answered."] = None
    observed_at: Annotated[dt.datetime, "When the response arrived, by this machine's clock."]
    error: _Error = None


@declares("exposure", key=("subject", "broker_id", "name", "transactional_id"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure(TableRow):
    """One setting that decides whether transactions can hang, or one client that can leave a transaction hanging."""

    subject: Annotated[str, "cluster, broker, known bug or transactional_id."]
    name: Annotated[str, "Kafka's name of the feature or setting; Jira issue of a known bug."]
    transactional_id: Annotated[str | None, "Transactional id of the client; null for the cluster and brokers."] = None
    value: Annotated[str | None, "Its value; null if it does not exist there or could not be read."] = None
    exposed: Annotated[bool | None, "Whether it lets transactions hang or hold an LSO for long; null if unknown."] = (
        None
    )
    means: Annotated[str, "What that means, as a sentence."]
    broker_id: Annotated[Int32 | None, "Broker that answered or should have answered."] = None
    observed_at: Annotated[dt.datetime, "When the response arrived, by this machine's clock."]
    error: _Error = None


@declares("transaction_owners", key=("transactional_id",), sort=("transactional_id", "broker_id"))
@dataclass(frozen=True, slots=True, kw_only=True)
class IdOwner(TableRow):
    """A transactional id, and who runs it: framework, application, task, member and host."""

    transactional_id: Annotated[str | None, "The id; null where a broker's ids could not be read."] = None
    framework: Annotated[
        str | None, "Kafka Streams, Kafka Connect, Apache Flink, Apache Iceberg sink, Spring Kafka or ksqlDB."
    ] = None
    application: Annotated[str | None, "application.id, group.id of a Connect cluster or of consumers, or prefix."] = (
        None
    )
    task: Annotated[str | None, "Which part of it: thread, connector and task, or subtask."] = None
    member_id: Annotated[str | None, "Member of the group that is this part."] = None
    client_id: Annotated[str | None, "Client id of that member."] = None
    host: Annotated[str | None, "Address of that member; the REST URL of a Connect worker."] = None
    confidence: Annotated[str, "certain: the members of a group prove it; likely: by the form of the id; unknown."]
    reason: Annotated[str, "Why, as a sentence."]
    broker_id: Annotated[Int32 | None, "Broker that returned the id, or should have."] = None
    observed_at: Annotated[dt.datetime, "When that answer arrived, by this machine's clock."]
    error: Annotated[str | None, "Kafka error name and text where the answer is missing; null where it is whole."] = (
        None
    )


def open_starts(producers: Iterable[Producer]) -> dict[int, int]:
    """First offsets of the open transactions of a partition, by producer id."""
    return {
        each.producer_id: each.current_txn_start_offset
        for each in producers
        if each.producer_id is not None and each.current_txn_start_offset is not None
    }


_ObservedAt = Annotated[dt.datetime | None, "When its offsets were read; of files, the newest time that a broker set."]
_ReadError = Annotated[str | None, "What could not be read, as NAME: sentence; null where the row is whole."]


@declares("offset_visibility", key=("topic", "partition", "offset"))
@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetVisibility(TableRow):
    """An offset: what it holds, and which consumers receive it."""

    topic: Annotated[str, "Topic name."]
    partition: Annotated[Int32, "Partition number."]
    offset: Annotated[Int64, "The offset."]
    status: Annotated[str | None, "One of analysis.log.offset_status.STATUSES; null where that is not known."] = None
    read_committed: Annotated[
        bool | None, "Whether a read_committed consumer receives it now; null where not known."
    ] = None
    read_uncommitted: Annotated[bool | None, "Whether a read_uncommitted consumer receives it now; null as above."] = (
        None
    )
    reason: Annotated[str, "Why, as a sentence."]
    base_offset: Annotated[Int64 | None, "First offset of its batch; null where no batch holds it."] = None
    last_offset: Annotated[Int64 | None, "Last offset of its batch."] = None
    timestamp: Annotated[dt.datetime | None, "Newest record time of its batch."] = None
    timestamp_type: Annotated[str | None, "CreateTime (the producer's clock) or LogAppendTime (the broker's)."] = None
    producer_id: Annotated[Int64 | None, "Producer id (PID)."] = None
    producer_epoch: Annotated[Int16 | None, "Producer epoch of its batch."] = None
    transactional_id: Annotated[str | None, "Id that owns the producer id; null where the coordinators know none."] = (
        None
    )
    outcome: Annotated[str | None, "commit, abort or open; null outside transactions, and where that is not known."] = (
        None
    )
    first_offset: Annotated[
        Int64 | None, "First offset of its transaction, which may be below the log start; null where that is not known."
    ] = None
    marker_offset: Annotated[Int64 | None, "Offset of the marker of its transaction; null where that was not read."] = (
        None
    )
    marker_time: Annotated[dt.datetime | None, "Time of that marker, by the partition leader's clock."] = None
    visible_at: Annotated[
        dt.datetime | None,
        "When the LSO passed it: time of the last marker that it waited for, among those read; of a "
        "record that waited for none its time under LogAppendTime, else null.",
    ] = None
    holder_producer_id: Annotated[
        Int64 | None, "Where it lies beyond the LSO: producer of the lowest open transaction."
    ] = None
    holder_first_offset: Annotated[Int64 | None, "First offset of that transaction."] = None
    log_start_offset: Annotated[Int64 | None, "First offset still in the log."] = None
    last_stable_offset: Annotated[Int64 | None, "LSO of the partition."] = None
    high_watermark: Annotated[Int64 | None, "High watermark of the partition."] = None
    log_end_offset: Annotated[Int64 | None, "Log end offset of the partition."] = None
    broker_id: Annotated[Int32 | None, "Leader of the partition; of files, whose log directory was read."] = None
    observed_at: _ObservedAt = None
    error: _ReadError = None


@declares("missing_offsets", key=("topic", "partition", "first_offset"))
@dataclass(frozen=True, slots=True, kw_only=True)
class MissingOffsets(TableRow):
    """A range of offsets that a consumer does not receive, and why."""

    topic: Annotated[str, "Topic name."]
    partition: Annotated[Int32, "Partition number."]
    first_offset: Annotated[Int64, "First offset of the range."]
    last_offset: Annotated[Int64, "Last offset of the range."]
    offsets: Annotated[Int64, "How many those are.", Unit("offsets")]
    status: Annotated[
        str | None,
        "One of analysis.log.offset_status.STATUSES, or beyond_lso: a record that waits for the LSO; null where "
        "that is not known.",
    ] = None
    isolation_level: Annotated[str, "Of the consumer: read_committed or read_uncommitted."]
    reason: Annotated[str, "Why they are missing, as a sentence."]
    broker_id: Annotated[Int32 | None, "Leader of the partition; of files, whose log directory was read."] = None
    observed_at: _ObservedAt = None
    error: _ReadError = None


@declares("group_lag", key=("group_id", "topic", "partition"), version=3)
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag(TableRow):
    """How far a group is behind on a partition, and what that is made of."""

    group_id: Annotated[str, "Group id."]
    topic: Annotated[str | None, "Topic name; null on an error row for topics that may be hidden."] = None
    partition: Annotated[Int32 | None, "Partition number; null on an error row for topics that may be hidden."] = None
    committed_offset: Annotated[
        Int64 | None, "Committed offset of the group; start offset of a share group; null where it has none."
    ] = None
    last_stable_offset: Annotated[Int64 | None, "LSO of the partition."] = None
    high_watermark: Annotated[Int64 | None, "High watermark of the partition."] = None
    lag: Annotated[
        Int64 | None,
        "Offsets from the committed one to the high watermark; of share groups as the broker counts them.",
        Unit("offsets"),
    ] = None
    client_lag: Annotated[
        Int64 | None,
        "Lag as a read_committed client measures it from there: offsets to the LSO; null of share groups.",
        Unit("offsets"),
    ] = None
    behind: Annotated[Int64 | None, "Records below the LSO: the group can read them now.", Unit("records")] = None
    held: Annotated[Int64 | None, "Records from the LSO on: visible only once it moves.", Unit("records")] = None
    markers: Annotated[
        Int64 | None,
        "Markers, which no consumer receives; null, as the next two, if the log was not read: then they count as "
        "behind or held.",
        Unit("offsets"),
    ] = None
    aborted: Annotated[Int64 | None, "Records of aborted transactions.", Unit("records")] = None
    removed: Annotated[
        Int64 | None, "What is no more in the log: compaction or retention took it.", Unit("offsets")
    ] = None
    beyond_end: Annotated[
        Int64 | None,
        "By how much the committed offset lies beyond the end of the log: it was cut off or created again.",
        Unit("offsets"),
    ] = None
    isolation_level: Annotated[str | None, "Share groups: share.isolation.level; null where it may not be read."] = None
    reason: Annotated[str | None, "What the lag is made of, as a sentence."] = None
    broker_id: Annotated[Int32 | None, "Leader of the partition; of files, whose log directory was read."] = None
    observed_at: _ObservedAt = None
    error: _ReadError = None

    @property
    def never_read(self) -> int | None:
        """Offsets of it that no consumer receives; null if the log was not read."""
        return None if self.markers is None else self.markers + (self.aborted or 0) + (self.removed or 0)
