"""Kafka Streams with exactly_once_v2."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Message, Producer

from tests.java_clients import JavaClient
from tests.tools.framework_campaigns.application import TIMEOUT_MS, Application
from toolkit.lab import Kafka


class Streams(Application):
    """The word count of Kafka Streams: a record for each word of its input."""

    owner, prefix, topic = "Kafka Streams application word-count", "word-count-", "streams-wordcount-output"

    def __init__(self, kafka: Kafka, folder: Path, seconds: float) -> None:
        super().__init__(kafka, folder, seconds)
        self.create("streams-plaintext-input", self.topic)
        self._producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        )

    def new_client(self) -> JavaClient:
        properties = {
            "application.id": "word-count",
            "group.instance.id": "one",  # the next process need not wait for the end of a session
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": "500",
            "producer.transaction.timeout.ms": str(TIMEOUT_MS),
            "auto.offset.reset": "earliest",
            "statestore.cache.max.bytes": "0",
        }
        return JavaClient(
            self.kafka, "streams", "org.apache.kafka.streams.examples.wordcount.WordCountDemo", properties
        )

    def write_more(self) -> None:
        self._producer.produce("streams-plaintext-input", value=f"w{self.written}".encode())
        self._producer.poll(0)
        self.written += 1

    def expected(self) -> list[int]:
        return self.received("streams-plaintext-input", lambda message: int((message.value() or b"")[1:]))

    def read(self, message: Message) -> int:
        return int((message.key() or b"")[1:])
