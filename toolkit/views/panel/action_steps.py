"""The plan of an action in the panel: checked afresh; and what its button says.

Which action a finding has was decided with it (`analysis.diagnosis.decision`); nothing here chooses another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolkit.actions.coordinator_actions import plan_commit, plan_fence
from toolkit.actions.marker_actions import plan_abort, plan_abort_list, plan_complete
from toolkit.actions.plan import Plan, PlanList
from toolkit.errors import ActionRefused
from toolkit.schema.live import Finding

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster


def checked_plan(cluster: Cluster, finding: Finding, *, recheck_after: float) -> Plan:
    """Plan the action of a finding, and check it afresh; nothing is sent.

    Raises ActionRefused if the finding has no action, or it is not safe any more. Raises BrokerError if the evidence
    cannot be read.
    """
    transactional_id = finding.transactional_id or ""
    if finding.action == "commit":
        return plan_commit(cluster, transactional_id, recheck_after=recheck_after)  # which is its check
    if finding.action == "fence":
        plan = plan_fence(cluster, transactional_id)
    else:
        plan = plan_complete(cluster, finding) if finding.action == "complete" else plan_abort(cluster, finding)
    return plan.check(recheck_after=recheck_after)


def checked_list(cluster: Cluster, findings: Sequence[Finding], *, recheck_after: float) -> PlanList:
    """Plan the abort of many, and check each afresh; nothing is sent.

    Raises ActionRefused if none is proven to be hanging any more.
    """
    plan = plan_abort_list(cluster, findings, recheck_after=recheck_after)
    if not plan.plans:
        raise ActionRefused(
            "None of these transactions is proven to be hanging any more.", means="Nothing was written.", do="Refresh."
        )
    return plan


def button_text(finding: Finding) -> str:
    """What the button says that takes the action of a finding."""
    if finding.action == "commit":
        return "Commit the transaction"
    if finding.action == "fence":
        return "Fence the id"
    is_commit = finding.action == "complete" and finding.outcome == "commit"
    return f"Write the {'COMMIT' if is_commit else 'abort'} marker"
