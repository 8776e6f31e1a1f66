"""Partitions with everything that a log can contain, and the records that real consumers get."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka import admin as kafka_admin
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.builders import create_topics
from toolkit import Cluster
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, until
from toolkit.schema import BATCHES, Row

QUIET = {"log_level": 0}


def chaos(kafka: Kafka, *, seed: str, steps: int = 60, topic: str = "") -> str:
    """A topic of one partition: transactions committed, aborted, open and hanging, interleaved; plain and idempotent
    records between them; and its head deleted in the middle of a transaction.
    """
    topic = topic or f"chaos-{uuid.uuid4().hex[:6]}"
    create_topics(kafka, NewTopic(topic, 1, 1, config={"segment.ms": "500"}))
    with Cluster(kafka.bootstrap_servers) as cluster:
        _interleave(cluster, kafka, topic, random.Random(seed), steps=steps)
        (row,) = cluster.partition_rows(topics=[topic])
        _delete_before(kafka, topic, row["high_watermark"] // 8)
        _leave_open(cluster, kafka, topic)
    return topic


def compacted_chaos(kafka: Kafka, *, seed: str, steps: int = 60) -> str:
    """The same on a compacted topic, after the cleaner has run, and with the cleaner stopped."""
    topic = f"compacted-{uuid.uuid4().hex[:6]}"
    cleaned = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    create_topics(kafka, NewTopic(topic, 1, 1, config={"segment.ms": "200", **cleaned}))
    with Cluster(kafka.bootstrap_servers) as cluster:
        _interleave(cluster, kafka, topic, random.Random(seed), steps=steps)

        def was_cleaned() -> bool | None:
            _plain(kafka, topic, idempotent=True)  # the next write rolls the segment
            rows = _batches(cluster, topic)
            holes = any(after["base_offset"] > one["last_offset"] + 1 for one, after in pairwise(rows))
            partial = any(0 < row["record_count"] <= row["last_offset"] - row["base_offset"] for row in rows)
            return True if holes and partial else None

        until(was_cleaned, awaited="the log cleaner")
        _interleave(cluster, kafka, topic, random.Random(seed + "again"), steps=steps // 3)
        _leave_open(cluster, kafka, topic)
        _configure(kafka, topic, {"min.cleanable.dirty.ratio": "1.0", "delete.retention.ms": "86400000"})
        before: list[Sequence[Row]] = [[]]

        def is_at_rest() -> bool | None:
            rows = _batches(cluster, topic)
            same, before[0] = rows == before[0], rows
            return True if same else None

        until(is_at_rest, awaited="the log cleaner to rest")
    return topic


def consumed(kafka: Kafka, topic: str, isolation_level: str, *, start: int | None = None) -> set[int]:
    """Every offset that a consumer of the complete partition gets, up to the end of the partition."""
    settings = kafka.client_config() | QUIET | {"group.id": f"reads-{uuid.uuid4().hex}", "enable.partition.eof": True}
    settings |= {"isolation.level": isolation_level, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0 if start is None else start)])
        offsets: set[int] = set()
        while True:
            for message in consumer.consume(500, timeout=1):
                error = message.error()
                if error is None:
                    offsets.add(message.offset() or 0)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return offsets
                else:
                    raise AssertionError(error)
    finally:
        consumer.close()


def _interleave(cluster: Cluster, kafka: Kafka, topic: str, chance: random.Random, *, steps: int) -> None:
    """Some producers at once, so that transactions lie within and across each other."""
    free = [TxnProducer(cluster.client, f"chaos-{uuid.uuid4().hex[:6]}").init() for _ in range(4)]
    busy: list[TxnProducer] = []
    for _ in range(steps):
        what = chance.choices(["begin", "write", "end", "plain", "idempotent"], [4, 5, 4, 1, 1])[0]
        if what == "begin" and free:
            producer = free.pop(chance.randrange(len(free)))
            producer.add(topic, 0)
            busy.append(producer)
            if chance.random() < 0.9:
                producer.send(topic, 0, records=chance.randint(1, 4))
        elif what == "write" and busy:
            chance.choice(busy).send(topic, 0, records=chance.randint(1, 4))
        elif what == "end" and busy:
            producer = busy.pop(chance.randrange(len(busy)))
            producer.end(commit=chance.random() < 0.6)
            free.append(producer)
        elif what in {"plain", "idempotent"}:
            _plain(kafka, topic, idempotent=what == "idempotent", records=chance.randint(1, 3))
    for producer in busy:
        producer.end(commit=chance.random() < 0.5)


def _leave_open(cluster: Cluster, kafka: Kafka, topic: str) -> None:
    """One begins and stays open, others end behind it, and one writes to the partition without adding it."""
    early, held, aborted, never_added = (
        TxnProducer(cluster.client, f"{name}-{uuid.uuid4().hex[:6]}").init()
        for name in ("open", "held", "aborted", "never-added")
    )
    held.add(topic, 0)
    held.send(topic, 0, records=2)  # below the LSO, with its marker beyond it
    early.add(topic, 0)
    early.send(topic, 0, records=2)
    held.send(topic, 0, records=2)
    aborted.add(topic, 0)
    aborted.send(topic, 0, records=3)
    aborted.end(commit=False)
    held.end(commit=True)
    never_added.send(topic, 0, records=2)
    _plain(kafka, topic, idempotent=True, records=2)
    early.send(topic, 0, records=1)


def _plain(kafka: Kafka, topic: str, *, idempotent: bool, records: int = 1) -> None:
    producer = Producer(kafka.client_config() | QUIET | {"enable.idempotence": idempotent})
    for _ in range(records):
        producer.produce(topic, b"no transaction", key=b"plain", partition=0)
    producer.flush(60)


def _batches(cluster: Cluster, topic: str) -> list[Row]:
    return [
        {name: row[name] for name in ("base_offset", "last_offset", "record_count")}
        for row in BATCHES.rows(cluster.batches(topics=topic, partitions=0))
    ]


def _admin(kafka: Kafka) -> AdminClient:
    return AdminClient({**kafka.client_config(), **QUIET})


def _delete_before(kafka: Kafka, topic: str, offset: int) -> None:
    admin = _admin(kafka)
    for deleted in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        deleted.result()


def _configure(kafka: Kafka, topic: str, config: Mapping[str, str]) -> None:
    api: Any = kafka_admin
    change = {"incremental_operation": api.AlterConfigOpType.SET}
    entries = [api.ConfigEntry(name, value, **change) for name, value in config.items()]
    admin = _admin(kafka)
    resource = api.ConfigResource(api.ResourceType.TOPIC, topic, incremental_configs=entries)
    for each in admin.incremental_alter_configs([resource]).values():
        each.result()
