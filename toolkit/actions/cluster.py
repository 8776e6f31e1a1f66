"""A live cluster that can be changed, too: the tables of `toolkit.sources.cluster`, and plans of actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.sources import cluster

if TYPE_CHECKING:
    from toolkit.actions.abort import AbortPlan
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
