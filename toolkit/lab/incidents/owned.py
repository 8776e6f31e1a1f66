"""Transactions that their coordinator owns, has decided or has ended, and one whose coordinator cannot be queried.

An abort marker on an open one would lose half of a live transaction, or a commit.
"""

from __future__ import annotations

import datetime as dt
import time
import uuid

from toolkit.analysis.diagnosis.observation import CLOCKS_DIFFER
from toolkit.lab.consumer import BlockedConsumer
from toolkit.lab.producer import TxnProducer
from toolkit.lab.queries import (
    ALWAYS_UP,
    await_coordinators,
    elect_uncleanly,
    leader,
    offsets,
    open_transactions,
    partitions,
    until,
)
from toolkit.lab.server.broker import version_numbers
from toolkit.lab.staging import (
    EVERYDAY,
    NEGLECTFUL,
    REPLICATED,
    STANDSTILL,
    TWO_PHASE,
    UNCLEAN,
    Stage,
    StagedIncident,
    incident,
)

OTHER = 2  # the broker that is stopped
FOLLOWER = 3  # of it
BRIEFLY = dt.timedelta(seconds=1)


@incident("ongoing", outcome="undecided", setup=EVERYDAY)
def stage_open_young(stage: Stage, *, timeout_ms: int = 600_000) -> StagedIncident:
    """A healthy transaction is open, and will be committed."""
    return _open(stage, timeout_ms=timeout_ms)


@incident("ongoing", outcome="undecided", later="long", setup=EVERYDAY)
def stage_open_long(stage: Stage, *, timeout_ms: int = 3_600_000) -> StagedIncident:
    """A healthy transaction may stay open for an hour, as those of Flink may: longer than brokers allow by default.

    It is `long` once it is older than 15 minutes, or ``findings(max_transaction_timeout_ms=...)``.
    """
    return _open(stage, timeout_ms=timeout_ms)


@incident("ongoing", outcome="undecided", setup=EVERYDAY)
def stage_old_event_times(stage: Stage) -> StagedIncident:
    """A healthy transaction, seconds old, carries records of last week, so that tools that trust their times accuse it.

    This is a backfill: DescribeProducers gives the records' times as the producer's last timestamp.
    """
    return _open(stage, timestamp=dt.datetime.now(dt.UTC) - dt.timedelta(days=7))


@incident("ongoing", outcome="undecided", later="overdue", setup=NEGLECTFUL)
def stage_overdue(stage: Stage, *, timeout_ms: int = 1_000) -> StagedIncident:
    """A transaction is open past its own timeout, because its coordinator does not check.

    It is `overdue` once its timeout and the coordinator's usual interval (10 s) are over.
    """
    return _open(stage, timeout_ms=timeout_ms)


@incident("prepared", outcome="undecided", setup=TWO_PHASE, since="4.0.0")
def stage_prepared(stage: Stage) -> StagedIncident:
    """A transaction waits for a two-phase commit: only the external coordinator that prepared it may decide.

    Its timeout is Int32.MAX and never expires (KIP-939).
    """
    return _open(stage, two_phase=True)


@incident("ongoing", outcome="undecided", setup=EVERYDAY)
def stage_superseded_written(stage: Stage) -> StagedIncident:
    """A live transaction was opened by a record of its producer's dead epoch, which its commit would make visible.

    ``superseded_same_partition`` becomes this once the new epoch writes: the broker shows one transaction of the new
    epoch that starts where the dead one did. `close` aborts it, which is the remedy.
    """
    stage.create_topic()
    dead = stage.producer()
    start = dead.send(stage.topic, stage.partition)
    alive = TxnProducer(stage.cluster, dead.transactional_id).init()
    alive.add(stage.topic, stage.partition)
    alive.send(stage.topic, stage.partition)
    return stage.staged(alive, start, closing=stage.finishing(alive, commit=False))


def _open(
    stage: Stage, *, timeout_ms: int = 600_000, timestamp: dt.datetime | None = None, two_phase: bool = False
) -> StagedIncident:
    stage.create_topic()
    producer = stage.producer(timeout_ms=timeout_ms)
    if two_phase:
        producer.init(two_phase=True)
    producer.add(stage.topic, stage.partition)
    start = producer.send(stage.topic, stage.partition, timestamp=timestamp)
    return stage.staged(producer, start, closing=stage.finishing(producer))


