"""What a recording saw and sees no more, told as over: its own findings say what was said of it while it was open."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from toolkit.analysis.verdicts import HEALTHY
from toolkit.schema import Row

__all__ = ["settled", "still_said"]


def still_said(findings: Iterable[Row], *, looked_at: dt.datetime) -> list[Row]:
    """Findings of a recording over time without what was said of a partition itself, and not by the last look.

    Parameters
    ----------
    findings
        Rows of ``schema.FINDINGS`` of `toolkit.analysis.over_time.over_time`.
    looked_at
        When the last look was due.
    """
    return [row for row in findings if row["start_offset"] is not None or row["observed_at"] >= looked_at]


def settled(findings: Iterable[Row], *, min_held_ms: int) -> list[Row]:
    """Findings over time as they stand at the end of the recording.

    Parameters
    ----------
    findings
        Rows of ``schema.FINDINGS``: of `toolkit.analysis.over_time.over_time`, also joined with those of a log.
    min_held_ms
        Of what was healthy and is over, only what held an LSO for at least so long.

    Returns
    -------
    list of Row
        What a later look did not see any more is ``ended``; its reason says what it was while it was open.
    """
    rows: list[Row] = []
    for row in findings:
        if row["start_offset"] is None or row["verdict"] == "ended" or not _is_gone(row):
            rows.append(row)
        elif row["verdict"] not in HEALTHY or (row["held_ms"] or 0) >= min_held_ms:
            rows.append(_ended(row))
    return rows


def _is_gone(row: Row) -> bool:
    """Whether the last thing that the recording tells of it is that it was not seen any more."""
    return bool(row["evidence"]) and row["evidence"][-1]["name"] == "gone"


def _ended(row: Row) -> Row:
    gone = row["evidence"][-1]["value"]
    return {
        **row,
        "verdict": "ended",
        "position": None,
        "reason": f"{gone[:1].upper()}{gone[1:]} any more. While it was open it was {row['verdict']}: {row['reason']}",
        "remedy": "None: it has ended.",
        "missing": [],
    }
