"""Verdicts by name, and what follows from each; `toolkit.analysis.diagnosis.decision` has the rules."""

from __future__ import annotations

from collections.abc import Mapping

VERDICTS: Mapping[str, str] = {
    "ongoing": "A live transaction within its own timeout.",
    "long": "A live transaction within its own timeout, but open longer than brokers allow by default (Flink).",
    "overdue": "Ongoing past its own timeout: its coordinator should have aborted it.",
    "ending": "The coordinator is writing its markers.",
    "stuck_ending": "The coordinator decided long ago, and its marker is not written here.",
    "prepared": "Prepared by two-phase commit: only the external coordinator may decide.",
    "hanging": "No coordinator owns this transaction, so none will end it.",
    "unreplicated": "Nothing is open; the LSO waits for replication.",
    "ended": "It was open and has ended; it holds nothing any more.",
    "clear": "Nothing is held back.",
    "unknown": "Evidence is missing; `missing` names it.",
}

HEALTHY = frozenset({"ongoing", "long", "ending", "clear"})
"""Verdicts that need no action."""
BRIEF = HEALTHY - {"long"}
"""Healthy verdicts behind which nothing waits for long; what waits behind a `long` one is worth showing."""

OWNED = HEALTHY - {"clear"} | {"overdue", "stuck_ending", "prepared"}
"""Verdicts of a transaction that its coordinator will end or has ended, or that another system has to decide."""
