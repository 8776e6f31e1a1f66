"""Open records on a real broker, each staged as one story: its truth is kept for every record.

A story is a generator. It writes with clients that send every request explicitly, and yields where the broker loses
power: it is killed, logs lose their tails, and it starts again. All stories of a version share one broker and its power
losses, each of which lasts longer than brokers' clocks may differ.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.broker_files import batches_of, forget_derived
from tests.builders import received
from tests.formats.packed import seal
from tests.sources.log_files import state_record
from toolkit import Cluster
from toolkit.actions.marker_actions import plan_abort, plan_complete
from toolkit.actions.plan import Plan
from toolkit.analysis.diagnosis import rules
from toolkit.formats.batches import HEADER, HEADER_SIZE
from toolkit.formats.coordinator_records import STATE_TOPIC, coordinator_partition
from toolkit.lab import Kafka
from toolkit.lab.clients import SteadyClient, TxnProducer, await_coordinators, config_of, offsets, partitions, until
from toolkit.schema import Row
from toolkit.sources.live.broker_client import BrokerClient

CLOCKS_DIFFER_S = 5.0
LATER = dt.timedelta(seconds=8)
STATE_PARTITIONS = 40  # each story has its own, so that its tail is nobody else's
OTHERS = 0  # the one of every other producer
VERSIONS = ("3.5.2", "4.3.1", "4.4.0")
VERIFYING = "4"  # from here on a leader refuses a partition that was not added, unless it thinks that one is open

BY_APPEND_TIME = {  # stories whose records have the broker's time
    *("abort-after-append-time", "abort-then-commit", "commit-after-append-time", "commit-then-fence"),
    "never-added-joins-by-append-time",
}
PROPERTIES = {"transaction.max.timeout.ms": "3600000", "transaction.state.log.num.partitions": str(STATE_PARTITIONS)}


class Fate(StrEnum):
    """What is true of a record."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    LIVE = "live"
    NOT_ADDED = "of no transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLoss:
    """What the logs of a story lose while the broker is down, and what is written into them."""

    tails: Mapping[str, int] = field(default_factory=dict)  # first offset that is lost, by topic
    heads: Mapping[str, int] = field(default_factory=dict)  # first offset that retention leaves, by topic
    state_tail: int | None = None  # the same of the coordinators' log; null if it loses nothing
    is_compacted: bool = False  # whether the coordinators' log keeps only the last record of the id
    state_record: bytes | None = None  # A batch at the end of the coordinators' log; null for none
    # markers whose time becomes `LATER` than it was: offset by topic
    later_markers: Mapping[str, int] = field(default_factory=dict)


Steps: TypeAlias = Generator[PowerLoss, None, None]
Story: TypeAlias = Callable[["Case"], Steps]


