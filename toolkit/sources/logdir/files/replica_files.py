"""The files of one replica: which there are, in which order, and whether they stayed the same while they were read."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from toolkit.formats.files.checkpoint_files import CHECKPOINT_NAMES
from toolkit.formats.files.file_names import file_kind, segment_base_offset
from toolkit.formats.log.scan import scan_file
from toolkit.sources.logdir.files.log_dir_layout import Replica, SkippedFile

__all__ = ["LogFile", "ReplicaFiles", "changes", "list_files"]

WHY_LEFT_OUT = {
    "deleted": "DELETED: no part of the log any more; it waits to be removed.",
    "cleaned": "CLEANED: the cleaner is writing it, or was when it ended; not yet part of the log.",
    "swap": "SWAP: replaced by a newer run of the cleaner.",
    "swapped": "SWAPPED: a file that the cleaner has finished (.swap) stands in its place.",
}


class LogFile(NamedTuple):
    """A file of a log: the offset in its name, and where it is."""

    offset: int
    path: Path


class FileStamp(NamedTuple):
    """What tells that a file has been replaced or written to."""

    inode: int
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFiles:
    """The files of a replica at one moment.

    Parameters
    ----------
    segments, snapshots, txn_indexes
        By their offsets.
    offset_indexes
        Offset indexes by base offset.
    checkpoints
        ``leader-epoch-checkpoint`` and ``partition.metadata``.
    left_out
        Files that are no part of the log, or not yet.
    stamps
        Of every file, by name.
    error
        Why the folder could not be listed, as ``NAME: sentence``.
    """

    segments: Sequence[LogFile] = ()
    snapshots: Sequence[LogFile] = ()
    txn_indexes: Sequence[LogFile] = ()
    offset_indexes: Mapping[int, Path] = field(default_factory=dict)
    checkpoints: Sequence[Path] = ()
    left_out: Sequence[SkippedFile] = ()
    stamps: Mapping[str, FileStamp] = field(default_factory=dict)
    error: str | None = None

    @property
    def modified(self) -> dt.datetime | None:
        """When the newest of the files was written, by the clock of the machine that wrote or copied it."""
        newest = max((stamp.modified_ns for stamp in self.stamps.values()), default=None)
        return None if newest is None else dt.datetime.fromtimestamp(newest / 1e9, dt.UTC)


def list_files(replica: Replica) -> ReplicaFiles:
    """List the files of a replica; a folder that cannot be listed, or is gone, is a listing with `error`."""
    try:
        stamps = _stamps(replica)
    except OSError as exc:
        return ReplicaFiles(error=f"UNREADABLE: {replica.path}: {exc.strerror}.")
    by_kind: dict[tuple[str, str | None], list[LogFile]] = {}
    checkpoints = []
    for name in sorted(stamps):
        path, known = replica.path / name, file_kind(name)
        if name in CHECKPOINT_NAMES:
            checkpoints.append(path)
        elif known is not None:
            suffix = None if replica.only else known.suffix  # a file that was asked for by name is read
            by_kind.setdefault((known.kind, suffix), []).append(LogFile(segment_base_offset(name) or 0, path))
        elif replica.only:
            by_kind.setdefault(("log", None), []).append(LogFile(_first_offset(path), path))
    segments, left_out = _finished_by_swaps(by_kind)
    for (_, suffix), files in by_kind.items():
        if suffix in {"deleted", "cleaned"}:
            left_out += [SkippedFile(file.path, WHY_LEFT_OUT[suffix]) for file in files]
    return ReplicaFiles(
        segments=segments,
        snapshots=sorted(by_kind.get(("snapshot", None), ())),
        txn_indexes=sorted(by_kind.get(("txnindex", None), ())),
        offset_indexes=dict(by_kind.get(("index", None), ())),
        checkpoints=checkpoints,
        left_out=sorted(left_out),
        stamps=stamps,
    )


def changes(before: ReplicaFiles, after: ReplicaFiles, *, appending: bool) -> list[str]:
    """What happened to the files of a log while they were read, a sentence each.

    Parameters
    ----------
    before, after
        Listings on both sides of the reading.
    appending
        Whether a broker may have written on, so that files that grew, and new ones, are no change.
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


def _stamps(replica: Replica) -> dict[str, FileStamp]:
    stamps = {}
    with os.scandir(replica.path) as entries:
        for entry in entries:
            if replica.only and entry.name not in replica.only:
                continue
            try:
                if not entry.is_file():
                    continue
                stat = entry.stat()
            except FileNotFoundError:
                continue  # a broker removes files at any time
            stamps[entry.name] = FileStamp(stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return stamps


def _finished_by_swaps(
    by_kind: Mapping[tuple[str, str | None], Sequence[LogFile]],
) -> tuple[list[LogFile], list[SkippedFile]]:
    """The segments as the broker's next start would have them (``LogLoader``), and what gives way to them.

    A ``.swap`` file is finished and replaces what it covers, unless a ``.cleaned`` one says that there was more to
    come.
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


def _first_offset(path: Path) -> int:
    """Of a segment whose name does not tell."""
    try:
        with path.open("rb") as file:
            return max(int.from_bytes(file.read(8), "big", signed=True), 0)
    except OSError:
        return 0
