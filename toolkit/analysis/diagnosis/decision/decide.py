"""The function that decides, its rules on partitions and on two sources, and whether the evidence is enough for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toolkit.analysis.diagnosis.decision.decision import Decision
from toolkit.analysis.diagnosis.decision.disowned_rules import doubts, first_disowned_rule
from toolkit.analysis.diagnosis.decision.owned_rules import first_owned_rule
from toolkit.analysis.diagnosis.evidence_kinds import (
    GET_MISSING,
    EndEvidence,
    Evidence,
    OpenEvidence,
    PartitionEvidence,
    TwoSourceEvidence,
)
from toolkit.analysis.diagnosis.evidence_text import at, number
from toolkit.analysis.diagnosis.verdicts import ABORT, COMMIT, UNDECIDED, UNKNOWN
from toolkit.schema.live import Finding
from toolkit.schema.verdict import Verdict

PartitionText = Callable[[PartitionEvidence], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRule:
    """A rule on a partition whose LSO no open transaction explains; see `OpenRule`."""

    name: str
    applies: Callable[[PartitionEvidence], bool]
    verdict: Verdict
    why: PartitionText
    remedy: PartitionText

    def decision(self, p: PartitionEvidence) -> Decision:
        """The decision, if the rule applies."""
        return Decision(
            verdict=self.verdict,
            outcome=None,
            reason=self.why(p),
            remedy=self.remedy(p),
            missing=tuple(p.errors) if self.verdict is Verdict.UNKNOWN else (),
            rule=self.name,
        )


PARTITION_RULES: tuple[PartitionRule, ...] = (
    PartitionRule(
        name="not read",
        applies=lambda p: bool(p.errors),
        verdict=Verdict.UNKNOWN,
        why=lambda p: "The partition could not be read.",
        remedy=lambda p: "Diagnose again.",
    ),
    PartitionRule(
        name="began during the copy",
        applies=lambda p: p.is_held and p.has_begun,
        verdict=Verdict.CLEAR,
        why=lambda p: (
            f"Nothing was held when the coordinators' log was copied: the transaction at the LSO "
            f"{p.partition.last_stable_offset} began afterwards, while the files were copied."
        ),
        remedy=lambda p: "None; a later copy shows whether it ends.",
    ),
    PartitionRule(
        name="ended meanwhile",
        applies=lambda p: p.is_held and p.has_moved,
        verdict=Verdict.ENDING,
        why=lambda p: f"The transaction that held the LSO at {number(p.lso_before)} ended in the meantime.",
        remedy=lambda p: "None: the blocking transaction ended normally.",
    ),
    PartitionRule(
        name="unreplicated",
        applies=lambda p: p.is_held,
        verdict=Verdict.UNREPLICATED,
        why=lambda p: (
            f"Nothing is open at the LSO {p.partition.last_stable_offset}, which stays below the high watermark "
            f"{p.partition.high_watermark} (log end {number(p.partition.log_end_offset)}): a marker is written and "
            "waits for replication."
        ),
        remedy=lambda p: (
            f"Check the replicas: in sync {number(p.partition.isr)} of {number(p.partition.replicas)}. Abort nothing."
        ),
    ),
    PartitionRule(
        name="clear",
        applies=lambda p: True,
        verdict=Verdict.CLEAR,
        why=lambda p: (
            f"The LSO {number(p.partition.last_stable_offset)} is the high watermark: nothing is held back. "
            "kafka-txn lag --group GROUP shows what a lag here consists of: records to read, or markers."
        ),
        remedy=lambda p: "None.",
    ),
)
"""Rules on partitions."""


TwoSourceText = Callable[[TwoSourceEvidence], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSourceRule:
    """A rule on a transaction that a log and a recording have."""

    name: str  # what it is about
    applies: Callable[[TwoSourceEvidence], bool]  # whether it applies
    # the finding whose decision it is; null if the two contradict each other, so that nothing is proven
    source: Callable[[TwoSourceEvidence], Finding | None]
    # why, needs: for a contradiction: the reason, and what is missing
    why: TwoSourceText = lambda e: ""
    needs: TwoSourceText = lambda e: ""

    def decision(self, e: TwoSourceEvidence) -> Decision:
        """The decision, if the rule applies."""
        source = self.source(e)
        if source is not None:
            return _decision_of(source, rule=self.name)
        return Decision(
            verdict=Verdict.UNKNOWN,
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
    return e.log.verdict is Verdict.UNKNOWN and not (
        e.recorded.verdict is Verdict.HANGING and e.recorded.outcome is None
    )


TWO_SOURCE_RULES: tuple[TwoSourceRule, ...] = (
    TwoSourceRule(name="ended in the log", applies=lambda e: e.log.verdict is Verdict.ENDED, source=lambda e: e.log),
    TwoSourceRule(
        name="open after its recorded end",
        applies=lambda e: e.recorded.verdict is Verdict.ENDED and e.is_logged_later,
        source=lambda e: None,
        why=lambda e: f"It is open as of {at(e.log.observed_at)}. {e.recorded.reason}",
        needs=lambda e: f"why the sample of {at(e.recorded.observed_at)} does not have what is open after it",
    ),
    TwoSourceRule(
        name="ended in the recording",
        applies=lambda e: e.recorded.verdict is Verdict.ENDED,
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
    TwoSourceRule(name="decided by the recording only", applies=_tells_more, source=lambda e: e.recorded),
    TwoSourceRule(
        name="committed since",
        applies=lambda e: e.recorded.outcome == COMMIT and e.is_recorded_later,
        source=lambda e: e.recorded,
    ),
    TwoSourceRule(name="decided by the log", applies=lambda e: True, source=lambda e: e.log),
)
"""Rules on transactions that two sources have."""


def decide(evidence: Evidence) -> Decision:
    """Decide by the first rule that applies."""
    if isinstance(evidence, OpenEvidence):
        rule = first_owned_rule(evidence) or first_disowned_rule(evidence)
        return rule.decision(evidence)
    if isinstance(evidence, PartitionEvidence):
        return next(rule for rule in PARTITION_RULES if rule.applies(evidence)).decision(evidence)
    if isinstance(evidence, TwoSourceEvidence):
        return next(rule for rule in TWO_SOURCE_RULES if rule.applies(evidence)).decision(evidence)
    if isinstance(evidence, EndEvidence):
        return Decision(
            verdict=Verdict.ENDED,
            outcome=None,
            reason=evidence.proof,
            remedy="None: it has ended.",
            rule="it has ended",
        )
    return Decision(
        verdict=Verdict.UNKNOWN,
        outcome=UNKNOWN if evidence.is_open else None,
        reason=evidence.reason,
        remedy=evidence.remedy,
        missing=evidence.missing,
        rule="evidence is missing altogether",
    )


def needs_log(evidence: OpenEvidence) -> bool:
    """Whether the logs have to be read: to decide, or to explain what holds the LSO for long."""
    rule = first_owned_rule(evidence)
    return evidence.txn.start is not None and (rule is None or rule.is_explained)


def needs_markers(evidence: OpenEvidence) -> bool:
    """Whether markers of its producer elsewhere may contradict the log: nobody will end it, or a fence would."""
    rule = first_owned_rule(evidence)
    return not doubts(evidence) if rule is None else rule.action == "fence"


def needs_recheck(evidence: OpenEvidence) -> bool:
    """Whether one observation does not decide: another has to show the same."""
    rule = first_owned_rule(evidence)
    return rule is None or rule.verdict in {Verdict.UNKNOWN, Verdict.ENDING, Verdict.STUCK_ENDING}
