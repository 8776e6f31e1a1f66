"""The data source ``kafka_log_live``: the logs of a live cluster, read by the executors in parallel."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from toolkit.spark.datasources.batches.batches_options import batches_options
from toolkit.spark.datasources.client_options import client_config
from toolkit.spark.datasources.log.log_schema import schema_of
from toolkit.spark.datasources.secret_options import ConnectingSource
from toolkit.spark.spark_errors import without_traceback


class KafkaBatches(ConnectingSource, DataSource):
    """Headers of all batches of live partitions (``schema.BATCHES``), and a row for each range that could not be read.

    The rows are those of `Cluster.batches` for each partition. Tasks read the log with Fetch requests, one range of
    offsets per task; no connector is needed. The start and end offsets are resolved when Spark plans the query.

    Options have the names of Spark's own Kafka source, where it has them.

    - Connection: see `client_options.client_config`. ``timeout`` limits connecting and each round of requests
      (default 30 s).
    - Partitions: one of ``subscribe`` (topics, separated by commas), ``subscribePattern`` (a regular expression that
      matches the full name; it never matches Kafka's internal topics), ``assign`` (JSON).
    - Range: ``startingOffsets`` (default ``earliest``) and ``endingOffsets`` (exclusive, default ``latest``):
      ``earliest``, ``latest``, ``log_start``, ``lso``, ``high_watermark``, ``log_end``, or JSON with an offset or one
      of these words for every partition; ``startingTimestamp`` and ``endingTimestamp`` (milliseconds, or ISO 8601
      with a zone), ``startingOffsetsByTimestamp`` and ``endingOffsetsByTimestamp`` (JSON). If the start lies inside a
      batch, the complete batch is read. A time after the last record resolves to the high watermark.
    - ``maxRecordsPerPartition``: maximum number of offsets per task (default 1,000,000); ``minPartitions``: divide
      further, into about so many tasks.
    - ``table``: ``batches`` (default), or ``partial_transactions``, whose rows `toolkit.spark.pipeline.log_fold.fold`
      merges.
    - ``producerId``: only batches of this producer. ``crc``: verify every batch's checksum (default false).
    - ``mode``: PERMISSIVE (default) keeps rows with `error`, DROPMALFORMED drops them, FAILFAST fails.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kafka_log_live"

    @without_traceback
    def schema(self) -> StructType:
        """The declared schema of the table.

        Raises
        ------
        UsageError
            For an unknown option, or an invalid value.
        """
        client_config(self.options, self)
        return schema_of(batches_options(self.options).table)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader, which plans and reads.

        Raises
        ------
        UsageError
            As `schema` does.
        """
        from toolkit.spark.datasources.batches.batches_reader import BatchesReader

        return BatchesReader(batches_options(self.options), client_config(self.options, self), schema)
