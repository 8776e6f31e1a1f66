"""``spark.read.format("kafka_log")``: log directories, folders of partitions and loose files as tables."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from toolkit.spark.log_options import read_options
from toolkit.spark.log_schema import schema_of
from toolkit.spark.plain_errors import plainly

__all__ = ["KafkaLog"]


class KafkaLog(DataSource):
    """What brokers left on disk, as the tables of `toolkit.LogDir`: the same rows, read by many tasks.

    Paths are those of the executors, and of the driver, which lists them: a mounted volume such as ``/Volumes/...``,
    or a disk where all is on one machine. They are listed when a DataFrame is first used; load it again to see
    what was written since. A ``where`` is right, and reads everything: what is to be left unread is said by options.

    Options, in any case, beside ``path`` and ``paths`` (``load("/a")``, ``load(["/a", "/b"])``):

    ``table``
        ``batches`` (the default), ``spans``, ``lso_timeline``, ``aborted``, ``checkpoints``, ``coordinator_events``,
        ``group_events``, ``histories``, ``partitions``, ``producers``, ``transactions``, ``coordinators``,
        ``statistics``, ``violations``, ``findings``, ``snapshots``, ``segments``.
    ``topic``, ``partition``
        Names and numbers, also several, separated by commas or as a JSON list; or ``orders-0`` as partition alone.
    ``start``, ``stop``
        From where to before where: an offset, a time with its zone (2026-11-21T12:00:00Z), or ``log_start``, ``lso``,
        ``high_watermark``, ``log_end``.
    ``producer_id``, ``transactional_id``, ``group``
        Only theirs; ids and groups also several.
    ``crc``
        ``true``: check the checksum of every batch (batches, violations).
    ``at_rest``, ``txn_state_partitions``, ``max_transaction_timeout_ms``, ``min_held_ms``
        As `toolkit.LogDir` and its ``findings`` take them.
    ``mode``
        ``PERMISSIVE`` (the default): what cannot be read is a row with ``error``. ``DROPMALFORMED``: without these
        rows. ``FAILFAST``: the first of them fails the job; a torn end of a log's newest segment does not, for a
        broker that runs, or crashed, leaves one: it stays a row with ``error``.
    ``max_partition_bytes``
        How much a task reads, about: ``128m``. Segments are cut there by their ``.index``, and small ones put together.

    Batches are shared out among tasks by segment. For the other tables a log is read by one task, and for histories,
    transactions, coordinators and statistics one task reads everything, as their rows are about all logs together. How
    much findings read of logs for evidence is bounded for each task. Texts of kafka-dump-log.sh are read whole, also
    on the driver.

    An option that is not known, or that a table does not go by, is an error. `toolkit.spark.register` makes this source
    known to a session.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "kafka_log"

    @plainly
    def schema(self) -> StructType:
        """The table's, as declared.

        Raises
        ------
        UsageError
            For options that are wrong.
        """
        return schema_of(read_options(self.options).table)

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """What plans and reads.

        Parameters
        ----------
        schema
            The table's own, or some of its columns.
        """
        from toolkit.spark.log_reader import LogReader  # Spark asks for the schema in a process of its own

        return LogReader(read_options(self.options), schema)
