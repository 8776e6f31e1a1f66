"""Records of ``__transaction_state`` and ``__consumer_offsets``, and metadata of group members in DescribeGroups.

Committed offsets and groups are those of every protocol up to Kafka 4.4. Users' own data is skipped: the metadata of a
committed offset, subscriptions and assignments.

Sources: ``TransactionLogKey.json``, ``TransactionLogValue.json`` and ``TransactionLog`` in Kafka's
transaction-coordinator, 2.8 to 4.3; KIP-890 (tags 0 to 2), KIP-915 (flexible values), KIP-939 (tag 3);
``CoordinatorRecordType`` and the ``*Key.json`` and ``*Value.json`` messages of Kafka's group-coordinator, 2.8 to 4.3;
KIP-848 (consumer groups), KIP-932 (share groups), KIP-1071 (streams groups); ``ConsumerProtocolSubscription`` in
Kafka's clients; ``SubscriptionInfoData`` in Kafka Streams, versions 1 to 11; ``ConnectProtocol`` and
``IncrementalCooperativeConnectProtocol`` in Kafka Connect, versions 0 to 2.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from typing import NamedTuple

from toolkit.errors import DecodeError, UsageError
from toolkit.formats.batches import Buffer, Reader, known
from toolkit.schema.table import TopicPartition

LATEST_SUPPORTED_SINCE = 3  # from version 3 on, SubscriptionInfoData has this number before the process id


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectAssignment:
    """A worker's assignment by the leader of its Connect cluster."""

    leader_member_id: str
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
    leader_member_id = reader.text(flexible=False)
    reader.skip_text(flexible=False)  # its URL
    reader.int64()
    tasks: set[tuple[str, int]] = set()
    for _ in range(reader.length(flexible=False, item_size=6, nullable=True)):
        connector = reader.text(flexible=False)
        tasks.update((connector, task) for task in reader.int32s(flexible=False))
    return ConnectAssignment(leader_member_id=leader_member_id, tasks=frozenset(tasks))


STATE_TOPIC = "__transaction_state"

HEAD = struct.Struct(">qhib")  # producer id, producer epoch, timeout, status
TAG_INT16, TAG_INT64 = struct.Struct(">h"), struct.Struct(">q")
TIMES = struct.Struct(">qq")  # last update, start

STATES = (  # by status byte
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)


class TransactionState(NamedTuple):
    """The value of a ``__transaction_state`` record; missing fields are ``None``, never -1."""

    version: int  # of the value: 0, or 1 once the cluster's feature transaction.version is 1 or higher
    producer_id: int | None
    producer_epoch: int | None  # transaction version 2 raises it in PrepareCommit and PrepareAbort already
    timeout_ms: int
    state: str  # one of STATES
    topic_partitions: tuple[TopicPartition, ...]  # as written; empty where there are none
    last_update_timestamp_ms: int | None  # the coordinator's clock
    start_timestamp_ms: int | None  # the coordinator's clock; stays after the end; None before the first transaction
    previous_producer_id: int | None = None  # the id of the last transaction; 4.3 writes the same one where it stayed
    next_producer_id: int | None = None  # already sent to the client, not yet used
    next_producer_epoch: int | None = None
    client_transaction_version: int | None = None  # 2: the epoch grows with every transaction; None in version 0


def read_transaction_key(buf: Buffer) -> str | None:
    """The transactional id of a record.

    ``None`` for a key version of a newer Kafka.
    Raises DecodeError if the bytes end early, are too many, or are not UTF-8.
    """
    reader = Reader(buf, "key of a __transaction_state record")
    if reader.int16() != 0:
        return None
    transactional_id = reader.text(flexible=False)
    reader.end()
    return transactional_id


