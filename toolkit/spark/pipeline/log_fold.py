"""The fold of one log, its state between two runs, and the logs that tasks or this process read.

A log is added in consecutive ranges. Wherever it is split, and however old the state is, the transactions, LSO steps
and LSO holds are those of a single read: a range only needs the transactions that are open where it begins.
"""

from __future__ import annotations

import datetime as dt
import json
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from toolkit.analysis.hold_findings import candidates, hold_table, without_short_holds
from toolkit.analysis.log.log_transactions import (
    EMPTY,
    LOG_TRANSACTION,
    NO_LOG_TRANSACTIONS,
    OPEN,
    LogTransactionField,
    LogTransactions,
    PartialTransactions,
    RunningTotals,
    begin,
    log_transaction_table,
    lose_open,
    lso_steps,
    lso_table,
)
from toolkit.analysis.log.offset_status import at_missing_offsets, intact
from toolkit.errors import ToolkitError
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.formats.headers import Array, LogChunk, LostOffsets, integers, numbers, take_rows
from toolkit.formats.log_dir_files import log_path, segment_base_offset
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, LSO_HOLDS, LSO_TIMELINE, TRANSACTION_HISTORY, utc
from toolkit.schema.log import LsoStep, TransactionLogRecord
from toolkit.schema.recorded import LOG_TRANSACTION_COLUMNS
from toolkit.schema.table import EPOCH, LogId, TopicPartition
from toolkit.sources.log_tables import LogFold, ReadError, batch_tables, damage_table, error_table
from toolkit.sources.logdir.dump_logs import read_texts
from toolkit.sources.logdir.replica_log import FolderLog, ReplicaLog, between, known_before
from toolkit.spark.arrow_types import from_arrow, in_tasks, spark_schema, spark_table
from toolkit.spark.datasources.log_reader import LogListing, bundled
from toolkit.spark.pipeline.history_fold import fold_records
from toolkit.spark.pipeline.log_states import CONTINUED, LOST, NEVER, TRUNCATED, LogPlan
from toolkit.spark.pipeline.stored_tables import (
    IDS,
    IS_FINAL,
    LOG,
    OPEN_TRANSACTIONS,
    STATE,
    FoldedRows,
    StoredState,
    damaged_segments,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from toolkit.config import ClientConfig
    from toolkit.sources.live.broker_client import BrokerClient
    from toolkit.spark.pipeline.stored_tables import TableStore


COUNTED = np.dtype([("offset", "i8"), ("records", "i8"), ("bytes", "i8")])
"""Data records and bytes of a log before one of its batches."""

NO_HOLDS: pa.Table = LSO_HOLDS.arrow_schema.empty_table()
NO_TRANSACTIONS: pa.Table = LOG_TRANSACTIONS.arrow_schema.empty_table()
ROWS_AT_ONCE = 1 << 16
MILLISECOND = dt.timedelta(milliseconds=1)


class LogRows(NamedTuple):
    """Rows of ``schema.LOG_TRANSACTIONS``, and an array of `toolkit.analysis.log.log_transactions.LSO_STEP`."""

    log_transactions: pa.Table
    steps: Array


def _new_fold() -> LogFold:
    return LogFold(totals=RunningTotals())


@dataclass(slots=True, kw_only=True, eq=False)
class LogState:
    """The state of one log up to the end of what was read, and what this run has found in it."""

    where: LogId
    min_held_ms: int = 0  # shorter holds of the LSO are dropped when they end
    with_batches: bool = False  # whether damage has rows of batches, too
    log_end_offset: int | None = None  # offset after the last batch; null before the first range
    end_time: int = -1  # time of that batch in ms; -1 if unknown
    leader_epoch: int = -1  # the highest of its batches; -1 if unknown
    stays_damaged: bool = False  # whether a part of the log could not be read, other than a torn end
    fold: LogFold = field(default_factory=_new_fold)  # what is open, and what was added since `take`
    steps_from: int | None = None  # an earlier read returned the LSO steps before this offset
    # rows_from, holds_from: the stored rows and holds before this offset stay, though it is read again
    rows_from: int = 0
    holds_from: int = 0
    # records, bytes: before what was added since `take`
    records: int = 0
    bytes: int = 0
    before: dict[int, tuple[int, int]] = field(default_factory=dict)  # records and bytes before open transactions
    holds: pa.Table = field(default_factory=lambda: NO_HOLDS)  # candidates for holds, and markers
    # Of this run; damage is of the fold until it is known whether the next run reads it again.
    has_damage: bool = False
    is_unread: bool = False
    bytes_read: int = 0
    damaged_segments: set[int] = field(default_factory=set)  # as in `StoredState`

    def begin(self, before: PartialTransactions) -> None:
        """Begin the log with what is known to be open before it, unless an earlier read did."""
        if before.settled and not self.fold.partial.settled:
            self.fold.partial = before

    def take(self) -> LogRows:
        """The rows of what was added since the last call that later batches do not change."""
        fold, start = self.fold, self.log_end_offset
        closed, edges = fold.take_closed(), fold.partial.edges
        # An ended transaction that may have begun before the log stays an edge: it shows that its producer is not new.
        ended = np.concatenate((closed, edges[edges["marker_offset"] >= (start or 0)]))
        touching: LogTransactions = np.concatenate((ended, self._open))
        table = self._table(touching)
        assert fold.totals is not None
        self._add_holds(table, start=start or 0, totals=fold.totals)
        steps = lso_steps(touching, log_end_offset=None, start=self.steps_from if start is None else start)
        records, size = fold.totals.total
        self.records, self.bytes, self.bytes_read = self.records + records, self.bytes + size, self.bytes_read + size
        fold.totals = RunningTotals()
        if fold.log_end_offset:
            self.log_end_offset = max(fold.log_end_offset, start or 0)
            self.end_time, self.leader_epoch = fold.end_time, max(self.leader_epoch, fold.highest_epoch)
        elif start is None and len(touching):
            self.steps_from = int(touching["first_offset"].max()) + 1
        final = table.slice(0, len(ended))
        if self.rows_from:
            final = final.filter(pc.fill_null(pc.greater_equal(final["marker_offset"], self.rows_from), True))
            steps = steps[steps["offset"] > self.rows_from]
        return LogRows(final, steps)

    def open_rows(self) -> LogRows:
        """The transactions open at the log end, and the LSO there."""
        end = self.log_end_offset
        steps = lso_steps(self._open, log_end_offset=end, end_time=self.end_time, start=NEVER if end is None else end)
        return LogRows(self._table(self._open), steps)

    @property
    def is_held(self) -> bool:
        """Whether `lso_holds` has a row."""
        return bool(self._settled().num_rows)

    def lso_holds(self) -> pa.Table:
        """Past and present holds of the LSO with the records they blocked: rows of `LSO_HOLDS`."""
        rows = []
        for row in self._settled().to_pylist():
            row["broker_id"] = self.where.broker_id  # it may be known since
            if row["marker_offset"] is None:
                row["log_end_offset"] = self.log_end_offset
                before = None if row["truncated"] else self.before.get(row["first_offset"])
                if before is not None:
                    row["records_held"], row["bytes_held"] = self.records - before[0], self.bytes - before[1]
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=LSO_HOLDS.arrow_schema)

    def lose_open(self, *, is_deleted: bool) -> pa.Table:
        """Drop the open transactions, which may have ended at offsets that were not read, and return their rows.

        `is_deleted`: whether the log now begins after these offsets: the next range starts a new log.
        """
        rows = self._table(lose_open(self._open))
        if is_deleted:
            self._restart(self.log_end_offset)
        else:
            self.fold.partial, self.before = EMPTY, {}
            self.holds = self.holds.filter(pc.is_valid(self.holds["marker_offset"]))
        return rows

    def truncate(self, offset: int, *, begin: int | None = None) -> None:
        """Drop the open transactions and the holds from an offset on, to read the log again from its start.

        `begin`: the first offset whose LSO steps are returned again; by default that offset.
        """
        self._restart(offset if begin is None else begin)
        self.stays_damaged = False
        self.holds = self.holds.filter(pc.less(self.holds["marker_offset"], offset))

    def stored(self, log: str) -> StoredState:
        """The row for the next run. `log`: the name of the log."""
        settled, marks = self._settled(), self.holds.filter(pc.is_null(self.holds["first_offset"]))
        newest = int(np.argmax(integers(marks["marker_offset"]))) if marks.num_rows else 0
        holds = pa.concat_tables([settled, marks.slice(newest, 1)])
        return StoredState(
            log=log,
            **self.where.columns,
            log_end_offset=self.log_end_offset,
            leader_epoch=self.leader_epoch,
            is_damaged=self.has_damage or self.stays_damaged,
            is_unread=self.is_unread,
            damaged_segments=json.dumps(sorted(self.damaged_segments)),
            bytes_read=self.bytes_read,
            is_held=bool(settled.num_rows),
            latest=utc(self.end_time),
            is_settled=self.fold.partial.settled,
            stays_damaged=self.stays_damaged,
            steps_from=self.steps_from,
            records=self.records,
            bytes=self.bytes,
            open_transactions=self._open_transactions(),
            lso_holds=holds.to_struct_array().combine_chunks() if holds.num_rows else None,
        )

    def _open_transactions(self) -> pa.StructArray | None:
        edges, names = self.fold.partial.edges, self.fold.file_names
        if not len(edges):
            return None
        before = [self.before.get(at, (None, None)) for at in edges["first_offset"].tolist()]
        columns = [
            *(np.ascontiguousarray(edges[name]) for name in get_args(LogTransactionField)),
            [names[number] for number in edges["file"].tolist()],
            *zip(*before, strict=True),
        ]
        types = [(field.name, field.type) for field in OPEN_TRANSACTIONS.arrow_schema]
        arrays = [pa.array(column, type_) for column, (_, type_) in zip(columns, types, strict=True)]
        return pa.StructArray.from_arrays(arrays, [name for name, _ in types])

    @classmethod
    def of(cls, stored: StoredState, where: LogId | None = None, **attributes: Any) -> LogState:
        """The state of a row.

        `where`: which broker has the log now; by default, the one of the row. `attributes`: others of the state.
        """
        state = cls(
            where=where or LogId(topic=stored.topic, partition=stored.partition, broker_id=stored.broker_id),
            log_end_offset=stored.log_end_offset,
            end_time=-1 if stored.latest is None else (stored.latest - EPOCH) // MILLISECOND,
            leader_epoch=-1 if stored.leader_epoch is None else stored.leader_epoch,
            stays_damaged=bool(stored.stays_damaged),
            steps_from=stored.steps_from,
            records=stored.records or 0,
            bytes=stored.bytes or 0,
            **attributes,
        )
        edges: LogTransactions = NO_LOG_TRANSACTIONS
        if stored.open_transactions is not None:
            rows = pa.Table.from_struct_array(stored.open_transactions)
            edges = np.empty(len(rows), LOG_TRANSACTION)
            for name in get_args(LogTransactionField):
                edges[name] = rows[name].to_numpy()
            files = state.fold.files
            edges["file"] = [files.setdefault(name, len(files)) for name in rows["file_name"].to_pylist()]
            counted = rows.filter(pc.is_valid(rows["records_before"]))
            offsets, *amounts = (
                counted[each].to_pylist() for each in ("first_offset", "records_before", "bytes_before")
            )
            state.before = dict(zip(offsets, zip(*amounts, strict=True), strict=True))
        state.fold.partial = PartialTransactions(edges=edges, settled=bool(stored.is_settled))
        if stored.lso_holds is not None:
            state.holds = pa.Table.from_struct_array(stored.lso_holds).cast(LSO_HOLDS.arrow_schema)
        return state

    # What becomes of the rows.

    def flush(self) -> Iterator[FoldedRows]:
        """The rows that later batches do not change; the fold begins again."""
        fold = self.fold
        final, fold.damage = fold.damage[: fold.damage_inside], fold.damage[fold.damage_inside :]
        fold.damage_inside = 0
        yield from self._rows(self.take(), is_final=True)
        yield from self._damage(final, is_final=True)

    def lose(self, missing: LostOffsets, *, is_deleted: bool = False) -> Iterator[FoldedRows]:
        """Close the transactions open before missing offsets, and report these, unless damage already does."""
        final, self.fold.damage = self.fold.damage, []
        yield from self._damage(final, is_final=True)
        yield self._unread_step(missing.expected, missing.reason, is_final=True)
        yield from self._log_transactions(self.lose_open(is_deleted=is_deleted), is_final=True)
        if missing.error is not None:
            if missing.expected < missing.found:
                self.damaged_segments.add(~missing.found)
            yield from self._damage([ReadError(None, None, missing.error)], is_final=True, has_bytes=False)

    def reach(self, end: int) -> Iterator[FoldedRows]:
        """End the log at an offset; if its newest segment begins there, the next run reads no earlier segment."""
        again = [each for each in self.fold.damage if _is_read_again(each.file, end)]
        yield from self._damage([each for each in self.fold.damage if each not in again], is_final=True)
        self.fold.damage = again
        self.log_end_offset = end

    def finish(self, log: str, at_end: Sequence[ReadError]) -> Iterator[FoldedRows]:
        """The rows of open transactions, and the new state of the log of this name.

        `at_end`: what could not be read after the last batch, where more may follow.
        """
        yield from self._damage(self.fold.damage, is_final=False)
        for each in [each for each in at_end if not each.damage.is_torn][:1]:
            yield self._unread_step(self.log_end_offset, each.error, is_final=False)
        yield from self._rows(self.open_rows(), is_final=False)
        yield FoldedRows(STATE.name, STATE.arrow([self.stored(log)]), is_final=False)

    def _unread_step(self, offset: int | None, error: str, *, is_final: bool) -> FoldedRows:
        step = LsoStep(**self.where.columns, offset=offset, error=error)
        return FoldedRows(LSO_TIMELINE.name, LSO_TIMELINE.arrow([step]), is_final)

    def _damage(self, errors: Sequence[ReadError], *, is_final: bool, has_bytes: bool = True) -> Iterator[FoldedRows]:
        if not errors:
            return
        self.has_damage |= any(not each.damage.is_torn for each in errors)
        self.stays_damaged |= is_final and self.has_damage
        self.is_unread |= any(each.damage.is_unreadable for each in errors)
        self.damaged_segments |= damaged_segments(errors)
        yield from self._log_transactions(error_table(errors, self.where), is_final=is_final)
        if self.with_batches and has_bytes:
            yield FoldedRows(BATCHES.name, damage_table(errors, self.where), is_final)

    def _log_transactions(self, log_transactions: pa.Table, *, is_final: bool) -> Iterator[FoldedRows]:
        if log_transactions.num_rows:
            yield FoldedRows(LOG_TRANSACTIONS.name, log_transactions, is_final)

    def _rows(self, found: LogRows, *, is_final: bool) -> Iterator[FoldedRows]:
        yield from self._log_transactions(found.log_transactions, is_final=is_final)
        if len(found.steps):
            yield FoldedRows(LSO_TIMELINE.name, lso_table(found.steps, self.where), is_final)

    # Transactions and holds.

    @property
    def _open(self) -> LogTransactions:
        edges: LogTransactions = self.fold.partial.edges
        is_open = edges["outcome"] == OPEN
        return take_rows(edges, np.flatnonzero(is_open))

    def _restart(self, offset: int | None) -> None:
        if self.log_end_offset is not None:
            self.steps_from = offset
        elif self.steps_from is not None and offset is not None:
            self.steps_from = min(offset, self.steps_from)
        self.log_end_offset, self.end_time, self.leader_epoch = None, -1, -1
        self.fold, self.before = _new_fold(), {}
        self.holds = self.holds.filter(pc.is_valid(self.holds["marker_offset"]))

    def _table(self, log_transactions: LogTransactions) -> pa.Table:
        if not len(log_transactions):
            return NO_TRANSACTIONS
        return log_transaction_table(log_transactions, self.where, files=self.fold.file_names)

    def _settled(self) -> pa.Table:
        if self.holds["first_offset"].null_count == self.holds.num_rows:
            return NO_HOLDS  # of most logs; by far cheaper
        return without_short_holds(self.holds, min_held_ms=self.min_held_ms)

    def _add_holds(self, table: pa.Table, *, start: int, totals: RunningTotals) -> None:
        """Add the candidates of a range; those that were open before are now as `table` has them."""
        counted = self._counted(totals)
        still_open = counted[np.isin(counted["offset"], self._open["first_offset"])]
        self.before = {at: (records, size) for at, records, size in still_open.tolist()}
        if not table.num_rows:
            return
        table = table.select(LOG_TRANSACTION_COLUMNS)
        found = candidates(table, start=start, min_held_ms=self.min_held_ms)
        is_open = pc.and_(pc.is_valid(self.holds["first_offset"]), pc.is_null(self.holds["marker_offset"]))
        known = self.holds.filter(is_open)
        if known.num_rows:
            near = np.flatnonzero(np.isin(integers(table["first_offset"]), integers(known["first_offset"])))
            rows = dict(zip(_keys(table.take(pa.array(near))), near.tolist(), strict=True))
            now = table.take(pa.array([rows[key] for key in _keys(known)], pa.int64()))
            known = hold_table(known, {name: now[name] for name in LOG_TRANSACTION_COLUMNS})
            # A second range also begins at 0 if the first one had no batch.
            found = found.filter(pa.array([key not in rows for key in _keys(found)], pa.bool_()))
        if self.holds_from:
            found = found.filter(pc.fill_null(pc.greater_equal(found["marker_offset"], self.holds_from), True))
        changed = _with_records(pa.concat_tables([known, found]), counted)
        self.holds = pa.concat_tables([self.holds.filter(pc.invert(is_open)), changed])

    def _counted(self, totals: RunningTotals) -> Array:
        """Array of `COUNTED`, by offset: at the first batch and at the marker of each transaction."""
        counts = np.ascontiguousarray(totals.samples).view(COUNTED).reshape(-1).copy()
        counts["records"] += self.records
        counts["bytes"] += self.bytes
        counted = np.concatenate((np.array([(at, *both) for at, both in self.before.items()], COUNTED), counts))
        counted = take_rows(counted, np.argsort(counted["offset"], kind="stable"))
        return counted[np.append(counted["offset"][1:] != counted["offset"][:-1], True)] if len(counted) else counted


