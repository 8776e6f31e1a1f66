"""A real read_committed consumer, which an open transaction blocks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from toolkit.errors import LabError
from toolkit.lab.queries import ClusterAddress, config_of, until

EARLIEST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]

MOVING = {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}


def blocked_consumer(kafka: ClusterAddress, topic: str, group: str, *, partition: int = 0) -> BlockedConsumer:
    """Return a consumer of a group that has read up to the LSO and committed."""
    consumer = BlockedConsumer(kafka, topic, group=group, partition=partition)
    try:
        consumer.read()
    except BaseException:
        consumer.close()
        raise
    return consumer


class BlockedConsumer:
    """A read_committed consumer of one partition, which reads up to the LSO and continues once it moves.

    Parameters
    ----------
    kafka
        A lab cluster, or the client configuration of another one.
    topic, partition
        Partition to read, from the group's committed offset or from the start of the log.
    group
        Consumer group.

    Examples
    --------
    >>> with blocked_consumer(kafka, "payments", "billing") as billing:  # doctest: +SKIP
    ...     billing.lag
    17
    """

    def __init__(self, kafka: ClusterAddress, topic: str, *, group: str, partition: int = 0) -> None:
        quiet = {"log_level": 0, "error_cb": lambda error: None}  # brokers may be down on purpose
        settings = config_of(kafka).librdkafka() | quiet
        self.group = group
        self.topic = topic
        self.partition = partition
        self._admin = AdminClient(settings)
        self._consumer = Consumer(
            settings
            | {
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
            }
        )
        committed = until(self._committed, awaited=f"the committed offset of group {group}")
        self.position: int = committed if committed >= 0 else self._offset(EARLIEST)
        """Next offset to read."""
        self._end = -1
        self._consumer.assign([TopicPartition(topic, partition, self.position)])

    def __enter__(self) -> BlockedConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the group keeps its committed offset."""
        self._consumer.close()

    @property
    def lag(self) -> int:
        """Offsets from its position to the high watermark, as monitoring reports it."""
        return self._offset(LATEST) - self.position

    def read(self, *, timeout: float = 30) -> list[Message]:
        """Read up to the last stable offset, commit, and return the records.

        Raises LabError if it does not reach the LSO within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        records = []
        while self._end < self._offset(LATEST, IsolationLevel.READ_COMMITTED):
            if time.monotonic() > deadline:
                raise LabError(f"{self.group} did not reach the end of {self.topic}-{self.partition} in {timeout:g} s.")
            records += self._read_to_end()
        until(self._commit, awaited=f"the coordinator of group {self.group}")
        return records

    def _read_to_end(self) -> list[Message]:
        """Records up to the end of the partition, or until none arrives for a moment."""
        records = []
        while message := self._consumer.poll(0.2):
            error = message.error()
            if error and error.code() == KafkaError._PARTITION_EOF:
                self._end = message.offset() or 0
                break
            if error:
                raise KafkaException(error)
            records.append(message)
            self.position = (message.offset() or 0) + 1
        return records

    def _commit(self) -> bool | None:
        """True once the position is committed; None while the group has no coordinator."""
        topic_partition = TopicPartition(self.topic, self.partition, self.position)
        with _unless_moving():
            self._consumer.commit(offsets=[topic_partition], asynchronous=False)
            return True
        return None

    def _committed(self) -> int | None:
        """The group's committed offset, negative if it has none; None while the group has no coordinator."""
        with _unless_moving():
            (found,) = self._consumer.committed([TopicPartition(self.topic, self.partition)], timeout=30)
            return int(found.offset)
        return None

    def _offset(self, spec: Any, isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> int:
        partition = TopicPartition(self.topic, self.partition)
        futures = self._admin.list_offsets({partition: spec}, isolation_level=isolation_level, request_timeout=30)
        return int(futures[partition].result().offset)


@contextlib.contextmanager
def _unless_moving() -> Iterator[None]:
    """Leave the block while the group has no coordinator."""
    try:
        yield
    except KafkaException as failed:
        if failed.args[0].code() not in MOVING:
            raise
