"""Who held the LSO of each partition, from what is remembered of its logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from toolkit.analysis.holds import HOLDS
from toolkit.analysis.log_state import LogState
from toolkit.spark.source import IDS
from toolkit.spark.types import spark_table, struct_type

__all__ = ["best_logs", "holds_of"]

STATE_COLUMNS = ("topic", "partition", "broker_id", "remembered")


def best_logs(states: DataFrame) -> DataFrame:
    """The log of each partition that has most of it, as `toolkit.LogDir` chooses it.

    Parameters
    ----------
    states
        Rows of `toolkit.spark.stage.STATE`.
    """
    # The least of these: sound before damaged, then the newest leader epoch, then the longest, then as they are listed.
    order = sf.struct(
        sf.coalesce("is_damaged", sf.lit(False)),
        -sf.coalesce("leader_epoch", sf.lit(-1)),
        -sf.coalesce("log_end_offset", sf.lit(-1)),
        sf.coalesce("broker_id", sf.lit(-1)),
        "log",
    )
    of_logs = states.where(~sf.col("log").endswith(IDS) & sf.col("topic").isNotNull() & sf.col("partition").isNotNull())
    best = of_logs.groupBy("topic", "partition").agg(sf.min_by(sf.struct("log", "is_held"), order).alias("best"))
    held = best.where("best.is_held").select(sf.col("best.log").alias("log"))
    return states.join(sf.broadcast(held), "log", "left_semi")


def holds_of(states: DataFrame, *, min_held_ms: int) -> DataFrame:
    """Rows of `toolkit.analysis.holds.HOLDS` of logs.

    Parameters
    ----------
    states
        From `best_logs`.
    min_held_ms
        Leave out what has ended and was shorter.
    """
    return states.select(*STATE_COLUMNS).mapInArrow(partial(_holds, min_held_ms=min_held_ms), struct_type(HOLDS))


def _holds(batches: Iterable[pa.RecordBatch], *, min_held_ms: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            remembered = row.pop("remembered")
            held = LogState.from_bytes(remembered, **row, min_held_ms=min_held_ms).holds()
            yield from spark_table(held).combine_chunks().to_batches()
