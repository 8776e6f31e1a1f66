"""Rules on open transactions that no coordinator will end, as far as the coordinators' answers go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.decision.decision import OpenRule
from toolkit.analysis.diagnosis.evidence_kinds import GET_MISSING
from toolkit.analysis.diagnosis.evidence_text import by_observations, coordinator_says
from toolkit.analysis.diagnosis.verdicts import ABORT, COMMIT, NOT_PROVEN, REFUTED, UNDECIDED, UNKNOWN
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.schema.live import Finding
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case

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
        return f"{_command(e, 'abort')} ({OFFSETS_DROPPED})"
    return _command(e, "abort")


def _abort_before_the_marker(e: Case) -> str:
    return f"Soon, as the new epoch's marker would decide this data too: {_abort(e)}"


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


def _aborted_reason(e: Case) -> str:
    return f"{_why_disowned(e)}: {e.outcome.reason} ({by_observations(e.observations)})."


def _not_proven(e: Case) -> str:
    owner = e.owner
    why = f"no transactional id that was read has producer {e.producer_id}" if owner is None else _why_disowned(e)
    return f"Not proven to be hanging: {why}."


def doubts(e: Case) -> tuple[str, ...]:
    """What is missing to prove that no coordinator will end the transaction; empty if it is proven."""
    doubts = list(dict.fromkeys(gap for observation in e.observations for gap in observation.coverage.gaps))
    doubts += e.observation.doubts.get((*e.tp, e.producer_id), ())
    if e.leader_moved:
        doubts.append("a response of the partition's leader: leadership moved during the observation")
    if e.leader.error:
        doubts.append(f"the leader's offsets: {e.leader.error}")
    if e.is_single_sample:
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


def _is_superseded(e: Case) -> bool:
    return e.state == "Ongoing" and e.epoch < e.owner_epoch


def _recorded_otherwise(e: Case) -> tuple[str, ...]:
    """What was missing when it was recorded."""
    if e.recorded is None or e.recorded.missing:
        return () if e.recorded is None else e.recorded.missing
    return (f"a recorded finding that agrees: it was recorded as {e.recorded.verdict}",)


def _is_decided_only(e: Case) -> bool:
    """Whether the log has the decision, and not yet that all markers are written."""
    return e.outcome.transaction is not None and e.outcome.transaction.end_time is None


def _decided_rule(outcome: str) -> OpenRule:
    """For an outcome that is decided, with its marker on the way."""
    return OpenRule(
        name=f"its {outcome} is decided and the marker on the way",
        applies=lambda e: e.outcome.name == outcome and _is_decided_only(e),
        verdict=Verdict.ENDING,
        outcome=outcome,
        why=lambda e: f"{_capital(e.outcome.reason)} yet: its coordinator has only just decided.",
        remedy=lambda e: "Wait: its coordinator writes the marker. Diagnose again.",
    )


_DISOWNED_VERDICTS = {Verdict.HANGING, Verdict.STUCK_ENDING}  # of transactions that no coordinator will end

DISOWNED_RULES: tuple[OpenRule, ...] = (
    OpenRule(
        name="not proven to be disowned",
        applies=lambda e: bool(doubts(e)),
        verdict=Verdict.UNKNOWN,
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: GET_MISSING,
        needs=doubts,
    ),
    OpenRule(
        name="recorded otherwise",
        applies=lambda e: not e.is_read and e.recorded is not None and _is_recorded_otherwise(e.recorded),
        verdict=Verdict.UNKNOWN,
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: GET_MISSING,
        needs=_recorded_otherwise,
    ),
    OpenRule(
        name="the log has another producer's batch",
        applies=lambda e: e.outcome.other_producer_id is not None,
        verdict=Verdict.UNKNOWN,
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: GET_MISSING,
        needs=lambda e: (f"a log that agrees: the batch at {e.start} is of producer {e.outcome.other_producer_id}",),
    ),
    OpenRule(
        name="the log has its marker, the producer state has not",
        applies=lambda e: e.outcome.marker_contradicts,
        verdict=Verdict.UNKNOWN,
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: GET_MISSING,
        needs=lambda e: (f"producer state that agrees: there is the {e.outcome.marker_after}",),
    ),
    OpenRule(
        name="its marker came meanwhile",
        applies=lambda e: e.outcome.marker_after is not None,
        verdict=Verdict.ENDING,
        outcome=None,
        why=lambda e: f"The {e.outcome.marker_after} has ended it in the meantime.",
        remedy=lambda e: "None: it has ended.",
    ),
    OpenRule(
        name="it has ended meanwhile",
        applies=lambda e: e.outcome.has_ended,
        verdict=Verdict.ENDING,
        outcome=None,
        why=lambda e: f"It has ended in the meantime: {e.outcome.reason}.",
        remedy=lambda e: "None: it has ended.",
    ),
    _decided_rule(COMMIT),
    _decided_rule(ABORT),
    OpenRule(
        name="committed without its marker",
        applies=lambda e: e.outcome.name == COMMIT,
        verdict=Verdict.STUCK_ENDING,
        outcome=COMMIT,
        why=lambda e: f"{_capital(e.outcome.reason)}, and none will be written.",
        remedy=lambda e: (
            f"{_command(e, 'complete')} writes the COMMIT marker that is missing. Never an abort marker: these "
            "records are committed."
        ),
        action="complete",
    ),
    OpenRule(
        name="committed in part",
        applies=lambda e: e.outcome.no_commit.status == e.outcome.all_committed.status == REFUTED,
        verdict=Verdict.UNKNOWN,
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: (
            "Write no marker: an abort discards committed records, and a commit makes others visible. Read "
            f"{e.tp[0]}-{e.tp[1]} from offset {e.start} with read_uncommitted, and keep the records of "
            f"producer {e.producer_id}."
        ),
        needs=lambda e: e.outcome.missing,
    ),
    OpenRule(
        name=COMMIT_IS_LIKELY,
        applies=lambda e: e.outcome.name == UNKNOWN and e.outcome.all_committed.status == NOT_PROVEN,
        verdict=Verdict.UNKNOWN,
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: (
            "Do not abort: a commit is likely. Check in the client's log, or in its checkpoint, what it committed. If "
            f"that shows that {e.outcome.all_committed.words}, {_command(e, 'complete')} says how to write the "
            "COMMIT marker that is missing."
        ),
        needs=lambda e: e.outcome.missing,
    ),
    OpenRule(
        name=OUTCOME_NOT_PROVEN,
        applies=lambda e: e.outcome.name == UNKNOWN,
        verdict=Verdict.UNKNOWN,
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: GET_MISSING,
        needs=lambda e: e.outcome.missing,
    ),
    OpenRule(
        name=MARKERS_NOT_READ,
        applies=are_markers_unread,
        verdict=Verdict.UNKNOWN,
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: GET_MISSING,
        needs=lambda e: (
            f"the markers of producer {e.producer_id} on other partitions, which show whether the coordinators' "
            f"log has lost a commit: {e.outcome.markers_unread or 'they were not read'}",
        ),
    ),
    OpenRule(
        name="aborted without its marker",
        applies=lambda e: e.outcome.name == ABORT,
        verdict=Verdict.HANGING,
        outcome=ABORT,
        why=_aborted_reason,
        remedy=_abort,
        action="abort",
    ),
    OpenRule(
        name="to be committed by a checkpoint of Flink",
        applies=lambda e: e.checkpoint is not None,
        verdict=Verdict.UNKNOWN,
        outcome=UNKNOWN,
        why=_not_proven,
        remedy=lambda e: (
            "Do not abort it: the Flink job considers its records written. Save them by kafka-txn scan, and check "
            "whether a later transaction of the job has them too."
        ),
        needs=lambda e: (
            f"a coordinator that has it open: {e.checkpoint and e.checkpoint.name} of its Flink job is to commit it",
        ),
    ),
    OpenRule(
        name="superseded epoch",
        applies=_is_superseded,
        verdict=Verdict.HANGING,
        outcome=UNDECIDED,
        why=_hanging_reason,
        remedy=_abort_before_the_marker,
        action="abort",
        cause="superseded epoch",
    ),
    OpenRule(
        name="not added to the open transaction",
        applies=lambda e: e.state == "Ongoing",
        verdict=Verdict.HANGING,
        outcome=UNDECIDED,
        why=_hanging_reason,
        remedy=lambda e: f"On this partition only: {_abort(e)}",
        action="abort",
        cause="written but not added to the transaction",
    ),
    OpenRule(
        name="nothing open under its id",
        applies=lambda e: e.owner is not None,
        verdict=Verdict.HANGING,
        outcome=UNDECIDED,
        why=_hanging_reason,
        remedy=_abort,
        action="abort",
    ),
    OpenRule(
        name="no owner",
        applies=lambda e: True,
        verdict=Verdict.HANGING,
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
