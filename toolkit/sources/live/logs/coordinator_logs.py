"""Records of ``__transaction_state`` and ``__consumer_offsets``, from the partitions' leaders (Fetch)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from toolkit.errors import BrokerError, NotFound
from toolkit.formats.coordinator.coordinator_log_rows import offsets_log, transaction_log, unread_records
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.batches import CONTROL
from toolkit.schema import Row
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.partition_log import FetchedChunk, fetch_range
from toolkit.sources.live.state.cluster_metadata import read_metadata
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.partition_offsets import partition_rows

__all__ = ["event_rows", "read_coordinator_topic", "transaction_log_rows"]

COMPRESSION = 0x07  # bits of attributes


def transaction_log_rows(
    client: BrokerClient, transactional_ids: Collection[str] | None, partitions: Collection[int] | None
) -> Iterator[Row]:
    """Rows of ``schema.TRANSACTION_LOG`` of some ids or all, and error rows of the partitions that they hash to.

    Parameters
    ----------
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


def read_coordinator_topic(client: BrokerClient, topic: str) -> CoordinatorTopic:
    """Metadata of a coordinators' topic.

    Raises
    ------
    BrokerError
        If this principal may not describe it.
    """
    coordinator_topic = CoordinatorTopic(topic, read_metadata(client, [topic]))
    if coordinator_topic.hidden:
        code, _, text = coordinator_topic.hidden.partition(": ")
        raise BrokerError(f"Topic {topic!r} cannot be described: {text or code}.", code=code)
    return coordinator_topic


def event_rows(
    client: BrokerClient,
    coordinator_topic: CoordinatorTopic,
    partitions: Collection[int] | None = None,
    *,
    newest: int | None = None,
    having: Collection[bytes] | None = None,
) -> Iterator[Row]:
    """Records of a coordinators' topic, partition by partition; what could not be read is a row with `error`.

    Parameters
    ----------
    coordinator_topic
        ``__transaction_state``, for rows of ``schema.TRANSACTION_LOG``, or ``__consumer_offsets``, for rows of
        ``schema.OFFSETS_LOG``.
    partitions
        Only these; null for all.
    newest
        Only this many offsets before the end of each; null for all.
    having
        Decode only batches that contain one of these byte strings, or are compressed.

    Raises
    ------
    NotFound
        If the topic does not have one of the partitions.
    """
    partition_metadata = {number: row for (_, number), row in coordinator_topic.topology.partitions.items()}
    for missing in sorted(set(partitions or ()) - partition_metadata.keys()):
        raise NotFound(
            f"Topic {coordinator_topic.topic!r} has no partition {missing}: it has 0 to {coordinator_topic.count - 1}."
        )
    selected = {
        (coordinator_topic.topic, number): partition_metadata[number]
        for number in sorted(partition_metadata if partitions is None else partitions)
    }
    for row in sorted(partition_rows(client, selected), key=lambda row: int(row["partition"])):
        if row["error"]:
            yield _failed(row, row["leader"], row["error"])
            continue
        start = row["log_start_offset"] or 0
        if newest is not None:
            start = max(start, row["high_watermark"] - newest)
        for chunk in fetch_range(client, row, start, "high_watermark").chunks:
            yield from _records(row, chunk, having)


def _records(row: Row, chunk: FetchedChunk, having: Collection[bytes] | None) -> Iterator[Row]:
    if chunk.error:
        yield _failed(row, chunk.broker_id, chunk.error)
    for damage in chunk.scanned.damage:
        yield _failed(row, chunk.broker_id, damage.reason)
    for header in chunk.scanned.headers[chunk.scanned.headers["attributes"] & CONTROL == 0]:
        position = int(header["position"])
        if having is not None and header["attributes"] & COMPRESSION == 0:
            end = position + int(header["size"])
            if all(chunk.records.find(each, position, end) < 0 for each in having):
                continue
        if row["topic"] == STATE_TOPIC:
            number: dict[str, Any] = {"txn_state_partition": row["partition"]}
            yield from transaction_log(chunk.records, position, **number, broker_id=chunk.broker_id)
        else:
            number = {"group_partition": row["partition"]}
            yield from offsets_log(chunk.records, position, **number, broker_id=chunk.broker_id)


def _failed(row: Row, broker_id: int | None, error: str) -> Row:
    return unread_records(row["topic"], row["partition"], error=error, broker_id=broker_id)
