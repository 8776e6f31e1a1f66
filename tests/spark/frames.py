"""Tables as Spark's frames in any row order, and what Spark made of them against what pandas has."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from toolkit.schema import Row, Table
from toolkit.spark.datasources.arrow_types import spark_table

__all__ = ["arrow", "assert_rows", "damaged", "listed", "shuffled"]


def arrow(frame: object, table: Table) -> pa.Table:
    """A pandas frame of a declared table."""
    return pa.Table.from_pandas(frame, schema=table.arrow_schema, preserve_index=False)


def shuffled(spark: SparkSession, found: pa.Table, *, seed: int = 0) -> DataFrame:
    """The rows of a declared table, in an order that is drawn."""
    order = np.random.default_rng(seed).permutation(found.num_rows)
    return spark.createDataFrame(spark_table(found.take(pa.array(order))))


def listed(found: pa.Table, table: Table) -> list[Row]:
    """Rows in one order, with times in milliseconds; a rest would be an error."""
    assert found.column_names == table.names
    rows = found.cast(pa.schema([field.remove_metadata() for field in table.arrow_schema])).to_pylist()
    return sorted(rows, key=repr)


def assert_rows(found: DataFrame, expected: pa.Table, table: Table) -> None:
    """Exactly these rows, in any order."""
    ours, theirs = listed(found.toArrow(), table), listed(expected, table)
    alone = [row for row in ours if row not in theirs], [row for row in theirs if row not in ours]
    assert ours == theirs, (len(ours), len(theirs), [rows[:3] for rows in alone])


def damaged(history: Path, folder: Path) -> Path:
    """A copy with wrong bytes in the middle of its larger segments, and truncated ends."""
    shutil.copytree(history, folder)
    for log in sorted(folder.glob("*/*.log")):
        data = bytearray(log.read_bytes())
        if len(data) > 2000:
            middle = len(data) // 2
            data[middle : middle + 100] = bytes(100)
            log.write_bytes(data[:-10] if len(data) % 2 else data)
    return folder
