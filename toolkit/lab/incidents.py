"""Every known incident, staged on a real broker without mocks.

>>> with Kafka("4.3.1", properties=INCIDENTS["late_message"].properties) as kafka:  # doctest: +SKIP
...     staged = INCIDENTS["late_message"](kafka)
"""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from confluent_kafka import TopicPartition

from toolkit.errors import UsageError
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, coordinator_partition
from toolkit.lab.broker import Kafka, version_numbers
from toolkit.lab.clients import (
    ALWAYS_UP,
    BlockedConsumer,
    ClusterAddress,
    LeaderTransaction,
    RequestRefused,
    SteadyClient,
    TxnProducer,
    administer,
    await_coordinators,
    config_of,
    coordinator,
    create_topic,
    elect_uncleanly,
    leader,
    offsets,
    open_transactions,
    partitions,
    send_until_accepted,
    until,
    write_committed,
)
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient

NOTHING: Mapping[str, str] = {}
OVER = {"INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE", "PRODUCER_FENCED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSetup:
    """A cluster that incidents can be staged on: ``Kafka(version, brokers=..., properties=...)``."""

    name: str
    brokers: int
    properties: Mapping[str, str]


EVERYDAY = ClusterSetup(
    name="everyday",
    brokers=1,
    properties={
        # KIP-890 part 1 off; from 4.0 on it also accepts producers that keep their epoch, as those before 4.0 do.
        "transaction.partition.verification.enable": "false",
        "transaction.max.timeout.ms": "3600000",  # as usual for Flink
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    },
)

NEGLECTFUL = ClusterSetup(
    name="neglectful",
    brokers=1,
    properties={
        **EVERYDAY.properties,
        # The coordinator never checks for transactions past their timeout ...
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "86400000",
        # ... and forgets an idle id after seconds instead of a week.
        "transactional.id.expiration.ms": "3000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    },
)

TWO_PHASE = ClusterSetup(
    name="two-phase",
    brokers=1,
    properties={
        **EVERYDAY.properties,
        "transaction.two.phase.commit.enable": "true",
        "unstable.api.versions.enable": "true",  # InitProducerId 6 is not declared stable up to 4.4
    },
)

REPLICATED = ClusterSetup(
    name="replicated",
    brokers=2,
    properties={
        **EVERYDAY.properties,
        "transaction.state.log.replication.factor": "1",  # every id has one coordinator, which can be stopped
    },
)

STANDSTILL = ClusterSetup(
    name="standstill",
    brokers=2,
    properties={
        **EVERYDAY.properties,
        "transaction.state.log.replication.factor": "1",  # a coordinator without followers
        # A paused follower stays in the ISR, and its session does not expire.
        "replica.lag.time.max.ms": "3600000",
        "broker.session.timeout.ms": "3600000",
    },
)

UNCLEAN = ClusterSetup(
    name="unclean",
    brokers=3,
    properties={
        **EVERYDAY.properties,
        "transaction.state.log.replication.factor": "1",  # every id has one coordinator
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedIncident:
    """An incident on a cluster."""

    name: str  # of the incident
    # topic, partition: the partition with the open transaction, of this producer
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    transactional_id: str
    start_offset: int  # of the transaction's first record on this partition, from the Produce response
    expected: str  # the verdict now
    later: str = ""  # the verdict after some time; empty if it stays the same
    outcome: str | None = None  # decided about its records: undecided, abort, commit, unknown; null if nothing is open
    action: str | None = None  # the command that is safe now: abort, complete or fence; null if none is
    what: str = ""  # one sentence for a newcomer
    group: str = ""  # consumer group in the incident; empty for none
    also: tuple[StagedIncident, ...] = ()  # other transactions of it; those on one partition by their start offsets
    _closing: Callable[[], None] | None = field(default=None, repr=False, compare=False)

    def close(self) -> None:
        """Let a live owner end its transaction, and repair the cluster; a hanging transaction stays."""
        if self._closing:
            self._closing()

    def __enter__(self) -> StagedIncident:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An incident that can be staged: call it with a cluster."""

    name: str  # in `INCIDENTS`
    recipe: Callable[..., StagedIncident]  # its steps
    # expected to action: as of `StagedIncident`
    expected: str
    later: str = ""
    outcome: str | None
    action: str | None = None
    setup: ClusterSetup  # brokers and properties that it needs
    since: str = "2.8.0"  # first Kafka version that it can be staged on

    @property
    def what(self) -> str:
        """One sentence for a newcomer."""
        return (self.recipe.__doc__ or "").split("\n", 1)[0]

    @property
    def brokers(self) -> int:
        """Number of brokers that it needs."""
        return self.setup.brokers

    @property
    def properties(self) -> Mapping[str, str]:
        """Broker properties that it needs."""
        return self.setup.properties

    def __call__(
        self, kafka: ClusterAddress, *, topic: str | None = None, partition: int = 0, **options: Any
    ) -> StagedIncident:
        """Stage it.

        Raises LabError if a broker rejects a step, with the Kafka error.
        Raises UsageError if the cluster is too old or small, or `kafka` is an address and the incident stops brokers.
        `kafka`: a lab cluster, or the bootstrap servers or client properties of another one.
        `topic`: topic, created if it does not exist; a new one with a random suffix if null.
        `partition`: partition; some incidents also write to the next one.
        `**options`: other arguments of the recipe.
        """
        with Stage(kafka, self, topic=topic, partition=partition) as stage:
            staged = self.recipe(stage, **options)
        return replace(staged, later=self.later, what=self.what)


INCIDENTS: dict[str, Incident] = {}
"""Incident by name, those that hang first."""


def incident(expected: str, **facts: Any) -> Callable[[Callable[..., StagedIncident]], Incident]:
    """Add a recipe ``stage_<name>(stage, ...)`` to `INCIDENTS`; the first line of its docstring describes it.

    `**facts`: other fields of `Incident`.
    """

    def named(recipe: Callable[..., StagedIncident]) -> Incident:
        name = recipe.__name__.removeprefix("stage_")
        INCIDENTS[name] = Incident(name=name, recipe=recipe, expected=expected, **facts)
        return INCIDENTS[name]

    return named


class Stage:
    """A topic on a cluster, and producers that write to it.

    `kafka`: the cluster.
    `plot`: the incident to stage.
    `topic`, `partition`: the partition.
    """

    def __init__(self, kafka: ClusterAddress, plot: Incident, *, topic: str | None, partition: int) -> None:
        self.plot = plot
        self.partition = partition
        self.topic = topic or f"{plot.name.replace('_', '-')}-{uuid.uuid4().hex[:6]}"
        self._kafka = kafka if isinstance(kafka, Kafka) else None
        _check(plot, self._kafka)
        self.config = config_of(kafka)
        self.cluster = self._connect()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.close()

    @property
    def kafka(self) -> Kafka:
        """The lab cluster, for incidents that stop brokers."""
        assert self._kafka
        return self._kafka

    def _connect(self) -> BrokerClient:
        return SteadyClient(self.config) if self.plot.brokers > 1 else BrokerClient(self.config)

    def create_topic(
        self, *, replicas: Sequence[int] = (), elsewhere: Sequence[int] = (), config: Mapping[str, str] = NOTHING
    ) -> None:
        """Create the topic if it does not exist, with a committed record and one more partition than needed.

        `replicas`: broker ids of each partition's replicas, its leader first; any one broker if empty.
        `elsewhere`: those of the other partitions, if they differ.
        `config`: topic configuration.
        """
        if partitions(self.cluster, self.topic):
            return
        count = self.partition + 2
        placed = [list(replicas if each == self.partition else elsewhere or replicas) for each in range(count)]
        options = {"replica_assignment": placed, "replication_factor": -1} if replicas else {}
        create_topic(self.config, self.topic, num_partitions=count, config=dict(config), **options)
        until(
            lambda: True if len(partitions(self.cluster, self.topic)) == count else None,
            awaited=f"the leaders of {self.topic}",
        )
        write_committed(self.cluster, self.topic, self.partition)

    def producer(
        self, *, timeout_ms: int = 600_000, coordinator_id: int | None = None, transaction_version: int = 1
    ) -> TxnProducer:
        """Return a new producer with a producer id; the topic is created if it does not exist.

        `timeout_ms`: its transaction timeout.
        `coordinator_id`: broker that coordinates it; any if null.
        `transaction_version`: 1, or 2 (brokers from 4.0 on).
        """
        self.create_topic()
        while True:
            transactional_id = f"{self.plot.name}-{uuid.uuid4().hex[:6]}"
            if coordinator_id in (None, coordinator(self.cluster, transactional_id)):
                return TxnProducer(
                    self.cluster, transactional_id, timeout_ms=timeout_ms, transaction_version=transaction_version
                ).init()

    def opened(self, **options: Any) -> tuple[TxnProducer, int]:
        """Return a producer with an open transaction on the partition, and the transaction's start offset.

        `**options`: as for `producer`.
        """
        producer = self.producer(**options)
        producer.add(self.topic, self.partition)
        return producer, producer.send(self.topic, self.partition)

    def staged(
        self,
        producer: TxnProducer,
        start_offset: int,
        *,
        partition: int | None = None,
        expected: str | None = None,
        closing: Callable[[], None] | None = None,
        **facts: Any,
    ) -> StagedIncident:
        """Record a transaction that a producer left; by default on the stage's partition, with the expected verdict.

        `producer`: the producer, with its current epoch.
        `start_offset`: first offset of its transaction.
        `partition`, `expected`: if other than the incident's; with another verdict, no action is expected.
        `closing`: ends the incident properly.
        `**facts`: other fields of `StagedIncident`.
        """
        fields: dict[str, Any] = {
            "name": self.plot.name,
            "topic": self.topic,
            "partition": self.partition if partition is None else partition,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "transactional_id": producer.transactional_id,
            "start_offset": start_offset,
            "expected": expected or self.plot.expected,
            "outcome": self.plot.outcome,
            "action": self.plot.action if expected is None else None,
            "_closing": closing,
        }
        return StagedIncident(**fields | facts)

    def finishing(
        self, *producers: TxnProducer, commit: bool = True, first: Callable[[], object] = lambda: None
    ) -> Callable[[], None]:
        """Let live owners end their transactions, unless they have already; `first`, what keeps them from it ends."""

        def finish() -> None:
            first()
            with self._connect() as cluster:
                for producer in producers:
                    producer.cluster = cluster
                    try:
                        producer.end(commit=commit)
                    except RequestRefused as refused:
                        if refused.error not in OVER:
                            raise

        return finish


def _check(plot: Incident, kafka: Kafka | None) -> None:
    """Raise if the incident cannot be staged on this cluster, as far as known."""
    if kafka is None and plot.brokers > 1:
        raise UsageError(f"{plot.name} stops brokers.", do="Stage it in a lab's Kafka rather than at an address.")
    if kafka and len(kafka.broker_ids) < plot.brokers:
        raise UsageError(
            f"{plot.name} needs {plot.brokers} brokers, and this Kafka has {len(kafka.broker_ids)}.",
            do=f"Start it with brokers={plot.brokers}.",
        )
    if kafka and version_numbers(kafka.version) < version_numbers(plot.since):
        raise UsageError(
            f"{plot.name} can be staged from Kafka {plot.since} on, and this one is {kafka.version}.",
            do=f"Start it with version={plot.since!r} or later.",
        )


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_never_added(stage: Stage, *, records: int = 1) -> StagedIncident:
    """A producer wrote to a partition that it never added to its transaction, so no coordinator will end it there.

    InitProducerId, then Produce, without AddPartitionsToTxn.
    """
    producer = stage.producer()
    return stage.staged(producer, producer.send(stage.topic, stage.partition, records=records))


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_late_message(stage: Stage) -> StagedIncident:
    """A batch arrived after its transaction was aborted and opened another one that the coordinator knows nothing of.

    The abort marker overtook a batch in flight, or a retry of it.
    """
    return _late(stage, commit=False)


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_late_after_commit(stage: Stage) -> StagedIncident:
    """A batch arrived after its transaction was committed and opened one that the coordinator knows nothing of."""
    return _late(stage, commit=True)


def _late(stage: Stage, *, commit: bool) -> StagedIncident:
    producer, _ = stage.opened()
    producer.end(commit=commit)
    return stage.staged(producer, producer.send(stage.topic, stage.partition))


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_offsets_never_added(stage: Stage, *, group: str | None = None) -> StagedIncident:
    """A producer committed a group's offset without adding the group to its transaction, and now the group is stuck.

    TxnOffsetCommit without AddOffsetsToTxn. The open transaction is on the group's partition of
    ``__consumer_offsets``, not on the topic that the group reads.
    """
    producer = stage.producer()
    group = group or _group_of_its_own(stage)
    producer.commit_offset(group, stage.topic, stage.partition, offset=0)
    partition, opened = _on_consumer_offsets(stage.cluster, producer)
    return stage.staged(producer, opened.start_offset, topic=OFFSETS_TOPIC, partition=partition, group=group)


def _group_of_its_own(stage: Stage) -> str:
    """A new group, on a partition of ``__consumer_offsets`` without an open transaction."""
    known = partitions(stage.cluster, OFFSETS_TOPIC)
    while True:
        group = f"{stage.plot.name}-{uuid.uuid4().hex[:6]}"
        partition = coordinator_partition(group, len(known)) if known else None
        if partition is None or not open_transactions(stage.cluster, OFFSETS_TOPIC, partition):
            return group


def _on_consumer_offsets(cluster: BrokerClient, producer: TxnProducer) -> tuple[int, LeaderTransaction]:
    """The partition of ``__consumer_offsets`` where a producer has a transaction open, found by querying all."""
    for partition in sorted(partitions(cluster, OFFSETS_TOPIC)):
        for opened in open_transactions(cluster, OFFSETS_TOPIC, partition):
            if opened.producer_id == producer.producer_id:
                return partition, opened
    raise AssertionError("an accepted TxnOffsetCommit is an open transaction")


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_superseded_elsewhere(stage: Stage) -> StagedIncident:
    """A producer left a transaction open that nobody knows of, and its successor of the next epoch works elsewhere."""
    dead = stage.producer()
    start = dead.send(stage.topic, stage.partition)
    alive = TxnProducer(stage.cluster, dead.transactional_id).init()
    beyond = stage.partition + 1
    alive.add(stage.topic, beyond)
    also = stage.staged(alive, alive.send(stage.topic, beyond), partition=beyond, expected="ongoing")
    return stage.staged(dead, start, also=(also,), closing=stage.finishing(alive))


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_superseded_same_partition(stage: Stage) -> StagedIncident:
    """A producer left a transaction open, and its successor has added the same partition: its commit will publish both.

    The successor has written nothing here yet. `close` commits it, as its application would: if the dead epoch's
    records are still open then, they become visible to read_committed.
    """
    dead = stage.producer()
    start = dead.send(stage.topic, stage.partition)
    alive = TxnProducer(stage.cluster, dead.transactional_id).init()
    alive.add(stage.topic, stage.partition)
    return stage.staged(dead, start, closing=stage.finishing(alive))


@incident("ongoing", outcome="undecided", setup=EVERYDAY)
def stage_superseded_written(stage: Stage) -> StagedIncident:
    """A live transaction was opened by a record of its producer's dead epoch, which its commit would make visible.

    ``superseded_same_partition`` becomes this once the new epoch writes: the broker shows one transaction of the new
    epoch that starts where the dead one did. `close` aborts it, which is the remedy.
    """
    dead = stage.producer()
    start = dead.send(stage.topic, stage.partition)
    alive = TxnProducer(stage.cluster, dead.transactional_id).init()
    alive.add(stage.topic, stage.partition)
    alive.send(stage.topic, stage.partition)
    return stage.staged(alive, start, closing=stage.finishing(alive, commit=False))


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_busy_elsewhere(stage: Stage) -> StagedIncident:
    """A producer wrote to a partition that its transaction, open and healthy on another one, does not have."""
    producer = stage.producer()
    beyond = stage.partition + 1
    start = producer.send(stage.topic, stage.partition)
    producer.add(stage.topic, beyond)
    also = stage.staged(producer, producer.send(stage.topic, beyond), partition=beyond, expected="ongoing")
    return stage.staged(producer, start, also=(also,), closing=stage.finishing(producer))


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_several_open(stage: Stage) -> StagedIncident:
    """Three transactions are open on one partition: one hangs, a healthy one follows, then another hangs."""
    first, healthy, last = stage.producer(), stage.producer(), stage.producer()
    start = first.send(stage.topic, stage.partition)
    healthy.add(stage.topic, stage.partition)
    also = (
        stage.staged(healthy, healthy.send(stage.topic, stage.partition), expected="ongoing"),
        stage.staged(last, last.send(stage.topic, stage.partition)),
    )
    return stage.staged(first, start, also=also, closing=stage.finishing(healthy))


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_head_deleted(stage: Stage, *, all_of_it: bool = False) -> StagedIncident:
    """A transaction hangs although the records that it starts with are deleted: retention does not end it.

    DeleteRecords to the middle of its second batch, so that from Kafka 4 on the LSO lies below the log
    start offset. With `all_of_it` every record is gone and the LSO is the high watermark, until somebody writes.
    """
    producer = stage.producer()
    start = producer.send(stage.topic, stage.partition, records=2)
    second = producer.send(stage.topic, stage.partition, records=5)
    before = TopicPartition(stage.topic, stage.partition, second + (5 if all_of_it else 2))
    administer(stage.config, "DeleteRecords", stage.topic, lambda admin: admin.delete_records([before]))
    return stage.staged(producer, start)


@incident("hanging", outcome="undecided", action="abort", setup=EVERYDAY)
def stage_future_clock(stage: Stage) -> StagedIncident:
    """A transaction hangs whose producer's clock is 50 minutes ahead, so that tools that trust it call it young."""
    producer = stage.producer()
    ahead = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=50)
    return stage.staged(producer, producer.send(stage.topic, stage.partition, timestamp=ahead))


@incident("hanging", outcome="undecided", action="abort", setup=NEGLECTFUL, since="3.0.0")
def stage_orphan(stage: Stage) -> StagedIncident:
    """A transaction stayed open until the coordinator forgot the id that it belongs to.

    transactional.id.expiration.ms has passed (3 s here, a week by default).
    """
    producer = stage.producer()
    start = producer.send(stage.topic, stage.partition)
    brokers = list(stage.cluster.brokers)
    until(
        lambda: None if any(producer.producer_id in _listed(stage.cluster, each) for each in brokers) else True,
        awaited=f"the coordinator to forget {producer.transactional_id!r}",
    )
    return stage.staged(producer, start)


def _listed(cluster: BrokerClient, broker_id: int) -> set[int]:
    """Producer id of every transactional id that a coordinator lists."""
    listing = send_until_accepted(
        cluster,
        lambda: broker_client.ListTransactions(state_filters=[], producer_id_filters=[], max_version=0),
        of=f"broker {broker_id}",
        to=lambda: broker_id,
        codes=lambda message: [message.error_code],
    )
    return {each.producer_id for each in listing.transaction_states}


@incident("ongoing", outcome="undecided", setup=EVERYDAY)
def stage_old_event_times(stage: Stage) -> StagedIncident:
    """A healthy transaction, seconds old, carries records of last week, so that tools that trust their times accuse it.

    This is a backfill: DescribeProducers gives the records' times as the producer's last timestamp.
    """
    return _open(stage, timestamp=dt.datetime.now(dt.UTC) - dt.timedelta(days=7))


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


def _open(
    stage: Stage, *, timeout_ms: int = 600_000, timestamp: dt.datetime | None = None, two_phase: bool = False
) -> StagedIncident:
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
    producer, start = stage.opened(coordinator_id=ALWAYS_UP)
    stage.kafka.stop_broker(OTHER)
    until(lambda: _in_sync(stage) == [ALWAYS_UP] or None, awaited="the ISR to shrink")
    producer.decide(commit=commit)
    heal = stage.finishing(producer, commit=commit, first=partial(stage.kafka.start_broker, OTHER))
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
    producer, start = stage.opened(coordinator_id=ALWAYS_UP)
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
    go_on = stage.finishing(producer, first=partial(stage.kafka.resume, OTHER))
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
    producer, start = stage.opened(coordinator_id=OTHER)
    stage.kafka.stop_broker(OTHER)
    come_back = stage.finishing(producer, first=partial(stage.kafka.start_broker, OTHER))
    return stage.staged(producer, start, closing=come_back)


@incident("clear", outcome=None, setup=EVERYDAY)
def stage_marker_only(stage: Stage, *, group: str | None = None) -> StagedIncident:
    """Nothing is wrong: a group has read everything, and its lag of 1 is the marker that ended the last transaction."""
    producer, start = stage.opened()
    producer.end(commit=True)
    group = group or f"{stage.plot.name}-{uuid.uuid4().hex[:6]}"
    BlockedConsumer(stage.config, stage.topic, group, partition=stage.partition).close()
    return stage.staged(producer, start, group=group)


@incident("clear", outcome=None, setup=EVERYDAY)
def stage_fenced_by_timeout(stage: Stage, *, timeout_ms: int = 1_000) -> StagedIncident:
    """A producer stalled past its timeout, so its coordinator aborted the transaction and fenced it; nothing is open.

    The application fails with INVALID_PRODUCER_EPOCH and blames the broker, but the LSO has moved on.
    """
    producer, start = stage.opened(timeout_ms=timeout_ms)
    until(
        lambda: True if offsets(stage.cluster, stage.topic, stage.partition)[1] > start else None,
        awaited="the coordinator to abort the transaction",
    )
    return stage.staged(producer, start)


def _in_sync(stage: Stage) -> list[int]:
    return list(partitions(stage.cluster, stage.topic)[stage.partition].isr_nodes)
