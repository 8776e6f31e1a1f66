"""Rules on open transactions, and what has to be proven before a marker is written.

`OWNED_RULES` are on transactions that a coordinator owns, or whose coordinator's answer cannot be trusted;
`DISOWNED_RULES` on those that no coordinator will end, as far as the coordinators' answers go. Claims are about every
open batch, as a marker decides all. Sources: KIP-664 (markers), KIP-890 (transaction version 2); docs/outcomes.md says
what proves each claim.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from toolkit.analysis.diagnosis.decision import (
    ABORT,
    ALL_COMMITTED,
    COMMIT,
    GET_MISSING,
    NO_COMMIT,
    NOT_OWNED,
    NOT_PROVEN,
    PROVEN,
    REFUTED,
    UNDECIDED,
    UNKNOWN,
    Rule,
    recorded_claims,
)
from toolkit.analysis.diagnosis.evidence_text import at, by_observations, coordinator_says, number
from toolkit.analysis.diagnosis.observation import TIMEOUT_GRACE, age_verdict, is_overdue
from toolkit.analysis.transaction_history import LAST_EPOCH
from toolkit.analysis.transaction_owners import OPEN_STATES, PREPARE_GRACE, may_be_flinks
from toolkit.command_line import command_line
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.schema.checkpoint import FlinkCheckpoint
from toolkit.schema.durations import CLOCKS_DIFFER, duration
from toolkit.schema.live import EvidenceEntry, Finding, Transaction
from toolkit.schema.recorded import ActionClaim
from toolkit.schema.table import TopicPartition
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case


NOT_CHECKPOINTED = "if no checkpoint of Flink is to commit it"
COMPARED_AFTER = dt.timedelta(seconds=10)  # of a live transaction, before its log is read for records of an earlier one


ALIVE = "No request shows whether its process is alive or connected."
RESTART = (
    "If its process is gone, start it again with the same transactional.id: its InitProducerId ends the transaction."
)
ABORTED_BELOW = (
    "An earlier transaction of its producer was aborted, whose marker may be missing here: a commit may make its "
    "records visible, too."
)
NO_RIGHT_END = (
    "No end is right for all: a commit may make aborted records visible, too, and an abort may discard committed ones. "
    "Do not fence the id and write no marker."
)


def _owner(e: Case) -> Transaction:
    assert e.owner is not None
    return e.owner


def _says(e: Case) -> str:
    return coordinator_says(_owner(e))


def _state_since(e: Case) -> dt.timedelta:
    """Minimum time in a Prepare* state: since the coordinator's last log record, or since it was first observed."""
    since, now = e.owner.last_update_time if e.owner else None, e.now.time
    return e.seen_for if since is None or now is None else max(e.seen_for, now - since - CLOCKS_DIFFER)


def _is_live(e: Case) -> bool:
    return e.state == "Ongoing" and e.epoch == e.owner_epoch and e.listed


def _contradiction(e: Case) -> str | None:
    """What shows that the files of its coordinator are older than the time up to which they are to be complete."""
    number = _owner(e).txn_state_partition if e.listed and e.state in OPEN_STATES else None
    known = None if number is None else e.observation.as_of.get(TopicPartition(STATE_TOPIC, number))
    return None if known is None else known.contradiction


def _may_have_committed(e: Case) -> bool:
    """Whether it is not proven that a fence, which aborts all that is open here, discards no committed records."""
    return e.start is not None and e.outcome.no_commit.status != PROVEN


def _may_have_aborted(e: Case) -> bool:
    """Whether its client's commit may make records of an earlier transaction visible that was aborted."""
    return e.has_outcome and (e.outcome.name == ABORT or e.outcome.is_partly_aborted)


def _timeout(e: Case) -> dt.timedelta:
    return dt.timedelta(milliseconds=(e.owner.timeout_ms if e.owner else None) or 0)


def _age_verdict(e: Case) -> Verdict:
    return age_verdict(_owner(e), e.age, long_after=dt.timedelta(milliseconds=e.options.max_transaction_timeout_ms))


def _is_stuck_at_last_epoch(e: Case) -> bool:
    """Whether its coordinator fences it by epoch 32767, which no client gets, and its timeout has passed."""
    is_fenced = e.state == "Ongoing" and e.listed and e.owner_epoch == LAST_EPOCH + 1
    is_uncommitted = e.outcome.no_commit.status != REFUTED and e.checkpoint is None
    return is_fenced and is_uncommitted and e.epoch == LAST_EPOCH and is_overdue(e.owner, e.age)