class Case:
    """A story on its broker, named as its topic, with a partition of ``__transaction_state`` of its own."""

    def __init__(self, broker: Broker, name: str, state_partition: int) -> None:
        self.broker = broker
        self.topic, self.other = name, f"{name}-other"
        self.state_partition = state_partition
        self.transactional_id = _id_in(state_partition, name)
        self.fates: dict[tuple[str, int], Fate] = {}
        self.producers: list[TxnProducer] = []
        self.client_goes_on: Callable[[], None] = lambda: None
        """What the live client does after the operator."""

    # Staging

    def create_topics(self, **config: str) -> None:
        self.broker.create_topic(self.topic, **config)
        self.broker.create_topic(self.other)

    def create_topic_again(self) -> None:
        """Delete the topic and create it again: its records are gone, and its sequences begin anew."""
        self.broker.create_topic_again(self.topic)
        self.fates = {record: fate for record, fate in self.fates.items() if record[0] != self.topic}
        for producer in self.producers:
            producer._sequences.pop((self.topic, 0), None)

    def producer(self, *, version: int = 1, transactional_id: str = "") -> TxnProducer:
        """A new instance of the case's id, or of another one."""
        found = TxnProducer(
            self.broker.client, transactional_id or self.transactional_id, transaction_version=version
        ).init()
        self.producers.append(found)
        return found

    def write(self, producer: TxnProducer, fate: Fate, *topics: str, timestamp: dt.datetime | None = None) -> None:
        """A record on each topic, and what is true of it."""
        for topic in topics:
            self.fates[topic, producer.send(topic, 0, timestamp=timestamp)] = fate

    def add_and_write(
        self, producer: TxnProducer, fate: Fate, *topics: str, timestamp: dt.datetime | None = None
    ) -> None:
        for topic in topics:
            producer.add(topic, 0)
        self.write(producer, fate, *topics, timestamp=timestamp)

    def transact(self, producer: TxnProducer, *topics: str, commit: bool = True) -> None:
        """A transaction with a record on each topic."""
        self.add_and_write(producer, Fate.COMMITTED if commit else Fate.ABORTED, *topics)
        producer.end(commit=commit)

    def commit(self, producer: TxnProducer) -> None:
        """Commit a live transaction; what its client wrote is committed once that returns."""
        producer.end(commit=True)
        self.fates |= {record: Fate.COMMITTED for record, fate in self.fates.items() if fate is Fate.LIVE}

    def write_of_another_producer(self, topic: str) -> None:
        """A commit of another producer, whose marker has the broker's time."""
        self.transact(self.producer(transactional_id=_id_in(OTHERS, f"{self.topic}-other")), topic)

    def end_of(self, topic: str) -> int:
        return offsets(self.broker.client, topic, 0)[2]

    def end_of_state(self) -> int:
        return offsets(self.broker.client, STATE_TOPIC, self.state_partition)[2]

    def marker_lost(self, *topics: str) -> PowerLoss:
        """The last batch of each topic, a marker."""
        return PowerLoss(tails={topic: self.end_of(topic) - 1 for topic in topics})

    # What the operator does, and what consumers receive

    def finding(self, cluster: Cluster, **arguments: Any) -> Row:
        """The finding of the story's topic."""
        with mock.patch.object(rules, "COMPARED_AFTER", dt.timedelta()):
            rows = cluster.finding_rows(topics=[self.topic], partitions=[0], recheck_after=0.1, **arguments)
        ours = [row for row in rows if row["producer_id"] is not None] or rows
        assert len(ours) == 1, [(row["verdict"], row["reason"]) for row in rows]
        return ours[0]

    def follow(self, cluster: Cluster, row: Row) -> str | None:
        """What the finding says, if that is a marker; the action. The live client goes on then, if there is one."""
        action = row["action"] if row["action"] in {"abort", "complete"} else None
        if action:
            plan = plan_of(cluster, row, action)
            plan.execute(confirm=plan.target, recheck_after=0.1)
        self.client_goes_on()
        return action

    def received(self) -> set[tuple[str, int]]:
        """Records that a read_committed consumer receives, up to the LSO."""
        found = received(self.broker.kafka, [(self.topic, 0), (self.other, 0)])
        return {(str(each.topic()), int(each.offset() or 0)) for each in found}

    def losses(self) -> dict[tuple[str, int], str]:
        """Records that were decided for good against their fate, by what happened to them."""
        received, found = self.received(), {}
        lso = {topic: offsets(self.broker.client, topic, 0)[1] for topic in (self.topic, self.other)}
        for (topic, offset), fate in self.fates.items():
            is_received = (topic, offset) in received
            if is_received and fate is not Fate.COMMITTED:
                found[topic, offset] = f"published, although {fate}"
            elif not is_received and fate in {Fate.COMMITTED, Fate.LIVE} and offset < lso[topic]:
                found[topic, offset] = f"lost, although {fate}"
        return found


