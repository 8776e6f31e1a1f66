"""The files of one replica: names, order, and changes while they were read."""

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
    "deleted": "DELETED: no longer part of the log; the broker has yet to remove it.",
    "cleaned": "CLEANED: unfinished output of the cleaner, not yet part of the log.",
    "swap": "SWAP: replaced by a newer run of the cleaner.",
    "swapped": "SWAPPED: replaced by finished output of the cleaner (.swap).",
}


class LogFile(NamedTuple):
    """A file of a log: the offset in its name, and its path."""

    offset: int
    path: Path


class FileStamp(NamedTuple):
    """Shows whether a file has been replaced or written to."""

    inode: int
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFiles:
    """One listing of the files of a replica.

    Parameters
    ----------
    segments, snapshots, txn_indexes
        In order of their offsets.
    offset_indexes
        Offset indexes by base offset.
    checkpoints
        ``leader-epoch-checkpoint`` and ``partition.metadata``.
    left_out
        Files that are not, or not yet, part of the log.
    stamps
        By file name.
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
    """List the files of a replica; for a folder that is missing or cannot be listed, `error` says why."""
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
            suffix = None if replica.only else known.suffix  # a file that was passed by name is read
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
        Listings before and after the reading.
    appending
        Whether a broker may be appending, so that larger files and new ones are not reported.
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


def _first_offset(path: Path) -> int:
    """First offset of a segment whose name does not have it."""
    try:
        with path.open("rb") as file:
            return max(int.from_bytes(file.read(8), "big", signed=True), 0)
    except OSError:
        return 0
