"""Abort markers raced against live producers on a real broker.

Producers of every kind work at random on the same partitions: they begin, write, commit and abort, at once or slowly,
are fenced by a newer instance, leave a hanging transaction, or resume it. Meanwhile abort plans are made from findings,
forged ones among them, and executed after a random delay.

No tool can detect a transaction that resumes within the few milliseconds between the last query and its marker; one
that resumed before the audit trail had the intent must not be aborted.
"""

import datetime as dt
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from toolkit import Cluster
from toolkit.actions.abort import plan_abort
from toolkit.actions.audit import Audit
from toolkit.config import ClientConfig
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.clients import RequestRefused, TxnProducer, partitions, send_until_accepted, until
from toolkit.sources.live.client import messages
from toolkit.sources.live.client.broker_client import BrokerClient

PARTITIONS, OPERATORS = 8, 2
ALREADY_EXISTS = 36

HANGING = {"verdict": "hanging", "outcome": "undecided", "action": "abort"}

OutcomeCounts = Counter[tuple[str, str]]
"""How often a read_committed consumer reads a record, by transactional id and value."""


@dataclass
class Race:
    """What the producers did, and the expected outcome; `count` transactions, which `seed` chooses.

    `producers` write at the same time, and each operator tries `at_once` markers.
    """

    topic: str
    seed: str
    count: int
    producers: int = 4
    at_once: int = 3
    visible: OutcomeCounts = field(default_factory=Counter)
    hanging: set[int] = field(default_factory=set)  # producer ids; only an abort marker ends them
    unfinished: set[int] = field(default_factory=set)  # likewise; only a COMMIT marker ends them
    resumed: dict[int, tuple[dt.datetime, OutcomeCounts]] = field(default_factory=dict)  # when; its committed output
    is_done: threading.Event = field(default_factory=threading.Event)
    refusals: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def timeout(self) -> float:
        """In seconds."""
        return 600 + 2 * self.count

    def commits(self, producer: TxnProducer, *values: int) -> None:
        with self.lock:
            self.visible.update((producer.transactional_id, f"record {value}") for value in values)


def pause(rng: random.Random, max_seconds: float) -> None:
    time.sleep(rng.random() * max_seconds)


def healthy(race: Race, producer: TxnProducer, rng: random.Random) -> None:
    """One or two partitions, one or more batches, committed or aborted."""
    values: list[int] = []
    commit, partitions = rng.random() < 0.7, rng.sample(range(PARTITIONS), rng.choice([1, 2]))
    for number, partition in enumerate(partitions):
        producer.add(race.topic, partition)
        producer.send(race.topic, partition)
        values += [0]
        pause(rng, rng.choice([0.01, 0.2, 1.5]))
        if number == 0 and rng.random() < 0.5:
            producer.send(race.topic, partition, records=2)
            values += [1, 2]
    producer.end(commit=commit)
    if commit:
        race.commits(producer, *values)


def fenced(race: Race, producer: TxnProducer, rng: random.Random) -> None:
    """A newer instance has the coordinator abort the open transaction, and commits its own on the same partition."""
    partition = rng.randrange(PARTITIONS)
    producer.add(race.topic, partition)
    producer.send(race.topic, partition)
    pause(rng, 0.5)
    newer = TxnProducer(producer.cluster, producer.transactional_id).init()
    with pytest.raises(RequestRefused):
        producer.send(race.topic, partition)
    newer.add(race.topic, partition)
    newer.send(race.topic, partition)
    pause(rng, 0.5)
    newer.end(commit=True)
    race.commits(newer, 0)


def late(race: Race, producer: TxnProducer, rng: random.Random) -> None:
    """A batch that arrives after the end of its transaction hangs."""
    commit, partition = rng.random() < 0.5, rng.randrange(PARTITIONS)
    producer.add(race.topic, partition)
    producer.send(race.topic, partition)
    producer.end(commit=commit)
    if commit:
        race.commits(producer, 0)
    pause(rng, 0.2)
    producer.send(race.topic, partition)
    race.hanging.add(producer.producer_id)


def never_added(race: Race, producer: TxnProducer, rng: random.Random) -> None:
    """A write to a partition that is not in the transaction hangs, independent of its producer's other partitions."""
    one, other = rng.sample(range(PARTITIONS), 2)
    producer.send(race.topic, one, records=3)
    race.hanging.add(producer.producer_id)
    producer.add(race.topic, other)
    producer.send(race.topic, other)
    pause(rng, 0.5)
    producer.end(commit=True)
    race.commits(producer, 0)


def resumed(race: Race, producer: TxnProducer, rng: random.Random) -> None:
    """A hanging transaction is added to its coordinator after all, and committed, unless it was aborted before that."""
    partition = rng.randrange(PARTITIONS)
    producer.send(race.topic, partition)
    pause(rng, 1.5)
    producer.add(race.topic, partition)
    race.resumed[producer.producer_id] = dt.datetime.now(dt.UTC), Counter({(producer.transactional_id, "record 0"): 1})
    pause(rng, 0.3)
    producer.end(commit=True)


KINDS: Mapping[Callable[[Race, TxnProducer, random.Random], None], int] = {
    healthy: 5,
    fenced: 1,
    late: 2,
    never_added: 1,
    resumed: 2,
}
"""The kinds of transactions, and their weights."""


