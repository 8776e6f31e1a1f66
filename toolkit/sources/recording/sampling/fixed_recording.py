"""Record a fixed number of samples."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path

from toolkit.sources.live.cluster import Cluster
from toolkit.sources.recording.sample_files.sample_writer import SampleWriter
from toolkit.sources.recording.sampling.recorder import Recorder
from toolkit.sources.recording.sampling.sampler import Sampler


def record_samples(
    connect: Callable[[], Cluster],
    folder: Path,
    *,
    stop: threading.Event | None = None,
    samples: int | None = None,
    interval_ms: int = 1000,
) -> None:
    """Record a cluster, silently.

    Parameters
    ----------
    connect
        Returns the connected cluster.
    folder
        Folder of the recording.
    stop
        Ends recording when set.
    samples
        Maximum number; null until stopped.
    interval_ms
        Time between samples.
    """
    sampler = Sampler(connect=connect, interval_ms=interval_ms)
    with SampleWriter(folder) as writer:
        Recorder(sampler=sampler, writer=writer, listener=_SilentListener()).run(
            stop or threading.Event(), samples=samples
        )


class _SilentListener:
    """Ignores what the recorder reports."""

    def on_wait(self, due: dt.datetime) -> None: ...
    def on_sample(self, sample: object, *, written: bool) -> None: ...
    def on_skip(self, count: int) -> None: ...
    def on_warning(self, text: str) -> None: ...
