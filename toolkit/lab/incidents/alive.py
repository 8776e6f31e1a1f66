"""Open transactions with an owner: an abort marker would lose half of a live transaction."""

from __future__ import annotations

import datetime as dt

from toolkit.lab.incidents.setups import EVERYDAY, NEGLECTFUL, TWO_PHASE
from toolkit.lab.producer import TxnProducer
from toolkit.lab.staging import Stage, StagedIncident, incident


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
