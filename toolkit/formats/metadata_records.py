"""Records of ``__cluster_metadata``, the log of KRaft's controllers: topics, leaders, brokers, features, producer ids.

A partition's change has only what changed, and the topic's id: `MetadataState` adds what was known before.

Sources: ``MetadataRecordSerde`` (frame version, API key and version before the fields), the records of
``metadata/src/main/resources/common/metadata``, and ``PartitionRegistration.merge`` in Kafka, 3.3 to 4.4.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from toolkit.config.properties import HIDDEN, SECRET_KEY
from toolkit.errors import DecodeError
from toolkit.formats.batch_records import Record, decode_batch
from toolkit.formats.batches import BatchHeader, Buffer, Reader, known
from toolkit.schema import utc
from toolkit.schema.log import MetadataLogRecord

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

FENCED: Mapping[str | None, bool] = {"FenceBroker": True, "UnfenceBroker": False}
NO_CHANGE = -2  # of the leader, in PartitionChange
RESOURCES: Mapping[int, str] = {2: "topic", 4: "broker", 16: "client_metrics", 32: "group"}  # ConfigResource.Type


def metadata_log(
    buf: Buffer, position: int = 0, *, where: MetadataLogRecord, begin: int | None = None
) -> Iterator[MetadataLogRecord]:
    """The records of one batch of ``__cluster_metadata``, as they are: `MetadataState` completes them.

    In offset order, and errors as from `decode_batch`, or of one record (``CORRUPT_RECORD``).
    `buf`: bytes of a segment or snapshot.
    `where`, `begin`: node and file that they are from, and where they begin in it.
    """
    return decode_batch(buf, position, where, begin, _decode)


def _decode(record: Record, header: BatchHeader, where: MetadataLogRecord, position: int | None) -> MetadataLogRecord:
    try:
        return read_metadata_record(record, where, position)
    except DecodeError as exc:
        time, error = utc(record.timestamp_ms), f"CORRUPT_RECORD: {exc}"
        return replace(where, offset=record.offset, timestamp=time, position=position, error=error)


def read_metadata_record(record: Record, where: MetadataLogRecord, position: int | None = None) -> MetadataLogRecord:
    """A record of ``__cluster_metadata``.

    Credentials, tokens, quotas, rules of access and types of a newer Kafka have their type and version only.

    `where`, `position`: node and file that it is from, and where its batch begins in it.
    Raises DecodeError if the frame is of a newer Kafka, or the bytes end early or are too many.
    """
    reader = Reader(record.value or b"", "value of a __cluster_metadata record")
    if (frame := reader.varint()) != FRAME:
        raise reader.malformed(f"its frame has version {frame}, and {FRAME} is known", 0)
    key, version = reader.varint(), reader.varint()
    found = MetadataLogRecord(
        offset=record.offset,
        timestamp=utc(record.timestamp_ms),
        type=TYPES.get(key, f"type {key}"),
        version=version,
        metadata_node_id=where.metadata_node_id,
        file=where.file,
        position=position,
    )
    if key in READERS:
        found = READERS[key](reader, version, found)
        if key not in READ_TAGS:
            reader.tags()
        reader.end()
    return found


def _register_broker(reader: Reader, version: int, record: MetadataLogRecord) -> MetadataLogRecord:
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
    features = {}
    for _ in range(reader.length(flexible=True, item_size=6)):  # supported, with the lowest and the highest level
        name, _, features[name] = reader.text(flexible=True), reader.int16(), reader.int16()
        reader.tags()
    reader.skip_text(flexible=True)  # rack
    fenced = reader.int8() != 0
    shutdown = reader.int8() != 0 if version >= 1 else None  # log directories are among the tagged fields
    return replace(
        record,
        affected_broker=broker_id,
        broker_epoch=broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=shutdown,
        max_metadata_version=features.get("metadata.version"),
    )


def _broker(reader: Reader, version: int, record: MetadataLogRecord) -> MetadataLogRecord:
    return replace(record, affected_broker=reader.int32(), broker_epoch=reader.int64(), fenced=FENCED.get(record.type))


def _broker_registration_change(reader: Reader, version: int, record: MetadataLogRecord) -> MetadataLogRecord:
    broker_id, broker_epoch = reader.int32(), reader.int64()
    tagged = reader.tags(keep=3)
    fenced, shutdown = (int.from_bytes(tagged[tag][1], signed=True) if tag in tagged else 0 for tag in (0, 1))
    return replace(
        record,
        affected_broker=broker_id,
        broker_epoch=broker_epoch,
        fenced=fenced > 0 if fenced else None,  # 1, -1 for unfenced, 0 for no change
        in_controlled_shutdown=True if shutdown else None,
    )


def _topic(reader: Reader, version: int, record: MetadataLogRecord) -> MetadataLogRecord:
    return replace(record, topic=reader.text(flexible=True), topic_id=_uuid(reader))


def _remove_topic(reader: Reader, version: int, record: MetadataLogRecord) -> MetadataLogRecord:
    return replace(record, topic_id=_uuid(reader))


def _partition(reader: Reader, version: int, record: MetadataLogRecord) -> MetadataLogRecord:
    number, topic_id = reader.int32(), _uuid(reader)
    replicas, isr = reader.int32s(flexible=True), reader.int32s(flexible=True)
    reader.int32s(flexible=True)  # replicas that are removed
    reader.int32s(flexible=True)  # replicas that are added
    leader, leader_epoch = known(reader.int32()), reader.int32()
    reader.int32()  # partition epoch
    if version >= 1:
        reader.take(16 * reader.length(flexible=True, item_size=16))  # log directories
    tagged = reader.tags(keep=3)
    return replace(
        record,
        partition=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=leader_epoch,
        eligible_leader_replicas=_int32s(tagged, 1),
    )


def _partition_change(reader: Reader, version: int, record: MetadataLogRecord) -> MetadataLogRecord:
    number, topic_id = reader.int32(), _uuid(reader)
    tagged = reader.tags(keep=9)
    return replace(
        record,
        partition=number,
        topic_id=topic_id,
        leader=NO_CHANGE if 1 not in tagged else _of_tag(tagged[1], Reader.int32),
        isr=_int32s(tagged, 0),
        replicas=_int32s(tagged, 2),
        eligible_leader_replicas=_int32s(tagged, 6),
    )


def _feature_level(reader: Reader, version: int, record: MetadataLogRecord) -> MetadataLogRecord:
    return replace(record, feature=reader.text(flexible=True), feature_level=reader.int16())


def _config(reader: Reader, version: int, record: MetadataLogRecord) -> MetadataLogRecord:
    kind, name = reader.int8(), reader.text(flexible=True)
    key, value = reader.text(flexible=True), reader.nullable_text(flexible=True)
    return replace(
        record,
        config_resource=f"{RESOURCES.get(kind, f'resource {kind}')} {name or 'for all'}",
        config_name=key,
        config_value=HIDDEN if value is not None and SECRET_KEY.search(key) else value,
    )


def _producer_ids(reader: Reader, version: int, record: MetadataLogRecord) -> MetadataLogRecord:
    broker_id, broker_epoch, following = reader.int32(), reader.int64(), reader.int64()
    return replace(record, affected_broker=broker_id, broker_epoch=broker_epoch, next_producer_id=following)


READERS: Mapping[int, Callable[[Reader, int, MetadataLogRecord], MetadataLogRecord]] = {  # by API key
    0: _register_broker,
    1: _broker,
    2: _topic,
    3: _partition,
    4: _config,
    5: _partition_change,
    7: _broker,
    8: _broker,
    9: _remove_topic,
    12: _feature_level,
    15: _producer_ids,
    17: _broker_registration_change,
    20: lambda reader, version, record: record,
}
READ_TAGS = {3, 5, 17}  # whose reader reads the tagged fields, too


def _uuid(reader: Reader) -> str:
    """An id as Kafka prints it."""
    return base64.urlsafe_b64encode(reader.take(16)).decode().rstrip("=")


def _of_tag(tag: tuple[int, bytes], read: Callable[[Reader], Any]) -> Any:
    reader = Reader(tag[1], "tagged field of a __cluster_metadata record")
    value = read(reader)
    reader.end()
    return value


def _int32s(tagged: Mapping[int, tuple[int, bytes]], tag: int) -> tuple[int, ...] | None:
    """An array that may be null."""
    if tag not in tagged or tagged[tag][1] == b"\0":
        return None
    values: tuple[int, ...] = _of_tag(tagged[tag], lambda reader: reader.int32s(flexible=True))
    return values


MAPPINGS = ("topics", "partitions", "brokers", "features", "settings")  # fields of the state


@dataclass(slots=True)
class MetadataState:
    """What the records so far say, to complete those that follow."""

    topics: dict[str, str] = field(default_factory=dict)  # name by topic id
    # newest record of each partition, completed, by topic id and number
    partitions: dict[tuple[str, int], MetadataLogRecord] = field(default_factory=dict)
    brokers: dict[int, MetadataLogRecord] = field(default_factory=dict)  # newest registration of each broker, by its id
    features: dict[str, int] = field(default_factory=dict)  # finalized level by name
    # value by ``config_resource`` and name; without those that were removed
    settings: dict[tuple[str, str], str] = field(default_factory=dict)
    # the first producer id after the blocks that brokers have got; null if no record has it
    next_producer_id: int | None = None
    _before: Mapping[str, Any] | None = None  # the `MAPPINGS` before the transaction that is open (KIP-868)

    def add(self, record: MetadataLogRecord) -> MetadataLogRecord:
        """Add the next record; return it with the topic's name and, for a partition, all that holds after it."""
        self._add_cluster(record)
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
        known_before = self.partitions.get((topic_id, record.partition))
        whole = named if record.type == "Partition" else _merged(known_before, named)
        self.partitions[topic_id, record.partition] = whole
        return whole

    def partition(self, topic: str, number: int) -> MetadataLogRecord | None:
        """The newest record of a partition, completed; null if there is no such partition."""
        ids = (topic_id for topic_id, name in self.topics.items() if name == topic)
        return next((self.partitions[each, number] for each in ids if (each, number) in self.partitions), None)

    def keep(self, record: MetadataLogRecord) -> None:
        """Add a record that is complete, as `add` returned it."""
        if record.topic_id is not None and record.partition is not None:
            self.partitions[record.topic_id, record.partition] = record
        else:
            self._add_cluster(record)

    def _add_cluster(self, record: MetadataLogRecord) -> None:
        """What is about a broker, a feature or a setting, or a transaction of records, which may be aborted."""
        if record.type == "BeginTransaction":
            self._before = {name: dict(getattr(self, name)) for name in MAPPINGS}
        elif record.type == "AbortTransaction" and self._before is not None:
            for name, mapping in self._before.items():
                setattr(self, name, mapping)
        elif record.type == "RegisterBroker" and record.affected_broker is not None:
            self.brokers[record.affected_broker] = record
        elif record.type == "UnregisterBroker" and record.affected_broker is not None:
            self.brokers.pop(record.affected_broker, None)
        elif record.feature is not None and record.feature_level is not None:
            self.features[record.feature] = record.feature_level
        elif record.config_resource is not None and record.config_name is not None:
            key = record.config_resource, record.config_name
            if record.config_value is None:
                self.settings.pop(key, None)
            else:
                self.settings[key] = record.config_value
        elif record.next_producer_id is not None:
            self.next_producer_id = max(record.next_producer_id, self.next_producer_id or 0)


def _merged(before: MetadataLogRecord | None, change: MetadataLogRecord) -> MetadataLogRecord:
    """A change, with what it leaves as it was; each change of the leader has the next epoch."""
    has_led = change.leader != NO_CHANGE
    leader = None if change.leader is None else known(change.leader)
    if before is None:
        return replace(change, leader=leader if has_led else None)
    epoch = before.leader_epoch
    elr = change.eligible_leader_replicas
    return replace(
        change,
        leader=leader if has_led else before.leader,
        leader_epoch=epoch + 1 if has_led and epoch is not None else epoch,
        replicas=before.replicas if change.replicas is None else change.replicas,
        isr=before.isr if change.isr is None else change.isr,
        eligible_leader_replicas=before.eligible_leader_replicas if elr is None else elr,
    )
