"""Offsets of a batch that still have a record: compaction removes records, but the batch keeps its offsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from toolkit.formats.log.batch_records import read_records
from toolkit.formats.log.batches import CONTROL
from toolkit.formats.log.headers import Array, Headers
from toolkit.formats.protocol.primitives import Buffer


def partial_batches(headers: Headers) -> Array:
    """Indices of the data batches with fewer records than offsets; batches without records need not be read."""
    offsets = headers["last_offset"] - headers["base_offset"] + 1
    count = headers["record_count"]
    is_data = (headers["attributes"] & CONTROL == 0) & (headers["magic"] >= 2)
    return np.flatnonzero(is_data & (count > 0) & (count < offsets))


def record_offsets(buf: Buffer, position: int) -> Sequence[int]:
    """Offsets of the records of the batch at a position.

    Raises
    ------
    DecodeError
        If it cannot be decompressed, or a record is damaged.
    """
    return [record.offset for record in read_records(buf, position)]
