"""A flight recording of a cluster of the lab."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path

from toolkit.sources.cluster import Cluster
from toolkit.sources.recording.recorder import Recorder
from toolkit.sources.recording.sampler import Sampler
from toolkit.sources.recording.writer import Writer

__all__ = ["record"]


def record(
    connect: Callable[[], Cluster],
    folder: Path,
    *,
    stop: threading.Event | None = None,
    samples: int | None = None,
    interval_ms: int = 1000,
) -> None:
    """Record what a cluster shows, with nobody told.

    Parameters
    ----------
    connect
        Makes the connection.
    folder
        Where the recording goes.
    stop
        Ends it when it is set.
    samples
        How many at most; null for as long as it is not stopped.
    interval_ms
        From one sample to the next.
    """
    sampler = Sampler(connect=connect, interval_ms=interval_ms)
    with Writer(folder) as writer:
        Recorder(sampler=sampler, writer=writer, audience=_Nobody()).run(stop or threading.Event(), samples=samples)


class _Nobody:
    """Nobody is told what the recorder does."""

    def waiting(self, due: dt.datetime) -> None: ...
    def taken(self, sample: object, *, written: bool) -> None: ...
    def skipped(self, count: int) -> None: ...
    def warned(self, text: str) -> None: ...
