"""What is read of each log, by a task or by this process, and the rows that this folds onto the state of the log."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from toolkit.analysis.history.resume_state import LogState
from toolkit.analysis.log.log_transactions import EMPTY, begin
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.formats.log.headers import LogChunk
from toolkit.formats.log_paths import log_path
from toolkit.schema import Row
from toolkit.schema.log import TransactionLogRecord
from toolkit.schema.table import TopicPartition
from toolkit.sources.log_tables import LogId, ReadError
from toolkit.sources.logdir.replica.dump_logs import read_texts
from toolkit.sources.logdir.replica.record_index import between
from toolkit.sources.logdir.replica.replica_log import FolderLog, ReplicaLog, known_before
from toolkit.spark.arrow_types import from_arrow, spark_table
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.datasources.log_reader import freeze_modules
from toolkit.spark.pipeline.history_fold import fold_records
from toolkit.spark.pipeline.log_fold import FoldedRows, LogRead, StoppedRead, fold_log
from toolkit.spark.pipeline.log_plan import LogPlan
from toolkit.spark.pipeline.tables.staging_table import (
    IDS,
    IS_FINAL,
    LOG,
    STAGE,
    STAGED,
    STATE,
    StoredState,
    rows_of,
    stage_rows,
)
from toolkit.spark.spark_errors import each_without_traceback

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from toolkit.config import ClientConfig
    from toolkit.sources.live.client.broker_client import BrokerClient
    from toolkit.spark.pipeline.tables.table_store import TableStore

STAGE_NAME = "stage"
TO_OPEN = 1 << 18  # bytes that can be read in the time of planning and opening a log
AT_ONCE = 2  # logs read in parallel by this process, as in the library
TASKS_PER_CORE = 3  # so that the last one is short


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWork:
    """A log to read."""

    log: str  # its name; with `IDS`, its records are read
    listing: LogListing
    plan: LogPlan
    state: StoredState | None  # the stored state; null if there is none

    @property
    def where(self) -> LogId:
        """Topic, partition and broker."""
        return LogId(topic=self.listing.topic, partition=self.listing.partition, broker_id=self.listing.broker_id)

    @property
    def weight(self) -> int:
        """About how long it takes, in bytes."""
        return TO_OPEN + (self.listing.bytes or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """How logs are read and folded."""

    min_held_ms: int  # shortest hold of the LSO to keep
    with_batches: bool = False  # whether to return the headers of batches
    config: ClientConfig | None = None  # the cluster to read from; null for files
    timeout: float = 30.0  # of requests to it, in seconds


def folded(
    store: TableStore, works: Sequence[LogWork], options: WorkOptions, *, here: bool
) -> tuple[Mapping[str, DataFrame], list[StoredState]]:
    """The new rows of each table, with `LOG` and `IS_FINAL`, and the new states.

    `store`: the stored tables.
    `works`, `options`: the logs to read, and how.
    `here`: whether this process reads them, and not tasks: each task some logs, and each log in one task.
    """
    if here:
        return _folded_here(store.spark, works, options)
    # Stored once: what is read twice would be folded twice.
    stored = store.internal.overwrite_plain(STAGE_NAME, folded_by_tasks(store.spark, works, options))
    frames = {name: rows_of(stored, name) for name, _ in STAGED}
    return frames, StoredState.of_table(frames.pop(STATE.name).toArrow())


def folded_by_tasks(spark: SparkSession, works: Sequence[LogWork], options: WorkOptions) -> DataFrame:
    """The new rows of all tables, as rows of `STAGE`."""
    bundles = _bundles(works, TASKS_PER_CORE * _cores(spark))

    @each_without_traceback
    def of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for work in bundles[number]:
                    for table, rows, is_final in fold_work(work, options):
                        yield stage_rows(table, rows, log=work.log, is_final=is_final)
        freeze_modules()

    return spark.range(0, len(bundles), 1, len(bundles)).mapInArrow(of_task, STAGE)


def _folded_here(
    spark: SparkSession, works: Sequence[LogWork], options: WorkOptions
) -> tuple[Mapping[str, DataFrame], list[StoredState]]:
    found: dict[str, list[pa.Table]] = {name: [] for name, _ in STAGED}

    def fold(work: LogWork) -> list[FoldedRows]:
        return list(fold_work(work, options))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for work, of_log in zip(works, pool.map(fold, works), strict=True):
            for table, rows, is_final in of_log:
                if table != STATE.name:
                    rows = rows.append_column(LOG, pa.repeat(work.log, len(rows)))
                    rows = rows.append_column(IS_FINAL, pa.repeat(is_final, len(rows)))
                found[table].append(rows)
    states = [state for rows in found.pop(STATE.name) for state in StoredState.of_table(rows)]
    frames = {}
    for name, declared in (each for each in STAGED if each[1] is not STATE):
        empty = pa.schema([*declared.arrow_schema, (LOG, pa.string()), (IS_FINAL, pa.bool_())]).empty_table()
        frames[name] = from_arrow(spark, spark_table(pa.concat_tables([empty, *found[name]])))
    return frames, states


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - under Connect, each Spark raises its own error
        return 8


def _bundles(works: Sequence[LogWork], tasks: int) -> list[list[LogWork]]:
    """The logs of each task: of about the same weight, the largest first."""
    bundles: list[list[LogWork]] = [[] for _ in range(max(1, min(tasks, len(works))))]
    weights = [0] * len(bundles)
    for work in sorted(works, key=lambda each: each.weight, reverse=True):
        lightest = weights.index(min(weights))
        bundles[lightest].append(work)
        weights[lightest] += work.weight
    return bundles


def fold_work(work: LogWork, options: WorkOptions) -> Iterator[FoldedRows]:
    """Read a log, and fold what is new onto its state: the rows of its tables, and its new state."""
    if work.log.endswith(IDS):
        records = _live_records(work, options) if options.config else _records(work)
        yield from fold_records(work.log, work.where, records, work.plan, work.state)
        return
    location = work.where.columns
    if work.state is None:
        state = LogState(**location, min_held_ms=options.min_held_ms)
    else:
        state = LogState.from_bytes(work.state.remembered or b"", **location, min_held_ms=options.min_held_ms)
    read = _live_read(work, options) if options.config else _read(work)
    yield from fold_log(work.log, read, work.plan, state, with_batches=options.with_batches)


# Files.


def _opened(listing: LogListing) -> ReplicaLog:
    """The log of a listing."""
    if listing.replica is not None:
        return FolderLog(pickle.loads(listing.replica))  # noqa: S301 - of `log_reader.listing_rows`
    path = listing.folder or ""
    tp = listing.topic, listing.partition
    return next(log for log in read_texts(log_path(path)) if (log.where.topic, log.where.partition) == tp)


def _read(work: LogWork) -> LogRead:
    log, start = _opened(work.listing), work.plan.start

    def chunks() -> Iterator[LogChunk]:
        if log.error:
            raise StoppedRead(ReadError(log.name, None, log.error))
        yield from log.parts(start=start)

    return LogRead(
        where=log.where,
        chunks=chunks(),
        before=known_before(log, None) if start is None and not log.error else EMPTY,
        end=log.base_offsets[-1] if log.base_offsets and not log.error else None,
        cleaned=work.listing.cleaned,
    )


def _records(work: LogWork) -> Iterator[TransactionLogRecord]:
    log, start = _opened(work.listing), work.plan.start
    return between(log.transaction_log(start=start), start, None)


# A live cluster.


def _connect(options: WorkOptions) -> BrokerClient:
    from toolkit.sources.live.client.broker_client import BrokerClient

    assert options.config is not None
    return BrokerClient(options.config, timeout=options.timeout)


def _live_read(work: LogWork, options: WorkOptions) -> LogRead:
    start, stop = work.plan.start or 0, work.plan.stop or 0
    return LogRead(
        where=work.where,
        chunks=_live_chunks(work.where.tp, start, stop, options),
        before=begin() if start == 0 else EMPTY,
        end=max(start, stop),
    )


def _live_chunks(tp: TopicPartition, start: int, stop: int, options: WorkOptions) -> Iterator[LogChunk]:
    from toolkit.sources.live.client.broker_response import row_text
    from toolkit.sources.live.logs.partition_log import LogRange, read_range
    from toolkit.sources.live.logs.partition_tables import scan_chunks

    failures: list[Row] = []
    try:
        with _connect(options) as client:
            for chunk in scan_chunks(read_range(client, LogRange(tp=tp, start=start, stop=stop)), failures):
                yield chunk
                if failures:
                    break
    except ToolkitError as error:
        text = f"{row_text(error).rstrip('.')}; offsets {start} to {stop - 1} were not read"
        raise StoppedRead(ReadError(None, None, text)) from None
    if failures:
        raise StoppedRead(*(ReadError(None, None, each["error"]) for each in failures))


def _live_records(work: LogWork, options: WorkOptions) -> Iterator[TransactionLogRecord]:
    from toolkit.sources.live.logs.coordinator_logs import read_coordinator_topic, records_of_ids

    start = work.plan.start or 0
    with _connect(options) as client:
        topic = read_coordinator_topic(client, STATE_TOPIC)
        for record in records_of_ids(client, topic, None, [work.where.tp.partition]):
            if record.offset is None or record.offset >= start:
                yield record
