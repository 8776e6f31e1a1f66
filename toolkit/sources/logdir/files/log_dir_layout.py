"""Kafka files at paths: log directories, partition folders, single files, texts of kafka-dump-log.sh."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolkit.errors import NotFound, UsageError
from toolkit.formats.files.checkpoint_files import CHECKPOINT_NAMES, checkpoint_rows
from toolkit.formats.files.file_names import file_kind, folder_suffix, partition_of
from toolkit.sources.logdir.files.first_bytes import SEGMENT, TEXT, kind_of

__all__ = ["LogDirLayout", "LogDirRoot", "Replica", "SkippedFile", "discover"]

IN_PARTITIONS = {"leader-epoch-checkpoint", "partition.metadata"}
IN_ROOTS = set(CHECKPOINT_NAMES) - IN_PARTITIONS
LEVELS = 4  # depth below a path to which log directories are searched

WHY_LEFT_OUT = {
    "delete": "DELETED: the partition was deleted or moved, and the broker has yet to remove its folder.",
    "future": "FUTURE: a copy that is being moved to this log directory, not yet the partition's log.",
    "stray": "STRAY: the cluster no longer places this partition on the broker.",
}


class SkippedFile(NamedTuple):
    """A file or folder that is not read, and why (``NAME: sentence``)."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirRoot:
    """A log directory of a broker, or a plain folder of partition folders.

    Parameters
    ----------
    path
        The folder.
    broker_id, cluster_id
        By its ``meta.properties``; null if that file is missing or lacks them.
    """

    path: Path
    broker_id: int | None = None
    cluster_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One replica of a partition: its folder, or some files of it.

    Parameters
    ----------
    topic, partition
        By the folder's name; null if a broker gives no such name.
    root
        The log directory of the folder.
    path
        The folder.
    only
        Names of the files that were passed one by one; null for all of the folder.
    """

    topic: str | None
    partition: int | None
    root: LogDirRoot
    path: Path
    only: frozenset[str] | None = None

    @property
    def broker_id(self) -> int | None:
        return self.root.broker_id

    @property
    def order(self) -> tuple[str, int, int, str]:
        """Sort key: topic, partition, broker, path."""
        broker_id = -1 if self.broker_id is None else self.broker_id
        return self.topic or "", -1 if self.partition is None else self.partition, broker_id, str(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirLayout:
    """The Kafka files at some paths.

    Parameters
    ----------
    roots
        Log directories.
    replicas
        Partition folders, by topic, partition and broker.
    texts
        Files with the output of kafka-dump-log.sh.
    left_out
        Files and folders that are not read.
    """

    roots: Sequence[LogDirRoot]
    replicas: Sequence[Replica]
    texts: Sequence[Path]
    left_out: Sequence[SkippedFile]


def discover(paths: Sequence[str | os.PathLike[str]]) -> LogDirLayout:
    """Search paths for Kafka files.

    Parameters
    ----------
    paths
        Log directories (entries of ``log.dirs``), folders above several of them, folders of partitions, segments,
        snapshots, transaction indexes, and texts of kafka-dump-log.sh. A file at two paths counts once.

    Raises
    ------
    NotFound
        If a path does not exist, or contains no Kafka files.
    UsageError
        If a path cannot be read, or a file has an unknown type.
    """
    search = _PathSearch()
    for path in paths:
        before = search.found
        search.add(Path(path))
        if search.found == before:
            raise NotFound(
                f"There are no Kafka files in {path}.",
                means="It contains no partition, segment, snapshot or index, and no output of kafka-dump-log.sh.",
                do="Pass an entry of the broker's log.dirs, a folder above it, or files of a partition.",
            )
    return search.layout


class _PathSearch:
    """Lists each file and folder once, however many paths and links lead to it."""

    def __init__(self) -> None:
        self.found = 0  # also counts repeated finds
        self._roots: dict[str, LogDirRoot] = {}
        self._replicas: dict[str, Replica] = {}
        self._texts: dict[str, Path] = {}
        self._left_out: dict[str, SkippedFile] = {}
        self._walked: set[str] = set()

    @property
    def layout(self) -> LogDirLayout:
        return LogDirLayout(
            roots=sorted(self._roots.values(), key=lambda root: root.path),
            replicas=sorted(self._replicas.values(), key=lambda replica: replica.order),
            texts=sorted(self._texts.values()),
            left_out=sorted(self._left_out.values()),
        )

    def add(self, path: Path) -> None:
        """Search a path that the caller passed."""
        try:
            if not path.is_dir():
                path.stat()
                self._file(path)
                return
            entries = _entries(path)
        except FileNotFoundError:
            raise NotFound(f"There is no file or folder {path}.") from None
        except OSError as exc:
            raise UsageError(f"{path} cannot be read: {exc.strerror}.", do="Run as a user that may read it.") from None
        self._folder(path, entries, LEVELS)

    def _folder(self, path: Path, entries: Sequence[os.DirEntry[str]], levels: int) -> None:
        names = {entry.name for entry in entries}
        if names & IN_ROOTS:
            self._root(path, entries)
        elif any(_is_of_a_log(name) for name in names):
            self._partition(path, self._root_of(path.absolute().parent))
        else:
            self._below(path, entries, levels)

    def _root(self, path: Path, entries: Sequence[os.DirEntry[str]]) -> None:
        root = self._root_of(path)
        self.found += 1
        for entry in entries:
            if not _is_file(entry) and partition_of(entry.name):
                self._partition(path / entry.name, root)

    def _below(self, path: Path, entries: Sequence[os.DirEntry[str]], levels: int) -> None:
        """Search a folder that is neither a log directory nor a partition's."""
        for entry in entries:
            below = path / entry.name
            if _is_file(entry):
                if kind_of(below) == TEXT:
                    self._text(below)
            elif levels and _real(below) not in self._walked:
                self._walked.add(_real(below))
                try:
                    self._folder(below, _entries(below), levels - 1)
                except OSError as exc:
                    self._leave_out(below, f"UNREADABLE: {exc.strerror}.")

    def _partition(self, path: Path, root: LogDirRoot) -> None:
        self.found += 1
        if suffix := folder_suffix(path.name):
            self._leave_out(path, WHY_LEFT_OUT[suffix])
            return
        topic, partition = partition_of(path.name) or (None, None)
        self._replicas[_real(path)] = Replica(topic=topic, partition=partition, root=root, path=path)

    def _file(self, path: Path) -> None:
        """Add a file that the caller passed; also one that is skipped when its folder is read."""
        kind = SEGMENT if _is_of_a_log(path.name) else kind_of(path)
        if kind == TEXT:
            self._text(path)
        elif kind == SEGMENT:
            self._loose_file(path)
        else:
            raise UsageError(
                f"{path} is not a segment, snapshot, transaction index or output of kafka-dump-log.sh.",
                means=kind or "Its first bytes match none of these.",
            )

    def _loose_file(self, path: Path) -> None:
        self.found += 1
        folder = path.absolute().parent
        known = self._replicas.get(_real(folder))
        if known and known.only is None:
            return  # its complete folder is read
        topic, partition = partition_of(folder.name) or (None, None)
        only = (known.only if known and known.only else frozenset()) | {path.name}
        self._replicas[_real(folder)] = Replica(
            topic=topic, partition=partition, root=self._root_of(folder.parent), path=folder, only=only
        )

    def _text(self, path: Path) -> None:
        self.found += 1
        self._texts.setdefault(_real(path), path)

    def _leave_out(self, path: Path, reason: str) -> None:
        self._left_out[_real(path)] = SkippedFile(path, reason)

    def _root_of(self, path: Path) -> LogDirRoot:
        """The log directory at a path, with the values of its meta.properties."""
        real = _real(path)
        if real not in self._roots:
            self._roots[real] = _read_root(path)
        return self._roots[real]


def _entries(path: Path) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _real(path: Path) -> str:
    return os.path.realpath(path)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Whether it is certainly a file; a broken link may stand for a partition's folder."""
    try:
        return entry.is_file()
    except OSError:
        return False


def _is_of_a_log(name: str) -> bool:
    known = file_kind(name)
    return known is not None and known.kind in {"log", "snapshot", "txnindex"}


def _read_root(path: Path) -> LogDirRoot:
    values = dict(_properties(path / "meta.properties"))
    # Version 0 (ZooKeeper) names the broker broker.id, version 1 (KRaft) node.id.
    broker_id = values.get("node.id") or values.get("broker.id")
    return LogDirRoot(path=path, broker_id=int(broker_id) if broker_id else None, cluster_id=values.get("cluster.id"))


def _properties(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_bytes()
    except OSError:
        return
    for row in checkpoint_rows(path.name, text):
        if row["error"] is None and row["value"]:
            yield row["key"], row["value"]
