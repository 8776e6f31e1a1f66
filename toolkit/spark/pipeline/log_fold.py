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
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema

from toolkit.analysis.hold_findings import (
    HOLD,
    NO_HOLDS,
    Holds,
    candidates,
    hold_table,
    marker_rows,
    without_short_holds,
)
from toolkit.analysis.log.log_transactions import (
    EMPTY,
    LOG_TRANSACTION,
    NO_LOG_TRANSACTIONS,
    OPEN,
    LogArray,
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
from toolkit.formats.headers import Array, LogChunk, LostOffsets, StructuredArray, concatenate, take_rows
from toolkit.formats.log_dir_files import log_path, segment_base_offset
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE, TRANSACTION_HISTORY, utc
from toolkit.schema.log import LsoStep, TransactionLogRecord
from toolkit.schema.table import EPOCH, LogId, Table, TopicPartition
from toolkit.sources.log_tables import LogFold, ReadError, batch_tables, damage_table, error_table
from toolkit.sources.logdir.dump_logs import read_texts
from toolkit.sources.logdir.replica_log import FolderLog, ReplicaLog, between, known_before
from toolkit.spark.arrow_types import from_arrow, in_tasks, spark_schema, spark_table
from toolkit.spark.datasources.log_reader import LogListing, bundled
from toolkit.spark.pipeline.history_fold import fold_records
from toolkit.spark.pipeline.log_states import CONTINUED, LOST, NEVER, TRUNCATED, LogPlan
from toolkit.spark.pipeline.stored_tables import (
    HOLDS,
    IDS,
    IS_FINAL,
    LOG,
    OPEN_TRANSACTIONS,
    STATE,
    FoldedRows,
    Rows,
    StoredState,
    array_of,
    damaged_segments,
    stored_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from toolkit.config import ClientConfig
    from toolkit.sources.live.broker_client import BrokerClient
    from toolkit.spark.pipeline.stored_tables import TableStore


COUNTED = np.dtype([("offset", "i8"), ("records", "i8"), ("bytes", "i8")])
"""Data records and bytes of a log before one of its batches."""

ROWS_AT_ONCE = 1 << 16
MILLISECOND = dt.timedelta(milliseconds=1)


class LogRows(NamedTuple):
    """Transactions of a log, and the steps of its LSO."""

    log_transactions: LogArray
    steps: LogArray  # of `toolkit.analysis.log.log_transactions.LSO_STEP`


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
    holds: Holds = field(default_factory=lambda: NO_HOLDS)  # candidates for holds, and markers
    files: dict[str | None, int] = field(default_factory=dict)  # the number of each file in `holds`
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
        ended = concatenate((closed, edges[edges["marker_offset"] >= (start or 0)]), LOG_TRANSACTION)
        touching: LogTransactions = concatenate((ended, self._open), LOG_TRANSACTION)
        assert fold.totals is not None
        self._add_holds(touching, start=start or 0, totals=fold.totals)
        steps = lso_steps(touching, log_end_offset=None, start=self.steps_from if start is None else start)
        records, size = fold.totals.total
        self.records, self.bytes, self.bytes_read = self.records + records, self.bytes + size, self.bytes_read + size
        fold.totals = RunningTotals()
        if fold.log_end_offset:
            self.log_end_offset = max(fold.log_end_offset, start or 0)
            self.end_time, self.leader_epoch = fold.end_time, max(self.leader_epoch, fold.highest_epoch)
        elif start is None and len(touching):
            self.steps_from = int(touching["first_offset"].max()) + 1
        if self.rows_from:
            ended = ended[(ended["marker_offset"] < 0) | (ended["marker_offset"] >= self.rows_from)]
            steps = steps[steps["offset"] > self.rows_from]
        return LogRows(self._of_log(ended), self._of_log(steps))

    def open_rows(self) -> LogRows:
        """The transactions open at the log end, and the LSO there."""
        end = self.log_end_offset
        steps = lso_steps(self._open, log_end_offset=end, end_time=self.end_time, start=NEVER if end is None else end)
        return LogRows(self._of_log(self._open), self._of_log(steps))

    @property
    def is_held(self) -> bool:
        """Whether `lso_holds` has a row."""
        return bool(len(self._settled()))

    def lso_holds(self) -> pa.Table:
        """Past and present holds of the LSO with the records they blocked: rows of `LSO_HOLDS`."""
        found = self._settled()
        for row in np.flatnonzero((found["marker_offset"] < 0) & (found["truncated"] != 1)).tolist():
            before = self.before.get(int(found["first_offset"][row]))
            if before is not None:
                found["records_held"][row], found["bytes_held"][row] = self.records - before[0], self.bytes - before[1]
        return hold_table(LogArray(found, self.where, tuple(self.files)), log_end_offset=self.log_end_offset)

    def lose_open(self, *, is_deleted: bool) -> LogArray:
        """Drop the open transactions, which may have ended at offsets that were not read, and return them.

        `is_deleted`: whether the log now begins after these offsets: the next range starts a new log.
        """
        lost = self._of_log(lose_open(self._open))
        if is_deleted:
            self._restart(self.log_end_offset)
        else:
            self.fold.partial, self.before = EMPTY, {}
            self.holds = self.holds[self.holds["marker_offset"] >= 0]
        return lost

    def truncate(self, offset: int, *, begin: int | None = None) -> None:
        """Drop the open transactions and the holds from an offset on, to read the log again from its start.

        `begin`: the first offset whose LSO steps are returned again; by default that offset.
        """
        self._restart(offset if begin is None else begin)
        self.stays_damaged = False
        self.holds = self.holds[self.holds["marker_offset"] < offset]

    def stored(self, log: str) -> StoredState:
        """The row for the next run. `log`: the name of the log."""
        settled, markers = self._settled(), self.holds[self.holds["first_offset"] < 0]
        newest = markers[int(np.argmax(markers["marker_offset"]))] if len(markers) else None
        return StoredState(
            log=log,
            **self.where.columns,
            log_end_offset=self.log_end_offset,
            leader_epoch=self.leader_epoch,
            is_damaged=self.has_damage or self.stays_damaged,
            is_unread=self.is_unread,
            damaged_segments=json.dumps(sorted(self.damaged_segments)),
            bytes_read=self.bytes_read,
            is_held=bool(len(settled)),
            latest=utc(self.end_time),
            is_settled=self.fold.partial.settled,
            is_torn=any(each.damage.is_torn for each in self.fold.damage),
            stays_damaged=self.stays_damaged,
            steps_from=self.steps_from,
            records=self.records,
            bytes=self.bytes,
            open_transactions=self._open_transactions(),
            lso_holds=stored_rows(HOLDS, settled, tuple(self.files)),
            marker_offset=None if newest is None else int(newest["marker_offset"]),
            marker_at=None if newest is None else utc(int(newest["end"])),
        )

    def _open_transactions(self) -> pa.StructArray | None:
        edges = self.fold.partial.edges
        before = [self.before.get(at, (None, None)) for at in edges["first_offset"].tolist()]
        return stored_rows(OPEN_TRANSACTIONS, edges, self.fold.file_names, *zip(*before, strict=True))

    @classmethod
    def of(cls, stored: StoredState, where: LogId | None = None, **attributes: Any) -> LogState:
        """The state of a row.

        `where`: which broker has the log now; by default, the one of the row. `attributes`: others of the state.
        """
        state = cls(
            where=where or LogId(topic=stored.topic, partition=stored.partition, broker_id=stored.broker_id),
            log_end_offset=stored.log_end_offset,
            end_time=_milliseconds(stored.latest),
            leader_epoch=-1 if stored.leader_epoch is None else stored.leader_epoch,
            stays_damaged=bool(stored.stays_damaged),
            steps_from=stored.steps_from,
            records=stored.records or 0,
            bytes=stored.bytes or 0,
            **attributes,
        )
        edges: LogTransactions = NO_LOG_TRANSACTIONS
        if stored.open_transactions is not None:
            edges = array_of(stored.open_transactions, LOG_TRANSACTION, state.fold.files)
            counts = (stored.open_transactions.field(name).to_pylist() for name in ("records_before", "bytes_before"))
            rows = zip(edges["first_offset"].tolist(), *counts, strict=True)
            state.before = {at: (records, size) for at, records, size in rows if records is not None}
        state.fold.partial = PartialTransactions(edges=edges, settled=bool(stored.is_settled))
        if stored.lso_holds is not None:
            state.holds = array_of(stored.lso_holds, HOLD, state.files)
        if stored.marker_offset is not None:
            newest = marker_rows([stored.marker_offset], [_milliseconds(stored.marker_at)])
            state.holds = concatenate((state.holds, newest), HOLD)
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
        yield from _unless_empty(LOG_TRANSACTIONS, self.lose_open(is_deleted=is_deleted), is_final=True)
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
        yield FoldedRows(STATE.name, self.stored(log), is_final=False)

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
        yield FoldedRows(LOG_TRANSACTIONS.name, error_table(errors, self.where), is_final)
        if self.with_batches and has_bytes:
            yield FoldedRows(BATCHES.name, damage_table(errors, self.where), is_final)

    def _rows(self, found: LogRows, *, is_final: bool) -> Iterator[FoldedRows]:
        yield from _unless_empty(LOG_TRANSACTIONS, found.log_transactions, is_final=is_final)
        yield from _unless_empty(LSO_TIMELINE, found.steps, is_final=is_final)

    def _of_log(self, rows: StructuredArray[Any]) -> LogArray:
        return LogArray(rows, self.where, self.fold.file_names)

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
        self.holds = self.holds[self.holds["marker_offset"] >= 0]

    def _settled(self) -> Holds:
        if not np.any(self.holds["first_offset"] >= 0):
            return NO_HOLDS  # of most logs; by far cheaper
        return without_short_holds(self.holds, min_held_ms=self.min_held_ms)

    def _add_holds(self, log_transactions: LogTransactions, *, start: int, totals: RunningTotals) -> None:
        """Add the candidates of a range; those that were open before are now as `log_transactions` has them."""
        counted = self._counted(totals)
        still_open = counted[np.isin(counted["offset"], self._open["first_offset"])]
        self.before = {at: (records, size) for at, records, size in still_open.tolist()}
        if not len(log_transactions):
            return
        found = candidates(log_transactions, start=start, min_held_ms=self.min_held_ms)
        is_open = (self.holds["first_offset"] >= 0) & (self.holds["marker_offset"] < 0)
        known = self.holds[is_open]
        if len(known):
            near = np.flatnonzero(np.isin(log_transactions["first_offset"], known["first_offset"]))
            rows = dict(zip(_keys(log_transactions[near]), near.tolist(), strict=True))
            now = log_transactions[[rows[key] for key in _keys(known)]]
            for name in get_args(LogTransactionField):
                known[name] = now[name]
            # A second range also begins at 0 if the first one had no batch.
            found = found[[key not in rows for key in _keys(found)]]
        if self.holds_from:
            found = found[(found["marker_offset"] < 0) | (found["marker_offset"] >= self.holds_from)]
        changed, names = concatenate((known, found), HOLD), self.fold.file_names
        _set_records(changed, counted)
        changed["file"] = [self.files.setdefault(names[number], len(self.files)) for number in changed["file"].tolist()]
        self.holds = concatenate((self.holds[~is_open], changed), HOLD)

    def _counted(self, totals: RunningTotals) -> Array:
        """Array of `COUNTED`, by offset: at the first batch and at the marker of each transaction."""
        counts = np.ascontiguousarray(totals.samples).view(COUNTED).reshape(-1).copy()
        counts["records"] += self.records
        counts["bytes"] += self.bytes
        counted = np.concatenate((np.array([(at, *both) for at, both in self.before.items()], COUNTED), counts))
        counted = take_rows(counted, np.argsort(counted["offset"], kind="stable"))
        return counted[np.append(counted["offset"][1:] != counted["offset"][:-1], True)] if len(counted) else counted


def _milliseconds(at: dt.datetime | None) -> int:
    return -1 if at is None else (at - EPOCH) // MILLISECOND


def _unless_empty(table: Table, rows: LogArray, *, is_final: bool) -> Iterator[FoldedRows]:
    if len(rows):
        yield FoldedRows(table.name, rows, is_final)


def _keys(rows: StructuredArray[LogTransactionField]) -> list[tuple[int, int]]:
    return list(zip(rows["producer_id"].tolist(), rows["first_offset"].tolist(), strict=True))


def _set_records(holds: Holds, counted: Array) -> None:
    """Set the records and bytes between the first offset and the marker of ended holds."""
    first, last = holds["first_offset"], holds["marker_offset"]
    is_known = np.isin(first, counted["offset"]) & np.isin(last, counted["offset"]) & (holds["truncated"] != 1)
    before, after = (counted[np.searchsorted(counted["offset"], at[is_known])] for at in (first, last))
    holds["records_held"] = holds["bytes_held"] = -1
    holds["records_held"][is_known] = after["records"] - before["records"]
    holds["bytes_held"][is_known] = after["bytes"] - before["bytes"]


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


OF_LOGS = (BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE, TRANSACTION_HISTORY)
TABLES_OF_ARRAYS = {LOG_TRANSACTIONS.name: log_transaction_table, LSO_TIMELINE.name: lso_table}
SCHEMAS = {STATE.name: spark_schema(STATE.arrow_schema)} | {
    each.name: pa.schema([*spark_schema(each.arrow_schema), (LOG, pa.string()), (IS_FINAL, pa.bool_())])
    for each in OF_LOGS
}
STRUCTS = {name: pa.struct([each.with_nullable(True) for each in schema]) for name, schema in SCHEMAS.items()}
STAGE_SCHEMA = pa.schema([("table", pa.string()), *STRUCTS.items()])
"""Name of the row's table, and a struct for each table, null in rows of other tables.

Its fields are nullable, as pyarrow could not cast null structs otherwise."""


def arrow_rows(table: str, found: Sequence[Rows]) -> pa.Table:
    """Rows of a declared table: those of arrays first, as one table, then the tables; or states."""
    if table == STATE.name:
        return STATE.arrow([each for each in found if isinstance(each, StoredState)])
    arrays = [each for each in found if isinstance(each, LogArray)]
    joined = [TABLES_OF_ARRAYS[table](*arrays)] if arrays else []
    return pa.concat_tables([*joined, *(each for each in found if isinstance(each, pa.Table))])


def rows_of_logs(table: str, found: Sequence[tuple[Rows, str, bool]]) -> pa.Table:
    """Rows of a declared table, each with its log and whether they are final, as one of `SCHEMAS`."""
    if table == STATE.name:
        return spark_table(arrow_rows(table, [rows for rows, *_ in found]))
    found = sorted(found, key=lambda each: isinstance(each[0], pa.Table))
    rows, counts = spark_table(arrow_rows(table, [rows for rows, *_ in found])), [_count(rows) for rows, *_ in found]
    of_each = zip(*((log, is_final) for _, log, is_final in found), strict=True)
    columns = [pa.concat_arrays(map(pa.repeat, values, counts)) for values in of_each]
    return pa.Table.from_arrays([*rows.columns, *columns], schema=SCHEMAS[table])


def stage_rows(table: str, rows: pa.Table) -> pa.RecordBatch:
    """Rows of one of `SCHEMAS` as rows of `STAGE_SCHEMA`."""
    (batch,) = rows.combine_chunks().to_batches()
    structs = [
        pa.StructArray.from_arrays(batch.columns, fields=[*type_]) if name == table else pa.nulls(len(batch), type_)
        for name, type_ in STRUCTS.items()
    ]
    return pa.RecordBatch.from_arrays([pa.repeat(table, len(batch)), *structs], schema=STAGE_SCHEMA)


def _count(rows: Rows) -> int:
    return 1 if isinstance(rows, StoredState) else len(rows)


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
        with ThreadPoolExecutor(AT_ONCE) as pool:
            bundles = bundled(works, lambda work: work.weight, AT_ONCE)
            found = [
                each for of_bundle in pool.map(lambda each: [*_folded(each, options)], bundles) for each in of_bundle
            ]
        tables = {
            name: pa.concat_tables([schema.empty_table(), *(rows for table, rows in found if table == name)])
            for name, schema in SCHEMAS.items()
        }
        states = StoredState.of_table(tables.pop(STATE.name))
        return {name: from_arrow(store.spark, rows) for name, rows in tables.items()}, states
    # Stored once: what is read twice would be folded twice.
    staged = store.internal.overwrite_plain(STAGE_NAME, folded_by_tasks(store.spark, works, options))
    frames = {name: staged.where(sf.col("table") == name).select(f"{name}.*") for name in SCHEMAS}
    return frames, StoredState.of_table(frames.pop(STATE.name).toArrow())


def folded_by_tasks(spark: SparkSession, works: Sequence[LogWork], options: WorkOptions) -> DataFrame:
    """The new rows of all tables, as rows of `STAGE_SCHEMA`."""

    def of_bundle(bundle: Sequence[LogWork]) -> Iterator[pa.RecordBatch]:
        yield from starmap(stage_rows, _folded(bundle, options))

    bundles = bundled(works, lambda work: work.weight, TASKS_PER_CORE * _cores(spark))
    return in_tasks(spark, bundles, of_bundle, from_arrow_schema(STAGE_SCHEMA))


def _folded(works: Iterable[LogWork], options: WorkOptions) -> Iterator[tuple[str, pa.Table]]:
    """The names of tables and their new rows, those of many small logs at once."""
    waiting: defaultdict[str, list[tuple[Rows, str, bool]]] = defaultdict(list)
    count = 0
    for work in works:
        for table, rows, is_final in fold_work(work, options):
            waiting[table].append((rows, work.log, is_final))
            count += _count(rows)
            if count >= ROWS_AT_ONCE:
                yield from ((name, rows_of_logs(name, found)) for name, found in waiting.items())
                waiting.clear()
                count = 0
    yield from ((name, rows_of_logs(name, found)) for name, found in waiting.items())


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