def _begins_earlier(e: Case) -> bool:
    """Whether its first batch may be of an earlier transaction: it is older than its owner's, which is not that young.

    The clocks are a client's and the coordinator's; a young transaction ends soon, or is looked at again.
    """
    begin = None if e.first_batch is None else e.first_batch.base_timestamp
    started, age = e.owner.start_time if e.owner else None, e.age.since_start
    is_old = not e.observation.from_files if age is None else age >= COMPARED_AFTER
    return is_old and begin is not None and started is not None and begin < started


def _age(e: Case) -> str:
    started = e.owner.start_time if e.owner else None
    if e.as_of is not None and started is not None and e.age.since_start == dt.timedelta(0):
        return f" since {at(started)}, after which the files have no time"
    if e.age.since_start is not None:
        return f" for {duration(e.age.since_start)}{_as_of(e)}"
    if e.observation.from_files:
        return " for a time that the files do not prove"
    if started is not None:
        return f" since {at(started)} (no broker's time shows for how long)"
    return ""


def _as_of(e: Case) -> str:
    return "" if e.as_of is None else f" as of {at(e.as_of.time)}, by {e.as_of.proof}"


def _within_timeout(e: Case) -> str:
    timeout = f" of {duration(_timeout(e))}" if _timeout(e) else ""
    is_known = e.age.since_start is not None and e.age.since_start <= _timeout(e)
    within = "within its own timeout" if is_known or not timeout else "not proven to be past its own timeout"
    return f"{_says(e)}{_age(e)}, {within}{timeout}."


def _past_timeout(e: Case) -> str:
    """How it is known that the timeout has passed."""
    start = _owner(e).start_time
    since = "" if start is None else f" since {at(start)}"
    if e.observation.from_files:
        return f"{since} with a timeout of {duration(_timeout(e))}: it should have been aborted{_as_of(e)}"
    if e.age.is_observed or e.now.time is None:
        seen = f"it has been observed for {duration(e.age.observed_for)}"
    else:
        seen = f"it was {'' if e.now.is_current else 'at least '}{at(e.now.time)} by {e.now.source}"
    return f"{since} with a timeout of {duration(_timeout(e))}, and {seen}: it should have been aborted"


def _why_live(e: Case) -> str:
    """Its age, its last write, and what is not known: within its timeout a dead process looks like a live one."""
    last = e.producer.last_timestamp
    write = "" if last is None or e.start is None else f" Its last batch here has the time {at(last)}."
    aborted = f" {ABORTED_BELOW}" if _may_have_aborted(e) else ""
    return f"{_within_timeout(e)}{write}{aborted} {ALIVE}"


def _wait(e: Case) -> str:
    if _may_have_aborted(e):
        return _end_over_aborted(e)
    if e.has_outcome and e.outcome.name == UNKNOWN and e.outcome.all_committed.status == NOT_PROVEN:
        return _before_restart(e)
    if e.expires_at is None:
        return f"{RESTART} Otherwise wait: its coordinator has it open."
    expires_at = at(e.expires_at)
    condition = f", and {NOT_CHECKPOINTED}" if _may_be_flinks(e) else ""
    if e.has_outcome and _may_have_committed(e):
        condition += f", and if {e.outcome.no_commit.claim}, which is not proven"
    return (
        f"{RESTART} Otherwise wait: it commits, or its coordinator aborts it after {expires_at}. Fence its id only to "
        f"end it sooner{condition}.{_longer_recheck(e, _timeout(e) + TIMEOUT_GRACE)}"
    )


def _before_restart(e: Case) -> str:
    """What to do about a live transaction over records that a commit is likely to include: all but a commit aborts."""
    timeout = "" if e.expires_at is None else f", as its coordinator does after {at(e.expires_at)}"
    checkpoint = ", and that no checkpoint of Flink is to commit it" if _may_be_flinks(e) else ""
    return (
        f"Before its client is started again, or its id is fenced, get the proof that {e.outcome.no_commit.claim}"
        f"{checkpoint}: both abort all that is open here{timeout}. A commit is likely."
    )


def _end_over_aborted(e: Case) -> str:
    """What to do about a live transaction over aborted records, which the commit of its client may publish."""
    if _may_have_committed(e):
        return f"{_keep_first(e)} {NO_RIGHT_END}"
    return f"{_abort_by_owner(e)} all that is open here. Never an abort marker: it has an owner."


def _abort_by_owner(e: Case) -> str:
    """That its client, or its coordinator, aborts what is named next."""
    condition = f"{NOT_CHECKPOINTED}, " if _may_be_flinks(e) else ""
    return _capital(
        f'{condition}have its client abort, or fence "{e.transactional_id}", so that the coordinator aborts'
    )


