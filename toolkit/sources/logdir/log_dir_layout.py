"""Kafka files at paths: log directories with their checkpoints, partition folders, single files, dump texts."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from toolkit.errors import NotFound, UsageError
from toolkit.formats.log_dir_files import (
    CHECKPOINT_NAMES,
    LogPath,
    checkpoint_rows,
    log_path,
    parse_file_name,
    parse_folder_name,
    real_path,
    scandir,
)
from toolkit.formats.object_store import ObjectEntry, ObjectPath
from toolkit.formats.scan import DUMP, SEGMENT, file_type
from toolkit.schema.log import CheckpointEntry
from toolkit.schema.table import TopicPartition

IN_PARTITIONS = ("leader-epoch-checkpoint", "partition.metadata")
IN_ROOTS = {*CHECKPOINT_NAMES} - {*IN_PARTITIONS}
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
HIGH_WATERMARK, LOG_START = "replication-offset-checkpoint", "log-start-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
NO_PARTITIONS = {"lost+found", "remote-log-index-cache"}  # folders that file systems and brokers make beside them
METADATA_TOPIC = "__cluster_metadata"  # the controllers' log, which has no transactions

UNNAMED = None, None, None, None  # for a folder that no broker names so
LEVELS = 4  # depth below a path to which log directories are searched
TOO_DEEP = f"UNREADABLE: its folders are more than {LEVELS} below the path; pass a nearer one."

WHY_LEFT_OUT = {
    "delete": "DELETED: the partition was deleted or moved, and the broker has yet to remove its folder.",
    "future": "FUTURE: a copy that is being moved to this log directory, not yet the partition's log.",
    "stray": "STRAY: the cluster no longer places this partition on the broker.",
}


class SkippedFile(NamedTuple):
    """A file or folder that is not read, and why (``NAME: sentence``)."""

    path: LogPath
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirRoot:
    """A log directory of a broker, or a plain folder of partition folders."""

    path: LogPath
    # broker_id, cluster_id: by its ``meta.properties``; null if that file is missing or lacks them
    broker_id: int | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica of a partition: its folder, or some files of it."""

    # topic, partition: by the folder's name; null if a broker gives no such name
    topic: str | None
    partition: int | None
    root: LogDirRoot  # the log directory of the folder
    path: LogPath  # the folder
    only: frozenset[str] | None = None  # names of the files that were passed one by one; null for all of the folder
    # whether it is a folder of remote storage (KIP-405): its segments end before the partition's log does
    is_remote: bool = False
    remote_folders: tuple[LogPath, ...] = ()  # of a broker's folder: those of remote storage with the same topic id


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirLayout:
    """The Kafka files at some paths."""

    roots: Sequence[LogDirRoot]  # log directories
    replicas: Sequence[Replica]  # partition folders, by topic, partition and broker
    texts: Sequence[LogPath]  # files with the output of kafka-dump-log.sh
    left_out: Sequence[SkippedFile]  # files and folders that are not read


def discover(paths: Sequence[str | os.PathLike[str] | ObjectPath]) -> LogDirLayout:
    """Search paths for Kafka files.

    `paths`: log directories (entries of ``log.dirs``), folders above several of them, folders of partitions, segments,
    snapshots, transaction indexes, and texts of kafka-dump-log.sh. A file at two paths counts once.
    Raises NotFound if a path does not exist, or contains no Kafka files. Raises UsageError if a path cannot be read, or
    a file has an unknown type.
    """
    search = _PathSearch()
    for path in paths:
        before = search.found
        search.add(log_path(path))
        if search.found == before:
            raise NotFound(
                f"There are no Kafka files in {path}.",
                means="It contains no partition, segment, snapshot or index, no output of kafka-dump-log.sh, and no "
                "sample of a recording.",
                do="Pass an entry of the broker's log.dirs, a folder above it, files of a partition, or a recording.",
            )
    return LogDirLayout(
        roots=sorted(search.roots.values(), key=lambda root: _path_order(root.path)),
        replicas=sorted(
            _with_remote_folders(list(search.replicas.values())),
            key=lambda replica: (
                replica.topic or "",
                -1 if replica.partition is None else replica.partition,
                -1 if replica.root.broker_id is None else replica.root.broker_id,
                str(replica.path),
            ),
        ),
        texts=sorted(search.texts.values(), key=_path_order),
        left_out=sorted(search.left_out.values(), key=lambda each: _path_order(each.path)),
    )


def _with_remote_folders(replicas: Sequence[Replica]) -> Sequence[Replica]:
    """Each folder of remote storage as a part of the replicas of its partition, if the topic id shows them as its own.

    A topic that was deleted and created again has another id, and nothing in common with its segments.
    """
    remote: dict[tuple[str | None, int | None, str | None], list[Replica]] = {}
    for each in replicas:
        if each.is_remote and each.only is None and (name := parse_folder_name(each.path.name)):
            remote.setdefault((name.topic, name.partition, name.topic_id), []).append(each)
    if not remote:
        return replicas
    found, joined = list[Replica](), set[int]()
    for each in replicas:
        own = remote.get((each.topic, each.partition, _topic_id(each)), []) if not each.is_remote else []
        found.append(replace(each, remote_folders=tuple(folder.path for folder in own)) if own else each)
        joined |= {id(folder) for folder in own}
    return [each for each in found if id(each) not in joined]


