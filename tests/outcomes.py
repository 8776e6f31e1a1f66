"""Open transactions on real brokers, by what was decided about them and what their producer did afterwards.

A marker is missing because the coordinator skipped it (KAFKA-20734), because an unclean election lost it, or because
the log cleaner removed it; or the transaction hangs and nothing was decided. All of them stand side by side on one
cluster of three brokers, whose second one is killed once. The producer of case n goes on in partition n of `RIGHT`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from tests.broker_files import batches_of, forget_derived, read_batches
from tests.builders import create_topics, received
from tests.java_gateway import JavaClients, java_clients
from tests.real_producers import JavaProducer, LibrdkafkaProducer, Steps
from tests.staged_state import described_transaction
from toolkit import Cluster
from toolkit.actions.marker_actions import plan_abort, plan_complete
from toolkit.actions.plan import Plan
from toolkit.errors import BrokerError, ConnectionFailed, NotFound
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC, coordinator_partition
from toolkit.lab import Kafka
from toolkit.lab.clients import (
    ALWAYS_UP,
    SteadyClient,
    TxnProducer,
    await_coordinators,
    config_of,
    elect_uncleanly,
    leader,
    open_transactions,
    partitions,
    send_until_accepted,
    until,
)
from toolkit.lab.incidents import EVERYDAY
from toolkit.schema import Row, table
from toolkit.schema.verdict import Verdict
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.live.coordinators import GROUP, find_coordinators
from toolkit.sources.live.group_offsets import fetch_offsets
from toolkit.sources.offset_queries import CommittedOffset
from toolkit.sources.source import Source

SKIPPING = ("4.3.1", "4.4.0")
"""Versions whose coordinator skips the marker of an offline partition (KAFKA-20734); others write it later."""


class Origin(StrEnum):
    """How a transaction came to be open without an owner that ends it."""

    SKIPPED = "skipped marker"
    LOST = "unclean election"
    COMPACTED = "compacted marker"
    REFUSED = "refused marker"
    LATE_BATCH = "late batch"
    NEVER_ADDED = "never added"
    SUPERSEDED = "superseded epoch"

    @property
    def is_marker_missing(self) -> bool:
        """Whether its marker was decided, and nobody writes it."""
        return self in {Origin.SKIPPED, Origin.LOST, Origin.COMPACTED}


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


class Client(StrEnum):
    """Who produces."""

    LAB = "lab"
    LIBRDKAFKA = "librdkafka"
    JAVA = "Java"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The columns of a finding that tell a user what to do."""

    verdict: str
    outcome: str | None
    action: str | None

    def __str__(self) -> str:
        return f"{self.verdict}/{self.outcome}/{self.action}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """An open transaction."""

    origin: Origin  # how it came to be open
    sequel: Sequel = Sequel.NOTHING  # what its producer did afterwards
    commit: bool | None = None  # how the transaction, or the one before a late batch, was ended; null if none was
    transaction_version: int = 1  # of its producer
    earlier: int = 0  # transactions on the same partitions that its producer committed before, with their markers
    client: Client = Client.LAB  # its producer
    has_offsets: bool = False  # whether it is open on ``__consumer_offsets``, with a group's offset

    def __str__(self) -> str:
        return f"{self.incident}, {self.sequel}, version {self.transaction_version}, {self.earlier} earlier"

    @property
    def incident(self) -> str:
        """Its row of the table."""
        ended = {None: "", True: ", commit", False: ", abort"}[self.commit]
        offsets = " of offsets" if self.has_offsets else ""
        client = "" if self.client is Client.LAB else f", {self.client} client"
        return f"{self.origin}{offsets}{ended}{client}"

    @property
    def may_be_unknown(self) -> bool:
        """Whether only the clocks of two brokers tell which of several transactions of one epoch a marker is of."""
        return self.transaction_version == 1 and self.earlier > 0

    @property
    def is_received(self) -> bool:
        """Whether its records were committed."""
        return bool(self.commit) and self.origin is not Origin.LATE_BATCH

    @property
    def expected(self) -> Expected:
        """What is proven to have been decided about its records, and what is safe."""
        if self.origin is Origin.REFUSED:
            return Expected(verdict=Verdict.ENDING, outcome="commit", action=None)
        if self.origin is Origin.LATE_BATCH and self.transaction_version == 2:  # brokers add what is written
            return Expected(verdict=Verdict.UNKNOWN, outcome="unknown", action=None)
        if not self.origin.is_marker_missing:
            return Expected(verdict=Verdict.HANGING, outcome="undecided", action="abort")
        if self.commit and self.transaction_version == 1:  # no broker's time is between the records and the commit
            return Expected(verdict=Verdict.UNKNOWN, outcome="unknown", action=None)
        if self.commit:
            return Expected(verdict=Verdict.STUCK_ENDING, outcome="commit", action="complete")
        return Expected(verdict=Verdict.HANGING, outcome="abort", action="abort")


def few_cases(version: str) -> list[Case]:
    """Those of the first tier, and those whose remedy is followed: an action takes half a second."""
    commits = (Sequel.NOTHING, Sequel.THREE_COMMITS, Sequel.OPEN, Sequel.NEW_INSTANCE, Sequel.ABORT)
    found = [Case(origin=Origin.LOST, commit=True, sequel=sequel) for sequel in commits]
    found += [
        Case(origin=Origin.LOST, commit=True, sequel=Sequel.THREE_COMMITS, earlier=1),
        Case(origin=Origin.LOST, commit=False, sequel=Sequel.THREE_COMMITS),
        Case(origin=Origin.LOST, commit=True, has_offsets=True),
        Case(origin=Origin.LOST, commit=True, has_offsets=True, sequel=Sequel.OPEN),
        Case(origin=Origin.LOST, commit=False, has_offsets=True),
        Case(origin=Origin.COMPACTED, commit=True, sequel=Sequel.THREE_COMMITS),
        Case(origin=Origin.COMPACTED, commit=True, sequel=Sequel.OPEN), Case(origin=Origin.REFUSED, commit=True),
        Case(origin=Origin.LATE_BATCH, commit=True, sequel=Sequel.THREE_COMMITS),
        Case(origin=Origin.LATE_BATCH, commit=False), Case(origin=Origin.NEVER_ADDED, sequel=Sequel.OPEN),
        Case(origin=Origin.SUPERSEDED, sequel=Sequel.NEW_INSTANCE),
    ]  # fmt: skip
    if version in SKIPPING:
        found += [Case(origin=Origin.SKIPPED, commit=True, sequel=sequel) for sequel in commits[:3]]
    if version >= "4":
        found += [
            Case(origin=origin, commit=True, sequel=sequel, transaction_version=2)
            for origin in ([Origin.LOST, Origin.SKIPPED] if version in SKIPPING else [Origin.LOST])
            for sequel in (Sequel.NOTHING, Sequel.THREE_COMMITS, Sequel.NEW_INSTANCE_OPEN)
        ]
        found.append(Case(origin=Origin.LATE_BATCH, commit=True, transaction_version=2))
        after_a_commit = Case(
            origin=Origin.LOST, commit=True, sequel=Sequel.THREE_COMMITS, transaction_version=2, earlier=1
        )
        found.append(after_a_commit)  # which began its epoch
    return found


def real_cases(version: str, clients: Sequence[Client]) -> list[Case]:
    """Those of applications' producers, whose remedies are followed, too; 2.8 does not tell when it has completed."""
    return [
        Case(
            origin=origin,
            commit=True,
            sequel=sequel,
            client=client,
            has_offsets=has_offsets,
            transaction_version=2 if client is Client.JAVA and version >= "4" else 1,
        )
        for origin in ([Origin.LOST, Origin.SKIPPED] if version in SKIPPING else [Origin.LOST])
        for client in clients
        for sequel, has_offsets in (
            (Sequel.NOTHING, False),
            (Sequel.THREE_COMMITS, False),
            (Sequel.OPEN, False),
            *([(Sequel.THREE_COMMITS, True)] if origin is Origin.LOST else []),
        )
        if version >= "3"
    ]


