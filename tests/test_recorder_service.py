"""The recorder as a service: metrics only, health, SIGTERM, and the files that start one."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from tests.process import COMMAND, PATIENCE_S, ROOT, run, started
from tests.sources.recorded import NINE, sample
from toolkit.cli.commands import app
from toolkit.config.clusters import CLUSTERS_VARIABLE, named_clusters
from toolkit.lab import Kafka
from toolkit.lab.clients import BlockedConsumer, until
from toolkit.lab.incidents import INCIDENTS
from toolkit.sources.recording import metrics as recorder_metrics
from toolkit.sources.recording.metrics import Metrics
from toolkit.views.monitoring import grafana_dashboard, prometheus_rules

pytest.importorskip("prometheus_client", reason="metrics are an extra")

EXAMPLES = ROOT / "docs" / "howto" / "recorder"
UNIT = "kafka-txn-recorder@.service"
GROUP: Any = typer.main.get_command(app)


def labels(metrics: Metrics) -> list[Mapping[str, str]]:
    return [each.labels for family in metrics.collect() for each in family.samples]


def test_every_metric_has_the_cluster_as_a_label() -> None:
    metrics = Metrics("prod-eu")
    metrics.on_sample(sample(NINE), written=True)
    assert {each.get("cluster") for each in labels(metrics)} == {"prod-eu"}


def test_a_recorder_that_takes_no_sample_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a cluster that does not answer is: a restart would not help."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    metrics = Metrics("prod-eu")
    assert metrics.health()[0], "it starts"
    now[0] += recorder_metrics.STUCK_S + 1
    assert metrics.health() == (False, "no sample was taken for 301 s")
    metrics.on_sample(sample(NINE, error="no broker answers"), written=True)
    assert metrics.health() == (True, "the last sample was taken 0 s ago; 1 failed so far, it with no broker answers")


def test_what_is_neither_written_nor_served_is_refused() -> None:
    nothing = run("record", "--bootstrap-server", "b:9092")
    assert (nothing.returncode, "--output DIR, --metrics-port PORT, or both" in nothing.stderr) == (2, True)
    kept = run("record", "--bootstrap-server", "b:9092", "--metrics-port", "0", "--retention", "2d")
    assert (kept.returncode, "--retention applies to a recording" in kept.stderr) == (2, True)


OF_PROMETHEUS = {"up": {"job", "instance"}}  # it reports it itself
ADDED = {"cluster", "job", "instance"}  # by Prometheus, to every series
LABEL_VALUES = re.compile(r"label_values\((.*), \w+\)")


def expressions() -> list[str]:
    """Every expression of the rules and of the dashboard."""
    rules = [rule["expr"] for group in yaml.safe_load(prometheus_rules())["groups"] for rule in group["rules"]]
    dashboard = json.loads(grafana_dashboard())
    variables = [found[1] for each in dashboard["templating"]["list"] if (found := LABEL_VALUES.match(each["query"]))]
    return [*rules, *variables, *(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])]


def check_expressions(text: str) -> None:
    """Every expression uses metrics that are exported, and each of these is used."""
    from prometheus_client.parser import text_string_to_metric_families
    from promql_parser import Expr, VectorSelector, parse, walk

    exported = {
        sample.name: {*sample.labels, *ADDED}
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    requests: set[str] = set()

    def check(node: Expr) -> None:
        if isinstance(node, VectorSelector):
            assert node.name in exported | OF_PROMETHEUS, node.name
            assert {matcher.name for matcher in node.matchers.matchers} <= (exported | OF_PROMETHEUS)[node.name]
            requests.add(node.name)

    for expr in expressions():
        walk(parse(expr), check)
    assert exported.keys() - requests == {"kafka_txn_partition_open_transactions", "kafka_txn_build_info"}


def test_metrics_only_until_sigterm(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of the rules and of the dashboard."""
    topic = INCIDENTS["never_added"](kafka).topic
    (tmp_path / "clusters.toml").write_text(f'[prod-eu]\nbootstrap-server = "{kafka.bootstrap_servers}"\n')
    monkeypatch.setenv(CLUSTERS_VARIABLE, str(tmp_path / "clusters.toml"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folder = tmp_path / "here"
    folder.mkdir()
    command = [*COMMAND, "record", "--cluster", "prod-eu", "--interval", "1s", "--metrics-port", "0"]
    command += ["--late-padding", "0s"]
    log = tmp_path / "log"

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def scraped() -> str | None:
        text = get("/metrics")
        hangs = f'kafka_txn_partition_hanging_transactions{{cluster="prod-eu",partition="0",topic="{topic}"}} 1.0\n'
        return text if hangs in text and f'group="{topic}"' in text else None

    with (
        BlockedConsumer(kafka, topic, topic),
        log.open("wb") as errors,
        started(command, cwd=folder, stderr=errors) as process,
    ):
        port = int(until(lambda: re.match(r"Metrics at \S+:(\d+)/metrics\n", log.read_text()), awaited="metrics")[1])
        text = until(scraped, awaited="a hanging transaction and the group that it holds")
        assert "the last sample was taken" in get("/healthz")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    check_expressions(text)
    assert "Serving metrics; nothing is written; first sample" in log.read_text()
    assert [*folder.iterdir()] == []


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    text = (EXAMPLES / UNIT).read_text()
    line = re.search(r"^ExecStart=((?:.*\\\n)*.*)", text, re.MULTILINE)
    assert line
    words = shlex.split(line[1].replace("\\\n", " ").replace("${METRICS_PORT}", "9404"))
    GROUP.commands["record"].make_context("record", words[2:])
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    (tmp_path / UNIT).write_text(text.replace(words[0], sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / UNIT], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_container_and_the_manifest_start_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = re.search(r"^CMD (\[.*\])$", (EXAMPLES / "Containerfile").read_text(), re.MULTILINE)
    assert command
    secret, deployment = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for name, *arguments in (json.loads(command[1]), container["args"]):
        GROUP.commands[name].make_context(name, arguments)
    for name, text in secret["stringData"].items():
        (tmp_path / name).write_text(text)
    (variable,) = container["env"]
    monkeypatch.setenv(variable["name"], str(tmp_path / Path(variable["value"]).name))
    (cluster,) = named_clusters().values()
    assert Path(cluster.command_config or "").is_file()
    assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": container["ports"][0]["name"]}
    assert deployment["spec"]["selector"]["matchLabels"] == deployment["spec"]["template"]["metadata"]["labels"]