def _longer_recheck(e: Case, age: dt.timedelta) -> str:
    """That only a recheck as long as `age` proves it, where no broker's clock can be read: before 3.3, ZooKeeper."""
    if e.observation.monotonic is None or e.now.is_current:
        return ""
    seconds = math.ceil(age.total_seconds()) + 1
    return f" No broker's clock was read: --recheck-after {seconds} shows whether it should have ended."


def _may_be_flinks(e: Case) -> bool:
    return may_be_flinks(e.transactional_id or "")


def _checkpoint(e: Case) -> FlinkCheckpoint:
    assert e.checkpoint is not None
    return e.checkpoint


def _commit(e: Case) -> str:
    own = ("--flink-checkpoint", str(_checkpoint(e).path), "--transactional-id", e.transactional_id or "")
    return command_line(("kafka-txn", "commit", *own))


def _ending_rules(state: str, outcome: str) -> Iterator[Rule[Case]]:
    """What is decided and not yet written everywhere: the outcome follows from the coordinator's state."""
    yield Rule(
        name=f"{state} for long",
        applies=lambda e: e.state == state and e.listed and _state_since(e) > PREPARE_GRACE,
        verdict=Verdict.STUCK_ENDING,
        outcome=outcome,
        why=lambda e: f"{_says(e)} for {duration(_state_since(e))}{_as_of(e)} and has not ended it here.",
        remedy=lambda e: (
            "First bring the leader of this partition back (ISR, disk, authorization) and check the coordinator's "
            f"log; then move the leader of __transaction_state-{_owner(e).txn_state_partition}, which sends the "
            "marker again. Never an abort marker: the outcome is decided."
        ),
        cause="marker not written by the coordinator",
        is_explained=True,
    )
    yield Rule(
        name=state,
        applies=lambda e: e.state == state and e.listed,
        verdict=Verdict.ENDING,
        outcome=outcome,
        why=lambda e: f"{_says(e)}: the outcome is decided and its marker is on the way.",
        remedy=lambda e: (
            f"Wait; if it is still open after {duration(PREPARE_GRACE)}, check the coordinator."
            f"{_longer_recheck(e, PREPARE_GRACE)}"
        ),
    )


def _dead_epoch(e: Case) -> str:
    return f"the first batch has the dead epoch {e.first_epoch}: its commit would make those records visible"


def _keep_first(e: Case) -> str:
    """What to do before a mixture of decisions is ended."""
    return (
        f"First read {e.tp[0]}-{e.tp[1]} from offset {e.start} with read_uncommitted, and keep the records of producer "
        f"{e.producer_id}."
    )


def _over_committed(name: str, outcome: str, is_committed: Callable[[Case], bool]) -> Rule[Case]:
    """A live transaction whose marker decides committed records of an earlier one, too."""
    return Rule(
        name=name,
        applies=lambda e: _is_live(e) and is_committed(e),
        verdict=Verdict.ONGOING,
        outcome=outcome,
        why=lambda e: (
            f"{_says(e)}{_age(e)}, and committed records of an earlier transaction are open here, too: "
            f"{e.outcome.reason}."
        ),
        remedy=lambda e: (
            f"{_keep_first(e)} {NO_RIGHT_END}"
            if e.outcome.is_partly_aborted
            else "Have its client commit: that makes the earlier records visible too. Do not fence the id and write no "
            "marker: an abort discards them."
        ),
        cause="committed records in a live transaction",
    )


def _stuck_at_last_epoch(name: str, outcome: str, applies: Callable[[Case], bool]) -> Rule[Case]:
    """A transaction that its coordinator aborts, with all that is open here, once it has read its log again."""
    return Rule(
        name=name,
        applies=lambda e: _is_stuck_at_last_epoch(e) and applies(e),
        verdict=Verdict.OVERDUE,
        outcome=outcome,
        why=lambda e: (
            f"{_says(e)}, its timeout of {duration(_timeout(e))} has passed, and its epoch is "
            f"{e.owner_epoch}, which no client gets: the coordinator raised it to fence epoch {e.epoch}, and "
            "has not logged it. Before 4.3.0 it cannot fence a second time, and its other transactions may not time "
            "out either."
        ),
        remedy=lambda e: (
            (f"What follows discards all that is open here: {_first_prove(e)} " if _may_have_committed(e) else "")
            + f"Check that all replicas of __transaction_state-{_owner(e).txn_state_partition} are in sync. Then move "
            f"its leader, or restart broker {number(_owner(e).coordinator_id)}: the coordinator reads its log again, "
            "and aborts the transaction by its timeout. Until then it refuses kafka-txn fence. Never an abort marker: "
            "it has an owner."
        ),
        cause="the coordinator could not log epoch 32767: KAFKA-20090",
        is_explained=True,
    )


