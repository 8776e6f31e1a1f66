"""The function that decides, and whether the evidence is enough for it."""

from __future__ import annotations

from toolkit.analysis.diagnosis.decision.decision import Decision
from toolkit.analysis.diagnosis.decision.disowned_rules import OUTCOME_NOT_PROVEN, first_disowned_rule
from toolkit.analysis.diagnosis.decision.owned_rules import first_owned_rule
from toolkit.analysis.diagnosis.decision.partition_rules import PARTITION_RULES
from toolkit.analysis.diagnosis.decision.two_source_rules import TWO_SOURCE_RULES
from toolkit.analysis.diagnosis.evidence_kinds import (
    EndEvidence,
    Evidence,
    OpenEvidence,
    PartitionEvidence,
    TwoSourceEvidence,
)
from toolkit.analysis.diagnosis.verdicts import UNKNOWN


def decide(evidence: Evidence) -> Decision:
    """Decide by the first rule that applies.

    Parameters
    ----------
    evidence
        All of the evidence.
    """
    if isinstance(evidence, OpenEvidence):
        rule = first_owned_rule(evidence) or first_disowned_rule(evidence)
        return rule.decision(evidence)
    if isinstance(evidence, PartitionEvidence):
        return next(rule for rule in PARTITION_RULES if rule.applies(evidence)).decision(evidence)
    if isinstance(evidence, TwoSourceEvidence):
        return next(rule for rule in TWO_SOURCE_RULES if rule.applies(evidence)).decision(evidence)
    if isinstance(evidence, EndEvidence):
        return Decision(
            verdict="ended", outcome=None, reason=evidence.proof, remedy="None: it has ended.", rule="it has ended"
        )
    return Decision(
        verdict="unknown",
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


def needs_outcome(evidence: OpenEvidence) -> bool:
    """Whether no coordinator will end the transaction, and only the proof of its outcome is missing."""
    return decide(evidence).rule == OUTCOME_NOT_PROVEN


def needs_recheck(evidence: OpenEvidence) -> bool:
    """Whether one observation does not decide: another has to show the same."""
    rule = first_owned_rule(evidence)
    return rule is None or rule.verdict in {"unknown", "ending", "stuck_ending"}
