"""A consumer waits for its group's offsets: explain finds the transaction on __consumer_offsets that holds it."""

import json
from collections.abc import Iterator

import pytest

from tests.java_gateway import java_clients
from tests.process import on
from tests.provoked import printed
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS, StagedIncident

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def stuck(kafka: Kafka) -> StagedIncident:
    """A transaction on __consumer_offsets that nobody ends; the group's only offset is pending in it."""
    return INCIDENTS["offsets_never_added"](kafka)


@pytest.fixture(scope="module")
def data(stuck: StagedIncident, kafka: Kafka) -> str:
    """The topic that the group reads."""
    (row,) = json.loads(on(kafka, "lag", "--group", stuck.group, "--format", "json").stdout)["rows"]
    topic: str = row["topic"]
    return topic


@pytest.fixture(scope="module")
def position_timeout(
    kafka: Kafka, stuck: StagedIncident, data: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """What Kafka's Java consumer prints about it: it names the partition, and not the group."""
    with java_clients(kafka, tmp_path_factory.mktemp("java")) as java:
        consumer = java.consumer(stuck.group, default_api_timeout_ms=4_000)
        partitions = java.java.java.util.ArrayList()
        partitions.add(java.partition(data))
        consumer.assign(partitions)
        yield printed(lambda: consumer.position(java.partition(data)))


def hanging(kafka: Kafka, text: str) -> set[tuple[str, int]]:
    """Partitions with a finding that hangs, in the answer about a text."""
    explained = on(kafka, "explain", text, "--recheck-after", "1", "--format", "json")
    (row,) = json.loads(explained.stdout)["rows"]
    found = {(each["topic"], each["partition"]) for each in row["findings"] if each["verdict"] == "hanging"}
    assert explained.returncode == (1 if found else 0), explained.stdout
    return found


def test_a_java_consumer_that_cannot_determine_its_position(
    kafka: Kafka, stuck: StagedIncident, data: str, position_timeout: str
) -> None:
    assert f"expired before the position for partition {data}-0 could be determined" in position_timeout
    explained = on(kafka, "explain", position_timeout, "--recheck-after", "1")
    assert explained.returncode == 1
    assert explained.stdout.startswith("unstable-offset-commit: ")
    assert f"{stuck.topic}-{stuck.partition} " in explained.stdout
    command = f"kafka-txn abort --bootstrap-server {kafka.bootstrap_servers}"
    assert f"{command} --topic {stuck.topic} --partition {stuck.partition}" in explained.stdout
    assert f"group {stuck.group}, {data}-0: UNSTABLE_OFFSET_COMMIT" in explained.stdout


@pytest.mark.parametrize(
    "text",
    [
        "java.lang.IllegalArgumentException: requirement failed: Failed to get records for spark-executor-{group} "
        "{topic}-0 11 after polling for 120000",
        "java.lang.IllegalStateException: Cannot fetch offset 11 (GroupId: {group}, TopicPartition: {topic}-0). ",
        "Cannot fetch record for offset 11 (GroupId: spark-kafka-source-5f44--16-executor, TopicPartition: {topic}-0)",
    ],
)
def test_a_spark_task_whose_partition_or_group_is_named(
    kafka: Kafka, stuck: StagedIncident, data: str, text: str
) -> None:
    held = INCIDENTS["never_added"](kafka)
    on_data = text.format(group="nobody", topic=held.topic)
    found = hanging(kafka, on_data)
    assert (held.topic, held.partition) in found
    assert {topic for topic, _ in found} <= {held.topic, stuck.topic}  # other incidents hold other groups' partitions
    found = hanging(kafka, text.format(group=stuck.group, topic=data))
    assert (stuck.topic, stuck.partition) in found
    assert {topic for topic, _ in found} == {stuck.topic}
