"""The verdict on a transactional id, by those on its partitions, and the claims that a fence of it needs.

A fence aborts what is open under the id on all of its partitions. Without an override it needs that the owner is past
its time, and that no commit includes any open batch, also of an earlier transaction.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolkit.analysis.coordinator.transaction_states import TWO_PHASE_COMMIT
from toolkit.analysis.diagnosis.clocks import TransactionAge, age_verdict
from toolkit.analysis.diagnosis.evidence_kinds import NO_COMMIT, OUTCOME_ENTRY, recorded_claims
from toolkit.analysis.diagnosis.verdicts import NOT_PROVEN, PROVEN, REFUTED
from toolkit.schema.actions import ActionClaim
from toolkit.schema.live import Finding, Transaction
from toolkit.schema.table import TopicPartition
from toolkit.schema.verdict import Verdict

OVERDUE, UNPROVEN, COMMITTED = "overdue", "unproven", "committed"
CHECKPOINTED, DECIDED, IDLE = "checkpointed", "decided", "idle"
MEANINGS: Mapping[str, str] = {
    "ongoing": "it is within its own timeout, and its process may be alive: wait, or fence it deliberately.",
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
BY_CHOICE = frozenset({"ongoing", "long", "prepared", IDLE})
"""Verdicts that an override names: live within its own timeout, or not ours to decide, or nothing to end."""
_LIVE = (Verdict.PREPARED, Verdict.ONGOING, Verdict.LONG, Verdict.OVERDUE)


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
            yield ActionClaim(claim=claim.words, status=claim.status, discharged_by=by)


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