def _keys(rows: pa.Table) -> list[tuple[int, int]]:
    return list(zip(integers(rows["producer_id"]).tolist(), integers(rows["first_offset"]).tolist(), strict=True))


def _with_records(holds: pa.Table, counted: Array) -> pa.Table:
    """Ended holds, with the records and bytes between their first offset and their marker."""
    if holds["first_offset"].null_count == holds.num_rows:
        return holds
    first, last = integers(holds["first_offset"]), integers(holds["marker_offset"])
    is_known = np.isin(first, counted["offset"]) & np.isin(last, counted["offset"])
    is_known &= integers(holds["truncated"], null=0) == 0
    held = {name: np.full(holds.num_rows, -1, np.int64) for name in ("records", "bytes")}
    before, after = (counted[np.searchsorted(counted["offset"], at[is_known])] for at in (first, last))
    for name, amount in held.items():
        amount[is_known] = after[name] - before[name]
    return hold_table(holds, {f"{name}_held": numbers(amount) for name, amount in held.items()})


class StoppedRead(Exception):
    """Why a log could not be read on: the next run continues there, of a live partition also without news of it."""

    def __init__(self, *errors: ReadError, is_live: bool = False) -> None:
        super().__init__(errors)
        self.errors, self.is_live = errors, is_live


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRead:
    """What is read of a log."""

    chunks: Iterable[LogChunk]  # its batches from the start of the plan on; may raise `StoppedRead`
    before: PartialTransactions = EMPTY  # what is known to be open before the first one
    end: int | None = None  # where it ends without batches: base offset of the newest segment, end offset of a fetch
    cleaned: int = -1  # offset up to which it was cleaned, as in `toolkit.analysis.log.offset_status.missing_between`


