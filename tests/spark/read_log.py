"""``kafka_log`` read in this process, as Spark's workers read it, where a test needs no Spark for what it shows."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from toolkit.schema import TABLES, Row
from toolkit.spark.log_source import KafkaLog

__all__ = ["planned", "read", "rows", "same"]


def planned(path: Path | str | None, **options: object) -> tuple[DataSourceReader, Sequence[InputPartition]]:
    """The reader, and what its tasks read, sent through pickle as Spark sends it."""
    said = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    source = KafkaLog({**said, **({} if path is None else {"path": str(path)})})
    reader = pickle.loads(pickle.dumps(source)).reader(schema=source.schema())
    return reader, pickle.loads(pickle.dumps(reader.partitions()))


def read(reader: DataSourceReader, works: Sequence[InputPartition]) -> pa.Table:
    """What the tasks give together."""
    schema: pa.Schema = reader.columns  # type: ignore[attr-defined]
    batches: list[Any] = [batch for work in works for batch in pickle.loads(pickle.dumps(reader)).read(work)]
    assert all(batch.schema == schema for batch in batches)
    return pa.Table.from_batches(batches, schema=schema)


def rows(path: Path | str | None, **options: object) -> list[Row]:
    """Plan and read."""
    found: list[Row] = read(*planned(path, **options)).to_pylist()
    return found


def same(found: Sequence[Mapping[str, Any]], frame: Any, table: str) -> None:
    """Whether rows are those of a frame of `LogDir`, in whatever order."""
    expected = TABLES[table].rows(frame)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
