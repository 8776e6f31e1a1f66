"""``kafka_log_dir`` read in this process, as Spark's workers read it, where a test needs no Spark for what it shows."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from toolkit.schema import TABLES, Row
from toolkit.spark.datasources.log.log_options import PIECES
from toolkit.spark.datasources.log.log_source import KafkaLog
from toolkit.spark.pipeline.staging_table import STAGE_SCHEMA
from toolkit.spark.transforms.log_fold import KEY, _folded

__all__ = ["fold_rows", "folded", "planned", "read", "rows", "same"]


def planned(path: Path | str | None, **options: object) -> tuple[DataSourceReader, Sequence[InputPartition]]:
    """The reader, and what its tasks read, sent through pickle as Spark sends it."""
    values = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    source = KafkaLog({**values, **({} if path is None else {"path": str(path)})})
    reader = pickle.loads(pickle.dumps(source)).reader(schema=source.schema())
    return reader, pickle.loads(pickle.dumps(reader.partitions()))


def read(reader: DataSourceReader, works: Sequence[InputPartition]) -> pa.Table:
    """The rows of all tasks."""
    schema: pa.Schema = reader.columns  # type: ignore[attr-defined]
    batches: list[Any] = [batch for work in works for batch in pickle.loads(pickle.dumps(reader)).read(work)]
    assert all(batch.schema == schema for batch in batches)
    return pa.Table.from_batches(batches, schema=schema)


def rows(path: Path | str | None, **options: object) -> list[Row]:
    """Plan and read."""
    found: list[Row] = read(*planned(path, **options)).to_pylist()
    return found


def fold_rows(pieces: pa.Table, random: Random, *, min_held_ms: int = 0) -> list[Row]:
    """Partial transactions folded as in a task of Spark: sections in order, rows within them in any order and split."""
    pieces = pieces.take(pa.array(random.sample(range(len(pieces)), len(pieces)), pa.int64()))
    pieces = pieces.sort_by([(name, "ascending") for name in (*KEY, "section")])
    batches = pieces.to_batches(max_chunksize=random.randint(1, 20))
    found: list[Row] = pa.Table.from_batches(_folded(batches, min_held_ms=min_held_ms), STAGE_SCHEMA).to_pylist()
    return found


def folded(path: Path, table: str = "log_transactions", **options: object) -> list[Row]:
    """Rows of a table, from the partial transactions of all tasks."""
    pieces = read(*planned(path, table=PIECES, **options))
    return [row[table] for row in fold_rows(pieces, Random(1)) if row["table"] == table]


def same(found: Sequence[Mapping[str, Any]], frame: Any, table: str) -> None:
    """Whether rows are those of a frame of `LogDir`, in any order."""
    ours, theirs = sorted(map(repr, found)), sorted(map(repr, TABLES[table].rows(frame)))
    alone = [row for row in ours if row not in theirs][:2], [row for row in theirs if row not in ours][:2]
    assert ours == theirs, (table, len(ours), len(theirs), alone)
