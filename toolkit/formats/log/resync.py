"""After damage: which batch is intact, and where the next one is.

A header that looks right may be bytes of a record, so a batch counts as intact only if its checksum matches. One that a
producer has stored as a whole in a record of the damaged batch cannot be told from the log's own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toolkit.formats.log.batch_positions import REACH, BatchLoops, jitted_batch_loops, usual_size
from toolkit.formats.log.batches import CRC_END, MAGIC_AT
from toolkit.formats.log.checksum import COVERED, extend
from toolkit.formats.log.log_bytes import LogBytes, read_at

__all__ = ["Resync", "ResyncResult", "int32"]

FIRST_BYTES, PIECE_BYTES = 1 << 14, 1 << 20  # the next intact batch is mostly near
SUM_BYTES = 1 << 18
OVERLAP = REACH  # what tells a batch may start in one piece and end in the next
CHECK_COST = 4096  # what a check takes at least, as bytes of checksum


class ResyncResult(NamedTuple):
    """The result of a search: the position and size of an intact batch, or none (size 0).

    ``zeros_from`` is the position from which on there are only zeros; it is only known if none was found.
    """

    position: int
    size: int
    zeros_from: int


class Resync:
    """Checks and searches, which together take no longer than a few readings of the log.

    Bytes made to look like one header after another would otherwise be summed up again from each of them.
    """

    def __init__(self, source: LogBytes, start: int, kernel: BatchLoops) -> None:
        self._source = source
        self._kernel = kernel
        self._left = (1 << 26) + 4 * (source.stop - start)

    def is_sound(self, position: int, size: int) -> bool:
        """Whether the checksum of a batch matches; also no if too much was checked in vain before."""
        if self._left < 0:
            return False
        matches = self.matches(position, size)
        if not matches:
            self._left -= size + CHECK_COST
        return matches

    def matches(self, position: int, size: int) -> bool:
        """Whether the checksum of a batch matches, however large it is."""
        head = read_at(self._source, position, CRC_END)
        if len(head) < CRC_END:
            return False  # the file has been cut meanwhile
        magic = head[MAGIC_AT]
        crc_at, covered = COVERED[magic == 2]
        return self._sum(position + covered, position + size, magic) == int.from_bytes(head[crc_at : crc_at + 4])

    def is_whole(self, position: int, size: int) -> bool:
        """Whether the parts of a message of magic 0 or 1 fill it; magic 2 has no such rule."""
        head = read_at(self._source, position, 30)
        if len(head) < 30 and size >= 30:
            return False
        if head[MAGIC_AT] == 2:
            return True
        key_at = 18 + 8 * head[MAGIC_AT]
        value_at = key_at + 4 + max(int32(head, key_at), 0)
        value_size = read_at(self._source, position + value_at, 4)
        return len(value_size) == 4 and value_at + 4 + max(int32(value_size, 0), 0) == size

    def search(self, position: int, *, give_up_at: int | None = None) -> ResyncResult:
        """The next intact batch from a position on.

        Parameters
        ----------
        position
            Where to start.
        give_up_at
            Where to stop; the end of the log by default.
        """
        stop = self._source.stop if give_up_at is None else min(give_up_at, self._source.stop)
        zeros_from, chunk_bytes = position, FIRST_BYTES
        while self._left >= 0:
            buffer = np.empty(max(min(chunk_bytes, stop - position), 0), np.uint8)
            filled = self._source.read_into(buffer.data, position)
            if buffer[:filled].any():
                zeros_from = position + filled - int((buffer[:filled][::-1] != 0).argmax())
                found = self._first_sound(buffer, filled, position)
                if found:
                    return ResyncResult(*found, zeros_from)
            if filled < chunk_bytes:
                return ResyncResult(stop, 0, zeros_from)
            position += filled - OVERLAP
            chunk_bytes = min(4 * chunk_bytes, PIECE_BYTES)
        return ResyncResult(stop, 0, stop)

    def _first_sound(self, buffer: npt.NDArray[np.uint8], filled: int, base: int) -> tuple[int, int] | None:
        kernel = self._kernel if filled <= FIRST_BYTES else jitted_batch_loops()
        data, at = buffer if kernel.is_jitted else buffer.data, 0
        while self._left >= 0 and (at := kernel.search(data, at, filled, self._source.stop - base)) >= 0:
            size = usual_size(buffer.data, at, filled)
            if self.is_sound(base + at, size):
                return base + at, size
            at += 1
        return None

    def _sum(self, position: int, end: int, magic: int) -> int:
        crc = 0
        while position < end:
            data = read_at(self._source, position, min(SUM_BYTES, end - position))
            if not data:
                return -1
            crc = extend(crc, data, magic=magic)
            position += len(data)
        return crc


def int32(data: bytes, at: int) -> int:
    """A big-endian int32."""
    return int.from_bytes(data[at : at + 4], signed=True)
