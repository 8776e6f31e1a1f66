"""Which transactions were open at an offset, and when they ended: the LSO passes the offset with the last marker."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toolkit.analysis.log.log_transactions import markers
from toolkit.formats.log.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.log.headers import Headers


class TransactionAtOffset(NamedTuple):
    """A transaction that had written at or before an offset, and had not ended before it.

    Parameters
    ----------
    first_offset
        Offset of its first batch that was read; null if only its marker was read.
    marker_offset, marker_time_ms, marker
        Its marker, COMMIT or ABORT; null if none follows.
    """

    first_offset: int | None
    marker_offset: int | None
    marker_time_ms: int | None
    marker: int | None


def transactions_at(batches: Headers, offset: int) -> dict[int, TransactionAtOffset]:
    """The transactions that were open at an offset, by producer id, including one whose marker is at the offset.

    Parameters
    ----------
    batches
        Headers around the offset, in the order of the log.
    offset
        The offset.
    """
    ends = markers(batches)
    data = (batches["attributes"] & (CONTROL | TRANSACTIONAL)) == TRANSACTIONAL
    base, found = batches["base_offset"], dict[int, TransactionAtOffset]()
    for producer_id in np.unique(batches["producer_id"][data | ends]).tolist():
        own = batches["producer_id"] == producer_id
        before, following = base[own & ends & (base < offset)], batches[own & ends & (base >= offset)]
        last_end = int(before[-1]) if len(before) else -1
        written = base[own & data & (base <= offset) & (base > last_end)]
        is_marker_there = len(following) and int(following["base_offset"][0]) == offset
        if not len(written) and not is_marker_there:
            continue
        found[producer_id] = TransactionAtOffset(
            int(written[0]) if len(written) else None,
            int(following["base_offset"][0]) if len(following) else None,
            int(following["max_timestamp"][0]) if len(following) else None,
            int(following["marker"][0]) if len(following) else None,
        )
    return found
