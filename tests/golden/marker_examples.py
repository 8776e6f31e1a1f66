"""Findings of markers that were removed, refused or not sent, each staged on real brokers; no incident has them."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.broker_files import batches_of, forget_derived, partition_folder, read_batches
from tests.builders import create_topics, upgrade
from tests.incident_matrix import short_graces
from toolkit.formats.broker_logs import BrokerLogs, broker_log_events
from toolkit.lab import Kafka
from toolkit.lab.clients import (
    ALWAYS_UP,
    TxnProducer,
    await_coordinators,
    config_of,
    coordinator,
    open_transactions,
    send_until_accepted,
    until,
)
from toolkit.lab.incidents import EVERYDAY
from toolkit.schema import Row
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.logdir import LogDir

BEFORE, FAULTY = "4.1.2", "4.2.0"
"""A leader that does not know WriteTxnMarkers v2, and coordinators that send it all the same (KAFKA-20322)."""
MARKER_KEY = b"\0\0\0\1"  # of a COMMIT marker
CLEANING = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0"}


def marker_findings() -> Iterator[tuple[str, Row]]:
    """The cause that each has, and the finding."""
    with Kafka("2.8.2", properties={**EVERYDAY.properties, "log.cleaner.backoff.ms": "100"}) as kafka:
        compacted = {**CLEANING, "message.timestamp.type": "LogAppendTime"}
        create_topics(kafka, NewTopic("compacted", 1, 1, config=compacted), "refused", "elsewhere")
        _remove_marker(kafka)
        with BrokerClient(config_of(kafka)) as client:
            await_coordinators(client)
            _refuse_marker(client)
        with short_graces(), Cluster(kafka.bootstrap_servers) as cluster:

            def stuck(topic: str) -> Row | None:
                (row,) = cluster.finding_rows(topics=[topic], recheck_after=0.1)
                return row if row["verdict"] == "stuck_ending" else None

            for topic in ("compacted", "refused"):
                yield f"marker-{topic}", until(lambda topic=topic: stuck(topic), awaited=topic)  # type: ignore[misc]
    yield "marker-not-sent", _not_sent()


def _remove_marker(kafka: Kafka) -> None:
    """Let the cleaner of 2.8 remove a COMMIT marker: it takes a record's key for the marker's (KAFKA-14055).

    A replica that is copied from the log reads its producers from it, and so does the broker when it starts again.
    """
    with BrokerClient(config_of(kafka)) as client:
        producer = TxnProducer(client, "pay-1").init()
        producer.add("compacted", 0)
        producer.send("compacted", 0)
        time.sleep(CLOCKS_DIFFER.total_seconds() + 1)  # the broker's time proves that the record is older
        producer.end(commit=True)
    writer, folder = Producer(kafka.client_config()), partition_folder(kafka, "compacted", 0)
    writer.produce("compacted", b"value", MARKER_KEY)
    writer.flush()

    def is_cleaned() -> bool | None:
        writer.produce("compacted", b"value", b"another key")
        writer.flush()
        return True if all(each.is_commit is None for each in read_batches(folder)) else None

    until(is_cleaned, awaited="the cleaner")
    kafka.kill(ALWAYS_UP)
    for log in folder.glob("*.log"):  # without what it cleans while it is stopped
        log.write_bytes(b"".join(each.content for each in batches_of(log.read_bytes()) if each.is_commit is None))
    forget_derived(folder)
    kafka.start_broker(ALWAYS_UP)


def _refuse_marker(client: BrokerClient) -> None:
    """Commit a transaction whose partition knows a higher coordinator epoch, from a marker by hand."""
    producer = TxnProducer(client, "pay-2").init()

    def open_one() -> int:
        producer.add("refused", 0)
        producer.send("refused", 0)
        (known,) = open_transactions(client, "refused", 0)
        return known.coordinator_epoch

    for _ in range(2):  # the first marker shows the coordinator's epoch
        coordinator_epoch = open_one()
        producer.end(commit=True)
    of_topic = broker_client.WriteTxnMarkers.WritableTxnMarker.WritableTxnMarkerTopic
    marker = broker_client.WriteTxnMarkers.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=True,
        coordinator_epoch=coordinator_epoch + 1,
        transaction_version=0,
        topics=[of_topic(name="refused", partition_indexes=[0])],
    )
    send_until_accepted(
        client,
        lambda: broker_client.WriteTxnMarkers(markers=[marker]),
        of=producer.transactional_id,
        codes=lambda message: [message.markers[0].topics[0].partitions[0].error_code],
        to=lambda: ALWAYS_UP,
    )
    open_one()
    producer.decide(commit=True)


def _not_sent() -> Row:
    """A coordinator of 4.2.0, while the leader is not upgraded yet; from their files and logs."""
    alone = {"transaction.state.log.replication.factor": 1}  # no other broker becomes coordinator
    with Kafka(BEFORE, brokers=3, properties=alone) as kafka, BrokerClient(config_of(kafka)) as client:
        create_topics(kafka, NewTopic("orders", 1, replica_assignment=[[2]]))
        names = (f"id-{number}" for number in range(1000))
        transactional_id = next(name for name in names if coordinator(client, name) == 1)
        upgrade(kafka, 1, FAULTY)
        await_coordinators(client)
        producer = TxnProducer(client, transactional_id).init()
        producer.add("orders", 0)
        producer.send("orders", 0)
        producer.decide(commit=True)
        until(
            lambda: (
                any(each.event == "marker_request_failed" for each in broker_log_events(kafka.broker_logs[2])) or None
            ),
            awaited="the request in the leader's log",
        )

        def stuck() -> Row | None:
            folders, logs = [*kafka.log_dirs.values()], BrokerLogs(*kafka.broker_logs.values())
            with short_graces(), LogDir(*folders, broker_logs=logs, as_of=dt.datetime.now(dt.UTC)) as files:
                (row,) = files.finding_rows(topics=["orders"])
            return row if row["verdict"] == "stuck_ending" else None

        return until(stuck, awaited="a stuck ending")