class Broker:
    """A broker whose power is lost now and then."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.client: BrokerClient = SteadyClient(config_of(kafka))
        self.cases: dict[str, Case] = {}
        # The broker is down now and then.
        self._admin = AdminClient({**kafka.client_config(), "log_level": 0, "error_cb": lambda error: None})  # type: ignore[dict-item]

    @classmethod
    @contextlib.contextmanager
    def start(cls, version: str) -> Iterator[Broker]:
        """Start a broker, and stage all stories of its version."""
        with Kafka(version, properties=PROPERTIES) as kafka:
            broker = cls(kafka)
            try:
                broker._stage()
                yield broker
            finally:
                broker.client.close()

    def create_topic(self, topic: str, **config: str) -> None:
        new = NewTopic(topic, 1, 1, config={key.replace("_", "."): value for key, value in config.items()})
        self._admin.create_topics([new])[topic].result()
        until(lambda: partitions(self.client, topic) or None, awaited=f"a leader of {topic}")

    def create_topic_again(self, topic: str) -> None:
        """Delete a topic and create it again, once the broker has let go of its log."""
        folder = self.kafka.log_dirs[1] / f"{topic}-0"
        self._admin.delete_topics([topic])[topic].result()
        until(lambda: None if folder.exists() else True, awaited=f"the deletion of {folder}")
        self.create_topic(topic)

    def _stage(self) -> None:
        running: list[tuple[Case, Steps]] = []
        for number, (name, story) in enumerate(stories(self.kafka.version).items(), OTHERS + 1):
            self.cases[name] = case = Case(self, name, number)
            case.create_topics(**{"message_timestamp_type": "LogAppendTime"} if name in BY_APPEND_TIME else {})
            running.append((case, story(case)))
        while running:
            losses: list[tuple[Case, PowerLoss]] = []
            for case, story_of_case in running:
                with contextlib.suppress(StopIteration):
                    losses.append((case, next(story_of_case)))
            going_on = {id(case) for case, _ in losses}
            running = [each for each in running if id(each[0]) in going_on]
            if losses:
                self._lose_power(losses)

    def _lose_power(self, losses: Sequence[tuple[Case, PowerLoss]]) -> None:
        root, since = self.kafka.log_dirs[1], time.monotonic()
        self.kafka.kill(1)
        for case, loss in losses:
            for topic, start in loss.tails.items():
                _rewrite(root / f"{topic}-0", stop=start)
            state = root / f"{STATE_TOPIC}-{case.state_partition}"
            if loss.state_tail is not None:
                _rewrite(state, stop=loss.state_tail)
            for topic, offset in loss.later_markers.items():
                _rewrite(root / f"{topic}-0", later=offset)
            for topic, start in loss.heads.items():
                _rewrite(root / f"{topic}-0", start=start)
            if loss.is_compacted:
                _rewrite(state, only_last=True)
            if loss.state_record is not None:
                _rewrite(state, added=loss.state_record)
        self.kafka.start_broker(1)
        self.client.close()
        self.client = SteadyClient(config_of(self.kafka))
        await_coordinators(self.client)
        for case in self.cases.values():
            for producer in case.producers:
                producer.cluster = self.client
        until(
            lambda: True if time.monotonic() > since + CLOCKS_DIFFER_S + 1 else None,
            awaited="times that are further apart than clocks may be",
        )


# Stories


def newer_client(case: Case) -> Steps:
    """K1: the marker of a commit is lost, a newer client fences the next transaction and commits twice elsewhere."""
    old = case.producer()
    case.transact(old, case.topic, case.other)
    yield case.marker_lost(case.topic)
    case.add_and_write(old, Fate.ABORTED, case.other)
    new = case.producer(version=2)
    for _ in range(2):
        case.transact(new, case.other)
    yield PowerLoss(is_compacted=True)


def upgrade_within_epoch(case: Case) -> Steps:
    """K1: an instance aborts with version 1, loses the marker, and commits elsewhere with version 2."""
    producer = case.producer()
    case.transact(producer, case.topic, commit=False)
    yield case.marker_lost(case.topic)
    producer.transaction_version = 2
    case.transact(producer, case.other)
    yield PowerLoss(is_compacted=True)


def upgrade_in_one_range(case: Case) -> Steps:
    """K1: as `upgrade_within_epoch`, but version 2 also writes here: the leader, which has it open, does not add it."""
    producer = case.producer()
    case.transact(producer, case.topic, commit=False)
    yield case.marker_lost(case.topic)
    producer.transaction_version = 2
    case.transact(producer, case.other, case.topic)


def downgrade_and_upgrade(case: Case) -> Steps:
    """K1: as `upgrade_within_epoch`, but the epoch began with a commit of version 2."""
    producer = case.producer(version=2)
    case.transact(producer, case.other)
    producer.transaction_version = 1
    case.transact(producer, case.topic, commit=False)
    yield case.marker_lost(case.topic)
    producer.transaction_version = 2
    case.transact(producer, case.other)
    yield PowerLoss(is_compacted=True)


def never_added_joins(case: Case) -> Steps:
    """K2: a record that was never added joins those of a commit without its marker; its transaction is aborted."""
    producer = case.producer()
    case.transact(producer, case.topic, case.other)
    yield case.marker_lost(case.topic)
    case.add_and_write(producer, Fate.ABORTED, case.other)
    case.write(producer, Fate.NOT_ADDED, case.topic)
    producer.end(commit=False)


def never_added_joins_by_append_time(case: Case) -> Steps:
    """K2: as `never_added_joins`, where the broker's times prove which record is older than the commit."""
    producer = case.producer()
    case.add_and_write(producer, Fate.COMMITTED, case.topic)
    yield PowerLoss()
    producer.end(commit=True)
    yield case.marker_lost(case.topic)
    case.add_and_write(producer, Fate.ABORTED, case.other)
    case.write(producer, Fate.NOT_ADDED, case.topic)
    producer.end(commit=False)


