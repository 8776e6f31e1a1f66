"""A topic that was deleted and created again begins at offset 0, and has no marker of what was committed before."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

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
