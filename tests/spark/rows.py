"""Every table of a log directory by Spark, as Arrow files: ``python tests/spark/rows.py classic|connect LOGS OUT``.

Runs in its own process, because a process has one kind of session. Under Connect the executors do not have the package:
it is shipped to them.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.feather

from toolkit.schema import TABLES
from toolkit.spark import register, ship_package
from toolkit.spark.spark_session import SMALL, delta_settings, local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {**SMALL, "spark.sql.shuffle.partitions": "2"}
SPLIT = "512k"  # a few dozen tasks for each table; a task costs more than its reading here
READ_TABLES = (
    *(
        "batches",
        "log_transactions",
        "lso_timeline",
        "lso_holds",
        "aborted",
        "checkpoints",
        "transaction_log",
        "offsets_log",
        "transaction_history",
    ),
    *("partitions", "producers", "transactions", "coordinators", "statistics", "findings", "snapshots"),
    "segments",
)
"""Tables of the data source."""
PIPELINE_TABLES = ("log_transactions", "lso_timeline", "transaction_history", "findings")
"""Tables that the pipeline writes."""
SESSION_MODULES = {"classic": "pyspark.sql.session", "connect": "pyspark.sql.connect.session"}
MIN_HELD_MS = 50


def has_package(spark: SparkSession) -> bool:
    """Whether executors have the package before it is shipped."""

    def find_package(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"found": [find_spec("toolkit") is not None]})

    return any(spark.range(1).mapInArrow(find_package, "found boolean").toArrow()["found"].to_pylist())


def read(spark: SparkSession, folder: str, table: str) -> DataFrame:
    reader = spark.read.format("kafka_log_dir").option("table", table).option("maxPartitionBytes", SPLIT)
    if table == "findings":
        reader = reader.option("consistentCopy", "true")
    return reader.load(folder)


def run_pipeline(spark: SparkSession, folder: str, out: str, *, format: str) -> Mapping[str, DataFrame]:
    from toolkit.spark.pipeline import read as read_stored
    from toolkit.spark.pipeline import run_sources
    from toolkit.spark.pipeline.pipeline_run import run

    run_sources.SMALL = -1  # read by Spark jobs, not by the driver
    run(spark, folder, out, format=format, consistent_copy=True, min_held_ms=MIN_HELD_MS)
    return {table: read_stored(spark, out, table, format=format) for table in PIPELINE_TABLES}


def arrow(frame: DataFrame, table: str) -> pa.Table:
    """Spark's table with times in milliseconds, as declared; a remainder is an error."""
    rows = frame.toArrow()
    assert rows.column_names == TABLES[table].names, table
    return rows.cast(pa.schema([field.remove_metadata() for field in TABLES[table].arrow_schema]))


def main(mode: str, folder: str, out: str) -> None:
    is_connect = mode == "connect"
    config = SETTINGS if is_connect else {**SETTINGS, **delta_settings()}
    spark = local_session(master="local[2]", remote="local[2]" if is_connect else None, config=config)
    assert type(spark).__module__ == SESSION_MODULES[mode], type(spark)
    if is_connect:
        assert not has_package(spark)
        ship_package(spark)
    register(spark)
    for table in READ_TABLES:
        pyarrow.feather.write_feather(arrow(read(spark, folder, table), table), Path(out, f"read-{table}.arrow"))
    frames = run_pipeline(spark, folder, f"{out}/made", format="parquet" if is_connect else "delta")
    for table in PIPELINE_TABLES:
        pyarrow.feather.write_feather(arrow(frames[table], table), Path(out, f"made-{table}.arrow"))
    print(f"{type(spark).__module__} {spark.version} {dt.datetime.now(dt.UTC)}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