def _first_prove(e: Case) -> str:
    return f"first get the proof that {e.outcome.no_commit.claim} ({e.outcome.reason})."


def _not_proven(e: Case) -> str:
    owner = e.owner
    why = f"no transactional id that was read has producer {e.producer_id}" if owner is None else _why_disowned(e)
    return f"Not proven to be hanging: {why}."


def _unknown(
    *,
    name: str,
    applies: Callable[[Case], bool],
    needs: Callable[[Case], tuple[str, ...]],
    why: Callable[[Case], str] = _not_proven,
    remedy: Callable[[Case], str] = lambda e: GET_MISSING,
) -> Rule[Case]:
    """A transaction of which `needs` is missing: no rule of these may leave it out."""
    return Rule(
        name=name,
        applies=applies,
        verdict=Verdict.UNKNOWN,
        outcome=UNKNOWN,
        why=why,
        remedy=remedy,
        needs=needs,
        is_explained=True,
    )


OWNED_RULES: tuple[Rule[Case], ...] = (
    Rule(
        name="its partition was not read",
        applies=lambda e: e.partition_error is not None,
        verdict=Verdict.UNKNOWN,
        outcome=None,
        why=lambda e: (
            f"{_says(e)}{_age(e)}"
            + (f", past its timeout of {duration(_timeout(e))}" if is_overdue(e.owner, e.age) else "")
            + f", and {e.tp} was not read: "
            + ("what is open" if e.state == "Ongoing" else "whether its marker is written")
            + " there is not known."
        ),
        remedy=lambda e: GET_MISSING,
        needs=lambda e: (f"the log of {e.tp}: {e.partition_error}",),
    ),
    _unknown(
        name="on the coordinators' topic",
        applies=lambda e: e.tp[0] == STATE_TOPIC,
        why=lambda e: "An open transaction on __transaction_state cannot come from a producer.",
        remedy=lambda e: "Never write a marker here; keep a copy of the segment and report it to Kafka.",
        needs=lambda e: ("an explanation: Kafka itself never writes transactions to this topic",),
    ),
    _unknown(
        name="several coordinators",
        applies=lambda e: len(e.owners) > 1,
        why=lambda e: f"{len(e.owners)} coordinators report producer {e.producer_id}.",
        needs=lambda e: ("one coordinator that owns the id: " + "; ".join(map(coordinator_says, e.owners)),),
    ),
    _unknown(
        name="not described",
        applies=lambda e: e.owner is not None and bool(e.owner.error),
        why=lambda e: f'Transactional id "{e.transactional_id}" could not be described.',
        needs=lambda e: (f'the state of "{e.transactional_id}": {_owner(e).error}',),
    ),
    _unknown(
        name="an older copy of its coordinator's log",
        applies=lambda e: _contradiction(e) is not None,
        why=lambda e: f"{_says(e)} in a copy that is older than the others, so it may have ended since.",
        needs=lambda e: (_contradiction(e) or "",),
    ),
    *_ending_rules("PrepareCommit", COMMIT),
    *_ending_rules("PrepareAbort", ABORT),
    *_ending_rules("PrepareEpochFence", ABORT),
    _unknown(
        name="ending elsewhere",
        applies=lambda e: e.state.startswith("Prepare"),
        why=lambda e: f"{_says(e)} on other partitions and no longer expects a marker here.",
        remedy=lambda e: "Do not abort while the coordinator is ending the transaction; diagnose again when it has.",
        needs=lambda e: ("the end of the transaction on its other partitions",),
    ),
    Rule(
        name="prepared",
        applies=lambda e: e.state == "Ongoing" and e.two_phase and e.listed,
        verdict=Verdict.PREPARED,
        outcome=UNDECIDED,
        why=lambda e: f"{_says(e)} by two-phase commit (no timeout), so it never expires.",
        remedy=lambda e: "Ask the external coordinator of this id whether to commit or abort; never decide it here.",
        is_explained=True,
    ),
    _unknown(
        name="prepared elsewhere",
        applies=lambda e: e.two_phase and e.state == "Ongoing",
        why=lambda e: f"{_says(e)} by two-phase commit, which may run ahead of its producer id.",
        remedy=lambda e: "Ask the external coordinator of this id; never decide it here.",
        needs=lambda e: ("the external coordinator's decision on this transaction",),
    ),
    _unknown(
        name="stale coordinator",
        applies=lambda e: e.owner_epoch >= 0 and e.epoch > e.owner_epoch,
        why=lambda e: f"{_says(e)} with epoch {e.owner_epoch}, older than the partition's {e.epoch}.",
        needs=lambda e: (
            "a coordinator that knows the partition's epoch (this one is stale or lost its newest records)",
        ),
    ),
    _over_committed("live, over committed records", COMMIT, lambda e: e.outcome.name == COMMIT),
    _over_committed(
        "live, over records of which some are committed", UNKNOWN, lambda e: e.outcome.no_commit.status == REFUTED
    ),
    Rule(
        name="live, of two epochs",
        applies=lambda e: _is_live(e) and e.is_mixed and e.checkpoint is None,
        verdict=Verdict.ONGOING,
        outcome=UNDECIDED,
        why=lambda e: f"{_says(e)} with epoch {e.epoch}, but {_dead_epoch(e)}.",
        remedy=lambda e: (
            f"{_keep_first(e)} {NO_RIGHT_END}"
            if _may_have_committed(e)
            else f"{_abort_by_owner(e)} all of it. Never an abort marker: it would lose half of a live transaction."
        ),
        cause="mixed epochs in one transaction",
        is_explained=True,
    ),
    Rule(
        name="pre-committed by a checkpoint of Flink, over aborted records",
        applies=lambda e: _is_live(e) and e.checkpoint is not None and (e.is_mixed or _may_have_aborted(e)),
        verdict=Verdict.PREPARED,
        outcome=UNKNOWN,
        why=lambda e: (
            f"{_says(e)}{_age(e)}, and {_checkpoint(e).name} of its Flink job is to commit it. "
            + (f"{_capital(_dead_epoch(e))}." if e.is_mixed else ABORTED_BELOW)
        ),
        remedy=lambda e: (
            f"{_keep_first(e)} Then restore the job from that checkpoint or a later one: it commits them all, and only "
            "the job knows which ones it has written. Never fence or abort it."
        ),
        is_explained=True,
    ),
    Rule(
        name="pre-committed by a checkpoint of Flink",
        applies=lambda e: _is_live(e) and e.checkpoint is not None,
        verdict=Verdict.PREPARED,
        outcome=UNDECIDED,
        why=lambda e: f"{_says(e)}{_age(e)}, and {_checkpoint(e).name} of its Flink job is to commit it.",
        remedy=lambda e: (
            "Restore the job from that checkpoint or a later one: it commits the transaction. Never fence or abort it: "
            f"the job considers its records written. If the job cannot start in time, commit it:\n{_commit(e)}"
        ),
        action="commit",
        is_explained=True,
    ),
    Rule(
        name="overdue, perhaps over committed records",
        applies=lambda e: _is_live(e) and _age_verdict(e) is Verdict.OVERDUE and _may_have_committed(e),
        verdict=Verdict.OVERDUE,
        outcome=UNKNOWN,
        why=lambda e: f"{_says(e)}{_past_timeout(e)}.",
        remedy=lambda e: (
            f"Check coordinator {number(_owner(e).coordinator_id)} (log, load, __transaction_state-"
            f"{_owner(e).txn_state_partition}). A fence would end it, and discard all that is open here: "
            f"{_first_prove(e)} Never an abort marker: it has an owner."
        ),
        is_explained=True,
    ),
    Rule(
        name="overdue",
        applies=lambda e: _is_live(e) and _age_verdict(e) is Verdict.OVERDUE,
        verdict=Verdict.OVERDUE,
        outcome=UNDECIDED,
        why=lambda e: f"{_says(e)}{_past_timeout(e)}.",
        remedy=lambda e: (
            f"Check coordinator {number(_owner(e).coordinator_id)} (log, load, __transaction_state-"
            f"{_owner(e).txn_state_partition}). Never an abort marker: it has an owner. If it may be Flink's, check "
            "first that no checkpoint is to commit it. A fence of its id ends it:\n"
            + command_line(("kafka-txn", "fence", "--transactional-id", e.transactional_id or ""))
        ),
        action="fence",
        is_explained=True,
    ),
    Rule(
        name="long",
        applies=lambda e: _is_live(e) and _age_verdict(e) is Verdict.LONG,
        verdict=Verdict.LONG,
        outcome=UNDECIDED,
        why=_why_live,
        remedy=_wait,
        is_explained=True,
    ),
    Rule(
        name="live, with an older first batch",
        applies=lambda e: _is_live(e) and _begins_earlier(e),
        verdict=Verdict.ONGOING,
        outcome=UNDECIDED,
        why=_why_live,
        remedy=_wait,
        is_explained=True,
    ),
    Rule(name="live", applies=_is_live, verdict=Verdict.ONGOING, outcome=UNDECIDED, why=_why_live, remedy=_wait),
    _unknown(
        name="an epoch is missing",
        applies=lambda e: e.owner is not None and (e.owner_epoch < 0 or (e.listed and e.epoch < 0)),
        why=lambda e: f"{_says(e)}, and whether this transaction is an older one is not known.",
        needs=lambda e: (
            f"the epoch of producer {e.producer_id} "
            f"{'at its coordinator' if e.owner_epoch < 0 else 'on the partition'}",
        ),
    ),
    _stuck_at_last_epoch(
        "overdue, fenced by the last epoch, perhaps over committed records", UNKNOWN, _may_have_committed
    ),
    _stuck_at_last_epoch("overdue, fenced by the last epoch", UNDECIDED, lambda e: True),
    _unknown(
        name="a fence may be in progress",
        applies=lambda e: (
            e.state == "Ongoing" and e.epoch < e.owner_epoch and e.listed and _owner(e).last_update_time is None
        ),
        why=lambda e: (
            f"{_says(e)} with epoch {e.owner_epoch} on this partition: either epoch {e.epoch} is "
            "dead, or its coordinator is fencing it and will abort it."
        ),
        needs=lambda e: (
            f'the record of "{e.transactional_id}" with epoch {e.owner_epoch} in __transaction_state'
            f"-{_owner(e).txn_state_partition} (READ on that topic): the epoch is raised before it is logged",
        ),
    ),
    _unknown(
        name="a state that this version does not know",
        applies=lambda e: (
            e.owner is not None and e.state not in {"Ongoing", "Empty", "CompleteCommit", "CompleteAbort", "Dead"}
        ),
        why=lambda e: f"{_says(e)}, a state this version does not know.",
        needs=lambda e: (f"the meaning of the state {e.state or 'that was not returned'}",),
    ),
)
"""Rules on transactions that a coordinator owns, or whose coordinator's answer cannot be trusted."""


