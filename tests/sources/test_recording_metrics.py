"""What a recorder measures, as Prometheus reads it."""

import builtins
import datetime as dt
import shutil
import subprocess
import urllib.request
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import ago, observation, partition, producer, transaction
from tests.analysis.logged import sample_diagnosis
from tests.sources.recorded import NINE, sample
from toolkit import Cluster
from toolkit.errors import UsageError
from toolkit.lab import Kafka
from toolkit.lab.consumer import blocked_consumer
from toolkit.lab.incidents import INCIDENTS
from toolkit.schema.offsets import GroupLag
from toolkit.schema.recorded import LateTransaction
from toolkit.schema.table import TransactionKey
from toolkit.schema.verdict import Verdict
from toolkit.sources.recording.metrics import LATE, MAX_GROUP_LAGS, Metrics, MetricSeries, measure
from toolkit.sources.recording.sampler import SampleOptions, take_sample

pytest.importorskip("prometheus_client", reason="metrics are an extra")

OPEN_OUTCOMES = "kafka_txn_open_outcomes"
Labels = tuple[tuple[str, str], ...]


def numbers(metrics: Metrics) -> dict[tuple[str, Labels], float]:
    from prometheus_client import generate_latest
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def of_orders(metrics: Metrics, name: str, number: int = 0) -> float | None:
    return numbers(metrics).get((f"kafka_txn_partition_{name}", (("partition", str(number)), ("topic", "orders"))))


def late_on(number: int, leader: int) -> LateTransaction:
    return LateTransaction(sampled_at=NINE, topic="orders", partition=number, broker_id=leader, observed_at=NINE)


def test_a_partition_has_series_while_it_is_held() -> None:
    metrics = Metrics()
    assert of_orders(metrics, "lso_lag_offsets") is None
    one = sample(NINE)
    metrics.on_sample(one, written=True)
    assert of_orders(metrics, "lso_lag_offsets") == 50
    assert of_orders(metrics, "open_transactions") == of_orders(metrics, "hanging_transactions") == 1
    assert of_orders(metrics, "lso_lag_offsets", 1) is None, "nothing is open there"
    metrics.on_sample(replace(one, findings=[]), written=True)
    assert of_orders(metrics, "lso_lag_offsets") is None


def test_the_hold_duration_of_the_lso() -> None:
    metrics = Metrics()
    one = sample(NINE)
    (finding,) = one.findings
    key = TransactionKey("orders", 0, 8, 100)
    metrics.on_sample(replace(one, first_seen={key: NINE - dt.timedelta(seconds=40)}), written=True)
    assert of_orders(metrics, "lso_held_seconds") == 40
    metrics.on_sample(
        replace(one, findings=[replace(finding, opened_at=NINE - dt.timedelta(seconds=50))]), written=True
    )
    assert of_orders(metrics, "lso_held_seconds") == 50
    unknown = replace(finding, opened_at=NINE - dt.timedelta(seconds=50), brokers_time=None)
    seen = {key: NINE - dt.timedelta(seconds=20)}
    metrics.on_sample(replace(one, findings=[unknown], first_seen=seen), written=True)
    assert of_orders(metrics, "lso_held_seconds") == 20, "by the recorder's clock, where no broker's time is known"
    opened_at, held_from = NINE - dt.timedelta(seconds=50), NINE - dt.timedelta(seconds=30)
    held = replace(finding, opened_at=opened_at, held_from=held_from)
    metrics.on_sample(replace(one, findings=[held]), written=True)
    assert of_orders(metrics, "lso_held_seconds") == 30


def test_healthy_transactions_appear_after_two_samples() -> None:
    metrics = Metrics()
    observed = observation(transaction(), partitions=[partition()], producers=[producer()])
    one = replace(
        sample(NINE),
        observation=observed,
        first_seen={TransactionKey("orders", 0, 7, 100): observed.observed_at},
        findings=sample_diagnosis(observed, observed).findings(),
    )
    metrics.on_sample(one, written=True)
    assert of_orders(metrics, "open_transactions") is None
    metrics.on_sample(replace(one, first_seen={TransactionKey("orders", 0, 7, 100): ago(seconds=10)}), written=True)
    assert of_orders(metrics, "open_transactions") == 1
    assert of_orders(metrics, "hanging_transactions") == 0
    assert numbers(metrics)["kafka_txn_transactions", (("verdict", "ongoing"),)] == 1


