"""Records of ``__consumer_offsets``: committed offsets and groups, of every protocol up to Kafka 4.4.

Users' own data is skipped: the metadata of a committed offset, subscriptions and assignments.

Sources: ``CoordinatorRecordType`` and the ``*Key.json`` and ``*Value.json`` messages of Kafka's group-coordinator, 2.8
to 4.3; KIP-848 (consumer groups), KIP-932 (share groups), KIP-1071 (streams groups), KIP-915 (flexible values).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from toolkit.errors import DecodeError
from toolkit.formats.primitives import Buffer, Reader, known

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

    version: int
    kind: str  # one of KINDS
    group_id: str
    topic: str | None = None  # of a committed offset
    partition: int | None = None
    member_id: str | None = None  # of a record of one member


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """A committed offset; missing fields are ``None``, never -1."""

    version: int
    offset: int
    leader_epoch: int | None
    commit_timestamp_ms: int | None
    expire_timestamp_ms: int | None  # version 1 only, if the client requested it


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMetadata:
    """A group of the classic protocol after a rebalance; missing fields are ``None``, never -1."""

    version: int
    protocol_type: str  # consumer, connect, ...; empty for a group that only commits offsets
    generation: int
    protocol: str | None  # assignor
    leader_member_id: str | None
    current_state_timestamp_ms: int | None
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
    return GroupKey(
        version=version, kind=KINDS[version], group_id=group_id, topic=topic, partition=partition, member_id=member_id
    )


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
        version=version,
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
    current_state_timestamp_ms = reader.int64() if version >= 2 else -1
    members = reader.length(flexible=flexible, item_size=10)
    member_ids = tuple(_read_member(reader, version, flexible=flexible) for _ in range(members))
    if flexible:
        reader.tags()
    reader.end()
    return GroupMetadata(
        version=version,
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader_member_id=leader,
        current_state_timestamp_ms=known(current_state_timestamp_ms),
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
