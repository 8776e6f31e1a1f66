"""Data sources and a pipeline for Spark, with the library's rows and rules. Only this package imports pyspark."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from toolkit.errors import UsageError
from toolkit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from toolkit.spark.datasources.data_sources import register
    from toolkit.spark.spark_session import SMALL, delta_settings, local_session, probe, ship_package

__all__ = ["SMALL", "delta_settings", "local_session", "probe", "register", "ship_package"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "SMALL": "toolkit.spark.spark_session",
        "delta_settings": "toolkit.spark.spark_session",
        "local_session": "toolkit.spark.spark_session",
        "probe": "toolkit.spark.spark_session",
        "register": "toolkit.spark.datasources.data_sources",
        "ship_package": "toolkit.spark.spark_session",
    },
)


def require_spark() -> None:
    """Require pyspark. Raises UsageError if it is not installed."""
    if find_spec("pyspark") is None:
        raise UsageError("Spark is not installed.", do="pip install pyspark, or use another command.")


def require_data_sources() -> None:
    """Require Python data sources that return Arrow batches: of Spark 4.0, or of Databricks runtime 16.4 (Spark 3.5).

    Raises UsageError if there are none, as in Apache Spark 3.5 and Databricks runtime 15.4.
    """
    require_spark()
    if find_spec("pyspark.sql.datasource") is not None:
        from pyspark.sql import datasource

        if hasattr(datasource, "DataSourceArrowWriter"):  # it came together with them
            return
    from pyspark import __version__

    raise UsageError(
        f"Spark {__version__} has no Python data sources that return Arrow batches.",
        means="The formats and the pipeline need Spark 4.0 or newer, or Databricks runtime 16.4 or newer.",
        do="Use LogDir, Recording or Cluster, which have the same tables without Spark.",
    )
