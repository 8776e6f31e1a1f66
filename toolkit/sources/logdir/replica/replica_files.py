"""The files of one replica: names, order, changes while they were read, and their batches in log order."""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from toolkit.errors import DecodeError
from toolkit.formats.log.batches import HEADER_SIZE, read_header
from toolkit.formats.log.headers import DamagedRange, Headers, ScanResult
from toolkit.formats.log.scan import PIECE_BYTES, scan_file, scan_file_bytes
from toolkit.formats.log_dir_files import CHECKPOINT_NAMES, is_remote_file, parse_file_name
from toolkit.formats.log_paths import LogPath, log_path, scandir
from toolkit.formats.segment_files import read_offset_index, read_time_index
from toolkit.sources.log_tables import ScanChunk, clip
from toolkit.sources.logdir.replica.log_dir_layout import Replica, SkippedFile

WHY_LEFT_OUT = {
    "deleted": "DELETED: no longer part of the log; the broker has yet to remove it.",
    "cleaned": "CLEANED: unfinished output of the cleaner, not yet part of the log.",
    "swap": "SWAP: replaced by a newer run of the cleaner.",
    "remote": "REMOTE: a copy in remote storage of a segment that the broker has, or that was copied once more.",
    "swapped": "SWAPPED: replaced by finished output of the cleaner (.swap).",
}

SegmentBytes = Sequence[tuple[int, bytes]]
"""Positions in a file, and the bytes from there on."""

SMALL_PIECE_BYTES = 1 << 24  # for a range that ends within a segment, so that little is read after it
TORN_BETWEEN = "CORRUPT_BATCH: The segment ends within a batch, but another segment follows."


class LogFile(NamedTuple):
    """A file of a log: the offset in its name, and its path."""

    offset: int
    path: LogPath
    stop: int | None = None  # in remote storage: where the next segment begins, which may be before this one ends


class FileStamp(NamedTuple):
    """Shows whether a file has been replaced or written to."""

    inode: int
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFiles:
    """One listing of the files of a replica."""

    # segments, snapshots, txn_indexes: in order of their offsets
    segments: Sequence[LogFile] = ()
    snapshots: Sequence[LogFile] = ()
    txn_indexes: Sequence[LogFile] = ()
    # offset_indexes, time_indexes: by base offset
    offset_indexes: Mapping[int, LogPath] = field(default_factory=dict)
    time_indexes: Mapping[int, LogPath] = field(default_factory=dict)
    checkpoints: Sequence[LogPath] = ()  # ``leader-epoch-checkpoint`` and ``partition.metadata``
    left_out: Sequence[SkippedFile] = ()  # files that are not, or not yet, part of the log
    stamps: Mapping[str, FileStamp] = field(default_factory=dict)  # by file name
    error: str | None = None  # why the folder could not be listed, as ``NAME: sentence``

    @property
    def remote_segments(self) -> Sequence[LogFile]:
        """Those in remote storage, which come first."""
        return [each for each in self.segments if is_remote_file(each.path.name)]


def list_files(replica: Replica) -> ReplicaFiles:
    """List the files of a replica; for a folder that is missing or cannot be listed, `error` says why."""
    try:
        own = dict(_stamps(replica.path, replica.only))
        remote = dict(each for folder in replica.remote_folders for each in _stamps(folder))
    except OSError as exc:
        return ReplicaFiles(error=f"UNREADABLE: {replica.path}: {exc.strerror}.")
    by_kind: dict[tuple[str, str | None], list[LogFile]] = {}
    checkpoints = []
    for path in sorted(own):
        known = parse_file_name(path.name)
        if path.name in CHECKPOINT_NAMES:
            checkpoints.append(path)
        elif known is not None:
            suffix = None if replica.only else known.suffix  # a file that was passed by name is read
            by_kind.setdefault((known.kind, suffix), []).append(LogFile(known.offset, path))
        elif replica.only:
            by_kind.setdefault(("log", None), []).append(LogFile(_first_offset(path), path))
    segments, left_out = _finished_by_swaps(by_kind)
    for (_, suffix), files in by_kind.items():
        if suffix in {"deleted", "cleaned"}:
            left_out += [SkippedFile(file.path, WHY_LEFT_OUT[suffix]) for file in files]
    local = ReplicaFiles(
        segments=segments,
        snapshots=[] if replica.is_remote else sorted(by_kind.get(("snapshot", None), ())),
        txn_indexes=sorted(by_kind.get(("txnindex", None), ())),
        offset_indexes={file.offset: file.path for file in by_kind.get(("index", None), ())},
        time_indexes={file.offset: file.path for file in by_kind.get(("timeindex", None), ())},
        checkpoints=checkpoints,
        left_out=sorted(left_out),
        stamps={path.name: stamp for path, stamp in own.items()},
    )
    if replica.is_remote and replica.only is None:
        local = ReplicaFiles(checkpoints=checkpoints, left_out=local.left_out, stamps=local.stamps)
        return _after_remote(local, own)
    if not remote:
        return local
    return _after_remote(local, {path: stamp for path, stamp in remote.items() if is_remote_file(path.name)})