def test_a_commit_without_its_marker_has_a_series_of_its_own() -> None:
    metrics = Metrics()
    one = sample(NINE)
    (finding,) = one.findings
    skipped = replace(finding, verdict=Verdict.STUCK_ENDING, outcome="commit")
    still_ending = replace(finding, partition=1, verdict=Verdict.ENDING, outcome="commit")
    metrics.on_sample(replace(one, findings=[skipped, still_ending]), written=True)
    assert of_orders(metrics, "commits_without_marker") == 1
    assert of_orders(metrics, "hanging_transactions") == 0
    assert of_orders(metrics, "commits_without_marker", 1) is None, "its coordinator is writing the marker"
    found = numbers(metrics)
    counts = {dict(labels)["outcome"]: count for (name, labels), count in found.items() if name == OPEN_OUTCOMES}
    assert counts == {"undecided": 0, "abort": 0, "commit": 2, "unknown": 0}
    metrics.on_sample(replace(one, findings=[replace(finding, outcome="abort")]), written=True)
    assert of_orders(metrics, "commits_without_marker") == 0
    assert numbers(metrics)[OPEN_OUTCOMES, (("outcome", "abort"),)] == 1


def test_late_partitions_do_not_have_the_name_of_kafkas_metric_which_counts_by_the_brokers_maximum_timeout() -> None:
    assert LATE == "kafka_txn_broker_late_partitions"
    metrics = Metrics()
    metrics.on_sample(replace(sample(NINE), late_transactions=[late_on(0, leader=2)] * 2), written=True)
    found = numbers(metrics)
    assert {labels: value for (name, labels), value in found.items() if name == LATE} == {
        (("broker_id", "1"),): 0, (("broker_id", "2"),): 1, (("broker_id", "3"),): 0,
    }  # fmt: skip
    assert of_orders(metrics, "late_transactions") == 2


def test_unreadable_partitions_keep_their_last_values() -> None:
    metrics = Metrics()
    one = sample(NINE)
    metrics.on_sample(one, written=True)
    (finding,) = one.findings
    unread = replace(
        finding, verdict=Verdict.UNKNOWN, producer_id=None, offsets_held=None, error="NETWORK_EXCEPTION: x"
    )
    metrics.on_sample(replace(one, findings=[unread]), written=True)
    assert of_orders(metrics, "lso_lag_offsets") == 50
    later = sample(NINE + dt.timedelta(seconds=10), error="NETWORK_EXCEPTION: gone")
    metrics.on_sample(later, written=False)
    metrics.on_skip(3)
    found = numbers(metrics)
    assert of_orders(metrics, "lso_lag_offsets") == 50
    assert found["kafka_txn_last_sample_timestamp_seconds", ()] == NINE.timestamp()
    counts = {
        name: found[f"kafka_txn_samples_{name}_total", ()] for name in ("taken", "failed", "skipped", "unwritten")
    }
    assert counts == {"taken": 3, "failed": 1, "skipped": 3, "unwritten": 1}


def test_blocked_groups_have_series() -> None:
    metrics = Metrics()
    one = sample(NINE)
    (finding,) = one.findings
    findings = [
        replace(finding, partition=number, groups_held=groups)
        for number, groups in enumerate((("a", "b"), ("b",), None))
    ]
    metrics.on_sample(replace(one, findings=findings), written=True)
    assert by_group(metrics) == {"a": 1, "b": 2}
    unread = replace(finding, partition=0, producer_id=None, groups_held=None, error="NETWORK_EXCEPTION: x")
    metrics.on_sample(replace(one, findings=[unread, *findings[2:]]), written=True)
    assert by_group(metrics) == {"a": 1, "b": 1}, "what could not be read keeps its numbers"
    assert numbers(metrics)["kafka_txn_last_sample_unread_partitions", ()] == 1
    metrics.on_sample(replace(one, findings=[]), written=True)
    assert by_group(metrics) == {}


def by_group(metrics: Metrics) -> dict[str, float]:
    found = numbers(metrics).items()
    return {
        dict(labels)["group"]: value for (name, labels), value in found if name == "kafka_txn_group_held_partitions"
    }


