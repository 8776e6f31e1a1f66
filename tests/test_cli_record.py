"""``kafka-txn record`` on a real Kafka, and the commands that read its recording."""

import datetime as dt
import json
import math
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.process import COMMAND, PATIENCE_S, ROOT, Process, on, run, started
from tests.sources.recorded import sample
from toolkit import Recording
from toolkit.cli.record_commands import RecorderScreen
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.lab.queries import until
from toolkit.sources.recording.sample_writer import SampleWriter

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
        if "skipped so far" not in line and not line.startswith("Recording, keeps ")
    ]


def wait_for(condition: Callable[[], object], awaited: str) -> None:
    until(lambda: True if condition() else None, awaited=awaited)


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
    done = on(kafka, "record", "--output", str(directory), "--interval", "3", "--samples", "2")
    assert (done.returncode, done.stdout, warnings(done.stderr)) == (0, "", []), "a log has warnings only"
    assert len(samples(directory)) == 2
    return directory


def test_samples_of_the_last_30_days_are_kept(kafka: Kafka, tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    month_old, newer = now - dt.timedelta(days=31), now - dt.timedelta(days=29)
    for due in (month_old, newer):
        with SampleWriter(tmp_path) as writer:
            writer.write(sample(due))
    for retention, kept in ((("--retention", "-1"), {month_old, newer}), ((), {newer})):
        done = on(kafka, "record", "--output", str(tmp_path), "--interval", "3", "--samples", "2", *retention)
        assert done.returncode == 0, done.stderr
        assert {due for due in samples(tmp_path) if due < now} == kept


def same(recorded: Process, live: Process) -> bool:
    """Whether both are equal except for times, the cluster in a remedy, and how much of a cause was found.

    The read of the transaction log is bounded: for the complete cluster it may end before one topic's records.
    """
    reported, now = (re.sub(r"(?m)^(  cause ).*(\([a-z-]+\))$", r"\1\2", each.stdout) for each in (recorded, live))
    return without_times(reported) == without_times(now)


def without_times(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( UTC|\+00:00|Z)?", "TIME", text)
    text = re.sub(r" --bootstrap-server \S+", "", text)
    return re.sub(r"(under )?\d+ (s|min)( \d+ s)?\b", "LOG_TRANSACTION", text)


def test_a_recording_is_diagnosed_like_its_cluster(kafka: Kafka, hanging: StagedIncident, recording: Path) -> None:
    of_topic = ("--topic", hanging.topic)
    recorded = run("diagnose", "--recording", str(recording), *of_topic)
    live = on(kafka, "diagnose", *of_topic, "--recheck-after", "1")
    assert (recorded.returncode, recorded.stderr) == (live.returncode, live.stderr) == (1, "")
    assert same(recorded, live), (recorded.stdout, live.stdout)
    assert f"kafka-txn abort --topic {hanging.topic} --partition 0" in recorded.stdout
    one = run("find-hanging", "--recording", str(recording), *of_topic, "--format", "json", "--broker-id", "1")
    assert (one.returncode, [row["verdict"] for row in json.loads(one.stdout)]) == (1, ["hanging"])
    healthy = run("diagnose", "--recording", str(recording), *of_topic, "--partition", "1")
    assert (healthy.returncode, healthy.stdout.count("ongoing")) == (0, 1)


def test_a_recording_is_diagnosed_as_of_a_time(hanging: StagedIncident, recording: Path) -> None:
    first, _ = samples(recording)
    arguments = ("diagnose", "--recording", str(recording), "--topic", hanging.topic, "--at")
    done = run(*arguments, first.isoformat())
    assert done.returncode == 3, "one sample proves nothing"
    assert "a second sample: it was seen in one only" in done.stdout
    none = run(*arguments, "2020-01-01T00:00:00Z")
    assert (none.returncode, none.stderr.startswith("kafka-txn: No successful sample in")) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("diagnose --recording {0} --at yesterday", "'yesterday' is not a time."),
        ("diagnose --recording {0} --at 2026-11-21T12:00:00", "The time 2026-11-21T12:00:00 has no zone."),
        ("diagnose --at 2026-11-21T12:00:00Z", "--at is a time of a recording."),
        ("diagnose --recording {0} --log-dir {0}", "--recording cannot be combined with a cluster"),
        ("find-hanging --recording {0} --bootstrap-server x:1", "--recording cannot be combined with a cluster"),
        ("find-hanging --recording {0} --topic nowhere", "has no topic 'nowhere'."),
        ("diagnose --recording {0}/samples", "is not a recording."),
        ("record --output {0}/samples --bootstrap-server x:1", "is not a recording and not empty."),
        ("record --output {0}/new", "No cluster is named."),
    ],
)
def test_invalid_usage_is_one_sentence(recording: Path, arguments: str, message: str) -> None:
    done = run(*arguments.format(recording).split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("kafka-txn: ")
    assert message in done.stderr
    assert not (recording / "new").exists()


def test_a_recorder_can_start_before_its_cluster(recording: Path, tmp_path: Path) -> None:
    nobody = ("--bootstrap-server", "127.0.0.1:1", "--interval", "1", "--samples", "1")
    done = run("record", "--output", str(tmp_path / "new"), *nobody)
    assert (done.returncode, done.stderr.startswith("kafka-txn: The broker at 127.0.0.1:1 cannot")) == (2, True)
    goes_on = shutil.copytree(recording, tmp_path / "goes on")
    done = run("record", "--output", str(goes_on), *nobody)
    (warning,) = warnings(done.stderr)
    assert (done.returncode, "the cluster cannot be read: NETWORK_EXCEPTION" in warning) == (0, True)
    assert Recording(goes_on).samples()["error"].notna().to_list() == [False, False, True]


def test_a_kill_loses_at_most_the_current_sample(kafka: Kafka, hanging: StagedIncident, tmp_path: Path) -> None:
    directory = tmp_path / "recording"
    for _ in range(2):
        with recorder(kafka, directory) as process:
            wait_for(partial(_are_more, directory, 1 + len(samples(directory))), "two more samples")
            observed = samples(directory)
            process.kill()
    with recorder(kafka, directory) as process:
        wait_for(partial(_are_more, directory, len(observed)), "another sample")
        second = run("record", "--output", str(directory), "--bootstrap-server", kafka.bootstrap_servers)
        assert (second.returncode, f"is in use by process {process.pid}." in second.stderr) == (2, True)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, out, warnings(err)) == (0, "", [])
    found = samples(directory)
    assert len(found) == len(set(found))
    assert set(observed) < set(found)
    last = run("find-hanging", "--recording", str(directory), "--topic", hanging.topic)
    assert last.returncode == 1, "samples before and after a restart are two observations"
    verdicts = Recording(directory).history("findings").query(f"topic == '{hanging.topic}'")
    first = verdicts["sampled_at"].min()
    hangs = verdicts[(verdicts["partition"] == 0) & (verdicts["sampled_at"] > first)]
    assert set(hangs["verdict"]) == {"hanging"}
    with SampleWriter(directory) as writer:
        assert all(writer.has(each) for each in found)


