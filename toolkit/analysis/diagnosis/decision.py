"""Decide: who holds the LSO, what was decided about the records, and what is safe. The only place that sets a verdict.

A wrong `hanging` makes an operator abort a live transaction, which silently loses part of it, or a committed one. So
`hanging` needs a response from every coordinator, the proven right to see every id, responses from the partition leader
before and after, the same result in every observation, and the coordinator's log back to before these records. If any
of these is missing, the verdict is `unknown` and names it.

The rules are tables, read from top to bottom; the first that applies decides. Nothing downstream changes a decision:
what contradicts it is evidence, which has to be there before.
"""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from toolkit.analysis.coordinator.transaction_states import PREPARE_GRACE
from toolkit.analysis.diagnosis.evidence_kinds import (
    EndEvidence,
    Evidence,
    OpenEvidence,
    PartitionEvidence,
    TwoSourceEvidence,
)
from toolkit.analysis.diagnosis.evidence_text import at, by_observations, coordinator_says, number
from toolkit.analysis.diagnosis.open_transactions import OpenTransaction
from toolkit.analysis.diagnosis.outcome import ABORT, COMMIT, UNDECIDED, UNKNOWN
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.durations import duration
from toolkit.schema.live import Finding, Transaction

__all__ = [
    "DISOWNED_RULES",
    "OWNED_RULES",
    "PARTITION_RULES",
    "TIMEOUT_GRACE",
    "TWO_SOURCE_RULES",
    "Decision",
    "OpenRule",
    "PartitionRule",
    "TwoSourceRule",
    "decide",
    "is_disowned",
    "needs_log",
    "needs_outcome",
    "needs_recheck",
]

TIMEOUT_GRACE = dt.timedelta(seconds=15)  # transaction.abort.timed.out.transaction.cleanup.interval.ms is 10 s
COMPARED_AFTER = dt.timedelta(seconds=10)  # of a live transaction, before its log is read for records of an earlier one

OUTCOME_NOT_PROVEN = "outcome not proven"
GET_MISSING = "Do not abort. Get what is missing, and diagnose again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A decision on a transaction, a partition or the cluster.

    Parameters
    ----------
    verdict
        One of `verdicts.VERDICTS`.
    outcome
        One of `outcome.OUTCOMES`; null if nothing is open.
    reason, remedy
        Sentences for the operator.
    action
        The command that is safe: ``abort``, ``complete`` or ``fence``; null if none is.
    missing
        For `unknown`: what is missing, a phrase each.
    cause
        The cause that the coordinator's state alone shows.
    rule
        Name of the rule that decided.
    """

    verdict: str
    outcome: str | None
    reason: str
    remedy: str
    action: str | None = None
    missing: tuple[str, ...] = ()
    cause: str | None = None
    rule: str

    def finding(self, *, observed_at: dt.datetime) -> Finding:
        """A finding with this decision, and nothing else yet."""
        return Finding(
            verdict=self.verdict,
            outcome=self.outcome,
            reason=self.reason,
            remedy=self.remedy,
            action=self.action,
            missing=self.missing,
            evidence=(),
            observed_at=observed_at,
        )

    def applied_to(self, finding: Finding) -> Finding:
        """The finding with this decision as a whole; its cause stays, which is what the logs show."""
        return replace(
            finding,
            verdict=self.verdict,
            outcome=self.outcome,
            reason=self.reason,
            remedy=self.remedy,
            action=self.action,
            missing=self.missing,
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


def decide(evidence: Evidence) -> Decision:
    """Decide by the first rule that applies.

    Parameters
    ----------
    evidence
        All of the evidence.
    """
    if isinstance(evidence, OpenEvidence):
        rule = _first_rule(evidence) or next(rule for rule in DISOWNED_RULES if rule.applies(evidence))
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


def is_disowned(evidence: OpenEvidence) -> bool:
    """Whether the coordinators' answers, as far as they go, show no coordinator that will end the transaction."""
    return _first_rule(evidence) is None


def needs_log(evidence: OpenEvidence) -> bool:
    """Whether the logs have to be read: to decide, or to explain what holds the LSO for long."""
    rule = _first_rule(evidence)
    return evidence.txn.start is not None and (rule is None or rule.is_explained)


