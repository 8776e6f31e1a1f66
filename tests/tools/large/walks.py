"""Random walks on real brokers, with the truth kept for each record: what is offered is done, and nothing is lost.

Several applications share partitions of one broker: they begin, write, commit and abort with clients of both
transaction versions, begin new instances and change their version under one id; zombies and late batches write what is
in no transaction. Power is lost, which cuts the tails of logs; `__transaction_state` is compacted, or restored from an
older copy; topics are deleted and created again. Then every action that a finding offers is done, without an override.

``python -m tests.tools.large 4.3.1 3.5.2``; ``4.3.1/2/7`` repeats round 7 of the seed's third cluster.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.broker_files import (
    copy_partition,
    cut_tail,
    lose_power,
    partition_folder,
    read_batches,
    read_states,
    restore,
    state_folders,
)
from tests.builders import configure_topic, received
from tests.tools.large.sitting import Sitting
from tests.tools.large.walk_clients import NotDone, RawClient
from tests.tools.large.walk_truth import (
    Fate,
    Ledger,
    OpenTransaction,
    PartitionLogs,
    Truth,
    WalkRecord,
    WalkTransaction,
)
from toolkit import Cluster
from toolkit.actions.audit import Audit
from toolkit.actions.coordinator_actions import plan_fence
from toolkit.actions.marker_actions import plan_abort, plan_complete
from toolkit.errors import ActionRefused, ToolkitError
from toolkit.formats.coordinator_records import STATE_TOPIC, TransactionState, coordinator_partition
from toolkit.lab import Kafka
from toolkit.lab.clients import ALWAYS_UP, TxnProducer, await_coordinators, config_of, partitions, until
from toolkit.lab.incidents import EVERYDAY
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.broker_client import BrokerClient

VERSIONS = ("4.3.1", "3.5.2", "4.4.0", "3.9.2", "4.1.2")
ROUNDS = 8  # on one cluster
WALKS, STEPS = 8, ((25, 50), (70, 140))
STATE_PARTITIONS = 8
METADATA_TOPIC = "__cluster_metadata"
PROPERTIES = {
    **EVERYDAY.properties,
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "86400000",  # what is overdue stays open
    "log.cleaner.backoff.ms": "100",
    "delete.topic.enable": "true",
}
CREATE_TIME, APPEND_TIME = 5, 3  # partitions of the round's two topics
EVENT_TIMES = [dt.timedelta()] * 4 + [dt.timedelta(days=-20), dt.timedelta(minutes=-3), dt.timedelta(minutes=45)]
TIMEOUTS_MS = [600_000] * 5 + [1_500]
RECHECK_AFTER = 0.1
WAITS_S = (6.0, 6.0, 17.0)  # longer than the clocks of brokers may differ, and than a timeout with its grace
PLANS: Mapping[str, Callable[..., Any]] = {
    "abort": plan_abort,
    "complete": plan_complete,
    "fence": lambda cluster, row: plan_fence(cluster, row["transactional_id"]),
}
LOSES = "committed, lost by"  # what a violation says
PUBLISHES = "in no commit, published by"


@dataclass(slots=True, eq=False)
class Walk:
    """One transactional id: its present client, its former ones, and its open transaction."""

    transactional_id: str
    topic_partitions: Sequence[TopicPartition]
    client: RawClient | None = None
    former: list[RawClient] = field(default_factory=list)
    transaction: WalkTransaction | None = None
    is_stuck: bool = False  # its coordinator does not get rid of markers; a restart may help

    def give_up(self) -> None:
        """Nobody will end the open transaction: a new instance, if any, has the coordinator abort it."""
        if self.transaction is not None:
            self.transaction.truth = Truth.ABORTED
        self.transaction = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What the actions of a round did: by partition and producer id, and the producer ids that were fenced."""

    markers: Mapping[tuple[TopicPartition, int], str]
    fenced: frozenset[int]

    def action(self, opened: OpenTransaction) -> str | None:
        """What was done about an open transaction."""
        fence = "fence" if opened.producer_id in self.fenced else None
        return self.markers.get((opened.tp, opened.producer_id), fence)


