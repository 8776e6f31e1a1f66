"""Tables of a cluster's state: partitions, producers, transactions, coordinators, findings."""

from __future__ import annotations

from toolkit.schema.table import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    TOPIC_PARTITIONS,
    Column,
    ListOf,
    StructOf,
    Table,
)

__all__ = [
    "COORDINATORS",
    "EVIDENCE",
    "EXPOSURE",
    "FINDINGS",
    "PARTITIONS",
    "PRODUCERS",
    "TRANSACTIONS",
    "TRANSACTION_OWNERS",
]

_TOPIC = Column("topic", STRING, "Topic name.", nullable=False)
_PARTITION = Column("partition", INT32, "Partition number.", nullable=False)
_PRODUCER_ID = Column("producer_id", INT64, "Producer id (PID).")
_PRODUCER_EPOCH = Column("producer_epoch", INT16, "Producer epoch.")
_LIVE = (
    Column("broker_id", INT32, "Broker that answered or should have answered."),
    Column("observed_at", TIME, "When the response arrived, by this machine's clock.", nullable=False),
    Column("error", STRING, "Kafka error name and message if the response is missing; null if it is complete."),
)

PARTITIONS = Table(
    "partitions",
    "a partition as its leader reports it",
    (
        _TOPIC,
        _PARTITION,
        Column("leader", INT32, "Broker id of the leader; null if there is none."),
        Column("leader_epoch", INT32, "Epoch of that leader."),
        Column("replicas", ListOf(INT32), "Broker ids of the replicas."),
        Column("isr", ListOf(INT32), "Broker ids of the in-sync replicas."),
        Column("log_start_offset", INT64, "First offset still in the log."),
        Column("last_stable_offset", INT64, "Where read_committed consumers stop."),
        Column("high_watermark", INT64, "Where read_uncommitted consumers stop."),
        Column("log_end_offset", INT64, "Next offset the leader will write."),
        *_LIVE,
    ),
    key=("topic", "partition"),
    sort=("topic", "partition"),
)

PRODUCERS = Table(
    "producers",
    "producer state on a replica (DescribeProducers, .snapshot)",
    (
        _TOPIC,
        _PARTITION,
        _PRODUCER_ID,
        Column("producer_epoch", INT16, "Newest epoch of this producer on the partition."),
        Column("last_sequence", INT32, "Last sequence number written."),
        Column(
            "last_timestamp", TIME, "Newest record time; only a hint, as it is the producer's clock under CreateTime."
        ),
        Column("coordinator_epoch", INT32, "Coordinator epoch of the producer's last marker on the partition."),
        Column("current_txn_start_offset", INT64, "First offset of the open transaction; null if none is open."),
        *_LIVE,
    ),
    key=("topic", "partition", "broker_id", "producer_id"),
    sort=("topic", "partition", "broker_id", "producer_id"),
)

TRANSACTIONS = Table(
    "transactions",
    "coordinator state of a transactional id (ListTransactions and DescribeTransactions, or __transaction_state)",
    (
        Column("transactional_id", STRING, "Transactional id; null on an error row for a broker or a partition."),
        _PRODUCER_ID,
        _PRODUCER_EPOCH,
        Column("state", STRING, "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort or Dead."),
        Column("timeout_ms", INT32, "The transaction's own timeout; Int32.MAX marks two-phase commit.", unit="ms"),
        Column("start_time", TIME, "Start of the transaction, by the coordinator's clock; null if none is open."),
        Column("last_update_time", TIME, "Time of the last state change; only __transaction_state has it."),
        Column("topic_partitions", TOPIC_PARTITIONS, "Partitions that still expect a marker."),
        Column("coordinator_id", INT32, "Broker id of the coordinator."),
        Column("txn_state_partition", INT32, "Partition of __transaction_state that holds the id."),
        Column("source", STRING, "ListTransactions, DescribeTransactions or __transaction_state.", nullable=False),
        *_LIVE,
    ),
    key=("transactional_id",),
    sort=("transactional_id", "broker_id", "txn_state_partition"),
)

COORDINATORS = Table(
    "coordinators",
    "the coordinator of a transactional id or a group, by hash and by FindCoordinator",
    (
        Column("key_type", STRING, "transaction or group.", nullable=False),
        Column("key", STRING, "The transactional id or group id.", nullable=False),
        Column("topic", STRING, "__transaction_state or __consumer_offsets.", nullable=False),
        Column("partition", INT32, "Partition of that topic, by the hash of the key."),
        Column("leader", INT32, "Leader of that partition, according to the metadata."),
        Column("coordinator_id", INT32, "Coordinator, according to FindCoordinator."),
        Column("agrees", BOOL, "Whether leader and coordinator_id are equal; null if one is missing."),
        *_LIVE,
    ),
    key=("key_type", "key"),
    sort=("key_type", "key"),
)

EVIDENCE = ListOf(
    StructOf(
        (
            ("source", STRING),  # the API or log that answered
            ("broker_id", INT32),
            ("observed_at", TIME),
            ("name", STRING),
            ("value", STRING),
        )
    )
)

