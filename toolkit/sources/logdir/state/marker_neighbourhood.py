"""The batches around a log's lowest open transaction, kept before it is known which transaction stays open."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from toolkit.formats.log.headers import Headers, concatenate

__all__ = ["BACK", "FORWARD", "MarkerNeighbourhood"]

FORWARD = 200_000  # batches from its first offset on
BACK = 2_000  # offsets before the first one


class MarkerNeighbourhood:
    """Follows the batches of a log in order and keeps those around the lowest open offset.

    Attributes
    ----------
    start, stop
        Every batch with an offset in ``start <= offset < stop`` is kept; both 0 if none is.
    """

    def __init__(self) -> None:
        self.start = self.stop = 0
        self._chunks: list[Headers] = []
        self._has_skipped = False

    def add(self, headers: Headers, lowest: int | None) -> None:
        """Add the next batches, at least one; `lowest` is the lowest open offset after them, null for none."""
        anchor = int(headers["last_offset"][-1]) + 1 if lowest is None else lowest
        if lowest is not None and anchor < self.stop and self._count_from(anchor) >= FORWARD:
            self._has_skipped = True
            return
        if self._has_skipped or not self._chunks:
            self.clear()
            self.start = int(headers["base_offset"][0])
        self._chunks.append(headers)
        self.stop = int(headers["last_offset"][-1]) + 1
        while self._chunks and self._chunks[0]["last_offset"][-1] < anchor - BACK:
            self.start = int(self._chunks.pop(0)["last_offset"][-1]) + 1

    def settle(self, lowest: int | None) -> None:
        """Keep only the batches around the transaction that stayed open; none if `lowest` is null."""
        if lowest is None:
            self.clear()
            return
        kept, room = [], FORWARD
        for chunk in self._chunks:
            first, anchor = np.searchsorted(chunk["last_offset"], (lowest - BACK, lowest))
            kept.append(chunk[first : anchor + room])
            room -= min(len(chunk) - int(anchor), room)
        self._chunks = [concatenate(kept)]  # a view would keep all of its chunk
        self.start = max(self.start, lowest - BACK)
        if not room and len(self):
            self.stop = int(self._chunks[0]["last_offset"][-1]) + 1

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def between(self, start: int, stop: int, *, most: int | None = None) -> Headers | None:
        """The batches with an offset in ``start <= offset < stop``, at most `most`; null if they are not kept."""
        if not self.start <= start < self.stop:
            return None
        (headers,) = self._chunks
        first, last = bisect_left(headers["last_offset"], start), bisect_left(headers["base_offset"], stop)
        if stop > self.stop and (most is None or last - first < most):
            return None
        return headers[first:last][:most]

    def clear(self) -> None:
        """Drop all batches."""
        self.start = self.stop = 0
        self._chunks, self._has_skipped = [], False

    def _count_from(self, offset: int) -> int:
        count = 0
        for chunk in self._chunks:
            is_behind = chunk["last_offset"][0] >= offset
            count += len(chunk) - (0 if is_behind else int(np.searchsorted(chunk["last_offset"], offset)))
        return count
