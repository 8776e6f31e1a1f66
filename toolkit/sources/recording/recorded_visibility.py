"""Visibility of an offset in a sample of a recording, by the partition's offsets; a recording has no records."""

from __future__ import annotations

from typing import Any

from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.log.offset_status import visibility_reason
from toolkit.schema import OFFSET_VISIBILITY, Row
from toolkit.schema.offsets import OffsetVisibility
from toolkit.sources.offset_queries.offset_reader import PARTITION_COLUMNS

NOT_RECORDED = "NOT_RECORDED: a recording has no records; only the cluster or its files show the content of an offset"


def recorded_visibility(observation: Observation, offset: int) -> Row:
    """Row of ``schema.OFFSET_VISIBILITY``.

    Parameters
    ----------
    observation
        A sample's observation of one partition.
    offset
        The offset.
    """
    partition = (*observation.partitions, *observation.partitions_after)[-1]
    row: dict[str, Any] = dict.fromkeys(OFFSET_VISIBILITY.names)
    row |= {name: getattr(partition, name) for name in PARTITION_COLUMNS}
    row["offset"] = offset
    lso, high_watermark = partition.last_stable_offset, partition.high_watermark
    log_start, log_end = partition.log_start_offset, partition.log_end_offset
    if log_start is not None and offset < log_start:
        row["status"] = "deleted"
    elif log_end is not None and offset >= log_end:
        row["status"] = "beyond_log_end"
    elif high_watermark is not None and offset >= high_watermark:
        row["status"] = "beyond_high_watermark"
    if row["status"] is not None:
        return row | {
            "read_committed": False,
            "read_uncommitted": False,
            "reason": visibility_reason(OffsetVisibility.of({**row, "reason": ""})),
        }
    row["error"] = row["error"] or NOT_RECORDED
    if lso is None or offset < lso:
        return row | {"reason": _below_lso(lso)}
    opened = {
        each.producer_id: each.current_txn_start_offset
        for each in (*observation.producers, *observation.producers_after)
        if each.current_txn_start_offset is not None
    }
    if opened:
        holder = min(opened, key=lambda each: opened[each])
        row |= {"holder_producer_id": holder, "holder_first_offset": opened[holder]}
    return row | {"read_committed": False, "reason": f"It was beyond the LSO {lso}, {_holder(row)}."}


def _below_lso(lso: int | None) -> str:
    if lso is None:
        return "The LSO at that time is unknown."
    return f"It was below the LSO {lso}: read_committed consumers received it unless it is a marker or was aborted."


def _holder(row: Row) -> str:
    if row["holder_producer_id"] is None:
        return "and no transaction was open, so the LSO waited for replication"
    producer, first = row["holder_producer_id"], row["holder_first_offset"]
    return f"held by the transaction of producer {producer} that began at offset {first}"
