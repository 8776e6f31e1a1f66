"""Findings of markers that were removed, refused or not sent, each staged on real brokers; no incident has them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.builders import create_topics, upgrade
from tests.incident_matrix import short_graces
from tests.outcomes import Case, Origin, OutcomeCluster, Sequel, rows_of
from toolkit.formats.broker_logs import BrokerLogs, broker_log_events
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, await_coordinators, config_of, coordinator, until
from toolkit.schema import Row
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.logdir import LogDir

BEFORE, FAULTY = "4.1.2", "4.2.0"
"""A leader that does not know WriteTxnMarkers v2, and coordinators that send it all the same (KAFKA-20322)."""


def marker_findings() -> Iterator[tuple[str, Row]]:
    """The cause that each has, and the finding."""
    # The cleaner of 2.8 removes markers by itself (KAFKA-14055).
    removed = Case(origin=Origin.COMPACTED, commit=True, sequel=Sequel.THREE_COMMITS)
    refused = Case(origin=Origin.REFUSED, commit=True)
    with (
        OutcomeCluster.start("2.8.2", [removed, refused]) as staged,
        short_graces(),
        Cluster(staged.kafka.bootstrap_servers) as cluster,
    ):

        def stuck() -> list[Row] | None:
            rows = rows_of(cluster, staged.staged)
            return rows if {row["verdict"] for row in rows} == {"stuck_ending"} else None

        yield from zip(("marker-compacted", "marker-refused"), until(stuck, awaited="both"), strict=True)
    yield "marker-not-sent", _not_sent()


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
