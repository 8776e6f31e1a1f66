"""The fold of what is new in a log onto its state: final rows once, rows of open transactions by every run.

A log is read in its order, in bounded memory, by one task or by this process: by the same function.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.history.resume_state import COUNTED, LogState, RangeSummary
from toolkit.analysis.log.log_transactions import EMPTY, PartialTransactions
from toolkit.analysis.log.lost_offsets import at_missing_offsets
from toolkit.analysis.log.lso_timeline import lso_table
from toolkit.analysis.log.record_counts import RunningTotals
from toolkit.formats.log.headers import LogChunk, LostOffsets
from toolkit.formats.log_dir_files import segment_base_offset
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE, utc
from toolkit.schema.log import Batch
from toolkit.sources.log_tables import LogFold, LogId, ReadError, batch_tables, error_table
from toolkit.spark.pipeline.log_plan import LOST, REMEMBERED, TRUNCATED, LogPlan
from toolkit.spark.pipeline.tables.staging_table import STATE, StoredState, damaged_segments

ROWS_AT_ONCE = 1 << 16


class FoldedRows(NamedTuple):
    """Rows of a declared table."""

    table: str  # its name
    rows: pa.Table
    is_final: bool  # whether later runs keep them


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
    cleaned: int = -1  # offset up to which it was cleaned, as in `toolkit.analysis.log.lost_offsets.missing_between`


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
