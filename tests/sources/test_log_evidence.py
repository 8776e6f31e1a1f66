"""Findings of staged incidents on real brokers: the cause of each, the records behind it, and who waits for them."""

import contextlib
import itertools
import uuid
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.analysis.logged import explained
from tests.builders import received
from tests.causes import cause_names
from tests.staged_state import write_marker
from toolkit import Cluster
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, coordinator_partition
from toolkit.lab import Kafka
from toolkit.lab.clients import BlockedConsumer, TxnProducer, admin_of, create_topic, until, write_committed
from toolkit.lab.incidents import INCIDENTS, StagedIncident
from toolkit.schema import Row, table
from toolkit.sources.diagnose import gather
from toolkit.sources.live import observe, partition_log
from toolkit.sources.live.cluster import ClusterEvidence
from toolkit.sources.source import TableArguments


def judge(cluster: Cluster, staged: StagedIncident, **options: Any) -> Row:
    """The row of what was staged."""
    rows = cluster.finding_rows(topics=[staged.topic], partitions=[staged.partition], recheck_after=0.1, **options)
    return next(row for row in rows if row["start_offset"] in {staged.start_offset, None})


def names(row: Row) -> list[str]:
    return [entry["name"] for entry in row["evidence"]]


def test_held_records_match_what_a_consumer_counts(cluster: Cluster, kafka: Kafka) -> None:
    """Several open transactions, plain records, compressed ones, markers between them."""
    with INCIDENTS["several_open"](kafka) as staged:
        busy = TxnProducer(cluster.client, f"busy-{staged.topic}").init()
        busy.add(staged.topic, 0)
        busy.send(staged.topic, 0, records=7)
        busy.end(commit=False)
        producer = Producer({**kafka.client_config(), "compression.type": "zstd", "linger.ms": 50})
        for number in range(500):
            producer.produce(staged.topic, value=b"%d" % number * 20, partition=0)
        producer.flush()
        rows = cluster.finding_rows(topics=[staged.topic], partitions=[0], recheck_after=0.1)
        first = rows[0]
        every = received(kafka, [(staged.topic, 0)], level="read_uncommitted")
        waiting = [each for each in every if (each.offset() or 0) >= first["last_stable_offset"]]
        frame = cluster.batches(topics=staged.topic, partitions=0, start="lso")
    assert {row["records_held"] for row in rows} == {len(waiting)}
    assert first["offsets_held"] == len(waiting) + 1, "a marker is no record"
    assert first["bytes_held"] == frame["size"].sum()
    assert first["compaction_held"] is False
    assert [row["compaction_held"] for row in rows[1:]] == [None, None]


def alone(cluster: Cluster, name: str) -> str:
    """A group whose partition of ``__consumer_offsets`` no transaction holds."""
    rows = [row for row in cluster.partition_rows() if row["topic"] == OFFSETS_TOPIC]
    held = {row["partition"] for row in rows if row["last_stable_offset"] < row["high_watermark"]}
    groups = (f"{name}-{number}" for number in itertools.count())
    return next(group for group in groups if coordinator_partition(group, len(rows) or 1) not in held)


def test_groups_with_held_offsets_are_read_from_their_coordinator(cluster: Cluster, kafka: Kafka) -> None:
    """UNSTABLE_OFFSET_COMMIT for an offset that was committed before."""
    with contextlib.ExitStack() as stack:
        topic = stack.enter_context(INCIDENTS["open_young"](kafka)).topic
        reader = stack.enter_context(BlockedConsumer(kafka, topic, alone(cluster, f"again-{topic}")))
        staged = stack.enter_context(INCIDENTS["offsets_never_added"](kafka, topic=topic, group=reader.group))
        rows = [judge(cluster, staged, log_evidence=wanted) for wanted in (True, False)]
    assert [row["groups_held"] for row in rows] == [[staged.group]] * 2


@pytest.mark.parametrize("incident", ["several_open", "late_message", "late_after_commit"])
def test_groups_blocked_by_a_held_lso_are_named(cluster: Cluster, kafka: Kafka, incident: str) -> None:
    """Markers and aborted records are between the offset that librdkafka commits and the LSO."""
    with INCIDENTS[incident](kafka) as staged:
        topic = staged.topic
        write_committed(cluster.client, topic, 1)
        held, elsewhere = f"held-{topic}", f"elsewhere-{topic}"
        with BlockedConsumer(kafka, topic, held), BlockedConsumer(kafka, topic, elsewhere, partition=1):
            rows = cluster.finding_rows(topics=[topic], partitions=[0], recheck_after=0.1)
    assert [row["groups_held"] for row in rows] == [[held] if row["queue_position"] == 1 else None for row in rows]


def test_a_second_check_covers_only_doubtful_partitions(cluster: Cluster, kafka: Kafka) -> None:
    with INCIDENTS["open_young"](kafka) as opened:
        # An hour is longer than a test may take: no second check is waited for.
        ongoing, clear = cluster.finding_rows(topics=[opened.topic], recheck_after=3600)
    assert (ongoing["verdict"], ongoing["queue_position"], ongoing["groups_held"]) == ("ongoing", 1, [])
    assert clear["verdict"] == "clear", "a requested partition has a row"


