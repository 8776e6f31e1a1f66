"""Decide: who holds the LSO, what was decided about the records, and what is safe. The only place that sets a verdict.

A wrong `hanging` makes an operator abort a live transaction, which silently loses part of it, or a committed one. So
`hanging` needs a response from every coordinator, the proven right to see every id, responses from the partition leader
before and after, the same result in every observation, and the coordinator's log back to before these records. If any
of these is missing, the verdict is `unknown` and names it.

The rules are tables, read from top to bottom; the first that applies decides
(`Case.decision`, `PartitionEvidence.decision`, `decide_id`).
Those on open transactions are one table in two parts, in `toolkit.analysis.diagnosis.rules`. Nothing downstream changes
a decision: what contradicts it is evidence, which has to be there before.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from toolkit.analysis.coordinator.transaction_owners import TWO_PHASE_COMMIT
from toolkit.analysis.diagnosis.evidence_text import at, number
from toolkit.analysis.diagnosis.observation import TransactionAge, age_verdict
from toolkit.analysis.diagnosis.verdicts import (
    ABORT,
    COMMIT,
    GET_MISSING,
    NO_COMMIT,
    NOT_PROVEN,
    OUTCOME_ENTRY,
    PROVEN,
    REFUTED,
    UNDECIDED,
    UNKNOWN,
    recorded_claims,
)
from toolkit.schema.live import Finding, Partition, Transaction
from toolkit.schema.recorded import ActionClaim
from toolkit.schema.table import Merge, TopicPartition
from toolkit.schema.verdict import Verdict

E = TypeVar("E")


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

    @classmethod
    def of(cls, finding: Finding) -> Decision:
        """The decision that a finding has."""
        return cls(**_parts(finding), cause=finding.cause)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[E]):
    """A rule on open transactions, or on partitions whose LSO none explains."""

    name: str  # what it is about
    applies: Callable[[E], bool]  # whether it applies
    verdict: Verdict
    outcome: str | None = None  # one of `verdicts.OUTCOMES`; null if nothing is open
    # why, remedy: sentences for the operator
    why: Callable[[E], str]
    remedy: Callable[[E], str]
    action: str | None = None  # command that is safe
    needs: Callable[[E], tuple[str, ...]] = lambda e: ()  # for `unknown`: what is missing
    cause: str | None = None  # root cause, if the coordinator's state shows it
    is_explained: bool = False  # whether the logs are read to explain it

    def decision(self, e: E) -> Decision:
        """The decision, if the rule applies."""
        return Decision(
            verdict=self.verdict,
            outcome=self.outcome,
            reason=self.why(e),
            remedy=self.remedy(e),
            action=self.action,
            missing=self.needs(e),
            cause=None if self.verdict is Verdict.UNKNOWN else self.cause,
        )


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

    @property
    def decision(self) -> Decision:
        """The decision on it, by the first rule that applies."""
        return next(rule for rule in PARTITION_RULES if rule.applies(self)).decision(self)


PARTITION_RULES: tuple[Rule[PartitionEvidence], ...] = (
    Rule(
        name="not read",
        applies=lambda p: bool(p.errors),
        verdict=Verdict.UNKNOWN,
        why=lambda p: "The partition could not be read.",
        remedy=lambda p: "Diagnose again.",
        needs=lambda p: tuple(p.errors),
    ),
    Rule(
        name="began during the copy",
        applies=lambda p: p.is_held and p.has_begun,
        verdict=Verdict.CLEAR,
        why=lambda p: (
            f"Nothing was held when the coordinators' log was copied: the transaction at the LSO "
            f"{p.partition.last_stable_offset} began afterwards, while the files were copied."
        ),
        remedy=lambda p: "None; a later copy shows whether it ends.",
    ),
    Rule(
        name="ended meanwhile",
        applies=lambda p: p.is_held and p.has_moved,
        verdict=Verdict.ENDING,
        why=lambda p: f"The transaction that held the LSO at {number(p.lso_before)} ended in the meantime.",
        remedy=lambda p: "None: the blocking transaction ended normally.",
    ),
    Rule(
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
    Rule(
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


def decide_ended(proof: str) -> Decision:
    """The decision on a transaction that has ended: `proof` is its marker, or a later sample without it."""
    return Decision(verdict=Verdict.ENDED, outcome=None, reason=proof, remedy="None: it has ended.")


def decide_unknown(
    reason: str, *, missing: tuple[str, ...], remedy: str = GET_MISSING, is_open: bool = True
) -> Decision:
    """The decision where evidence is missing altogether: hidden topics, failed samples, no coordinators' answers.

    `reason`, `remedy`: sentences for the operator.
    `missing`: what is missing, a phrase each.
    `is_open`: whether it is about an open transaction.
    """
    return Decision(
        verdict=Verdict.UNKNOWN, outcome=UNKNOWN if is_open else None, reason=reason, remedy=remedy, missing=missing
    )


def decide_merged(log: Finding, recorded: Finding) -> Decision:
    """The decision on a transaction that a log and a recording have: that of one of them, unless they contradict.

    `log`: its finding by a log, or by the running cluster. `recorded`: its last finding by a recording.
    """
    # By the brokers' time of both; if that is not known, by the clock of who observed it.
    logged_at, recorded_at = (each.brokers_time or each.observed_at for each in (log, recorded))
    if log.verdict is Verdict.ENDED:
        return Decision.of(log)
    if recorded.verdict is Verdict.ENDED and logged_at > recorded_at:
        return decide_unknown(
            f"It is open as of {at(log.observed_at)}. {recorded.reason}",
            missing=(f"why the sample of {at(recorded.observed_at)} does not have what is open after it",),
        )
    if recorded.verdict is Verdict.ENDED:
        return Decision.of(recorded)
    earlier, later = (log, recorded) if recorded_at > logged_at else (recorded, log)
    is_lost = earlier.outcome == COMMIT and later.outcome == UNDECIDED  # what is committed stays committed
    if is_lost or {log.outcome, recorded.outcome} == {COMMIT, ABORT}:
        return decide_unknown(
            f"As of {at(earlier.observed_at)} its outcome was {earlier.outcome}, as of {at(later.observed_at)} "
            f"{later.outcome}; what is committed stays committed.",
            missing=("why the log and the recording prove different outcomes",),
        )
    # A `hanging` of a version that did not record the outcome may be of committed records, and decides nothing.
    decides = recorded.verdict is not Verdict.HANGING or recorded.outcome is not None
    if log.verdict is Verdict.UNKNOWN and decides:
        return Decision.of(recorded)
    if recorded.outcome == COMMIT and recorded_at > logged_at:
        return Decision.of(recorded)
    return Decision.of(log)


OVERDUE, UNPROVEN, COMMITTED = "overdue", "unproven", "committed"
CHECKPOINTED, DECIDED, IDLE = "checkpointed", "decided", "idle"
MEANINGS: Mapping[str, str] = {
    **{
        verdict: "it is within its own timeout, and its process may be alive: wait, or fence it deliberately."
        for verdict in Verdict
        if verdict.is_live
    },
    "long": "it is within its own timeout, which is long. Whether its process is alive, no coordinator knows: start it "
    "again with its id, wait, or fence it deliberately.",
    OVERDUE: "it is open past its own timeout.",
    "prepared": "it is part of a two-phase commit: only its external coordinator may decide.",
    DECIDED: "its outcome is decided, and fencing does not change it: what is committed is completed.",
    IDLE: "nothing is open under it, so there is nothing to end: the next epoch only fences its present producer.",
    CHECKPOINTED: "a completed checkpoint of its Flink job is to commit it, and a fence discards its records: "
    "restore the job, or run kafka-txn commit.",
    COMMITTED: "committed records of an earlier transaction of it are open under it: a fence discards them. Have its "
    "client commit.",
    UNPROVEN: "it is not proven that no commit includes what is open under it, which a fence discards.",
}
"""What each verdict on an id means."""
BY_CHOICE = frozenset({*(verdict.value for verdict in Verdict if verdict.is_live), "prepared", IDLE})
"""Verdicts that an override names: live within its own timeout, or not ours to decide, or nothing to end."""
_LIVE = (Verdict.PREPARED, *(verdict for verdict in reversed(Verdict) if verdict.is_live), Verdict.OVERDUE)
"""Of several verdicts on an id's transaction, the first of these is its own: the one that leaves most to its owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdEvidence:
    """What is known of a transactional id."""

    owner: Transaction  # its coordinator's state of it
    findings: Sequence[Finding]  # on the partitions of its transaction, with their claims
    age: TransactionAge  # of its transaction, where no partition of it shows it
    long_after: dt.timedelta
    is_checkpointed: bool  # whether a checkpoint of Flink is to commit its transaction
    is_hidden: bool  # whether a topic of its transaction is deleted, or hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class IdDecision:
    """The verdict on an id, and what a fence of it needs."""

    verdict: str  # a key of `MEANINGS`
    is_past_its_time: ActionClaim
    no_commit: Sequence[ActionClaim]  # of each partition

    @property
    def needed_override(self) -> str | None:
        """What has to be overridden, word for word; null where nothing has to be, or nothing can be."""
        if self.verdict not in BY_CHOICE | {UNPROVEN}:
            return None
        unproven = [each.claim for each in self.no_commit if each.status == NOT_PROVEN]
        return ", and ".join([*([self.verdict] if self.verdict in BY_CHOICE else []), *unproven])


