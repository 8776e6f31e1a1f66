"""How ``kafka_log_live`` finds the ranges of offsets that are to be read, and reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from toolkit.analysis.log.log_transactions import EMPTY, begin
from toolkit.config import ClientConfig
from toolkit.errors import BrokerError, ConnectionFailed, ToolkitError
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import BATCHES, Row
from toolkit.schema.table import TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.connection_errors import row_text
from toolkit.sources.live.logs.offset_ranges import LogRange, read_range, split
from toolkit.sources.live.logs.partition_log import FetchedRange, resolve_range
from toolkit.sources.live.logs.partition_tables import batch_tables_of, scan_chunks
from toolkit.sources.live.state.cluster_metadata import (
    ClusterMetadata,
    read_metadata,
    resolve_partitions,
)
from toolkit.sources.live.state.partition_offsets import partition_rows
from toolkit.sources.log_tables import LogId
from toolkit.spark.datasources.batches.batches_options import PIECES, BatchesOptions
from toolkit.spark.datasources.log.row_batches import record_batches, selected, without_damage
from toolkit.spark.datasources.offset_options import PartitionSelection
from toolkit.spark.spark_errors import each_without_traceback, without_traceback
from toolkit.spark.transforms.partial_transactions import STOP, piece_batches, piece_rows

__all__ = ["BatchesReader", "live_log"]

INTERNAL = {STATE_TOPIC, OFFSETS_TOPIC, "__share_group_state"}  # a pattern does not mean them, as in Spark


@dataclass(frozen=True, slots=True)
class _UnreadPartition:
    """The error row of a partition that cannot be read now."""

    row: Row


class BatchesReader(DataSourceReader):
    """Finds the ranges where Spark plans; reads each in a task, over a connection of its own."""

    def __init__(self, options: BatchesOptions, config: ClientConfig, schema: StructType) -> None:
        self._options = options
        self._config = config
        self._columns = selected(schema, options.table)

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        options = self._options
        with BrokerClient(self._config, timeout=options.timeout) as client:
            topology, topic_partitions = _selected(client, options.selection)
            options.start.check(topic_partitions)
            options.stop.check(topic_partitions)
            rows = sorted(
                partition_rows(client, topology.at(topic_partitions)), key=lambda row: (row["topic"], row["partition"])
            )
            found = [_section(client, row, options) for row in rows]
        sections = [each for each in found if not isinstance(each, _UnreadPartition)]
        total = sum(max(0, stop - start) for _, start, stop, _ in sections)
        max_offsets = max(1, min(options.max_offsets, total // options.tasks))
        ranges = [
            part
            for tp, start, stop, log_start in sections
            for part in split(tp, start, stop, log_start=log_start, max_offsets=max_offsets)
        ]
        return [
            InputPartition(part) for part in (*ranges, *(each for each in found if isinstance(each, _UnreadPartition)))
        ]

    @each_without_traceback
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition is None or partition.value is None:  # Spark's own, where there is nothing to read
            return
        tables = without_damage(self._tables(partition.value), self._options.mode)
        yield from record_batches(tables, self._columns)

    def _tables(self, part: LogRange | _UnreadPartition) -> Iterator[pa.Table]:
        of_failures: Any = _stop_table if self._options.table == PIECES else BATCHES.arrow
        if isinstance(part, _UnreadPartition):
            yield of_failures([part.row])
            return
        try:
            with BrokerClient(self._config, timeout=self._options.timeout) as client:
                section = read_range(client, part, crc=self._options.crc)
                if self._options.table == PIECES:
                    yield from _chunks(section, part)
                else:
                    yield from batch_tables_of(section, producer_id=self._options.producer_id)
        except ToolkitError as error:
            beside = {"section": part.start} if self._options.table == PIECES else {}
            yield of_failures([{**_unread(part, error), **beside}])


def _selected(client: BrokerClient, selection: PartitionSelection) -> tuple[ClusterMetadata, list[TopicPartition]]:
    """The partitions that are meant, and the metadata of their topics.

    Raises
    ------
    NotFound, BrokerError, ConnectionFailed
        If the cluster does not answer, or does not have or show a named partition.
    """
    if selection.pattern is not None:
        topology = read_metadata(client)
        topics = {topic for topic, _ in topology.partitions if topic not in INTERNAL}
        matched = {topic for topic in topics if re.fullmatch(selection.pattern, topic)}
        return topology, sorted(tp for tp in topology.partitions if tp[0] in matched)
    if selection.topic_partitions is not None:
        topology = read_metadata(client, {topic for topic, _ in selection.topic_partitions})
        return topology, resolve_partitions(topology, None, selection.topic_partitions)
    topology = read_metadata(client, selection.topics)
    return topology, resolve_partitions(topology, selection.topics, None)


def _section(
    client: BrokerClient, row: Row, options: BatchesOptions
) -> tuple[TopicPartition, int, int, int] | _UnreadPartition:
    """Partition, start, stop and log start of the range to read."""
    tp = (row["topic"], row["partition"])
    try:
        start, stop = resolve_range(client, row, options.start.of(tp), options.stop.of(tp))
    except (BrokerError, ConnectionFailed) as error:
        found = {"topic": tp[0], "partition": tp[1], "broker_id": row["leader"]}
        return _UnreadPartition({**found, "error": row["error"] or row_text(error)})
    return tp, start, stop, row["log_start_offset"] or 0


def live_log(topic: str | None, partition: int | None) -> str:
    """The name of what brokers send of a partition, whichever leads it."""
    return f"live:{topic}-{partition}"


def _chunks(section: FetchedRange, part: LogRange) -> Iterator[pa.Table]:
    failures: list[Row] = []
    parts = scan_chunks(section, failures)
    topic, partition = section.tp
    where = LogId(topic=topic, partition=partition, broker_id=section.broker_id)
    before = begin() if section.start == 0 else EMPTY
    name = live_log(topic, partition)
    for rows in piece_batches(
        parts, where, log=name, section=part.start, before=before, log_end_offset=max(part.start, part.stop)
    ):
        yield pa.Table.from_batches([rows])
    if failures:
        yield _stop_table([{**row, "section": part.start} for row in failures])


def _stop_table(rows: Sequence[Row]) -> pa.Table:
    """The unread rest of a partition, which the next run reads."""
    named = [{"section": 0, **row, "log": live_log(row["topic"], row["partition"]), "kind": STOP} for row in rows]
    return pa.Table.from_batches([piece_rows(row, rows=1) for row in named])


def _unread(part: LogRange, error: ToolkitError) -> Row:
    """The error row of a range that no broker could be asked for."""
    text = f"{row_text(error).rstrip('.')}; offsets {part.start} to {part.stop - 1} were not read"
    return {"topic": part.tp[0], "partition": part.tp[1], "error": text}
