"""Errors that real clients print on a real broker go through ``explain``, which names what they are.

Errors of Streams, Connect, franz-go, Flink and Spark are in ``tests/analysis/symptom_texts.tsv``, with their sources.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolkit
from tests.java_gateway import java_clients
from tests.process import on, run
from tests.provoked import PROPERTIES, Provoked, create_topics, impostor, printed, provoked
from toolkit import Cluster
from toolkit.actions import plan_abort
from toolkit.analysis.symptoms.recognition import NamedResources
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.queries import until
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provoked]:
    """A cluster on which every error was provoked; both of its brokers run."""
    with provoked(tmp_path_factory.mktemp("provoked")) as here:
        yield here


@pytest.mark.parametrize(
    ("provocation", "symptom", "client"),
    [
        ("java_fenced", "producer-fenced", "Java"),
        ("java_too_slow_to_send", "producer-fenced", "Java"),
        ("java_too_slow_to_commit", "invalid-txn-state", "Java"),
        ("broker_rolled_back", "rolled-back-by-timeout", "broker"),
        ("java_timeout_too_large", "transaction-timeout-too-large", "any client"),
        ("java_ended_by_another", "invalid-txn-state", "Java"),
        ("java_out_of_order", "out-of-order-sequence", "Java"),
        ("java_failed_earlier", "failed-earlier", "Java"),
        ("broker_out_of_order", "out-of-order-sequence", "broker"),
        ("java_expired", "invalid-producer-id-mapping", "Java"),
        ("java_unstable_offsets", "unstable-offset-commit", "Java"),
        ("librdkafka_fenced", "producer-fenced", "librdkafka"),
        ("librdkafka_timeout_too_large", "transaction-timeout-too-large", "any client"),
        ("librdkafka_ended_by_another", "end-txn-invalid-state", "librdkafka"),
        ("librdkafka_out_of_order", "out-of-order-sequence", "librdkafka"),
        ("librdkafka_unstable_offsets", "unstable-offset-commit", "librdkafka"),
        ("kafka_python_fenced_coordinator", "transaction-coordinator-fenced", "kafka-python"),
        ("tool_lag_of_one", "lag-stuck-at-one", "kafka-consumer-groups.sh"),
        ("tool_lag", "read-committed-stall", "kafka-consumer-groups.sh"),
        ("broker_skipped_marker", "marker-skipped", "broker"),
        ("java_init_timeout", "init-transactions-timeout", "Java"),
        ("java_commit_timeout", "transactional-call-timeout", "Java"),
        ("java_offsets_timeout", "send-offsets-timeout", "Java"),
        ("librdkafka_no_answer", "transactional-call-timeout", "librdkafka"),
        ("librdkafka_concurrent", "concurrent-transactions", "any client"),
    ],
)
def test_the_error_of_a_client_is_recognized(here: Provoked, provocation: str, symptom: str, client: str) -> None:
    text = here.texts[provocation]
    explained = toolkit.explain(text)
    assert explained.symptoms == (symptom,), text
    assert client in explained.recognized[0].clients, text


@pytest.mark.full
def test_a_batch_that_its_leader_cannot_verify_is_abortable(tmp_path: Path) -> None:
    """KIP-890: so a broker answers clients from 3.8 on that do not know transaction version 2."""
    verifying = {**PROPERTIES, "transaction.partition.verification.enable": "true"}
    with (
        Kafka("4.3.1", properties=verifying) as kafka,
        java_clients(kafka, tmp_path, version="3.9.2") as java,
        Cluster(kafka.bootstrap_servers) as cluster,
    ):
        create_topics(kafka, ["orders"])
        producer = java.open_producer("late", "orders")
        impostor(cluster, "late").end(commit=False)
        explained = toolkit.explain(printed(lambda: java.send(producer, "orders")))
    assert explained.symptoms == ("transaction-abortable",)


def test_committed_records_whose_marker_was_skipped_are_never_aborted(here: Provoked) -> None:
    """KAFKA-20734: the commit returned OK while the partition had no leader, and its marker was skipped."""

    def diagnosed() -> Row | None:
        (found,) = here.cluster.finding_rows(topics=["left"], recheck_after=1)
        return None if found["verdict"] == "unknown" else found  # until the coordinators have loaded

    row = until(diagnosed, awaited="a verdict")
    assert (row["verdict"], row["missing"]) == ("stuck_ending", []), row
    assert (row["outcome"], row["action"]) == ("commit", "complete")
    without_evidence = here.cluster.findings(topics=["left"], recheck_after=1, log_evidence=False).iloc[0]
    assert (without_evidence["verdict"], without_evidence["outcome"]) == ("unknown", "unknown")
    plan = plan_abort(here.cluster, without_evidence)
    with pytest.raises(ActionRefused, match="is never aborted, which cannot be overridden: its records were committed"):
        plan.preflight(override="unknown", recheck_after=1)


def test_every_provoked_error_is_checked(here: Provoked) -> None:
    (cases,) = test_the_error_of_a_client_is_recognized.pytestmark  # type: ignore[attr-defined]
    assert {name for name, *_ in cases.args[1]} == here.texts.keys()


@pytest.mark.parametrize(
    ("provocation", "expected"),
    [
        ("broker_rolled_back", NamedResources(transactional_ids=("slow",))),
        ("java_unstable_offsets", NamedResources(groups=("billing",), partitions=(TopicPartition("group", 0),))),
        ("librdkafka_unstable_offsets", NamedResources(partitions=(TopicPartition("group", 0),))),
        ("tool_lag_of_one", NamedResources(groups=("up-to-date",), partitions=(TopicPartition("lag", 0),))),
    ],
)
def test_the_named_id_is_diagnosed(here: Provoked, provocation: str, expected: NamedResources) -> None:
    assert toolkit.explain(here.texts[provocation]).named == expected


def test_a_stuck_group_is_explained_by_the_transaction_on_its_offsets(here: Provoked) -> None:
    servers = here.kafka.bootstrap_servers
    text = here.texts["java_unstable_offsets"]
    done = run("explain", "--recheck-after", "0", "--format", "json", "--bootstrap-server", servers, stdin=text)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["symptom"] == "unstable-offset-commit"
    assert row["not_checked"] == []
    open_there = {each["transactional_id"]: each["verdict"] for each in row["findings"] if each["topic"] != "group"}
    assert open_there["group"] == "ongoing"  # and of another group whose offsets are on the same partition
    assert any("group billing, group-0: UNSTABLE_OFFSET_COMMIT" in each for each in row["observed"]), row["observed"]


def test_the_history_decides_between_two_causes(here: Provoked) -> None:
    """Transaction version 2 raises the epoch with every end, so only times decide."""
    for text, transactional_id, reported in (
        (here.texts["broker_rolled_back"], (), "past its timeout of 1 s"),
        (here.texts["java_fenced"], ("fenced",), "a new instance"),
    ):
        explained = toolkit.explain(text, here.cluster, transactional_ids=transactional_id, recheck_after=0)
        assert explained.checks
        assert explained.checks.not_checked == ()
        assert any(reported in (each.reason or "") for each in explained.checks.history), explained
        assert "nothing of it is open on any partition" in repr(explained)


def test_a_commit_without_marker_is_distinguished_from_an_abortable_one(here: Provoked) -> None:
    """KAFKA-20734: an abort marker would lose what was committed."""
    explained = toolkit.explain(here.texts["broker_skipped_marker"], here.cluster, recheck_after=0)
    assert explained.named.partitions == (("left", 0),)
    assert explained.named.transactional_ids == (here.ids["skipped"],)
    assert explained.checks
    assert [each.ended for each in explained.checks.history if each.kind == "transaction"] == ["commit"]
    assert [(each.topic, each.verdict) for each in explained.checks.findings] == [("left", "stuck_ending")]
    assert {each.action for each in explained.checks.findings} == {"complete"}
    assert "Abort after a commit: records that the producer committed are lost" in " ".join(repr(explained).split())


def test_lag_behind_a_hanging_transaction_is_explained_with_its_remedy(here: Provoked) -> None:
    hanging = here.hanging
    done = on(here.kafka, "explain", here.texts["tool_lag"], "--recheck-after", "0")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"Named: group blocked, {hanging.topic}-0" in done.stdout
    where = f"--topic {hanging.topic} --partition 0 --start-offset {hanging.start_offset}"
    command = f"kafka-txn abort --bootstrap-server {here.kafka.bootstrap_servers} {where}"
    assert command in done.stdout
    assert f"group blocked, {hanging.topic}-0: lag" in done.stdout


def test_a_producer_id_is_found_on_every_partition(here: Provoked) -> None:
    text = f"OutOfOrderSequenceException: Out of order sequence number for producer {here.hanging.producer_id}"
    found = toolkit.explain(text, here.cluster, recheck_after=0).findings()
    (row,) = found[found.topic == here.hanging.topic].to_dict("records")
    assert (row["producer_id"], row["verdict"]) == (here.hanging.producer_id, "hanging")


def test_a_text_without_names_is_answered_with_all_findings(here: Provoked) -> None:
    done = on(here.kafka, "explain", "TRANSACTION_ABORTABLE", "--recheck-after", "0")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{here.hanging.topic}-0" in done.stdout


def test_a_missing_resource_is_not_checked_and_others_are(here: Provoked) -> None:
    done = on(here.kafka, "explain", "PRODUCER_FENCED", "--topic", "no-such-topic", "--transactional-id", "no-such-id",
              "--group", "up-to-date", "--recheck-after", "0")  # fmt: skip
    assert done.returncode == 3, done.stdout + done.stderr
    assert "not checked: Topic no-such-topic:" in done.stdout
    assert "transactional id no-such-id: TRANSACTIONAL_ID_NOT_FOUND" in done.stdout
    assert "group up-to-date, lag-0: lag 1, of it 0 to read, 0 held, 1 that no consumer receives" in done.stdout


def test_resources_of_an_unknown_text_are_checked(here: Provoked) -> None:
    done = on(here.kafka, "explain", "it does not work", "--topic", "lag", "--partition", "0", "--recheck-after", "0")
    assert done.returncode == 4, done.stdout + done.stderr
    assert done.stdout.startswith("unknown  ")
    assert "lag-0" in done.stdout
