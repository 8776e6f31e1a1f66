"""The lag of a group on a real broker: held records, and markers."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka.protocol import admin

from tests.builders import commit_offset, create_topics
from tests.java_gateway import java_clients
from tests.process import on, run
from tests.sources.log_files import HIGH_WATERMARK, META, SEGMENT, after, marker
from toolkit import Cluster, LogDir
from toolkit.errors import BrokerError, DecodeError, NotFound
from toolkit.formats.batches import read_header
from toolkit.lab import Kafka
from toolkit.lab.clients import (
    ALWAYS_UP,
    BlockedConsumer,
    TxnProducer,
    admin_of,
    offsets,
    open_transactions,
    until,
    write_committed,
)
from toolkit.lab.incidents import INCIDENTS, STANDSTILL
from toolkit.lab.samples import load
from toolkit.schema import GROUP_LAG, Row
from toolkit.schema.live import Finding
from toolkit.schema.table import TopicPartition as Tp
from toolkit.schema.verdict import Verdict
from toolkit.sources.live import broker_client, group_offsets
from toolkit.sources.live.coordinator_logs import API_VERSIONS
from toolkit.sources.live.coordinators import GROUP, TRANSACTION, find_coordinators
from toolkit.sources.live.group_offsets import offsets_of_group
from toolkit.sources.live.leaders import FetchPosition
from toolkit.sources.logdir.coordinator_state import groups_in_files


def test_groups_of_live_transactions_are_read_of_the_oldest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that had died within its timeout held a group that no answer named."""
    now, read = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC), list[FetchPosition]()

    def groups_held(client: object, held: list[FetchPosition]) -> dict[Tp, list[str]]:
        read.extend(held)
        return {}

    monkeypatch.setattr(group_offsets, "groups_held", groups_held)

    def holder(partition: int, minutes: float, verdict: Verdict = Verdict.ONGOING) -> Finding:
        return Finding(
            topic="orders", partition=partition, queue_position=1, last_stable_offset=5, broker_id=1, verdict=verdict,
            opened_at=now - dt.timedelta(minutes=minutes), brokers_time=now, observed_at=now,
            reason="", remedy="", missing=(), evidence=(),
        )  # fmt: skip

    live = [holder(partition, minutes=6 + partition) for partition in range(30)]
    group_offsets.with_groups(None, [holder(98, 4), holder(99, 0, Verdict.HANGING), *live])  # type: ignore[arg-type]
    assert [each.tp.partition for each in read] == [99, *range(29, 9, -1)]
    read.clear()
    group_offsets.with_groups(None, [holder(98, 4)], of_any_age=True)  # type: ignore[arg-type]
    assert [each.tp.partition for each in read] == [98], "of a partition that was named, its groups are asked for"


def test_files_have_an_offset_committed_by_an_open_transaction() -> None:
    (row,) = load("offsets-never-added").log_dir().group_lag_rows("billing")
    assert row["error"].startswith("UNSTABLE_OFFSET_COMMIT")
    assert row["committed_offset"] is None


def test_a_pending_offset_of_a_partition_that_was_not_copied_stays_pending(tmp_path: Path) -> None:
    """Of the coordinators' topics alone, it was only said that the log is not among the files."""
    root = Path(shutil.copytree(str(load("offsets-never-added").log_dir().paths[0]), tmp_path / "data"))
    for each in root.glob("orders-*"):
        shutil.rmtree(each)
    (row,) = LogDir(root).group_lag_rows("billing")
    assert (row["topic"], (row["error"] or "").partition(":")[0]) == ("orders", "UNSTABLE_OFFSET_COMMIT")


def test_a_damaged_commit_leaves_no_older_one_as_the_newest(tmp_path: Path) -> None:
    """The lag was counted from the commit before, and a group whose only commit is damaged had none."""
    root = Path(shutil.copytree(str(load("offsets-never-added").log_dir().paths[0]), tmp_path / "data"))
    segment = root / "__consumer_offsets-9" / SEGMENT
    whole = segment.read_bytes()
    first = int.from_bytes(whole[8:12]) + 12
    spoiled = bytearray(whole)
    spoiled[-1] ^= 1
    segment.write_bytes(spoiled)
    found, unread = LogDir(root).group_lag_rows("billing")
    assert (found["committed_offset"], unread["topic"]) == (12, None)
    assert unread["error"].startswith("CORRUPT_BATCH")
    spoiled[first - 1] ^= 1
    segment.write_bytes(spoiled)
    files = LogDir(root)
    with pytest.raises(NotFound, match="could be read, so the group may have some: CORRUPT_BATCH"):
        files.group_lag_rows("billing")
    with pytest.raises(DecodeError, match="could not be read: CORRUPT_BATCH"):
        files.committing_groups([Tp("orders", 0)])
    groups, gaps = groups_in_files(files)
    assert "billing" not in groups
    assert gaps[0].startswith("Groups and offsets may be missing: CORRUPT_BATCH")