def needs_outcome(evidence: OpenEvidence) -> bool:
    """Whether no coordinator will end the transaction, and only the proof of its outcome is missing."""
    return decide(evidence).rule == OUTCOME_NOT_PROVEN


def needs_recheck(evidence: OpenEvidence) -> bool:
    """Whether one observation does not decide: another has to show the same."""
    rule = _first_rule(evidence)
    return rule is None or rule.verdict in {"unknown", "ending", "stuck_ending"}


OpenText = Callable[[OpenEvidence], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRule:
    """A rule on open transactions.

    Parameters
    ----------
    name
        What it is about.
    applies
        Whether it applies.
    verdict
        One of `verdicts.VERDICTS`.
    outcome
        One of `outcome.OUTCOMES`; null if it has ended.
    why, remedy
        Sentences for the operator.
    action
        Command that is safe.
    needs
        For `unknown`: what is missing.
    cause
        Root cause, if the coordinator's state shows it.
    is_explained
        Whether the logs are read to explain it.
    """

    name: str
    applies: Callable[[OpenEvidence], bool]
    verdict: str
    outcome: str | None
    why: OpenText
    remedy: OpenText
    action: str | None = None
    needs: Callable[[OpenEvidence], tuple[str, ...]] = lambda e: ()
    cause: str | None = None
    is_explained: bool = False

    def decision(self, e: OpenEvidence) -> Decision:
        """The decision, if the rule applies."""
        return Decision(
            verdict=self.verdict,
            outcome=self.outcome,
            reason=self.why(e),
            remedy=self.remedy(e),
            action=self.action,
            missing=self.needs(e),
            cause=None if self.verdict == "unknown" else self.cause,
            rule=self.name,
        )


def _first_rule(e: OpenEvidence) -> OpenRule | None:
    return next((rule for rule in OWNED_RULES if rule.applies(e)), None)


def _owner(e: OpenEvidence) -> Transaction:
    assert e.txn.owner is not None
    return e.txn.owner


def _says(e: OpenEvidence) -> str:
    return coordinator_says(_owner(e))


def _command(txn: OpenTransaction, action: str) -> str:
    return f"kafka-txn {action} --topic {txn.tp[0]} --partition {txn.tp[1]} --start-offset {txn.start}"


def _abort(e: OpenEvidence) -> str:
    if e.txn.tp[0] == OFFSETS_TOPIC:
        return (
            f"{_command(e.txn, 'abort')} (the offsets in it are dropped: its groups continue from their last committed "
            "ones)"
        )
    return _command(e.txn, "abort")


def _abort_before_the_marker(e: OpenEvidence) -> str:
    return f"Soon, as the new epoch's marker would decide this data too: {_abort(e)}"


def _state_since(txn: OpenTransaction) -> dt.timedelta:
    """Minimum time in a Prepare* state: since the coordinator's last log record, or since it was first observed."""
    since = txn.owner.last_update_time if txn.owner else None
    return txn.now - since if since else txn.seen_for


def _is_live(e: OpenEvidence) -> bool:
    return e.txn.state == "Ongoing" and e.txn.epoch == e.txn.owner_epoch and e.txn.listed


def _timeout(txn: OpenTransaction) -> dt.timedelta:
    return dt.timedelta(milliseconds=(txn.owner.timeout_ms if txn.owner else None) or 0)


def _is_overdue(txn: OpenTransaction) -> bool:
    return bool(_timeout(txn)) and txn.age is not None and txn.age > _timeout(txn) + TIMEOUT_GRACE


def _begins_earlier(txn: OpenTransaction) -> bool:
    """Whether its first batch may be of an earlier transaction: it is older than its owner's, which is not that young.

    The clocks are a client's and the coordinator's; a young transaction ends soon, or is looked at again.
    """
    begin = None if txn.first_batch is None else txn.first_batch.base_timestamp
    started = txn.owner.start_time if txn.owner else None
    is_old = txn.age is not None and txn.age >= COMPARED_AFTER
    return is_old and begin is not None and started is not None and begin < started


def _age(txn: OpenTransaction) -> str:
    if txn.age is not None:
        return f" for {duration(txn.age)}"
    if txn.owner and txn.owner.start_time:
        return " since a time that this machine's clock has not reached"
    return ""


def _timeout_text(txn: OpenTransaction) -> str:
    return f" of {duration(_timeout(txn))}" if _timeout(txn) else ""


def _wait(e: OpenEvidence) -> str:
    if e.txn.expires_at is None:
        return "Wait; it is alive."
    expires_at = at(e.txn.expires_at)
    return f"Wait: it commits, or its coordinator aborts it after {expires_at}. Fence its id only to end it sooner."


def _decided_state(state: str) -> str:
    return COMMIT if state == "PrepareCommit" else ABORT


def _ending_rules() -> Iterator[OpenRule]:
    """What is decided and not yet written everywhere: a rule for each decision, as the outcome follows from it."""
    for state in ("PrepareCommit", "PrepareAbort", "PrepareEpochFence"):
        yield OpenRule(
            name=f"{state} for long",
            applies=lambda e, state=state: (  # type: ignore[misc]
                e.txn.state == state and e.txn.listed and _state_since(e.txn) > PREPARE_GRACE
            ),
            verdict="stuck_ending",
            outcome=_decided_state(state),
            why=lambda e: f"{_says(e)} for {duration(_state_since(e.txn))} and has not ended it here.",
            remedy=lambda e: (
                "First bring the leader of this partition back (ISR, disk, authorization) and check the coordinator's "
                f"log; then move the leader of __transaction_state-{_owner(e).txn_state_partition}, which sends the "
                "marker again. Never an abort marker: the outcome is decided."
            ),
            cause="marker not written by the coordinator",
            is_explained=True,
        )
        yield OpenRule(
            name=state,
            applies=lambda e, state=state: e.txn.state == state and e.txn.listed,  # type: ignore[misc]
            verdict="ending",
            outcome=_decided_state(state),
            why=lambda e: f"{_says(e)}: the outcome is decided and its marker is on the way.",
            remedy=lambda e: f"Wait; if it is still open after {duration(PREPARE_GRACE)}, check the coordinator.",
        )


OWNED_RULES: tuple[OpenRule, ...] = (
    OpenRule(
        name="on the coordinators' topic",
        applies=lambda e: e.txn.tp[0] == STATE_TOPIC,
        verdict="unknown",
        outcome=UNKNOWN,
        why=lambda e: "An open transaction on __transaction_state cannot come from a producer.",
        remedy=lambda e: "Never write a marker here; keep a copy of the segment and report it to Kafka.",
        needs=lambda e: ("an explanation: Kafka itself never writes transactions to this topic",),
        is_explained=True,
    ),
    OpenRule(
        name="several coordinators",
        applies=lambda e: len(e.txn.owners) > 1,
        verdict="unknown",
        outcome=UNKNOWN,
        why=lambda e: f"{len(e.txn.owners)} coordinators report producer {e.txn.producer_id}.",
        remedy=lambda e: GET_MISSING,
        needs=lambda e: ("one coordinator that owns the id: " + "; ".join(map(coordinator_says, e.txn.owners)),),
        is_explained=True,
    ),
    OpenRule(
        name="not described",
        applies=lambda e: e.txn.owner is not None and bool(e.txn.owner.error),
        verdict="unknown",
        outcome=UNKNOWN,
        why=lambda e: f'Transactional id "{e.txn.transactional_id}" could not be described.',
        remedy=lambda e: GET_MISSING,
        needs=lambda e: (f'the state of "{e.txn.transactional_id}": {_owner(e).error}',),
        is_explained=True,
    ),
    *_ending_rules(),
    OpenRule(
        name="ending elsewhere",
        applies=lambda e: e.txn.state.startswith("Prepare"),
        verdict="unknown",
        outcome=UNKNOWN,
        why=lambda e: f"{_says(e)} on other partitions and no longer expects a marker here.",
        remedy=lambda e: "Do not abort while the coordinator is ending the transaction; diagnose again when it has.",
        needs=lambda e: ("the end of the transaction on its other partitions",),
        is_explained=True,
    ),
    OpenRule(
        name="prepared",
        applies=lambda e: e.txn.state == "Ongoing" and e.txn.two_phase and e.txn.listed,
        verdict="prepared",
        outcome=UNDECIDED,
        why=lambda e: f"{_says(e)} by two-phase commit (no timeout), so it never expires.",
        remedy=lambda e: "Ask the external coordinator of this id whether to commit or abort; never decide it here.",
        is_explained=True,
    ),
    OpenRule(
        name="prepared elsewhere",
        applies=lambda e: e.txn.two_phase and e.txn.state == "Ongoing",
        verdict="unknown",
        outcome=UNKNOWN,
        why=lambda e: f"{_says(e)} by two-phase commit, which may run ahead of its producer id.",
        remedy=lambda e: "Ask the external coordinator of this id; never decide it here.",
        needs=lambda e: ("the external coordinator's decision on this transaction",),
        is_explained=True,
    ),
    OpenRule(
        name="stale coordinator",
        applies=lambda e: e.txn.owner_epoch >= 0 and e.txn.epoch > e.txn.owner_epoch,
        verdict="unknown",
        outcome=UNKNOWN,
        why=lambda e: f"{_says(e)} with epoch {e.txn.owner_epoch}, older than the partition's {e.txn.epoch}.",
        remedy=lambda e: GET_MISSING,
        needs=lambda e: (
            "a coordinator that knows the partition's epoch (this one is stale or lost its newest records)",
        ),
        is_explained=True,
    ),
    OpenRule(
        name="live, over committed records",
        applies=lambda e: _is_live(e) and e.log is not None and e.outcome.name == COMMIT,
        verdict="ongoing",
        outcome=COMMIT,
        why=lambda e: (
            f"{_says(e)}{_age(e.txn)}, and its first records here are of an earlier transaction: {e.outcome.reason}."
        ),
        remedy=lambda e: (
            "Have its client commit: that makes the earlier records visible too. Do not fence the id and write no "
            "marker: an abort discards them."
        ),
        cause="committed records in a live transaction",
        is_explained=True,
    ),
    OpenRule(
        name="live, of two epochs",
        applies=lambda e: _is_live(e) and e.txn.is_mixed,
        verdict="ongoing",
        outcome=UNDECIDED,
        why=lambda e: (
            f"{_says(e)} with epoch {e.txn.epoch}, but the first batch has the dead epoch "
            f"{e.txn.first_epoch}: its commit would make those records visible."
        ),
        remedy=lambda e: (
            f'Have its client abort, or fence "{e.txn.transactional_id}", so that the coordinator aborts all '
            "of it. Never an abort marker: it would lose half of a live transaction."
        ),
        cause="mixed epochs in one transaction",
        is_explained=True,
    ),
    OpenRule(
        name="overdue",
        applies=lambda e: _is_live(e) and _is_overdue(e.txn),
        verdict="overdue",
        outcome=UNDECIDED,
        why=lambda e: (
            f"{_says(e)} since {'' if (start := _owner(e).start_time) is None else at(start)} with a timeout of "
            f"{duration(_timeout(e.txn))}, by its coordinator's clock: it should have been aborted."
        ),
        remedy=lambda e: (
            f"Check coordinator {number(_owner(e).coordinator_id)} (log, load, __transaction_state-"
            f"{_owner(e).txn_state_partition}). kafka-txn fence --transactional-id "
            f"{shlex.quote(e.txn.transactional_id or '')} ends it; if it may be Flink's, check first that no "
            "checkpoint is to commit it. Never an abort marker: it has an owner."
        ),
        action="fence",
        is_explained=True,
    ),
    OpenRule(
        name="long",
        applies=lambda e: _is_live(e) and e.txn.age is not None and e.txn.age > e.long_after,
        verdict="long",
        outcome=UNDECIDED,
        why=lambda e: f"{_says(e)}{_age(e.txn)}, within its own timeout{_timeout_text(e.txn)}.",
        remedy=_wait,
        is_explained=True,
    ),
    OpenRule(
        name="live, with an older first batch",
        applies=lambda e: _is_live(e) and _begins_earlier(e.txn),
        verdict="ongoing",
        outcome=UNDECIDED,
        why=lambda e: f"{_says(e)}{_age(e.txn)}, within its own timeout{_timeout_text(e.txn)}.",
        remedy=_wait,
        is_explained=True,
    ),
    OpenRule(
        name="live",
        applies=_is_live,
        verdict="ongoing",
        outcome=UNDECIDED,
        why=lambda e: f"{_says(e)}{_age(e.txn)}, within its own timeout{_timeout_text(e.txn)}.",
        remedy=_wait,
    ),
    OpenRule(
        name="a fence may be in progress",
        applies=lambda e: (
            e.txn.state == "Ongoing"
            and e.txn.epoch < e.txn.owner_epoch
            and e.txn.listed
            and _owner(e).last_update_time is None
        ),
        verdict="unknown",
        outcome=UNKNOWN,
        why=lambda e: (
            f"{_says(e)} with epoch {e.txn.owner_epoch} on this partition: either epoch {e.txn.epoch} is "
            "dead, or its coordinator is fencing it and will abort it."
        ),
        remedy=lambda e: GET_MISSING,
        needs=lambda e: (
            f'the record of "{e.txn.transactional_id}" with epoch {e.txn.owner_epoch} in __transaction_state'
            f"-{_owner(e).txn_state_partition} (READ on that topic): the epoch is raised before it is logged",
        ),
        is_explained=True,
    ),
    OpenRule(
        name="a state that this version does not know",
        applies=lambda e: (
            e.txn.owner is not None
            and e.txn.state not in {"Ongoing", "Empty", "CompleteCommit", "CompleteAbort", "Dead"}
        ),
        verdict="unknown",
        outcome=UNKNOWN,
        why=lambda e: f"{_says(e)}, a state this version does not know.",
        remedy=lambda e: GET_MISSING,
        needs=lambda e: (f"the meaning of the state {e.txn.state or 'that was not returned'}",),
        is_explained=True,
    ),
)
"""Rules on transactions that a coordinator owns, or whose coordinator's answer cannot be trusted."""


def _why_disowned(e: OpenEvidence) -> str:
    """Why no coordinator will end the transaction, without its dot."""
    txn = e.txn
    if txn.owner is None:
        return f"no transactional id has producer {txn.producer_id} any more, so nobody will ever end this transaction"
    if txn.state != "Ongoing":
        return f"{_says(e)}, so nobody will ever end this transaction"
    if txn.epoch == txn.owner_epoch or txn.epoch < 0:
        return f"{_says(e)} on other partitions and does not know this one, so this one will never get a marker"
    if txn.listed:
        return (
            f"{_says(e)} with epoch {txn.owner_epoch} on this partition, as its log confirms, so epoch {txn.epoch} is "
            "dead, and the next marker will decide its data"
        )
    return (
        f"{_says(e)} with epoch {txn.owner_epoch} elsewhere, so nobody will ever end this transaction of epoch "
        f"{txn.epoch}"
    )


def _hanging_reason(e: OpenEvidence) -> str:
    return f"{_why_disowned(e)} ({by_observations(e.observations)})."


def _aborted_reason(e: OpenEvidence) -> str:
    return f"{_why_disowned(e)}: {e.outcome.reason} ({by_observations(e.observations)})."


def _not_proven(e: OpenEvidence) -> str:
    return f"Not proven to be hanging: {_why_disowned(e)}."


def _doubts(e: OpenEvidence) -> tuple[str, ...]:
    """What is missing to prove that no coordinator will end the transaction; empty if it is proven."""
    txn = e.txn
    doubts = list(dict.fromkeys(gap for observation in e.observations for gap in observation.coverage.gaps))
    doubts += txn.observation.doubts.get((*txn.tp, txn.producer_id), ())
    if txn.leader_moved:
        doubts.append("a response of the partition's leader: leadership moved during the observation")
    if txn.leader.error:
        doubts.append(f"the leader's offsets: {txn.leader.error}")
    if e.is_single_sample:
        doubts.append("a second sample: it was seen in one only")
    earlier = e.earlier()
    if any(one is None for one in earlier):
        doubts.append("a second observation: it was open in the last one only")
    elif any(one and (not is_disowned(one) or one.txn.epoch != txn.epoch) for one in earlier):
        doubts.append("observations that agree: the coordinator answered differently before")
    return tuple(doubts)


def _is_superseded(e: OpenEvidence) -> bool:
    return e.txn.state == "Ongoing" and e.txn.epoch < e.txn.owner_epoch


def _recorded_otherwise(e: OpenEvidence) -> tuple[str, ...]:
    """What was missing when it was recorded."""
    if e.recorded is None or e.recorded.missing:
        return () if e.recorded is None else e.recorded.missing
    return (f"a recorded finding that agrees: it was recorded as {e.recorded.verdict}",)


def _wrote_since(e: OpenEvidence) -> bool:
    """Whether a newer epoch has written into the open transaction since the one whose commit is missing."""
    if e.log is None:
        return e.recorded is not None and e.recorded.action is None
    decided = e.outcome.transaction
    return decided is not None and decided.producer_epoch is not None and e.txn.epoch > decided.producer_epoch


def _is_decided_only(e: OpenEvidence) -> bool:
    """Whether the log has the decision, and not yet that all markers are written."""
    return e.outcome.transaction is not None and e.outcome.transaction.end_time is None


_DISOWNED_VERDICTS = {"hanging", "stuck_ending"}  # of transactions that no coordinator will end

DISOWNED_RULES: tuple[OpenRule, ...] = (
    OpenRule(
        name="not proven to be disowned",
        applies=lambda e: bool(_doubts(e)),
        verdict="unknown",
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: GET_MISSING,
        needs=_doubts,
    ),
    OpenRule(
        name="recorded otherwise",
        applies=lambda e: e.log is None and e.recorded is not None and e.recorded.verdict not in _DISOWNED_VERDICTS,
        verdict="unknown",
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: GET_MISSING,
        needs=_recorded_otherwise,
    ),
    OpenRule(
        name="the log has another producer's batch",
        applies=lambda e: e.log is not None and e.log.other_producer_id is not None,
        verdict="unknown",
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: GET_MISSING,
        needs=lambda e: (
            f"a log that agrees: the batch at {e.txn.start} is of producer {e.log and e.log.other_producer_id}",
        ),
    ),
    OpenRule(
        name="the log has its marker, the producer state has not",
        applies=lambda e: e.log is not None and e.log.marker_contradicts,
        verdict="unknown",
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: GET_MISSING,
        needs=lambda e: (f"producer state that agrees: there is the {e.log and e.log.marker_after}",),
    ),
    OpenRule(
        name="its marker came meanwhile",
        applies=lambda e: e.log is not None and e.log.marker_after is not None,
        verdict="ending",
        outcome=None,
        why=lambda e: f"The {e.log and e.log.marker_after} has ended it in the meantime.",
        remedy=lambda e: "None: it has ended.",
    ),
    OpenRule(
        name="it has ended meanwhile",
        applies=lambda e: e.log is not None and e.log.has_ended,
        verdict="ending",
        outcome=None,
        why=lambda e: f"It has ended in the meantime: {e.outcome.reason}.",
        remedy=lambda e: "None: it has ended.",
    ),
    *(
        OpenRule(
            name=f"its {outcome} is decided and the marker on the way",
            applies=lambda e, outcome=outcome: e.outcome.name == outcome and _is_decided_only(e),  # type: ignore[misc]
            verdict="ending",
            outcome=outcome,
            why=lambda e: f"{_capital(e.outcome.reason)} yet: its coordinator has only just decided.",
            remedy=lambda e: "Wait: its coordinator writes the marker. Diagnose again.",
        )
        for outcome in (COMMIT, ABORT)
    ),
    OpenRule(
        name="committed, and a newer epoch has written since",
        applies=lambda e: e.outcome.name == COMMIT and _wrote_since(e),
        verdict="stuck_ending",
        outcome=COMMIT,
        why=lambda e: f"{_capital(e.outcome.reason)}; none will be written, and epoch {e.txn.epoch} has written since.",
        remedy=lambda e: (
            "Write no marker: an abort discards committed records, and a commit makes later ones visible. Read "
            f"{e.txn.tp[0]}-{e.txn.tp[1]} from offset {e.txn.start} with read_uncommitted, and keep the records of "
            f"producer {e.txn.producer_id}."
        ),
    ),
    OpenRule(
        name="committed without its marker",
        applies=lambda e: e.outcome.name == COMMIT,
        verdict="stuck_ending",
        outcome=COMMIT,
        why=lambda e: f"{_capital(e.outcome.reason)}, and none will be written.",
        remedy=lambda e: (
            f"{_command(e.txn, 'complete')} writes the COMMIT marker that is missing. Never an abort marker: these "
            "records are committed."
        ),
        action="complete",
    ),
    OpenRule(
        name=OUTCOME_NOT_PROVEN,
        applies=lambda e: e.outcome.name == UNKNOWN,
        verdict="unknown",
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: GET_MISSING,
        needs=lambda e: e.outcome.missing,
    ),
    OpenRule(
        name="aborted without its marker",
        applies=lambda e: e.outcome.name == ABORT,
        verdict="hanging",
        outcome=ABORT,
        why=_aborted_reason,
        remedy=_abort,
        action="abort",
    ),
    OpenRule(
        name="superseded epoch",
        applies=lambda e: _is_superseded(e),
        verdict="hanging",
        outcome=UNDECIDED,
        why=_hanging_reason,
        remedy=_abort_before_the_marker,
        action="abort",
        cause="superseded epoch",
    ),
    OpenRule(
        name="not added to the open transaction",
        applies=lambda e: e.txn.state == "Ongoing",
        verdict="hanging",
        outcome=UNDECIDED,
        why=_hanging_reason,
        remedy=lambda e: f"On this partition only: {_abort(e)}",
        action="abort",
        cause="written but not added to the transaction",
    ),
    OpenRule(
        name="nothing open under its id",
        applies=lambda e: e.txn.owner is not None,
        verdict="hanging",
        outcome=UNDECIDED,
        why=_hanging_reason,
        remedy=_abort,
        action="abort",
    ),
    OpenRule(
        name="no owner",
        applies=lambda e: True,
        verdict="hanging",
        outcome=UNDECIDED,
        why=_hanging_reason,
        remedy=_abort,
        action="abort",
        cause="no owner: the id has expired or moved on to another producer id",
    ),
)
"""Rules on transactions that no coordinator will end, as far as the coordinators' answers go."""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


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


TwoSourceText = Callable[[TwoSourceEvidence], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSourceRule:
    """A rule on a transaction that a log and a recording have.

    Parameters
    ----------
    name
        What it is about.
    applies
        Whether it applies.
    source
        The finding whose decision it is; null if the two contradict each other, so that nothing is proven.
    why, needs
        For a contradiction: the reason, and what is missing.
    """

    name: str
    applies: Callable[[TwoSourceEvidence], bool]
    source: Callable[[TwoSourceEvidence], Finding | None]
    why: TwoSourceText = lambda e: ""
    needs: TwoSourceText = lambda e: ""

    def decision(self, e: TwoSourceEvidence) -> Decision:
        """The decision, if the rule applies."""
        source = self.source(e)
        if source is not None:
            return _decision_of(source, rule=self.name)
        return Decision(
            verdict="unknown",
            outcome=UNKNOWN,
            reason=self.why(e),
            remedy=GET_MISSING,
            missing=(self.needs(e),),
            rule=self.name,
        )


def _contradict_on_a_commit(e: TwoSourceEvidence) -> bool:
    """Whether one proves a commit, and the other that there was none: what is committed stays committed."""
    outcomes = {e.log.outcome, e.recorded.outcome}
    return outcomes == {COMMIT, ABORT} or (e.earlier.outcome == COMMIT and e.later.outcome == UNDECIDED)


def _tells_more(e: TwoSourceEvidence) -> bool:
    """Whether the recording decided what the log alone could not.

    A `hanging` of a version that did not record the outcome may be of committed records, and decides nothing.
    """
    return e.log.verdict == "unknown" and not (e.recorded.verdict == "hanging" and e.recorded.outcome is None)


TWO_SOURCE_RULES: tuple[TwoSourceRule, ...] = (
    TwoSourceRule(
        name="ended in the log",
        applies=lambda e: e.log.verdict == "ended",
        source=lambda e: e.log,
    ),
    TwoSourceRule(
        name="open after its recorded end",
        applies=lambda e: e.recorded.verdict == "ended" and e.log.observed_at > e.recorded.observed_at,
        source=lambda e: None,
        why=lambda e: f"It is open as of {at(e.log.observed_at)}. {e.recorded.reason}",
        needs=lambda e: f"why the sample of {at(e.recorded.observed_at)} does not have what is open after it",
    ),
    TwoSourceRule(
        name="ended in the recording",
        applies=lambda e: e.recorded.verdict == "ended",
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
    TwoSourceRule(
        name="decided by the recording only",
        applies=_tells_more,
        source=lambda e: e.recorded,
    ),
    TwoSourceRule(
        name="committed since",
        applies=lambda e: e.recorded.outcome == COMMIT and e.recorded.observed_at > e.log.observed_at,
        source=lambda e: e.recorded,
    ),
    TwoSourceRule(
        name="decided by the log",
        applies=lambda e: True,
        source=lambda e: e.log,
    ),
)
"""Rules on transactions that two sources have."""
