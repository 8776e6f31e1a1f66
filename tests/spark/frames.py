"""Comparison of the rows of Spark with those of pandas, and logs that are damaged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from toolkit.schema import Table


def assert_same(frame: DataFrame, expected: Any, table: Table) -> None:
    """Assert the rows of a pandas frame, in any order, with times in milliseconds; a remainder is an error."""
    schema = pa.schema([field.remove_metadata() for field in table.arrow_schema])
    actual_rows, expected_rows = (
        sorted(rows.cast(schema).to_pylist(), key=repr)
        for rows in (frame.select(*table.names).toArrow(), table.arrow(table.rows(expected)))
    )
    unmatched = (
        [row for row in actual_rows if row not in expected_rows],
        [row for row in expected_rows if row not in actual_rows],
    )
    assert actual_rows == expected_rows, (len(actual_rows), len(expected_rows), [rows[:3] for rows in unmatched])


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
