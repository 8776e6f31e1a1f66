"""Segments divided into splits that can be read independently, in any order; together they contain the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from toolkit.errors import DecodeError
from toolkit.formats.log.batches import CRC_END, HEADER_SIZE, BatchHeader, read_header
from toolkit.formats.log.headers import LogChunk, concatenate
from toolkit.formats.log.scan import extend, scan_file
from toolkit.formats.log_paths import LogPath
from toolkit.formats.segment_files import read_offset_index
from toolkit.sources.logdir.replica.replica_log import FolderLog, LogFile, segment_part


@dataclass(frozen=True, slots=True)
class SegmentSplit:
    """A range of bytes of a segment, at batch boundaries."""

    path: str  # the segment
    start: int  # byte at which a batch begins
    stop: int | None  # byte at which the next split begins; null for the end of the segment
    size: int  # bytes when the segment was listed
    is_newest: bool  # whether its segment is the log's last, so that a torn end is no loss
    stop_offset: int | None = None  # in remote storage: where the next segment begins


class _Boundary(NamedTuple):
    """The byte at which a batch begins, and its base offset."""

    position: int
    base_offset: int


def splits(log: FolderLog, *, start: int | None = None, stop: int | None = None, max_bytes: int) -> list[SegmentSplit]:
    """The splits of a log with an offset in ``start <= offset < stop``, in log order.

    Segments are divided at intact batches that the offset index lists; a segment without index is one split.

    `start`, `stop`: offsets; null for the ends of the log. Some batches before and after them are included.
    `max_bytes`: target size; a split can be larger by a batch, or for lack of an index.
    """
    found: list[SegmentSplit] = []
    for segment, begin, is_newest in log.segments_of(start, stop):
        size = log.stamps[segment.path.name].size
        inside = _boundaries(log, segment, begin, size, max_bytes)
        cuts = [begin, *(each.position for each in inside if stop is None or each.base_offset < stop)]
        beyond = next((each.position for each in inside if stop is not None and each.base_offset >= stop), None)
        if start is not None:
            cuts = cuts[sum(each.base_offset <= start for each in inside[: len(cuts) - 1]) :]
        path, ends = str(segment.path), (is_newest, segment.stop)
        found += [SegmentSplit(path, low, high, high - low, *ends) for low, high in pairwise(cuts)]
        found.append(SegmentSplit(path, cuts[-1], beyond, max((beyond or size) - cuts[-1], 0), *ends))
    return found


def read_split(split: SegmentSplit, *, crc: bool = False) -> Iterator[LogChunk]:
    """The batches of a split, the same as in a read of the complete segment.

    `split`: the split. A segment that has disappeared since is damage (``UNREADABLE``); one that has grown is read to
        its end.
    """
    for scanned in _read(split, crc):
        yield segment_part(scanned, split.path, split.stop_offset, is_newest=split.is_newest)


def _read(split: SegmentSplit, crc: bool) -> Iterator[LogChunk]:
    if split.stop is None:
        yield from scan_file(split.path, start=split.start, crc=crc)
        return
    last = LogChunk(end=split.start)
    for scanned in scan_file(split.path, start=split.start, stop=split.stop, crc=crc):
        if len(last.headers) or last.damage:
            yield last
        last = scanned
    if last.end < split.stop and not any(each.is_unreadable for each in last.damage):
        # The reason of damage that reaches the next split depends on the bytes after it.
        for scanned in scan_file(split.path, start=last.end, crc=crc):
            own = scanned.headers[scanned.headers["position"] < split.stop]
            damage = tuple(each for each in scanned.damage if each.position < split.stop)
            last = LogChunk(headers=concatenate([last.headers, own]), damage=last.damage + damage, end=scanned.end)
            if last.end >= split.stop:
                break
    yield last


def _boundaries(log: FolderLog, segment: LogFile, begin: int, size: int, max_bytes: int) -> Sequence[_Boundary]:
    """Boundaries that divide a segment into splits of similar size."""
    count = -(-(size - begin) // max_bytes)
    path = log.offset_indexes.get(segment.offset)
    if count < 2 or path is None:
        return []
    try:
        index = read_offset_index(path.read_bytes(), base_offset=segment.offset)
        found: list[_Boundary] = []
        for number in range(1, count):
            at = int(index["position"].searchsorted(begin + (size - begin) * number // count, side="right")) - 1
            if at >= 0 and int(index["position"][at]) > max(begin, found[-1].position if found else 0):
                lowest = int(index["offset"][at - 1]) + 1 if at else segment.offset
                offset = _base_offset(segment.path, int(index["position"][at]), size)
                if offset is not None and lowest <= offset <= int(index["offset"][at]):
                    found.append(_Boundary(int(index["position"][at]), offset))
    except OSError:
        return []
    return found


def _base_offset(path: LogPath, position: int, size: int) -> int | None:
    """Base offset of the intact batch at a byte of a segment; null if there is none.

    An index has no checksum, and a batch that a producer stored in a record looks like one of the log.
    """
    with path.open("rb") as file:
        file.seek(position)
        head = file.read(HEADER_SIZE)
        try:
            header: BatchHeader = read_header(head)
        except DecodeError:
            return None
        if position + header.size > size:
            return None
        rest = file.read(header.size - HEADER_SIZE)
    is_intact = extend(0, head[CRC_END:] + rest, magic=2) == header.crc
    return header.base_offset if is_intact else None
