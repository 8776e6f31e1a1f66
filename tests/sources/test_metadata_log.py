"""What the metadata log in files says: leaders, fenced brokers, and how many partitions coordinate transactions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.builders import create_topics
from toolkit import Cluster, LogDir
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, admin_of, create_topic, until, write_committed
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.schema import Row
from toolkit.sources.logdir.log_dir_layout import METADATA_TOPIC

pytestmark = pytest.mark.lab
COUNT = 8


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """The log directory of a broker that was stopped, with an incident and an open transaction."""

    path: Path
    hanging: StagedIncident
    healthy: StagedIncident

    def verdicts(self, files: LogDir) -> tuple[str, str]:
        rows = {row["producer_id"]: row["verdict"] for row in files.finding_rows()}
        return rows[self.hanging.producer_id], rows[self.healthy.producer_id]


@pytest.fixture(scope="module", params=[pytest.param("3.5.2", marks=pytest.mark.full), "4.3.1"])
def stopped(request: pytest.FixtureRequest) -> Iterator[Stopped]:
    properties = {
        **EVERYDAY.properties,
        "transaction.state.log.num.partitions": str(COUNT),
        "metadata.log.max.record.bytes.between.snapshots": "500",
    }
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka(request.param, properties=properties))
        hanging = stack.enter_context(INCIDENTS["never_added"](kafka))
        healthy = stack.enter_context(INCIDENTS["open_young"](kafka))
        folder = kafka.log_dirs[1] / f"{METADATA_TOPIC}-0"
        until(lambda: snapshots(folder) or None, awaited="a snapshot of the metadata log")
        kafka.stop_broker(1)
        yield Stopped(path=kafka.log_dirs[1], hanging=hanging, healthy=healthy)
        kafka.start_broker(1)


def snapshots(folder: Path) -> list[Path]:
    """Snapshots of a running controller; the one that it began with has offset 0."""
    return sorted(each for each in folder.glob("*.checkpoint") if int(each.name[:20]))


@pytest.fixture
def copy(stopped: Stopped, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped.path, tmp_path / "copy", ignore=shutil.ignore_patterns(".lock")))


def test_the_number_of_coordinating_partitions_is_known(stopped: Stopped) -> None:
    """It was taken for 50, so that a complete copy of 8 lacked 42."""
    hanging, healthy = stopped.verdicts(LogDir(stopped.path, consistent_copy=True))
    assert hanging == "hanging"
    assert healthy in {"ongoing", "unknown"}


@pytest.mark.parametrize("missing", [f"{METADATA_TOPIC}-0", f"{STATE_TOPIC}-3"])
def test_without_a_partition_or_the_metadata_log_nothing_hangs(stopped: Stopped, copy: Path, missing: str) -> None:
    shutil.rmtree(copy / missing)
    files = LogDir(copy, consistent_copy=True)
    assert stopped.verdicts(files)[0] == "unknown"
    row = next(row for row in files.finding_rows() if row["producer_id"] == stopped.hanging.producer_id)
    assert any(STATE_TOPIC in each for each in row["missing"]), row["missing"]


def test_a_damaged_metadata_log_counts_nothing(stopped: Stopped, copy: Path) -> None:
    segment = copy / f"{METADATA_TOPIC}-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 0xFF
    segment.write_bytes(data)
    assert [row["error"] for row in LogDir(copy).metadata_log_rows() if row["error"]]
    assert stopped.verdicts(LogDir(copy, consistent_copy=True))[0] == "unknown"


def test_a_snapshot_has_what_was_before_the_first_segment(stopped: Stopped, copy: Path) -> None:
    whole = LogDir(copy).metadata_log_rows()
    folder = copy / f"{METADATA_TOPIC}-0"
    for segment in folder.glob("*.log"):
        segment.unlink()
    rows = LogDir(copy).metadata_log_rows()
    end = int(snapshots(folder)[-1].name[:20])
    assert {row["offset"] for row in rows} == {end - 1}
    before = [row for row in whole if row["offset"] < end]
    assert {row["topic"] for row in rows} == {row["topic"] for row in before}
    assert newest_leaders(rows) == newest_leaders(before)


def newest_leaders(rows: list[Row]) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        (row["topic"], row["partition"]): (row["leader"], row["leader_epoch"])
        for row in rows
        if row["partition"] is not None
    }


def test_a_replica_that_was_not_in_sync_proves_nothing(tmp_path: Path) -> None:
    """A killed broker has the transaction open, as has the leader, whose files lack no replica in sync."""
    with Kafka("4.3.1", brokers=2, properties=EVERYDAY.properties) as kafka:
        create_topics(kafka, NewTopic("both", 1, replica_assignment=[[1, 2]]))
        staged = INCIDENTS["never_added"](kafka, topic="both", partition=0)
        kafka.kill(2)

        def left() -> bool | None:
            rows = [row for row in LogDir(kafka.log_dirs[1]).metadata_log_rows() if row["topic"] == "both"]
            return True if [*(rows[-1]["isr"] or ())] == [1] else None

        until(left, awaited="a lost replica")
        kafka.kill(1)  # the files of a running broker come and go
        for broker_id in (1, 2):
            shutil.copytree(kafka.log_dirs[broker_id], tmp_path / str(broker_id))
    (row,) = LogDir(tmp_path / "1").finding_rows(topics=["both"])
    assert not [each for each in row["missing"] if "in sync" in each]
    shutil.rmtree(tmp_path / "1" / "both-0")
    (row,) = LogDir(tmp_path / "1", tmp_path / "2").finding_rows(topics=["both"])
    assert (row["verdict"], row["producer_id"]) == ("unknown", staged.producer_id)
    lost = "a replica of both-0 in sync: by the metadata log, that of broker 2 was not (ISR 1)"
    assert [each for each in row["missing"] if each.startswith(lost)]


def create_again(kafka: Kafka, topic: str) -> None:
    """Delete a topic and create it again, once the broker has let go of its log."""
    folder = kafka.log_dirs[1] / f"{topic}-0"
    admin = admin_of(kafka)
    admin.delete_topics([topic])[topic].result()
    until(lambda: None if folder.exists() else True, awaited=f"the deletion of {folder}")
    create_topic(kafka, topic)


def finding(source: Cluster | LogDir, topic: str) -> Row:
    (row,) = source.finding_rows(topics=[topic], partitions=[0])
    return row


@pytest.mark.full
def test_the_replica_of_a_deleted_topic_is_not_read_for_the_one_created_again(tmp_path: Path) -> None:
    """A disk of a broker that was down when the topic was deleted still has it, and its log is longer."""
    with Kafka("3.9.2", properties=EVERYDAY.properties) as kafka:
        create_topic(kafka, "orders")
        with Cluster(kafka.bootstrap_servers) as cluster:
            producer = TxnProducer(cluster.client, "late").init()
            for _ in range(10):
                write_committed(cluster.client, "orders", 0)
            shutil.copytree(kafka.log_dirs[1] / "orders-0", tmp_path / "2" / "orders-0")
            create_again(kafka, "orders")
            write_committed(cluster.client, "orders", 0)
            start = producer.send("orders", 0)
            live = finding(cluster, "orders")
        kafka.stop_broker(1)
        shutil.copytree(kafka.log_dirs[1], tmp_path / "1")
    assert (live["verdict"], live["start_offset"]) == ("hanging", start)
    ids = (tmp_path / "1" / "meta.properties").read_text().replace("node.id=1", "node.id=2")
    (tmp_path / "2" / "meta.properties").write_text(
        "".join(f"{line}\n" for line in ids.splitlines() if "directory" not in line)
    )
    folders = tmp_path / "1", tmp_path / "2"
    with LogDir(*folders, consistent_copy=True) as files:
        row = finding(files, "orders")
        assert (row["verdict"], row["start_offset"]) == ("unknown", start)
        assert any("deleted and created again" in each for each in row["missing"])
    shutil.rmtree(tmp_path / "1" / "__cluster_metadata-0")
    with LogDir(*folders, consistent_copy=True) as files:
        row = finding(files, "orders")
        assert row["verdict"] == "unknown"
        assert "INCONSISTENT_TOPIC_ID" in str(row["error"])