def fold_log(log: str, read: LogRead, plan: LogPlan, state: LogState) -> Iterator[FoldedRows]:
    """Fold new batches onto the state of a log: rows of the tables, and last its new state.

    `read`, `plan`: what is read of it, and why.
    `state`: its state; it is changed.
    """
    batches: list[pa.Table] = []  # rows of ``schema.BATCHES`` that were not returned

    def chunks() -> Iterator[LogChunk]:
        for chunk in map(intact, read.chunks):
            if state.with_batches:
                headers = chunk.headers[chunk.headers["base_offset"] >= state.rows_from]
                batches.extend(batch_tables([replace(chunk, headers=headers, damage=())], state.where))
            yield chunk

    def of_batches() -> Iterator[FoldedRows]:
        while batches:
            yield FoldedRows(BATCHES.name, batches.pop(0), is_final=True)

    expected = state.log_end_offset if plan.mode == CONTINUED else None
    is_new = plan.mode is None or (plan.mode == TRUNCATED and plan.offset == 0)
    if plan.mode == TRUNCATED:
        state.truncate(plan.offset or 0, begin=plan.begin if plan.repairs else None)
        state.holds_from = 0 if plan.begin is None else plan.obsolete_from
        state.rows_from = 0 if plan.repairs else state.holds_from
    elif plan.mode == LOST:
        end = state.log_end_offset or 0
        yield from state.lose(LostOffsets(end, end, plan.error), is_deleted=True)
    state.begin(read.before)
    fold = state.fold
    try:
        for chunk in at_missing_offsets(chunks(), expected=expected, end=read.end, cleaned=read.cleaned):
            base_offset = segment_base_offset(chunk.file)
            if expected is None and base_offset is not None:  # the first segment
                if is_new and not read.before.settled:
                    state.damaged_segments.add(~base_offset)
                expected = base_offset
            if chunk.missing is not None:
                fold.files.setdefault(chunk.file, len(fold.files))  # of transactions of which no batch was read
                yield from state.flush()
                yield from state.lose(chunk.missing)
            fold.add(replace(chunk, missing=None))
            if fold.closed_rows >= ROWS_AT_ONCE:
                yield from state.flush()
            yield from of_batches()
        yield from state.flush()
        at_end = list(fold.damage)
        if read.end is not None and read.end >= (state.log_end_offset or 0):
            yield from state.reach(read.end)
    except StoppedRead as stopped:
        yield from state.flush()
        fold.damage += stopped.errors
        at_end = fold.damage
        state.is_unread |= stopped.is_live
    yield from of_batches()
    yield from state.finish(log, at_end)


