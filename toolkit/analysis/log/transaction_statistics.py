"""Statistics of a partition's transactions: count, size and duration by outcome, and which are still open.

They include all that ``klog segment txn-stat`` reports, and are correct for transaction version 2 too, whose markers
carry epoch + 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from toolkit.analysis.log.log_transactions import LOST, NO_DATA, NO_LOG_TRANSACTIONS, OPEN, LogTransactions
from toolkit.analysis.log.stable_sort import take_rows
from toolkit.formats.log.headers import ABORT, COMMIT, UNREAD_MARKER, Array
from toolkit.schema import utc
from toolkit.schema.log import LogTransaction, MeasureStatistics
from toolkit.schema.table import LAST_TIME

SIZE = np.dtype(
    [("batches", "i8"), ("records", "i8"), ("bytes", "i8"), ("duration_ms", "i8"), ("outcome", "i1"), ("timed", "?")]
)
NO_SIZES: Array = np.zeros(0, SIZE)
PERCENTILES = (50, 95, 99)
NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Distribution of values; each percentile is a value that occurs (nearest rank)."""

    count: int
    sum: int
    min: int
    mean: float
    p50: int
    p95: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeStatistics:
    """Statistics of the transactions with one outcome."""

    count: int  # number of transactions
    # batches, records, bytes: their sizes, without transactions whose beginning was not read; ``None`` if there are
    # none
    batches: Distribution | None
    records: Distribution | None
    bytes: Distribution | None
    # from the first batch, by the clock of its producer unless the topic has LogAppendTime, to the marker, by the clock
    # of the partition's leader: a negative one shows how far these clocks are apart
    duration_ms: Distribution | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Statistics:
    """Statistics of a set of transactions; ``+`` combines those of two sets."""

    # committed_count, aborted_count, empty_count, undecided_count: transactions with data and a COMMIT, with data and
    # an ABORT, without data, and with a marker whose record was not read or whose offset is missing
    committed_count: int = 0
    aborted_count: int = 0
    empty_count: int = 0
    undecided_count: int = 0
    truncated_count: int = 0  # transactions with data that begin, or may begin, before the range read
    # first_offset, last_offset: lowest and highest offset, including markers; -1 if there are none
    first_offset: int = -1
    last_offset: int = -1
    # start, end: earliest and latest time of a first batch or marker, in ms; -1 if there is none
    start: int = -1
    end: int = -1
    # transactions without a marker, as structured array of `toolkit.analysis.log.log_transactions.LOG_TRANSACTION`
    open: LogTransactions
    sizes: tuple[Array, ...] = ()  # input of the distributions: 34 bytes for each completely read transaction

    def __add__(self, other: Statistics) -> Statistics:
        """The statistics of both sets."""
        return combined(self, other)

    @property
    def committed(self) -> OutcomeStatistics:
        """Statistics of the committed transactions."""
        return self._of_outcome(COMMIT, count=self.committed_count)

    @property
    def aborted(self) -> OutcomeStatistics:
        """Statistics of the aborted transactions."""
        return self._of_outcome(ABORT, count=self.aborted_count)

    def _of_outcome(self, outcome: int, *, count: int) -> OutcomeStatistics:
        sizes = np.concatenate(self.sizes) if self.sizes else NO_SIZES
        sizes = sizes[sizes["outcome"] == outcome]
        return OutcomeStatistics(
            count=count,
            batches=_distribution(sizes["batches"]),
            records=_distribution(sizes["records"]),
            bytes=_distribution(sizes["bytes"]),
            duration_ms=_distribution(sizes["duration_ms"][sizes["timed"]]),
        )


NO_TRANSACTIONS = Statistics(open=NO_LOG_TRANSACTIONS)
"""The statistics of no transactions."""


