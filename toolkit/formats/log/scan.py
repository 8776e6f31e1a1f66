"""Record batch headers of a log, read one after the other; damage is skipped and reported, other files are named.

Sources: ``DefaultRecordBatch``, ``AbstractLegacyRecordBatch`` and ``ByteBufferLogInputStream`` in Kafka's clients.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toolkit.formats.log.batch_positions import FEW, MANY, find_batches, readable_size, usual_size
from toolkit.formats.log.batches import CONTROL, HEADER_SIZE, LENGTH_END, MAGIC_AT
from toolkit.formats.log.headers import (
    RAW_BYTES,
    DamagedRange,
    Header,
    Headers,
    LogChunk,
    concatenate,
    read_raw_headers,
)
from toolkit.formats.log.resync import LogBytes, Resync, ResyncResult, check
from toolkit.formats.log_paths import LogPath, log_path, other_kind

SEGMENT, DUMP = "segment", "dump"

SegmentBytes = Sequence[tuple[int, bytes]]
"""Positions in a file, and the bytes from there on."""

HEAD_BYTES = 1 << 16  # a dump may begin with warnings of the JVM and of Kafka's logger
SIGNATURES = (
    (b"\x1f\x8b", "gzip", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "zstd", "Unpack it first."),
    (b"\x04\x22\x4d\x18", "lz4", "Unpack it first."),
    (b"BZh", "bzip2", "Unpack it first."),
    (b"\xfd7zXZ\0", "xz", "Unpack it first."),
    (b"PK\x03\x04", "zip", "Unpack it first."),
    (b"PAR1", "Parquet", "Pass the log files that it was made from."),
    (b"\x7fELF", "a program", ""),
)
TEXT = bytes({*range(0x20, 0x7F), *range(0x80, 0x100), *b"\t\n\r\f\x1b"})
DUMP_LINE = re.compile(  # the first line of every dump, the lines of an excerpt, and records from a console consumer
    rb"^(?:Dumping \S|Starting offset: |Log starting offset: |Snapshot end offset: |baseOffset: |offset: |\| offset: "
    rb"|producerId: |.{1,249}::TransactionMetadata\(transactionalId="
    rb'|\{"key":\{"(?:type|version)":"?0"?,"data":\{"transactionalId":)',
    re.MULTILINE,
)


def file_type(path: LogPath) -> str:
    """`SEGMENT`, `DUMP` (output of kafka-dump-log.sh), a sentence about another type, or ``""`` if it is unknown."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return ""
    packed = any(head.startswith(signature) for signature, _, _ in SIGNATURES)
    if not packed and DUMP_LINE.search(head):
        return DUMP
    if other := other_type(head):
        return f"T{other[1:]}"
    offset, length = int.from_bytes(head[:8], signed=True), int.from_bytes(head[8:LENGTH_END], signed=True)
    is_batch = len(head) >= HEADER_SIZE and offset >= 0 and length > 0 and head[MAGIC_AT] in {0, 1, 2}
    return SEGMENT if is_batch else ""


def other_type(head: bytes) -> str:
    """A sentence about a file that begins with these bytes; empty if it could be a segment."""
    for signature, name, advice in SIGNATURES:
        if head.startswith(signature):
            return f"this is {name}. {advice}".strip()
    if head and not head.strip(TEXT) and len(head) > MAGIC_AT:
        return "this is text. If kafka-dump-log.sh printed it, read it as a dump."
    return ""


def header_error(head: bytes) -> str:
    """Why a complete header cannot be read."""
    magic, length = head[MAGIC_AT], int.from_bytes(head[8:LENGTH_END], signed=True)
    if magic > 2:
        return f"magic {magic} is not known"
    if head[0] >= 0x80:
        return "its base offset is negative"
    if length < 14:
        return f"its length is {length:,}"
    return "its fields contradict each other"


