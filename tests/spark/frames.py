"""Tables as Spark data frames in random row order, and comparison of the rows of Spark with those of pandas."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from toolkit.schema import Row, Table
from toolkit.spark.arrow_types import spark_table


def arrow(frame: object, table: Table) -> pa.Table:
    """A pandas frame of a declared table."""
    return pa.Table.from_pandas(frame, schema=table.arrow_schema, preserve_index=False)


def shuffled(spark: SparkSession, rows: pa.Table, *, seed: int = 0) -> DataFrame:
    """The rows of a declared table in random order."""
    order = np.random.default_rng(seed).permutation(rows.num_rows)
    return spark.createDataFrame(spark_table(rows.take(pa.array(order))))


def sorted_rows(rows: pa.Table, table: Table) -> list[Row]:
    """Sorted rows with times in milliseconds; a remainder is an error."""
    assert rows.column_names == table.names
    records = rows.cast(pa.schema([field.remove_metadata() for field in table.arrow_schema])).to_pylist()
    return sorted(records, key=repr)


def assert_rows(frame: DataFrame, expected: pa.Table, table: Table) -> None:
    """Assert exactly these rows, in any order."""
    actual_rows, expected_rows = sorted_rows(frame.toArrow(), table), sorted_rows(expected, table)
    unmatched = (
        [row for row in actual_rows if row not in expected_rows],
        [row for row in expected_rows if row not in actual_rows],
    )
    assert actual_rows == expected_rows, (len(actual_rows), len(expected_rows), [rows[:3] for rows in unmatched])


def assert_same(frame: DataFrame, expected: Any, table: Table) -> None:
    """Assert the rows of a pandas frame, in any order."""
    assert_rows(frame.select(*table.names), table.arrow(table.rows(expected)), table)


def damaged_copy(history: Path, folder: Path) -> Path:
    """A copy with wrong bytes in the middle of its larger segments, zeros in some, and truncated ends."""
    shutil.copytree(history, folder)
    for log in sorted(folder.glob("*/*.log")):
        data = bytearray(log.read_bytes())
        if len(data) > 2000:
            middle = len(data) // 2
            data[middle : middle + 100] = b"\xff" * 100 if len(data) % 3 else bytes(100)
            log.write_bytes(data[:-10] if len(data) % 2 else data)
    return folder
