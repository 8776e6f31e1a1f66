"""Metadata of group members in DescribeGroups: processes of Kafka Streams, tasks of Kafka Connect.

Sources: ``ConsumerProtocolSubscription`` in Kafka's clients; ``SubscriptionInfoData`` in Kafka Streams, versions 1 to
11; ``ConnectProtocol`` and ``IncrementalCooperativeConnectProtocol`` in Kafka Connect, versions 0 to 2.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from toolkit.formats.primitives import Buffer, Reader

LATEST_SUPPORTED_SINCE = 3  # from version 3 on, SubscriptionInfoData has this number before the process id


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectAssignment:
    """A worker's assignment by the leader of its Connect cluster."""

    leader_member_id: str
    leader_url: str
    tasks: frozenset[tuple[str, int]]
    """Connector and task; task -1 is the connector itself."""


def read_streams_process_id(metadata: Buffer) -> str | None:
    """The process id of a member of a Kafka Streams application; null if its data has none.

    Raises DecodeError if these are not metadata of a consumer.
    """
    reader = Reader(metadata, "subscription of a consumer")
    reader.int16()
    for _ in range(reader.length(flexible=False, item_size=2)):
        reader.skip_text(flexible=False)
    size = reader.int32()
    if size <= 0:
        return None
    data = Reader(reader.take(size), "subscription of a Kafka Streams thread")
    version = data.int32()
    if version >= LATEST_SUPPORTED_SINCE:
        data.int32()
    return str(uuid.UUID(bytes=data.take(16)))


def read_connect_url(metadata: Buffer) -> str:
    """The REST URL of a Kafka Connect worker. Raises DecodeError if these are not metadata of a worker."""
    reader = Reader(metadata, "state of a Connect worker")
    reader.int16()
    return reader.text(flexible=False)


def read_connect_assignment(assignment: Buffer) -> ConnectAssignment:
    """The assignment of a Kafka Connect worker. Raises DecodeError if the bytes are not an assignment."""
    reader = Reader(assignment, "assignment of a Connect worker")
    reader.int16()
    reader.int16()
    leader_member_id, leader_url = reader.text(flexible=False), reader.text(flexible=False)
    reader.int64()
    tasks: set[tuple[str, int]] = set()
    for _ in range(reader.length(flexible=False, item_size=6, nullable=True)):
        connector = reader.text(flexible=False)
        tasks.update((connector, task) for task in reader.int32s(flexible=False))
    return ConnectAssignment(leader_member_id=leader_member_id, leader_url=leader_url, tasks=frozenset(tasks))
