"""What a recorder measures, for Prometheus; the only importer of prometheus-client.

The count of partitions with late transactions has the name that Kafka's own of KIP-664 has behind the usual rules of
the JMX exporter, so that a rule for one is a rule for the other. All others begin with ``kafka_txn``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from toolkit.errors import UsageError
from toolkit.sources.recording.sample import Sample
from toolkit.sources.recording.series import Series, measure

__all__ = ["Metrics"]

LATE = "kafka_server_replicamanager_partitionswithlatetransactionscount"
OF_PARTITIONS = (
    ("lso_lag_offsets", "lso_lag", "Offsets from the last stable offset to the high watermark."),
    ("lso_held_seconds", "held_seconds", "How long the transaction that holds the last stable offset has held it."),
    ("open_transactions", "open", "Open transactions on this partition."),
    ("hanging_transactions", "hanging", "Transactions on this partition that nobody will ever end."),
    ("late_transactions", "late", "Transactions on this partition that are open past their timeout and a padding."),
)
COUNTS = (
    ("taken", "Samples that were taken, those that saw nothing included."),
    ("failed", "Samples that saw nothing of the cluster."),
    ("skipped", "Samples that were left out because the one before took too long."),
    ("unwritten", "Samples that could not be written."),
)


class Metrics:
    """The newest numbers, and a server that tells them.

    Raises
    ------
    UsageError
        If prometheus-client is not installed.
    """

    def __init__(self) -> None:
        try:
            from prometheus_client import CollectorRegistry
        except ImportError as error:
            raise UsageError(
                "--metrics-port needs prometheus-client.", do="pip install 'kafka-txn-toolkit[metrics]'"
            ) from error
        self._series = Series()
        self._counts = dict.fromkeys((name for name, _ in COUNTS), 0)
        self._lock = threading.Lock()
        self._server: Any = None
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def serve(self, host: str, port: int) -> int:
        """Answer ``GET /metrics`` until `close`.

        Returns
        -------
        int
            The port; of 0 a free one is made.

        Raises
        ------
        UsageError
            If the address cannot be listened at.
        """
        from prometheus_client import start_http_server

        try:
            self._server, _ = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise UsageError(f"{host}:{port} cannot be listened at: {error.strerror}.") from error
        return int(self._server.server_port)

    def close(self) -> None:
        """Answer no more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def taken(self, sample: Sample, *, written: bool) -> None:
        """Tell the numbers of a sample from now on."""
        with self._lock:
            self._series = measure(sample, self._series)
            self._counts["taken"] += 1
            self._counts["failed"] += sample.error is not None
            self._counts["unwritten"] += not written

    def skipped(self, count: int) -> None:
        """Count samples that were left out."""
        with self._lock:
            self._counts["skipped"] += count

    def collect(self) -> Iterator[Any]:
        """The metric families, as prometheus-client asks for them."""
        with self._lock:
            series, counts = self._series, dict(self._counts)
        yield _gauge(
            LATE, "Partitions with a late transaction (KIP-664), by their leader.", series.late_partitions, "broker_id"
        )
        yield _gauge("kafka_txn_transactions", "Open transactions by verdict.", series.transactions, "verdict")
        yield from _partitions(series)
        yield from _sample(series)
        for name, doc in COUNTS:
            yield _counter(f"kafka_txn_samples_{name}", doc, counts[name])


def _partitions(series: Series) -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily

    for name, field, doc in OF_PARTITIONS:
        family = GaugeMetricFamily(f"kafka_txn_partition_{name}", doc, labels=["topic", "partition"])
        for (topic, partition), numbers in sorted(series.partitions.items()):
            family.add_metric([topic, str(partition)], getattr(numbers, field))
        yield family


def _sample(series: Series) -> Iterator[Any]:
    if series.due is None:
        return
    yield _number(
        "kafka_txn_last_sample_timestamp_seconds", "When the last sample that saw something was due.", series.due
    )
    yield _number("kafka_txn_last_sample_duration_seconds", "How long it took.", series.seconds)
    yield _number(
        "kafka_txn_last_sample_gaps", "What it misses for the coordinators' answers to be whole.", series.gaps
    )


def _number(name: str, doc: str, value: float | None) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, doc, value=value)


def _counter(name: str, doc: str, value: int) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(name, doc, value=value)


def _gauge(name: str, doc: str, values: Any, label: str) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, doc, labels=[label])
    for key, value in values.items():
        family.add_metric([str(key)], value)
    return family