def _is_read_again(file: str | None, offset: int) -> bool:
    """Whether a run that continues at an offset reads this file: a segment from that offset on, or another file."""
    base_offset = segment_base_offset(file)
    return base_offset is None or base_offset >= offset


OF_LOGS = {each.name: each for each in (BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE, TRANSACTION_HISTORY)}
STAGED = {**OF_LOGS, STATE.name: STATE}
STRUCTS = {name: [each.with_nullable(True) for each in spark_schema(t.arrow_schema)] for name, t in STAGED.items()}
STAGE_SCHEMA = pa.schema(
    [
        *(("table", pa.string()), (LOG, pa.string()), (IS_FINAL, pa.bool_())),
        *((name, pa.struct(fields)) for name, fields in STRUCTS.items()),
    ]
)
"""Name of the row's table, its log, and a struct for each table, null in rows of other tables.

Its fields are nullable, as pyarrow could not cast null structs otherwise."""


def stage_rows(table: str, found: Sequence[tuple[pa.Table, str, bool]]) -> pa.RecordBatch:
    """Rows of a declared table, each with its log and whether they are final, as rows of `STAGE_SCHEMA`."""
    (batch,) = spark_table(pa.concat_tables([rows for rows, *_ in found])).combine_chunks().to_batches()
    values = ([table] * len(found), *zip(*((log, is_final) for _, log, is_final in found), strict=True))
    counts = [len(rows) for rows, *_ in found]
    arrays = [pa.concat_arrays(map(pa.repeat, of_column, counts)) for of_column in values]
    for name, fields in STRUCTS.items():
        arrays.append(
            pa.StructArray.from_arrays(batch.columns, fields=fields)
            if name == table
            else pa.nulls(len(batch), pa.struct(fields))
        )
    return pa.RecordBatch.from_arrays(arrays, schema=STAGE_SCHEMA)


