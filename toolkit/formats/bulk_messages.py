"""Requests and responses with thousands of partitions or transactional ids, encoded and decoded directly.

A cluster can have hundreds of thousands. In a response, each becomes one tuple, with kafka-python's field names.
Source: MetadataResponse.json, ListOffsetsRequest.json, ListOffsetsResponse.json, DescribeProducersRequest.json,
DescribeProducersResponse.json and ListTransactionsResponse.json among the messages of Kafka's clients; KIP-482
(flexible versions). Requests have no tagged fields.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import starmap
from typing import Any, NamedTuple

from toolkit.errors import DecodeError
from toolkit.formats.primitives import Buffer, Reader

Partitions = Mapping[str, Sequence[int]]
"""Topic to partition numbers."""

LISTED = struct.Struct(">iiqx")
NO_TAGS = b"\0"


def list_offsets(
    partitions: Partitions, *, version: int, replica_id: int, isolation_level: int, timestamp: int, timeout_ms: int
) -> bytes:
    """Body of ListOffsets, version 6 or newer."""
    listed = LISTED.pack

    def offsets(numbers: Sequence[int]) -> bytes:
        return b"".join([listed(number, -1, timestamp) for number in numbers])

    timeout = struct.pack(">i", timeout_ms) if version >= 10 else b""
    return struct.pack(">ib", replica_id, isolation_level) + _topics(partitions, offsets) + timeout + NO_TAGS


def describe_producers(partitions: Partitions) -> bytes:
    """Body of DescribeProducers."""
    return _topics(partitions, lambda numbers: struct.pack(f">{len(numbers)}i", *numbers)) + NO_TAGS


def _topics(partitions: Partitions, encoded: Callable[[Sequence[int]], bytes]) -> bytes:
    parts = [_length(len(partitions))]
    for name, numbers in partitions.items():
        text = name.encode()
        parts += (_length(len(text)), text, _length(len(numbers)), encoded(numbers), NO_TAGS)
    return b"".join(parts)


@cache
def _length(number: int) -> bytes:
    """Length of a compact array or text."""
    number += 1
    if number < 0x80:
        return number.to_bytes(1, "big")
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


class Broker(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...]
    isr_nodes: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicMetadata(NamedTuple):
    error_code: int
    name: str | None
    is_internal: bool
    partitions: Sequence[PartitionMetadata]
    topic_id: str | None = None  # as in partition.metadata; null before version 10, and without topic ids


class MetadataResponse(NamedTuple):
    API_VERSION: int
    throttle_time_ms: int
    brokers: Sequence[Broker]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[TopicMetadata]
    error_code: int


class ListedOffset(NamedTuple):
    topic: str
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int = -1


class ListOffsetsResponse(NamedTuple):
    API_VERSION: int
    throttle_time_ms: int
    partitions: Sequence[ListedOffset]


class ProducerState(NamedTuple):
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class PartitionProducers(NamedTuple):
    topic: str
    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: Sequence[ProducerState]


class DescribeProducersResponse(NamedTuple):
    API_VERSION: int
    throttle_time_ms: int
    partitions: Sequence[PartitionProducers]


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(NamedTuple):
    API_VERSION: int
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListedTransaction]


INT_BYTE = struct.Struct(">qB")
PARTITION = struct.Struct(">ih")
PRODUCER = struct.Struct(">qiiqiq")
ONE_OFFSET = struct.Struct(">xihqqixx")  # all partitions of a topic if there is one, without tagged fields
NO_PRODUCERS = struct.Struct(">ihxxx")  # a partition without producers, error message and tagged fields
ONE_PRODUCER = struct.Struct(">ihxxqiiqiqxx")  # the same with one producer
OFFSET = {version: struct.Struct(">ihqq" if version < 4 else ">ihqqi") for version in range(1, 12)}
LEADER = {version: struct.Struct(">hii" if version < 7 else ">hiii") for version in range(14)}
STATES = {
    name.encode(): name
    for name in ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead",
                 "PrepareEpochFence")
}  # fmt: skip


def decode(response: Buffer, *, api_key: int, version: int) -> tuple[int, Any]:
    """The correlation id of a response and its message.

    `response`: header and body, without the size before them.
    `api_key`: one of `APIS`.
    Raises DecodeError if it is damaged, or of an unknown version.
    """
    api = APIS[api_key]
    if version not in api.versions:
        raise DecodeError(f"Version {version} of {api.name} is not known.", position=0)
    reader = Reader(response, f"response to {api.name} version {version}")
    correlation_id = reader.int32()
    flexible = version >= api.flexible_from
    if flexible:
        reader.tags()
    message = api.decode(reader, version, flexible)
    if flexible:
        reader.tags()
    reader.end()
    return correlation_id, message


def _metadata(reader: Reader, version: int, flexible: bool) -> MetadataResponse:
    throttle_time_ms = reader.int32() if version >= 3 else 0
    brokers = []
    for _ in range(reader.length(flexible=flexible, item_size=10)):
        node_id, host, port = reader.int32(), reader.text(flexible=flexible), reader.int32()
        brokers.append(Broker(node_id, host, port, reader.nullable_text(flexible=flexible) if version >= 1 else None))
        if flexible:
            reader.tags()
    cluster_id = reader.nullable_text(flexible=flexible) if version >= 2 else None
    controller_id = reader.int32() if version >= 1 else -1
    topics = [_topic(reader, version, flexible) for _ in range(reader.length(flexible=flexible, item_size=4))]
    if 8 <= version <= 10:
        reader.int32()  # authorized operations
    error_code = reader.int16() if version >= 13 else 0
    return MetadataResponse(version, throttle_time_ms, brokers, cluster_id, controller_id, topics, error_code)


def _topic(reader: Reader, version: int, flexible: bool) -> TopicMetadata:
    error_code = reader.int16()
    name = reader.nullable_text(flexible=flexible) if version >= 12 else reader.text(flexible=flexible)
    topic_id = _topic_id(reader.take(16)) if version >= 10 else None
    is_internal = bool(reader.int8()) if version >= 1 else False
    count = reader.length(flexible=flexible, item_size=LEADER[version].size)
    partitions = _in_sync_partitions(reader, count) if flexible else None
    if partitions is None:
        partitions = [_partition(reader, version, flexible) for _ in range(count)]
    if version >= 8:
        reader.int32()  # authorized operations
    if flexible:
        reader.tags()
    return TopicMetadata(error_code, name, is_internal, partitions, topic_id)


def _topic_id(uuid: Buffer) -> str | None:
    return urlsafe_b64encode(uuid).rstrip(b"=").decode() if any(bytes(uuid)) else None


def _in_sync_partitions(reader: Reader, count: int) -> list[PartitionMetadata] | None:
    """A topic's partitions, if all have the same number of replicas, all in sync, and no tagged fields; else null."""
    data, start = reader.data, reader.position
    length_at = start + LEADER[9].size
    length = data[length_at] if count and length_at < len(data) else 0  # of the first partition's replicas, plus one
    if not 0 < length < 0x80:
        return None
    form, isr = _in_sync(length - 1), 4 + length
    block = data[start : start + count * form.size]
    fixed = {14: length, form.size - 4 * (length - 1) - 3: length, form.size - 2: 1, form.size - 1: 0}
    if any(block[at :: form.size].count(value) < count for at, value in fixed.items()):
        return None
    reader.position += len(block)
    return [
        tuple.__new__(PartitionMetadata, (*fields[:4], fields[5:isr], fields[isr + 1 : -2], ()))
        for fields in form.iter_unpack(block)
    ]


