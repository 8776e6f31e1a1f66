"""Requests of Kafka's protocol, under Kafka's own names.

For example ``messages.DescribeTransactions(transactional_ids=[...])``; fields are in snake case. ``max_version=8``
forces an older version of a request.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from kafka.protocol import admin, consumer, metadata, producer
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.schemas.fields.codecs import UnsignedVarInt32

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
DescribeProducers = admin.DescribeProducersRequest
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


_QUERY = struct.Struct(">iiqx")
_length = cache(lambda number: UnsignedVarInt32.encode(number + 1))  # of a compact array or text


class ListOffsets(consumer.ListOffsetsRequest, init=False):  # type: ignore[misc, call-arg]
    """ListOffsets of partitions by topic, all at one timestamp.

    Flexible versions are encoded here: with kafka-python's encoder, `find-hanging` takes 44 % more processor time at
    200,000 partitions and 8 % at 15,000; 21 % and 5 % with tuples instead of its messages. Without our decoders and the
    encoder of DescribeProducers it takes 6 % and 2 %, so these went (November 2026, 2 cores, paired runs).
    """

    def __init__(
        self, *, partitions: Mapping[str, Sequence[int]] | None = None, timestamp: int = -1, **fields: Any
    ) -> None:
        self.partitions, self.timestamp = partitions or {}, timestamp
        super().__init__(**{"timeout_ms": 0} | fields)

    def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> Any:
        """Bytes."""
        if not framed or self.API_VERSION < 6:
            topic = self.ListOffsetsTopic
            query = {"current_leader_epoch": -1, "timestamp": self.timestamp}
            self.topics = [
                topic(
                    name=name,
                    partitions=[topic.ListOffsetsPartition(partition_index=each, **query) for each in numbers],
                )
                for name, numbers in self.partitions.items()
            ]
            return super().encode(version=version, header=header, framed=framed)
        parts = [self.encode_header(flexible=True), struct.pack(">ib", self.replica_id, self.isolation_level)]
        parts.append(_length(len(self.partitions)))
        for name, numbers in self.partitions.items():
            text = bytes(name, "utf-8")
            parts += (_length(len(text)), text, _length(len(numbers)))
            parts += [_QUERY.pack(number, -1, self.timestamp) for number in numbers]
            parts.append(b"\0")
        parts.append(struct.pack(">ix", self.timeout_ms) if self.API_VERSION >= 10 else b"\0")
        body = b"".join(parts)
        return len(body).to_bytes(4, "big") + body


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
