"""The bytes of a log, wherever they are, by position: a buffer, or a file that may change while it is read."""

from __future__ import annotations

import io
from typing import Protocol

__all__ = ["BufferBytes", "FileBytes", "KeptBytes", "LogBytes", "read_at"]


class LogBytes(Protocol):
    """Bytes up to ``stop``."""

    stop: int

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill the target from a position on, as far as there are bytes; return how many there were."""


class BufferBytes:
    """Bytes at hand."""

    def __init__(self, buf: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(buf).cast("B")
        self.stop = len(self._view)

    def read_into(self, target: memoryview, position: int) -> int:
        """As `LogBytes` says."""
        part = self._view[position : position + len(target)]
        target[: len(part)] = part
        return len(part)


class FileBytes:
    """A file that may grow, which is not seen, or shrink, which moves ``stop``.

    It is read and not mapped: a broker may truncate it at any time, and to access a page of a mapping that is no
    longer there kills the process.
    """

    def __init__(self, file: io.FileIO, stop: int) -> None:
        self._file = file
        self.stop = stop

    def read_into(self, target: memoryview, position: int) -> int:
        """As `LogBytes` says.

        Raises
        ------
        OSError
            If the file cannot be read there.
        """
        size = max(min(len(target), self.stop - position), 0)
        self._file.seek(position)
        filled = 0
        while filled < size:
            count = self._file.readinto(target[filled:size])
            if not count:
                self.stop = min(self.stop, position + filled)
                break
            filled += count
        return filled


class KeptBytes(FileBytes):
    """The same, with a copy of what was read in large pieces, until the next `take`."""

    SMALL = 4096

    def __init__(self, file: io.FileIO, stop: int) -> None:
        super().__init__(file, stop)
        self._chunks: list[tuple[int, bytes]] = []

    def read_into(self, target: memoryview, position: int) -> int:
        """As `LogBytes` says."""
        filled = super().read_into(target, position)
        if len(target) > self.SMALL:
            self._chunks.append((position, bytes(target[:filled])))
        return filled

    def take(self) -> list[tuple[int, bytes]]:
        """Positions and bytes since the last time, and before them the piece that may not be used up yet."""
        chunks, self._chunks = self._chunks, self._chunks[-1:]
        return chunks


def read_at(source: LogBytes, position: int, size: int) -> bytes:
    """A few bytes, fewer at the end."""
    target = bytearray(size)
    return bytes(target[: source.read_into(memoryview(target), position)])
