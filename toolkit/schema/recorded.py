"""Tables of a recording: samples of a cluster, what each contains, and late transactions."""

from __future__ import annotations

from toolkit.schema.live import FINDINGS, PARTITIONS, PRODUCERS, TRANSACTIONS
from toolkit.schema.table import (
    BOOL,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    STRING,
    TIME,
    Column,
    ListOf,
    StructOf,
    Table,
)

__all__ = ["LATE_TRANSACTIONS", "RECORDED", "SAMPLES"]

_SAMPLE = Column("sampled_at", TIME, "When the sample was due: the same on every row of a sample.", nullable=False)
_PHASE = Column(
    "phase",
    STRING,
    "before or after the coordinators answered: each sample reads the leaders twice, around the coordinators.",
    nullable=False,
)

FIRST_BATCHES = ListOf(
    StructOf(
        (
            ("topic", STRING),
            ("partition", INT32),
            ("start_offset", INT64),
            ("base_offset", INT64),
            ("last_offset", INT64),
            ("producer_id", INT64),
            ("producer_epoch", INT16),
            ("base_timestamp", TIME),
            ("log_append_time", BOOL),
        )
    )
)

SAMPLES = Table(
    "samples",
    "one sample of the recorder; written last, so a sample without a row here is incomplete",
    (
        _SAMPLE,
        Column("observed_at", TIME, "When the sample ended, by the recorder's clock.", nullable=False),
        Column("interval_ms", INT64, "Time from one sample to the next.", unit="ms"),
        Column("seconds", FLOAT64, "How long it took.", unit="s"),
        Column("brokers", ListOf(INT32), "Brokers queried."),
        Column("proofs", ListOf(STRING), "What proves the coordinators' answers complete."),
        Column("gaps", ListOf(STRING), "Missing for that proof."),
        Column("topic_gaps", ListOf(STRING), "Missing for an answer about the whole cluster."),
        Column("first_batches", FIRST_BATCHES, "First batches of open transactions."),
        Column("error", STRING, "Why the sample failed, as NAME: sentence; null where it did not."),
    ),
    key=("sampled_at",),
    sort=("sampled_at",),
)

LATE_TRANSACTIONS = Table(
    "late_transactions",
    "a transaction open for longer than its own timeout plus a margin (the late transactions of KIP-664)",
    (
        _SAMPLE,
        Column("topic", STRING, "Topic name.", nullable=False),
        Column("partition", INT32, "Partition number.", nullable=False),
        Column("producer_id", INT64, "Producer id (PID)."),
        Column("producer_epoch", INT16, "Producer epoch."),
        Column("transactional_id", STRING, "Id that owns the producer id, where the coordinator knows one."),
        Column("start_offset", INT64, "First offset of the open transaction."),
        Column("opened_at", TIME, "When it opened, by the clock that opened_at_clock names."),
        Column("opened_at_clock", STRING, "coordinator, producer, broker; or recorder: when it was first seen open."),
        Column("timeout_ms", INT32, "The transaction's own timeout; else the longest that brokers allow.", unit="ms"),
        Column("late_since", TIME, "When timeout and margin had passed."),
        Column("late_ms", INT64, "How long ago that was.", unit="ms"),
        Column("broker_id", INT32, "Leader of the partition."),
        Column("observed_at", TIME, "When it was seen, by the recorder's clock.", nullable=False),
    ),
    key=("sampled_at", "topic", "partition", "producer_id"),
    sort=("sampled_at", "topic", "partition", "start_offset", "producer_id"),
)


def _recorded(table: Table, *leading: Column) -> Table:
    return Table(
        table.name,
        f"{table.row}, in one sample of the recorder",
        (*leading, *table.columns),
        key=(*(column.name for column in leading), *table.key),
        sort=(*(column.name for column in leading), *table.sort),
    )


RECORDED = {
    "samples": SAMPLES,
    "partitions": _recorded(PARTITIONS, _SAMPLE, _PHASE),
    "producers": _recorded(PRODUCERS, _SAMPLE, _PHASE),
    "transactions": _recorded(TRANSACTIONS, _SAMPLE),
    "findings": _recorded(FINDINGS, _SAMPLE),
    "late_transactions": LATE_TRANSACTIONS,
}
"""Tables of a recording by name: those of a live cluster, with the sample that each row is of."""
