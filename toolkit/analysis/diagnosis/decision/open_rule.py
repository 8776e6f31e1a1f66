"""A rule on open transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toolkit.analysis.diagnosis.decision.decision import Decision
from toolkit.analysis.diagnosis.evidence_kinds import OpenEvidence

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