OUTCOME_NOT_PROVEN = "outcome not proven"
COMMIT_IS_LIKELY = "a commit is likely"
MARKERS_NOT_READ = "markers on other partitions not read"
OFFSETS_DROPPED = (
    "the offsets in it are dropped: its groups continue from their last committed ones, and process records again; "
    "output that was committed for them is then written twice, unless the groups' offsets are set first"
)


def _command(e: Case, action: str) -> str:
    return f"kafka-txn {action} {e.tp.flags} --start-offset {e.start}"


def _abort(e: Case) -> str:
    if e.tp[0] == OFFSETS_TOPIC:
        return f"{_command(e, 'abort')}\n{_capital(OFFSETS_DROPPED)}."
    return _command(e, "abort")


def _why_disowned(e: Case) -> str:
    """Why no coordinator will end the transaction, without its dot."""
    if e.owner is None:
        return f"no transactional id has producer {e.producer_id} any more, so no coordinator will end this transaction"
    says = coordinator_says(e.owner)
    if e.state != "Ongoing":
        return f"{says}, so no coordinator will end this transaction"
    if e.epoch == e.owner_epoch or e.epoch < 0:
        return f"{says} on other partitions and does not know this one, so this one will never get a marker"
    if e.listed:
        return (
            f"{says} with epoch {e.owner_epoch} on this partition, as its log confirms, so epoch {e.epoch} is "
            "dead, and the next marker will decide its data"
        )
    return (
        f"{says} with epoch {e.owner_epoch} elsewhere, so no coordinator will end this transaction of epoch {e.epoch}"
    )


