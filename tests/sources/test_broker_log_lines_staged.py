"""Lines of brokers that fail: each is provoked on two real brokers, and is an event of their logs and of evidence."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

import toolkit
from toolkit import LogDir
from toolkit.errors import LabError
from toolkit.formats.broker_logs import broker_log_events, without_repeats
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC, coordinator_partition
from toolkit.formats.log.batches import write_batch
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY
from toolkit.lab.producer import TxnProducer
from toolkit.lab.queries import config_of, coordinator, open_transactions, partitions, until
from toolkit.schema.metadata import ClusterEvent
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.views.report import collect_incident, report, timeline_of

STATE_PARTITIONS = 4
PROPERTIES: Mapping[str, object] = {
    "transaction.state.log.num.partitions": STATE_PARTITIONS,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
UNKNOWN_VERSION = (99).to_bytes(2)


@pytest.mark.full
@pytest.mark.lab
@pytest.mark.parametrize("version", ["3.5.2", "4.3.1"])
def test_what_brokers_log_when_they_fail(version: str) -> None:
    """A write out of the transaction, one that cannot be verified, a marker that is retried, an epoch not written."""
    with Kafka(version, brokers=2, properties=PROPERTIES) as kafka:
        admin = AdminClient({**kafka.client_config(), "log_level": 0})
        alone = NewTopic("alone", 1, replica_assignment=[[1]])
        both = NewTopic("both", 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "2"})
        for created in admin.create_topics([alone, both]).values():
            created.result()
        with BrokerClient(config_of(kafka)) as client:
            stray, retried = producer_on(client, 1), producer_on(client, 1)
            overdue, unverified = producer_on(client, 1, timeout_ms=15_000), producer_on(client, 2)
            for producer, topic in ((stray, "alone"), (retried, "both"), (overdue, "alone")):
                producer.add(topic, 0)
                producer.send(topic, 0)
            unverified.add("alone", 0)
            send_without_transaction(client, stray)
            kafka.kill(2)
            with contextlib.suppress(LabError):  # NOT_ENOUGH_REPLICAS is the answer where it could not verify
                unverified.send("alone", 0)  # the leader asks the coordinator, which is gone
            until(lambda: True if [*partitions(client, "both")[0].isr_nodes] == [1] else None, awaited="a lost replica")
            retried.decide(commit=True)
            require_two_replicas(kafka)
            found = events(kafka, 1, "epoch_fence_failed", "marker_retried")
            kafka.start_broker(2)
            until(lambda: None if open_transactions(client, "both", 0) else True, awaited="the marker")
        check(found["invalid_txn_state"], topic="alone", producer_id=stray.producer_id)
        check(found["marker_retried"], topic="both", transactional_id=retried.transactional_id)
        check(found["epoch_fence_failed"], transactional_id=overdue.transactional_id)
        if version != "3.5.2":  # it does not verify
            check(found["verification_failed"], affected_broker=2)
        runs = without_repeats(broker_log_events(kafka.broker_logs[1]))
        run = max((each for each in runs if each.event == "marker_retried"), key=lambda each: each.line_count or 1)
        assert (run.line_count or 0) > 100, "brokers retry without a pause"
        rows = LogDir(kafka.log_dirs[1], broker_logs=[kafka.broker_logs[1]]).cluster_event_rows(topics=["both"])
        assert run.line_count in [row["line_count"] for row in rows]
        check_failed_storage(kafka, retried.transactional_id)


@pytest.mark.full
@pytest.mark.lab
@pytest.mark.parametrize("version", ["3.5.2", "4.3.1"])
def test_a_log_cleaner_that_fails(version: str) -> None:
    """A damaged segment: its partition is left out. An index that is cut off: the thread dies, and cleans no more."""
    setting = {"log.cleaner.backoff.ms": 200, "log.cleaner.threads": 1}
    with Kafka(version, properties={**EVERYDAY.properties, **setting}) as kafka:
        admin = AdminClient({**kafka.client_config(), "log_level": 0})
        config = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
        config["min.compaction.lag.ms"] = "86400000"
        created = admin.create_topics([NewTopic(topic, 1, config=config) for topic in ("prices", "stock")])
        for each in created.values():
            each.result()
        for topic in ("prices", "stock"):
            fill(kafka, topic)
        segment = min((kafka.log_dirs[1] / "prices-0").glob("*.log"))
        with segment.open("r+b") as file:
            file.seek(70)  # behind the header of its first batch
            file.write(b"\xff" * 300)
        clean(admin, "prices")
        check(events(kafka, 1, "partition_uncleanable")["partition_uncleanable"], topic="prices", partition=0)
        with BrokerClient(config_of(kafka)) as client:
            holder = TxnProducer(client, "holder").init()
            holder.add("stock", 0)
            holder.send("stock", 0)
        os.truncate(min((kafka.log_dirs[1] / "stock-0").glob("*.index")), 0)  # the broker has it in memory
        clean(admin, "stock")
        died = events(kafka, 1, "cleaner_died")["cleaner_died"]
        check(died, topic=None, affected_broker=1)
        assert "InternalError" in (died.text or "")
        assert toolkit.explain(died.text or "").symptoms == ("consumer-offsets-grows",)
        kafka.stop_broker(1)
        files = LogDir(kafka.log_dirs[1], consistent_copy=True, broker_logs=[kafka.broker_logs[1]])
        tables = collect_incident(files, topics=["stock"])
        assert "Error due to InternalError" in report(**tables).markdown
        figure = timeline_of(tables)
        assert figure is not None
        assert "Error due to" in figure("light").to_json()


def fill(kafka: Kafka, topic: str) -> None:
    """More than two segments of the same keys, in batches that are small enough for entries of the offset index."""
    producer = Producer({**kafka.client_config(), "batch.size": 20_000, "log_level": 0})
    for number in range(300):
        producer.produce(topic, key=f"{number % 30}", value=b"x" * 9000)
    producer.flush(300)


def clean(admin: AdminClient, topic: str) -> None:
    """Let the cleaner begin with a topic."""
    setting = ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[setting])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result()


def producer_on(client: BrokerClient, broker_id: int, *, timeout_ms: int = 600_000) -> TxnProducer:
    """A producer of an id that this broker coordinates."""

    def coordinated() -> TxnProducer | None:
        name = f"id-{uuid.uuid4().hex[:6]}"
        on_it = coordinator(client, name) == broker_id
        return TxnProducer(client, name, timeout_ms=timeout_ms).init() if on_it else None

    return until(coordinated, awaited=f"an id of broker {broker_id}")


def send_without_transaction(client: BrokerClient, producer: TxnProducer) -> None:
    """A batch that is not transactional, of a producer that has a transaction open there."""
    batch = write_batch(
        [(b"key", b"stray")],
        timestamp=dt.datetime.now(dt.UTC),
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=1,
        is_transactional=False,
    )
    topic = messages.Produce.TopicProduceData
    written = topic(name="alone", partition_data=[topic.PartitionProduceData(index=0, records=batch)])
    request = messages.Produce(transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=[written], max_version=8)
    response = client.send_one(request, broker_id=1)
    assert response.responses[0].partition_responses[0].error_code == 48, "INVALID_TXN_STATE"


def require_two_replicas(kafka: Kafka) -> None:
    """Coordinators can write nothing any more, the epoch of a transaction that times out among it."""
    admin = AdminClient({**kafka.client_config(), "log_level": 0})  # the other one may wait for the killed broker
    setting = ConfigEntry("min.insync.replicas", "2", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, STATE_TOPIC, incremental_configs=[setting])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result()


def events(kafka: Kafka, broker_id: int, *awaited: str) -> dict[str | None, ClusterEvent]:
    """The last event of each name in a broker's log, once it has the awaited ones."""

    def found() -> dict[str | None, ClusterEvent] | None:
        by_name = {each.event: each for each in broker_log_events(kafka.broker_logs[broker_id])}
        return by_name if by_name.keys() >= {*awaited} else None

    return until(found, awaited=f"{', '.join(awaited)} in the log of broker {broker_id}", timeout=300)


