"""The data source ``kafka_txn_samples``: the recorder's samples as a stream, or one current sample."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from toolkit.spark.datasources.client_options import client_config
from toolkit.spark.datasources.recorded_schema import recorded_schema
from toolkit.spark.datasources.secret_options import ConnectingSource
from toolkit.spark.datasources.transactions.transactions_options import transactions_options
from toolkit.spark.spark_errors import without_traceback


class KafkaTransactions(ConnectingSource, DataSource):
    """Samples of a cluster: partitions, producers, transactions, findings (``schema.RECORDED``).

    A stream samples the cluster once per interval, and each sample is a micro-batch. A broker that is down yields rows
    with `error`. If no broker responds, the sample is a row of ``samples`` with `error`, and the stream continues: only
    ``samples`` shows that nothing was observed, so keep it. A batch query takes one sample when Spark plans it.

    Spark's process for the stream, next to the driver, takes the samples. It keeps the connections and the previous
    sample. So all outputs of a micro-batch are from the same sample.

    Offsets are the due times of samples: multiples of the interval. Only the newest is taken, as the past cannot be
    sampled. After a restart from a checkpoint, the stream continues with the next one due. A micro-batch that Spark
    repeats is sampled again with the same `sampled_at`. The trigger decides when Spark reads; ``availableNow`` and
    ``once`` take one sample, or none if the last one due has been taken.

    Options:

    - Connection: see `client_options.client_config`. ``timeout`` limits connecting and each round of requests
      (default a third of the interval, between 1 s and 30 s).
    - ``table``: ``everything`` (default; see `toolkit.spark.sample_table`), or one of ``samples``, ``partitions``,
      ``producers``, ``transactions``, ``findings``, ``late_transactions``.
    - ``interval``: of a stream, a Spark interval or seconds (default 10 s).
    - ``recheckAfter``: of a batch query, delay before the confirming second check of doubtful partitions (default 5 s;
      0 disables it). A stream diagnoses every sample together with the previous one.
    - ``maxTransactionTimeout``, ``latePadding``, ``logEvidence``: as for `Cluster.findings` and the recorder.
    """

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "kafka_txn_samples"

    @without_traceback
    def schema(self) -> StructType:
        """The declared schema of the table.

        Raises
        ------
        UsageError
            For an unknown option, or an invalid value.
        """
        client_config(self.options, self)
        return recorded_schema(transactions_options(self.options).table)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader of one sample.

        Raises
        ------
        UsageError
            As `schema` does.
        """
        from toolkit.spark.datasources.transactions.transactions_reader import BatchSampleReader

        return BatchSampleReader(transactions_options(self.options), client_config(self.options, self))

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The reader of one sample per interval.

        Raises
        ------
        UsageError
            As `schema` does.
        """
        from toolkit.spark.datasources.transactions.transactions_reader import StreamSampleReader

        return StreamSampleReader(transactions_options(self.options), client_config(self.options, self))
