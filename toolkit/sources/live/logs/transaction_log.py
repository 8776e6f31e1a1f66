"""``__transaction_state``, the coordinators' log, read with a consumer.

A complete read replaces the coordinators' responses. The log also has the time of the last state change, which no
request returns.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.analysis.coordinator.transaction_states import OPEN_STATES
from toolkit.errors import DecodeError
from toolkit.formats.coordinator.transaction_log_records import (
    STATE_TOPIC,
    TransactionState,
    read_transaction_key,
    read_transaction_value,
)
from toolkit.schema import Row, utc
from toolkit.schema.table import utc_now
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.partition_offsets import partition_rows
from toolkit.sources.live.state.transaction_listing import UNKNOWN

if TYPE_CHECKING:
    from toolkit.config import ClientConfig

MAX_POLL_RECORDS = 10_000
NewestRecords = dict[bytes, tuple[int, bytes | None]]  # key to partition and value; null is a tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLog:
    """The newest record of every transactional id.

    Parameters
    ----------
    rows
        Rows of ``schema.TRANSACTIONS``.
    failures
        A row without id for each partition that could not be read to its end.
    partitions
        Number of partitions read completely.
    """

    rows: list[Row]
    failures: list[Row]
    partitions: int

    @property
    def is_complete(self) -> bool:
        """Whether no partition is missing, so that an id without a row does not exist."""
        return self.partitions > 0 and not self.failures


def read_state_log(
    client: BrokerClient,
    config: ClientConfig,
    coordinator_topic: CoordinatorTopic,
    *,
    only: Collection[int] | None = None,
    timeout: float,
) -> TransactionLog:
    """Read the topic from its start to its current end.

    Parameters
    ----------
    client, config
        The connection to the brokers, and its configuration.
    coordinator_topic
        Metadata of ``__transaction_state``.
    only
        Partitions to read; null for all.
    timeout
        Seconds; a partition not read to its end by then is a failure.
    """
    deadline = time.monotonic() + timeout
    if coordinator_topic.hidden:
        return TransactionLog(rows=[], failures=[_failure(None, None, coordinator_topic.hidden)], partitions=0)
    partition_metadata = {
        tp: row for tp, row in coordinator_topic.topology.partitions.items() if only is None or tp[1] in only
    }
    partitions = {row["partition"]: row for row in partition_rows(client, partition_metadata)}
    errors = {number: row["error"] for number, row in partitions.items() if row["error"]}
    # To the log end, not the high watermark, which can lag behind right after an election.
    ends = {
        number: row["log_end_offset"] or row["high_watermark"] or 0
        for number, row in partitions.items()
        if number not in errors
    }
    starts = {number: partitions[number]["log_start_offset"] or 0 for number in ends}
    newest = _consume(config, {n: (starts[n], end) for n, end in ends.items() if starts[n] < end}, errors, deadline)
    rows = list(_rows(newest, partitions, errors))
    failures = [_failure(number, partitions[number]["leader"], error) for number, error in sorted(errors.items())]
    return TransactionLog(rows=rows, failures=failures, partitions=len(partitions) - len(failures))


def _consume(
    config: ClientConfig, ranges: Mapping[int, tuple[int, int]], errors: dict[int, str], deadline: float
) -> NewestRecords:
    """The newest value by key; failed and unfinished partitions are added to `errors`."""
    newest: NewestRecords = {}
    if not ranges:
        return newest
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **config.librdkafka(),
            "group.id": "kafka-txn-toolkit",  # librdkafka requires one; the group is not joined, nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "auto.offset.reset": "error",
            "error_cb": lambda _: None,  # failed brokers show as unread partitions
            "log_level": 0,
        }
    )
    remaining = {number: end for number, (_, end) in ranges.items()}
    try:
        consumer.assign([TopicPartition(STATE_TOPIC, number, start) for number, (start, _) in ranges.items()])
        while remaining and (seconds := deadline - time.monotonic()) > 0:
            for message in consumer.consume(MAX_POLL_RECORDS, timeout=min(0.2, seconds)):
                if message.topic() != STATE_TOPIC:
                    continue  # a client-wide error, such as missing rights on the unused group
                number, position, error = message.partition() or 0, message.offset() or 0, message.error()
                if error is None:
                    newest[message.key() or b""] = (number, message.value())
                    position += 1
                elif error.code() != KafkaError._PARTITION_EOF:
                    errors[number] = f"{error.name().lstrip('_')}: {config.scrub(error.str())}"
                    remaining.pop(number, None)
                if position >= remaining.get(number, position + 1):
                    del remaining[number]
    finally:
        consumer.close()
    errors.update(dict.fromkeys(remaining, "REQUEST_TIMED_OUT: the partition was not read to its end in time"))
    return newest


def _rows(newest: NewestRecords, partitions: Mapping[int, Row], errors: dict[int, str]) -> Iterable[Row]:
    for key, (number, value) in newest.items():
        try:
            transactional_id = read_transaction_key(key)
            state = None if value is None else read_transaction_value(value)
        except DecodeError as exc:
            errors[number] = f"CORRUPT_MESSAGE: {exc}"
            continue
        if transactional_id is not None and state is not None:
            yield _row(transactional_id, state, partitions[number])


def _row(transactional_id: str, state: TransactionState, partition: Row) -> Row:
    is_open = state.state in OPEN_STATES
    return {
        **UNKNOWN,
        "transactional_id": transactional_id,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "state": state.state,
        "timeout_ms": state.timeout_ms,
        "start_time": utc(state.start_timestamp_ms) if is_open else None,
        "last_update_time": utc(state.last_update_timestamp_ms),
        "topic_partitions": [{"topic": topic, "partition": number} for topic, number in state.topic_partitions],
        "coordinator_id": partition["leader"],
        "txn_state_partition": partition["partition"],
        "source": STATE_TOPIC,
        "broker_id": partition["leader"],
        "observed_at": partition["observed_at"],
    }


def _failure(partition: int | None, leader: int | None, error: str) -> Row:
    location = {"txn_state_partition": partition, "coordinator_id": leader, "broker_id": leader}
    return {**UNKNOWN, **location, "source": STATE_TOPIC, "observed_at": utc_now(), "error": error}
