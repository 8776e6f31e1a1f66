"""Copies of a live broker's files in the worst order: a healthy transaction never hangs in them.

The margin for clocks is none here: all brokers are one, so that content proves what it can prove within milliseconds.
"""

from __future__ import annotations

import datetime as dt
import random
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.process import PATIENCE_S
from tests.sources.log_files import CLEANED, HIGH_WATERMARK, META, STATE_TOPIC, wait_for_checkpoint
from tests.tiers import amount
from tests.workload import BUSY, Worker
from toolkit import Cluster, LogDir
from toolkit.analysis.diagnosis.observation import CLOCKS_DIFFER
from toolkit.formats.coordinator_records import coordinator_partition
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, until, write_committed
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.schema import Row
from toolkit.sources.logdir import consistency, coordinator_state

pytestmark = pytest.mark.lab

PROPERTIES = {
    **BUSY,
    **EVERYDAY.properties,
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.roll.ms": "300",  # segments by the second, so that the cleaner works while they are copied
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
DURATION_S = amount(3, full=60)


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (consistency, coordinator_state):
        monkeypatch.setattr(module, "CLOCKS_APART", dt.timedelta(0))


@pytest.fixture(scope="module")
def busy() -> Iterator[Kafka]:
    with Kafka("4.3.1", properties=PROPERTIES) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def uncompacted() -> Iterator[Kafka]:
    """A broker whose logs lack nothing: without all records of its coordinator an outcome is unknown."""
    with Kafka("4.3.1", properties={**PROPERTIES, "log.cleaner.enable": "false"}) as kafka:
        yield kafka


@pytest.fixture
def cluster(busy: Kafka) -> Iterator[Cluster]:
    with Cluster(busy.bootstrap_servers) as cluster:
        yield cluster


def copy(root: Path, to: Path, names: Sequence[str]) -> None:
    """Copy folders and files one after the other, as a copy tool does while the broker writes."""
    to.mkdir(exist_ok=True)
    for name in names:
        if not (root / name).is_dir():
            shutil.copy(root / name, to / name)
            continue
        (to / name).mkdir(exist_ok=True)
        for file in sorted((root / name).iterdir()):
            try:
                if file.suffix not in {".index", ".timeindex"}:
                    shutil.copy(file, to / name / file.name)
            except FileNotFoundError:
                continue  # the cleaner or the deleter was there first


def folders(root: Path, *, of_coordinators: bool) -> list[str]:
    names = [path.name for path in root.iterdir() if path.is_dir() and path.name != "__cluster_metadata-0"]
    return [name for name in names if name.startswith(STATE_TOPIC) == of_coordinators]


MARKS = [META, CLEANED, HIGH_WATERMARK]


def wait_for_end(cluster: Cluster, transactional_id: str) -> None:
    """Until its coordinator has logged the end of a transaction."""

    def is_over() -> bool | None:
        (row,) = cluster.transaction_rows(transactional_ids=[transactional_id])
        return True if row["state"] == "CompleteCommit" else None

    until(is_over, awaited=f"the end of a transaction of {transactional_id}")


def finding(files: LogDir, topic: str, producer_id: int) -> Row:
    (row,) = (row for row in files.finding_rows(topics=[topic]) if row["producer_id"] == producer_id)
    return row


def test_a_partition_copied_before_the_end_of_a_transaction_and_its_coordinator_after_it(
    uncompacted: Kafka, tmp_path: Path
) -> None:
    with Cluster(uncompacted.bootstrap_servers) as cluster:
        root = uncompacted.log_dirs[1]
        topic = INCIDENTS["marker_only"](uncompacted).topic
        producer = TxnProducer(cluster.client, "commits-between-the-copies").init()
        producer.add(topic, 0)
        producer.send(topic, 0)
        write_committed(cluster.client, topic, 0)  # a marker behind its start
        proven_at = time.monotonic() + CLOCKS_DIFFER.total_seconds() + 1
        wait_for_checkpoint(cluster, root, topic)
        copy(root, tmp_path, [*folders(root, of_coordinators=False), META, HIGH_WATERMARK])
        until(lambda: time.monotonic() >= proven_at or None, awaited="a time that clocks cannot be apart")
        producer.end(commit=True)
        wait_for_end(cluster, "commits-between-the-copies")
        copy(root, tmp_path, folders(root, of_coordinators=True))
        row = finding(LogDir(tmp_path, consistent_copy=True), topic, producer.producer_id)
        # A false assertion: the commit is known, its marker is not there.
        assert row["verdict"] == "stuck_ending", row["missing"]
        row = finding(LogDir(tmp_path), topic, producer.producer_id)
        assert row["verdict"] == "unknown"
        assert "copied at one moment" in row["missing"][0]


def test_a_coordinator_copied_before_the_start_of_a_transaction_and_its_partition_after_it(
    uncompacted: Kafka, tmp_path: Path
) -> None:
    with Cluster(uncompacted.bootstrap_servers) as cluster:
        root = uncompacted.log_dirs[1]
        topic = INCIDENTS["marker_only"](uncompacted).topic
        producer = TxnProducer(cluster.client, "begins-between-the-copies").init()
        copy(root, tmp_path, folders(root, of_coordinators=True))
        producer.add(topic, 0)
        producer.send(topic, 0)
        write_committed(cluster.client, topic, 0)
        wait_for_checkpoint(cluster, root, topic)
        copy(root, tmp_path, [*folders(root, of_coordinators=False), META, HIGH_WATERMARK])
        row = finding(LogDir(tmp_path, consistent_copy=True), topic, producer.producer_id)
        assert row["verdict"] == "hanging", row["missing"]  # a false assertion
        row = finding(LogDir(tmp_path), topic, producer.producer_id)
        assert row["verdict"] == "unknown"
        assert "copied at one moment" in row["missing"][0]
        producer.end(commit=True)


@pytest.mark.longer
def test_copies_in_any_order_under_load_have_no_false_hanging(busy: Kafka, cluster: Cluster, tmp_path: Path) -> None:
    root = busy.log_dirs[1]
    topics = [INCIDENTS["marker_only"](busy).topic for _ in range(2)]
    stop, dice = threading.Event(), random.Random("copies")
    topic_partitions = [(topic, number) for topic in topics for number in (0, 1)]
    workers = [Worker(busy, topic_partitions, f"healthy-{number}", stop) for number in range(4)]
    for worker in workers:
        worker.start()
    verdicts = set[str]()

    def has_seen_load() -> bool:
        return sum(worker.endings["commit"] for worker in workers) > 10 and bool({"ongoing", "unknown"} & verdicts)

    try:
        began = time.monotonic()
        while (passed := time.monotonic() - began) < DURATION_S or not has_seen_load():
            assert passed < PATIENCE_S, f"{verdicts}, {[worker.endings for worker in workers]}"
            to = tmp_path / "copy"
            names = [*folders(root, of_coordinators=False), *folders(root, of_coordinators=True), *MARKS]
            dice.shuffle(names)
            cut = dice.randrange(len(names))
            copy(root, to, names[:cut])
            stop.wait(dice.choice([0, 0.1, 0.5]))
            copy(root, to, names[cut:])
            for paths in ([to], [root]):
                rows = LogDir(*paths).finding_rows(topics=topics)
                verdicts |= {row["verdict"] for row in rows}
                assert not [row for row in rows if row["verdict"] == "hanging"]
            shutil.rmtree(to)
    finally:
        stop.set()
        for worker in workers:
            worker.join(PATIENCE_S)


def test_a_hanging_transaction_is_proven_from_a_live_directory(uncompacted: Kafka) -> None:
    staged = INCIDENTS["late_message"](uncompacted)
    with Cluster(uncompacted.bootstrap_servers) as cluster:
        write_committed(cluster.client, staged.topic, staged.partition)
        mine = coordinator_partition(staged.transactional_id, 50)
        other = next(name for number in range(10_000) if coordinator_partition(name := f"other-{number}", 50) == mine)
        TxnProducer(cluster.client, other).init()
    row: Row = {}
    deadline = time.monotonic() + PATIENCE_S
    while row.get("verdict") != "hanging":  # until the checkpoints have caught up
        assert time.monotonic() < deadline, row["missing"]
        row = finding(LogDir(uncompacted.log_dirs[1]), staged.topic, staged.producer_id)
    assert (row["start_offset"], row["missing"]) == (staged.start_offset, [])
