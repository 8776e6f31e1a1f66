"""The stored tables for SQL: unique keys, comments, names, views, and a user's changes."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.sources.log_files import data, in_epoch, marker, write_log, write_root
from toolkit.lab import samples
from toolkit.schema import LOG_TRANSACTIONS
from toolkit.spark.pipeline import VIEWS, create_views
from toolkit.spark.pipeline.pipeline_run import run
from toolkit.spark.pipeline.stored_tables import KEPT, KEYS, stored_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = dt.datetime.now(dt.UTC)
LAST_MONTH = (NOW.replace(day=1) - dt.timedelta(days=5)).replace(hour=12, minute=0, second=0, microsecond=0)
LONG_HOLDS = (Path(__file__).parents[2] / "docs" / "spark.md").read_text().split("<!-- long holds -->\n```sql\n")[1]
LONG_HOLDS = LONG_HOLDS.split("```")[0]


def at(seconds: float) -> dt.datetime:
    return LAST_MONTH + dt.timedelta(seconds=seconds)


def write_logs(folder: Path, *, is_later: bool = False) -> Path:
    """Two brokers with replicas of orders-0: a hold of 100.5 s, one of 10 s, and one that is open until later."""
    batches = [
        *(marker(0, 5, at(0)), data(1, 7, at(0)), data(2, 9, at(1), records=3), marker(5, 9, at(90))),
        *(marker(6, 7, at(100.5)), data(7, 7, at(200)), marker(8, 7, at(210)), data(9, 8, at(300))),
    ]
    if is_later:
        batches += [marker(10, 8, at(310)), data(11, 7, at(400)), marker(12, 9, at(410)), marker(13, 9, at(600))]
    for broker in (1, 2):
        root = write_root(folder / str(broker), broker_id=broker)
        log = write_log(root, "orders-0", map(in_epoch, batches))
        (log / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        (log / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    return folder


def stored(out: Path) -> Iterator[tuple[str, DeltaTable]]:
    for name in KEPT:
        if (out / name).exists():
            yield name, DeltaTable(out / name)


def assert_unique_keys(out: Path) -> None:
    for name, table in stored(out):
        if name in KEYS:
            rows = table.to_pyarrow_table(columns=list(KEYS[name])).to_pylist()
            assert max(Counter(map(str, rows)).values(), default=1) == 1, name


def in_duckdb(out: Path, query: str) -> list[Mapping[str, Any]]:
    with duckdb.connect() as connection:
        for name, table in stored(out):
            connection.register(name, table.to_pyarrow_dataset())
        for name, view in VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {view.format(**{each: each for each in KEPT})}")
        found: list[Mapping[str, Any]] = pa.table(connection.sql(query).to_arrow_table()).to_pylist()
    return found


def in_deltalake(out: Path, query: str) -> list[Mapping[str, Any]]:
    builder = QueryBuilder()
    for name, table in stored(out):
        builder = builder.register(name, table)
    for name, view in VIEWS.items():
        builder.execute(f"CREATE VIEW {name} AS {view.format(**{each: each for each in KEPT})}")
    found: list[Mapping[str, Any]] = pa.table(builder.execute(query).read_all()).to_pylist()
    return found


def test_tables_answer_in_sql_and_a_run_keeps_what_a_user_changed(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(spark, write_logs(tmp_path / "logs"), str(out), consistent_copy=True, min_held_ms=0)
    assert_unique_keys(out)
    findings = f"delta.`{out}/findings`"
    for name, _ in stored(out):
        schema = spark.read.format("delta").load(f"{out}/{name}").schema
        assert schema == stored_type(name, KEPT[name]), name  # with NOT NULL and comments
        detail = spark.sql(f"DESCRIBE DETAIL delta.`{out}/{name}`").collect()[0]
        assert detail["partitionColumns"] == []
    times = {"log_transactions": "start_time", "lso_timeline": "event_time", "transaction_history": "start_time"}
    for name in ("log_transactions", "lso_timeline", "lso_holds", "findings"):
        by = "topic" if name == "transaction_history" else f"topic, {times.get(name, 'held_from')}"
        spark.sql(f"ALTER TABLE delta.`{out}/{name}` CLUSTER BY ({by})")
    spark.sql(f"ALTER TABLE {findings} ADD COLUMNS (ticket STRING)")
    spark.sql(f"ALTER TABLE {findings} ALTER COLUMN topic COMMENT 'ours'")
    spark.sql(f"ALTER TABLE {findings} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    spark.sql(f"UPDATE {findings} SET ticket = concat('T', start_offset)").collect()
    version = DeltaTable(out / "findings").version()
    write_logs(tmp_path / "logs", is_later=True)
    run(spark, tmp_path / "logs", str(out), consistent_copy=True, min_held_ms=0)
    assert_unique_keys(out)
    rows = {row["start_offset"]: row for row in spark.sql(f"SELECT * FROM {findings}").collect()}
    assert {offset: row["ticket"] for offset, row in rows.items()} == {1: "T1", 7: "T7", 9: "T9", 11: None}
    assert rows[9]["verdict"] == "ended"
    assert [offset for offset, row in rows.items() if row["is_current"]] == [11]
    detail = spark.sql(f"DESCRIBE DETAIL {findings}").collect()[0]
    assert detail["clusteringColumns"] == ["topic", "held_from"]
    assert spark.table(findings).schema["topic"].metadata["comment"] == "ours"
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version + 1)
    changed = {(row["start_offset"], row["_change_type"]) for row in changes.load(f"{out}/findings").collect()}
    assert changed == {(9, "update_preimage"), (9, "update_postimage"), (11, "insert")}

    create_views(spark, str(out))
    names = {name: ", ".join(DeltaTable(out / name).to_pyarrow_dataset().schema.names) for name, _ in stored(out)}
    queries = [LONG_HOLDS, *(f"SELECT count(*) AS rows FROM {view}" for view in VIEWS)]
    queries += [
        f"SELECT {columns} FROM {name} ORDER BY {columns.split(', ')[0]} LIMIT 0" for name, columns in names.items()
    ]
    for query in queries:
        expected = [row.asDict() for row in spark.sql(query).collect()]
        assert in_duckdb(out, query) == in_deltalake(out, query) == expected, query
    (row,) = spark.sql(LONG_HOLDS).collect()  # in deltalake, integers are divided to integers
    # Of the one that is open, too: without a time, what had held an LSO for days was in no answer.
    assert (row["topic"], row["holds"], row["longest_s"], row["records_waiting"]) == ("orders", 2, 200, 5)
    (row,) = spark.sql("SELECT longest_s FROM longest_lso_holds WHERE producer_id = 7").collect()
    assert row["longest_s"] == 200
    assert spark.sql("SELECT start_offset FROM lso_held_now").collect() == [(11,)]
    best = spark.sql("SELECT DISTINCT broker_id FROM best_transactions").collect()
    assert best == [(1,)]


def test_attributes_added_by_spark_connect_are_ignored() -> None:
    frame = samples.load("late-message").log_dir().log_transactions(topics=["orders"])
    rows = LOG_TRANSACTIONS.rows(frame)
    frame.attrs["metrics"] = [object()]
    assert LOG_TRANSACTIONS.rows(frame) == rows, "and no warning"
    assert "metrics" in frame.attrs
