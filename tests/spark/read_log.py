"""``kafka_log`` read in this process, as Spark's workers read it, where a test needs no Spark for what it shows."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from toolkit.spark.merging import merged

from toolkit.schema import TABLES, Row
from toolkit.spark.log_options import PIECES
from toolkit.spark.log_source import KafkaLog
from toolkit.spark.pieces import PIECES_SCHEMA

__all__ = ["planned", "read", "rows", "same", "spans_of_pieces"]


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


def spans_of_pieces(path: Path, **options: object) -> list[Row]:
    """Transactions, merged from the pieces of all tasks as `toolkit.spark.spans.merged_spans` merges them."""
    names = ("topic", "partition", "log", "slot", "kind", "first_offset")

    def place(row: Row) -> list[tuple[bool, Any]]:
        return [(row[name] is not None, 0 if row[name] is None else row[name]) for name in names]

    together = sorted(rows(path, table=PIECES, **options), key=place)
    found: list[Row] = []
    for batch in merged([pa.RecordBatch.from_pylist(together, schema=PIECES_SCHEMA)]):
        found += batch.to_pylist()
    return found


def same(found: Sequence[Mapping[str, Any]], frame: Any, table: str) -> None:
    """Whether rows are those of a frame of `LogDir`, in whatever order."""
    expected = TABLES[table].rows(frame)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
