"""A broker with remote storage (KIP-405): Kafka's own LocalTieredStorage, which copies segments to a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.builders import create_topics
from tests.java_clients import jars_of
from toolkit import Cluster
from toolkit.lab import Kafka
from toolkit.lab.clients import until
from toolkit.lab.incidents import EVERYDAY

SEGMENT_BYTES, RECORD_BYTES = 1 << 20, 100_000
PER_SEGMENT = SEGMENT_BYTES // RECORD_BYTES


@contextmanager
def tiered_kafka(remote: Path, version: str = "4.3.1") -> Iterator[Kafka]:
    """A broker that copies segments of topics with remote storage to a folder."""
    properties = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": f"{jars_of(f'tiered-{version}')}/*", "rsm.config.dir": str(remote),
        "remote.log.metadata.manager.listener.name": "INTERNAL",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1", "remote.log.manager.task.interval.ms": "300",
        "log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "100", **EVERYDAY.properties,
    }  # fmt: skip
    with Kafka(version, properties=properties) as kafka:
        yield kafka


def create_tiered_topic(kafka: Kafka, topic: str) -> None:
    """A topic of one partition that keeps on disk only what is not in remote storage."""
    config = {
        "remote.storage.enable": "true",
        "segment.bytes": str(SEGMENT_BYTES),
        "local.retention.bytes": "1",
        "file.delete.delay.ms": "100",
    }
    create_topics(kafka, NewTopic(topic, 1, 1, config=config))


def write(
    kafka: Kafka, topic: str, *, segments: int = 1, transactional_id: str | None = None, commit: bool = True
) -> None:
    """Records that fill so many segments: plain ones, or those of one transaction."""
    transactional = {"transactional.id": transactional_id} if transactional_id else {}
    producer = Producer({**kafka.client_config(), **transactional, "linger.ms": 0, "batch.size": RECORD_BYTES})
    if transactional_id:
        producer.init_transactions(60)
        producer.begin_transaction()
    for _ in range(segments * PER_SEGMENT):
        producer.produce(topic, value=os.urandom(RECORD_BYTES), partition=0)
    producer.flush(60)
    if transactional_id and commit:
        producer.commit_transaction(60)
    elif transactional_id:
        producer.abort_transaction(60)


def wait_until_local_log_starts_after(cluster: Cluster, topic: str, offset: int) -> None:
    """Until the broker has copied and deleted what lies before an offset."""

    def is_remote() -> bool | None:
        [row] = cluster.partition_rows(topics=[topic])
        return True if (row["local_log_start_offset"] or 0) > offset else None

    until(is_remote, awaited=f"the local log of {topic} to start after {offset}")
