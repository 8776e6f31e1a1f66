"""Records of ``__cluster_metadata``: against kafka-dump-log and the brokers' own answers, as recorded."""

from __future__ import annotations

import base64
import json
import lzma
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from toolkit.formats.batch_records import Record
from toolkit.formats.metadata_records import NO_CHANGE, MetadataState, metadata_log, read_metadata_record
from toolkit.formats.scan import scan
from toolkit.schema.log import MetadataLogRecord

LOGS = sorted((Path(__file__).parent / "data" / "metadata-logs").glob("*.json.xz"))
ORDERS, GONE = "orders", "gone"


class Logged(NamedTuple):
    """The records of a real metadata log, what kafka-dump-log says of them, and what the brokers said at its end."""

    records: dict[int, MetadataLogRecord]
    payloads: dict[int, dict[str, Any]]
    leaders: dict[int, tuple[int, int, set[int]]]
    topic_id: str


@pytest.fixture(scope="module", params=LOGS, ids=lambda path: path.name)
def logged(request: pytest.FixtureRequest) -> Logged:
    """Topics, one of them deleted, a setting, a block of producer ids; then a broker killed, and one restarted."""
    recorded = json.loads(lzma.decompress(request.param.read_bytes()))
    data = base64.b64decode(recorded["log"])
    positions = scan(data).headers["position"].tolist()
    records = [record for position in positions for record in metadata_log(data, position, where=MetadataLogRecord())]
    assert [record.error for record in records if record.error] == []
    payloads = {int(offset): payload for offset, payload in recorded["payloads"].items()}
    leaders = {int(number): (leader, epoch, {*isr}) for number, (leader, epoch, isr) in recorded["leaders"].items()}
    return Logged({record.offset or 0: record for record in records}, payloads, leaders, recorded["topic_id"])


def test_every_record_is_as_kafka_dump_log_shows_it(logged: Logged) -> None:
    assert logged.records.keys() == logged.payloads.keys()
    for offset, record in logged.records.items():
        payload = logged.payloads[offset]
        assert (camel(payload["type"]), payload["version"]) == (record.type, record.version)
        data = {name: getattr(record, field) for name, field in fields_of(record.type)}
        assert data == {name: shown(payload["data"], name, record.type) for name, _ in fields_of(record.type)}
    types = {record.type for record in logged.records.values()}
    assert types >= {"RegisterBroker", "Topic", "Partition", "PartitionChange", "RemoveTopic", "Config", "ProducerIds"}


def camel(type_: str) -> str:
    return "".join(word.capitalize() for word in type_.removesuffix("_RECORD").split("_"))


FIELDS = {
    "RegisterBroker": ["brokerId", "brokerEpoch", "fenced", "features"],
    "UnregisterBroker": ["brokerId", "brokerEpoch"],
    "BrokerRegistrationChange": ["brokerId", "brokerEpoch", "fenced"],
    "Topic": ["name", "topicId"],
    "RemoveTopic": ["topicId"],
    "Partition": ["partitionId", "topicId", "replicas", "isr", "leader", "leaderEpoch"],
    "PartitionChange": ["partitionId", "topicId", "replicas", "isr", "leader"],
    "FeatureLevel": ["name", "featureLevel"],
    "Config": ["name", "value"],
    "ProducerIds": ["brokerId", "brokerEpoch", "nextProducerId"],
}
COLUMNS = {
    "partitionId": "partition",
    "features": "max_metadata_version",
    "name": "topic",
    "brokerId": "affected_broker",
}
NAMES = {"FeatureLevel": "feature", "Config": "config_name"}


def fields_of(type_: str | None) -> Sequence[tuple[str, str]]:
    """Names in Kafka's JSON, with those of `MetadataLogRecord`."""
    snake = {
        name: re.sub("([A-Z])", lambda match: f"_{match[1].lower()}", name) for name in FIELDS.get(type_ or "", [])
    }
    named = {**COLUMNS, "value": "config_value", "name": NAMES.get(type_ or "", "topic")}
    return [(name, named.get(name, field)) for name, field in snake.items()]