class Round:
    """Some walks at once on one cluster, and what is done about what they leave open."""

    def __init__(self, kafka: Kafka, name: str, folder: Path) -> None:
        self.kafka = kafka
        self.name = name
        self.chance = random.Random(name)
        self.folder = folder
        self.ledger = Ledger()
        self.trace: list[str] = []
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self.client = BrokerClient(config_of(kafka))
        self.admin = AdminClient({**kafka.client_config(), "log_level": 0})
        slug = name.replace("/", "-")
        self.topics = {f"w-{slug}-c": CREATE_TIME, f"w-{slug}-l": APPEND_TIME}
        self.tps = [TopicPartition(topic, number) for topic, count in self.topics.items() for number in range(count)]
        self.walks = [
            Walk(f"{slug}-{number}", self.chance.sample(self.tps, self.chance.choice([2, 2, 3, 4])))
            for number in range(WALKS)
        ]
        self.noise = Walk(f"{slug}-noise", self.tps)
        self.copies: dict[int, Path] = {}
        self.metadata_copy: Path | None = None
        self.lost_states: list[tuple[str, TransactionState]] = []
        self.losses: list[tuple[int, float, float]] = []  # partition of __transaction_state, time of the end, when
        self.judged_at = 0.0

    @property
    def _has_version_2(self) -> bool:
        return self.kafka.version >= "4"

    def note(self, step: str, what: object) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{time.strftime('%H:%M:%S')} {step}: {what}")
        self.counts[step if ":" in step else f"steps: {step}"] += 1

    # Steps of a walk

    def run(self) -> None:
        """Walk."""
        for topic in self.topics:
            self._create(topic)
        count = self.chance.randint(*self.chance.choice(STEPS))
        events = self._events(count)
        for number in range(count):
            for event in events.get(number, ()):
                event()
            self._step()
        for event in events.get(count, ()):
            event()

    def _events(self, count: int) -> Mapping[int, list[Callable[[], None]]]:
        """What happens to the whole cluster, and before which step."""
        chance, found = self.chance, dict[int, list[Callable[[], None]]]()
        losses = chance.choice([0, 1, 1, 2, 2])
        planned: list[tuple[float, Callable[[], None]]] = [
            (chance.uniform(0.5, 1), self._power_loss) for _ in range(losses)
        ]
        if losses and chance.random() < 0.4:
            planned.append((chance.uniform(0.1, 0.4), self._copy_state))
        for share, event in ((0.45, self._compaction), (0.2, self._recreation), (0.15, self._wait)):
            if chance.random() < share:
                planned.append((chance.uniform(0.3, 1), event))
        for at, event in sorted(planned, key=lambda each: each[0]):
            found.setdefault(round(at * count), []).append(event)
        return found

    def _step(self) -> None:
        walk = self.noise if self.chance.random() < 0.1 else self.chance.choice(self.walks)
        if walk.is_stuck:
            return
        if walk.client is None:
            self._try("instance", walk, self._new_instance)
            return
        is_open = walk.transaction is not None
        weights: dict[str, float] = {
            "write": 4,
            "commit": 4 if is_open else 0,
            "abort": 2 if is_open else 0,
            "transaction": 0 if is_open else 6,
            "late or never added": 2.5,
            "zombie": 0.7 if walk.former else 0,
            "instance": 1,
            "version": 1.5 if self._has_version_2 else 0,
        }
        if walk is self.noise:
            weights = {"transaction": 1} if not is_open else {"commit": 1, "abort": 1}
        (step,) = self.chance.choices(list(weights), list(weights.values()))
        steps: Mapping[str, Callable[[Walk], str]] = {
            "write": self._write,
            "commit": lambda walk: self._end(walk, commit=True),
            "abort": lambda walk: self._end(walk, commit=False),
            "transaction": self._transaction,
            "late or never added": self._write_outside,
            "zombie": self._write_as_zombie,
            "instance": self._new_instance,
            "version": self._change_version,
        }
        self._try(step, walk, steps[step])

    def _try(self, step: str, walk: Walk, do: Callable[[Walk], str]) -> None:
        try:
            self.note(step, f"{walk.transactional_id}: {do(walk)}")
        except NotDone as refused:
            self.note(f"{step} refused", f"{walk.transactional_id}: {refused}")
            walk.is_stuck = step == "instance" or "CONCURRENT_TRANSACTIONS" in str(refused)
            if refused.is_over and step != "zombie":
                self._replace(walk)

    def _replace(self, walk: Walk) -> None:
        if walk.client is not None:
            walk.former.append(walk.client)
        walk.give_up()
        walk.client = None

    def _new_instance(self, walk: Walk) -> str:
        """It fences the former one."""
        chance = self.chance
        self._replace(walk)
        timeout_ms = chance.choice(TIMEOUTS_MS)
        version = chance.choice([1, 2]) if self._has_version_2 else 1
        client = RawClient(self.client, walk.transactional_id, version=version, timeout_ms=timeout_ms)
        client.clock_ahead = chance.choice(EVENT_TIMES)
        client.init()
        walk.client = client
        self.counts[f"clients: version {version}"] += 1
        return f"version {version}, timeout {timeout_ms} ms, {client.identity}"

    def _change_version(self, walk: Walk) -> str:
        """Within an instance: its epoch stays."""
        assert walk.client is not None
        if walk.transaction is not None and self.chance.random() < 0.7:
            return self._write(walk)
        walk.client.transaction_version = 3 - walk.client.transaction_version
        return f"{walk.client.transaction_version}"

    def _write(self, walk: Walk, tp: TopicPartition | None = None) -> str:
        """Begin a transaction if none is open, and write a record in it."""
        client, tp = walk.client, tp or self.chance.choice(walk.topic_partitions)
        assert client is not None
        if walk.transaction is None:
            client.begin()
            walk.transaction = WalkTransaction(
                transactional_id=walk.transactional_id,
                producer_id=client.identity[0],
                producer_epoch=client.identity[1],
                version=client.version,
                timeout_ms=client.timeout_ms,
                begun=time.time(),
            )
            self.ledger.transactions.append(walk.transaction)
        record = self._record(client, tp)
        try:
            offset = client.write(tp, record.value)
        finally:
            walk.transaction.partitions |= client.added
            walk.transaction.version = max(walk.transaction.version, client.version)
            record.written = time.time()
        return f"{record.value} at {tp}@{offset}, {client.identity}"

    def _record(self, client: RawClient, tp: TopicPartition) -> WalkRecord:
        producer_id, epoch = client.identity
        value = self.ledger.next_value()
        self.ledger.records[value] = record = WalkRecord(
            value=value,
            transactional_id=client.transactional_id,
            tp=tp,
            producer_id=producer_id,
            producer_epoch=epoch,
            written=time.time(),
        )
        return record

    def _end(self, walk: Walk, *, commit: bool) -> str:
        client, transaction = walk.client, walk.transaction
        assert client is not None
        assert transaction is not None
        begun = time.time()
        identity = client.identity
        try:
            client.end(commit=commit)
        except NotDone as refused:
            raise NotDone(str(refused), is_over=True) from refused
        transaction.truth = Truth.COMMITTED if commit else Truth.ABORTED
        transaction.ended = begun, time.time()
        walk.transaction = None
        return f"{identity} on {', '.join(map(str, sorted(transaction.partitions)))}"

    def _transaction(self, walk: Walk) -> str:
        """A whole transaction."""
        chance = self.chance
        count = chance.randint(1, min(3, len(walk.topic_partitions)))
        written = [self._write(walk, tp) for tp in chance.sample(walk.topic_partitions, count)]
        commit = chance.random() < 0.65
        ended = self._end(walk, commit=commit)
        return f"{'; '.join(written)}; {'commit' if commit else 'abort'} {ended}"

    def _write_outside(self, walk: Walk) -> str:
        """A late batch, or one to a partition that was not added."""
        client = walk.client
        assert client is not None
        left = [tp for tp in walk.topic_partitions if tp not in client.added]
        if not left:
            return self._write(walk)
        tp = self.chance.choice(left)
        return self._outside(client, tp)

    def _write_as_zombie(self, walk: Walk) -> str:
        return self._outside(self.chance.choice(walk.former), self.chance.choice(walk.topic_partitions))

    def _outside(self, client: RawClient, tp: TopicPartition) -> str:
        record = self._record(client, tp)
        offset = client.produce(tp, record.value)
        record.written = time.time()
        return f"{record.value} at {tp}@{offset}, {client.identity}"

    # What happens to the cluster

    def _create(self, topic: str) -> None:
        count = self.topics[topic]
        settings = {"retention.ms": "-1"}
        if topic.endswith("-l"):
            settings["message.timestamp.type"] = "LogAppendTime"
        until(lambda: None if partitions(self.client, topic) else True, awaited=f"{topic} to be gone")
        new = NewTopic(topic, count, replication_factor=1, config=settings)
        self.admin.create_topics([new])[topic].result()
        until(lambda: True if len(partitions(self.client, topic)) == count else None, awaited="the leaders")

    def _recreation(self) -> None:
        topic = self.chance.choice(list(self.topics))
        self.admin.delete_topics([topic])[topic].result()
        self._create(topic)
        self.metadata_copy = None  # it has the topic under its former id
        self.note("topic created again", topic)

    def _wait(self) -> None:
        seconds = self.chance.choice(WAITS_S)
        time.sleep(seconds)
        self.note("wait", f"{seconds:g} s")

    def _compaction(self) -> None:
        """Let the cleaner leave the last record of each id, after a new segment of each partition."""
        configure_topic(self.admin, STATE_TOPIC, {"segment.ms": "50", "min.cleanable.dirty.ratio": "0.0"})
        time.sleep(0.1)
        ends = {number: _end_of(folder) for number, folder in state_folders(self.kafka).items()}
        for _ in range(2):
            self._write_each_state_partition()
            time.sleep(0.1)
        checkpoint = self.kafka.log_dirs[ALWAYS_UP] / "cleaner-offset-checkpoint"

        def cleaned() -> bool | None:
            lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
            done = {int(line.split()[1]): int(line.split()[2]) for line in lines if line.startswith(f"{STATE_TOPIC} ")}
            return True if all(done.get(number, -1) >= end for number, end in ends.items()) else None

        try:
            until(cleaned, awaited="the cleaner", timeout=5)
            self.note("compaction", "done")
        except ToolkitError as error:
            self.note("compaction not seen", error)
        configure_topic(self.admin, STATE_TOPIC, {"segment.ms": "604800000", "min.cleanable.dirty.ratio": "0.5"})

    def _write_each_state_partition(self) -> None:
        waiting = set(state_folders(self.kafka))
        for number in range(1000):
            name = f"other-{number}"
            partition = coordinator_partition(name, STATE_PARTITIONS)
            if partition in waiting:
                RawClient(self.client, name, version=1, timeout_ms=60_000).init()
                waiting.discard(partition)
            if not waiting:
                return

    def _copy_state(self) -> None:
        self.copies = {number: self.folder / f"copy-{number}" for number in state_folders(self.kafka)}
        for number, folder in state_folders(self.kafka).items():
            copy_partition(folder, self.copies[number])
        self.metadata_copy = None
        if self.chance.random() < 0.1:  # the start after its restore takes a minute, until the broker's session is over
            self.metadata_copy = self.folder / "copy-metadata"
            copy_partition(partition_folder(self.kafka, METADATA_TOPIC, 0), self.metadata_copy)
        self.note("copy", f"of {STATE_TOPIC}{' and the metadata' if self.metadata_copy else ''}")

    def _power_loss(self) -> None:
        """Logs lose their last batches, or ``__transaction_state`` is restored from the copy."""
        chance, kafka = self.chance, self.kafka
        for walk in self.walks:
            if walk.transaction is not None and chance.random() < 0.6:  # its markers are among the last batches
                commit = chance.random() < 0.7
                self._try("end", walk, lambda walk, commit=commit: self._end(walk, commit=commit))  # type: ignore[misc]
        lose_power(kafka)
        cuts = []
        for tp in self.tps:
            folder = partition_folder(kafka, *tp)
            if chance.random() < 0.6:
                cuts.append(f"{tp} without {', '.join(map(str, cut_tail(folder, self._cut_count(folder))))}")
        cuts += self._lose_states()
        self._start_again()
        self.note("power loss", "; ".join(cuts))
        for walk in self.walks:  # before anything else ends what has lost its marker
            if walk.client is not None and chance.random() < 0.3:
                self._try("late or never added", walk, self._write_outside)

    def _lose_states(self) -> Iterator[str]:
        """Cut or restore the partitions of ``__transaction_state``, if any; what they lose."""
        chance = self.chance
        is_restored = bool(self.copies) and chance.random() < 0.6
        share = chance.choice([0, 0, 0.4, 1])
        for number, folder in state_folders(self.kafka).items():
            states = read_states(folder)
            if is_restored:
                restore(folder, self.copies[number])
            elif chance.random() < share:
                cut_tail(folder, chance.choice([1, 1, 1, 2, 3, 4]))
            left = read_states(folder)
            lost = [each for each in states if each not in left]
            self.lost_states += lost
            self.losses.append((number, max((_updated(state) for _, state in left), default=0.0), time.time()))
            yield f"{STATE_TOPIC}-{number} without {[_state_text(*each) for each in lost]}"
        if is_restored:
            if self.metadata_copy is not None:  # after two starts, producer ids are given out again
                restore(partition_folder(self.kafka, METADATA_TOPIC, 0), self.metadata_copy)
            self.note("restore of the metadata" if self.metadata_copy else "restore", f"of {STATE_TOPIC}")

    def _start_again(self) -> None:
        self.client.close()
        self.kafka.start_broker(ALWAYS_UP)
        self.client = BrokerClient(config_of(self.kafka))
        await_coordinators(self.client)
        for walk in [*self.walks, self.noise]:
            walk.is_stuck = False
            for client in [walk.client, *walk.former]:
                if client is not None:
                    client.cluster = self.client

    def _cut_count(self, folder: Path) -> int:
        """Often just as many batches that the last marker is gone."""
        batches = read_batches(folder)
        last = next((n for n, each in enumerate(reversed(batches), 1) if each.is_commit is not None), 0)
        return last if 0 < last <= 5 and self.chance.random() < 0.8 else self.chance.choice([1, 1, 2, 3])

    # What is done about it, and whether that was right

    def act(self, cluster: Cluster, audit: Audit) -> None:
        """Do what findings offer, and judge it record by record; sometimes twice, as what is live grows old."""
        time.sleep(0.2)  # markers of a coordinator that has just loaded
        for _ in range(self.chance.choice([1, 1, 1, 2])):
            self._act_once(cluster, audit)
        self._check_consumers()

    def _act_once(self, cluster: Cluster, audit: Audit) -> None:
        rows = cluster.finding_rows(topics=list(self.topics), recheck_after=RECHECK_AFTER)
        before, states = self._logs(), self._states()
        self.judged_at = time.time()
        live_before = {value for value in self.ledger.records if self.ledger.truth(value) is Truth.LIVE}
        self._count_verdicts(rows, before)
        done = self._do(cluster, rows, audit)
        after = self._logs()
        self._check_fences(done, states)
        touched = {producer_id for _, producer_id in done.markers} | done.fenced
        open_ids = {each.producer_id for each in before.open_transactions() if each.producer_id in touched}
        for walk in self.walks:
            if walk.transaction is not None and walk.transaction.producer_id in open_ids:
                self._try("last commit", walk, lambda walk: self._end(walk, commit=True))
        for text, opened, value in self._wrong(before, after, done, states, live_before):
            row = _row_of(rows, opened)
            if self._is_known_limit(text, opened, value, before, states):
                owner = self.ledger.decision(self.ledger.records[value])
                limit = "known limits" if owner and owner.version == 1 else "known limits, version 2 that nothing shows"
                limit = limit if owner else "known limits, a client of both versions"
                self.counts[limit] += 1
                self.trace.append(f"{limit}: {text}")
            else:
                self.violations.append(f"{text}; {_row_text(row)}\n{self._dump(opened, value, before, after, states)}")

    def _logs(self) -> PartitionLogs:
        return PartitionLogs({tp: read_batches(partition_folder(self.kafka, *tp)) for tp in self.tps})

    def _states(self) -> list[tuple[str, TransactionState]]:
        return [each for folder in state_folders(self.kafka).values() for each in read_states(folder)]

    def _count_verdicts(self, rows: Sequence[Row], logs: PartitionLogs) -> None:
        """How each open transaction was judged, by what was decided about its records.

        If it is unknown, also whether all is left that the coordinators' log had of its ids.
        """
        for opened in logs.open_transactions():
            truths = {self.ledger.truth(value) for value in opened.values}
            not_committed = {Truth.ABORTED, Truth.NEVER}
            truth = next(iter(truths)) if len(truths) == 1 else "not committed" if truths <= not_committed else "mixed"
            truth = "not committed" if truth in not_committed else truth
            row = _row_of(rows, opened)
            ids = {self.ledger.records[value].transactional_id for value in opened.values}
            lost = ids & {id_ for id_, _ in self.lost_states} or self.counts["steps: compaction"]
            log = "" if row is None or row["verdict"] != "unknown" else ", not all is left" if lost else ", all is left"
            verdict = f"{row['verdict']}/{row['outcome']}" if row else "no finding"
            self.counts[f"open, {truth}: {verdict}{log}"] += 1
            where = f"{opened.tp}@{opened.start_offset}, {sorted(map(str, truths))}{log}"
            self.trace.append(f"finding: {where}: {_row_text(row)}")

    def _do(self, cluster: Cluster, rows: Sequence[Row], audit: Audit) -> Done:
        """Plan everything first: a marker of `complete` waits for 10 s after its plan."""
        markers: dict[tuple[TopicPartition, int], str] = {}
        fenced: set[int] = set()
        plans: list[tuple[Row, Any]] = []
        for row in sorted(rows, key=lambda row: row["action"] == "complete"):
            if row["action"] in PLANS:
                try:
                    plans.append((row, PLANS[row["action"]](cluster, row)))
                except ToolkitError as error:
                    self.note(f"refused: {row['action']}", f"{_row_text(row)}: {error}")
        for row, plan in plans:
            action, producer_id = row["action"], row["producer_id"]
            options: dict[str, Any] = {} if action == "fence" else {"recheck_after": RECHECK_AFTER}
            target = f"{plan.target}, producer {producer_id}"
            try:
                plan.execute(confirm=plan.target, audit=audit, **options)
                self.note(f"done: {action}", target)
            except ActionRefused as error:
                self.note(f"refused: {action}", f"{target}: {error}")
                continue
            except ToolkitError as error:
                self.note(f"failed: {action}", f"{target}: {error}")
            if action == "fence":
                fenced.add(producer_id)
            else:
                markers[TopicPartition(row["topic"], row["partition"]), producer_id] = action
        return Done(markers=markers, fenced=frozenset(fenced))

    def _check_fences(self, done: Done, states: Sequence[tuple[str, TransactionState]]) -> None:
        """No live transaction is fenced before its timeout, unless its coordinator knows only a former epoch."""
        for each in self.ledger.transactions:
            last = _last_state(states, each.transactional_id)
            is_owned = last is not None and (last.producer_id, last.producer_epoch) == each.producer[1:]
            if each.truth is Truth.LIVE and each.producer_id in done.fenced and is_owned and not each.is_overdue:
                self.violations.append(f"live, fenced before its timeout: {each}")

    def _wrong(
        self,
        before: PartitionLogs,
        after: PartitionLogs,
        done: Done,
        states: Sequence[tuple[str, TransactionState]],
        live_before: set[str],
    ) -> Iterator[tuple[str, OpenTransaction, str]]:
        """Each record that an action has lost or published."""
        fates = after.fates()
        for opened in before.open_transactions():
            action = done.action(opened)
            if action is None:
                continue
            for value in opened.values:
                truth, fate = self.ledger.truth(value), fates.get(value, Fate.OPEN)
                where = f"{value} at {opened.tp}"
                if truth is Truth.COMMITTED and fate is Fate.DISCARDED:
                    was = ", which was live," if value in live_before else ""
                    yield f"{where}{was} {LOSES} {action}", opened, value
                elif fate is Fate.DELIVERED and (truth in {Truth.ABORTED, Truth.NEVER} or value in live_before):
                    yield f"{where}, {truth}, {PUBLISHES} {action}", opened, value
                elif value in live_before and fate is Fate.DISCARDED and action != "fence":
                    owner = self.ledger.decision(self.ledger.records[value])
                    if owner is not None and _lists(states, owner, opened.tp):
                        yield f"{where}, live, ended by {action}", opened, value

    def _is_known_limit(
        self,
        text: str,
        opened: OpenTransaction,
        value: str,
        logs: PartitionLogs,
        states: Sequence[tuple[str, TransactionState]],
    ) -> bool:
        """Whether version 1 lost a tail of ``__transaction_state`` that no other partition shows.

        What included the partition is lost: the decision, or the record that added it. The log that is left does not
        begin after the record, and explains every COMMIT marker of the transaction on other partitions. The same holds
        for version 2 as long as nothing that is left shows it: no record of its version, unless only the decision is
        lost, and no batch or marker of a later epoch. A client of both versions is one, too.
        """
        record = self.ledger.records[value]
        owner = self.ledger.decision(record)
        if PUBLISHES in text and owner is None:
            return self._was_written_beside_version_2(record, states)
        if LOSES not in text or owner is None:
            return False
        log = [state for id_, state in states if id_ == owner.transactional_id]
        if owner.version == 2 and _shows_version_2(opened, owner, logs, log):
            return False
        is_decided = owner.ended is not None and owner.ended[0] < self.judged_at

        def is_included(tp: TopicPartition) -> bool:
            """Whether the log that is left decides the transaction with this partition, or has it in a live one."""
            return any(
                tp in state.topic_partitions
                and state.producer_id == opened.producer_id
                and owner.begun <= _updated(state) <= owner.last_time
                and (state.state.startswith("Prepare") or not is_decided)
                for state in log
            )

        def was_lost(left_until: float, at: float) -> bool:
            is_decision = owner.ended is not None and owner.ended[1] < at
            # A record that was in no transaction when it was written is in the one that added its partition next.
            added = max(record.written, owner.begun)
            return owner.begun < at and left_until < (owner.last_time if is_decision else added)

        own = coordinator_partition(owner.transactional_id, STATE_PARTITIONS)
        return (
            any(_updated(state) <= record.written for state in log)
            and any(was_lost(left_until, at) for number, left_until, at in self.losses if number == own)
            and not is_included(opened.tp)
            and all(
                is_included(tp)
                for tp, marker in logs.markers(opened.producer_id)
                if tp != opened.tp and marker.is_commit and owner.begun <= marker.timestamp_ms / 1000 <= owner.last_time
            )
        )

    def _was_written_beside_version_2(self, record: WalkRecord, states: Sequence[tuple[str, TransactionState]]) -> bool:
        """Whether a transaction of version 2 with the epoch of a record that was never added was committed.

        And nothing is left in the coordinators' log of what it included.
        """
        return not any(
            state.topic_partitions
            and state.producer_id == record.producer_id
            # the decision has the next epoch, as has the next transaction
            and _epoch(state) - record.producer_epoch in ({0} if state.state == "Ongoing" else {0, 1})
            for _, state in states
        ) and any(
            each.version == 2 and each.truth is Truth.COMMITTED and each.producer == record.producer
            for each in self.ledger.transactions
        )

    def _check_consumers(self) -> None:
        """A read_committed consumer receives what the logs say, up to the LSO; markers may still be on their way."""

        def received() -> tuple[PartitionLogs, Counter[str]] | None:
            logs, found = self._logs(), self._consume()
            return (logs, found) if self._logs() == logs else None

        logs, found = until(received, awaited="the last markers", timeout=60)
        fates = logs.fates()
        expected = Counter(
            value
            for tp, batches in logs.batches.items()
            for lso in [logs.lso(tp)]
            for each in batches
            if lso is None or each.base_offset < lso
            for value in each.values
            if fates[value] is Fate.DELIVERED
        )
        if found != expected:
            more, less = sorted(found - expected), sorted(expected - found)
            dump = [f"{tp}: {batch}" for tp, batches in logs.batches.items() for batch in batches]
            text = f"a consumer receives {more} beyond what the logs say, and not {less}"
            self.violations.append("\n  ".join([text, *dump, *self.trace]))

    def _consume(self) -> Counter[str]:
        return Counter((each.value() or b"").decode() for each in received(self.kafka, self.tps))

    def _dump(
        self,
        opened: OpenTransaction,
        value: str,
        before: PartitionLogs,
        after: PartitionLogs,
        states: Sequence[tuple[str, TransactionState]],
    ) -> str:
        """What is known of a violation."""
        record = self.ledger.records[value]
        owner = self.ledger.decision(record)
        own = [each for each in self.ledger.transactions if owner and each.transactional_id == owner.transactional_id]
        ids = {each.transactional_id for each in own} | {
            id_ for id_, state in states if state.producer_id == opened.producer_id
        }
        lines = [f"record {record}", f"decided by {owner}", "transactions:", *map(str, own), "state records before:"]
        lines += [_state_text(id_, state) for id_, state in states if id_ in ids]
        for tp, batches in before.batches.items():
            if any(each.producer_id == opened.producer_id for each in batches):
                lines += [f"{tp} before:", *map(str, batches)]
        lines += [f"{opened.tp} after:", *map(str, after.batches[opened.tp]), "trace:", *self.trace]
        return "\n  ".join(lines)

    def close(self) -> None:
        """Close its connections."""
        self.client.close()


