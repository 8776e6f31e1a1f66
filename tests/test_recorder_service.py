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
from toolkit.lab.clients import until
from toolkit.sources.recording import metrics as recorder_metrics
from toolkit.sources.recording.metrics import Metrics

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
    assert metrics.health() == (True, "the last sample was taken 0 s ago; 1 failed so far")


def test_what_is_neither_written_nor_served_is_refused() -> None:
    nothing = run("record", "--bootstrap-server", "b:9092")
    assert (nothing.returncode, "--output DIR, --metrics-port PORT, or both" in nothing.stderr) == (2, True)
    kept = run("record", "--bootstrap-server", "b:9092", "--metrics-port", "0", "--retention", "2d")
    assert (kept.returncode, "--retention applies to a recording" in kept.stderr) == (2, True)


@pytest.mark.lab
def test_metrics_only_until_sigterm(kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clusters.toml").write_text(f'[prod-eu]\nbootstrap-server = "{kafka.bootstrap_servers}"\n')
    monkeypatch.setenv(CLUSTERS_VARIABLE, str(tmp_path / "clusters.toml"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folder = tmp_path / "here"
    folder.mkdir()
    command = [*COMMAND, "record", "--cluster", "prod-eu", "--interval", "1s", "--metrics-port", "0"]
    log = tmp_path / "log"

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    with log.open("wb") as errors, started(command, cwd=folder, stderr=errors) as process:
        port = int(until(lambda: re.match(r"Metrics at \S+:(\d+)/metrics\n", log.read_text()), awaited="metrics")[1])
        until(lambda: 'kafka_txn_samples_taken_total{cluster="prod-eu"} 2.0' in get("/metrics") or None, awaited="two")
        assert "the last sample was taken" in get("/healthz")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert "Serving metrics, writes nothing; first sample" in log.read_text()
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
