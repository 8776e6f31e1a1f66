"""Offsets that a Java client of 4.4.0 commits in a transaction: TxnOffsetCommit 6 names topics by their ids."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.builders import create_topics
from tests.java_gateway import java_clients
from toolkit import Cluster, LogDir
from toolkit.lab import Kafka
from toolkit.lab.clients import until
from toolkit.schema import Row
from toolkit.sources.live import broker_client
from toolkit.sources.live.coordinator_logs import API_VERSIONS

TXN_OFFSET_COMMIT = 28


def stable_lag(source: Cluster | LogDir) -> Row | None:
    """The group's row once the marker is written: EndTxn is answered before it is."""
    (lag,) = source.group_lag_rows("billing")
    return lag if lag["error"] is None else None


@pytest.mark.lab
@pytest.mark.full
def test_offsets_of_a_client_of_4_4(tmp_path: Path) -> None:
    with Kafka("4.4.0", properties={"offsets.topic.num.partitions": 1}) as kafka:
        create_topics(kafka, "orders")
        with Cluster(kafka.bootstrap_servers) as cluster, java_clients(kafka, tmp_path) as java:
            apis = cluster.client.send_one(broker_client.ApiVersions(**API_VERSIONS)).api_keys
            assert [each.max_version for each in apis if each.api_key == TXN_OFFSET_COMMIT] == [6]
            producer = java.open_producer("payments", "orders")
            group = java.clients.consumer.ConsumerGroupMetadata("billing")
            producer.sendOffsetsToTransaction(java.offsets("orders", 1), group)
            files = LogDir(*kafka.log_dirs.values())
            for source in (cluster, files):
                (row,) = [row for row in source.offsets_log_rows() if row["kind"] == "offset_commit"]
                assert (row["group_id"], row["topic"], row["partition"]) == ("billing", "orders", 0)
                assert (row["committed_offset"], row["is_transactional"], row["error"]) == (1, True, None)
                (lag,) = source.group_lag_rows("billing")
                assert lag["error"].startswith("UNSTABLE_OFFSET_COMMIT")
            found = {row["topic"]: row for row in cluster.finding_rows(recheck_after=0)}
            assert {found[each]["verdict"] for each in ("orders", "__consumer_offsets")} == {"ongoing"}
            producer.commitTransaction()
            for source in (cluster, files):
                lag = until(partial(stable_lag, source), awaited="the marker of __consumer_offsets-0")
                assert (lag["committed_offset"], lag["behind"]) == (1, 0)
                (past,) = [row for row in source.transaction_history_rows() if row["kind"] == "transaction"]
                assert (past["ended"], past["error"]) == ("commit", None)
            producer.close()
