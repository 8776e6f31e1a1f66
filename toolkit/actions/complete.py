"""Write the marker that was decided and is missing: COMMIT for committed records, ABORT for aborted ones.

A coordinator may end a transaction without its marker on a partition: the marker is skipped while all replicas are
offline (KAFKA-20734), lost with an unclean election, compacted away, or refused. The records stay open there, and no
broker ends them. A COMMIT marker makes visible whatever the producer has open on the partition, so every open batch has
to be of a commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from toolkit.actions.plan import Plan, Result, Ruling
from toolkit.actions.requests import MarkerAction, why_not
from toolkit.actions.transaction import PlannedTransaction, check_delivered, delivered, group_offsets, lso_moved
from toolkit.analysis.diagnosis.verdicts import ABORT, COMMIT
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.schema.live import Finding, Transaction
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.schema.coerce import FindingLike
    from toolkit.sources.live.cluster import Cluster

LOST_TAIL = (
    "if __transaction_state lost its newest records in a crash just then, an abort with transaction version 1 can be "
    "missing from it without a trace: ask the owner of the producer"
)


class Complete(MarkerAction):
    """The marker that is missing; a COMMIT if that is asserted only."""

    name = "complete"
    blocked = "and cannot be completed"
    only = "Only a marker that was decided and that nobody else will write is written."
    after_plan_s = 10.0  # so that a later proof of an outcome can take it for one by hand (COMPLETED_AFTER)

    def is_commit(self, plan: Plan) -> bool:
        return plan.basis.outcome != ABORT

    def ruling(self, found: Finding) -> Ruling:
        is_commit = found.outcome == COMMIT and found.verdict is Verdict.STUCK_ENDING and found.action == "complete"
        is_abort = found.outcome == ABORT and found.verdict is Verdict.HANGING and found.action in {"abort", "complete"}
        if found.topic == STATE_TOPIC:
            refusal: str | None = "no marker belongs on the coordinators' own topic."
        elif is_commit or is_abort:
            refusal = None
        elif found.outcome in {COMMIT, ABORT}:
            refusal = f"its coordinator may still write the marker. {why_not(found)}"
        else:
            outcome = found.outcome or "not known"
            refusal = f"its outcome is {outcome}, so no marker is known to be missing. {why_not(found)}"
        needs = "abort" if found.outcome == ABORT else "complete"
        return self.ruling_by_claims(found, needs, refusal=refusal)

    def warnings(self, found: Finding) -> Sequence[str]:
        return [LOST_TAIL]

    def is_in_use(self, txn: PlannedTransaction, owner: Transaction) -> bool:
        """A transaction whose own marker may follow, and may say something else.

        An open one of a newer epoch that has written nothing here yet is none: once it has, the leader refuses this
        marker. Left alone, its ABORT marker would discard the committed records.
        """
        is_same_epoch = owner.producer_epoch is None or owner.producer_epoch <= txn.producer_epoch
        is_open_here = owner.state == "Ongoing" and txn.tp in (owner.topic_partitions or ()) and is_same_epoch
        return (owner.state or "").startswith("Prepare") or is_open_here

    def read_back(self, fresh: Plan, check: Callable[[], None]) -> Result:
        cluster, txn = fresh.cluster, fresh.transaction
        done = delivered(cluster, txn, lso_moved(cluster, txn, check), check)
        check_delivered(done, txn, is_commit=self.is_commit(fresh))
        result = Result(partitions=[done])
        if txn.topic != OFFSETS_TOPIC or txn.impact is None:
            return result
        commits, unread = group_offsets(cluster, txn.impact.offset_commits)
        return replace(result, offset_commits=commits, unread_groups=unread)


COMPLETE = Complete()


def plan_complete(cluster: Cluster, finding: FindingLike | Finding) -> Plan:
    """Plan the marker that is missing, and what becomes visible by it; nothing is written.

    Parameters
    ----------
    cluster
        Where the finding was made.
    finding
        A finding, or a row of ``schema.FINDINGS``: a dict, or a row of a frame.

    Raises
    ------
    ActionRefused
        If the finding refutes that all of its records are committed, or aborted, its coordinator may still write the
        marker, or nothing is open any more.
    BrokerError
        If the leader does not show the partition, its producers or its log.
    """
    return COMPLETE.plan(cluster, finding)