def test_a_topic_deleted_between_the_checks_is_not_hanging(cluster: Cluster, kafka: Kafka) -> None:
    staged = INCIDENTS["never_added"](kafka)
    evidence = ClusterEvidence(cluster, TableArguments.of(topics=[staged.topic]))
    evidence.observations()
    client = admin_of(kafka)
    client.delete_topics([staged.topic])[staged.topic].result(60)
    until(lambda: staged.topic not in {row["topic"] for row in cluster.partition_rows()} or None, awaited="its end")
    second = evidence.observe_again([table.TopicPartition(staged.topic, 0)])
    assert {(each.error or "").partition(":")[0] for each in second.partitions} == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_a_marker_is_searched_further_back_in_growing_steps(cluster: Cluster, kafka: Kafka) -> None:
    with INCIDENTS["never_added"](kafka) as staged:
        late = TxnProducer(cluster.client, f"late-{staged.topic}").init()
        late.add(staged.topic, 1)
        late.send(staged.topic, 1)
        late.end(commit=False)
        many = Producer({**kafka.client_config(), "linger.ms": 0, "batch.num.messages": 10})
        for _ in range(400):
            many.produce(staged.topic, value=b"x", partition=1)
        many.flush()
        start = late.send(staged.topic, 1)
        (row,) = cluster.finding_rows(topics=[staged.topic], partitions=[1], recheck_after=0.1)
    assert row["start_offset"] == start
    assert cause_names(row) == ["late-after-abort"]


def test_without_a_cause_the_range_that_was_read_is_named(
    cluster: Cluster, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_log, "OFFSETS_BEFORE", ())
    monkeypatch.setattr(partition_log, "MAX_BYTES_AFTER", 1)
    monkeypatch.setattr(partition_log, "EXCERPT_FETCH_BYTES", 1)
    with INCIDENTS["late_message"](kafka) as staged:
        TxnProducer(cluster.client, f"more-{staged.topic}").init().send(staged.topic, 0)
        row = judge(cluster, staged)
    start = staged.start_offset
    assert row["cause"] == f"no cause found: offsets {start} to {start} were read and do not show what opened it"
    assert row["records_held"] is None


@pytest.mark.parametrize("most", [1, 2])
def test_the_number_of_partitions_read_is_limited(
    cluster: Cluster, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(observe, "MAX_PARTITIONS", most)
    monkeypatch.setattr(observe, "SMALL_TIMEOUT_S", -1.0)
    with INCIDENTS["never_added"](kafka) as staged:
        TxnProducer(cluster.client, f"more-{staged.topic}").init().send(staged.topic, 1)
        rows = cluster.finding_rows(topics=[staged.topic], recheck_after=0.1)
    assert [row["records_held"] for row in rows] == [1, 1 if most == 2 else None]
    assert [row["verdict"] for row in rows] == ["hanging", "hanging"]


def test_a_marker_written_before_the_log_is_read_ends_it(cluster: Cluster, kafka: Kafka) -> None:
    """A hanging transaction has ended before the log is read: its finding is `ending`, nothing is to be aborted."""
    with INCIDENTS["late_message"](kafka) as staged:
        diagnosis = Diagnosis.of([cluster.observe(topics=[staged.topic], partitions=[0])] * 2)
        evidence = ClusterEvidence(cluster, TableArguments.of(topics=[staged.topic]))
        contexts = partial(gather, evidence, diagnosis.to_read())
        assert [finding.verdict for finding in explained(diagnosis, contexts())] == ["hanging"]
        write_marker(cluster.client, staged)
        (finding,) = explained(diagnosis, contexts())
    row = finding.row()
    assert row["verdict"] == "ending"
    assert row["reason"] == f"The ABORT marker at offset {staged.start_offset + 1} has ended it in the meantime."
    assert (row["remedy"], row["cause"]) == ("None: it has ended.", None)
    assert "marker_after" in names(row)


def test_a_delayed_end_of_a_transaction_commits_half_of_the_next_one(kafka: Kafka, cluster: Cluster) -> None:
    """As Jepsen found it in 2024 (Bufstream 0.1.0); the hint says so, and the producer's own commit returns success."""
    topic = f"torn-{uuid.uuid4().hex[:6]}"
    create_topic(kafka, topic)
    producer = TxnProducer(cluster.client, topic).init()
    producer.add(topic, 0, 1)
    for partition in (0, 1):
        producer.send(topic, partition)
    producer.end(commit=True)

    producer.add(topic, 0, 1)
    first_half = producer.send(topic, 0)
    producer.end(commit=True)  # the request of the transaction before, sent again and delayed: all of it is the same
    other_half = producer.send(topic, 1)
    producer.end(commit=True)  # its own

    rows = cluster.finding_rows(topics=[topic], recheck_after=0.1)
    committed, torn = sorted(rows, key=lambda row: row["partition"])
    assert (committed["verdict"], torn["verdict"], torn["outcome"]) == ("clear", "hanging", "undecided")
    assert committed["last_stable_offset"] == first_half + 2, "the record and the marker of its first half"
    assert torn["start_offset"] == other_half
    assert cause_names(torn) == ["late-after-commit", "torn-transaction"]
    assert "may have committed the first half of the same transaction" in torn["cause"]
