"""Brokers' own logs beside a log directory, of a sample: events, evidence, what cannot be read; and the options."""

from __future__ import annotations

import datetime as dt
import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from toolkit import LogDir
from toolkit.cli.commands import app
from toolkit.errors import NotFound, UsageError
from toolkit.lab import samples
from toolkit.lab.samples import IncidentSample
from toolkit.schema import CLUSTER_EVENTS, Row
from toolkit.schema.log import FROM_BROKER_LOG

DECIDING = ("verdict", "outcome", "action", "reason", "missing", "remedy", "cause")


@pytest.fixture(scope="module")
def sample() -> IncidentSample:
    return samples.load("late-message")


@pytest.fixture(scope="module")
def plain(sample: IncidentSample) -> Row:
    return finding_of(sample.log_dir(), sample)


def finding_of(files: LogDir, sample: IncidentSample) -> Row:
    rows = files.finding_rows(topics=[sample.topic])
    (row,) = [row for row in rows if row["start_offset"] == sample.expected["start_offset"]]
    return row


@pytest.fixture
def log(sample: IncidentSample, plain: Row, tmp_path: Path) -> Path:
    """Lines of the time of the open batch, in Berlin's time: about it, about another id, and about nothing."""
    time = f"{plain['opened_at'] + dt.timedelta(hours=1):%Y-%m-%d %H:%M:%S,123}"
    lines = [
        f"[UnifiedLog partition={sample.topic}-{sample.partition}, dir=/data] Truncating to offset 5",
        f"Completed rollback of ongoing transaction for transactionalId {plain['transactional_id']} due to timeout",
        "Completed rollback of ongoing transaction for transactionalId another-id due to timeout",
        "[GroupCoordinator 1]: Stabilized group g",
    ]
    path = tmp_path / "logs" / "server.log"
    path.parent.mkdir()
    path.write_text("".join(f"[{time}] INFO {line} (kafka.X)\n" for line in lines))
    return path


def with_log(sample: IncidentSample, *paths: Path, zone: str = "Europe/Berlin") -> LogDir:
    directory = sample.log_dir().paths[0]
    return LogDir(directory, consistent_copy=True, broker_logs=paths, broker_log_time_zone=zone)


def test_lines_are_rows_beside_those_of_the_metadata_log(sample: IncidentSample, log: Path, plain: Row) -> None:
    files = with_log(sample, log.parent)
    rows = files.cluster_event_rows()
    CLUSTER_EVENTS.arrow(rows)
    found = [row for row in rows if row["source"] == FROM_BROKER_LOG]
    assert [row["event"] for row in found] == ["log_truncated", "transaction_timed_out", "transaction_timed_out"]
    assert {row["timestamp"].replace(microsecond=0) for row in found} == {plain["opened_at"].replace(microsecond=0)}
    assert {row["broker_id"] for row in found} == {1}
    assert len(rows) - len(found) == len(sample.log_dir().cluster_event_rows())
    of_topic = files.cluster_event_rows(topics=[sample.topic], partitions=[sample.partition])
    assert [row["event"] for row in of_topic if row["source"] == FROM_BROKER_LOG] == [row["event"] for row in found]


def test_lines_are_evidence_and_decide_nothing(sample: IncidentSample, log: Path, plain: Row) -> None:
    row = finding_of(with_log(sample, log), sample)
    assert {name: row[name] for name in DECIDING} == {name: plain[name] for name in DECIDING}
    lines = [entry["name"] for entry in row["evidence"] if entry["source"] == FROM_BROKER_LOG]
    assert lines == ["log_truncated", "transaction_timed_out"]
    of_the_day_before = finding_of(with_log(sample, log, zone="+14:00"), sample)
    assert not [entry for entry in of_the_day_before["evidence"] if entry["name"] == "log_truncated"]


def test_what_cannot_be_read_is_a_row_and_evidence(sample: IncidentSample, log: Path) -> None:
    torn = log.with_name("controller.log.gz")
    torn.write_bytes(gzip.compress(log.read_bytes())[:-20])
    files = with_log(sample, log.parent)
    (error,) = [row["error"] for row in files.cluster_event_rows() if row["error"]]
    assert error.startswith("UNREADABLE: ")
    unread = [entry for entry in finding_of(files, sample)["evidence"] if entry["name"] == "unread"]
    assert [entry["value"] for entry in unread] == [error]


def test_a_log_that_does_not_exist_is_an_error(sample: IncidentSample, tmp_path: Path) -> None:
    for path in (tmp_path / "gone.log", tmp_path):
        with pytest.raises(NotFound):
            with_log(sample, path)
    with pytest.raises(UsageError, match="is not a time zone"):
        with_log(sample, zone="Nowhere")
    with pytest.raises(UsageError, match="No files are named"):
        LogDir()


def test_brokers_logs_alone_have_their_events(log: Path) -> None:
    assert len(LogDir(broker_logs=[log]).cluster_event_rows()) == 3
    done = run("scan", "--table", "cluster_events", "--broker-log", str(log), "--format", "json")
    assert len(json.loads(done.stdout)["rows"]) == 3
    with pytest.raises(UsageError, match="Brokers' logs alone have no table findings"):
        LogDir(broker_logs=[log]).findings()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_the_options_of_the_commands(sample: IncidentSample, log: Path, plain: Row) -> None:
    directory = str(sample.log_dir().paths[0])
    options = ("--broker-log", str(log.parent), "--broker-log-time-zone", "Europe/Berlin", "--format", "json")
    rows = json.loads(run("scan", directory, "--table", "cluster_events", *options).stdout)["rows"]
    assert next(row["event"] for row in rows if row["source"] == FROM_BROKER_LOG) == "log_truncated"
    found = json.loads(run("diagnose", "--log-dir", directory, "--topic", sample.topic, *options).stdout)["rows"]
    evidence = [entry for row in found for entry in row["evidence"] if entry["source"] == FROM_BROKER_LOG]
    assert {entry["name"] for entry in evidence} == {"log_truncated", "transaction_timed_out"}
    history = run("history", "--log-dir", directory, "--transactional-id", plain["transactional_id"], *options)
    assert history.exit_code == 0, history.stderr
    for arguments, sentence in (
        (("scan", directory, "--table", "batches", *options), "takes no --broker-log"),
        (("diagnose", "--bootstrap-server", "127.0.0.1:1", *options), "Add --log-dir"),
        (("scan", directory, "--table", "cluster_events", "--broker-log", directory), "has no broker's log"),
        (("scan", "--table", "cluster_events"), "No files are named"),
    ):
        done = run(*arguments)
        assert done.exit_code in {2, 4}, "invalid, or not there"
        assert sentence in " ".join(done.stderr.replace("│", " ").split())
