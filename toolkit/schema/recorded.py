"""Tables of a recording: samples of a cluster, what each contains, and late transactions."""

import datetime as dt
from dataclasses import dataclass
from typing import Annotated

from toolkit.schema.live import FINDINGS, PARTITIONS, PRODUCERS, TRANSACTIONS
from toolkit.schema.record import Int16, Int32, Int64, TableRow, Unit, declares
from toolkit.schema.table import STRING, TIME, Column, Table, TopicPartition, TransactionKey

_SAMPLE = Column("sampled_at", TIME, "When the sample was due: the same on every row of a sample.", nullable=False)
_PHASE = Column(
    "phase",
    STRING,
    "before or after the coordinators answered: each sample reads the leaders twice, around the coordinators.",
    nullable=False,
)


@declares("first_batches", row="the first batch of an open transaction")
@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBatch(TableRow):
    """The first batch of an open transaction, read from the log at its start offset."""

    topic: Annotated[str, "Topic name."]
    partition: Annotated[Int32, "Partition number."]
    start_offset: Annotated[Int64, "First offset of the open transaction."]
    base_offset: Annotated[Int64, "Offset of the batch's first record."]
    last_offset: Annotated[Int64, "Offset of its last record."]
    producer_id: Annotated[Int64, "Producer id (PID)."]
    producer_epoch: Annotated[Int16, "Producer epoch."]
    base_timestamp: Annotated[dt.datetime | None, "Its first time; null if it has none."] = None
    log_append_time: Annotated[bool, "Whether that is the broker's time (LogAppendTime)."]


@declares(
    "samples",
    row="one sample of the recorder; written last, so a sample without a row here is incomplete",
    key=("sampled_at",),
    sort=("sampled_at",),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSample(TableRow):
    """One sample of the recorder."""

    sampled_at: Annotated[dt.datetime, "When the sample was due: the same on every row of a sample."]
    observed_at: Annotated[dt.datetime, "When the sample ended, by the recorder's clock."]
    brokers_time: Annotated[
        dt.datetime | None, "The time by the brokers' clocks, read before the coordinators answered; null if unknown."
    ] = None
    brokers_clock: Annotated[str | None, "Which clock or record of a broker that is of, or why it is unknown."] = None
    cluster_id: Annotated[str | None, "Id of the cluster; null in recordings before November 2026."] = None
    interval_ms: Annotated[Int64 | None, "Time from one sample to the next.", Unit("ms")] = None
    seconds: Annotated[float | None, "How long it took.", Unit("s")] = None
    brokers: Annotated[tuple[Int32, ...] | None, "Brokers queried."] = None
    proofs: Annotated[tuple[str, ...] | None, "What proves the coordinators' answers complete."] = None
    gaps: Annotated[tuple[str, ...] | None, "Missing for that proof."] = None
    topic_gaps: Annotated[tuple[str, ...] | None, "Missing for an answer about the whole cluster."] = None
    absent_partitions: Annotated[
        tuple[TopicPartition, ...] | None, "Partitions that coordinators have open, and the cluster does not have."
    ] = None
    first_batches: Annotated[tuple[FirstBatch, ...] | None, "First batches of open transactions."] = None
    error: Annotated[str | None, "Why the sample failed, as NAME: sentence; null where it did not."] = None


@declares(
    "late_transactions",
    row="a transaction open for longer than its own timeout plus a margin (KIP-664: than the brokers' maximum)",
    key=("sampled_at", "topic", "partition", "producer_id"),
    sort=("sampled_at", "topic", "partition", "start_offset", "producer_id"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class LateTransaction(TableRow):
    """A transaction open for longer than its own timeout plus a margin, in one sample."""

    sampled_at: Annotated[dt.datetime, "When the sample was due: the same on every row of a sample."]
    topic: Annotated[str, "Topic name."]
    partition: Annotated[Int32, "Partition number."]
    producer_id: Annotated[Int64 | None, "Producer id (PID)."] = None
    producer_epoch: Annotated[Int16 | None, "Producer epoch."] = None
    transactional_id: Annotated[str | None, "Id that owns the producer id, where the coordinator knows one."] = None
    start_offset: Annotated[Int64 | None, "First offset of the open transaction."] = None
    opened_at: Annotated[dt.datetime | None, "When it opened, by the clock that opened_at_clock names."] = None
    opened_at_clock: Annotated[
        str | None, "coordinator, producer, broker; or recorder: when it was first seen open."
    ] = None
    timeout_ms: Annotated[
        Int32 | None, "The transaction's own timeout; else the longest that brokers allow.", Unit("ms")
    ] = None
    late_since: Annotated[dt.datetime | None, "When timeout and margin had passed."] = None
    late_ms: Annotated[
        Int64 | None, "How long ago that was, at least: by the brokers' clocks, or by the recorder's.", Unit("ms")
    ] = None
    broker_id: Annotated[Int32 | None, "Leader of the partition."] = None
    observed_at: Annotated[dt.datetime, "When it was seen, by the recorder's clock."]

    @property
    def key(self) -> TransactionKey:
        """The key of its transaction."""
        return TransactionKey(self.topic, self.partition, self.producer_id, self.start_offset)


SAMPLES, LATE_TRANSACTIONS = RecordedSample.table, LateTransaction.table


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
