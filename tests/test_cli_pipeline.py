"""``kafka-txn pipeline`` as a process: its output, where it is written, and the exit code."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner, Result

from tests.process import COMMAND, ROOT, Process
from tests.sources.log_files import wait_for_checkpoint
from tests.tiers import is_full
from toolkit import Cluster
from toolkit.cli.commands import app
from toolkit.lab import Kafka
from toolkit.lab.incidents import INCIDENTS
from toolkit.lab.staging import StagedIncident
from toolkit.schema import FINDINGS
from toolkit.spark.spark_session import SMALL

pytestmark = pytest.mark.lab

CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": SMALL["spark.driver.extraJavaOptions"],  # no archive of classes for a single run
}
LOCAL = ("--master", "local[2]", *(word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")))


def run(*arguments: str, **environment: str) -> Process:
    """In its own process, as it stops the Spark that it started."""
    return subprocess.run(
        [*COMMAND, "pipeline", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=1100,
    )


def refused(*arguments: str) -> Result:
    done = CliRunner().invoke(app, ["pipeline", *arguments])
    assert done.exit_code == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def hanging(kafka: Kafka) -> Iterator[StagedIncident]:
    with INCIDENTS["late_message"](kafka) as staged:
        yield staged


@pytest.fixture(scope="module")
def folder(kafka: Kafka, hanging: StagedIncident, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of a broker that runs: of a partition where something hangs, and of its coordinator."""
    with Cluster(kafka.bootstrap_servers) as cluster:
        wait_for_checkpoint(cluster, kafka.log_dirs[1], hanging.topic)
    target = tmp_path_factory.mktemp("copied") / "data"
    target.mkdir()
    wanted = [f"{hanging.topic}-{hanging.partition}", *(f"__transaction_state-{number}" for number in range(50))]
    for name in [*wanted, "meta.properties", "replication-offset-checkpoint"]:
        source = kafka.log_dirs[1] / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, target / name)
    return target


@pytest.mark.longer  # twice in the full tier
def test_files_are_written_to_tables(folder: Path, hanging: StagedIncident, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    first = run("--input", str(folder), "--consistent-copy", "--output", str(out), *LOCAL)
    assert (first.returncode, first.stderr) == (1, "")
    lines = first.stdout.splitlines()
    assert lines[0].startswith("Proven: __transaction_state is complete from ")
    assert lines[0].endswith("; the files are of one moment, as asserted.")
    assert lines[2].startswith("read    51 of 51 logs, ")
    assert lines[3] == f"tables  {out} (delta)"
    assert [line for line in lines if line.startswith("found ")] == ["found   1 hanging"]
    (held,) = (line for line in lines if line.startswith(f"{hanging.topic}-{hanging.partition}  "))
    assert f"  LSO {hanging.start_offset} held for " in held, first.stdout
    assert f"kafka-txn abort --topic {hanging.topic}" in first.stdout
    assert lines[-1] == "1 partition hangs"
    rows = DeltaTable(out / "findings").to_pyarrow_table()
    assert rows.column_names[: len(FINDINGS.names)] == FINDINGS.names
    if not is_full():
        return
    again = run("--output", str(out), "--consistent-copy", *LOCAL, "--input", str(folder))
    assert (again.returncode, again.stderr) == (1, "")
    assert again.stdout.startswith(f"{lines[0]}\n\nread    0 of 51 logs (")
    assert "0 new" in again.stdout


def test_missing_java_is_an_error_sentence(folder: Path, tmp_path: Path) -> None:
    done = run("--input", str(folder), "--output", str(tmp_path / "out"), PATH="/nowhere", JAVA_HOME="/nowhere")
    assert done.returncode == 2
    assert "Java" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.full
def test_an_unreadable_path_is_an_error_sentence(tmp_path: Path) -> None:
    done = run("--input", str(tmp_path / "gone"), "--output", str(tmp_path / "out"), *LOCAL)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"kafka-txn: There is no file or folder {tmp_path / 'gone'}.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Nothing to read is named. Add --input PATH, or --bootstrap-server HOST:PORT."),
        (("--input", "a", "--bootstrap-server", "b:1"), "--input names files. Use one of them."),
        (("--bootstrap-server", "b:1", "--consistent-copy"), "apply to files. Add --input PATH."),
        (("--bootstrap-server", "b:1", "--as-of", "2026-11-21T12:00:00Z"), "apply to files. Add --input PATH."),
        (("--bootstrap-server", "b:1", "--txn-state-partitions", "9"), "apply to files. Add --input PATH."),
        (("--input", "a", "--master", "local", "--remote", "sc://b"), "Use one of them."),
        (("--input", "a", "--conf", "spark"), "--conf spark is not KEY=VALUE."),
        (("--input", "."), "is in ., which is never written to."),
    ],
)
def test_invalid_usage_is_a_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in refused(*arguments, "--output", "./out").stderr


def test_an_incompatible_delta_lake_is_an_error_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolkit.spark import spark_session

    monkeypatch.setattr(spark_session, "RELEASES", {})
    done = refused("--input", "a", "--output", "./out")
    assert "No release of Delta Lake is known for Spark" in done.stderr


def test_without_maven_the_error_names_the_format_that_needs_no_jars(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_TXN_MAVEN", "http://127.0.0.1:1/")
    done = refused("--input", "a", "--output", "./out")
    assert "http://127.0.0.1:1/io/delta/delta-spark" in done.stderr
    assert "could not be fetched: [Errno 111] Connection refused." in done.stderr
    assert done.stderr.endswith("needs no jars: --format parquet.\n")
