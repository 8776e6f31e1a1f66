"""Raw batches of live partitions from their leaders (Fetch), and what an offset spec resolves to (ListOffsets)."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkit.errors import BrokerError
from toolkit.schema.live import Partition
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import BrokerResponse, error_text, omitted_text
from toolkit.sources.live.state.leaders import Leader
from toolkit.sources.offset_queries.offset_spec import OffsetSpec, check_offset_spec, milliseconds, named_offset

WAIT_MS = 500  # for a leader that does not have the offsets yet

# Transient errors: an election, a restart, a leader that does not know its high watermark yet.
TRANSIENT = {
    "BROKER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "NOT_LEADER_OR_FOLLOWER",
    "OFFSET_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_LEADER_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",
}


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """An offset of a partition, and the broker to fetch it from."""

    tp: TopicPartition
    offset: int
    broker_id: int
    # epoch in which that broker leads, so that it fails if it no longer leads, or not yet; -1 skips the check
    leader_epoch: int = -1

    @classmethod
    def of(cls, partition: Leader, offset: int) -> FetchPosition:
        """An offset of a partition, to fetch from its leader in its present epoch."""
        leader, epoch = partition.leader, partition.leader_epoch
        return cls(partition.tp, offset, -1 if leader is None else leader, -1 if epoch is None else epoch)


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """The response for one partition."""

    # record batches; the first contains the offset, or follows it if compacted away. The last may be truncated. Empty
    # at the high watermark
    records: bytes = b""
    # producer id to the first offsets of its aborted transactions in `records`; with read_committed only
    aborted: Mapping[int, Sequence[int]] = field(default_factory=dict)
    high_watermark: int | None = None  # the broker's, at the time of the response
    error: str | None = None  # ``"NAME: text"``; null on success


def fetch(
    client: BrokerClient,
    fetch_positions: Sequence[FetchPosition],
    *,
    max_bytes: int,
    read_committed: bool = False,
    max_wait_ms: int = 0,
) -> list[FetchedBatches]:
    """Fetch up to `max_bytes` at each position, but at least one whole batch (KIP-74), in one request each.

    `max_bytes`: limit per position.
    `read_committed`: only up to the LSO; otherwise up to the high watermark, open transactions included.
    `max_wait_ms`: how long a broker may wait for records.
    """
    requests = [
        (position.broker_id, _request(position, max_bytes, read_committed, max_wait_ms)) for position in fetch_positions
    ]
    return [_fetched(response) for response in client.send(requests)]


def _request(position: FetchPosition, max_bytes: int, read_committed: bool, max_wait_ms: int) -> Any:
    topic = messages.Fetch.FetchTopic
    partition = topic.FetchPartition(
        partition=position.tp.partition,
        current_leader_epoch=position.leader_epoch,
        fetch_offset=position.offset,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return messages.Fetch(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1 if max_wait_ms else 0,
        max_bytes=max_bytes,
        isolation_level=int(read_committed),
        session_id=0,
        session_epoch=-1,  # no session
        topics=[topic(topic=position.tp.topic, partitions=[partition])],
        forgotten_topics_data=[],
        max_version=10,  # from 11 a broker may redirect to a follower; 10 has every compression
    )


def _fetched(response: BrokerResponse) -> FetchedBatches:
    if response.failure:
        return FetchedBatches(error=response.failure)
    partition = next((each for topic in response.message.responses for each in topic.partitions), None)
    if partition is None:
        return FetchedBatches(error=omitted_text("Fetch", "this partition"))
    if partition.error_code:
        return FetchedBatches(error=error_text(partition.error_code))
    aborted: dict[int, list[int]] = {}
    for transaction in partition.aborted_transactions or ():
        aborted.setdefault(transaction.producer_id, []).append(transaction.first_offset)
    return FetchedBatches(bytes(partition.records or b""), aborted, partition.high_watermark)


def offset_of(client: BrokerClient, spec: OffsetSpec, partition: Partition) -> int:
    """The offset that a spec resolves to now.

    `spec`: an offset; a time with zone, for the first record at or after it; or ``"log_start"``, ``"lso"``,
        ``"high_watermark"``, ``"log_end"``.
    `partition`: the partition, without error. A time after the last record, and a log end that the broker does not
        return, resolve to its high watermark.
    Raises UsageError if the spec is invalid. Raises BrokerError or ConnectionFailed if the leader does not return the
    time's offset.
    """
    check_offset_spec(spec)
    high_watermark = partition.high_watermark or 0
    if isinstance(spec, str):
        offset = named_offset(partition, spec)
    elif isinstance(spec, dt.datetime):
        offset = _offset_at(client, partition, spec)
    else:
        return operator.index(spec)
    return high_watermark if offset is None else offset


def _offset_at(client: BrokerClient, partition: Partition, time: dt.datetime) -> int | None:
    """Offset of the first record at or after a time; null if there is none."""
    message = client.send_one(
        messages.ListOffsets(
            partitions={partition.topic: [partition.partition]},
            timestamp=milliseconds(time),
            replica_id=-1,
            isolation_level=0,
            timeout_ms=int(client.timeout * 1000),
        ),
        broker_id=partition.leader,
    )
    result = next((each for topic in message.topics for each in topic.partitions), None)
    if result is None or result.error_code:
        error = error_text(result.error_code) if result else omitted_text("ListOffsets", "this partition")
        where = f"{time} in {partition.topic}-{partition.partition}"
        raise BrokerError(f"Broker {partition.leader} did not find {where}: {error}", code=Error.of(error).code)
    return result.offset if result.offset >= 0 else None
