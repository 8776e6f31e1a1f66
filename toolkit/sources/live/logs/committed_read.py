"""What a read_committed consumer receives from a range of offsets: a real consumer, without a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.errors import BrokerError

if TYPE_CHECKING:
    from toolkit.config import ClientConfig

MAX_POLL_RECORDS = 1_000
POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class CommittedRead:
    """Offsets of the records that were received, and the offset up to which the range was read."""

    offsets: Sequence[int]
    reached: int


def read_committed(
    config: ClientConfig,
    topic: str,
    partition: int,
    start: int,
    stop: int,
    *,
    timeout: float,
    check: Callable[[], None] = lambda: None,
) -> CommittedRead:
    """Offsets of the records that a read_committed consumer receives.

    Parameters
    ----------
    config
        Configuration of the consumer.
    topic, partition
        The partition.
    start, stop
        The range ``start <= offset < stop``.
    timeout
        Seconds; what was received by then is returned.
    check
        Called while it waits; what it raises ends the read.

    Raises
    ------
    BrokerError
        If the partition cannot be read.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **config.librdkafka(),
            "group.id": "kafka-txn-toolkit",  # librdkafka requires one; the group is not joined, nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",  # if retention deletes the start meanwhile
            "error_cb": lambda _: None,  # failed brokers show as records that did not arrive
            "log_level": 0,
        }
    )
    offsets: list[int] = []
    deadline = time.monotonic() + timeout
    try:
        consumer.assign([TopicPartition(topic, partition, start)])
        while time.monotonic() < deadline:
            check()
            for message in consumer.consume(MAX_POLL_RECORDS, timeout=POLL_S):
                if message.topic() != topic:
                    continue  # a client-wide error, such as missing rights on the unused group
                error, offset = message.error(), message.offset() or 0
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    text = config.scrub(error.str())
                    raise BrokerError(
                        f"{topic}-{partition} cannot be read by a read_committed consumer: {text}.",
                        code=error.name().lstrip("_"),
                    )
                if error is not None or offset >= stop:  # the LSO, or behind the range
                    return CommittedRead(offsets, stop)
                offsets.append(offset)
                if offset == stop - 1:
                    return CommittedRead(offsets, stop)
    finally:
        consumer.close()
    return CommittedRead(offsets, offsets[-1] + 1 if offsets else start)
