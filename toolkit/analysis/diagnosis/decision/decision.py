"""A decision, as a record: verdict, outcome, sentences for the operator and the safe command; a rule that makes one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from toolkit.analysis.diagnosis.evidence_kinds import OpenEvidence
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


OpenText = Callable[[OpenEvidence], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRule:
    """A rule on open transactions.

    Parameters
    ----------
    name
        What it is about.
    applies
        Whether it applies.
    verdict
        One of `verdicts.VERDICTS`.
    outcome
        One of `verdicts.OUTCOMES`; null if it has ended.
    why, remedy
        Sentences for the operator.
    action
        Command that is safe.
    needs
        For `unknown`: what is missing.
    cause
        Root cause, if the coordinator's state shows it.
    is_explained
        Whether the logs are read to explain it.
    """

    name: str
    applies: Callable[[OpenEvidence], bool]
    verdict: str
    outcome: str | None
    why: OpenText
    remedy: OpenText
    action: str | None = None
    needs: Callable[[OpenEvidence], tuple[str, ...]] = lambda e: ()
    cause: str | None = None
    is_explained: bool = False

    def decision(self, e: OpenEvidence) -> Decision:
        """The decision, if the rule applies."""
        return Decision(
            verdict=self.verdict,
            outcome=self.outcome,
            reason=self.why(e),
            remedy=self.remedy(e),
            action=self.action,
            missing=self.needs(e),
            cause=None if self.verdict == "unknown" else self.cause,
            rule=self.name,
        )
