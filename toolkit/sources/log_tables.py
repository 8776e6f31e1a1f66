"""Tables of a partition's log from its chunks, of files or of a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from toolkit.analysis.log.log_transactions import (
    EMPTY,
    LogArray,
    LogTransactions,
    PartialTransactions,
    RunningTotals,
    Statistics,
    finish,
    log_transaction_table,
    lose_open,
    lso_steps,
    lso_table,
    merge,
    partial_transactions,
    statistics,
)
from toolkit.formats.headers import DamagedRange, Headers, LogChunk, LostOffsets, header_table
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, LSO_TIMELINE
from toolkit.schema.log import Batch, LogTransaction, LsoStep
from toolkit.schema.table import LogId

ROWS_AT_ONCE = 1 << 16


class ReadError(NamedTuple):
    """What could not be read of a log: an error row of its tables."""

    file: str | None
    position: int | None
    error: str
    size: int | None = None  # in bytes

    @classmethod
    def of(cls, damage: DamagedRange, file: str | None) -> ReadError:
        """Damage of a chunk; in a response, which has no file, positions mean nothing."""
        position, size = (None, None) if file is None else (damage.position, damage.size)
        return cls(file, position, damage.reason, size)

    @property
    def damage(self) -> DamagedRange:
        """The unreadable bytes, of which there are none where their number is not known."""
        return DamagedRange(self.position or 0, self.size or 0, self.error)


class FoldedRange(NamedTuple):
    """The transactions of a range of a log before missing offsets."""

    start: int | None  # where the range begins: after the last offset of the one before it; null for the first one
    # the transactions; those that may have ended after the range have the outcome `log_transactions.LOST`
    log_transactions: LogTransactions


@dataclass(slots=True, kw_only=True, eq=False)
class LogFold:
    """The fold of a log's chunks, in their order."""

    # transactions so far; at first those known before the first chunk (`log_transactions.begin`), or `EMPTY`
    partial: PartialTransactions = EMPTY
    since: int = 0  # first offset whose transactions are folded
    # counts records and bytes at the first batch and at the marker of each transaction; null to count none
    totals: RunningTotals | None = None
    files: dict[str | None, int] = field(default_factory=dict)  # the number of each file in `partial`
    damage: list[ReadError] = field(default_factory=list)  # unreadable bytes, and missing offsets
    damage_inside: int = 0  # number of those before the last batch
    # log_end_offset, end_time, leader_epoch: of the last batch; 0 and -1 without any
    log_end_offset: int = 0
    end_time: int = -1
    leader_epoch: int = -1
    highest_epoch: int = -1  # highest leader epoch
    # the ranges before missing offsets; `partial` is the rest
    before_missing: list[FoldedRange] = field(default_factory=list)
    start: int | None = None  # where the rest begins, as in `FoldedRange`

    def add(self, chunk: LogChunk) -> None:
        """Add the next chunk; at missing offsets, the open transactions are lost."""
        if chunk.missing is not None:
            self._lose(chunk.missing)
        headers, file = chunk.headers, chunk.file
        file_id = self.files.setdefault(file, len(self.files))
        if len(headers):
            position = headers["position"][-1]
            headers = placed(headers, file)
            self.damage_inside = len(self.damage) + sum(each.position < position for each in chunk.damage)
            self.log_end_offset = max(self.log_end_offset, int(headers["last_offset"].max()) + 1)
            self.end_time = int(headers["max_timestamp"][-1])
            self.leader_epoch = int(headers["leader_epoch"][-1])
            self.highest_epoch = max(self.highest_epoch, int(headers["leader_epoch"].max()))
            found = partial_transactions(from_offset(headers, self.since), file_id=file_id)
            if self.totals is not None:
                parts = (*found.closed, found.edges)
                bounds = [each[name] for each in parts for name in ("first_offset", "marker_offset")]
                self.totals.add(headers, np.concatenate(bounds))
            self.partial = merge(self.partial, found)
        self.damage += [ReadError.of(each, file) for each in chunk.damage]

    @property
    def file_names(self) -> tuple[str | None, ...]:
        """The file of each number."""
        return tuple(self.files) or (None,)

    @property
    def closed_rows(self) -> int:
        """Number of finished transactions that were not taken."""
        return sum(map(len, (*self.partial.closed, *(each.log_transactions for each in self.before_missing))))

    def take_closed(self) -> LogTransactions:
        """The finished transactions since the last call."""
        closed, self.partial = self.partial.take_closed()
        if self.before_missing:
            closed = np.concatenate([*(each.log_transactions for each in self.before_missing), closed])
            self.before_missing = []
        return closed

    def finish(self) -> list[FoldedRange]:
        """The transactions of each range, divided by missing offsets."""
        return [*self.before_missing, FoldedRange(self.start, finish(self.partial))]

    def _lose(self, missing: LostOffsets) -> None:
        self.before_missing.append(FoldedRange(self.start, lose_open(finish(self.partial))))
        self.partial, self.start = EMPTY, missing.expected
        if missing.error is not None:
            self.damage.append(ReadError(None, None, missing.error))
        self.damage_inside = len(self.damage)