def _are_more(directory: Path, count: int) -> bool:
    return len(samples(directory)) > count


def test_metrics_are_served_while_recording(kafka: Kafka, hanging: StagedIncident, tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client", reason="metrics are an extra")
    with recorder(kafka, tmp_path / "recording", "--metrics-port", "0") as process:
        assert process.stderr is not None
        found = re.match(r"Metrics at (http://127\.0\.0\.1:\d+/metrics)\n", process.stderr.readline())
        assert found
        hangs = f'kafka_txn_partition_hanging_transactions{{partition="0",topic="{hanging.topic}"}} 1.0\n'

        def requests() -> str:
            with urllib.request.urlopen(found[1], timeout=60) as answer:
                return str(answer.read().decode())

        wait_for(lambda: hangs in requests(), "a second sample")
        late = r'^kafka_txn_broker_late_partitions\{broker_id="1"\} \d+\.0$'
        assert re.search(late, requests(), re.MULTILINE), "what other tests have left may be late"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_a_terminal_has_one_status_line(kafka: Kafka, hanging: StagedIncident, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [*COMMAND, "record", "--bootstrap-server", kafka.bootstrap_servers, "--output", str(tmp_path / "new")]
    with started([*command, "--interval", "1", "--samples", "2"], cwd=ROOT, stdout=theirs, stderr=theirs):
        os.close(theirs)
        output = b""
        while chunk := _read(ours):
            output += chunk
    os.close(ours)
    lines = output.decode().split("\r\x1b[2K")
    assert any(line.startswith("no sample yet · next at ") for line in lines)
    assert re.match(r"2 samples · last \d\d:\d\d:\d\d: \d+ open, \d+ hanging, \d+ late", lines[-1])
    assert lines[-1].count("\n") == 1, "and stays when it is over"


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux's message for a closed connection
        return b""


def test_a_log_shows_the_first_sample_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A recorder without a terminal was silent until something failed."""
    screen = RecorderScreen(None, math.inf)
    for minute in (58, 59):
        screen.on_sample(sample(dt.datetime(2026, 11, 24, 9, minute, tzinfo=dt.UTC)), written=True)
    screen.end()
    first = "first sample at 2026-11-24 09:58:00 UTC: 1 open, 1 hanging, 0 late"
    expected = f"Recording, keeps all samples (--retention); {first}\n"
    assert capsys.readouterr().err == expected


def test_a_warning_after_the_last_sample_does_not_replace_the_status_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    screen = RecorderScreen(None, math.inf)
    screen.on_sample(sample(dt.datetime(2026, 11, 24, 9, 58, tzinfo=dt.UTC)), written=True)
    screen.on_skip(1)
    screen.end()
    *_, warning, status = capsys.readouterr().err.split("\r\x1b[2K")
    assert warning.startswith("kafka-txn: A sample was skipped")
    assert status == "1 sample · last 09:58:00: 1 open, 1 hanging, 0 late\n"


def test_a_lost_cluster_is_reported_once(tmp_path: Path) -> None:
    with Kafka("4.3.1") as kafka, recorder(kafka, tmp_path / "recording") as process:
        wait_for(lambda: len(samples(tmp_path / "recording")) >= 1, "a sample")
        kafka.kill(1)
        wait_for(lambda: Recording(tmp_path / "recording").samples()["error"].count() > 1, "samples that failed")
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=PATIENCE_S)
    (warning,) = warnings(stderr)
    assert "the cluster cannot be read: NETWORK_EXCEPTION" in warning
    assert process.returncode == 0
    done = run("diagnose", "--recording", str(tmp_path / "recording"))
    assert done.returncode == 3
    assert "The cluster could not be reached any more" in done.stdout
