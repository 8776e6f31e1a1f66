"""Recorded incidents: real segments of the lab's brokers, small enough for the package, so that no broker is needed.

>>> load("late-message").log_dir().findings(topics=["orders"]).verdict[0]  # doctest: +SKIP
'hanging'

``python -m tests.record_samples``, in the repository, records them again.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_path

from toolkit.errors import NotFound, UsageError

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.schema import Row
    from toolkit.sources.logdir import LogDir
    from toolkit.sources.recording import Recording

__all__ = ["IncidentSample", "load", "names"]

INDEX = "samples.json"
LOG_DIR, RECORDING, DUMP, AUDIT = "log-dir", "recording", "dump.txt", "audit.jsonl"  # files of an archive
READ_ONLY = 0o444


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentSample:
    """A recorded incident."""

    name: str  # its name in `names`
    # title, description: the incident, in a line and in some sentences
    title: str
    description: str
    origin: str  # how it was made, as a sentence
    # topic, partition: partition with the open transaction
    topic: str
    partition: int
    expected: Mapping[str, Any]  # expected columns of the one row of ``schema.FINDINGS`` for that partition
    at: dt.datetime | None  # time in its recording for which `expected` holds; null without recording
    # argument of ``LogDir.findings`` that includes a transaction that has ended; null if it is open
    min_held_ms: int | None
    path: Path  # its unpacked folder, with read-only files for all processes

    def log_dir(self) -> LogDir:
        """The log directory of the broker, which was shut down cleanly."""
        from toolkit.sources.logdir import LogDir

        return LogDir(self.path / LOG_DIR, consistent_copy=True)

    def recording(self) -> Recording | None:
        """The recording; null if the recorder was not running."""
        from toolkit.sources.recording import Recording

        return Recording(self.path / RECORDING) if (self.path / RECORDING).is_dir() else None

    def dump_text(self) -> Path | None:
        """Output of kafka-dump-log.sh for the partition's first segment; null if there is none."""
        return self.path / DUMP if (self.path / DUMP).is_file() else None

    def audit(self) -> Audit | None:
        """The audit trail of its actions; null without any."""
        from toolkit.actions.audit import Audit

        return Audit(self.path / AUDIT) if (self.path / AUDIT).is_file() else None

    def finding_rows(self) -> list[Row]:
        """The findings about its partition, as rows: from the recording at `at`, or from the log directory."""
        recording = self.recording()
        if recording:
            return recording.finding_rows(topics=[self.topic], partitions=[self.partition], at=self.at)
        return self.log_dir().finding_rows(
            topics=[self.topic], partitions=[self.partition], min_held_ms=self.min_held_ms
        )


def names() -> list[str]:
    """Names of all samples, sorted."""
    return sorted(_index())


def load(name: str) -> IncidentSample:
    """Return a sample; its files are unpacked into the user's cache on first use.

    Raises NotFound if there is no sample of that name.
    Raises UsageError if it cannot be unpacked.
    """
    if name not in _index():
        raise NotFound(f"There is no sample {name!r}.", do=f"Use one of {', '.join(names())}.")
    entry = dict(_index()[name])
    at = entry.pop("at")
    archive = resources.files(__package__) / "data" / f"{name}.tar.xz"
    path = unpacked(archive.read_bytes(), name=name)
    return IncidentSample(name=name, path=path, at=dt.datetime.fromisoformat(at) if at else None, **entry)


@cache
def _index() -> Mapping[str, Mapping[str, Any]]:
    text = (resources.files(__package__) / "data" / INDEX).read_text(encoding="utf-8")
    index: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return index


def unpacked(archive: bytes, *, name: str) -> Path:
    """The folder with the files of an archive, unpacked on first use.

    Raises UsageError if neither the user's cache nor the temporary folder is writable.
    `archive`: an archive of `packed`.
    `name`: part of the folder's name, next to the hash of the content.
    """
    label = f"{name}-{hashlib.sha256(archive).hexdigest()[:16]}"
    problem = ""
    temporary = Path(tempfile.gettempdir()) / f"kafka-txn-toolkit-{os.getuid() if hasattr(os, 'getuid') else 0}"
    for home in (user_cache_path("kafka-txn-toolkit"), temporary):
        folder = home / "samples" / label
        if folder.is_dir():
            return folder
        try:
            return _unpack(archive, folder)
        except OSError as error:
            problem = f"{folder}: {error.strerror}"
    raise UsageError(
        f"The sample {name} cannot be unpacked: {problem}.", do="Let XDG_CACHE_HOME or TMPDIR name a writable folder."
    )


def _unpack(archive: bytes, folder: Path) -> Path:
    """Unpack next to the target and rename: another process may be doing the same."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:xz") as members:
            for member in members:
                _write(members, member, partial)
        partial.chmod(0o755)
        with suppress(OSError):  # it already exists
            partial.rename(folder)
        if not folder.is_dir():
            raise OSError(0, "it did not appear")
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _write(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Accept a regular file below `folder`, with its own time; these archives contain nothing else."""
    name = PurePosixPath(member.name)
    content = members.extractfile(member) if member.isreg() else None
    if content is None or name.is_absolute() or ".." in name.parts:
        raise UsageError(
            f"The sample's archive is damaged: {member.name!r} has no place in it.", do="Install the package again."
        )
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.read())
    path.chmod(READ_ONLY)
    os.utime(path, (member.mtime, member.mtime))