def rows_of(staged: DataFrame, table: str) -> DataFrame:
    """The rows of one table, with `LOG` and `IS_FINAL`."""
    return staged.where(sf.col("table") == table).select(f"{table}.*", LOG, IS_FINAL)


STAGE_NAME = "stage"
BYTES_AT_ONCE = 1 << 24
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
        with ThreadPoolExecutor(AT_ONCE) as pool:
            bundles = bundled(works, lambda work: work.weight, AT_ONCE)
            of_bundles = list(pool.map(lambda bundle: list(_staged(bundle, options)), bundles))
        batches = [batch for of_bundle in of_bundles for batch in of_bundle]
        states = _only(batches, STATE.name)[STATE.name].combine_chunks()
        frames = {name: rows_of(from_arrow(store.spark, _only(batches, name)), name) for name in OF_LOGS}
        return frames, StoredState.of_table(pa.Table.from_struct_array(states))
    # Stored once: what is read twice would be folded twice.
    staged = store.internal.overwrite_plain(STAGE_NAME, folded_by_tasks(store.spark, works, options))
    states = staged.where(sf.col("table") == STATE.name).select(f"{STATE.name}.*").toArrow()
    return {name: rows_of(staged, name) for name in OF_LOGS}, StoredState.of_table(states)


def _only(staged: Sequence[pa.RecordBatch], table: str) -> pa.Table:
    """The rows of one table, each batch being of one, without the columns of others."""
    columns = ["table", LOG, IS_FINAL, table]
    own = [each.select(columns) for each in staged if each["table"][0].as_py() == table]
    return pa.Table.from_batches(own, pa.schema([STAGE_SCHEMA.field(name) for name in columns]))


