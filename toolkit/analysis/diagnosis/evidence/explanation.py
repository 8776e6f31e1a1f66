"""Add log evidence to findings: cause, opening time, impact. It never makes a finding `hanging`.

Markers and batches under LogAppendTime have the time of the partition's leader; other batches have their producer's.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from toolkit.analysis.diagnosis.evidence.causes import cause
from toolkit.analysis.diagnosis.evidence.log_excerpts import (
    CLOCKS_DIFFER,
    Excerpt,
    LogEvidence,
    ProducerBatches,
    producer_batches,
)
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.diagnosis.open_transactions import IndexedObservation, OpenTransaction
from toolkit.analysis.diagnosis.verdicts import is_to_explain
from toolkit.analysis.log.log_transactions import OPEN, LogTransactions, finish, partial_transactions
from toolkit.analysis.log.lso_timeline import lso_steps
from toolkit.analysis.log.record_counts import amounts
from toolkit.formats.log.headers import COMMIT
from toolkit.schema import Row, utc

__all__ = ["explain", "held_back", "held_since", "opening_time"]


def explain(rows: Sequence[Row], observations: Sequence[Observation], log: LogEvidence) -> list[Row]:
    """Add log evidence to findings.

    Parameters
    ----------
    rows
        Rows of ``schema.FINDINGS``, from `diagnose.findings`.
    observations
        The observations that the findings are based on.
    log
        Read after the last observation. Without an excerpt of a partition, the evidence of its findings states so
        (``left_out``).

    Returns
    -------
    list of dict
        The rows with ``cause``, ``opened_at``, ``records_held``, ``bytes_held``, ``compaction_held``, ``held_from`` and
        further evidence. A `hanging` row gets another verdict if the log contradicts it, or shows that the transaction
        is committed or has ended.
    """
    transactions = {
        (txn.tp, txn.producer["producer_id"]): txn
        for observation in observations
        for found in IndexedObservation(observation).cases.values()
        for txn in found
        if txn.tp in log.excerpts
    }
    return [
        _explained(row, transactions.get(((row["topic"], row["partition"]), row["producer_id"])), log) for row in rows
    ]


def _explained(row: Row, txn: OpenTransaction | None, log: LogEvidence) -> Row:
    excerpt = log.excerpts.get((row["topic"], row["partition"]))
    if excerpt is None:
        return _left_out(row) if is_to_explain(row) else row
    row = {**row, **held_back(row, excerpt)}
    if row["queue_position"] == 1:
        groups = excerpt.groups.get(row["producer_id"])
        row = {**row, "compaction_held": excerpt.is_compacted, "groups_held": groups}
    if txn is None or txn.start is None:
        return row
    batches = producer_batches(excerpt, txn.producer["producer_id"], txn.start)
    row = {**row, **opening_time(row, batches)}
    if row["queue_position"] == 1:
        row = {**row, **held_since(row, batches)}
    row = _with_contradictions(row, txn, batches)
    if row["verdict"] == "hanging" and txn.state == "CompleteCommit" and log.unread:
        return _doubted(row, f"{log.unread[0]}: whether the completed commit includes these records (KAFKA-20734)")
    why = cause(txn, row["verdict"], log)
    if why is None:
        return row
    row = {**row, "cause": why.sentence, "evidence": [*row["evidence"], *why.evidence]}
    return _committed(row) if why.is_committed and row["verdict"] == "hanging" else row


def _committed(row: Row) -> Row:
    """The row as `stuck_ending`: an abort marker would discard records that the coordinator committed."""
    where = f"{row['topic']}-{row['partition']} from offset {row['start_offset']}"
    return {
        **row,
        "verdict": "stuck_ending",
        "reason": "Its coordinator completed the commit, but the log has no marker, and none will be written.",
        "remedy": (
            "Never an abort marker yet: these records are committed, and it would discard them. Read "
            f"{where} with read_uncommitted and keep the records of producer {row['producer_id']}; then end the "
            "transaction with kafka-transactions.sh abort, and produce them again."
        ),
    }


def _left_out(row: Row) -> Row:
    entry = {
        "source": "log",
        "broker_id": row["broker_id"],
        "observed_at": row["observed_at"],
        "name": "left_out",
        "value": "the log around it was not read for cause, opening time and impact: too many partitions are held, or "
        "too little time was left; diagnose this partition alone",
    }
    return {**row, "evidence": [*row["evidence"], entry]}


def _with_contradictions(row: Row, txn: OpenTransaction, batches: ProducerBatches) -> Row:
    """The row; no longer `hanging` if the log contradicts that."""
    if row["verdict"] != "hanging":
        return row
    if len(batches.foreign_opening):
        other = batches.foreign_opening[0]
        return _doubted(row, f"a log that agrees: the batch at {batches.start} is of producer {other['producer_id']}")
    if not len(batches.markers_after):
        return row
    marker = batches.markers_after[0]
    marker_text = f"{'COMMIT' if marker['marker'] == COMMIT else 'ABORT'} marker at offset {marker['base_offset']}"
    ended = [*row["evidence"], batches.entry("marker_after", batches.markers_after)]
    if marker["base_offset"] < _high_watermark_before(txn):
        return _doubted({**row, "evidence": ended}, f"producer state that agrees: there is the {marker_text}")
    why = f"The {marker_text} has ended it in the meantime."
    return {
        **row,
        "verdict": "ending",
        "reason": why,
        "cause": None,
        "remedy": "None: it has ended.",
        "evidence": ended,
    }


def _doubted(row: Row, missing: str) -> Row:
    why = f"Not proven to be hanging: {row['reason'].rstrip('.')}."
    remedy = "Do not abort. Get what is missing, and diagnose again."
    return {**row, "verdict": "unknown", "reason": why, "cause": None, "remedy": remedy, "missing": [missing]}


def _high_watermark_before(txn: OpenTransaction) -> int:
    """The partition's high watermark before its producers were last read; records below it were in the log then."""
    tp = txn.tp
    before = next((row for row in txn.observation.partitions if (row["topic"], row["partition"]) == tp), {})
    known: int | None = before.get("high_watermark")
    return -1 if known is None else known


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