def zombie_on_a_shorter_log(case: Case) -> Steps:
    """K2: a log loses all of a commit; later a zombie of the same epoch writes, after another producer's marker."""
    case.write_of_another_producer(case.topic)
    yield PowerLoss()
    producer = case.producer()
    start = case.end_of(case.topic)
    case.transact(producer, case.topic, case.other)
    del case.fates[case.topic, start]
    yield PowerLoss(tails={case.topic: start})
    case.write_of_another_producer(case.topic)
    case.write(producer, Fate.NOT_ADDED, case.topic)


def created_again(case: Case) -> Steps:
    """K2: a live transaction writes with event times to a topic that was created again since a commit."""
    producer = case.producer()
    event = dt.datetime.now(dt.UTC)
    yield PowerLoss()
    case.transact(producer, case.topic)
    case.create_topic_again()
    case.add_and_write(producer, Fate.LIVE, case.topic, timestamp=event)
    case.client_goes_on = partial(case.commit, producer)


def late_batch_on_a_topic_created_again(case: Case) -> Steps:
    """K2: as `created_again`, but the record with an event time is late, and of no transaction."""
    producer = case.producer()
    event = dt.datetime.now(dt.UTC)
    yield PowerLoss()
    case.transact(producer, case.topic)
    case.create_topic_again()
    case.write(producer, Fate.NOT_ADDED, case.topic, timestamp=event)


def lost_addition(case: Case, *, version: int, is_alive: bool) -> Steps:
    """K3: the coordinators' log loses only the record that added the topic, and its client goes on."""
    producer = case.producer(version=version)
    case.add_and_write(producer, Fate.LIVE, case.other)
    end = case.end_of_state()
    case.add_and_write(producer, Fate.LIVE, case.topic)
    yield PowerLoss(state_tail=end)
    case.write(producer, Fate.LIVE, case.other)
    if is_alive:
        case.client_goes_on = partial(case.commit, producer)
    else:
        case.commit(producer)


def lost_transaction(case: Case, *, version: int, is_soon: bool) -> Steps:
    """K3: the coordinators' log loses a transaction with its commit; another partition has its marker.

    `is_soon`: whether it follows on the one before within the time that brokers' clocks may differ by.
    """
    producer = case.producer(version=version)
    case.transact(producer, case.other)
    if not is_soon:
        yield PowerLoss()
    end = case.end_of_state()
    case.transact(producer, case.topic, case.other)
    yield PowerLoss(tails={case.topic: case.end_of(case.topic) - 1}, state_tail=end)


def lost_completion(case: Case) -> Steps:
    """K3: the coordinators' log loses that a transaction was completed, and the next one: it is completed again."""
    producer = case.producer()
    case.transact(producer, case.other)
    case.add_and_write(producer, Fate.COMMITTED, case.topic)
    completed = case.end_of_state() - 2  # before the record that added the topic
    producer.end(commit=True)
    yield PowerLoss(tails={case.topic: case.end_of(case.topic) - 1}, state_tail=completed)


def lost_abort(case: Case) -> Steps:
    """K3: the coordinators' log loses an abort with its marker here; its instance goes on, and commits without one."""
    producer = case.producer()
    case.transact(producer, case.other)
    end = case.end_of_state()
    case.transact(producer, case.topic, case.other, commit=False)
    yield PowerLoss(tails={case.topic: case.end_of(case.topic) - 1}, state_tail=end)
    case.add_and_write(producer, Fate.COMMITTED, case.topic)
    case.write_of_another_producer(case.topic)
    yield PowerLoss()
    producer.end(commit=True)
    yield case.marker_lost(case.topic)


