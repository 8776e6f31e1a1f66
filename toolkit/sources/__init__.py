"""Sources: a live cluster, log directories, recordings; and tables that combine several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.reconciliation import COMBINATIONS
    from toolkit.sources.reconcile import reconciliation_frame, reconciliation_rows

__all__ = ["COMBINATIONS", "reconciliation_frame", "reconciliation_rows"]

__getattr__ = lazy_exports(
    __name__,
    {
        "COMBINATIONS": "toolkit.analysis.diagnosis.reconciliation",
        "reconciliation_frame": "toolkit.sources.reconcile",
        "reconciliation_rows": "toolkit.sources.reconcile",
    },
)
