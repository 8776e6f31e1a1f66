"""Record files of a broker, and the output of its kafka-dump-log.sh for them, under ``tests/formats/data/dumps``:
``python -m tests.tools.record_dumps 2.8.2 3.5.2 3.9.2 4.3.1``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.builders import create_topics
from tests.formats.dumped import FAKE, HOME, LOGS, RECORDED, TEXTS
from toolkit.config import ClientConfig
from toolkit.formats.scan import scan_file
from toolkit.java import find_java, java_command
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, until
from toolkit.sources.live.broker_client import BrokerClient

PROPERTIES = {
    "transaction.state.log.num.partitions": 1, "offsets.topic.num.partitions": 1, "log.index.interval.bytes": 1,
    "log.cleaner.backoff.ms": 100, "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "transactional.id.expiration.ms": 3000, "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
}  # fmt: skip
TOPICS = [
    NewTopic("orders", num_partitions=1, replication_factor=1),
    NewTopic("page-views", num_partitions=1, replication_factor=1, config={"message.timestamp.type": "LogAppendTime"}),
    NewTopic("state", num_partitions=1, replication_factor=1,
        config={"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}),
]  # fmt: skip
QUIET = {"log_level": 0}  # the broker stops before its clients
KEPT = {".log", ".snapshot", ".txnindex", ".index", ".timeindex"}


def stage(kafka: Kafka, folder: Path) -> None:
    """Every kind of transaction, and payloads that look like a dump; then stop the broker and copy its files."""
    create_topics(kafka, *TOPICS)
    transact(kafka, "none", ["orders", "page-views"], ends="c")
    transact(kafka, "lz4", ["orders"], ends="ca")
    for codec in ("gzip", "snappy", "zstd"):
        write(Producer(kafka.client_config() | QUIET | {"compression.type": codec, "linger.ms": 20}), ["orders"], codec)
    plain = Producer(kafka.client_config() | QUIET)
    plain.produce(
        "orders", key="two\nlines", value=f"a dump:\n{FAKE}\nin a payload", headers={"trace id": "", "a]": ""}
    )
    plain.produce("orders", key="deleted", value=None)
    plain.produce("orders", value="na\u00efve? \u65e5\u672c\n" + FAKE)
    plain.produce("orders", value=b"\xff\xfe\x00 no UTF-8 \xe6\r\n" + FAKE.encode() + b"\x85\x1c")
    plain.flush(30)
    process(kafka)
    transact(kafka, "none", ["state"], ends="cca")
    with BrokerClient(ClientConfig({"bootstrap.servers": kafka.bootstrap_servers})) as client:
        slow = TxnProducer(client, "times out", timeout_ms=1000).init()
        slow.add("orders", 0)
        slow.send("orders", 0, records=3)
        until(lambda: ended(kafka, slow.producer_id), awaited="the end of a transaction that times out")
        still = TxnProducer(client, "stays open").init()
        still.add("orders", 0)
        still.send("orders", 0, records=2)
        until(lambda: is_cleaned(kafka, plain), awaited="the cleaner")
        until(lambda: tombstones(kafka), awaited="the end of a transactional id")
    kafka.stop_broker(1)
    for name in LOGS:
        shutil.copytree(kafka.log_dirs[1] / name, folder / name)


def transact(kafka: Kafka, codec: str, topics: list[str], *, ends: str) -> None:
    """Transactions of one producer, one for each end: c commits, a aborts."""
    names = {"transactional.id": f"{codec}-{topics[-1]}", "compression.type": codec, "linger.ms": 20}
    producer = Producer(kafka.client_config() | QUIET | names)
    producer.init_transactions(30)
    for number, end in enumerate(ends):
        producer.begin_transaction()
        write(producer, topics, str(number))
        finish(producer, commit=end == "c")


def write(producer: Producer, topics: list[str], value: str) -> None:
    """A batch of three records on each topic."""
    for topic in topics:
        for number in range(3):
            producer.produce(topic, key=f"key {number}", value=value * 20)
    producer.flush(30)


def finish(producer: Producer, *, commit: bool) -> None:
    """End the transaction."""
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def process(kafka: Kafka) -> None:
    """Read, process, write: offsets of a group with a member, in transactions and outside of them."""
    names = {"group.id": "billing group", "auto.offset.reset": "earliest"}
    consumer = Consumer(kafka.client_config() | QUIET | names)
    consumer.subscribe(["orders"])
    until(lambda: consumer.poll(0.1), awaited="a first record")
    producer = Producer(kafka.client_config() | QUIET | {"transactional.id": "exactly payload: once", "linger.ms": 20})
    producer.init_transactions(30)
    for commit in (True, False):
        producer.begin_transaction()
        producer.produce("page-views", value="seen")
        offsets = [TopicPartition("orders", 0, 5 + commit, "meta=data,offset=4")]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        finish(producer, commit=commit)
    consumer.commit(offsets=[TopicPartition("orders", 0, 3)], asynchronous=False)
    consumer.close()


def ended(kafka: Kafka, producer_id: int) -> bool | None:
    """Whether the producer's marker is there."""
    return (
        any(batch["producer_id"] == producer_id and batch["marker"] >= 0 for batch in batches(kafka, "orders-0"))
        or None
    )


