"""Kafka Connect with exactly-once sources: of lines of a file, and MirrorMaker 2."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path

from confluent_kafka import Message, Producer

from tests.java_clients import JavaClient, jars_of
from tests.tools.framework_campaigns.application import TIMEOUT_MS, Application
from toolkit import Cluster
from toolkit.lab import Kafka
from toolkit.lab.broker import free_ports


class Connect(Application):
    """A worker of Kafka Connect, and its source of lines with exactly-once delivery."""

    connector_jars: str | None = None
    """The jars of its connector, if they are not Connect's own."""

    owner, prefix, topic = "Kafka Connect cluster connect-blue", "connect-", "from-file"

    def __init__(self, kafka: Kafka, folder: Path, seconds: float) -> None:
        super().__init__(kafka, folder, seconds)
        self.create(self.topic)
        self._lines = folder / "lines.txt"
        self._lines.touch()
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"

    def new_client(self) -> JavaClient:
        properties = {
            "group.id": "connect-blue",
            "exactly.once.source.support": "enabled",
            "listeners": self._url,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "producer.transaction.timeout.ms": str(TIMEOUT_MS),
            "connector.client.config.override.policy": "All",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            **{f"{each}.storage.topic": f"blue-{each}" for each in ("config", "offset", "status")},
            **{f"{each}.storage.replication.factor": "-1" for each in ("config", "offset", "status")},
            **{f"{each}.storage.partitions": "1" for each in ("offset", "status")},
        }
        client = JavaClient(self.kafka, "connect", "org.apache.kafka.connect.cli.ConnectDistributed", properties)
        if self.connector_jars is not None:
            client.classpath += f":{jars_of(self.connector_jars)}/*"
        return client

    def write_more(self) -> None:
        with self._lines.open("a") as lines:
            lines.write(f"{self.written}\n")
        self.written += 1

    def tend(self) -> None:
        """Create the connector, and restart tasks that were fenced, which Connect leaves failed.

        Each one by itself: a restart of all is a record of the config topic, and a leader whose id was fenced can write
        none until it rejoins, which a single worker never does ("Cannot produce to config topic without claiming write
        privileges first", seed four).
        """
        interval = {"transaction.boundary": "interval", "transaction.boundary.interval.ms": "1000"}
        connector = {"tasks.max": "1", **interval, **self.connector()}
        path = "connectors/orders-csv"
        with suppress(OSError):  # the worker has yet to start, or to join
            try:
                status = json.loads(self._ask("GET", f"{path}/status"))
            except urllib.error.HTTPError as error:
                if error.code == HTTPStatus.NOT_FOUND:
                    self._ask("PUT", f"{path}/config", connector)
                return
            if status["connector"]["state"] == "FAILED":
                self._ask("POST", f"{path}/restart")
            for task in status["tasks"]:
                if task["state"] == "FAILED":
                    self._ask("POST", f"{path}/tasks/{task['id']}/restart")

    def connector(self) -> Mapping[str, str]:
        """The settings of the connector."""
        file_source = "org.apache.kafka.connect.file.FileStreamSourceConnector"
        return {"connector.class": file_source, "file": str(self._lines), "topic": self.topic}

    def _ask(self, method: str, path: str, body: object = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}/{path}", data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())

    def read(self, message: Message) -> int:
        return int(message.value() or b"")


class NumbersConnector(Connect):
    """A connector that reads the topic ``numbers``, to which an idempotent producer writes."""

    def __init__(self, kafka: Kafka, folder: Path, seconds: float) -> None:
        super().__init__(kafka, folder, seconds)
        self.create("numbers")
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer(settings)

    def value(self) -> str:
        """The value of the next record."""
        return f"{self.written}"

    def write_more(self) -> None:
        self._producer.produce("numbers", value=self.value().encode())
        self._producer.poll(0)
        self.written += 1

    def expected(self) -> list[int]:
        return self.received("numbers", self.read)


class Mirror(NumbersConnector):
    """MirrorMaker 2, of a topic of the same cluster, in a worker with exactly-once sources.

    There Connect commits the offsets of the source in the transaction of the records, so that each record of the topic
    is mirrored once, whatever is killed. Without ``exactly.once.source.support`` a kill may mirror records twice.
    """

    topic = "source.numbers"

    def connector(self) -> Mapping[str, str]:
        servers = self.kafka.bootstrap_servers
        return {
            "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
            "source.cluster.alias": "source",
            "target.cluster.alias": "target",
            "source.cluster.bootstrap.servers": servers,
            "target.cluster.bootstrap.servers": servers,
            "topics": "numbers",
            "replication.factor": "2",
            "offset-syncs.topic.replication.factor": "2",
            "sync.topic.acls.enabled": "false",
            "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
            "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        }

    def problems(self) -> list[str]:
        """It writes under producer ids of its own, not under those of the source."""
        with Cluster(self.kafka.bootstrap_servers) as cluster:
            ids = [
                {row["producer_id"] for row in cluster.producer_rows(topics=[each])} for each in ("numbers", self.topic)
            ]
        return [] if all(ids) and ids[0].isdisjoint(ids[1]) else [f"producer ids of the source and the mirror: {ids}"]