def _partition(reader: Reader, version: int, flexible: bool) -> PartitionMetadata:
    error_code, index, leader, *epoch = reader.fields(LEADER[version])
    replicas, isr = reader.int32s(flexible=flexible), reader.int32s(flexible=flexible)
    offline = reader.int32s(flexible=flexible) if version >= 5 else ()
    if flexible:
        reader.tags()
    return PartitionMetadata(error_code, index, leader, epoch[0] if epoch else -1, replicas, isr, offline)


@cache
def _in_sync(replicas: int) -> struct.Struct:
    """A partition with so many replicas, all in sync and online, without tagged fields."""
    return struct.Struct(f">hiiiB{replicas}iB{replicas}iBB")


def _list_offsets(reader: Reader, version: int, flexible: bool) -> ListOffsetsResponse:
    form = OFFSET[version]
    throttle_time_ms = reader.int32() if version >= 2 else 0
    listed: list[ListedOffset] = []
    for _ in range(reader.length(flexible=flexible, item_size=3)):
        topic = reader.text(flexible=flexible)
        data, at = reader.data, reader.position
        if flexible and data[at : at + 1] == b"\2" and data[at + 27 : at + 29] == b"\0\0":
            reader.position += ONE_OFFSET.size
            listed.append(tuple.__new__(ListedOffset, (topic, *ONE_OFFSET.unpack_from(data, at))))
            continue
        listed += [ListedOffset(topic, *fields) for fields in reader.items(form, flexible=flexible)]
        if flexible:
            reader.tags()
    return ListOffsetsResponse(version, throttle_time_ms, listed)


