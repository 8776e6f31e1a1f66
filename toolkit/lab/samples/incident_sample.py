"""`IncidentSample`: one recorded incident, its expected findings, and its unpacked folder."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolkit.errors import NotFound
from toolkit.lab.samples.archives import unpacked

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.schema import Row
    from toolkit.sources.logdir import LogDir
    from toolkit.sources.recording import Recording

INDEX = "samples.json"
LOG_DIR, RECORDING, DUMP, AUDIT = "log-dir", "recording", "dump.txt", "audit.jsonl"  # files of an archive


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentSample:
    """A recorded incident.

    Parameters
    ----------
    name
        Its name in `names`.
    title, description
        The incident, in a line and in some sentences.
    origin
        How it was made, as a sentence.
    topic, partition
        Partition with the open transaction.
    expected
        Expected columns of the one row of ``schema.FINDINGS`` for that partition.
    at
        Time in its recording for which `expected` holds; null without recording.
    min_held_ms
        Argument of ``LogDir.findings`` that includes a transaction that has ended; null if it is open.
    path
        Its unpacked folder, with read-only files for all processes.
    """

    name: str
    title: str
    description: str
    origin: str
    topic: str
    partition: int
    expected: Mapping[str, Any]
    at: dt.datetime | None
    min_held_ms: int | None
    path: Path

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

    Raises
    ------
    NotFound
        If there is no sample of that name.
    UsageError
        If it cannot be unpacked.
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
