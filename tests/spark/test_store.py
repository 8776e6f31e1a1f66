"""Where tables are kept: units that are replaced and taken out, columns that come later, names of units."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sf
from toolkit.spark.ledger import Ledger, Part
from toolkit.spark.units import log_column, log_id, partition_column, partition_id, segment_column

from toolkit.errors import NotFound, UsageError
from toolkit.schema import Column, Table
from toolkit.schema.table import INT64, STRING
from toolkit.spark.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

UNITS = ("log", "segment")
SMALL = Table("small", "a row", (Column("topic", STRING, "Topic."), Column("n", INT64, "Number.")), (), ())
GROWN = Table("small", "a row", (*SMALL.columns, Column("later", INT64, "Came later.")), (), ())


@pytest.fixture(params=["folder", "schema"])
def store(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Iterator[Store]:
    if request.param == "folder":
        yield open_store(spark, f"{tmp_path}/tables")
        return
    name = f"s{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE SCHEMA {name} LOCATION '{tmp_path}/{name}'")
    yield open_store(spark, name)
    spark.sql(f"DROP SCHEMA {name} CASCADE")


def frame(store: Store, *rows: tuple[Any, ...], run: int = 1, names: str = "topic string, n long") -> DataFrame:
    return store.spark.createDataFrame(list(rows), f"{names}, log string, segment string").select(
        "*", sf.lit(run).cast("long").alias("run")
    )


def put(store: Store, *rows: tuple[Any, ...], run: int = 1, names: str = "topic string, n long") -> None:
    given = frame(store, *rows, run=run, names=names)
    columns = [name for name in given.columns if name not in {"run", *UNITS}]
    with store.writing():
        store.replace_units("small", given.select(*columns, "run", *UNITS), UNITS)


def rows(store: Store, table: Table = SMALL) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in store.load("small", table, units=UNITS).collect()), key=str)


def test_what_is_not_there_is_empty(store: Store) -> None:
    found = store.load("small", SMALL, units=UNITS)
    assert found.columns == ["topic", "n", "run", "log", "segment"]
    assert found.count() == 0
    store.remove_units("small", SMALL, [{"log": "a", "segment": "0"}])


def test_units_are_replaced_and_taken_out_and_others_stay(store: Store) -> None:
    put(store, ("123", 1, "a@1", "0000"), ("123", 2, "a@1", "0001"), (None, 3, "-@9", "0000"))
    put(store, ("123", 20, "a@1", "0001"), run=2)
    put(store, ("123", 20, "a@1", "0001"), run=2)
    expected = [("123", 1, 1, "a@1", "0000"), ("123", 20, 2, "a@1", "0001"), (None, 3, 1, "-@9", "0000")]
    assert rows(store) == expected
    with store.writing():
        store.remove_units("small", SMALL, [{"log": "a@1", "segment": "0000"}, {"log": "none", "segment": "0"}])
    assert rows(store) == expected[1:]


def test_a_column_that_came_later_is_null_in_older_rows(store: Store) -> None:
    put(store, ("a", 1, "a@1", "0"))
    assert rows(store, GROWN) == [("a", 1, None, 1, "a@1", "0")]
    put(store, ("a", 2, 5, "a@1", "1"), run=2, names="topic string, n long, later long")
    assert rows(store, GROWN) == [("a", 1, None, 1, "a@1", "0"), ("a", 2, 5, 2, "a@1", "1")]
    assert rows(store, SMALL) == [("a", 1, 1, "a@1", "0"), ("a", 2, 2, "a@1", "1")]


def test_a_whole_table_is_replaced_also_by_nothing(store: Store) -> None:
    whole = frame(store, ("a", 1, "x", "y")).select("topic", "n", "run")
    with store.writing():
        store.replace("small", whole)
        store.replace("small", whole.where("n = 2"))
    assert store.load("small", SMALL).collect() == []


def test_the_session_is_left_as_it_was(store: Store) -> None:
    key = "spark.sql.sources.partitionOverwriteMode"
    before = store.spark.conf.get(key)
    put(store, ("a", 1, "a@1", "0"))
    assert store.spark.conf.get(key) == before


def test_a_ledger_outlives_a_crash_of_the_next_one(store: Store) -> None:
    ledger = Ledger.load(store)
    assert (ledger.parts, ledger.made, ledger.run) == ({}, {}, 1)
    part = Part(log="a@1", segment="0", topic="a", partition=1, from_offset=0, rows=3, made_by=1)
    ledger.parts[part.key] = part
    ledger.begin_made("spans", ["a-1"])
    ledger.end_made("spans", {"a-1": "these parts"})
    with store.writing():
        ledger.save(store)
        again = Ledger.load(store)
        assert (again.parts, again.made, again.run) == (ledger.parts, ledger.made, 2)
        again.begin([part])
        again.save(store)
        assert Ledger.load(store).parts[part.key].state == "replacing"
        store.remove_units("ledger", SMALL, [{"place": str(again.number % 2)}])
    before = Ledger.load(store)
    assert (before.parts, before.run) == (ledger.parts, 2)
    assert before.is_made("spans", "a-1", given="these parts")
    assert not before.is_made("spans", "a-1", given="others")


def test_a_target_is_a_folder_or_a_schema_that_is_there(spark: SparkSession) -> None:
    assert open_store(spark, "./out").where("spans") == "./out/spans"
    assert open_store(spark, "s3://bucket/txn/", format="delta").where("spans") == "s3://bucket/txn/spans"
    assert open_store(spark, "default").where("spans") == "default.spans"
    for target in ("no_such_schema", "no_such_catalog.txn"):
        with pytest.raises(NotFound, match="has no schema"):
            open_store(spark, target)
    with pytest.raises(UsageError, match="neither a folder nor a schema"):
        open_store(spark, "a.b.c")
    with pytest.raises(UsageError, match="Say one of parquet, delta"):
        open_store(spark, "./out", format="csv")


def test_units_have_the_same_names_here_and_in_spark(spark: SparkSession) -> None:
    topics = ["orders", "a.b_c-9", "2026-11", "t" * 249, "t" * 248 + "u", "odd name/é", None]
    files = ["/d/orders-0/00000000000000000042.log", "C:\\d\\x.log", "loose.log", None]
    found = [
        {"topic": topic, "partition": partition, "broker_id": broker, "file": file}
        for topic, partition, broker, file in itertools.product(topics, [0, 12, None], [3, None], files)
    ]
    given = spark.createDataFrame(found, "topic string, partition int, broker_id int, file string")
    columns = [sf.col(name) for name in ("topic", "partition", "broker_id", "file")]
    named = given.select("*", log_column(*columns).alias("log"), partition_column(*columns[:2]).alias("unit"))
    names = named.collect()
    assert [row["log"] for row in names] == [log_id(row.asDict()) for row in names]
    assert [row["unit"] for row in names] == [partition_id(row["topic"], row["partition"]) for row in names]
    assert len({row["unit"] for row in names}) == len(topics) * 3
    assert max(len(f"log={row['log']}") for row in names) < 255
    segments = given.select(segment_column(sf.col("file")).alias("segment")).distinct().collect()
    assert {row["segment"] for row in segments} >= {"00000000000000000042", None}