def read_transaction_value(buf: Buffer) -> TransactionState:
    """The state in a record.

    A tombstone has no value: the id has expired (``transactional.id.expiration.ms``).

    `buf`: value of the record, version 0 or 1.
    Raises DecodeError if the version or status is unknown, or the bytes end early, are too many or contradictory.
    Memory stays within a small multiple of ``buf``, whatever lengths the bytes claim.
    """
    reader = Reader(buf, "value of a __transaction_state record")
    version = reader.int16()
    if version not in {0, 1}:
        raise DecodeError(
            f"The value of a __transaction_state record has version {version}.",
            position=0,
            means="A newer Kafka wrote it; versions 0 and 1 are known here.",
            do="Upgrade kafka-txn-toolkit.",
        )
    flexible = version == 1
    producer_id, producer_epoch, timeout_ms, status = reader.fields(HEAD)
    if not 0 <= status < len(STATES):
        raise DecodeError(
            f"Transaction status {status} is not known.",
            position=reader.position - 1,
            means="A newer Kafka wrote it, or the bytes are damaged.",
        )
    topic_partitions: list[TopicPartition] = []  # Empty is written with a null array
    for _ in range(reader.length(flexible=flexible, item_size=3 if flexible else 6, nullable=True)):
        topic = reader.text(flexible=flexible)
        topic_partitions += [TopicPartition(topic, partition) for partition in reader.int32s(flexible=flexible)]
        if flexible:
            reader.tags()
    last_update_timestamp_ms, start_timestamp_ms = reader.fields(TIMES)
    tags = reader.tags(keep=4) if flexible else {}
    reader.end()
    return TransactionState(
        version=version,
        producer_id=known(producer_id),
        producer_epoch=known(producer_epoch),
        timeout_ms=timeout_ms,
        state=STATES[status],
        topic_partitions=tuple(topic_partitions),
        last_update_timestamp_ms=known(last_update_timestamp_ms),
        start_timestamp_ms=known(start_timestamp_ms),
        previous_producer_id=known(_read_tag(tags.get(0), TAG_INT64)),
        next_producer_id=known(_read_tag(tags.get(1), TAG_INT64)),
        client_transaction_version=_read_tag(tags.get(2), TAG_INT16, default=0) if flexible else None,
        next_producer_epoch=known(_read_tag(tags.get(3), TAG_INT16)),
    )


USUAL_COUNT = 50  # transaction.state.log.num.partitions, offsets.topic.num.partitions


def coordinator_partition(key: str, partitions: int) -> int:
    """The partition of ``__transaction_state`` or ``__consumer_offsets`` that an id hashes to.

    Its leader is the coordinator: ``Utils.abs(key.hashCode()) % partitions``, in ``TransactionStateManager`` and
    ``GroupCoordinatorService`` alike.

    Examples
    --------
    >>> coordinator_partition("my-group", 50)
    12
    """
    if partitions < 1:
        raise UsageError(
            f"A topic cannot have {partitions} partitions.", do="Read the number from the topic's metadata."
        )
    units = key.encode("utf-16-be", "surrogatepass")  # Java hashes UTF-16 code units
    hashed = 0
    for (unit,) in struct.iter_unpack(">H", units):
        hashed = (31 * hashed + unit) & 0xFFFFFFFF
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    return 0 if signed == -(2**31) else abs(signed) % partitions


def _read_tag(field: tuple[int, bytes] | None, form: struct.Struct, *, default: int = -1) -> int:
    if field is None:
        return default
    position, data = field
    if len(data) != form.size:
        raise DecodeError(f"A tagged field of {form.size} bytes has {len(data)}.", position=position)
    (value,) = form.unpack(data)
    return int(value)


OFFSETS_TOPIC = "__consumer_offsets"

KINDS = {  # by key version
    0: "offset_commit",
    1: "offset_commit",
    2: "group_metadata",
    3: "consumer_group_metadata",
    4: "consumer_group_partition_metadata",
    5: "consumer_group_member_metadata",
    6: "consumer_group_target_assignment_metadata",
    7: "consumer_group_target_assignment_member",
    8: "consumer_group_current_member_assignment",
    9: "share_group_partition_metadata",  # of 3.9 and 4.0
    10: "share_group_member_metadata",
    11: "share_group_metadata",
    12: "share_group_target_assignment_metadata",
    13: "share_group_target_assignment_member",
    14: "share_group_current_member_assignment",
    15: "share_group_state_partition_metadata",
    16: "consumer_group_regular_expression",
    17: "streams_group_metadata",
    18: "streams_group_partition_metadata",  # before 4.3
    19: "streams_group_member_metadata",
    20: "streams_group_target_assignment_metadata",
    21: "streams_group_target_assignment_member",
    22: "streams_group_current_member_assignment",
    23: "streams_group_topology",
}
GROUP_EPOCH_KINDS = frozenset({"consumer_group_metadata", "share_group_metadata", "streams_group_metadata"})
OFFSET_COMMIT_VERSIONS = (0, 1)
MEMBER_VERSIONS = frozenset({5, 7, 8, 10, 13, 14, 19, 21, 22})
REGULAR_EXPRESSION_VERSION = 16  # a pattern in place of a member id