def cases(version: str) -> list[Case]:
    """All cases; of transaction version 2 also a late batch, which a real client would not leave open."""
    found: list[Case] = []
    for origin in [Origin.LOST, Origin.SKIPPED] if version in SKIPPING else [Origin.LOST]:
        for commit in (True, False):
            found += [
                Case(origin=origin, sequel=sequel, commit=commit, transaction_version=transaction_version)
                for transaction_version in ((1, 2) if version >= "4" else (1,))
                for sequel in Sequel
            ]
            found += [
                Case(origin=origin, sequel=sequel, commit=commit, earlier=earlier)
                for earlier in (1, 2)
                for sequel in (Sequel.NOTHING, Sequel.THREE_COMMITS, Sequel.OPEN)
            ]
    found += [
        Case(origin=origin, sequel=sequel, commit=commit)
        for origin, commit in (
            (Origin.LATE_BATCH, True),
            (Origin.LATE_BATCH, False),
            (Origin.NEVER_ADDED, None),
            (Origin.SUPERSEDED, None),
        )
        for sequel in Sequel
    ]
    return list(dict.fromkeys([*found, *few_cases(version), *real_cases(version, (Client.LIBRDKAFKA, Client.JAVA))]))


def retried_cases() -> list[Case]:
    """Markers of an offline partition, on versions that write them once it has a leader again."""
    return [
        Case(origin=Origin.SKIPPED, commit=commit, sequel=sequel)
        for commit in (True, False)
        for sequel in (Sequel.NOTHING, Sequel.OPEN)
    ]


