"""A live cluster as a source of the pipeline: new batches, and the current findings.

Executors read the batches if they reach the brokers; else this process does. It requests the small rest, too.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as sf

from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import FINDINGS, TRANSACTION_LOG
from toolkit.schema.live import Partition
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.live.state.leaders import read_metadata
from toolkit.spark.access import executors_reach
from toolkit.spark.arrow_types import from_arrow, spark_table
from toolkit.spark.datasources.batches_reader import BatchesReader
from toolkit.spark.datasources.live_options import batches_options
from toolkit.spark.datasources.log_identity import LEADER, LogIdentity
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.datasources.reader_options import table_schema
from toolkit.spark.pipeline.log_renames import assumptions
from toolkit.spark.pipeline.pipeline_source import LogPlan, plan_live, read_here
from toolkit.spark.pipeline.tables.staging_table import IDS, LOG, StoredState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePartitions:
    """The partitions of a cluster, as listed once from their leaders."""

    spark: SparkSession  # the session
    cluster: Cluster  # the cluster
    topics: Sequence[str] | None  # only these topics; null for all
    partitions: Sequence[Partition]  # the partitions
    topic_ids: Mapping[str, str]  # topic ids by topic
    # whether executors reach the brokers, which a Spark job finds out at the first call
    executors_can_read: Callable[[], bool]

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
    def listings(self) -> Mapping[str, LogListing]:
        """Each log, as listed."""
        listed = [
            LogListing(
                log=self._name(each),
                topic=each.topic,
                partition=each.partition,
                broker_id=each.broker_id,
                topic_id=self.topic_ids.get(each.topic),
                high_watermark=each.high_watermark,
            )
            for each in self.partitions
        ]
        return {each.log + ending: each for each in listed for ending in ("", IDS)}

    @property
    def assumptions(self) -> Sequence[str]:
        """What is assumed because ids are missing."""
        return assumptions(map(self._name, self.partitions))

    def _name(self, partition: Partition) -> str:
        topic_id = self.topic_ids.get(partition.topic)
        return str(LogIdentity(self.cluster.client.cluster_id, LEADER, topic_id, str(partition.tp)))

    def plans(self, states: Mapping[str, StoredState]) -> dict[str, LogPlan]:
        """How to continue the read of each partition with new data."""
        found = {}
        for each in self.partitions:
            log = self._name(each)
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
        logs_by_partition = {
            each.partition: self._name(each) + IDS for each in self.partitions if each.topic == STATE_TOPIC
        }
        starts = [(number, log, plans[log].start) for number, log in sorted(logs_by_partition.items()) if log in plans]
        if not starts:
            return None
        found = self.cluster.transaction_log(partitions=[number for number, _, _ in starts])
        events = pa.Table.from_pandas(found, schema=TRANSACTION_LOG.arrow_schema, preserve_index=False)
        starts_frame = self.spark.createDataFrame(starts, f"txn_state_partition int, {LOG} string, _start long")
        rows = from_arrow(self.spark, spark_table(events)).join(sf.broadcast(starts_frame), "txn_state_partition")
        return rows.where(sf.coalesce(sf.col("offset") >= sf.col("_start"), sf.lit(True))).drop("_start")

    def batches(self, plans: Mapping[str, LogPlan]) -> DataFrame | None:
        """Headers of the new batches."""
        return self._read(plans, "batches")

    def tables(self, plans: Mapping[str, LogPlan]) -> None:
        """Always null: there may be much to read."""

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
            plan = plans.get(self._name(each))
            if plan is not None:
                assigned[each.topic].append(each.partition)
                bounds["starting"][each.topic][str(each.partition)] = plan.start
                bounds["ending"][each.topic][str(each.partition)] = plan.stop
        if not assigned:
            return None
        options = {"assign": json.dumps(assigned), "table": table, "timeout": str(self.cluster.timeout)}
        options |= {f"{which}Offsets": json.dumps(offsets) for which, offsets in bounds.items()}
        if self.executors_can_read():
            rows = self.spark.read.format("kafka_log_live").options(**options).load()
        else:
            reader = BatchesReader(batches_options(options), self.cluster.config, table_schema(table))
            rows = from_arrow(self.spark, read_here(reader), table_schema(table))
        named = [(each.topic, each.partition, self._name(each)) for each in self.partitions]
        names = self.spark.createDataFrame(named, "topic string, partition int, _log string")
        joined = rows.join(sf.broadcast(names), ["topic", "partition"], "left")
        return joined.withColumn(LOG, sf.col("_log")).select(*dict.fromkeys([*rows.columns, LOG]))


def list_partitions(spark: SparkSession, cluster: Cluster, *, topics: Sequence[str] | None = None) -> LivePartitions:
    """List all partitions, or those of some topics, with their start and end offsets.

    Raises NotFound if the cluster does not have one of the topics.
    """
    partitions = list(map(Partition.of, cluster.partition_rows(topics=topics)))
    topic_ids = read_metadata(cluster.client, topics).topic_ids
    return LivePartitions(
        spark=spark,
        cluster=cluster,
        topics=topics,
        partitions=partitions,
        topic_ids=topic_ids,
        executors_can_read=cache(lambda: executors_reach(spark, cluster.client.brokers.values())),
    )
