"""What is read of each log, and the fold onto its state: final rows once, rows of open transactions by every run.

A log is read in its order, in bounded memory, by one task or by this process: by the same function. Tasks return the
rows of all tables in one DataFrame, which is stored once and then split by table.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from toolkit.analysis.history.resume_state import COUNTED, LogState, RangeSummary
from toolkit.analysis.log.log_transactions import EMPTY, PartialTransactions, RunningTotals, begin, lso_table
from toolkit.analysis.log.offset_status import at_missing_offsets
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.headers import LogChunk, LostOffsets
from toolkit.formats.log_dir_files import log_path, segment_base_offset
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE, TRANSACTION_HISTORY, Row, utc
from toolkit.schema.log import Batch, TransactionLogRecord
from toolkit.schema.table import TopicPartition
from toolkit.sources.log_tables import LogFold, LogId, ReadError, batch_tables, error_table
from toolkit.sources.logdir.dump_logs import read_texts
from toolkit.sources.logdir.replica_log import FolderLog, ReplicaLog, between, known_before
from toolkit.spark.arrow_types import arrow_fields, from_arrow, spark_table, struct_arrays, struct_fields
from toolkit.spark.datasources.log_options import LogListing
from toolkit.spark.datasources.log_reader import freeze_modules
from toolkit.spark.pipeline.history_fold import fold_records
from toolkit.spark.pipeline.log_states import LOST, REMEMBERED, TRUNCATED, LogPlan
from toolkit.spark.pipeline.stored_tables import IDS, IS_FINAL, LOG, STATE, FoldedRows, StoredState, damaged_segments
from toolkit.spark.spark_errors import each_without_traceback

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from toolkit.config import ClientConfig
    from toolkit.sources.live.broker_client import BrokerClient
    from toolkit.spark.pipeline.table_store import TableStore


STAGED = [(each.name, each) for each in (BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE, TRANSACTION_HISTORY, STATE)]

STAGE = StructType(
    [
        StructField("table", StringType()),
        StructField(LOG, StringType()),
        StructField(IS_FINAL, BooleanType()),
        *struct_fields(STAGED),
    ]
)
"""Spark's schema: name of the row's table, its log, and a struct for each table, null in rows of other tables."""

STAGE_SCHEMA = pa.schema([("table", pa.string()), (LOG, pa.string()), (IS_FINAL, pa.bool_()), *arrow_fields(STAGED)])


def stage_rows(table: str, rows: pa.Table, *, log: str, is_final: bool) -> pa.RecordBatch:
    """Rows of a declared table as rows of `STAGE`."""
    leading = [pa.repeat(value, len(rows)) for value in (table, log, is_final)]
    return pa.RecordBatch.from_arrays([*leading, *struct_arrays(STAGED, table, rows)], schema=STAGE_SCHEMA)


def rows_of(staged: DataFrame, table: str) -> DataFrame:
    """The rows of one table, with `LOG` and `IS_FINAL`; states without."""
    common = () if table == STATE.name else (LOG, IS_FINAL)
    return staged.where(sf.col("table") == table).select(f"{table}.*", *common)


ROWS_AT_ONCE = 1 << 16


class StoppedRead(Exception):
    """Why a log could not be read on: the next run continues there."""

    def __init__(self, *errors: ReadError) -> None:
        super().__init__(errors)
        self.errors = errors


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRead:
    """What is read of a log."""

    where: LogId  # topic, partition, and the broker that has it
    chunks: Iterable[LogChunk]  # its batches from the start of the plan on; may raise `StoppedRead`
    before: PartialTransactions = EMPTY  # what is known to be open before the first one
    end: int | None = None  # where it ends without batches: base offset of the newest segment, end offset of a fetch
    cleaned: int = -1  # offset up to which it was cleaned, as in `toolkit.analysis.log.offset_status.missing_between`


def fold_log(
    name: str, read: LogRead, plan: LogPlan, state: LogState, *, with_batches: bool = False
) -> Iterator[FoldedRows]:
    """Fold new batches onto the state of a log: rows of the tables, and last its new state.

    `name`: name of the log.
    `read`, `plan`: what is read of it, and why.
    `state`: its state; it is changed.
    `with_batches`: whether to return the headers of the batches, too.
    """
    log = _Log(name=name, where=read.where, state=state)
    expected = state.log_end_offset if plan.remembered == REMEMBERED else None
    is_new = plan.remembered is None or (plan.remembered == TRUNCATED and plan.offset == 0)
    if plan.remembered == TRUNCATED:
        state.truncate(plan.offset or 0)
    elif plan.remembered == LOST:
        yield from log.lose(LostOffsets(0, 0, plan.error), is_deleted=True)
    log.fold = LogFold(partial=read.before, totals=RunningTotals())
    try:
        chunks = _with_rows(read, log) if with_batches else read.chunks
        for chunk in at_missing_offsets(chunks, expected=expected, end=read.end, cleaned=read.cleaned):
            base_offset = segment_base_offset(chunk.file)
            if expected is None and base_offset is not None:  # the first segment
                if is_new and not read.before.settled:
                    log.damaged_segments.add(~base_offset)
                expected = base_offset
            if chunk.missing is not None:
                log.fold.files.setdefault(chunk.file, 0)  # of transactions of which no batch was read
                yield from log.flush()
                yield from log.lose(chunk.missing)
            log.fold.add(replace(chunk, missing=None))
            if log.fold.closed_rows >= ROWS_AT_ONCE:
                yield from log.flush()
            yield from log.take_batches()
        yield from log.flush()
        if read.end is not None and read.end >= (state.log_end_offset or 0):
            yield from log.reach(read.end)
    except StoppedRead as stopped:
        yield from log.flush()
        log.fold.damage += stopped.errors
        if with_batches:
            errors = [Batch(**read.where.columns, file=each.file, error=each.error) for each in stopped.errors]
            yield FoldedRows(BATCHES.name, BATCHES.arrow(errors), is_final=False)
    yield from log.finish()


def _with_rows(read: LogRead, log: _Log) -> Iterator[LogChunk]:
    for chunk in read.chunks:
        log.batches += batch_tables([chunk], read.where)
        yield chunk


@dataclass(slots=True, kw_only=True, eq=False)
class _Log:
    """The fold of one log."""

    name: str
    where: LogId
    state: LogState
    fold: LogFold = field(default_factory=LogFold)  # since the last flush; its damage may be from before
    batches: list[pa.Table] = field(default_factory=list)  # rows of ``schema.BATCHES`` that were not returned
    is_damaged: bool = False
    is_unread: bool = False
    bytes_read: int = 0
    damaged_segments: set[int] = field(default_factory=set)  # as in `StoredState`

    def flush(self) -> Iterator[FoldedRows]:
        """The rows that later batches do not change; the fold begins again."""
        fold = self.fold
        final, tail = fold.damage[: fold.damage_inside], fold.damage[fold.damage_inside :]
        self.fold = LogFold(totals=RunningTotals(), damage=tail)
        assert fold.totals is not None
        if fold.log_end_offset or fold.partial.settled or len(fold.partial.edges):
            records, size = fold.totals.total
            self.bytes_read += size
            counts = np.ascontiguousarray(fold.totals.samples).view(COUNTED).reshape(-1)
            closed = fold.take_closed()
            found = self.state.add(
                RangeSummary(
                    closed=closed,
                    edges=fold.partial.edges,
                    is_settled=fold.partial.settled,
                    files=fold.file_names,
                    counts=np.sort(counts, order="offset"),
                    records=records,
                    bytes=size,
                    log_end_offset=fold.log_end_offset or None,
                    end_time=fold.end_time,
                    leader_epoch=fold.highest_epoch,
                )
            )
            yield from self._log_transactions(found.log_transactions, is_final=True)
            yield from self._steps(found.steps, is_final=True)
        yield from self._damage(final, is_final=True)

    def lose(self, missing: LostOffsets, *, is_deleted: bool = False) -> Iterator[FoldedRows]:
        """Close the transactions open before missing offsets, and report these, unless damage already does."""
        final, self.fold.damage = self.fold.damage, []
        yield from self._damage(final, is_final=True)
        yield from self._log_transactions(self.state.lose(is_deleted=is_deleted), is_final=True)
        if missing.error is not None:
            if missing.expected < missing.found:
                self.damaged_segments.add(~missing.found)
            yield from self._damage([ReadError(None, None, missing.error)], is_final=True)

    def reach(self, end: int) -> Iterator[FoldedRows]:
        """End the log at an offset; if its newest segment begins there, the next run reads no earlier segment."""
        again = [each for each in self.fold.damage if _is_read_again(each.file, end)]
        yield from self._damage([each for each in self.fold.damage if each not in again], is_final=True)
        self.fold.damage = again
        self.state.log_end_offset = end

    def finish(self) -> Iterator[FoldedRows]:
        """The rows of open transactions, and the new state."""
        yield from self._damage(self.fold.damage, is_final=False)
        yield from self.take_batches()
        log_transactions, steps = self.state.open_rows()
        yield from self._log_transactions(log_transactions, is_final=False)
        yield from self._steps(steps, is_final=False)
        state = self.state
        stored = StoredState(
            log=self.name,
            **self.where.columns,
            log_end_offset=state.log_end_offset,
            leader_epoch=state.leader_epoch,
            is_damaged=self.is_damaged or state.is_damaged,
            is_unread=self.is_unread,
            damaged_segments=json.dumps(sorted(self.damaged_segments)),
            bytes_read=self.bytes_read,
            is_held=state.is_held,
            latest=utc(state.end_time),
            remembered=state.to_bytes(),
        )
        yield FoldedRows(STATE.name, STATE.arrow([stored]), is_final=False)

    def take_batches(self) -> Iterator[FoldedRows]:
        """The rows of batches since the last call; a torn end is read again."""
        for rows in self.batches:
            is_torn = pc.fill_null(pc.starts_with(rows["error"], "TORN_TAIL"), False)
            for is_final, of_kind in ((True, pc.invert(is_torn)), (False, is_torn)):
                if (found := rows.filter(of_kind)).num_rows:
                    yield FoldedRows(BATCHES.name, found, is_final)
        self.batches = []

    def _damage(self, errors: Sequence[ReadError], *, is_final: bool) -> Iterator[FoldedRows]:
        if not errors:
            return
        self.is_damaged |= any(not each.damage.is_torn for each in errors)
        self.state.is_damaged |= is_final and self.is_damaged
        self.is_unread |= any(each.damage.is_unreadable for each in errors)
        self.damaged_segments |= damaged_segments(errors)
        yield from self._log_transactions(error_table(errors, self.where), is_final=is_final)

    def _log_transactions(self, log_transactions: pa.Table, *, is_final: bool) -> Iterator[FoldedRows]:
        if log_transactions.num_rows:
            yield FoldedRows(LOG_TRANSACTIONS.name, log_transactions, is_final)

    def _steps(self, steps: Any, *, is_final: bool) -> Iterator[FoldedRows]:
        if len(steps):
            yield FoldedRows(LSO_TIMELINE.name, lso_table(steps, **self.where.columns), is_final)


def _is_read_again(file: str | None, offset: int) -> bool:
    """Whether a run that continues at an offset reads this file: a segment from that offset on, or another file."""
    base_offset = segment_base_offset(file)
    return base_offset is None or base_offset >= offset


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
    from toolkit.sources.live.broker_client import BrokerClient

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
    from toolkit.sources.live.broker_client import row_text
    from toolkit.sources.live.partition_log import LogRange, read_range, scan_chunks

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
    from toolkit.sources.live.coordinator_logs import read_coordinator_topic, records_of_ids

    start = work.plan.start or 0
    with _connect(options) as client:
        topic = read_coordinator_topic(client, STATE_TOPIC)
        for record in records_of_ids(client, topic, None, [work.where.tp.partition]):
            if record.offset is None or record.offset >= start:
                yield record