LEFT, ALONE, COMPACT, RIGHT = "left", "alone", "compact", "right"
LEADER, FOLLOWER = 2, 3  # of LEFT and of the groups; LEADER alone has ALONE and COMPACT
# ALWAYS_UP has RIGHT, and coordinates every transactional id.
GROUP_PARTITIONS, STATE_PARTITIONS = 10, 5  # every diagnosis reads all of the latter
OFFSET = 7  # that a transaction commits for its group
MARKER_KEY = b"\0\0\0\1"  # of a COMMIT marker
CLEANING = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.0"}

PROPERTIES = {
    **EVERYDAY.properties,
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
    "log.cleaner.backoff.ms": "100",
    # A busy machine may take more than the lab's 6 s: a new coordinator would write the refused markers.
    "zookeeper.session.timeout.ms": "10000",
    "auto.leader.rebalance.enable": "false",
}


@dataclass(slots=True, kw_only=True, eq=False)
class StagedCase:
    """A case on a cluster."""

    case: Case  # the case
    number: int  # its partition of `RIGHT`
    # topic, partition: where its transaction is open
    topic: str
    partition: int
    group: str  # of the offsets in it; empty for none
    producer: Steps  # the newest instance of its id
    # producer_id, start_offset: the open transaction
    producer_id: int = -1
    start_offset: int = -1

    def open(self) -> None:
        """Open a transaction."""
        self.producer.add(RIGHT, self.number)
        self.producer.send(RIGHT, self.number)
        if self.group:
            self.producer.add_offsets(self.group)
            self.producer.commit_offset(self.group, RIGHT, self.number, offset=OFFSET)
        else:
            self.producer.add(self.topic, self.partition)
            self.producer.send(self.topic, self.partition)

    def observe(self, client: BrokerClient) -> None:
        """Take the open transaction from the leader's producer state."""
        (found,) = open_transactions(client, self.topic, self.partition)
        self.producer_id, self.start_offset = found.producer_id, found.start_offset

    def leave_open(self) -> None:
        """Leave a transaction open that no coordinator knows of."""
        if self.case.origin is Origin.LATE_BATCH:
            self.open()
            self.producer.end(commit=bool(self.case.commit))
        if isinstance(self.producer, TxnProducer):
            self.producer.transaction_version = 1  # a batch of version 2 would begin a transaction
            self.producer.send(self.topic, self.partition)
            self.producer.transaction_version = self.case.transaction_version

    def go_on(self) -> None:
        """What the producer does afterwards."""
        sequel = self.case.sequel
        if self.case.origin is Origin.SUPERSEDED or sequel in {Sequel.NEW_INSTANCE, Sequel.NEW_INSTANCE_OPEN}:
            self.producer.init()
        ends: dict[Sequel, list[bool | None]] = {
            Sequel.THREE_COMMITS: [True] * 3,
            Sequel.ABORT: [False],
            Sequel.OPEN: [None],
            Sequel.NEW_INSTANCE_OPEN: [None],
        }
        for commit in ends.get(sequel, []):
            self.producer.add(RIGHT, self.number)
            self.producer.send(RIGHT, self.number)
            if commit is not None:
                self.producer.end(commit=commit)


