"""The data source ``kafka_transactions``: the flight recorder as a stream, or one look now."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from toolkit.spark.connection import client_config
from toolkit.spark.plain_errors import plainly
from toolkit.spark.recorded_schema import recorded_schema
from toolkit.spark.secret_options import Connecting
from toolkit.spark.transactions_options import transactions_options

__all__ = ["KafkaTransactions"]


class KafkaTransactions(Connecting, DataSource):
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

    - How to connect: see `toolkit.spark.connection.client_config`. ``timeout`` is how long connecting, and each round
      of requests, may take (default a third of the interval, up to 30 s).
    - ``table``: ``everything`` (default; see `toolkit.spark.recorded`), or one of ``samples``, ``partitions``,
      ``producers``, ``transactions``, ``findings``, ``late_transactions``.
    - ``interval``: of a stream, as Spark writes intervals, or seconds (default 10 s).
    - ``looks_apart``: of a batch, seconds to a second look, which is taken where the first finds what one look may
      mistake (default 5 s; 0 for never). A stream judges every look together with the one before.
    - ``max_transaction_timeout_ms``, ``late_padding_ms``, ``log_evidence``: as for `Cluster.findings` and the recorder.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "kafka_transactions"

    @plainly
    def schema(self) -> StructType:
        """The table's, as declared.

        Raises
        ------
        UsageError
            For an option that is not known or cannot be read.
        """
        client_config(self.options, self)
        return recorded_schema(transactions_options(self.options).table)

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        """What looks once.

        Raises
        ------
        UsageError
            As `schema` does.
        """
        from toolkit.spark.transactions_reader import LookReader

        return LookReader(transactions_options(self.options), client_config(self.options, self))

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """What looks again and again.

        Raises
        ------
        UsageError
            As `schema` does.
        """
        from toolkit.spark.transactions_reader import LooksReader

        return LooksReader(transactions_options(self.options), client_config(self.options, self))
