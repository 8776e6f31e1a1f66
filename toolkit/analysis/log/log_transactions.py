"""Transactions of a partition, rebuilt from its batches as partial results that merge.

A partition may be read at once, file by file or chunk by chunk, in one process or in many: partial results, merged in
the order of the log, give the same rows, wherever the log is split and in whatever order they are merged.

A transaction is what it is for the broker (``ProducerStateManager``, ``ProducerAppendInfo``): it reaches from a
producer's first transactional batch to its next marker, whatever the epochs. Transaction version 2 writes epoch + 1 in
its markers (KIP-890), and a batch of a newer epoch inside an open transaction does not end it.

What compaction removed cannot be rebuilt: without its marker, a transaction and the producer's next one are one row;
without its data, a marker looks like that of an empty transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from toolkit.errors import UsageError
from toolkit.formats.columns import arrow_table, labels, numbers, times
from toolkit.formats.log.batches import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.log.headers import (
    ABORT,
    COMMIT,
    UNREAD_MARKER,
    Array,
    HeaderField,
    Headers,
    StructuredArray,
    take_rows,
)
from toolkit.schema import LOG_TRANSACTIONS

LOG_TRANSACTION = np.dtype(
    [
        ("producer_id", "i8"),
        ("first_offset", "i8"),
        ("last_offset", "i8"),
        ("marker_offset", "i8"),
        ("first_batch_end", "i8"),  # log end offset right after the first batch
        ("start", "i8"),  # ms
        ("end", "i8"),  # ms
        ("batches", "i8"),
        ("records", "i8"),
        ("bytes", "i8"),
        ("position", "i8"),  # of the first batch that was read, otherwise of the marker
        ("file", "i4"),  # file_id of that batch or marker; 0, the first, if neither was read
        ("coordinator_epoch", "i4"),
        ("first_sequence", "i4"),
        ("last_sequence", "i4"),
        ("producer_epoch", "i2"),
        ("first_epoch", "i2"),
        ("marker_epoch", "i2"),
        ("marker", "i1"),  # COMMIT, ABORT, UNREAD_MARKER; -1 while it is open
        ("outcome", "i1"),  # COMMIT, ABORT, OPEN, NO_DATA; UNREAD_MARKER or LOST if unknown
        ("start_clock", "i1"),  # 1 broker (LogAppendTime), 0 producer (CreateTime)
        ("truncated", "i1"),  # 1 begins before the range read, 0 begins in it, -1 unknown
    ]
)
"""One row per transaction, as `schema.LOG_TRANSACTIONS`; -1 is unknown."""
LogTransactionField = Literal[
    "producer_id",
    "first_offset",
    "last_offset",
    "marker_offset",
    "first_batch_end",
    "start",
    "end",
    "batches",
    "records",
    "bytes",
    "position",
    "file",
    "coordinator_epoch",
    "first_sequence",
    "last_sequence",
    "producer_epoch",
    "first_epoch",
    "marker_epoch",
    "marker",
    "outcome",
    "start_clock",
    "truncated",
]
"""The fields of `LOG_TRANSACTION`, for mypy."""

OPEN, NO_DATA = 2, 3
LOST = -3  # its end may be among missing offsets
OUTCOMES = ("abort", "commit", "open", "empty")
"""Names of the outcomes, at the indices ABORT, COMMIT, OPEN and NO_DATA."""

LogTransactions: TypeAlias = StructuredArray[LogTransactionField]
"""A structured array of `LOG_TRANSACTION`."""

NO_LOG_TRANSACTIONS: LogTransactions = np.zeros(0, LOG_TRANSACTION)
NO_MARKER_TYPE = "NO_MARKER_TYPE: The marker was read without its record, so it may be COMMIT or ABORT."
END_NOT_READ = "OFFSETS_LOST: Its end may be among offsets after it that could not be read."
MARKER_NAMES = ("ABORT", "COMMIT")
CLOCKS = ("producer", "broker")
MAX_SEQUENCE = 2**31 - 1
BATCH_AMOUNTS: dict[LogTransactionField, HeaderField] = {"records": "record_count", "bytes": "size"}
SUMS: tuple[LogTransactionField, ...] = ("batches", "records", "bytes")
OF_LAST_DATA: tuple[LogTransactionField, ...] = ("last_offset", "last_sequence", "producer_epoch")
OF_MARKER: tuple[LogTransactionField, ...] = ("marker_offset", "marker_epoch", "coordinator_epoch", "marker", "end")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartialTransactions:
    """The transactions in a range of one partition's log.

    They are a monoid: ``left + right`` is associative, and `EMPTY` changes nothing.
    """

    closed: tuple[LogTransactions, ...] = ()  # transactions that begin and end in the range, in no order
    # transactions that may continue on either side: of each producer those up to its first marker (``truncated`` -1)
    # and after its last one. Sorted by producer id
    edges: LogTransactions = field(default_factory=lambda: NO_LOG_TRANSACTIONS)
    # whether the transactions open before the range are known, because it came from `begin`: then nothing can be merged
    # to its left
    settled: bool = False

    def __add__(self, right: PartialTransactions) -> PartialTransactions:
        """The transactions of both ranges, `right` directly after this one."""
        return merge(self, right)

    def take_closed(self) -> tuple[LogTransactions, PartialTransactions]:
        """The finished transactions, in no order, and the rest.

        This bounds the memory for a long log: the rest grows with the number of open transactions after `begin`,
        otherwise with the number of producers.
        """
        return _joined(self.closed), PartialTransactions(edges=self.edges, settled=self.settled)


EMPTY = PartialTransactions()
"""The transactions of no batches."""


def partial_transactions(headers: Headers, *, file_id: int = 0) -> PartialTransactions:
    """The transactions of consecutive batches of one partition.

    `headers`: structured array of `headers.HEADER` in the order of the log. Batches that are neither transactional nor
        a COMMIT or ABORT marker are skipped. Pass thousands at once: a call takes about 0.2 ms even for a few.
    `file_id`: number of the file they were read from, for the column ``file``.
    """
    ends = markers(headers)
    data = (headers["attributes"] & (CONTROL | TRANSACTIONAL)) == TRANSACTIONAL
    producers = headers["producer_id"].copy()  # contiguous, for a faster sort
    rows = np.flatnonzero((ends | data) & (producers >= 0))
    if rows.size == 0:
        return EMPTY
    rows = rows[np.argsort(producers[rows], kind="stable")]
    groups = _groups(producers[rows], ends[rows])
    log_transactions = _from_headers(headers, rows, ends=ends, groups=groups)
    log_transactions["file"] = file_id
    log_transactions["truncated"] = np.where(groups.of_new_producer, -1, 0)
    return _split(log_transactions)


def merge(*partials: PartialTransactions) -> PartialTransactions:
    """Merge the transactions of consecutive ranges, in the order of the log; many at once cost one sort.

    Raises UsageError if a range that came from `begin` follows another one.
    """
    partials = tuple(each for each in partials if each.closed or each.edges.size or each.settled)
    if len(partials) < 2:
        return partials[0] if partials else EMPTY
    if any(each.settled for each in partials[1:]):
        raise UsageError(
            "The transactions that begin the log cannot follow others.", do="Merge partial transactions in log order."
        )
    settled = partials[0].settled
    closed = tuple(log_transactions for each in partials for log_transactions in each.closed)
    edges = _joined([each.edges for each in partials])
    if edges.size == 0:
        return PartialTransactions(closed=closed, settled=settled)
    edges = take_rows(edges, np.argsort(edges["producer_id"], kind="stable"))
    groups = _groups(edges["producer_id"], edges["marker_offset"] >= 0)
    log_transactions = _from_edges(edges, groups)
    begins_in_range = (log_transactions["truncated"] == -1) & (settled | ~groups.of_new_producer)
    log_transactions["truncated"][begins_in_range] = 0
    merged = _split(log_transactions)
    return PartialTransactions(closed=closed + merged.closed, edges=merged.edges, settled=settled)


def begin(*, opened_before: Mapping[int, tuple[int, int]] | None = None) -> PartialTransactions:
    """The left end of a log: the transactions that are open before its first batch.

    `opened_before`: start offset and producer epoch of every transaction that is open where the first range begins, by
    producer id; by default there is none. The epoch becomes the ``first_epoch``, although the first batches may have an
    older one.
    """
    opened = opened_before or {}
    log_transactions: LogTransactions = np.full(len(opened), -1, LOG_TRANSACTION)
    for name in SUMS:
        log_transactions[name] = 0
    log_transactions["producer_id"] = list(opened)
    log_transactions["first_offset"] = [start for start, _ in opened.values()]
    log_transactions["first_epoch"] = log_transactions["producer_epoch"] = [epoch for _, epoch in opened.values()]
    log_transactions["truncated"] = 1
    log_transactions["outcome"] = OPEN
    log_transactions["file"] = 0
    return PartialTransactions(
        edges=take_rows(log_transactions, np.argsort(log_transactions["producer_id"], kind="stable")), settled=True
    )


def finish(
    partial_transactions: PartialTransactions,
    *,
    from_start: bool = False,
    opened_before: Mapping[int, tuple[int, int]] | None = None,
) -> LogTransactions:
    """Every transaction of a partition, from the merged transactions of all ranges read.

    Structured array of `LOG_TRANSACTION`, sorted by (first_offset, marker_offset), unknown ones last. ``truncated`` is
    -1 if neither the start of the log, nor a snapshot, nor an earlier batch of the producer decides it: a first marker
    without data may end an empty transaction, or one whose data was not read.
    `partial_transactions`: the merged transactions. If they came from `begin`, the other arguments are ignored.
    `from_start`: whether no batch precedes the first one: the log begins at offset 0.
    `opened_before`: start offset and producer epoch of the transactions open before the first batch, by producer id
        (from a ``.snapshot``); ``None`` if unknown. Each of them has a row, even if none of its batches was read.
    """
    if not partial_transactions.settled and (from_start or opened_before is not None):
        partial_transactions = merge(begin(opened_before=None if from_start else opened_before), partial_transactions)
    log_transactions = _joined((*partial_transactions.closed, partial_transactions.edges))
    # As unsigned integers, -1 (unknown) sorts last.
    keys = [log_transactions[name].astype(np.uint64) for name in ("marker_offset", "first_offset")]
    return take_rows(log_transactions, np.lexsort(keys))


def log_transaction_table(
    log_transactions: LogTransactions,
    *,
    topic: str | pa.Array | None,
    partition: int | pa.Array | None,
    broker_id: int | pa.Array | None = None,
    files: Sequence[str | None] = (None,),
) -> pa.Table:
    """Transactions as an Arrow table with exactly the columns of ``schema.LOG_TRANSACTIONS``, in unchanged order.

    `log_transactions`: from `finish`.
    `topic`, `partition`, `broker_id`: location of the log: one value for all rows, or an Arrow array with one value per
        row; null if unknown.
    `files`: the file of each ``file_id``.
    """
    columns = {
        name: numbers(log_transactions[name])
        for name in get_args(LogTransactionField)
        if name in LOG_TRANSACTIONS.names
    }
    return arrow_table(
        LOG_TRANSACTIONS,
        columns
        | {
            "topic": topic,
            "partition": partition,
            "broker_id": broker_id,
            "first_batch_last_offset": numbers(log_transactions["first_batch_end"] - 1),
            "outcome": labels(log_transactions["outcome"], OUTCOMES),
            "marker": labels(log_transactions["marker"], MARKER_NAMES),
            "start": times(log_transactions["start"]),
            "start_clock": labels(log_transactions["start_clock"], CLOCKS),
            "end": times(log_transactions["end"]),
            "truncated": numbers(log_transactions["truncated"] == 1, null=log_transactions["truncated"] < 0),
            "file": labels(log_transactions["file"], files),
            "error": labels(_errors(log_transactions), (NO_MARKER_TYPE, END_NOT_READ)),
        },
        rows=len(log_transactions),
    )


def lose_open(log_transactions: LogTransactions) -> LogTransactions:
    """The transactions before missing offsets: those that are open may have ended there."""
    lost = log_transactions.copy()
    lost["outcome"][lost["outcome"] == OPEN] = LOST
    return lost


def markers(headers: Headers) -> Array:
    """Which batches end a transaction: COMMIT, ABORT, and control batches whose record was not read.

    An empty control batch does not: the cleaner leaves it where it removed a complete transaction.
    """
    ends = np.zeros(len(headers), np.bool_)
    control = np.flatnonzero(headers["attributes"] & CONTROL)
    marker, count = headers["marker"][control], headers["record_count"][control]
    ends[control] = (count != 0) & ((marker == COMMIT) | (marker == ABORT) | (marker == UNREAD_MARKER))
    return ends


def last_sequences(headers: Headers) -> Array:
    """Sequence number of the last record of each batch; -1 if it has none (``DefaultRecordBatch.lastSequence``)."""
    base = headers["base_sequence"]
    last = base + (headers["last_offset"] - headers["base_offset"])
    wrapped = np.where(last > MAX_SEQUENCE, last - MAX_SEQUENCE - 1, last)
    return np.where(base < 0, -1, wrapped)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _RowGroups:
    """Groups of consecutive rows, in rows sorted by producer."""

    first: Array  # index of each group's first row
    last: Array  # and of its last row, which is the marker if there is one
    of_new_producer: Array  # whether the rows before the group are another producer's


def _groups(producers: Array, ends: Array) -> _RowGroups:
    """A group ends at a marker or at its producer's last row."""
    other = producers[1:] != producers[:-1]
    first = np.flatnonzero(np.concatenate(([True], other | ends[:-1])))
    of_new_producer = np.concatenate(([True], other[first[1:] - 1]))
    return _RowGroups(first=first, last=np.append(first[1:], len(producers)) - 1, of_new_producer=of_new_producer)