CHUNK_BYTES = 1 << 21
PIECE_ROWS, PIECE_BYTES = 1 << 16, 1 << 26  # of a file, per `LogChunk`
SMALLEST_WINDOW = 128
PENDING_ROWS = 1 << 14  # each read of a field releases the GIL: few calls, or threads wait for each other
WRONG_MARKER = "CORRUPT_BATCH: the checksum of this control batch is wrong; no intact batch follows."
LOOKAHEAD_BYTES = 1 << 20  # in a file that begins like another kind of file


def scan(buf: bytes | bytearray | memoryview, *, position: int = 0, crc: bool = False, last: bool = True) -> LogChunk:
    """The batches in bytes: a Fetch response, a small file.

    `position`: where in them to start; positions in the result count from the start of ``buf``.
    `last`: whether the log ends where the bytes do. Otherwise a batch that cannot be read without more bytes is left
        out, and `LogChunk.end` is where it starts.
    """
    walk = LogWalk(LogBytes(io.BytesIO(buf), len(buf)), position, crc=crc, last=last, chunk_bytes=CHUNK_BYTES)
    while walk.advance():
        pass
    return walk.take()


def scan_file(
    path: str | os.PathLike[str] | LogPath,
    *,
    start: int = 0,
    stop: int | None = None,
    crc: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[LogChunk]:
    """The batches of a segment, in chunks and in order; positions are those of the file.

    Takes about 30 MB of memory, however large the file or a batch is. The file may grow or shrink meanwhile: it is
    read up to its first end, or up to its new one if that is lower.

    `path`: a segment. One that cannot be read (missing, a directory, no permission, an I/O error) is one
        `DamagedRange`.
    `start`: byte at which a batch starts.
    `stop`: byte at which to stop; a batch that it cuts is left out. The end of the file by default.
    `chunk_bytes`: bytes to read at once, ideally as many as fit into the processor's cache; does not change the result.
    `piece_bytes`: approximate bytes of the file per chunk.
    """
    try:
        if kind := other_kind(found := log_path(path)):
            yield _unreadable(start, 0, f"this is a {kind} and no file.")
            return
        with found.open("rb", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            last = stop is None or stop >= size
            source = LogBytes(file, size if last or stop is None else stop)
            yield from _chunks(LogWalk(source, start, crc=crc, last=last, chunk_bytes=chunk_bytes), piece_bytes)
    except OSError as exc:
        yield _unreadable(start, 0, f"{exc.strerror or exc}.")


def scan_file_bytes(
    path: str | os.PathLike[str] | LogPath, *, start: int = 0
) -> Iterator[tuple[LogChunk, list[tuple[int, bytes]]]]:
    """As `scan_file`, with every checksum checked, and the bytes of the batches: pieces with their positions.

    A batch that is larger than a piece is in none of them.
    """
    pieces: list[tuple[int, bytes]] = []
    try:
        with log_path(path).open("rb", buffering=0) as file:
            source = LogBytes(file, file.seek(0, os.SEEK_END), pieces)
            for scanned in _chunks(LogWalk(source, start, crc=True, last=True, chunk_bytes=CHUNK_BYTES), CHUNK_BYTES):
                yield scanned, pieces[:]
                del pieces[:-1]  # the last piece may have batches of the next chunk
    except OSError as exc:
        yield _unreadable(start, 0, f"{exc.strerror or exc}."), []


def in_pieces(headers: Headers, pieces: SegmentBytes, file: str) -> Iterator[tuple[Headers, int, bytes]]:
    """Batches in order, grouped by the chunk of bytes that contains them, with its position and the bytes.

    A batch in none of the chunks is read from the file.

    Raises OSError if it cannot be read.
    """
    while len(headers):
        first = int(headers["position"][0])
        begin, buf = next((each for each in reversed(pieces) if each[0] <= first), (first, b""))
        count = int(np.count_nonzero(headers["position"] + headers["size"] <= begin + len(buf)))
        if not count:
            count, begin, buf = 1, first, bytes_at(file, first, int(headers["size"][0]))
        yield headers[:count], begin, buf
        headers = headers[count:]


def bytes_at(file: str, position: int, size: int) -> bytes:
    """`size` bytes of a file from `position` on. Raises OSError if there are fewer, as after the cleaner's swap."""
    with log_path(file).open("rb") as segment:
        segment.seek(position)
        found: bytes = segment.read(size)
    if len(found) < size:
        raise OSError(errno.EIO, "It has become shorter while it was read", file)
    return found


def _chunks(walk: LogWalk, piece_bytes: int) -> Iterator[LogChunk]:
    try:
        while walk.advance():
            if walk.rows >= PIECE_ROWS or walk.position - walk.taken >= piece_bytes:
                yield walk.take()
    except OSError as exc:
        if walk.position > walk.taken:
            yield walk.take()
        yield _unreadable(walk.position, walk.source.stop - walk.position, f"{exc.strerror or exc}.")
        return
    if walk.position > walk.taken:
        yield walk.take()


def _unreadable(position: int, size: int, why: str) -> LogChunk:
    damage = DamagedRange(position, size, f"UNREADABLE: {why}")
    return LogChunk(damage=(damage,), end=position + size)


class LogWalk:
    """A position that advances through a log, with the headers and damage found since the last `take`.

    Every byte belongs to one header or to one damaged range. The result does not depend on the size of the window:
    `find_batches` accepts a batch only if `_step` would accept it, too.

    `crc`: whether to check every batch's checksum.
    `last`: whether the log ends at ``source.stop``.
    `chunk_bytes`: size of the window.
    """

    def __init__(self, source: LogBytes, position: int, *, crc: bool, last: bool, chunk_bytes: int) -> None:
        self.source = source
        self.position = self.taken = self._start = position
        self.rows = 0
        self._crc, self._last = crc, last
        self._resync = Resync(source, position)
        room = max(min(chunk_bytes, source.stop - position), SMALLEST_WINDOW)
        self._window = np.zeros(room + RAW_BYTES, np.uint8)  # a batch at its end has RAW_BYTES after its start, too
        self._base, self._filled = position, 0
        self._at_most = FEW
        self._pending: list[tuple[npt.NDArray[Any], npt.NDArray[np.int64], npt.NDArray[np.int8]]] = []
        self._pending_rows = 0
        self._headers: list[Headers] = []
        self._damage: list[DamagedRange] = []

    def advance(self) -> bool:
        """Advance over many batches, over one, or over damage; false if that is not possible."""
        if self.position >= self.source.stop:
            return False
        if not self._base <= self.position < self._base + self._filled:
            self._load()
        found = find_batches(self._window, self.position - self._base, self._filled, at_most=self._at_most)
        self._at_most = FEW if found.in_doubt else min(8 * self._at_most, MANY)
        if len(found.positions):
            crc_ok = (
                check(self._window, found.positions, found.raw)
                if self._crc
                else np.full(len(found.positions), -1, np.int8)
            )
            self._append(found.raw, found.positions + self._base, crc_ok)
            self.position = self._base + found.stop
        elif self.position > self._base and not found.in_doubt:
            self._load()
        else:
            return self._step()
        return True

    def take(self) -> LogChunk:
        """Batches and damage found since the last call."""
        self._read_pending()
        headers, damage = concatenate(self._headers), tuple(self._damage)
        self._headers, self._damage, self.rows, self.taken = [], [], 0, self.position
        return LogChunk(headers=headers, damage=damage, end=self.position)

    def _load(self) -> None:
        self._base, self._filled = self.position, 0
        self._filled = self.source.read_into(self._window.data[: len(self._window) - RAW_BYTES], self.position)

    def _append(self, raw: npt.NDArray[Any], positions: npt.NDArray[np.int64], crc_ok: npt.NDArray[np.int8]) -> None:
        self._pending.append((raw.view(f"V{RAW_BYTES}"), positions, crc_ok))  # numpy may swap fields as it joins arrays
        self.rows += len(raw)
        self._pending_rows += len(raw)
        if self._pending_rows >= PENDING_ROWS:
            self._read_pending()

    def _read_pending(self) -> None:
        """Convert the first bytes of batches to headers."""
        if self._pending:
            raw, positions, crc_ok = (np.concatenate(column) for column in zip(*self._pending, strict=True))
            headers = read_raw_headers(raw, position=positions, crc_ok=crc_ok)
            if self._ends_in_wrong_marker(headers[-1]):
                self._damage.append(DamagedRange(int(positions[-1]), int(headers["size"][-1]), WRONG_MARKER))
                headers = headers[:-1]
            self._headers.append(headers)
            self._pending, self._pending_rows = [], 0

    def _ends_in_wrong_marker(self, header: Header) -> bool:
        """Whether the log ends here in a control batch with a wrong checksum: a copy may end in zeros."""
        position, size = int(header["position"]), int(header["size"])
        is_end = self._last and position + size == self.source.stop
        return is_end and bool(header["attributes"] & CONTROL) and not self._resync.matches(position, size)

    def _add(self, position: int, size: int) -> None:
        """Add one batch, which may be larger than the window."""
        head = self.source.read(position, RAW_BYTES)
        if readable_size(head, 0, len(head)) != size:
            return  # the file was rewritten meanwhile: read again
        raw = np.frombuffer(head.ljust(RAW_BYTES, b"\0"), f"V{RAW_BYTES}")
        crc_ok = self._resync.matches(position, size) if self._crc else -1
        self._append(raw, np.array([position]), np.array([crc_ok], np.int8))
        self.position = position + size

    def _add_damage(self, end: int, reason: str) -> None:
        self._damage.append(DamagedRange(self.position, end - self.position, reason))
        self.rows += 1
        self.position = end

    def _step(self) -> bool:
        """Decide what starts at the position: a batch, the end, or damage."""
        head = self.source.read(self.position, HEADER_SIZE)
        size = readable_size(head, 0, len(head))
        end = self.position + size
        if not head:
            return False  # the file was truncated meanwhile
        if size < 0:
            return self._last and self._lose("the bytes end within a batch header", torn=True)
        if end > self.source.stop:
            torn = usual_size(head, 0, len(head)) > 0
            return self._last and self._lose(f"the bytes end within a batch of {size:,} bytes", torn=torn)
        if size == 0 or not self._resync.is_whole(self.position, size):
            return self._lose(f"no batch starts here: {header_error(head)}")
        if self._leads_on(head[MAGIC_AT], end) or self._resync.is_sound(self.position, size):
            self._add(self.position, size)
            return True
        return self._lose("its checksum does not match, and its length leads to no batch", half_written_to=end)

    def _leads_on(self, magic: int, end: int) -> bool:
        """Whether a batch that ends here is followed by another, or by nothing."""
        if end == self.source.stop:
            return True
        head = self.source.read(end, HEADER_SIZE)
        if not self._last and readable_size(head, 0, len(head)) < 0:
            return True
        return usual_size(head, 0, len(head)) > 0 and not (magic == 2 and head[MAGIC_AT] < 2)

    def _lose(self, why: str, *, torn: bool = False, half_written_to: int = 0) -> bool:
        """Skip bytes that are no batch, up to the next intact batch or to the end."""
        kind = other_type(self.source.read(0, 4096)) if self.position == self._start == 0 else ""
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
        if found.zeros_from <= self.position + 1 and self.source.read(self.position, 1) == b"\0":
            return "TORN_TAIL: zeros up to the end, as in a preallocated file, or after a crash of the machine."
        if torn:
            return f"TORN_TAIL: {why}."
        if found.zeros_from <= max(half_written_to, self.position + HEADER_SIZE) and self.position > self._start:
            return "TORN_TAIL: a batch of which only the first part was written; zeros follow up to the end."
        if self.position == self._start == 0:
            return "NOT_A_SEGMENT: there is no record batch in it."
        return f"CORRUPT_BATCH: {why}; no intact batch follows."
