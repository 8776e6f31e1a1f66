"""The readers of live clusters: ``kafka_log_live`` reads each range in a task, ``kafka_txn_samples`` takes samples."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.config import ClientConfig
from toolkit.errors import BrokerError, ConnectionFailed, ToolkitError, UsageError
from toolkit.schema import BATCHES, RECORDED, Row
from toolkit.schema.live import Partition
from toolkit.schema.table import EPOCH, TopicPartition
from toolkit.sources.live.broker_client import BrokerClient, row_text
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.live.leaders import ClusterMetadata, read_metadata, read_partitions, resolve_partitions
from toolkit.sources.live.partition_log import LogRange, batch_tables_of, read_range, resolve_range, split
from toolkit.sources.recording.recorder import Sample, Sampler
from toolkit.sources.source import TableArguments, requested_partitions
from toolkit.spark.arrow_types import (
    arrow_fields,
    record_batches,
    selected,
    spark_table,
    struct_arrays,
    struct_type,
    without_damage,
)
from toolkit.spark.datasources.reader_options import EVERYTHING, BatchesOptions, TransactionsOptions
from toolkit.spark.spark_errors import each_without_traceback, without_traceback


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
            metadata, topic_partitions = _selected(client, options.arguments)
            partitions = sorted(
                read_partitions(client, metadata.at(topic_partitions)), key=attrgetter("topic", "partition")
            )
            found = [_resolve(client, each, options) for each in partitions]
        resolved = [each for each in found if not isinstance(each, _UnreadPartition)]
        ranges = [
            log_range
            for tp, start, stop, log_start in resolved
            for log_range in split(tp, start, stop, log_start=log_start, max_offsets=options.max_offsets)
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
                fetched = read_range(client, item, crc=self._options.arguments.crc)
                yield from batch_tables_of(fetched, producer_id=self._options.arguments.producer_id)
        except ToolkitError as error:
            text = f"{row_text(error).rstrip('.')}; offsets {item.start} to {item.stop - 1} were not read"
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


def _resolve(
    client: BrokerClient, partition: Partition, options: BatchesOptions
) -> tuple[TopicPartition, int, int, int] | _UnreadPartition:
    """Partition, start, stop and log start offset of the range to read."""
    tp = partition.tp
    try:
        arguments = options.arguments
        bounds = ["log_start" if arguments.start is None else arguments.start]
        bounds.append("high_watermark" if arguments.stop is None else arguments.stop)
        start, stop = resolve_range(client, partition, *bounds)
    except (BrokerError, ConnectionFailed) as error:
        columns = {"topic": tp.topic, "partition": tp.partition, "broker_id": partition.leader}
        return _UnreadPartition({**columns, "error": partition.error or row_text(error)})
    return tp, start, stop, partition.log_start_offset or 0


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # Spark 4.2 plans the whole input of availableNow at once

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


TIME = pa.timestamp("us", tz="UTC")
EVERYTHING_SCHEMA = pa.schema(
    [
        pa.field("sampled_at", TIME, nullable=False),
        pa.field("table", pa.string(), nullable=False),
        *arrow_fields(RECORDED.items()),
    ]
)
PAUSE = 0.5  # maximum delay in seconds of a poll by Spark (every 10 ms); stopping takes as long
BYTES_AT_ONCE = 1 << 20  # of uncompressed rows per task


def _sampler(options: TransactionsOptions, config: ClientConfig) -> Sampler:
    return Sampler(connect=lambda: Cluster(config, timeout=options.timeout), options=options.sample)


class _PlannedRows:
    """Runs on executors: unpacks the rows in the plan.

    Executors get nothing else: neither credentials nor this package, which Spark Connect does not send to the tasks of
    a stream (`toolkit.spark.spark_session`).
    """

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _unpacking().read(partition)

    def __reduce__(self) -> tuple[type[DataSourceReader], tuple[()]]:
        return type(_unpacking()), ()


def _unpacking() -> DataSourceReader:
    class Unpacking(DataSourceReader):  # nested, so that it is pickled by value
        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            if partition is not None and partition.value is not None:
                with pa.ipc.open_stream(partition.value) as stream:
                    yield from stream

    return Unpacking()


class BatchSampleReader(_PlannedRows, DataSourceReader):
    """One sample, taken when Spark plans the query."""

    def __init__(self, options: TransactionsOptions, config: ClientConfig) -> None:
        self._options = options
        self._config = config

    @without_traceback
    def partitions(self) -> list[InputPartition]:
        sampler = _sampler(self._options, self._config)
        try:
            sampler.cluster()  # raises if it cannot connect, instead of an error row in samples
            sample = sampler.take(_now(), None)
            observation, diagnosis = sample.observation, self._options.sample.diagnosis
            if diagnosis.recheck_after and observation and Diagnosis.of([observation], diagnosis).to_recheck():
                threading.Event().wait(diagnosis.recheck_after)
                sample = sampler.take(_now(), sample)
        finally:
            sampler.close()
        return _packed(sample, self._options.table)


class StreamSampleReader(_PlannedRows, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{"due": milliseconds}``; the sample is taken when Spark plans the micro-batch.

    Each query has its own reader, in its own process, until the query ends.
    """

    def __init__(self, options: TransactionsOptions, config: ClientConfig) -> None:
        self._options = options
        self._config = config
        self._last_due = 0  # the newest one planned, also before a restart
        self._only_due: int | None = None
        self._sampler: Sampler | None = None
        self._sample: Sample | None = None
        self._planned: tuple[int, list[InputPartition]] | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"due": 0}

    @without_traceback
    def latestOffset(self, start: dict[str, int] | None = None, limit: object = None) -> dict[str, int]:  # noqa: N802
        """The newest due time; if no new one is due, the last one again after a pause."""
        if start is not None:  # set by Spark 4.2 and later
            self._last_due = max(self._last_due, _due(start))
        if self._only_due is not None:
            return {"due": max(self._last_due, self._only_due)}
        due = self._newest_due()
        if due <= self._last_due:
            until_next = (due + self._options.sample.interval_ms) / 1000 - time.time()
            threading.Event().wait(min(PAUSE, max(0.01, until_next)))
            due = self._newest_due()
        return {"due": max(self._last_due, due)}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._only_due = self._newest_due()

    @without_traceback
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        after, due = _due(start), _due(end)
        self._last_due = max(self._last_due, after, due)
        if due <= after:
            return []
        if self._planned is None or self._planned[0] != due:
            self._sampler = self._sampler or _sampler(self._options, self._config)
            self._sample = self._sampler.take(EPOCH + dt.timedelta(milliseconds=due), self._sample)
            self._planned = due, _packed(self._sample, self._options.table)
        return self._planned[1]

    def stop(self) -> None:
        if self._sampler is not None:
            self._sampler.close()

    def _newest_due(self) -> int:
        return time.time_ns() // 1_000_000 // self._options.sample.interval_ms * self._options.sample.interval_ms


