"""Counterexamples that the exploration of a small world found, staged on real brokers: each was decided wrongly once.

Committed transactions whose producers went on are in `tests.test_outcomes`, a torn one in `test_torn_transaction`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.builders import create_topics
from tests.outcomes import PROPERTIES
from tests.staged_state import described_transaction
from toolkit import Cluster
from toolkit.actions.coordinator_actions import plan_fence
from toolkit.actions.marker_actions import plan_abort, plan_complete
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.clients import SteadyClient, TxnProducer, await_coordinators, config_of, coordinator, partitions, until
from toolkit.schema import Row
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.sources.live import coordinator_logs
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.coordinator_logs import read_coordinator_topic

pytestmark = pytest.mark.lab

STEADY, KILLED = 1, 2  # brokers of "right", and of "left"
DEAD_EPOCH, TWO_DECISIONS, ADDED_AGAIN, RACE, LATE_RACE = range(5)  # partitions of "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A cluster, and the producer of each partition of "left"."""

    cluster: Cluster
    producers: Sequence[TxnProducer]

    def finding(self, partition: int) -> Row:
        """The finding of a partition's only transaction."""
        (found,) = self.cluster.finding_rows(topics=["left"], partitions=[partition], recheck_after=0.1)
        return found


@pytest.fixture(scope="module")
def staged() -> Iterator[Staged]:
    """Markers of the first three partitions are skipped by Kafka 4.3.1, as they have no leader (KAFKA-20734)."""
    with (
        Kafka("4.3.1", brokers=2, properties=PROPERTIES) as kafka,
        contextlib.closing(SteadyClient(config_of(kafka))) as client,
        Cluster(kafka.bootstrap_servers) as cluster,
    ):
        create_left_and_right(kafka, client)
        producers = [producer_of(client, partition) for partition in range(5)]
        for partition in (DEAD_EPOCH, RACE, LATE_RACE):
            leave_dead_epoch(producers[partition], partition)
        for partition in (TWO_DECISIONS, ADDED_AGAIN):
            producers[partition].add("left", partition)
            producers[partition].send("left", partition)
        proven_at = time.monotonic() + CLOCKS_DIFFER.total_seconds() + 1
        kafka.kill(KILLED)
        until(lambda: None if partitions(client, "left") else True, awaited="left to have no leader")
        until(lambda: time.monotonic() >= proven_at or None, awaited="a time that clocks cannot be apart")
        for partition in (DEAD_EPOCH, TWO_DECISIONS, ADDED_AGAIN):
            decide(producers[partition], commit=True)
        producers[TWO_DECISIONS].add("left", TWO_DECISIONS)
        decide(producers[TWO_DECISIONS], commit=False)
        kafka.start_broker(KILLED)
        await_coordinators(client)
        await_leaders(client)
        producers[ADDED_AGAIN].add("left", ADDED_AGAIN)
        yield Staged(cluster=cluster, producers=producers)


def create_left_and_right(kafka: Kafka, client: BrokerClient) -> None:
    appended = {"message.timestamp.type": "LogAppendTime"}
    left = NewTopic("left", 5, replica_assignment=[[KILLED]] * 5, config=appended)
    create_topics(kafka, left, NewTopic("right", 1, replica_assignment=[[STEADY]]))
    await_leaders(client)


def await_leaders(client: BrokerClient) -> None:
    until(lambda: True if len(partitions(client, "left")) == 5 else None, awaited="the leaders of left")


def producer_of(client: BrokerClient, partition: int) -> TxnProducer:
    """A producer that the broker which stays coordinates."""
    names = (f"case-{partition}-{attempt}" for attempt in range(1_000))
    return TxnProducer(client, next(name for name in names if coordinator(client, name) == STEADY)).init()


def leave_dead_epoch(producer: TxnProducer, partition: int) -> None:
    """A late batch of an aborted transaction, and a newer epoch that has added the partition and written nothing."""
    producer.add("left", partition)
    producer.send("left", partition)
    producer.end(commit=False)
    producer.send("left", partition)
    producer.init()
    producer.add("left", partition)


def decide(producer: TxnProducer, *, commit: bool) -> None:
    """End a transaction, and return when the coordinator has completed it."""
    producer.decide(commit=commit)
    await_complete(producer)


def await_complete(producer: TxnProducer) -> None:
    until(lambda: True if is_complete(producer) else None, awaited="the coordinator to complete the transaction")


def is_complete(producer: TxnProducer) -> bool:
    state = described_transaction(producer.cluster, producer.transactional_id)
    return state is not None and str(state.transaction_state).startswith("Complete")


