"""A topic that was deleted and created again begins at offset 0, and has no marker of what was committed before."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from unittest import mock

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from toolkit import Cluster, LogDir
from toolkit.actions import plan_complete
from toolkit.analysis.diagnosis.decision import owned_rules
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY
from toolkit.lab.lab_source import create_topic
from toolkit.lab.producer import TxnProducer, write_committed
from toolkit.lab.queries import until
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


def test_a_late_batch_on_a_topic_created_again_is_not_what_was_committed_before(tmp_path: Path) -> None:
    with Kafka("3.9.2", properties=EVERYDAY.properties) as kafka, Cluster(kafka.bootstrap_servers) as cluster:
        create_topic(kafka, "orders")
        producer = TxnProducer(cluster.client, "payments").init()
        producer.add("orders", 0)
        producer.send("orders", 0)
        producer.end(commit=True)
        create_again(kafka, "orders")
        producer._sequences.clear()
        assert producer.send("orders", 0, records=3) == 0
        live = finding(cluster, "orders")
        with LogDir(shutil.copytree(kafka.log_dirs[1], tmp_path / "copy"), consistent_copy=True) as files:
            for row in (live, finding(files, "orders")):
                assert (row["verdict"], row["outcome"], row["action"]) == ("unknown", "unknown", None)
                assert "a proof that orders-0 was not created again" in row["missing"][0]
        planned = {**live, "verdict": "stuck_ending", "outcome": "commit", "action": "complete", "missing": []}
        with pytest.raises(ActionRefused):
            plan_complete(cluster, planned).preflight(recheck_after=0.1)


def test_the_next_transaction_of_a_client_on_a_topic_created_again_is_its_own(kafka: Kafka) -> None:
    topic = "created-again"
    create_topic(kafka, topic)
    settings = {"transactional.id": topic, "topic.metadata.refresh.interval.ms": 500}
    producer = Producer({**kafka.client_config(), **settings})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"one", partition=0)
    producer.commit_transaction(60)
    create_again(kafka, topic)
    producer.begin_transaction()
    producer.produce(topic, b"two", partition=0)
    assert producer.flush(60) == 0
    compared_at_once = mock.patch.object(owned_rules, "COMPARED_AFTER", dt.timedelta())
    with compared_at_once, Cluster(kafka.bootstrap_servers) as cluster:
        row = finding(cluster, topic)
    assert (row["verdict"], row["outcome"]) == ("ongoing", "unknown"), (
        "no time shows that it is younger than the commit"
    )
    producer.abort_transaction(60)


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
