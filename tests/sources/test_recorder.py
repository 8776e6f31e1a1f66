"""When a recorder takes its samples, and what it does when it cannot."""

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.sources.recorded import sample
from toolkit import Cluster, Recording
from toolkit.errors import ConnectionFailed
from toolkit.schema.table import EPOCH
from toolkit.sources.recording.recorder import Recorder, Sample, SampleOptions, Sampler, SampleWriter

SECOND = dt.timedelta(seconds=1)


class Told:
    """The messages of a recorder."""

    def __init__(self, *, after: Callable[[], object] = lambda: None) -> None:
        self.samples: list[Sample] = []
        self.written: list[bool] = []
        self.left_out = 0
        self.warnings: list[str] = []
        self._after = after

    def on_wait(self, due: dt.datetime) -> None:
        pass

    def on_sample(self, sample: Sample, *, written: bool) -> None:
        self.samples.append(sample)
        self.written.append(written)
        self._after()

    def on_skip(self, count: int) -> None:
        self.left_out += count

    def on_warning(self, text: str) -> None:
        self.warnings.append(text)


def nobody() -> NoReturn:
    raise ConnectionFailed("No broker is there.")


def after_a_while() -> NoReturn:
    threading.Event().wait(1.2)
    nobody()


def record(
    directory: Path,
    evidence: Told,
    *,
    connect: Callable[[], Cluster] = nobody,
    stop: threading.Event | None = None,
    **more: Any,
) -> None:
    with SampleWriter(directory) as writer:
        sampler = Sampler(connect=connect, options=SampleOptions(interval_ms=1_000))
        recorder = Recorder(sampler=sampler, writer=writer, listener=evidence)
        recorder.run(stop or threading.Event(), **more)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A recording with a sample of an hour ago, from when the cluster could be reached."""
    with SampleWriter(tmp_path) as writer:
        writer.write(sample((dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)).replace(microsecond=0)))
    return tmp_path


def test_samples_are_due_at_multiples_of_the_interval(begun: Path) -> None:
    evidence = Told()
    record(begun, evidence, samples=3)
    dues = [each.due for each in evidence.samples]
    assert all((due - EPOCH) % SECOND == dt.timedelta(0) for due in dues)
    assert len(set(dues)) == 3
    assert (dues[-1] - dues[0]) // SECOND == 2 + evidence.left_out
    assert list(Recording(begun).samples()["sampled_at"])[1:] == dues
    assert {each.error for each in evidence.samples} == {"NETWORK_EXCEPTION: No broker is there"}


def test_a_slow_sample_skips_those_due_meanwhile(begun: Path) -> None:
    evidence = Told()
    record(begun, evidence, connect=after_a_while, samples=2)
    first, second = (each.due for each in evidence.samples)
    assert evidence.left_out >= 2
    assert second - first >= 2 * SECOND


def test_it_stops_after_the_sample_in_flight(begun: Path) -> None:
    stop = threading.Event()
    evidence = Told(after=stop.set)
    record(begun, evidence, stop=stop)
    assert evidence.written == [True]
    record(begun, evidence, until=dt.datetime.now(dt.UTC) - 10 * SECOND)
    assert evidence.written == [True], "none is due by then"


def test_the_first_connection_must_succeed(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailed, match="No broker is there"):
        record(tmp_path, Told())
    assert len(Recording(tmp_path).samples()) == 0


def test_a_failed_write_is_reported_and_recording_continues(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(writer: SampleWriter, sample: Sample) -> NoReturn:
        raise OSError(28, "No space left on device")

    evidence = Told()
    with monkeypatch.context() as patch:
        patch.setattr(SampleWriter, "write", full)
        record(begun, evidence, samples=2)
    assert evidence.written == [False, False]
    (warning,) = evidence.warnings
    assert warning.endswith("on: they cannot be written: No space left on device.")


def test_the_recovery_of_writes_is_reported(begun: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_once(writer: SampleWriter, sample: Sample) -> NoReturn:
        monkeypatch.undo()
        raise OSError(28, "No space left on device")

    evidence = Told()
    monkeypatch.setattr(SampleWriter, "write", full_once)
    record(begun, evidence, samples=2)
    assert evidence.written == [False, True]
    assert evidence.warnings[-1].endswith("samples can be written again; one sample was lost.")


def test_it_merges_at_start_and_after_every_hour(tmp_path: Path) -> None:
    yesterday = (dt.datetime.now(dt.UTC) - dt.timedelta(days=1)).replace(minute=0, second=0, microsecond=0)
    with SampleWriter(tmp_path) as writer:
        for each in range(3):
            writer.write(sample(yesterday + each * SECOND))
    record(tmp_path, Told(), samples=1)
    assert len(list((tmp_path / "samples").glob(f"{yesterday:%Y%m%d}.1.parquet"))) == 1
