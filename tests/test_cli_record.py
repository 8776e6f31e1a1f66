"""``kafka-txn record`` on a real Kafka, and the commands that read its recording."""

import datetime as dt
import math
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.process import COMMAND, PATIENCE_S, ROOT, on, run, started
from tests.sources.recorded import sample
from toolkit import Recording
from toolkit.cli.record_commands import RecorderScreen
from toolkit.lab import Kafka
from toolkit.lab.clients import until
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.sources.recording.recorder import SampleWriter

pytestmark = pytest.mark.lab


@contextmanager
def recorder(kafka: Kafka, directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [*COMMAND, "record", "--bootstrap-server", kafka.bootstrap_servers, "--output", str(directory)]
    command += ["--interval", "1", *arguments]
    with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process


def samples(directory: Path) -> list[Any]:
    if not (directory / "samples").exists():
        return []
    return list(Recording(directory).samples()["sampled_at"])


def warnings(output: str) -> list[str]:
    """The messages except for the first sample, and for skipped ones, which a busy machine causes."""
    return [
        line
        for line in output.splitlines()
        if "skipped so far" not in line and not line.startswith("Recording; samples are kept ")
    ]


@pytest.fixture(scope="module")
def hanging(kafka: Kafka) -> Iterator[StagedIncident]:
    """Partition 0 of a topic hangs, and its partition 1 has a healthy transaction."""
    staged = INCIDENTS["busy_elsewhere"](kafka)
    yield staged
    staged.close()


@pytest.fixture(scope="module")
def recording(kafka: Kafka, hanging: StagedIncident, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two observations of it."""
    directory = tmp_path_factory.mktemp("recordings") / "new"
    done = on(kafka, "record", "--output", str(directory), "--interval", "1", "--samples", "2")
    assert (done.returncode, done.stdout, warnings(done.stderr)) == (0, "", []), "a log has warnings only"
    assert len(samples(directory)) == 2
    return directory


def test_a_recorder_can_start_before_its_cluster(recording: Path, tmp_path: Path) -> None:
    nobody = ("--bootstrap-server", "127.0.0.1:1", "--interval", "1", "--samples", "2")
    done = run("record", "--output", tmp_path / "new", *nobody)
    assert (done.returncode, done.stderr.startswith("kafka-txn: The broker at 127.0.0.1:1 cannot")) == (3, True)
    goes_on = shutil.copytree(recording, tmp_path / "goes on")
    done = run("record", "--output", goes_on, *nobody)
    (warning,) = warnings(done.stderr)
    assert (done.returncode, "samples fail: NETWORK_EXCEPTION" in warning) == (3, True), "it was 0"
    assert Recording(goes_on).samples()["error"].notna().to_list() == [False, False, True, True]
    assert "What is open now is not known" in run("diagnose", "--recording", goes_on).stdout


def test_a_kill_loses_at_most_the_current_sample(kafka: Kafka, hanging: StagedIncident, tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    with recorder(kafka, directory) as process:
        until(lambda: len(samples(directory)) > 1 or None, awaited="two samples")
        observed = samples(directory)
        process.kill()
    with recorder(kafka, directory) as process:
        until(lambda: len(samples(directory)) > len(observed) or None, awaited="another sample")
        second = on(kafka, "record", "--output", directory)
        assert (second.returncode, f"is in use by process {process.pid}." in second.stderr) == (2, True)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out, warnings(err)) == (0, "", [])
    found = samples(directory)
    assert len(found) == len(set(found))
    assert set(observed) < set(found)
    last = run("find-hanging", "--recording", directory, "--topic", hanging.topic)
    assert last.returncode == 1, "samples before and after a restart are two observations"
    verdicts = Recording(directory).history("findings").query(f"topic == '{hanging.topic}'")
    first = verdicts["sampled_at"].min()
    hangs = verdicts[(verdicts["partition"] == 0) & (verdicts["sampled_at"] > first)]
    assert set(hangs["verdict"]) == {"hanging"}
    with SampleWriter(directory) as writer:
        assert all(writer.has(each) for each in found)


def test_a_log_shows_the_first_sample_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A recorder without a terminal was silent until something failed."""
    screen = RecorderScreen(None, math.inf)
    for minute in (58, 59):
        screen.on_sample(sample(dt.datetime(2026, 11, 24, 9, minute, tzinfo=dt.UTC)), written=True)
    screen.end()
    first = "first sample at 2026-11-24 09:58:00 UTC: 1 open, 1 hanging, 0 late"
    expected = f"Recording; all samples are kept (--retention); {first}\n"
    assert capsys.readouterr().err == expected


def test_a_terminal_has_one_status_line_that_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    screen, due = RecorderScreen(None, math.inf), dt.datetime(2026, 11, 24, 9, 58, tzinfo=dt.UTC)
    screen.on_wait(due)
    screen.on_sample(sample(due), written=True)
    screen.on_skip(1)
    screen.end()
    _, waiting, *_, warning, status = capsys.readouterr().err.split("\r\x1b[2K")
    assert waiting == "no sample yet · next at 09:58:00 UTC"
    assert warning.startswith("kafka-txn: A sample was skipped")
    assert status == "1 sample · last 09:58:00: 1 open, 1 hanging, 0 late\n"
