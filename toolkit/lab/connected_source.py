"""An open source with audit trail, incidents and expected findings, for notebooks."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolkit.actions.audit import Audit
from toolkit.errors import UsageError
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.logdir import LogDir
from toolkit.sources.recording import Recording
from toolkit.sources.recording.recorder import record_samples
from toolkit.sources.recording.recording import is_recording


class ConnectedSource:
    """The result of `toolkit.connect`; a context manager, closed when the interpreter exits at the latest.

    Parameters
    ----------
    source
        The source of findings and all other tables.
    audit
        Where actions are recorded: the user's own file for a cluster.
    expected
        By topic, the columns of ``schema.FINDINGS`` that are known in advance: ``partition``, ``verdict``,
        ``start_offset`` and others. Empty for a user's own cluster and files.
    group
        A read_committed group that waits behind the LSO; of the lab and samples only.
    selection
        Arguments with which ``source.findings(**selection)`` finds `expected`.
    folder
        For temporary files; one of its own if null.
    files
        Opens the log directory of a source that is none itself: of the lab, and of a sample's recording.
    """

    staged: Mapping[str, Any] = MappingProxyType({})
    """For the lab: staged incident by topic."""
    confirmations: Mapping[str, str] = MappingProxyType({})
    """For the lab: by topic, the confirmation that ends its staged transaction. Empty for any other source, where only
    its reader may type one."""
    kafka: Any = None
    """For the lab: its Kafka."""
    sample: Any = None
    """For a recorded sample: the sample."""

    def __init__(
        self,
        source: Cluster | LogDir | Recording,
        *,
        audit: Audit,
        expected: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
        group: str | None = None,
        selection: Mapping[str, Any] = MappingProxyType({}),
        folder: Path | None = None,
        files: Callable[[], LogDir] | None = None,
    ) -> None:
        self.source, self.audit, self.expected = source, audit, expected
        self.group, self.selection = group, selection
        self._folder, self._files = folder, files
        self._resources = ExitStack()

    def __enter__(self) -> ConnectedSource:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.source!r}>"

    @property
    def cluster(self) -> Cluster:
        """The running cluster.

        Raises
        ------
        UsageError
            If files were opened.
        """
        if not isinstance(self.source, Cluster):
            raise UsageError(
                f"{self.source!r} is no running cluster.", do='Open "lab", or the bootstrap servers of a cluster.'
            )
        return self.source

    def log_dir(self) -> LogDir:
        """The log directory; for the lab a copy, for which its brokers are briefly shut down.

        Raises
        ------
        UsageError
            If there is none: a cluster shows no files.
        """
        if isinstance(self.source, LogDir):
            return self.source
        if self._files is not None:
            return self._files()
        raise UsageError(
            f"{self.source!r} has no files to read.",
            do="Open a log directory that was copied off a broker (cp -p, rsync -a) by its path.",
        )

    def recording(self, *, samples: int = 3, interval_ms: int = 1000) -> Recording:
        """The recording; for a cluster, a new one.

        Parameters
        ----------
        samples, interval_ms
            For a cluster: number of samples, and the time between them.

        Raises
        ------
        UsageError
            If files were opened.
        """
        if isinstance(self.source, Recording):
            return self.source
        folder = self.temporary() / "recording"
        connect = partial(Cluster, self.cluster.config, timeout=self.cluster.timeout)
        record_samples(connect, folder, samples=samples, interval_ms=interval_ms)
        return Recording(folder)

    def sources(self) -> list[LogDir | Recording | Cluster]:
        """The sources of the incident: log directory, recording, or both; else the running cluster."""
        if self._files is None:
            return [self.source]
        if isinstance(self.source, Recording):
            return [self.log_dir(), self.source]
        recording = self.temporary() / "recording"
        return [self.log_dir(), *([Recording(recording)] if is_recording(recording) else [])]

    def close(self) -> None:
        """Close connections, stop the lab's Kafka, delete temporary files."""
        self._resources.close()

    def own(self, resources: ExitStack) -> None:
        """Close these with this source, when the interpreter exits at the latest."""
        self._resources.push(resources.pop_all())
        atexit.register(self.close)
        self._resources.callback(atexit.unregister, self.close)

    def temporary(self) -> Path:
        """A folder that `close` deletes."""
        if self._folder is None:
            self._folder = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix="kafka-txn-")))
        return self._folder
