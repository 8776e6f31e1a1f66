"""What was decided about the records of an open transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolkit.schema.live import EvidenceEntry
from toolkit.schema.log import PastTransaction

UNDECIDED, ABORT, COMMIT, UNKNOWN = "undecided", "abort", "commit", "unknown"

OUTCOMES: Mapping[str, str] = {
    UNDECIDED: "No commit or abort includes these records.",
    ABORT: "The coordinator decided to abort them.",
    COMMIT: "The coordinator decided to commit them.",
    UNKNOWN: "The coordinator's log was not read, or no longer reaches back to before these records.",
}
"""Outcome by name, and what it means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was decided about the open records of a transaction.

    Parameters
    ----------
    name
        One of `OUTCOMES`.
    reason
        What shows that, as a sentence without its dot.
    missing
        For `UNKNOWN`: what is missing, a phrase each.
    transaction
        The decided transaction whose marker is missing; null for `UNDECIDED` and `UNKNOWN`.
    evidence
        The coordinator's records that prove it.
    """

    name: str
    reason: str
    missing: tuple[str, ...] = ()
    transaction: PastTransaction | None = None
    evidence: tuple[EvidenceEntry, ...] = ()
