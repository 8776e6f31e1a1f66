"""The reader of ``kafka_log_live``: it resolves the ranges of offsets, and reads each in a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from toolkit.config import ClientConfig
from toolkit.errors import BrokerError, ConnectionFailed, ToolkitError
from toolkit.schema import BATCHES
from toolkit.schema.live import Partition
from toolkit.schema.log import Batch
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.broker_client import BrokerClient, row_text
from toolkit.sources.live.leaders import ClusterMetadata, read_metadata, read_partitions, resolve_partitions
from toolkit.sources.live.partition_log import LogRange, batch_tables_of, read_range, resolve_range, split
from toolkit.sources.source import TableArguments, requested_partitions
from toolkit.spark.arrow_types import record_batches, selected, struct_type, without_damage
from toolkit.spark.datasources.reader_options import BatchesOptions
from toolkit.spark.spark_errors import each_without_traceback, without_traceback


class BatchesReader(DataSourceReader):
    """Resolves the ranges when Spark plans; each task opens its own connection and reads one range."""

    def __init__(self, options: BatchesOptions, config: ClientConfig, schema: StructType) -> None:
        self._options = options
        self._config = config
        self.columns = selected(schema, "batches", struct_type(BATCHES))

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        with BrokerClient(self._config, timeout=self._options.timeout) as client:
            metadata, topic_partitions = _selected(client, self._options.arguments)
            partitions = read_partitions(client, metadata.at(topic_partitions))
            in_order = sorted(partitions, key=attrgetter("topic", "partition"))
            return [InputPartition(item) for each in in_order for item in _ranges(client, each, self._options)]

    @each_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:  # Spark adds one if the plan is empty
            return
        tables = without_damage(self._tables(partition.value), self._options.mode)
        yield from record_batches(tables, self.columns)

    def _tables(self, item: LogRange | Batch) -> Iterator[pa.Table]:
        if isinstance(item, Batch):
            yield BATCHES.arrow([item])
            return
        try:
            with BrokerClient(self._config, timeout=self._options.timeout) as client:
                fetched = read_range(client, item, crc=self._options.arguments.crc)
                yield from batch_tables_of(fetched, producer_id=self._options.arguments.producer_id)
        except ToolkitError as error:
            text = f"{row_text(error)}; offsets {item.start} to {item.stop - 1} were not read"
            yield BATCHES.arrow([{"topic": item.tp.topic, "partition": item.tp.partition, "error": text}])


def _selected(client: BrokerClient, arguments: TableArguments) -> tuple[ClusterMetadata, list[TopicPartition]]:
    """The selected partitions, and the metadata of their topics.

    Raises NotFound, BrokerError, ConnectionFailed if the cluster does not respond, or a partition does not exist or is
    not visible.
    """
    topics, partitions = arguments.topics, arguments.partitions
    named = requested_partitions(topics, partitions) if topics is None and partitions is not None else ()
    metadata = read_metadata(client, topics or {tp.topic for tp in named})
    return metadata, resolve_partitions(metadata, topics, partitions)


def _ranges(client: BrokerClient, partition: Partition, options: BatchesOptions) -> Sequence[LogRange | Batch]:
    """The ranges to read of a partition; or the error row of one whose offsets cannot be resolved."""
    tp, arguments = partition.tp, options.arguments
    try:
        start, stop = resolve_range(
            client,
            partition,
            "log_start" if arguments.start is None else arguments.start,
            "high_watermark" if arguments.stop is None else arguments.stop,
        )
    except (BrokerError, ConnectionFailed) as error:
        text = partition.error or row_text(error)
        return [Batch(topic=tp.topic, partition=tp.partition, broker_id=partition.leader, error=text)]
    return split(tp, start, stop, log_start=partition.log_start_offset or 0, max_offsets=options.max_offsets)
