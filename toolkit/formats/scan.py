"""Record batch headers of a log, read one after the other; damage is skipped and reported, other files are named.

A loop in Python follows the lengths of batches, numpy compares their fields, many at once. Messages of magic 0 and 1,
which hold no transactions, are compared one by one.

Sources: ``DefaultRecordBatch`` (CRC32C from attributes on), ``AbstractLegacyRecordBatch``, ``LegacyRecord`` (CRC32 from
magic on) and ``ByteBufferLogInputStream`` in Kafka's clients.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from toolkit.formats.batches import CONTROL, CRC_END, HEADER_SIZE, LENGTH_END, MAGIC_AT
from toolkit.formats.batches import HEADER as BATCH_HEADER
from toolkit.formats.headers import (
    RAW,
    RAW_BYTES,
    Array,
    DamagedRange,
    Header,
    Headers,
    LogChunk,
    concatenate,
    read_raw_headers,
)
from toolkit.formats.log_dir_files import LogPath, log_path, other_kind

MESSAGE_SIZE = 26  # of the smallest message of magic 0; with the 8 bytes of its time, of magic 1
REACH = 1024  # maximum distance from the start of such a message to its value in a search
FEW, MANY = 32, 1 << 14  # batches that are followed before their fields are compared: few at first, and after damage
_length = struct.Struct(">i").unpack_from


class FoundBatches(NamedTuple):
    """Consecutive batches."""

    # positions, raw: position and first bytes (`RAW`) of each
    positions: npt.NDArray[np.int64]
    raw: Array
    stop: int  # position after them
    in_doubt: bool  # whether the batch there, or its follower, is implausible; if not, more bytes are needed


def find_batches(window: npt.NDArray[np.uint8], position: int, end: int, *, at_most: int) -> FoundBatches:
    """Find consecutive batches, while each is followed by a plausible header.

    `window`: bytes, with `RAW_BYTES` after their end.
    `end`: where the bytes end.
    `at_most`: where to stop; bytes made to look like headers would be followed again from each of them.
    """
    view = window.data
    size = readable_size(view, position, end)
    starts: list[int] = []
    at, last = position, end - HEADER_SIZE
    while size > 0 and at <= last and len(starts) <= at_most:
        starts.append(at)
        length = _length(view, at + 8)[0]
        if length < MESSAGE_SIZE - LENGTH_END:
            break
        at += LENGTH_END + length
    positions = np.array(starts, np.int64)
    raw = first_bytes(window, positions)
    if len(positions) < 2:
        return FoundBatches(positions[:0], raw[:0], position, in_doubt=size == 0)
    magic, sound, whole = raw["magic"], _plausible(raw), np.ones(len(raw), bool)
    for i in np.flatnonzero((magic == 0) | (magic == 1)).tolist():
        sound[i] = usual_size(view, starts[i], end) > 0
        whole[i] = i + 1 == len(starts) or is_whole(view, starts[i], starts[i + 1] - starts[i], starts[i + 1])
    hardly_ever = (magic[:-1] == 2) & (magic[1:] < 2)  # a log that returns to an old format
    wrong = np.flatnonzero(~(sound[1:] & whole[:-1]) | hardly_ever)
    count = int(wrong[0]) if len(wrong) else len(starts) - 1
    return FoundBatches(positions[:count], raw[:count], starts[count], in_doubt=len(wrong) > 0)


def candidates(window: npt.NDArray[np.uint8], end: int, room: int) -> Iterator[int]:
    """Positions of plausible headers, in order.

    A message of magic 0 or 1 is found only if its key is short: its value's size must be within `REACH`.

    `window`, `end`: as for `find_batches`. `room`: where the log ends, which may be after the bytes.
    """
    count = max(end - MESSAGE_SIZE + 1, 0)
    byte = [window[i : i + count] for i in range(MAGIC_AT + 1)]
    has_length = ((byte[8] | byte[9] | byte[10]) != 0) | (byte[11] >= MESSAGE_SIZE - LENGTH_END)
    near = np.flatnonzero((byte[0] == 0) & (byte[1] == 0) & (byte[8] < 0x80) & has_length & (byte[MAGIC_AT] <= 2))
    for start in range(0, len(near), MANY):
        some = near[start : start + MANY]
        raw = first_bytes(window, some)
        plausible = _plausible(raw) & (some + HEADER_SIZE <= end)
        old = (raw["magic"] < 2) & (window[some + MAGIC_AT + 1] & 7 <= 3)
        for i in np.flatnonzero((plausible | old) & (LENGTH_END + raw["length"] <= room - some)).tolist():
            at = int(some[i])
            size = usual_size(window.data, at, end) if old[i] else 0
            if plausible[i] or (size and is_whole(window.data, at, size, min(end, at + REACH))):
                yield at


def first_bytes(window: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> Array:
    """The first bytes of the batches at positions, as `RAW`."""
    rows = np.ndarray(len(window) - RAW_BYTES + 1, f"V{RAW_BYTES}", window, strides=(1,))
    return rows[positions].view(RAW)


def _plausible(raw: Array) -> npt.NDArray[np.bool_]:
    """Which are of magic 2, and have no field with a value that Kafka up to 4.3 would hardly write."""
    attributes, delta, count = raw["attributes"], raw["last_offset_delta"], raw["record_count"]
    plausible: npt.NDArray[np.bool_] = (raw["magic"] == 2) & (raw["length"] >= HEADER_SIZE - LENGTH_END)
    plausible &= (attributes >= 0) & (attributes < 0x80) & (attributes & 7 <= 4)
    plausible &= (count >= 0) & (delta >= 0) & (count - 1 <= delta)
    plausible &= (count > 0) | (raw["length"] == HEADER_SIZE - LENGTH_END)
    plausible &= (raw["producer_epoch"] >= -(1 << 8)) & (raw["base_sequence"] >= -(1 << 24))
    for field, bits in (("leader_epoch", 24), ("producer_id", 48)):
        plausible &= (raw[field] >= -(1 << bits)) & (raw[field] < 1 << bits)
    plausible &= raw["base_offset"] >> 48 == 0
    return plausible


def readable_size(data: Any, position: int, end: int) -> int:
    """Size of the batch at a position; 0 if its header is contradictory, -1 if it is incomplete."""
    if position + MAGIC_AT >= end:
        return -1
    if data[position + MAGIC_AT] != 2:
        return _message_size(data, position, end)
    if position + HEADER_SIZE > end:
        return -1
    offset, length, _, _, _, _, delta, *_, count = BATCH_HEADER.unpack_from(data, position)
    size = LENGTH_END + int(length)
    if min(offset, delta, count) < 0 or size < HEADER_SIZE:
        return 0
    # a batch that compaction has emptied is a header alone; zeros may follow a cut
    return size if count or size == HEADER_SIZE else 0


def usual_size(data: Any, position: int, end: int) -> int:
    """Size of the batch at a position; 0 if a field of its header has a value that Kafka up to 4.3 would hardly write.

    A batch of a newer Kafka may fail. Other bytes pass once in 10^12 positions, and bytes that repeat every 16 never.
    """
    p = position
    if p + MAGIC_AT >= end or data[p] != 0 or data[p + 1] != 0 or data[p + 8] >= 0x80:
        return 0  # offset beyond 2^48, or length negative
    if data[p + MAGIC_AT] != 2 or p + HEADER_SIZE > end:
        return max(_message_size(data, position, end), 0)
    raw = np.frombuffer(bytes(data[p : p + HEADER_SIZE]).ljust(RAW_BYTES, b"\0"), RAW)
    return LENGTH_END + int(raw["length"][0]) if _plausible(raw)[0] else 0


def int32(data: Any, at: int) -> int:
    """A big-endian int32."""
    return int.from_bytes(data[at : at + 4], signed=True)


def is_whole(data: Any, position: int, size: int, end: int) -> bool:
    """Whether key and value of the message of magic 0 or 1 at a position fill it; always true for magic 2."""
    magic = data[position + MAGIC_AT]
    if magic == 2:
        return True
    key_at = position + MESSAGE_SIZE - 8 + 8 * magic
    value_at = key_at + 4 + max(int32(data, key_at), 0)
    if value_at + 4 > end:
        return False
    whole: bool = value_at + 4 + max(int32(data, value_at), 0) == position + size
    return whole


def _message_size(data: Any, position: int, end: int) -> int:
    """As `readable_size`, for magic 0 and 1."""
    magic = data[position + MAGIC_AT]
    if magic > 1 or data[position] >= 0x80:
        return 0
    smallest = MESSAGE_SIZE + 8 * magic
    if position + smallest > end:
        return -1
    size = LENGTH_END + int32(data, position + 8)
    attributes, key_size = data[position + 17], int32(data, position + smallest - 8)
    if attributes & 7 > 3 or attributes >= 8 << magic:  # magic 1 also has a bit for its timestamp type
        return 0
    return size if size >= smallest and -1 <= key_size <= size - smallest else 0


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


FIRST_BYTES, MOST_BYTES = 1 << 14, 1 << 20  # the next intact batch is mostly near
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
            chunk_bytes = min(4 * chunk_bytes, MOST_BYTES)
        return ResyncResult(stop, 0, stop)

    def _first_sound(self, buffer: npt.NDArray[np.uint8], filled: int, base: int) -> tuple[int, int] | None:
        for at in candidates(buffer, filled, self._source.stop - base):
            if self._left < 0:
                break
            size = usual_size(buffer.data, at, filled)
            if self.is_sound(base + at, size):
                return base + at, size
        return None


SEGMENT, DUMP = "segment", "dump"

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


def text_encoding(head: bytes) -> str:
    """The encoding of a text that begins with these bytes; ``>`` of Windows PowerShell writes UTF-16."""
    return "utf-16" if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"


def file_type(path: LogPath) -> str:
    """`SEGMENT`, `DUMP` (output of kafka-dump-log.sh), a sentence about another type, or ``""`` if it is unknown.

    One that cannot be read is ``UNREADABLE``, with the reason.
    """
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as exc:
        return f"UNREADABLE: {exc.strerror}."
    if (encoding := text_encoding(head)) != "utf-8":
        head = head.decode(encoding, errors="replace").encode()
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
    crc: bool = False,
    with_bytes: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[LogChunk]:
    """The batches of a segment, in chunks and in order; positions are those of the file.

    Takes about 30 MB of memory, however large the file or a batch is. The file may grow or shrink meanwhile: it is
    read up to its first end, or up to its new one if that is lower.

    `path`: a segment. One that cannot be read (missing, a directory, no permission, an I/O error) is one
        `DamagedRange`.
    `start`: byte at which a batch starts.
    `crc`: whether to check every checksum.
    `with_bytes`: whether to keep the bytes of the batches, too, in small chunks. A batch that is larger than a piece is
        in none.
    `chunk_bytes`: bytes to read at once, ideally as many as fit into the processor's cache; does not change the result.
    `piece_bytes`: approximate bytes of the file per chunk.
    """
    pieces: list[tuple[int, bytes]] = []
    try:
        if kind := other_kind(found := log_path(path)):
            yield _unreadable(start, 0, f"this is a {kind} and no file.")
            return
        with found.open("rb", buffering=0) as file:
            source = LogBytes(file, file.seek(0, os.SEEK_END), pieces if with_bytes else None)
            walk = LogWalk(source, start, crc=crc, last=True, chunk_bytes=chunk_bytes)
            for chunk in _chunks(walk, CHUNK_BYTES if with_bytes else piece_bytes):
                yield replace(chunk, pieces=pieces[:]) if with_bytes else chunk
                del pieces[:-1]  # the last piece may have batches of the next chunk
    except OSError as exc:
        yield _unreadable(start, 0, f"{exc.strerror or exc}.")


def in_pieces(chunk: LogChunk) -> Iterator[tuple[Headers, int, bytes]]:
    """The batches of a chunk in order, grouped by the piece that contains them, with its position and bytes.

    A batch in none of the pieces is read from the file.

    Raises OSError if it cannot be read.
    """
    headers = chunk.headers
    while len(headers):
        first = int(headers["position"][0])
        begin, buf = next((each for each in reversed(chunk.pieces) if each[0] <= first), (first, b""))
        count = int(np.count_nonzero(headers["position"] + headers["size"] <= begin + len(buf)))
        if not count:
            count, begin, buf = 1, first, bytes_at(chunk.file or "", first, int(headers["size"][0]))
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
        if size == 0 or (head[MAGIC_AT] < 2 and not is_whole(self.source.read(self.position, size), 0, size, size)):
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
