"""The batches of a replica in the order of its log, over all its segments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from toolkit.errors import DecodeError
from toolkit.formats.batches import HEADER_SIZE, read_header
from toolkit.formats.headers import Damage, Scanned
from toolkit.formats.indexes import read_offset_index
from toolkit.formats.scan import PIECE_BYTES, scan_file, scan_file_bytes
from toolkit.sources.log_tables import Part
from toolkit.sources.logdir.files import Listing, OfLog

__all__ = ["followed", "position_before", "read_bytes", "read_parts"]

SMALL_PIECE_BYTES = 1 << 22  # where the end lies within a segment, little is read behind it
TORN_BETWEEN = "CORRUPT_BATCH: The segment ends within a batch, though another segment follows it."


def read_parts(listing: Listing, *, start: int | None = None, stop: int | None = None) -> Iterator[Part]:
    """The batches of a log in chunks, from some batch at or before an offset on, in bounded memory.

    Parameters
    ----------
    listing
        Its files. One that is gone meanwhile is damage (``UNREADABLE``).
    start
        Offset; batches a little before it come too, by the offset index. All of the log if null.
    stop
        Offset from which on nothing is read; batches a little behind it come too.
    """
    segments = listing.segments
    first = 0 if start is None else max(bisect_right([segment.offset for segment in segments], start) - 1, 0)
    piece_bytes = PIECE_BYTES if stop is None else SMALL_PIECE_BYTES
    for number, segment in enumerate(segments[first:], start=first):
        if stop is not None and segment.offset >= stop:
            return
        position = position_before(listing, segment, start) if start is not None and number == first else 0
        for scanned in scan_file(segment.path, start=position, piece_bytes=piece_bytes):
            scanned = scanned if number == len(segments) - 1 else followed(scanned)
            yield Part(scanned, str(segment.path))
            if stop is not None and len(scanned.headers) and scanned.headers["base_offset"][-1] >= stop:
                return


def read_bytes(listing: Listing) -> Iterator[tuple[Part, list[tuple[int, bytes]]]]:
    """All batches of a log with every checksum, and their bytes (`toolkit.formats.scan.scan_file_bytes`)."""
    for number, segment in enumerate(listing.segments):
        for scanned, kept in scan_file_bytes(segment.path):
            yield Part(scanned if number == len(listing.segments) - 1 else followed(scanned), str(segment.path)), kept


def position_before(listing: Listing, segment: OfLog, offset: int) -> int:
    """Byte of a segment where a batch at or before an offset begins, by its offset index; 0 if that cannot be trusted.

    An index has no checksum: what it says counts if such a batch is there.
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


def followed(scanned: Scanned) -> Scanned:
    """Damage of a segment that is not the last: nothing is still being written there, so a torn end is a loss."""
    if not any(damage.is_torn for damage in scanned.damage):
        return scanned
    return replace(
        scanned,
        damage=tuple(Damage(one.position, one.size, TORN_BETWEEN) if one.is_torn else one for one in scanned.damage),
    )
