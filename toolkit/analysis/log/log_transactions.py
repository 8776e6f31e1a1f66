"""Transactions of a partition, its LSO and counts, rebuilt from its batches as partial results that merge.

A partition may be read at once, file by file or chunk by chunk, in one process or in many: partial results, merged in
the order of the log, give the same rows, wherever the log is split and in whatever order they are merged.

A transaction is what it is for the broker (``ProducerStateManager``, ``ProducerAppendInfo``): it reaches from a
producer's first transactional batch to its next marker, whatever the epochs. Transaction version 2 writes epoch + 1 in
its markers (KIP-890), and a batch of a newer epoch inside an open transaction does not end it.

What compaction removed cannot be rebuilt: without its marker, a transaction and the producer's next one are one row;
without its data, a marker looks like that of an empty transaction.

The last stable offset (LSO) is the first offset of the lowest open transaction, otherwise the log end offset
(``ProducerStateManager``). Two rules are not applied because batches do not show their input: a broker counts a
transaction as open until its marker is replicated, and never lets the LSO fall behind the log start offset. A
transaction that begins before the range read, and is not in a snapshot, begins with its first batch in that range.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolkit.errors import UsageError
from toolkit.formats.batches import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import (
    ABORT,
    COMMIT,
    UNREAD_MARKER,
    Array,
    HeaderField,
    Headers,
    StructuredArray,
    arrow_table,
    concatenate,
    labels,
    numbers,
    take_rows,
    times,
)
from toolkit.schema import LOG_TRANSACTIONS, LSO_TIMELINE
from toolkit.schema.log import LogTransaction, TransactionStatistics
from toolkit.schema.table import LAST_TIME, LogId

LogTransactionField = Literal[
    "producer_id",
    "first_offset",
    "last_offset",
    "marker_offset",
    "first_batch_end",  # log end offset right after the first batch
    "start",  # ms
    "end",  # ms
    "batches",
    "records",
    "bytes",
    "position",  # of the first batch that was read, otherwise of the marker
    "file",  # file_id of that batch or marker; 0, the first, if neither was read
    "coordinator_epoch",
    "first_sequence",
    "last_sequence",
    "producer_epoch",
    "first_epoch",
    "marker_epoch",
    "marker",  # COMMIT, ABORT, UNREAD_MARKER; -1 while it is open
    "outcome",  # COMMIT, ABORT, OPEN, NO_DATA; UNREAD_MARKER or LOST if unknown
    "start_clock",  # 1 broker (LogAppendTime), 0 producer (CreateTime)
    "truncated",  # 1 begins before the range read, 0 begins in it, -1 unknown
]
_NARROW = {
    **dict.fromkeys(("file", "coordinator_epoch", "first_sequence", "last_sequence"), "i4"),
    **dict.fromkeys(("producer_epoch", "first_epoch", "marker_epoch"), "i2"),
    **dict.fromkeys(("marker", "outcome", "start_clock", "truncated"), "i1"),
}
LOG_TRANSACTION = np.dtype([(name, _NARROW.get(name, "i8")) for name in get_args(LogTransactionField)])
"""One row per transaction, as `schema.LOG_TRANSACTIONS`; -1 is unknown."""

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


def finish(partial_transactions: PartialTransactions) -> LogTransactions:
    """Every transaction of a partition, from the merged transactions of all ranges read.

    Structured array of `LOG_TRANSACTION`, sorted by (first_offset, marker_offset), unknown ones last. ``truncated`` is
    -1 if neither the start of the log, nor a snapshot, nor an earlier batch of the producer decides it: a first marker
    without data may end an empty transaction, or one whose data was not read.
    `partial_transactions`: the merged transactions, `begin` first if it is known what was open before them. What was
        has a row, even if none of its batches was read.
    """
    log_transactions = _joined((*partial_transactions.closed, partial_transactions.edges))
    # As unsigned integers, -1 (unknown) sorts last.
    keys = [log_transactions[name].astype(np.uint64) for name in ("marker_offset", "first_offset")]
    return take_rows(log_transactions, np.lexsort(keys))


@dataclass(frozen=True, slots=True, eq=False)
class LogArray:
    """Rows of one log: a structured array."""

    rows: StructuredArray[Any]
    where: LogId
    files: Sequence[str | None] = (None,)  # the name of each number in a field ``file``

    def __len__(self) -> int:
        return len(self.rows)


def log_transaction_table(*logs: LogArray) -> pa.Table:
    """Transactions as an Arrow table with exactly the columns of ``schema.LOG_TRANSACTIONS``, in unchanged order.

    `*logs`: transactions of logs, from `finish`: a table of hundreds takes little longer than one of a single log.
    """
    log_transactions: LogTransactions = _joined([each.rows for each in logs])
    columns = {
        name: numbers(log_transactions[name])
        for name in get_args(LogTransactionField)
        if name in LOG_TRANSACTIONS.names
    }
    return arrow_table(
        LOG_TRANSACTIONS,
        columns
        | {
            **_log_columns(logs),
            "first_batch_last_offset": numbers(log_transactions["first_batch_end"] - 1),
            "outcome": labels(log_transactions["outcome"], OUTCOMES),
            "marker": labels(log_transactions["marker"], MARKER_NAMES),
            "start": times(log_transactions["start"]),
            "start_clock": labels(log_transactions["start_clock"], CLOCKS),
            "end": times(log_transactions["end"]),
            "truncated": numbers(log_transactions["truncated"] == 1, null=log_transactions["truncated"] < 0),
            "file": _file_names(logs),
            "error": labels(_errors(log_transactions), (NO_MARKER_TYPE, END_NOT_READ)),
        },
        rows=len(log_transactions),
    )


def _log_columns(logs: Sequence[LogArray]) -> Mapping[str, pa.Array]:
    """Topic, partition and broker of each row."""
    number_of_log = pa.array(np.repeat(np.arange(len(logs)), [len(each.rows) for each in logs]))
    columns = {
        "topic": pa.array([each.where.topic for each in logs], pa.string()),
        "partition": pa.array([each.where.partition for each in logs], pa.int32()),
        "broker_id": pa.array([each.where.broker_id for each in logs], pa.int32()),
    }
    return {name: column.take(number_of_log) for name, column in columns.items()}


def _file_names(logs: Sequence[LogArray]) -> pa.Array:
    names, codes = list[str | None](), [np.zeros(0, np.int64)]
    for each in logs:
        file = each.rows["file"]
        codes.append(np.where((file >= 0) & (file < len(each.files)), file + len(names), -1))
        names += each.files
    return labels(np.concatenate(codes), names)


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


def _joined(parts: Sequence[LogTransactions]) -> LogTransactions:
    return parts[0] if len(parts) == 1 else concatenate(parts, LOG_TRANSACTION)


def amounts(headers: Headers, first: int, stop: int) -> tuple[int, int]:
    """Data records and bytes of the batches with an offset of ``first <= offset < stop``.

    Records without control records, and bytes of complete batches with control batches.
    `headers`: structured array of `toolkit.formats.headers.HEADER`, of one log.
    `first`, `stop`: offsets. For a batch that begins before `first`, no more records count than it has offsets from
        `first` on.
    """
    in_range = headers[(headers["last_offset"] >= first) & (headers["base_offset"] < stop)]
    records = records_inside(
        first,
        base_offset=in_range["base_offset"],
        last_offset=in_range["last_offset"],
        record_count=in_range["record_count"],
        is_control=in_range["attributes"] & CONTROL != 0,
    )
    return int(records.sum()), int(in_range["size"].sum())


def records_inside(
    first: int | Array, *, base_offset: Array, last_offset: Array, record_count: Array, is_control: Array
) -> Array:
    """Number of data records of each batch from `first` on; after compaction, fewer than its offsets."""
    left = last_offset - np.maximum(base_offset, first) + 1
    return np.where(is_control, 0, np.minimum(record_count, left))


class RunningTotals:
    """Follows the batches of a log in order.

    `offsets`: offsets to count at, which may be within a batch; base offsets of batches are passed with the batches.
    """

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._coming = sorted(set(offsets))
        self._inside: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}
        self._samples: list[npt.NDArray[np.int64]] = []
        self._total = np.zeros(2, np.int64)
        self._end = 0

    def add(self, headers: Headers, base_offsets: npt.NDArray[np.int64]) -> None:
        """Count the next batches of the log.

        `headers`: headers of at least one batch.
        `base_offsets`: base offsets to count at, in any order; those after the last batch are ignored.
        """
        begins, ends = headers["base_offset"].copy(), headers["last_offset"].copy()  # contiguous, for fast search
        records = records_inside(
            begins,
            base_offset=begins,
            last_offset=ends,
            record_count=headers["record_count"],
            is_control=headers["attributes"] & CONTROL != 0,
        )
        before = np.zeros((len(headers) + 1, 2), np.int64)
        np.cumsum(records, out=before[1:, 0])
        np.cumsum(headers["size"], out=before[1:, 1])
        before += self._total
        rows = np.searchsorted(begins, np.sort(base_offsets))
        rows = np.unique(rows[rows < len(begins)])
        self._samples.append(np.column_stack((begins[rows], before[rows])))
        self._end = int(ends[-1]) + 1
        while self._coming and self._coming[0] < self._end:
            offset = self._coming.pop(0)
            row = int(np.searchsorted(ends, offset))  # the batch that holds it, or the next one
            skipped = 0
            if headers["attributes"][row] & CONTROL == 0:
                skipped = int(records[row] - min(int(records[row]), int(ends[row]) + 1 - max(offset, int(begins[row]))))
            as_first = int(before[row, 0]) + skipped, int(before[row, 1])
            as_stop = before[np.searchsorted(begins, offset)].tolist()
            self._inside[offset] = as_first, (as_stop[0], as_stop[1])
        self._total = before[-1]

    def between(self, first: int, stop: int) -> tuple[int, int] | None:
        """Records and bytes of the batches with an offset in ``first <= offset < stop``.

        Counts as `amounts`; null if one of the offsets was not counted at.
        """
        low, high = self._before(first, as_first=True), self._before(stop, as_first=False)
        return None if low is None or high is None else (high[0] - low[0], high[1] - low[1])

    @property
    def samples(self) -> npt.NDArray[np.int64]:
        """Base offsets that were counted at, in order, with the records and bytes before each."""
        if len(self._samples) != 1:
            self._samples = [np.concatenate([np.zeros((0, 3), np.int64), *self._samples])]
        return self._samples[0]

    @property
    def total(self) -> tuple[int, int]:
        """Records and bytes of all batches so far."""
        return int(self._total[0]), int(self._total[1])

    def _before(self, offset: int, *, as_first: bool) -> tuple[int, int] | None:
        if offset in self._inside:
            return self._inside[offset][0 if as_first else 1]
        if offset >= self._end:
            return self.total
        samples = self.samples
        row = int(np.searchsorted(samples[:, 0], offset))
        if row == len(samples) or samples[row, 0] != offset:
            return None
        return int(samples[row, 1]), int(samples[row, 2])


LSO_STEP = np.dtype(
    [
        ("at", "i8"),  # ms
        ("offset", "i8"),
        ("last_stable_offset", "i8"),
        ("open_count", "i8"),
        ("holder_producer_id", "i8"),
        ("holder_first_offset", "i8"),
        ("holder_producer_epoch", "i2"),
        ("event", "i1"),  # index in EVENTS; UNREAD_MARKER if the marker's type was not read
    ]
)
"""One row per step, as `schema.LSO_TIMELINE`; -1 is unknown or no holder."""

END = 3
EVENTS = ("abort", "commit", "open", "end")
"""Name of each event: at the indices ABORT, COMMIT, OPEN and END."""

NEVER = np.iinfo(np.int64).max


def lso_steps(
    log_transactions: LogTransactions, *, log_end_offset: int | None, end_time: int = -1, start: int | None = None
) -> Array:
    """Every step of the LSO, in order.

    Structured array of `LSO_STEP`. One row when a transaction opens while no other is open: the LSO stops at its first
    offset. One row when the lowest open transaction gets its marker: the LSO moves to the first offset of the next
    lowest one, or to the log end, which it then follows. One last row ``end`` if the log ends in the range. A
    transaction that was open before the range read has its first row right after its first offset, without a time.
    `log_transactions`: every transaction of one partition, from `log_transactions.finish`; for a range of offsets, the
        transactions that overlap it are enough.
    `log_end_offset`: offset after the last one that was read; null if the range does not reach the end of the log.
    `end_time`: time of the last batch in ms, for the last row; -1 if unknown.
    `start`: only steps of batches from this offset on; null for the beginning of the log.
    """
    since = -1 if start is None else start
    first, ends = log_transactions["first_offset"], log_transactions["marker_offset"]
    ends = np.where(ends < 0, NEVER, ends)
    intact = np.flatnonzero((first >= 0) & (ends >= first))  # a damaged offset may be any number
    intact = intact[np.argsort(first[intact], kind="stable")]
    rows, first, ends = take_rows(log_transactions, intact), first[intact], ends[intact]
    ends_by = np.maximum.accumulate(ends)  # all transactions up to a row have ended by then
    # Whether a batch is a step, and which transactions are open right after it, depends only on transactions that begin
    # before the batch and do not end before it. So transactions that end below the range or begin above it are not
    # needed.
    before = np.concatenate(([-1], ends_by[:-1]))[: len(rows)]
    alone = np.flatnonzero((first > before) & (first >= since))
    held_back_rows = np.flatnonzero((ends > before) & (ends < NEVER) & (ends >= since))
    opening, closing = take_rows(rows, alone), take_rows(rows, held_back_rows)
    end = np.array([] if log_end_offset is None else [log_end_offset], np.int64)

    steps: Array = np.full(len(alone) + len(held_back_rows) + len(end), -1, LSO_STEP)
    # A step is right after the first batch; one that was not read has at least one record.
    opened = np.where(opening["first_batch_end"] < 0, opening["first_offset"] + 1, opening["first_batch_end"])
    steps["offset"] = np.concatenate((opened, closing["marker_offset"] + 1, end))
    steps["at"] = np.concatenate((opening["start"], closing["end"], np.full(len(end), end_time)))
    steps["event"] = np.concatenate((np.full(len(alone), OPEN), closing["marker"], np.full(len(end), END)))
    steps = take_rows(steps, np.argsort(steps["offset"], kind="stable"))

    begun = np.searchsorted(first, steps["offset"])
    lowest = np.searchsorted(ends_by, steps["offset"])  # the first that ends at or after the log end
    held_back = np.flatnonzero(lowest < begun)
    holders = take_rows(rows, lowest[held_back])
    steps["last_stable_offset"] = steps["offset"]
    steps["last_stable_offset"][held_back] = holders["first_offset"]
    steps["holder_producer_id"][held_back] = holders["producer_id"]
    steps["holder_first_offset"][held_back] = holders["first_offset"]
    steps["holder_producer_epoch"][held_back] = holders["first_epoch"]  # its last one may differ if a marker is lost
    steps["open_count"] = begun - np.searchsorted(np.sort(ends), steps["offset"])
    return steps


def lso_table(*logs: LogArray) -> pa.Table:
    """Steps from `lso_steps` as an Arrow table with exactly the columns of ``schema.LSO_TIMELINE``."""
    steps: Array = concatenate([each.rows for each in logs], LSO_STEP)
    columns = {name: numbers(steps[name]) for name in LSO_STEP.names or ()}
    from_steps = {"at": times(steps["at"]), "event": labels(steps["event"], EVENTS)}
    return arrow_table(LSO_TIMELINE, {**columns, **_log_columns(logs), **from_steps}, rows=len(steps))


SIZES = ("batches", "duration_ms")
SUMMED = ("committed", "aborted", "empty", "undecided", *(f"{name}_{of}" for name in SIZES for of in ("count", "sum")))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Statistics of a set of transactions; ``+`` combines those of two sets."""

    # columns of `TransactionStatistics`: those of `SUMMED`, and the least and the greatest of what there is. Sizes are
    # of those that ended, whose beginning was read; durations of those alone whose times are known
    columns: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(SUMMED, 0))
    # transactions without a marker, as structured array of `toolkit.analysis.log.log_transactions.LOG_TRANSACTION`
    open: LogTransactions = field(default_factory=lambda: NO_LOG_TRANSACTIONS)

    def __add__(self, other: Statistics) -> Statistics:
        columns = {**other.columns, **self.columns}
        for name in self.columns.keys() & other.columns.keys():
            both = self.columns[name], other.columns[name]
            columns[name] = min(both) if name.endswith("_min") else max(both) if name.endswith("_max") else sum(both)
        together: LogTransactions = np.concatenate([self.open, other.open])
        return Statistics(columns=columns, open=together[np.argsort(together["first_offset"], kind="stable")])


