"""Transactional producers of applications, with the steps of the lab's own: each adds the partitions that it writes to.

librdkafka keeps the epoch from one transaction to the next (transaction version 1); Java clients of 4.0 or newer raise
it on brokers of 4.0 or newer (version 2).
"""

from __future__ import annotations

from typing import Any, Self

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.java_gateway import JavaClients
from tests.staged_state import described_transaction
from toolkit.lab.clients import TxnProducer
from toolkit.sources.live.broker_client import BrokerClient

TIMEOUT_MS, WAIT_S = 600_000, 60


class _Real:
    """A client that begins a transaction when it writes, and adds to it by itself."""

    def __init__(self, cluster: BrokerClient, transactional_id: str) -> None:
        self.cluster = cluster
        self.transactional_id = transactional_id
        self.producer: Any = None
        self._is_open = False

    @property
    def producer_id(self) -> int:
        return int(described_transaction(self.cluster, self.transactional_id).producer_id)

    def add(self, topic: str, *partitions: int) -> None: ...

    def add_offsets(self, group: str) -> None: ...

    def end(self, *, commit: bool) -> None:
        raise NotImplementedError

    def decide(self, *, commit: bool) -> None:
        self.end(commit=commit)


class LibrdkafkaProducer(_Real):
    """A `confluent_kafka.Producer`; a new instance leaves the last one as it is."""

    def __init__(self, cluster: BrokerClient, transactional_id: str, config: dict[str, str]) -> None:
        super().__init__(cluster, transactional_id)
        self._config = config

    def init(self) -> Self:
        own = {"transactional.id": self.transactional_id, "transaction.timeout.ms": TIMEOUT_MS}
        quiet = {"log_level": 0, "error_cb": lambda error: None}  # brokers are down on purpose
        self.producer = Producer({**self._config, **own, **quiet})
        self.producer.init_transactions(WAIT_S)
        self._is_open = False
        return self

    def send(self, topic: str, partition: int) -> int:
        self._begin()
        written: list[int] = []

        def delivered(error: object, message: Message) -> None:
            assert error is None, error
            written.append(message.offset() or 0)

        self.producer.produce(topic, b"value", b"key", partition, on_delivery=delivered)
        self.producer.flush(WAIT_S)
        return written[0]

    def commit_offset(self, group: str, topic: str, partition: int, *, offset: int) -> None:
        self._begin()
        consumer = Consumer({**self._config, "group.id": group})
        metadata = consumer.consumer_group_metadata()
        self.producer.send_offsets_to_transaction([TopicPartition(topic, partition, offset)], metadata, WAIT_S)
        consumer.close()

    def end(self, *, commit: bool) -> None:
        (self.producer.commit_transaction if commit else self.producer.abort_transaction)(WAIT_S)
        self._is_open = False

    def _begin(self) -> None:
        if not self._is_open:
            self.producer.begin_transaction()
            self._is_open = True


class JavaProducer(_Real):
    """A `KafkaProducer` in a Java process; a new instance leaves the last one as it is."""

    def __init__(self, cluster: BrokerClient, transactional_id: str, java: JavaClients) -> None:
        super().__init__(cluster, transactional_id)
        self._java = java

    def init(self) -> Self:
        settings = {"transaction_timeout_ms": TIMEOUT_MS, "max_block_ms": WAIT_S * 1000}
        self.producer = self._java.producer(self.transactional_id, **settings)
        self.producer.initTransactions()
        self._is_open = False
        return self

    def send(self, topic: str, partition: int) -> int:
        self._begin()
        return self._java.send(self.producer, topic, partition)

    def commit_offset(self, group: str, topic: str, partition: int, *, offset: int) -> None:
        self._begin()
        offsets = self._java.java.java.util.HashMap()
        of_partition = self._java.partition(topic, partition)
        offsets.put(of_partition, self._java.clients.consumer.OffsetAndMetadata(offset))
        self.producer.sendOffsetsToTransaction(offsets, self._java.clients.consumer.ConsumerGroupMetadata(group))

    def end(self, *, commit: bool) -> None:
        (self.producer.commitTransaction if commit else self.producer.abortTransaction)()
        self._is_open = False

    def _begin(self) -> None:
        if not self._is_open:
            self.producer.beginTransaction()
            self._is_open = True


Steps = TxnProducer | LibrdkafkaProducer | JavaProducer