def _after_remote(local: ReplicaFiles, remote: Mapping[LogPath, FileStamp]) -> ReplicaFiles:
    """The files of a broker, after the segments in remote storage that begin before them.

    The largest copy of each remote segment counts: a leader that failed to finish one, or to note it, made another.
    Where segments overlap, as those that two leaders copied, each one ends where the next begins. Snapshots in remote
    storage have the base offset of their segment in their names, and the state at its end, so they are not read.
    """
    local_start = local.segments[0].offset if local.segments else None
    by_kind: dict[str, list[LogFile]] = {}
    for path in remote:
        known = parse_file_name(path.name)
        if known is not None and known.suffix is None:
            by_kind.setdefault(known.kind, []).append(LogFile(known.offset, path))
    largest: dict[int, LogFile] = {}
    for segment in sorted(by_kind.get("log", ()), key=lambda each: (remote[each.path].size, each)):
        if local_start is None or segment.offset < local_start:
            largest[segment.offset] = segment
    stops = dict(pairwise([*sorted(largest), local_start]))
    chosen = {each.path.stem: stops[each.offset] for each in largest.values()}
    others = [each.path for each in by_kind.get("log", ()) if each.path.stem not in chosen]
    kept = {
        kind: sorted(each._replace(stop=chosen[each.path.stem]) for each in files if each.path.stem in chosen)
        for kind, files in by_kind.items()
    }
    return replace(
        local,
        segments=[*kept.get("log", ()), *local.segments],
        txn_indexes=[*kept.get("txnindex", ()), *local.txn_indexes],
        offset_indexes={**{each.offset: each.path for each in kept.get("index", ())}, **local.offset_indexes},
        time_indexes={**{each.offset: each.path for each in kept.get("timeindex", ())}, **local.time_indexes},
        left_out=sorted([*local.left_out, *(SkippedFile(path, WHY_LEFT_OUT["remote"]) for path in others)]),
        stamps={path.name: stamp for path, stamp in remote.items()} | dict(local.stamps),
    )


def changes(before: ReplicaFiles, after: ReplicaFiles, *, appending: bool) -> list[str]:
    """What happened to the files of a log while they were read, a sentence each.

    `before`, `after`: listings before and after the reading.
    `appending`: whether a broker may be appending, so that larger files and new ones are not reported.
    """
    found = []
    names = [file.path.name for file in (*before.segments, *before.snapshots)]
    for name in names:
        old, new = before.stamps.get(name), after.stamps.get(name)
        if new is None or old is None:
            found.append(f"{name} was removed while it was read")
        elif new.inode != old.inode or new.size < old.size:
            found.append(f"{name} was replaced while it was read")
        elif new != old and not appending:
            found.append(f"{name} was written to while it was read")
    if not appending and len(after.segments) > len(before.segments):
        found.append("a segment was added while it was read")
    return found


