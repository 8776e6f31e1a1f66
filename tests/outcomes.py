"""Open transactions by what was decided about them, and by what their producer did afterwards on other partitions.

A marker is missing because the coordinator skipped it (KAFKA-20734) or because an unclean election lost it; or the
transaction hangs and nothing was decided. All of them stand side by side on one cluster: partition n of `LEFT` has the
open transaction of case n, and the producer goes on in partition n of `RIGHT`.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.sources.log_files import HIGH_WATERMARK
from toolkit.errors import NotFound
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY
from toolkit.lab.producer import TxnProducer
from toolkit.lab.queries import (
    await_coordinators,
    config_of,
    coordinator,
    elect_uncleanly,
    open_transactions,
    partitions,
    transaction,
    until,
)
from toolkit.lab.staging import ALWAYS_UP, SteadyClient
from toolkit.sources.live.client.broker_client import BrokerClient

__all__ = [
    "ALWAYS_UP",
    "LEFT",
    "RIGHT",
    "Case",
    "Expected",
    "Loss",
    "Origin",
    "OutcomeCluster",
    "Sequel",
    "StagedCase",
    "cases",
]

LEFT, RIGHT = "left", "right"
LEADER, FOLLOWER = 2, 3  # of LEFT; ALWAYS_UP has RIGHT, and coordinates every id

PROPERTIES = {
    **EVERYDAY.properties,
    "transaction.state.log.replication.factor": "1",  # every id has one coordinator
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}


class Loss(StrEnum):
    """How a marker is lost."""

    SKIPPED = "skipped marker"
    ELECTION = "unclean election"

    @property
    def brokers(self) -> int:
        """Number of brokers that it needs."""
        return 2 if self is Loss.SKIPPED else 3


class Origin(StrEnum):
    """How a transaction came to be open without an owner that ends it."""

    MARKER_MISSING = "marker missing"
    LATE_BATCH = "late batch"
    NEVER_ADDED = "never added"
    SUPERSEDED = "superseded epoch"


class Sequel(StrEnum):
    """What the producer does afterwards, on another partition."""

    NOTHING = "nothing"
    THREE_COMMITS = "three commits"
    OPEN = "one open"
    ABORT = "one abort"
    NEW_INSTANCE = "new instance"
    NEW_INSTANCE_OPEN = "new instance with one open"

    @property
    def is_open(self) -> bool:
        """Whether a transaction stays open, so that its id cannot expire."""
        return self in {Sequel.OPEN, Sequel.NEW_INSTANCE_OPEN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The columns of a finding that tell a user what to do."""

    verdict: str
    outcome: str | None
    action: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An open transaction.

    Parameters
    ----------
    origin
        How it came to be open.
    sequel
        What its producer did afterwards.
    commit
        How the transaction, or the one before a late batch, was ended; null if none was.
    transaction_version
        Of its producer.
    earlier
        Transactions on the same partitions that its producer committed before, with their markers.
    """

    origin: Origin
    sequel: Sequel
    commit: bool | None = None
    transaction_version: int = 1
    earlier: int = 0

    def __str__(self) -> str:
        ended = {None: "", True: " commit,", False: " abort,"}[self.commit]
        return f"{self.origin},{ended} {self.sequel}, version {self.transaction_version}, {self.earlier} earlier"

    @property
    def may_be_unknown(self) -> bool:
        """Whether only the clocks of two brokers tell which of several transactions of one epoch a marker is of."""
        return self.transaction_version == 1 and self.earlier > 0

    @property
    def expected(self) -> Expected:
        """The truth: what was decided about its records, and what is safe."""
        if self.origin is not Origin.MARKER_MISSING:
            return Expected(verdict="hanging", outcome="undecided", action="abort")
        if self.commit:
            return Expected(verdict="stuck_ending", outcome="commit", action="complete")
        return Expected(verdict="hanging", outcome="abort", action="abort")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCase:
    """A case on a cluster; the producer is the newest instance of its id."""

    case: Case
    partition: int
    producer_id: int
    start_offset: int
    producer: TxnProducer


def cases(*, transaction_versions: Sequence[int] = (1,)) -> list[Case]:
    """All cases; of transaction version 2 also a late batch, which a real client would not leave open."""
    missing = [
        Case(origin=Origin.MARKER_MISSING, sequel=sequel, commit=commit, transaction_version=version)
        for commit in (True, False)
        for version in transaction_versions
        for sequel in Sequel
    ]
    missing += [
        Case(origin=Origin.MARKER_MISSING, sequel=sequel, commit=commit, earlier=earlier)
        for commit in (True, False)
        for earlier in (1, 2)
        for sequel in (Sequel.NOTHING, Sequel.THREE_COMMITS, Sequel.OPEN)
    ]
    undecided = [
        Case(origin=Origin.LATE_BATCH, sequel=Sequel.NOTHING, commit=True, transaction_version=version)
        for version in transaction_versions
        if version == 2
    ]
    undecided += [
        Case(origin=origin, sequel=sequel, commit=commit)
        for origin, commit in (
            (Origin.LATE_BATCH, True),
            (Origin.LATE_BATCH, False),
            (Origin.NEVER_ADDED, None),
            (Origin.SUPERSEDED, None),
        )
        for sequel in Sequel
    ]
    return missing + undecided


class OutcomeCluster:
    """A cluster with staged cases.

    Parameters
    ----------
    kafka
        Two brokers, or three for an unclean election.
    loss
        How markers are lost on it.
    staged
        The cases.
    """

    def __init__(self, kafka: Kafka, loss: Loss, staged: Sequence[StagedCase], client: BrokerClient) -> None:
        self.kafka = kafka
        self.loss = loss
        self.staged = staged
        self.client = client

    @classmethod
    @contextlib.contextmanager
    def start(cls, version: str, loss: Loss, all_cases: Sequence[Case]) -> Iterator[OutcomeCluster]:
        """Start a cluster, and stage cases on it: markers are lost once, for all of them."""
        with Kafka(version, brokers=loss.brokers, properties=PROPERTIES) as kafka:
            client = _connect(kafka)
            staged = cls(kafka, loss, [], client)
            try:
                staged.staged = _stage(kafka, client, loss, all_cases)
                yield staged
            finally:
                staged.client.close()

    def still_open(self) -> list[StagedCase]:
        """Those whose transaction the leader of its partition has open."""
        return [
            each
            for each in self.staged
            if any(
                (opened.producer_id, opened.start_offset) == (each.producer_id, each.start_offset)
                for opened in open_transactions(self.client, LEFT, each.partition)
            )
        ]

    def received(self) -> set[tuple[int, int]]:
        """Partition and offset of each record of `LEFT` that a read_committed consumer receives."""
        settings = {"group.id": "reader", "auto.offset.reset": "earliest", "enable.partition.eof": True}
        consumer = Consumer({**self.kafka.client_config(), **settings, "isolation.level": "read_committed"})
        consumer.assign([TopicPartition(LEFT, each.partition, 0) for each in self.staged])
        received: set[tuple[int, int]] = set()
        ends: set[int] = set()

        def all_read() -> bool | None:
            for message in consumer.consume(500, timeout=1):
                number, offset = message.partition(), message.offset()
                assert number is not None
                assert offset is not None
                if message.error() is None:
                    received.add((number, offset))
                else:
                    ends.add(number)
            return True if len(ends) == len(self.staged) else None

        try:
            until(all_read, awaited=f"the end of {LEFT}")
        finally:
            consumer.close()
        return received

    def copy_logs(self, path: Path) -> Path:
        """A copy of all log directories, once their checkpoints have every high watermark; nobody writes meanwhile."""
        since = time.time()
        for broker_id, log_dir in self.kafka.log_dirs.items():
            checkpoint = log_dir / HIGH_WATERMARK
            until(
                lambda file=checkpoint: True if file.exists() and file.stat().st_mtime > since else None,  # type: ignore[misc]
                awaited=str(checkpoint),
            )
            shutil.copytree(log_dir, path / str(broker_id), copy_function=shutil.copy2)
        return path

    def expire_ids(self) -> list[StagedCase]:
        """Let the coordinator forget every id without an open transaction; those cases."""
        self.kafka.restart(ALWAYS_UP, properties={"transactional.id.expiration.ms": "1000"})
        self.client.close()
        self.client = until(self._reconnect, awaited="every broker to know the restarted one")
        for each in self.staged:
            each.producer.cluster = self.client
        idle = [each for each in self.staged if not each.case.sequel.is_open]
        ids = [each.producer.transactional_id for each in idle]
        until(
            lambda: True if all(transaction(self.client, each) is None for each in ids) else None,
            awaited="the coordinator to forget ids",
        )
        return idle

    def _reconnect(self) -> BrokerClient | None:
        """A new client once coordinators have loaded; null while a broker answers that the restarted one is away."""
        client = _connect(self.kafka)
        try:
            await_coordinators(client)
        except NotFound:
            client.close()
            return None
        return client

    def restart_producers(self, staged: Sequence[StagedCase]) -> None:
        """Begin transactions elsewhere with ids that were forgotten: they get new producer ids."""
        for each in staged:
            each.producer.init()
            assert each.producer.producer_id != each.producer_id
            each.producer.add(RIGHT, each.partition)
            each.producer.send(RIGHT, each.partition)


def _connect(kafka: Kafka) -> BrokerClient:
    """A client that knows every broker."""

    def connected() -> BrokerClient | None:
        client = SteadyClient(config_of(kafka))
        if set(client.brokers) == set(kafka.broker_ids):
            return client
        client.close()
        return None

    return until(connected, awaited="every broker in the metadata")


def _stage(kafka: Kafka, client: BrokerClient, loss: Loss, all_cases: Sequence[Case]) -> list[StagedCase]:
    _create_topics(kafka, client, loss, count=len(all_cases))
    producers = [_producer(client, case, number) for number, case in enumerate(all_cases)]
    for turn in range(max(case.earlier for case in all_cases)):
        for number, case in enumerate(all_cases):
            if turn < case.earlier:
                _open(producers[number], number)
                producers[number].end(commit=True)
    ids = [producer.producer_id for producer in producers]
    missing = [number for number, case in enumerate(all_cases) if case.origin is Origin.MARKER_MISSING]
    starts = {number: _open(producers[number], number) for number in missing}
    endings = [(producers[number], bool(all_cases[number].commit)) for number in missing]
    (_skip_markers if loss is Loss.SKIPPED else _lose_markers)(kafka, client, endings)
    await_coordinators(client)
    for number, case in enumerate(all_cases):
        if number not in starts:
            starts[number] = _leave_open(producers[number], case, number)
        _go_on(producers[number], case.sequel, number)
    return [
        StagedCase(
            case=case,
            partition=number,
            producer_id=ids[number],
            start_offset=starts[number],
            producer=producers[number],
        )
        for number, case in enumerate(all_cases)
    ]


def _create_topics(kafka: Kafka, client: BrokerClient, loss: Loss, *, count: int) -> None:
    replicas = [LEADER] if loss is Loss.SKIPPED else [LEADER, FOLLOWER]
    topics = [
        NewTopic(LEFT, count, replica_assignment=[replicas] * count),
        NewTopic(RIGHT, count, replica_assignment=[[ALWAYS_UP]] * count),
    ]
    admin = AdminClient({**kafka.client_config()})
    for done in admin.create_topics(topics).values():
        done.result()
    until(
        lambda: True if all(len(partitions(client, topic)) == count for topic in (LEFT, RIGHT)) else None,
        awaited="the leaders of the topics",
    )


def _producer(client: BrokerClient, case: Case, number: int) -> TxnProducer:
    """A producer that the broker which stays coordinates."""
    names = (f"case-{number}-{attempt}" for attempt in range(1000))
    transactional_id = next(name for name in names if coordinator(client, name) == ALWAYS_UP)
    return TxnProducer(client, transactional_id, transaction_version=case.transaction_version).init()


def _open(producer: TxnProducer, number: int) -> int:
    for topic in (LEFT, RIGHT):
        producer.add(topic, number)
    producer.send(RIGHT, number)
    return producer.send(LEFT, number)


def _skip_markers(kafka: Kafka, client: BrokerClient, endings: Sequence[tuple[TxnProducer, bool]]) -> None:
    """End transactions while `LEFT` has no leader, and bring it back; on most versions the marker follows then."""
    kafka.kill(LEADER)
    until(lambda: None if partitions(client, LEFT) else True, awaited=f"{LEFT} to have no leader")
    for producer, commit in endings:
        producer.decide(commit=commit)
    kafka.start_broker(LEADER)
    until(
        lambda: True if all(_is_complete(client, producer) for producer, _ in endings) else None,
        awaited="the coordinator to complete all transactions",
    )


def _is_complete(client: BrokerClient, producer: TxnProducer) -> bool:
    state = transaction(client, producer.transactional_id)
    return state is not None and str(state.transaction_state).startswith("Complete")


def _lose_markers(kafka: Kafka, client: BrokerClient, endings: Sequence[tuple[TxnProducer, bool]]) -> None:
    """End transactions while the follower does not fetch, kill the leader, and elect that follower."""
    kafka.pause(FOLLOWER)
    # The leader has answered its last fetch then, without a marker.
    until(lambda: True if _in_sync(client) == {LEADER} else None, awaited="the ISR to shrink")
    for producer, commit in endings:
        producer.end(commit=commit)
    kafka.kill(LEADER)
    kafka.resume(FOLLOWER)
    elect_uncleanly(client, LEFT, sorted(partitions(client, RIGHT)), broker_id=FOLLOWER)
    kafka.start_broker(LEADER)


def _in_sync(client: BrokerClient) -> set[int]:
    return {broker for each in partitions(client, LEFT).values() for broker in each.isr_nodes}


def _leave_open(producer: TxnProducer, case: Case, number: int) -> int:
    """Leave a transaction open that no coordinator knows of."""
    if case.origin is Origin.LATE_BATCH:
        _open(producer, number)
        producer.end(commit=bool(case.commit))
    producer.transaction_version = 1  # a batch of version 2 would begin a transaction
    start = producer.send(LEFT, number)
    producer.transaction_version = case.transaction_version
    if case.origin is Origin.SUPERSEDED:
        producer.init()
    return start


def _go_on(producer: TxnProducer, sequel: Sequel, number: int) -> None:
    if sequel in {Sequel.NEW_INSTANCE, Sequel.NEW_INSTANCE_OPEN}:
        producer.init()
    ends: dict[Sequel, list[bool | None]] = {
        Sequel.THREE_COMMITS: [True] * 3,
        Sequel.ABORT: [False],
        Sequel.OPEN: [None],
        Sequel.NEW_INSTANCE_OPEN: [None],
    }
    for commit in ends.get(sequel, []):
        producer.add(RIGHT, number)
        producer.send(RIGHT, number)
        if commit is not None:
            producer.end(commit=commit)
