"""Merge the findings of a log and of a recording, one row for each transaction."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.history.closing import close, transaction_key
from toolkit.schema import Row

__all__ = ["merge_findings"]

MILLISECOND = dt.timedelta(milliseconds=1)
VERDICT = ("verdict", "reason", "remedy", "missing", "queue_position")
FILLED_COLUMNS = (
    *("transactional_id", "cause", "opened_at", "opened_at_clock", "offsets_held", "records_held", "bytes_held"),
    *("groups_held", "compaction_held", "held_from", "held_to"),
)
OPEN_COLUMNS = ("expires_at", "last_stable_offset", "high_watermark")


def merge_findings(of_log: Iterable[Row], of_recording: Iterable[Row]) -> list[Row]:
    """Findings of a log and of a recording: one row for each transaction.

    Parameters
    ----------
    of_log
        Rows of ``schema.FINDINGS`` from `toolkit.analysis.history.hold_findings.held_findings`.
    of_recording
        Rows of ``schema.FINDINGS`` from `toolkit.analysis.history.findings_over_time.over_time`.

    Returns
    -------
    list of Row
        Rows of ``schema.FINDINGS``. Where both have a transaction, the log's times and amounts win, if it has them. The
        recording's verdict becomes evidence if the transaction is over, and the verdict if the log alone could not
        diagnose it. A transaction that ended in one after it was open in the other is `ended`. A transaction that is
        open in a newer log, but missing in a sample, is `unknown`.
    """
    recorded: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    rows: list[Row] = []
    for row in of_recording:
        if row["start_offset"] is None:
            rows.append(row)
        else:
            recorded[transaction_key(row)].append(row)
    for row in of_log:
        recorded_rows = recorded.pop(transaction_key(row), []) if row["start_offset"] is not None else []
        rows.append(_both(row, recorded_rows) if recorded_rows else row)
    return [*rows, *(row for recorded_rows in recorded.values() for row in recorded_rows)]


def _both(row: Row, recorded_rows: Sequence[Row]) -> Row:
    """Merge the log's finding with the recording's last one; the recorded rows may have several epochs."""
    last = max(recorded_rows, key=lambda each: each["observed_at"])
    names = FILLED_COLUMNS if row["verdict"] == "ended" else (*FILLED_COLUMNS, *OPEN_COLUMNS)
    found = {**row, **{name: last[name] for name in names if row[name] is None}}
    found["evidence"] = [*row["evidence"], *(entry for each in recorded_rows for entry in each["evidence"])]
    if row["verdict"] == "ended":
        found |= close(found, end=row["reason"], before=last)
    elif last["verdict"] == "ended" and row["observed_at"] > last["observed_at"]:
        return {**found, **_contradiction(row, last), "held_to": row["held_to"]}
    elif last["verdict"] == "ended":
        found |= {name: last[name] for name in (*VERDICT, "expires_at", "observed_at", "held_to")} | {"held_ms": None}
    elif row["verdict"] == "unknown":
        found |= {name: last[name] for name in VERDICT}
    if found["held_ms"] is None and found["held_from"] is not None:
        found["held_ms"] = max(((found["held_to"] or last["observed_at"]) - found["held_from"]) // MILLISECOND, 0)
    return found


def _contradiction(row: Row, last: Row) -> Row:
    """Columns for a transaction open in a newer log, but missing in a sample: one of the two times is wrong."""
    return {
        "verdict": "unknown",
        "reason": f"It is open as of {at(row['observed_at'])}. {last['reason']}",
        "remedy": "Do not abort. Get what is missing, and diagnose again.",
        "missing": [f"why the sample of {at(last['observed_at'])} does not have what is open after it"],
    }
