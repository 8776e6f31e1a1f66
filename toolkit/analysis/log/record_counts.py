"""Data records and bytes of an offset range, counted from batch headers.

Counts of consecutive ranges add up, wherever the log is split.
"""

from __future__ import annotations

import numpy as np

from toolkit.formats.log.batches import CONTROL
from toolkit.formats.log.headers import Array, Headers

__all__ = ["amounts", "records_inside"]


def amounts(headers: Headers, first: int, stop: int) -> tuple[int, int]:
    """Data records and bytes of the batches with an offset of ``first <= offset < stop``.

    Parameters
    ----------
    headers
        Structured array of `toolkit.formats.log.headers.HEADER`, of one log.
    first, stop
        Offsets. For a batch that begins before `first`, no more records count than it has offsets from `first` on.

    Returns
    -------
    tuple of int
        Records without control records, and bytes of complete batches with control batches.
    """
    in_range = headers[(headers["last_offset"] >= first) & (headers["base_offset"] < stop)]
    records = records_inside(
        first,
        base_offset=in_range["base_offset"],
        last_offset=in_range["last_offset"],
        record_count=in_range["record_count"],
        is_control=in_range["attributes"] & CONTROL != 0,
    )
    return int(records.sum()), int(in_range["size"].sum())


def records_inside(
    first: int | Array, *, base_offset: Array, last_offset: Array, record_count: Array, is_control: Array
) -> Array:
    """Number of data records of each batch from `first` on; after compaction, fewer than its offsets."""
    left = last_offset - np.maximum(base_offset, first) + 1
    return np.where(is_control, 0, np.minimum(record_count, left))