def _from_headers(headers: Headers, order: Array, *, ends: Array, groups: _RowGroups) -> LogTransactions:
    """One transaction for each group of batches; `order` holds their indices, sorted by producer."""
    log_transactions: LogTransactions = np.full(len(groups.first), -1, LOG_TRANSACTION)
    ended = ends[order[groups.last]]
    first, last_data = take_rows(headers, order[groups.first]), groups.last - ended
    log_transactions["producer_id"], log_transactions["position"] = first["producer_id"], first["position"]
    log_transactions["batches"] = last_data - groups.first + 1

    for name, counted in BATCH_AMOUNTS.items():
        amounts = headers[counted].astype(np.int64)[order]
        log_transactions[name] = np.add.reduceat(amounts, groups.first) - np.where(ended, amounts[groups.last], 0)

    full = np.flatnonzero(log_transactions["batches"])
    first, last = take_rows(first, full), take_rows(headers, order[last_data[full]])
    log_transactions["first_offset"][full] = first["base_offset"]
    log_transactions["last_offset"][full] = last["last_offset"]
    log_transactions["first_batch_end"][full] = first["last_offset"] + 1
    log_transactions["first_epoch"][full] = first["producer_epoch"]
    log_transactions["producer_epoch"][full] = last["producer_epoch"]
    log_transactions["first_sequence"][full] = first["base_sequence"]
    log_transactions["last_sequence"][full] = last_sequences(last)
    # The maximum timestamp if the header no longer has the time of the first record.
    lost = ((first["attributes"] & (LOG_APPEND_TIME | DELETE_HORIZON)) != 0) | (first["base_timestamp"] < 0)
    log_transactions["start"][full] = np.where(lost, first["max_timestamp"], first["base_timestamp"])
    log_transactions["start_clock"][full] = (first["attributes"] & LOG_APPEND_TIME) != 0

    ended = np.flatnonzero(ended)
    markers = take_rows(headers, order[groups.last[ended]])
    log_transactions["marker_offset"][ended] = markers["base_offset"]
    log_transactions["end"][ended] = markers["max_timestamp"]
    log_transactions["marker"][ended] = markers["marker"]
    log_transactions["marker_epoch"][ended] = markers["producer_epoch"]
    log_transactions["coordinator_epoch"][ended] = markers["coordinator_epoch"]
    log_transactions["producer_epoch"] = np.where(
        log_transactions["batches"] > 0, log_transactions["producer_epoch"], log_transactions["marker_epoch"]
    )
    log_transactions["outcome"] = _outcomes(log_transactions)
    return log_transactions


