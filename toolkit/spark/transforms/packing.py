"""Rows of structured arrays, packed into binary columns, so that one row in Spark contains many.

Spark puts 10,000 rows into one Arrow batch, regardless of their size (its limit in bytes is newer than 4.0). So a
packed row is small: `ROWS_PER_PACK`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.formats.log.headers import Array

ROWS_PER_PACK = 64
"""Maximum number of rows in one packed row of about 5 to 7 KB."""


def pack_starts(run_starts: Array, rows: int) -> Array:
    """Start indices of packed rows, none of which is too large or belongs to two runs.

    Parameters
    ----------
    run_starts
        Start indices of the runs, beginning with 0; empty without rows.
    rows
        Total number of rows.
    """
    lengths = np.diff(np.append(run_starts, rows))
    packs = -(-lengths // ROWS_PER_PACK)
    first_pack = np.cumsum(packs) - packs
    number = np.arange(packs.sum()) - np.repeat(first_pack, packs)
    return np.asarray(np.repeat(run_starts, packs) + number * ROWS_PER_PACK, np.int64)


def pack(rows: Array, starts: Array) -> pa.Array:
    """Rows of a structured array as a binary column; each value has the rows from one start to the next."""
    offsets = (np.append(starts, len(rows)) * rows.dtype.itemsize).astype(np.int32)
    data = np.ascontiguousarray(rows).view(np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def unpack(column: pa.Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """The rows in a binary column, and the number of rows in each value; 0 in a null."""
    column = column.cast(pa.binary()).fill_null(b"")
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    if len(column) == 0 or data is None:
        return np.zeros(0, dtype), np.zeros(len(column), np.int64)
    return np.frombuffer(data[offsets[0] : offsets[-1]], dtype), np.diff(offsets).astype(np.int64) // dtype.itemsize


def runs(batches: Iterable[pa.RecordBatch], by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Split the rows where one of some columns changes; a run may continue in the next batch."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        ends = [pc.run_end_encode(batch.column(name)).run_ends.to_numpy() for name in by]
        start = 0
        for end in np.unique(np.concatenate(ends)).tolist():
            yield batch.slice(start, end - start)
            start = end


def whole_runs(batches: Iterable[pa.RecordBatch], by: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of each run in one table; only one run is in memory at a time."""
    parts: list[pa.RecordBatch] = []
    key: list[Any] = []
    for run in runs(batches, by):
        found = [run.column(name)[0].as_py() for name in by]
        if parts and found != key:
            yield pa.Table.from_batches(parts)
            parts = []
        key = found
        parts.append(run)
    if parts:
        yield pa.Table.from_batches(parts)
