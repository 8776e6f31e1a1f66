"""Records of ``__transaction_state`` and ``__consumer_offsets``, from the partitions' leaders (Fetch)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from toolkit.errors import BrokerError, NotFound
from toolkit.formats.coordinator.coordinator_log_rows import offsets_log, transaction_log
from toolkit.formats.log.batches import CONTROL
from toolkit.formats.log.headers import Headers
from toolkit.schema.live import Partition
from toolkit.schema.log import OffsetsLogRecord, TransactionLogRecord
from toolkit.schema.table import Error
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.partition_log import FetchedChunk, fetch_range
from toolkit.sources.live.state.coordinators import CoordinatorTopic
from toolkit.sources.live.state.leaders import read_partitions

COMPRESSION = 0x07  # bits of attributes
R = TypeVar("R", TransactionLogRecord, OffsetsLogRecord)


def records_of_ids(
    client: BrokerClient,
    coordinator_topic: CoordinatorTopic,
    transactional_ids: Collection[str] | None,
    partitions: Collection[int] | None,
) -> Iterator[TransactionLogRecord]:
    """Records of some ids or all, and what could not be read of the partitions that they hash to.

    `coordinator_topic`: ``__transaction_state``.
    `transactional_ids`: only these ids; null for all.
    `partitions`: only these partitions of ``__transaction_state``; null for all.
    Raises BrokerError or NotFound: as `transaction_log_records`.
    """
    if transactional_ids is None:
        yield from transaction_log_records(client, coordinator_topic, partitions)
        return
    hashed = {number for each in transactional_ids if (number := coordinator_topic.partition(each)) is not None}
    ids = set(transactional_ids)
    selected = hashed if partitions is None else hashed & set(partitions)
    having = [each.encode() for each in ids]
    for record in transaction_log_records(client, coordinator_topic, selected, having=having):
        if record.transactional_id in ids or record.error:
            yield record


def read_coordinator_topic(client: BrokerClient, topic: str) -> CoordinatorTopic:
    """Metadata of a coordinators' topic. Raises BrokerError if this principal may not describe it."""
    coordinator_topic = CoordinatorTopic.read(client, topic)
    if coordinator_topic.hidden:
        code, text = Error.of(coordinator_topic.hidden)
        raise BrokerError(f"Topic {topic!r} cannot be described: {(text or code).rstrip('.')}.", code=code)
    return coordinator_topic


def transaction_log_records(
    client: BrokerClient,
    coordinator_topic: CoordinatorTopic,
    partitions: Collection[int] | None = None,
    *,
    newest: int | None = None,
    start: Mapping[int, int] | None = None,
    having: Collection[bytes] | None = None,
) -> Iterator[TransactionLogRecord]:
    """Records of ``__transaction_state``, partition by partition; what could not be read is one with `error`.

    `partitions`: only these; null for all.
    `newest`: only this many offsets before the end of each; null for all.
    `start`: first offset to read of a partition; the log's first one if it has none here.
    `having`: decode only batches that contain one of these byte strings, or are compressed.
    Raises NotFound if the topic does not have one of the partitions.
    """
    for number, chunk in _chunks(client, coordinator_topic, partitions, start=start or {}, newest=newest):
        where = TransactionLogRecord(txn_state_partition=number, broker_id=chunk.broker_id)
        yield from _records(chunk, transaction_log, where, having)


def offsets_log_records(
    client: BrokerClient,
    coordinator_topic: CoordinatorTopic,
    partitions: Collection[int] | None = None,
    *,
    start: Mapping[int, int] | None = None,
) -> Iterator[OffsetsLogRecord]:
    """Records of ``__consumer_offsets``, as `transaction_log_records`.

    Raises NotFound if the topic does not have one of the partitions.
    """
    for number, chunk in _chunks(client, coordinator_topic, partitions, start=start or {}):
        where = OffsetsLogRecord(group_partition=number, broker_id=chunk.broker_id)
        yield from _records(chunk, offsets_log, where)


def _chunks(
    client: BrokerClient,
    topic: CoordinatorTopic,
    numbers: Collection[int] | None,
    *,
    start: Mapping[int, int],
    newest: int | None = None,
) -> Iterator[tuple[int, FetchedChunk]]:
    """The logs of partitions, with their numbers; one that cannot be read is a chunk with `error`."""
    for partition in _partitions(client, topic, numbers):
        number = partition.partition
        if partition.error:
            yield number, FetchedChunk(broker_id=partition.leader, error=partition.error)
            continue
        first = max(partition.log_start_offset or 0, start.get(number, 0))
        if newest is not None:
            first = max(first, (partition.high_watermark or 0) - newest)
        # A coordinator loads its state up to the log end. While the high watermark is before that, ListOffsets returns
        # OFFSET_NOT_AVAILABLE (KIP-207): so nothing that it knows is missing here.
        for chunk in fetch_range(client, partition, first, "high_watermark").chunks:
            yield number, chunk


def _partitions(client: BrokerClient, topic: CoordinatorTopic, numbers: Collection[int] | None) -> list[Partition]:
    """The partitions of a topic, by number."""
    leaders = topic.metadata.partitions
    for missing in sorted(set(numbers or ()) - {tp.partition for tp in leaders}):
        raise NotFound(f"Topic {topic.topic!r} has no partition {missing}: it has 0 to {topic.count - 1}.")
    selected = {tp: leader for tp, leader in sorted(leaders.items()) if numbers is None or tp.partition in numbers}
    return sorted(read_partitions(client, selected), key=lambda each: each.partition)


def _records(
    chunk: FetchedChunk, decode: Callable[..., Iterator[R]], where: R, having: Collection[bytes] | None = None
) -> Iterator[R]:
    for error in (*([chunk.error] if chunk.error else []), *(damage.reason for damage in chunk.damage)):
        yield replace(where, error=error)
    headers = chunk.headers[chunk.headers["attributes"] & CONTROL == 0]
    for position in headers["position"][_contain(headers, chunk.records, having)].tolist():
        yield from decode(chunk.records, position, where=where)


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
