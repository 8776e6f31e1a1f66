"""The steps of every action in the panel: a plan that was checked afresh, its execution, and where it acts.

Which action a finding has was decided with it (`analysis.diagnosis.decision`); nothing here chooses another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from toolkit.actions.abort import AbortPlan, AbortResult, plan_abort
from toolkit.actions.abort_list import AbortListPlan, AbortListResult, plan_abort_list
from toolkit.actions.commit import CommitPlan, CommitResult, PartitionToCommit, plan_commit
from toolkit.actions.complete import CompletePlan, CompleteResult, plan_complete
from toolkit.actions.fence import FencePlan, FenceResult, plan_fence
from toolkit.errors import ActionRefused
from toolkit.schema.live import Finding
from toolkit.schema.table import TopicPartition

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.sources.live.cluster import Cluster

ActionPlan: TypeAlias = AbortPlan | CompletePlan | CommitPlan | FencePlan | AbortListPlan
ActionResult: TypeAlias = AbortListResult | AbortResult | CompleteResult | CommitResult | FenceResult


def checked_plan(cluster: Cluster, finding: Finding, *, recheck_after: float) -> ActionPlan:
    """Plan the action of a finding, and check it afresh; nothing is sent.

    Raises ActionRefused if the finding has no action, or it is not safe any more. Raises BrokerError if the evidence
    cannot be read.
    """
    transactional_id = finding.transactional_id or ""
    if finding.action == "commit":
        return plan_commit(cluster, transactional_id, recheck_after=recheck_after)  # which is its check
    if finding.action == "fence":
        fence = plan_fence(cluster, transactional_id)
        fence.preflight()
        return fence
    plan = plan_complete(cluster, finding) if finding.action == "complete" else plan_abort(cluster, finding)
    fresh = plan.preflight(recheck_after=recheck_after)
    return replace(plan, basis=Finding.of(fresh))  # a finding of a moment ago may have been unknown


def checked_list(cluster: Cluster, findings: Sequence[Finding], *, recheck_after: float) -> AbortListPlan:
    """Plan the abort of many, and check each afresh; nothing is sent.

    Raises ActionRefused if none is proven to be hanging any more.
    """
    plan = plan_abort_list(cluster, findings, recheck_after=recheck_after)
    if not plan.plans:
        raise ActionRefused(
            "None of these transactions is proven to be hanging any more.", means="Nothing was written.", do="Refresh."
        )
    return plan


def execute(
    plan: ActionPlan,
    *,
    confirm: str,
    audit: Audit,
    recheck_after: float,
    cancel: threading.Event,
    progress: Callable[[AbortPlan], object],
) -> ActionResult:
    """Execute a plan; parameters and errors are those of its own `execute`."""
    if isinstance(plan, AbortListPlan):
        return plan.execute(confirm=confirm, audit=audit, recheck_after=recheck_after, cancel=cancel, progress=progress)
    if isinstance(plan, FencePlan):
        return plan.execute(confirm=confirm, audit=audit, cancel=cancel)
    return plan.execute(confirm=confirm, audit=audit, recheck_after=recheck_after, cancel=cancel)


def partitions_of(plan: ActionPlan) -> Sequence[TopicPartition]:
    """The partitions that a plan changes."""
    if isinstance(plan, FencePlan):
        return [TopicPartition(*each) for each in plan.topic_partitions]
    markers: Sequence[AbortPlan | CompletePlan | PartitionToCommit]
    match plan:
        case AbortListPlan():
            markers = plan.plans
        case CommitPlan():
            markers = plan.partitions
        case _:
            markers = (plan,)
    return [TopicPartition(each.topic, each.partition) for each in markers]


def button_text(finding: Finding) -> str:
    """What the button says that takes the action of a finding."""
    if finding.action == "commit":
        return "Commit the transaction"
    if finding.action == "fence":
        return "Fence the id"
    is_commit = finding.action == "complete" and finding.outcome == "commit"
    return f"Write the {'COMMIT' if is_commit else 'abort'} marker"