def _row_of(rows: Sequence[Row], opened: OpenTransaction) -> Row | None:
    wanted = (*opened.tp, opened.producer_id)
    return next((row for row in rows if (row["topic"], row["partition"], row["producer_id"]) == wanted), None)


def _row_text(row: Row | None) -> str:
    if row is None:
        return "no finding"
    return f"{row['verdict']}/{row['outcome']}/{row['action']} ({row['cause']}) {row['reason']} {list(row['missing'])}"


def _state_text(transactional_id: str, state: TransactionState) -> str:
    tps = ", ".join(map(str, state.topic_partitions))
    at = dt.datetime.fromtimestamp((state.last_update_timestamp_ms or 0) / 1000, dt.UTC)
    return (
        f"{transactional_id} {state.state} {state.producer_id}/{state.producer_epoch} {at:%H:%M:%S.%f} [{tps}] "
        f"v{state.client_transaction_version} start {state.start_timestamp_ms} prev {state.previous_producer_id}"
    )


def _lists(states: Sequence[tuple[str, TransactionState]], owner: WalkTransaction, tp: TopicPartition) -> bool:
    """Whether the last record of an id has a partition in an open transaction."""
    last = _last_state(states, owner.transactional_id)
    return last is not None and last.state == "Ongoing" and tp in last.topic_partitions


