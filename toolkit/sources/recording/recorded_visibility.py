"""What a sample of a recording tells of an offset: where it lay among the partition's offsets; no record is in it."""

from __future__ import annotations

from typing import Any

from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.log.offset_text import visibility_reason
from toolkit.schema import OFFSET_VISIBILITY, Row
from toolkit.sources.offset_reader import PARTITION_COLUMNS

__all__ = ["recorded_visibility"]

NOT_RECORDED = "NOT_RECORDED: a recording has no records; only the cluster or its files tell what an offset holds"


def recorded_visibility(observation: Observation, offset: int) -> Row:
    """Row of ``schema.OFFSET_VISIBILITY``.

    Parameters
    ----------
    observation
        What a sample saw of the one partition.
    offset
        The offset.
    """
    (partition,) = {(row["topic"], row["partition"]): row
                    for row in (*observation.partitions, *observation.partitions_after)}.values()  # fmt: skip
    row: dict[str, Any] = dict.fromkeys(OFFSET_VISIBILITY.names) | {name: partition[name] for name in PARTITION_COLUMNS}
    row["offset"] = offset
    lso, high_watermark = partition["last_stable_offset"], partition["high_watermark"]
    log_start, log_end = partition["log_start_offset"], partition["log_end_offset"]
    if log_start is not None and offset < log_start:
        row["status"] = "deleted"
    elif log_end is not None and offset >= log_end:
        row["status"] = "beyond_log_end"
    elif high_watermark is not None and offset >= high_watermark:
        row["status"] = "beyond_high_watermark"
    if row["status"] is not None:
        return row | {"read_committed": False, "read_uncommitted": False, "reason": visibility_reason(row)}
    row["error"] = row["error"] or NOT_RECORDED
    if lso is None or offset < lso:
        return row | {"reason": _below_lso(lso)}
    opened = {
        each["producer_id"]: each["current_txn_start_offset"]
        for each in (*observation.producers, *observation.producers_after)
        if each["current_txn_start_offset"] is not None
    }
    if opened:
        holder = min(opened, key=lambda each: opened[each])
        row |= {"holder_producer_id": holder, "holder_first_offset": opened[holder]}
    return row | {"read_committed": False, "reason": f"It lay beyond the LSO {lso}, {_held(row)}."}


def _below_lso(lso: int | None) -> str:
    if lso is None:
        return "Nothing tells where the LSO was."
    return f"It lay below the LSO {lso}: read_committed consumers were given it unless it is a marker or was aborted."


def _held(row: Row) -> str:
    if row["holder_producer_id"] is None:
        return "and nothing was open, so it waited for replication"
    producer, first = row["holder_producer_id"], row["holder_first_offset"]
    return f"which the transaction of producer {producer} held that began at {first}"