def shown(data: dict[str, Any], name: str, type_: str | None) -> Any:
    """A field of the JSON as `MetadataLogRecord` has it; it leaves out what did not change."""
    value = data.get(name)
    if type_ == "BrokerRegistrationChange" and name == "fenced":
        return {1: True, -1: False}.get(value or 0)
    if name == "features":
        return next(each["maxSupportedVersion"] for each in data[name] if each["name"] == "metadata.version")
    if name == "leader":
        return NO_CHANGE if value is None else None if value == -1 else value
    return tuple(value) if isinstance(value, list) else value


def test_the_state_at_the_end_is_that_of_the_brokers(logged: Logged) -> None:
    state = MetadataState()
    whole = [state.add(record) for record in logged.records.values()]
    assert state.topics[logged.topic_id] == ORDERS
    found = {
        number: (each.leader, each.leader_epoch, set(each.isr or ()))
        for (topic_id, number), each in state.partitions.items()
        if topic_id == logged.topic_id
    }
    assert found == logged.leaders
    assert GONE not in state.topics.values()
    removed = [record for record in whole if record.type == "RemoveTopic"]
    assert [record.topic for record in removed] == [GONE]
    fenced = [record.fenced for record in whole if record.affected_broker == 3 and record.fenced is not None]
    assert (fenced[0], fenced[-1]) == (True, False), "registered, killed, and back"
    assert fenced.count(True) >= 2


FRAME = bytes([1])
NO_TAGS = b"\0"
IDS = FRAME + bytes([15, 0]) + (1).to_bytes(4) + (5).to_bytes(8) + (2000).to_bytes(8) + NO_TAGS


def read(value: bytes) -> MetadataLogRecord:
    return read_metadata_record(Record(0, None, None, value), MetadataLogRecord())


def test_a_type_or_a_tag_of_a_newer_kafka_is_no_failure() -> None:
    newer = read(FRAME + bytes([99, 7]) + b"whatever")
    assert newer == MetadataLogRecord(offset=0, type="type 99", version=7)
    tagged = read(IDS[:-1] + bytes([1, 44, 2]) + b"ab")
    assert tagged.next_producer_id == 2000


@pytest.mark.parametrize(("end", "topics"), [("EndTransaction", {"a": "orders"}), ("AbortTransaction", {})])
def test_an_aborted_transaction_of_the_controller_leaves_nothing(end: str, topics: dict[str, str]) -> None:
    state = MetadataState()
    topic, partition = {"topic": "orders", "topic_id": "a"}, {"topic_id": "a", "partition": 0, "leader": 1}
    for columns in ({"type": "BeginTransaction"}, {"type": "Topic"} | topic, {"type": "Partition"} | partition):
        state.add(MetadataLogRecord(**columns))
    state.add(MetadataLogRecord(type=end))
    assert state.topics == topics
    assert len(state.partitions) == len(topics)


def test_credentials_are_not_read() -> None:
    for key in (10, 11, 22, 26):
        record = read(FRAME + bytes([key, 0]) + b"secret")
        assert "secret" not in repr(record)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("ssl.keystore.password", "abc", "[hidden]"),
        ("ssl.keystore.password", None, None),
        ("retention.ms", "abc", "abc"),
        ("retention.ms", None, None),
    ],
)
def test_a_secret_setting_is_hidden(key: str, value: str | None, shown: str | None) -> None:
    def text(of: str | None) -> bytes:
        return b"\0" if of is None else bytes([len(of) + 1]) + of.encode()

    record = read(FRAME + bytes([4, 0, 4]) + text("1") + text(key) + text(value) + NO_TAGS)
    assert (record.config_resource, record.config_name, record.config_value) == ("broker 1", key, shown)