def produce(kafka: Kafka, race: Race, numbers: range) -> None:
    rng = random.Random(f"{race.seed}-{numbers.start}")
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client:
        for number in numbers:
            (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
            kind(race, TxnProducer(client, f"{race.topic}-{kind.__name__}-{number}").init(), rng)


def operate(kafka: Kafka, race: Race, number: int, audit: Audit) -> None:
    """Abort hanging transactions, and try to abort others, until all have ended."""
    rng = random.Random(f"{race.seed}-operator-{number}")
    deadline = time.monotonic() + race.timeout
    with Cluster(kafka.bootstrap_servers) as cluster, ThreadPoolExecutor(race.at_once) as threads:
        while time.monotonic() < deadline:
            was_done = race.is_done.is_set()
            rows = cluster.finding_rows(
                topics=[race.topic], recheck_after=rng.choice([0, 0.1, 0.5]), log_evidence=False
            )
            open_rows = [row for row in rows if row["start_offset"] is not None]
            if was_done and not open_rows:
                return
            tried = [row for row in open_rows if row["verdict"] == "hanging" or rng.random() < 0.3]
            tries = [
                threads.submit(try_abort, cluster, race, forged(row), random.Random(rng.random()), audit)
                for row in rng.sample(tried, min(len(tried), race.at_once))
            ]
            for each in tries:
                each.result()
    pytest.fail(f"a transaction is still open after {race.timeout} s")


def forged(row: Mapping[str, Any]) -> Mapping[str, object]:
    """The row of a finding as one that is proven to hang."""
    where = f"offset {row['start_offset']} of {row['topic']}-{row['partition']}"
    claims = {"claim_not_owned": f"no live transaction owns {where}", "claim_no_commit": f"no commit includes {where}"}
    entry = {"source": "claims", "broker_id": None, "observed_at": row["observed_at"]}
    proven = [entry | {"name": name, "value": f"{claim}: proven"} for name, claim in claims.items()]
    return {**row, **HANGING, "evidence": [*row["evidence"], *proven]}


def try_abort(cluster: Cluster, race: Race, row: Mapping[str, object], rng: random.Random, audit: Audit) -> None:
    with race.lock:
        race.attempts += 1
    try:
        plan = plan_abort(cluster, row)
        pause(rng, rng.choice([0.01, 0.3]))
        plan.execute(confirm=plan.target, audit=audit, recheck_after=rng.choice([0, 0.1]))
    except ActionRefused as error:
        with race.lock:
            race.refusals[error.what.partition(" is ")[2][:20]] += 1


def create(kafka: Kafka, topic: str) -> None:
    new = messages.CreateTopics.CreatableTopic(
        name=topic, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client:
        send_until_accepted(
            client,
            lambda: messages.CreateTopics(topics=[new], timeout_ms=10_000, validate_only=False),
            of=topic,
            # A request that is repeated after a timeout may have created it.
            codes=lambda message: [each.error_code for each in message.topics if each.error_code != ALREADY_EXISTS],
        )
        until(lambda: True if len(partitions(client, topic)) == PARTITIONS else None, awaited="the leaders")


def read_committed(kafka: Kafka, topic: str) -> OutcomeCounts:
    options = {"isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer({**kafka.client_config(), "group.id": topic, **options})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    observed: OutcomeCounts = Counter()
    ends = 0
    while ends < PARTITIONS:
        message = consumer.poll(10)
        assert message is not None, "no response within 10 s"
        if message.error():
            ends += 1
        else:
            observed[(message.key() or b"").decode(), (message.value() or b"").decode()] += 1
    consumer.close()
    return observed


def run_race(kafka: Kafka, race: Race, audit: Audit) -> None:
    """Producers and operators at the same time, until all is done; then what is in the log is compared."""
    create(kafka, race.topic)
    share = -(-race.count // race.producers)
    with ThreadPoolExecutor(race.producers + OPERATORS) as threads:
        operators = [threads.submit(operate, kafka, race, number, audit) for number in range(OPERATORS)]
        producers = [
            threads.submit(produce, kafka, race, range(number * share, min(race.count, (number + 1) * share)))
            for number in range(race.producers)
        ]
        failures = [failure for each in producers if (failure := each.exception())]
        race.is_done.set()
        failures += [failure for each in operators if (failure := each.exception())]
    assert failures == [], f"seed {race.seed}: {failures}"
    check(race, audit, read_committed(kafka, race.topic))


def check(race: Race, audit: Audit, observed: OutcomeCounts) -> None:
    """Whether consumers read what was committed and nothing else, and markers ended what had no owner."""
    rows = audit.rows()
    intents = {row["action_id"]: row for row in rows if row["step"] == "intent"}
    written = [row for row in rows if row["step"] == "outcome" and row["response"] == "NONE"]
    commits = {row["producer_id"] for row in written if row["outcome"] == "commit"}
    sent = [row for row in written if row["outcome"] != "commit"]
    aborted = {row["producer_id"] for row in sent}
    assert audit.unfinished() == []
    assert commits == race.unfinished, f"seed {race.seed}: not completed"
    assert race.hanging <= aborted, f"seed {race.seed}: not ended"
    assert aborted <= race.hanging | race.resumed.keys(), f"seed {race.seed}: a healthy transaction was aborted"
    expected = Counter(race.visible)
    for producer_id, (added_at, output) in race.resumed.items():
        intent_times = [intents[row["action_id"]]["at"] for row in sent if row["producer_id"] == producer_id]
        if not intent_times:
            expected.update(output)
        assert all(at < added_at for at in intent_times), f"seed {race.seed}: it had resumed before"
    assert observed == expected, f"seed {race.seed}"
