"""Statistics of a partition's transactions, as ``klog segment txn-stat`` reports them: by outcome, size and duration.

They are correct for transaction version 2 too, whose markers carry epoch + 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from toolkit.analysis.log.log_transactions import LOST, NO_DATA, NO_LOG_TRANSACTIONS, OPEN, LogTransactions
from toolkit.formats.log.headers import ABORT, COMMIT, UNREAD_MARKER, Array, take_rows
from toolkit.schema import utc
from toolkit.schema.log import LogTransaction, TransactionStatistics
from toolkit.schema.table import LAST_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Summary of values; ``+`` is that of both."""

    count: int = 0
    sum: int = 0
    min: int | None = None  # null if there are none
    max: int | None = None

    def __add__(self, other: Summary) -> Summary:
        if self.min is None or self.max is None or other.min is None or other.max is None:
            return other if self.min is None else self
        return Summary(
            count=self.count + other.count,
            sum=self.sum + other.sum,
            min=min(self.min, other.min),
            max=max(self.max, other.max),
        )

    @property
    def mean(self) -> float | None:
        """Their mean; null if there are none."""
        return self.sum / self.count if self.count else None


def _summary(values: Array) -> Summary:
    if not values.size:
        return Summary()
    return Summary(count=values.size, sum=int(values.sum()), min=int(values.min()), max=int(values.max()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Statistics of a set of transactions; ``+`` combines those of two sets."""

    # transactions with data and a COMMIT, with data and an ABORT, without data, and with a marker whose record was not
    # read or whose offset is missing
    committed: int = 0
    aborted: int = 0
    empty: int = 0
    undecided: int = 0
    # of those that ended, whose beginning was read; durations of those alone whose times are known
    batches: Summary = field(default_factory=Summary)
    duration_ms: Summary = field(default_factory=Summary)
    # transactions without a marker, as structured array of `toolkit.analysis.log.log_transactions.LOG_TRANSACTION`
    open: LogTransactions = field(default_factory=lambda: NO_LOG_TRANSACTIONS)

    def __add__(self, other: Statistics) -> Statistics:
        together: LogTransactions = np.concatenate([self.open, other.open])
        return Statistics(
            committed=self.committed + other.committed,
            aborted=self.aborted + other.aborted,
            empty=self.empty + other.empty,
            undecided=self.undecided + other.undecided,
            batches=self.batches + other.batches,
            duration_ms=self.duration_ms + other.duration_ms,
            open=together[np.argsort(together["first_offset"], kind="stable")],
        )


def statistics(log_transactions: LogTransactions) -> Statistics:
    """The statistics of transactions in any order."""
    outcome, start, end = (log_transactions[name] for name in ("outcome", "start", "end"))
    is_whole = (log_transactions["truncated"] == 0) & ((outcome == COMMIT) | (outcome == ABORT))
    is_timed = is_whole & (np.minimum(start, end) >= 0) & (np.maximum(start, end) <= LAST_TIME)
    return Statistics(
        committed=int(np.count_nonzero(outcome == COMMIT)),
        aborted=int(np.count_nonzero(outcome == ABORT)),
        empty=int(np.count_nonzero(outcome == NO_DATA)),
        undecided=int(np.count_nonzero((outcome == UNREAD_MARKER) | (outcome == LOST))),
        batches=_summary(log_transactions["batches"][is_whole]),
        duration_ms=_summary((end - start)[is_timed]),
        open=take_rows(log_transactions, np.flatnonzero(outcome == OPEN)),
    )


def statistics_row(
    statistics: Statistics,
    *,
    topic: str | None,
    partition: int | None,
    broker_id: int | None = None,
    error: str | None = None,
) -> TransactionStatistics:
    """The row of a partition's statistics."""
    batches, duration_ms = statistics.batches, statistics.duration_ms
    return TransactionStatistics(
        topic=topic,
        partition=partition,
        committed=statistics.committed,
        aborted=statistics.aborted,
        empty=statistics.empty,
        open=len(statistics.open),
        undecided=statistics.undecided,
        batches_count=batches.count,
        batches_sum=batches.sum,
        batches_min=batches.min,
        batches_mean=batches.mean,
        batches_max=batches.max,
        duration_ms_count=duration_ms.count,
        duration_ms_sum=duration_ms.sum,
        duration_ms_min=duration_ms.min,
        duration_ms_mean=duration_ms.mean,
        duration_ms_max=duration_ms.max,
        broker_id=broker_id,
        error=error,
    )


def open_rows(
    statistics: Statistics, *, topic: str | None, partition: int | None, broker_id: int | None = None
) -> list[LogTransaction]:
    """The open transactions: their key and their start times."""
    return [
        LogTransaction(
            topic=topic,
            partition=partition,
            broker_id=broker_id,
            producer_id=int(txn["producer_id"]),
            producer_epoch=int(txn["producer_epoch"]),
            first_offset=int(txn["first_offset"]),
            last_offset=int(txn["last_offset"]),
            start=utc(int(txn["start"])),
            start_clock="broker" if txn["start_clock"] == 1 else "producer",
        )
        for txn in statistics.open
    ]
