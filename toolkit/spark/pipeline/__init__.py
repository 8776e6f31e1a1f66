"""The pipeline from logs, clusters and recordings to Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.spark.pipeline.pipeline_run import run
    from toolkit.spark.pipeline.stored_findings import findings_over_time
    from toolkit.spark.pipeline.stored_tables import VIEWS, create_views, read

__all__ = ["VIEWS", "create_views", "findings_over_time", "read", "run"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "VIEWS": "toolkit.spark.pipeline.stored_tables",
        "create_views": "toolkit.spark.pipeline.stored_tables",
        "findings_over_time": "toolkit.spark.pipeline.stored_findings",
        "read": "toolkit.spark.pipeline.stored_tables",
        "run": "toolkit.spark.pipeline.pipeline_run",
    },
)
