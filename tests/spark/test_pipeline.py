"""The pipeline on directories of a real broker: a run adds new rows, and a killed one leaves nothing behind."""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.sources.recorded import NINE, rows_of, sample
from tests.tiers import amount, seed
from toolkit import Cluster, LogDir
from toolkit.errors import UsageError
from toolkit.lab import Kafka
from toolkit.schema import RECORDED, Table
from toolkit.sources.recording.sample import Sample
from toolkit.sources.recording.sample_writer import SampleWriter
from toolkit.spark.pipeline import from_files
from toolkit.spark.pipeline.kept_tables import KEPT, read
from toolkit.spark.pipeline.pipeline_run import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from toolkit.spark.pipeline.run_summary import RunSummary

pytestmark = pytest.mark.lab

KILLS = int(amount(1, full=3))
MIN_HELD_MS = 50
OF_LOGS = ("batches", "log_transactions", "lso_timeline", "transaction_history", "findings")
NOTHING, ALL = -1, 1 << 40  # bytes that the driver reads by itself
COORDINATORS = 3  # partitions of each coordinators' topic, so that there is less to do
ROOT = Path(__file__).resolve().parents[2]
LONG_S = 300  # for one run
KILLED = f"""
import faulthandler
import sys

faulthandler.dump_traceback_later({LONG_S - 10})
from tests.spark.settings import QUICK
from toolkit.spark.session.delta_jars import delta_settings
from toolkit.spark.session.local_session import local_session
from toolkit.spark.pipeline import from_files
from toolkit.spark.pipeline.pipeline_run import run
from_files.SMALL = int(sys.argv[5])
spark = local_session(master="local[2]", config={{**QUICK, **delta_settings()}})
options = {{"min_held_ms": int(sys.argv[3]), "txn_state_partitions": int(sys.argv[4])}}
run(spark, sys.argv[1], sys.argv[2], consistent_copy=True, with_batches=True, **options)
"""


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """What a broker left that stopped twice; in between it got more of everything."""
    from toolkit.lab.incidents import EVERYDAY, INCIDENTS  # with kafka-python, which has to wait for the filters
    from toolkit.lab.workload import random_workload

    folder = tmp_path_factory.mktemp("stages")
    # What the cleaner takes in between stays in the tables, and would not be in those of a single run.
    properties = {
        **EVERYDAY.properties,
        "log.cleaner.min.compaction.lag.ms": 3_600_000,
        "transaction.state.log.num.partitions": COORDINATORS,
        "offsets.topic.num.partitions": COORDINATORS,
    }
    with ExitStack() as stack:
        kafka = stack.enter_context(Kafka("4.3.1", properties=properties))
        for number, incident in enumerate(("late_message", "never_added")):
            stack.enter_context(random_workload(kafka, seed=f"stage{number}", seconds=1, delete_records=False))
            stack.enter_context(INCIDENTS[incident](kafka))
            kafka.stop_broker(1)
            shutil.copytree(kafka.log_dirs[1], folder / str(number), copy_function=shutil.copy2)
            kafka.start_broker(1)
    return [folder / "0", folder / "1"]


def put(stage: Path, logs: Path) -> None:
    """Restore a log directory to a stage; its path is part of the stored rows."""
    shutil.rmtree(logs, ignore_errors=True)
    shutil.copytree(stage, logs, copy_function=shutil.copy2)


def go(spark: SparkSession, logs: Path, out: Path | str, **options: object) -> RunSummary:
    arguments: dict[str, Any] = {
        "consistent_copy": True,
        "txn_state_partitions": COORDINATORS,
        "with_batches": True,
        **options,
    }
    return run(spark, logs, str(out), min_held_ms=MIN_HELD_MS, **arguments)


def kept(out: Path, name: str) -> list[str]:
    """Every row of a table, as whoever reads Delta without Spark has them."""
    table = KEPT[name]
    if not (out / name).exists():
        return []
    return listed(DeltaTable(out / name).to_pyarrow_table(columns=table.names), table)


def listed(found: pa.Table, table: Table) -> list[str]:
    return sorted(map(repr, found.cast(table.arrow_schema).to_pylist()))


def versions(out: Path) -> Mapping[str, int]:
    return {path.name: DeltaTable(path).version() for path in out.iterdir()}


