"""A decision, as a record: verdict, outcome, sentences for the operator and the safe command."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from toolkit.schema.live import Finding
from toolkit.schema.record import replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision on a transaction, a partition or the cluster.

    Parameters
    ----------
    verdict
        One of `verdicts.VERDICTS`.
    outcome
        One of `verdicts.OUTCOMES`; null if nothing is open.
    reason, remedy
        Sentences for the operator.
    action
        The command that is safe: ``abort``, ``complete``, ``commit`` or ``fence``; null if none is.
    missing
        For `unknown`: what is missing, a phrase each.
    cause
        The cause that the coordinator's state alone shows.
    rule
        Name of the rule that decided.
    """

    verdict: str
    outcome: str | None
    reason: str
    remedy: str
    action: str | None = None
    missing: tuple[str, ...] = ()
    cause: str | None = None
    rule: str

    def finding(self, *, observed_at: dt.datetime) -> Finding:
        """A finding with this decision, and nothing else yet."""
        return Finding(
            verdict=self.verdict,
            outcome=self.outcome,
            reason=self.reason,
            remedy=self.remedy,
            action=self.action,
            missing=self.missing,
            evidence=(),
            observed_at=observed_at,
        )

    def applied_to(self, finding: Finding) -> Finding:
        """The finding with this decision as a whole; its cause stays, which is what the logs show."""
        return replace(
            finding,
            verdict=self.verdict,
            outcome=self.outcome,
            reason=self.reason,
            remedy=self.remedy,
            action=self.action,
            missing=self.missing,
        )
