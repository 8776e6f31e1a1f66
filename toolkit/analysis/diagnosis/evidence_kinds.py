"""Evidence of decisions that are on no `Case`: on partitions, on ends, and on what is missing; and names of entries."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolkit.analysis.diagnosis.verdicts import NOT_PROVEN, REFUTED, UNKNOWN, Claim, Outcome
from toolkit.schema.live import Finding, Partition

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
        offsets=no_commit.words.removeprefix("no commit includes ") if no_commit else "these records",
        is_partly_committed=no_commit is not None and no_commit.status == REFUTED,
        commit_claim=all_committed.words if all_committed and all_committed.status == NOT_PROVEN else None,
    )


def recorded_claims(finding: Finding) -> Mapping[str, Claim]:
    """The claims in the evidence of a finding, by the names of their entries."""
    found = {each.name: (each.value or "").rpartition(": ") for each in finding.evidence}
    return {
        name: Claim(words=found[name][0], status=found[name][2])
        for name in (NOT_OWNED, NO_COMMIT, ALL_COMMITTED)
        if name in found
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEvidence:
    """Evidence of a partition whose LSO no open transaction explains."""

    partition: Partition  # the partition, last read
    errors: Sequence[str] = ()  # why it could not be read
    lso_before: int | None = None  # its LSO in the first observation
    # whether its LSO was below the high watermark in every observation, without an open transaction at it
    is_held: bool = False
    # whether the LSO has moved, or a transaction was open at some time: it is not the same hold
    has_moved: bool = False
    has_begun: bool = False  # for files: whether what holds it began while they were copied


@dataclass(frozen=True, slots=True, kw_only=True)
class EndEvidence:
    """Evidence that a transaction has ended: its marker, or a later sample that read its partition without it."""

    proof: str  # the proof, in sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class GapEvidence:
    """Evidence that is missing altogether: hidden topics, failed samples, a transaction without coordinators' answers.

    `reason`, `remedy`: sentences for the operator.
    `missing`: what is missing, a phrase each.
    `is_open`: whether it is about an open transaction.
    """

    reason: str
    missing: tuple[str, ...]
    remedy: str = GET_MISSING
    is_open: bool = True


def _by_brokers(finding: Finding) -> dt.datetime:
    """When it was observed: if no broker's time is known, by the clock of who observed it."""
    return finding.brokers_time or finding.observed_at


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSourceEvidence:
    """Evidence of one transaction from two sources, each of which was decided by itself."""

    log: Finding  # its finding by a log, or by the running cluster
    recorded: Finding  # its last finding by a recording

    @property
    def is_logged_later(self) -> bool:
        """Whether the log was read after the sample, by the brokers' time of both, as far as it is known."""
        return _by_brokers(self.log) > _by_brokers(self.recorded)

    @property
    def is_recorded_later(self) -> bool:
        """Whether the sample was taken after the log was read."""
        return _by_brokers(self.recorded) > _by_brokers(self.log)

    @property
    def earlier(self) -> Finding:
        """The one that was observed first."""
        return self.log if self.is_recorded_later else self.recorded

    @property
    def later(self) -> Finding:
        """The one that was observed last."""
        return self.log if self.earlier is self.recorded else self.recorded
