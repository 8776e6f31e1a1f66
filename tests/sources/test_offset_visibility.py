"""Every offset of a complex log, against the records that real consumers get; live and from files."""

from __future__ import annotations

import random
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from tests.builders import configure_topic, create_topics, delete_records, received
from tests.tiers import amount, seed
from tests.workload import BUSY
from toolkit import Cluster, LogDir
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, admin_of, until
from toolkit.lab.incidents import EVERYDAY
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, Row

pytestmark = [pytest.mark.lab, pytest.mark.longer]

LEVELS = ("read_committed", "read_uncommitted")
STEPS = int(amount(60, full=150))


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A topic, the records that consumers got, and the live cluster's rows of each offset and of the gaps."""

    name: str
    partition: Row
    delivered: Mapping[str, set[int]]
    offsets: Sequence[Row]
    gaps: Mapping[str, Sequence[Row]]


@dataclass(frozen=True, kw_only=True)
class Left:
    folder: Path
    topics: Sequence[Topic]


@pytest.fixture(scope="module")
def left() -> Iterator[Left]:
    name = seed() or "offsets"
    with Kafka("4.3.1", properties={**EVERYDAY.properties, **BUSY}) as kafka:
        names = [chaos(kafka, seed=name, steps=STEPS), compacted_chaos(kafka, seed=name, steps=STEPS)]
        topics = [live_topic(kafka, each) for each in names]
        kafka.stop_broker(1)
        yield Left(folder=kafka.log_dirs[1], topics=topics)


def live_topic(kafka: Kafka, name: str) -> Topic:
    with Cluster(kafka.bootstrap_servers) as cluster:
        (partition,) = cluster.partition_rows(topics=[name])
        stop = partition["log_end_offset"] + 3
        return Topic(
            name=name,
            partition=partition,
            delivered={
                level: {each.offset() or 0 for each in received(kafka, [(name, 0)], level=level)} for level in LEVELS
            },
            offsets=[row for at in range(stop) for row in cluster.offset_visibility_rows(name, 0, at)],
            gaps={
                level: cluster.missing_offset_rows(name, 0, start=0, stop=stop, read_committed=level == LEVELS[0])
                for level in LEVELS
            },
        )


def without_time(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "observed_at"} for row in rows]


def test_each_offset_is_delivered_as_its_row_states(left: Left) -> None:
    for topic in left.topics:
        for level in LEVELS:
            ours = {row["offset"] for row in topic.offsets if row[level]}
            assert ours == topic.delivered[level], (topic.name, level, ours ^ topic.delivered[level])
        assert [row for row in topic.offsets if row["status"] is None or row["error"]] == []


def test_every_status_occurs(left: Left) -> None:
    plain, compacted = ({row["status"] for row in topic.offsets} for topic in left.topics)
    everywhere = {"non_transactional", "committed", "aborted", "open", "marker", "beyond_log_end"}
    assert plain == everywhere | {"deleted"}
    assert compacted >= everywhere | {"compacted"}


def test_missing_and_consumed_offsets_cover_the_range(left: Left) -> None:
    for topic in left.topics:
        for level, rows in topic.gaps.items():
            missing = [at for row in rows for at in range(row["first_offset"], row["last_offset"] + 1)]
            assert len(missing) == len(set(missing)) == sum(row["offsets"] for row in rows)
            assert topic.delivered[level].isdisjoint(missing)
            assert topic.delivered[level] | set(missing) == {row["offset"] for row in topic.offsets}, (
                topic.name,
                level,
            )
            assert not any(row["status"] in {None, "unexplained"} for row in rows)
            by_offset = {row["offset"]: row["status"] for row in topic.offsets}
            for row in rows:
                reported = {by_offset[at] for at in range(row["first_offset"], row["last_offset"] + 1)}
                beyond = {"committed", "non_transactional"}
                assert reported == {row["status"]} or (row["status"] == "beyond_lso" and reported <= beyond), row


