"""The table store: targets, and repeated runs."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tests.corpus.calls import json_line
from tests.corpus.file_calls import archives, clock_of, unpacked
from tests.full_disk import Disk, can_mount
from tests.spark.test_stored_tables import write_logs
from tests.stored import compare
from toolkit.errors import NotFound, SetupError, UsageError
from toolkit.schema import Column, Table
from toolkit.schema.table import INT64, STRING
from toolkit.spark.arrow_types import from_arrow
from toolkit.spark.pipeline import run_sources
from toolkit.spark.pipeline.pipeline_run import RunSummary, run
from toolkit.spark.pipeline.stored_tables import IS_FINAL, KEPT, LOG, RUN_ID, TableStore, open_store, read, sql_text
from toolkit.spark.spark_errors import translate_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = Table("small", "a row's story", (Column("topic", STRING, "Topic."), Column("n", INT64, "Number.")), (), ())


def write_rows(
    store: TableStore, *rows: tuple[Any, ...], run_id: int, read: str = "", changed: Collection[str] = ()
) -> None:
    new = store.spark.createDataFrame(list(rows), "topic string, n long, log string, is_final boolean")
    store.write("small", SMALL, new, run_id=run_id, read=dict.fromkeys(read.split(), (0, 0)), changed=changed)


def rows(store: TableStore) -> list[tuple[Any, ...]]:
    names = (*SMALL.names, RUN_ID, LOG, IS_FINAL)
    return sorted((tuple(row) for row in store.load("small", SMALL).select(*names).collect()), key=str)


def test_a_run_replaces_provisional_rows_of_changed_logs(spark: SparkSession, tmp_path: Path) -> None:
    store = open_store(spark, f"{tmp_path}/tables")
    assert store.load("small", SMALL).collect() == []
    write_rows(store, ("a", 1, "x", True), ("a", 2, "x", False), ("a", 3, "y", False), run_id=1)
    write_rows(store, ("a", 4, "x", True), run_id=2, read="x")
    assert rows(store) == [("a", 1, 1, "x", True), ("a", 3, 1, "y", False), ("a", 4, 2, "x", True)]
    # The run was killed and is repeated: its own rows are replaced, and those of earlier runs are kept.
    write_rows(store, ("a", 5, "x", True), ("a", 6, "x", False), run_id=2, read="x")
    expected = [("a", 1, 1, "x", True), ("a", 3, 1, "y", False), ("a", 5, 2, "x", True), ("a", 6, 2, "x", False)]
    assert rows(store) == expected
    write_rows(store, ("b", 7, "z", True), run_id=3, read="x z", changed="x")
    assert rows(store) == [("a", 3, 1, "y", False), ("b", 7, 3, "z", True)]


def test_tables_of_another_release_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of another type, or without a column, would be continued with what the fold takes for nothing open."""
    store = open_store(spark, f"{tmp_path}/tables")
    write_rows(store, ("a", 1, "x", True), run_id=1)
    for columns in ((SMALL.columns[0], Column("n", STRING, "Text.")), (*SMALL.columns, Column("m", INT64, "More."))):
        with pytest.raises(UsageError, match="Another release of this package wrote these tables"):
            store.load("small", Table("small", SMALL.row, columns, (), ()))


def test_a_text_of_sql_ends_where_it_ends() -> None:
    """A log is named by the path of its files, which may have a quote, and a backslash at its end."""
    for text in ("it's", "a\\", "a\\' OR true --", "a\\\\'"):
        literal = sql_text(text)
        assert re.fullmatch(r"'(?:[^'\\]|\\.)*'", literal), "one literal, for Spark's parser"
        assert re.sub(r"\\(.)", r"\1", literal[1:-1]) == text


def test_rows_after_an_empty_chunk_are_stored(spark: SparkSession) -> None:
    """Spark 4.2 ends a DataFrame of Arrow data there: histories of partitions after one without ids were lost."""
    empty, some = (pa.table({"n": pa.array(values, pa.int64())}) for values in ([], [1, 2]))
    table = pa.concat_tables([some, empty, some])
    assert [row.n for row in from_arrow(spark, table).collect()] == [1, 2, 1, 2]
    assert from_arrow(spark, pa.concat_tables([empty, empty])).collect() == []