def test_offsets_of_partitions_that_are_not_among_the_files_may_exist(tmp_path: Path) -> None:
    """Without the group's own partition of ``__consumer_offsets`` the lag was `no group lag`, with exit code 0."""
    copied = shutil.copytree(str(load("late-message").log_dir().paths[0]), tmp_path / "data")
    assert run("lag", "--log-dir", copied).returncode == 0
    shutil.rmtree(copied / "__consumer_offsets-9")
    absent = "UNKNOWN_TOPIC_OR_PARTITION: __consumer_offsets-9 is not among the files"
    found = run("lag", "--log-dir", copied)
    assert (found.returncode, found.stdout) == (3, "no group lag\n")
    assert found.stderr == f"Groups and offsets may be missing: {absent}\n"
    with pytest.raises(NotFound, match=f"the group may have some: {absent}"):
        LogDir(copied).group_lags("billing")
    explained = run("explain", "no progress", "--topic", "orders", "--partition", 0, "--log-dir", copied).stdout
    assert f"not checked: Groups that commit offsets of orders-0: __consumer_offsets could not be read: {absent}" in (
        explained
    )
    shutil.rmtree(copied / "__cluster_metadata-0")
    assert "how many __consumer_offsets has is not known" in run("lag", "--log-dir", copied).stderr


def test_ten_partitions_of_fifty_are_not_taken_for_all(tmp_path: Path) -> None:
    """An id in the tenth of 50 partitions is in the tenth of ten as well: groups of the other 40 were said to be none,
    and to have a coordinator's partition that is another's."""
    copied = shutil.copytree(str(load("late-message").log_dir().paths[0]), tmp_path / "data")
    with_metadata = LogDir(copied).coordinator_rows(transactional_ids=[], groups=["other"])
    assert [row["partition"] for row in with_metadata] == [6]
    shutil.rmtree(copied / "__cluster_metadata-0")
    files = LogDir(copied)
    (row,) = files.coordinator_rows(transactional_ids=[], groups=["other"])
    assert (row["partition"], row["error"].partition(":")[0]) == (None, "UNKNOWN_PARTITIONS")
    with pytest.raises(NotFound, match="the group may have some: UNKNOWN_PARTITIONS"):
        files.group_lags("other")
    with pytest.raises(DecodeError, match="UNKNOWN_PARTITIONS"):
        files.committing_groups([Tp("orders", 0)])


def test_a_replica_that_lags_has_no_pending_offset(tmp_path: Path) -> None:
    """It has open what the leader's replica has committed."""
    sample = str(load("offsets-never-added").log_dir().paths[0])
    lagging, leader = (Path(shutil.copytree(sample, tmp_path / name)) for name in ("one", "two"))
    (leader / META).write_text((leader / META).read_text().replace("node.id=1", "node.id=2"))
    with (leader / "__consumer_offsets-9" / SEGMENT).open("ab") as segment:
        segment.write(marker(2, 1, after(days=10)))
    checkpoint = (leader / HIGH_WATERMARK).read_text()
    (leader / HIGH_WATERMARK).write_text(checkpoint.replace("__consumer_offsets 9 2\n", "__consumer_offsets 9 3\n"))
    (row,) = LogDir(lagging, leader).group_lag_rows("billing")
    assert (row["committed_offset"], row["error"]) == (0, None)


