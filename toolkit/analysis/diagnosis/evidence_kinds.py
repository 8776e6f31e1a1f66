"""The evidence of a decision: all that `toolkit.analysis.diagnosis.decision` reads, gathered before it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS, Observation, OpenTransaction
from toolkit.analysis.diagnosis.verdicts import NOT_PROVEN, REFUTED, UNKNOWN, Claim, Outcome
from toolkit.formats.flink_checkpoint import FlinkCheckpoint
from toolkit.schema.live import EvidenceEntry, Finding, Partition
from toolkit.schema.table import TransactionKey

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What the logs show of an open transaction, read after its coordinator answered."""

    outcome: Outcome  # what was decided about its records
    other_producer_id: int | None = None  # producer of the batch at its start offset, if it is another one
    # ``COMMIT marker at offset 12``: the producer's first marker after the start; null if there is none
    marker_after: str | None = None
    marker_contradicts: bool = False  # whether that marker was in the log before the leader showed the transaction open
    marker_entry: EvidenceEntry | None = None  # the marker as evidence
    # whether the producer's markers on other partitions were looked for, and why they could not be read
    are_markers_sought: bool = False
    markers_unread: str | None = None
    has_ended: bool = False  # whether the leader no longer shows it open, once the coordinators' log was read


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenEvidence:
    """Evidence of an open transaction."""

    txn: OpenTransaction  # the transaction in the last observation
    # the same transaction in every observation, the last one included; null where it was not open
    history: Sequence[OpenTransaction | None]
    observations: Sequence[Observation]
    log: LogFacts | None = None  # what the logs show; null if they were not read
    # the finding that was recorded with this observation, which rests on the logs of that time; null if there is none
    recorded: Finding | None = None
    # whether the observation is a sample without one before it, so that a second one is still to come
    is_single_sample: bool = False
    # a live transaction older than this is `long`
    long_after: dt.timedelta = dt.timedelta(milliseconds=MAX_TRANSACTION_TIMEOUT_MS)
    checkpoints: Sequence[FlinkCheckpoint] = ()  # completed checkpoints of Flink jobs

    @property
    def checkpoint(self) -> FlinkCheckpoint | None:
        """The checkpoint that is to commit this very transaction; null if none is."""
        own = (self.txn.producer_id, self.txn.epoch)
        for checkpoint in reversed(self.checkpoints):  # the newest of a job first
            if any((each.producer_id, each.producer_epoch) == own for each in checkpoint.committables):
                return checkpoint
        return None

    @property
    def key(self) -> TransactionKey:
        """The key of the transaction."""
        return TransactionKey(*self.txn.tp, self.txn.producer_id, self.txn.start)

    @property
    def has_outcome(self) -> bool:
        """Whether its logs were read for its outcome, now or when it was recorded."""
        return self.txn.start is not None and (self.log is not None or self.recorded is not None)

    @property
    def outcome(self) -> Outcome:
        """What was decided about its records, by the logs, or by the logs of the time of the recording."""
        if self.log is not None:
            return self.log.outcome
        if self.recorded is None or self.recorded.outcome is None:
            return NOT_READ
        recorded = next((each.value or "" for each in self.recorded.evidence if each.name == OUTCOME_ENTRY), "")
        claims = recorded_claims(self.recorded)
        no_commit, all_committed = claims.get(NO_COMMIT), claims.get(ALL_COMMITTED)
        return Outcome(
            name=self.recorded.outcome,
            reason=recorded.partition(": ")[2] or self.recorded.reason.rstrip("."),
            missing=self.recorded.missing,
            offsets=no_commit.words.removeprefix("no commit includes ") if no_commit else "these records",
            is_partly_committed=no_commit is not None and no_commit.status == REFUTED,
            commit_claim=all_committed.words if all_committed and all_committed.status == NOT_PROVEN else None,
        )

    def earlier(self) -> list[OpenEvidence | None]:
        """The evidence of each observation alone, in order."""
        return [None if txn is None else replace(self, txn=txn) for txn in self.history]


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


Evidence = OpenEvidence | PartitionEvidence | EndEvidence | GapEvidence | TwoSourceEvidence
