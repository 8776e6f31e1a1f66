"""Tables of a partition's log from its chunks, of files or of a broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from toolkit.analysis.log.log_transactions import (
    EMPTY,
    LogTransactions,
    PartialTransactions,
    finish,
    log_transaction_table,
    merge,
    partial_transactions,
)
from toolkit.analysis.log.lso_timeline import lso_steps, lso_table
from toolkit.analysis.log.transaction_statistics import NO_TRANSACTIONS, Statistics, statistics
from toolkit.formats.columns import damage_rows, header_table
from toolkit.formats.log.headers import ScanResult
from toolkit.schema import BATCHES, LOG_TRANSACTIONS

if TYPE_CHECKING:
    pass

ROWS_AT_ONCE = 1 << 16


class ScanChunk(NamedTuple):
    """A chunk of one partition's log, and its file; null if a broker sent it."""

    scanned: ScanResult
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogId:
    """The columns that identify a log on every row."""

    topic: str | None
    partition: int | None
    broker_id: int | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def columns(self) -> dict[str, Any]:
        return {"topic": self.topic, "partition": self.partition, "broker_id": self.broker_id}


def clip(chunks: Iterable[ScanChunk], *, start: int | None = None, stop: int | None = None) -> Iterator[ScanChunk]:
    """The batches with an offset in ``start <= offset < stop``; null means unbounded.

    Damage is kept unless neighbouring batches prove it outside the range. Nothing if `start` is after `stop`.
    """
    if start is not None and stop is not None and start > stop:
        return
    for chunk in chunks:
        headers, damage = chunk.scanned.headers, chunk.scanned.damage
        in_range = np.ones(len(headers), np.bool_)
        if start is not None:
            in_range &= headers["last_offset"] >= start
            before = headers["position"][headers["base_offset"] <= start]
            damage = tuple(item for item in damage if not (before > item.position).any())
        if stop is not None:
            in_range &= headers["base_offset"] < stop
            behind = headers["position"][headers["last_offset"] + 1 >= stop]
            damage = tuple(item for item in damage if not (behind < item.position).any())
        unchanged = bool(in_range.all()) and len(damage) == len(chunk.scanned.damage)
        yield (
            chunk
            if unchanged
            else chunk._replace(scanned=ScanResult(headers=headers[in_range], damage=damage, end=chunk.scanned.end))
        )


def batch_tables(chunks: Iterable[ScanChunk], log_id: LogId, *, producer_id: int | None = None) -> Iterator[pa.Table]:
    """Batches, and rows for damaged bytes, as tables of ``schema.BATCHES``, per chunk.

    Parameters
    ----------
    chunks
        Of one partition, in log order.
    log_id
        Columns of every row.
    producer_id
        Only batches of this producer, and damage.
    """
    for scanned, file in chunks:
        headers = scanned.headers
        if producer_id is not None:
            headers = headers[headers["producer_id"] == producer_id]
        if len(headers):
            yield header_table(headers, **log_id.columns, file=file)
        if scanned.damage:
            yield BATCHES.arrow(damage_rows(scanned.damage, **log_id.columns, file=file))


def log_transaction_tables(
    chunks: Iterable[ScanChunk], log_id: LogId, *, before: PartialTransactions = EMPTY, producer_id: int | None = None
) -> Iterator[pa.Table]:
    """Tables of ``schema.LOG_TRANSACTIONS``: ended transactions, then open ones, then damage.

    Parameters
    ----------
    chunks, log_id, producer_id
        As for `batch_tables`.
    before
        State before the first chunk; `log_transactions.begin` at the start of a log. Unknown by default.
    """
    log_scan = _LogScan(before)
    for chunk in chunks:
        log_scan.add(chunk)
        if log_scan.closed_rows >= ROWS_AT_ONCE:
            yield _log_transaction_table(log_scan.take_closed(), log_scan, log_id, producer_id)
    yield _log_transaction_table(log_scan.finish(), log_scan, log_id, producer_id)
    if log_scan.failures:
        yield LOG_TRANSACTIONS.arrow([log_id.columns | failure for failure in log_scan.failures])


def log_statistics(chunks: Iterable[ScanChunk], *, before: PartialTransactions = EMPTY) -> tuple[Statistics, list[str]]:
    """Transaction statistics of a log, and its read errors.

    Parameters
    ----------
    chunks, before
        As for `log_transaction_tables`.
    """
    log_scan = _LogScan(before)
    total = NO_TRANSACTIONS
    for chunk in chunks:
        log_scan.add(chunk)
        if log_scan.closed_rows >= ROWS_AT_ONCE:
            total += statistics(log_scan.take_closed())
    return total + statistics(log_scan.finish()), [failure["error"] for failure in log_scan.failures]


def lso_timeline_table(
    chunks: Iterable[ScanChunk],
    log_id: LogId,
    *,
    before: PartialTransactions = EMPTY,
    log_end_offset: int | None = None,
) -> pa.Table:
    """Every step of the LSO as ``schema.LSO_TIMELINE``; damage is skipped.

    Parameters
    ----------
    chunks, log_id, before
        As for `log_transaction_tables`.
    log_end_offset
        For a log without batches; by default the offset after the last batch.
    """
    log_scan = _LogScan(before)
    for chunk in chunks:
        log_scan.add(chunk)
    end = log_scan.log_end_offset if log_end_offset is None else max(log_end_offset, log_scan.log_end_offset)
    return lso_table(lso_steps(log_scan.finish(), log_end_offset=end, end_time=log_scan.end_time), **log_id.columns)


def _log_transaction_table(
    log_transactions: LogTransactions, log_scan: _LogScan, log_id: LogId, producer_id: int | None
) -> pa.Table:
    if producer_id is not None:
        log_transactions = log_transactions[log_transactions["producer_id"] == producer_id]
    return log_transaction_table(log_transactions, **log_id.columns, files=tuple(log_scan.files) or (None,))


@dataclass(slots=True)
class _LogScan:
    """Running state of a log scan: transactions, files, read errors."""

    partial: PartialTransactions
    files: dict[str | None, int] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    log_end_offset: int = 0
    end_time: int = -1

    def add(self, chunk: ScanChunk) -> None:
        headers, file = chunk.scanned.headers, chunk.file
        file_id = self.files.setdefault(file, len(self.files))
        self.partial = merge(self.partial, partial_transactions(headers, file_id=file_id))
        self.failures += [
            {"file": file, "position": item.position, "error": item.reason} for item in chunk.scanned.damage
        ]
        if len(headers):
            self.log_end_offset = int(headers["last_offset"][-1]) + 1
            self.end_time = int(headers["max_timestamp"][-1])

    @property
    def closed_rows(self) -> int:
        return sum(map(len, self.partial.closed))

    def take_closed(self) -> LogTransactions:
        closed, self.partial = self.partial.take_closed()
        return closed

    def finish(self) -> LogTransactions:
        return finish(self.partial)
