"""A live cluster into the store: batches behind those that are stored, and what brokers answer now.

Executors read the batches. Everything else is asked by the driver, which is the one that has to reach the brokers in
any case; it is small beside them.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from toolkit.schema import FINDINGS, PARTITIONS, PRODUCERS, TRANSACTIONS, Row
from toolkit.sources.cluster import Cluster
from toolkit.spark.bronze import Bronze
from toolkit.spark.intake import Intake, plan_live
from toolkit.spark.ledger import Ledger, Part
from toolkit.spark.tables import KEPT
from toolkit.spark.types import spark_table
from toolkit.spark.units import log_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["LivePartitions", "list_partitions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePartitions:
    """The partitions of a cluster as their leaders answered for them at one time.

    Parameters
    ----------
    spark
        The session.
    cluster
        The cluster.
    topics
        Only these; all if null.
    partitions
        Rows of ``schema.PARTITIONS``.
    """

    spark: SparkSession
    cluster: Cluster
    topics: Sequence[str] | None
    partitions: Sequence[Row]

    what = "partitions"
    records = ("coordinator_events", "group_events")
    beside: Sequence[str] = ()
    now = ("partitions", "producers", "transactions", "answers")
    may_go_on = True
    bytes_listed = None

    @property
    def listed(self) -> int:
        """How many partitions there are."""
        return len(self.partitions)

    @property
    def signature(self) -> str:
        """Never the same: what brokers answer is always asked."""
        return str(time.time_ns())

    def intakes(self, ledger: Ledger) -> list[Intake]:
        """What is to be read of each partition."""
        known = ledger.logs()
        return [plan_live(row, known.get(log_id({**row, "file": None}), [])) for row in self.partitions]

    def rows(self, table: str, bronze: Bronze, *, are_segments: bool) -> DataFrame:
        """Rows of the new parts."""
        if table == "batches":
            return self._batches(bronze.parts)
        kept = KEPT[table]
        numbers = sorted(
            {part.partition for part in bronze.parts if part.topic == kept.topic and part.partition is not None}
        )
        asked = self.cluster.coordinator_events if table == "coordinator_events" else self.cluster.group_events
        return self._frame(
            pa.Table.from_pandas(asked(partitions=numbers), schema=kept.table.arrow_schema, preserve_index=False)
        )

    def rows_beside(self, table: str, bronze: Bronze) -> DataFrame:
        """There are no files to be seen."""
        raise NotImplementedError(table)

    def answers(self, table: str, ledger: Ledger) -> DataFrame:
        """What brokers answer now."""
        if table == "partitions":
            return self._frame(PARTITIONS.arrow(self.partitions))
        if table == "producers":
            return self._frame(PRODUCERS.arrow(self.cluster.producer_rows(self.topics)))
        if table == "transactions":
            return self._frame(TRANSACTIONS.arrow(self.cluster.transaction_rows()))
        return self._frame(FINDINGS.arrow(self.cluster.finding_rows(self.topics)))

    def _batches(self, parts: Iterable[Part]) -> DataFrame:
        assigned: dict[str, list[int]] = defaultdict(list)
        bounds: dict[str, dict[str, dict[str, int]]] = {"starting": defaultdict(dict), "ending": defaultdict(dict)}
        for part in parts:
            assert part.topic is not None
            assert part.partition is not None
            assigned[part.topic].append(part.partition)
            bounds["starting"][part.topic][str(part.partition)] = part.from_offset
            bounds["ending"][part.topic][str(part.partition)] = part.end_offset
        reader = self.spark.read.format("kafka_batches").option("assign", json.dumps(assigned))
        for which, offsets in bounds.items():
            reader = reader.option(f"{which}Offsets", json.dumps(offsets))
        return reader.option("timeout", str(self.cluster.timeout)).load()

    def _frame(self, table: pa.Table) -> DataFrame:
        return self.spark.createDataFrame(spark_table(table))


def list_partitions(spark: SparkSession, cluster: Cluster, *, topics: Sequence[str] | None = None) -> LivePartitions:
    """Ask the leaders of all partitions, or of those of some topics, where these begin and end.

    Raises
    ------
    NotFound
        If the cluster does not have one of the topics.
    """
    return LivePartitions(spark=spark, cluster=cluster, topics=topics, partitions=cluster.partition_rows(topics))