def check(event: ClusterEvent, **expected: object) -> None:
    assert {name: getattr(event, name) for name in expected} == expected
    assert event.timestamp is not None
    assert event.error is None


def check_failed_storage(kafka: Kafka, transactional_id: str) -> None:
    """A coordinator that cannot load a record; and a log directory that is gone."""
    number = coordinator_partition(transactional_id, STATE_PARTITIONS)
    kafka.stop_broker(2)
    kafka.stop_broker(1)
    if kafka.version == "3.5.2":  # 4.3.1 leaves such a record out, and logs nothing
        damage_last_record(kafka.log_dirs[1] / f"{STATE_TOPIC}-{number}", transactional_id.encode())
    kafka.start_broker(1)
    if kafka.version == "3.5.2":
        failed = events(kafka, 1, "coordinator_load_failed")["coordinator_load_failed"]
        check(failed, topic=STATE_TOPIC, partition=number)
    kafka.start_broker(2)
    kafka.log_dirs[2].rename(kafka.log_dirs[2].with_name("gone"))
    check(events(kafka, 2, "log_dir_failed")["log_dir_failed"], affected_broker=2)


def damage_last_record(folder: Path, key: bytes) -> None:
    """Give the value of the newest record of an id a version that no Kafka knows."""
    segment = sorted(folder.glob("*.log"))[-1]
    data = bytearray(segment.read_bytes())
    position = data.rindex(key) + len(key)
    while data[position] & 0x80:  # the length of the value, a varint
        position += 1
    data[position + 1 : position + 3] = UNKNOWN_VERSION
    segment.write_bytes(data)
