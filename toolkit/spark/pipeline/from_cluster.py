"""A live cluster as a source of the pipeline: new batches, and the current findings.

Executors read the batches. The driver requests the small rest, as it must reach the brokers anyway.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf

from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import FINDINGS, TRANSACTION_LOG, Row
from toolkit.schema.live import Partition
from toolkit.sources.live.cluster import Cluster
from toolkit.spark.arrow_types import spark_table
from toolkit.spark.datasources.batches_reader import live_log
from toolkit.spark.pipeline.pipeline_source import IDS, LogPlan, plan_live
from toolkit.spark.pipeline.staging_table import LOG, StoredState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePartitions:
    """The partitions of a cluster, as listed once from their leaders.

    Parameters
    ----------
    spark
        The session.
    cluster
        The cluster.
    topics
        Only these topics; null for all.
    partitions
        The partitions.
    """

    spark: SparkSession
    cluster: Cluster
    topics: Sequence[str] | None
    partitions: Sequence[Partition]

    what = "partitions"
    is_consistent = False
    bytes_listed = None

    @property
    def listed(self) -> int:
        """Number of partitions."""
        return len(self.partitions)

    @property
    def signature(self) -> str:
        """Always a new value: brokers are always queried."""
        return str(time.time_ns())

    @property
    def listings(self) -> Mapping[str, Row]:
        """The listed columns of each log's state, by log."""
        return {
            live_log(each.topic, each.partition) + ending: {**each.row(), "listing": None, "topic_id": None}
            for each in self.partitions
            for ending in ("", IDS)
        }

    def plans(self, states: Mapping[str, StoredState]) -> dict[str, LogPlan]:
        """How to continue the read of each partition with new data."""
        found = {}
        for each in self.partitions:
            log = live_log(each.topic, each.partition)
            for name in (log, log + IDS) if each.topic == STATE_TOPIC else (log,):
                plan = plan_live(each, states.get(name))
                if plan is not None:
                    found[name] = plan
        return found

    def partial_transactions(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Partial transactions of the new ranges."""
        return self._read(plans, "partial_transactions")

    def events(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """New records of ``__transaction_state``."""
        logs_by_partition = {each.partition: live_log(STATE_TOPIC, each.partition) + IDS for each in self.partitions}
        starts = [(number, log, plans[log].start) for number, log in sorted(logs_by_partition.items()) if log in plans]
        if not starts:
            return None
        found = self.cluster.transaction_log(partitions=[number for number, _, _ in starts])
        events = pa.Table.from_pandas(found, schema=TRANSACTION_LOG.arrow_schema, preserve_index=False)
        starts_frame = self.spark.createDataFrame(starts, f"txn_state_partition int, {LOG} string, _start long")
        rows = self.spark.createDataFrame(spark_table(events)).join(sf.broadcast(starts_frame), "txn_state_partition")
        return rows.where(sf.coalesce(sf.col("offset") >= sf.col("_start"), sf.lit(True))).drop("_start")

    def batches(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Headers of the new batches."""
        rows = self._read(plans, "batches")
        name = sf.concat(sf.lit("live:"), "topic", sf.lit("-"), sf.col("partition").cast("string"))
        return None if rows is None else rows.withColumn(LOG, name)

    def tables(self, plans: Mapping[str, LogPlan]) -> None:
        """Always null: only Spark's tasks read from brokers."""

    def current_findings(self) -> pa.Table:
        """The findings at present."""
        return FINDINGS.arrow(self.cluster.finding_rows(topics=self.topics))

    def _read(self, plans: Mapping[str, LogPlan], table: str) -> DataFrame | None:
        assigned: dict[str, list[int]] = defaultdict(list)
        bounds: dict[str, dict[str, dict[str, int | None]]] = {
            "starting": defaultdict(dict),
            "ending": defaultdict(dict),
        }
        for each in self.partitions:
            plan = plans.get(live_log(each.topic, each.partition))
            if plan is not None:
                assigned[each.topic].append(each.partition)
                bounds["starting"][each.topic][str(each.partition)] = plan.start
                bounds["ending"][each.topic][str(each.partition)] = plan.stop
        if not assigned:
            return None
        reader = self.spark.read.format("kafka_log_live").options(assign=json.dumps(assigned), table=table)
        for which, offsets in bounds.items():
            reader = reader.option(f"{which}Offsets", json.dumps(offsets))
        return reader.option("timeout", str(self.cluster.timeout)).load()


def list_partitions(spark: SparkSession, cluster: Cluster, *, topics: Sequence[str] | None = None) -> LivePartitions:
    """List all partitions, or those of some topics, with their start and end offsets.

    Raises
    ------
    NotFound
        If the cluster does not have one of the topics.
    """
    partitions = list(map(Partition.of, cluster.partition_rows(topics=topics)))
    return LivePartitions(spark=spark, cluster=cluster, topics=topics, partitions=partitions)