def lost_transaction_ahead(case: Case) -> Steps:
    """K3: as `lost_transaction` of version 1, and the client's time of the record is later than its marker's."""
    producer = case.producer()
    case.transact(producer, case.other)
    yield PowerLoss()
    end = case.end_of_state()
    ahead = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=50)
    case.add_and_write(producer, Fate.COMMITTED, case.topic, timestamp=ahead)
    case.add_and_write(producer, Fate.COMMITTED, case.other)
    producer.end(commit=True)
    yield PowerLoss(tails={case.topic: case.end_of(case.topic) - 1}, state_tail=end)


def restored(case: Case) -> Steps:
    """K3: the coordinators' log is that of a time before the id; the marker of its commit is lost."""
    end = case.end_of_state()
    case.transact(case.producer(), case.topic)
    yield PowerLoss(tails={case.topic: case.end_of(case.topic) - 1}, state_tail=end)


def producer_id_twice(case: Case, *, is_timed: bool) -> Steps:
    """K3: as `restored`, and another id gets the producer id, and commits elsewhere.

    `is_timed`: whether another producer's marker shows when the records were written.
    """
    end = case.end_of_state()
    first = case.producer()
    case.add_and_write(first, Fate.COMMITTED, case.topic)
    if is_timed:
        case.write_of_another_producer(case.topic)
    first.end(commit=True)
    name = _id_in(case.state_partition, f"{case.topic}-second")
    lasting = dt.timedelta(seconds=CLOCKS_DIFFER_S + 1)
    given = state_record(end, name, first.producer_id, "Empty", dt.datetime.now(dt.UTC) + lasting)
    yield PowerLoss(tails={case.topic: case.end_of(case.topic) - 1}, state_tail=end, state_record=given)
    second = TxnProducer(case.broker.client, name)
    second.producer_id, second.producer_epoch = first.producer_id, 0
    case.producers.append(second)
    for _ in range(2):
        case.transact(second, case.other)


def never_added_after_deleted_marker(case: Case) -> Steps:
    """A record that was never added, after a commit whose marker retention deleted, and a marker 8 s younger."""
    producer = case.producer()
    case.transact(producer, case.topic)
    case.write_of_another_producer(case.topic)
    marker = case.end_of(case.topic) - 1
    yield PowerLoss(heads={case.topic: marker}, later_markers={case.topic: marker})
    case.fates.clear()
    case.write(producer, Fate.NOT_ADDED, case.topic)


def without_markers(case: Case, *commits: bool, version: int = 1) -> Steps:
    """Commits and aborts on one partition, without their markers or a broker's time between records and decision."""
    producer = case.producer(version=version)
    for commit in commits:
        case.transact(producer, case.topic, case.other, commit=commit)
        yield case.marker_lost(case.topic)


def commit_and_abort(case: Case) -> Steps:
    """A commit and an abort of version 2 on one partition, both without their markers."""
    producer = case.producer(version=2)
    for commit in (True, False):
        case.transact(producer, case.topic, commit=commit)
        yield case.marker_lost(case.topic)


def commit_after_a_marker(case: Case) -> Steps:
    """A commit of version 1 without its marker; another producer's marker lies long between its records and it."""
    producer = case.producer()
    case.add_and_write(producer, Fate.COMMITTED, case.topic, case.other)
    case.write(producer, Fate.COMMITTED, case.topic)
    case.write_of_another_producer(case.topic)
    yield PowerLoss()
    producer.end(commit=True)
    yield case.marker_lost(case.topic)


def after_append_time(case: Case, *, commit: bool) -> Steps:
    """An end of version 1 without its marker, long after its records by LogAppendTime."""
    producer = case.producer()
    case.add_and_write(producer, Fate.COMMITTED if commit else Fate.ABORTED, case.topic)
    yield PowerLoss()
    producer.end(commit=commit)
    yield case.marker_lost(case.topic)


def commit_then_fence(case: Case) -> Steps:
    """As `after_append_time` of a commit; a new instance then fences a transaction elsewhere."""
    yield from after_append_time(case, commit=True)
    case.add_and_write(case.producers[0], Fate.ABORTED, case.other)
    case.producer()


def live_after_commit(case: Case) -> Steps:
    """A commit of version 2 without its marker, and a live transaction here, whose marker will decide both."""
    producer = case.producer(version=2)
    case.transact(producer, case.topic, case.other)
    yield case.marker_lost(case.topic)
    case.write(producer, Fate.LIVE, case.topic)
    case.client_goes_on = partial(case.commit, producer)


