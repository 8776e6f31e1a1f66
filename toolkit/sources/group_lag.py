"""The lag of a consumer or share group on a live cluster or in files, and its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from toolkit.analysis.diagnosis.consumer_lag import group_lag, lag_reason, share_group_lag
from toolkit.errors import NotFound, ToolkitError
from toolkit.schema import GROUP_LAG, Row
from toolkit.sources.live.state.consumer_groups import WITH_OFFSETS, committed_offsets, listed_groups
from toolkit.sources.live.state.share_groups import SHARE, SharePartition, share_group_offsets, share_isolation_level
from toolkit.sources.logdir.coordinator.committed_offsets import committed_in_files

if TYPE_CHECKING:
    from toolkit.analysis.log.offset_status import StatusRange
    from toolkit.schema.table import TopicPartition
    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.logdir import LogDir
    from toolkit.sources.offset_reader import OffsetReader

    Source: TypeAlias = Cluster | LogDir
    CommittedOffsets = Mapping[TopicPartition, tuple[int | None, str | None]]

__all__ = ["group_lag_rows"]

READ_COMMITTED = "read_committed"
NO_LEVEL = "UNKNOWN: share.isolation.level of the share group is not visible, so it is unknown whether the group waits"


def group_lag_rows(source: Source, group: str, *, max_offsets: int) -> Sequence[Row]:
    """The lag of a group on each partition with a committed offset, and its reason.

    An offset whose commit is pending in an open transaction is a row with an error. If a partition has only such an
    offset, Kafka does not return it and there is no row; a finding on ``__consumer_offsets`` shows the transaction.

    Parameters
    ----------
    source
        A cluster or files. In files, committed offsets are read from ``__consumer_offsets``, and a partition whose log
        is not among the files is left out.
    group
        Group id. A consumer group is assumed to use read_committed, since brokers do not know its isolation level. A
        share group reads from its start offset, at its share.isolation.level.
    max_offsets
        Up to this lag, the log is read to distinguish records from markers.

    Raises
    ------
    NotFound
        If no broker lists the group, or files have no offset of it.
    BrokerError, ConnectionFailed
        If a broker does not list its groups, or the coordinator does not respond.
    """
    from toolkit.sources.logdir import LogDir

    if isinstance(source, LogDir):
        committed = _committed_in_files(source, group)
    else:
        listed = listed_groups(source.client, sorted(source.client.brokers))
        coordinator_id, protocol_type = listed.get(group, (None, ""))
        if coordinator_id is None or protocol_type not in {*WITH_OFFSETS, SHARE}:
            raise NotFound(f"No broker lists the group {group!r}.", do="See kafka-consumer-groups.sh --list.")
        if protocol_type == SHARE:
            return _share_group_rows(source, group, coordinator_id, max_offsets)
        committed = committed_offsets(source.client, group, coordinator_id)
    readers = source.offset_readers(sorted(committed)) if committed else []
    return _sorted(_row(each, group, *committed[each.tp], max_offsets) for each in readers)


def _share_group_rows(source: Cluster, group: str, coordinator_id: int, max_offsets: int) -> list[Row]:
    level = share_isolation_level(source.client, group)
    partitions = share_group_offsets(source.client, group, coordinator_id)
    readers = source.offset_readers(sorted(partitions)) if partitions else []
    return _sorted(_share_row(each, group, level, partitions[each.tp], max_offsets) for each in readers)


def _committed_in_files(files: LogDir, group: str) -> CommittedOffsets:
    present = {(row["topic"], row["partition"]) for row in files.partition_rows()}
    found = committed_in_files(files, group)
    if not found:
        raise NotFound(
            f"The files have no committed offset of the group {group!r}.",
            do="List the groups in the files: LogDir.offsets_log().",
        )
    return {tp: committed for tp, committed in found.items() if tp in present}


def _row(reader: OffsetReader, group: str, committed: int | None, error: str | None, max_offsets: int) -> Row:
    row = _partition_row(reader, group, committed, error)
    if error or committed is None or row["last_stable_offset"] is None or row["high_watermark"] is None:
        return row
    ranges, unread = _ranges(reader, committed, max_offsets)
    offsets = {name: row[name] for name in ("last_stable_offset", "high_watermark")}
    row |= group_lag(committed, **offsets, ranges=ranges)
    return row | {"reason": lag_reason(row), "error": unread or row["error"]}


def _share_row(reader: OffsetReader, group: str, level: str | None, share: SharePartition, max_offsets: int) -> Row:
    row = _partition_row(reader, group, share.start_offset, share.error) | {"isolation_level": level}
    if level is None:
        return row | {"lag": share.lag, "error": row["error"] or NO_LEVEL}
    start, lso = share.start_offset, row["last_stable_offset"]
    if share.error or start is None or lso is None or row["high_watermark"] is None:
        return row | {"lag": share.lag}
    ranges, unread = _ranges(reader, start, max_offsets) if level == READ_COMMITTED else (None, None)
    offsets = {name: row[name] for name in ("last_stable_offset", "high_watermark")}
    row |= share_group_lag(
        share.lag, start_offset=start, **offsets, ranges=ranges, read_committed=level == READ_COMMITTED
    )
    return row | {"reason": lag_reason(row), "error": unread or row["error"]}


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
    from toolkit.sources.missing_offset_ranges import classified_ranges  # imports numpy, which takes time

    try:
        ranges, errors = classified_ranges(reader, committed, reader.partition["high_watermark"])
    except ToolkitError as error:
        return None, f"the log was not read: {error}"
    return (None, errors[0]) if errors else (ranges, None)
