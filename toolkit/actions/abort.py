"""End one hanging transaction on one partition by an abort marker (KIP-664).

An abort marker on a live or a committed transaction silently loses its records there: it needs the proof that nobody
owns any open batch, and that no commit includes any. What it discards is saved first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolkit.actions.plan import RECHECK_AFTER, LeftOut, Plan, PlanList, Result, Ruling
from toolkit.actions.requests import MarkerAction, why_not
from toolkit.actions.transaction import PlannedTransaction, check_was_read, lso_moved
from toolkit.analysis.diagnosis.rules import OFFSETS_DROPPED
from toolkit.analysis.diagnosis.verdicts import ABORT as ABORTED
from toolkit.analysis.diagnosis.verdicts import COMMIT, UNDECIDED
from toolkit.errors import ActionRefused, BrokerError
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding, Transaction
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.schema.coerce import Data, FindingLike
    from toolkit.sources.live.cluster import Cluster

LOST_TAIL = (
    "if __transaction_state lost its newest records in a crash just then, a commit with transaction version 1 can be "
    "missing from it without a trace: ask the owner of the producer"
)


class Abort(MarkerAction):
    """The abort marker."""

    name = "abort"
    blocked = "not proven to be hanging"
    only = "Only a transaction proven to be hanging is ended by an abort marker; any other has an owner."
    discards = True
    kafka_tool = ("abort",)  # it reads the epochs from the leader (brokers from 2.8 on)

    def ruling(self, found: Finding) -> Ruling:
        if found.outcome == COMMIT:
            return Ruling(
                verdict=found.verdict,
                outcome=found.outcome,
                reason=found.reason,
                refusal=f"its records were committed, and an abort marker would discard them: {why_not(found)}",
                refused="is never aborted",
                remedy=found.remedy,
            )
        is_hanging = found.verdict is Verdict.HANGING and found.outcome in {UNDECIDED, ABORTED}
        is_offered = found.action == "abort" and is_hanging
        return self.ruling_by_claims(found, "abort", refusal=None if is_offered else why_not(found))

    def warnings(self, found: Finding) -> Sequence[str]:
        return [*([OFFSETS_DROPPED] if found.topic == OFFSETS_TOPIC else []), LOST_TAIL]

    def is_in_use(self, txn: PlannedTransaction, owner: Transaction) -> bool:
        is_alive = owner.state == "Ongoing" and owner.producer_epoch in {None, txn.producer_epoch}
        is_decided = (owner.state or "").startswith("Prepare")
        return txn.tp in (owner.topic_partitions or ()) and (is_alive or is_decided)

    def read_back(self, fresh: Plan, check: Callable[[], None]) -> Result:
        return Result(partitions=[lso_moved(fresh.cluster, fresh.transaction, check)])


ABORT = Abort()


def plan_abort(cluster: Cluster, finding: FindingLike | Finding) -> Plan:
    """Plan the abort marker for a finding, and what it would change; nothing is written.

    Parameters
    ----------
    cluster
        Where the finding was made.
    finding
        A finding, or a row of ``schema.FINDINGS``: a dict, or a row of a frame.

    Raises
    ------
    ActionRefused
        If the finding has an owner, its records were committed, or nothing is open any more.
    BrokerError
        If the leader does not show the partition, or its producers.
    """
    return ABORT.plan(cluster, finding)


def plan_abort_list(cluster: Cluster, transactions: Data, *, recheck_after: float = RECHECK_AFTER) -> PlanList:
    """Diagnose the transactions of a list again, and plan the abort of those that hang; nothing is written.

    Parameters
    ----------
    cluster
        Where the markers would go.
    transactions
        Findings, as rows or a frame of ``schema.FINDINGS``. Topic, partition, producer id and start offset name each
        transaction; all else is observed again. An entry that lacks one of them is left out.
    recheck_after
        Delay in seconds before the confirming second check.

    Raises
    ------
    NotFound
        If the cluster has no such partition.
    """
    listed = {each.key: each for each in records_of(transactions, Finding)}
    keys = sorted(key for key in listed if None not in key)
    tps = sorted({TopicPartition(key.topic or "", key.partition or 0) for key in keys})
    findings = cluster.records(Finding, partitions=tps, recheck_after=recheck_after) if tps else []
    found = [_plan_or_left_out(cluster, key, findings) for key in keys]
    nameless = [each for key, each in listed.items() if None in key]  # a partition or a broker that could not be read
    return PlanList(
        cluster=cluster,
        plans=_what_frees_most_first([each for each in found if isinstance(each, Plan)]),
        left_out=[
            *(each for each in found if isinstance(each, LeftOut)),
            *(
                LeftOut(
                    target=str(each.tp or "the whole cluster"),
                    verdict=None,
                    outcome=None,
                    reason="The list names no open transaction there.",
                )
                for each in nameless
            ),
        ],
    )


def _what_frees_most_first(plans: Sequence[Plan]) -> list[Plan]:
    """By the records that the markers of a partition free, an unknown number first; on each by its offsets."""
    freed: dict[TopicPartition, float] = {}
    for each in plans:
        tp, released = each.transaction.tp, each.impact.records_released
        freed[tp] = freed.get(tp, 0.0) + (float("inf") if released is None else released)
    return sorted(plans, key=lambda each: (-freed[each.transaction.tp], each.transaction.tp, each.start_offset))


def _plan_or_left_out(cluster: Cluster, key: TransactionKey, findings: Sequence[Finding]) -> Plan | LeftOut:
    target = f"{key.topic}-{key.partition}@{key.start_offset}"
    fresh = next((each for each in findings if each.key == key), None)
    try:
        if fresh is None:
            check_was_read(findings, TopicPartition(key.topic or "", key.partition or 0), what="it is open")
            reason = f"Producer {key.producer_id} has no transaction open there any more."
            return LeftOut(target=target, verdict=None, outcome=None, reason=reason)
        plan = ABORT.plan(cluster, fresh)
        refusal = plan.refusal
    except (ActionRefused, BrokerError) as error:
        refusal = error.what
    if refusal is None:
        return plan
    verdict, outcome, remedy = (None, None, "") if fresh is None else (fresh.verdict, fresh.outcome, fresh.remedy)
    return LeftOut(target=target, verdict=verdict, outcome=outcome, reason=refusal, remedy=remedy)
