"""The data sources of this package, known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Make ``kafka_log``, ``kafka_batches`` and ``kafka_transactions`` known to ``spark.read.format`` and SQL.

    Parameters
    ----------
    spark
        The session. Its executors need this package: installed, or sent by `toolkit.spark.ship`.
    """
    from toolkit.spark.batches_source import KafkaBatches
    from toolkit.spark.log_source import KafkaLog
    from toolkit.spark.transactions_source import KafkaTransactions

    for source in (KafkaLog, KafkaBatches, KafkaTransactions):
        spark.dataSource.register(source)