@incident("ending", outcome="commit", later="stuck_ending", setup=REPLICATED)
def stage_committing(stage: Stage, *, commit: bool = True) -> StagedIncident:
    """A transaction is decided, but its marker cannot be written while a replica is missing (min.insync.replicas=2).

    The coordinator retries forever. An abort marker over a decided commit would lose it. `close` brings the replica
    back, and the marker follows.
    """
    stage.create_topic(replicas=[ALWAYS_UP, OTHER], config={"min.insync.replicas": "2"})
    producer = stage.producer(coordinator_id=ALWAYS_UP)
    producer.add(stage.topic, stage.partition)
    start = producer.send(stage.topic, stage.partition)
    stage.kafka.stop_broker(OTHER)
    until(lambda: _in_sync(stage) == [ALWAYS_UP] or None, awaited="the ISR to shrink")
    producer.decide(commit=commit)
    finish = stage.finishing(producer, commit=commit)

    def heal() -> None:
        stage.kafka.start_broker(OTHER)
        finish()

    return stage.staged(producer, start, closing=heal, outcome="commit" if commit else "abort")


@incident("stuck_ending", outcome="commit", action="complete", setup=REPLICATED, since="4.3.0")
def stage_skipped_marker(stage: Stage, *, commit: bool = True) -> StagedIncident:
    """A commit succeeded although the partition was offline and its marker was skipped; the producer went on elsewhere.

    KAFKA-20734: the coordinator completes the transaction without the marker, and nobody will write it. An abort marker
    would lose the committed record.
    """
    stage.create_topic(replicas=[OTHER], elsewhere=[ALWAYS_UP])
    producer = stage.producer(coordinator_id=ALWAYS_UP, transaction_version=2)
    start = _open_on_two(stage, producer)
    stage.kafka.stop_broker(OTHER)
    until(
        lambda: None if stage.partition in partitions(stage.cluster, stage.topic) else True,
        awaited="the partition to have no leader",
    )
    producer.end(commit=commit)
    stage.kafka.start_broker(OTHER)
    return _go_on(stage, producer, start, commit=commit)


@incident("stuck_ending", outcome="commit", action="complete", setup=UNCLEAN)
def stage_lost_marker(stage: Stage, *, commit: bool = True) -> StagedIncident:
    """A commit's marker was lost: an unclean election chose a replica that had not copied it; the producer went on.

    The record was on all replicas, the marker on the leader only, which crashed. An abort marker would lose the
    committed record. Before 4.0 only times prove that it is older than the commit: those of LogAppendTime.
    """
    is_version_2 = version_numbers(stage.kafka.version) >= (4, 0)
    config = {} if is_version_2 else {"message.timestamp.type": "LogAppendTime"}
    stage.create_topic(replicas=[OTHER, FOLLOWER], elsewhere=[ALWAYS_UP, FOLLOWER], config=config)
    producer = stage.producer(coordinator_id=ALWAYS_UP, transaction_version=2 if is_version_2 else 1)
    start = _open_on_two(stage, producer)
    proven_at = time.monotonic() + (0 if is_version_2 else (CLOCKS_DIFFER + BRIEFLY).total_seconds())
    stage.kafka.pause(FOLLOWER)
    # The leader has answered the follower's last fetch then, without the marker.
    until(lambda: _in_sync(stage) == [OTHER] or None, awaited="the ISR to shrink")
    until(lambda: time.monotonic() >= proven_at or None, awaited="a time that clocks cannot be apart")
    producer.end(commit=commit)
    stage.kafka.kill(OTHER)
    stage.kafka.resume(FOLLOWER)
    elect_uncleanly(stage.cluster, stage.topic, [stage.partition], broker_id=FOLLOWER)
    stage.kafka.start_broker(OTHER)
    return _go_on(stage, producer, start, commit=commit)


def _open_on_two(stage: Stage, producer: TxnProducer) -> int:
    """Open a transaction on the partition and on the next one; its start offset on the former."""
    beyond = stage.partition + 1
    producer.add(stage.topic, stage.partition, beyond)
    producer.send(stage.topic, beyond)
    return producer.send(stage.topic, stage.partition)


