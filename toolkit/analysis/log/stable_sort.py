"""Fast sorting and selection of arrays, for the millions of batches of a segment."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from toolkit.formats.log.headers import Array, StructuredArray

Rows = TypeVar("Rows", bound=StructuredArray[Any])

DIGIT = np.uint64(16)  # numpy sorts 16-bit integers by radix, which is stable and linear; wider ones by merging


def stable_order(numbers: Array) -> Array:
    """The indices that sort integers, stably. `numbers`: integers of 64 bits; the smaller their range, the faster."""
    if numbers.size == 0:
        return np.zeros(0, np.intp)
    low = numbers.min()
    left = int(numbers.max()) - int(low)
    keys = numbers.astype(np.uint64) - np.uint64(int(low) % 2**64)
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    while left := left >> 16:
        keys >>= DIGIT
        order = order[np.argsort(keys.astype(np.uint16)[order], kind="stable")]
    return order


def run_starts(*, changes: Array) -> Array:
    """Indices at which a run begins. `changes`: whether each element begins a new run; from the second element on."""
    return np.concatenate(([0], np.flatnonzero(changes) + 1))


def take_rows(rows: Rows, indices: Array) -> Rows:
    """Rows of a structured array: ``rows[indices]``, but copied row by row and not field by field."""
    items = rows.view(np.dtype((np.void, rows.dtype.itemsize)))
    taken: Rows = np.take(items, indices).view(rows.dtype)
    return taken