def _topic_id(replica: Replica) -> str | None:
    """By its ``partition.metadata``; null for files that were passed one by one."""
    entries = checkpoint_rows_in(replica.path, names=["partition.metadata"]) if replica.only is None else ()
    return next((entry.value for entry in entries if entry.key == "topic_id" and not entry.error), None)


@dataclass(slots=True)
class _PathSearch:
    """Lists each file and folder once, by its real path, however many paths and links lead to it."""

    found: int = 0  # also counts repeated finds
    roots: dict[str, LogDirRoot] = field(default_factory=dict)
    replicas: dict[str, Replica] = field(default_factory=dict)
    texts: dict[str, LogPath] = field(default_factory=dict)
    left_out: dict[str, SkippedFile] = field(default_factory=dict)
    walked: set[str] = field(default_factory=set)

    def add(self, path: LogPath) -> None:
        """Search a path that the caller passed."""
        try:
            if path.is_dir():
                self._folder(path, LEVELS)
            else:
                path.stat()
                self._file(path)
        except FileNotFoundError:
            raise NotFound(f"There is no file or folder {path}.", do="Check the path.") from None
        except OSError as exc:
            do = path.credentials if isinstance(path, ObjectPath) else "Run as a user that may read it."
            raise UsageError(f"{path} cannot be read: {exc.strerror}.", do=do) from None

    def _folder(self, path: LogPath, levels: int) -> None:
        """Search a log directory, a folder of a partition, or a folder above them."""
        entries = sorted(scandir(path), key=attrgetter("name"))
        names = {entry.name for entry in entries}
        has_log = any(map(_is_of_a_log, names))
        if names & IN_ROOTS:
            root = self._root(path)
            self.found += 1
            others = []  # a broker refuses to start beside them: they were renamed, or put there since
            for entry in entries:
                if parse_folder_name(entry.name) and not _is_file(entry):
                    self._partition(path / entry.name, root)
                elif not _is_file(entry):
                    others.append(entry)
            self._below(path, others, levels)
            if has_log:  # the files of a partition were put beside the checkpoints
                self._partition(path, root)
        elif has_log or (parse_folder_name(path.name) and all(map(_is_left, names))):
            self._partition(path, self._root(path.absolute().parent))
        else:
            self._below(path, entries, levels)

    def _below(self, path: LogPath, entries: Sequence[os.DirEntry[str] | ObjectEntry], levels: int) -> None:
        """Search a folder that is neither a log directory nor a partition's."""
        for entry in entries:
            below = path / entry.name
            if _is_file(entry):
                if (kind := file_type(below)) == DUMP:
                    self._text(below)
                elif kind.startswith("UNREADABLE:"):
                    self.left_out[real_path(below)] = SkippedFile(below, kind)
            elif entry.name not in NO_PARTITIONS and (real := real_path(below)) not in self.walked:
                self.walked.add(real)
                if not levels:
                    self.left_out[real_path(path)] = SkippedFile(path, TOO_DEEP)
                    continue
                try:
                    self._folder(below, levels - 1)
                except OSError as exc:
                    if parse_folder_name(below.name):
                        self._partition(below, self._root(path))  # its rows have the error
                    else:
                        self.left_out[real] = SkippedFile(below, f"UNREADABLE: {exc.strerror}.")

    def _partition(self, path: LogPath, root: LogDirRoot) -> None:
        self.found += 1
        real = real_path(path)
        topic, partition, suffix, topic_id = parse_folder_name(path.name) or UNNAMED
        if suffix:
            self.left_out[real] = SkippedFile(path, WHY_LEFT_OUT[suffix])
            return
        self.replicas[real] = Replica(
            topic=topic, partition=partition, root=root, path=path, is_remote=topic_id is not None
        )

    def _file(self, path: LogPath) -> None:
        """Add a file that the caller passed; also one that is skipped when its folder is read."""
        kind = SEGMENT if _is_of_a_log(path.name) else file_type(path)
        if kind == DUMP:
            self._text(path)
        elif kind == SEGMENT:
            self._loose_file(path)
        else:
            raise UsageError(
                f"{path} is not a segment, snapshot, transaction index or output of kafka-dump-log.sh.",
                means=kind or "Its first bytes match none of these.",
                do="Leave it out, or pass the folder of its partition.",
            )

    def _loose_file(self, path: LogPath) -> None:
        self.found += 1
        folder = path.absolute().parent
        real = real_path(folder)
        known = self.replicas.get(real)
        if known and known.only is None:
            return  # its complete folder is read
        topic, partition, _, topic_id = parse_folder_name(folder.name) or UNNAMED
        only = (known.only if known and known.only else frozenset()) | {path.name}
        self.replicas[real] = Replica(
            topic=topic,
            partition=partition,
            root=self._root(folder.parent),
            path=folder,
            only=only,
            is_remote=topic_id is not None,
        )

    def _text(self, path: LogPath) -> None:
        self.found += 1
        self.texts.setdefault(real_path(path), path)

    def _root(self, path: LogPath) -> LogDirRoot:
        """The log directory at a path, with the values of its meta.properties."""
        real = real_path(path)
        if real not in self.roots:
            entries = checkpoint_rows_in(path, names=["meta.properties"])
            values = {entry.key: entry.value for entry in entries if entry.error is None and entry.value}
            # Version 0 (ZooKeeper) names the broker broker.id, version 1 (KRaft) node.id.
            broker_id = values.get("node.id") or values.get("broker.id")
            self.roots[real] = LogDirRoot(
                path=path, broker_id=int(broker_id) if broker_id else None, cluster_id=values.get("cluster.id")
            )
        return self.roots[real]


