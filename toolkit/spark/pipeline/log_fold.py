"""The history of transactional ids, from new records of ``__transaction_state`` and the stored state of each id.

The meaning of an id's last records depends on later records and on the newest time of all ids: every run computes those
rows again (`current_transaction_history`).
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BooleanType, StringType, StructField, StructType

from toolkit.analysis.coordinator.transaction_history import HistoryState, advance, current
from toolkit.analysis.history.resume_state import COUNTED, LogState, RangeSummary
from toolkit.analysis.log.log_transactions import EMPTY, PartialTransactions, RunningTotals, begin, lso_table
from toolkit.analysis.log.offset_status import at_missing_offsets
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.headers import LogChunk, LostOffsets, from_ipc, to_ipc
from toolkit.formats.log_dir_files import log_path, segment_base_offset
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE, TRANSACTION_HISTORY, TRANSACTION_LOG, Row, utc
from toolkit.schema.log import Batch, PastTransaction, TransactionLogRecord
from toolkit.schema.table import Table, TopicPartition
from toolkit.sources.log_tables import LogFold, LogId, ReadError, batch_tables, error_table
from toolkit.sources.logdir.dump_logs import read_texts
from toolkit.sources.logdir.replica_log import FolderLog, ReplicaLog, between, known_before
from toolkit.spark.arrow_types import from_arrow, spark_schema, spark_table, struct_type
from toolkit.spark.datasources.log_reader import LogIdentity, LogListing, Origin, freeze_modules
from toolkit.spark.pipeline.log_states import LOST, REMEMBERED, TRUNCATED, LogPlan
from toolkit.spark.pipeline.stored_tables import IDS, IS_FINAL, LOG, STATE, FoldedRows, StoredState, damaged_segments
from toolkit.spark.spark_errors import each_without_traceback

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from toolkit.config import ClientConfig
    from toolkit.sources.live.broker_client import BrokerClient
    from toolkit.spark.pipeline.stored_tables import TableStore


NEW, BEFORE, LAST, UNREAD = "new", "before", "last", "unread"
"""Roles of records: new, or from the state: the one before the last ones of an id, the last ones, and an unread one."""

RECORDS_SCHEMA = pa.schema(
    [
        *(field.with_nullable(True) for field in spark_schema(TRANSACTION_LOG.arrow_schema)),
        ("role", pa.string()),
        ("known_producer_id", pa.int64()),
        ("is_version_2", pa.bool_()),
    ]
)
CURRENT = StructType(
    [*struct_type(TRANSACTION_HISTORY), StructField(LOG, StringType()), StructField(IS_FINAL, BooleanType())]
)


class FoldRecord(NamedTuple):
    """A record, and what it is to the fold: a row of `RECORDS_SCHEMA`."""

    record: TransactionLogRecord
    role: str = NEW
    known_producer_id: int | None = None  # of the last records of an id, as is_version_2: from `HistoryState`
    is_version_2: bool | None = None


def fold_records(
    name: str, where: LogId, records: Iterable[TransactionLogRecord], plan: LogPlan, before: StoredState | None
) -> Iterator[FoldedRows]:
    """Fold new records onto the state of a partition of ``__transaction_state``: final rows, and last its new state.

    `records`: its records from the start of the plan on.
    `plan`, `before`: why it is read, and the stored state.
    """
    known = [] if before is None else _records_in(from_ipc(before.remembered or b""))
    new = list(map(FoldRecord, records))
    obsolete_from = (plan.offset or 0) if plan.remembered == TRUNCATED else None
    if obsolete_from is not None:  # of an id that has nothing from there on, the state knows more than what is left
        by_id: defaultdict[str | None, list[FoldRecord]] = defaultdict(list)
        for each in known:
            by_id[each.record.transactional_id].append(each)
        by_id.pop(None, None)
        valid = {
            transactional_id: of_id
            for transactional_id, of_id in by_id.items()
            if all(each.record.offset is not None and each.record.offset < obsolete_from for each in of_id)
        }
        known = [each for of_id in valid.values() for each in of_id]
        new = [
            each
            for each in new
            if each.record.transactional_id not in valid or (each.record.offset or 0) >= obsolete_from
        ]
    ordered = sorted(_without_duplicates([*known, *new]), key=_order)
    kept: list[FoldRecord] = []
    found: list[PastTransaction] = []
    for transactional_id, group in groupby(ordered, key=lambda each: each.record.transactional_id):
        of_id = list(group)
        if transactional_id is None:
            unread = (  # new, or not read again by the next run
                each.record
                for each in of_id
                if each.role == NEW or (each.role == UNREAD and not _is_unread_again(each.record))
            )
            kept += [FoldRecord(each, UNREAD) for each in _last(unread)]
            continue
        final, id_state = advance(_state_of(of_id), [each.record for each in of_id if each.role == NEW])
        found += [each for each in final if obsolete_from is None or (each.last_offset or 0) >= obsolete_from]
        kept += _records_of(id_state)
    if found:
        yield FoldedRows(TRANSACTION_HISTORY.name, TRANSACTION_HISTORY.arrow(found), is_final=True)
    times = [each.record.timestamp for each in ordered]
    if before is not None and obsolete_from is None:
        times.append(before.latest)
    ends = [each.record.offset + 1 for each in kept if each.record.offset is not None]
    epochs = [each.record.leader_epoch for each in kept if each.record.leader_epoch is not None]
    errors = [_read_error(each.record) for each in new if each.record.error is not None]
    stored = StoredState(
        log=name,
        **where.columns,
        log_end_offset=max(ends, default=None),
        leader_epoch=max(epochs, default=-1),
        is_damaged=any(each.record.error is not None for each in kept),
        damaged_segments=json.dumps(sorted(damaged_segments(errors))),
        is_unread=any(each.damage.is_unreadable for each in errors),
        latest=max((each for each in times if each is not None), default=None),
        remembered=to_ipc(_record_table(kept)),
    )
    yield FoldedRows(STATE.name, STATE.arrow([stored]), is_final=False)


def current_transaction_history(states: pa.Table, *, latest: Mapping[Origin, dt.datetime | None]) -> pa.Table:
    """The last row of each id's history, with `LOG` and `IS_FINAL`, in Arrow's types of `CURRENT`.

    `states`: rows of `toolkit.spark.pipeline.stored_tables.STATE` of partitions of ``__transaction_state``.
    `latest`: the newest time of all partitions of each cluster.
    """
    others = [pa.field(LOG, pa.string()), pa.field(IS_FINAL, pa.bool_())]
    empty = pa.schema([*spark_schema(TRANSACTION_HISTORY.arrow_schema), *others]).empty_table()
    found = [_current(each, latest.get(LogIdentity.of(each.log).origin)) for each in StoredState.of_table(states)]
    return pa.concat_tables([empty, *found])


def _current(state: StoredState, latest: dt.datetime | None) -> pa.Table:
    records = _records_in(from_ipc(state.remembered or b""))
    unread = [each.record for each in records if each.role == UNREAD]
    found: list[PastTransaction] = []
    for transactional_id, group in groupby(records, key=lambda each: each.record.transactional_id):
        if transactional_id is not None:
            of_id = _state_of(list(group))
            found += current(of_id, latest=latest, unread=_unread_after(of_id, unread))
    table = spark_table(TRANSACTION_HISTORY.arrow(found))
    for name, value in ((LOG, state.log), (IS_FINAL, False)):
        table = table.append_column(name, pa.repeat(value, len(found)))
    return table


def _records_in(rows: pa.Table) -> list[FoldRecord]:
    others = (rows[name].to_pylist() for name in ("role", "known_producer_id", "is_version_2"))
    return list(map(FoldRecord, TransactionLogRecord.of_table(rows), *others))


def _record_table(records: Sequence[FoldRecord]) -> pa.Table:
    columns = TransactionLogRecord.columns([each.record for each in records])
    columns += [[each[number] for each in records] for number in range(1, len(FoldRecord._fields))]
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, RECORDS_SCHEMA.types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=RECORDS_SCHEMA)


def _order(each: FoldRecord) -> tuple[bool, str, bool]:
    """Sort key: by id, none first; then the state before new records, each in the order of the log."""
    transactional_id = each.record.transactional_id
    return transactional_id is not None, transactional_id or "", each.role == NEW


def _without_duplicates(records: list[FoldRecord]) -> list[FoldRecord]:
    """Records without duplicates: brokers send the complete batch even if it begins before the start offset."""
    if any(each.record.file is not None for each in records):
        return records
    by_key: dict[tuple[Any, ...], FoldRecord] = {}
    for each in records:
        record = each.record
        by_key.setdefault((record.transactional_id, each.role == BEFORE, record.offset, record.error), each)
    return list(by_key.values())


def _read_error(unread: TransactionLogRecord) -> ReadError:
    return ReadError(unread.file, unread.position, unread.error or "")


def _is_unread_again(unread: TransactionLogRecord) -> bool:
    """Whether the next run reads it again: a torn end, or records that no broker sent."""
    has_no_offset = _position(unread) is None and unread.offset is None
    return has_no_offset or _read_error(unread).damage.is_torn


def _last(unread: Iterable[TransactionLogRecord]) -> list[TransactionLogRecord]:
    """The last unread row that the next run reads again, and the last one that it does not."""
    in_order = sorted(unread, key=lambda each: (_position(each) or (), each.offset is None, each.offset or 0))
    again = [each for each in in_order if _is_unread_again(each)]
    others = [each for each in in_order if not _is_unread_again(each)]
    return again[-1:] + others[-1:]


def _state_of(records: list[FoldRecord]) -> HistoryState:
    last = [each for each in records if each.role == LAST]
    if not last:
        return HistoryState()
    return HistoryState(
        events=tuple(each.record for each in last),
        before=next((each.record for each in records if each.role == BEFORE), None),
        producer_id=last[0].known_producer_id,
        is_version_2=last[0].is_version_2,
    )


def _records_of(state: HistoryState) -> Iterator[FoldRecord]:
    if state.before is not None:
        yield FoldRecord(state.before, BEFORE)
    for event in state.events:
        yield FoldRecord(event, LAST, state.producer_id, state.is_version_2)


def _unread_after(state: HistoryState, unread: Iterable[TransactionLogRecord]) -> str | None:
    """The error of an unread row after the last record of an id; null if there is none."""
    if not state.events:
        return None
    last = state.events[-1]
    return next((str(each.error) for each in unread if _is_after(each, last)), None)


def _is_after(unread: TransactionLogRecord, record: TransactionLogRecord) -> bool:
    """Whether an unread row is after a record, or their order is unknown."""
    one, other = _position(unread), _position(record)
    if one is None and other is None:
        return unread.offset is None or record.offset is None or unread.offset > record.offset
    return one is None or other is None or one > other


def _position(record: TransactionLogRecord) -> tuple[str, int, int] | None:
    if record.file is None or record.position is None:
        return None
    return record.file, record.position, record.offset or 0


STAGED = {each.name: each for each in (BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE, TRANSACTION_HISTORY, STATE)}


def _struct(table: Table) -> pa.StructType:
    """Nested fields are nullable, as pyarrow could not cast null structs otherwise."""
    return pa.struct([field.with_nullable(True) for field in spark_schema(table.arrow_schema)])


STAGE_SCHEMA = pa.schema(
    [
        *(("table", pa.string()), (LOG, pa.string()), (IS_FINAL, pa.bool_())),
        *((name, _struct(table)) for name, table in STAGED.items()),
    ]
)
"""Name of the row's table, its log, and a struct for each table, null in rows of other tables."""