def statistics(log_transactions: LogTransactions) -> Statistics:
    """The statistics of transactions in any order."""
    outcome, start, end = (log_transactions[name] for name in ("outcome", "start", "end"))
    is_whole = (log_transactions["truncated"] == 0) & ((outcome == COMMIT) | (outcome == ABORT))
    is_timed = is_whole & (np.minimum(start, end) >= 0) & (np.maximum(start, end) <= LAST_TIME)
    columns = {
        "committed": int(np.count_nonzero(outcome == COMMIT)),
        "aborted": int(np.count_nonzero(outcome == ABORT)),
        "empty": int(np.count_nonzero(outcome == NO_DATA)),
        # with a marker whose record was not read or whose offset is missing
        "undecided": int(np.count_nonzero((outcome == UNREAD_MARKER) | (outcome == LOST))),
    }
    for name, values in zip(SIZES, (log_transactions["batches"][is_whole], (end - start)[is_timed]), strict=True):
        columns |= {f"{name}_count": values.size, f"{name}_sum": int(values.sum())}
        if values.size:
            columns |= {f"{name}_min": int(values.min()), f"{name}_max": int(values.max())}
    return Statistics(columns=columns, open=take_rows(log_transactions, np.flatnonzero(outcome == OPEN)))


def statistics_row(statistics: Statistics, where: LogId, *, error: str | None = None) -> TransactionStatistics:
    """The row of a partition's statistics."""
    columns: dict[str, Any] = {**statistics.columns, "open": len(statistics.open)}
    for name in SIZES:
        count = columns[f"{name}_count"]
        columns[f"{name}_mean"] = columns[f"{name}_sum"] / count if count else None
    return TransactionStatistics(**where.columns, error=error, **columns)


def open_rows(statistics: Statistics, where: LogId) -> list[LogTransaction]:
    """The open transactions."""
    return LogTransaction.of_table(log_transaction_table(LogArray(statistics.open, where)))
