"""What a recorder measures, as Prometheus reads it."""

import builtins
import datetime as dt
import re
import urllib.request
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import ago, look, partition, producer, transaction
from tests.sources.recorded import NINE, sample
from toolkit.analysis.sampled import judge_sample
from toolkit.errors import UsageError
from toolkit.schema import Row
from toolkit.sources.recording.metrics import LATE, Metrics
from toolkit.sources.recording.sample import Sample

pytest.importorskip("prometheus_client", reason="metrics are an extra")

Labels = tuple[tuple[str, str], ...]


def numbers(metrics: Metrics) -> dict[tuple[str, Labels], float]:
    from prometheus_client import generate_latest
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def of_orders(metrics: Metrics, name: str, number: int = 0) -> float | None:
    return numbers(metrics).get((f"kafka_txn_partition_{name}", (("partition", str(number)), ("topic", "orders"))))


def taken(one: Sample, *, rows: list[Row] | None = None, late: list[Row] | None = None) -> Sample:
    """The sample with other findings or late transactions."""
    tables = dict(one.tables)
    tables |= {} if rows is None else {"findings": rows}
    tables |= {} if late is None else {"late_transactions": late}
    return replace(one, tables=tables)


def test_a_partition_shows_as_long_as_it_has_something_to_tell() -> None:
    metrics = Metrics()
    assert of_orders(metrics, "lso_lag_offsets") is None
    one = sample(NINE)
    metrics.taken(one, written=True)
    assert of_orders(metrics, "lso_lag_offsets") == 50
    assert of_orders(metrics, "open_transactions") == of_orders(metrics, "hanging_transactions") == 1
    assert of_orders(metrics, "lso_lag_offsets", 1) is None, "nothing is open there"
    metrics.taken(taken(one, rows=[]), written=True)
    assert of_orders(metrics, "lso_lag_offsets") is None


def test_how_long_the_lso_is_held() -> None:
    metrics = Metrics()
    one = sample(NINE)
    (row,) = one.tables["findings"]
    key = ("orders", 0, 8, 100)
    metrics.taken(replace(one, first_seen={key: NINE - dt.timedelta(seconds=40)}), written=True)
    assert of_orders(metrics, "lso_held_seconds") == 40
    metrics.taken(taken(one, rows=[{**row, "opened_at": NINE - dt.timedelta(seconds=50)}]), written=True)
    assert of_orders(metrics, "lso_held_seconds") == 50
    held = {"opened_at": NINE - dt.timedelta(seconds=50), "held_from": NINE - dt.timedelta(seconds=30)}
    metrics.taken(taken(one, rows=[{**row, **held}]), written=True)
    assert of_orders(metrics, "lso_held_seconds") == 30


def test_healthy_transactions_show_once_they_last_for_two_samples() -> None:
    metrics = Metrics()
    seen = look(transaction(), partitions=[partition()], producers=[producer()])
    rows = judge_sample(seen, seen)
    one = taken(replace(sample(NINE), look=seen, first_seen={("orders", 0, 7, 100): seen.observed_at}), rows=rows)
    metrics.taken(one, written=True)
    assert of_orders(metrics, "open_transactions") is None
    metrics.taken(replace(one, first_seen={("orders", 0, 7, 100): ago(seconds=10)}), written=True)
    assert of_orders(metrics, "open_transactions") == 1
    assert of_orders(metrics, "hanging_transactions") == 0
    assert numbers(metrics)["kafka_txn_transactions", (("verdict", "ongoing"),)] == 1


def test_late_partitions_are_counted_under_kafkas_name() -> None:
    mbean = "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount"
    rule = re.sub(r"kafka\.server:type=(.+),name=(.+)", r"kafka_server_\1_\2", mbean)  # of many JMX exporters
    assert rule.lower() == LATE
    metrics = Metrics()
    late = [{"topic": "orders", "partition": 0, "broker_id": 2}] * 2
    metrics.taken(taken(sample(NINE), late=list(late)), written=True)
    found = numbers(metrics)
    assert {labels: value for (name, labels), value in found.items() if name == LATE} == {
        (("broker_id", "1"),): 0, (("broker_id", "2"),): 1, (("broker_id", "3"),): 0,
    }  # fmt: skip
    assert of_orders(metrics, "late_transactions") == 2


def test_what_cannot_be_seen_keeps_its_last_numbers() -> None:
    metrics = Metrics()
    one = sample(NINE)
    metrics.taken(one, written=True)
    (row,) = one.tables["findings"]
    unread = {**row, "verdict": "unknown", "producer_id": None, "offsets_held": None, "error": "NETWORK_EXCEPTION: x"}
    metrics.taken(taken(one, rows=[unread]), written=True)
    assert of_orders(metrics, "lso_lag_offsets") == 50
    later = sample(NINE + dt.timedelta(seconds=10), error="NETWORK_EXCEPTION: gone")
    metrics.taken(later, written=False)
    metrics.skipped(3)
    found = numbers(metrics)
    assert of_orders(metrics, "lso_lag_offsets") == 50
    assert found["kafka_txn_last_sample_timestamp_seconds", ()] == NINE.timestamp()
    counts = {
        name: found[f"kafka_txn_samples_{name}_total", ()] for name in ("taken", "failed", "skipped", "unwritten")
    }
    assert counts == {"taken": 3, "failed": 1, "skipped": 3, "unwritten": 1}


def test_they_are_served_here_and_nowhere_else() -> None:
    metrics, other = Metrics(), Metrics()
    port = metrics.serve("127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"kafka_txn_samples_taken_total 0.0" in answer.read()
        with pytest.raises(UsageError, match=rf"^127\.0\.0\.1:{port} cannot be listened at: Address already in use\.$"):
            other.serve("127.0.0.1", port)
    finally:
        metrics.close()
        other.close()


def test_without_prometheus_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    really = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return really(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError, match=r"--metrics-port needs prometheus-client\. pip install 'kafka-txn-toolkit\["):
        Metrics()