def is_cleaned(kafka: Kafka, producer: Producer) -> bool | None:
    """Whether the cleaner has removed records; each check writes one more, so that a segment is rolled."""
    producer.produce("state", key="new", value="new")
    producer.flush(30)
    found = list(batches(kafka, "state-0"))
    return (bool(found) and found[-1]["last_offset"] >= sum(batch["record_count"] for batch in found)) or None


def tombstones(kafka: Kafka) -> bool | None:
    """Whether the coordinator has deleted ids: records of a batch that is smaller than any state."""
    return any(batch["size"] < 61 + 40 for batch in batches(kafka, "__transaction_state-0")) or None


def batches(kafka: Kafka, name: str) -> Iterator[dict[str, int]]:
    """Headers of a partition's segments."""
    for log in sorted((kafka.log_dirs[1] / name).glob("*.log")):
        for part in scan_file(log):
            names = part.headers.dtype.names or ()
            yield from (dict(zip(names, row, strict=True)) for row in part.headers.tolist())


def dump(kafka: Kafka, folder: Path, text: str) -> str:
    """What the tool prints of the files that `stage` has copied, of one of TEXTS."""
    options, kinds, names = TEXTS[text]
    paths = [path for name in names for path in sorted((folder / name).iterdir())]
    files = [str(path) for path in paths if path.suffix[1:] in kinds]
    arguments = tool(kafka), *options.split(), "--files", ",".join(files)
    command = java_command(find_java(), *arguments, classpath=kafka.classpath, log_level="warn")
    done = subprocess.run(command, capture_output=True, timeout=120)  # as bytes: a payload may hold any line end
    assert not done.returncode, done.stderr
    return (done.stdout + done.stderr).decode()


def tool(kafka: Kafka) -> str:
    """The class, wherever this version has it."""
    for jar in Path(kafka.classpath.removesuffix("*")).glob("kafka*.jar"):
        for name in zipfile.ZipFile(jar).namelist():
            if name.endswith("tools/DumpLogSegments.class"):
                return name.removesuffix(".class").replace("/", ".")
    raise AssertionError("this Kafka has no DumpLogSegments")


def record(version: str) -> None:
    """Stage on a broker, and keep what the tests read."""
    target = RECORDED / version
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch, Kafka(version, properties=PROPERTIES) as kafka:
        folder = Path(scratch)
        stage(kafka, folder)
        for name in LOGS:
            (target / name).mkdir(parents=True)
            for path in (folder / name).iterdir():
                if path.suffix in KEPT and path.stat().st_size:
                    shutil.copy(path, target / name)
        for text in TEXTS:
            (target / f"{text}.txt").write_text(dump(kafka, folder, text).replace(scratch, HOME), newline="\n")


if __name__ == "__main__":
    for each in sys.argv[1:]:
        record(each)