def _from_edges(edges: LogTransactions, groups: _RowGroups) -> LogTransactions:
    """One transaction for each group of edges, which are sorted by producer; only the last of a group may lack data."""
    log_transactions = take_rows(edges, groups.first)
    last_data = np.maximum(groups.last - (edges["first_offset"][groups.last] < 0), groups.first)
    for name in SUMS:
        log_transactions[name] = np.add.reduceat(edges[name], groups.first)
    for name in OF_LAST_DATA:
        log_transactions[name] = edges[name][last_data]
    for name in OF_MARKER:
        log_transactions[name] = edges[name][groups.last]
    unread = (
        (edges["batches"][groups.first] == 0) & (log_transactions["first_offset"] >= 0) & (groups.last > groups.first)
    )
    for name in ("position", "file"):
        log_transactions[name][unread] = edges[name][groups.first[unread] + 1]
    log_transactions["outcome"] = _outcomes(log_transactions)
    return log_transactions


def _split(log_transactions: LogTransactions) -> PartialTransactions:
    closed = (log_transactions["marker_offset"] >= 0) & (log_transactions["truncated"] != -1)
    return PartialTransactions(
        closed=(take_rows(log_transactions, np.flatnonzero(closed)),),
        edges=take_rows(log_transactions, np.flatnonzero(~closed)),
    )


def _errors(log_transactions: LogTransactions) -> Array:
    without_type = np.where(log_transactions["marker"] == UNREAD_MARKER, 0, -1)
    return np.where(log_transactions["outcome"] == LOST, 1, without_type)


def _outcomes(log_transactions: LogTransactions) -> Array:
    ended = np.where(log_transactions["first_offset"] < 0, NO_DATA, log_transactions["marker"])
    return np.where(log_transactions["marker_offset"] < 0, OPEN, ended)


def _joined(parts: tuple[LogTransactions, ...] | list[LogTransactions]) -> LogTransactions:
    return np.concatenate(parts) if parts else NO_LOG_TRANSACTIONS
