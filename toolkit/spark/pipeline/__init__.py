"""The pipeline from logs, clusters and recordings to Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.spark.pipeline.pipeline_run import run
    from toolkit.spark.pipeline.stored_findings import findings_over_time
    from toolkit.spark.pipeline.table_store import VIEWS, create_views, read

__all__ = ["VIEWS", "create_views", "findings_over_time", "read", "run"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "VIEWS": "toolkit.spark.pipeline.table_store",
        "create_views": "toolkit.spark.pipeline.table_store",
        "findings_over_time": "toolkit.spark.pipeline.stored_findings",
        "read": "toolkit.spark.pipeline.table_store",
        "run": "toolkit.spark.pipeline.pipeline_run",
    },
)
