"""The only code that changes a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.actions.abort import plan_abort, plan_abort_list
    from toolkit.actions.audit import Audit
    from toolkit.actions.commit import plan_commit
    from toolkit.actions.complete import plan_complete
    from toolkit.actions.fence import plan_fence

__all__ = ["Audit", "plan_abort", "plan_abort_list", "plan_commit", "plan_complete", "plan_fence"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Audit": "toolkit.actions.audit",
        "plan_abort": "toolkit.actions.abort",
        "plan_abort_list": "toolkit.actions.abort",
        "plan_commit": "toolkit.actions.commit",
        "plan_complete": "toolkit.actions.complete",
        "plan_fence": "toolkit.actions.fence",
    },
)
