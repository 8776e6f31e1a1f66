"""Kafka's Java clients, called from Python: what they raise and log is their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import py4j.java_gateway
import py4j.protocol
import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from toolkit.java import find_java
from toolkit.lab import Kafka
from toolkit.lab.broker import fetch_jars

TEXT = "org.apache.kafka.common.serialization.String"


class JavaClients:
    """Clients in one Java process; those that a test leaves open end with it."""

    def __init__(self, gateway: JavaGateway, bootstrap_servers: str, log: Path) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.log = log
        self.java = gateway.jvm
        self.clients = gateway.jvm.org.apache.kafka.clients
        self.common = gateway.jvm.org.apache.kafka.common

    def producer(self, transactional_id: str, **settings: object) -> Any:
        """A KafkaProducer of strings; underscores of settings are dots."""
        serializer = f"{TEXT}Serializer"
        keys = {"key.serializer": serializer, "value.serializer": serializer, "transactional.id": transactional_id}
        return self.clients.producer.KafkaProducer(self._settings({**keys, "max.block.ms": 20_000} | settings))

    def open_producer(self, transactional_id: str, topic: str, **settings: object) -> Any:
        """A producer in a transaction with one record."""
        producer = self.producer(transactional_id, **settings)
        producer.initTransactions()
        producer.beginTransaction()
        self.send(producer, topic)
        return producer

    def send(self, producer: Any, topic: str, partition: int = 0) -> int:
        """Send a record, wait until it is written, and return its offset."""
        return int(producer.send(self.clients.producer.ProducerRecord(topic, partition, "key", "value")).get().offset())

    def consumer(self, group: str, **settings: object) -> Any:
        """A read_committed KafkaConsumer of strings."""
        deserializer = f"{TEXT}Deserializer"
        keys = {"key.deserializer": deserializer, "value.deserializer": deserializer, "group.id": group}
        return self.clients.consumer.KafkaConsumer(
            self._settings({**keys, "isolation_level": "read_committed"} | settings)
        )

    def partition(self, topic: str, number: int = 0) -> Any:
        """A TopicPartition."""
        return self.common.TopicPartition(topic, number)

    def offsets(self, topic: str, offset: int) -> Any:
        """Partition 0 of a topic to an offset."""
        offsets = self.java.java.util.HashMap()
        offsets.put(self.partition(topic), self.clients.consumer.OffsetAndMetadata(offset))
        return offsets

    def _settings(self, keys: dict[str, object]) -> Any:
        settings = self.java.java.util.HashMap()
        for key, value in {"bootstrap.servers": self.bootstrap_servers, **keys}.items():
            settings.put(key.replace("_", "."), str(value))
        return settings


@contextmanager
def java_clients(kafka: Kafka, folder: Path, *, version: str | None = None) -> Iterator[JavaClients]:
    """The clients of a version, the broker's own by default, which log to a file in a folder."""
    jar = next(Path(pyspark.__file__).parent.glob("jars/py4j-*.jar"))
    log = folder / "java.log"
    with log.open("w") as stream, pytest.MonkeyPatch.context() as patch:
        # A Spark session of the same process translates Java's exceptions, and queries Spark's Java about them.
        patch.setattr(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)
        port, process = launch_gateway(
            jarpath=str(jar),
            classpath=f"{fetch_jars(version or kafka.version)}/*",
            javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"],
            die_on_exit=True,
            java_path=str(find_java()),
            redirect_stderr=stream,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_field=True))
        try:
            yield JavaClients(gateway, kafka.bootstrap_servers, log)
        finally:
            gateway.shutdown()
            process.kill()
            process.wait()
            process.stdin.close()
