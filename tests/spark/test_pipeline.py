"""The pipeline on log directories of a real broker: a run adds the new rows, and completes a killed run."""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.sources.recorded import NINE, rows_of, sample
from tests.tiers import seed
from toolkit import Cluster, LogDir
from toolkit.errors import UsageError
from toolkit.lab import Kafka
from toolkit.schema import RECORDED, SAMPLES, Table
from toolkit.sources.recording.recorder import SampleWriter
from toolkit.sources.recording.recording import INCOMPLETE, Sample
from toolkit.spark.pipeline import run_sources
from toolkit.spark.pipeline.pipeline_run import run
from toolkit.spark.pipeline.run_sources import RecordedSamples, list_samples, store_samples
from toolkit.spark.pipeline.stored_tables import KEPT, STORED_NAMES, lasting_content, open_store, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from toolkit.spark.pipeline.pipeline_run import RunSummary

pytestmark = pytest.mark.lab

MIN_HELD_MS = 50
LOG_TABLES = ("batches", "log_transactions", "lso_timeline", "transaction_history", "lso_holds", "findings")
READ_BY_JOBS, READ_BY_DRIVER = -1, 1 << 40  # limits of the bytes that the driver reads itself
COORDINATOR_PARTITIONS = 3  # of each coordinator topic; few, to save time
ROOT = Path(__file__).resolve().parents[2]
RUN_TIMEOUT_S = 600  # of one run, on a busy machine
RUN_PROGRAM = f"""
import faulthandler
import sys

faulthandler.dump_traceback_later({RUN_TIMEOUT_S - 10})
from tests.spark.settings import QUICK
from toolkit.spark.spark_session import delta_settings
from toolkit.spark.spark_session import local_session
from toolkit.spark.pipeline import run_sources
from toolkit.spark.pipeline.pipeline_run import run
run_sources.SMALL = int(sys.argv[5])
spark = local_session(master="local[2]", config={{**delta_settings(), **QUICK}})
options = {{"min_held_ms": int(sys.argv[3]), "txn_state_partitions": int(sys.argv[4])}}
run(spark, sys.argv[1], sys.argv[2], consistent_copy=True, with_batches=True, **options)
"""


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Log directories of a broker after its first and second clean stop; it grew in between."""
    from tests.workload import random_workload  # imports kafka-python, which needs the filters
    from toolkit.lab.incidents import EVERYDAY, INCIDENTS

    folder = tmp_path_factory.mktemp("stages")
    # Records that the cleaner deleted in between would stay in the tables, and a single run would not have them.
    properties = {
        **EVERYDAY.properties,
        "log.cleaner.min.compaction.lag.ms": 3_600_000,
        "transaction.state.log.num.partitions": COORDINATOR_PARTITIONS,
        "offsets.topic.num.partitions": COORDINATOR_PARTITIONS,
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


def restore(stage: Path, logs: Path) -> None:
    """Copy a stage to the log directory, whose path is part of the stored rows."""
    shutil.rmtree(logs, ignore_errors=True)
    shutil.copytree(stage, logs, copy_function=shutil.copy2)


def run_pipeline(spark: SparkSession, logs: Path, out: Path | str, **options: object) -> RunSummary:
    arguments: dict[str, Any] = {
        "consistent_copy": True,
        "txn_state_partitions": COORDINATOR_PARTITIONS,
        "with_batches": True,
        **options,
    }
    return run(spark, logs, str(out), min_held_ms=MIN_HELD_MS, **arguments)


def stored_rows(out: Path, name: str) -> list[str]:
    """All rows of a Delta table, read without Spark."""
    table = KEPT[name]
    if not (out / name).exists():
        return []
    stored = DeltaTable(out / name).to_pyarrow_table(columns=[STORED_NAMES.get(each, each) for each in table.names])
    return sorted_rows(stored.rename_columns(table.names), table)


def sorted_rows(arrow_table: pa.Table, table: Table) -> list[str]:
    rows = map(lasting_content, arrow_table.cast(table.arrow_schema).to_pylist())
    so_far = {"least_ms": None} if table.name == "lso_holds" else {}  # of open ones, that of the findings is stored
    return sorted(repr({**row, **so_far} if row.get("marker_offset") is None else row) for row in rows)


def versions(out: Path) -> Mapping[str, int]:
    return {path.parent.name: DeltaTable(path.parent).version() for path in out.rglob("_delta_log")}


def rows_of_pandas(logs: Path, *, consistent: bool = True) -> Mapping[str, list[str]]:
    """The rows of every table that files fill."""
    files = LogDir(logs, consistent_copy=consistent, txn_state_partitions=COORDINATOR_PARTITIONS)
    tables: dict[str, list[str]] = {}
    arguments: dict[str, Any] = {"findings": {"min_held_ms": MIN_HELD_MS}, "batches": {"crc": True}}
    for name in LOG_TABLES:
        expected = getattr(files, name)(**arguments.get(name, {}))
        if name == "lso_holds":
            expected = expected[~(expected["held_ms"] < MIN_HELD_MS).fillna(False)]
        rows = KEPT[name].arrow(KEPT[name].rows(expected))
        tables[name] = sorted_rows(rows, KEPT[name])
        assert tables[name], name
    return tables


def assert_stored_tables(out: Path, expected: Mapping[str, list[str]]) -> None:
    for name, rows in expected.items():
        actual = stored_rows(out, name)
        unmatched = [row for row in actual if row not in rows], [row for row in rows if row not in actual]
        assert actual == rows, (name, [each[:2] for each in unmatched])


@pytest.fixture
def logs(stages: list[Path], tmp_path: Path) -> Path:
    restore(stages[1], tmp_path / "logs")
    return tmp_path / "logs"


@pytest.mark.parametrize("by_jobs", [(True, False), pytest.param((False, True), marks=pytest.mark.full)])
def test_several_runs_match_pandas(
    spark: SparkSession, stages: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_jobs: tuple[bool, bool]
) -> None:
    """``by_jobs``: whether Spark jobs or the driver read the new data of each run."""
    logs, out = tmp_path / "logs", tmp_path / "out"
    restore(stages[0], logs)
    monkeypatch.setattr(run_sources, "SMALL", READ_BY_JOBS if by_jobs[0] else READ_BY_DRIVER)
    first = run_pipeline(spark, logs, out)
    assert first.read[0].new == first.read[0].listed
    assert_stored_tables(out, rows_of_pandas(logs))
    before = versions(out)
    unchanged = run_pipeline(spark, logs, out)
    assert (unchanged.read[0].new, unchanged.read[0].bytes_read, unchanged.verdicts) == (0, 0, first.verdicts)
    assert unchanged.tables == {name: replace(counts, new=0) for name, counts in first.tables.items()}
    assert versions(out) == before
    restore(stages[1], logs)
    monkeypatch.setattr(run_sources, "SMALL", READ_BY_JOBS if by_jobs[1] else READ_BY_DRIVER)
    grown = run_pipeline(spark, logs, out)
    assert grown.read[0].bytes_read == (grown.read[0].bytes_listed or 0) - (first.read[0].bytes_listed or 0) > 0
    assert 0 < grown.read[0].new < grown.read[0].listed
    assert 0 < grown.tables["batches"].new < grown.tables["batches"].rows
    assert grown.verdicts["hanging"] == 2
    assert_stored_tables(out, rows_of_pandas(logs))


def test_parquet_tables_match_pandas_and_are_written_once(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_pipeline(spark, logs, out, format="parquet")
    for name, rows in rows_of_pandas(logs).items():
        assert sorted_rows(read(spark, str(out), name, format="parquet").toArrow(), KEPT[name]) == rows, name
    with pytest.raises(UsageError, match=r"There are Parquet tables in .* already"):
        run_pipeline(spark, logs, out, format="parquet")


@pytest.mark.full
@pytest.mark.xdist_group("kills")
def test_a_killed_run_is_completed_by_the_next(spark: SparkSession, stages: list[Path], tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    rng = random.Random(seed())
    for stage in stages:
        restore(stage, logs)
        before = tmp_path / f"before-{stage.name}"
        shutil.copytree(out, before) if out.exists() else before.mkdir()
        if run_and_kill(logs, out, writes=rng.randint(1, 7), small=rng.choice([READ_BY_JOBS, READ_BY_DRIVER])) == 0:
            shutil.rmtree(out, ignore_errors=True)  # it had finished: restore, so that the next run has work
            shutil.copytree(before, out)
        for path in out.rglob("_delta_log"):
            if any(path.glob("*.json")):
                DeltaTable(path.parent).to_pyarrow_table()  # readable, whenever the run was killed
        run_pipeline(spark, logs, out)
        assert_stored_tables(out, rows_of_pandas(logs))


def run_and_kill(logs: Path, out: Path, *, writes: int, small: int) -> int:
    """Run the pipeline in its own process, and kill that after some commits; return 0 if it finished before."""
    numbers = map(str, (MIN_HELD_MS, COORDINATOR_PARTITIONS, small))
    command = [sys.executable, "-c", RUN_PROGRAM, str(logs), str(out), *numbers]
    commits_before = set(out.rglob("_delta_log/*.json"))
    deadline = time.monotonic() + RUN_TIMEOUT_S
    with tempfile.TemporaryFile() as stderr:  # an unread pipe fills up, and blocks the process
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=stderr)
        try:
            while len(set(out.rglob("_delta_log/*.json")) - commits_before) < writes and process.poll() is None:
                time.sleep(0.05)
                assert time.monotonic() < deadline, stderr_of(stderr)
        finally:
            with suppress(ProcessLookupError):  # it has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=120)
        assert process.returncode in {0, -signal.SIGKILL}, stderr_of(stderr)
        return process.returncode


def stderr_of(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode()


def stored_rows_of_partition(out: Path, name: str, topic: str, partition: int) -> list[str]:
    return [row for row in stored_rows(out, name) if f"'topic': '{topic}', 'partition': {partition}," in row]


@pytest.mark.full
def test_samples_of_a_recording_are_stored_once(spark: SparkSession, tmp_path: Path) -> None:
    recording, out = tmp_path / "recording", tmp_path / "out"
    samples = [sample(NINE + hours * dt.timedelta(hours=1)) for hours in (0, 1, 23, 24)]
    record(recording, samples[:3])
    shutil.copytree(recording, tmp_path / "before")
    with SampleWriter(recording) as writer:
        writer.merge(now=samples[3].due)
    shutil.copytree(tmp_path / "before", recording, dirs_exist_ok=True)  # as a kill during the merge leaves it
    first = run(spark, recording, str(out))
    assert (first.read[0].what, first.read[0].listed, first.read[0].new) == ("samples", 3, 3)
    assert first.verdicts == {"hanging": 1}
    before = versions(out)
    unchanged = run(spark, [recording], str(out))
    assert (unchanged.read[0].new, unchanged.findings) == (0, first.findings)
    assert versions(out) == before
    record(recording, samples[3:])
    with SampleWriter(recording) as writer:
        assert writer.retire(before=samples[2].due) > 0
    grown = run(spark, recording, str(out))
    assert grown.tables["recorded_samples"].rows == 4
    (found,) = grown.findings
    assert (found.verdict, found.held_from, found.observed_at) == ("hanging", NINE, samples[3].due)
    for restored in ("runs", ""):  # what is stored stays, though the recorder has deleted it and no state knows of it
        for name, table in RECORDED.items():
            assert stored_rows(out, f"recorded_{name}") == sorted_rows(rows_of(samples, name), table), name
        shutil.rmtree(out / "internal" / restored)
        assert run(spark, recording, str(out)).findings == grown.findings


def record(directory: Path, samples: list[Sample]) -> None:
    with SampleWriter(directory) as writer:
        for each in samples:
            assert writer.write(each)


@pytest.fixture
def late_message(kafka: Kafka) -> Iterator[Any]:
    from toolkit.lab.incidents import INCIDENTS

    with INCIDENTS["late_message"](kafka) as staged:
        yield staged


def test_samples_after_a_clock_was_set_back_are_stored(spark: SparkSession, tmp_path: Path) -> None:
    """They are before the newest stored one: none of them was ever read, and what hung in them was not known."""
    recording, store = tmp_path / "recording", open_store(spark, f"{tmp_path}/out")
    times = [NINE + minutes * dt.timedelta(minutes=1) for minutes in (0, 120, 30, 40)]
    newest: dict[str, dt.datetime] = {}

    def listed(run_id: int) -> RecordedSamples:
        return list_samples(spark, str(recording), stored=newest, store=store, last_run=run_id - 1)

    for run_id, of_run in ((1, times[:2]), (2, times[2:])):
        record(recording, [sample(each) for each in of_run])
        if run_id == 2:
            with SampleWriter(recording) as writer:  # of the time to come, an operator removes them
                (future,) = (writer.directory / "samples").glob("20261121T11*")
                future.unlink()
        found = listed(run_id)
        assert found.count_new() == 2
        store_samples(store, "samples", [found], run_id=run_id)
        assert sorted(row["sampled_at"] for row in store.rows("recorded_samples", SAMPLES)) == sorted(
            times[: 2 * run_id]
        )
        assert found.newest is not None
        newest[found.log] = found.newest
    assert listed(3).count_new() == 0


def test_a_sample_of_which_a_copy_lacks_findings_is_stored_as_failed(spark: SparkSession, tmp_path: Path) -> None:
    """Copied while the recorder wrote: what hung had ended by the newest sample."""
    recording, store = tmp_path / "recording", open_store(spark, f"{tmp_path}/out")
    record(recording, [sample(NINE), sample(NINE + dt.timedelta(minutes=1))])
    max((recording / "findings").glob("2*")).unlink()
    found = list_samples(spark, str(recording), stored={}, store=store, last_run=0)
    store_samples(store, "samples", [found], run_id=1)
    errors = {row["sampled_at"]: row["error"] for row in store.rows("recorded_samples", SAMPLES)}
    assert [error for _, error in sorted(errors.items())] == [None, INCOMPLETE.format("findings")]


@pytest.mark.full
def test_a_live_cluster_is_read_from_the_stored_offsets(
    spark: SparkSession, kafka: Kafka, late_message: Any, tmp_path: Path
) -> None:
    from toolkit.lab.incidents import INCIDENTS

    out = tmp_path / "out"
    with Cluster(kafka.bootstrap_servers) as cluster:
        topics = [late_message.topic, "__transaction_state"]
        first = run(spark, cluster, str(out), topics=topics, min_held_ms=0)
        assert first.verdicts["hanging"] == 1
        assert [each.start_offset for each in first.findings if each.verdict == "hanging"] == [
            late_message.start_offset
        ]
        with INCIDENTS["marker_only"](kafka):
            second = run(spark, cluster, str(out), topics=topics, min_held_ms=0)
        assert 0 < second.read[0].bytes_read < first.read[0].bytes_read
        live = KEPT["log_transactions"].arrow(
            KEPT["log_transactions"].rows(
                cluster.log_transactions(topics=late_message.topic, partitions=late_message.partition)
            )
        )
        ids = {row["transactional_id"] for row in KEPT["transaction_history"].rows(cluster.transaction_history())}
    assert stored_rows_of_partition(out, "log_transactions", late_message.topic, late_message.partition) == sorted_rows(
        live, KEPT["log_transactions"]
    )
    assert {
        row["transactional_id"] for row in DeltaTable(out / "transaction_history").to_pyarrow_table().to_pylist()
    } <= ids
