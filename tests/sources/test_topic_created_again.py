"""A topic that was created again, and a torn transaction as Jepsen found it in 2024 (Bufstream 0.1.0)."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.causes import cause_names
from toolkit import Cluster, LogDir
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, until, write_committed
from toolkit.lab.incidents import EVERYDAY
from toolkit.lab.lab_source import create_topic
from toolkit.schema import Row

pytestmark = pytest.mark.lab


def create_again(kafka: Kafka, topic: str) -> None:
    """Delete a topic and create it again, once the broker has let go of its log."""
    folder = kafka.log_dirs[1] / f"{topic}-0"
    admin = AdminClient({**kafka.client_config()})
    admin.delete_topics([topic])[topic].result()
    until(lambda: None if folder.exists() else True, awaited=f"the deletion of {folder}")
    create_topic(kafka, topic)


def finding(source: Cluster | LogDir, topic: str) -> Row:
    (row,) = source.finding_rows(topics=[topic], partitions=[0])
    return row


def test_the_replica_of_a_deleted_topic_is_not_read_for_the_one_created_again(tmp_path: Path) -> None:
    """A disk of a broker that was down when the topic was deleted still has it, and its log is longer."""
    with Kafka("3.9.2", properties=EVERYDAY.properties) as kafka:
        create_topic(kafka, "orders")
        with Cluster(kafka.bootstrap_servers) as cluster:
            producer = TxnProducer(cluster.client, "late").init()
            for _ in range(10):
                write_committed(cluster.client, "orders", 0)
            shutil.copytree(kafka.log_dirs[1] / "orders-0", tmp_path / "2" / "orders-0")
            create_again(kafka, "orders")
            write_committed(cluster.client, "orders", 0)
            start = producer.send("orders", 0)
            live = finding(cluster, "orders")
        kafka.stop_broker(1)
        shutil.copytree(kafka.log_dirs[1], tmp_path / "1")
    assert (live["verdict"], live["start_offset"]) == ("hanging", start)
    ids = (tmp_path / "1" / "meta.properties").read_text().replace("node.id=1", "node.id=2")
    (tmp_path / "2" / "meta.properties").write_text(
        "\n".join(line for line in ids.splitlines() if "directory" not in line)
    )
    folders = tmp_path / "1", tmp_path / "2"
    with LogDir(*folders, consistent_copy=True) as files:
        row = finding(files, "orders")
        assert (row["verdict"], row["start_offset"]) == ("unknown", start)
        assert any("deleted and created again" in each for each in row["missing"])
    shutil.rmtree(tmp_path / "1" / "__cluster_metadata-0")
    with LogDir(*folders, consistent_copy=True) as files:
        row = finding(files, "orders")
        assert row["verdict"] == "unknown"
        assert "INCONSISTENT_TOPIC_ID" in str(row["error"])


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


def test_a_delayed_end_of_a_transaction_commits_half_of_the_next_one(kafka: Kafka, cluster: Cluster) -> None:
    """The hint says so, and the producer's own commit returns success."""
    topic = f"torn-{uuid.uuid4().hex[:6]}"
    create_topic(kafka, topic)
    producer = TxnProducer(cluster.client, topic).init()
    producer.add(topic, 0, 1)
    for partition in (0, 1):
        producer.send(topic, partition)
    producer.end(commit=True)

    producer.add(topic, 0, 1)
    first_half = producer.send(topic, 0)
    producer.end(commit=True)  # the request of the transaction before, sent again and delayed: all of it is the same
    other_half = producer.send(topic, 1)
    producer.end(commit=True)  # its own

    rows = cluster.finding_rows(topics=[topic], recheck_after=0.1)
    committed, torn = sorted(rows, key=lambda row: row["partition"])
    assert (committed["verdict"], torn["verdict"], torn["outcome"]) == ("clear", "hanging", "undecided")
    assert committed["last_stable_offset"] == first_half + 2, "the record and the marker of its first half"
    assert torn["start_offset"] == other_half
    assert cause_names(torn) == ["late-after-commit", "torn-transaction"]
    assert "may have committed the first half of the same transaction" in torn["cause"]
