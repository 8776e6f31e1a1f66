"""Tables of a live partition's log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.analysis.log.log_transactions import EMPTY, begin
from toolkit.errors import BrokerError
from toolkit.formats.log.headers import Headers, LogChunk, concatenate
from toolkit.schema import BATCHES, LOG_TRANSACTIONS, Row
from toolkit.schema.table import Error
from toolkit.sources.live.logs.partition_log import FetchedChunk, FetchedRange
from toolkit.sources.log_tables import LogId, batch_tables, log_transaction_tables, lso_timeline_table

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 1 << 16


def batch_tables_of(log_range: FetchedRange, *, producer_id: int | None = None) -> Iterator[pa.Table]:
    """Batches, or a producer's, as ``schema.BATCHES``, in log order; error rows are last."""
    failures: list[Row] = []
    for broker_id, headers in _joined(log_range, failures):
        log_id = replace(_log_id(log_range), broker_id=broker_id)
        yield from batch_tables([LogChunk(headers=headers)], log_id, producer_id=producer_id)
    if failures:
        yield BATCHES.arrow(failures)


def log_transaction_tables_of(log_range: FetchedRange, *, producer_id: int | None = None) -> Iterator[pa.Table]:
    """Transactions, or a producer's, as ``schema.LOG_TRANSACTIONS``; error rows are last."""
    failures: list[Row] = []
    before = begin() if log_range.start == 0 else EMPTY
    chunks = scan_chunks(log_range, failures)
    yield from log_transaction_tables(chunks, _log_id(log_range), before=before, producer_id=producer_id)
    yield LOG_TRANSACTIONS.arrow(failures)


def lso_timeline_of(log_range: FetchedRange) -> pa.Table:
    """Every step of the LSO as ``schema.LSO_TIMELINE``.

    Raises BrokerError if part of the range could not be read: the timeline would be wrong after the gap.
    """
    failures: list[Row] = []
    before = begin() if log_range.start == 0 else EMPTY
    end = max(log_range.start, log_range.stop)
    table = lso_timeline_table(scan_chunks(log_range, failures), _log_id(log_range), before=before, log_end_offset=end)
    if failures:
        code, text = Error.of(failures[0]["error"])
        raise BrokerError(f"{log_range.tp} could not be read: {text.rstrip('.')}.", code=code)
    return table


def _joined(log_range: FetchedRange, failures: list[Row]) -> Iterator[tuple[int | None, Headers]]:
    """Headers per broker, many at once: small tables cost as much as large ones."""
    broker_id, headers, rows = log_range.broker_id, list[Headers](), 0
    for chunk in log_range.chunks:
        if chunk.broker_id != broker_id or rows >= ROWS_AT_ONCE:
            yield broker_id, concatenate(headers)
            broker_id, headers, rows = chunk.broker_id, [], 0
        headers.append(_headers(chunk))
        rows += len(chunk.headers)
        failures += _failures(log_range, chunk)
    yield broker_id, concatenate(headers)


def scan_chunks(log_range: FetchedRange, failures: list[Row]) -> Iterator[LogChunk]:
    """Batches in order; error rows are appended to `failures`."""
    for chunk in log_range.chunks:
        yield LogChunk(headers=_headers(chunk))
        failures += _failures(log_range, chunk)


def _headers(chunk: FetchedChunk) -> Headers:
    """Headers without positions, which are meaningless in a response."""
    headers = chunk.headers.copy()
    headers["position"] = -1
    return headers


def _failures(log_range: FetchedRange, chunk: FetchedChunk) -> list[Row]:
    errors = [damage.reason for damage in chunk.damage] + ([chunk.error] if chunk.error else [])
    return [{**_log_id(log_range).columns, "broker_id": chunk.broker_id, "error": error} for error in errors]


def _log_id(log_range: FetchedRange) -> LogId:
    return LogId(topic=log_range.tp.topic, partition=log_range.tp.partition, broker_id=log_range.broker_id)
