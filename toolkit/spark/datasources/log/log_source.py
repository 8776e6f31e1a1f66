"""``spark.read.format("kafka_log_dir")``: log directories, folders of partitions and loose files as tables."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from toolkit.spark.datasources.log.log_options import read_options
from toolkit.spark.datasources.log.log_schema import schema_of
from toolkit.spark.spark_errors import without_traceback

__all__ = ["KafkaLog"]


class KafkaLog(DataSource):
    """What brokers left on disk, as the tables of `toolkit.LogDir`: the same rows, read by many tasks.

    Paths are those of the executors, and of the driver, which lists them: a mounted volume such as ``/Volumes/...``,
    or a disk where all is on one machine. They are listed when a DataFrame is first used; load it again to see
    what was written since. Filters are not pushed down: correct results, no less reading; use options to read less.

    Options, in any case, beside ``path`` and ``paths`` (``load("/a")``, ``load(["/a", "/b"])``):

    ``table``
        ``batches`` (the default), ``log_transactions``, ``lso_timeline``, ``aborted``, ``checkpoints``,
        ``transaction_log``, ``offsets_log``, ``transaction_history``, ``partitions``, ``producers``, ``transactions``,
        ``coordinators``, ``statistics``, ``violations``, ``findings``, ``snapshots``, ``segments``.
    ``subscribe``, ``partitions``
        Topics and partition numbers, separated by commas or as a JSON list; or ``partitions`` alone as ``orders-0``.
    ``startingOffsets``, ``endingOffsets``
        First offset, and first offset to leave out: a number, a time with its zone (2026-11-21T12:00:00Z), or
        ``earliest``, ``lso``, ``high_watermark``, ``log_end``.
    ``producerId``, ``transactionalIds``, ``groups``
        Only rows of these.
    ``crc``
        ``true``: check the checksum of every batch (batches, violations).
    ``consistentCopy``, ``txnStatePartitions``, ``maxTransactionTimeout``, ``minHeld``
        As `toolkit.LogDir` and its ``findings`` take them; durations are ``30s``, ``15m``, ``2h``.
    ``mode``
        ``PERMISSIVE`` (the default): what cannot be read is a row with ``error``. ``DROPMALFORMED``: without these
        rows. ``FAILFAST``: the first of them fails the job; a torn end of a log's newest segment does not, for a
        broker that runs, or crashed, leaves one: it stays a row with ``error``.
    ``maxPartitionBytes``
        About how much one task reads: ``128m``. Segments are cut there by their ``.index``, and small ones put
        together.

    Batches are shared out among tasks by segment. For the other tables a log is read by one task, and for histories,
    transactions, coordinators and statistics one task reads everything, as their rows are about all logs together. How
    much findings read of logs for evidence is bounded for each task. Texts of kafka-dump-log.sh are read whole, also
    on the driver.

    An option that is not known, or that the table does not take, is an error. `toolkit.spark.register` makes this
    source known to a session.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "kafka_log_dir"

    @without_traceback
    def schema(self) -> StructType:
        """The table's, as declared.

        Raises
        ------
        UsageError
            For options that are wrong.
        """
        return schema_of(read_options(self.options).table)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """What plans and reads.

        Parameters
        ----------
        schema
            The table's own, or some of its columns.
        """
        from toolkit.spark.datasources.log.log_reader import (
            LogReader,  # Spark reads the schema in a process of its own
        )

        return LogReader(read_options(self.options), schema)
