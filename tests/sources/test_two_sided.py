"""What coordinators have open on partitions that were not read is unknown, and never nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka.cimpl import NewTopic

from tests.builders import create_topics
from tests.process import run
from tests.sources.log_files import after, ids_of, marker, state_record, write_log, write_root, write_state_topic
from tests.sources.recorded import take_sample
from tests.spark.read_log import plan_read, read
from toolkit import Cluster, LogDir, Recording
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, config_of, until
from toolkit.schema.live import Finding
from toolkit.schema.table import utc_now
from toolkit.sources.live.broker_client import BrokerClient
from toolkit.sources.recording.recorder import SampleWriter

AWAY = 2  # the broker that will not answer


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """An open transaction on both partitions of ``paid``, of which one broker of two leads one; it stops at last."""
    with Kafka("4.3.1", brokers=2) as kafka:
        topics = [NewTopic("paid", 2, replica_assignment=[[1], [AWAY]]), NewTopic("quiet", 1, replica_assignment=[[1]])]
        create_topics(kafka, *topics)
        with BrokerClient(config_of(kafka)) as client:
            producer = TxnProducer(client, "payments-7").init()
            producer.add("paid", 0, 1)
            producer.send("paid", 0)
            producer.send("paid", 1)
        folder = tmp_path_factory.mktemp("two-sided")
        yield SimpleNamespace(kafka=kafka, folder=folder, producer_id=producer.producer_id)


def where(found: Sequence[Finding]) -> list[tuple[str | None, int | None, str, str | None]]:
    return [(each.topic, each.partition, each.verdict, each.transactional_id) for each in found]


@pytest.mark.lab
def test_a_broker_that_does_not_answer(staged: SimpleNamespace) -> None:
    """Its id vanished, and the partition's row did not name it; a partition outside of the selection is not missing."""
    kafka = staged.kafka
    kafka.stop_broker(AWAY)
    with Cluster(kafka.bootstrap_servers, timeout=20) as cluster:
        gone = ("paid", 1, "unknown", "payments-7")
        until(lambda: gone in where(cluster.records(Finding, recheck_after=0.5)) or None, awaited="a leader less")
        found = cluster.records(Finding, recheck_after=0.5)
        assert where(found) == [("paid", 0, "ongoing", "payments-7"), gone]
        error = f"LEADER_NOT_AVAILABLE: the partition has no leader: broker {AWAY} is offline"
        assert found[1].missing == (f"the log of paid-1: {error}",)
        assert where(cluster.records(Finding, topics=["quiet"], recheck_after=0.5)) == [("quiet", 0, "clear", None)]
        assert where(cluster.records(Finding, partitions=[("paid", 0)], recheck_after=0.5)) == where(found)[:1]
        sample = take_sample(cluster, due=utc_now())
        assert where(sample.findings) == where(found)
        with SampleWriter(staged.folder / "recording") as writer:
            writer.write(sample)
    assert where(Recording(staged.folder / "recording").records(Finding)) == where(found)
    result = run("diagnose", "--bootstrap-server", kafka.bootstrap_servers, "--recheck-after", "0")
    assert result.returncode == 3
    assert "nothing that was read hangs, 1 ongoing, 1 unknown" in result.stdout
    result = run("find-hanging", "--bootstrap-server", kafka.bootstrap_servers, "--topic", "quiet")
    assert result.returncode == 0
    assert "nothing hangs (1 partition of broker 1; 1 open transactional id, 1 of them open elsewhere)" in result.stdout


@pytest.mark.lab
def test_files_without_a_partition_that_the_coordinator_has_open(staged: SimpleNamespace) -> None:
    """The state alone was "no transaction is open", exit code 0; a copy without a folder dropped its transaction."""
    kafka = staged.kafka
    copies = {name: staged.folder / name for name in ("without-paid-1", "state-alone")}
    with Cluster(kafka.bootstrap_servers) as cluster:
        (owner,) = cluster.transaction_rows(transactional_ids=["payments-7"])
    log_dir = kafka.log_dirs[int(owner["coordinator_id"])]
    for name, copy in copies.items():
        kept = [each for each in log_dir.iterdir() if each.is_dir() and each.name.startswith(STATE_TOPIC)]
        if name == "without-paid-1":
            kept += [kafka.log_dirs[1] / "paid-0", log_dir / "__cluster_metadata-0"]
        for each in kept:
            shutil.copytree(each, copy / each.name)
    first = ("paid", 0, "ongoing", "payments-7")
    second = ("paid", 1, "unknown", "payments-7")
    found = LogDir(copies["without-paid-1"]).records(Finding)
    assert where(found) == [first, second]
    (missing,) = found[1].missing
    assert "it is not among the files; by the metadata log its replicas are on broker 2" in missing
    selected = LogDir(copies["without-paid-1"]).records(Finding, partitions=[("paid", 0)])
    assert where(selected) == [first]
    assert where(LogDir(copies["without-paid-1"]).records(Finding, topics=["paid"])) == [first, second]
    assert where(in_tasks(copies["without-paid-1"])) == [first, second]
    alone = run("diagnose", "--log-dir", str(copies["state-alone"]), "--format", "json")
    rows = [(each["topic"], each["partition"], each["verdict"]) for each in json.loads(alone.stdout)["rows"]]
    assert (alone.returncode, rows) == (3, [("paid", 0, "unknown"), ("paid", 1, "unknown")])
    chosen = run("diagnose", "--log-dir", str(copies["state-alone"]), "--topic", STATE_TOPIC)
    assert chosen.returncode == 0
    assert "1 transactional id, 1 of them open elsewhere)" in chosen.stdout


@pytest.mark.parametrize(
    "spoiled", ["nothing", "another cluster", "an unknown cluster", "without a segment", "without a footer"]
)
def test_a_metadata_log_that_is_not_all_of_this_cluster_deletes_no_topic(tmp_path: Path, spoiled: str) -> None:
    """It has no topic of that name, and is newer: what the coordinators have open there vanished, with exit code 0."""
    (owner,) = ids_of(33, 1)
    root, other = write_root(tmp_path / "1"), write_root(tmp_path / "2", broker_id=2)
    write_state_topic(root, {33: [state_record(0, owner, 7, "Ongoing", after(), on=[("paid", 0)])]})
    start = 5 if spoiled.startswith("without") else 0
    folder = write_log(other, "__cluster_metadata-0", [marker(start, 1, after(hours=1))], base_offset=start)
    if spoiled == "another cluster":
        write_root(other, broker_id=2, cluster_id="nuYagfUjSV-QqeIjFMsFWQ")
    elif spoiled == "an unknown cluster":
        (other / "meta.properties").unlink()
    elif spoiled == "without a segment":
        write_log(other, folder.name, [marker(0, 1, after(hours=-1))])
    elif spoiled == "without a footer":
        (folder / f"{5:020}-0000000001.checkpoint").write_bytes(marker(0, 1, after(hours=-1)))
    found = LogDir(tmp_path).records(Finding)
    assert where(found) == ([] if spoiled == "nothing" else [("paid", 0, "unknown", owner)])


def in_tasks(path: Path) -> list[Finding]:
    """The findings of ``kafka_log_dir``, of which each task has few logs, and one those that nobody has."""
    found = read(*plan_read(path, table="findings", maxPartitionBytes=1))
    return Finding.table.in_order(Finding.of_table(found))