def placed(headers: Headers, file: str | None) -> Headers:
    """Headers, without positions if they are of a response, in which these mean nothing."""
    if file is None:
        headers = headers.copy()
        headers["position"] = -1
    return headers


def from_offset(headers: Headers, offset: int) -> Headers:
    """The batches that begin at or after an offset; a copy only if they are not all."""
    return headers if headers["base_offset"][0] >= offset else headers[headers["base_offset"] >= offset]


def batch_tables(chunks: Iterable[LogChunk], log_id: LogId, *, producer_id: int | None = None) -> Iterator[pa.Table]:
    """Batches, and rows for damaged bytes, as tables of ``schema.BATCHES``, per chunk.

    `chunks`: of one partition, in log order.
    `log_id`: columns of every row.
    `producer_id`: only batches of this producer, and damage.
    """
    for chunk in chunks:
        headers, file = placed(chunk.headers, chunk.file), chunk.file
        if producer_id is not None:
            headers = headers[headers["producer_id"] == producer_id]
        if len(headers):
            yield header_table(headers, log_id, file=file)
        if chunk.damage:
            yield damage_table([ReadError.of(each, file) for each in chunk.damage], log_id)


def log_transaction_tables(
    chunks: Iterable[LogChunk], log_id: LogId, *, before: PartialTransactions = EMPTY, producer_id: int | None = None
) -> Iterator[pa.Table]:
    """Tables of ``schema.LOG_TRANSACTIONS``: ended transactions, then open ones, then damage.

    `chunks`, `log_id`, `producer_id`: as for `batch_tables`.
    `before`: state before the first chunk; `log_transactions.begin` at the start of a log. Unknown by default.
    """
    fold = LogFold(partial=before)
    for found in _folded(fold, chunks):
        own = found if producer_id is None else found[found["producer_id"] == producer_id]
        yield log_transaction_table(LogArray(own, log_id, fold.file_names))
    if fold.damage:
        yield error_table(fold.damage, log_id)


def damage_table(errors: Iterable[ReadError], log_id: LogId) -> pa.Table:
    """What could not be read of a log, as ``schema.BATCHES``."""
    columns = log_id.columns
    return BATCHES.arrow(
        Batch(**columns, file=each.file, position=each.position, size=each.size, error=each.error) for each in errors
    )


def error_table(errors: Iterable[ReadError], log_id: LogId) -> pa.Table:
    """What could not be read of a log, as ``schema.LOG_TRANSACTIONS``."""
    columns = log_id.columns
    return LOG_TRANSACTIONS.arrow(
        LogTransaction(**columns, file=each.file, position=each.position, error=each.error) for each in errors
    )


def log_statistics(chunks: Iterable[LogChunk], *, before: PartialTransactions = EMPTY) -> tuple[Statistics, list[str]]:
    """Transaction statistics of a log, and its read errors. `chunks`, `before`: as for `log_transaction_tables`."""
    fold = LogFold(partial=before)
    total = sum(map(statistics, _folded(fold, chunks)), Statistics())
    return total, [each.error for each in fold.damage]


def lso_timeline_tables(
    chunks: Iterable[LogChunk], log_id: LogId, *, before: PartialTransactions = EMPTY, log_end_offset: int | None = None
) -> tuple[pa.Table, pa.Table]:
    """Every step of the LSO as ``schema.LSO_TIMELINE``, and the rows from which on it is not known.

    `chunks`, `log_id`, `before`: as for `log_transaction_tables`.
    `log_end_offset`: for a log without batches; by default the offset after the last batch.
    """
    fold, unread = LogFold(partial=before), list[tuple[int, str]]()
    for chunk in chunks:
        if chunk.missing is not None:
            unread.append((chunk.missing.expected, chunk.missing.reason))
        fold.add(chunk)
    end = fold.log_end_offset if log_end_offset is None else max(log_end_offset, fold.log_end_offset)
    *earlier, last = fold.finish()
    steps = [lso_steps(each.log_transactions, log_end_offset=None, start=each.start) for each in earlier]
    steps.append(lso_steps(last.log_transactions, log_end_offset=end, end_time=fold.end_time, start=last.start))
    at_end = (each.error for each in fold.damage[fold.damage_inside :] if not each.damage.is_torn)
    unread += [(end, error) for error in islice(at_end, 1)]  # after the last batch, where more may follow
    errors = [LsoStep(**log_id.columns, offset=offset, error=error) for offset, error in unread]
    return lso_table(*(LogArray(each, log_id) for each in steps)), LSO_TIMELINE.arrow(errors)


def _folded(fold: LogFold, chunks: Iterable[LogChunk]) -> Iterator[LogTransactions]:
    """The ended transactions of a log, many at once, then all others."""
    for chunk in chunks:
        fold.add(chunk)
        if fold.closed_rows >= ROWS_AT_ONCE:
            yield fold.take_closed()
    yield from (each.log_transactions for each in fold.finish())