def test_files_give_the_same_rows(left: Left) -> None:
    files = LogDir(left.folder)
    for topic in left.topics:
        with files:
            ours = [row for one in topic.offsets for row in files.offset_visibility_rows(topic.name, 0, one["offset"])]
            assert without_time(ours) == without_time(topic.offsets)
            for level, rows in topic.gaps.items():
                is_committed, stop = level == LEVELS[0], len(topic.offsets)
                found = files.missing_offset_rows(topic.name, 0, start=0, stop=stop, read_committed=is_committed)
                assert without_time(found) == without_time(rows)


def test_a_smaller_range_gives_a_subset_of_the_rows(left: Left) -> None:
    """Wherever it is cut, also in the middle of a transaction or a batch."""
    files = LogDir(left.folder)
    for topic in left.topics:
        whole = {at: row["status"] for row in topic.gaps["read_committed"]
                 for at in range(row["first_offset"], row["last_offset"] + 1)}  # fmt: skip
        end = len(topic.offsets)
        with files:
            for start in range(0, end, 7):
                stop = min(start + 1 + start % 13, end)
                rows = files.missing_offset_rows(topic.name, 0, start=start, stop=stop)
                found = {at: row["status"] for row in rows for at in range(row["first_offset"], row["last_offset"] + 1)}
                assert found == {at: whole[at] for at in range(start, stop) if at in whole}


def test_a_transaction_is_reported_from_first_record_to_marker(left: Left) -> None:
    topic = left.topics[0]
    files = LogDir(left.folder)
    log_start = topic.partition["log_start_offset"]
    rows = LOG_TRANSACTIONS.rows(files.log_transactions(topics=[topic.name], partitions=0))
    with_data = [row for row in rows if row["first_offset"] is not None and row["last_offset"] is not None]
    transactions = {(row["producer_id"], at): row for row in with_data
                    for at in range(row["first_offset"], row["last_offset"] + 1)}  # fmt: skip
    for row in topic.offsets:
        if row["outcome"] is None or row["status"] == "marker":
            continue
        transaction = transactions[row["producer_id"], row["offset"]]
        assert row["outcome"] == transaction["outcome"]
        first = transaction["first_offset"]
        earlier = {each["marker_offset"] or -1 for each in rows if each["producer_id"] == row["producer_id"]}
        is_known = log_start == 0 or any(log_start <= marker < first for marker in earlier)
        assert row["first_offset"] in ({first} if is_known else {first, None}), "never the log start instead"
        assert row["transactional_id"] is not None
        if row["outcome"] != "open":
            assert row["marker_offset"] == transaction["marker_offset"]
            assert row["marker_time"] == transaction["end"]


def test_files_without_transaction_index_give_the_same_rows(left: Left, tmp_path: Path) -> None:
    topic = left.topics[0]
    copy = Path(shutil.copytree(left.folder, tmp_path / "copy", ignore=shutil.ignore_patterns("*.txnindex")))
    rows = LogDir(copy).missing_offset_rows(topic.name, 0, start=0, stop=len(topic.offsets))
    assert without_time(rows) == without_time(topic.gaps["read_committed"])


# Partitions with everything that a log can contain, and the records that real consumers get.

QUIET = {"log_level": 0}


