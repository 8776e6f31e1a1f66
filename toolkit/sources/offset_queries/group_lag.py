"""The lag of a consumer or share group, and its parts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from toolkit.analysis.diagnosis.consumer_lag import group_lag, lag_reason, share_group_lag
from toolkit.errors import ToolkitError
from toolkit.schema import GROUP_LAG, Row
from toolkit.schema.offsets import GroupLag

if TYPE_CHECKING:
    from toolkit.analysis.log.offset_status import StatusRange
    from toolkit.schema.table import TopicPartition
    from toolkit.sources.live.state.group_offsets import SharePartition
    from toolkit.sources.offset_queries.offset_reader import OffsetReader

    CommittedOffsets: TypeAlias = Mapping[TopicPartition, tuple[int | None, str | None]]

READ_COMMITTED = "read_committed"
NO_LEVEL = "UNKNOWN: share.isolation.level of the share group is not visible, so it is unknown whether the group waits"


def group_lag_rows(
    readers: Iterable[OffsetReader], group: str, committed: CommittedOffsets, *, max_offsets: int
) -> list[Row]:
    """The lag of a consumer group on partitions with a committed offset, and its reason.

    An offset whose commit is pending in an open transaction is a row with an error; a finding on
    ``__consumer_offsets`` shows the transaction.

    Parameters
    ----------
    readers
        One per partition.
    group
        Group id. It is assumed to use read_committed, since brokers do not know its isolation level.
    committed
        Committed offset and error by partition.
    max_offsets
        Up to this lag, the log is read to distinguish records from markers.
    """
    return _sorted(_row(each, group, *committed[each.tp], max_offsets) for each in readers)


def share_group_lag_rows(
    readers: Iterable[OffsetReader],
    group: str,
    partitions: Mapping[TopicPartition, SharePartition],
    *,
    level: str | None,
    max_offsets: int,
) -> list[Row]:
    """The same of a share group, which reads from its start offset.

    Parameters
    ----------
    readers, group, max_offsets
        As for `group_lag_rows`.
    partitions
        What the group's coordinator has of each partition.
    level
        Its ``share.isolation.level``; null where that is not visible.
    """
    return _sorted(_share_row(each, group, level, partitions[each.tp], max_offsets) for each in readers)


def absent_rows(group: str, committed: Mapping[TopicPartition, int | None], *, taken_at: dt.datetime) -> list[Row]:
    """Rows for partitions whose log is not among the files: the offset is known, and nothing behind it."""
    error = "UNKNOWN_TOPIC_OR_PARTITION: its log is not among the files, so its lag is unknown"
    empty: dict[str, Any] = dict.fromkeys(GROUP_LAG.names)
    rows = (
        empty
        | {
            "group_id": group,
            "topic": topic,
            "partition": partition,
            "committed_offset": offset,
            "observed_at": taken_at,
            "error": error,
        }
        for (topic, partition), offset in committed.items()
    )
    return _sorted(rows)


def hidden_topics_row(group: str, gap: str, *, broker_id: int) -> Row:
    """The row for topics that this principal may not describe: Kafka omits their offsets without an error.

    Parameters
    ----------
    group
        Group id.
    gap
        The right or the proof that is missing.
    broker_id
        The group's coordinator.
    """
    row: dict[str, Any] = dict.fromkeys(GROUP_LAG.names)
    error = f"TOPIC_AUTHORIZATION_FAILED: offsets of other topics may be hidden; missing: {gap}"
    return row | {
        "group_id": group,
        "broker_id": broker_id,
        "observed_at": dt.datetime.now(dt.UTC),
        "error": error,
    }


def _row(reader: OffsetReader, group: str, committed: int | None, error: str | None, max_offsets: int) -> Row:
    row = _partition_row(reader, group, committed, error)
    if error or committed is None or row["last_stable_offset"] is None or row["high_watermark"] is None:
        return row
    ranges, unread = _ranges(reader, committed, max_offsets)
    offsets = {name: row[name] for name in ("last_stable_offset", "high_watermark")}
    row |= group_lag(committed, **offsets, ranges=ranges)._asdict()
    return row | {"reason": lag_reason(GroupLag.of(row)), "error": unread or row["error"]}


def _share_row(reader: OffsetReader, group: str, level: str | None, share: SharePartition, max_offsets: int) -> Row:
    row = _partition_row(reader, group, share.start_offset, share.error) | {"isolation_level": level}
    if level is None:
        return row | {"lag": share.lag, "error": row["error"] or NO_LEVEL}
    start, lso = share.start_offset, row["last_stable_offset"]
    if share.error or start is None or lso is None or row["high_watermark"] is None:
        return row | {"lag": share.lag}
    ranges, unread = _ranges(reader, start, max_offsets) if level == READ_COMMITTED else (None, None)
    offsets = {name: row[name] for name in ("last_stable_offset", "high_watermark")}
    split = share_group_lag(
        share.lag, start_offset=start, **offsets, ranges=ranges, read_committed=level == READ_COMMITTED
    )
    row |= split._asdict()
    return row | {"reason": lag_reason(GroupLag.of(row)), "error": unread or row["error"]}


def _partition_row(reader: OffsetReader, group: str, committed: int | None, error: str | None) -> dict[str, Any]:
    names = ("topic", "partition", "last_stable_offset", "high_watermark", "broker_id", "observed_at")
    row: dict[str, Any] = dict.fromkeys(GROUP_LAG.names) | {name: reader.partition[name] for name in names}
    return row | {"group_id": group, "committed_offset": committed, "error": error or reader.partition["error"]}


def _sorted(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def _ranges(reader: OffsetReader, committed: int, max_offsets: int) -> tuple[Sequence[StatusRange] | None, str | None]:
    """The status of the offsets from the committed one on, and a read error; both null for too many offsets."""
    if reader.partition["high_watermark"] - committed > max_offsets:
        return None, None
    from toolkit.sources.offset_queries.missing_offset_ranges import (
        classified_ranges,  # imports numpy, which takes time
    )

    try:
        ranges, errors = classified_ranges(reader, committed, reader.partition["high_watermark"])
    except ToolkitError as error:
        return None, f"the log was not read: {error}"
    return (None, errors[0]) if errors else (ranges, None)
