"""A live cluster that can be changed, too: the tables of `toolkit.sources.cluster`, and plans of actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.analysis.cases import MAX_TRANSACTION_TIMEOUT_MS
from toolkit.sources import cluster

if TYPE_CHECKING:
    from toolkit.actions.abort import AbortPlan
    from toolkit.actions.fence import FencePlan
    from toolkit.actions.given import Finding

__all__ = ["Cluster"]


class Cluster(cluster.Cluster):
    __doc__ = cluster.Cluster.__doc__

    def plan_abort(self, finding: Finding) -> AbortPlan:
        """Plan the abort marker for a finding, and what it would change; nothing is written.

        Parameters
        ----------
        finding
            A row of ``schema.FINDINGS``: a dict, or a row of a frame.

        Raises
        ------
        ActionRefused
            If the finding has an owner, or nothing is open any more.
        BrokerError
            If the leader does not show the partition, or its producers.
        """
        from toolkit.actions.abort import plan_abort

        return plan_abort(self, finding)

    def plan_fence(
        self, transactional_id: str, *, max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS
    ) -> FencePlan:
        """Plan the fence of a transactional id: what is open under it is aborted; nothing is sent.

        Parameters
        ----------
        transactional_id
            The id.
        max_transaction_timeout_ms
            A live transaction that is open for longer is ``long``: the word to override; by default the brokers'
            default.

        Raises
        ------
        NotFound
            If the cluster has no such id.
        BrokerError
            If its coordinator does not describe it.
        """
        from toolkit.actions.fence import plan_fence

        return plan_fence(self, transactional_id, max_transaction_timeout_ms=max_transaction_timeout_ms)