def opening_time(row: Row, batches: ProducerBatches) -> Row:
    """Correct a transaction's opening time if a broker's clock contradicts its producer's.

    Broker times before and after the first batch bound the opening time. A producer's time outside these bounds is
    wrong, or its records have other times on purpose.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    batches
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
    earliest = batches.brokers_time_before
    latest = batches.brokers_time_after or batches.excerpt.observed_at
    if (earliest or opened_at) - CLOCKS_DIFFER <= opened_at <= latest + CLOCKS_DIFFER:
        return unchanged
    return {"opened_at": earliest, "opened_at_clock": None if earliest is None else "broker"}


def held_since(row: Row, batches: ProducerBatches) -> Row:
    """Since when the lowest open transaction has held the LSO: since its first batch, or since a later marker.

    An earlier transaction holds the LSO until its marker. If the excerpt has only the marker of a transaction, that may
    have begun earlier: the time is then the latest possible one, and the evidence is named ``held_at_least_since``.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    batches
        Its producer's batches in the excerpt.

    Returns
    -------
    Row
        ``held_from``, ``held_to`` (if its marker was read) and ``held_ms``, null if the excerpt does not show them or
        the clocks contradict each other; and ``evidence``, with the marker after which it was the lowest.
    """
    unknown = {"held_from": None, "held_to": None, "held_ms": None}
    excerpt, high_watermark = batches.excerpt, row["high_watermark"]
    # A transaction that was open before the excerpt may have ended after it.
    if excerpt.start != 0 and (high_watermark is None or excerpt.stop < high_watermark):
        return unknown
    log_transactions, unsure = _log_transactions_around(row, batches)
    own = log_transactions[
        (log_transactions["producer_id"] == batches.producer_id) & (log_transactions["first_offset"] == batches.start)
    ]
    steps = lso_steps(log_transactions, log_end_offset=batches.excerpt.stop)
    holds = (steps["holder_producer_id"] == batches.producer_id) & (steps["holder_first_offset"] == batches.start)
    if not len(own) or not holds.any():
        return unknown
    step, evidence = steps[holds][0], list(row["evidence"])
    if step["event"] == OPEN:
        held_from = _first_batch_time(row, own[0], batches)
    else:
        held_from = utc(int(step["at"]))
        name = "held_at_least_since" if step["offset"] - 1 in unsure else "held_since"
        headers = excerpt.headers
        evidence.append(batches.entry(name, headers[headers["base_offset"] == step["offset"] - 1]))
    held_to = utc(int(own[0]["end"]))
    end, held_ms = held_to or row["observed_at"], None
    if held_from is not None and held_from <= end + CLOCKS_DIFFER:
        held_ms = max((end - held_from) // dt.timedelta(milliseconds=1), 0)
    return {"held_from": held_from, "held_to": held_to, "held_ms": held_ms, "evidence": evidence}


def _log_transactions_around(row: Row, batches: ProducerBatches) -> tuple[LogTransactions, set[int]]:
    """Transactions in the excerpt, and the marker offsets of those that may have begun before it.

    Those are assumed to have begun before it. A first batch with sequence number 0 begins its producer's epoch, and so
    a transaction.
    """
    headers, start = batches.excerpt.headers, batches.excerpt.start
    if start == 0:  # a transaction that begins later cannot have held the LSO before this one
        earlier = headers["producer_id"][: bisect_right(headers["base_offset"], batches.start)]
        return finish(partial_transactions(headers[np.isin(headers["producer_id"], earlier)]), from_start=True), set()
    found = partial_transactions(headers)
    read = finish(found)
    unsure = read[(read["truncated"] == -1) & (read["marker_offset"] >= 0) & (read["first_sequence"] != 0)]
    unsure = unsure[unsure["first_offset"] != batches.start]
    before = {int(each["producer_id"]): (0, int(each["producer_epoch"])) for each in unsure} if batches.start else {}
    if batches.start < start:
        before[batches.producer_id] = (
            batches.start,
            -1 if row["producer_epoch"] is None else row["producer_epoch"],
        )
    return finish(found, opened_before=before), set(unsure["marker_offset"].tolist())


def _first_batch_time(row: Row, log_transaction: np.ndarray[Any, Any], batches: ProducerBatches) -> dt.datetime | None:
    """When its first batch was written; not before its coordinator's start time, which is a broker's clock."""
    opened_at = {
        "opened_at": utc(int(log_transaction["start"])),
        "opened_at_clock": "broker" if log_transaction["start_clock"] == 1 else "producer",
    }
    found: dt.datetime | None = opening_time(opened_at, batches)["opened_at"]
    if row["opened_at_clock"] != "coordinator":
        return found
    started: dt.datetime = row["opened_at"]
    return started if found is None or found < started - CLOCKS_DIFFER else found
