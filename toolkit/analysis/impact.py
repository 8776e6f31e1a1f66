"""What waits behind a held LSO: records, bytes, compaction; and when the transaction really opened."""

from __future__ import annotations

import datetime as dt

import numpy as np

from toolkit.analysis.excerpts import Excerpt
from toolkit.analysis.traces import Traces
from toolkit.formats.batches import CONTROL
from toolkit.schema import Row

__all__ = ["held_back", "opening_time"]

CLOCKS_DIFFER = dt.timedelta(seconds=5)  # a producer's clock may be off by so much before it is doubted


def held_back(row: Row, excerpt: Excerpt) -> Row:
    """Data records and bytes between the LSO and the high watermark, counted from their batches.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    excerpt
        What was read of its partition.

    Returns
    -------
    Row
        ``records_held`` and ``bytes_held``; null where not all of it was read. Bytes are those of whole batches,
        markers included.
    """
    lso, high_watermark = row["last_stable_offset"], row["high_watermark"]
    unknown = {"records_held": None, "bytes_held": None}
    if lso is None or high_watermark is None:
        return unknown
    first = max(lso, excerpt.log_start_offset or 0)  # the LSO may lie below the log start
    if first >= high_watermark:
        return {"records_held": 0, "bytes_held": 0}
    if excerpt.start > first or excerpt.stop < high_watermark:
        return unknown
    headers = excerpt.headers
    held = headers[(headers["last_offset"] >= first) & (headers["base_offset"] < high_watermark)]
    data = held[held["attributes"] & CONTROL == 0]
    left = data["last_offset"] - np.maximum(data["base_offset"], first) + 1  # of a batch that the log starts within
    return {
        "records_held": int(np.minimum(data["record_count"], left).sum()),
        "bytes_held": int(held["size"].sum()),
    }


def opening_time(row: Row, traces: Traces) -> Row:
    """When the transaction opened, where a broker's clock contradicts what its producer wrote.

    Markers carry the time of the partition's leader: one before the first batch and one after it bound the true time.
    A producer's clock outside of that is wrong, or its records carry other times on purpose.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    traces
        What was read of its producer.

    Returns
    -------
    Row
        ``opened_at`` and ``opened_by``: as they are, or the time of the marker before, null if none was read.
    """
    told: dt.datetime | None = row["opened_at"]
    as_told = {"opened_at": told, "opened_by": row["opened_by"]}
    if told is None or row["opened_by"] != "producer":
        return as_told
    earliest = traces.brokers_time_before
    latest = traces.brokers_time_after or traces.excerpt.observed_at
    if (earliest or told) - CLOCKS_DIFFER <= told <= latest + CLOCKS_DIFFER:
        return as_told
    return {"opened_at": earliest, "opened_by": None if earliest is None else "broker"}
