"""The flight recorder: a sample at every multiple of an interval, until it is told to stop."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import dataclass
from typing import Protocol

from toolkit.errors import ToolkitError
from toolkit.sources.recording.names import ONE_HOUR
from toolkit.sources.recording.resume import resume
from toolkit.sources.recording.sample import Sample
from toolkit.sources.recording.sampler import Sampler
from toolkit.sources.recording.writer import Writer

__all__ = ["Audience", "Recorder"]

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Audience(Protocol):
    """Who is told what a recorder does."""

    def waiting(self, due: dt.datetime) -> None:
        """The next sample is due then."""

    def taken(self, sample: Sample, *, written: bool) -> None:
        """A sample was taken; not written where the disk refused it."""

    def skipped(self, count: int) -> None:
        """So many samples were due while the last one was taken, or while this machine slept."""

    def warned(self, text: str) -> None:
        """Something is not as it should be, and recording goes on."""


@dataclass(kw_only=True)
class Recorder:
    """Samples of one cluster to one recording.

    Parameters
    ----------
    sampler
        What takes samples.
    writer
        Where they go.
    audience
        Who is told.
    retention
        How long samples are kept; for ever if null.
    """

    sampler: Sampler
    writer: Writer
    audience: Audience
    retention: dt.timedelta | None = None
    _before: Sample | None = None
    _tidied: dt.datetime = EPOCH
    _lost: int = 0

    @property
    def interval(self) -> dt.timedelta:
        """From one sample to the next: they are due at its multiples."""
        return dt.timedelta(milliseconds=self.sampler.interval_ms)

    def run(self, stop: threading.Event, *, samples: int | None = None, until: dt.datetime | None = None) -> int:
        """Record until `stop` is set, which the sample in flight does not see.

        Parameters
        ----------
        stop
            Set by another thread, or by the handler of a signal.
        samples
            No more than so many.
        until
            None that is due later.

        Returns
        -------
        int
            How many samples were taken.

        Raises
        ------
        ToolkitError
            If the cluster cannot be reached and the recording has no sample yet; later that is a sample.
        """
        self._before = resume(self.writer.directory)
        if self._before is None:
            self.sampler.connected()
        taken = 0
        due = self._first()
        try:
            while (samples is None or taken < samples) and (until is None or due <= until):
                self.audience.waiting(due)
                if due - _now() > 2 * self.interval:
                    self.audience.warned(f"This machine's clock has gone back; the next look waits for {_clock(due)}.")
                if stop.wait(max(0.0, (due - _now()).total_seconds())):
                    break
                due = self._not_missed(due)
                self._record(due)
                taken += 1
                due = self._after(due)
        finally:
            self.sampler.close()
        return taken

    def _record(self, due: dt.datetime) -> None:
        sample = self.sampler.take(due, self._before)
        written = True
        try:
            self.writer.write(sample)
        except OSError as error:
            written = False
            self._lose(due, error)
        if written:
            self._before = sample  # what was not written is not there to be judged again
            self._lose_no_more(due)
        self.audience.taken(sample, written=written)
        self._tidy(due)

    def _lose(self, due: dt.datetime, error: OSError) -> None:
        self._lost += 1
        if self._lost == 1:
            why = error.strerror or error
            self.audience.warned(f"From {_clock(due)} on samples are lost, as they cannot be written: {why}.")

    def _lose_no_more(self, due: dt.datetime) -> None:
        if self._lost:
            many = f"{self._lost} samples were" if self._lost > 1 else "one sample was"
            self.audience.warned(f"At {_clock(due)} samples can be written again; {many} lost.")
        self._lost = 0

    def _tidy(self, due: dt.datetime) -> None:
        """Merge and retire, once an hour."""
        if due - self._tidied < ONE_HOUR:
            return
        self._tidied = self._floor(due, ONE_HOUR)
        try:
            if self.retention is not None:
                self.writer.retire(before=due - self.retention)
            self.writer.merge(now=due)
        except (OSError, ToolkitError) as error:
            self.audience.warned(f"Files could not be merged, and stay as they are: {error}")

    def _first(self) -> dt.datetime:
        """The time that has just passed, if it is not recorded and the next is far enough away; else the next."""
        now = _now()
        last = self._floor(now, self.interval)
        if now - last < self.interval / 2 and not self.writer.has(last):
            return last
        return self._next()

    def _next(self) -> dt.datetime:
        """The next one to come that is not recorded: where a clock has gone back, some of those to come are."""
        due = self._floor(_now(), self.interval) + self.interval
        while self.writer.has(due):
            due += self.interval
        return due

    def _not_missed(self, due: dt.datetime) -> dt.datetime:
        """The same; or the last one, where this machine has slept through it."""
        last = max(due, self._floor(_now(), self.interval))
        self._skip((last - due) // self.interval)
        return last

    def _after(self, due: dt.datetime) -> dt.datetime:
        """The next one to come; those that were due while this one was taken are left out."""
        following = self._next()
        self._skip((following - due) // self.interval - 1)
        return following

    def _skip(self, count: int) -> None:
        if count > 0:
            self.audience.skipped(count)

    @staticmethod
    def _floor(time: dt.datetime, span: dt.timedelta) -> dt.datetime:
        return EPOCH + (time - EPOCH) // span * span


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _clock(time: dt.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