def _due(offset: Mapping[str, object]) -> int:
    """The due time of an offset."""
    due = offset.get("due")
    if not isinstance(due, int):
        raise UsageError(
            f"The checkpoint has the offset {json.dumps(offset)}, which is not one of kafka_txn_samples.",
            means="Another source or a later version of this package wrote it.",
            do="Set checkpointLocation to a new folder: the stream then continues with the next sample.",
        )
    return due


def _packed(sample: Sample, table: str) -> list[InputPartition]:
    """Compressed rows for the plan, divided among tasks."""
    rows = recorded_table(sample.tables, table)
    at_once = max(1, len(rows) * BYTES_AT_ONCE // max(1, rows.nbytes))
    return [InputPartition(_as_bytes(rows.slice(first, at_once))) for first in range(0, len(rows), at_once)]


def _as_bytes(rows: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(rows)
    return bytes(buffer.getvalue())


def _now() -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=time.time_ns() // 1_000_000)


def recorded_table(tables: Mapping[str, Sequence[Row]], table: str) -> pa.Table:
    """Rows of a sample as Arrow data of `recorded_schema`."""
    if table != EVERYTHING:
        return spark_table(RECORDED[table].arrow(tables[table]))
    widened = []
    for name in RECORDED:
        rows = RECORDED[name].arrow(tables[name])
        times = rows["sampled_at"].combine_chunks().cast(TIME)
        columns = [times, pa.repeat(name, len(rows)), *struct_arrays(RECORDED.items(), name, rows)]
        widened.append(pa.Table.from_arrays(columns, schema=EVERYTHING_SCHEMA))
    return pa.concat_tables(widened)
