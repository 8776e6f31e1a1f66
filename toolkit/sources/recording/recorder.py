"""The flight recorder: a sample at every multiple of an interval, until stopped; it resumes an earlier recording."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from toolkit.analysis.history.findings_over_time import first_seen
from toolkit.errors import NotFound, ToolkitError
from toolkit.schema.recorded import RecordedSample
from toolkit.schema.table import EPOCH, TransactionKey
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.recording.recorded_samples import find_samples, read_sample
from toolkit.sources.recording.recording_folder import ONE_HOUR, floor_time, read
from toolkit.sources.recording.sample_writer import SampleWriter
from toolkit.sources.recording.sampler import Sample, SampleOptions, Sampler

MAX_LOOKBACK = dt.timedelta(days=1)  # transactions open for longer are already recorded as late


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
    """Takes samples of one cluster, and records them to one recording."""

    sampler: Sampler  # takes samples
    listener: RecorderListener  # receives progress
    writer: SampleWriter | None = None  # writes them; null if only the listener wants them
    retention: dt.timedelta | None = None  # how long samples are kept; null for no limit
    _previous: Sample | None = None
    _compacted_at: dt.datetime = EPOCH
    _lost: int = 0

    @property
    def interval(self) -> dt.timedelta:
        """Time between samples, which are due at its multiples."""
        return dt.timedelta(milliseconds=self.sampler.options.interval_ms)

    def run(self, stop: threading.Event, *, samples: int | None = None, until: dt.datetime | None = None) -> int:
        """Record until `stop` is set; the current sample is completed.

        Returns: number of samples taken.
        `stop`: set by another thread or a signal handler.
        `samples`: maximum number of samples.
        `until`: latest due time.
        Raises ToolkitError if the cluster cannot be reached and the recording has no sample yet; later, that is a
        failed sample.
        """
        self._previous = resume(self.writer.directory) if self.writer else None
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
                latest = max(due, floor_time(_now(), self.interval))  # another one if this machine was suspended
                self._skip((latest - due) // self.interval)
                self._record(latest)
                count += 1
                due = self._next()
                self._skip((due - latest) // self.interval - 1)  # due while the sample was taken
        finally:
            self.sampler.close()
        return count

    def _record(self, due: dt.datetime) -> None:
        sample = self.sampler.take(due, self._previous)
        written = True
        try:
            if self.writer:
                self.writer.write(sample)
        except OSError as error:
            written = False
            self._lost += 1
            if self._lost == 1:
                since, reason = _utc_text(due), error.strerror or error
                self.listener.on_warning(f"Samples are lost from {since} on: they cannot be written: {reason}.")
        if written:
            self._previous = sample  # recorded samples only, so that a diagnosis can be repeated
            if self._lost:
                lost = f"{self._lost} samples were" if self._lost > 1 else "one sample was"
                self.listener.on_warning(f"Since {_utc_text(due)} samples can be written again; {lost} lost.")
            self._lost = 0
        self.listener.on_sample(sample, written=written)
        self._compact(due)

    def _compact(self, due: dt.datetime) -> None:
        """Merge files and remove expired ones, once an hour."""
        if self.writer is None or due - self._compacted_at < ONE_HOUR:
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
        if now - last < self.interval / 2 and not self._has(last):
            return last
        return self._next()

    def _next(self) -> dt.datetime:
        """The next multiple that is not recorded; after the clock was set back, some are."""
        due = floor_time(_now(), self.interval) + self.interval
        while self._has(due):
            due += self.interval
        return due

    def _has(self, due: dt.datetime) -> bool:
        return self.writer is not None and self.writer.has(due)

    def _skip(self, count: int) -> None:
        if count > 0:
            self.listener.on_skip(count)


def record_samples(
    connect: Callable[[], Cluster],
    folder: Path,
    *,
    stop: threading.Event | None = None,
    samples: int | None = None,
    interval_ms: int = 1000,
) -> None:
    """Record a cluster, silently.

    `stop`: ends recording when set.
    `samples`: maximum number; null until stopped.
    """
    sampler = Sampler(connect=connect, options=SampleOptions(interval_ms=interval_ms))
    with SampleWriter(folder) as writer:
        Recorder(sampler=sampler, writer=writer, listener=_SilentListener()).run(
            stop or threading.Event(), samples=samples
        )


def resume(directory: Path) -> Sample | None:
    """The last successful sample, which the next one is diagnosed with; null if there is none."""
    try:
        found = find_samples(directory)
    except NotFound:
        return None
    content = read_sample(directory, found.sample)
    observed = first_seen(content.observation, {})
    with_opening_time = {each.key for each in content.findings if each.opened_at is not None}
    recorded = {
        each.key: each.opened_at
        for each in content.late_transactions
        if each.opened_at is not None and each.opened_at_clock == "recorder"
    }
    undated = observed.keys() - with_opening_time - recorded.keys()
    return Sample(
        due=found.sample.sampled_at,
        row=found.sample,
        findings=content.findings,
        late_transactions=content.late_transactions,
        observation=content.observation,
        first_seen=observed | recorded | (_earliest(directory, undated, found.sample) if undated else {}),
    )


class _SilentListener:
    """Ignores what the recorder reports."""

    def on_wait(self, due: dt.datetime) -> None: ...
    def on_sample(self, sample: object, *, written: bool) -> None: ...
    def on_skip(self, count: int) -> None: ...
    def on_warning(self, text: str) -> None: ...


def _earliest(
    directory: Path, transactions: Collection[TransactionKey], last: RecordedSample
) -> dict[TransactionKey, dt.datetime]:
    """When each was first observed open within the last day of the recording."""
    import pyarrow.compute as pc

    names = ["topic", "partition", "producer_id", "current_txn_start_offset"]
    start = last.sampled_at - MAX_LOOKBACK
    rows = read(directory, "producers", start=start, columns=["sampled_at", *names])
    rows = rows.filter(pc.is_valid(rows["current_txn_start_offset"]))
    samples = RecordedSample.of_table(read(directory, "samples", start=start, columns=["sampled_at", "observed_at"]))
    observed = {each.sampled_at: each.observed_at for each in samples}
    firsts = rows.group_by(names).aggregate([("sampled_at", "min")]).to_pylist()
    earliest = {TransactionKey(*(row[name] for name in names)): observed.get(row["sampled_at_min"]) for row in firsts}
    return {key: time for key in transactions if (time := earliest.get(key)) is not None}


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _utc_text(time: dt.datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
