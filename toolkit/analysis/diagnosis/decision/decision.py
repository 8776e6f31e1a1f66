"""A decision, as a record: verdict, outcome, sentences for the operator and the safe command; a rule that makes one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from toolkit.analysis.diagnosis.verdicts import PROVEN, UNDECIDED, UNKNOWN
from toolkit.schema.live import Finding
from toolkit.schema.record import Merge
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision on a transaction, a partition or the cluster."""

    verdict: Verdict
    outcome: str | None  # one of `verdicts.OUTCOMES`; null if nothing is open
    # reason, remedy: sentences for the operator
    reason: str
    remedy: str
    # the command that is safe: ``abort``, ``complete``, ``commit`` or ``fence``; null if none is
    action: str | None = None
    missing: tuple[str, ...] = ()  # for `unknown`: what is missing, a phrase each
    cause: str | None = None  # the cause that the coordinator's state alone shows
    rule: str  # name of the rule that decided

    @classmethod
    def of(cls, finding: Finding, *, rule: str) -> Decision:
        """The decision that a finding has, by the rule that selected the finding."""
        return cls(**_parts(finding), cause=finding.cause, rule=rule)

    @property
    def parts(self) -> Mapping[str, Any]:
        """The columns of a finding that are this decision."""
        return _parts(self)

    def finding(self, *, observed_at: dt.datetime) -> Finding:
        """A finding with this decision, and nothing else yet."""
        return Finding(**self.parts, evidence=(), observed_at=observed_at)

    def applied_to(self, finding: Finding) -> Finding:
        """The finding with this decision as a whole; its cause stays, which is what the logs show."""
        return replace(finding, **self.parts)


def _parts(decided: Decision | Finding) -> dict[str, Any]:
    policies = Finding.policies.items()
    return {name: getattr(decided, name) for name, policy in policies if policy is Merge.DECISION}


OpenText = Callable[["Case"], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRule:
    """A rule on open transactions."""

    name: str  # what it is about
    applies: Callable[[Case], bool]  # whether it applies
    verdict: Verdict
    # one of `verdicts.OUTCOMES`; null if it has ended. `undecided` becomes `unknown` if logs were read and prove it not
    outcome: str | None
    # why, remedy: sentences for the operator
    why: OpenText
    remedy: OpenText
    action: str | None = None  # command that is safe
    needs: Callable[[Case], tuple[str, ...]] = lambda e: ()  # for `unknown`: what is missing
    cause: str | None = None  # root cause, if the coordinator's state shows it
    is_explained: bool = False  # whether the logs are read to explain it

    def decision(self, e: Case) -> Decision:
        """The decision, if the rule applies."""
        is_proven = not e.has_outcome or e.outcome.no_commit.status == PROVEN
        return Decision(
            verdict=self.verdict,
            outcome=self.outcome if is_proven or self.outcome != UNDECIDED else UNKNOWN,
            reason=self.why(e),
            remedy=self.remedy(e),
            action=self.action,
            missing=self.needs(e),
            cause=None if self.verdict is Verdict.UNKNOWN else self.cause,
            rule=self.name,
        )
