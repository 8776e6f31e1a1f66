"""``kafka-txn pipeline`` as a process: its output, where it is written, and the exit code."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.process import Process, run, spawn
from tests.tiers import is_full
from toolkit.lab.samples import load
from toolkit.schema import FINDINGS
from toolkit.spark.spark_session import SMALL

pytestmark = pytest.mark.lab

CONF = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": SMALL["spark.driver.extraJavaOptions"],  # no archive of classes for a single run
}
LOCAL = ("--master", "local[2]", *(word for name, value in CONF.items() for word in ("--conf", f"{name}={value}")))


def pipeline(*arguments: str, **environment: str) -> Process:
    """In its own process, as it stops the Spark that it started."""
    return spawn("pipeline", *arguments, env={**os.environ, **environment}, timeout=1100)


@pytest.mark.longer  # twice in the full tier
def test_files_are_written_to_tables(tmp_path: Path) -> None:
    sample, out = load("late-message"), tmp_path / "tables"
    files = ("--input", str(sample.path / "log-dir"), "--consistent-copy", "--output", str(out), *LOCAL)
    first = pipeline(*files)
    assert (first.returncode, first.stderr) == (1, "")
    lines = first.stdout.splitlines()
    assert lines[0].startswith("Proven: __transaction_state is complete from ")
    assert lines[0].endswith("; the files are of one moment, as asserted.")
    read = re.match(r"read    (\d+) of \1 logs, ", lines[2])
    assert read, lines
    assert lines[3] == f"tables  {out} (delta)"
    assert [line for line in lines if line.startswith("found ")] == ["found   1 hanging"]
    assert any(line.startswith(f"{sample.topic}-{sample.partition}   LSO 15 held for ") for line in lines), first.stdout
    assert f"kafka-txn abort --topic {sample.topic}" in first.stdout
    assert lines[-1] == "1 partition hangs"
    rows = DeltaTable(out / "findings").to_pyarrow_table()
    assert rows.column_names[: len(FINDINGS.names)] == FINDINGS.names
    if not is_full():
        return
    again = pipeline(*files)
    assert (again.returncode, again.stderr) == (1, "")
    assert again.stdout.startswith(f"{lines[0]}\n\nread    0 of {read[1]} logs (")
    assert "0 new" in again.stdout


def test_without_java_the_error_is_a_sentence(tmp_path: Path) -> None:
    nowhere = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}
    done = pipeline("--input", str(tmp_path / "a"), "--output", str(tmp_path / "out"), **nowhere)
    assert (done.returncode, "Java" in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr


def test_without_maven_the_error_names_the_format_that_needs_no_jars(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("KAFKA_TXN_MAVEN", "http://127.0.0.1:1/")
    done = run("pipeline", "--input", "a", "--output", "./out")
    assert done.returncode == 2
    assert "http://127.0.0.1:1/io/delta/delta-spark" in done.stderr
    assert "could not be fetched: [Errno 111] Connection refused." in done.stderr
    assert done.stderr.endswith("needs no jars: --format parquet.\n")


def test_an_incompatible_delta_lake_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from toolkit.spark import spark_session

    monkeypatch.setattr(spark_session, "RELEASES", {})
    done = run("pipeline", "--input", "a", "--output", "./out")
    assert done.returncode == 2
    assert "No release of Delta Lake is known for Spark" in done.stderr


@pytest.mark.full
def test_an_unreadable_path_is_a_sentence(tmp_path: Path) -> None:
    done = pipeline("--input", str(tmp_path / "gone"), "--output", str(tmp_path / "out"), *LOCAL)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == f"kafka-txn: There is no file or folder {tmp_path / 'gone'}. Check the path.\n"