def test_ten_thousand_partitions_give_a_bounded_number_of_series() -> None:
    metrics = Metrics()
    one = sample(NINE)
    (finding,) = one.findings
    numbered = [replace(finding, partition=number, groups_held=(f"group-{number}",)) for number in range(10_000)]
    held = [replace(each, opened_at=NINE - dt.timedelta(seconds=each.partition or 0)) for each in numbered]
    alive = [*held[:100], *(replace(each, verdict=Verdict.LONG) for each in held[100:])]
    late = [late_on(number, leader=1 + number % 3) for number in range(10_000)]
    metrics.on_sample(replace(one, findings=alive, late_transactions=late), written=True)
    found = numbers(metrics)
    assert len(found) < 7100, "6 for each of 1,000 partitions, 1 for each of 1,000 groups, and some"
    parts = {int(dict(labels)["partition"]) for name, labels in found if name == "kafka_txn_partition_lso_held_seconds"}
    assert parts == {*range(100), *range(9100, 10_000)}, "what hangs, and what has been held for longest"
    assert found["kafka_txn_last_sample_omitted_partitions", ()] == 9000
    assert found["kafka_txn_transactions", (("verdict", "hanging"),)] == 100
    assert found["kafka_txn_transactions", (("verdict", "long"),)] == 9900
    assert sum(value for (name, _), value in found.items() if name == LATE) == 10_000
    healthy = [replace(each, verdict=Verdict.CLEAR, producer_id=None) for each in numbered]
    assert len(alive) == len(healthy)
    metrics.on_sample(replace(one, findings=healthy), written=True)
    assert len(numbers(metrics)) < 50, "a healthy cluster has no series by partition, however large it is"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_metric_names_follow_prometheus_rules() -> None:
    from prometheus_client import generate_latest

    metrics = Metrics()
    one = sample(NINE)
    (finding,) = one.findings
    metrics.on_sample(replace(one, findings=[replace(finding, groups_held=("billing",))]), written=True)
    text = generate_latest(metrics.registry)
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


@pytest.mark.lab
def test_a_group_has_series_while_it_is_blocked(kafka: Kafka) -> None:
    """Markers are not distinguished from records: the recorder reads no log for it."""
    metrics, due = Metrics(), dt.datetime.now(dt.UTC)
    with Cluster(kafka.bootstrap_servers) as cluster:
        staged = INCIDENTS["never_added"](kafka, records=5)
        with blocked_consumer(kafka, staged.topic, f"billing-{staged.topic}"):
            pass
        first = take_sample(cluster, SampleOptions(interval_ms=1_000, with_held_groups=True), due=due)
        second = take_sample(cluster, SampleOptions(interval_ms=1_000, with_held_groups=True), due=due, before=first)
        (lag,) = cluster.group_lag_rows(f"billing-{staged.topic}")
        metrics.on_sample(second, written=True)
        labels = (("group", f"billing-{staged.topic}"), ("partition", "0"), ("topic", staged.topic))
        output = numbers(metrics)
        assert output["kafka_txn_group_held_offsets", labels] == lag["lag"] - lag["client_lag"] >= lag["held"] == 5
        assert output["kafka_txn_group_behind_offsets", labels] == lag["client_lag"]
        assert output["kafka_txn_group_series_omitted", ()] == 0
        metrics.on_sample(replace(second, held_groups=None), written=True)
        assert numbers(metrics)["kafka_txn_group_held_offsets", labels], "unreachable groups keep theirs"
        metrics.on_sample(replace(second, held_groups=[]), written=True)
        assert ("kafka_txn_group_held_offsets", labels) not in numbers(metrics)


def test_the_number_of_groups_is_bounded_and_others_are_counted() -> None:
    lag = GroupLag(group_id="one", topic="orders", behind=0)
    lags = [replace(lag, partition=number, held=number) for number in range(MAX_GROUP_LAGS + 10)]
    series = measure(replace(sample(NINE), held_groups=lags), MetricSeries())
    assert len(series.group_lags) == MAX_GROUP_LAGS
    assert series.group_lags_omitted == 9, "one of them holds nothing"
    assert min(numbers.held for numbers in series.group_lags.values()) == 10


def test_metrics_are_served_only_on_their_address() -> None:
    metrics, other = Metrics(), Metrics()
    port = metrics.serve("127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b"kafka_txn_samples_taken_total 0.0" in answer.read()
        with pytest.raises(UsageError, match=rf"^Cannot listen on 127\.0\.0\.1:{port}: Address already in use\.$"):
            other.serve("127.0.0.1", port)
    finally:
        metrics.close()
        other.close()


def test_without_prometheus_client_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    really = builtins.__import__

    def refuse(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return really(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(UsageError, match=r"--metrics-port needs prometheus-client\. pip install prometheus-client"):
        Metrics()