def test_kafkas_tool_and_the_client_lag_differ_as_documented(kafka: Kafka) -> None:
    """Kafka's tool measures to the high watermark, a read_committed client to the LSO; neither accounts for markers."""
    staged = INCIDENTS["several_open"](kafka)
    group = f"compared-{staged.topic}"
    with Cluster(kafka.bootstrap_servers) as cluster:
        write_committed(cluster.client, staged.topic, 0, records=4)
        with BlockedConsumer(kafka, staged.topic, group):
            pass
        settings = kafka.client_config() | {"group.id": group, "isolation.level": "read_committed", "log_level": 0}
        (row,) = cluster.group_lag_rows(group)
        (unread,) = cluster.group_lag_rows(group, max_offsets=0)
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
    assert (unread["markers"], unread["lag"]) == (None, row["lag"])
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


def test_a_deleted_topic_is_an_error_row(kafka: Kafka) -> None:
    staged = INCIDENTS["marker_only"](kafka)
    with Cluster(kafka.bootstrap_servers) as cluster:
        deleted = admin.DeleteTopicsRequest(topic_names=[staged.topic], timeout_ms=10_000, max_version=4)
        cluster.client.send_one(deleted, broker_id=1)
        rows = cluster.group_lag_rows(staged.group)
    assert [row["error"].partition(":")[0] for row in rows] == ["UNKNOWN_TOPIC_OR_PARTITION"] * len(rows)


# Pending offsets that disagree with the open transactions of their partition: KAFKA-19163, KAFKA-19164


PENDING, DELETED, NO_TRANSACTION = "UNSTABLE_OFFSET_COMMIT", "DELETED", "NO_TRANSACTION"


def create(kafka: Kafka, topic: str) -> None:
    create_topics(kafka, topic, replicas=len(kafka.broker_ids))


def delete_group(kafka: Kafka, group: str) -> None:
    client = admin_of(kafka)
    client.delete_consumer_groups([group])[group].result()


def lag_of(source: Cluster | LogDir, group: str) -> tuple[int | None, str | None]:
    """The committed offset, and the name of the error."""
    (row,) = source.group_lag_rows(group)
    error = row["error"]
    return row["committed_offset"], error and error.partition(":")[0]


def files_of(kafka: Kafka) -> LogDir:
    return LogDir(*kafka.log_dirs.values())


@pytest.mark.parametrize("has_committed", [True, False])
def test_an_offset_that_was_deleted_while_its_transaction_is_open(kafka: Kafka, has_committed: bool) -> None:
    """A commit of the transaction does not bring it back; the look-alike is pending until its commit."""
    names = [f"{each}-{'after' if has_committed else 'without'}-a-commit" for each in ("deleted", "kept")]
    for name in names:
        create(kafka, name)
        if has_committed:
            commit_offset(kafka, name, name, 3)
    with Cluster(kafka.bootstrap_servers) as cluster:
        producers = [TxnProducer(cluster.client, each).init() for each in names]
        for name, producer in zip(names, producers, strict=True):
            producer.add_offsets(name)
            producer.commit_offset(name, name, 0, offset=7)
        deleted, kept = names
        assert lag_of(cluster, deleted) == lag_of(cluster, kept) == (None, PENDING)
        delete_group(kafka, deleted)
        for source in (cluster, files_of(kafka)):
            assert lag_of(source, deleted) == (None, DELETED)
            assert lag_of(source, kept) == (None, PENDING)
        commit_offset(kafka, deleted, deleted, 1)
        for source in (cluster, files_of(kafka)):
            assert lag_of(source, deleted)[0] == 1, "what was committed since then counts"
        for producer in producers:
            producer.end(commit=True)
        until(lambda: lag_of(cluster, kept)[0], awaited="the markers")
        for source in (cluster, files_of(kafka)):
            assert (lag_of(source, deleted)[0], lag_of(source, kept)[0]) == (1, 7)


def without_markers(kafka: Kafka) -> None:
    """Take the markers out of ``__consumer_offsets-0``, as a cleaner does that removes them too early."""
    segment = kafka.log_dirs[1] / "__consumer_offsets-0" / f"{0:020}.log"
    data, kept, position = segment.read_bytes(), b"", 0
    while position < len(data):
        header = read_header(data, position)
        kept += b"" if header.is_control else data[position : position + header.size]
        position += header.size
    segment.write_bytes(kept)


