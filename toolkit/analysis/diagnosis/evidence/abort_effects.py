"""What an abort marker changes for read_committed consumers, counted from the batches of its partition."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toolkit.analysis.log.record_counts import records_inside
from toolkit.formats.log.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.log.headers import COMMIT, NO_MARKER, Headers


class AbortEffects(NamedTuple):
    """Data records that read_committed consumers never receive, and those that they can receive after the abort."""

    dropped: int
    released: int


def abort_effects(
    headers: Headers, *, producer_id: int, start_offset: int, last_stable_offset: int, next_stable_offset: int
) -> AbortEffects:
    """Count the records that an abort drops, and the records behind the LSO that it releases.

    Returns: `released` counts the records between the two LSOs that are committed or not transactional.
    `headers`: structured array of `toolkit.formats.log.headers.HEADER`: every batch from the lower of `start_offset`
        and `last_stable_offset` to the high watermark, in order.
    `last_stable_offset`, `next_stable_offset`: the LSO before the abort marker, and after it.
    """
    is_control = headers["attributes"] & CONTROL != 0
    is_transactional = headers["attributes"] & TRANSACTIONAL != 0
    ended = _next_markers(headers, is_control)
    dropped_batches = (headers["producer_id"] == producer_id) & is_transactional & (ended == NO_MARKER)
    below_next_lso = headers["base_offset"] < next_stable_offset
    visible = ~dropped_batches & (~is_transactional | (ended == COMMIT)) & below_next_lso
    dropped, released = (
        records_inside(
            first,
            base_offset=headers["base_offset"],
            last_offset=headers["last_offset"],
            record_count=headers["record_count"],
            is_control=is_control,
        )
        for first in (start_offset, last_stable_offset)
    )
    return AbortEffects(int(dropped[dropped_batches].clip(0).sum()), int(released[visible].clip(0).sum()))


def _next_markers(headers: Headers, is_control: np.ndarray) -> np.ndarray:
    """The marker that ends each batch's transaction: its producer's next marker, of any epoch (KIP-890)."""
    ended = np.full(len(headers), NO_MARKER)
    next_marker: dict[int, int] = {}
    for index in range(len(headers) - 1, -1, -1):
        producer_id = int(headers["producer_id"][index])
        if is_control[index]:
            next_marker[producer_id] = int(headers["marker"][index])
        else:
            ended[index] = next_marker.get(producer_id, NO_MARKER)
    return ended
