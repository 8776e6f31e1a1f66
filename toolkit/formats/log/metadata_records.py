"""Records of ``__cluster_metadata``, the log of KRaft's controllers: topics, leaders, brokers, features, producer ids.

A partition's change has only what changed, and the topic's id: `MetadataState` adds what was known before.

Sources: ``MetadataRecordSerde`` (frame version, API key and version before the fields), the records of
``metadata/src/main/resources/common/metadata``, and ``PartitionRegistration.merge`` in Kafka, 3.3 to 4.4.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolkit.formats.primitives import Buffer, Reader, known

FRAME = 1  # its version
TYPES: Mapping[int, str] = {
    0: "RegisterBroker",
    1: "UnregisterBroker",
    2: "Topic",
    3: "Partition",
    4: "Config",
    5: "PartitionChange",
    7: "FenceBroker",
    8: "UnfenceBroker",
    9: "RemoveTopic",
    10: "DelegationToken",
    11: "UserScramCredential",
    12: "FeatureLevel",
    14: "ClientQuota",
    15: "ProducerIds",
    17: "BrokerRegistrationChange",
    18: "AccessControlEntry",
    19: "RemoveAccessControlEntry",
    20: "NoOp",
    21: "ZkMigrationState",
    22: "RemoveUserScramCredential",
    23: "BeginTransaction",
    24: "EndTransaction",
    25: "AbortTransaction",
    26: "RemoveDelegationToken",
    27: "RegisterController",
    28: "ClearElr",
}
"""Name of each API key, without ``Record``."""

NO_LEADER = -1
RESOURCES: Mapping[int, str] = {2: "topic", 4: "broker", 16: "client_metrics", 32: "group"}  # ConfigResource.Type


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRecord:
    """The value of a ``__cluster_metadata`` record; a field that its type does not have is ``None``.

    Parameters
    ----------
    type
        Kafka's name without ``Record``, such as ``PartitionChange``; ``type 99`` for one of a newer Kafka.
    version
        Version of the value.
    topic, topic_id, partition
        What it is about; a partition's record has only the id.
    leader
        Broker id of the leader, -1 for none; ``None`` where it did not change.
    leader_epoch
        In ``Partition`` only: each change of the leader raises it.
    replicas, isr, eligible_leader_replicas
        Broker ids; ``None`` where they did not change.
    broker_id, broker_epoch
        The broker that registered, was fenced, or got producer ids.
    fenced, in_controlled_shutdown
        State of that broker; ``None`` where it did not change.
    feature, feature_level
        A feature that was finalized.
    config_resource, config_name, config_value
        A setting: ``topic orders``, its name and value; a value of ``None`` removes it.
    next_producer_id
        The first producer id that no broker was given.
    unknown_tags
        Number of tagged fields of a newer Kafka, skipped.
    """

    type: str
    version: int
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    leader: int | None = None
    leader_epoch: int | None = None
    replicas: tuple[int, ...] | None = None
    isr: tuple[int, ...] | None = None
    eligible_leader_replicas: tuple[int, ...] | None = None
    broker_id: int | None = None
    broker_epoch: int | None = None
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    feature: str | None = None
    feature_level: int | None = None
    config_resource: str | None = None
    config_name: str | None = None
    config_value: str | None = None
    next_producer_id: int | None = None
    unknown_tags: int = 0


def read_metadata_record(value: Buffer) -> MetadataRecord:
    """The value of a record of ``__cluster_metadata``.

    Credentials, tokens, quotas, rules of access and types of a newer Kafka have their type and version only.

    Raises
    ------
    DecodeError
        If the frame is of a newer Kafka, or the bytes end early or are too many.
    """
    reader = Reader(value, "value of a __cluster_metadata record")
    if (frame := reader.varint()) != FRAME:
        raise reader.malformed(f"its frame has version {frame}, and {FRAME} is known", 0)
    key, version = reader.varint(), reader.varint()
    type_ = TYPES.get(key, f"type {key}")
    if type_ not in READERS:
        return MetadataRecord(type=type_, version=version)
    fields = READERS[type_](reader, version)
    reader.end()
    return MetadataRecord(type=type_, version=version, **fields)


def _register_broker(reader: Reader, version: int) -> dict[str, Any]:
    broker_id = reader.int32()
    if version >= 2:
        reader.int8()  # whether it migrates from ZooKeeper
    reader.take(16)  # id of this start of the broker
    broker_epoch = reader.int64()
    for _ in range(reader.length(flexible=True, item_size=7)):  # end points
        reader.skip_text(flexible=True)
        reader.skip_text(flexible=True)
        reader.take(4)  # port, security protocol
        reader.tags()
    for _ in range(reader.length(flexible=True, item_size=6)):  # supported features
        reader.skip_text(flexible=True)
        reader.take(4)
        reader.tags()
    reader.skip_text(flexible=True)  # rack
    fenced = reader.int8() != 0
    shutdown = reader.int8() != 0 if version >= 1 else None
    # Tag 0 has the log directories.
    return {
        "broker_id": broker_id,
        "broker_epoch": broker_epoch,
        "fenced": fenced,
        "in_controlled_shutdown": shutdown,
        **_tags(reader, known_tags=1)[1],
    }


def _broker(reader: Reader, version: int) -> dict[str, Any]:
    return {"broker_id": reader.int32(), "broker_epoch": reader.int64(), **_tags(reader)[1]}


def _fence_broker(reader: Reader, version: int) -> dict[str, Any]:
    return {**_broker(reader, version), "fenced": True}


def _unfence_broker(reader: Reader, version: int) -> dict[str, Any]:
    return {**_broker(reader, version), "fenced": False}


def _broker_registration_change(reader: Reader, version: int) -> dict[str, Any]:
    broker_id, broker_epoch = reader.int32(), reader.int64()
    tagged, unknown = _tags(reader, known_tags=3)
    fenced, shutdown = (_int8(tagged[tag]) if tag in tagged else 0 for tag in (0, 1))
    return {
        "broker_id": broker_id,
        "broker_epoch": broker_epoch,
        "fenced": fenced > 0 if fenced else None,  # 1, -1 for unfenced, 0 for no change
        "in_controlled_shutdown": True if shutdown else None,
        **unknown,
    }


def _topic(reader: Reader, version: int) -> dict[str, Any]:
    return {"topic": reader.text(flexible=True), "topic_id": _uuid(reader), **_tags(reader)[1]}


def _remove_topic(reader: Reader, version: int) -> dict[str, Any]:
    return {"topic_id": _uuid(reader), **_tags(reader)[1]}


def _partition(reader: Reader, version: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"partition": reader.int32(), "topic_id": _uuid(reader)}
    fields |= {"replicas": reader.int32s(flexible=True), "isr": reader.int32s(flexible=True)}
    reader.int32s(flexible=True)  # replicas that are removed
    reader.int32s(flexible=True)  # replicas that are added
    fields |= {"leader": reader.int32(), "leader_epoch": reader.int32()}
    reader.int32()  # partition epoch
    if version >= 1:
        reader.take(16 * reader.length(flexible=True, item_size=16))  # log directories
    tagged, unknown = _tags(reader, known_tags=3)
    return {**fields, "eligible_leader_replicas": _int32s(tagged, 1), **unknown}


def _partition_change(reader: Reader, version: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"partition": reader.int32(), "topic_id": _uuid(reader)}
    tagged, unknown = _tags(reader, known_tags=9)
    leader = _of_tag(tagged, 1, Reader.int32)
    return {
        **fields,
        "leader": None if leader == -2 else leader,  # as it was
        "isr": _int32s(tagged, 0),
        "replicas": _int32s(tagged, 2),
        "eligible_leader_replicas": _int32s(tagged, 6),
        **unknown,
    }


def _feature_level(reader: Reader, version: int) -> dict[str, Any]:
    return {"feature": reader.text(flexible=True), "feature_level": reader.int16(), **_tags(reader)[1]}


def _config(reader: Reader, version: int) -> dict[str, Any]:
    kind, name = reader.int8(), reader.text(flexible=True)
    return {
        "config_resource": f"{RESOURCES.get(kind, f'resource {kind}')} {name}".rstrip(),
        "config_name": reader.text(flexible=True),
        "config_value": reader.nullable_text(flexible=True),
        **_tags(reader)[1],
    }


def _producer_ids(reader: Reader, version: int) -> dict[str, Any]:
    block = {"broker_id": reader.int32(), "broker_epoch": reader.int64(), "next_producer_id": reader.int64()}
    return {**block, **_tags(reader)[1]}


def _without_fields(reader: Reader, version: int) -> dict[str, Any]:
    return _tags(reader)[1]


READERS: Mapping[str, Callable[[Reader, int], dict[str, Any]]] = {
    "RegisterBroker": _register_broker,
    "UnregisterBroker": _broker,
    "FenceBroker": _fence_broker,
    "UnfenceBroker": _unfence_broker,
    "BrokerRegistrationChange": _broker_registration_change,
    "Topic": _topic,
    "RemoveTopic": _remove_topic,
    "Partition": _partition,
    "PartitionChange": _partition_change,
    "FeatureLevel": _feature_level,
    "Config": _config,
    "ProducerIds": _producer_ids,
    "NoOp": _without_fields,
}


def _tags(reader: Reader, *, known_tags: int = 0) -> tuple[dict[int, tuple[int, bytes]], dict[str, int]]:
    tagged, unknown = reader.tags(keep=known_tags)
    return tagged, {"unknown_tags": unknown}


def _uuid(reader: Reader) -> str:
    """An id as Kafka prints it."""
    return base64.urlsafe_b64encode(reader.take(16)).decode().rstrip("=")


def _of_tag(tagged: Mapping[int, tuple[int, bytes]], tag: int, read: Callable[[Reader], Any]) -> Any:
    if tag not in tagged:
        return None
    reader = Reader(tagged[tag][1], "tagged field of a __cluster_metadata record")
    value = read(reader)
    reader.end()
    return value


def _int8(tag: tuple[int, bytes]) -> int:
    return int.from_bytes(tag[1], signed=True)


def _int32s(tagged: Mapping[int, tuple[int, bytes]], tag: int) -> tuple[int, ...] | None:
    """An array that may be null."""
    if tag not in tagged or tagged[tag][1] == b"\0":
        return None
    values: tuple[int, ...] = _of_tag(tagged, tag, lambda reader: reader.int32s(flexible=True))
    return values


@dataclass(slots=True)
class MetadataState:
    """What the records so far say, to add topic names and leader epochs to those that follow.

    Attributes
    ----------
    topics
        Name by topic id.
    partitions
        Newest state of each partition, by topic id and number: a ``Partition`` record.
    """

    topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], MetadataRecord] = field(default_factory=dict)

    def add(self, record: MetadataRecord) -> MetadataRecord:
        """Add the next record; return it with the topic's name and, for a partition, all that holds after it."""
        topic_id = record.topic_id
        if topic_id is None:
            return record
        if record.topic is not None:
            self.topics[topic_id] = record.topic
        named = replace(record, topic=self.topics.get(topic_id))
        if record.type == "RemoveTopic":
            self.topics.pop(topic_id, None)
            for key in [key for key in self.partitions if key[0] == topic_id]:
                del self.partitions[key]
        if record.partition is None:
            return named
        before = self.partitions.get((topic_id, record.partition))
        whole = named if before is None or record.type == "Partition" else _merged(before, named)
        self.partitions[topic_id, record.partition] = whole
        return whole


def _merged(before: MetadataRecord, change: MetadataRecord) -> MetadataRecord:
    """A change, with what it leaves as it was; each change of the leader has the next epoch."""
    has_led = change.leader is not None and before.leader_epoch is not None
    return replace(
        change,
        leader=before.leader if change.leader is None else change.leader,
        leader_epoch=(before.leader_epoch or 0) + 1 if has_led else before.leader_epoch,
        replicas=before.replicas if change.replicas is None else change.replicas,
        isr=before.isr if change.isr is None else change.isr,
        eligible_leader_replicas=before.eligible_leader_replicas
        if change.eligible_leader_replicas is None
        else change.eligible_leader_replicas,
    )


def leader_of(record: MetadataRecord) -> int | None:
    """Broker id of the leader; ``None`` for none."""
    return None if record.leader is None else known(record.leader)


def next_producer_id(value: Buffer) -> int | None:
    """The first producer id that is not yet given to any broker; null for every other record.

    Raises
    ------
    DecodeError
        As `read_metadata_record`.
    """
    return read_metadata_record(value).next_producer_id
