"""A live cluster as a source of the pipeline: new batches, and the current findings.

Executors read the batches if they reach the brokers; else this process does. It requests the small rest, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import FINDINGS
from toolkit.schema.live import Partition
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.live.state.leaders import read_metadata
from toolkit.spark.access import executors_reach
from toolkit.spark.datasources.log_identity import LEADER, LogIdentity
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.pipeline.log_plan import LogPlan, plan_live
from toolkit.spark.pipeline.log_renames import assumptions
from toolkit.spark.pipeline.log_work import WorkOptions
from toolkit.spark.pipeline.tables.staging_table import IDS, StoredState, records_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePartitions:
    """The partitions of a cluster, as listed once from their leaders."""

    spark: SparkSession  # the session
    cluster: Cluster  # the cluster
    topics: Sequence[str] | None  # only these topics; null for all
    partitions: Sequence[Partition]  # the partitions
    topic_ids: Mapping[str, str]  # topic ids by topic

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
                begin=each.log_start_offset,
                high_watermark=each.high_watermark,
            )
            for each in self.partitions
        ]
        records = {records_name(each): each for each in listed if each.topic == STATE_TOPIC}
        return {each.log: each for each in listed} | records

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
            for name in (log, log + IDS) if each.topic == STATE_TOPIC else (log,):  # as `records_name`
                plan = plan_live(each, states.get(name))
                if plan is not None:
                    found[name] = plan
        return found

    def options(self, *, min_held_ms: int, with_batches: bool) -> WorkOptions:
        """How to read and fold them."""
        cluster = self.cluster
        return WorkOptions(
            min_held_ms=min_held_ms, with_batches=with_batches, config=cluster.config, timeout=cluster.timeout
        )

    @property
    def reads_here(self) -> bool:
        """Whether this process reads the partitions: executors do not reach the brokers."""
        return not executors_reach(self.spark, self.cluster.client.brokers.values())

    def current_findings(self) -> pa.Table:
        """The findings at present."""
        return FINDINGS.arrow(self.cluster.finding_rows(topics=self.topics))


def list_partitions(spark: SparkSession, cluster: Cluster, *, topics: Sequence[str] | None = None) -> LivePartitions:
    """List all partitions, or those of some topics, with their start and end offsets.

    Raises NotFound if the cluster does not have one of the topics.
    """
    partitions = list(map(Partition.of, cluster.partition_rows(topics=topics)))
    topic_ids = read_metadata(cluster.client, topics).topic_ids
    return LivePartitions(spark=spark, cluster=cluster, topics=topics, partitions=partitions, topic_ids=topic_ids)