def _last_state(states: Sequence[tuple[str, TransactionState]], transactional_id: str) -> TransactionState | None:
    return next((state for id_, state in reversed(states) if id_ == transactional_id), None)


def _shows_version_2(
    opened: OpenTransaction, owner: WalkTransaction, logs: PartitionLogs, log: Sequence[TransactionState]
) -> bool:
    """Whether what is left of an id's records, or of its producer's batches, contradicts that nothing includes them."""
    of_producer = [
        (tp, each) for tp, batches in logs.batches.items() for each in batches if each.producer_id == opened.producer_id
    ]
    epoch = next(
        each.producer_epoch
        for tp, each in of_producer
        if tp == opened.tp and each.is_commit is None and each.last_offset >= opened.start_offset
    )
    ongoing = [state for state in log if state.state == "Ongoing"]
    recorded = max((_epoch(state) for state in log if state.producer_id == opened.producer_id), default=epoch)
    # A client that goes on with version 1 within the epoch may have written late, or what it did not add.
    if any(state.producer_epoch == epoch and state.client_transaction_version != 2 for state in ongoing):
        return False
    # Only the decision is lost.
    is_added = any(opened.tp in state.topic_partitions and owner.begun <= _updated(state) for state in ongoing)
    # A later client of another version has an epoch of its own, which InitProducerId began.
    later = [_epoch(state) for state in log if state.state == "Empty" and _epoch(state) > epoch]
    is_of_version_2 = any(
        state.client_transaction_version == 2 and _epoch(state) < min(later, default=math.inf) for state in log
    )
    return (is_of_version_2 and not is_added) or any(each.producer_epoch > recorded for _, each in of_producer)


