"""What real clients and brokers write: records of every codec, transactions, groups; and Kafka's own dump of it."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from toolkit.errors import DecodeError
from toolkit.formats.coordinator.transaction_log_records import read_transaction_value
from toolkit.formats.log.batch_records import read_records
from toolkit.formats.log.batches import BatchHeader, read_header
from toolkit.lab import Kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EXPIRING: Mapping[str, object] = {
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.compression.codec": 2,  # snappy
    "transactional.id.expiration.ms": 2000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 300,
    "log.cleaner.backoff.ms": 200,
}
"""Broker settings under which transactional ids become tombstones and a topic is compacted within seconds."""

TRANSACTION_STATE, CONSUMER_OFFSETS = "__transaction_state", "__consumer_offsets"
DECODERS = {TRANSACTION_STATE: "--transaction-log-decoder", CONSUMER_OFFSETS: "--offsets-decoder"}
POLL_S = 0.1  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment file as it was when Kafka dumped it, and the lines about its records."""

    version: str
    topic: str
    data: bytes
    dumped: tuple[str, ...]

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch."""
        position = 0
        while position < len(self.data):
            header = read_header(self.data, position)
            yield position, header
            position += header.size


def write_and_dump(kafka: Kafka, *, expiring: bool) -> list[Segment]:
    """Let clients write to every kind of topic; return every segment that then has records, with its dump.

    Parameters
    ----------
    expiring
        Whether the broker has the settings `EXPIRING`; then the segments hold tombstones of transactional ids and
        batches that compaction has given a delete horizon.
    """
    config = kafka.client_config() | {"log_level": "0"}
    topics: dict[str, dict[str, str]] = {"by-librdkafka": {}}
    topics |= {f"by-the-broker-{codec}": {"compression.type": codec} for codec in CODECS[1:]}
    topics["by-the-broker-zstd"]["message.timestamp.type"] = "LogAppendTime"
    topics["compacted"] = {"cleanup.policy": "compact", "segment.ms": "500", "min.cleanable.dirty.ratio": "0.01"}
    admin = AdminClient({**config})
    for future in admin.create_topics([NewTopic(name, 1, config=each) for name, each in topics.items()]).values():
        future.result(30)
    produce(config | {"transactional.id": "compacting"}, "compacted")
    for codec in CODECS:
        produce(config | {"compression.type": codec}, "by-librdkafka")
    for codec in CODECS[1:]:
        produce(config, f"by-the-broker-{codec}")
    for protocol in ("classic", "consumer") if kafka.version >= "4" else ("classic",):
        consume_in_transactions(config, f"group-{protocol}", protocol)
    admin.delete_consumer_groups(["group-classic"])["group-classic"].result(30)
    produce(config, "compacted")  # closes the segment before, so that the cleaner takes it
    directory = kafka.log_dirs[1]
    wait(lambda: any(map(has_complete_abort, directory.glob(f"{TRANSACTION_STATE}-*/*.log"))))  # after its client knows
    if expiring:
        wait(lambda: any(map(has_delete_horizon, directory.glob("compacted-0/*.log"))))
        wait(lambda: any(map(has_tombstone, directory.glob(f"{TRANSACTION_STATE}-*/*.log"))))
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(partial(dump, kafka), [TRANSACTION_STATE, CONSUMER_OFFSETS, *topics]))
    return [segment for segments in found for segment in segments]


def produce(config: dict[str, str], topic: str) -> None:
    """Records with and without key, value and headers, with times out of order; in a transaction if so configured."""
    producer = Producer(config | {"linger.ms": 100})
    if "transactional.id" in config:
        producer.init_transactions(60)
        producer.begin_transaction()
    for number in range(100):
        producer.produce(
            topic,
            key=f"key-{number % 30}",
            value=None if number % 7 == 0 else "" if number % 11 == 0 else f"value {number} " * (number % 13),
            headers=[("one", b"1"), ("none", None)] if number % 5 == 0 else None,
            timestamp=1_700_000_000_000 + (number * 977_977) % 100_000_000,
        )
    if topic != "compacted":  # which refuses a record without key
        producer.produce(topic, value=b"no key")
    producer.flush(30)
    if "transactional.id" in config:
        producer.commit_transaction(30)


def consume_in_transactions(config: dict[str, str], group: str, protocol: str) -> None:
    """Join a group, commit offsets in two transactions (one aborted) and one without, leave."""
    of_protocol = {"group.protocol": "consumer"} if protocol == "consumer" else {"session.timeout.ms": 10_000}
    joined = config | of_protocol | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    consumer = Consumer(joined)
    consumer.subscribe(["by-librdkafka"])
    assert consumer.poll(60) is not None
    producer = Producer(config | {"transactional.id": f"transactions-of-{group}"})
    producer.init_transactions(60)
    for offset, end in ((7, producer.commit_transaction), (9, producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("by-librdkafka", b"of a transaction")
        producer.flush(30)  # an abort drops what has not been sent
        offset_commit = TopicPartition("by-librdkafka", 0, offset, "SECRET")
        producer.send_offsets_to_transaction([offset_commit], consumer.consumer_group_metadata())
        end(60)
    consumer.commit(offsets=[TopicPartition("by-librdkafka", 0, 11, "SECRET")], asynchronous=False)
    consumer.close()


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


def has_delete_horizon(path: Path) -> bool:
    return any(header.has_delete_horizon for _, header in _segment(path).batches())


def has_tombstone(path: Path) -> bool:
    return None in _values(path)


def has_complete_abort(path: Path) -> bool:
    return "CompleteAbort" in {read_transaction_value(value).state for value in _values(path) if value is not None}


def _values(path: Path) -> list[bytes | None]:
    segment = _segment(path)
    return [record.value for at, _ in segment.batches() for record in read_records(segment.data, at)]


def _segment(path: Path) -> Segment:
    """A file that is being written: its whole batches."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:  # the cleaner has just replaced it
        data = b""
    end = 0
    try:
        while end < len(data) and end + (size := read_header(data, end).size) <= len(data):
            end += size
    except DecodeError:
        pass
    return Segment(version="", topic="", data=data[:end], dumped=())