class OutcomeCluster:
    """A cluster of three brokers with staged cases, and Java's clients of its version if a case has one."""

    def __init__(self, kafka: Kafka, client: BrokerClient, java: JavaClients | None) -> None:
        self.kafka = kafka
        self.client = client
        self.java = java
        self.staged: list[StagedCase] = []

    @classmethod
    @contextlib.contextmanager
    def start(cls, version: str, all_cases: Sequence[Case]) -> Iterator[OutcomeCluster]:
        """Start a cluster, and stage cases on it: markers are lost once, for all of them."""
        with contextlib.ExitStack() as stack:
            kafka = stack.enter_context(Kafka(version, brokers=3, properties=PROPERTIES))
            java = None
            if any(case.client is Client.JAVA for case in all_cases):
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                java = stack.enter_context(java_clients(kafka, folder))
            found = cls(kafka, _connect(kafka), java)
            try:
                found._stage(all_cases)
                yield found
            finally:
                found.client.close()

    def few(self) -> list[StagedCase]:
        """Those whose remedies are followed: an action takes half a second, and so does a fresh check."""
        few = few_cases(self.kafka.version)
        return [each for each in self.staged if each.case in few or each.case.client is not Client.LAB]

    def still_open(self) -> list[StagedCase]:
        """Those whose transaction the leader of its partition has open."""
        return [
            each
            for each in self.staged
            if any(
                (opened.producer_id, opened.start_offset) == (each.producer_id, each.start_offset)
                for opened in open_transactions(self.client, each.topic, each.partition)
            )
        ]

    def received(self) -> list[StagedCase]:
        """Those whose first record a read_committed consumer receives, or whose offset its group has."""
        partitions = [(each.topic, each.partition) for each in self.staged if not each.group]
        found = {(each.topic(), each.partition(), each.offset()) for each in received(self.kafka, partitions)}
        return [
            each
            for each in self.staged
            if (each.topic, each.partition, each.start_offset) in found
            or (each.group and self.offset_of(each) == OFFSET)
        ]

    def offset_of(self, staged: StagedCase) -> int | None:
        """The group's stable offset (OffsetFetch); null while a transaction with it is open, negative for none."""
        tp = table.TopicPartition(RIGHT, staged.number)

        def answered() -> CommittedOffset | None:
            ((_, coordinator),) = find_coordinators(self.client, [staged.group], GROUP)
            if coordinator is None or coordinator.error_code:
                return None
            coordinators = {staged.group: coordinator.node_id}
            with contextlib.suppress(BrokerError, ConnectionFailed):
                ((_, offsets),) = fetch_offsets(self.client, coordinators, [tp], require_stable=True)
                return offsets[tp]
            return None

        found = until(answered, awaited=f"the offset of {staged.group}")
        return None if found.is_pending else -1 if found.offset is None else found.offset

    def restart_coordinator(self) -> None:
        """Let another coordinator take over, which forgets ids soon; refused markers follow, as its epoch is higher."""
        self.kafka.restart(ALWAYS_UP, properties={"transactional.id.expiration.ms": "1000"})
        self.client.close()
        self.client = until(self._reconnect, awaited="every broker to know the restarted one")
        for each in self.staged:
            each.producer.cluster = self.client
        refused = self._of(Origin.REFUSED)
        until(
            lambda: (
                None if any(open_transactions(self.client, each.topic, each.partition) for each in refused) else True
            ),
            awaited="the refused markers",
        )

    def expire_ids(self, staged: Sequence[StagedCase]) -> list[StagedCase]:
        """Let the restarted coordinator forget every id without an open transaction; those cases."""
        idle = [each for each in staged if not each.case.sequel.is_open]
        ids = [each.producer.transactional_id for each in idle]
        until(
            lambda: True if all(described_transaction(self.client, each) is None for each in ids) else None,
            awaited="the coordinator to forget ids",
        )
        return idle

    def restart_producers(self, staged: Sequence[StagedCase]) -> None:
        """Begin transactions elsewhere with ids that were forgotten: they get new producer ids."""
        for each in staged:
            each.producer.init()
            assert each.producer.producer_id != each.producer_id
            each.producer.add(RIGHT, each.number)
            each.producer.send(RIGHT, each.number)

    def _reconnect(self) -> BrokerClient | None:
        """A new client once coordinators have loaded; null while a broker answers that the restarted one is away."""
        client = _connect(self.kafka)
        try:
            await_coordinators(client)
        except NotFound:
            client.close()
            return None
        return client

    # Staging

    def _stage(self, all_cases: Sequence[Case]) -> None:
        numbers: Counter[str] = Counter()
        for number, case in enumerate(all_cases):
            topic = _topic(case)
            self.staged.append(self._place(case, number, topic, numbers[topic]))
            numbers[topic] += 1
        self._create_topics(numbers)
        for each in self.staged:
            each.producer.init()
            for _ in range(each.case.earlier):
                each.open()
                each.producer.end(commit=True)
        self._open_all()
        self._lose_markers()
        await_coordinators(self.client)
        for each in self.staged:
            if each.case.origin is Origin.REFUSED:
                self._refuse_marker(each)
            elif not each.case.origin.is_marker_missing:
                each.leave_open()
                each.observe(self.client)
            each.go_on()

    def _place(self, case: Case, number: int, topic: str, partition: int) -> StagedCase:
        transactional_id = f"case-{number}"
        producer: Steps
        if case.client is Client.LIBRDKAFKA:
            producer = LibrdkafkaProducer(self.client, transactional_id, self.kafka.client_config())
        elif case.client is Client.JAVA:
            assert self.java is not None
            producer = JavaProducer(self.client, transactional_id, self.java)
        else:
            producer = TxnProducer(self.client, transactional_id, transaction_version=case.transaction_version)
        return StagedCase(
            case=case,
            number=number,
            topic=topic,
            partition=partition,
            group=_group(partition) if case.has_offsets else "",
            producer=producer,
        )

    def _create_topics(self, numbers: Mapping[str, int]) -> None:
        """Those of the coordinators, too: brokers would place them at random."""
        compacted = {"cleanup.policy": "compact"}
        topics = [
            NewTopic(STATE_TOPIC, STATE_PARTITIONS, replica_assignment=[[ALWAYS_UP]] * STATE_PARTITIONS,
                config=compacted),
            NewTopic(OFFSETS_TOPIC, GROUP_PARTITIONS, replica_assignment=[[LEADER, FOLLOWER]] * GROUP_PARTITIONS,
                config=compacted),
            NewTopic(RIGHT, len(self.staged), replica_assignment=[[ALWAYS_UP]] * len(self.staged)),
        ]  # fmt: skip
        for topic, replicas, config in (
            (LEFT, [LEADER, FOLLOWER], {}),
            (ALONE, [LEADER], {}),
            (COMPACT, [LEADER], CLEANING),
        ):
            count = max(numbers[topic], 1)
            topics.append(NewTopic(topic, count, replica_assignment=[replicas] * count, config=config))
        create_topics(self.kafka, *topics)
        until(
            lambda: True if all(self._has_leaders(each) for each in topics) else None,
            awaited="the leaders of the topics",
        )

    def _has_leaders(self, topic: NewTopic) -> bool:
        return len(partitions(self.client, topic.topic)) == topic.num_partitions

    def _of(self, *origins: Origin) -> list[StagedCase]:
        return [each for each in self.staged if each.case.origin in origins]

    def _open_all(self) -> None:
        """Open every transaction that is decided later, and end those of compacted topics."""
        for each in self._of(Origin.SKIPPED, Origin.LOST, Origin.COMPACTED):
            each.open()
            each.observe(self.client)
        for each in self._of(Origin.COMPACTED):
            each.producer.end(commit=bool(each.case.commit))
        if compacted := self._of(Origin.COMPACTED):
            self._clean(compacted)

    def _refuse_marker(self, staged: StagedCase) -> None:
        """Commit a transaction whose partition knows a higher coordinator epoch, from a marker by hand."""
        for _ in range(2):  # the first marker shows the coordinator's epoch
            staged.open()
            (known,) = open_transactions(self.client, staged.topic, staged.partition)
            staged.producer.end(commit=True)
        of_topic = broker_client.WriteTxnMarkers.WritableTxnMarker.WritableTxnMarkerTopic
        producer = staged.producer
        assert isinstance(producer, TxnProducer)
        marker = broker_client.WriteTxnMarkers.WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=True,
            coordinator_epoch=known.coordinator_epoch + 1,
            transaction_version=0,
            topics=[of_topic(name=staged.topic, partition_indexes=[staged.partition])],
        )
        send_until_accepted(
            self.client,
            lambda: broker_client.WriteTxnMarkers(markers=[marker]),
            of=producer.transactional_id,
            codes=lambda message: [message.markers[0].topics[0].partitions[0].error_code],
            to=lambda: leader(self.client, staged.topic, staged.partition),
        )
        staged.open()
        staged.observe(self.client)
        staged.producer.decide(commit=True)

    def _clean(self, compacted: Sequence[StagedCase]) -> None:
        """Let the cleaner of 2.8 remove COMMIT markers: it takes a record's key for theirs (KAFKA-14055)."""
        producer = Producer(self.kafka.client_config())
        for each in compacted:
            producer.produce(COMPACT, b"value", MARKER_KEY, each.partition)
        producer.flush()

        def rolled() -> bool | None:
            for each in compacted:
                producer.produce(COMPACT, b"value", b"another key", each.partition)
            producer.flush()
            folders = [self._folder(each) for each in compacted]
            if any(len(list(folder.glob("*.log"))) == 1 for folder in folders):
                return None
            return True if self._is_mended or not any(map(_has_markers, folders)) else None

        until(rolled, awaited="the cleaner")

    @property
    def _is_mended(self) -> bool:
        return self.kafka.version != "2.8.2"

    def _folder(self, staged: StagedCase) -> Path:
        return self.kafka.log_dirs[LEADER] / f"{staged.topic}-{staged.partition}"

    def _lose_markers(self) -> None:
        """Kill the leader once it alone has the markers of `LEFT`, elect the follower, and end those of `ALONE`.

        The follower does not fetch when they are written. Most versions write the markers of `ALONE` once it has a
        leader again.
        """
        self.kafka.pause(FOLLOWER)
        # The leader has answered its last fetch then, without a marker.
        until(lambda: True if self._in_sync == {LEADER} else None, awaited="the ISR to shrink")
        lost, offline = self._of(Origin.LOST), self._of(Origin.SKIPPED)
        for each in lost:
            each.producer.end(commit=bool(each.case.commit))
        self._await_completed([each for each in lost if each.case.client is not Client.LAB])
        self.kafka.kill(LEADER)
        for each in self._of(Origin.COMPACTED):
            _remove_markers(self._folder(each))
        self.kafka.resume(FOLLOWER)
        for topic in (LEFT, OFFSETS_TOPIC):
            count = max(each.partition for each in self.staged if each.topic == LEFT) + 1
            elect_uncleanly(self.client, topic, range(count if topic == LEFT else GROUP_PARTITIONS), broker_id=FOLLOWER)
        until(lambda: None if partitions(self.client, ALONE) else True, awaited=f"{ALONE} to have no leader")
        for each in offline:
            each.producer.decide(commit=bool(each.case.commit))
        self.kafka.start_broker(LEADER)
        self._await_completed(offline)

    def _await_completed(self, ended: Sequence[StagedCase]) -> None:
        def completed() -> bool | None:
            states = [described_transaction(self.client, each.producer.transactional_id) for each in ended]
            return True if all(str(each.transaction_state).startswith("Complete") for each in states) else None

        until(completed, awaited="the coordinator to complete all transactions")

    @property
    def _in_sync(self) -> set[int]:
        return {
            broker
            for topic in (LEFT, OFFSETS_TOPIC)
            for each in partitions(self.client, topic).values()
            for broker in each.isr_nodes
        }


