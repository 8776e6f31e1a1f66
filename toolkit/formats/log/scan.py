"""Record batch headers of a log, read from one to the next; damage is skipped and reported.

Sources: ``DefaultRecordBatch``, ``AbstractLegacyRecordBatch`` and ``ByteBufferLogInputStream`` in Kafka's clients.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

import numpy as np

from toolkit.formats.log.headers import HEADER, DamagedRange, ScanResult
from toolkit.formats.log.log_bytes import BufferBytes, FileBytes, KeptBytes
from toolkit.formats.log.log_walk import LogWalk

__all__ = ["PIECE_BYTES", "scan", "scan_file", "scan_file_bytes"]

CHUNK_BYTES = 1 << 21
PIECE_ROWS, PIECE_BYTES = 1 << 16, 1 << 26  # of a file, per `Scanned`


def scan(buf: bytes | bytearray | memoryview, *, position: int = 0, crc: bool = False, last: bool = True) -> ScanResult:
    """The batches in bytes that are at hand: a fetch response, a small file.

    Parameters
    ----------
    buf
        Bytes of a log.
    position
        Where in them to start; positions in the result count from the start of ``buf``.
    crc
        Check every batch's checksum.
    last
        Whether the log ends where the bytes do. Otherwise what cannot be told without more bytes, such as an
        incomplete batch, is left out, and `ScanResult.end` is where it starts. If that is where the scan started,
        nothing is gained without more bytes.
    """
    walk = LogWalk(BufferBytes(buf), position, crc=crc, last=last, chunk_bytes=CHUNK_BYTES)
    while walk.advance():
        pass
    return walk.take()


def scan_file(
    path: str | os.PathLike[str],
    *,
    start: int = 0,
    stop: int | None = None,
    crc: bool = False,
    chunk_bytes: int = CHUNK_BYTES,
    piece_bytes: int = PIECE_BYTES,
) -> Iterator[ScanResult]:
    """The batches of a segment, in chunks and in order; positions are those of the file.

    Memory stays within some 30 MB however large the file or a batch is. A file that grows or shrinks meanwhile does
    no harm: it is read up to where it ended at first, or ends by then.

    Parameters
    ----------
    path
        A segment. What cannot be read (missing, a directory, no permission, an I/O error) is one `DamagedRange`.
    start
        Byte at which a batch starts.
    stop
        Byte from which on nothing is read; a batch that it cuts is left out. The end of the file by default.
    crc
        Check every batch's checksum.
    chunk_bytes
        Bytes read at once, best as many as the processor's cache takes; the result does not depend on it.
    piece_bytes
        Bytes of the file per chunk, about.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its writer
            kind = "directory" if os.path.isdir(path) else "pipe or device"
            yield _unreadable(start, 0, f"this is a {kind} and no file.")
            return
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            last = stop is None or stop >= size
            source = FileBytes(file, size if last or stop is None else stop)
            yield from _chunks(LogWalk(source, start, crc=crc, last=last, chunk_bytes=chunk_bytes), piece_bytes)
    except OSError as exc:
        yield _unreadable(start, 0, f"{exc.strerror or exc}.")


def scan_file_bytes(
    path: str | os.PathLike[str], *, start: int = 0
) -> Iterator[tuple[ScanResult, list[tuple[int, bytes]]]]:
    """The same with every checksum checked, and the bytes: positions and pieces in which the batches lie.

    A batch that is larger than a piece is in none of them.
    """
    try:
        with open(path, "rb", buffering=0) as file:
            source = KeptBytes(file, os.fstat(file.fileno()).st_size)
            walk = LogWalk(source, start, crc=True, last=True, chunk_bytes=CHUNK_BYTES)
            for scanned in _chunks(walk, CHUNK_BYTES):
                yield scanned, source.take()
    except OSError as exc:
        yield _unreadable(start, 0, f"{exc.strerror or exc}."), []


def _chunks(walk: LogWalk, piece_bytes: int) -> Iterator[ScanResult]:
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


def _unreadable(position: int, size: int, why: str) -> ScanResult:
    damage = DamagedRange(position, size, f"UNREADABLE: {why}")
    return ScanResult(headers=np.empty(0, HEADER), damage=(damage,), end=position + size)