def dump(kafka: Kafka, topic: str) -> list[Segment]:
    """Copies of the topic's segments, which the cleaner leaves alone, each cut where Kafka's own dump of it ended."""
    with TemporaryDirectory() as folder:
        return _dump_copies(kafka, topic, Path(folder))


def _dump_copies(kafka: Kafka, topic: str, folder: Path) -> list[Segment]:
    paths = []
    for segment in sorted(kafka.log_dirs[1].glob(f"{topic}-[0-9]*/*.log")):
        copied = folder / segment.parent.name / segment.name
        copied.parent.mkdir(exist_ok=True)
        shutil.copy(segment, copied)
        if copied.stat().st_size:
            paths.append(copied)
    package = "org.apache.kafka" if kafka.version >= "4" else "kafka"
    decoder = DECODERS.get(topic, "--print-data-log")
    files = ",".join(map(str, paths))
    text = kafka.run_tool(f"{package}.tools.DumpLogSegments", "--files", files, "--deep-iteration", decoder).stdout
    segments = []
    for each in text.split("Dumping ")[1:]:
        path, *lines = each.splitlines()
        ends = [
            int(at) + int(size)
            for at, size in re.findall(r"^baseOffset: .* position: (\d+) .* size: (\d+) ", each, re.M)
        ]
        data = Path(path).read_bytes()[: ends[-1]]
        records = tuple(line.removeprefix("| ") for line in lines if line.startswith("| "))
        segments.append(Segment(version=kafka.version, topic=topic, data=data, dumped=records))
    assert len(segments) == len(paths)
    return segments
