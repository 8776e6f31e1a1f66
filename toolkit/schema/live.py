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

__all__ = ["COORDINATORS", "EVIDENCE", "FINDINGS", "PARTITIONS", "PRODUCERS", "TRANSACTIONS"]

_TOPIC = Column("topic", STRING, "Topic name.", nullable=False)
_PARTITION = Column("partition", INT32, "Partition number.", nullable=False)
_PRODUCER_ID = Column("producer_id", INT64, "Producer id (PID).")
_PRODUCER_EPOCH = Column("producer_epoch", INT16, "Producer epoch.")
_LIVE = (
    Column("broker_id", INT32, "Broker that answered, or that should have."),
    Column("observed_at", TIME, "When the answer arrived, by this machine's clock.", nullable=False),
    Column("error", STRING, "Kafka error name and text where the answer is missing; null where it is whole."),
)

PARTITIONS = Table(
    "partitions",
    "a partition as its leader answers for it",
    (
        _TOPIC,
        _PARTITION,
        Column("leader", INT32, "Broker id of the leader; null while there is none."),
        Column("leader_epoch", INT32, "Epoch of that leader."),
        Column("replicas", ListOf(INT32), "Broker ids that hold a replica."),
        Column("isr", ListOf(INT32), "Broker ids in sync."),
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
        Column("last_timestamp", TIME, "Newest record time: the producer's clock under CreateTime, only a hint."),
        Column("coordinator_epoch", INT32, "Coordinator epoch of the producer's last marker here."),
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
        Column("transactional_id", STRING, "Transactional id; null on the error row of a whole broker or partition."),
        _PRODUCER_ID,
        _PRODUCER_EPOCH,
        Column("state", STRING, "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort or Dead."),
        Column("timeout_ms", INT32, "The transaction's own timeout; Int32.MAX marks two-phase commit.", unit="ms"),
        Column("start_time", TIME, "Start of the transaction by the coordinator's clock; null if none is open."),
        Column("last_update_time", TIME, "Last state change; only __transaction_state has it."),
        Column("topic_partitions", TOPIC_PARTITIONS, "Partitions whose marker is still expected."),
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
    "where a transactional id or a group is coordinated, by hash and by FindCoordinator",
    (
        Column("key_type", STRING, "transaction or group.", nullable=False),
        Column("key", STRING, "The transactional id or group id.", nullable=False),
        Column("topic", STRING, "__transaction_state or __consumer_offsets.", nullable=False),
        Column("partition", INT32, "Partition of that topic, by the hash of the key."),
        Column("leader", INT32, "Leader of that partition, by metadata."),
        Column("coordinator_id", INT32, "Broker that FindCoordinator names."),
        Column("agrees", BOOL, "Whether both name the same broker; null if one of them is missing."),
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
    "one answer: who holds, held or will hold this partition's LSO, why, and what is safe",
    (
        Column("topic", STRING, "Topic name; null where the finding is about the whole cluster."),
        Column("partition", INT32, "Partition number; null where the finding is about the whole cluster."),
        Column("queue_position", INT32, "1 holds the LSO now; 2 holds it once 1 has ended; null holds nothing."),
        _PRODUCER_ID,
        _PRODUCER_EPOCH,
        Column("transactional_id", STRING, "Id that owns the producer id, where the coordinator knows one."),
        Column("owner", STRING, "Who runs that id, as far as its form and the groups show (transaction_owners)."),
        Column("start_offset", INT64, "First offset of the open transaction on this partition."),
        Column("verdict", STRING, "One of analysis.verdicts.VERDICTS.", nullable=False),
        Column("reason", STRING, "Why this verdict, as a sentence.", nullable=False),
        Column("cause", STRING, "Root cause, where the log shows it."),
        Column("remedy", STRING, "What is safe to do, as a sentence.", nullable=False),
        Column("missing", ListOf(STRING), "What is missing for a verdict; empty where nothing is.", nullable=False),
        Column("evidence", EVIDENCE, "Observed values, with source and time.", nullable=False),
        Column("opened_at", TIME, "When the transaction opened, by the clock that opened_at_clock names."),
        Column(
            "opened_at_clock",
            STRING,
            "coordinator, producer (CreateTime), or broker: LogAppendTime, or the time of the last marker before it, "
            "where the producer's cannot be right.",
        ),
        Column("expires_at", TIME, "When the coordinator aborts it by its own timeout."),
        Column("last_stable_offset", INT64, "LSO of the partition."),
        Column("high_watermark", INT64, "High watermark of the partition."),
        Column("offsets_held", INT64, "Offsets from the LSO to the high watermark, markers included.", unit="offsets"),
        Column("records_held", INT64, "Data records among them; null if the log was not read so far.", unit="records"),
        Column("bytes_held", INT64, "Bytes from the LSO to the high watermark; null as records_held.", unit="bytes"),
        Column("groups_held", ListOf(STRING), "Groups that cannot move because of it; null if not read."),
        Column("compaction_held", BOOL, "Whether the log cleaner waits at the LSO; null if not known."),
        Column(
            "held_from",
            TIME,
            "From when on it held the LSO: when it opened, or when the last one before it ended; null where it has not "
            "held it yet, or the log was not read so far.",
        ),
        Column("held_to", TIME, "Until when, by the time of its marker; null while it holds it."),
        Column("held_ms", INT64, "How long it held the LSO, up to observed_at while it holds it.", unit="ms"),
        *_LIVE,
    ),
    key=("topic", "partition", "producer_id"),
    sort=("topic", "partition", "queue_position", "start_offset", "producer_id"),
)
