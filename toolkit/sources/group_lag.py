"""The lag of a consumer group on a live cluster or in files, with what it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.lag import GROUP_LAG, group_lag
from toolkit.errors import NotFound, ToolkitError
from toolkit.schema import BATCHES, Row
from toolkit.sources.groups import committed_offsets, group_ids
from toolkit.sources.logdir.committed import committed_in_files

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.sources.cluster import Cluster
    from toolkit.sources.logdir import LogDir

    Source = Cluster | LogDir

__all__ = ["group_lag_frame", "group_lag_rows"]

MOST_OFFSETS = 1_000_000


def group_lag_frame(source: Source, group: str, *, most_offsets: int = MOST_OFFSETS) -> pd.DataFrame:
    """`group_lag_rows` as a pandas DataFrame (``analysis.lag.GROUP_LAG``)."""
    return GROUP_LAG.frame(group_lag_rows(source, group, most_offsets=most_offsets))


def group_lag_rows(source: Source, group: str, *, most_offsets: int = MOST_OFFSETS) -> Sequence[Row]:
    """How far a group is behind on each partition that it has committed an offset of, and why.

    An offset that an open transaction holds back is a row with its error. Of a partition that has never had another
    one Kafka tells nothing, and there is no row; a finding on ``__consumer_offsets`` shows that.

    Parameters
    ----------
    source
        Where. In files, the group's offsets are those of ``__consumer_offsets`` there, and a partition without any of
        its log there is left out.
    group
        Group id. It is taken to read with read_committed.
    most_offsets
        The log is read to tell records from markers where the lag is no more than this.

    Raises
    ------
    NotFound
        If no broker lists the group, or files have no offset of it.
    BrokerError, ConnectionFailed
        If a broker does not list its groups, or the coordinator does not answer.
    """
    committed = _committed(source, group)
    rows = source.partition_rows(partitions=sorted(committed)) if committed else []
    lag = [_row(source, group, row, *committed[row["topic"], row["partition"]], most_offsets) for row in rows]
    return sorted(lag, key=lambda row: (row["topic"], row["partition"]))


def _committed(source: Source, group: str) -> Mapping[tuple[str, int], tuple[int | None, str | None]]:
    from toolkit.sources.logdir import LogDir

    if isinstance(source, LogDir):
        there = {(row["topic"], row["partition"]) for row in source.partition_rows()}
        found = committed_in_files(source, group)
        if not found:
            raise NotFound(f"The files have no offset of the group {group!r}.", do="See their group_events().")
        return {place: told for place, told in found.items() if place in there}
    coordinator_id = group_ids(source.wire, sorted(source.wire.brokers)).get(group)
    if coordinator_id is None:
        raise NotFound(f"No broker lists the group {group!r}.", do="See kafka-consumer-groups.sh --list.")
    return committed_offsets(source.wire, group, coordinator_id)


def _row(
    source: Source, group: str, partition: Row, committed: int | None, error: str | None, most_offsets: int
) -> Row:
    names = ("topic", "partition", "last_stable_offset", "high_watermark", "broker_id", "observed_at")
    row = {"group_id": group, "committed_offset": committed, **{name: partition[name] for name in names}}
    missing = error or partition["error"]
    lso, high_watermark = partition["last_stable_offset"], partition["high_watermark"]
    if missing or committed is None or lso is None or high_watermark is None:
        return row | {"error": missing}
    batches, unread = None, None
    if high_watermark - committed <= most_offsets:
        batches, unread = _batches(source, partition, committed)
    split = group_lag(committed, last_stable_offset=lso, high_watermark=high_watermark, batches=batches)
    return {**row, **split, "error": unread}


def _batches(source: Source, partition: Row, committed: int) -> tuple[Sequence[Row] | None, str | None]:
    """The batches from the committed offset on; null, and why, where they could not be read."""
    start, stop = max(committed, partition["log_start_offset"] or 0), partition["high_watermark"]
    if start >= stop:
        return [], None
    try:
        rows = BATCHES.rows(source.batches(partition["topic"], partition["partition"], start=start, stop=stop))
    except ToolkitError as error:
        return None, f"the log was not read: {error}"
    failed = next((row["error"] for row in rows if row["error"] is not None), None)
    return (None, failed) if failed else (rows, None)