@pytest.mark.parametrize("is_folder", [True, False])
def test_files_of_a_killed_run_are_not_read(spark: SparkSession, tmp_path: Path, is_folder: bool) -> None:
    """A run that was killed before its first commit once made all later runs fail, as the table existed."""
    schema = f"s{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE SCHEMA {schema} LOCATION '{tmp_path}/tables'")
    try:
        store = open_store(spark, f"{tmp_path}/tables" if is_folder else schema)
        leftover = tmp_path / "tables" / "small" / "part-0.parquet"
        leftover.parent.mkdir(parents=True)
        leftover.write_bytes(b"PAR1")
        (tmp_path / "tables" / "small" / "_delta_log").mkdir()
        write_rows(store, ("a", 1, "x", True), run_id=1)
        assert rows(store) == [("a", 1, 1, "x", True)]
    finally:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")


def test_a_target_is_a_folder_or_an_existing_schema(spark: SparkSession) -> None:
    assert open_store(spark, "s3://bucket/txn/").path == "s3://bucket/txn"
    assert open_store(spark, "default").schema == "default"
    for target in ("no_such_schema", "no_such_catalog.txn"):
        with pytest.raises(NotFound, match="has no schema"):
            open_store(spark, target)
    with pytest.raises(UsageError, match=r"'a\.b\.c' is neither a folder nor a schema"):
        open_store(spark, "a.b.c")
    with pytest.raises(UsageError, match="Use one of delta, parquet"):
        open_store(spark, "./out", format="csv")
    with pytest.raises(UsageError, match="only stores Delta tables"):
        open_store(spark, "default", format="parquet")


def test_a_full_disk_is_named(spark: SparkSession) -> None:
    """The error was "An error occurred while calling o463.createOrReplace", with nothing of the disk.

    Its table is not in each message: it depends on which file is the first without room.
    """
    if not can_mount():
        pytest.skip("needs the right to mount")
    with Disk(64 << 10) as disk:
        disk.leave(0)
        with pytest.raises(SetupError, match=r"cannot be written: No space left on device\. Each"), translate_errors():
            write_rows(open_store(spark, f"{disk.path}/tables"), ("a", 1, "x", True), run_id=1)
        disk.clear()
        store = open_store(spark, f"{disk.path}/tables")
        write_rows(store, ("a", 1, "x", True), run_id=1)
        assert rows(store) == [("a", 1, 1, "x", True)]


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ("data", r"^A stored table cannot be read: file:\S+\.parquet is missing or cut\. Restore that file, or remove"),
        ("commit", r"^A stored table cannot be read: file:\S+_delta_log/0+2\.json is missing or cut\. Restore"),
        ("no commit", r"^A stored table cannot be read: Versions \(0, 2\) are not contiguous\. Restore that file"),
    ],
)
def test_a_damaged_table_is_one_sentence(spark: SparkSession, tmp_path: Path, damage: str, sentence: str) -> None:
    """It was the first line of Spark's own error with the last cause in Java behind it, from the library a trace."""
    write_rows(open_store(spark, f"{tmp_path}/t"), ("a", 1, "x", True), run_id=1)
    write_rows(open_store(spark, f"{tmp_path}/t"), ("a", 2, "y", True), run_id=2, read="y")
    table = tmp_path / "t" / "small"
    commits = sorted((table / "_delta_log").glob("*.json"))
    for checksum in (table / "_delta_log").glob(".*.crc"):
        checksum.unlink()
    if damage == "data":
        for file in table.glob("*.parquet"):
            file.unlink()
    elif damage == "commit":
        commits[-1].write_bytes(commits[-1].read_bytes()[:-40])
    else:
        commits[1].unlink()
    with pytest.raises(SetupError, match=sentence), translate_errors():
        rows(open_store(spark.newSession(), f"{tmp_path}/t"))
    if damage == "no commit":  # others are seen later, by the caller's own query
        table.rename(tmp_path / "t" / "findings")
        with pytest.raises(SetupError, match=sentence) as raised:
            read(spark.newSession(), f"{tmp_path}/t", "findings")
        assert raised.value.__cause__ is None, "a trace of Py4J would be printed before the sentence"


