"""``__transaction_state`` read completely, and what read_committed consumers receive.

A complete read of ``__transaction_state`` replaces the coordinators' responses. It also has the time of the last state
change, which no request returns.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolkit.analysis.coordinator.transaction_owners import OPEN_STATES
from toolkit.errors import BrokerError, DecodeError, ToolkitError
from toolkit.formats.coordinator.transaction_log_records import (
    STATE_TOPIC,
    read_transaction_key,
    read_transaction_value,
)
from toolkit.schema import utc
from toolkit.schema.live import Partition, Transaction
from toolkit.schema.table import Error, TopicPartition, utc_now
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.fetch import TRANSIENT, WAIT_MS, FetchedBatches, FetchPosition, fetch
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.leaders import Leaders, read_metadata, read_partitions

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from toolkit.config import ClientConfig

MAX_POLL_RECORDS = 1_000
POLL_S = 0.2
STATE_FETCH_BYTES = 1 << 20  # of each partition
PAUSE_S = 0.2  # before a leader that has moved is looked up again
NewestRecords = dict[bytes, tuple[int, bytes | None]]  # key to partition and value; null is a tombstone


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLog:
    """The newest record of every transactional id."""

    transactions: list[Transaction]  # the state of each id
    failures: list[Transaction]  # a record without id for each partition that could not be read to its end
    partitions: int  # number of partitions read completely

    @property
    def is_complete(self) -> bool:
        """Whether no partition is missing, so that an id without a record does not exist."""
        return self.partitions > 0 and not self.failures

    @property
    def newest_time(self) -> dt.datetime | None:
        """The newest time of a state by its coordinator's clock; null if there is none."""
        times = (each.last_update_time for each in self.transactions)
        return max((time for time in times if time is not None), default=None)


def read_state_log(
    client: BrokerClient, coordinator_topic: CoordinatorTopic, *, only: Collection[int] | None = None, timeout: float
) -> TransactionLog:
    """Read the topic from its start to its current end.

    `only`: partitions to read; null for all.
    `timeout`: seconds; a partition not read to its end by then is a failure.
    """
    deadline = time.monotonic() + timeout
    if coordinator_topic.hidden:
        return TransactionLog(transactions=[], failures=[_failure(None, coordinator_topic.hidden)], partitions=0)
    leaders = {
        tp: each for tp, each in coordinator_topic.metadata.partitions.items() if only is None or tp.partition in only
    }
    partitions = {each.partition: each for each in read_partitions(client, leaders)}
    errors = {number: each.error for number, each in partitions.items() if each.error}
    # To the log end, not the high watermark, which can lag behind right after an election.
    ranges = {
        number: (each.log_start_offset or 0, each.log_end_offset or each.high_watermark or 0)
        for number, each in partitions.items()
        if not each.error
    }
    newest = _newest_records(
        client, leaders, {n: each for n, each in ranges.items() if each[0] < each[1]}, errors, deadline
    )
    transactions = list(_transactions(newest, partitions, errors))
    failures = [_failure(partitions[number], error) for number, error in sorted(errors.items())]
    return TransactionLog(transactions=transactions, failures=failures, partitions=len(partitions) - len(failures))


def _newest_records(
    client: BrokerClient,
    leaders: Leaders,
    ranges: Mapping[int, tuple[int, int]],
    errors: dict[int, str],
    deadline: float,
) -> NewestRecords:
    """The newest value by key; failed and unfinished partitions are added to `errors`."""
    newest: NewestRecords = {}
    reached = {number: start for number, (start, _) in ranges.items()}
    while reached and time.monotonic() < deadline:
        positions = [FetchPosition.of(leaders[TopicPartition(STATE_TOPIC, each)], at) for each, at in reached.items()]
        fetched = fetch(client, positions, max_bytes=STATE_FETCH_BYTES, max_wait_ms=WAIT_MS)
        moved = False
        for position, found in zip(positions, fetched, strict=True):
            number = position.tp.partition
            if found.error and Error.of(found.error).code in TRANSIENT:
                moved = True
                continue
            try:
                reached[number] = _add(newest, number, found) or position.offset
            except DecodeError as exc:
                found = replace(found, error=f"CORRUPT_MESSAGE: {exc}")
            if found.error:
                errors[number] = found.error
            elif max(reached[number], 0 if found.records else found.high_watermark or 0) < ranges[number][1]:
                continue
            del reached[number]  # read to its end, or only compacted offsets follow
        if moved:
            threading.Event().wait(PAUSE_S)
            leaders = _leaders_again(client, leaders)
    errors.update(dict.fromkeys(reached, "REQUEST_TIMED_OUT: the partition was not read to its end in time"))
    return newest


