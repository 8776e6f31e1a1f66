"""The lag of a consumer group: what it has yet to read, what is held from it, and what holds nothing to read.

A group that reads all it may still shows a lag: the offsets from the LSO on, which read_committed consumers are not
given, and markers, which no consumer ever sees: the "lag stuck at 1".
"""

from __future__ import annotations

from collections.abc import Iterable

from toolkit.schema import Row
from toolkit.schema.table import INT32, INT64, STRING, TIME, Column, Table

__all__ = ["GROUP_LAG", "group_lag"]

GROUP_LAG = Table(
    "group_lag",
    "how far a read_committed group is behind on a partition, and what that is made of",
    (
        Column("group_id", STRING, "Group id.", nullable=False),
        Column("topic", STRING, "Topic name.", nullable=False),
        Column("partition", INT32, "Partition number.", nullable=False),
        Column("committed_offset", INT64, "Offset that the group goes on from; null where it has committed none."),
        Column("last_stable_offset", INT64, "LSO of the partition."),
        Column("high_watermark", INT64, "High watermark of the partition."),
        Column("lag", INT64, "Offsets from the committed one to the high watermark.", unit="offsets"),
        Column("behind", INT64, "Those of records below the LSO: the group has yet to read them.", unit="offsets"),
        Column("held", INT64, "Those of records from the LSO on: nobody gets them before it moves.", unit="offsets"),
        Column(
            "markers",
            INT64,
            "The rest, with nothing to read: markers, and what compaction took away; null if the log was not read, and "
            "then they count as behind or held.",
            unit="offsets",
        ),
        Column("broker_id", INT32, "Leader of the partition."),
        Column("observed_at", TIME, "When its offsets were asked for.", nullable=False),
        Column("error", STRING, "Kafka error name and text where something is missing; null where the row is whole."),
    ),
    key=("group_id", "topic", "partition"),
    sort=("group_id", "topic", "partition"),
)


def group_lag(
    committed: int, *, last_stable_offset: int, high_watermark: int, batches: Iterable[Row] | None = None
) -> Row:
    """Split a lag; the three parts add up to it.

    Records of aborted transactions below the LSO count as behind: the group has yet to pass them.

    Parameters
    ----------
    committed
        Offset that the group goes on from.
    last_stable_offset, high_watermark
        Of the partition, asked for in one go.
    batches
        Rows of ``schema.BATCHES`` from `committed` to the high watermark, in any order; null if they were not read.

    Returns
    -------
    Row
        ``lag``, ``behind``, ``held`` and ``markers`` of `GROUP_LAG`.
    """
    lag = max(0, high_watermark - committed)
    stable = min(max(last_stable_offset, committed), max(high_watermark, committed))
    if batches is None:
        return {"lag": lag, "behind": stable - committed, "held": lag - (stable - committed), "markers": None}
    data = [row for row in batches if row["error"] is None and not row["is_control"]]
    behind = sum(_records(row, committed, stable) for row in data)
    held = sum(_records(row, stable, high_watermark) for row in data)
    return {"lag": lag, "behind": behind, "held": held, "markers": max(0, lag - behind - held)}


def _records(batch: Row, first: int, stop: int) -> int:
    """Records of a batch within ``first <= offset < stop``; fewer than its offsets after compaction."""
    inside: int = min(batch["last_offset"], stop - 1) - max(batch["base_offset"], first) + 1
    return max(0, min(inside, int(batch["record_count"])))
