"""The log directory of a real broker of each format generation, and the output of that broker and its tools."""

import contextlib
import functools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from toolkit.lab import Kafka
from toolkit.schema import Row

TOPIC = "or.ders_all-of-1"
FOLDER = f"{TOPIC}-0"
VERSIONS = ["2.8.2", "3.5.2", "4.3.1"]  # before KRaft, with it, and the newest
PROPERTIES = {
    "transaction.state.log.num.partitions": 1,
    "controlled.shutdown.enable": False,
    "log.cleaner.backoff.ms": 50,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFiles:
    """Small segments of one partition: committed, aborted, interleaved and open transactions, head deleted.

    Parameters
    ----------
    running, stopped
        Content of files by name while the broker ran and after its clean stop: those of the log directory, and those
        of the partition (``FOLDER/name``).
    producers
        Rows of ``schema.PRODUCERS`` right before that.
    dumped
        Lines of DumpLogSegments by file of the partition; each line its numbers by name.
    """

    version: str
    running: dict[str, bytes]
    stopped: dict[str, bytes]
    producers: list[Row]
    dumped: dict[str, list[dict[str, int]]]

    def of_kind(self, kind: str, *, stopped: bool = True) -> dict[str, bytes]:
        """The partition's files of a kind by name."""
        files = self.stopped if stopped else self.running
        return {Path(path).name: data for path, data in files.items() if path.endswith(f".{kind}")}


@functools.cache
def broker_files(version: str) -> BrokerFiles:
    """Stage them once per process."""
    with Kafka(version, properties=PROPERTIES) as kafka:
        producers = stage(kafka)
        log_dir = kafka.log_dirs[1]
        running = dict(read_files(log_dir))
        kafka.stop_broker(1)
        return BrokerFiles(
            version=kafka.version,
            running=running,
            stopped=dict(read_files(log_dir)),
            producers=producers,
            dumped=dump(kafka, log_dir / FOLDER),
        )


def stage(kafka: Kafka) -> list[Row]:
    from toolkit import Cluster
    from toolkit.lab.producer import TxnProducer

    admin = AdminClient({**kafka.client_config()})
    small = "internal.segment.bytes" if kafka.version > "4" else "segment.bytes"
    compaction = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001", "segment.ms": "50"}
    topics = [
        NewTopic(TOPIC, 2, 1, config={small: "2000", "index.interval.bytes": "200"}),
        NewTopic("compacted", 1, 1, config=compaction),
    ]
    for created in admin.create_topics(topics).values():
        created.result()
    with Cluster(kafka.client_config()) as cluster, finishing(kafka, "healthy") as healthy:
        interleaved, left_open = (TxnProducer(cluster.client, name).init() for name in ("interleaved", "left-open"))
        interleaved.add(TOPIC, 0)
        left_open.add(TOPIC, 0)
        for i in range(20):
            healthy.begin_transaction()
            for _ in range(3):
                healthy.produce(TOPIC, b"v" * 100, partition=0)
            healthy.produce("compacted", b"%d" % i, key=b"key")
            healthy.flush()
            if i == 3:
                interleaved.send(TOPIC, 0)
            elif i == 7:
                interleaved.end(commit=False)
            elif i == 15:
                left_open.send(TOPIC, 0, records=3)
            (healthy.commit_transaction if i % 3 else healthy.abort_transaction)()
        with finishing(kafka, None) as idempotent:
            idempotent.produce(TOPIC, b"value", partition=0)
        to = TopicPartition(TOPIC, 0, 4)
        admin.delete_records([to])[to].result()
        wait_for_cleaning(kafka.log_dirs[1] / "cleaner-offset-checkpoint")
        return cluster.producer_rows(topics=[TOPIC], partitions=[0])


@contextlib.contextmanager
def finishing(kafka: Kafka, transactional_id: str | None) -> Iterator[Any]:
    config = {**kafka.client_config(), "linger.ms": 0, "log_level": 0, "enable.idempotence": True}
    producer = Producer(config | ({"transactional.id": transactional_id} if transactional_id else {}))
    if transactional_id:
        producer.init_transactions()
    yield producer
    producer.flush()


def wait_for_cleaning(checkpoint: Path) -> None:
    """So that the cleaner has written its checkpoint; what it cleaned is not the point."""
    deadline = time.monotonic() + 180
    while not (checkpoint.exists() and b"compacted" in checkpoint.read_bytes()) and time.monotonic() < deadline:
        time.sleep(0.1)


def read_files(log_dir: Path) -> Iterator[tuple[str, bytes]]:
    for path in [*log_dir.iterdir(), *(log_dir / FOLDER).iterdir()]:
        if path.is_file():
            yield str(path.relative_to(log_dir)), path.read_bytes()


def dump(kafka: Kafka, folder: Path) -> dict[str, list[dict[str, int]]]:
    package = "kafka" if kafka.version < "3.8" else "org.apache.kafka"
    files = sorted(
        path for path in folder.iterdir() if re.fullmatch(r".*\.(index|timeindex|txnindex|snapshot)", path.name)
    )
    done = kafka.run_tool(f"{package}.tools.DumpLogSegments", "--files", ",".join(map(str, files)))
    dumped: dict[str, list[dict[str, int]]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            dumped[Path(line.removeprefix("Dumping ")).name] = lines = []
        elif numbers := re.findall(r"(\w+): (?:Some\(|OptionalLong\[)?(-?\d+)", line):
            lines.append({name: int(number) for name, number in numbers})
    return dumped
