"""Settings of Spark sessions in tests: for little data, compiling and planning cost more than they save."""

from toolkit.spark.spark_session import SMALL

QUICK = {
    **SMALL,
    "spark.sql.shuffle.partitions": "2",  # more than one, so that rows are in any order
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.stats.collect": "false",  # with them, Delta skips files of large tables
    "spark.databricks.delta.stats.skipping": "false",
    "spark.databricks.delta.merge.materializeSource": "none",  # it is in memory
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}
"""Saves over a quarter of the processor time; `tests.spark.rows` plans, compiles and skips files with the defaults."""
