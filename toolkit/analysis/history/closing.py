"""Close past findings: a transaction that is known to have ended is `ended`, whatever its verdict while it was open.

Its marker in the log proves the end, and so does a later sample that read its partition completely without it. An
error, a failed sample and topics that may be hidden prove nothing. All code that reports past findings closes them with
`close`. Rows as they were recorded (``Recording.findings_over_time``, the pipeline's ``recorded_findings``) and rows
that state their time (the pipeline's ``current_findings``) stay unchanged.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.diagnosis.verdicts import HEALTHY
from toolkit.schema import Row

__all__ = [
    "close",
    "close_by_log",
    "close_by_observation",
    "is_open",
    "transaction_key",
    "unread",
    "verdict_before",
    "without_short",
    "without_stale",
]

VERDICT_BEFORE = "verdict_before"
MILLISECOND = dt.timedelta(milliseconds=1)


def close(row: Row, *, end: str, before: Row | None = None) -> Row:
    """The finding of a transaction whose end is known.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``, as of the time of the proof.
    end
        The proof, in sentences.
    before
        The last finding while it was open, or one that is closed already; null if there is none.

    Returns
    -------
    Row
        The row with verdict `ended`. Its reason and evidence state when it was last seen open, and with which verdict.
    """
    columns = {
        **row,
        "verdict": "ended",
        "queue_position": None,
        "reason": end,
        "remedy": "None: it has ended.",
        "missing": [],
        "expires_at": None,
    }
    entry = None if before is None else _entry_before(before)
    if before is None or entry is None:
        return columns
    why = "." if before["verdict"] == "ended" else f": {before['reason']}"
    last_seen = f"Last seen open at {at(entry['observed_at'])}. While it was open it was {entry['value']}{why}"
    evidence = [each for each in row["evidence"] if each["name"] != VERDICT_BEFORE]
    return {**columns, "reason": f"{end} {last_seen}", "evidence": [*evidence, entry]}


def close_by_log(findings: Iterable[Row], log_transactions: Iterable[Row]) -> list[Row]:
    """Close the past findings whose marker is in the log.

    Parameters
    ----------
    findings
        Rows of ``schema.FINDINGS``.
    log_transactions
        Rows of ``schema.LOG_TRANSACTIONS``; findings of all other transactions stay unchanged.
    """
    markers = {
        _log_transaction_key(log_transaction): log_transaction
        for log_transaction in log_transactions
        if log_transaction["marker_offset"] is not None
    }
    rows: list[Row] = []
    for row in findings:
        log_transaction = markers.get(transaction_key(row)) if is_open(row) else None
        rows.append(row if log_transaction is None else _by_marker(row, log_transaction))
    return rows


def close_by_observation(findings: Iterable[Row], later: Iterable[Row]) -> list[Row]:
    """Close the past findings whose partition a later sample read without the transaction.

    Parameters
    ----------
    findings
        Rows of ``schema.FINDINGS``.
    later
        Findings of a later sample of these partitions; a partition without a row was not read.
    """
    observations: defaultdict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in later:
        observations[row["topic"], row["partition"]].append(row)
    rows: list[Row] = []
    for row in findings:
        last_seen = observations.get((row["topic"], row["partition"]), [])
        is_gone = last_seen and not unread(last_seen) and transaction_key(row) not in map(transaction_key, last_seen)
        if is_gone and is_open(row) and last_seen[0]["observed_at"] > row["observed_at"]:
            time = last_seen[0]["observed_at"]
            row = close({**row, **_held_to(row, time)}, end=f"The sample of {at(time)} no longer has it.", before=row)
        rows.append(row)
    return rows


def is_open(row: Row) -> bool:
    """Whether a finding is of an open transaction."""
    return row["start_offset"] is not None and row["verdict"] != "ended"


def unread(rows: Sequence[Row]) -> str | None:
    """Why a sample could not read a partition, by its findings; null if it did."""
    for row in rows:
        if row["producer_id"] is None and row["verdict"] == "unknown":
            return str(row["error"] or "; ".join(row["missing"])).partition(":")[0]
    return None


def transaction_key(row: Row) -> tuple[object, ...]:
    """The key of a finding's transaction; without the epoch, as one transaction may have several."""
    return tuple(row[name] for name in ("topic", "partition", "producer_id", "start_offset"))


def verdict_before(row: Row) -> str | None:
    """The verdict of an ended transaction while it was open; null if there is none."""
    entry = None if row["verdict"] != "ended" else _entry_before(row)
    return None if entry is None else str(entry["value"])


def without_short(findings: Iterable[Row], *, min_held_ms: int) -> list[Row]:
    """Leave out ended transactions that were healthy and held the LSO for less."""
    return [row for row in findings if verdict_before(row) not in HEALTHY or (row["held_ms"] or 0) >= min_held_ms]


def without_stale(findings: Iterable[Row], *, sampled_at: dt.datetime) -> list[Row]:
    """Leave out findings of partitions themselves from samples before this one."""
    return [row for row in findings if row["start_offset"] is not None or row["observed_at"] >= sampled_at]


def _entry_before(row: Row) -> Row | None:
    """Evidence entry: when a transaction was last seen open, and with which verdict."""
    if row["verdict"] == "ended":
        return next((entry for entry in row["evidence"] if entry["name"] == VERDICT_BEFORE), None)
    source_entry = {"source": "findings", "broker_id": row["broker_id"], "observed_at": row["observed_at"]}
    return {**source_entry, "name": VERDICT_BEFORE, "value": row["verdict"]}


def _by_marker(row: Row, log_transaction: Row) -> Row:
    marker = f"{log_transaction['marker']} marker" if log_transaction["marker"] else "marker"
    end = f"Its {marker} is at offset {log_transaction['marker_offset']} of the log."
    return close({**row, **_held_to(row, log_transaction["end"])}, end=end, before=row)


def _held_to(row: Row, end: dt.datetime | None) -> Row:
    """Until when and for how long it held the LSO; null if unknown."""
    if end is None:
        return {"held_ms": None}
    if row["held_from"] is None:
        return {"observed_at": end}
    return {"observed_at": end, "held_to": end, "held_ms": max((end - row["held_from"]) // MILLISECOND, 0)}


def _log_transaction_key(log_transaction: Row) -> tuple[object, ...]:
    return tuple(log_transaction[name] for name in ("topic", "partition", "producer_id", "first_offset"))
