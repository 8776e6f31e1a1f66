"""The way through a log, from its first byte to its last: every byte belongs to one header or to one damage."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from toolkit.formats.files.file_type import complaint, kind_of_file
from toolkit.formats.log import checksum
from toolkit.formats.log.batch_positions import MESSAGE_SIZE, batch_loops, readable_size, usual_size
from toolkit.formats.log.batches import HEADER_SIZE, MAGIC_AT
from toolkit.formats.log.headers import DamagedRange, Headers, ScanResult, concatenate
from toolkit.formats.log.log_bytes import LogBytes, read_at
from toolkit.formats.log.raw_headers import RAW_BYTES, gather, read_raw_headers
from toolkit.formats.log.resync import Resync, ResyncResult

__all__ = ["LogWalk"]

SMALLEST_WINDOW = 128
PENDING_ROWS = 1 << 14  # reading fields lets go of the GIL again and again: few calls, or threads wait for each other
LOOKAHEAD_BYTES = 1 << 20  # into a file that begins as another kind of file does


class LogWalk:
    """A position that advances through a log, and the headers and the damage since they were last taken.

    What is taken for a batch never depends on the window that its bytes were seen through: the compiled loop takes
    only what `_step` would take too.

    Parameters
    ----------
    source
        The log.
    position
        Where to start.
    crc
        Whether to check every batch's checksum.
    last
        Whether the log ends at ``source.stop``.
    chunk_bytes
        Size of the window.
    """

    def __init__(self, source: LogBytes, position: int, *, crc: bool, last: bool, chunk_bytes: int) -> None:
        self.source = source
        self.position = self.taken = self._start = position
        self.rows = 0
        self._crc, self._last = crc, last
        self._kernel = batch_loops(max(source.stop - position, 0))
        self._resync = Resync(source, position, self._kernel)
        room = max(min(chunk_bytes, source.stop - position), SMALLEST_WINDOW)
        self._window = np.zeros(room + RAW_BYTES, np.uint8)  # with what `gather` wants after it
        self._base, self._filled = position, 0
        self._found = np.empty(room // MESSAGE_SIZE + 1, np.int64)
        self._pending: list[tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.int8]]] = []
        self._pending_rows = 0
        self._headers: list[Headers] = []
        self._damage: list[DamagedRange] = []

    def advance(self) -> bool:
        """Go on, by many batches or by one, or over damage; whether that was possible."""
        if self.position >= self.source.stop:
            return False
        if not self._base <= self.position < self._base + self._filled:
            self._load()
        data = self._window if self._kernel.is_jitted else self._window.data
        count, at, in_doubt = self._kernel.hop(data, self.position - self._base, self._filled, self._found)
        if count:
            self._add_from_window(self._found[:count].copy())
            self.position = self._base + at
        elif self.position > self._base and not in_doubt:
            self._load()
        else:
            return self._step()
        return True

    def take(self) -> ScanResult:
        """Batches and damage found since the last call."""
        self._read_pending()
        headers, damage = concatenate(self._headers), tuple(self._damage)
        self._headers, self._damage, self.rows, self.taken = [], [], 0, self.position
        return ScanResult(headers=headers, damage=damage, end=self.position)

    def _read_pending(self) -> None:
        """Turn the first bytes of batches into headers."""
        if self._pending:
            raw, positions, crc_ok = (np.concatenate(column) for column in zip(*self._pending, strict=True))
            self._headers.append(read_raw_headers(raw, position=positions, crc_ok=crc_ok))
            self._pending, self._pending_rows = [], 0

    def _append(self, raw: npt.NDArray[Any], positions: npt.NDArray[np.int64], crc_ok: npt.NDArray[np.int8]) -> None:
        self._pending.append((raw, positions, crc_ok))
        self.rows += len(raw)
        self._pending_rows += len(raw)
        if self._pending_rows >= PENDING_ROWS:
            self._read_pending()

    def _load(self) -> None:
        room = len(self._window) - RAW_BYTES
        self._base, self._filled = self.position, 0
        self._filled = self.source.read_into(self._window.data[:room], self.position)

    def _add_from_window(self, found: npt.NDArray[np.int64]) -> None:
        crc_ok = np.full(len(found), -1, np.int8)
        if self._crc:
            checksum.check(self._window, found, crc_ok, jitted=self._kernel.is_jitted)
        self._append(gather(self._window, found), found + self._base, crc_ok)

    def _add(self, position: int, size: int) -> None:
        """One batch, which may be larger than the window."""
        head = read_at(self.source, position, RAW_BYTES)
        if readable_size(head, 0, len(head)) != size:
            return  # the file has been written anew meanwhile: look again
        raw = np.frombuffer(head.ljust(RAW_BYTES, b"\0"), f"V{RAW_BYTES}")
        crc_ok = self._resync.matches(position, size) if self._crc else -1
        self._append(raw, np.array([position]), np.array([crc_ok], np.int8))
        self.position = position + size

    def _add_damage(self, end: int, reason: str) -> None:
        self._damage.append(DamagedRange(self.position, end - self.position, reason))
        self.rows += 1
        self.position = end

    def _step(self) -> bool:
        """Decide over what starts here, without haste."""
        head = read_at(self.source, self.position, HEADER_SIZE)
        size = readable_size(head, 0, len(head))
        end = self.position + size
        if not head:
            return False  # the file has been cut meanwhile
        if size < 0:
            return self._last and self._lose("the bytes end within a batch header", torn=True)
        if end > self.source.stop:
            torn = usual_size(head, 0, len(head)) > 0
            return self._last and self._lose(f"the bytes end within a batch of {size:,} bytes", torn=torn)
        if size == 0 or not self._resync.is_whole(self.position, size):
            return self._lose(f"no batch starts here: {complaint(head)}")
        if self._leads_on(head[MAGIC_AT], end) or self._resync.is_sound(self.position, size):
            self._add(self.position, size)
            return True
        return self._lose("its checksum does not match, and its length leads to no batch", half_written_to=end)

    def _leads_on(self, magic: int, end: int) -> bool:
        """Whether a batch that ends here is followed by another, or by nothing."""
        if end == self.source.stop:
            return True
        head = read_at(self.source, end, HEADER_SIZE)
        if not self._last and readable_size(head, 0, len(head)) < 0:
            return True
        return usual_size(head, 0, len(head)) > 0 and not (magic == 2 and head[MAGIC_AT] < 2)

    def _lose(self, why: str, *, torn: bool = False, half_written_to: int = 0) -> bool:
        """Skip bytes that are no batch, to the next intact one or to the end."""
        kind = kind_of_file(read_at(self.source, 0, 4096)) if self.position == self._start == 0 else ""
        found = self._resync.search(self.position + 1, give_up_at=LOOKAHEAD_BYTES if kind else None)
        if found.size:
            self._add_damage(found.position, f"CORRUPT_BATCH: {why}; the next intact batch starts at {found.position}.")
            self._add(found.position, found.size)
            return True
        if not self._last or self.source.stop <= self.position:
            return False
        self._add_damage(self.source.stop, self._name_tail(found, why, kind, torn, half_written_to))
        return True

    def _name_tail(self, found: ResyncResult, why: str, kind: str, torn: bool, half_written_to: int) -> str:
        if kind:
            return f"NOT_A_SEGMENT: {kind}"
        if found.zeros_from <= self.position + 1 and read_at(self.source, self.position, 1) == b"\0":
            return "TORN_TAIL: zeros up to the end, as in a preallocated file, or after a crash of the machine."
        if torn:
            return f"TORN_TAIL: {why}."
        if found.zeros_from <= max(half_written_to, self.position + HEADER_SIZE) and self.position > self._start:
            return "TORN_TAIL: a batch of which only the first part was written; zeros follow up to the end."
        if self.position == self._start == 0:
            return "NOT_A_SEGMENT: there is no record batch in it."
        return f"CORRUPT_BATCH: {why}; no intact batch follows."