def folded_by_tasks(spark: SparkSession, works: Sequence[LogWork], options: WorkOptions) -> DataFrame:
    """The new rows of all tables, as rows of `STAGE_SCHEMA`."""
    bundles = bundled(works, lambda work: work.weight, TASKS_PER_CORE * _cores(spark))
    return in_tasks(spark, bundles, lambda bundle: _staged(bundle, options), from_arrow_schema(STAGE_SCHEMA))


def _staged(works: Iterable[LogWork], options: WorkOptions) -> Iterator[pa.RecordBatch]:
    """The rows of logs, those of many small ones at once."""
    waiting: defaultdict[str, list[tuple[pa.Table, str, bool]]] = defaultdict(list)
    size = 0
    for work in works:
        for table, rows, is_final in fold_work(work, options):
            waiting[table].append((rows, work.log, is_final))
            size += rows.nbytes
            if size >= BYTES_AT_ONCE:
                yield from starmap(stage_rows, waiting.items())
                waiting.clear()
                size = 0
    yield from starmap(stage_rows, waiting.items())


def _cores(spark: SparkSession) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # noqa: BLE001 - under Connect, each Spark raises its own error
        return 8


def fold_work(work: LogWork, options: WorkOptions) -> Iterator[FoldedRows]:
    """Read a log, and fold what is new onto its state: the rows of its tables, and its new state."""
    if work.log.endswith(IDS):
        records = _live_records(work, options) if options.config else _records(work)
        yield from fold_records(work.log, work.where, records, work.plan, work.state)
        return
    attributes: Any = {"min_held_ms": options.min_held_ms, "with_batches": options.with_batches}
    state = (
        LogState(where=work.where, **attributes)
        if work.state is None
        else LogState.of(work.state, work.where, **attributes)
    )
    read = _live_read(work, options) if options.config else _read(work)
    yield from fold_log(work.log, read, work.plan, state)


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
    error = log.error or (work.plan.error if work.plan.mode == CONTINUED else None)

    def chunks() -> Iterator[LogChunk]:
        if error:
            raise StoppedRead(ReadError(log.name, None, error))
        yield from log.parts(start=start, crc=True)

    return LogRead(
        chunks=chunks(),
        before=known_before(log, None) if start is None and not error else EMPTY,
        end=log.base_offsets[-1] if log.base_offsets and not error else None,
        cleaned=work.listing.cleaned,
    )


