"""One of three brokers is dead, or silent: the others answer, and what it alone knows is a gap."""

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.sources.fetched_chunks import fetched_chunks
from toolkit import Cluster
from toolkit.config import ClientConfig
from toolkit.formats.coordinator_records import OFFSETS_TOPIC
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, coordinator, until
from toolkit.lab.incidents import EVERYDAY
from toolkit.schema.live import Finding
from toolkit.sources.live import broker_client, partition_log
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.coordinators import CoordinatorTopic
from toolkit.sources.live.group_offsets import groups_with_offsets

pytestmark = pytest.mark.lab

LOST = 3


@pytest.fixture(scope="module")
def three() -> Iterator[Kafka]:
    properties = {
        **EVERYDAY.properties,
        "transaction.state.log.replication.factor": "1",  # every id has one coordinator, and can lose it
        "transaction.state.log.num.partitions": "9",
        "offsets.topic.replication.factor": "1",
    }
    with Kafka("4.3.1", brokers=3, properties=properties) as kafka:
        yield kafka


def partitions(cluster: BrokerClient, topic: str, broker_id: int) -> list[int]:
    """Those with a leader, as one broker knows by now."""
    request = broker_client.Metadata(
        topics=[broker_client.Metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    (found,) = cluster.send_one(request, broker_id=broker_id).topics
    return [each.partition_index for each in found.partitions if each.leader_id >= 0]


def is_led(cluster: BrokerClient, topic: str) -> bool | None:
    return True if partitions(cluster, topic, 1) else None


def create(cluster: BrokerClient, topic: str, replicas: list[list[int]]) -> None:
    new = broker_client.CreateTopics.CreatableTopic
    assignments = [
        new.CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(replicas)
    ]
    request = new(name=topic, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=[])
    controller = cluster.send_one(broker_client.Metadata(topics=[])).controller_id
    created = cluster.send_one(broker_client.CreateTopics(topics=[request], timeout_ms=10_000), broker_id=controller)
    assert [each.error_code for each in created.topics] == [0]


@pytest.fixture(scope="module")
def spread(three: Kafka) -> Kafka:
    """With a topic of which each broker leads a partition; something hangs on two of them."""
    with BrokerClient(ClientConfig(three.bootstrap_servers)) as connected:
        create(connected, "spread", [[1], [2], [3]])
        until(
            lambda: True if all(len(partitions(connected, "spread", broker)) == 3 for broker in (1, 2, 3)) else None,
            awaited="the leaders of spread",
        )
        producer = TxnProducer(connected, "spread-producer").init()
        for partition in (0, 1):
            producer.send("spread", partition)
    return three


@pytest.fixture(autouse=True)
def all_run(three: Kafka) -> Iterator[None]:
    """Who was killed is back for the next test."""
    yield
    three.start_broker(LOST)


def complete(cluster: Cluster) -> bool:
    return not cluster.observe(topics=["spread"]).coverage.gaps


def test_an_unresponsive_broker_delays_only_its_own_requests(spread: Kafka) -> None:
    with Cluster(spread.bootstrap_servers, timeout=10) as cluster:
        assert sorted(cluster.client.brokers) == [1, 2, 3]
        process = spread._process(LOST).pid
        os.kill(process, signal.SIGSTOP)
        try:
            answers = cluster.client.send([(broker, broker_client.ListTransactions()) for broker in (1, 2, LOST)])
            assert [answer.error is None for answer in answers] == [True, True, False]
            assert max(answers[0].observed_at, answers[1].observed_at) < answers[2].observed_at
            text = str(answers[2].error_text)
            assert text.startswith("REQUEST_TIMED_OUT: Broker 3 at 127.0.0.1:")
            assert text.endswith(" did not answer ListTransactions in time")
            (again,) = cluster.client.send([(LOST, broker_client.ListTransactions())])
            assert again.error is answers[2].error, "a broker that timed out is not waited for at every step"
            assert not complete(cluster)
            rows = cluster.finding_rows(topics=["spread"], partitions=[0, 1], recheck_after=0.1)
            assert {row["verdict"] for row in rows} == {"unknown"}
        finally:
            os.kill(process, signal.SIGCONT)
        until(lambda: True if complete(cluster) else None, awaited="a retry of broker 3")


def test_reading_a_log_continues_on_the_new_leader(three: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch by batch, while the leader dies; offsets that no other replica has are reported as missing."""
    monkeypatch.setattr(partition_log, "FETCH_BYTES", 1)
    with Cluster(three.bootstrap_servers) as cluster, Cluster(three.bootstrap_servers, timeout=1) as hasty:
        producer = TxnProducer(cluster.client, "moving-producer").init()
        for topic, replicas in (("moving", [LOST, 1]), ("alone", [LOST])):
            create(cluster.client, topic, [replicas])
            until(partial(is_led, cluster.client, topic), awaited=f"the leader of {topic}")
            for _ in range(6):
                producer.send(topic, 0)
        moving, alone = fetched_chunks(cluster, "moving"), fetched_chunks(hasty, "alone")
        read, lost = [next(moving)], [next(alone)]
        three.kill(LOST)
        read += moving
        lost += alone
    assert [piece.error for piece in read] == [None] * 6
    assert [int(piece.headers["base_offset"][0]) for piece in read] == list(range(6))
    assert [read[0].broker_id, read[-1].broker_id] == [LOST, 1]
    known = sum(len(piece.headers) for piece in lost)
    assert [piece.error for piece in lost[:-1]] == [None] * known
    assert str(lost[-1].error).endswith(f"; offsets {known} to 5 were not read")


def test_groups_of_a_partition_without_leader_are_missing(spread: Kafka) -> None:
    """`lag` had 10 of 20 groups, with exit code 0; a held LSO had no group that waits for it."""
    with BrokerClient(ClientConfig(spread.bootstrap_servers)) as connected:
        for group in (groups := [f"group-{number}" for number in range(12)]):
            consumer = Consumer({"bootstrap.servers": spread.bootstrap_servers, "group.id": group})
            consumer.commit(offsets=[TopicPartition("spread", 0, 0)], asynchronous=False)
            consumer.close()
        coordinators = {group: coordinator(connected, group, group=True) for group in groups}
    assert LOST in coordinators.values()
    spread.kill(LOST)
    with Cluster(spread.bootstrap_servers) as cluster:

        def without_leader() -> str | None:
            return CoordinatorTopic.read(cluster.client, OFFSETS_TOPIC).leaderless

        until(without_leader, awaited="metadata without that leader")
        listed, missing = groups_with_offsets(cluster.client)
        assert {*groups} - {*listed} == {group for group, broker_id in coordinators.items() if broker_id == LOST}
        (gap,) = missing
        assert gap.startswith("a leader of __consumer_offsets partitions ")
        assert gap.endswith(": no broker lists their groups")
        (finding,) = cluster.records(Finding, topics="spread", partitions=[1])
        assert finding.groups_held is None
