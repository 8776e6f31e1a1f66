"""What a held LSO blocks, when its transaction opened, and since when it has held the LSO.

Markers and batches under LogAppendTime have the time of the partition's leader; other batches have their producer's.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from typing import Any

import numpy as np

from toolkit.analysis.diagnosis.log_excerpts import Excerpt
from toolkit.analysis.diagnosis.producer_evidence import ProducerBatches
from toolkit.analysis.log.log_transactions import OPEN, LogTransactions, finish, partial_transactions
from toolkit.analysis.log.lso_timeline import lso_steps
from toolkit.analysis.log.record_counts import amounts
from toolkit.schema import Row, utc

__all__ = ["CLOCKS_DIFFER", "held_back", "held_since", "opening_time"]

CLOCKS_DIFFER = dt.timedelta(seconds=5)  # tolerated difference between two clocks
MILLISECOND = dt.timedelta(milliseconds=1)


def held_back(row: Row, excerpt: Excerpt) -> Row:
    """Count data records and bytes between the LSO and the high watermark.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    excerpt
        The excerpt of its partition.

    Returns
    -------
    Row
        ``records_held`` and ``bytes_held``; null if the range was not read completely. Bytes are those of complete
        batches, including markers.
    """
    lso, high_watermark = row["last_stable_offset"], row["high_watermark"]
    unknown = {"records_held": None, "bytes_held": None}
    if lso is None or high_watermark is None:
        return unknown
    first = max(lso, excerpt.log_start_offset or 0)  # the LSO may be below the log start
    if first >= high_watermark:
        return {"records_held": 0, "bytes_held": 0}
    if excerpt.held is None and (excerpt.start > first or excerpt.stop < high_watermark):
        return unknown
    records, size = excerpt.held or amounts(excerpt.headers, first, high_watermark)
    return {"records_held": records, "bytes_held": size}


def opening_time(row: Row, producer_batches: ProducerBatches) -> Row:
    """Correct a transaction's opening time if a broker's clock contradicts its producer's.

    Broker times before and after the first batch bound the opening time. A producer's time outside these bounds is
    wrong, or its records have other times on purpose.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    producer_batches
        Its producer's batches in the excerpt.

    Returns
    -------
    Row
        ``opened_at`` and ``opened_at_clock``: unchanged, or the broker time before the first batch, null if none was
        read.
    """
    opened_at: dt.datetime | None = row["opened_at"]
    unchanged = {"opened_at": opened_at, "opened_at_clock": row["opened_at_clock"]}
    if opened_at is None or row["opened_at_clock"] != "producer":
        return unchanged
    earliest = producer_batches.brokers_time_before
    latest = producer_batches.brokers_time_after or producer_batches.excerpt.observed_at
    if (earliest or opened_at) - CLOCKS_DIFFER <= opened_at <= latest + CLOCKS_DIFFER:
        return unchanged
    return {"opened_at": earliest, "opened_at_clock": None if earliest is None else "broker"}


def held_since(row: Row, producer_batches: ProducerBatches) -> Row:
    """Since when the lowest open transaction has held the LSO: since its first batch, or since a later marker.

    An earlier transaction holds the LSO until its marker. If the excerpt has only the marker of a transaction, that may
    have begun earlier: the time is then the latest possible one, and the evidence is named ``held_at_least_since``.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    producer_batches
        Its producer's batches in the excerpt.

    Returns
    -------
    Row
        ``held_from``, ``held_to`` (if its marker was read) and ``held_ms``, null if the excerpt does not show them or
        the clocks contradict each other; and ``evidence``, with the marker after which it was the lowest.
    """
    unknown = {"held_from": None, "held_to": None, "held_ms": None}
    if not _was_read_completely(row, producer_batches.excerpt):
        return unknown
    log_transactions, unsure = _log_transactions_around(row, producer_batches)
    own = log_transactions[
        (log_transactions["producer_id"] == producer_batches.producer_id)
        & (log_transactions["first_offset"] == producer_batches.start)
    ]
    steps = lso_steps(log_transactions, log_end_offset=producer_batches.excerpt.stop)
    holds = (steps["holder_producer_id"] == producer_batches.producer_id) & (
        steps["holder_first_offset"] == producer_batches.start
    )
    if not len(own) or not holds.any():
        return unknown
    step, evidence = steps[holds][0], list(row["evidence"])
    if step["event"] == OPEN:
        held_from = _first_batch_time(row, own[0], producer_batches)
    else:
        held_from = utc(int(step["at"]))
        name = "held_at_least_since" if step["offset"] - 1 in unsure else "held_since"
        headers = producer_batches.excerpt.headers
        evidence.append(producer_batches.entry(name, headers[headers["base_offset"] == step["offset"] - 1]))
    held_to = utc(int(own[0]["end"]))
    return {
        "held_from": held_from,
        "held_to": held_to,
        "held_ms": _between(held_from, held_to or row["observed_at"]),
        "evidence": evidence,
    }


def _was_read_completely(row: Row, excerpt: Excerpt) -> bool:
    """Whether no transaction that was open before the excerpt can have ended after it."""
    high_watermark = row["high_watermark"]
    return excerpt.start == 0 or (high_watermark is not None and excerpt.stop >= high_watermark)


def _log_transactions_around(row: Row, producer_batches: ProducerBatches) -> tuple[LogTransactions, set[int]]:
    """Transactions in the excerpt, and the marker offsets of those that may have begun before it.

    Those are assumed to have begun before it. A first batch with sequence number 0 begins its producer's epoch, and so
    a transaction.
    """
    headers, start = producer_batches.excerpt.headers, producer_batches.excerpt.start
    if start == 0:  # a transaction that begins later cannot have held the LSO before this one
        earlier = headers["producer_id"][: bisect_right(headers["base_offset"], producer_batches.start)]
        return finish(partial_transactions(headers[np.isin(headers["producer_id"], earlier)]), from_start=True), set()
    found = partial_transactions(headers)
    read = finish(found)
    unsure = read[(read["truncated"] == -1) & (read["marker_offset"] >= 0) & (read["first_sequence"] != 0)]
    unsure = unsure[unsure["first_offset"] != producer_batches.start]
    before = (
        {int(each["producer_id"]): (0, int(each["producer_epoch"])) for each in unsure}
        if producer_batches.start
        else {}
    )
    if producer_batches.start < start:
        before[producer_batches.producer_id] = (
            producer_batches.start,
            -1 if row["producer_epoch"] is None else row["producer_epoch"],
        )
    return finish(found, opened_before=before), set(unsure["marker_offset"].tolist())


def _first_batch_time(
    row: Row, log_transaction: np.ndarray[Any, Any], producer_batches: ProducerBatches
) -> dt.datetime | None:
    """When its first batch was written; not before its coordinator's start time, which is a broker's clock."""
    opened_at = {
        "opened_at": utc(int(log_transaction["start"])),
        "opened_at_clock": "broker" if log_transaction["start_clock"] == 1 else "producer",
    }
    found: dt.datetime | None = opening_time(opened_at, producer_batches)["opened_at"]
    if row["opened_at_clock"] != "coordinator":
        return found
    started: dt.datetime = row["opened_at"]
    return started if found is None or found < started - CLOCKS_DIFFER else found


def _between(start: dt.datetime | None, end: dt.datetime) -> int | None:
    if start is None or start > end + CLOCKS_DIFFER:
        return None
    return max((end - start) // MILLISECOND, 0)
