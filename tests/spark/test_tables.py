"""Rows of a user's own into tables that are kept: the same again changes nothing, more is added."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from toolkit import LogDir
from toolkit.errors import UsageError
from toolkit.schema import BATCHES, FINDINGS, RECORDED, SPANS, TABLES, Row
from toolkit.spark.tables import KEPT, read, write
from toolkit.spark.types import spark_table, struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.lab


def frame(spark: SparkSession, table: str, rows: Sequence[Row]) -> DataFrame:
    return spark.createDataFrame(spark_table(KEPT[table].table.arrow(rows)))


def kept(spark: SparkSession, target: str, table: str) -> list[Row]:
    found = read(spark, target, table)
    assert [(field.name, field.dataType) for field in found.schema] == [
        (field.name, field.dataType) for field in struct_type(KEPT[table].table)
    ]
    arrow = found.toArrow().cast(pa.schema([each.remove_metadata() for each in KEPT[table].table.arrow_schema]))
    rows: list[Row] = arrow.to_pylist()
    return rows


def same(found: Sequence[Row], expected: Sequence[Row]) -> bool:
    return sorted(map(repr, found)) == sorted(map(repr, expected))


def test_batches_of_files_are_kept_segment_by_segment(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    target = f"{tmp_path}/tables"
    rows = BATCHES.rows(LogDir(history).batches())
    files = sorted({row["file"] for row in rows})
    some = [row for row in rows if row["file"] in files[: len(files) // 2]]
    write(frame(spark, "batches", some), target)
    write(frame(spark, "batches", some), target, table="batches")
    assert same(kept(spark, target, "batches"), some)
    write(frame(spark, "batches", [row for row in rows if row["file"] in files[len(files) // 3 :]]), target)
    assert same(kept(spark, target, "batches"), rows)
    folders = {path.name for path in Path(target, "batches").iterdir() if path.is_dir()}
    assert all("=" in name for name in folders), folders


def test_what_brokers_sent_is_added_behind_what_is_kept(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    target = f"{tmp_path}/tables"
    whole = BATCHES.rows(LogDir(history).batches(["__consumer_offsets"]))
    sent = [{**row, "file": None, "position": None, "topic": "123"} for row in whole]
    failed: Row = {**dict.fromkeys(BATCHES.names), "topic": "123", "partition": 999, "error": "NOT_LEADER: moved"}
    write(frame(spark, "batches", [*sent[: len(sent) // 2], failed]), target)
    write(frame(spark, "batches", [*sent[: len(sent) // 2], failed]), target)
    write(frame(spark, "batches", [*sent, failed]), target)
    assert same(kept(spark, target, "batches"), [*sent, failed])


def test_derived_rows_replace_those_of_their_partitions(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    target = f"{tmp_path}/tables"
    rows = SPANS.rows(LogDir(history).spans())
    write(frame(spark, "spans", rows), target)
    topic = rows[0]["topic"]
    fewer = [row for row in rows if row["topic"] != topic or row["partition"] == 0]
    write(frame(spark, "spans", [row for row in fewer if row["topic"] == topic]), target)
    others = [row for row in rows if row["topic"] == topic and row["partition"] != 0]
    assert same(kept(spark, target, "spans"), [*fewer, *others])


def test_answers_are_kept_as_a_whole(spark: SparkSession, history: Path, tmp_path: Path) -> None:
    target = f"{tmp_path}/tables"
    rows = FINDINGS.rows(LogDir(history, at_rest=True).findings())
    write(frame(spark, "findings", rows), target, table="findings")
    write(frame(spark, "findings", rows[:2]), target, table="findings")
    assert same(kept(spark, target, "findings"), rows[:2])
    write(frame(spark, "findings", []), target, table="findings")
    assert kept(spark, target, "findings") == []


def test_what_is_no_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="those of no table"):
        write(spark.range(3), f"{tmp_path}/tables")
    with pytest.raises(UsageError, match="no column topic, which spans has"):
        write(spark.range(3), f"{tmp_path}/tables", table="spans")
    for unknown in (lambda: write(spark.range(3), "./x", table="statistics"), lambda: read(spark, "./x", "statistics")):
        with pytest.raises(UsageError, match="There is no table statistics"):
            unknown()


def test_every_table_that_is_kept_is_declared() -> None:
    assert {kept.layer for kept in KEPT.values()} == {"bronze", "silver", "gold"}
    for name, each in KEPT.items():
        recorded = name.removeprefix("recorded_")
        declared = RECORDED[recorded] if recorded != name else TABLES["findings" if name == "answers" else name]
        assert each.table is declared
