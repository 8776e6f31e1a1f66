"""Prometheus metrics of a recorder; the only importer of prometheus-client.

The count of partitions with late transactions has the name of Kafka's own metric (KIP-664) under the JMX exporter's
usual rules, so that alerting rules fit both. All others begin with ``kafka_txn``. Alerting rules and a dashboard are
in `toolkit.views.monitoring`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from toolkit.errors import UsageError
from toolkit.sources.recording.sampling.metric_series import MAX_PARTITIONS, MetricSeries, measure
from toolkit.sources.recording.sampling.sample import Sample
from toolkit.version import __version__

LATE = "kafka_server_replicamanager_partitionswithlatetransactionscount"
PARTITION_GAUGES = (
    ("lso_lag_offsets", "lso_lag", "Offsets from the last stable offset to the high watermark."),
    ("lso_held_seconds", "held_seconds", "How long the transaction that holds the last stable offset has held it."),
    ("open_transactions", "open", "Open transactions on this partition."),
    ("hanging_transactions", "hanging", "Hanging transactions on this partition: no coordinator will end them."),
    ("late_transactions", "late", "Transactions on this partition open past their timeout and a padding."),
    (
        "commits_without_marker",
        "commits_without_marker",
        "Committed transactions whose marker is missing on this partition: read_committed consumers do not receive "
        "their records.",
    ),
)
SAMPLE_GAUGES = (
    ("timestamp_seconds", "due", "Due time of the last successful sample; 0 before the first."),
    ("duration_seconds", "seconds", "Duration of the last successful sample."),
    ("gaps", "gaps", "Missing coordinator responses of the last sample: without them no verdict is hanging."),
    ("unread_partitions", "unread", "Partitions that the last sample could not read; they keep their earlier values."),
    ("omitted_partitions", "omitted", f"Partitions without series, beyond the {MAX_PARTITIONS:,} most urgent."),
)
GROUP_LAGS = (
    (
        "held_offsets",
        "held",
        "Offsets beyond the LSO that a group cannot read yet; no client counts them as lag.",
    ),
    (
        "behind_offsets",
        "behind",
        "Offsets up to the LSO that such a group can read now, markers included.",
    ),
)
COUNTS = (
    ("taken", "Samples taken, failed ones included."),
    ("failed", "Samples that failed: the cluster could not be reached."),
    ("skipped", "Samples skipped because the previous one took too long."),
    ("unwritten", "Samples that could not be written."),
)


class Metrics:
    """Metrics of the newest sample, and an HTTP server for them.

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
        self._series = MetricSeries()
        self._counts = dict.fromkeys((name for name, _ in COUNTS), 0)
        self._lock = threading.Lock()
        self._server: Any = None
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def serve(self, host: str, port: int) -> int:
        """Serve ``/metrics`` until `close`.

        Returns
        -------
        int
            The port; a free one if `port` is 0.

        Raises
        ------
        UsageError
            If the address cannot be bound.
        """
        from prometheus_client import start_http_server

        try:
            self._server, _ = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise UsageError(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def on_sample(self, sample: Sample, *, written: bool) -> None:
        """Update the metrics from a sample."""
        with self._lock:
            self._series = measure(sample, self._series)
            self._counts["taken"] += 1
            self._counts["failed"] += sample.error is not None
            self._counts["unwritten"] += not written

    def on_skip(self, count: int) -> None:
        """Count skipped samples."""
        with self._lock:
            self._counts["skipped"] += count

    def collect(self) -> Iterator[Any]:
        """The metric families, for prometheus-client."""
        with self._lock:
            series, counts = self._series, dict(self._counts)
        yield _gauge(
            LATE, "Partitions with a late transaction (KIP-664), by their leader.", series.late_partitions, "broker_id"
        )
        yield _gauge("kafka_txn_transactions", "Open transactions by verdict.", series.transactions, "verdict")
        yield _gauge(
            "kafka_txn_open_outcomes",
            "Open transactions by what was decided about their records.",
            series.outcomes,
            "outcome",
        )
        yield from _partitions(series)
        yield _gauge(
            "kafka_txn_group_held_partitions",
            "Partitions on which a held LSO blocks a consumer group.",
            series.groups,
            "group",
        )
        yield from _group_lags(series)
        yield from _sample(series)
        for name, doc in COUNTS:
            yield _counter(f"kafka_txn_samples_{name}", doc, counts[name])
        yield _gauge("kafka_txn_build_info", "Version of the recorder; always 1.", {__version__: 1}, "version")


def _partitions(series: MetricSeries) -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily

    for name, field, doc in PARTITION_GAUGES:
        family = GaugeMetricFamily(f"kafka_txn_partition_{name}", doc, labels=["topic", "partition"])
        for (topic, partition), values in series.partitions.items():
            family.add_metric([topic, str(partition)], getattr(values, field))
        yield family


def _group_lags(series: MetricSeries) -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily

    for name, field, doc in GROUP_LAGS:
        family = GaugeMetricFamily(f"kafka_txn_group_{name}", doc, labels=["group", "topic", "partition"])
        for (group, topic, partition), numbers in sorted(series.group_lags.items()):
            family.add_metric([group, topic, str(partition)], getattr(numbers, field))
        yield family
    yield GaugeMetricFamily(
        "kafka_txn_group_series_omitted",
        "Groups on partitions without series of their own.",
        value=series.group_lags_omitted,
    )


def _sample(series: MetricSeries) -> Iterator[Any]:
    from prometheus_client.core import GaugeMetricFamily

    if series.interval is None:
        return
    yield GaugeMetricFamily("kafka_txn_sample_interval_seconds", "Time between samples.", value=series.interval)
    for name, field, doc in SAMPLE_GAUGES:
        yield GaugeMetricFamily(f"kafka_txn_last_sample_{name}", doc, value=getattr(series, field))


def _counter(name: str, doc: str, value: int) -> Any:
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(name, doc, value=value)


def _gauge(name: str, doc: str, values: Any, label: str) -> Any:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, doc, labels=[label])
    for key, value in values.items():
        family.add_metric([str(key)], value)
    return family