def _hanging_reason(e: Case) -> str:
    return f"{_why_disowned(e)} ({by_observations(e.observations)})."


def doubts(e: Case) -> tuple[str, ...]:
    """What is missing to prove that no coordinator will end the transaction; empty if it is proven."""
    doubts = list(dict.fromkeys(gap for observation in e.observations for gap in observation.coverage.gaps))
    doubts += e.observation.doubts.get((*e.tp, e.producer_id), ())
    if e.leader_moved:
        doubts.append("a response of the partition's leader: leadership moved during the observation")
    if e.is_of_other_logs:
        doubts.append("observations of one log: its leader has changed between them, or its topic was created again")
    if e.leader.error:
        doubts.append(f"the leader's offsets: {e.leader.error}")
    if e.options.is_sample and len(e.observations) == 1:
        doubts.append("a second sample: it was seen in one only")
    if None in e.history:
        doubts.append("a second observation: it was open in the last one only")
    elif any(one and (not one.is_disowned or one.epoch != e.epoch) for one in e.of_each_observation):
        doubts.append("observations that agree: the coordinator answered differently before")
    return tuple(doubts)


def _is_recorded_otherwise(recorded: Finding) -> bool:
    """Whether it was not recorded as one that no coordinator will end, with the marker that is right for all of it."""
    is_mixed = recorded.outcome == COMMIT and recorded.action is None
    return recorded.verdict not in _DISOWNED_VERDICTS or is_mixed