def _describe_producers(reader: Reader, version: int, flexible: bool) -> DescribeProducersResponse:
    throttle_time_ms = reader.int32()
    described: list[PartitionProducers] = []
    for _ in range(reader.length(flexible=True, item_size=3)):
        topic = reader.text(flexible=True)
        count = reader.length(flexible=True, item_size=NO_PRODUCERS.size)
        described += [_producers(reader, topic) for _ in range(count)]
        reader.tags()
    return DescribeProducersResponse(version, throttle_time_ms, described)


def _producers(reader: Reader, topic: str) -> PartitionProducers:
    data, at = reader.data, reader.position
    if data[at + 6 : at + 9] == b"\0\1\0":
        reader.position += NO_PRODUCERS.size
        return tuple.__new__(PartitionProducers, (topic, *NO_PRODUCERS.unpack_from(data, at), None, ()))
    if data[at + 6 : at + 8] == b"\0\2" and data[at + 44 : at + 46] == b"\0\0":
        reader.position += ONE_PRODUCER.size
        index, error_code, *producer = ONE_PRODUCER.unpack_from(data, at)
        producers = [tuple.__new__(ProducerState, producer)]
        return tuple.__new__(PartitionProducers, (topic, index, error_code, None, producers))
    index, error_code = reader.fields(PARTITION)
    text = reader.nullable_text(flexible=True)
    producers = list(starmap(ProducerState, reader.items(PRODUCER, flexible=True)))
    reader.tags()
    return PartitionProducers(topic, index, error_code, text, producers)


def _list_transactions(reader: Reader, version: int, flexible: bool) -> ListTransactionsResponse:
    throttle_time_ms, error_code = reader.int32(), reader.int16()
    filters = [reader.text(flexible=True) for _ in range(reader.length(flexible=True, item_size=1))]
    count = reader.length(flexible=True, item_size=11)
    return ListTransactionsResponse(version, throttle_time_ms, error_code, filters, _transactions(reader, count))


def _transactions(reader: Reader, count: int) -> list[ListedTransaction]:
    """There may be a million, so one of the usual form is decoded without `Reader`."""
    data, at = reader.data, reader.position
    last = len(data) - INT_BYTE.size
    found = []
    for _ in range(count):
        end = at + data[at] if at < last else last + 1
        if at < end <= last and data[at] < 0x80:  # the length takes one byte
            producer_id, length = INT_BYTE.unpack_from(data, end)
            start = end + INT_BYTE.size
            state = STATES.get(data[start : start + length - 1])
            if state is not None and data[start + length - 1 : start + length] == b"\0":  # no tagged fields
                try:
                    found.append(ListedTransaction(str(data[at + 1 : end], "utf-8"), producer_id, state))
                except UnicodeDecodeError:
                    pass  # the reader reports the position
                else:
                    at = start + length
                    continue
        reader.position = at
        found.append(ListedTransaction(reader.text(flexible=True), reader.int64(), reader.text(flexible=True)))
        reader.tags()
        at = reader.position
    reader.position = at
    return found


class ResponseApi(NamedTuple):
    """A kind of response."""

    name: str
    versions: range
    flexible_from: int
    decode: Callable[[Reader, int, bool], Any]


APIS: Mapping[int, ResponseApi] = {
    2: ResponseApi("ListOffsets", range(1, 12), 6, _list_offsets),
    3: ResponseApi("Metadata", range(14), 9, _metadata),
    61: ResponseApi("DescribeProducers", range(1), 0, _describe_producers),
    66: ResponseApi("ListTransactions", range(3), 0, _list_transactions),
}
"""By API key."""
