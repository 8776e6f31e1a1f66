"""Real producers whose transactions end in every possible way, on topics of every kind."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.builders import create_topics
from toolkit.analysis.transaction_owners import OPEN_STATES
from toolkit.errors import LabError
from toolkit.lab.broker import Kafka
from toolkit.lab.clients import until
from toolkit.sources.live.cluster import Cluster

BUSY: Mapping[str, object] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "log.cleaner.backoff.ms": 200,
    "log.retention.check.interval.ms": 1000,
}
"""Broker settings with short intervals, so that a workload takes seconds instead of minutes."""

ENDINGS = {"commit": 55, "abort": 25, "empty": 4, "idle": 6, "fence": 6, "timeout": 3}
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
COPIED = 2000  # messages that each Java client copies in transactions
PATIENCE_S = 600  # on a busy machine, for steps that take seconds
COPY_TIMEOUT_S = 150  # for steps that take 5 s

LEFT_OPEN = """
import sys, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": sys.argv[2],
                     "transaction.timeout.ms": int(sys.argv[5]), "log_level": 0})
producer.init_transactions(120)
producer.begin_transaction()
for number in range(3):
    producer.produce(sys.argv[3], b"left open", key=b"left", partition=int(sys.argv[4]))
    producer.flush(120)
print("open", flush=True)
time.sleep(600)
"""


class Worker(threading.Thread):
    """An application whose transactions end in every possible way; its id is the seed of its behaviour.

    `endings`: weights, of empty (nothing written), idle (an idempotent write without a transaction), fence (another
    instance of the same id takes over an open transaction) and others.
    """

    def __init__(
        self,
        kafka: Kafka,
        partitions: Sequence[tuple[str, int]],
        name: str,
        stop: threading.Event,
        *,
        endings: Mapping[str, int] = ENDINGS,
        timeout_ms: int = 1000,
    ) -> None:
        super().__init__(name=name)
        self.endings: Counter[str] = Counter()
        self._random = random.Random(name)
        self._topic_partitions, self._stop_now, self._weights, self._timeout_ms = partitions, stop, endings, timeout_ms
        self._plain = kafka.client_config() | {"message.timeout.ms": "1000", "linger.ms": "0", "log_level": "0"}

    def run(self) -> None:
        """Work until stopped; an instance that fails is replaced by the next one, as in an application."""
        transactional = self._plain | {
            "transactional.id": self.name,
            "transaction.timeout.ms": str(self._timeout_ms),
            "compression.type": self._random.choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        }
        while not self._stop_now.is_set():
            try:
                self._live(Producer(transactional))
            except KafkaException:
                self.endings["failed"] += 1

    def _live(self, producer: Any) -> None:
        """Run one instance: some transactions, then it is fenced, times out, or is closed."""
        producer.init_transactions(10)
        for _ in range(self._random.randint(1, 30)):
            [ending] = self._random.choices(list(self._weights), list(self._weights.values()))
            self.endings[ending] += 1
            if ending == "idle":
                self._write_without()
                continue
            producer.begin_transaction()
            if ending != "empty":
                self._write(producer)
            if ending in {"fence", "timeout"}:
                producer.flush(5)
                self._stop_now.wait(self._timeout_ms / 1000 + 0.5 if ending == "timeout" else 0)
                return  # the next instance takes over, or finds the transaction ended
            if ending == "abort":
                producer.abort_transaction(10)
            else:
                producer.commit_transaction(10)
            if self._stop_now.is_set():
                return

    def _write(self, producer: Any) -> None:
        for _ in range(self._random.randint(1, 4)):
            topic, partition = self._random.choice(self._topic_partitions)
            key = b"%d" % self._random.randrange(20)
            producer.produce(topic, b"value " * self._random.randint(1, 50), key=key, partition=partition)
            if self._random.random() < 0.5:
                producer.flush(5)

    def _write_without(self) -> None:
        topic, partition = self._random.choice(self._topic_partitions)
        producer = Producer(self._plain | {"enable.idempotence": "true"})
        producer.produce(topic, b"no transaction", key=b"key", partition=partition)
        producer.flush(5)


@dataclass(slots=True)
class Workload:
    """The result of a random workload."""

    topics: list[str]  # its topics
    endings: Counter[str] = field(default_factory=Counter)  # number of transactions by ending
    _left: list[subprocess.Popen[str]] = field(default_factory=list, repr=False)

    def __enter__(self) -> Workload:
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._left:
            process.kill()
            process.communicate()


def random_workload(
    kafka: Kafka, *, seed: str = "one", seconds: float = 10, delete_records: bool = True, every_ending: bool = False
) -> Workload:
    """Let real clients work for a while, and return their topics; the last transactions stay open.

    They are librdkafka producers that commit, abort, write nothing, time out and fence each other; producers that
    are killed (SIGKILL) with a transaction open, which times out or stays; Java clients that copy records and their
    group's offsets in transactions, some of them aborted (from Kafka 4.0 on by transaction version 2); and idempotent
    writes without a transaction. Segments are rolled every half second; one topic is compacted, one has its oldest
    records deleted, one has LogAppendTime. The cluster is best started with `BUSY`.

    `seed`: of everything but the timing; also part of every name.
    `every_ending`: whether to go on until transactions have ended in every way.
    """
    kinds = {
        f"plain-{seed}": (4, {}),
        f"compacted-{seed}": (2, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
        f"append-time-{seed}": (1, {"message.timestamp.type": "LogAppendTime"}),
        f"deleted-{seed}": (1, {}),
        f"copied-{seed}": (1, {}),
        f"copies-{seed}": (1, {}),
    }
    create_topics(
        kafka,
        *(NewTopic(topic, count, 1, config={"segment.ms": "500", **own}) for topic, (count, own) in kinds.items()),
    )
    load = Workload(list(kinds))
    partitions = [
        (topic, number) for topic, (count, _) in kinds.items() for number in range(count) if "cop" not in topic
    ]
    stop = threading.Event()
    threads = [Worker(kafka, partitions, f"worker-{seed}-{number}", stop) for number in range(4)]
    copying = threading.Thread(target=_copy, args=(kafka, seed, load))
    for thread in (*threads, copying):
        thread.start()
    try:
        began, killed = time.monotonic(), 0
        missing_endings = set(ENDINGS) if every_ending else set()
        while (lasted := time.monotonic() - began) < seconds or (
            lasted < PATIENCE_S and _missing(threads, missing_endings)
        ):
            left = _leave_open(kafka, f"killed-{seed}-{killed}", partitions[killed % len(partitions)], timeout_ms=1500)
            left.kill()
            left.communicate()
            load.endings["killed"] += 1
            killed += 1
            if delete_records:
                _delete_half(kafka, f"deleted-{seed}")
    finally:
        stop.set()
        for thread in (*threads, copying):
            thread.join()
    load.endings += sum((worker.endings for worker in threads), Counter[str]())
    for number, tp in enumerate(partitions[::2]):
        load._left.append(_leave_open(kafka, f"open-{seed}-{number}", tp, timeout_ms=600_000))
        load.endings["open"] += 1
    until(lambda: _only_open(kafka, seed), awaited="the timeouts of what was killed")
    return load


def _missing(workers: Sequence[Worker], missing_endings: set[str]) -> set[str]:
    """Endings that no worker has reached yet."""
    return missing_endings.difference(*(set(worker.endings) for worker in workers))


def _only_open(kafka: Kafka, seed: str) -> bool | None:
    """True once only the transactions that should stay open are open; null until then."""
    with Cluster(kafka.client_config()) as cluster:
        rows = cluster.transaction_rows(states=OPEN_STATES)
    is_over = all(
        row["transactional_id"].startswith("open-") for row in rows if f"-{seed}" in (row["transactional_id"] or "")
    )
    return True if is_over and not any(row["error"] for row in rows) else None


def _leave_open(kafka: Kafka, name: str, tp: tuple[str, int], *, timeout_ms: int) -> subprocess.Popen[str]:
    """A process with an open transaction."""
    process = subprocess.Popen(
        [sys.executable, "-c", LEFT_OPEN, kafka.bootstrap_servers, name, tp[0], str(tp[1]), str(timeout_ms)],
        stdout=subprocess.PIPE,
        text=True,
    )
    if process.stdout is None or process.stdout.readline() != "open\n":
        process.kill()
        process.communicate()
        raise LabError(f"The producer {name!r} could not open a transaction on {tp[0]}-{tp[1]}.", do="")
    return process


def _copy(kafka: Kafka, seed: str, load: Workload) -> None:
    """Transactions of the Java client, with offsets of a consumer group."""
    producer = Producer(kafka.client_config() | {"log_level": "0"})
    for number in range(COPIED):
        producer.produce(f"copied-{seed}", b"message %d" % number)
    producer.flush(20)
    for attempt in range(3):
        name = f"{seed}-{attempt}"
        try:
            done = kafka.run_tool(
                COPIER,
                *("--broker-list", kafka.bootstrap_servers, "--transactional-id", f"copier-{name}"),
                *("--input-topic", f"copied-{seed}", "--input-partition", "0", "--output-topic", f"copies-{seed}"),
                *("--max-messages", str(COPIED), "--transaction-size", "50", "--transaction-timeout", "30000"),
                *("--consumer-group", f"copiers-{name}", "--enable-random-aborts"),
                timeout=COPY_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            continue  # Kafka's tool can wait forever
        load.endings["copied" if done.returncode == 0 else "copy failed"] += 1
        return
    load.endings["copy failed"] += 1


def _delete_half(kafka: Kafka, topic: str) -> None:
    """DeleteRecords up to the middle of the log."""
    with Cluster(kafka.client_config()) as cluster:
        [row] = cluster.partition_rows(topics=[topic])
    admin = AdminClient({**kafka.client_config(), "log_level": 0})
    for deleted in admin.delete_records([TopicPartition(topic, 0, row["high_watermark"] // 2)]).values():
        deleted.result()
