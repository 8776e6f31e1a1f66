"""The pipeline from logs, clusters and recordings to Delta tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.spark.pipeline.kept_tables import read
    from toolkit.spark.pipeline.pipeline_run import run
    from toolkit.spark.pipeline.staging_table import rows_of
    from toolkit.spark.transforms.log_fold import fold
    from toolkit.spark.transforms.stored_findings import findings_over_time

__all__ = ["findings_over_time", "fold", "read", "rows_of", "run"]

__getattr__ = lazy_exports(
    __name__,
    {
        "findings_over_time": "toolkit.spark.transforms.stored_findings",
        "fold": "toolkit.spark.transforms.log_fold",
        "read": "toolkit.spark.pipeline.kept_tables",
        "rows_of": "toolkit.spark.pipeline.staging_table",
        "run": "toolkit.spark.pipeline.pipeline_run",
    },
)
