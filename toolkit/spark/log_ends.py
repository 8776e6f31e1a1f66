"""Where logs begin and end, from their batches and from what partitions say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.schema import Row
from toolkit.spark.packing import whole_runs
from toolkit.spark.pieces import END, OF_LOG, PIECES, PIECES_SCHEMA, PLACE, log_name

__all__ = ["log_ends"]
OF_END = ("topic", "partition", "log", "broker_id", "first_offset", "log_end_offset", "end_time")


def log_ends(batches: DataFrame, partitions: DataFrame | None = None) -> DataFrame:
    """Where each log begins and ends: one row of `toolkit.spark.pieces.PIECES` for each.

    Parameters
    ----------
    batches
        Rows of ``schema.BATCHES``.
    partitions
        Rows of ``schema.PARTITIONS``: they know of an empty newest segment. Each is about the log of the partition, on
        its broker, that reaches furthest. A log without any batch is there if nothing is open in it.
    """
    end, last = sf.col("log_end_offset"), sf.coalesce("position", "base_offset")
    found = (
        batches.where(sf.col("base_offset").isNotNull())
        .groupBy(*PLACE)
        .agg(
            sf.min("base_offset").alias("first_offset"),
            (sf.max_by("last_offset", last) + 1).alias("log_end_offset"),
            sf.unix_millis(sf.max_by("max_timestamp", last)).alias("end_time"),
        )
    )
    if partitions is not None:
        is_clear = (sf.col("last_stable_offset") == end).alias("is_clear")
        told = partitions.where(end.isNotNull()).select("topic", "partition", "broker_id", end, is_clear)
        found = found.unionByName(told, allowMissingColumns=True)
    by = ("topic", "partition")
    return found.repartition(*by).sortWithinPartitions(*by).mapInArrow(_of_partitions, PIECES)


def _of_partitions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in whole_runs(batches, ("topic", "partition")):
        yield pa.RecordBatch.from_pylist(_logs(rows.to_pylist()), schema=PIECES_SCHEMA)


def _logs(rows: Sequence[Row]) -> list[Row]:
    """The logs of one partition; rows of its files have a first offset, those of what is said of it have none."""
    logs: dict[str | None, dict[str, Any]] = {}
    for row in (row for row in rows if row["first_offset"] is not None):
        name = log_name(row["file"], row["broker_id"])
        log = logs.get(name, row)
        first = min(row["first_offset"], log["first_offset"])
        last = max((log, row), key=lambda each: (each["file"] or "", _end(each)))
        logs[name] = {**last, "log": name, "first_offset": first}
    known = list(logs.values())
    for row in (row for row in rows if row["first_offset"] is None):
        mine = [log for log in known if log["log"] is None or log["broker_id"] == row["broker_id"]]
        if mine:
            furthest = max(mine, key=_end)
            furthest["log_end_offset"] = max(_end(furthest), _end(row))
        elif row.get("is_clear"):
            known.append({**row, "log": log_name("", row["broker_id"]), "first_offset": _end(row)})
    return [{name: log[name] for name in OF_END} | {"slot": OF_LOG, "kind": END} for log in known]


def _end(row: Row) -> int:
    return int(row["log_end_offset"])
