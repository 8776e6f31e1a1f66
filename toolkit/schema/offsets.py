"""Tables about single offsets: who can read one, which of a range are missing, how far a group is behind."""

import datetime as dt
from dataclasses import dataclass
from typing import Annotated

from toolkit.schema.record import Int16, Int32, Int64, TableRow, Unit, declares

_ObservedAt = Annotated[dt.datetime | None, "When its offsets were read; of files, the newest time that a broker set."]
_Error = Annotated[str | None, "What could not be read, as NAME: sentence; null where the row is whole."]


@declares(
    "offset_visibility",
    row="an offset: what it holds, and which consumers receive it",
    key=("topic", "partition", "offset"),
    sort=("topic", "partition", "offset"),
)
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
    error: _Error = None


OFFSET_VISIBILITY = OffsetVisibility.table


@declares(
    "missing_offsets",
    row="a range of offsets that a consumer does not receive, and why",
    key=("topic", "partition", "first_offset"),
    sort=("topic", "partition", "first_offset"),
)
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
    error: _Error = None


MISSING_OFFSETS = MissingOffsets.table


@declares(
    "group_lag",
    row="how far a group is behind on a partition, and what that is made of",
    key=("group_id", "topic", "partition"),
    sort=("group_id", "topic", "partition"),
)
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
        "The rest, never consumed: markers, aborted records, what compaction or retention took; "
        "null if the log was not read, and then they count as behind or held.",
        Unit("offsets"),
    ] = None
    isolation_level: Annotated[str | None, "Share groups: share.isolation.level; null where it may not be read."] = None
    reason: Annotated[str | None, "What the lag is made of, as a sentence."] = None
    broker_id: Annotated[Int32 | None, "Leader of the partition; of files, whose log directory was read."] = None
    observed_at: _ObservedAt = None
    error: _Error = None


GROUP_LAG = GroupLag.table
