"""The reader of ``kafka_log_live``: it resolves the ranges of offsets, and reads each in a task."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from toolkit.config import ClientConfig
from toolkit.errors import BrokerError, ConnectionFailed, ToolkitError
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.schema import BATCHES, Row
from toolkit.schema.live import Partition
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.broker_client import BrokerClient, row_text
from toolkit.sources.live.leaders import ClusterMetadata, read_metadata, read_partitions, resolve_partitions
from toolkit.sources.live.partition_log import LogRange, batch_tables_of, read_range, resolve_range, split
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.datasources.reader_options import BatchesOptions, PartitionSelection
from toolkit.spark.datasources.row_batches import record_batches, selected, without_damage
from toolkit.spark.spark_errors import each_without_traceback, without_traceback

INTERNAL = {STATE_TOPIC, OFFSETS_TOPIC, "__share_group_state"}  # subscribePattern does not match them, as in Spark


@dataclass(frozen=True, slots=True)
class _UnreadPartition:
    """The error row of a partition whose range cannot be resolved."""

    row: Row


class BatchesReader(DataSourceReader):
    """Resolves the ranges when Spark plans; each task opens its own connection and reads one range."""

    def __init__(self, options: BatchesOptions, config: ClientConfig, schema: StructType) -> None:
        self._options = options
        self._config = config
        self.columns = selected(schema, "batches", struct_type(BATCHES))

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        options = self._options
        with BrokerClient(self._config, timeout=options.timeout) as client:
            metadata, topic_partitions = _selected(client, options.selection)
            options.start.check(topic_partitions)
            options.stop.check(topic_partitions)
            partitions = sorted(
                read_partitions(client, metadata.at(topic_partitions)), key=attrgetter("topic", "partition")
            )
            found = [_resolve(client, each, options) for each in partitions]
        resolved = [each for each in found if not isinstance(each, _UnreadPartition)]
        total = sum(max(0, stop - start) for _, start, stop, _ in resolved)
        max_offsets = max(1, min(options.max_offsets, total // options.tasks))
        ranges = [
            log_range
            for tp, start, stop, log_start in resolved
            for log_range in split(tp, start, stop, log_start=log_start, max_offsets=max_offsets)
        ]
        return [
            InputPartition(item) for item in (*ranges, *(each for each in found if isinstance(each, _UnreadPartition)))
        ]

    @each_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:  # Spark adds one if the plan is empty
            return
        tables = without_damage(self._tables(partition.value), self._options.mode)
        yield from record_batches(tables, self.columns)

    def _tables(self, item: LogRange | _UnreadPartition) -> Iterator[pa.Table]:
        if isinstance(item, _UnreadPartition):
            yield BATCHES.arrow([item.row])
            return
        try:
            with BrokerClient(self._config, timeout=self._options.timeout) as client:
                fetched = read_range(client, item, crc=self._options.crc)
                yield from batch_tables_of(fetched, producer_id=self._options.producer_id)
        except ToolkitError as error:
            text = f"{row_text(error).rstrip('.')}; offsets {item.start} to {item.stop - 1} were not read"
            yield BATCHES.arrow([{"topic": item.tp.topic, "partition": item.tp.partition, "error": text}])


def _selected(client: BrokerClient, selection: PartitionSelection) -> tuple[ClusterMetadata, list[TopicPartition]]:
    """The selected partitions, and the metadata of their topics.

    Raises NotFound, BrokerError, ConnectionFailed if the cluster does not respond, or a named partition does not exist
    or is not visible.
    """
    if selection.pattern is not None:
        metadata = read_metadata(client)
        topics = {topic for topic, _ in metadata.partitions if topic not in INTERNAL}
        matched = {topic for topic in topics if re.fullmatch(selection.pattern, topic)}
        return metadata, sorted(tp for tp in metadata.partitions if tp[0] in matched)
    if selection.topic_partitions is not None:
        metadata = read_metadata(client, {topic for topic, _ in selection.topic_partitions})
        return metadata, resolve_partitions(metadata, None, selection.topic_partitions)
    metadata = read_metadata(client, selection.topics)
    return metadata, resolve_partitions(metadata, selection.topics, None)


def _resolve(
    client: BrokerClient, partition: Partition, options: BatchesOptions
) -> tuple[TopicPartition, int, int, int] | _UnreadPartition:
    """Partition, start, stop and log start offset of the range to read."""
    tp = partition.tp
    try:
        start, stop = resolve_range(client, partition, options.start.of(tp), options.stop.of(tp))
    except (BrokerError, ConnectionFailed) as error:
        columns = {"topic": tp.topic, "partition": tp.partition, "broker_id": partition.leader}
        return _UnreadPartition({**columns, "error": partition.error or row_text(error)})
    return tp, start, stop, partition.log_start_offset or 0
