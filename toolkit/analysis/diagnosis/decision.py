"""Decide: who holds the LSO, what was decided about the records, and what is safe. The only place that sets a verdict.

A wrong `hanging` makes an operator abort a live transaction, which silently loses part of it, or a committed one. So
`hanging` needs a response from every coordinator, the proven right to see every id, responses from the partition leader
before and after, the same result in every observation, and the coordinator's log back to before these records. If any
of these is missing, the verdict is `unknown` and names it.

The rules are tables, read from top to bottom; the first that applies decides (`Case.decision`,
`PartitionEvidence.decision`). Those on open transactions are one table in two parts, in
`toolkit.analysis.diagnosis.rules`. Nothing downstream changes a decision: what contradicts it is evidence, which has to
be there before.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from toolkit.analysis.diagnosis.evidence_text import at, number
from toolkit.analysis.diagnosis.observation import TransactionAge, age_verdict, is_held
from toolkit.analysis.transaction_owners import TWO_PHASE_COMMIT
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.schema.live import EvidenceEntry, Finding, Partition, Transaction
from toolkit.schema.log import PastTransaction
from toolkit.schema.recorded import ActionClaim
from toolkit.schema.table import Merge, TopicPartition
from toolkit.schema.verdict import Verdict

UNDECIDED, ABORT, COMMIT, UNKNOWN = "undecided", "abort", "commit", "unknown"

OUTCOMES: Mapping[str, str] = {
    UNDECIDED: "No commit includes these records.",
    ABORT: "The coordinator decided to abort them.",
    COMMIT: "The coordinator decided to commit them.",
    UNKNOWN: "What was decided about these records is not proven.",
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
    # for `UNDECIDED` and `UNKNOWN`: whether an abort whose marker may be missing may include some of them
    is_partly_aborted: bool = False
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
    """The claims in the evidence of a finding, by the names of their entries: its own, which are the first of each."""
    found = {each.name: (each.value or "").rpartition(": ") for each in reversed(finding.evidence)}
    return {
        name: ActionClaim(claim=found[name][0], status=found[name][2])
        for name in (NOT_OWNED, NO_COMMIT, ALL_COMMITTED)
        if name in found
    }


DECISION_COLUMNS = [name for name, policy in Finding.policies.items() if policy is Merge.DECISION]
E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision on a transaction, a partition or the cluster."""

    verdict: Verdict
    outcome: str | None  # one of `OUTCOMES`; null if nothing is open
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
        return cls(**{name: getattr(finding, name) for name in DECISION_COLUMNS}, cause=finding.cause)

    @property
    def parts(self) -> Mapping[str, Any]:
        """The columns of a finding that are this decision."""
        return {name: getattr(self, name) for name in DECISION_COLUMNS}

    def finding(self, *, observed_at: dt.datetime) -> Finding:
        """A finding with this decision, and nothing else yet."""
        return Finding(**self.parts, evidence=(), observed_at=observed_at)

    def applied_to(self, finding: Finding) -> Finding:
        """The finding with this decision as a whole; its cause stays, which is what the logs show."""
        return replace(finding, **self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(Generic[E]):
    """A rule on open transactions, or on partitions whose LSO none explains."""

    name: str  # what it is about
    applies: Callable[[E], bool]  # whether it applies
    verdict: Verdict
    outcome: str | None = None  # one of `OUTCOMES`; null if nothing is open
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
        remedy=lambda p: (
            "Diagnose the whole output of kafka-dump-log.sh with --deep-iteration, or the segment itself."
            if any(each.startswith(("MALFORMED_LINE", "MISSING_LINES", "NOTHING_READ")) for each in p.errors)
            else "Diagnose again."
        ),
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
            f"Nothing was held when it was first read; what holds the LSO {number(p.partition.last_stable_offset)} has "
            "begun since."
            if is_held(p.partition)
            else f"The LSO {number(p.partition.last_stable_offset)} is the high watermark: nothing is held back. "
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


def decide_open_after_marker(finding: Finding, marker_time: dt.datetime | None, *, end: str) -> Decision | None:
    """The decision on a transaction that a look has open after its marker, which a log has; null if it has ended.

    Then the leader has lost the marker, or the log is not its partition's: a deposed leader's, or an older copy.

    `finding`: that look. `end`: the marker, in sentences.
    """
    looked_at = finding.brokers_time
    if marker_time is None or looked_at is None or looked_at <= marker_time + CLOCKS_DIFFER:
        return None
    return decide_unknown(
        f"{end} It is open as of {at(looked_at)}, by the brokers' time, so its leader has lost that marker, or never "
        "had it. What is committed stays committed.",
        missing=("which replica's log is that of the partition, and what became of its marker",),
    )


def decide_merged(log: Finding, recorded: Finding) -> Decision:
    """The decision on a transaction that a log and a recording have: that of one of them, unless they contradict.

    `log`: its finding by a log, or by the running cluster. `recorded`: its last finding by a recording.
    """
    # Epochs only rise, and the brokers' time tells which look is later; clocks of two machines do not.
    log_time, recorded_time = log.brokers_time, recorded.brokers_time
    order = 0 if log_time is None or recorded_time is None else (log_time > recorded_time) - (log_time < recorded_time)
    is_timed = None not in (log_time, recorded_time)
    if log.verdict is Verdict.ENDED:
        is_open = recorded.verdict is not Verdict.ENDED
        after_marker = decide_open_after_marker(recorded, log.held_to, end=log.reason) if is_open else None
        return after_marker or Decision.of(log)
    if recorded.verdict is Verdict.ENDED and (order > 0 or not is_timed):
        why = f"why the sample of {at(recorded.observed_at)} does not have what is open after it"
        which = "the brokers' time of both: whether it was open before that sample, or is open after it"
        return decide_unknown(
            f"It is open as of {at(log.observed_at)}. {recorded.reason}", missing=(why if is_timed else which,)
        )
    if recorded.verdict is Verdict.ENDED:
        return Decision.of(recorded)
    epochs = {each.producer_epoch for each in (log, recorded) if each.producer_epoch is not None}
    if len(epochs) > 1:
        order = 1 if log.producer_epoch == max(epochs) else -1
    earlier, later = (log, recorded) if order < 0 else (recorded, log)  # of neither is known to be later if order is 0
    outcomes = {log.outcome, recorded.outcome}
    is_lost = outcomes == {COMMIT, UNDECIDED} and (order == 0 or later.outcome == UNDECIDED)
    if is_lost or outcomes == {COMMIT, ABORT}:  # what is committed stays committed
        return decide_unknown(
            f"As of {at(earlier.observed_at)} its outcome was {earlier.outcome}, as of {at(later.observed_at)} "
            f"{later.outcome}; what is committed stays committed.",
            missing=("why the log and the recording prove different outcomes",),
        )
    # What a commit includes in part, no other one makes free of it, or committed as a whole; nor does an earlier one
    # free what a commit may include now.
    for doubtful, other in ((log, recorded), (recorded, log)):
        outcome, may_be_later = recorded_outcome(doubtful), doubtful is later or order == 0
        may_be_committed = outcome.is_partly_committed or (may_be_later and outcome.commit_claim is not None)
        is_in_part = outcome.is_partly_committed and outcome.commit_claim is None
        is_doubted = (may_be_committed and other.outcome in (UNDECIDED, ABORT)) or (
            is_in_part and other.outcome == COMMIT
        )
        if doubtful.verdict is Verdict.UNKNOWN and is_doubted:
            return Decision.of(doubtful)
    # A `hanging` of a version that did not record the outcome may be of committed records, and decides nothing.
    if recorded.verdict is Verdict.HANGING and recorded.outcome is None:
        return Decision.of(log)
    # What hangs, or lacks its marker, still does if a later look does not know, unless records have joined it; that it
    # was live is no all-clear for what is not known now.
    claims = [recorded_claims(each).get(NO_COMMIT) for each in (log, recorded)]
    has_same_records = len(epochs) < 2 and len({each.claim for each in claims if each}) < 2
    for known, other in ((log, recorded), (recorded, log)):
        if known.verdict is not Verdict.UNKNOWN and other.verdict is Verdict.UNKNOWN:
            decides = (order != 0 and known is later) or (has_same_records and not known.verdict.is_healthy)
            return Decision.of(known if decides else other)
    # Only files show that a checkpoint of Flink is to commit it.
    if log.verdict is Verdict.PREPARED and recorded.outcome == UNDECIDED and len(epochs) < 2:
        return Decision.of(log)
    if order == 0:  # the more urgent one: what was live hangs or is overdue afterwards
        return Decision.of(min(log, recorded, key=lambda each: each.verdict.urgency))
    is_same = has_same_records and (log.verdict, log.outcome) == (recorded.verdict, recorded.outcome)
    return Decision.of(log if is_same else later)


OVERDUE, UNPROVEN, COMMITTED = "overdue", "unproven", "committed"
CHECKPOINTED, DECIDED, IDLE = "checkpointed", "decided", "idle"
MEANINGS: Mapping[str, str] = {
    **{
        verdict: "it is within its own timeout. No coordinator knows whether its process is alive: start it again "
        "with its id, wait, or fence it deliberately."
        for verdict in Verdict
        if verdict.is_live
    },
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
    is_in_time: bool = False  # whether its coordinator's own clock shows that it is within its timeout


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
        if any(each.is_not_read for each in here):
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
    # It has written nothing yet, or nothing that was read; or its coordinator's clock refutes those of two brokers.
    if verdict is None or (verdict is Verdict.OVERDUE and e.is_in_time):
        verdict = age_verdict(owner, e.age, long_after=e.long_after)
    is_unproven = verdict is Verdict.OVERDUE and any(each.status == NOT_PROVEN for each in claims)
    return UNPROVEN if is_unproven else verdict.value
