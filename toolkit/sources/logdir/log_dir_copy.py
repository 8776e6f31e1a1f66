"""Copy the log directory of a broker, which may be running, in the order that a diagnosis needs; with a manifest."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from toolkit.errors import DecodeError, NotFound, UsageError
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.log_dir_files import (
    CHECKPOINT_NAMES,
    MANIFEST,
    CopiedFile,
    CopyManifest,
    FileStamp,
    LogPath,
    file_stamps,
    log_path,
    parse_file_name,
    parse_folder_name,
    read_manifest,
    scandir,
)
from toolkit.schema.table import utc_now
from toolkit.sources.logdir.log_dir_layout import CLEAN_SHUTDOWN, LOCK, METADATA_TOPIC, NO_PARTITIONS, is_locked
from toolkit.sources.recording.recorder import writing

CHUNK = 1 << 22
COMPARED = 1 << 12  # bytes before what is appended, which shows that the source was not truncated and written again
SAVE_EVERY_S = 5
ATTEMPTS = 10  # per folder, while the cleaner or the retention replaces its files
ENTRY_SIZES = {"index": 8, "timeindex": 12}  # of indexes, which a broker allocates in advance and fills with zeros

Progress = Callable[[str], object]


@dataclass(slots=True)
class _CopyState:
    """The files that were copied so far, by path."""

    source: LogPath
    target: Path
    files: dict[str, CopiedFile] = field(default_factory=dict)

    def copy_folder(self, folder: str) -> bool:
        """Make the copy of a folder like its source; false if that kept changing."""
        for _ in range(ATTEMPTS):
            before = _stamps(self.source / folder)
            (self.target / folder).mkdir(exist_ok=True)
            # What describes a segment is copied before it: a broker writes it after the batches.
            for name in sorted(before, key=lambda name: (name.endswith(".log"), name)):
                self._copy(f"{folder}/{name}", before[name])
            self.forget(folder, keep=before.keys())
            after = _stamps(self.source / folder)
            if before.keys() == after.keys() and all(_is_grown(before[name], after[name]) for name in before):
                return True
        return False

    def copy_file(self, name: str) -> None:
        """Copy a file beside the folders, if it exists."""
        try:
            stat = (self.source / name).stat()
        except FileNotFoundError:
            return
        self._copy(name, FileStamp.of(stat))

    def forget(self, folder: str, *, keep: Collection[str] = ()) -> None:
        """Remove the files of a folder from the copy, but for some."""
        for path in (self.target / folder).glob("*"):
            if path.name not in keep:
                path.unlink()
                self.files.pop(f"{folder}/{path.name}", None)

    def drop(self, folder: str) -> None:
        """Remove a folder from the copy."""
        self.forget(folder)
        if (self.target / folder).is_dir():
            (self.target / folder).rmdir()

    def _copy(self, path: str, stamp: FileStamp) -> None:
        known = self.files.get(path)
        if known is not None and known.source == stamp:
            return
        try:
            with (self.source / path).open("rb") as file:
                if known is None or not self._append(path, file, known, stamp):
                    self._copy_all(path, file, stamp)
        except FileNotFoundError:
            return  # the broker removed it; the next listing does not have it

    def _append(self, path: str, file: IO[bytes], known: CopiedFile, stamp: FileStamp) -> bool:
        """Add what a segment has gained since; false if its copy is not the beginning of the source."""
        if not path.endswith(".log") or not _is_grown(known.source, stamp):
            return False
        begin = max(known.size - COMPARED, 0)
        file.seek(begin)
        with (self.target / path).open("r+b") as copy:
            copy.seek(begin)
            if file.read(known.size - begin) != copy.read(known.size - begin):
                return False
            shutil.copyfileobj(file, copy, CHUNK)
        self._add(path, stamp, known.first_size)
        return True

    def _copy_all(self, path: str, file: IO[bytes], stamp: FileStamp) -> None:
        kind = path.rpartition(".")[2]
        file.seek(0)
        with (self.target / path).open("wb") as copy:
            if kind in ENTRY_SIZES:
                entries = file.read().rstrip(b"\0")
                copy.write(entries + b"\0" * (-len(entries) % ENTRY_SIZES[kind]))
            else:
                shutil.copyfileobj(file, copy, CHUNK)
        self._add(path, stamp, 0)

    def _add(self, path: str, stamp: FileStamp, first_size: int) -> None:
        with (self.target / path).open("rb") as copy:
            os.fsync(copy.fileno())
            digest = hashlib.file_digest(copy, "sha256").hexdigest()
            size = copy.tell()
        self.files[path] = CopiedFile(size=size, sha256=digest, first_size=first_size, source=stamp)


def copy_log_dir(
    source: str | os.PathLike[str] | LogPath,
    target: str | os.PathLike[str],
    *,
    topics: Sequence[str] | None = None,
    progress: Progress = lambda folder: None,
) -> CopyManifest:
    """Copy a log directory, and write its manifest.

    The broker should be running, on this machine: only then the copy proves something. The data is copied first, then
    ``__transaction_state``, then what the data has gained meanwhile, then the metadata log and the checkpoints: what is
    open in both readings of the data was open when the coordinators' log was read. An interrupted copy is continued by
    the same call.

    `source`: an entry of ``log.dirs``; also in an object store.
    `target`: a folder of this machine that does not exist or is empty, or has an unfinished copy of `source`.
    `topics`: only these topics, besides ``__transaction_state`` and ``__cluster_metadata``; null for all.
    `progress`: called with the name of each folder before it is copied.
    Raises NotFound if the source does not exist, or has no partition of a topic. Raises UsageError if the source is no
    log directory, or the target has other files or is in the source.
    """
    source, target = log_path(source), Path(target)
    folders = _folders(source, topics)
    selected = [name for names in folders.values() for name in names]
    with _errors_named(target):
        manifest = _begin(source, target, topics)
        state = _CopyState(source, target, dict(manifest.files))
        for path in list(target.iterdir()):
            if path.is_dir() and parse_folder_name(path.name) and path.name not in selected:
                state.drop(path.name)  # deleted since the copy was interrupted
        before, is_running = _state_of(source, selected), _is_running(source)
        try:
            manifest = _copy_in_order(state, manifest, folders, progress)
        except BaseException:
            _save(target, replace(manifest, files=state.files))
            raise
        after = _state_of(source, selected)
        manifest = replace(
            manifest,
            end=utc_now(),
            changed=sorted(name for name in selected if before[name] != after[name]),
            is_running=is_running and _is_running(source),
        )
        _save(target, manifest)
    return manifest


def _copy_in_order(
    state: _CopyState, manifest: CopyManifest, folders: Mapping[str, Sequence[str]], progress: Progress
) -> CopyManifest:
    """The manifest after data, coordinators, and what the data has gained."""
    incomplete: set[str] = set()
    saved_at = time.monotonic()

    def copy(names: Collection[str]) -> None:
        nonlocal saved_at
        for name in names:
            progress(name)
            try:
                is_whole = state.copy_folder(name)
            except FileNotFoundError:  # the partition was deleted or moved away
                state.drop(name)
                is_whole = True
            (incomplete.discard if is_whole else incomplete.add)(name)
            if time.monotonic() > saved_at + SAVE_EVERY_S:
                _save(state.target, replace(manifest, files=state.files))
                saved_at = time.monotonic()

    metadata, coordinators, data = folders[METADATA_TOPIC], folders[STATE_TOPIC], folders[""]
    copy([*metadata, *data])
    begin = utc_now()
    state.files = {path: replace(file, first_size=file.size) for path, file in state.files.items()}
    copy(coordinators)
    end = utc_now()
    copy([*data, *metadata])
    for name in (*CHECKPOINT_NAMES, CLEAN_SHUTDOWN):
        state.copy_file(name)
    return replace(
        manifest, coordinators_begin=begin, coordinators_end=end, files=state.files, incomplete=sorted(incomplete)
    )


@contextmanager
def _errors_named(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{error.filename or target} cannot be copied: {error.strerror}.",
            do="Remove the reason and run the same again: it continues.",
        ) from None


def _is_running(source: LogPath) -> bool:
    try:
        return isinstance(source, Path) and is_locked(source / LOCK)
    except OSError:
        return False


def _begin(source: LogPath, target: Path, topics: Sequence[str] | None) -> CopyManifest:
    """The manifest of an unfinished copy of the same source, or a new one in an empty folder."""
    wanted = None if topics is None else sorted(topics)
    begun = CopyManifest(source=str(source.absolute()), topics=wanted, begin=utc_now())
    if isinstance(source, Path):
        inner, outer = target.resolve(), source.resolve()
        if inner.is_relative_to(outer) or outer.is_relative_to(inner):
            raise UsageError(f"{target} and {source} contain each other.", do="Copy to another folder.")
    try:
        found = read_manifest(target) if target.exists() else None
    except (DecodeError, OSError) as error:
        raise UsageError(f"{target / MANIFEST} cannot be read: {error}.", do="Copy to another folder.") from None
    if found is None:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise UsageError(f"{target} has other files.", do="Copy to a folder that is empty or does not exist.")
        target.mkdir(parents=True, exist_ok=True)
        _save(target, begun)
        return begun
    if found.end is not None:
        raise UsageError(
            f"{target} has a complete copy, of {found.source} at {found.moment}.", do="Copy to another folder."
        )
    if (found.source, found.topics) != (begun.source, wanted):
        raise UsageError(
            f"{target} has an unfinished copy of {found.source}, of "
            f"{'all topics' if found.topics is None else ', '.join(found.topics)}.",
            do="Continue it with the same arguments, or copy to another folder.",
        )
    # What is kept is what reading it now would give, so the copy begins now.
    sizes = {path: (target / path).stat().st_size for path in found.files if (target / path).is_file()}
    return replace(begun, files={path: file for path, file in found.files.items() if sizes.get(path) == file.size})


def _save(target: Path, manifest: CopyManifest) -> None:
    with writing(target / MANIFEST) as file:
        file.write(manifest.to_json().encode())


def _folders(source: LogPath, topics: Sequence[str] | None) -> Mapping[str, list[str]]:
    """The names of the folders to copy: of the metadata log, of the coordinators' log, and under ``""`` of the rest."""
    found: dict[str, list[str]] = {METADATA_TOPIC: [], STATE_TOPIC: [], "": []}
    present: set[str] = set()
    try:
        names = sorted(entry.name for entry in scandir(source) if not entry.is_file())
        others = [name for name in names if not parse_folder_name(name) and name not in NO_PARTITIONS]
        renamed = next((name for name in others if _stamps(source / name)), None)
    except FileNotFoundError:
        raise NotFound(f"There is no folder {source}.", do="Pass one entry of log.dirs.") from None
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}.", do="Run as a user that may read it.") from None
    if renamed is not None:
        raise UsageError(
            f"{source} has the folder {renamed} with files of a log.",
            means="No broker names a folder so: the copy would lack it, and what is open in it.",
            do="Give it its own name, topic-partition, or move it away.",
        )
    for name in names:
        known = parse_folder_name(name)
        if known is None or known.suffix is not None or known.topic_id is not None:
            continue
        present.add(known.topic)
        own = known.topic if known.topic in found else ""
        if own or topics is None or known.topic in topics:
            found[own].append(name)
    if (source / MANIFEST).exists():
        raise UsageError(f"{source} is a copy itself.", do="Copy it by any tool, with its manifest, which stays valid.")
    if not present:
        raise UsageError(
            f"{source} is no log directory: it has no folder of a partition.", do="Pass one entry of log.dirs."
        )
    if missing := sorted(set(topics or ()) - present):
        raise NotFound(
            f"{source} has no partition of topic {missing[0]!r}.",
            do="Check its name, or copy from another entry of log.dirs.",
        )
    return found


def _stamps(folder: LogPath) -> dict[str, FileStamp]:
    """The files of a partition's folder that belong to its log."""
    return {path.name: stamp for path, stamp in file_stamps(folder).items() if _is_of_log(path.name)}


def _is_of_log(name: str) -> bool:
    known = parse_file_name(name)
    is_segments = known is not None and known.suffix not in {"deleted", "cleaned"}
    return is_segments or name in CHECKPOINT_NAMES or name.endswith(".checkpoint")


def _state_of(source: LogPath, folders: Collection[str]) -> dict[str, Mapping[str, FileStamp] | None]:
    """The files of folders; null for a folder that is gone."""
    found: dict[str, Mapping[str, FileStamp] | None] = {}
    for folder in folders:
        try:
            found[folder] = _stamps(source / folder)
        except FileNotFoundError:
            found[folder] = None
    return found


def _is_grown(before: FileStamp, after: FileStamp) -> bool:
    """Whether a file is still the same one, which at most has grown."""
    return before.inode == after.inode and before.size <= after.size
