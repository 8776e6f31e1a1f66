"""Staged incidents: their clusters, recipe, stage on a cluster, and result."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from toolkit.errors import UsageError
from toolkit.lab.producer import TxnProducer, write_committed
from toolkit.lab.queries import (
    ClusterAddress,
    RequestRefused,
    SteadyClient,
    config_of,
    coordinator,
    partitions,
    send_until_accepted,
    until,
)
from toolkit.lab.server.broker import Kafka, version_numbers
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient

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
    """An incident on a cluster.

    Parameters
    ----------
    name
        Name of the incident.
    topic, partition
        Partition with the open transaction.
    producer_id, producer_epoch, transactional_id
        The producer.
    start_offset
        Offset of the transaction's first record on this partition, from the Produce response.
    expected
        The expected verdict now.
    later
        The expected verdict after some time; empty if it stays the same.
    outcome
        What was decided about its records: undecided, abort, commit, unknown; null if nothing is open.
    action
        The command that is safe now: abort, complete or fence; null if none is.
    what
        One sentence for a newcomer.
    group
        Consumer group in the incident; empty for none.
    also
        Other transactions of the incident; those on one partition in the order of their start offsets.
    """

    name: str
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    transactional_id: str
    start_offset: int
    expected: str
    later: str = ""
    outcome: str | None = None
    action: str | None = None
    what: str = ""
    group: str = ""
    also: tuple[StagedIncident, ...] = ()
    _closing: Callable[[], None] | None = field(default=None, repr=False, compare=False)

    def close(self) -> None:
        """Let a live owner end its transaction, and repair the cluster; a hanging transaction stays."""
        if self._closing:
            self._closing()

    def __enter__(self) -> StagedIncident:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """An incident that can be staged: call it with a cluster.

    Parameters
    ----------
    name
        Its name in ``INCIDENTS``.
    recipe
        The steps of the incident.
    expected, later
        Expected verdict now, and after some time.
    outcome, action
        Expected outcome, and the command that is safe now.
    setup
        Brokers and properties that it needs.
    since
        First Kafka version that it can be staged on.
    """

    name: str
    recipe: Callable[..., StagedIncident]
    expected: str
    later: str
    outcome: str | None
    action: str | None
    setup: ClusterSetup
    since: str

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

        Parameters
        ----------
        kafka
            A lab cluster, or the bootstrap servers or client properties of another one.
        topic
            Topic, created if it does not exist; a new one with a random suffix if null.
        partition
            Partition. Some incidents also write to the next one.
        **options
            Other arguments of the recipe.

        Raises
        ------
        LabError
            If a broker rejects a step, with the Kafka error.
        UsageError
            If this cluster is too old or too small, or `kafka` is an address and the incident stops brokers.
        """
        with Stage(kafka, self, topic=topic, partition=partition) as stage:
            staged = self.recipe(stage, **options)
        return replace(staged, later=self.later, what=self.what)


def incident(
    expected: str,
    *,
    outcome: str | None,
    setup: ClusterSetup,
    action: str | None = None,
    later: str = "",
    since: str = "2.8.0",
) -> Callable[[Callable[..., StagedIncident]], Incident]:
    """Make an `Incident` of a recipe ``stage_<name>(stage, ...)``; the first line of its docstring describes it."""

    def named(recipe: Callable[..., StagedIncident]) -> Incident:
        return Incident(
            name=recipe.__name__.removeprefix("stage_"),
            recipe=recipe,
            expected=expected,
            later=later,
            outcome=outcome,
            action=action,
            setup=setup,
            since=since,
        )

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        new = messages.CreateTopics.CreatableTopic
        topic = new(
            name=self.topic,
            num_partitions=-1 if replicas else count,
            replication_factor=-1 if replicas else 1,
            assignments=[
                new.CreatableReplicaAssignment(
                    partition_index=each, broker_ids=list(replicas if each == self.partition else elsewhere or replicas)
                )
                for each in range(count)
                if replicas
            ],
            configs=[new.CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
        )
        send_until_accepted(
            self.cluster,
            lambda: messages.CreateTopics(topics=[topic], timeout_ms=10_000, validate_only=False, max_version=4),
            of=self.topic,
            to=lambda: int(self.cluster.send_one(messages.Metadata(topics=[])).controller_id),
            codes=lambda message: [each.error_code for each in message.topics],
        )
        until(
            lambda: True if len(partitions(self.cluster, self.topic)) == count else None,
            awaited=f"the leaders of {self.topic}",
        )
        write_committed(self.cluster, self.topic, self.partition)

    def producer(
        self, *, timeout_ms: int = 600_000, coordinator_id: int | None = None, transaction_version: int = 1
    ) -> TxnProducer:
        """Return a new producer with a producer id.

        `timeout_ms`: its transaction timeout.
        `coordinator_id`: broker that coordinates it; any if null.
        `transaction_version`: 1, or 2 (brokers from 4.0 on).
        """
        while True:
            transactional_id = f"{self.plot.name}-{uuid.uuid4().hex[:6]}"
            if coordinator_id in (None, coordinator(self.cluster, transactional_id)):
                return TxnProducer(
                    self.cluster, transactional_id, timeout_ms=timeout_ms, transaction_version=transaction_version
                ).init()

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

    def finishing(self, *producers: TxnProducer, commit: bool = True) -> Callable[[], None]:
        """Let live owners end their transactions, unless they have already."""

        def finish() -> None:
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
        raise UsageError(f"{plot.name} stops brokers, so it needs a lab cluster rather than an address.")
    if kafka and len(kafka.broker_ids) < plot.brokers:
        raise UsageError(f"{plot.name} needs {plot.brokers} brokers, and this Kafka has {len(kafka.broker_ids)}.")
    if kafka and version_numbers(kafka.version) < version_numbers(plot.since):
        raise UsageError(f"{plot.name} can be staged from Kafka {plot.since} on, and this one is {kafka.version}.")