FINDINGS = Table(
    "findings",
    "one verdict: who holds, held or will hold a partition's LSO, why, and what is safe to do",
    (
        Column("topic", STRING, "Topic name; null if the finding is about the cluster."),
        Column("partition", INT32, "Partition number; null if the finding is about the cluster."),
        Column("queue_position", INT32, "1 holds the LSO now, 2 holds it after 1 has ended; null if it holds nothing."),
        _PRODUCER_ID,
        _PRODUCER_EPOCH,
        Column("transactional_id", STRING, "Transactional id that owns the producer id, if the coordinator has one."),
        Column("owner", STRING, "Application that uses that id, by its form and the groups (transaction_owners)."),
        Column("start_offset", INT64, "First offset of the open transaction on this partition."),
        Column("verdict", STRING, "One of analysis.verdicts.VERDICTS.", nullable=False),
        Column("reason", STRING, "Reason for the verdict, as a sentence.", nullable=False),
        Column("cause", STRING, "Root cause, if the log shows it."),
        Column("remedy", STRING, "What is safe to do, as a sentence.", nullable=False),
        Column("missing", ListOf(STRING), "What is missing to reach a verdict; empty if nothing is.", nullable=False),
        Column("evidence", EVIDENCE, "Observed values, with source and time.", nullable=False),
        Column("opened_at", TIME, "When the transaction opened, by the clock in opened_at_clock."),
        Column(
            "opened_at_clock",
            STRING,
            "coordinator, producer (CreateTime), or broker: LogAppendTime, or the time of the last marker before the "
            "transaction if the producer's time cannot be right.",
        ),
        Column("expires_at", TIME, "When the coordinator aborts the transaction by its timeout."),
        Column("last_stable_offset", INT64, "LSO of the partition."),
        Column("high_watermark", INT64, "High watermark of the partition."),
        Column("offsets_held", INT64, "Offsets from the LSO to the high watermark, markers included.", unit="offsets"),
        Column(
            "records_held", INT64, "Data records among them; null if the log was not read that far.", unit="records"
        ),
        Column("bytes_held", INT64, "Bytes from the LSO to the high watermark; null if records_held is.", unit="bytes"),
        Column("groups_held", ListOf(STRING), "Groups that this LSO blocks; null if not read."),
        Column("compaction_held", BOOL, "Whether the LSO blocks the log cleaner; null if unknown."),
        Column(
            "held_from",
            TIME,
            "When it began to hold the LSO: when it opened, or when the last transaction before it ended; null if it "
            "has not held the LSO yet or the log was not read that far.",
        ),
        Column("held_to", TIME, "When it stopped holding the LSO, by its marker's time; null if it still holds it."),
        Column("held_ms", INT64, "How long it held the LSO; up to observed_at if it still holds it.", unit="ms"),
        *_LIVE,
    ),
    key=("topic", "partition", "producer_id"),
    sort=("topic", "partition", "queue_position", "start_offset", "producer_id"),
)

EXPOSURE = Table(
    "exposure",
    "one setting that decides whether transactions can hang, or one client that can leave a transaction hanging",
    (
        Column("subject", STRING, "cluster, broker, known bug or transactional_id.", nullable=False),
        Column("name", STRING, "Kafka's name of the feature or setting; Jira issue of a known bug.", nullable=False),
        Column("transactional_id", STRING, "Transactional id of the client; null for the cluster and brokers."),
        Column("value", STRING, "Its value; null if it does not exist there or could not be read."),
        Column("exposed", BOOL, "Whether it lets transactions hang or hold an LSO for long; null if unknown."),
        Column("means", STRING, "What that means, as a sentence.", nullable=False),
        Column("broker_id", INT32, "Broker that answered or should have answered."),
        Column("observed_at", TIME, "When the response arrived, by this machine's clock.", nullable=False),
        Column("error", STRING, "Kafka error name and message if the response is missing; null if it is complete."),
    ),
    key=("subject", "broker_id", "name", "transactional_id"),
    sort=("subject", "broker_id", "name", "transactional_id"),
)

TRANSACTION_OWNERS = Table(
    "transaction_owners",
    "a transactional id, and who runs it: framework, application, task, member and host",
    (
        Column("transactional_id", STRING, "The id; null where a broker's ids could not be read."),
        Column("framework", STRING, "Kafka Streams, Kafka Connect, Apache Flink, Spring Kafka or ksqlDB."),
        Column("application", STRING, "application.id, group.id of a Connect cluster or of consumers, or prefix."),
        Column("task", STRING, "Which part of it: thread, connector and task, or subtask."),
        Column("member_id", STRING, "Member of the group that is this part."),
        Column("client_id", STRING, "Client id of that member."),
        Column("host", STRING, "Address of that member; the REST URL of a Connect worker."),
        Column(
            "confidence",
            STRING,
            "certain: the members of a group prove it; likely: by the form of the id; unknown.",
            nullable=False,
        ),
        Column("reason", STRING, "Why, as a sentence.", nullable=False),
        Column("broker_id", INT32, "Broker that returned the id, or should have."),
        Column("observed_at", TIME, "When that answer arrived, by this machine's clock.", nullable=False),
        Column("error", STRING, "Kafka error name and text where the answer is missing; null where it is whole."),
    ),
    key=("transactional_id",),
    sort=("transactional_id", "broker_id"),
)