def decide_id(e: IdEvidence) -> IdDecision:
    """Decide on an id."""
    claims = list(_no_commit(e))
    verdict = _verdict(e, claims)
    is_past = verdict in {OVERDUE, UNPROVEN}
    why = next((each.reason for each in e.findings if each.verdict == OVERDUE), MEANINGS[OVERDUE])
    return IdDecision(
        verdict=verdict,
        is_past_its_time=ActionClaim(
            claim=f"the owner of {e.owner.transactional_id} is past its time",
            status=PROVEN if is_past else NOT_PROVEN,
            discharged_by=why if is_past else None,
        ),
        no_commit=claims,
    )


def _no_commit(e: IdEvidence) -> Iterator[ActionClaim]:
    """That no commit includes what is open under the id, on each partition; one that was not read proves nothing."""
    what = f"no commit includes what is open under {e.owner.transactional_id}"
    if e.is_hidden:
        yield ActionClaim(claim=what, status=NOT_PROVEN)
    for tp in sorted(TopicPartition(*each) for each in e.owner.topic_partitions or ()):
        here = [each for each in e.findings if each.tp == tp]
        if any(each.error for each in here):
            yield ActionClaim(claim=f"{what} on {tp}", status=NOT_PROVEN)
        for each in here:
            if each.start_offset is None:
                continue  # nothing is written there
            claim = recorded_claims(each).get(NO_COMMIT)
            if claim is None:
                yield ActionClaim(claim=f"no commit includes offset {each.start_offset} of {tp}", status=NOT_PROVEN)
                continue
            proof = next((entry.value for entry in each.evidence if entry.name == OUTCOME_ENTRY), None)
            by = None if claim.status == NOT_PROVEN else proof
            yield replace(claim, discharged_by=by)


def _verdict(e: IdEvidence, claims: Sequence[ActionClaim]) -> str:
    owner = e.owner
    if any(each.status == REFUTED for each in claims):
        return COMMITTED
    if owner.state != "Ongoing":
        return DECIDED if str(owner.state).startswith("Prepare") else IDLE
    if e.is_checkpointed:
        return CHECKPOINTED
    own = {each.verdict for each in e.findings if each.producer_epoch == owner.producer_epoch}
    verdict = next((each for each in _LIVE if each in own), None)
    if verdict is None and owner.timeout_ms == TWO_PHASE_COMMIT:
        verdict = Verdict.PREPARED
    if verdict is None:  # it has written nothing yet, or nothing that was read
        verdict = age_verdict(owner, e.age, long_after=e.long_after)
    is_unproven = verdict is Verdict.OVERDUE and any(each.status == NOT_PROVEN for each in claims)
    return UNPROVEN if is_unproven else verdict.value
