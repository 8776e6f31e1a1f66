"""Data sources and a pipeline for Spark, with the library's rows and rules. Only this package imports pyspark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.spark.access import probe
    from toolkit.spark.arrow_types import differences
    from toolkit.spark.datasources.data_sources import register
    from toolkit.spark.packaging import ship_package
    from toolkit.spark.spark_session import SMALL, delta_settings, local_session

__all__ = ["SMALL", "delta_settings", "differences", "local_session", "probe", "register", "ship_package"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "SMALL": "toolkit.spark.spark_session",
        "delta_settings": "toolkit.spark.spark_session",
        "differences": "toolkit.spark.arrow_types",
        "local_session": "toolkit.spark.spark_session",
        "probe": "toolkit.spark.access",
        "register": "toolkit.spark.datasources.data_sources",
        "ship_package": "toolkit.spark.packaging",
    },
)
