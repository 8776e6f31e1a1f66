"""Checksums of batches, and the search for the next intact batch after damage.

Sources: ``DefaultRecordBatch`` (CRC32C from attributes on), ``LegacyRecord`` (CRC32 from magic on).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from toolkit.formats.log.batch_positions import REACH, candidates, usual_size
from toolkit.formats.log.batches import CRC_END, LENGTH_END, MAGIC_AT
from toolkit.formats.log.headers import RAW_BYTES, Array

# Position of the checksum and of the bytes it covers: before magic 2, and for magic 2.
COVERED = ((12, MAGIC_AT), (17, CRC_END))


def extend(crc: int, data: bytes | bytearray | memoryview, *, magic: int) -> int:
    """Extend a checksum by more bytes: CRC32C for magic 2, CRC32 before."""
    if magic < 2:
        return zlib.crc32(data, crc)
    extended: int = extend_crc32c(crc, bytes(data))
    return extended


def check(window: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64], raw: Array) -> npt.NDArray[np.int8]:
    """Whether each batch matches its checksum: 1 or 0.

    `window`: bytes with every batch complete.
    `positions`, `raw`: position and first bytes (`RAW`) of each batch.
    """
    view, right, is_new = window.data, np.zeros(len(raw), np.int8), raw["magic"] == 2
    starts = positions[is_new]
    stops = starts + raw["length"][is_new] + LENGTH_END
    covered = zip((starts + CRC_END).tolist(), stops.tolist(), strict=True)
    computed = [crc32c(bytes(view[start:stop])) for start, stop in covered]  # it takes bytes only, a cheap copy
    right[is_new] = np.array(computed, np.uint32) == raw["crc"][is_new]
    for i in np.flatnonzero(~is_new).tolist():
        batch = view[int(positions[i]) :]
        crc_at, start = COVERED[False]
        stop = LENGTH_END + int.from_bytes(batch[8:LENGTH_END])
        right[i] = zlib.crc32(batch[start:stop]) == int.from_bytes(batch[crc_at : crc_at + 4])
    return right


FIRST_BYTES, PIECE_BYTES = 1 << 14, 1 << 20  # the next intact batch is mostly near
SUM_BYTES = 1 << 18
OVERLAP = REACH  # the bytes that identify a batch may start in one piece and end in the next
CHECK_COST = 4096  # minimum cost of a check, in bytes of checksum
SMALL_BYTES = 4096  # reads of up to so many bytes are not kept


class _File(Protocol):
    def seek(self, position: int, /) -> int: ...

    def readinto(self, target: memoryview, /) -> int | None: ...


@dataclass(slots=True)
class LogBytes:
    """The bytes of a log up to `stop`, by position.

    A file may grow, which is ignored, or shrink, which lowers `stop`. It is read and not mapped: a broker may truncate
    it at any time, and access to a page of a mapping that no longer exists kills the process.
    """

    file: _File  # a file without buffer, or bytes in memory (`io.BytesIO`)
    stop: int  # position at which the log ends
    # receives position and a copy of every large piece that is read; null to keep none
    pieces: list[tuple[int, bytes]] | None = None

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill the target from a position on, as far as there are bytes, and return their number.

        Raises OSError if the file cannot be read there.
        """
        size = max(min(len(target), self.stop - position), 0)
        self.file.seek(position)
        filled = 0
        while filled < size:
            count = self.file.readinto(target[filled:size])
            if not count:
                self.stop = min(self.stop, position + filled)
                break
            filled += count
        if self.pieces is not None and len(target) > SMALL_BYTES:
            self.pieces.append((position, bytes(target[:filled])))
        return filled

    def read(self, position: int, size: int) -> bytes:
        """A few bytes; fewer at the end of the log."""
        target = bytearray(size)
        return bytes(target[: self.read_into(memoryview(target), position)])


class ResyncResult(NamedTuple):
    """The result of a search: the position and size of an intact batch, or none (size 0).

    ``zeros_from`` is the position from which on there are only zeros; it is only known if none was found.
    """

    position: int
    size: int
    zeros_from: int


class Resync:
    """Checks batches and searches for them, at the total cost of at most a few reads of the log.

    Without that limit, bytes made to look like consecutive headers would be checksummed again from each of them.
    """

    def __init__(self, source: LogBytes, start: int) -> None:
        self._source = source
        self._left = (1 << 26) + 4 * (source.stop - start)

    def is_sound(self, position: int, size: int) -> bool:
        """Whether the checksum of a batch matches; false without a check once the limit is used up."""
        if self._left < 0:
            return False
        matches = self.matches(position, size)
        if not matches:
            self._left -= size + CHECK_COST
        return matches

    def matches(self, position: int, size: int) -> bool:
        """Whether the checksum of a batch matches, however large it is."""
        head = self._source.read(position, CRC_END)
        if len(head) < CRC_END:
            return False  # the file was truncated meanwhile
        magic = head[MAGIC_AT]
        crc_at, covered = COVERED[magic == 2]
        crc, at, end = 0, position + covered, position + size
        while at < end:
            data = self._source.read(at, min(SUM_BYTES, end - at))
            if not data:
                return False
            crc = extend(crc, data, magic=magic)
            at += len(data)
        return crc == int.from_bytes(head[crc_at : crc_at + 4])

    def is_whole(self, position: int, size: int) -> bool:
        """Whether key and value of a message of magic 0 or 1 fill it; always true for magic 2."""
        head = self._source.read(position, 30)
        if len(head) < 30 and size >= 30:
            return False
        if head[MAGIC_AT] == 2:
            return True
        key_at = 18 + 8 * head[MAGIC_AT]
        value_at = key_at + 4 + max(int32(head, key_at), 0)
        value_size = self._source.read(position + value_at, 4)
        return len(value_size) == 4 and value_at + 4 + max(int32(value_size, 0), 0) == size

    def search(self, position: int, *, give_up_at: int | None = None) -> ResyncResult:
        """The next intact batch from a position on.

        `position`: where to start. `give_up_at`: where to stop; the end of the log by default.
        """
        stop = self._source.stop if give_up_at is None else min(give_up_at, self._source.stop)
        zeros_from, chunk_bytes = position, FIRST_BYTES
        while self._left >= 0:
            size = max(min(chunk_bytes, stop - position), 0)
            buffer = np.zeros(size + RAW_BYTES, np.uint8)
            filled = self._source.read_into(buffer.data[:size], position)
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
        for at in candidates(buffer, filled, self._source.stop - base):
            if self._left < 0:
                break
            size = usual_size(buffer.data, at, filled)
            if self.is_sound(base + at, size):
                return base + at, size
        return None


def int32(data: bytes, at: int) -> int:
    """A big-endian int32."""
    return int.from_bytes(data[at : at + 4], signed=True)
