"""Requests of Kafka's protocol, under Kafka's own names.

For example ``messages.DescribeTransactions(transactional_ids=[...])``; fields are in snake case. ``max_version=8``
forces an older version of a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, TypeVar

from kafka.protocol import admin, consumer, metadata, producer
from kafka.protocol.api_message import ApiMessage

from toolkit.formats import bulk_messages
from toolkit.formats.bulk_messages import Partitions
from toolkit.sources.live import client

Broker = TypeVar("Broker", bound=int | None)
Item = TypeVar("Item")

AddOffsetsToTxn = producer.AddOffsetsToTxnRequest
AddPartitionsToTxn = producer.AddPartitionsToTxnRequest
ApiVersions = metadata.ApiVersionsRequest
CreateTopics = admin.CreateTopicsRequest
DeleteRecords = admin.DeleteRecordsRequest
DescribeAcls = admin.DescribeAclsRequest
DescribeConfigs = admin.DescribeConfigsRequest
DescribeGroups = admin.DescribeGroupsRequest
DescribeQuorum = admin.DescribeQuorumRequest
DescribeTransactions = admin.DescribeTransactionsRequest
ElectLeaders = admin.ElectLeadersRequest
EndTxn = producer.EndTxnRequest
Fetch = consumer.FetchRequest
FindCoordinator = metadata.FindCoordinatorRequest
InitProducerId = producer.InitProducerIdRequest
ListGroups = admin.ListGroupsRequest
ListTransactions = admin.ListTransactionsRequest
Metadata = metadata.MetadataRequest
OffsetFetch = consumer.OffsetFetchRequest
Produce = producer.ProduceRequest
TxnOffsetCommit = producer.TxnOffsetCommitRequest
WriteTxnMarkers = producer.WriteTxnMarkersRequest


# kafka-python lacks these, and finds their schemas beside this module by the name of the class.
class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=client):  # type: ignore[misc, call-arg]
    """DescribeShareGroupOffsets (KIP-932); from version 1 on with the lag (KIP-1226)."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=client):  # type: ignore[misc, call-arg]
    """Its response."""


DescribeShareGroupOffsets = DescribeShareGroupOffsetsRequest


@dataclass(frozen=True, slots=True)
class _Topics:
    """Topics of a request with thousands of partitions, whose messages are built only on iteration."""

    partitions: Partitions
    message: Callable[[str, Sequence[int]], Any]

    def __len__(self) -> int:
        return len(self.partitions)

    def __iter__(self) -> Iterator[Any]:
        return starmap(self.message, self.partitions.items())


class ListOffsets(consumer.ListOffsetsRequest, init=False):  # type: ignore[misc, call-arg]
    """ListOffsets of partitions by topic, all at one timestamp."""

    def __init__(self, *, partitions: Partitions | None = None, timestamp: int = -1, **fields: Any) -> None:
        def topic(name: str, numbers: Sequence[int]) -> Any:
            message = self.ListOffsetsTopic
            query = {"current_leader_epoch": -1, "timestamp": timestamp}
            queries = [message.ListOffsetsPartition(partition_index=number, **query) for number in numbers]
            return message(name=name, partitions=queries)

        self.timestamp = timestamp
        super().__init__(topics=_Topics(partitions or {}, topic), **{"timeout_ms": 0} | fields)

    def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> Any:
        """Bytes; flexible versions are encoded by `formats.bulk_messages`."""
        if not framed or self.API_VERSION < 6:
            return super().encode(version=version, header=header, framed=framed)
        return _framed(
            self,
            bulk_messages.list_offsets(
                self.topics.partitions,
                version=self.API_VERSION,
                replica_id=self.replica_id,
                isolation_level=self.isolation_level,
                timestamp=self.timestamp,
                timeout_ms=self.timeout_ms,
            ),
        )


class DescribeProducers(admin.DescribeProducersRequest, init=False):  # type: ignore[misc, call-arg]
    """DescribeProducers of partitions by topic."""

    def __init__(self, *, partitions: Partitions | None = None, **fields: Any) -> None:
        def topic(name: str, numbers: Sequence[int]) -> Any:
            return self.TopicRequest(name=name, partition_indexes=numbers)

        super().__init__(topics=_Topics(partitions or {}, topic), **fields)

    def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> Any:
        """Bytes, encoded by `formats.bulk_messages`."""
        if not framed:
            return super().encode(version=version, header=header, framed=framed)
        return _framed(self, bulk_messages.describe_producers(self.topics.partitions))


def _framed(request: Any, body: bytes) -> bytes:
    head: bytes = request.encode_header(flexible=True)
    return b"".join([(len(head) + len(body)).to_bytes(4, "big"), head, body])


def batches(items: Iterable[tuple[Broker, Item]], size: int) -> list[tuple[Broker, list[Item]]]:
    """What goes to each broker in one request, at most `size` items; `items` have the id of their broker."""
    by_broker: dict[Broker, list[Item]] = {}
    for broker_id, item in items:
        by_broker.setdefault(broker_id, []).append(item)
    return [
        (broker_id, found[start : start + size])
        for broker_id, found in by_broker.items()
        for start in range(0, len(found), size)
    ]