def columns(row: Row) -> tuple[str, str | None, str | None]:
    return row["verdict"], row["outcome"], row["action"]


def refused(staged: Staged, row: Row) -> None:
    """Neither marker is written, not even by a plan from when the finding looked like another."""
    hanging = {"verdict": "hanging", "outcome": "undecided", "action": "abort", "missing": []}
    with pytest.raises(ActionRefused):
        plan_abort(staged.cluster, {**row, **hanging}).check(recheck_after=0.1)
    with pytest.raises(ActionRefused):
        plan_complete(
            staged.cluster, {**row, "verdict": "stuck_ending", "outcome": "commit", "action": "complete", "missing": []}
        ).check(recheck_after=0.1)


def test_a_commit_of_a_newer_epoch_does_not_make_a_dead_epoch_committed(staged: Staged) -> None:
    """Its own transaction was aborted, and the committed one has written nothing here: `complete` would show it."""
    row = staged.finding(DEAD_EPOCH)
    assert columns(row) == ("hanging", "undecided", "abort")


def test_of_two_decisions_without_their_markers_the_first_after_the_records_includes_them(staged: Staged) -> None:
    """A commit, and an abort of a transaction that has written nothing here: brokers' times tell."""
    row = staged.finding(TWO_DECISIONS)
    assert columns(row) == ("stuck_ending", "commit", "complete")
    with pytest.raises(ActionRefused, match="is never aborted"):
        plan_abort(staged.cluster, row)


@pytest.mark.parametrize("partition", [RACE, LATE_RACE])
def test_a_commit_between_two_reads_is_no_missing_marker(
    staged: Staged, partition: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition's log is read before the commit of the newer epoch, the coordinators' log after it."""
    producer = staged.producers[partition]
    assert columns(staged.finding(partition)) == ("hanging", "undecided", "abort")

    def commit_first(*arguments: Any) -> Any:
        if partition == RACE:
            decide(producer, commit=True)
        else:
            producer.decide(commit=True)
        monkeypatch.undo()
        return read_coordinator_topic(*arguments)

    monkeypatch.setattr(coordinator_logs, "read_coordinator_topic", commit_first)
    row = staged.finding(partition)
    assert columns(row) == ("hanging", "undecided", "abort"), "of the dead epoch, as the leader showed it before"
    await_complete(producer)
    refused(staged, row)
    assert staged.finding(partition)["verdict"] == "clear"


def test_committed_records_under_a_live_transaction_are_not_fenced(staged: Staged) -> None:
    """The producer has added the partition again: its next marker would decide about what is committed."""
    row = until(
        lambda: None if (row := staged.finding(ADDED_AGAIN))["outcome"] == "undecided" else row,
        awaited="the live transaction to be old enough for its log to be read",
    )
    assert columns(row) == ("ongoing", "commit", None)
    assert "Do not fence the id" in row["remedy"]
    refused(staged, row)
    with pytest.raises(ActionRefused, match="a fence discards them"):
        plan_fence(staged.cluster, staged.producers[ADDED_AGAIN].transactional_id)


def test_a_late_batch_of_a_committed_epoch_in_a_topic_created_again_is_not_completed(kafka: Kafka) -> None:
    """Version 2, whose epoch is of one transaction: `complete` was offered for a record that no commit includes."""
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    with contextlib.closing(SteadyClient(config_of(kafka))) as client, Cluster(kafka.bootstrap_servers) as cluster:
        create_topics(kafka, NewTopic("again", 1, 1))
        producer = TxnProducer(client, "again", transaction_version=2).init()
        producer.send("again", 0)
        epoch = producer.producer_epoch
        producer.end(commit=True)
        ended_at = time.monotonic()
        admin.delete_topics(["again"])["again"].result()
        folder = kafka.log_dirs[1] / "again-0"
        until(lambda: None if folder.exists() else True, awaited=f"the deletion of {folder}")
        create_topics(kafka, NewTopic("again", 1, 1))
        until(lambda: partitions(client, "again") or None, awaited="a leader of again")
        until(lambda: time.monotonic() > ended_at + 1.5 or None, awaited="a time that shows which was first")
        producer.transaction_version, producer.producer_epoch = 1, epoch
        producer._sequences.clear()
        producer.send("again", 0)
        (row,) = cluster.finding_rows(topics=["again"], recheck_after=0.1)
        admin.delete_topics(["again"])["again"].result()
    assert (row["start_offset"], *columns(row)) == (0, "unknown", "unknown", None)
    assert "a broker's time between offset 0 and the decision" in row["missing"][0]
