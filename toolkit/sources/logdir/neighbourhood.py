"""The batches around a log's lowest open transaction, kept while nobody knows yet which transaction stays open."""

from __future__ import annotations

import numpy as np

from toolkit.formats.headers import HEADER, Headers

__all__ = ["BACK", "FORWARD", "Neighbourhood"]

FORWARD = 200_000  # batches from its first offset on
BACK = 2_000  # offsets before it


class Neighbourhood:
    """Follows the batches of a log in order.

    Attributes
    ----------
    start, stop
        Every batch that holds an offset of ``start <= offset < stop`` is there; both 0 where none is.
    """

    def __init__(self) -> None:
        self.start = self.stop = 0
        self._chunks: list[Headers] = []
        self._has_skipped = False

    def add(self, headers: Headers, lowest: int | None) -> None:
        """The next batches of the log, at least one; `lowest` is the lowest open offset by then, null for none."""
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
        """Keep no more than what is around the transaction that stayed open, if one did."""
        if lowest is None or not self._chunks:
            self.clear()
            return
        kept, room = [], FORWARD
        for chunk in self._chunks:
            first, anchor = np.searchsorted(chunk["last_offset"], (lowest - BACK, lowest))
            rows = chunk[first : anchor + room]
            kept.append(rows if len(rows) > len(chunk) // 2 else rows.copy())  # a view keeps all of its chunk
            room -= min(len(chunk) - int(anchor), room)
        self._chunks = [chunk for chunk in kept if len(chunk)]
        self.start = max(self.start, lowest - BACK)
        if not room and self._chunks:
            self.stop = int(self._chunks[-1]["last_offset"][-1]) + 1

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def between(self, start: int, stop: int, *, most: int | None = None) -> Headers | None:
        """The batches that hold an offset of ``start <= offset < stop``, the first `most` of them; null if not kept."""
        if not self.start <= start < self.stop:
            return None
        found, room = [np.empty(0, HEADER)], len(self) if most is None else most
        for chunk in self._chunks:
            first, last = np.searchsorted(chunk["last_offset"], start), np.searchsorted(chunk["base_offset"], stop)
            found.append(chunk[first : min(last, first + room)])
            room -= len(found[-1])
        if stop > self.stop and (most is None or room):
            return None
        return np.concatenate(found)

    def clear(self) -> None:
        """Keep nothing."""
        self.start = self.stop = 0
        self._chunks, self._has_skipped = [], False

    def _count_from(self, offset: int) -> int:
        count = 0
        for chunk in self._chunks:
            is_behind = chunk["last_offset"][0] >= offset
            count += len(chunk) - (0 if is_behind else int(np.searchsorted(chunk["last_offset"], offset)))
        return count
