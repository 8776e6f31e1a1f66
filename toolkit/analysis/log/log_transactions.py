"""Transactions of a partition rebuilt from its batches, in pieces that merge.

A partition may be read whole, file by file or chunk by chunk, in one process or in many: the pieces of its parts,
merged in the order of the log, give the same rows whatever the cuts and whatever is merged first.

What belongs together is what the broker holds together (``ProducerStateManager``, ``ProducerAppendInfo``): from a
producer's first transactional batch to its next marker, whatever the epochs. Transaction version 2 writes epoch + 1 in
its markers (KIP-890), and a batch of a newer epoch inside an open transaction does not end it.

What a compacted log no longer has cannot be rebuilt: where a marker is gone, two transactions of a producer are one
row; where the data is gone, its marker looks like that of an empty transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from toolkit.analysis.log.stable_sort import run_starts, stable_order, take_rows
from toolkit.errors import UsageError
from toolkit.formats.columns import arrow_table, labels, numbers, times
from toolkit.formats.log.batches import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.log.headers import ABORT, COMMIT, UNREAD_MARKER, Array, Headers
from toolkit.schema import LOG_TRANSACTIONS

__all__ = [
    "EMPTY",
    "LOG_TRANSACTION",
    "NO_DATA",
    "OPEN",
    "OUTCOMES",
    "LogTransactions",
    "PartialTransactions",
    "begin",
    "finish",
    "last_sequences",
    "log_transaction_table",
    "markers",
    "merge",
    "partial_transactions",
]

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
        ("position", "i8"),  # of the first batch that was read, else of the marker
        ("file", "i4"),  # its file_id; 0, the first, where nothing of it was read
        ("coordinator_epoch", "i4"),
        ("first_sequence", "i4"),
        ("last_sequence", "i4"),
        ("producer_epoch", "i2"),
        ("first_epoch", "i2"),
        ("marker_epoch", "i2"),
        ("marker", "i1"),  # COMMIT, ABORT, UNREAD_MARKER; -1 while it is open
        ("outcome", "i1"),  # COMMIT, ABORT, OPEN, NO_DATA; UNREAD_MARKER where its end is not known
        ("start_clock", "i1"),  # 1 broker (LogAppendTime), 0 producer (CreateTime)
        ("truncated", "i1"),  # 1 begins before what was read, 0 begins in it, -1 not known
    ]
)
"""One row per transaction, as `schema.LOG_TRANSACTIONS`; -1 is unknown."""

OPEN, NO_DATA = 2, 3
OUTCOMES = ("abort", "commit", "open", "empty")
"""Name of each outcome: at the indices ABORT, COMMIT, OPEN and NO_DATA."""

LogTransactions = Array
"""A structured array of `LOG_TRANSACTION`."""

NO_LOG_TRANSACTIONS: LogTransactions = np.zeros(0, LOG_TRANSACTION)
NO_MARKER_TYPE = "NO_MARKER_TYPE: The marker was read without its record, so commit or abort is not known."
MARKER_NAMES = ("ABORT", "COMMIT")
CLOCKS = ("producer", "broker")
MAX_SEQUENCE = 2**31 - 1
SUMS = ("batches", "records", "bytes")
AS_IN_TABLE = (
    *("producer_id", "first_offset", "last_offset", "marker_offset", "position", "coordinator_epoch", "first_sequence"),
    *("last_sequence", "producer_epoch", "first_epoch", "marker_epoch", "truncated"),
)
OF_LAST_DATA = ("last_offset", "last_sequence", "producer_epoch")
OF_MARKER = ("marker_offset", "marker_epoch", "coordinator_epoch", "marker", "end")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartialTransactions:
    """The transactions in a range of one partition's log.

    Pieces are a monoid: ``left + right`` is associative, and `EMPTY` changes nothing.

    Parameters
    ----------
    closed
        Transactions that begin and end in it, in no order.
    edges
        Transactions that may continue on either side: of each producer those up to its first marker (``truncated`` -1)
        and after its last one. Sorted by producer id.
    settled
        Whether what came before it is known, so that nothing can be joined to its left: it came from `begin`.
    """

    closed: tuple[LogTransactions, ...] = ()
    edges: LogTransactions = field(default_factory=lambda: NO_LOG_TRANSACTIONS)
    settled: bool = False

    def __add__(self, right: PartialTransactions) -> PartialTransactions:
        """The piece of both ranges, `right` directly after this one."""
        return merge(self, right)

    def take_closed(self) -> tuple[LogTransactions, PartialTransactions]:
        """The transactions that are finished, in no order, and a piece of all the rest.

        What keeps memory bounded while a long log streams by: begun by `begin`, the rest is as large as the number of
        open transactions; otherwise as the number of producers.
        """
        return _joined(self.closed), PartialTransactions(edges=self.edges, settled=self.settled)


EMPTY = PartialTransactions()
"""The piece of no batches."""


def partial_transactions(headers: Headers, *, file_id: int = 0) -> PartialTransactions:
    """The piece of some batches of one partition.

    Parameters
    ----------
    headers
        Structured array of `headers.HEADER` in the order of the log. Batches that are neither part of
        a transaction nor a COMMIT or ABORT marker are passed over. Thousands at once are quickest: a call takes about
        0.2 ms even for a few.
    file_id
        A number for the file they were read from, which comes back in the column ``file``.
    """
    ends = markers(headers)
    data = (headers["attributes"] & (CONTROL | TRANSACTIONAL)) == TRANSACTIONAL
    producers = headers["producer_id"].copy()  # side by side, which the sort below is glad of
    rows = np.flatnonzero((ends | data) & (producers >= 0))
    if rows.size == 0:
        return EMPTY
    rows = rows[stable_order(producers[rows])]
    groups = _groups(producers[rows], ends[rows])
    log_transactions = _from_headers(headers, rows, ends=ends, groups=groups)
    log_transactions["file"] = file_id
    log_transactions["truncated"] = np.where(groups.of_new_producer, -1, 0)
    return _split(log_transactions)


def merge(*pieces: PartialTransactions) -> PartialTransactions:
    """The piece of consecutive ranges, in the order of the log; many at once cost one sort.

    Raises
    ------
    UsageError
        If a piece that came from `begin` has another one to its left.
    """
    pieces = tuple(each for each in pieces if each.closed or each.edges.size or each.settled)
    if len(pieces) < 2:
        return pieces[0] if pieces else EMPTY
    if any(each.settled for each in pieces[1:]):
        raise UsageError("A piece that begins the log cannot follow another one.", do="Merge pieces in log order.")
    settled = pieces[0].settled
    closed = tuple(log_transactions for each in pieces for log_transactions in each.closed)
    edges = _joined([each.edges for each in pieces])
    if edges.size == 0:
        return PartialTransactions(closed=closed, settled=settled)
    edges = take_rows(edges, stable_order(edges["producer_id"]))
    groups = _groups(edges["producer_id"], edges["marker_offset"] >= 0)
    log_transactions = _from_edges(edges, groups)
    begins_here = (log_transactions["truncated"] == -1) & (settled | ~groups.of_new_producer)
    log_transactions["truncated"][begins_here] = 0
    merged = _split(log_transactions)
    return PartialTransactions(closed=closed + merged.closed, edges=merged.edges, settled=settled)


def begin(*, opened_before: Mapping[int, tuple[int, int]] | None = None) -> PartialTransactions:
    """The left end of a log of which it is known what came before: nothing, or these open transactions.

    Parameters
    ----------
    opened_before
        Start offset and producer epoch of every transaction that is open where the first piece begins, by producer
        id; none if not given. That epoch becomes its ``first_epoch``: its first batches may be older yet.
    """
    opened = opened_before or {}
    log_transactions = np.full(len(opened), -1, LOG_TRANSACTION)
    for name in SUMS:
        log_transactions[name] = 0
    log_transactions["producer_id"] = list(opened)
    log_transactions["first_offset"] = [start for start, _ in opened.values()]
    log_transactions["first_epoch"] = log_transactions["producer_epoch"] = [epoch for _, epoch in opened.values()]
    log_transactions["truncated"] = 1
    log_transactions["outcome"] = OPEN
    log_transactions["file"] = 0
    return PartialTransactions(
        edges=take_rows(log_transactions, stable_order(log_transactions["producer_id"])), settled=True
    )


def finish(
    partial_transactions: PartialTransactions,
    *,
    from_start: bool = False,
    opened_before: Mapping[int, tuple[int, int]] | None = None,
) -> LogTransactions:
    """Every transaction of a partition, from the merged piece of all that was read.

    Parameters
    ----------
    piece
        The merged piece. One that came from `begin` knows what was before it; the other arguments do not count then.
    from_start
        Whether nothing precedes the first batch: the log begins at offset 0.
    opened_before
        Start offset and producer epoch of the transactions that were open where the first batch stands, by producer id
        (from a ``.snapshot``); ``None`` if that is not known. Those of which nothing was read are rows too.

    Returns
    -------
    numpy.ndarray
        Structured array of `LOG_TRANSACTION`, sorted by (first_offset, marker_offset), unknown ones last. ``truncated``
        is -1 where neither the start of the log, nor a snapshot, nor an earlier batch of the producer tells: a first
        marker without data may be that of an empty transaction, or the end of one whose data was not read.
    """
    if not partial_transactions.settled and (from_start or opened_before is not None):
        partial_transactions = merge(begin(opened_before=None if from_start else opened_before), partial_transactions)
    log_transactions = _joined((*partial_transactions.closed, partial_transactions.edges))
    return take_rows(
        log_transactions,
        np.lexsort((_unknown_last(log_transactions["marker_offset"]), _unknown_last(log_transactions["first_offset"]))),
    )


def log_transaction_table(
    log_transactions: LogTransactions,
    *,
    topic: str | pa.Array | None,
    partition: int | pa.Array | None,
    broker_id: int | pa.Array | None = None,
    files: Sequence[str | None] = (None,),
) -> pa.Table:
    """LogTransactions as an Arrow table with exactly the columns of ``schema.LOG_TRANSACTIONS``, in the order given.

    Parameters
    ----------
    transactions
        What `finish` returned.
    topic, partition, broker_id
        Where they come from: one value for every row, or an Arrow array of one for each; null if not known.
    files
        The file of each ``file_id``.
    """
    columns = {
        name: numbers(log_transactions[name])
        for name in LOG_TRANSACTIONS.names
        if name in (LOG_TRANSACTION.names or ())
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
            "error": labels(np.where(log_transactions["marker"] == UNREAD_MARKER, 0, -1), (NO_MARKER_TYPE,)),
        },
        rows=len(log_transactions),
    )


def markers(headers: Headers) -> Array:
    """Which batches end a transaction: COMMIT, ABORT, and control batches whose record was not read.

    An empty control batch does not: it stands where the cleaner has taken a whole transaction out.
    """
    ends = np.zeros(len(headers), np.bool_)
    control = np.flatnonzero(headers["attributes"] & CONTROL)
    marker, count = headers["marker"][control], headers["record_count"][control]
    ends[control] = (count != 0) & ((marker == COMMIT) | (marker == ABORT) | (marker == UNREAD_MARKER))
    return ends


def last_sequences(headers: Headers) -> Array:
    """Sequence number of the last record of each batch; -1 where it has none (``DefaultRecordBatch.lastSequence``)."""
    base = headers["base_sequence"]
    last = base + (headers["last_offset"] - headers["base_offset"])
    wrapped = np.where(last > MAX_SEQUENCE, last - MAX_SEQUENCE - 1, last)
    return np.where(base < 0, -1, wrapped)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _RowGroups:
    """Groups of consecutive rows, in rows sorted by producer."""

    first: Array  # index of the first row of each
    last: Array  # and of the last, which is its marker if it has one
    of_new_producer: Array  # whether the rows before it are another producer's


def _groups(producers: Array, ends: Array) -> _RowGroups:
    """A group ends with a marker and with its producer."""
    other = producers[1:] != producers[:-1]
    first = run_starts(changes=other | ends[:-1])
    of_new_producer = np.concatenate(([True], other[first[1:] - 1]))
    return _RowGroups(first=first, last=np.append(first[1:], len(producers)) - 1, of_new_producer=of_new_producer)


def _from_headers(headers: Headers, order: Array, *, ends: Array, groups: _RowGroups) -> LogTransactions:
    """One transaction for each group of batches; `order` holds their indices, sorted by producer."""
    log_transactions = np.full(len(groups.first), -1, LOG_TRANSACTION)
    ended = ends[order[groups.last]]
    first, last_data = take_rows(headers, order[groups.first]), groups.last - ended
    log_transactions["producer_id"], log_transactions["position"] = first["producer_id"], first["position"]
    log_transactions["batches"] = last_data - groups.first + 1

    for name, counted in (("records", "record_count"), ("bytes", "size")):
        amounts = headers[counted].astype(np.int64)[order]
        log_transactions[name] = np.add.reduceat(amounts, groups.first) - np.where(ended, amounts[groups.last], 0)

    full = np.flatnonzero(log_transactions["batches"])
    first, last = take_rows(first, full), take_rows(headers, order[last_data[full]])
    log_transactions["first_offset"][full], log_transactions["last_offset"][full] = (
        first["base_offset"],
        last["last_offset"],
    )
    log_transactions["first_batch_end"][full] = first["last_offset"] + 1
    log_transactions["first_epoch"][full], log_transactions["producer_epoch"][full] = (
        first["producer_epoch"],
        last["producer_epoch"],
    )
    log_transactions["first_sequence"][full], log_transactions["last_sequence"][full] = (
        first["base_sequence"],
        last_sequences(last),
    )
    log_transactions["start"][full] = _starts(first)
    log_transactions["start_clock"][full] = (first["attributes"] & LOG_APPEND_TIME) != 0

    ended = np.flatnonzero(ended)
    markers = take_rows(headers, order[groups.last[ended]])
    log_transactions["marker_offset"][ended], log_transactions["end"][ended] = (
        markers["base_offset"],
        markers["max_timestamp"],
    )
    log_transactions["marker"][ended], log_transactions["marker_epoch"][ended] = (
        markers["marker"],
        markers["producer_epoch"],
    )
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


def _outcomes(log_transactions: LogTransactions) -> Array:
    ended = np.where(log_transactions["first_offset"] < 0, NO_DATA, log_transactions["marker"])
    return np.where(log_transactions["marker_offset"] < 0, OPEN, ended)


def _starts(headers: Headers) -> Array:
    """Time of the first record, as far as the header still has it."""
    attributes, base = headers["attributes"], headers["base_timestamp"]
    lost = ((attributes & (LOG_APPEND_TIME | DELETE_HORIZON)) != 0) | (base < 0)
    return np.where(lost, headers["max_timestamp"], base)


def _unknown_last(offsets: Array) -> Array:
    return np.where(offsets < 0, np.iinfo(np.int64).max, offsets)


def _joined(parts: tuple[LogTransactions, ...] | list[LogTransactions]) -> LogTransactions:
    return np.concatenate(parts) if parts else NO_LOG_TRANSACTIONS