def _records(work: LogWork) -> Iterator[TransactionLogRecord]:
    log, start, where = _opened(work.listing), work.plan.start, work.where
    yield from between(log.transaction_log(start=start), start, None)
    if lost := work.listing.error:
        yield TransactionLogRecord(txn_state_partition=where.partition, broker_id=where.broker_id, error=lost)


# A live cluster.


def _connect(options: WorkOptions) -> BrokerClient:
    from toolkit.sources.live.broker_client import BrokerClient

    assert options.config is not None
    return BrokerClient(options.config, timeout=options.timeout)


def _live_read(work: LogWork, options: WorkOptions) -> LogRead:
    start, stop = work.plan.start or 0, work.plan.stop or 0
    if (error := work.listing.error) is not None:
        return LogRead(chunks=_unread(error))
    return LogRead(
        chunks=_live_chunks(work.where.tp, start, stop, options),
        before=begin() if start == 0 else EMPTY,
        end=max(start, stop),
        cleaned=stop,  # what is missing without an error was compacted
    )


def _unread(error: str) -> Iterator[LogChunk]:
    raise StoppedRead(ReadError(None, None, error), is_live=True)
    yield


def _live_chunks(tp: TopicPartition, start: int, stop: int, options: WorkOptions) -> Iterator[LogChunk]:
    from toolkit.sources.live.broker_client import row_text
    from toolkit.sources.live.partition_log import LogRange, read_range

    try:
        with _connect(options) as client:
            for chunk in read_range(client, LogRange(tp=tp, start=start, stop=stop), crc=True).chunks:
                if chunk.damage and not len(chunk.headers):
                    raise StoppedRead(*(ReadError(None, None, each.reason) for each in chunk.damage), is_live=True)
                yield chunk
    except ToolkitError as error:
        text = f"{row_text(error)}; offsets {start} to {stop - 1} were not read"
        raise StoppedRead(ReadError(None, None, text), is_live=True) from None


def _live_records(work: LogWork, options: WorkOptions) -> Iterator[TransactionLogRecord]:
    from toolkit.sources.live.coordinator_logs import read_coordinator_topic, records_of_ids

    start = work.plan.start or 0
    with _connect(options) as client:
        topic = read_coordinator_topic(client, STATE_TOPIC)
        for record in records_of_ids(client, topic, None, [work.where.tp.partition]):
            if record.offset is None or record.offset >= start:
                yield record
