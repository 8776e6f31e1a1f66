"""What is asked without a source: help, texts to explain, monitoring, and wrong usage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.analysis.symptom_texts import CITED
from tests.corpus.calls import Call, CommandLine
from toolkit.cli.commands import PANELS

WRONG = {
    "no-source": ["diagnose"],
    "two-sources": ["diagnose", "--bootstrap-server", "a:1", "--log-dir", "b"],
    "partition-without-topic": ["diagnose", "--bootstrap-server", "a:1", "--partition", "1"],
    "no-such-folder": ["diagnose", "--log-dir", "nowhere"],
    "no-such-table": ["scan", "nowhere", "--table", "nothing"],
    "no-such-recording": ["diagnose", "--recording", "nowhere"],
    "at-without-recording": ["diagnose", "--bootstrap-server", "a:1", "--at", "2026-11-21T12:00:00Z"],
    "consistent-copy-of-a-cluster": ["diagnose", "--bootstrap-server", "a:1", "--consistent-copy"],
    "recheck-after-of-files": ["diagnose", "--log-dir", ".", "--recheck-after", "1s"],
    "timeout-of-a-recording": ["diagnose", "--recording", ".", "--timeout", "1s"],
    "time-zone-without-broker-log": ["diagnose", "--log-dir", ".", "--broker-log-time-zone", "+02:00"],
    "metrics-host-without-port": ["record", "--bootstrap-server", "a:1", "--output", "b", "--metrics-host", "0.0.0.0"],
    "no-offset": ["why", "orders-0", "--bootstrap-server", "a:1"],
    "no-partition": ["gaps", "--bootstrap-server", "a:1"],
    "no-id": ["describe", "--bootstrap-server", "a:1"],
    "no-checkpoint": ["commit", "--transactional-id", "a", "--bootstrap-server", "a:1"],
    "no-such-checkpoint": ["commit", "--transactional-id", "a", "--bootstrap-server", "a:1", "--flink-checkpoint", "b"],
    "no-target": ["abort", "--bootstrap-server", "a:1"],
    "list-and-target": ["abort", "--bootstrap-server", "a:1", "--list", "a.csv", "--topic", "b"],
    "no-such-list": ["abort", "--bootstrap-server", "a:1", "--list", "a.csv"],
    "no-such-format": ["diagnose", "--bootstrap-server", "a:1", "--format", "xml"],
    "not-a-duration": ["diagnose", "--bootstrap-server", "a:1", "--recheck-after", "soon"],
    "time-without-zone": ["diagnose", "--log-dir", ".", "--as-of", "2026-11-21T12:00:00"],
    "report-suffix": ["report", "--log-dir", ".", "--output", "report.doc"],
    "filter-of-prefixes": ["list", "--bootstrap-server", "a:1", "--by-prefix", "--state", "Ongoing"],
    "no-such-command": ["diagnoze"],
    "no-such-option": ["diagnose", "--topics", "a"],
    "wrong-properties": ["diagnose", "--command-config", "nowhere.properties"],
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
