"""Rules on partitions whose LSO no open transaction explains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toolkit.analysis.diagnosis.decision.decision import Decision
from toolkit.analysis.diagnosis.evidence_kinds import PartitionEvidence
from toolkit.analysis.diagnosis.evidence_text import number

PartitionText = Callable[[PartitionEvidence], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRule:
    """A rule on a partition whose LSO no open transaction explains; see `OpenRule`."""

    name: str
    applies: Callable[[PartitionEvidence], bool]
    verdict: str
    why: PartitionText
    remedy: PartitionText

    def decision(self, p: PartitionEvidence) -> Decision:
        """The decision, if the rule applies."""
        return Decision(
            verdict=self.verdict,
            outcome=None,
            reason=self.why(p),
            remedy=self.remedy(p),
            missing=tuple(p.errors) if self.verdict == "unknown" else (),
            rule=self.name,
        )


PARTITION_RULES: tuple[PartitionRule, ...] = (
    PartitionRule(
        name="not read",
        applies=lambda p: bool(p.errors),
        verdict="unknown",
        why=lambda p: "The partition could not be read.",
        remedy=lambda p: "Diagnose again.",
    ),
    PartitionRule(
        name="began during the copy",
        applies=lambda p: p.is_held and p.has_begun,
        verdict="clear",
        why=lambda p: (
            f"Nothing was held when the coordinators' log was copied: the transaction at the LSO "
            f"{p.partition.last_stable_offset} began afterwards, while the files were copied."
        ),
        remedy=lambda p: "None; a later copy shows whether it ends.",
    ),
    PartitionRule(
        name="ended meanwhile",
        applies=lambda p: p.is_held and p.has_moved,
        verdict="ending",
        why=lambda p: f"The transaction that held the LSO at {number(p.lso_before)} ended in the meantime.",
        remedy=lambda p: "None: the blocking transaction ended normally.",
    ),
    PartitionRule(
        name="unreplicated",
        applies=lambda p: p.is_held,
        verdict="unreplicated",
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
        verdict="clear",
        why=lambda p: (
            f"The LSO {number(p.partition.last_stable_offset)} is the high watermark: nothing is held back. A consumer "
            "that shows a lag of 1 here is at a transaction marker, which is never delivered to it."
        ),
        remedy=lambda p: "None.",
    ),
)
"""Rules on partitions."""