def _stamps(folder: LogPath, only: Collection[str] | None = None) -> Iterator[tuple[LogPath, FileStamp]]:
    for entry in scandir(folder):
        if only and entry.name not in only:
            continue
        try:
            if not entry.is_file():
                continue
            stat = entry.stat()
        except FileNotFoundError:
            continue  # a broker removes files at any time
        yield folder / entry.name, FileStamp(stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _finished_by_swaps(
    by_kind: Mapping[tuple[str, str | None], Sequence[LogFile]],
) -> tuple[list[LogFile], list[SkippedFile]]:
    """The segments as after the broker's next start (``LogLoader``), and the files that these replace.

    A ``.swap`` file is finished and replaces the segments that it covers, unless a ``.cleaned`` file shows that the
    cleaner was not done.
    """
    segments = sorted(by_kind.get(("log", None), ()))
    swaps = sorted(by_kind.get(("log", "swap"), ()))
    unfinished = min((file.offset for file in by_kind.get(("log", "cleaned"), ())), default=None)
    valid = [swap for swap in swaps if unfinished is None or swap.offset < unfinished]
    left_out = [SkippedFile(swap.path, WHY_LEFT_OUT["swap"]) for swap in swaps if swap not in valid]
    if not valid:
        return segments, left_out
    end = max(_next_offset(swap) for swap in valid)
    replaced = [file for file in segments if valid[0].offset <= file.offset < end]
    left_out += [SkippedFile(file.path, WHY_LEFT_OUT["swapped"]) for file in replaced]
    return sorted([*(file for file in segments if file not in replaced), *valid]), left_out


def _next_offset(segment: LogFile) -> int:
    newest = segment.offset
    for part in scan_file(segment.path):
        if len(part.headers):
            newest = int(part.headers["last_offset"][-1]) + 1
    return newest


def _first_offset(path: LogPath) -> int:
    """First offset of a segment whose name does not have it."""
    try:
        with path.open("rb") as file:
            return max(int.from_bytes(file.read(8), "big", signed=True), 0)
    except OSError:
        return 0


def read_parts(
    listing: ReplicaFiles, *, start: int | None = None, stop: int | None = None, crc: bool = False
) -> Iterator[ScanChunk]:
    """The batches of a log in chunks, in bounded memory.

    `listing`: its files. A file that has disappeared since is damage (``UNREADABLE``).
    `start`: first offset; some batches before it are included, depending on the offset index. Null for the log start.
    `stop`: offset at which to stop; some batches after it are included. Null for the log end.
    """
    for segment, position, is_newest in _segments(listing, start, stop):
        piece_bytes = SMALL_PIECE_BYTES if stop is not None and _is_last(listing, segment, stop) else PIECE_BYTES
        for scanned in scan_file(segment.path, start=position, crc=crc, piece_bytes=piece_bytes):
            part = segment_part(scanned, segment.path, segment.stop, is_newest=is_newest)
            yield part
            if _is_behind(part.scanned, stop):
                return


def read_bytes(
    listing: ReplicaFiles, *, start: int | None = None, stop: int | None = None
) -> Iterator[tuple[ScanChunk, SegmentBytes]]:
    """As `read_parts`, with all checksums checked, and with the bytes (`toolkit.formats.log.scan.scan_file_bytes`)."""
    for segment, position, is_newest in _segments(listing, start, stop):
        for scanned, pieces in scan_file_bytes(segment.path, start=position):
            part = segment_part(scanned, segment.path, segment.stop, is_newest=is_newest)
            yield part, pieces
            if _is_behind(part.scanned, stop):
                return


def segment_part(scanned: ScanResult, path: LogPath | str, stop: int | None, *, is_newest: bool) -> ScanChunk:
    """What was read of a segment, up to where the next one begins; a torn end is a loss unless it ends the log."""
    part = ScanChunk(scanned if is_newest else _followed(scanned), str(path))
    return part if stop is None else next(clip([part], stop=stop))


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


def offset_before(listing: ReplicaFiles, time_ms: int) -> int:
    """An offset before which no record has this time or a newer one, by the time indexes; 0 without a usable entry."""
    found = 0
    for segment in listing.segments:
        try:
            buf = listing.time_indexes[segment.offset].read_bytes()
        except (KeyError, OSError):
            return max(found, segment.offset)
        index = read_time_index(buf, base_offset=segment.offset)
        older = int(index["timestamp"].searchsorted(time_ms))
        if older < len(index):
            return int(index["offset"][older - 1]) if older else max(found, segment.offset)
        found = int(index["offset"][-1]) if older else found
    return found


def _followed(scanned: ScanResult) -> ScanResult:
    """Report a torn end as a loss, for a segment that is not the last: no broker is still writing to it."""
    if not any(damage.is_torn for damage in scanned.damage):
        return scanned
    return replace(
        scanned,
        damage=tuple(
            DamagedRange(item.position, item.size, TORN_BETWEEN) if item.is_torn else item for item in scanned.damage
        ),
    )
