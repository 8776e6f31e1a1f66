"""The lag of a group on a real broker: held records, and markers."""

import json
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka.protocol import admin

from tests.process import on
from toolkit import Cluster
from toolkit.errors import NotFound
from toolkit.lab import Kafka
from toolkit.lab.clients import blocked_consumer, until, write_committed
from toolkit.lab.incidents import INCIDENTS
from toolkit.lab.samples import load
from toolkit.schema import GROUP_LAG, Row


@pytest.mark.lab
def test_a_hanging_transaction_blocks_records_of_the_group(kafka: Kafka) -> None:
    staged = INCIDENTS["never_added"](kafka, records=5)
    with blocked_consumer(kafka, staged.topic, "lag-of-held"), Cluster(kafka.bootstrap_servers) as cluster:
        (row,) = cluster.group_lag_rows("lag-of-held")
        (unread,) = cluster.group_lag_rows("lag-of-held", max_offsets=0)
    assert (row["behind"], row["held"]) == (0, 5)
    assert row["lag"] == row["held"] + row["markers"] + row["aborted"]
    assert unread["markers"] is None
    assert unread["lag"] == row["lag"]


def test_files_have_an_offset_committed_by_an_open_transaction() -> None:
    (row,) = load("offsets-never-added").log_dir().group_lag_rows("billing")
    assert row["error"].startswith("UNSTABLE_OFFSET_COMMIT")
    assert row["committed_offset"] is None


def test_a_group_missing_from_the_files_is_not_found() -> None:
    with pytest.raises(NotFound, match="have no committed offset of the group"):
        load("orphan").log_dir().group_lag_rows("nobody")


@pytest.mark.lab
def test_kafkas_tool_and_the_client_lag_differ_as_documented(kafka: Kafka) -> None:
    """Kafka's tool measures to the high watermark, a read_committed client to the LSO; neither accounts for markers."""
    staged = INCIDENTS["several_open"](kafka)
    group = f"compared-{staged.topic}"
    with Cluster(kafka.bootstrap_servers) as cluster:
        write_committed(cluster.client, staged.topic, 0, records=4)
        with blocked_consumer(kafka, staged.topic, group):
            pass
        settings = kafka.client_config() | {"group.id": group, "isolation.level": "read_committed", "log_level": 0}
        (row,) = cluster.group_lag_rows(group)
        client_lag = until(lambda: client_statistics(settings, row), awaited="the client's own lag")
    done = kafka.run_tool(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--bootstrap-server", kafka.bootstrap_servers, "--describe", "--group", group, "--offsets"),
    )
    head, line = [line.split() for line in done.stdout.splitlines() if staged.topic in line or "LAG" in line]
    tool = dict(zip(head, line, strict=False))
    assert int(tool["CURRENT-OFFSET"]) == row["committed_offset"]
    assert int(tool["LOG-END-OFFSET"]) == row["high_watermark"]
    assert int(tool["LAG"]) == row["lag"]
    assert row["client_lag"] == client_lag
    assert row["lag"] == row["behind"] + row["held"] + row["markers"] + row["aborted"]
    assert row["behind"] == 0
    assert row["held"] > 0
    assert row["markers"] > 0
    assert row["reason"].startswith(f"A read_committed client reports lag {client_lag}, and {row['held']} records")
    done_here = on(kafka, "lag", "--group", group)
    assert done_here.returncode == 0, done_here.stderr
    assert f"{staged.topic}-0  A read_committed client reports lag" in done_here.stdout
    (reported,) = json.loads(on(kafka, "lag", "--group", group, "--format", "json").stdout)["rows"]
    assert list(reported) == GROUP_LAG.names
    assert (reported["lag"], reported["held"]) == (row["lag"], row["held"])


def client_statistics(settings: dict[str, Any], row: Row) -> int | None:
    """`consumer_lag` in librdkafka's statistics for a consumer that continues from the committed offset."""
    found: list[int] = []

    def read(text: str) -> None:
        part = json.loads(text)["topics"].get(row["topic"], {}).get("partitions", {}).get("0", {})
        if part.get("consumer_lag", -1) >= 0 and part["ls_offset"] >= 0:
            found.append(part["consumer_lag"])

    consumer = Consumer({**settings, "statistics.interval.ms": 100, "stats_cb": read, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(row["topic"], row["partition"])])
        for _ in range(50):
            assert consumer.poll(0.1) is None
            if found:
                return found[-1]
    finally:
        consumer.close()
    return None


@pytest.mark.lab
@pytest.mark.full
def test_a_share_group_waits_for_the_lso_only_with_read_committed(kafka: Kafka) -> None:
    """share.isolation.level is read_uncommitted by default (KIP-932)."""
    staged = INCIDENTS["never_added"](kafka, records=5)
    server = ("--bootstrap-server", kafka.bootstrap_servers)
    for level in ("read_committed", "read_uncommitted"):
        group = f"shares-{level}-{staged.topic}"
        config = "share.auto.offset.reset=earliest" + (f",share.isolation.level={level}" if "un" not in level else "")
        entity = ("--alter", "--entity-type", "groups", "--entity-name", group, "--add-config", config)
        assert kafka.run_tool("kafka.admin.ConfigCommand", *server, *entity).returncode == 0
        reads = ("--topic", staged.topic, "--group", group, "--timeout-ms", "8000")
        kafka.run_tool("org.apache.kafka.tools.consumer.ConsoleShareConsumer", *server, *reads)
        with Cluster(kafka.bootstrap_servers) as cluster:
            row = next(row for row in cluster.group_lag_rows(group) if row["partition"] == 0)
        assert (row["isolation_level"], row["error"]) == (level, None)
        assert row["behind"] == 0
        assert row["held"] == (5 if level == "read_committed" else 0)
        assert row["lag"] == row["held"] + row["markers"] + row["aborted"]
        assert on(kafka, "lag", "--group", group).returncode == 0


@pytest.mark.lab
def test_a_deleted_topic_is_an_error_row(kafka: Kafka) -> None:
    staged = INCIDENTS["marker_only"](kafka)
    with Cluster(kafka.bootstrap_servers) as cluster:
        deleted = admin.DeleteTopicsRequest(topic_names=[staged.topic], timeout_ms=10_000, max_version=4)
        cluster.client.send_one(deleted, broker_id=1)
        rows = cluster.group_lag_rows(staged.group)
    assert [row["error"].partition(":")[0] for row in rows] == ["UNKNOWN_TOPIC_OR_PARTITION"] * len(rows)
