"""``spark.read.format("kafka_log_dir")``: log directories, partition folders and single files as tables."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from toolkit.spark.datasources.log.log_options import read_options
from toolkit.spark.datasources.log.log_schema import schema_of
from toolkit.spark.spark_errors import without_traceback


class KafkaLog(DataSource):
    """The tables of `toolkit.LogDir` from the brokers' files: the same rows, read by many tasks.

    Paths must be valid on the executors and on the driver, which lists them: a mounted volume such as
    ``/Volumes/...``, or a disk if everything runs on one machine. They are listed when a DataFrame is first used; load
    it again to see newer data. Filters are not pushed down: correct results, no less reading; use options to read less.

    Options, in any case, besides ``path`` and ``paths`` (``load("/a")``, ``load(["/a", "/b"])``):

    ``table``
        ``batches`` (the default), ``log_transactions``, ``lso_timeline``, ``aborted``, ``checkpoints``,
        ``transaction_log``, ``offsets_log``, ``transaction_history``, ``partitions``, ``producers``, ``transactions``,
        ``coordinators``, ``statistics``, ``violations``, ``findings``, ``snapshots``, ``segments``.
    ``subscribe``, ``partitions``
        Topics and partition numbers, separated by commas or as a JSON list; or only ``partitions``: ``orders-0``.
    ``startingOffsets``, ``endingOffsets``
        First offset, and end offset (exclusive): a number, a time with a zone (2026-11-21T12:00:00Z), or
        ``earliest``, ``lso``, ``high_watermark``, ``log_end``.
    ``producerId``, ``transactionalIds``, ``groups``
        Only rows of this producer, these ids, these groups.
    ``crc``
        ``true``: verify the checksum of every batch (batches, violations).
    ``consistentCopy``, ``txnStatePartitions``, ``maxTransactionTimeout``, ``minHeld``
        As for `toolkit.LogDir` and its ``findings``; durations are ``30s``, ``15m``, ``2h``.
    ``mode``
        ``PERMISSIVE`` (the default): unreadable data becomes a row with ``error``. ``DROPMALFORMED``: these rows are
        dropped. ``FAILFAST``: the first such row fails the job, except for a torn end of a log's newest segment, which
        a running or crashed broker leaves: it stays a row with ``error``.
    ``maxPartitionBytes``
        Approximate maximum of bytes per task: ``128m``. Segments are split by their ``.index``; small ones are
        combined.

    Batches are divided among tasks by segment. For the other tables, one task reads a log; for histories,
    transactions, coordinators and statistics, one task reads everything, as their rows depend on all logs. Findings
    read a bounded amount of log evidence in each task. Texts of kafka-dump-log.sh are read completely, also on the
    driver.

    An unknown option, or one that the table does not have, is an error. `toolkit.spark.register` registers this source
    in a session.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kafka_log_dir"

    @without_traceback
    def schema(self) -> StructType:
        """The declared schema of the table.

        Raises
        ------
        UsageError
            For an unknown option, or an invalid value.
        """
        return schema_of(read_options(self.options).table)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader, which plans and reads.

        Parameters
        ----------
        schema
            The schema of the table, or some of its columns.
        """
        # Imported here, as Spark reads the schema in a separate process, which does not need it.
        from toolkit.spark.datasources.log.log_reader import LogReader

        return LogReader(read_options(self.options), schema)