@pytest.mark.lab
@pytest.mark.full
def test_an_offset_that_is_pending_without_a_transaction() -> None:
    """The coordinator reads the log, and the producer state is a snapshot: nothing is open, and the group is stuck."""
    with Kafka("4.3.1", properties={"offsets.topic.num.partitions": 1}) as kafka:
        create(kafka, "orders")
        with Cluster(kafka.bootstrap_servers) as cluster:
            producer = TxnProducer(cluster.client, "billing").init()
            producer.add_offsets("billing")
            producer.commit_offset("billing", "orders", 0, offset=7)
            producer.end(commit=True)
            until(lambda: lag_of(cluster, "billing")[0], awaited="the marker")
        commit_offset(kafka, "other", "orders", 3)
        kafka.stop_broker(1)
        assert lag_of(files_of(kafka), "billing")[0] == 7
        without_markers(kafka)
        assert lag_of(files_of(kafka), "billing") == (None, NO_TRANSACTION)
        kafka.start_broker(1)
        with Cluster(kafka.bootstrap_servers) as cluster:
            found = until(loaded(cluster, "billing"), awaited="the group's coordinator")
            assert found == (None, NO_TRANSACTION)
            assert lag_of(cluster, "other") == (3, None)
            (finding,) = cluster.finding_rows(topics=["__consumer_offsets"], recheck_after=0)
            assert finding["verdict"] == "clear", "no transaction holds anything"
            delete_group(kafka, "billing")
            commit_offset(kafka, "billing", "orders", 7)
            assert lag_of(cluster, "billing") == (7, None)


def loaded(cluster: Cluster, group: str) -> Callable[[], tuple[int | None, str | None] | None]:
    """The lag once the group's coordinator has read its log."""

    def found() -> tuple[int | None, str | None] | None:
        with suppress(BrokerError, NotFound):  # it loads; before its election no broker lists the group
            return lag_of(cluster, group)
        return None

    return found


@pytest.mark.lab
@pytest.mark.full
def test_a_marker_that_is_not_replicated_yet_is_no_missing_transaction() -> None:
    """The look-alike: the leader has nothing open any more, and the coordinator waits for the replicas.

    A coordinator of 4.0 or newer answers no OffsetFetch meanwhile.
    """
    with Kafka("3.9.2", brokers=2, properties=STANDSTILL.properties) as kafka:
        create(kafka, "orders")
        with Cluster(kafka.bootstrap_servers) as cluster:
            client = cluster.client
            group = led_by(cluster, "__consumer_offsets", "group", ALWAYS_UP)
            producer = TxnProducer(client, led_by(cluster, "__transaction_state", "transaction", ALWAYS_UP)).init()
            number = cluster.coordinator_rows(transactional_ids=[], groups=[group])[0]["partition"]
            producer.add_offsets(group)
            producer.commit_offset(group, "orders", 0, offset=7)
            until(
                lambda: True if offsets(client, "__consumer_offsets", number)[2] > 0 else None, awaited="the follower"
            )
            kafka.pause(2)
            try:
                producer.decide(commit=True)
                until(
                    lambda: None if open_transactions(client, "__consumer_offsets", number) else True,
                    awaited="the marker on the leader",
                )
                found = offsets_of_group(client, group, ALWAYS_UP)  # the other one cannot list its groups
                assert (found[Tp("orders", 0)].error or "").startswith(PENDING)
            finally:
                kafka.resume(2)

            def committed() -> int | None:
                with suppress(BrokerError):  # of what was sent to broker 2 while it was paused
                    return lag_of(cluster, group)[0]
                return None

            until(committed, awaited="the marker")


def led_by(cluster: Cluster, topic: str, key_type: str, broker_id: int) -> str:
    """A key whose coordinator is this broker."""
    keys = [f"key-{number}" for number in range(20)]
    find_coordinators(cluster.client, keys[:1], GROUP if key_type == "group" else TRANSACTION)  # it creates the topic

    def found() -> str | None:
        with suppress(NotFound):
            return _key_of(cluster, topic, key_type, broker_id, keys)
        return None

    return until(found, awaited=f"a {key_type} of broker {broker_id}")


def _key_of(cluster: Cluster, topic: str, key_type: str, broker_id: int, keys: list[str]) -> str | None:
    leaders = {row["partition"]: row["leader"] for row in cluster.partition_rows(topics=[topic])}
    rows = cluster.coordinator_rows(transactional_ids=keys, groups=keys)
    own = (row["key"] for row in rows if row["key_type"] == key_type and leaders.get(row["partition"]) == broker_id)
    return next(own, None)


# Offsets that a Java client of 4.4.0 commits in a transaction: TxnOffsetCommit 6 names topics by their ids


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