def _connect(kafka: Kafka) -> BrokerClient:
    """A client that knows every broker."""

    def connected() -> BrokerClient | None:
        client = SteadyClient(config_of(kafka))
        if set(client.brokers) == set(kafka.broker_ids):
            return client
        client.close()
        return None

    return until(connected, awaited="every broker in the metadata")


def _topic(case: Case) -> str:
    if case.has_offsets:
        return OFFSETS_TOPIC
    return {Origin.SKIPPED: ALONE, Origin.COMPACTED: COMPACT}.get(case.origin, LEFT)


def _group(partition: int) -> str:
    """A group of a partition of ``__consumer_offsets``."""
    names = (f"group-{number}" for number in range(1000))
    return next(name for name in names if coordinator_partition(name, GROUP_PARTITIONS) == partition)


def _has_markers(folder: Path) -> bool:
    return any(each.is_commit is not None for each in read_batches(folder))


def _remove_markers(folder: Path) -> None:
    """Leave the log as the cleaner of 2.8 does, and let the broker, which is down, read its producers from it.

    A replica that is copied from the log reads them, too.
    """
    for log in folder.glob("*.log"):
        log.write_bytes(b"".join(each.content for each in batches_of(log.read_bytes()) if each.is_commit is None))
    forget_derived(folder)


def rows_of(source: Source, staged: Sequence[StagedCase], **arguments: Any) -> list[Row]:
    """Their findings, of all partitions in one query."""
    if isinstance(source, Cluster):
        arguments["recheck_after"] = 0.1
    rows: Mapping[tuple[str, int, int], Row] = {
        (row["topic"], row["partition"], row["producer_id"]): row
        for row in source.finding_rows(topics=sorted({each.topic for each in staged}), **arguments)
        if row["producer_id"] is not None
    }
    return [rows[each.topic, each.partition, each.producer_id] for each in staged]


def columns_of(row: Row) -> Expected:
    """What the finding tells a user."""
    return Expected(verdict=row["verdict"], outcome=row["outcome"], action=row["action"])


def follow_remedies(cluster: Cluster, staged: Sequence[StagedCase]) -> list[StagedCase]:
    """Do what each finding says; those that ended by it."""
    plans: dict[StagedCase, Plan] = {}
    for each, row in zip(staged, rows_of(cluster, staged), strict=True):
        if row["action"]:
            plans[each] = (plan_complete if row["action"] == "complete" else plan_abort)(cluster, row)
    for plan in plans.values():
        plan.execute(confirm=plan.target, recheck_after=0.1)
    return list(plans)
