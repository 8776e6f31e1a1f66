"""The impact of an abort marker: discarded and released records, unblocked groups, and the next LSO."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.schema import Row

if TYPE_CHECKING:
    from toolkit.formats.log.headers import Headers
    from toolkit.sources.live.client.broker_client import BrokerClient

__all__ = ["AbortImpact", "abort_impact"]

MAX_BYTES = 64 << 20
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortImpact:
    """The impact of an abort marker on read_committed consumers of a partition.

    Parameters
    ----------
    records_dropped
        Data records of the transaction, which they never read; null if the log was not read so far.
    records_released
        Data records behind the LSO that they can read then; null likewise.
    groups
        Groups that are unblocked; null if unknown.
    last_stable_offset, next_stable_offset
        The LSO now, and where it would go.
    next_start_offset, next_producer_id
        The transaction that holds the LSO then; null if none does.
    unread
        Why a count is null; empty if none is.
    """

    records_dropped: int | None
    records_released: int | None
    groups: Sequence[str] | None
    last_stable_offset: int
    next_stable_offset: int
    next_start_offset: int | None
    next_producer_id: int | None
    unread: str = ""


def abort_impact(client: BrokerClient, finding: Row, *, partition: Row, producers: Sequence[Row]) -> AbortImpact:
    """The impact of ending a transaction; reads the log from it to the high watermark, at most some megabytes.

    Parameters
    ----------
    finding
        The transaction's row of ``schema.FINDINGS``.
    partition
        Its partition's row of ``schema.PARTITIONS``, without error.
    producers
        Rows of ``schema.PRODUCERS`` of that partition, as its leader has them.
    """
    start, lso, high_watermark = finding["start_offset"], partition["last_stable_offset"], partition["high_watermark"]
    others = [
        (row["current_txn_start_offset"], row["producer_id"])
        for row in producers
        if row["current_txn_start_offset"] is not None and row["producer_id"] != finding["producer_id"]
    ]
    next_start, next_producer = min(others, default=(None, None))
    next_lso = max(lso, min(high_watermark, high_watermark if next_start is None else next_start))
    first = max(min(start, lso), partition["log_start_offset"] or 0)
    headers, unread = _headers(client, partition, first, high_watermark)
    dropped = released = None
    if not unread:
        from toolkit.analysis.diagnosis.evidence.abort_effects import (
            abort_effects,  # imports numpy, which a refused plan does not need
        )

        dropped, released = abort_effects(
            headers,
            producer_id=finding["producer_id"],
            start_offset=start,
            last_stable_offset=lso,
            next_stable_offset=next_lso,
        )
    groups = finding["groups_held"] if next_lso > lso else []
    return AbortImpact(
        records_dropped=dropped,
        records_released=released,
        groups=None if groups is None else tuple(groups),
        last_stable_offset=lso,
        next_stable_offset=next_lso,
        next_start_offset=next_start,
        next_producer_id=next_producer,
        unread=unread,
    )


def _headers(client: BrokerClient, partition: Row, first: int, stop: int) -> tuple[Headers, str]:
    """Batches of a range, and why they are incomplete; empty if they are complete."""
    import numpy as np

    from toolkit.formats.log.headers import HEADER
    from toolkit.sources.live.logs.partition_log import read_offsets

    parts, size, deadline = [np.empty(0, HEADER)], 0, time.monotonic() + TIMEOUT_S
    with closing(read_offsets(client, partition, first, stop).chunks) as chunks:  # type: ignore[type-var]
        for chunk in chunks:
            errors = [chunk.error] if chunk.error else [each.reason for each in chunk.scanned.damage]
            if errors:
                return parts[0], f"The log could not be read: {errors[0]}"
            parts.append(chunk.scanned.headers)
            size += len(chunk.records)
            reached = int(parts[-1]["last_offset"][-1]) + 1 if len(parts[-1]) else stop
            if reached < stop and (size >= MAX_BYTES or time.monotonic() > deadline):
                return parts[0], f"The log was read from offset {first} to {reached} ({size} bytes) and not to {stop}."
    return np.concatenate(parts), ""
