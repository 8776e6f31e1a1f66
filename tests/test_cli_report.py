"""``kafka-txn report``: from files, from a recording and from a live cluster."""

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from typer.testing import CliRunner, Result

from toolkit.cli.commands import app
from toolkit.lab import Kafka, samples
from toolkit.lab.incidents import INCIDENTS


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_a_report_from_a_log_directory(tmp_path: Path) -> None:
    sample = samples.load("late-message")
    files = ["--log-dir", sample.path / "log-dir", "--consistent-copy"]
    page, text = tmp_path / "report.html", tmp_path / "report.md"
    done = run(*files, "--output", page, "--title", "Orders stood still")
    assert done.exit_code == 1, done.stderr
    assert done.stderr.startswith(f"{page}: ")
    assert "<h1>Orders stood still</h1>" in page.read_text()
    assert "<svg" in page.read_text()
    assert run(*files, "--topic", "orders", "--partition", 0, "--output", text).exit_code == 1
    markdown = text.read_text()
    assert "## orders-0 at offset 15: hanging" in markdown
    assert "### Transactions on orders-0" in markdown
    assert "its markers are written (CompleteAbort)" in markdown
    assert "Not included: actions (the audit trail: what was done, and by whom)." in markdown


@pytest.mark.parametrize("name", ["late-message", "flight-recording"])
def test_a_report_with_an_interactive_timeline(name: str, tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    sample = samples.load(name)
    files = ["--log-dir", sample.path / "log-dir", "--consistent-copy"]
    source = ["--recording", sample.path / "recording", "--at", sample.at.isoformat()] if sample.at else files
    page = tmp_path / "report.html"
    done = run(*source, "--interactive", "--output", page)
    assert done.exit_code == 1, done.stderr
    assert page.read_text().count("Plotly.newPlot(") >= 2, "for light and for dark"


def test_a_report_of_an_ended_incident_with_its_actions(tmp_path: Path) -> None:
    sample = samples.load("long-history")
    page = tmp_path / "report.md"
    audit = sample.audit()
    assert audit
    where = ["--log-dir", sample.path / "log-dir", "--consistent-copy", "--topic", "orders", "--partition", 0]
    done = run(*where, "--min-held", 10, "--audit-file", audit.path, "--output", page)
    assert done.exit_code == 0, done.stderr
    assert f"orders-0 at offset {sample.expected['start_offset']}: ended" in page.read_text()
    assert "abort, outcome" in page.read_text()


def test_a_report_from_a_recording(tmp_path: Path) -> None:
    sample = samples.load("flight-recording")
    page = tmp_path / "report.html"
    assert sample.at
    done = run("--recording", sample.path / "recording", "--at", sample.at.isoformat(), "--output", page)
    assert done.exit_code == 1, done.stderr
    assert "consumer groups that could not move: billing" in page.read_text()
    assert "<svg" in page.read_text()


def test_a_recording_and_its_log_directory_are_one_incident(tmp_path: Path) -> None:
    sample = samples.load("flight-recording")
    page = tmp_path / "report.ipynb"
    sources = ["--recording", sample.path / "recording", "--log-dir", sample.path / "log-dir", "--consistent-copy"]
    done = run(*sources, "--audit-file", sample.path / "audit.jsonl", "--redact", "--output", page)
    assert done.exit_code == 0, done.stderr
    text = "".join(line for cell in json.loads(page.read_text())["cells"] for line in cell["source"])
    assert "topic-1-0 at offset 15: ended" in text
    assert "Consumer group group-1 waited." in text
    assert "orders" not in text
    assert "its ABORT marker at offset 37 ended it" in text
    refused = run(*sources, "--at", "2026-11-25T18:21:10Z", "--output", page)
    assert refused.exit_code == 2
    assert "--at selects a sample of a recording alone" in refused.stderr


@pytest.mark.lab
def test_a_partition_whose_leader_is_away_is_not_nothing_open(tmp_path: Path) -> None:
    page = tmp_path / "report.md"
    with Kafka("4.3.1", brokers=2) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic("away", 1, replica_assignment=[[2]])])["away"].result(30)
        kafka.stop_broker(2)
        address = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", "away", "--recheck-after", "0"]
        done = run(*address, "--output", page)
    assert done.exit_code == 3, done.stderr
    assert "By whom: not known: it could not be read" in page.read_text()
    assert "othing is open" not in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--output", "report.pdf"], "ends in none of .html, .md"),
        (["--output", "no/report.md"], "no/report.md cannot be written: No such file or directory."),
        (["--output", "{files}/report.md"], "which is never written to"),
        (["--output", "report.md", "--audit-file", "no.jsonl"], "no.jsonl does not exist"),
        (["--output", "report.md", "--partition", "0"], "--topic"),
    ],
)
def test_invalid_usage_is_one_sentence(
    arguments: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = samples.load("late-message").path / "log-dir"
    done = run("--log-dir", files, "--consistent-copy", *(each.format(files=files) for each in arguments))
    assert done.exit_code == 2
    assert why in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_past_incident_is_not_read_from_brokers(tmp_path: Path) -> None:
    done = run("--bootstrap-server", "localhost:1", "--min-held", 1, "--output", tmp_path / "report.md")
    assert done.exit_code == 2
    assert "--min-held needs the past" in done.stderr


@pytest.mark.lab
def test_a_report_of_a_live_cluster(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged = INCIDENTS["late_message"](kafka)
    page, trail = tmp_path / "report.md", tmp_path / "audit.jsonl"
    step = {
        "at": "2026-11-21T09:58:11+00:00", "action_id": "a", "action": "abort", "step": "refused", "who": "ann@ops",
        "target": f"{staged.topic}-0@{staged.start_offset}", "topic": staged.topic, "partition": 0,
    }  # fmt: skip
    servers = [kafka.bootstrap_servers, "elsewhere:9092"]
    trail.write_text("".join(f"{json.dumps({**step, 'bootstrap_servers': each, 'who': each})}\n" for each in servers))
    monkeypatch.setenv("KAFKA_TXN_AUDIT_FILE", str(trail))
    where = ["--bootstrap-server", kafka.bootstrap_servers, "--topic", staged.topic, "--partition", 0]
    done = run(*where, "--recheck-after", 1, "--output", page)
    assert done.exit_code == 1, done.stderr
    markdown = page.read_text()
    assert f"at offset {staged.start_offset}: hanging" in markdown
    assert "### Transactions on" in markdown
    assert "CompleteAbort" in markdown
    assert "abort, refused" in markdown
    assert "elsewhere" not in markdown
