"""The transactional clients of a walk: raw ones of transaction versions 1 and 2, librdkafka, and Java's.

Each step raises `NotDone` if it was refused, and says whether the client can go on.
"""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

from confluent_kafka import KafkaException, Message, Producer
from py4j.protocol import Py4JError

from tests.java_gateway import JavaClients
from toolkit.formats.batches import write_batch
from toolkit.lab.clients import ALWAYS_UP, PASSING, TxnProducer
from toolkit.schema.table import TopicPartition
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient, error_name

PATIENCE_S = 2.0
QUIET = logging.getLogger("tests.tools.large.walks")
QUIET.disabled = True  # brokers are down on purpose
NOT_ADDED = {"INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"}  # a leader that verifies refuses such a batch


class NotDone(Exception):
    """A step was refused.

    `is_over`: whether the client has to be replaced.
    `is_certain`: whether nothing has happened.
    """

    def __init__(self, error: object, *, is_over: bool, is_certain: bool = True) -> None:
        super().__init__(f"{error:.200}" if isinstance(error, str) else f"{error!r:.200}")
        self.is_over = is_over
        self.is_certain = is_certain


class WalkClient(Protocol):
    """A client with one transactional id."""

    transactional_id: str
    timeout_ms: int

    @property
    def version(self) -> int:
        """Transaction version."""
        ...

    @property
    def identity(self) -> tuple[int, int]:
        """Producer id and epoch; -1 if it does not tell."""
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def write(self, tp: TopicPartition, value: str) -> int:
        """Add the partition, write a record, and return its offset."""
        ...

    def end(self, *, commit: bool) -> None:
        """End the transaction, and return when its markers are written."""
        ...


class RawClient(TxnProducer):
    """Every request by hand; it may also write what is in no transaction.

    `clock_ahead`: the time of its records against this machine's.
    """

    def __init__(self, client: BrokerClient, transactional_id: str, *, version: int, timeout_ms: int) -> None:
        super().__init__(client, transactional_id, timeout_ms=timeout_ms, transaction_version=version)
        self.clock_ahead = dt.timedelta()
        self.added: set[TopicPartition] = set()

    @property
    def version(self) -> int:
        return self.transaction_version

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    def begin(self) -> None:
        self.added.clear()

    def write(self, tp: TopicPartition, value: str) -> int:
        if tp not in self.added:
            self.add(*tp)
        offset = self.produce(tp, value, version=self.transaction_version)
        if self.transaction_version == 1 or self._includes(tp):
            self.added.add(tp)
        return offset

    def _includes(self, tp: TopicPartition) -> bool:
        """Whether the coordinator has a partition: a leader that thinks a transaction is open adds none."""
        ids = [self.transactional_id]
        described = self._ask(
            lambda: broker_client.DescribeTransactions(transactional_ids=ids),
            codes=lambda message: [message.transaction_states[0].error_code],
        )
        topics = described.transaction_states[0].topics
        return any(each.topic == tp.topic and tp.partition in each.partitions for each in topics)

    def produce(self, tp: TopicPartition, value: str, *, version: int = 1) -> int:
        """Write a record; with version 1, only `add` adds its partition."""
        sequence = self._sequences.get(tp, 0)
        batch = write_batch(
            [(self.transactional_id.encode(), value.encode())],
            timestamp=dt.datetime.now(dt.UTC) + self.clock_ahead,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = broker_client.Produce.TopicProduceData
        produced = self._ask(
            lambda: broker_client.Produce(
                transactional_id=self.transactional_id,
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    data(name=tp.topic, partition_data=[data.PartitionProduceData(index=tp.partition, records=batch)])
                ],
                **({"min_version": 12, "max_version": 12} if version == 2 else {"max_version": 8}),
            ),
            codes=lambda message: [message.responses[0].partition_responses[0].error_code],
        )
        self._sequences[tp] = sequence + 1
        return int(produced.responses[0].partition_responses[0].base_offset)

    def end(self, *, commit: bool) -> None:
        ended = self._end_txn(commit=commit)
        with suppress(NotDone):  # the coordinator has decided; until the markers are written, it refuses a repetition
            ended = self._end_txn(commit=commit)
        if self.transaction_version == 2:
            self._adopt(ended)
        self.added.clear()

    def _ask(
        self, request: Callable[[], Any], *, codes: Callable[[Any], Iterable[int]], to: Callable[[], int] | None = None
    ) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            message = self.cluster.send_one(request(), broker_id=ALWAYS_UP)
            errors = {error_name(code) for code in codes(message)} - {"NONE"}
            if not errors:
                return message
            if errors - PASSING or time.monotonic() > deadline:
                name = str(request().name).removesuffix("Request")
                raise NotDone(f"{name}: {', '.join(sorted(errors))}", is_over=not errors <= NOT_ADDED | PASSING)
            time.sleep(0.01)


class LibrdkafkaClient:
    """A `confluent_kafka.Producer`."""

    version = 1
    identity = -1, -1

    def __init__(self, config: dict[str, str], transactional_id: str, *, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        own = {"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms, "linger.ms": 0}
        quiet = {"log_level": 0, "error_cb": lambda error: None, "logger": QUIET}
        limits = {"message.timeout.ms": min(timeout_ms, 4000), "reconnect.backoff.max.ms": 200}
        self._producer = Producer({**config, **own, **quiet, **limits})
        self._done(self._producer.init_transactions)

    def begin(self) -> None:
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise NotDone(error, is_over=True) from error

    def write(self, tp: TopicPartition, value: str) -> int:
        written: list[int] = []

        def delivered(error: object, message: Message) -> None:
            written.append(-1 if error else message.offset() or 0)

        try:
            self._producer.produce(tp.topic, value.encode(), b"key", tp.partition, on_delivery=delivered)
            self._producer.flush(2 * PATIENCE_S)
        except (KafkaException, BufferError) as error:
            raise NotDone(error, is_over=True, is_certain=False) from error
        if written in ([], [-1]):
            raise NotDone("not delivered", is_over=True, is_certain=False)
        return written[0]

    def end(self, *, commit: bool) -> None:
        self._done(self._producer.commit_transaction if commit else self._producer.abort_transaction)

    def _done(self, step: Callable[[float], None]) -> None:
        try:
            step(2 * PATIENCE_S)
        except KafkaException as error:
            raise NotDone(error, is_over=True, is_certain=False) from error


class JavaClient:
    """A `KafkaProducer` in a Java process."""

    identity = -1, -1

    def __init__(self, java: JavaClients, transactional_id: str, *, version: int, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self.timeout_ms = timeout_ms
        self.version = version
        self._java = java
        limit = int(2 * PATIENCE_S * 1000)
        settings = {"max_block_ms": limit, "request_timeout_ms": limit // 2, "delivery_timeout_ms": limit}
        self._producer = java.producer(transactional_id, transaction_timeout_ms=timeout_ms, **settings)
        self._done(self._producer.initTransactions)

    def begin(self) -> None:
        self._done(self._producer.beginTransaction)

    def write(self, tp: TopicPartition, value: str) -> int:
        record = self._java.clients.producer.ProducerRecord(tp.topic, tp.partition, "key", value)
        return int(self._done(lambda: self._producer.send(record).get().offset()))

    def end(self, *, commit: bool) -> None:
        self._done(self._producer.commitTransaction if commit else self._producer.abortTransaction)

    @staticmethod
    def _done(step: Callable[[], Any]) -> Any:
        try:
            return step()
        except Py4JError as error:
            raise NotDone(str(error).partition("\n")[2] or error, is_over=True, is_certain=False) from error
