"""All of it, on the directories of a real broker: a run adds what is new, and crashes leave nothing behind."""

from __future__ import annotations

import datetime as dt
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tests.sources.recorded import NINE, rows_of, sample
from tests.tiers import amount, seed
from toolkit import Cluster, LogDir
from toolkit.lab import Kafka
from toolkit.schema import BATCHES, RECORDED
from toolkit.sources.recording.sample import Sample
from toolkit.sources.recording.writer import Writer
from toolkit.spark.pipeline import run
from toolkit.spark.tables import KEPT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from toolkit.spark.summary import Summary

pytestmark = pytest.mark.lab

KILLS = int(amount(1, full=5))
MIN_HELD_MS = 50
NO_ROWS: Mapping[str, list[str]] = {name: [] for name in KEPT}
COORDINATORS = 3  # partitions of each coordinators' topic, so that there is less to do
ROOT = Path(__file__).resolve().parents[2]
KILLED = """
import sys
from toolkit.lab.session import local_session
from toolkit.spark.pipeline import run
spark = local_session(master="local[2]", config={"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"})
said = {"min_held_ms": int(sys.argv[3]), "txn_state_partitions": int(sys.argv[4])}
run(spark, sys.argv[1], sys.argv[2], at_rest=True, **said)
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
    """Make a log directory what it was at a stage; a path is part of what is stored."""
    shutil.rmtree(logs, ignore_errors=True)
    shutil.copytree(stage, logs, copy_function=shutil.copy2)


def go(spark: SparkSession, logs: Path, out: Path, **options: object) -> Summary:
    said: dict[str, Any] = {"at_rest": True, "txn_state_partitions": COORDINATORS, **options}
    return run(spark, logs, str(out), min_held_ms=MIN_HELD_MS, **said)


def kept(out: Path) -> Mapping[str, list[str]]:
    """Every row of every table, as the files have them for whoever reads Parquet."""
    found: dict[str, list[str]] = {}
    for name, each in KEPT.items():
        if not any((out / name).rglob("*.parquet")):
            found[name] = []
            continue
        files = ds.dataset(out / name, format="parquet", exclude_invalid_files=False, partitioning=None)
        rows = files.to_table(columns=each.table.names)
        found[name] = sorted(map(repr, rows.cast(each.table.arrow_schema).to_pylist()))
    return found


def files(out: Path) -> Mapping[Path, int]:
    return {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}


def stamps(logs: Path) -> set[tuple[Path, int, int]]:
    """The segments of a directory that hold something, and what tells whether they were written to."""
    found = {path.relative_to(logs): path.stat() for path in logs.glob("*/*.log")}
    return {(path, stat.st_size, stat.st_mtime_ns) for path, stat in found.items() if stat.st_size}


@pytest.fixture(scope="module")
def single(spark: SparkSession, stages: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The directory at its last stage, and the tables of a single run."""
    folder = tmp_path_factory.mktemp("single")
    logs, out = folder / "logs", folder / "out"
    put(stages[1], logs)
    go(spark, logs, out)
    return logs, out


def of_pandas(logs: Path) -> Mapping[str, list[str]]:
    """The rows of every table that files fill."""
    files_of = LogDir(logs, at_rest=True, txn_state_partitions=COORDINATORS)
    found: dict[str, list[str]] = {}
    for name, each in KEPT.items():
        if name.startswith("recorded_"):
            continue
        if name == "findings":
            expected = files_of.findings(min_held_ms=MIN_HELD_MS)
        else:
            expected = files_of.findings() if name == "answers" else getattr(files_of, name)()
        found[name] = sorted(map(repr, each.table.rows(expected)))
        assert found[name], name
    return found


@pytest.mark.full
def test_a_single_run_gives_what_pandas_gives(single: tuple[Path, Path]) -> None:
    logs, out = single
    found = kept(out)
    assert found == {**NO_ROWS, **of_pandas(logs)}


def test_runs_add_up_to_what_pandas_gives(spark: SparkSession, stages: list[Path], tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    put(stages[0], logs)
    first = go(spark, logs, out)
    assert first.read[0].new == first.read[0].listed == first.tables["segments"].rows
    before = files(out)
    again = go(spark, logs, out)
    assert (again.read[0].new, again.read[0].bytes_read, again.verdicts) == (0, 0, first.verdicts)
    assert all(counts.new == 0 for counts in again.tables.values())
    assert files(out) == before
    put(stages[1], logs)
    more = go(spark, logs, out)
    assert 0 < more.read[0].new < more.read[0].listed
    assert 0 < more.tables["batches"].new < more.tables["batches"].rows
    assert more.verdicts["hanging"] == 2
    found = kept(out)
    assert found == {**NO_ROWS, **of_pandas(logs)}
    unchanged = [path for path in before if "batches" in path.parts and path.exists()]
    assert len(unchanged) == len(stamps(stages[0]) & stamps(stages[1]))


@pytest.mark.full
def test_a_run_that_was_killed_is_made_whole_by_the_next(
    spark: SparkSession, stages: list[Path], single: tuple[Path, Path]
) -> None:
    logs, of_one = single
    out = of_one.parent / "killed"
    put(stages[1], logs)
    dice = random.Random(seed())
    for _ in range(KILLS):
        kill(logs, out, writes=dice.randint(1, 12))
    go(spark, logs, out)
    for name, rows in kept(of_one).items():
        assert kept(out)[name] == rows, name
    assert not list(out.rglob(".spark-staging-*"))


def kill(logs: Path, out: Path, *, writes: int) -> None:
    """Run it with a Spark of its own, and kill all of that in the middle of a write."""
    command = [sys.executable, "-c", KILLED, str(logs), str(out), str(MIN_HELD_MS), str(COORDINATORS)]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.PIPE)
    try:
        seen: set[Path] = set()
        while len(seen) < writes and process.poll() is None:
            time.sleep(0.1)
            for folder, names, _ in os.walk(out):  # which passes over what is gone meanwhile
                if any(name == "_temporary" or name.startswith(".spark-staging") for name in names):
                    seen.add(Path(folder))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        _, said = process.communicate(timeout=120)
    assert process.returncode in {0, -signal.SIGKILL}, said


