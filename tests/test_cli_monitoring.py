"""The metrics of ``kafka-txn record`` on a real Kafka match rules and dashboard, and alerts are delivered."""

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

from tests.process import COMMAND, PATIENCE_S, ROOT, on, run, started
from tests.prometheus_stack import ALERTMANAGER, PROMETHEUS, PrometheusStack, prometheus_stack
from toolkit.lab import Kafka
from toolkit.lab.consumer import blocked_consumer
from toolkit.lab.incidents import INCIDENTS, NEGLECTFUL
from toolkit.lab.queries import until
from toolkit.views.monitoring import grafana_dashboard, prometheus_rules

pytestmark = pytest.mark.lab

OF_PROMETHEUS = {"up": {"job", "instance"}}  # it reports it itself
ADDED = {"cluster", "job", "instance"}  # by Prometheus, to every series
QUICK = "--lso-held 2s --hanging 0s --late 0s --group-held 0s --recorder-blind 3s --recorder-incomplete 1h"


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


def empty_queries(monitoring: PrometheusStack) -> set[str]:
    """The legends of those queries of the dashboard that return nothing, with all variables at All."""
    targets = [target for panel in json.loads(grafana_dashboard())["panels"] for target in panel["targets"]]
    return {each["legendFormat"] for each in targets if not monitoring.query(VARIABLE.sub(".*", each["expr"]))}


VARIABLE = re.compile(r"\$\w+")
COMMITTED = "committed {{topic}}-{{partition}} {{cluster}}"  # that incident needs a second broker
LABEL_VALUES = re.compile(r"label_values\((.*), \w+\)")


def test_every_expression_uses_exported_metrics(kafka: Kafka, tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families
    from promql_parser import Expr, VectorSelector, parse, walk

    staged = INCIDENTS["never_added"](kafka)
    hangs = f'kafka_txn_partition_hanging_transactions{{partition="0",topic="{staged.topic}"}} 1.0\n'

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


@pytest.mark.full
@pytest.mark.skipif(not (PROMETHEUS and ALERTMANAGER), reason="Prometheus and Alertmanager are not installed")
def test_alerts_of_incidents_fire_and_resolve(tmp_path: Path) -> None:
    """Hanging, overdue, a blocked group; then a stopped cluster, and a stopped recorder."""
    rules = run("prometheus-rules", *QUICK.split()).stdout
    with (
        Kafka("4.3.1", properties=NEGLECTFUL.properties) as kafka,
        recorder(kafka, tmp_path / "recording") as (process, port),
        prometheus_stack(tmp_path, rules, recorder_port=port) as monitoring,
    ):
        until(lambda: monitoring.query("kafka_txn_samples_taken_total > 2") or None, awaited="samples")
        cluster = {"KafkaTxnHanging", "KafkaTxnLsoHeld", "KafkaTxnGroupHeld", "KafkaTxnLate"}
        assert cluster.isdisjoint(alert["labels"]["alertname"] for alert in monitoring.paged), "all is well"

        hanging = INCIDENTS["never_added"](kafka)
        overdue = INCIDENTS["overdue"](kafka)
        with blocked_consumer(kafka, hanging.topic, "billing", partition=hanging.partition):
            page = monitoring.wait_for_page("firing", "KafkaTxnHanging", topic=hanging.topic, partition="0")
            assert page["annotations"]["summary"] == f"Hanging transaction on {hanging.topic}-0 of production"
            monitoring.wait_for_page("firing", "KafkaTxnGroupHeld", group="billing")
            monitoring.wait_for_page("firing", "KafkaTxnLate", topic=overdue.topic)
            monitoring.wait_for_page("firing", "KafkaTxnLsoHeld", topic=overdue.topic)
            until(lambda: "KafkaTxnLsoHeld" in monitoring.suppressed() or None, awaited="inhibition")
            until(lambda: True if empty_queries(monitoring) == {COMMITTED} else None, awaited="data of each query")

            where = ["--topic", hanging.topic, "--partition", "0", "--start-offset", str(hanging.start_offset)]
            done = on(kafka, "abort", *where, "--confirm", f"{hanging.topic}-0@{hanging.start_offset}")
            assert done.returncode == 0, done.stderr
            monitoring.wait_for_page("resolved", "KafkaTxnHanging", topic=hanging.topic)
            monitoring.wait_for_page("resolved", "KafkaTxnGroupHeld", group="billing")
        overdue.close()
        monitoring.wait_for_page("resolved", "KafkaTxnLsoHeld", topic=overdue.topic)
        monitoring.wait_for_page("resolved", "KafkaTxnLate", topic=overdue.topic)

        kafka.pause(1)
        monitoring.wait_for_page("firing", "KafkaTxnRecorderBlind")
        kafka.resume(1)
        monitoring.wait_for_page("resolved", "KafkaTxnRecorderBlind")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
        monitoring.wait_for_page("firing", "KafkaTxnRecorderDown", job="kafka-txn")
