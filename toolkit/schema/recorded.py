"""Tables of the flight recorder: its looks, what each saw, and the transactions that were late."""

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

_SAMPLE = Column("sample", TIME, "When the look was due: the same on every row of one look.", nullable=False)
_ASKED = Column(
    "asked",
    STRING,
    "first, or again: after the coordinators had answered, so that their answer lies between two of the leader's.",
    nullable=False,
)

OPENINGS = ListOf(
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
    "one look of the flight recorder; written after everything that it saw, so that what has no row here is not whole",
    (
        _SAMPLE,
        Column("observed_at", TIME, "When the look ended, by the recorder's clock.", nullable=False),
        Column("interval_ms", INT64, "Time from one look to the next.", unit="ms"),
        Column("seconds", FLOAT64, "How long it took.", unit="s"),
        Column("brokers", ListOf(INT32), "Brokers that were asked."),
        Column("proofs", ListOf(STRING), "How the coordinators' answers were shown to be complete."),
        Column("gaps", ListOf(STRING), "What is missing for that."),
        Column("topic_gaps", ListOf(STRING), "What is missing for an answer about the whole cluster."),
        Column("openings", OPENINGS, "First batches of open transactions, as they were read."),
        Column("error", STRING, "Why nothing was seen, as NAME: sentence; null where the look was taken."),
    ),
    key=("sample",),
    sort=("sample",),
)

LATE_TRANSACTIONS = Table(
    "late_transactions",
    "a transaction that was open for longer than its own timeout and a padding (the late transactions of KIP-664)",
    (
        _SAMPLE,
        Column("topic", STRING, "Topic name.", nullable=False),
        Column("partition", INT32, "Partition number.", nullable=False),
        Column("producer_id", INT64, "Producer id (PID)."),
        Column("producer_epoch", INT16, "Producer epoch."),
        Column("transactional_id", STRING, "Id that owns the producer id, where the coordinator knows one."),
        Column("start_offset", INT64, "First offset of the open transaction."),
        Column("opened_at", TIME, "When it opened, by the clock that opened_by names."),
        Column("opened_by", STRING, "coordinator, producer, broker; or recorder: when it was first seen open."),
        Column("timeout_ms", INT32, "The transaction's own timeout; else the longest that brokers allow.", unit="ms"),
        Column("late_since", TIME, "When timeout and padding were over."),
        Column("late_ms", INT64, "How long ago that was.", unit="ms"),
        Column("broker_id", INT32, "Leader of the partition."),
        Column("observed_at", TIME, "When it was seen, by the recorder's clock.", nullable=False),
    ),
    key=("sample", "topic", "partition", "producer_id"),
    sort=("sample", "topic", "partition", "start_offset", "producer_id"),
)


def _recorded(table: Table, *leading: Column) -> Table:
    return Table(
        table.name,
        f"{table.row}, as one look of the recorder saw it",
        (*leading, *table.columns),
        key=(*(column.name for column in leading), *table.key),
        sort=(*(column.name for column in leading), *table.sort),
    )


RECORDED = {
    "samples": SAMPLES,
    "partitions": _recorded(PARTITIONS, _SAMPLE, _ASKED),
    "producers": _recorded(PRODUCERS, _SAMPLE, _ASKED),
    "transactions": _recorded(TRANSACTIONS, _SAMPLE),
    "findings": _recorded(FINDINGS, _SAMPLE),
    "late_transactions": LATE_TRANSACTIONS,
}
"""What a recording holds, by name: the tables of a live cluster with the look that they are of."""