def _leaders_again(client: BrokerClient, leaders: Leaders) -> Leaders:
    try:
        return read_metadata(client, [STATE_TOPIC]).at(leaders)
    except ToolkitError:  # no broker responds yet
        return leaders


def _add(newest: NewestRecords, number: int, found: FetchedBatches) -> int | None:
    """Add the records of a response, and return the offset after its last batch; null if it has none."""
    from toolkit.formats.coordinator.coordinator_log_rows import keys_and_values  # imports numpy
    from toolkit.formats.log.scan import scan

    if not found.records:
        return None
    scanned = scan(found.records, crc=True, last=False)
    if scanned.damage or not len(scanned.headers) or not scanned.headers["crc_ok"].all():
        why = scanned.damage[0].reason if scanned.damage else "a batch is incomplete, or its checksum is wrong"
        raise DecodeError(why, position=scanned.damage[0].position if scanned.damage else 0)
    for key, value in keys_and_values(found.records, scanned.headers):
        newest[key or b""] = (number, value)
    return int(scanned.headers["last_offset"][-1]) + 1


def _consumer(config: ClientConfig) -> Consumer:
    from confluent_kafka import Consumer, KafkaException

    settings = {
        **config.librdkafka(),
        "group.id": "kafka-txn-toolkit",  # librdkafka requires one; the group is not joined, nothing is committed
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",  # if retention deletes the start meanwhile
        "error_cb": lambda _: None,  # failed brokers show as records that did not arrive
        "log_level": 0,
    }
    try:
        return Consumer(settings)
    except KafkaException as exc:  # its wheels have no Kerberos, and it knows fewer TLS settings than Java
        text = config.scrub(exc.args[0].str())
        raise BrokerError(
            f"No read_committed consumer of librdkafka starts with this configuration: {text}.",
            code="NONE",
            do="Read the partition with a consumer of your own.",
        ) from None


def _transactions(
    newest: NewestRecords, partitions: Mapping[int, Partition], errors: dict[int, str]
) -> Iterator[Transaction]:
    for key, (number, value) in newest.items():
        try:
            transactional_id = read_transaction_key(key)
            state = None if value is None else read_transaction_value(value)
        except DecodeError as exc:
            errors[number] = f"CORRUPT_MESSAGE: {exc}"
            continue
        if transactional_id is None or state is None:
            continue
        partition = partitions[number]
        yield Transaction(
            transactional_id=transactional_id,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            state=state.state,
            timeout_ms=state.timeout_ms,
            start_time=utc(state.start_timestamp_ms) if state.state in OPEN_STATES else None,
            last_update_time=utc(state.last_update_timestamp_ms),
            topic_partitions=tuple(TopicPartition(*each) for each in state.topic_partitions),
            coordinator_id=partition.leader,
            txn_state_partition=number,
            source=STATE_TOPIC,
            broker_id=partition.leader,
            observed_at=partition.observed_at,
        )


def _failure(partition: Partition | None, error: str) -> Transaction:
    return Transaction(
        txn_state_partition=None if partition is None else partition.partition,
        coordinator_id=None if partition is None else partition.leader,
        broker_id=None if partition is None else partition.leader,
        source=STATE_TOPIC,
        observed_at=utc_now(),
        error=error,
    )


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

    `start`, `stop`: the range ``start <= offset < stop``.
    `timeout`: seconds; what was received by then is returned.
    `check`: called while it waits; what it raises ends the read.
    Raises BrokerError if the partition cannot be read, or librdkafka does not support the configuration.
    """
    from confluent_kafka import KafkaError
    from confluent_kafka import TopicPartition as ConsumedPartition

    consumer = _consumer(config)
    offsets: list[int] = []
    deadline = time.monotonic() + timeout
    try:
        consumer.assign([ConsumedPartition(topic, partition, start)])
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
