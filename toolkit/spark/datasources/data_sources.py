"""The data sources for ``spark.read.format``, and their registration in a session.

A class plans nothing itself: Spark reads its schema in a separate process, which needs no reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from toolkit.config import ClientConfig
from toolkit.schema import BATCHES, TABLES
from toolkit.spark.arrow_types import struct_type
from toolkit.spark.datasources.reader_options import batches_options, client_config, hide_secrets
from toolkit.spark.spark_errors import without_traceback

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession, *, config: str | Mapping[str, object] | ClientConfig | None = None) -> None:
    """Register ``kafka_log_dir`` and ``kafka_log_live`` for ``spark.read.format`` and SQL.

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
    client = None if config is None else ClientConfig(config)
    hidden = hide_secrets(spark)
    spark.dataSource.register(KafkaLog)
    # A class that is in no module is pickled by value, with its attributes.
    live = type(KafkaBatches.__name__, (KafkaBatches,), {"registered": client, "hides_secrets": hidden})
    spark.dataSource.register(live)


class KafkaLog(DataSource):
    """The tables of `toolkit.LogDir` from the brokers' files: the same rows, read by many tasks.

    Paths must be valid on the executors and on the driver, which lists them: a mounted volume such as
    ``/Volumes/...``, or a disk if everything runs on one machine. They are listed when a DataFrame is first used; load
    it again to see newer data. Filters are not pushed down: correct results, no less reading; use options to read less.

    Options, in any case, besides ``path`` and ``paths`` (``load("/a")``, ``load(["/a", "/b"])``):

    ``table``
        ``batches`` (the default), or another table of `toolkit.LogDir`, by the name of its method. The page of each
        table lists its options.
    ``subscribe``, ``partitions``
        Topics and partition numbers, separated by commas or as a JSON list; or only ``partitions``: ``orders-0``.
    ``startingOffsets``, ``endingOffsets``
        First offset, and end offset (exclusive): a number, a time with a zone (2026-11-21T12:00:00Z), or
        ``earliest``, ``latest``, ``log_start``, ``lso``, ``high_watermark``, ``log_end``.
    ``producerId``, ``transactionalIds``, ``groups``
        Only rows of this producer, these ids, these groups.
    ``crc``
        ``true``: verify the checksum of every batch (batches).
    ``consistentCopy``, ``asOf``, ``txnStatePartitions``, ``maxTransactionTimeout``, ``minHeld``
        As for `toolkit.LogDir` and its ``findings``; durations are ``30s``, ``15m``, ``2h``.
    ``mode``
        ``PERMISSIVE`` (the default): unreadable data becomes a row with ``error``. ``DROPMALFORMED``: these rows are
        dropped. ``FAILFAST``: the first such row fails the job, except for a torn end of a log's newest segment, which
        a running or crashed broker leaves: it stays a row with ``error``.
    ``maxPartitionBytes``
        Approximate maximum of bytes per task: ``128m``. A task reads complete logs, so that a larger log is a task of
        its own.

    For histories, transactions, coordinators and statistics, one task reads everything, as their rows depend on all
    logs. Findings read a bounded amount of log evidence in each task. Texts of kafka-dump-log.sh are read completely,
    also on the driver.

    An unknown option, or one that the table does not have, is an error. `toolkit.spark.register` registers this source
    in a session.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kafka_log_dir"

    @without_traceback
    def schema(self) -> StructType:
        """The declared schema of the table. Raises UsageError for an unknown option, or an invalid value."""
        from toolkit.spark.datasources.log_reader import read_options

        return struct_type(TABLES[read_options(self.options).table])

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader, which plans and reads."""
        # Imported here, as Spark reads the schema in a separate process, which does not need it.
        from toolkit.spark.datasources.log_reader import LogReader, read_options

        return LogReader(read_options(self.options), schema)


class KafkaBatches(DataSource):
    """Headers of all batches of live partitions (``schema.BATCHES``), and a row for each range that could not be read.

    The rows are those of `Cluster.batches` for each partition. Tasks read the log with Fetch requests, one range of
    offsets per task; no connector is needed. The start and end offsets are resolved when Spark plans the query.

    Options are those of `KafkaLog` for partitions, offsets, ``producerId``, ``crc`` and ``mode``; one of ``subscribe``
    and ``partitions`` is required, and the range begins at ``earliest`` and ends at ``latest`` unless it is set. If the
    start lies inside a batch, the complete batch is read. A time after the last record resolves to the high watermark.
    The others:

    - Connection: see `client_config`. ``timeout`` limits connecting and each round of requests
      (default 30 s).
    - ``maxRecordsPerPartition``: maximum number of offsets per task (default 1,000,000).
    """

    # registered, hides_secrets: as for `client_config`, from `register`
    registered: ClassVar[ClientConfig | None] = None
    hides_secrets: ClassVar[bool] = False

    def client_config(self) -> ClientConfig:
        """The configuration of its client. Raises UsageError as `client_config`."""
        return client_config(self.options, registered=self.registered, hides_secrets=self.hides_secrets)

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kafka_log_live"

    @without_traceback
    def schema(self) -> StructType:
        """The declared schema of the table. Raises UsageError for an unknown option, or an invalid value."""
        self.client_config()
        batches_options(self.options)
        return struct_type(BATCHES)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader, which plans and reads. Raises UsageError as `schema` does."""
        from toolkit.spark.datasources.batches_reader import BatchesReader

        return BatchesReader(batches_options(self.options), self.client_config(), schema)
