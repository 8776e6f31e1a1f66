"""The tables of a live cluster."""

import uuid
from collections.abc import Callable, Iterator

import pytest
from kafka.protocol import admin

from tests.builders import commit_offset
from toolkit import Cluster
from toolkit.errors import NotFound, UsageError
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, blocked_consumer, until, write_committed
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.schema import table
from toolkit.sources.live import broker_client
from toolkit.sources.live.cluster import ClusterEvidence
from toolkit.sources.live.coordinators import GROUP, find_coordinators
from toolkit.sources.source import TableArguments

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def opened(kafka: Kafka) -> Iterator[StagedIncident]:
    """A healthy transaction, open on partition 0 of a topic with two partitions."""
    with INCIDENTS["open_young"](kafka) as staged:
        yield staged


@pytest.fixture
def id_of(cluster: Cluster) -> Callable[..., TxnProducer]:
    """Producers with ids of a prefix that no other test has."""
    prefix = uuid.uuid4().hex[:8]
    return lambda name, **options: TxnProducer(cluster.client, f"{prefix}-{name}", **options).init()


def test_a_broker_that_is_not_there_is_an_error(cluster: Cluster, opened: StagedIncident) -> None:
    for ask in (cluster.producers, cluster.findings):
        with pytest.raises(NotFound, match=r"^Broker 9 is not in the cluster; it has 1\. Name one of these\.$"):
            ask(topics=[opened.topic], broker_id=9)


def test_an_id_without_open_transaction_has_no_start_time(
    cluster: Cluster, id_of: Callable[..., TxnProducer], opened: StagedIncident
) -> None:
    ended = id_of("ended")
    ended.add(opened.topic, 1)
    ended.send(opened.topic, 1)
    ended.end(commit=True)
    idle = id_of("idle")
    rows = cluster.transaction_rows(transactional_id_pattern=f"{idle.transactional_id.partition('-')[0]}-.*")
    assert [(row["state"], row["start_time"]) for row in rows] == [("CompleteCommit", None), ("Empty", None)]


def test_a_pattern_matches_the_whole_id(cluster: Cluster, id_of: Callable[..., TxnProducer]) -> None:
    name = id_of("payments-7").transactional_id
    assert cluster.transaction_rows(transactional_id_pattern=name[:-1]) == []
    assert len(cluster.transaction_rows(transactional_id_pattern=f"{name[:-1]}[0-9]")) == 1
    with pytest.raises(UsageError, match=r"^'\[' is not a regular expression"):
        cluster.transactions(transactional_id_pattern="[")


def test_states_have_kafkas_names(cluster: Cluster, opened: StagedIncident) -> None:
    assert {row["state"] for row in cluster.transaction_rows(states=["Ongoing", "Empty"])} <= {"Ongoing", "Empty"}
    with pytest.raises(UsageError, match=r"^No such state: Open\. Use CompleteAbort, "):
        cluster.transactions(states=["Open"])


def test_duration_counts_open_transactions_only(cluster: Cluster, id_of: Callable[..., TxnProducer]) -> None:
    """Brokers measure from the start of the last transaction, or from -1, in any state."""
    idle = id_of("idle")
    assert cluster.transaction_rows(producer_ids=[idle.producer_id], min_duration_ms=1) == []
    busy = id_of("busy")
    topic = f"busy-{uuid.uuid4().hex[:6]}"
    INCIDENTS["open_young"](cluster.config, topic=topic)
    busy.add(topic, 1)
    until(
        lambda: cluster.transaction_rows(producer_ids=[busy.producer_id], min_duration_ms=50) or None,
        awaited="50 ms of its transaction",
    )
    assert cluster.transaction_rows(producer_ids=[busy.producer_id], min_duration_ms=3_600_000) == []
    busy.end(commit=False)


@pytest.fixture(scope="module")
def groups(cluster: Cluster) -> None:
    """Until groups can be coordinated: the first question has ``__consumer_offsets`` created."""

    def ready() -> bool | None:
        find_coordinators(cluster.client, ["any"], GROUP)
        (found,) = cluster.coordinator_rows(transactional_ids=(), groups=["any"])
        request = broker_client.OffsetFetch(group_id="any", topics=[], max_version=7)
        return True if found["agrees"] and cluster.client.send_one(request, broker_id=1).error_code == 0 else None

    until(ready, awaited="a group coordinator")


def test_a_second_check_covers_only_doubtful_partitions(cluster: Cluster, opened: StagedIncident) -> None:
    # An hour is longer than a test may take: no second check is waited for.
    ongoing, clear = cluster.finding_rows(topics=[opened.topic], recheck_after=3600)
    assert (ongoing["verdict"], ongoing["queue_position"], ongoing["groups_held"]) == ("ongoing", 1, [])
    assert clear["verdict"] == "clear", "a requested partition has a row"


def test_a_topic_deleted_between_the_checks_is_not_hanging(cluster: Cluster, kafka: Kafka) -> None:
    staged = INCIDENTS["never_added"](kafka)
    evidence = ClusterEvidence(cluster, TableArguments.of(topics=[staged.topic]))
    evidence.observations()
    gone = cluster.client.send_one(
        admin.DeleteTopicsRequest(topic_names=[staged.topic], timeout_ms=10_000, max_version=5)
    )
    assert [each.error_code for each in gone.responses] == [0]
    until(lambda: staged.topic not in {row["topic"] for row in cluster.partition_rows()} or None, awaited="its end")
    second = evidence.observe_again([table.TopicPartition(staged.topic, 0)])
    assert {(each.error or "").partition(":")[0] for each in second.partitions} == {"UNKNOWN_TOPIC_OR_PARTITION"}


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("incident", ["several_open", "late_message", "late_after_commit"])
def test_groups_blocked_by_a_held_lso_are_named(cluster: Cluster, kafka: Kafka, incident: str) -> None:
    """Markers and aborted records are between the offset that librdkafka commits and the LSO."""
    with INCIDENTS[incident](kafka) as staged:
        topic = staged.topic
        write_committed(cluster.client, topic, 1)
        held, elsewhere = f"held-{topic}", f"elsewhere-{topic}"
        with blocked_consumer(kafka, topic, held), blocked_consumer(kafka, topic, elsewhere, partition=1):
            rows = cluster.finding_rows(topics=[topic], partitions=[0], recheck_after=0.1)
    assert [row["groups_held"] for row in rows] == [[held] if row["queue_position"] == 1 else None for row in rows]


@pytest.mark.usefixtures("groups")
def test_a_group_with_records_to_read_is_not_blocked(cluster: Cluster, kafka: Kafka) -> None:
    with INCIDENTS["never_added"](kafka) as staged:
        group = f"behind-{staged.topic}"
        with blocked_consumer(kafka, staged.topic, group):
            pass
        commit_offset(kafka, group, staged.topic, 0)
        (row,) = cluster.finding_rows(topics=[staged.topic], partitions=[0], recheck_after=0.1)
    assert row["groups_held"] == []