def _epoch(state: TransactionState) -> int:
    return -1 if state.producer_epoch is None else state.producer_epoch


def _updated(state: TransactionState) -> float:
    """When a coordinator changed a state; to the millisecond, up to which other times are cut, too."""
    return ((state.last_update_timestamp_ms or 0) + 1) / 1000


def _end_of(folder: Path) -> int:
    batches = read_batches(folder)
    return batches[-1].last_offset + 1 if batches else 0


# The campaign


def run(sitting: Sitting, *parts: str) -> None:
    """Rounds on clusters of all versions, or of those that are named; of ``version/cluster/round`` only that round."""
    places = [tuple(part.split("/")) for part in parts or VERSIONS]
    number = 0
    while not (sitting.is_over and number):
        version, *at = places[number % len(places)]
        cluster = int(at[0]) if at else number // len(places)
        rounds = [int(at[1])] if at else range(ROUNDS)
        run_cluster(sitting, version, cluster, rounds)
        number += 1
        if at and number == len(places):
            break


def run_cluster(sitting: Sitting, version: str, number: int, rounds: Sequence[int]) -> None:
    """Some rounds on a cluster of its own, until the time is over."""
    name = f"{sitting.seed}/{version}/{number}"
    chance = random.Random(name)
    properties = {**PROPERTIES, "transaction.partition.verification.enable": str(chance.random() < 0.3).lower()}
    with _cluster(version, properties) as (kafka, folder):
        audit = Audit(folder / "audit.jsonl")
        for each in rounds:
            went_well = _run_round(sitting, Round(kafka, f"{name}/{each}", folder), audit)
            if sitting.is_over or not went_well:
                break