def are_markers_unread(e: Case) -> bool:
    """Whether markers on other partitions, which may contradict the coordinators' log, are not known."""
    return e.is_read and (not e.outcome.are_markers_sought or e.outcome.markers_unread is not None)


def _recorded_otherwise(e: Case) -> tuple[str, ...]:
    """What was missing when it was recorded."""
    if e.recorded is None or e.recorded.missing:
        return () if e.recorded is None else e.recorded.missing
    return (f"a recorded finding that agrees: it was recorded as {e.recorded.verdict}",)


def _decided_rule(outcome: str) -> Rule[Case]:
    """For an outcome that is decided, with its marker on the way: the log does not have yet that all are written."""
    return Rule(
        name=f"its {outcome} is decided and the marker on the way",
        applies=lambda e: (
            e.outcome.name == outcome and e.outcome.transaction is not None and e.outcome.transaction.end_time is None
        ),
        verdict=Verdict.ENDING,
        outcome=outcome,
        why=lambda e: f"{_capital(e.outcome.reason)} yet: its coordinator has only just decided.",
        remedy=lambda e: "Wait: its coordinator writes the marker. Diagnose again.",
    )


_DISOWNED_VERDICTS = {Verdict.HANGING, Verdict.STUCK_ENDING}  # of transactions that no coordinator will end


_hanging = partial(  # a transaction that no coordinator will end, and that no commit includes
    cast("type[Rule[Case]]", Rule),
    verdict=Verdict.HANGING,
    outcome=UNDECIDED,
    why=_hanging_reason,
    remedy=_abort,
    action="abort",
)

