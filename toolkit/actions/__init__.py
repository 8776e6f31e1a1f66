"""The only code that changes a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.actions.coordinator_actions import plan_commit, plan_fence
    from toolkit.actions.marker_actions import plan_abort, plan_abort_list, plan_complete

__all__ = ["Audit", "plan_abort", "plan_abort_list", "plan_commit", "plan_complete", "plan_fence"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Audit": "toolkit.actions.audit",
        "plan_abort": "toolkit.actions.marker_actions",
        "plan_abort_list": "toolkit.actions.marker_actions",
        "plan_commit": "toolkit.actions.coordinator_actions",
        "plan_complete": "toolkit.actions.marker_actions",
        "plan_fence": "toolkit.actions.coordinator_actions",
    },
)
