"""``kafka_txn_samples``: the flight recorder as a stream that survives broker outages, and one sample as a batch."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict, InputPartition

from tests.sources.test_outage import create, is_led
from tests.tiers import amount
from toolkit import Cluster
from toolkit.config import ClientConfig
from toolkit.errors import UsageError
from toolkit.lab import Kafka
from toolkit.lab.clients import TxnProducer, until
from toolkit.lab.incidents import EVERYDAY
from toolkit.schema import RECORDED
from toolkit.spark import register
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.datasources.data_sources import KafkaTransactions
from toolkit.spark.datasources.reader_options import EVERYTHING, RECORDED_TABLES, connecting, recorded_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.xdist_group("spark")  # so that its cluster is started once

OUTAGE_TEST_S = amount(30, full=120)
INTERVAL_S = 5.0
HANGING, ALIVE = "hanging", "alive"


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[Kafka]:
    """With a hanging transaction, and a healthy open one."""
    properties = {**EVERYDAY.properties, "transaction.max.timeout.ms": "86400000"}
    with Kafka("4.3.1", brokers=3, properties=properties) as kafka:
        with Cluster(kafka.bootstrap_servers, timeout=30) as cluster:
            for topic in (HANGING, ALIVE):
                create(cluster.client, topic, [[1, 2, 3]])
                until(lambda topic=topic: is_led(cluster.client, topic), awaited=f"the leader of {topic}")  # type: ignore[misc]
            TxnProducer(cluster.client, "never-added").init().send(HANGING, 0)
            alive = TxnProducer(cluster.client, "alive", timeout_ms=86_400_000).init()
            alive.add(ALIVE, 0)
            alive.send(ALIVE, 0)
        yield kafka


def source(three_brokers: Kafka, **overrides: object) -> KafkaTransactions:
    values = {"kafka.bootstrap.servers": three_brokers.bootstrap_servers, **overrides}
    return KafkaTransactions(CaseInsensitiveDict({name: str(value) for name, value in values.items()}))


def batch_frame(spark: SparkSession, three_brokers: Kafka, **overrides: object) -> DataFrame:
    register(spark)
    return spark.read.format("kafka_txn_samples").options(**source(three_brokers, **overrides).options).load()


def stream_frame(spark: SparkSession, three_brokers: Kafka, **overrides: object) -> DataFrame:
    register(spark)
    return spark.readStream.format("kafka_txn_samples").options(**source(three_brokers, **overrides).options).load()


def due_times(tasks: Sequence[InputPartition]) -> list[int]:
    reader = source_reader()
    rows = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    return [round(row["sampled_at"].timestamp() * 1000) for row in rows if row["table"] == "samples"]


def source_reader() -> Any:
    return KafkaTransactions({"kafka.bootstrap.servers": "nowhere:1"}).reader(recorded_schema(EVERYTHING))


def sample_table(everything: DataFrame, table: str) -> DataFrame:
    return everything.where(f"table = '{table}'").select(f"{table}.*")


@pytest.mark.lab
def test_a_batch_read_is_one_sample(spark: SparkSession, three_brokers: Kafka) -> None:
    for table in RECORDED_TABLES:
        schema = batch_frame(spark, three_brokers, table=table).schema
        assert [(field.name, field.dataType) for field in schema] == [
            (field.name, field.dataType) for field in recorded_schema(table)
        ]
    verdicts = (
        batch_frame(spark, three_brokers, table="findings", recheckAfter=0.5).select("topic", "verdict").collect()
    )
    assert {tuple(row) for row in verdicts} == {(HANGING, "hanging"), (ALIVE, "ongoing")}
    sample_rows = batch_frame(spark, three_brokers, recheckAfter=0).cache()
    assert {name: sample_table(sample_rows, name).count() > 0 for name in RECORDED} == {
        name: name != "late_transactions" for name in RECORDED
    }
    assert sample_rows.select("sampled_at").distinct().count() == 1
    (verdict,) = (row.verdict for row in sample_table(sample_rows, "findings").where(f"topic = '{HANGING}'").collect())
    assert verdict == "unknown", "a single sample proves nothing"
    producers = sample_table(sample_rows, "producers")
    assert [(field.name, field.dataType) for field in producers.schema] == [
        (field.name, field.dataType) for field in struct_type(RECORDED["producers"])
    ]
    sample_rows.unpersist()


@pytest.mark.lab
def test_a_batch_read_of_an_unreachable_cluster_fails(spark: SparkSession) -> None:
    register(spark)
    reader = spark.read.format("kafka_txn_samples").option("kafka.bootstrap.servers", "127.0.0.1:1")
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1 cannot be used"):
        reader.option("table", "findings").load().count()


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("10s", 10_000),
        ("10", 10_000),
        ("1 minute", 60_000),
        ("interval 1 hour 30 min", 5_400_000),
        ("250ms", 250),
        ("0.5", 500),
    ],
)
def test_intervals_have_sparks_syntax(text: str, milliseconds: int) -> None:
    reader: Any = KafkaTransactions({"kafka.bootstrap.servers": "nowhere:1", "interval": text}).streamReader(None)  # type: ignore[arg-type]
    assert reader.latestOffset()["due"] % milliseconds == 0
    assert reader._options.sample.interval_ms == milliseconds


def stream_reader(interval: str = "1h") -> Any:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "interval": interval, "timeout": "1"}
    return KafkaTransactions(options).streamReader(recorded_schema(EVERYTHING))


def test_offsets_never_decrease() -> None:
    reader = stream_reader()
    assert reader.initialOffset() == {"due": 0}
    first = reader.latestOffset()
    assert first["due"] % 3_600_000 == 0
    assert reader.latestOffset(first, None) == first, "the start offset means that there is nothing new"
    later = {"due": first["due"] + 86_400_000}  # the clock was set back, or the interval was shorter before a restart
    assert reader.latestOffset(later, None) == later
    assert reader.latestOffset() == later
    assert reader.partitions(later, later) == []

    restarted = stream_reader()
    assert restarted.partitions(later, later) == [], "Spark 4.0 passes its last offset by this call"
    assert restarted.latestOffset() == later
    available_now = stream_reader()
    available_now.prepareForTriggerAvailableNow()
    assert available_now.latestOffset({"due": 0}, None) == first
    assert available_now.latestOffset(first, None) == first


@pytest.mark.parametrize("offset", [{"partition": 1}, {"due": "2027-01-01"}, {}])
def test_a_checkpoint_of_another_source_or_a_later_version_is_refused(offset: dict[str, Any]) -> None:
    """It was a KeyError."""
    reader: Any = stream_reader()
    calls: list[Callable[[], object]] = [
        lambda: reader.partitions(offset, {"due": 1}),
        lambda: reader.latestOffset(offset),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="Set checkpointLocation to a new folder") as error:
            call()
        assert "kafka_txn_samples" in str(error.value)


def test_an_unreachable_cluster_gives_a_failed_sample() -> None:
    reader = stream_reader("2s")
    end = reader.latestOffset({"due": 0}, None)
    tasks = reader.partitions({"due": 0}, end)
    assert due_times(tasks) == [end["due"]]
    (row,) = [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]
    assert row["samples"]["error"].startswith("NETWORK_EXCEPTION: The broker at 127.0.0.1:1 cannot be used")
    assert [row[name] for name in RECORDED if name != "samples"] == [None] * (len(RECORDED) - 1)
    assert reader.partitions({"due": 0}, end) is tasks, "Spark may plan a micro-batch twice"


def test_executors_get_rows_and_no_credentials() -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    config = ClientConfig({"bootstrap.servers": "127.0.0.1:1", **login, "sasl.password": "s3cr3t"})
    source = connecting(KafkaTransactions, config=config, hides_secrets=True)
    reader = source({"timeout": "1"}).streamReader(recorded_schema(EVERYTHING))
    pickled_reader = cloudpickle.dumps(reader)  # type: ignore[no-untyped-call]
    assert b"s3cr3t" not in pickled_reader
    tasks = reader.partitions({"due": 0}, {"due": 1000})
    script = (
        "import pickle, sys; reader, tasks = map(pickle.loads, pickle.load(sys.stdin.buffer));"
        "print(sum(batch.num_rows for task in tasks for batch in reader.read(task)))"
    )
    stdin = cloudpickle.dumps([pickled_reader, cloudpickle.dumps(tasks)])  # type: ignore[no-untyped-call]
    assert run_without_package(script, stdin) == "1"


def run_without_package(script: str, stdin: bytes) -> str:
    """The output of a process that cannot import this package."""
    paths = os.pathsep.join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    check = "import importlib.util; assert importlib.util.find_spec('toolkit') is None;"
    process = subprocess.run(
        [sys.executable, "-S", "-c", check + script],
        input=stdin,
        cwd="/",
        env={"PYTHONPATH": paths},
        capture_output=True,
        timeout=60,
    )
    assert process.returncode == 0, process.stderr.decode()
    return process.stdout.decode().strip()


@pytest.mark.lab
def test_connections_are_reused_between_samples_and_closed(three_brokers: Kafka) -> None:
    before = connections()
    reader: Any = source(three_brokers, interval="0.2s").streamReader(recorded_schema(EVERYTHING))
    start, clusters, clients = {"due": 0}, set(), set[int | None]()
    for _ in range(3):
        end = reader.latestOffset(start, None)
        while end == start:
            end = reader.latestOffset(start, None)
        assert due_times(reader.partitions(start, end)) == [end["due"]]
        clusters.add(id(reader._sampler.cluster()))
        clients |= connections() - before
        start = end
    assert (len(clusters), len(clients)) == (1, 1)
    verdicts = {row["topic"]: row["verdict"] for row in reader._sample.tables["findings"]}
    assert verdicts == {HANGING: "hanging", ALIVE: "ongoing"}, "each sample is diagnosed with the one before"
    reader.stop()
    assert connections() == before


def connections() -> set[int | None]:
    """The ids of the threads that serve connections."""
    return {thread.ident for thread in threading.enumerate() if "kafka-txn-toolkit" in thread.name}


@pytest.mark.lab
def test_each_run_of_a_stream_adds_at_most_one_sample(
    spark: SparkSession, three_brokers: Kafka, tmp_path: Path
) -> None:
    """Even if Spark repeats a micro-batch: its own files have each sample once."""

    def run(**trigger: bool) -> list[tuple[dt.datetime, dt.datetime]]:
        # Samples are due at multiples of the interval; a short one could end during the test.
        writer = stream_frame(spark, three_brokers, interval="10000h").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(**trigger)
        query = writer.start(str(tmp_path / "files"))
        assert query.awaitTermination(600)
        assert query.exception() is None
        rows = sample_table(spark.read.parquet(str(tmp_path / "files")), "samples").collect()
        return [(row.sampled_at, row.observed_at) for row in rows]

    first = run(availableNow=True)
    ((sampled_at, _),) = first
    assert run(once=True) == first
    assert run(availableNow=True) == first
    (commit,) = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
    commit.unlink()
    (commit.parent / f".{commit.name}.crc").unlink()
    assert run(availableNow=True) == first
    assert commit.exists(), "the micro-batch was repeated"
    partitions = sample_table(spark.read.parquet(str(tmp_path / "files")), "partitions").select("topic").distinct()
    assert {row.topic for row in partitions.collect()} >= {HANGING, ALIVE}
    offsets = [path.read_text() for path in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*")]
    assert [f'{{"due": {round(sampled_at.timestamp() * 1000)}}}' in text for text in offsets] == [True]


@pytest.mark.lab
def test_every_use_of_a_micro_batch_reads_the_same_sample(
    spark: SparkSession, three_brokers: Kafka, tmp_path: Path
) -> None:
    reads: list[Any] = []

    def read_twice(batch: DataFrame, number: int) -> None:
        reads.append([sample_table(batch, "samples").select("observed_at").collect() for _ in range(2)])

    query = (
        stream_frame(spark, three_brokers)
        .writeStream.foreachBatch(read_twice)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(600)
    ((first, second),) = reads
    assert first == second


@dataclass
class Outages:
    """Causes outages of the cluster or the stream, and records their times in seconds since 1970."""

    three_brokers: Kafka
    periods: list[tuple[float, float]] = field(default_factory=list)

    def record(self, begin: Callable[[], object], end: Callable[[], object], seconds: float) -> None:
        started = time.time()
        begin()
        threading.Event().wait(seconds)
        end()
        self.periods.append((started, time.time()))

    def kill_one(self, broker_id: int) -> None:
        self.record(lambda: self.three_brokers.kill(broker_id), lambda: self.three_brokers.start_broker(broker_id), 6)

    def pause_one(self, broker_id: int) -> None:
        self.record(lambda: self.three_brokers.pause(broker_id), lambda: self.three_brokers.resume(broker_id), 6)

    def kill_all(self) -> None:
        def kill() -> None:
            for broker_id in self.three_brokers.broker_ids:
                self.three_brokers.kill(broker_id)

        def start() -> None:
            for broker_id in self.three_brokers.broker_ids:
                self.three_brokers._launch(broker_id)  # a single one does not become ready
            self.three_brokers._wait_until_ready(*self.three_brokers.broker_ids)

        self.record(kill, start, 8)

    def seconds_between(self, start: float, stop: float) -> float:
        """Seconds of outages between two times."""
        return sum(max(0.0, min(stop, until) - max(start, since)) for since, until in self.periods)


@pytest.mark.lab
@pytest.mark.full
@pytest.mark.xdist_group("outages")
@pytest.mark.timeout(OUTAGE_TEST_S + 900)
def test_a_stream_survives_outages(spark: SparkSession, three_brokers: Kafka, tmp_path: Path) -> None:
    """Brokers are killed, paused and restarted; the query is stopped and restarted from its checkpoint.

    It writes plain files, in which a repeated sample would be visible.
    """
    outages, slowest = Outages(three_brokers), 0.0

    def start() -> StreamingQuery:
        frame = stream_frame(spark, three_brokers, interval=f"{INTERVAL_S:g}s")
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "files"))
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def samples() -> DataFrame:
        return sample_table(spark.read.parquet(str(tmp_path / "files")), "samples").orderBy("sampled_at")

    query = start()
    try:
        until(lambda: True if query.lastProgress else None, awaited="the first sample")
        deadline = time.time() + OUTAGE_TEST_S
        for number in itertools.count():
            if time.time() > deadline and number > 4:
                break
            if number % 4 == 0:
                outages.kill_one(1 + number // 4 % 3)
            elif number % 4 == 1:
                outages.pause_one(1 + (number // 4 + 1) % 3)
            elif number % 4 == 2:
                slowest = max([slowest, *durations(query)])
                stopping = query
                outages.record(stopping.stop, lambda: None, 2)
                query = start()
            else:
                outages.kill_all()
            threading.Event().wait(3)
            assert query.exception() is None
        recovered_at = dt.datetime.now(dt.UTC)
        until(
            lambda: True if has_healthy_sample(spark, tmp_path / "files", since=recovered_at) else None,
            awaited="a sample of the recovered cluster",
        )
        slowest = max([slowest, *durations(query)])
    finally:
        query.stop()
    rows = samples().collect()
    due = [row.sampled_at.timestamp() for row in rows]
    assert len(set(due)) == len(due), "a sample is repeated"
    assert len(due) > OUTAGE_TEST_S / (INTERVAL_S + slowest) / 2
    for before, after in itertools.pairwise(due):
        assert after - before <= INTERVAL_S + outages.seconds_between(before, after) + slowest, (before, after)
    failed = [row for row in rows if row.error]
    assert failed, "no sample failed while all brokers were down"
    for row in failed:
        at = row.observed_at.timestamp()
        assert outages.seconds_between(at - row.seconds - 5, at) > 0, row
    verdicts = (
        sample_table(spark.read.parquet(str(tmp_path / "files")), "findings").select("topic", "verdict").distinct()
    )
    wrong_verdicts = [row for row in verdicts.collect() if row.topic == ALIVE and row.verdict in {"hanging", "clear"}]
    assert wrong_verdicts == []
    longest = max(after - before for before, after in itertools.pairwise(due))
    print(
        f"{len(rows)} samples in {due[-1] - due[0]:.0f} s, {len(failed)} failed; {len(outages.periods)} outages, "
        f"{sum(until - since for since, until in outages.periods):.0f} s; "
        f"longest gap {longest:.0f} s, slowest micro-batch {slowest:.1f} s"
    )


def durations(query: StreamingQuery) -> list[float]:
    """Seconds of each micro-batch so far, without empty ones."""
    return [
        progress.durationMs["triggerExecution"] / 1000 for progress in query.recentProgress if progress.numInputRows
    ]


def has_healthy_sample(spark: SparkSession, files: Path, *, since: dt.datetime) -> bool:
    findings = sample_table(spark.read.parquet(str(files)), "findings").where(
        f"sampled_at > timestamp '{since.isoformat()}'"
    )
    verdicts = {(row.topic, row.verdict) for row in findings.select("topic", "verdict").collect()}
    return (HANGING, "hanging") in verdicts and not verdicts.isdisjoint({(ALIVE, "ongoing"), (ALIVE, "long")})