DISOWNED_RULES: tuple[Rule[Case], ...] = (
    _unknown(name="not proven to be disowned", applies=lambda e: bool(doubts(e)), needs=doubts),
    _unknown(
        name="recorded otherwise",
        applies=lambda e: not e.is_read and e.recorded is not None and _is_recorded_otherwise(e.recorded),
        needs=_recorded_otherwise,
    ),
    _unknown(
        name="the log has another producer's batch",
        applies=lambda e: e.outcome.other_producer_id is not None,
        needs=lambda e: (f"a log that agrees: the batch at {e.start} is of producer {e.outcome.other_producer_id}",),
    ),
    _unknown(
        name="the log has its marker, the producer state has not",
        applies=lambda e: e.outcome.marker_contradicts,
        needs=lambda e: (f"producer state that agrees: there is the {e.outcome.marker_after}",),
    ),
    Rule(
        name="its marker came meanwhile",
        applies=lambda e: e.outcome.marker_after is not None,
        verdict=Verdict.ENDING,
        outcome=None,
        why=lambda e: f"The {e.outcome.marker_after} has ended it in the meantime.",
        remedy=lambda e: "None: it has ended.",
    ),
    Rule(
        name="it has ended meanwhile",
        applies=lambda e: e.outcome.has_ended,
        verdict=Verdict.ENDING,
        outcome=None,
        why=lambda e: f"It has ended in the meantime: {e.outcome.reason}.",
        remedy=lambda e: "None: it has ended.",
    ),
    _decided_rule(COMMIT),
    _decided_rule(ABORT),
    Rule(
        name="committed without its marker",
        applies=lambda e: e.outcome.name == COMMIT,
        verdict=Verdict.STUCK_ENDING,
        outcome=COMMIT,
        why=lambda e: f"{_capital(e.outcome.reason)}, and none will be written.",
        remedy=lambda e: (
            f"{_command(e, 'complete')}\nIt writes the COMMIT marker that is missing. Never an abort marker: these "
            "records are committed."
        ),
        action="complete",
    ),
    _unknown(
        name="committed in part",
        applies=lambda e: e.outcome.no_commit.status == e.outcome.all_committed.status == REFUTED,
        remedy=lambda e: (
            "Write no marker: an abort discards committed records, and a commit makes others visible. Read "
            f"{e.tp[0]}-{e.tp[1]} from offset {e.start} with read_uncommitted, and keep the records of "
            f"producer {e.producer_id}."
        ),
        needs=lambda e: e.outcome.missing,
    ),
    _unknown(
        name=COMMIT_IS_LIKELY,
        applies=lambda e: e.outcome.name == UNKNOWN and e.outcome.all_committed.status == NOT_PROVEN,
        remedy=lambda e: (
            "Do not abort: a commit is likely. Check in the client's log, or in its checkpoint, what it committed. If "
            f"that shows that {e.outcome.all_committed.claim}, this says how to write the COMMIT marker that is "
            f"missing:\n{_command(e, 'complete')}"
        ),
        needs=lambda e: e.outcome.missing,
    ),
    _unknown(name=OUTCOME_NOT_PROVEN, applies=lambda e: e.outcome.name == UNKNOWN, needs=lambda e: e.outcome.missing),
    _unknown(
        name=MARKERS_NOT_READ,
        applies=are_markers_unread,
        needs=lambda e: (
            f"the markers of producer {e.producer_id} on other partitions, which show whether the coordinators' "
            f"log has lost a commit: {e.outcome.markers_unread or 'they were not read'}",
        ),
    ),
    _hanging(
        name="aborted without its marker",
        applies=lambda e: e.outcome.name == ABORT,
        outcome=ABORT,
        why=lambda e: f"{_why_disowned(e)}: {e.outcome.reason} ({by_observations(e.observations)}).",
    ),
    _unknown(
        name="to be committed by a checkpoint of Flink",
        applies=lambda e: e.checkpoint is not None,
        remedy=lambda e: (
            f"Do not abort it: the Flink job considers its records written. {_keep_first(e)} Then check whether a "
            "later transaction of the job has them, too."
        ),
        needs=lambda e: (
            f"a coordinator that has it open: {e.checkpoint and e.checkpoint.name} of its Flink job is to commit it",
        ),
    ),
    _hanging(
        name="superseded epoch",
        applies=lambda e: e.state == "Ongoing" and e.epoch < e.owner_epoch,
        remedy=lambda e: f"Soon, as the new epoch's marker would decide this data too:\n{_abort(e)}",
        cause="superseded epoch",
    ),
    _hanging(
        name="not added to the open transaction",
        applies=lambda e: e.state == "Ongoing",
        remedy=lambda e: f"On this partition only:\n{_abort(e)}",
        cause="written but not added to the transaction",
    ),
    _hanging(name="nothing open under its id", applies=lambda e: e.owner is not None),
    _hanging(
        name="no owner", applies=lambda e: True, cause="no owner: the id has expired or moved on to another producer id"
    ),
)
"""Rules on transactions that no coordinator will end, as far as the coordinators' answers go."""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


NEEDED = {"abort": (NOT_OWNED, NO_COMMIT), "complete": (NOT_OWNED, ALL_COMMITTED)}
"""The claims that an action needs."""


def claim_entries(e: Case) -> Iterator[EvidenceEntry]:
    """The claims about an open transaction as evidence; none if a coordinator owns it, and its log was not read."""
    rule = e.owned_rule
    if e.start is None or (rule is not None and rule.verdict is not Verdict.UNKNOWN and not e.is_read):
        return
    status = PROVEN if rule is None and not doubts(e) else NOT_PROVEN
    if rule is not None and rule.verdict is not Verdict.UNKNOWN:
        status = REFUTED
    not_owned = ActionClaim(claim=f"no live transaction owns {e.outcome.offsets}", status=status)
    no_commit = e.outcome.no_commit
    if rule is None and no_commit.status == PROVEN and are_markers_unread(e):
        no_commit = replace(no_commit, status=NOT_PROVEN)
    claims = {NOT_OWNED: not_owned, NO_COMMIT: no_commit, ALL_COMMITTED: e.outcome.all_committed}
    for name, claim in claims.items():
        yield EvidenceEntry(
            source="claims", observed_at=e.observation.observed_at, name=name, value=f"{claim.claim}: {claim.status}"
        )


def claims_of(finding: Finding, action: str) -> Sequence[ActionClaim]:
    """The claims that an action on a finding needs; none if it has none, as no marker may be written."""
    found = recorded_claims(finding)
    return [found[name] for name in NEEDED[action] if name in found]


def needed_override(finding: Finding, action: str) -> str | None:
    """The claims, in words, that an operator has to assert for an action that is not proven to be safe.

    Null if nothing is to be overridden, or nothing may be: a claim is refuted, or the transaction has an owner.
    """
    claims = claims_of(finding, action)
    if finding.verdict is not Verdict.UNKNOWN or not claims or any(each.status == REFUTED for each in claims):
        return None
    return ", and ".join(each.claim for each in claims if each.status == NOT_PROVEN) or None
