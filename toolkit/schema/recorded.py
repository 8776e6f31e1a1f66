"""Tables of a recording and of what is computed from it or another: samples, LSO holds, late transactions, actions."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from toolkit.schema.live import EvidenceEntry, Finding, Partition, Producer, Transaction
from toolkit.schema.table import (
    EPOCH,
    STRING,
    TIME,
    Column,
    Int16,
    Int32,
    Int64,
    Table,
    TableRow,
    TopicPartition,
    TransactionKey,
    Unit,
    declares,
)

_SAMPLE = Column("sampled_at", TIME, "When the sample was due: the same on every row of a sample.", nullable=False)
_PHASE = Column(
    "phase",
    STRING,
    "before or after the coordinators answered: each sample reads the leaders twice, around the coordinators.",
    nullable=False,
)


@declares("first_batches")
@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBatch(TableRow):
    """The first batch of an open transaction.

    It was read from the log at its start offset.
    """

    topic: Annotated[str, "Topic name."]
    partition: Annotated[Int32, "Partition number."]
    start_offset: Annotated[Int64, "First offset of the open transaction."]
    base_offset: Annotated[Int64, "Offset of the batch's first record."]
    last_offset: Annotated[Int64, "Offset of its last record."]
    producer_id: Annotated[Int64, "Producer id (PID)."]
    producer_epoch: Annotated[Int16, "Producer epoch."]
    base_timestamp: Annotated[dt.datetime | None, "Its first time; null if it has none."] = None
    log_append_time: Annotated[bool, "Whether that is the broker's time (LogAppendTime)."]


@declares("samples", key=("sampled_at",))
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSample(TableRow):
    """One sample of the recorder; written last, so a sample without a row here is incomplete."""

    sampled_at: Annotated[dt.datetime, "When the sample was due: the same on every row of a sample."]
    observed_at: Annotated[dt.datetime, "When the sample ended, by the recorder's clock."]
    brokers_time: Annotated[
        dt.datetime | None, "The time by the brokers' clocks, read before the coordinators answered; null if unknown."
    ] = None
    brokers_clock: Annotated[str | None, "Which clock or record of a broker that is of, or why it is unknown."] = None
    cluster_id: Annotated[str | None, "Id of the cluster, by its brokers; null if none has answered."] = None
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
    row_counts: Annotated[
        tuple[Int64, ...] | None, "Number of its rows in each other table; null in older recordings."
    ] = None
    error: Annotated[str | None, "Why the sample failed, as NAME: sentence; null where it did not."] = None


@declares(
    "late_transactions",
    key=("sampled_at", "topic", "partition", "producer_id"),
    sort=("sampled_at", "topic", "partition", "start_offset", "producer_id"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class LateTransaction(TableRow):
    """A transaction open for longer than its own timeout plus a margin (KIP-664: than the brokers' maximum)."""

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


def _recorded(table: Table, *leading: Column) -> Table:
    return Table(
        table.name,
        f"{table.row}, in one sample of the recorder",
        (*leading, *table.columns),
        key=(*(column.name for column in leading), *table.key),
        sort=(*(column.name for column in leading), *table.sort),
    )


RECORDED = {
    "samples": RecordedSample.table,
    "partitions": _recorded(Partition.table, _SAMPLE, _PHASE),
    "producers": _recorded(Producer.table, _SAMPLE, _PHASE),
    "transactions": _recorded(Transaction.table, _SAMPLE),
    "findings": _recorded(Finding.table, _SAMPLE),
    "late_transactions": LateTransaction.table,
}
"""Tables of a recording by name: those of a live cluster, with the sample that each row is of."""


LOG_TRANSACTION_COLUMNS = (
    *("topic", "partition", "producer_id", "producer_epoch", "first_epoch", "first_offset", "marker_offset"),
    *("marker_epoch", "coordinator_epoch", "marker", "start", "start_clock", "end", "first_sequence", "truncated"),
    *("broker_id", "file", "error"),
)
"""Columns of ``schema.LOG_TRANSACTIONS`` that `LSO_HOLDS` includes."""


@declares("lso_holds", key=("topic", "partition", "broker_id", "first_offset"))
@dataclass(frozen=True, slots=True, kw_only=True)
class LsoHold(TableRow):
    """A transaction that held or holds the LSO of its partition.

    What only the partition's log shows is null in a recording.
    """

    topic: Annotated[str | None, "Topic name; null for a loose file whose path does not name it."] = None
    partition: Annotated[Int32 | None, "Partition number; null as topic."] = None
    producer_id: Annotated[Int64 | None, "Producer id (PID)."] = None
    producer_epoch: Annotated[Int16 | None, "Epoch of its last data batch; of its marker where it has no data."] = None
    transactional_id: Annotated[
        str | None, "Its transactional id, by the coordinators' log or a sample; null if they do not show it."
    ] = None
    first_epoch: Annotated[Int16 | None, "Epoch of its first data batch: a lower one is a dead epoch's."] = None
    first_offset: Annotated[
        Int64 | None, "Offset of its first record; null where it is empty or that was not read."
    ] = None
    marker_offset: Annotated[Int64 | None, "Offset of its marker; null while it is open."] = None
    marker_epoch: Annotated[Int16 | None, "Producer epoch in the marker: epoch + 1 from transaction version 2 on."] = (
        None
    )
    coordinator_epoch: Annotated[Int32 | None, "Coordinator epoch in the marker."] = None
    marker: Annotated[str | None, "COMMIT or ABORT; null while it is open."] = None
    start: Annotated[dt.datetime | None, "Time of its first batch, by the clock that start_clock names."] = None
    start_clock: Annotated[str | None, "broker (LogAppendTime) or producer (CreateTime)."] = None
    end: Annotated[dt.datetime | None, "Time of its marker, by the partition leader's clock."] = None
    first_sequence: Annotated[Int32 | None, "Sequence number of its first record."] = None
    truncated: Annotated[
        bool | None,
        "Whether it begins before the first batch that was read, so that its counts are lower bounds; null where "
        "that cannot be known.",
    ] = None
    broker_id: Annotated[
        Int32 | None, "Broker that sent it, or whose log directory it was found in; null if not known."
    ] = None
    file: Annotated[
        str | None,
        "File of its first batch, else of its marker; of the log's first batch where nothing of it was read; null "
        "where a broker sent it.",
    ] = None
    error: Annotated[str | None, "What could not be read, as NAME: sentence; null where the row is whole."] = None
    after_offset: Annotated[
        Int64 | None, "Offset of the marker that ended the previous hold; null if nothing was open."
    ] = None
    not_before: Annotated[
        dt.datetime | None, "Time of the last marker before its first batch, if nothing else was open."
    ] = None
    not_after: Annotated[
        dt.datetime | None, "Time of the first marker after its first batch; of after_offset if it is set."
    ] = None
    opened_at: Annotated[
        dt.datetime | None,
        "When the transaction opened, by the clock in opened_at_clock; null if no clock can be right.",
    ] = None
    opened_at_clock: Annotated[
        str | None,
        "producer (CreateTime), or broker: LogAppendTime, or the time of the last marker before the first batch.",
    ] = None
    held_from: Annotated[dt.datetime | None, "When it began to hold the LSO; null if the log does not show it."] = None
    held_to: Annotated[
        dt.datetime | None,
        "When its marker was written, in a recording: the first sample without it; null if it is open.",
    ] = None
    held_ms: Annotated[
        Int64 | None, "How long it held the LSO; null if it is open or a time is unknown.", Unit("ms")
    ] = None
    least_ms: Annotated[
        Int64 | None,
        "How long it held the LSO at least: by marker times alone, or up to the newest sample; so far if it is open.",
        Unit("ms"),
    ] = None
    as_of: Annotated[
        dt.datetime | None, "Time of the last marker in the log, or of the sample: the state is as of then."
    ] = None
    log_end_offset: Annotated[Int64 | None, "Offset after the last batch that was read."] = None
    records_held: Annotated[Int64 | None, "Data records from its first offset to its marker.", Unit("records")] = None
    bytes_held: Annotated[
        Int64 | None, "Bytes of the batches in that range, other markers included.", Unit("bytes")
    ] = None

    @property
    def key(self) -> TransactionKey:
        """What identifies its transaction, in findings, too."""
        return TransactionKey(self.topic, self.partition, self.producer_id, self.first_offset)


@declares("observation_times", key=("sampled_at",))
@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationTime(TableRow):
    """A sample of a recording that did not fail.

    With what is known about the time up to the next one.
    """

    sampled_at: Annotated[dt.datetime, "When the sample was due."]
    next_sampled_at: Annotated[dt.datetime | None, "When the next such sample was due; null for the last one."] = None
    missed: Annotated[str | None, "Samples that failed or are missing after it, before the next one; null if none."] = (
        None
    )
    next_topic_gap: Annotated[str | None, "Why the next sample may lack topics; null if it has all."] = None
    next_complete_at: Annotated[dt.datetime | None, "When the next sample that has all was due; null for none."] = None


INTENT, OUTCOME, REFUSED = "intent", "outcome", "refused"  # steps


@declares("claims")
@dataclass(frozen=True, slots=True, kw_only=True)
class ActionClaim(TableRow):
    """A claim that an action needs."""

    claim: Annotated[str, "What has to be true, in words; an override repeats what is not proven of it."]
    status: Annotated[str, "proven, refuted or not proven."]
    discharged_by: Annotated[str | None, "What proves or refutes it, or who asserted it; null if nothing does."] = None


@declares("actions", key=("action_id", "step"), sort=("at", "action_id", "step"))
@dataclass(frozen=True, slots=True, kw_only=True)
class ActionStep(TableRow):
    """One step of an action on a cluster: before its request is sent, or after the response."""

    # at, action_id, step, who: set by the audit trail when it writes the line
    at: Annotated[dt.datetime, "When the line was written, by the clock of the machine that acts."] = EPOCH
    action_id: Annotated[str, "Id of the action; the same for both its steps."] = ""
    action: Annotated[str, "abort, complete, commit or fence."]
    step: Annotated[
        str,
        "intent: the request is sent next. outcome: the response or error. refused: nothing was sent. After an "
        "intent without an outcome, the action may have taken effect.",
    ] = ""
    who: Annotated[str, "User and host that took the action."] = ""
    tool_version: Annotated[str | None, "Version of this package."] = None
    bootstrap_servers: Annotated[str, "Bootstrap servers of the cluster, as configured."]
    cluster_id: Annotated[str | None, "Id of the cluster, by its brokers; null if none has answered."] = None
    principal: Annotated[str | None, "User name of the client at the brokers; null if it has none."] = None
    target: Annotated[str, "Target that the user confirmed: orders-0@913095344, or a transactional id."]
    confirmation: Annotated[str | None, "What the user typed for a list of targets: 12 transactions; else null."] = None
    topic: Annotated[str | None, "Topic of the marker; null for a commit or fence."] = None
    partition: Annotated[Int32 | None, "Partition of the marker; null for a commit or fence."] = None
    start_offset: Annotated[
        Int64 | None, "First offset of the transaction on the partition; null for a commit or fence."
    ] = None
    producer_id: Annotated[Int64 | None, "Id of the producer whose transaction is ended."] = None
    producer_epoch: Annotated[Int16 | None, "Epoch of that producer."] = None
    transactional_id: Annotated[str | None, "Transactional id that owns the producer id, if known."] = None
    verdict: Annotated[str | None, "Verdict of the check immediately before the request."] = None
    reason: Annotated[str | None, "Reason for that verdict, as a sentence."] = None
    outcome: Annotated[
        str | None, "What was decided about the records, by that check: undecided, abort, commit, unknown."
    ] = None
    claims: Annotated[
        tuple[ActionClaim, ...] | None, "What the action needed, by that check, and what discharged it."
    ] = None
    override: Annotated[
        str | None, "What the user asserted although it is not proven, word for word; null if nothing."
    ] = None
    records_file: Annotated[
        str | None, "Parquet file with the records that an abort discards; null if none was written."
    ] = None
    evidence: Annotated[tuple[EvidenceEntry, ...] | None, "Values that this check observed, with source and time."] = (
        None
    )
    request: Annotated[str | None, "Request, with the field names of Kafka's protocol."] = None
    response: Annotated[str | None, "Response of the broker."] = None
    last_stable_offset_before: Annotated[Int64 | None, "LSO of the partition before the action."] = None
    last_stable_offset_after: Annotated[Int64 | None, "LSO of the partition after the action."] = None
    error: Annotated[str | None, "What failed, or why the action was refused, as NAME: sentence."] = None


def unfinished(steps: Sequence[ActionStep]) -> list[ActionStep]:
    """Intents without an outcome: these actions may have happened."""
    ended = {each.action_id for each in steps if each.step == OUTCOME}
    return [each for each in steps if each.step == INTENT and each.action_id not in ended]


@declares("headers")
@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHeader(TableRow):
    """A header of a saved record."""

    key: Annotated[str, "Key of the header."]
    value: Annotated[bytes | None, "Value as written; null if it has none."]


@declares("saved_records", key=("topic", "partition", "offset"))
@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRecord(TableRow):
    """One record of a transaction that an abort discarded on a partition."""

    topic: Annotated[str, "Topic name."]
    partition: Annotated[Int32, "Partition number."]
    offset: Annotated[Int64, "Offset of the record."]
    timestamp: Annotated[dt.datetime | None, "Time of the record; null if it has none, or one beyond the year 9999."]
    producer_id: Annotated[Int64, "Producer id (PID)."]
    producer_epoch: Annotated[Int16, "Producer epoch of its batch."]
    key: Annotated[bytes | None, "Key as written; null if it has none."]
    value: Annotated[bytes | None, "Value as written; null for a tombstone."]
    headers: Annotated[tuple[SavedHeader, ...], "Headers in their order."]
    group_id: Annotated[str | None, "Group of a committed offset; null on other topics than __consumer_offsets."] = None
    committed_topic: Annotated[str | None, "Topic of a committed offset."] = None
    committed_partition: Annotated[Int32 | None, "Partition of a committed offset."] = None
    committed_offset: Annotated[Int64 | None, "Committed offset; null for a tombstone, which removes one."] = None
    committed_leader_epoch: Annotated[Int32 | None, "Leader epoch that was committed with it."] = None
