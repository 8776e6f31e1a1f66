"""A cluster whose brokers are upgraded one by one."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.lab import Kafka
from toolkit.lab.clients import RequestRefused
from toolkit.lab.incidents import INCIDENTS, Stage, StagedIncident


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
