"""The data source ``kafka_log_live``: what the logs of a live cluster hold, read by all executors at once."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from toolkit.spark.datasources.batches.batches_options import batches_options
from toolkit.spark.datasources.client_options import client_config
from toolkit.spark.datasources.log.log_schema import schema_of
from toolkit.spark.datasources.secret_options import ConnectingSource
from toolkit.spark.spark_errors import without_traceback

__all__ = ["KafkaBatches"]


class KafkaBatches(ConnectingSource, DataSource):
    """Headers of all batches of live partitions (``schema.BATCHES``), and a row for what could not be read.

    The rows are those of `Cluster.batches` for each partition. The log is read by Fetch, in ranges of offsets, a task
    for each; no connector is needed. Where the log starts and ends is found when Spark plans the query.

    Options are spelled as those of Spark's own Kafka source, where it has them.

    - How to connect: see `client_options.client_config`. ``timeout`` is how long connecting, and each round
      of requests, may take (default 30 s).
    - Which partitions: one of ``subscribe`` (topics, separated by commas), ``subscribePattern`` (a regular expression
      that a whole name matches; it does not mean Kafka's internal topics), ``assign`` (JSON).
    - From where to before where: ``startingOffsets`` (default ``earliest``) and ``endingOffsets`` (default ``latest``):
      ``earliest``, ``latest``, ``log_start``, ``lso``, ``high_watermark``, ``log_end``, or JSON with an offset or one
      of these words for every partition; ``startingTimestamp`` and ``endingTimestamp`` (milliseconds, or ISO 8601
      with its zone), ``startingOffsetsByTimestamp`` and ``endingOffsetsByTimestamp`` (JSON). A batch that the start
      lies in comes whole; a time that no record has reached is the high watermark.
    - ``maxRecordsPerPartition``: offsets that one task may have (default 1,000,000); ``minPartitions``: divide further,
      into about so many tasks.
    - ``table``: ``batches`` (default), or ``pieces``, which `toolkit.spark.transforms.log_fold.fold` merges.
    - ``producerId``: only its batches. ``crc``: check every batch's checksum (default false).
    - ``mode``: PERMISSIVE (default) keeps rows with `error`, DROPMALFORMED leaves them out, FAILFAST fails.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "kafka_log_live"

    @without_traceback
    def schema(self) -> StructType:
        """The table's, as declared.

        Raises
        ------
        UsageError
            For an option that is not known or cannot be read.
        """
        client_config(self.options, self)
        return schema_of(batches_options(self.options).table)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """What plans and reads.

        Raises
        ------
        UsageError
            As `schema` does.
        """
        from toolkit.spark.datasources.batches.batches_reader import BatchesReader

        return BatchesReader(batches_options(self.options), client_config(self.options, self), schema)
