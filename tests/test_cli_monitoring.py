"""The metrics of ``kafka-txn record`` on a real Kafka match rules and dashboard."""

import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.process import COMMAND, PATIENCE_S, ROOT, started
from toolkit.lab import Kafka
from toolkit.lab.clients import blocked_consumer, until
from toolkit.lab.incidents import INCIDENTS
from toolkit.views.monitoring import grafana_dashboard, prometheus_rules

pytestmark = pytest.mark.lab

OF_PROMETHEUS = {"up": {"job", "instance"}}  # it reports it itself
ADDED = {"cluster", "job", "instance"}  # by Prometheus, to every series


@contextmanager
def recorder(kafka: Kafka, directory: Path) -> Iterator[tuple[subprocess.Popen[Any], int]]:
    """A recorder, and the port of its metrics, which it prints."""
    command = [*COMMAND, "record", "--bootstrap-server", kafka.bootstrap_servers, "--output", str(directory)]
    command += ["--interval", "1s", "--late-padding", "0s", "--metrics-port", "0"]
    log = directory.with_suffix(".log")
    with log.open("wb") as errors, started(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors) as process:
        printed = until(lambda: re.match(r"Metrics at http://127\.0\.0\.1:(\d+)/metrics\n", log.read_text()),
                        awaited="the address of the metrics")  # fmt: skip
        yield process, int(printed[1])


def expressions() -> list[str]:
    """Every expression of the rules and of the dashboard."""
    rules = [rule["expr"] for group in yaml.safe_load(prometheus_rules())["groups"] for rule in group["rules"]]
    dashboard = json.loads(grafana_dashboard())
    variables = [found[1] for each in dashboard["templating"]["list"] if (found := LABEL_VALUES.match(each["query"]))]
    return [*rules, *variables, *(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])]


LABEL_VALUES = re.compile(r"label_values\((.*), \w+\)")


def test_every_expression_uses_exported_metrics(kafka: Kafka, tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families
    from promql_parser import Expr, VectorSelector, parse, walk

    staged = INCIDENTS["never_added"](kafka)
    cluster = kafka.bootstrap_servers
    hangs = (
        f'kafka_txn_partition_hanging_transactions{{cluster="{cluster}",partition="0",topic="{staged.topic}"}} 1.0\n'
    )

    def scraped() -> str | None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = str(answer.read().decode())
        return text if hangs in text and f'group="{staged.topic}"' in text else None

    with (
        blocked_consumer(kafka, staged.topic, staged.topic, partition=staged.partition),
        recorder(kafka, tmp_path / "recording") as (process, port),
    ):
        text = until(scraped, awaited="a hanging transaction and the group that it holds")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
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
