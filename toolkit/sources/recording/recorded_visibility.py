"""Visibility of an offset in a sample of a recording, by the partition's offsets; a recording has no records."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter

from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.log.offset_status import visibility_reason
from toolkit.schema.live import Partition
from toolkit.schema.offsets import OffsetVisibility
from toolkit.sources.offset_queries.offset_reader import of_partition

NOT_RECORDED = "NOT_RECORDED: a recording has no records; only the cluster or its files show the content of an offset"


def recorded_visibility(observation: Observation, offset: int) -> OffsetVisibility:
    """Where an offset was.

    Parameters
    ----------
    observation
        A sample's observation of one partition.
    offset
        The offset.
    """
    partition = (*observation.partitions, *observation.partitions_after)[-1]
    found = of_partition(partition, offset)
    if (status := _outside_log(partition, offset)) is not None:
        outside = replace(found, status=status, read_committed=False, read_uncommitted=False)
        return replace(outside, reason=visibility_reason(outside))
    found = replace(found, error=partition.error or NOT_RECORDED)
    lso = partition.last_stable_offset
    if lso is None:
        return replace(found, reason="The LSO at that time is unknown.")
    if offset < lso:
        received = "read_committed consumers received it unless it is a marker or was aborted."
        return replace(found, reason=f"It was below the LSO {lso}: {received}")
    opened = {
        each.producer_id: each.current_txn_start_offset
        for each in (*observation.producers, *observation.producers_after)
        if each.producer_id is not None and each.current_txn_start_offset is not None
    }
    why = "and no transaction was open, so the LSO waited for replication"
    if opened:
        holder, first = min(opened.items(), key=itemgetter(1))
        found = replace(found, holder_producer_id=holder, holder_first_offset=first)
        why = f"held by the transaction of producer {holder} that began at offset {first}"
    return replace(found, read_committed=False, reason=f"It was beyond the LSO {lso}, {why}.")


def _outside_log(partition: Partition, offset: int) -> str | None:
    if partition.log_start_offset is not None and offset < partition.log_start_offset:
        return "deleted"
    if partition.log_end_offset is not None and offset >= partition.log_end_offset:
        return "beyond_log_end"
    if partition.high_watermark is not None and offset >= partition.high_watermark:
        return "beyond_high_watermark"
    return None
