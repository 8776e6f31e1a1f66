"""What is asked without a source: help, texts to explain, monitoring, and wrong usage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.analysis.symptom_texts import CITED
from tests.corpus.calls import Call, CommandLine
from tests.corpus.conversation import INPUTS
from toolkit.cli.commands import PANELS

PROVOKED = INPUTS / "provoked.json"
"""What real clients and brokers printed: `tests.tools.provoked`."""
CASES = Path(__file__).parents[1] / "cases"
SERVER = ["--bootstrap-server", "a:1"]
OF_FILES = ["diagnose", "--log-dir", "."]
OF_ONE = ["--topic", "a", "--partition", "0"]
WRONG = {
    "no-source": ["diagnose"],
    "two-sources": ["diagnose", *SERVER, "--log-dir", "b"],
    "recording-and-cluster": ["find-hanging", *SERVER, "--recording", "b"],
    "recording-and-files": ["diagnose", "--recording", ".", "--log-dir", "."],
    "partition-without-topic": ["diagnose", *SERVER, "--partition", "1"],
    "partition-without-topic-to-explain": ["explain", "a", "--partition", "0"],
    "partition-without-topic-of-files": ["txn-stat", ".", "--partition", "1"],
    "no-such-folder": ["diagnose", "--log-dir", "nowhere"],
    "no-such-table": ["scan", "nowhere", "--table", "nothing"],
    "no-such-recording": ["diagnose", "--recording", "nowhere"],
    "no-recording": ["diagnose", "--recording", "."],
    "no-recording-for-an-agent": ["mcp", "--recording", "."],
    "at-without-recording": ["diagnose", *SERVER, "--at", "2026-11-21T12:00:00Z"],
    "consistent-copy-of-a-cluster": ["diagnose", *SERVER, "--consistent-copy"],
    "consistent-copy-of-nothing": ["explain", "a", "--consistent-copy"],
    "txn-state-partitions-of-a-cluster": ["diagnose", *SERVER, "--txn-state-partitions", "3"],
    "recheck-after-of-files": [*OF_FILES, "--recheck-after", "1s"],
    "broker-id-of-files": ["find-hanging", "--log-dir", ".", "--broker-id", "1"],
    "flink-checkpoint-of-files": [*OF_FILES, "--flink-checkpoint", "."],
    "timeout-of-a-recording": ["diagnose", "--recording", ".", "--timeout", "1s"],
    "time-zone-without-broker-log": [*OF_FILES, "--broker-log-time-zone", "+02:00"],
    "metrics-host-without-port": ["record", *SERVER, "--output", "b", "--metrics-host", "0.0.0.0"],
    "record-without-cluster": ["record", "--output", "b"],
    "agent-without-source": ["mcp"],
    "no-offset": ["why", "orders-0", *SERVER],
    "no-offset-option": ["why", *OF_ONE, *SERVER],
    "no-partition": ["gaps", *SERVER],
    "topic-without-partition": ["gaps", "--topic", "a", *SERVER],
    "partition-twice": ["gaps", "orders-0", "--partition", "0", *SERVER],
    "not-a-partition": ["gaps", "orders", *SERVER],
    "no-id": ["describe", *SERVER],
    "no-id-of-a-history": ["history", *SERVER],
    "no-id-of-a-coordinator": ["coordinator", *SERVER],
    "no-checkpoint": ["commit", "--transactional-id", "a", *SERVER],
    "no-such-checkpoint": ["commit", "--transactional-id", "a", *SERVER, "--flink-checkpoint", "b"],
    "no-target": ["abort", *SERVER],
    "part-of-a-target": ["abort", "--topic", "a", *SERVER],
    "part-of-a-target-to-complete": ["complete", "--topic", "a", *SERVER],
    "list-and-target": ["abort", *SERVER, "--list", "a.csv", "--topic", "b"],
    "no-such-list": ["abort", *SERVER, "--list", "a.csv"],
    "no-such-format": ["diagnose", *SERVER, "--format", "xml"],
    "not-a-duration": ["diagnose", *SERVER, "--recheck-after", "soon"],
    "too-short-a-duration": ["record", *SERVER, "--output", "b", "--interval", "10ms"],
    "time-without-zone": [*OF_FILES, "--as-of", "2026-11-21T12:00:00"],
    "report-suffix": ["report", "--log-dir", ".", "--output", "report.doc"],
    "report-of-the-past-of-a-cluster": ["report", *SERVER, "--min-held", "1", "--output", "report.md"],
    "report-in-no-folder": ["report", "--log-dir", "a", "--output", "nowhere/report.md"],
    "no-such-command": ["diagnoze"],
    "no-such-option": ["diagnose", "--topics", "a"],
    "wrong-properties": ["diagnose", "--command-config", "nowhere.properties"],
    "property-of-the-lab": ["lab", "--property", "novalue"],
    "version-of-the-lab": ["lab", "--version", "1.0"],
    "scan-of-another-table": ["scan", ".", "--table", "tables"],
    "pipeline-of-nothing": ["pipeline", "--output", "out"],
    "pipeline-of-two": ["pipeline", "--input", "a", *SERVER, "--output", "out"],
    "pipeline-of-a-consistent-cluster": ["pipeline", *SERVER, "--consistent-copy", "--output", "out"],
    "pipeline-of-a-past-cluster": ["pipeline", *SERVER, "--as-of", "2026-11-21T12:00:00Z", "--output", "out"],
    "pipeline-partitions-of-a-cluster": ["pipeline", *SERVER, "--txn-state-partitions", "9", "--output", "out"],
    "pipeline-on-two-sparks": ["pipeline", "--input", "a", "--master", "local", "--remote", "sc://b",
                               "--output", "out"],
    "pipeline-conf": ["pipeline", "--input", "a", "--conf", "spark", "--output", "out"],
    "pipeline-into-its-input": ["pipeline", "--input", ".", "--output", "out"],
}  # fmt: skip
"""Invalid usage: exit code 2 and one sentence."""
ACTIONS = {
    "abort": [*OF_ONE, "--start-offset", "1"],
    "complete": [*OF_ONE, "--start-offset", "1"],
    "fence": ["--transactional-id", "a"],
}


def text_calls() -> Iterator[Call]:
    """Every call without a source."""
    line = CommandLine()
    yield replace(line("--help", name="help"), covers="")
    for commands in PANELS.values():
        for name in commands:
            yield replace(line(name, "--help", name=f"help-{name}"), covers="")
    for number, (symptom, _, _, text) in enumerate(CITED):
        yield line("explain", text, name=f"explain-{number:02}-{symptom or 'unknown'}")
    for path in sorted(CASES.glob("*.txt")):  # after two lines that say what the right answer is, and how it was tried
        if (text := "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[2:])) and path.name[:2] != "09":
            yield line("explain", "-", stdin=text, name=f"explain-case-{path.stem}")
    for provocation, text in json.loads(PROVOKED.read_text()).items():
        yield line("explain", text, name=f"explain-provoked-{provocation}")
    for output in ("json", "csv"):
        yield line("explain", CITED[0][3], "--format", output, name=f"explain-{output}")
    yield line("explain", "-", stdin=CITED[0][3], name="explain-stdin")
    yield line("explain", "nothing of the kind", name="explain-nothing")
    yield line("prometheus-rules", name="prometheus-rules")
    changed = ["--lso-held", "1m", "--hanging", "2m", "--late", "3m", "--group-held", "4m", "--recorder-blind", "5m"]
    others = ["--recorder-incomplete", "6m", "--job", "watch", "--runbook-url", "https://example.org/runbook"]
    yield line("prometheus-rules", *changed, *others, name="prometheus-rules-changed")
    yield line("grafana-dashboard", name="grafana-dashboard")
    for name, argv in WRONG.items():
        yield replace(line(*argv, name=f"wrong-{name}"), covers="")
    for action, argv in ACTIONS.items():  # before the cluster is asked
        confirmed = ["--confirm", "x", "--audit-file", "/dev/null/audit.jsonl", "--bootstrap-server", "127.0.0.1:1"]
        yield replace(line(action, *argv, *confirmed, name=f"unaudited-{action}"), covers="")