def _go_on(stage: Stage, producer: TxnProducer, start: int, *, commit: bool) -> StagedIncident:
    """Commit another transaction on the next partition, after which the coordinator's state tells nothing any more."""
    await_coordinators(stage.cluster)
    leader(stage.cluster, stage.topic, stage.partition)
    beyond = stage.partition + 1
    producer.add(stage.topic, beyond)
    producer.send(stage.topic, beyond)
    producer.end(commit=True)
    raised = 2 if producer.transaction_version == 2 else 0  # by each end
    epoch = producer.producer_epoch - raised
    if commit:
        return stage.staged(producer, start, producer_epoch=epoch)
    return stage.staged(producer, start, expected="hanging", outcome="abort", action="abort", producer_epoch=epoch)


@incident("unreplicated", outcome=None, setup=STANDSTILL, since="3.3.0")
def stage_unreplicated(stage: Stage) -> StagedIncident:
    """Nothing is open, yet the LSO waits: the marker is written, but a follower in the ISR does not fetch.

    `close` lets the follower continue.
    """
    stage.create_topic(replicas=[ALWAYS_UP, OTHER])
    # On a busy machine, the follower may copy the marker before it is paused.
    return until(lambda: _try_unreplicated(stage), awaited="a marker that the follower has not copied")


def _try_unreplicated(stage: Stage) -> StagedIncident | None:
    producer = stage.producer(coordinator_id=ALWAYS_UP)
    producer.add(stage.topic, stage.partition)
    start = producer.send(stage.topic, stage.partition)
    until(
        lambda: True if offsets(stage.cluster, stage.topic, stage.partition)[2] > start else None,
        awaited="the follower to copy the record",
    )
    stage.kafka.pause(OTHER)
    producer.decide(commit=True)
    until(
        lambda: None if open_transactions(stage.cluster, stage.topic, stage.partition) else True,
        awaited="the marker on the leader",
    )
    finish = stage.finishing(producer)

    def go_on() -> None:
        stage.kafka.resume(OTHER)
        finish()

    _, last_stable_offset, high_watermark = offsets(stage.cluster, stage.topic, stage.partition)
    if last_stable_offset < high_watermark:
        return stage.staged(producer, start, closing=go_on)
    go_on()
    return None


@incident("unknown", outcome="unknown", setup=REPLICATED)
def stage_coordinator_gone(stage: Stage) -> StagedIncident:
    """A healthy transaction is open while its coordinator is down: whether it hangs is unknown.

    A tool that treats no response as "unknown id" would call it an orphan. `close` brings the coordinator back
    and commits.
    """
    stage.create_topic(replicas=[ALWAYS_UP])
    producer = stage.producer(coordinator_id=OTHER)
    producer.add(stage.topic, stage.partition)
    start = producer.send(stage.topic, stage.partition)
    stage.kafka.stop_broker(OTHER)
    finish = stage.finishing(producer)

    def come_back() -> None:
        stage.kafka.start_broker(OTHER)
        finish()

    return stage.staged(producer, start, closing=come_back)


@incident("clear", outcome=None, setup=EVERYDAY)
def stage_marker_only(stage: Stage, *, group: str | None = None) -> StagedIncident:
    """Nothing is wrong: a group has read everything, and its lag of 1 is the marker that ended the last transaction."""
    stage.create_topic()
    producer = stage.producer()
    producer.add(stage.topic, stage.partition)
    start = producer.send(stage.topic, stage.partition)
    producer.end(commit=True)
    group = group or f"{stage.plot.name}-{uuid.uuid4().hex[:6]}"
    with BlockedConsumer(stage.config, stage.topic, group=group, partition=stage.partition) as consumer:
        consumer.read()
    return stage.staged(producer, start, group=group)


@incident("clear", outcome=None, setup=EVERYDAY)
def stage_fenced_by_timeout(stage: Stage, *, timeout_ms: int = 1_000) -> StagedIncident:
    """A producer stalled past its timeout, so its coordinator aborted the transaction and fenced it; nothing is open.

    The application fails with INVALID_PRODUCER_EPOCH and blames the broker, but the LSO has moved on.
    """
    stage.create_topic()
    producer = stage.producer(timeout_ms=timeout_ms)
    producer.add(stage.topic, stage.partition)
    start = producer.send(stage.topic, stage.partition)
    until(
        lambda: True if offsets(stage.cluster, stage.topic, stage.partition)[1] > start else None,
        awaited="the coordinator to abort the transaction",
    )
    return stage.staged(producer, start)


def _in_sync(stage: Stage) -> list[int]:
    return list(partitions(stage.cluster, stage.topic)[stage.partition].isr_nodes)