def chaos(kafka: Kafka, *, seed: str, steps: int = 60, topic: str = "") -> str:
    """A topic of one partition: transactions committed, aborted, open and hanging, interleaved; plain and idempotent
    records between them; and its head deleted in the middle of a transaction.
    """
    topic = topic or f"chaos-{uuid.uuid4().hex[:6]}"
    create_topics(kafka, NewTopic(topic, 1, 1, config={"segment.ms": "500"}))
    with Cluster(kafka.bootstrap_servers) as cluster:
        _interleave(cluster, kafka, topic, random.Random(seed), steps=steps)
        (row,) = cluster.partition_rows(topics=[topic])
        delete_records(cluster.client, topic, before=row["high_watermark"] // 8)
        _leave_open(cluster, kafka, topic)
    return topic


def compacted_chaos(kafka: Kafka, *, seed: str, steps: int = 60) -> str:
    """The same on a compacted topic, after the cleaner has run, and with the cleaner stopped."""
    topic = f"compacted-{uuid.uuid4().hex[:6]}"
    cleaned = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    create_topics(kafka, NewTopic(topic, 1, 1, config={"segment.ms": "200", **cleaned}))
    with Cluster(kafka.bootstrap_servers) as cluster:
        _interleave(cluster, kafka, topic, random.Random(seed), steps=steps)

        def was_cleaned() -> bool | None:
            _plain(kafka, topic, idempotent=True)  # the next write rolls the segment
            rows = _batches(cluster, topic)
            holes = any(after["base_offset"] > one["last_offset"] + 1 for one, after in pairwise(rows))
            partial = any(0 < row["record_count"] <= row["last_offset"] - row["base_offset"] for row in rows)
            return True if holes and partial else None

        until(was_cleaned, awaited="the log cleaner")
        _interleave(cluster, kafka, topic, random.Random(seed + "again"), steps=steps // 3)
        _leave_open(cluster, kafka, topic)
        configure_topic(admin_of(kafka), topic, {"min.cleanable.dirty.ratio": "1.0", "delete.retention.ms": "86400000"})
        before: list[Sequence[Row]] = [[]]

        def is_at_rest() -> bool | None:
            rows = _batches(cluster, topic)
            same, before[0] = rows == before[0], rows
            return True if same else None

        until(is_at_rest, awaited="the log cleaner to rest")
    return topic


def _interleave(cluster: Cluster, kafka: Kafka, topic: str, chance: random.Random, *, steps: int) -> None:
    """Some producers at once, so that transactions lie within and across each other."""
    free = [TxnProducer(cluster.client, f"chaos-{uuid.uuid4().hex[:6]}").init() for _ in range(4)]
    busy: list[TxnProducer] = []
    for _ in range(steps):
        what = chance.choices(["begin", "write", "end", "plain", "idempotent"], [4, 5, 4, 1, 1])[0]
        if what == "begin" and free:
            producer = free.pop(chance.randrange(len(free)))
            producer.add(topic, 0)
            busy.append(producer)
            if chance.random() < 0.9:
                producer.send(topic, 0, records=chance.randint(1, 4))
        elif what == "write" and busy:
            chance.choice(busy).send(topic, 0, records=chance.randint(1, 4))
        elif what == "end" and busy:
            producer = busy.pop(chance.randrange(len(busy)))
            producer.end(commit=chance.random() < 0.6)
            free.append(producer)
        elif what in {"plain", "idempotent"}:
            _plain(kafka, topic, idempotent=what == "idempotent", records=chance.randint(1, 3))
    for producer in busy:
        producer.end(commit=chance.random() < 0.5)


def _leave_open(cluster: Cluster, kafka: Kafka, topic: str) -> None:
    """One begins and stays open, others end behind it, and one writes to the partition without adding it."""
    early, held, aborted, never_added = (
        TxnProducer(cluster.client, f"{name}-{uuid.uuid4().hex[:6]}").init()
        for name in ("open", "held", "aborted", "never-added")
    )
    held.add(topic, 0)
    held.send(topic, 0, records=2)  # below the LSO, with its marker beyond it
    early.add(topic, 0)
    early.send(topic, 0, records=2)
    held.send(topic, 0, records=2)
    aborted.add(topic, 0)
    aborted.send(topic, 0, records=3)
    aborted.end(commit=False)
    held.end(commit=True)
    never_added.send(topic, 0, records=2)
    _plain(kafka, topic, idempotent=True, records=2)
    early.send(topic, 0, records=1)


def _plain(kafka: Kafka, topic: str, *, idempotent: bool, records: int = 1) -> None:
    producer = Producer(kafka.client_config() | QUIET | {"enable.idempotence": idempotent})
    for _ in range(records):
        producer.produce(topic, b"no transaction", key=b"plain", partition=0)
    producer.flush(60)


def _batches(cluster: Cluster, topic: str) -> list[Row]:
    return [
        {name: row[name] for name in ("base_offset", "last_offset", "record_count")}
        for row in BATCHES.rows(cluster.batches(topics=topic, partitions=0))
    ]
