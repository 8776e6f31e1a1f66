"""Who runs a transactional id, as real Kafka Streams and real Kafka Connect write their ids and join their groups."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.builders import create_topics
from tests.java_clients import JavaClient
from toolkit import Cluster, LogDir
from toolkit.lab import Kafka
from toolkit.lab.broker import free_ports
from toolkit.lab.clients import until
from toolkit.schema import TRANSACTION_OWNERS, Row
from toolkit.views.finding_document import finding_lines

pytestmark = [pytest.mark.lab, pytest.mark.full, pytest.mark.xdist_group("transaction owners")]


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    with Kafka("4.3.1") as kafka:
        yield kafka


def open_finding(kafka: Kafka, client: JavaClient, start: str) -> Row:
    """The finding on an open transaction whose id starts so, as soon as its owner is certain."""

    def found() -> Row | None:
        client.check()
        with Cluster(kafka.bootstrap_servers) as cluster:
            for row in cluster.finding_rows(recheck_after=0, log_evidence=False):
                if (row["transactional_id"] or "").startswith(start) and "certain" in (row["owner"] or ""):
                    return row
        return None

    return until(found, awaited="a transaction with an owner")


def test_a_thread_of_kafka_streams(broker: Kafka) -> None:
    create_topics(broker, "streams-plaintext-input", "streams-wordcount-output")
    properties = {
        "application.id": "word-count",
        "processing.guarantee": "exactly_once_v2",
        "commit.interval.ms": "600000",
        "producer.transaction.timeout.ms": "900000",
        "num.stream.threads": "1",
        "auto.offset.reset": "earliest",
        "statestore.cache.max.bytes": "0",
    }
    main_class = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
    with JavaClient(broker, "streams", main_class, properties) as client:
        with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
            producer.produce("streams-plaintext-input", value=b"all streams lead to kafka")
            producer.flush()
        finding = open_finding(broker, client, "word-count-")
        with Cluster(broker.bootstrap_servers) as cluster:
            owner = cluster.transaction_owner_rows(transactional_ids=[finding["transactional_id"]])[0]
            assert len(cluster.transaction_owners()) >= 1
    assert finding["owner"] == "Kafka Streams application word-count, thread 1 on 127.0.0.1 (certain)"
    assert (owner["framework"], owner["application"], owner["task"]) == (
        "Kafka Streams application",
        "word-count",
        "thread 1",
    )
    assert owner["client_id"].endswith("-StreamThread-1-consumer")
    text = "\n".join(finding_lines([finding]))
    assert f'id "{finding["transactional_id"]}": {finding["owner"]}' in text

    in_files = LogDir(*broker.log_dirs.values()).transaction_owner_rows(
        transactional_ids=[finding["transactional_id"]]
    )[0]
    assert (in_files["application"], in_files["confidence"], in_files["host"]) == ("word-count", "likely", None)


def test_a_source_task_and_the_leader_of_kafka_connect(broker: Kafka, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    source = tmp_path / "source.txt"
    source.write_text("one\ntwo\n")
    create_topics(broker, "from-file")
    properties = {
        "group.id": "connect-blue",
        "exactly.once.source.support": "enabled",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "producer.transaction.timeout.ms": "900000",
        "connector.client.config.override.policy": "All",
        **{f"{each}.storage.topic": f"blue-{each}" for each in ("config", "offset", "status")},
        **{f"{each}.storage.replication.factor": "1" for each in ("config", "offset", "status")},
        **{f"{each}.storage.partitions": "1" for each in ("offset", "status")},
    }
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": "from-file",
        "transaction.boundary": "interval",
        "transaction.boundary.interval.ms": "600000",
    }
    url = f"http://127.0.0.1:{port}/connectors/orders-csv/config"
    with JavaClient(broker, "connect", "org.apache.kafka.connect.cli.ConnectDistributed", properties) as client:

        def created() -> bool | None:
            client.check()
            request = urllib.request.Request(url, json.dumps(connector).encode(), method="PUT")
            request.add_header("Content-Type", "application/json")
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return answer.status in {200, 201}
            except OSError:  # the worker has yet to start, or to join
                return None

        until(created, awaited="a connector")
        finding = open_finding(broker, client, "connect-blue-")
        with Cluster(broker.bootstrap_servers) as cluster:
            owners = {row["transactional_id"]: row for row in cluster.transaction_owner_rows()}
    worker = f"http://127.0.0.1:{port}/"
    task = "Kafka Connect cluster connect-blue, connector orders-csv task 0"
    assert finding["transactional_id"] == "connect-blue-orders-csv-0"
    assert finding["owner"] == f"{task} on {worker} (certain)"
    leader = owners["connect-cluster-connect-blue"]
    assert (leader["application"], leader["task"], leader["confidence"]) == ("connect-blue", "leader", "certain")
    assert (leader["host"], leader["member_id"]) == (worker, owners[finding["transactional_id"]]["member_id"])
    assert len(TRANSACTION_OWNERS.frame(owners.values())) == len(owners)

    ids = [finding["transactional_id"], leader["transactional_id"]]
    with Cluster(broker.bootstrap_servers) as cluster:

        def without_worker() -> Row | None:
            task_owner, _ = cluster.transaction_owner_rows(transactional_ids=ids)
            return task_owner if task_owner["host"] is None else None

        gone = until(without_worker, awaited="the end of the worker's session")
    assert (gone["application"], gone["confidence"]) == ("connect-blue", "likely")
    assert "no worker is known" in gone["reason"]
