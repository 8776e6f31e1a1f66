"""Commits and aborts whose marker was skipped, completed and aborted while other producers write to the partitions.

Two brokers of 4.3.1: the second is down while transactions end, so that their coordinators skip its markers
(KAFKA-20734). What was committed is delivered exactly once, by `complete`; nothing else is ended by a marker.
"""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.actions.test_complete import AWAY, HERE, producer_here
from tests.tools.large.broker_races import HANGING, OPERATORS, PARTITIONS, Race, check, healthy, read_committed
from toolkit import Cluster
from toolkit.actions.abort import plan_abort
from toolkit.actions.audit import Audit
from toolkit.actions.complete import plan_complete
from toolkit.config import ClientConfig
from toolkit.errors import ActionRefused
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, leader
from toolkit.schema import Row
from toolkit.sources.live.client.broker_client import BrokerClient

UNFINISHED = {"verdict": "stuck_ending", "outcome": "commit", "action": "complete"}  # forged


def run_race(kafka: Kafka, race: Race, audit: Audit) -> None:
    """One outage: what it skips is completed and aborted in the middle of `count` other transactions."""
    rng = random.Random(race.seed)
    with Cluster(kafka.bootstrap_servers) as cluster:
        _create(kafka, race.topic, AWAY, PARTITIONS)
        _create(kafka, f"{race.topic}-here", HERE, 1)
        _skip(kafka, cluster, race, rng)
        with ThreadPoolExecutor(race.producers + OPERATORS) as threads:
            operators = [threads.submit(_operate, kafka, race, number, audit) for number in range(OPERATORS)]
            producers = [threads.submit(_produce, kafka, race, number) for number in range(race.producers)]
            failures = [failure for each in producers if (failure := each.exception())]
            race.is_done.set()
            failures += [failure for each in operators if (failure := each.exception())]
    assert failures == [], f"seed {race.seed}: {failures}"
    check(race, audit, read_committed(kafka, race.topic))


def _skip(kafka: Kafka, cluster: Cluster, race: Race, rng: random.Random) -> None:
    """Transactions on each partition, ended while its leader is down; some producers go on elsewhere.

    They have version 2, whose commits are proven.
    """
    here, count = f"{race.topic}-here", max(PARTITIONS, race.count // 5)
    names = [f"{race.topic}-skipped-{number}" for number in range(count)]
    producers = [producer_here(cluster, name, transaction_version=2) for name in names]
    for number, producer in enumerate(producers):
        producer.add(here, 0)
        producer.send(here, 0)
        producer.add(race.topic, number % PARTITIONS)
        producer.send(race.topic, number % PARTITIONS, records=2)
    kafka.stop_broker(AWAY)
    for producer in producers:
        commit = rng.random() < 0.6
        producer.end(commit=commit)
        if commit:
            race.commits(producer, 0, 1)
            race.unfinished.add(producer.producer_id)
        else:
            race.hanging.add(producer.producer_id)
        for _ in range(rng.choice([0, 0, 1, 3])):
            producer.add(here, 0)
            producer.send(here, 0)
            producer.end(commit=rng.random() < 0.7)
    kafka.start_broker(AWAY)
    for number in range(PARTITIONS):
        leader(cluster.client, race.topic, number)


def _produce(kafka: Kafka, race: Race, number: int) -> None:
    rng = random.Random(f"{race.seed}-{number}")
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client:
        for count in range(race.count // race.producers):
            healthy(race, TxnProducer(client, f"{race.topic}-healthy-{number}-{count}").init(), rng)


def _operate(kafka: Kafka, race: Race, number: int, audit: Audit) -> None:
    """Do what findings say, and try what they do not, until nothing is open."""
    rng = random.Random(f"{race.seed}-operator-{number}")
    deadline = time.monotonic() + race.timeout
    with Cluster(kafka.bootstrap_servers) as cluster, ThreadPoolExecutor(race.at_once) as threads:
        while time.monotonic() < deadline:
            was_done = race.is_done.is_set()
            rows = cluster.finding_rows(topics=[race.topic], recheck_after=rng.choice([0.1, 0.5]))
            open_rows = [row for row in rows if row["start_offset"] is not None]
            if was_done and not open_rows:
                return
            chosen = rng.sample(open_rows, min(len(open_rows), race.at_once))
            list(threads.map(lambda row: _try(cluster, race, row, random.Random(rng.random()), audit), chosen))
    raise TimeoutError(f"a transaction is still open after {race.timeout} s: {open_rows}")


def _try(cluster: Cluster, race: Race, row: Row, rng: random.Random, audit: Audit) -> None:
    is_offered = row["action"] in {"abort", "complete"}
    wanted = row if is_offered and rng.random() < 0.7 else {**row, **rng.choice([HANGING, UNFINISHED])}
    with race.lock:
        race.attempts += 1
    try:
        if wanted["action"] == "complete":
            complete = plan_complete(cluster, wanted)
            complete.execute(confirm=complete.target, audit=audit, recheck_after=0.1)
        else:
            abort = plan_abort(cluster, wanted)
            threading.Event().wait(rng.random() * 0.3)
            abort.execute(confirm=abort.target, audit=audit, recheck_after=0.1)
    except ActionRefused as error:
        with race.lock:
            race.refusals[error.what.partition(" is ")[2][:20]] += 1


def _create(kafka: Kafka, topic: str, broker_id: int, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for done in admin.create_topics([NewTopic(topic, count, replica_assignment=[[broker_id]] * count)]).values():
        done.result()
