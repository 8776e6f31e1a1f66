"""Rules on transactions that a log and a recording have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toolkit.analysis.diagnosis.decision.decision import Decision
from toolkit.analysis.diagnosis.evidence_kinds import GET_MISSING, TwoSourceEvidence
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.diagnosis.verdicts import ABORT, COMMIT, UNDECIDED, UNKNOWN
from toolkit.schema.live import Finding

TwoSourceText = Callable[[TwoSourceEvidence], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSourceRule:
    """A rule on a transaction that a log and a recording have.

    Parameters
    ----------
    name
        What it is about.
    applies
        Whether it applies.
    source
        The finding whose decision it is; null if the two contradict each other, so that nothing is proven.
    why, needs
        For a contradiction: the reason, and what is missing.
    """

    name: str
    applies: Callable[[TwoSourceEvidence], bool]
    source: Callable[[TwoSourceEvidence], Finding | None]
    why: TwoSourceText = lambda e: ""
    needs: TwoSourceText = lambda e: ""

    def decision(self, e: TwoSourceEvidence) -> Decision:
        """The decision, if the rule applies."""
        source = self.source(e)
        if source is not None:
            return _decision_of(source, rule=self.name)
        return Decision(
            verdict="unknown",
            outcome=UNKNOWN,
            reason=self.why(e),
            remedy=GET_MISSING,
            missing=(self.needs(e),),
            rule=self.name,
        )


def _decision_of(finding: Finding, *, rule: str) -> Decision:
    """The decision that a finding has."""
    return Decision(
        verdict=finding.verdict,
        outcome=finding.outcome,
        reason=finding.reason,
        remedy=finding.remedy,
        action=finding.action,
        missing=finding.missing,
        cause=finding.cause,
        rule=rule,
    )


def _contradict_on_a_commit(e: TwoSourceEvidence) -> bool:
    """Whether one proves a commit, and the other that there was none: what is committed stays committed."""
    outcomes = {e.log.outcome, e.recorded.outcome}
    return outcomes == {COMMIT, ABORT} or (e.earlier.outcome == COMMIT and e.later.outcome == UNDECIDED)


def _tells_more(e: TwoSourceEvidence) -> bool:
    """Whether the recording decided what the log alone could not.

    A `hanging` of a version that did not record the outcome may be of committed records, and decides nothing.
    """
    return e.log.verdict == "unknown" and not (e.recorded.verdict == "hanging" and e.recorded.outcome is None)


TWO_SOURCE_RULES: tuple[TwoSourceRule, ...] = (
    TwoSourceRule(
        name="ended in the log",
        applies=lambda e: e.log.verdict == "ended",
        source=lambda e: e.log,
    ),
    TwoSourceRule(
        name="open after its recorded end",
        applies=lambda e: e.recorded.verdict == "ended" and e.log.observed_at > e.recorded.observed_at,
        source=lambda e: None,
        why=lambda e: f"It is open as of {at(e.log.observed_at)}. {e.recorded.reason}",
        needs=lambda e: f"why the sample of {at(e.recorded.observed_at)} does not have what is open after it",
    ),
    TwoSourceRule(
        name="ended in the recording",
        applies=lambda e: e.recorded.verdict == "ended",
        source=lambda e: e.recorded,
    ),
    TwoSourceRule(
        name="committed by one source only",
        applies=_contradict_on_a_commit,
        source=lambda e: None,
        why=lambda e: (
            f"As of {at(e.earlier.observed_at)} its outcome was {e.earlier.outcome}, as of {at(e.later.observed_at)} "
            f"{e.later.outcome}; what is committed stays committed."
        ),
        needs=lambda e: "why the log and the recording prove different outcomes",
    ),
    TwoSourceRule(
        name="decided by the recording only",
        applies=_tells_more,
        source=lambda e: e.recorded,
    ),
    TwoSourceRule(
        name="committed since",
        applies=lambda e: e.recorded.outcome == COMMIT and e.recorded.observed_at > e.log.observed_at,
        source=lambda e: e.recorded,
    ),
    TwoSourceRule(
        name="decided by the log",
        applies=lambda e: True,
        source=lambda e: e.log,
    ),
)
"""Rules on transactions that two sources have."""