def _path_order(path: LogPath) -> tuple[bool, LogPath]:
    return isinstance(path, ObjectPath), path


def _is_file(entry: os.DirEntry[str] | ObjectEntry) -> bool:
    """Whether it is certainly a file; a broken link may stand for a partition's folder."""
    try:
        return entry.is_file()
    except OSError:
        return False


def _is_of_a_log(name: str) -> bool:
    known = parse_file_name(name)
    return known is not None and known.kind in {"log", "snapshot", "txnindex"}


def _is_left(name: str) -> bool:
    """Whether it is a file of a partition that is copied without its segments."""
    return name in IN_PARTITIONS or parse_file_name(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCheckpoints:
    """Offsets in the checkpoint files of a log directory, by topic and partition."""

    # written every five seconds and at a clean shutdown, so it may lag, but never leads
    high_watermark: Mapping[TopicPartition, int] = field(default_factory=dict)
    # only of partitions whose log starts after its first segment's base offset
    log_start: Mapping[TopicPartition, int] = field(default_factory=dict)
    cleaned: Mapping[TopicPartition, int] = field(default_factory=dict)  # offset up to which the cleaner has compacted
    has_cleaned: bool = False  # whether the cleaner's checkpoint file exists, and was read without an error
    errors: Mapping[str, str] = field(default_factory=dict)  # unreadable lines, by file name
    # whether the broker has left `CLEAN_SHUTDOWN` and has not started since. *This* directory was then complete,
    # checkpoints included. It does not prove a consistent copy: other brokers may have kept running, and some files may
    # have been copied before the shutdown and others after.
    clean_shutdown: bool = False


def read_partition_checkpoints(log_dir: LogPath) -> PartitionCheckpoints:
    """Read the checkpoint files of a log directory; missing files are skipped."""
    offsets: dict[str, dict[TopicPartition, int]] = {}
    errors: dict[str, str] = {}
    for entry in checkpoint_rows_in(log_dir):
        if entry.error:
            errors.setdefault(entry.name, entry.error)
        elif entry.topic is not None and entry.partition is not None and entry.offset is not None:
            offsets.setdefault(entry.name, {})[TopicPartition(entry.topic, entry.partition)] = entry.offset
    return PartitionCheckpoints(
        high_watermark=offsets.get(HIGH_WATERMARK, {}),
        log_start=offsets.get(LOG_START, {}),
        cleaned=offsets.get(CLEANED, {}),
        has_cleaned=(log_dir / CLEANED).exists() and CLEANED not in errors,
        errors=errors,
        clean_shutdown=(log_dir / CLEAN_SHUTDOWN).exists(),
    )


def checkpoint_rows_in(
    folder: LogPath,
    *,
    broker_id: int | None = None,
    topic: str | None = None,
    partition: int | None = None,
    names: Sequence[str] = CHECKPOINT_NAMES,
) -> Iterator[CheckpointEntry]:
    """The entries of the checkpoint files in a log directory, or in a partition's folder."""
    for name in names:
        path = folder / name
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as exc:
            yield CheckpointEntry(
                name=name,
                topic=topic,
                partition=partition,
                broker_id=broker_id,
                file=str(path),
                error=f"UNREADABLE: {exc.strerror}.",
            )
            continue
        yield from checkpoint_rows(name, text, broker_id=broker_id, file=str(path), topic=topic, partition=partition)


LOCK = ".lock"
FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, process


def is_locked(path: Path) -> bool:
    """Whether a process of this machine has locked a file, as Kafka's ``FileLock`` does.

    Raises OSError if the file cannot be opened.
    """
    if sys.platform != "linux" or not os.path.lexists(path):
        return False
    import fcntl

    descriptor = os.open(path, os.O_RDONLY)
    try:
        lock = fcntl.fcntl(descriptor, fcntl.F_GETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError:
        return False  # a file system without locks, on which no broker starts
    finally:
        os.close(descriptor)
    return bool(FLOCK.unpack(lock)[0] != fcntl.F_UNLCK)
