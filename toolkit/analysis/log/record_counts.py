"""Data records and bytes of an offset range, counted from batch headers.

Counts of consecutive ranges add up, wherever the log is split.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from toolkit.formats.log.batches import CONTROL
from toolkit.formats.log.headers import Array, Headers


def amounts(headers: Headers, first: int, stop: int) -> tuple[int, int]:
    """Data records and bytes of the batches with an offset of ``first <= offset < stop``.

    Records without control records, and bytes of complete batches with control batches.
    `headers`: structured array of `toolkit.formats.log.headers.HEADER`, of one log.
    `first`, `stop`: offsets. For a batch that begins before `first`, no more records count than it has offsets from
        `first` on.
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


class RunningTotals:
    """Follows the batches of a log in order.

    `offsets`: offsets to count at, which may be within a batch; base offsets of batches are passed with the batches.
    """

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._coming = sorted(set(offsets))
        self._inside: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
        self._samples: list[npt.NDArray[np.int64]] = []
        self._total = np.zeros(2, np.int64)
        self._end = 0

    def add(self, headers: Headers, base_offsets: npt.NDArray[np.int64]) -> None:
        """Count the next batches of the log.

        `headers`: headers of at least one batch.
        `base_offsets`: base offsets to count at, in any order; those after the last batch are ignored.
        """
        begins, ends = headers["base_offset"].copy(), headers["last_offset"].copy()  # contiguous, for fast search
        records = records_inside(
            begins,
            base_offset=begins,
            last_offset=ends,
            record_count=headers["record_count"],
            is_control=headers["attributes"] & CONTROL != 0,
        )
        before = np.zeros((len(headers) + 1, 2), np.int64)
        np.cumsum(records, out=before[1:, 0])
        np.cumsum(headers["size"], out=before[1:, 1])
        before += self._total
        rows = np.searchsorted(begins, np.sort(base_offsets))
        rows = np.unique(rows[rows < len(begins)])
        self._samples.append(np.column_stack((begins[rows], before[rows])))
        self._end = int(ends[-1]) + 1
        while self._coming and self._coming[0] < self._end:
            offset = self._coming.pop(0)
            row = int(np.searchsorted(ends, offset))  # the batch that holds it, or the next one
            skipped = 0
            if headers["attributes"][row] & CONTROL == 0:
                skipped = int(records[row] - min(int(records[row]), int(ends[row]) + 1 - max(offset, int(begins[row]))))
            as_first = int(before[row, 0]) + skipped, int(before[row, 1])
            as_stop = before[np.searchsorted(begins, offset)].tolist()
            self._inside[offset] = as_first, (as_stop[0], as_stop[1])
        self._total = before[-1]

    def between(self, first: int, stop: int) -> tuple[int, int] | None:
        """Records and bytes of the batches with an offset in ``first <= offset < stop``.

        Counts as `record_counts.amounts`; null if one of the offsets was not counted at.
        """
        low, high = self._before(first, as_first=True), self._before(stop, as_first=False)
        return None if low is None or high is None else (high[0] - low[0], high[1] - low[1])

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        """Base offsets that were counted at, in order, with the records and bytes before each."""
        if len(self._samples) != 1:
            self._samples = [np.concatenate([np.zeros((0, 3), np.int64), *self._samples])]
        return self._samples[0]

    @property
    def total(self) -> tuple[int, int]:
        """Records and bytes of all batches so far."""
        return int(self._total[0]), int(self._total[1])

    def _before(self, offset: int, *, as_first: bool) -> tuple[int, int] | None:
        if offset in self._inside:
            return self._inside[offset][0 if as_first else 1]
        if offset >= self._end:
            return self.total
        samples = self.samples
        row = int(np.searchsorted(samples[:, 0], offset))
        if row == len(samples) or samples[row, 0] != offset:
            return None
        return int(samples[row, 1]), int(samples[row, 2])
