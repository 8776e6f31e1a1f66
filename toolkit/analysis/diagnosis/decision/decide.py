"""Decisions on what is no open transaction of one source: on partitions, two sources, an end, and missing evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toolkit.analysis.diagnosis.decision.decision import Decision
from toolkit.analysis.diagnosis.evidence_kinds import EndEvidence, GapEvidence, PartitionEvidence, TwoSourceEvidence
from toolkit.analysis.diagnosis.evidence_text import at, number
from toolkit.analysis.diagnosis.verdicts import ABORT, COMMIT, UNDECIDED, UNKNOWN
from toolkit.schema.verdict import Verdict

Evidence = PartitionEvidence | EndEvidence | GapEvidence | TwoSourceEvidence
"""What is decided here; an open transaction is decided by its `Case`."""
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


def _of_two_sources(e: TwoSourceEvidence) -> Decision:
    """The decision on a transaction that a log and a recording have: that of one of them, unless they contradict."""
    log, recorded = e.log, e.recorded
    if log.verdict is Verdict.ENDED:
        return Decision.of(log, rule="ended in the log")
    if recorded.verdict is Verdict.ENDED and e.is_logged_later:
        why = f"It is open as of {at(log.observed_at)}. {recorded.reason}"
        missing = f"why the sample of {at(recorded.observed_at)} does not have what is open after it"
        return decide(GapEvidence(reason=why, missing=(missing,)))
    if recorded.verdict is Verdict.ENDED:
        return Decision.of(recorded, rule="ended in the recording")
    is_lost = e.earlier.outcome == COMMIT and e.later.outcome == UNDECIDED  # what is committed stays committed
    if is_lost or {log.outcome, recorded.outcome} == {COMMIT, ABORT}:
        why = (
            f"As of {at(e.earlier.observed_at)} its outcome was {e.earlier.outcome}, as of {at(e.later.observed_at)} "
            f"{e.later.outcome}; what is committed stays committed."
        )
        return decide(GapEvidence(reason=why, missing=("why the log and the recording prove different outcomes",)))
    # A `hanging` of a version that did not record the outcome may be of committed records, and decides nothing.
    decides = recorded.verdict is not Verdict.HANGING or recorded.outcome is not None
    if log.verdict is Verdict.UNKNOWN and decides:
        return Decision.of(recorded, rule="decided by the recording only")
    if recorded.outcome == COMMIT and e.is_recorded_later:
        return Decision.of(recorded, rule="committed since")
    return Decision.of(log, rule="decided by the log")


def decide(evidence: Evidence) -> Decision:
    """Decide by the first rule that applies."""
    if isinstance(evidence, PartitionEvidence):
        return next(rule for rule in PARTITION_RULES if rule.applies(evidence)).decision(evidence)
    if isinstance(evidence, TwoSourceEvidence):
        return _of_two_sources(evidence)
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
