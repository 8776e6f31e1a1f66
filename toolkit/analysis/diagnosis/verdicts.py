"""Outcomes, claims and causes by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.log import PastTransaction
from toolkit.schema.recorded import ActionClaim

UNDECIDED, ABORT, COMMIT, UNKNOWN = "undecided", "abort", "commit", "unknown"

OUTCOMES: Mapping[str, str] = {
    UNDECIDED: "No commit includes these records.",
    ABORT: "The coordinator decided to abort them.",
    COMMIT: "The coordinator decided to commit them.",
    UNKNOWN: "The coordinator's log was not read, or no longer reaches back to before these records.",
}
"""Outcome by name, and what it means."""


PROVEN, REFUTED, NOT_PROVEN = "proven", "refuted", "not proven"  # of a claim, before a marker is written


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was decided about the open records of a transaction, all of them, as the logs show it."""

    name: str  # one of `OUTCOMES`
    reason: str  # what shows that, as a sentence without its dot
    missing: tuple[str, ...] = ()  # for `UNKNOWN`: what is missing, a phrase each
    # the last decided transaction whose marker is missing; null for `UNDECIDED` and `UNKNOWN`
    transaction: PastTransaction | None = None
    evidence: tuple[EvidenceEntry, ...] = ()  # the coordinator's records that prove it
    offsets: str = "these records"  # which records, as ``offsets 4 to 9 of orders-0``
    # for `UNKNOWN`: whether the coordinators' log contradicts itself, so that markers elsewhere prove nothing, either
    is_contradicted: bool = False
    # for `UNKNOWN`: whether a commit is proven to include some of them, and whether none is proven to include some
    is_partly_committed: bool = False
    is_partly_free: bool = False
    commit_claim: str | None = None  # for `UNKNOWN`: what is not proven if a commit is likely; null if none is
    # what else the logs show, read after the coordinators answered
    other_producer_id: int | None = None  # producer of the batch at the start offset, if it is another one
    # ``COMMIT marker at offset 12``: the producer's first marker after the start; null if there is none
    marker_after: str | None = None
    marker_contradicts: bool = False  # whether that marker was in the log before the leader showed the transaction open
    marker_entry: EvidenceEntry | None = None  # the marker as evidence
    # whether the producer's markers on other partitions were looked for, and why they could not be read
    are_markers_sought: bool = False
    markers_unread: str | None = None
    has_ended: bool = False  # whether the leader no longer shows it open, once the coordinators' log was read

    @property
    def is_decided(self) -> bool:
        """Whether a commit or an abort includes the records."""
        return self.name in (COMMIT, ABORT)

    @property
    def no_commit(self) -> ActionClaim:
        """That no commit includes any of them, which an abort needs."""
        status = PROVEN if self.name in (UNDECIDED, ABORT) else NOT_PROVEN
        if self.name == COMMIT or self.is_partly_committed:
            status = REFUTED
        return ActionClaim(claim=f"no commit includes {self.offsets}", status=status)

    @property
    def all_committed(self) -> ActionClaim:
        """That commits include all of them, which a COMMIT marker needs."""
        if self.name == COMMIT:
            return ActionClaim(claim=f"a commit includes {self.offsets}", status=PROVEN)
        if self.commit_claim is None or self.is_partly_free:
            return ActionClaim(claim=f"a commit includes {self.offsets}", status=REFUTED)
        return ActionClaim(claim=self.commit_claim, status=NOT_PROVEN)


CAUSES: Mapping[str, str] = {
    "late-after-commit": "A batch, or a retry of it, arrived after the COMMIT marker.",
    "late-after-abort": "A batch, or a retry of it, arrived after the ABORT marker.",
    "torn-transaction": "An EndTxn request that was delayed may have committed the first half of it.",
    "never-added": "The producer wrote to a partition without AddPartitionsToTxn.",
    "no-owner": "The transactional id has expired, or now has another producer id.",
    "marker-refused": "The partition refuses the marker: it knows a higher coordinator epoch.",
    "marker-compacted": "The log cleaner removed the marker.",
    "marker-lost": "The marker was lost when another replica became leader.",
    "marker-skipped": "The coordinator completed the transaction without the marker of a partition that had no leader.",
    "marker-not-written": "The coordinator has decided but has not written the marker.",
    "marker-not-sent": "The coordinator cannot reach the partition's leader.",
    "flink-timeout": "The id and the timeout are those of Flink's KafkaSink, which aborts only after a restart.",
    "random-id": "The transactional id is random, so no restart fences it.",
    "group-offsets": "It holds offsets of a consumer group.",
    "head-deleted": "Its first records are deleted.",
    "client-too-slow": "The client did not end it within its timeout, and the coordinator aborted it.",
    "two-phase-commit": "It is prepared, and an external coordinator decides (KIP-939).",
}
"""Causes by name."""


OUTCOME_ENTRY = "outcome"
"""Name of the entry of a finding's evidence that has its outcome, as ``abort: the transaction of ... was aborted``."""

NOT_OWNED, NO_COMMIT, ALL_COMMITTED = "claim_not_owned", "claim_no_commit", "claim_all_committed"
"""Names of the entries of a finding's evidence that have its claims, as ``no commit includes offset 4: proven``."""

CHECKPOINT_ENTRY = "flink_checkpoint"
"""Name of the entry of a finding's evidence that says whether a checkpoint of Flink is to commit the transaction."""
TO_COMMIT = "is to commit it"

GET_MISSING = "Do not abort. Get what is missing, and diagnose again."

NOT_READ = Outcome(
    name=UNKNOWN,
    reason="the coordinators' log was not read",
    missing=("the coordinators' log, which was not read: whether a commit includes these records",),
)


def recorded_outcome(finding: Finding) -> Outcome:
    """What was decided about the records of a finding's transaction, by the logs of the time when it was recorded."""
    if finding.outcome is None:
        return NOT_READ
    reason = next((each.value or "" for each in finding.evidence if each.name == OUTCOME_ENTRY), "")
    claims = recorded_claims(finding)
    no_commit, all_committed = claims.get(NO_COMMIT), claims.get(ALL_COMMITTED)
    return Outcome(
        name=finding.outcome,
        reason=reason.partition(": ")[2] or finding.reason.rstrip("."),
        missing=finding.missing,
        offsets=no_commit.claim.removeprefix("no commit includes ") if no_commit else "these records",
        is_partly_committed=no_commit is not None and no_commit.status == REFUTED,
        commit_claim=all_committed.claim if all_committed and all_committed.status == NOT_PROVEN else None,
    )


def recorded_claims(finding: Finding) -> Mapping[str, ActionClaim]:
    """The claims in the evidence of a finding, by the names of their entries."""
    found = {each.name: (each.value or "").rpartition(": ") for each in finding.evidence}
    return {
        name: ActionClaim(claim=found[name][0], status=found[name][2])
        for name in (NOT_OWNED, NO_COMMIT, ALL_COMMITTED)
        if name in found
    }
