"""What tests of real brokers make and read: topics, upgrades, and the records that consumers receive."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType  # type: ignore[attr-defined]

from toolkit.lab import Kafka
from toolkit.lab.clients import RequestRefused, leader, send_until_accepted, until
from toolkit.lab.incidents import INCIDENTS, Stage, StagedIncident
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient


def create_topics(kafka: Kafka, *topics: NewTopic | str, partitions: int = 1, replicas: int = 1) -> None:
    """Topics, once all are created; a name stands for one of so many partitions and replicas."""
    new = [each if isinstance(each, NewTopic) else NewTopic(each, partitions, replicas) for each in topics]
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    for created in admin.create_topics(new).values():
        created.result(120)


def delete_records(client: BrokerClient, topic: str, *, before: int) -> None:
    """Delete the records of partition 0 before an offset."""
    of_topic = broker_client.DeleteRecords.DeleteRecordsTopic
    partition = of_topic.DeleteRecordsPartition(partition_index=0, offset=before)
    request = broker_client.DeleteRecords(topics=[of_topic(name=topic, partitions=[partition])], timeout_ms=10_000)
    send_until_accepted(
        client,
        lambda: request,
        of=topic,
        codes=lambda message: [message.topics[0].partitions[0].error_code],
        to=lambda: leader(client, topic, 0),
    )


def commit_offset(kafka: Kafka, group: str, topic: str, offset: int) -> None:
    """Commit an offset of partition 0 for a group without members, once it has a coordinator."""
    with Consumer({**kafka.client_config(), "group.id": group, "log_level": 0}) as consumer:
        offsets = [TopicPartition(topic, 0, offset)]
        until(lambda: consumer.commit(offsets=offsets, asynchronous=False), awaited=f"the coordinator of group {group}")


def configure_topic(admin: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    """Change settings of a topic; its others stay."""
    entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in settings.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result()


def received(
    kafka: Kafka, topic_partitions: Iterable[tuple[str, int]], *, level: str = "read_committed", **settings: Any
) -> list[Message]:
    """What a consumer receives of partitions, up to their LSO or, with read_uncommitted, to their high watermark."""
    wanted = set(topic_partitions)
    own = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0, **settings}
    consumer = Consumer({**kafka.client_config(), **own, "isolation.level": level})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in wanted])
    found: list[Message] = []
    ends = set[tuple[str | None, int | None]]()

    def all_read() -> bool | None:
        for message in consumer.consume(500, timeout=0.2):
            if message.error() is None:
                found.append(message)
            else:
                ends.add((message.topic(), message.partition()))
        return True if ends == wanted else None

    try:
        until(all_read, awaited="the end of every partition")
    finally:
        consumer.close()
    return found


def upgrade(kafka: Kafka, broker_id: int, version: str) -> None:
    """Shut down a broker and start it with another version, on the same data and port."""
    kafka.stop_broker(broker_id)
    kafka.version = version
    kafka._classpath = kafka.classpath
    kafka.start_broker(broker_id)


def stage(kafka: Kafka, topic: str, replicas: Sequence[int], coordinator: int) -> StagedIncident | None:
    """`never_added` on a partition that the first replica leads; null if the leader refused the write."""
    with Stage(kafka, INCIDENTS["never_added"], topic=topic, partition=0) as on:
        on.create_topic(replicas=replicas)
        producer = on.producer(coordinator_id=coordinator)
        try:
            return on.staged(producer, producer.send(topic, 0))
        except RequestRefused as refused:
            if refused.error in {"INVALID_TXN_STATE", "TRANSACTION_ABORTABLE"}:
                return None
            raise