def of_pandas(logs: Path, *, consistent: bool = True) -> Mapping[str, list[str]]:
    """The rows of every table that files fill."""
    files = LogDir(logs, consistent_copy=consistent, txn_state_partitions=COORDINATORS)
    found: dict[str, list[str]] = {}
    for name in OF_LOGS:
        expected = files.findings(min_held_ms=MIN_HELD_MS) if name == "findings" else getattr(files, name)()
        rows = KEPT[name].arrow(KEPT[name].rows(expected))
        found[name] = listed(rows, KEPT[name])
        assert found[name], name
    return found


def same(out: Path, expected: Mapping[str, list[str]]) -> None:
    for name, rows in expected.items():
        found = kept(out, name)
        alone = [row for row in found if row not in rows], [row for row in rows if row not in found]
        assert found == rows, (name, [each[:2] for each in alone])


@pytest.fixture
def logs(stages: list[Path], tmp_path: Path) -> Path:
    put(stages[1], tmp_path / "logs")
    return tmp_path / "logs"


@pytest.mark.parametrize("by_jobs", [(True, False), pytest.param((False, True), marks=pytest.mark.full)])
def test_several_runs_match_pandas(
    spark: SparkSession, stages: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_jobs: tuple[bool, bool]
) -> None:
    """Whether Spark's jobs read the new data, or the driver, as there is little."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    put(stages[0], logs)
    monkeypatch.setattr(from_files, "SMALL", NOTHING if by_jobs[0] else ALL)
    first = go(spark, logs, out)
    assert first.read[0].new == first.read[0].listed
    same(out, of_pandas(logs))
    before = versions(out)
    again = go(spark, logs, out)
    assert (again.read[0].new, again.read[0].bytes_read, again.verdicts) == (0, 0, first.verdicts)
    assert all(counts.new == 0 for counts in again.tables.values())
    assert versions(out) == before
    put(stages[1], logs)
    monkeypatch.setattr(from_files, "SMALL", NOTHING if by_jobs[1] else ALL)
    more = go(spark, logs, out)
    assert more.read[0].bytes_read == (more.read[0].bytes_listed or 0) - (first.read[0].bytes_listed or 0) > 0
    assert 0 < more.read[0].new < more.read[0].listed
    assert 0 < more.tables["batches"].new < more.tables["batches"].rows
    assert more.verdicts["hanging"] == 2
    same(out, of_pandas(logs))


def test_tables_have_comments(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    """By Spark, by pandas through deltalake, and by DuckDB; with the comments of the schema."""
    import duckdb

    schema = f"s{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE SCHEMA {schema} LOCATION '{tmp_path}/{schema}'")
    try:
        summary = go(spark, logs, schema, with_batches=False)
        count = summary.tables["findings"].rows
        assert read(spark, schema, "findings").count() == spark.table(f"{schema}.findings").count() == count
        described = {row["col_name"]: row["comment"] for row in spark.sql(f"DESCRIBE {schema}.findings").collect()}
        assert all(described[column.name] == column.doc for column in KEPT["findings"].columns)
        detail = spark.sql(f"DESCRIBE DETAIL {schema}.findings").collect()[0]
        assert KEPT["findings"].row in detail["description"]
    finally:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")
    out = tmp_path / "out"
    go(spark, logs, out, with_batches=False)
    frame = DeltaTable(out / "findings").to_pandas()
    assert len(frame) == count
    arrow = DeltaTable(out / "log_transactions").to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("log_transactions", arrow)
        (found,) = connection.sql("select count(*) from log_transactions").fetchall()
    assert found == (summary.tables["log_transactions"].rows,)


def test_parquet_is_written_once(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    go(spark, logs, out, format="parquet")
    for name, rows in of_pandas(logs).items():
        assert listed(read(spark, str(out), name, format="parquet").toArrow(), KEPT[name]) == rows, name
    with pytest.raises(UsageError, match=r"There are Parquet tables in .* already"):
        go(spark, logs, out, format="parquet")


@pytest.mark.full
@pytest.mark.xdist_group("kills")
def test_a_killed_run_is_completed_by_the_next(spark: SparkSession, stages: list[Path], tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    dice = random.Random(seed())
    for stage in stages:
        put(stage, logs)
        before = tmp_path / f"before-{stage.name}"
        shutil.copytree(out, before) if out.exists() else before.mkdir()
        for _ in range(KILLS):
            if kill(logs, out, writes=dice.randint(1, 7), small=dice.choice([NOTHING, ALL])) == 0:
                shutil.rmtree(out, ignore_errors=True)  # it was done before: the next one has something to do again
                shutil.copytree(before, out)
            for path in out.iterdir() if out.exists() else ():
                if (path / "_delta_log").exists() and any((path / "_delta_log").glob("*.json")):
                    DeltaTable(path).to_pyarrow_table()  # complete, whatever ran at that time
        go(spark, logs, out)
        same(out, of_pandas(logs))


def kill(logs: Path, out: Path, *, writes: int, small: int) -> int:
    """Run it with its own Spark, and kill that while or after some commits; 0 if it had finished before."""
    numbers = map(str, (MIN_HELD_MS, COORDINATORS, small))
    command = [sys.executable, "-c", KILLED, str(logs), str(out), *numbers]
    before = set(out.glob("*/_delta_log/*.json"))
    end = time.monotonic() + LONG_S
    with tempfile.TemporaryFile() as stderr:  # an unread pipe fills up, and blocks the process
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=stderr)
        try:
            while len(set(out.glob("*/_delta_log/*.json")) - before) < writes and process.poll() is None:
                time.sleep(0.05)
                assert time.monotonic() < end, stderr_of(stderr)
        finally:
            with suppress(ProcessLookupError):  # it had ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=120)
        assert process.returncode in {0, -signal.SIGKILL}, stderr_of(stderr)
        return process.returncode


def stderr_of(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode()


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def remove(segment: Path) -> None:
    for path in segment.parent.glob(f"{segment.stem}.*"):
        path.unlink()


def write_batch(source: Path, target: Path) -> None:
    """A segment with the first batch of another one, at the offset that it is named after."""
    data = segments(source)[0].read_bytes()
    size = 12 + int.from_bytes(data[8:12], "big")
    target.write_bytes(int(target.stem).to_bytes(8, "big") + data[8:size])


def of_log(out: Path, name: str, topic: str, partition: int) -> list[str]:
    return [row for row in kept(out, name) if f"'topic': '{topic}', 'partition': {partition}," in row]


def assert_rows_of(source: LogDir, out: Path, name: str, topic: str, partition: int) -> None:
    rows = getattr(source, name)(topics=[topic], partitions=[partition])
    assert of_log(out, name, topic, partition) == listed(KEPT[name].arrow(KEPT[name].rows(rows)), KEPT[name]), name


@pytest.mark.full
def test_deleted_offsets_are_kept_and_a_recreated_topic_is_replaced(
    spark: SparkSession, stages: list[Path], logs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    go(spark, logs, out)
    before = {name: kept(out, name) for name in OF_LOGS}
    expired, lost, again = (logs / f"plain-stage0-{number}" for number in range(3))
    remove(segments(expired)[0])
    everything = segments(lost)
    for each in everything:
        remove(each)
    end = int(everything[-1].stem) + 1000
    write_batch(stages[1] / "copies-stage1-0", lost / f"{end:020d}.log")
    remove(segments(again)[0])
    metadata = again / "partition.metadata"
    metadata.write_text(re.sub(r"(topic_id: ).{4}", r"\1AAAA", metadata.read_text()))
    go(spark, logs, out, consistent_copy=False)
    for name in ("batches", "log_transactions"):
        mine = [row for row in before[name] if "'topic': 'plain-stage0', 'partition': 0," in row]
        assert of_log(out, name, "plain-stage0", 0) == mine
    log_transactions = of_log(out, "log_transactions", "plain-stage0", 1)
    (reported,) = (row for row in log_transactions if "OFFSETS_LOST: Offsets" in row)
    assert f"{end - 1:,} were deleted" in reported
    assert {row for row in before["log_transactions"] if f"{lost.name}/" in row and "'open'" not in row} < set(
        log_transactions
    )
    fresh = LogDir(logs, consistent_copy=True)
    for name in ("batches", "log_transactions", "lso_timeline"):
        assert_rows_of(fresh, out, name, "plain-stage0", 2)


@pytest.mark.full
def test_a_truncated_replica_is_read_again_and_a_lagging_one_is_not(
    spark: SparkSession, stages: list[Path], logs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    go(spark, logs, out)
    behind, truncated = "plain-stage1-0", "plain-stage1-1"
    kept_before = of_log(out, "log_transactions", "plain-stage1", 0)
    for name in (behind, truncated):
        last = [path for path in segments(logs / name) if path.stat().st_size][-1]
        data = last.read_bytes()
        last.write_bytes(data[: len(data) // 2])  # ends within a batch, as a copy of a broker that is writing does
    cut = LogDir(logs / truncated).batches()
    end = int(cut["last_offset"].max()) + 1
    checkpoint = logs / truncated / "leader-epoch-checkpoint"
    lines = checkpoint.read_text().split()
    newer = int(lines[-2]) + 1
    entries = [*zip(lines[2::2], lines[3::2], strict=True), (str(newer), str(end))]
    checkpoint.write_text("\n".join(["0", str(len(entries)), *(" ".join(each) for each in entries), ""]))
    go(spark, logs, out)
    assert [row for row in of_log(out, "log_transactions", "plain-stage1", 0) if "TORN_TAIL" not in row] == kept_before
    for name in ("log_transactions", "lso_timeline"):
        assert_rows_of(LogDir(logs), out, name, "plain-stage1", 1)


@pytest.mark.full
def test_samples_of_a_recording_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    recording, out = tmp_path / "recording", tmp_path / "out"
    samples = [sample(NINE + hours * dt.timedelta(hours=1)) for hours in (0, 1, 23, 24)]
    record(recording, samples[:3])
    first = run(spark, recording, str(out))
    assert (first.read[0].what, first.read[0].listed, first.read[0].new) == ("samples", 3, 3)
    assert first.verdicts == {"hanging": 1}
    before = versions(out)
    again = run(spark, [recording], str(out))
    assert (again.read[0].new, again.findings) == (0, first.findings)
    assert versions(out) == before
    record(recording, samples[3:])
    for path in (recording / table / "20261121.parquet" for table in RECORDED):
        path.unlink(missing_ok=True)
    more = run(spark, recording, str(out))
    assert more.tables["recorded_samples"].rows == 4
    (row,) = more.findings
    assert (row["verdict"], row["held_from"], row["observed_at"]) == ("hanging", NINE, samples[3].due)
    for name, table in RECORDED.items():
        assert kept(out, f"recorded_{name}") == listed(rows_of(samples, name), table), name


def record(directory: Path, samples: list[Sample]) -> None:
    with SampleWriter(directory) as writer:
        for each in samples:
            assert writer.write(each)


@pytest.fixture
def late(kafka: Kafka) -> Iterator[Any]:
    from toolkit.lab.incidents import INCIDENTS

    with INCIDENTS["late_message"](kafka) as staged:
        yield staged


@pytest.mark.full
def test_a_live_cluster_is_read_from_the_stored_offsets(
    spark: SparkSession, kafka: Kafka, late: Any, tmp_path: Path
) -> None:
    from toolkit.lab.incidents import INCIDENTS

    out = tmp_path / "out"
    with Cluster(kafka.bootstrap_servers) as cluster:
        topics = [late.topic, "__transaction_state"]
        first = run(spark, cluster, str(out), topics=topics, min_held_ms=0)
        assert first.verdicts["hanging"] == 1
        assert [row["start_offset"] for row in first.findings if row["verdict"] == "hanging"] == [late.start_offset]
        with INCIDENTS["marker_only"](kafka):
            second = run(spark, cluster, str(out), topics=topics, min_held_ms=0)
        assert 0 < second.read[0].bytes_read < first.read[0].bytes_read
        live = KEPT["log_transactions"].arrow(
            KEPT["log_transactions"].rows(cluster.log_transactions(topics=late.topic, partitions=late.partition))
        )
        ids = {row["transactional_id"] for row in KEPT["transaction_history"].rows(cluster.transaction_history())}
    assert of_log(out, "log_transactions", late.topic, late.partition) == listed(live, KEPT["log_transactions"])
    assert {
        row["transactional_id"] for row in DeltaTable(out / "transaction_history").to_pyarrow_table().to_pylist()
    } <= ids
