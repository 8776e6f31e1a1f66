"""The flight recorder: a sample at every multiple of an interval, until stopped."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import dataclass
from typing import Protocol

from toolkit.errors import ToolkitError
from toolkit.schema.table import EPOCH
from toolkit.sources.recording.sample_files.sample_names import ONE_HOUR, floor_time
from toolkit.sources.recording.sample_files.sample_writer import SampleWriter
from toolkit.sources.recording.sampling.recorder_resume import resume
from toolkit.sources.recording.sampling.sample import Sample
from toolkit.sources.recording.sampling.sampler import Sampler


class RecorderListener(Protocol):
    """Callbacks for a recorder's progress."""

    def on_wait(self, due: dt.datetime) -> None:
        """The next sample is due at `due`."""

    def on_sample(self, sample: Sample, *, written: bool) -> None:
        """A sample was taken; `written` is false if it could not be written."""

    def on_skip(self, count: int) -> None:
        """Samples were skipped while the last one was taken, or while this machine was suspended."""

    def on_warning(self, text: str) -> None:
        """Something failed; recording continues."""


@dataclass(kw_only=True)
class Recorder:
    """Records samples of one cluster to one recording.

    Parameters
    ----------
    sampler
        Takes samples.
    writer
        Writes them.
    listener
        Receives progress.
    retention
        How long samples are kept; null for no limit.
    """

    sampler: Sampler
    writer: SampleWriter
    listener: RecorderListener
    retention: dt.timedelta | None = None
    _previous: Sample | None = None
    _compacted_at: dt.datetime = EPOCH
    _lost: int = 0

    @property
    def interval(self) -> dt.timedelta:
        """Time between samples, which are due at its multiples."""
        return dt.timedelta(milliseconds=self.sampler.interval_ms)

    def run(self, stop: threading.Event, *, samples: int | None = None, until: dt.datetime | None = None) -> int:
        """Record until `stop` is set; the current sample is completed.

        Parameters
        ----------
        stop
            Set by another thread or a signal handler.
        samples
            Maximum number of samples.
        until
            Latest due time.

        Returns
        -------
        int
            Number of samples taken.

        Raises
        ------
        ToolkitError
            If the cluster cannot be reached and the recording has no sample yet; later, that is a failed sample.
        """
        self._previous = resume(self.writer.directory)
        if self._previous is None:
            self.sampler.cluster()
        count = 0
        due = self._first()
        try:
            while (samples is None or count < samples) and (until is None or due <= until):
                self.listener.on_wait(due)
                if due - _now() > 2 * self.interval:
                    self.listener.on_warning(
                        f"This machine's clock was set back; the next sample is due at {_utc_text(due)}."
                    )
                if stop.wait(max(0.0, (due - _now()).total_seconds())):
                    break
                due = self._latest_due(due)
                self._record(due)
                count += 1
                due = self._after(due)
        finally:
            self.sampler.close()
        return count

    def _record(self, due: dt.datetime) -> None:
        sample = self.sampler.take(due, self._previous)
        written = True
        try:
            self.writer.write(sample)
        except OSError as error:
            written = False
            self._warn_lost(due, error)
        if written:
            self._previous = sample  # recorded samples only, so that a diagnosis can be repeated
            self._warn_recovered(due)
        self.listener.on_sample(sample, written=written)
        self._compact(due)

    def _warn_lost(self, due: dt.datetime, error: OSError) -> None:
        self._lost += 1
        if self._lost == 1:
            reason = error.strerror or error
            self.listener.on_warning(f"Samples are lost from {_utc_text(due)} on: they cannot be written: {reason}.")

    def _warn_recovered(self, due: dt.datetime) -> None:
        if self._lost:
            lost = f"{self._lost} samples were" if self._lost > 1 else "one sample was"
            self.listener.on_warning(f"Since {_utc_text(due)} samples can be written again; {lost} lost.")
        self._lost = 0

    def _compact(self, due: dt.datetime) -> None:
        """Merge files and remove expired ones, once an hour."""
        if due - self._compacted_at < ONE_HOUR:
            return
        self._compacted_at = floor_time(due, ONE_HOUR)
        try:
            if self.retention is not None:
                self.writer.retire(before=due - self.retention)
            self.writer.merge(now=due)
        except (OSError, ToolkitError) as error:
            self.listener.on_warning(f"Files could not be merged and remain unchanged: {error}")

    def _first(self) -> dt.datetime:
        """The last multiple if it is recent and not recorded; else the next one."""
        now = _now()
        last = floor_time(now, self.interval)
        if now - last < self.interval / 2 and not self.writer.has(last):
            return last
        return self._next()

    def _next(self) -> dt.datetime:
        """The next multiple that is not recorded; after the clock was set back, some are."""
        due = floor_time(_now(), self.interval) + self.interval
        while self.writer.has(due):
            due += self.interval
        return due

    def _latest_due(self, due: dt.datetime) -> dt.datetime:
        """`due`, or the last multiple if this machine was suspended."""
        last = max(due, floor_time(_now(), self.interval))
        self._skip((last - due) // self.interval)
        return last

    def _after(self, due: dt.datetime) -> dt.datetime:
        """The next multiple after a sample; those missed meanwhile are skipped."""
        following = self._next()
        self._skip((following - due) // self.interval - 1)
        return following

    def _skip(self, count: int) -> None:
        if count > 0:
            self.listener.on_skip(count)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _utc_text(time: dt.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