def abort_then_commit(case: Case) -> Steps:
    """An abort and a commit of version 1 without their markers; by LogAppendTime the first record is of the abort."""
    producer = case.producer()
    case.add_and_write(producer, Fate.ABORTED, case.topic)
    yield PowerLoss()
    producer.end(commit=False)
    yield case.marker_lost(case.topic)
    case.transact(producer, case.topic)
    yield case.marker_lost(case.topic)


def late_batch(case: Case) -> Steps:
    """A record that arrives after the marker of a commit."""
    producer = case.producer()
    case.transact(producer, case.topic)
    case.write(producer, Fate.NOT_ADDED, case.topic)
    yield from ()


def stories(version: str) -> dict[str, Story]:
    """The stories of a version, by name."""
    found: list[Story] = [
        never_added_joins, never_added_joins_by_append_time, created_again, lost_transaction_ahead, lost_completion,
        lost_abort, restored, commit_after_a_marker, commit_then_fence, abort_then_commit,
    ]  # fmt: skip
    if version < VERIFYING:
        found += [
            zombie_on_a_shorter_log,
            late_batch_on_a_topic_created_again,
            never_added_after_deleted_marker,
            late_batch,
        ]
    else:
        found += [
            newer_client, upgrade_within_epoch, upgrade_in_one_range, downgrade_and_upgrade, commit_and_abort,
            live_after_commit,
        ]  # fmt: skip
    named = {each.__name__.replace("_", "-"): each for each in found}
    named["commit-at-once"] = lambda case: without_markers(case, True)
    named["abort-without-marker"] = lambda case: without_markers(case, False)
    for name in ("commit", "abort"):
        named[f"{name}-after-append-time"] = partial(after_append_time, commit=name == "commit")
    if version >= VERIFYING:
        named["two-commits"] = lambda case: without_markers(case, True, True, version=2)
    for is_timed in (False, True):
        named[f"producer-id-twice{'-timed' if is_timed else ''}"] = partial(producer_id_twice, is_timed=is_timed)
    for each in (1, 2) if version >= VERIFYING else (1,):
        named[f"lost-addition-{each}"] = partial(lost_addition, version=each, is_alive=False)
        named[f"lost-addition-{each}-alive"] = partial(lost_addition, version=each, is_alive=True)
        named[f"lost-transaction-{each}"] = partial(lost_transaction, version=each, is_soon=False)
        named[f"lost-transaction-{each}-soon"] = partial(lost_transaction, version=each, is_soon=True)
    return named


def plan_of(cluster: Cluster, row: Row, action: str) -> Plan:
    """The plan of an action, old enough to be executed at once."""
    if action == "abort":
        return plan_abort(cluster, row)
    plan = plan_complete(cluster, row)
    return replace(plan, planned_at=plan.planned_at - 60)


def _id_in(state_partition: int, name: str) -> str:
    """A transactional id whose coordinator is that of a partition."""
    ids = (f"{name}-{number}" for number in itertools.count())
    return next(each for each in ids if coordinator_partition(each, STATE_PARTITIONS) == state_partition)


def _rewrite(
    folder: Path,
    *,
    start: int = 0,
    stop: int | None = None,
    only_last: bool = False,
    added: bytes = b"",
    later: int | None = None,
) -> None:
    """Rewrite the log of a broker that is down, which reads its producers from it when it starts again."""
    (segment,) = folder.glob("*.log")
    batches = [
        _later(each.content) if each.base_offset == later else each.content
        for each in batches_of(segment.read_bytes())
        if start <= each.base_offset and (stop is None or each.base_offset < stop)
    ]
    segment.unlink()
    forget_derived(folder)
    segment = segment.with_name(f"{start:020}.log") if start else segment
    segment.write_bytes(b"".join([*(batches[-1:] if only_last else batches), added]))


def _later(batch: bytes) -> bytes:
    """The batch of one record with a later time, and its checksum."""
    fields = list(HEADER.unpack_from(batch))
    for number in (7, 8):  # base and max timestamp
        fields[number] += LATER // dt.timedelta(milliseconds=1)
    return seal(HEADER.pack(*fields) + batch[HEADER_SIZE:])
