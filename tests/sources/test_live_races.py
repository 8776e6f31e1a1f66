"""Real producers commit, abort, time out and are fenced while findings are read, and samples taken, in a loop."""

import datetime as dt
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

import pytest

from tests.builders import create_topics
from tests.process import PATIENCE_S
from tests.tiers import amount
from tests.workload import Worker
from toolkit import Cluster
from toolkit.lab import Kafka
from toolkit.sources.recording.recorder import Sampler
from toolkit.sources.recording.recording import Sample

DURATION_S = amount(4, full=20)
WORKERS = 6
ENDINGS = {"commit": 60, "abort": 30, "fence": 5, "timeout": 2}
PARTITIONS = 4


@pytest.fixture(scope="module", params=[pytest.param("3.5.2", marks=pytest.mark.full), "4.3.1"])
def busy_kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    fast_timeouts = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
    with Kafka(request.param, properties=fast_timeouts) as kafka:
        yield kafka


def diagnose_in_a_loop(
    kafka: Kafka, *, timeout: float, replicas: int, fits: frozenset[str]
) -> tuple[Counter[str], Counter[str]]:
    """Run the workers, read findings in a loop, all of verdicts that fit, and return the verdicts and the endings."""
    topic = f"busy-{uuid.uuid4().hex[:8]}"
    create_topics(kafka, topic, partitions=PARTITIONS, replicas=replicas)
    stop = threading.Event()
    topic_partitions = [(topic, partition) for partition in range(PARTITIONS)]
    workers = [Worker(kafka, topic_partitions, f"worker-{i}", stop, endings=ENDINGS) for i in range(WORKERS)]
    verdicts: Counter[str] = Counter()
    calls = 0
    sampler = Sampler(connect=partial(Cluster, kafka.bootstrap_servers, timeout=timeout), interval_ms=1_000)
    sample: Sample | None = None
    with Cluster(kafka.bootstrap_servers, timeout=timeout) as cluster:
        for worker in workers:
            worker.start()
        try:
            deadline = time.monotonic() + DURATION_S
            while time.monotonic() < deadline or not ENDINGS.keys() <= endings_of(workers).keys():
                found = cluster.findings(recheck_after=0 if calls % 3 else 1.1)
                verdicts.update(found["verdict"])
                wrong = found[~found["verdict"].isin(fits)]
                assert wrong.empty, wrong.to_json(orient="records", indent=1)
                sample = sampler.take(dt.datetime.now(dt.UTC), sample)
                assert {each.verdict for each in sample.findings} <= fits, sample.findings
                calls += 1
        finally:
            stop.set()
            sampler.close()
            for worker in workers:
                worker.join(PATIENCE_S)
    return verdicts, endings_of(workers)


def endings_of(workers: Iterable[Worker]) -> Counter[str]:
    return sum((worker.endings for worker in workers), Counter[str]())


@pytest.mark.lab
@pytest.mark.longer
def test_no_live_transaction_is_ever_hanging(busy_kafka: Kafka) -> None:
    fits = frozenset({"ongoing", "ending", "unknown"})
    verdicts, endings = diagnose_in_a_loop(busy_kafka, timeout=30, replicas=1, fits=fits)
    assert verdicts["ongoing"] >= DURATION_S, "the loop must have looked at open transactions"
    assert min(endings[kind] for kind in ("commit", "abort", "fence", "timeout")) > 0, endings


@pytest.mark.lab
@pytest.mark.full
def test_no_live_transaction_is_hanging_while_brokers_die() -> None:
    """Leaders and coordinators move, logs are loaded, answers are missing: `unknown` is right, `hanging` never."""
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
    with Kafka("4.3.1", brokers=3, properties=properties) as kafka:
        stop = threading.Event()

        def chaos() -> None:
            selected = random.Random(1)
            while not stop.is_set():
                broker_id = selected.choice([2, 3])
                kafka.kill(broker_id)
                stop.wait(selected.uniform(0.5, 3))
                kafka.start_broker(broker_id)

        killer = threading.Thread(target=chaos)
        killer.start()
        try:
            fits = frozenset({"ongoing", "ending", "unknown", "overdue", "unreplicated", "stuck_ending"})
            verdicts, endings = diagnose_in_a_loop(kafka, timeout=3, replicas=3, fits=fits)
        finally:
            stop.set()
            killer.join(PATIENCE_S)
    assert verdicts["ongoing"] > 0
    assert endings["commit"] > 0
