"""Read ``kafka_log_dir`` in this process as the workers of Spark do, for tests that need no Spark."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from toolkit import LogDir
from toolkit.schema import TABLES, Row
from toolkit.sources.logdir.contents import found_in
from toolkit.spark.datasources.data_sources import KafkaLog
from toolkit.spark.datasources.log_reader import LogListing, listings
from toolkit.spark.pipeline.log_fold import LogWork, WorkOptions, arrow_rows, fold_work
from toolkit.spark.pipeline.log_states import LogPlan
from toolkit.spark.pipeline.stored_tables import FoldedRows, StoredState


def plan_read(path: Path | str | None, **options: object) -> tuple[DataSourceReader, Sequence[InputPartition]]:
    """The reader and the inputs of its tasks, pickled and unpickled as by Spark."""
    values = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    source = KafkaLog({**values, **({} if path is None else {"path": str(path)})})
    reader = pickle.loads(pickle.dumps(source)).reader(schema=source.schema())
    return reader, pickle.loads(pickle.dumps(reader.partitions()))


def read(reader: DataSourceReader, tasks: Sequence[InputPartition]) -> pa.Table:
    """The rows of all tasks."""
    schema: pa.Schema = reader.columns  # type: ignore[attr-defined]
    batches: list[Any] = [batch for task in tasks for batch in pickle.loads(pickle.dumps(reader)).read(task)]
    assert all(batch.schema == schema for batch in batches)
    return pa.Table.from_batches(batches, schema=schema)


def rows(path: Path | str | None, **options: object) -> list[Row]:
    """Plan and read."""
    result: list[Row] = read(*plan_read(path, **options)).to_pylist()
    return result


def assert_like_log_dir(
    path: Path | str | None,
    table: str,
    arguments: Mapping[str, Any] = {},
    *,
    of: LogDir | None = None,
    **options: object,
) -> list[Row]:
    """The rows of tasks with these options, if they are those of `LogDir` with these arguments."""
    found = rows(path, table=table, **options)
    assert_same_rows(found, getattr(LogDir(str(path)) if of is None else of, table)(**arguments), table)
    return found


def listed(path: Path | str) -> list[LogListing]:
    """The logs in a folder, as the pipeline lists them."""
    contents = found_in([str(path)])
    return listings(contents, contents.replica_logs())


def read_and_fold(path: Path, table: str = "log_transactions") -> list[Row]:
    """Rows of a table, folded from all that the logs have."""
    works = (LogWork(log=row.log, listing=row, plan=LogPlan(), state=None) for row in listed(path))
    found = (each for work in works for each in fold_work(work, WorkOptions(min_held_ms=0)) if each.table == table)
    return [row for each in found for row in rows_of(each)]


def rows_of(folded: FoldedRows) -> list[Row]:
    """Rows that the fold of a log gives out."""
    found: list[Row] = arrow_rows(folded.table, [folded.rows]).to_pylist()
    return found


def state_of(folded: FoldedRows) -> StoredState:
    """The state that the fold of a log gives out last, as it is stored."""
    (stored,) = StoredState.of_table(arrow_rows(folded.table, [folded.rows]))
    return stored


def assert_same_rows(actual: Sequence[Mapping[str, Any]], frame: Any, table: str) -> None:
    """Assert that rows match those of a frame of `LogDir`, in any order."""
    actual_rows, expected_rows = sorted(map(repr, actual)), sorted(map(repr, TABLES[table].rows(frame)))
    unmatched = (
        [row for row in actual_rows if row not in expected_rows][:2],
        [row for row in expected_rows if row not in actual_rows][:2],
    )
    assert actual_rows == expected_rows, (table, len(actual_rows), len(expected_rows), unmatched)
