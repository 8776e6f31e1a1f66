"""The batches of a replica in log order, over all its segments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from toolkit.errors import DecodeError
from toolkit.formats.files.index_files import read_offset_index
from toolkit.formats.log.batches import HEADER_SIZE, read_header
from toolkit.formats.log.headers import DamagedRange, Headers, ScanResult
from toolkit.formats.log.scan import PIECE_BYTES, scan_file, scan_file_bytes
from toolkit.sources.log_tables import ScanChunk
from toolkit.sources.logdir.files.replica_files import LogFile, ReplicaFiles

__all__ = ["SegmentBytes", "bytes_at", "followed", "in_pieces", "position_before", "read_bytes", "read_parts"]

SegmentBytes = Sequence[tuple[int, bytes]]
"""Positions in a file, and the bytes from there on."""


SMALL_PIECE_BYTES = 1 << 24  # for a range that ends within a segment, so that little is read after it
TORN_BETWEEN = "CORRUPT_BATCH: The segment ends within a batch, but another segment follows."


def read_parts(
    listing: ReplicaFiles, *, start: int | None = None, stop: int | None = None, crc: bool = False
) -> Iterator[ScanChunk]:
    """The batches of a log in chunks, in bounded memory.

    Parameters
    ----------
    listing
        Its files. A file that has disappeared since is damage (``UNREADABLE``).
    start
        First offset; some batches before it are included, depending on the offset index. Null for the log start.
    stop
        Offset at which to stop; some batches after it are included. Null for the log end.
    crc
        Check every batch's checksum.
    """
    for segment, position, is_newest in _segments(listing, start, stop):
        piece_bytes = SMALL_PIECE_BYTES if stop is not None and _is_last(listing, segment, stop) else PIECE_BYTES
        for scanned in scan_file(segment.path, start=position, crc=crc, piece_bytes=piece_bytes):
            yield ScanChunk(scanned if is_newest else followed(scanned), str(segment.path))
            if _is_behind(scanned, stop):
                return


def read_bytes(
    listing: ReplicaFiles, *, start: int | None = None, stop: int | None = None
) -> Iterator[tuple[ScanChunk, SegmentBytes]]:
    """As `read_parts`, with all checksums checked, and with the bytes (`toolkit.formats.log.scan.scan_file_bytes`)."""
    for segment, position, is_newest in _segments(listing, start, stop):
        for scanned, pieces in scan_file_bytes(segment.path, start=position):
            yield ScanChunk(scanned if is_newest else followed(scanned), str(segment.path)), pieces
            if _is_behind(scanned, stop):
                return


def in_pieces(headers: Headers, pieces: SegmentBytes, file: str) -> Iterator[tuple[Headers, int, bytes]]:
    """Batches in order, grouped by the chunk of bytes that contains them, with its position and the bytes.

    A batch in none of the chunks is read from the file.

    Raises
    ------
    OSError
        If it cannot be read.
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
    """`size` bytes of a file from `position` on."""
    with open(file, "rb") as segment:
        segment.seek(position)
        return segment.read(size)


def _segments(listing: ReplicaFiles, start: int | None, stop: int | None) -> Iterator[tuple[LogFile, int, bool]]:
    """Segments with an offset of a range, the byte to start at, and whether the segment is the log's last."""
    segments = listing.segments
    first = 0 if start is None else max(bisect_right([segment.offset for segment in segments], start) - 1, 0)
    for number, segment in enumerate(segments[first:], start=first):
        if stop is not None and segment.offset >= stop:
            return
        position = position_before(listing, segment, start) if start is not None and number == first else 0
        yield segment, position, number == len(segments) - 1


def _is_last(listing: ReplicaFiles, segment: LogFile, stop: int) -> bool:
    return all(each.offset <= segment.offset or each.offset >= stop for each in listing.segments)


def _is_behind(scanned: ScanResult, stop: int | None) -> bool:
    return stop is not None and len(scanned.headers) > 0 and bool(scanned.headers["base_offset"][-1] >= stop)


def position_before(listing: ReplicaFiles, segment: LogFile, offset: int) -> int:
    """Byte of a segment where a batch at or before an offset begins, by its offset index; 0 without a usable entry.

    An index has no checksum, so its entry is used only if there is a batch with such an offset.
    """
    path = listing.offset_indexes.get(segment.offset)
    if path is None or offset <= segment.offset:
        return 0
    try:
        index = read_offset_index(path.read_bytes(), base_offset=segment.offset)
        at = int(index["offset"].searchsorted(offset, side="right")) - 1
        if at < 0:
            return 0
        position = int(index["position"][at])
        with segment.path.open("rb") as file:
            file.seek(position)
            header = read_header(file.read(HEADER_SIZE))
    except (OSError, DecodeError):
        return 0
    return position if segment.offset <= header.base_offset <= offset else 0


def followed(scanned: ScanResult) -> ScanResult:
    """Report a torn end as a loss, for a segment that is not the last: no broker is still writing to it."""
    if not any(damage.is_torn for damage in scanned.damage):
        return scanned
    return replace(
        scanned,
        damage=tuple(
            DamagedRange(item.position, item.size, TORN_BETWEEN) if item.is_torn else item for item in scanned.damage
        ),
    )
