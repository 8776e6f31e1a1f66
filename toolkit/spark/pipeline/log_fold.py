"""The fold of the ranges of logs into transactions, steps and holds of the LSO, and the new states of the logs.

One task merges the ranges of a log in order, after the log's state from the last run. So final rows are returned once,
and rows of open transactions by every run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from toolkit.analysis.history.resume_state import LogState, RangeSummary
from toolkit.analysis.log.lost_offsets import missing_between, missing_within
from toolkit.analysis.log.lso_timeline import lso_table
from toolkit.formats.log.headers import LostOffsets
from toolkit.formats.log_dir_files import segment_base_offset
from toolkit.schema import LOG_TRANSACTIONS, utc
from toolkit.sources.log_tables import LogId, ReadError, error_table
from toolkit.spark.datasources.partial_transactions import (
    BEGIN,
    DAMAGE,
    END,
    LOST,
    MISSING,
    PACKED,
    REACH,
    REMEMBERED,
    START,
    STOP,
    TAIL,
    TRUNCATED,
    UNREAD_START,
    PartialRecord,
    range_summary,
    whole_runs,
)
from toolkit.spark.pipeline.tables.staging_table import (
    STAGE,
    STAGE_SCHEMA,
    STATE,
    StoredState,
    damaged_segments,
    stage_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY = ("topic", "partition", "log")
ORDER = (*KEY, "range_order", "part")
STATES = (REMEMBERED, LOST, TRUNCATED)


def fold(partials: DataFrame, *, min_held_ms: int) -> DataFrame:
    """Merge the ranges of logs, each log in one task, in bounded memory.

    `partials`: rows of `partial_transactions.PartialRecord`, in any order, including the states of their logs.
    `min_held_ms`: shorter holds of the LSO are dropped when they end.
    Returns: rows of `staging_table.STAGE`: ``log_transactions``, ``lso_timeline``, and one of ``state`` for each log.
    """
    sorted_partials = partials.repartition(*KEY).sortWithinPartitions(*ORDER)
    return sorted_partials.mapInArrow(partial(_folded, min_held_ms=min_held_ms), STAGE)


def fold_table(partials: pa.Table, *, min_held_ms: int) -> pa.Table:
    """`fold` in this process."""
    in_order = partials.sort_by([(name, "ascending") for name in ORDER])
    return pa.Table.from_batches(_folded(in_order.to_batches(), min_held_ms=min_held_ms), STAGE_SCHEMA)


def _folded(batches: Iterable[pa.RecordBatch], *, min_held_ms: int) -> Iterator[pa.RecordBatch]:
    log: _FoldedLog | None = None
    for rows in whole_runs(batches, ORDER):
        if log is None or log.key != tuple(rows[name][0].as_py() for name in KEY):
            if log is not None:
                yield from log.finish()
            (first,) = PartialRecord.of_table(rows.slice(0, 1))
            topic, partition, broker_id = first.topic, first.partition, first.broker_id
            state = LogState(topic=topic, partition=partition, broker_id=broker_id, min_held_ms=min_held_ms)
            log = _FoldedLog(first.log, state)
        yield from log.add(rows)
    if log is not None:
        yield from log.finish()


@dataclass(slots=True, eq=False)
class _FoldedLog:
    """The fold of one log, to which the ranges are added in order."""

    name: str
    state: LogState
    tail: list[ReadError] = field(default_factory=list)  # damage with no later batch so far
    is_new: bool = True  # whether nothing of it is known from earlier runs
    is_damaged: bool = False
    is_unread: bool = False
    is_stopped: bool = False
    bytes_read: int = 0
    expected: int | None = None  # offset after the data added so far
    damaged_segments: set[int] = field(default_factory=set)  # as in `StoredState`

    @property
    def key(self) -> tuple[Any, ...]:
        return self.state.topic, self.state.partition, self.name

    def add(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        others = PartialRecord.of_table(rows.filter(pc.invert(pc.is_in(rows["kind"], pa.array(PACKED)))))
        by_kind: defaultdict[str, list[PartialRecord]] = defaultdict(list)
        for row in others:
            by_kind[row.kind].append(row)
        for kind in STATES:
            for row in by_kind[kind]:
                yield from self._remember(row)
        if by_kind[STOP]:
            self.tail += [row.read_error for row in by_kind[STOP]]
            self.is_stopped = True
        if self.is_stopped:
            return
        if self.state.broker_id is None:  # as to an earlier run without meta.properties
            self.state.broker_id = rows["broker_id"][-1].as_py()
        for row in by_kind[START]:
            yield from self._start(row.first_offset or 0, cleaned=row.cleaned, is_begun=bool(by_kind[BEGIN]))
        for row in by_kind[MISSING]:
            yield from self._lose(row.error, found=row.first_offset)
            self.expected = max(row.first_offset or 0, self.expected or 0)
        if by_kind[BEGIN] or by_kind[END] or len(others) < rows.num_rows:
            end = next(iter(by_kind[END]), None)
            yield from self._add_range(range_summary(rows, end=end, is_settled=bool(by_kind[BEGIN])), end)
        yield from self._damage([row.read_error for row in by_kind[DAMAGE]], is_final=True)
        yield from self._end_range(by_kind)

    def _end_range(self, by_kind: Mapping[str, Sequence[PartialRecord]]) -> Iterator[pa.RecordBatch]:
        """What follows the last batch of a range."""
        self.tail += [row.read_error for row in by_kind[TAIL]]
        for row in by_kind[UNREAD_START]:
            yield from self._start(row.first_offset or 0, cleaned=row.cleaned)
        for row in by_kind[REACH]:
            yield from self._reach(row.log_end_offset or 0, cleaned=row.cleaned)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rows of open transactions, and the new state."""
        yield from self._damage(self.tail, is_final=False)
        log_transactions, steps = self.state.open_rows()
        yield from self._log_transactions(log_transactions, is_final=False)
        yield from self._steps(steps, is_final=False)
        state = self.state
        stored = StoredState(
            log=self.name,
            topic=state.topic,
            partition=state.partition,
            broker_id=state.broker_id,
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
        yield stage_rows(STATE.name, STATE.arrow([stored]), log=self.name, is_final=False)

    def _remember(self, row: PartialRecord) -> Iterator[pa.RecordBatch]:
        self.state = LogState.from_bytes(
            row.packed or b"",
            topic=row.topic,
            partition=row.partition,
            broker_id=row.broker_id,
            min_held_ms=self.state.min_held_ms,
        )
        self.expected = self.state.log_end_offset if row.kind == REMEMBERED else None
        self.is_new = row.kind == TRUNCATED and row.log_end_offset == 0
        if row.kind == TRUNCATED:
            self.state.truncate(row.log_end_offset or 0)
        elif row.kind == LOST:
            yield from self._lose(row.error, found=None, is_deleted=True)

    def _lose(self, error: str | None, *, found: int | None, is_deleted: bool = False) -> Iterator[pa.RecordBatch]:
        """Close the transactions open before missing offsets, and report these, unless damage already does."""
        yield from self._log_transactions(self.state.lose(is_deleted=is_deleted), is_final=True)
        if error is not None:
            if found is not None and self.expected is not None and self.expected < found:
                self.damaged_segments.add(~found)
            yield from self._damage([ReadError(None, None, error)], is_final=True)

    def _follow(self, missing: LostOffsets | None) -> Iterator[pa.RecordBatch]:
        if missing is not None:
            yield from self._lose(missing.error, found=missing.found)

    def _add_range(self, summary: RangeSummary, end: PartialRecord | None) -> Iterator[pa.RecordBatch]:
        if end is not None:
            tail, self.tail, first = self.tail, [], end.first_offset
            if first is not None and self.expected is not None:
                is_damaged = bool(tail) or bool(end.is_after_damage)
                yield from self._follow(missing_within(self.expected, first, is_damaged=is_damaged))
            yield from self._damage(tail, is_final=True)
            self.expected = max(end.log_end_offset or 0, self.expected or 0)
        found = self.state.add(summary)
        self.bytes_read += summary.bytes
        yield from self._log_transactions(found.log_transactions, is_final=True)
        yield from self._steps(found.steps, is_final=True)

    def _start(self, base_offset: int, *, cleaned: int, is_begun: bool = False) -> Iterator[pa.RecordBatch]:
        """Begin a segment; `is_begun`: whether it is the first one, and the transactions open before it are known."""
        if self.expected is not None:
            is_damaged = not all(_is_read_again(each.file, base_offset) for each in self.tail)
            yield from self._follow(missing_between(self.expected, base_offset, cleaned=cleaned, is_damaged=is_damaged))
        elif self.is_new and not is_begun:
            self.damaged_segments.add(~base_offset)
        self.expected = base_offset

    def _reach(self, offset: int, *, cleaned: int) -> Iterator[pa.RecordBatch]:
        """End the log at an offset; if its newest segment begins there, the next run reads no earlier segment."""
        if offset >= (self.state.log_end_offset or 0):
            before = [each for each in self.tail if not _is_read_again(each.file, offset)]
            self.tail = [each for each in self.tail if _is_read_again(each.file, offset)]
            if self.expected is not None and offset > self.expected:
                is_damaged = bool(before)
                yield from self._follow(missing_between(self.expected, offset, cleaned=cleaned, is_damaged=is_damaged))
            yield from self._damage(before, is_final=True)
            self.state.log_end_offset = self.expected = offset

    def _damage(self, errors: Sequence[ReadError], *, is_final: bool) -> Iterator[pa.RecordBatch]:
        if not errors:
            return
        state = self.state
        self.is_damaged |= any(not each.damage.is_torn for each in errors)
        state.is_damaged |= is_final and self.is_damaged
        self.is_unread |= any(each.damage.is_unreadable for each in errors)
        self.damaged_segments |= damaged_segments(errors)
        log_id = LogId(topic=state.topic, partition=state.partition, broker_id=state.broker_id)
        yield from self._log_transactions(error_table(errors, log_id), is_final=is_final)

    def _log_transactions(self, log_transactions: pa.Table, *, is_final: bool) -> Iterator[pa.RecordBatch]:
        if log_transactions.num_rows:
            yield stage_rows(LOG_TRANSACTIONS.name, log_transactions, log=self.name, is_final=is_final)

    def _steps(self, steps: Any, *, is_final: bool) -> Iterator[pa.RecordBatch]:
        if len(steps):
            state = self.state
            table = lso_table(steps, topic=state.topic, partition=state.partition, broker_id=state.broker_id)
            yield stage_rows("lso_timeline", table, log=self.name, is_final=is_final)


def _is_read_again(file: str | None, offset: int) -> bool:
    """Whether a run that continues at an offset reads this file: a segment from that offset on, or another file."""
    base_offset = segment_base_offset(file)
    return base_offset is None or base_offset >= offset
