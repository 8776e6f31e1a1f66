"""Record the golden files: ``python -m tests.golden.record``. It takes four minutes, for an age worth showing."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from confluent_kafka import Producer

from tests.builders import create_topics
from tests.golden import FOLDER, finding_rows, picture, text
from toolkit.lab import Kafka
from toolkit.lab.clients import BlockedConsumer
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.schema import FINDINGS
from toolkit.sources.live.cluster import Cluster
from toolkit.views.row_formats import json_pieces

AGE = 200.0  # seconds


def record() -> None:
    """Stage on three brokers, wait, diagnose, and write ``findings.json``."""
    with Kafka("4.3.1", brokers=3, properties=EVERYDAY.properties) as kafka, ExitStack() as stack:
        create_topics(kafka, "clicks", "orders", partitions=2, replicas=3)
        write(kafka, "orders", 5)
        stack.enter_context(INCIDENTS["open_long"](kafka, topic="clicks"))
        billing = stack.enter_context(BlockedConsumer(kafka, "orders", "billing"))
        stack.enter_context(INCIDENTS["several_open"](kafka, topic="orders"))
        write(kafka, "orders", 2_112)
        billing.read()
        threading.Event().wait(AGE)
        cluster = stack.enter_context(Cluster(kafka.bootstrap_servers))
        (FOLDER / "findings.json").write_text("".join(json_pieces(FINDINGS, cluster.finding_rows())))


def write(kafka: Kafka, topic: str, count: int) -> None:
    """Ordinary records."""
    producer = Producer(kafka.client_config())
    for number in range(count):
        producer.produce(topic, value=f"order {number}", partition=0)
    producer.flush(30)


if __name__ == "__main__":
    record()
    lines = list(text(finding_rows()))
    (FOLDER / "findings.txt").write_text("\n".join(lines) + "\n")
    (FOLDER / "findings.svg").write_text(picture(lines))
