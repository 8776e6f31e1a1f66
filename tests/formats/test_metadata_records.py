"""Records of ``__cluster_metadata``: against kafka-dump-log and the brokers' own answers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

from tests.formats import dumped
from toolkit.formats.log.batch_records import Record
from toolkit.formats.log.metadata_records import NO_CHANGE, MetadataState, metadata_log, read_metadata_record
from toolkit.formats.log.scan import scan
from toolkit.lab import Kafka
from toolkit.lab.producer import TxnProducer
from toolkit.lab.queries import config_of, partitions, until
from toolkit.schema.metadata import MetadataLogRecord
from toolkit.sources.live.client.broker_client import BrokerClient

VERSIONS = [
    pytest.param(version, marks=() if version == "4.3.1" else pytest.mark.full)
    for version in ("3.3.2", "3.5.2", "3.9.2", "4.0.1", "4.1.2", "4.2.1", "4.3.1", "4.4.0")
]
DUMPED = re.compile(r"offset: (\d+) .* payload: (\{.*\})")
ORDERS, GONE = "orders", "gone"


class Logged(NamedTuple):
    """The records of a real metadata log, what kafka-dump-log says of them, and what the brokers said at its end."""

    records: dict[int, MetadataLogRecord]
    payloads: dict[int, dict[str, Any]]
    leaders: dict[int, tuple[int, int, set[int]]]
    topic_id: str


@pytest.fixture(scope="module", params=VERSIONS)
def logged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """Topics, one of them deleted, a setting, a block of producer ids; then a broker killed, and one restarted."""
    version = request.param
    with Kafka(version, brokers=3) as kafka:
        stage(kafka)
        client = BrokerClient(config_of(kafka))
        until(
            lambda: True if all(len(each.isr_nodes) == 3 for each in partitions(client, ORDERS).values()) else None,
            awaited="all replicas in sync",
        )
        log = tmp_path_factory.mktemp("metadata") / f"{0:020}.log"
        shutil.copy2(kafka.log_dirs[1] / "__cluster_metadata-0" / log.name, log)
        leaders = {
            number: (each.leader_id, each.leader_epoch, set(each.isr_nodes))
            for number, each in partitions(client, ORDERS).items()
        }
        client.close()
        topic_id = re.search("topic_id: (.*)", (kafka.log_dirs[1] / f"{ORDERS}-0" / "partition.metadata").read_text())
        assert topic_id is not None
        payloads = dump(kafka, log)
    data = log.read_bytes()
    positions = scan(data).headers["position"].tolist()
    records = [record for position in positions for record in metadata_log(data, position, where=MetadataLogRecord())]
    assert [record.error for record in records if record.error] == []
    return Logged({record.offset or 0: record for record in records}, payloads, leaders, topic_id[1])


def stage(kafka: Kafka) -> None:
    admin = AdminClient({**kafka.client_config()})
    setting = ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
    client = BrokerClient(config_of(kafka))
    until(lambda: create_topics(admin), awaited="the topics")
    # The next request may reach a broker that has not heard of the topics.
    until(
        lambda: True if len(partitions(client, ORDERS)) == 3 and partitions(client, GONE) else None,
        awaited="the topics on a broker",
    )
    for futures in (
        admin.delete_topics([GONE]),
        admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, ORDERS, incremental_configs=[setting])]),
    ):
        for future in futures.values():
            future.result()
    TxnProducer(client, "payments").init()
    client.close()
    kafka.kill(3)
    kafka.start_broker(3)
    kafka.restart(2)


def create_topics(admin: AdminClient) -> bool | None:
    """Null if a broker that was fenced for a moment, as on a busy machine, has lost the request or its response."""
    for created in admin.create_topics([NewTopic(ORDERS, 3, 3), NewTopic(GONE, 1, 1)]).values():
        try:
            created.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                return None
    return True


def dump(kafka: Kafka, log: Path) -> dict[int, dict[str, Any]]:
    """Type, version and data of every record, by offset."""
    done = kafka.run_tool(dumped.tool(kafka), "--cluster-metadata-decoder", "--files", str(log))
    assert done.returncode == 0, done.stderr
    return {int(offset): json.loads(payload) for offset, payload in DUMPED.findall(done.stdout)}


@pytest.mark.lab
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


@pytest.mark.lab
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
