"""Pending offsets of a group that disagree with the open transactions of its partition, live and from files.

KAFKA-19163 and KAFKA-19164 are about offsets that are deleted while a transaction is open.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.builders import create_topics
from toolkit import Cluster, LogDir
from toolkit.errors import BrokerError, NotFound
from toolkit.formats.batches import read_header
from toolkit.lab import Kafka
from toolkit.lab.clients import ALWAYS_UP, TxnProducer, offsets, open_transactions, until
from toolkit.lab.incidents import STANDSTILL
from toolkit.schema.table import TopicPartition as Tp
from toolkit.sources.live.coordinators import GROUP, TRANSACTION, find_coordinators
from toolkit.sources.live.group_offsets import offsets_of_group

pytestmark = pytest.mark.lab

PENDING, DELETED, NO_TRANSACTION = "UNSTABLE_OFFSET_COMMIT", "DELETED", "NO_TRANSACTION"


def admin_of(kafka: Kafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})


def create(kafka: Kafka, topic: str) -> None:
    create_topics(kafka, topic, replicas=len(kafka.broker_ids))


def delete_group(kafka: Kafka, group: str) -> None:
    admin = admin_of(kafka)
    admin.delete_consumer_groups([group])[group].result()


def commit(kafka: Kafka, group: str, topic: str, offset: int) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "log_level": 0}
    with Consumer(settings) as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)


def lag_of(source: Cluster | LogDir, group: str) -> tuple[int | None, str | None]:
    """The committed offset, and the name of the error."""
    (row,) = source.group_lag_rows(group)
    error = row["error"]
    return row["committed_offset"], error and error.partition(":")[0]


def files_of(kafka: Kafka) -> LogDir:
    return LogDir(*kafka.log_dirs.values())


@pytest.mark.parametrize("has_committed", [True, False])
def test_an_offset_that_was_deleted_while_its_transaction_is_open(kafka: Kafka, has_committed: bool) -> None:
    """A commit of the transaction does not bring it back; the look-alike is pending until its commit."""
    names = [f"{each}-{'after' if has_committed else 'without'}-a-commit" for each in ("deleted", "kept")]
    for name in names:
        create(kafka, name)
        if has_committed:
            commit(kafka, name, name, 3)
    with Cluster(kafka.bootstrap_servers) as cluster:
        producers = [TxnProducer(cluster.client, each).init() for each in names]
        for name, producer in zip(names, producers, strict=True):
            producer.add_offsets(name)
            producer.commit_offset(name, name, 0, offset=7)
        deleted, kept = names
        assert lag_of(cluster, deleted) == lag_of(cluster, kept) == (None, PENDING)
        delete_group(kafka, deleted)
        for source in (cluster, files_of(kafka)):
            assert lag_of(source, deleted) == (None, DELETED)
            assert lag_of(source, kept) == (None, PENDING)
        commit(kafka, deleted, deleted, 1)
        for source in (cluster, files_of(kafka)):
            assert lag_of(source, deleted)[0] == 1, "what was committed since then counts"
        for producer in producers:
            producer.end(commit=True)
        until(lambda: lag_of(cluster, kept)[0], awaited="the markers")
        for source in (cluster, files_of(kafka)):
            assert (lag_of(source, deleted)[0], lag_of(source, kept)[0]) == (1, 7)


def without_markers(kafka: Kafka) -> None:
    """Take the markers out of ``__consumer_offsets-0``, as a cleaner does that removes them too early."""
    segment = kafka.log_dirs[1] / "__consumer_offsets-0" / f"{0:020}.log"
    data, kept, position = segment.read_bytes(), b"", 0
    while position < len(data):
        header = read_header(data, position)
        kept += b"" if header.is_control else data[position : position + header.size]
        position += header.size
    segment.write_bytes(kept)


@pytest.mark.full
def test_an_offset_that_is_pending_without_a_transaction() -> None:
    """The coordinator reads the log, and the producer state is a snapshot: nothing is open, and the group is stuck."""
    with Kafka("4.3.1", properties={"offsets.topic.num.partitions": 1}) as kafka:
        create(kafka, "orders")
        with Cluster(kafka.bootstrap_servers) as cluster:
            producer = TxnProducer(cluster.client, "billing").init()
            producer.add_offsets("billing")
            producer.commit_offset("billing", "orders", 0, offset=7)
            producer.end(commit=True)
            until(lambda: lag_of(cluster, "billing")[0], awaited="the marker")
        commit(kafka, "other", "orders", 3)
        kafka.stop_broker(1)
        assert lag_of(files_of(kafka), "billing")[0] == 7
        without_markers(kafka)
        assert lag_of(files_of(kafka), "billing") == (None, NO_TRANSACTION)
        kafka.start_broker(1)
        with Cluster(kafka.bootstrap_servers) as cluster:
            found = until(loaded(cluster, "billing"), awaited="the group's coordinator")
            assert found == (None, NO_TRANSACTION)
            assert lag_of(cluster, "other") == (3, None)
            (finding,) = cluster.finding_rows(topics=["__consumer_offsets"], recheck_after=0)
            assert finding["verdict"] == "clear", "no transaction holds anything"
            delete_group(kafka, "billing")
            commit(kafka, "billing", "orders", 7)
            assert lag_of(cluster, "billing") == (7, None)


def loaded(cluster: Cluster, group: str) -> Callable[[], tuple[int | None, str | None] | None]:
    """The lag once the group's coordinator has read its log."""

    def found() -> tuple[int | None, str | None] | None:
        with suppress(BrokerError, NotFound):  # it loads; before its election no broker lists the group
            return lag_of(cluster, group)
        return None

    return found