@pytest.mark.full
def test_what_brokers_delete_stays_and_what_is_another_log_does_not(
    spark: SparkSession, stages: list[Path], single: tuple[Path, Path]
) -> None:
    logs, of_one = single
    out = of_one.parent / "deleted"
    put(stages[1], logs)
    shutil.copytree(of_one, out)
    before = {name: list(rows) for name, rows in kept(out).items()}
    expired, lost, again = (logs / f"plain-stage0-{number}" for number in range(3))
    gone = segments(expired)[0]
    for path in expired.glob(f"{gone.stem}.*"):
        path.unlink()
    everything = segments(lost)
    for path in [path for each in everything for path in lost.glob(f"{each.stem}.*")]:
        path.unlink()
    end = int(everything[-1].stem) + 1000
    write_batch(stages[1] / "copies-stage1-0", lost / f"{end:020d}.log")
    of_another = segments(again)[0]
    of_another.unlink()
    metadata = again / "partition.metadata"
    metadata.write_text(re.sub(r"(topic_id: ).{4}", r"\1AAAA", metadata.read_text()))
    summary = go(spark, logs, out, at_rest=False)
    after = kept(out)
    assert [row for row in before["batches"] if f"{expired.name}/" in row] == [
        row for row in after["batches"] if f"{expired.name}/" in row
    ]
    spans_of = "'plain-stage0', 'partition': 0,"
    assert [row for row in before["spans"] if spans_of in row] == [row for row in after["spans"] if spans_of in row]
    assert {row for row in before["batches"] if f"{lost.name}/" in row} < set(after["batches"])
    (told,) = (row for row in after["batches"] if "OFFSETS_LOST" in row)
    assert f"{end - 1:,} were deleted" in told
    assert summary.errors == 1
    assert any(str(of_another) in row for row in before["batches"])
    assert not any(str(of_another) in row for row in after["batches"])


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def write_batch(source: Path, target: Path) -> None:
    """A segment with the first batch of another one, at the offset that it is named after."""
    data = segments(source)[0].read_bytes()
    size = 12 + int.from_bytes(data[8:12], "big")
    target.write_bytes(int(target.stem).to_bytes(8, "big") + data[8:size])


@pytest.mark.full
def test_a_recording_is_kept_day_by_day(spark: SparkSession, tmp_path: Path) -> None:
    recording, out = tmp_path / "recording", tmp_path / "out"
    samples = [sample(NINE + hours * dt.timedelta(hours=1)) for hours in (0, 1, 23, 24)]
    record(recording, samples[:3])
    first = run(spark, recording, str(out))
    assert (first.read[0].what, first.read[0].listed, first.read[0].new) == ("looks", 3, 3)
    assert first.verdicts == {"hanging": 1}
    before = files(out)
    again = run(spark, [recording], str(out))
    assert (again.read[0].new, again.findings) == (0, first.findings)
    assert files(out) == before
    record(recording, samples[3:])
    for path in (recording / table / "20261121.parquet" for table in RECORDED):
        path.unlink(missing_ok=True)
    more = run(spark, recording, str(out))
    assert more.tables["recorded_samples"].rows == 4
    (row,) = more.findings
    assert (row["verdict"], row["held_from"], row["observed_at"]) == ("hanging", NINE, samples[3].due)
    for name, table in RECORDED.items():
        rows = sorted(map(repr, rows_of(samples, name).to_pylist()))
        assert kept(out)[f"recorded_{name}"] == rows, name
        assert table.names == KEPT[f"recorded_{name}"].table.names


def record(directory: Path, samples: list[Sample]) -> None:
    with Writer(directory) as writer:
        for each in samples:
            assert writer.write(each)


@pytest.mark.full
def test_a_live_cluster_is_read_behind_what_is_kept(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    from toolkit.lab.incidents import INCIDENTS

    out = tmp_path / "out"
    with INCIDENTS["late_message"](kafka) as staged, Cluster(kafka.bootstrap_servers) as cluster:
        topics = [staged.topic, "__transaction_state"]
        first = run(spark, cluster, str(out), topics=topics, min_held_ms=0)
        assert first.verdicts["hanging"] == 1
        assert [row["start_offset"] for row in first.findings if row["verdict"] == "hanging"] == [staged.start_offset]
        with INCIDENTS["marker_only"](kafka):
            second = run(spark, cluster, str(out), topics=topics, min_held_ms=0)
        assert 0 < second.read[0].bytes_read < first.read[0].bytes_read
        assert second.tables["spans"].rows >= first.tables["spans"].rows
        live = BATCHES.rows(cluster.batches(staged.topic, staged.partition))
    rows = ds.dataset(out / "batches", format="parquet", partitioning=None).to_table(columns=BATCHES.names)
    mine = rows.filter(pa.compute.equal(rows["topic"], staged.topic)).cast(BATCHES.arrow_schema).to_pylist()
    assert sorted(map(repr, mine)) == sorted(map(repr, live))