def statistics(log_transactions: LogTransactions) -> Statistics:
    """The statistics of transactions in any order."""
    if log_transactions.size == 0:
        return NO_TRANSACTIONS
    outcome, with_data = log_transactions["outcome"], log_transactions["first_offset"] >= 0
    ends = np.concatenate([log_transactions[name] for name in ("first_offset", "last_offset", "marker_offset")])
    times: Array = np.concatenate([log_transactions["start"], log_transactions["end"]])
    times = np.where(times <= LAST_TIME, times, -1)
    complete = take_rows(
        log_transactions,
        np.flatnonzero((log_transactions["truncated"] == 0) & ((outcome == COMMIT) | (outcome == ABORT))),
    )
    return Statistics(
        committed_count=int(np.count_nonzero(outcome == COMMIT)),
        aborted_count=int(np.count_nonzero(outcome == ABORT)),
        empty_count=int(np.count_nonzero(outcome == NO_DATA)),
        undecided_count=int(np.count_nonzero((outcome == UNREAD_MARKER) | (outcome == LOST))),
        truncated_count=int(np.count_nonzero(with_data & (log_transactions["truncated"] != 0))),
        open=take_rows(log_transactions, np.flatnonzero(outcome == OPEN)),
        first_offset=_least(ends),
        last_offset=int(ends.max()),
        start=_least(times),
        end=int(times.max()),
        sizes=(_sizes(complete),),
    )


def combined(*parts: Statistics) -> Statistics:
    """The statistics of several sets."""
    if not parts:
        return NO_TRANSACTIONS
    counts = {
        f"{name}_count": sum(getattr(part, f"{name}_count") for part in parts)
        for name in ("committed", "aborted", "empty", "undecided", "truncated")
    }
    open_: LogTransactions = np.concatenate([part.open for part in parts])
    return Statistics(
        **counts,
        open=open_[np.argsort(open_["first_offset"], kind="stable")],
        first_offset=min((part.first_offset for part in parts if part.first_offset >= 0), default=-1),
        last_offset=max(part.last_offset for part in parts),
        start=min((part.start for part in parts if part.start >= 0), default=-1),
        end=max(part.end for part in parts),
        sizes=tuple(sizes for part in parts for sizes in part.sizes),
    )


def statistic_rows(
    statistics: Statistics,
    *,
    topic: str | None,
    partition: int | None,
    broker_id: int | None = None,
    error: str | None = None,
) -> Iterator[MeasureStatistics]:
    """Each measure of committed and aborted transactions, and the other counts."""

    def row(outcome: str, transactions: int) -> MeasureStatistics:
        return MeasureStatistics(
            topic=topic,
            partition=partition,
            broker_id=broker_id,
            outcome=outcome,
            transactions=transactions,
            error=error,
        )

    for outcome, of_outcome in (("commit", statistics.committed), ("abort", statistics.aborted)):
        whole = row(outcome, of_outcome.count)
        yield from list(_measured(whole, of_outcome)) or [whole]
    yield row("empty", statistics.empty_count)
    yield row("open", len(statistics.open))
    yield row("undecided", statistics.undecided_count)


def _measured(row: MeasureStatistics, statistics: OutcomeStatistics) -> Iterator[MeasureStatistics]:
    of_records, of_bytes, of_batches = statistics.records, statistics.bytes, statistics.batches
    measures = {"records": of_records, "bytes": of_bytes, "batches": of_batches, "duration_ms": statistics.duration_ms}
    for name, each in measures.items():
        if each is not None:
            row = replace(row, measure=name, count=each.count, sum=each.sum, min=each.min, mean=each.mean)
            yield replace(row, p50=each.p50, p95=each.p95, p99=each.p99, max=each.max)


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


def _sizes(log_transactions: LogTransactions) -> Array:
    sizes = np.zeros(len(log_transactions), SIZE)
    for name in ("batches", "records", "bytes", "outcome"):
        sizes[name] = log_transactions[name]
    sizes["duration_ms"] = log_transactions["end"] - log_transactions["start"]
    sizes["timed"] = (
        (log_transactions["start"] >= 0)
        & (log_transactions["end"] >= 0)
        & (log_transactions["start"] <= LAST_TIME)
        & (log_transactions["end"] <= LAST_TIME)
    )
    return sizes


def _distribution(values: Array) -> Distribution | None:
    if values.size == 0:
        return None
    p50, p95, p99 = (int(value) for value in np.percentile(values, PERCENTILES, method="inverted_cdf"))
    least, most, total = int(values.min()), int(values.max()), int(values.sum())
    return Distribution(
        count=values.size, sum=total, min=least, mean=total / values.size, p50=p50, p95=p95, p99=p99, max=most
    )


def _least(numbers: Array) -> int:
    least = int(np.where(numbers >= 0, numbers, NEVER).min())
    return -1 if least == NEVER else least
