"""Records of ``__transaction_state`` and ``__consumer_offsets``, from the partitions' leaders (Fetch)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from toolkit.errors import BrokerError, NotFound
from toolkit.formats.coordinator.coordinator_log_rows import offsets_log, transaction_log, unread_records
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.batches import CONTROL
from toolkit.formats.log.headers import Headers
from toolkit.schema import Row
from toolkit.schema.live import Partition
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.table import Error
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.partition_log import FetchedChunk, fetch_range
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.leaders import read_partitions

COMPRESSION = 0x07  # bits of attributes


def transaction_log_rows(
    client: BrokerClient, transactional_ids: Collection[str] | None, partitions: Collection[int] | None
) -> Iterator[Row]:
    """Rows of ``schema.TRANSACTION_LOG`` of some ids or all, and error rows of the partitions that they hash to.

    Parameters
    ----------
    client
        The connection to the brokers.
    transactional_ids
        Only these ids; null for all.
    partitions
        Only these partitions of ``__transaction_state``; null for all.

    Raises
    ------
    BrokerError, NotFound
        As `event_rows`.
    """
    coordinator_topic = read_coordinator_topic(client, STATE_TOPIC)
    if transactional_ids is None:
        yield from event_rows(client, coordinator_topic, partitions)
        return
    hashed = {number for each in transactional_ids if (number := coordinator_topic.partition(each)) is not None}
    ids = set(transactional_ids)
    selected = hashed if partitions is None else hashed & set(partitions)
    for row in event_rows(client, coordinator_topic, selected, having=[each.encode() for each in ids]):
        if row["transactional_id"] in ids or row["error"]:
            yield row


def offsets_log_rows(
    client: BrokerClient, groups: Collection[str] | None, partitions: Collection[int] | None
) -> Iterator[Row]:
    """Rows of ``schema.OFFSETS_LOG`` of some groups or all, and error rows of the partitions that they hash to.

    Parameters
    ----------
    client
        The connection to the brokers.
    groups
        Only these groups; null for all.
    partitions
        Only these partitions of ``__consumer_offsets``; null for all.

    Raises
    ------
    BrokerError, NotFound
        As `event_rows`.
    """
    coordinator_topic = read_coordinator_topic(client, OFFSETS_TOPIC)
    if groups is None:
        yield from event_rows(client, coordinator_topic, partitions)
        return
    hashed = {number for each in groups if (number := coordinator_topic.partition(each)) is not None}
    selected = hashed if partitions is None else hashed & set(partitions)
    for row in event_rows(client, coordinator_topic, selected):
        if row["error"] or row["group_id"] in groups:
            yield row


def transaction_log_records(
    client: BrokerClient,
    coordinator_topic: CoordinatorTopic,
    partitions: Collection[int] | None = None,
    *,
    newest: int | None = None,
    start: Mapping[int, int] | None = None,
    having: Collection[bytes] | None = None,
) -> Iterator[TransactionLogRecord]:
    """`event_rows` of ``__transaction_state``, with its parameters and errors, as records."""
    rows = event_rows(client, coordinator_topic, partitions, newest=newest, start=start, having=having)
    return map(TransactionLogRecord.of, rows)


def read_coordinator_topic(client: BrokerClient, topic: str) -> CoordinatorTopic:
    """Metadata of a coordinators' topic.

    Raises
    ------
    BrokerError
        If this principal may not describe it.
    """
    coordinator_topic = CoordinatorTopic.read(client, topic)
    if coordinator_topic.hidden:
        code, text = Error.of(coordinator_topic.hidden)
        raise BrokerError(f"Topic {topic!r} cannot be described: {(text or code).rstrip('.')}.", code=code)
    return coordinator_topic


def event_rows(
    client: BrokerClient,
    coordinator_topic: CoordinatorTopic,
    partitions: Collection[int] | None = None,
    *,
    newest: int | None = None,
    start: Mapping[int, int] | None = None,
    having: Collection[bytes] | None = None,
) -> Iterator[Row]:
    """Records of a coordinators' topic, partition by partition; what could not be read is a row with `error`.

    Parameters
    ----------
    client
        The connection to the brokers.
    coordinator_topic
        ``__transaction_state``, for rows of ``schema.TRANSACTION_LOG``, or ``__consumer_offsets``, for rows of
        ``schema.OFFSETS_LOG``.
    partitions
        Only these; null for all.
    newest
        Only this many offsets before the end of each; null for all.
    start
        First offset to read of a partition; the log's first one if it has none here.
    having
        Decode only batches that contain one of these byte strings, or are compressed.

    Raises
    ------
    NotFound
        If the topic does not have one of the partitions.
    """
    leaders = coordinator_topic.metadata.partitions
    numbers = {tp.partition for tp in leaders}
    for missing in sorted(set(partitions or ()) - numbers):
        raise NotFound(
            f"Topic {coordinator_topic.topic!r} has no partition {missing}: it has 0 to {coordinator_topic.count - 1}."
        )
    selected = {
        tp: leader for tp, leader in sorted(leaders.items()) if partitions is None or tp.partition in partitions
    }
    for partition in sorted(read_partitions(client, selected), key=lambda each: each.partition):
        if partition.error:
            yield _failed(partition, partition.leader, partition.error)
            continue
        first = max(partition.log_start_offset or 0, (start or {}).get(partition.partition, 0))
        if newest is not None:
            first = max(first, (partition.high_watermark or 0) - newest)
        for chunk in fetch_range(client, partition, first, "high_watermark").chunks:
            yield from _records(partition, chunk, having)


def _records(partition: Partition, chunk: FetchedChunk, having: Collection[bytes] | None) -> Iterator[Row]:
    if chunk.error:
        yield _failed(partition, chunk.broker_id, chunk.error)
    for damage in chunk.scanned.damage:
        yield _failed(partition, chunk.broker_id, damage.reason)
    headers = chunk.scanned.headers[chunk.scanned.headers["attributes"] & CONTROL == 0]
    for position in headers["position"][_contain(headers, chunk.records, having)].tolist():
        if partition.topic == STATE_TOPIC:
            yield from transaction_log(
                chunk.records, position, txn_state_partition=partition.partition, broker_id=chunk.broker_id
            )
        else:
            yield from offsets_log(
                chunk.records, position, group_partition=partition.partition, broker_id=chunk.broker_id
            )


def _contain(headers: Headers, records: bytes, needles: Collection[bytes] | None) -> npt.NDArray[np.bool_]:
    """Whether each batch contains one of the byte strings, or is compressed: then that is not known."""
    if needles is None:
        return np.ones(len(headers), bool)
    found: npt.NDArray[np.bool_] = headers["attributes"] & COMPRESSION != 0
    positions = headers["position"]
    for needle in needles:
        at = records.find(needle)
        while at >= 0:
            batch = int(positions.searchsorted(at, side="right")) - 1
            if batch >= 0:  # not in a control batch before the first one
                found[batch] = True
            at = records.find(needle, at + 1)
    return found


def _failed(partition: Partition, broker_id: int | None, error: str) -> Row:
    return unread_records(partition.topic, partition.partition, error=error, broker_id=broker_id)
