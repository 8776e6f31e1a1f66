"""Registration of this package's data sources in a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolkit.config import ClientConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, *, config: str | Mapping[str, object] | ClientConfig | None = None) -> None:
    """Register ``kafka_log_dir``, ``kafka_log_live`` and ``kafka_txn_samples`` for ``spark.read.format`` and SQL.

    Parameters
    ----------
    spark
        The session. Its executors need this package: installed, or sent by `toolkit.spark.ship_package`. It is
        configured to redact secrets in the options of readers.
    config
        Default connection of live sources, as for `Cluster`. No text of Spark contains its secrets.

    Raises
    ------
    UsageError
        As `ClientConfig` does.
    """
    from toolkit.spark.datasources.batches.batches_source import KafkaBatches
    from toolkit.spark.datasources.log.log_source import KafkaLog
    from toolkit.spark.datasources.secret_options import connecting, hide_secrets
    from toolkit.spark.datasources.transactions.transactions_source import KafkaTransactions
    from toolkit.spark.packaging import self_contained_source, sent

    client = None if config is None else ClientConfig(config)
    hidden = hide_secrets(spark)
    spark.dataSource.register(KafkaLog)
    spark.dataSource.register(connecting(KafkaBatches, config=client, hides_secrets=hidden))
    stream, package = connecting(KafkaTransactions, config=client, hides_secrets=hidden), sent(spark)
    spark.dataSource.register(stream if package is None else self_contained_source(stream, package))