def test_a_read_only_target_is_named(spark: SparkSession, tmp_path: Path) -> None:
    if not can_mount():
        pytest.skip("needs the right to mount")
    with Disk(1 << 20) as disk:
        write_logs(tmp_path / "logs")
        subprocess.run(["mount", "-o", "remount,ro", str(disk.path)], check=True)
        with pytest.raises(SetupError, match=r"^The tables cannot be written: file:\S+ cannot be created\. Each"):
            run(spark, str(tmp_path / "logs"), f"{disk.path}/tables", consistent_copy=True)


@pytest.mark.parametrize(
    ("text", "sentence", "names_memory"),
    [
        ("Job aborted\nModuleNotFoundError: No module named 'toolkit'\n", "lack the package toolkit. Install", False),
        ("Job aborted\nCaused by: java.lang.OutOfMemoryError: Java heap space", "Spark failed: Job aborted", True),
        ("[TABLE_OR_VIEW_NOT_FOUND] No table", "Spark failed: [TABLE_OR_VIEW_NOT_FOUND] No table", False),
    ],
)
def test_advice_on_memory_is_for_a_spark_that_ran_out_of_it(text: str, sentence: str, names_memory: bool) -> None:
    """A server without the package was advised to have more memory of the driver."""
    with pytest.raises(SetupError, match=re.escape(sentence)) as raised, translate_errors():
        raise PySparkException(text)
    assert ("spark.driver.memory" in str(raised.value)) is names_memory


WITHOUT_DELTA = """
import sys
from toolkit.spark import local_session
from toolkit.spark.pipeline import run
run(local_session(master="local[1]"), sys.argv[1], sys.argv[2])
"""


@pytest.mark.full
def test_a_session_without_delta_lake_names_what_to_add(tmp_path: Path) -> None:
    """It was a stack trace of Java: DATA_SOURCE_NOT_FOUND."""
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020}.log").write_bytes(b"")
    command = [sys.executable, "-c", WITHOUT_DELTA, str(tmp_path), str(tmp_path / "tables")]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert "SetupError: This Spark session has no Delta Lake. Start it with" in process.stderr.splitlines()[-1]


# The pipeline on files of the corpus, cut at first and then whole: all that it stores, and its summaries, as text.

INPUT = "4.3.1-lost-marker-files"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Log directories whose logs end within a batch."""
    folder = tmp_path / "files"
    shutil.copytree(unpacked(archives()[INPUT]), folder)
    for log in folder.glob("log-dir-*/*/*.log"):
        os.truncate(log, log.stat().st_size * 3 // 5)
    return folder


def test_what_two_runs_store(
    spark: SparkSession, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run reads in this process, the others in tasks."""
    whole, target = unpacked(archives()[INPUT]), str(tmp_path / "tables")
    lines = list[str]()
    for is_whole in (False, True, True):
        if is_whole:
            shutil.copytree(whole, copied, dirs_exist_ok=True)
            monkeypatch.setattr(run_sources, "SMALL", 0)
        summary = run(
            spark,
            sorted(copied.glob("log-dir-*")),
            target,
            min_held_ms=0,
            consistent_copy=True,
            as_of=clock_of(whole).at,
            with_batches=True,
        )
        lines += [*_of_summary(summary), ""]
    store = open_store(spark, target)
    for name, table in KEPT.items():
        rows = sorted(json_line(row.asDict(recursive=True)) for row in store.load(name, table).collect())
        lines += [f"--- {name}", *map(str.rstrip, rows)]
    compare("pipeline.txt", (each.replace(str(tmp_path), "") for each in lines))


def _of_summary(summary: RunSummary) -> Iterator[str]:
    yield "--- run"
    for name, value in dataclasses.asdict(dataclasses.replace(summary, findings=(), seconds=0)).items():
        yield f"{name}: {json.dumps(value, default=str)}"
    yield from (json_line(finding.row()).rstrip() for finding in summary.findings)
