"""Real producers commit, abort, time out and are fenced while the findings are asked for in a loop."""

import os
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from toolkit import Cluster
from toolkit.lab import Kafka

SECONDS = float(os.environ.get("KAFKA_TXN_RACE_SECONDS", "20"))
WORKERS = 6
PARTITIONS = 4


@pytest.fixture(scope="module", params=["3.5.2", "4.3.1"])
def busy_kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    fast_timeouts = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
    with Kafka(request.param, properties=fast_timeouts) as kafka:
        yield kafka


class Worker(threading.Thread):
    """A client whose transactions end in every way a transaction can."""

    def __init__(self, kafka: Kafka, topic: str, name: str, stop: threading.Event) -> None:
        super().__init__(name=name)
        self.random = random.Random(name)
        self.topic, self.stop = topic, stop
        self.endings: Counter[str] = Counter()
        self.config = kafka.client_config() | {
            "transactional.id": name,
            "transaction.timeout.ms": 1000,
            "message.timeout.ms": 1000,
            "linger.ms": 0,
            "log_level": 0,
        }

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                self.life(Producer(self.config))
            except KafkaException:
                self.endings["failed"] += 1

    def life(self, producer: Producer) -> None:
        """One instance: some transactions, then it is fenced, left to time out, or closed."""
        producer.init_transactions(10)
        for _ in range(self.random.randint(1, 30)):
            producer.begin_transaction()
            for _ in range(self.random.randint(1, 4)):
                producer.produce(self.topic, b"value", partition=self.random.randrange(PARTITIONS))
                if self.random.random() < 0.5:
                    producer.flush(5)
            ending = self.random.choices(["commit", "abort", "fence", "timeout"], [60, 30, 5, 2])[0]
            self.endings[ending] += 1
            if ending == "commit":
                producer.commit_transaction(10)
            elif ending == "abort":
                producer.abort_transaction(10)
            elif ending == "fence":
                producer.flush(5)
                return  # the next instance takes over an open transaction
            else:
                producer.flush(5)
                self.stop.wait(1.5)
                return
            if self.stop.is_set():
                return


def look_on(kafka: Kafka, *, timeout: float, replicas: int, fits: frozenset[str]) -> tuple[Counter[str], Counter[str]]:
    """Let workers work, ask for the findings in a loop, and return the verdicts and the endings.

    Parameters
    ----------
    fits
        Verdicts that may be said of what these workers do.
    """
    topic = f"busy-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=replicas)])[topic].result()
    stop = threading.Event()
    workers = [Worker(kafka, topic, f"worker-{i}", stop) for i in range(WORKERS)]
    verdicts: Counter[str] = Counter()
    calls = 0
    with Cluster(kafka.bootstrap_servers, timeout=timeout) as cluster:
        for worker in workers:
            worker.start()
        try:
            deadline = time.monotonic() + SECONDS
            while time.monotonic() < deadline:
                found = cluster.findings(looks_apart=0 if calls % 3 else 1.1)
                verdicts.update(found["verdict"])
                wrong = found[~found["verdict"].isin(fits)]
                assert wrong.empty, wrong.to_json(orient="records", indent=1)
                calls += 1
        finally:
            stop.set()
            for worker in workers:
                worker.join()
    return verdicts, sum((worker.endings for worker in workers), Counter[str]())


@pytest.mark.lab
def test_no_live_transaction_is_ever_called_hanging(busy_kafka: Kafka) -> None:
    fits = frozenset({"ongoing", "ending", "unknown"})
    verdicts, endings = look_on(busy_kafka, timeout=30, replicas=1, fits=fits)
    assert verdicts["ongoing"] >= SECONDS, "the loop must have looked at open transactions"
    assert min(endings[kind] for kind in ("commit", "abort", "fence", "timeout")) > 0, endings


@pytest.mark.lab
def test_nor_while_brokers_die_and_coordinators_move() -> None:
    """Leaders and coordinators move, logs are loaded, answers are missing: `unknown` is right, `hanging` never."""
    properties = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
    with Kafka("4.3.1", brokers=3, properties=properties) as kafka:
        stop = threading.Event()

        def chaos() -> None:
            chosen = random.Random(1)
            while not stop.is_set():
                broker_id = chosen.choice([2, 3])
                kafka.kill(broker_id)
                stop.wait(chosen.uniform(0.5, 3))
                kafka.start_broker(broker_id)

        killer = threading.Thread(target=chaos)
        killer.start()
        try:
            fits = frozenset({"ongoing", "ending", "unknown", "overdue", "unreplicated", "stuck_ending"})
            verdicts, endings = look_on(kafka, timeout=3, replicas=3, fits=fits)
        finally:
            stop.set()
            killer.join()
    assert verdicts["ongoing"] > 0
    assert endings["commit"] > 0