OFFSET_COMMIT = "offset commit in __consumer_offsets"
GROUP_METADATA = "group in __consumer_offsets"
OFFSET_AND_LEADER_EPOCH = struct.Struct(">qi")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    """The key of a record of ``__consumer_offsets``."""

    kind: str  # one of KINDS
    group_id: str
    topic: str | None = None  # of a committed offset
    partition: int | None = None
    member_id: str | None = None  # of a record of one member


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """A committed offset; missing fields are ``None``, never -1."""

    offset: int
    leader_epoch: int | None
    commit_timestamp_ms: int | None
    expire_timestamp_ms: int | None  # version 1 only, if the client requested it


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A group of the classic protocol after a rebalance; missing fields are ``None``, never -1."""

    protocol_type: str  # consumer, connect, ...; empty for a group that only commits offsets
    generation: int
    protocol: str | None  # assignor
    leader_member_id: str | None
    member_ids: tuple[str, ...]


def read_group_key(buf: Buffer) -> GroupKey | None:
    """Read the key of a record.

    Returns: ``None`` for a key version of a newer Kafka.
    Raises DecodeError if the bytes end early, are too many, or are not UTF-8.
    """
    reader = Reader(buf, "key of a __consumer_offsets record")
    version = reader.int16()
    if version not in KINDS:
        return None
    group_id = reader.text(flexible=False)
    topic = partition = member_id = None
    if version in OFFSET_COMMIT_VERSIONS:
        topic, partition = reader.text(flexible=False), reader.int32()
    elif version in MEMBER_VERSIONS:
        member_id = reader.text(flexible=False)
    elif version == REGULAR_EXPRESSION_VERSION:
        reader.text(flexible=False)
    reader.end()
    return GroupKey(kind=KINDS[version], group_id=group_id, topic=topic, partition=partition, member_id=member_id)


def read_offset_commit(buf: Buffer) -> OffsetCommit:
    """Read a committed offset; a tombstone has no value.

    `buf`: value of the record, version 0 to 4.
    Raises DecodeError if the version is unknown, or the bytes end early, are too many or contradictory.
    """
    reader = Reader(buf, f"value of an {OFFSET_COMMIT}")
    version = _version(reader, OFFSET_COMMIT, newest=4)
    flexible = version == 4
    offset, leader_epoch = reader.fields(OFFSET_AND_LEADER_EPOCH) if version >= 3 else (reader.int64(), -1)
    reader.skip_text(flexible=flexible)
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == 1 else -1
    if flexible:
        reader.tags()
    reader.end()
    return OffsetCommit(
        offset=offset,
        leader_epoch=known(leader_epoch),
        commit_timestamp_ms=known(commit_timestamp_ms),
        expire_timestamp_ms=known(expire_timestamp_ms),
    )


def read_group_metadata(buf: Buffer) -> GroupMetadata:
    """Read a group of the classic protocol; a tombstone has no value.

    `buf`: value of the record, version 0 to 4.
    Raises DecodeError if the version is unknown, or the bytes end early, are too many or contradictory.
    """
    reader = Reader(buf, f"value of a {GROUP_METADATA}")
    version = _version(reader, GROUP_METADATA, newest=4)
    flexible = version == 4
    protocol_type = reader.text(flexible=flexible)
    generation = reader.int32()
    protocol = reader.nullable_text(flexible=flexible)
    leader = reader.nullable_text(flexible=flexible)
    if version >= 2:
        reader.int64()  # time of its state
    members = reader.length(flexible=flexible, item_size=10)
    member_ids = tuple(_read_member(reader, version, flexible=flexible) for _ in range(members))
    if flexible:
        reader.tags()
    reader.end()
    return GroupMetadata(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader_member_id=leader,
        member_ids=member_ids,
    )


def read_group_epoch(buf: Buffer) -> int:
    """Read the epoch of a group of a newer protocol, which corresponds to the generation of a classic group.

    `buf`: value of a record whose kind is one of `GROUP_EPOCH_KINDS`; the bytes after the epoch are not read.
    Raises DecodeError if the version is unknown, or the bytes end early.
    """
    reader = Reader(buf, f"value of a {GROUP_METADATA}")
    _version(reader, GROUP_METADATA, newest=0)
    return reader.int32()


def _version(reader: Reader, what: str, *, newest: int) -> int:
    version = reader.int16()
    if not 0 <= version <= newest:
        raise DecodeError(
            f"The value of the {what} has version {version}.",
            position=0,
            means=f"A newer Kafka wrote it; versions 0 to {newest} are known here.",
            do="Upgrade kafka-txn-toolkit.",
        )
    return version


def _read_member(reader: Reader, version: int, *, flexible: bool) -> str:
    """Read a member's id and skip the rest."""
    member_id = reader.text(flexible=flexible)
    if version >= 3:
        reader.skip_text(flexible=flexible)  # group instance id
    reader.skip_text(flexible=flexible)  # client id
    reader.skip_text(flexible=flexible)  # client host
    if version >= 1:
        reader.int32()  # rebalance timeout
    reader.int32()  # session timeout
    reader.skip_bytes(flexible=flexible)  # subscription
    reader.skip_bytes(flexible=flexible)  # assignment
    if flexible:
        reader.tags()
    return member_id