@contextmanager
def _cluster(version: str, properties: Mapping[str, str]) -> Iterator[tuple[Kafka, Path]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = stack.enter_context(Kafka(version, properties=properties))
        with BrokerClient(config_of(kafka)) as client:  # the first id creates the topic of the coordinators
            TxnProducer(client, "first").init()
            await_coordinators(client)
        yield kafka, folder


def _run_round(sitting: Sitting, found: Round, audit: Audit) -> bool:
    """Run and judge a round; whether the cluster is fit for another one."""
    began, went_well = time.monotonic(), True
    try:
        found.run()
        with Cluster(found.kafka.bootstrap_servers) as cluster:
            found.act(cluster, audit)
    except Exception as error:  # noqa: BLE001 - the next cluster may go on
        went_well = False
        traceback.print_exc()
        print("\n  ".join(found.trace), flush=True)
        sitting.wrong(f"{found.name}: {error!r:.1000}")
    finally:
        found.close()
    sitting.counts["rounds"] += 1
    sitting.counts[f"rounds: {found.kafka.version}"] += 1
    sitting.counts.update(found.counts)
    sitting.counts["violations"] += len(found.violations)
    done = {key: count for key, count in found.counts.items() if not key.startswith(("steps", "clients"))}
    print(f"{time.strftime('%H:%M:%S')} {found.name}: {time.monotonic() - began:.1f} s, {done}", flush=True)
    for line in found.trace:
        if line.startswith("finding: ") or any(each in line for each in ("refused: ", "failed: ", "known limits")):
            print(f"    {line}", flush=True)
    for violation in found.violations:
        print(f"VIOLATION {found.name}: {violation}", flush=True)
        sitting.wrong(f"{found.name}: {violation.partition(chr(10))[0]:.1000}")
    return went_well
