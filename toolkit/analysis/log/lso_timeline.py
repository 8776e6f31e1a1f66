"""The last stable offset (LSO) over offset and time: each of its steps, and which transaction held it.

The LSO is the first offset of the lowest open transaction, otherwise the log end offset (``ProducerStateManager``). Two
rules are not applied because batches do not show their input: a broker counts a transaction as open until its marker is
replicated, and never lets the LSO fall behind the log start offset. A transaction that begins before the range read,
and is not in a snapshot, begins with its first batch in that range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from toolkit.analysis.log.log_transactions import OPEN, LogTransactions
from toolkit.formats.columns import arrow_table, labels, numbers, times
from toolkit.formats.log.headers import Array, take_rows
from toolkit.schema import LSO_TIMELINE

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
    log_transactions: LogTransactions,
    *,
    log_end_offset: int | None,
    end_time: int = -1,
    start: int | None = None,
    stop: int | None = None,
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
    `start`, `stop`: only steps of batches within ``start <= offset < stop``; null for the ends of the log.
    """
    open_ = _OpenTransactions.of(log_transactions)
    # Whether a batch is a step, and which transactions are open right after it, depends only on transactions that begin
    # before the batch and do not end before it. So transactions that end below the range or begin above it are not
    # needed.
    before = np.concatenate(([-1], open_.ends_by[:-1]))[: len(open_.log_transactions)]
    alone = np.flatnonzero((open_.first > before) & _within(open_.first, start, stop))
    held_back_rows = np.flatnonzero((open_.end > before) & (open_.end < NEVER) & _within(open_.end, start, stop))
    opening, closing = take_rows(open_.log_transactions, alone), take_rows(open_.log_transactions, held_back_rows)
    end = np.array([] if log_end_offset is None else [log_end_offset], np.int64)

    steps: Array = np.full(len(alone) + len(held_back_rows) + len(end), -1, LSO_STEP)
    # A step is right after the first batch; one that was not read has at least one record.
    opened = np.where(opening["first_batch_end"] < 0, opening["first_offset"] + 1, opening["first_batch_end"])
    steps["offset"] = np.concatenate((opened, closing["marker_offset"] + 1, end))
    steps["at"] = np.concatenate((opening["start"], closing["end"], np.full(len(end), end_time)))
    steps["event"] = np.concatenate((np.full(len(alone), OPEN), closing["marker"], np.full(len(end), END)))
    steps = take_rows(steps, np.argsort(steps["offset"], kind="stable"))

    held_back, holder = open_.holder_at(steps["offset"])
    holders = take_rows(open_.log_transactions, holder)
    steps["last_stable_offset"] = steps["offset"]
    steps["last_stable_offset"][held_back] = holders["first_offset"]
    steps["holder_producer_id"][held_back] = holders["producer_id"]
    steps["holder_first_offset"][held_back] = holders["first_offset"]
    steps["holder_producer_epoch"][held_back] = holders["first_epoch"]  # its last one may differ if a marker is lost
    steps["open_count"] = open_.count_at(steps["offset"])
    return steps


def lso_table(
    steps: Array,
    *,
    topic: str | pa.Array | None,
    partition: int | pa.Array | None,
    broker_id: int | pa.Array | None = None,
) -> pa.Table:
    """Steps from `lso_steps` as an Arrow table with exactly the columns of ``schema.LSO_TIMELINE``.

    `steps`: from `lso_steps`.
    `topic`, `partition`, `broker_id`: location of the log: one value for all rows, or an Arrow array with one value per
        row.
    """
    columns = {name: numbers(steps[name]) for name in LSO_STEP.names or ()}
    log_columns = {"topic": topic, "partition": partition, "broker_id": broker_id}
    from_steps = {"at": times(steps["at"]), "event": labels(steps["event"], EVENTS)}
    return arrow_table(LSO_TIMELINE, columns | log_columns | from_steps, rows=len(steps))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _OpenTransactions:
    """Transactions with data by first offset, to find the open ones at an offset, and the lowest of them."""

    log_transactions: LogTransactions
    first: Array
    end: Array  # marker offset, or NEVER
    ends_by: Array  # highest end so far: all transactions up to this row have ended by then

    @staticmethod
    def of(log_transactions: LogTransactions) -> _OpenTransactions:
        end = np.where(log_transactions["marker_offset"] < 0, NEVER, log_transactions["marker_offset"])
        first = log_transactions["first_offset"]
        is_intact = (first >= 0) & (end >= first)  # a damaged offset may be any number
        log_transactions = take_rows(log_transactions, np.flatnonzero(is_intact))
        order = np.argsort(log_transactions["first_offset"], kind="stable")
        log_transactions, end = take_rows(log_transactions, order), end[is_intact][order]
        return _OpenTransactions(
            log_transactions=log_transactions,
            first=log_transactions["first_offset"],
            end=end,
            ends_by=np.maximum.accumulate(end),
        )

    def holder_at(self, log_end: Array) -> tuple[Array, Array]:
        """Indices of the log ends with an open transaction, and the index of the lowest one for each."""
        lowest: Array = np.searchsorted(self.ends_by, log_end)  # the first that ends at or after the log end
        held_back = np.flatnonzero(lowest < np.searchsorted(self.first, log_end))
        return held_back, lowest[held_back]

    def count_at(self, log_end: Array) -> Array:
        """Number of open transactions of a log that ends at each of these offsets."""
        return np.searchsorted(self.first, log_end) - np.searchsorted(np.sort(self.end), log_end)


def _within(offsets: Array, start: int | None, stop: int | None) -> Array:
    low, high = -1 if start is None else start, NEVER if stop is None else stop
    return (offsets >= low) & (offsets < high)
