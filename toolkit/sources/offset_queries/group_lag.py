"""The lag of a consumer or share group, and its parts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from toolkit.analysis.diagnosis.consumer_lag import LagParts, group_lag, lag_reason, share_group_lag
from toolkit.errors import ToolkitError
from toolkit.schema.live import GroupLag

if TYPE_CHECKING:
    from toolkit.analysis.log.offset_status import StatusRange
    from toolkit.schema.table import TopicPartition
    from toolkit.sources.offset_queries.offset_reader import OffsetReader

READ_COMMITTED = "read_committed"
NO_LEVEL = "UNKNOWN: share.isolation.level of the share group is not visible, so it is unknown whether the group waits"


NO_TRANSACTION = (
    "NO_TRANSACTION: the offset is pending, and no transaction that could commit it is open on __consumer_offsets-{}; "
    "no consumer can read it until that partition's leader ends it (WriteTxnMarkers) or the group is deleted"
)
BEYOND_THE_END = (
    "The committed offset {} lies {} beyond the end of the partition, {}: the log lost its end, the topic was created "
    "again, or the offset is from another cluster or from after this copy. A consumer that continues there resets it "
    "by auto.offset.reset."
)
DELETED = (
    "DELETED: an open transaction has committed offset {}, and the group or its offsets were deleted since then, so "
    "that it is not pending any more: also after a commit the group does not have it"
)


class CommittedOffset(NamedTuple):
    """A committed offset of a group; null with an error where an open transaction has a pending commit."""

    offset: int | None
    error: str | None


class SharePartition(NamedTuple):
    """Start offset of a share partition (null if the group has read nothing of it), its lag, and the broker's error."""

    start_offset: int | None
    lag: int | None
    error: str | None


def lag_of_group(
    readers: Iterable[OffsetReader],
    group: str,
    committed: Mapping[TopicPartition, CommittedOffset],
    *,
    max_offsets: int,
) -> list[GroupLag]:
    """The lag of a consumer group on partitions with a committed offset, and its reason.

    An offset whose commit is pending in an open transaction is a row with an error; a finding on
    ``__consumer_offsets`` shows the transaction.

    `readers`: one per partition.
    `group`: group id. It is assumed to use read_committed, since brokers do not know its isolation level.
    `committed`: committed offset and error by partition.
    `max_offsets`: up to this lag, the log is read to distinguish records from markers.
    """
    return _sorted(_lag(each, group, *committed[each.partition.tp], max_offsets) for each in readers)


def lag_of_share_group(
    readers: Iterable[OffsetReader],
    group: str,
    partitions: Mapping[TopicPartition, SharePartition],
    *,
    level: str | None,
    max_offsets: int,
) -> list[GroupLag]:
    """The same of a share group, which reads from its start offset.

    `readers`, `group`, `max_offsets`: as for `lag_of_group`.
    `partitions`: what the group's coordinator has of each partition.
    `level`: its ``share.isolation.level``; null where that is not visible.
    """
    return _sorted(_share_lag(each, group, level, partitions[each.partition.tp], max_offsets) for each in readers)


def absent_lags(group: str, committed: Mapping[TopicPartition, int | None], *, taken_at: dt.datetime) -> list[GroupLag]:
    """Partitions whose log is not among the files: the offset is known, and nothing behind it."""
    error = "UNKNOWN_TOPIC_OR_PARTITION: its log is not among the files, so its lag is unknown"
    return _sorted(
        GroupLag(
            group_id=group, topic=topic, partition=partition, committed_offset=offset, observed_at=taken_at, error=error
        )
        for (topic, partition), offset in committed.items()
    )


def hidden_topics_lag(group: str, gap: str, *, broker_id: int) -> GroupLag:
    """The record for topics that this principal may not describe: Kafka omits their offsets without an error.

    `gap`: the right or the proof that is missing. `broker_id`: the group's coordinator.
    """
    error = f"TOPIC_AUTHORIZATION_FAILED: offsets of other topics may be hidden; missing: {gap.rstrip('.')}"
    return GroupLag(group_id=group, broker_id=broker_id, observed_at=dt.datetime.now(dt.UTC), error=error)


def _lag(reader: OffsetReader, group: str, committed: int | None, error: str | None, max_offsets: int) -> GroupLag:
    lag = _unsplit(reader, group, committed, error)
    lso, high_watermark = lag.last_stable_offset, lag.high_watermark
    if error or committed is None or lso is None or high_watermark is None:
        return lag
    ranges, unread = _ranges(reader, committed, high_watermark, max_offsets)
    split = group_lag(committed, last_stable_offset=lso, high_watermark=high_watermark, ranges=ranges)
    found = _split(lag, split, unread)
    end = max(high_watermark, reader.partition.log_end_offset or 0)
    if committed <= end:
        return found
    return replace(found, reason=BEYOND_THE_END.format(committed, committed - end, end))


def _share_lag(
    reader: OffsetReader, group: str, level: str | None, share: SharePartition, max_offsets: int
) -> GroupLag:
    lag = replace(_unsplit(reader, group, share.start_offset, share.error), isolation_level=level)
    if level is None:
        return replace(lag, lag=share.lag, error=lag.error or NO_LEVEL)
    start, lso, high_watermark = share.start_offset, lag.last_stable_offset, lag.high_watermark
    if share.error or start is None or lso is None or high_watermark is None:
        return replace(lag, lag=share.lag)
    read_committed = level == READ_COMMITTED
    ranges, unread = _ranges(reader, start, high_watermark, max_offsets) if read_committed else (None, None)
    split = share_group_lag(
        share.lag,
        start_offset=start,
        last_stable_offset=lso,
        high_watermark=high_watermark,
        ranges=ranges,
        read_committed=read_committed,
    )
    return _split(lag, split, unread)


def _unsplit(reader: OffsetReader, group: str, committed: int | None, error: str | None) -> GroupLag:
    error = error or reader.partition.error
    return GroupLag.of_record(reader.partition, group_id=group, committed_offset=committed, error=error)


def _split(lag: GroupLag, parts: LagParts, unread: str | None) -> GroupLag:
    found = replace(lag, **parts._asdict(), error=unread or lag.error)
    return replace(found, reason=lag_reason(found))


def _sorted(found: Iterable[GroupLag]) -> list[GroupLag]:
    return sorted(found, key=attrgetter("topic", "partition"))


def _ranges(
    reader: OffsetReader, committed: int, high_watermark: int, max_offsets: int
) -> tuple[Sequence[StatusRange] | None, str | None]:
    """The status of the offsets from the committed one on, and a read error; both null for too many offsets."""
    if high_watermark - committed > max_offsets:
        return None, None
    from toolkit.sources.offset_queries.offset_scan import classified_ranges  # imports numpy, which takes time

    try:
        ranges, errors = classified_ranges(reader, committed, high_watermark)
    except ToolkitError as error:
        return None, f"the log was not read: {error}"
    return (None, errors[0]) if errors else (ranges, None)