def stage_rows(table: str, rows: pa.Table, *, log: str, is_final: bool) -> pa.RecordBatch:
    """Rows of a declared table as rows of `STAGE_SCHEMA`."""
    (batch,) = spark_table(rows).combine_chunks().to_batches()
    arrays = [pa.repeat(value, len(rows)) for value in (table, log, is_final)]
    for name in STAGED:
        type_ = STAGE_SCHEMA.field(name).type
        of_table = name == table
        arrays.append(
            pa.StructArray.from_arrays(batch.columns, fields=list(type_)) if of_table else pa.nulls(len(rows), type_)
        )
    return pa.RecordBatch.from_arrays(arrays, schema=STAGE_SCHEMA)


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

    `read`, `plan`: what is read of it, and why.
    `state`: its state; it is changed.
    """
    log = _Log(name=name, where=read.where, state=state, with_batches=with_batches)
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
    yield from log.finish()


def _with_rows(read: LogRead, log: _Log) -> Iterator[LogChunk]:
    for chunk in read.chunks:
        log.batches += batch_tables([replace(chunk, damage=())], read.where)
        yield chunk


@dataclass(slots=True, kw_only=True, eq=False)
class _Log:
    """The fold of one log."""

    name: str
    where: LogId
    state: LogState
    with_batches: bool
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
            yield from self._damage([ReadError(None, None, missing.error)], is_final=True, has_bytes=False)

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
        """The rows of batches since the last call."""
        for rows in self.batches:
            yield FoldedRows(BATCHES.name, rows, is_final=True)
        self.batches = []

    def _damage(self, errors: Sequence[ReadError], *, is_final: bool, has_bytes: bool = True) -> Iterator[FoldedRows]:
        if not errors:
            return
        self.is_damaged |= any(not each.damage.is_torn for each in errors)
        self.state.is_damaged |= is_final and self.is_damaged
        self.is_unread |= any(each.damage.is_unreadable for each in errors)
        self.damaged_segments |= damaged_segments(errors)
        yield from self._log_transactions(error_table(errors, self.where), is_final=is_final)
        if self.with_batches and has_bytes:
            where = self.where.columns
            rows = [
                Batch(**where, file=each.file, position=each.position, size=each.size, error=each.error)
                for each in errors
            ]
            yield FoldedRows(BATCHES.name, BATCHES.arrow(rows), is_final)

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

    `here`: whether this process reads them, and not tasks: each task some logs, and each log in one task.
    """
    if here:
        return _folded_here(store.spark, works, options)
    # Stored once: what is read twice would be folded twice.
    stored = store.internal.overwrite_plain(STAGE_NAME, folded_by_tasks(store.spark, works, options))
    frames = {name: rows_of(stored, name) for name in STAGED}
    return frames, StoredState.of_table(frames.pop(STATE.name).toArrow())


def folded_by_tasks(spark: SparkSession, works: Sequence[LogWork], options: WorkOptions) -> DataFrame:
    """The new rows of all tables, as rows of `STAGE_SCHEMA`."""
    bundles = _bundles(works, TASKS_PER_CORE * _cores(spark))

    @each_without_traceback
    def of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for work in bundles[number]:
                    for table, rows, is_final in fold_work(work, options):
                        yield stage_rows(table, rows, log=work.log, is_final=is_final)
        freeze_modules()

    return spark.range(0, len(bundles), 1, len(bundles)).mapInArrow(of_task, from_arrow_schema(STAGE_SCHEMA))


def _folded_here(
    spark: SparkSession, works: Sequence[LogWork], options: WorkOptions
) -> tuple[Mapping[str, DataFrame], list[StoredState]]:
    found: dict[str, list[pa.Table]] = {name: [] for name in STAGED}

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
    for name, declared in STAGED.items():
        if declared is STATE:
            continue
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
        return FolderLog(pickle.loads(listing.replica))  # noqa: S301 - of `log_reader.listings`
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
