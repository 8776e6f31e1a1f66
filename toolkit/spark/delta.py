"""Delta Lake for a session of one's own: which release fits which Spark, and the settings that bring it along."""

from __future__ import annotations

import pyspark

from toolkit.errors import UsageError

__all__ = ["delta_settings"]

RELEASES = {
    "4.0": "io.delta:delta-spark_2.13:4.0.1",
    "4.1": "io.delta:delta-spark_4.1_2.13:4.3.1",
    "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
}


def delta_settings(version: str = pyspark.__version__) -> dict[str, str]:
    """Settings with which a classic session reads and writes Delta tables; its jars come from Maven Central.

    Databricks and most clusters have Delta Lake: this is for Spark on one's own machine.

    Parameters
    ----------
    version
        Of Spark.

    Raises
    ------
    UsageError
        If no release of Delta Lake is known to fit it.
    """
    release = RELEASES.get(".".join(version.split(".")[:2]))
    if release is None:
        raise UsageError(
            f"No release of Delta Lake is known that fits Spark {version}.",
            do=f"Write Parquet; or use pyspark {', '.join(RELEASES)}, or a cluster that has Delta Lake.",
        )
    return {
        "spark.jars.packages": release,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
