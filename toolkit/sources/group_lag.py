"""The lag of a consumer group on a live cluster, with what it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.lag import GROUP_LAG, group_lag
from toolkit.errors import NotFound, ToolkitError
from toolkit.schema import BATCHES, Row
from toolkit.sources.groups import committed_offsets, group_ids

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.sources.cluster import Cluster

__all__ = ["group_lag_frame", "group_lag_rows"]

MOST_OFFSETS = 1_000_000


def group_lag_frame(cluster: Cluster, group: str, *, most_offsets: int = MOST_OFFSETS) -> pd.DataFrame:
    """`group_lag_rows` as a pandas DataFrame (``analysis.lag.GROUP_LAG``)."""
    return GROUP_LAG.frame(group_lag_rows(cluster, group, most_offsets=most_offsets))


def group_lag_rows(cluster: Cluster, group: str, *, most_offsets: int = MOST_OFFSETS) -> Sequence[Row]:
    """How far a group is behind on each partition that it has committed an offset of, and why.

    An offset that an open transaction holds back is a row with its error. Of a partition that has never had another
    one Kafka tells nothing, and there is no row; a finding on ``__consumer_offsets`` shows that.

    Parameters
    ----------
    cluster
        Where.
    group
        Group id. It is taken to read with read_committed.
    most_offsets
        The log is read to tell records from markers where the lag is no more than this.

    Raises
    ------
    NotFound
        If no broker lists the group.
    BrokerError, ConnectionFailed
        If a broker does not list its groups, or the coordinator does not answer.
    """
    coordinator_id = group_ids(cluster.wire, sorted(cluster.wire.brokers)).get(group)
    if coordinator_id is None:
        raise NotFound(f"No broker lists the group {group!r}.", do="See kafka-consumer-groups.sh --list.")
    committed = committed_offsets(cluster.wire, group, coordinator_id)
    if not committed:
        return []
    partitions = cluster.partition_rows(partitions=sorted(committed))
    rows = [_row(cluster, group, row, *committed[row["topic"], row["partition"]], most_offsets) for row in partitions]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"]))


def _row(
    cluster: Cluster, group: str, partition: Row, committed: int | None, error: str | None, most_offsets: int
) -> Row:
    names = ("topic", "partition", "last_stable_offset", "high_watermark", "broker_id", "observed_at")
    row = {"group_id": group, "committed_offset": committed, **{name: partition[name] for name in names}}
    missing = error or partition["error"]
    lso, high_watermark = partition["last_stable_offset"], partition["high_watermark"]
    if missing or committed is None or lso is None or high_watermark is None:
        return row | {"error": missing}
    batches, unread = None, None
    if high_watermark - committed <= most_offsets:
        batches, unread = _batches(cluster, partition, committed)
    split = group_lag(committed, last_stable_offset=lso, high_watermark=high_watermark, batches=batches)
    return {**row, **split, "error": unread}


def _batches(cluster: Cluster, partition: Row, committed: int) -> tuple[Sequence[Row] | None, str | None]:
    """The batches from the committed offset on; null, and why, where they could not be read."""
    start, stop = max(committed, partition["log_start_offset"] or 0), partition["high_watermark"]
    if start >= stop:
        return [], None
    try:
        rows = BATCHES.rows(cluster.batches(partition["topic"], partition["partition"], start=start, stop=stop))
    except ToolkitError as error:
        return None, f"the log was not read: {error}"
    failed = next((row["error"] for row in rows if row["error"] is not None), None)
    return (None, failed) if failed else (rows, None)
