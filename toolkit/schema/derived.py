"""Tables computed from other tables: LSO holds, observation times."""

import datetime as dt
from dataclasses import dataclass
from typing import Annotated

from toolkit.schema.record import Int16, Int32, Int64, TableRow, Unit, declares
from toolkit.schema.table import TransactionKey

LOG_TRANSACTION_COLUMNS = (
    *("topic", "partition", "producer_id", "producer_epoch", "first_epoch", "first_offset", "marker_offset"),
    *("marker_epoch", "coordinator_epoch", "marker", "start", "start_clock", "end", "first_sequence", "truncated"),
    *("broker_id", "file", "error"),
)
"""Columns of ``schema.LOG_TRANSACTIONS`` that `LSO_HOLDS` includes."""


@declares(
    "lso_holds",
    row="a transaction that held or holds the LSO of its partition",
    key=("topic", "partition", "broker_id", "first_offset"),
    sort=("topic", "partition", "broker_id", "first_offset"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class LsoHold(TableRow):
    """A transaction that held the LSO; what only the partition's log shows is null in a recording."""

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
    least_ms: Annotated[Int64 | None, "How long it held the LSO at least, by marker times alone.", Unit("ms")] = None
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


LSO_HOLDS = LsoHold.table


@declares(
    "observation_times", row="a sample of a recording that did not fail", key=("sampled_at",), sort=("sampled_at",)
)
@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationTime(TableRow):
    """A sample of a recording that did not fail, and what is known about the time up to the next one."""

    sampled_at: Annotated[dt.datetime, "When the sample was due."]
    next_sampled_at: Annotated[dt.datetime | None, "When the next such sample was due; null for the last one."] = None
    missed: Annotated[str | None, "Samples that failed or are missing after it, before the next one; null if none."] = (
        None
    )
    next_topic_gap: Annotated[str | None, "Why the next sample may lack topics; null if it has all."] = None


OBSERVATION_TIMES = ObservationTime.table
"""Samples in order, without failed ones."""