@pytest.mark.full
def test_a_marker_that_is_not_replicated_yet_is_no_missing_transaction() -> None:
    """The look-alike: the leader has nothing open any more, and the coordinator waits for the replicas.

    A coordinator of 4.0 or newer answers no OffsetFetch meanwhile.
    """
    with Kafka("3.9.2", brokers=2, properties=STANDSTILL.properties) as kafka:
        create(kafka, "orders")
        with Cluster(kafka.bootstrap_servers) as cluster:
            client = cluster.client
            group = led_by(cluster, "__consumer_offsets", "group", ALWAYS_UP)
            producer = TxnProducer(client, led_by(cluster, "__transaction_state", "transaction", ALWAYS_UP)).init()
            number = cluster.coordinator_rows(transactional_ids=[], groups=[group])[0]["partition"]
            producer.add_offsets(group)
            producer.commit_offset(group, "orders", 0, offset=7)
            until(
                lambda: True if offsets(client, "__consumer_offsets", number)[2] > 0 else None, awaited="the follower"
            )
            kafka.pause(2)
            try:
                producer.decide(commit=True)
                until(
                    lambda: None if open_transactions(client, "__consumer_offsets", number) else True,
                    awaited="the marker on the leader",
                )
                found = offsets_of_group(client, group, ALWAYS_UP)  # the other one cannot list its groups
                assert (found[Tp("orders", 0)].error or "").startswith(PENDING)
            finally:
                kafka.resume(2)
            until(lambda: lag_of(cluster, group)[0], awaited="the marker")


def led_by(cluster: Cluster, topic: str, key_type: str, broker_id: int) -> str:
    """A key whose coordinator is this broker."""
    keys = [f"key-{number}" for number in range(20)]
    find_coordinators(cluster.client, keys[:1], GROUP if key_type == "group" else TRANSACTION)  # it creates the topic

    def found() -> str | None:
        with suppress(NotFound):
            return _key_of(cluster, topic, key_type, broker_id, keys)
        return None

    return until(found, awaited=f"a {key_type} of broker {broker_id}")


def _key_of(cluster: Cluster, topic: str, key_type: str, broker_id: int, keys: list[str]) -> str | None:
    leaders = {row["partition"]: row["leader"] for row in cluster.partition_rows(topics=[topic])}
    rows = cluster.coordinator_rows(transactional_ids=keys, groups=keys)
    own = (row["key"] for row in rows if row["key_type"] == key_type and leaders.get(row["partition"]) == broker_id)
    return next(own, None)
