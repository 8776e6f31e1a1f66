"""The data source ``kafka_txn_samples``: the flight recorder as a stream, or one look now."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from toolkit.spark.datasources.client_options import client_config
from toolkit.spark.datasources.recorded_schema import recorded_schema
from toolkit.spark.datasources.secret_options import ConnectingSource
from toolkit.spark.datasources.transactions.transactions_options import transactions_options
from toolkit.spark.spark_errors import without_traceback

__all__ = ["KafkaTransactions"]


class KafkaTransactions(ConnectingSource, DataSource):
    """What the flight recorder sees of a cluster: partitions, producers, transactions, findings (``schema.RECORDED``).

    As a stream it looks at the cluster once in every interval, and one look is one micro-batch. A broker that is down
    gives rows with `error`; where none answers, the sample is a row of ``samples`` with `error`, and the stream goes
    on: only ``samples`` tells that nothing was seen, so do not do without it. As a batch it is one look, now.

    A look is taken by the process in which Spark keeps the stream, next to the driver; that keeps the connections, and
    what it has seen, from one look to the next. So all that is done with a micro-batch is done with the same look.

    Offsets are the times at which samples were due: multiples of the interval. The newest one is taken, as the past
    cannot be looked at any more; after a restart from a checkpoint the stream goes on with the next that is due, and a
    micro-batch that Spark repeats is taken again under the same `sample`. The trigger says when Spark asks; with
    ``availableNow`` or ``once`` that is one sample, or none where the last one due is there.

    Options:

    - How to connect: see `client_options.client_config`. ``timeout`` is how long connecting, and each round
      of requests, may take (default a third of the interval, up to 30 s).
    - ``table``: ``everything`` (default; see `toolkit.spark.sample_table`), or one of ``samples``, ``partitions``,
      ``producers``, ``transactions``, ``findings``, ``late_transactions``.
    - ``interval``: of a stream, as Spark writes intervals, or seconds (default 10 s).
    - ``recheckAfter``: of a batch, delay before a second look, which is taken where the first finds what one look may
      mistake (default 5 s; 0 for never). A stream judges every look together with the one before.
    - ``maxTransactionTimeout``, ``latePadding``, ``logEvidence``: as for `Cluster.findings` and the recorder.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "kafka_txn_samples"

    @without_traceback
    def schema(self) -> StructType:
        """The table's, as declared.

        Raises
        ------
        UsageError
            For an option that is not known or cannot be read.
        """
        client_config(self.options, self)
        return recorded_schema(transactions_options(self.options).table)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """What looks once.

        Raises
        ------
        UsageError
            As `schema` does.
        """
        from toolkit.spark.datasources.transactions.transactions_reader import BatchSampleReader

        return BatchSampleReader(transactions_options(self.options), client_config(self.options, self))

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """What looks again and again.

        Raises
        ------
        UsageError
            As `schema` does.
        """
        from toolkit.spark.datasources.transactions.transactions_reader import StreamSampleReader

        return StreamSampleReader(transactions_options(self.options), client_config(self.options, self))
