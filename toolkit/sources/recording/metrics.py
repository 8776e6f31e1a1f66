"""Prometheus metrics of a recorder, in bounded number for any cluster; the only importer of prometheus-client.

All begin with ``kafka_txn``: late transactions are counted by their own timeout, so the count does not have the name of
Kafka's PartitionsWithLateTransactionsCount (KIP-664), which goes by the brokers' maximum timeout. Alerting rules and a
dashboard are in `toolkit.views.monitoring`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

from toolkit.analysis.diagnosis.decision import COMMIT, OUTCOMES
from toolkit.analysis.findings_over_time import unread as why_unread
from toolkit.errors import UsageError
from toolkit.schema.live import Finding, GroupLag
from toolkit.schema.table import TopicPartition
from toolkit.schema.verdict import Verdict
from toolkit.sources.recording.recording import Sample
from toolkit.version import __version__

MAX_PARTITIONS = MAX_GROUPS = 1000  # with a series of their own in Prometheus
MAX_GROUP_LAGS = 1000  # series, one per group and partition
STUCK_S = 300  # without a sample; or ten intervals
OPEN = [verdict for verdict in Verdict if verdict.is_open]
LATE = "kafka_txn_broker_late_partitions"
PARTITION_GAUGES = {
    "lso_lag_offsets": "Offsets from the last stable offset to the high watermark.",
    "lso_held_seconds": "How long the transaction that holds the last stable offset has held it.",
    "open_transactions": "Open transactions on this partition.",
    "hanging_transactions": "Hanging transactions on this partition: no coordinator will end them. One whose "
    "verdict is unknown by now counts as before.",
    "late_transactions": "Transactions on this partition open past their timeout and a padding.",
    "commits_without_marker": "Committed transactions whose marker is missing on this partition: read_committed "
    "consumers do not receive their records.",
}
SAMPLE_GAUGES = (
    ("timestamp_seconds", "Due time of the last successful sample; 0 before the first."),
    ("duration_seconds", "Duration of the last successful sample."),
    ("gaps", "Missing responses and rights of the last sample: no verdict is hanging, or topics are hidden."),
    ("unread_partitions", "Partitions that the last sample could not read; they keep their earlier values."),
    ("omitted_partitions", f"Partitions without series, beyond the {MAX_PARTITIONS:,} most urgent."),
    ("unwritten", "1 if the last sample, successful or failed, could not be written; else 0."),
)
GROUP_LAGS = (
    ("held_offsets", "held", "Offsets beyond the LSO that a group cannot read yet; no client counts them as lag."),
    ("behind_offsets", "behind", "Offsets up to the LSO that such a group can read now, markers included."),
)
COUNTS = (
    ("taken", "Samples taken, failed ones included."),
    ("failed", "Samples that failed: the cluster, or a checkpoint of Flink, could not be read."),
    ("skipped", "Samples skipped because the previous one took too long."),
    ("unwritten", "Samples that could not be written."),
)


class PartitionSeries(NamedTuple):
    """Metrics of one partition."""

    gauges: Mapping[str, float]  # of `PARTITION_GAUGES`; commits whose marker is missing for long or for good
    groups_held: Sequence[str]  # groups that the transaction that holds the LSO blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSeries:
    """Metrics of the newest successful sample, and what is kept of earlier ones."""

    sample: Sample | None = None  # null before the first
    # partitions with a transaction that holds the LSO longer than briefly, is late, or was already open in an earlier
    # sample. Hanging ones and those with a commit without its marker are first, then late ones, then by how long the
    # LSO is held
    partitions: Mapping[TopicPartition, PartitionSeries] = field(default_factory=dict)
    unread: int = 0  # number of partitions that could not be read
    opened: Sequence[Finding] = ()  # open transactions, those of partitions that could not be read as before
    # partitions with a late transaction, and the leader then
    late: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    group_lags: Sequence[GroupLag] = ()  # of groups with offsets beyond a held LSO, those with most held offsets first
    interval: float | None = None  # seconds between samples; null before the first sample, successful or failed
    is_unwritten: bool = False  # whether the last sample, successful or failed, could not be written


def measure(sample: Sample, before: MetricSeries) -> MetricSeries:
    """Metrics of a sample.

    `sample`: if it failed, only the interval changes; the due time of the last successful one shows the failure.
    `before`: the previous metrics, which are kept for partitions that could not be read.
    """
    interval = (sample.row.interval_ms or 0) / 1000
    if sample.error is not None or sample.observation is None:
        return replace(before, interval=interval)
    late = Counter(TopicPartition(each.topic, each.partition) for each in sample.late_transactions)
    by_partition: dict[TopicPartition, list[Finding]] = {}
    for finding in sample.findings:
        if finding.tp is not None:
            by_partition.setdefault(finding.tp, []).append(finding)
    unread = {tp for tp, findings in by_partition.items() if why_unread(findings) is not None}
    if sample.row.topic_gaps:  # a topic that is hidden by now is in no answer
        known = {*before.partitions, *(each.tp for each in before.opened if each.tp is not None)}
        unread |= known - {each.tp for each in sample.observation.partitions}
    kept = {tp: series for tp, series in before.partitions.items() if tp in unread}
    read = {
        tp: _partition_series(findings, sample, late=late[tp], before=before.partitions.get(tp))
        for tp, findings in by_partition.items()
        if tp not in unread and any(_is_reported(each, sample) for each in findings)
    }
    opened = [each for each in sample.findings if each.producer_id is not None]
    seen = {(each.tp, each.producer_id) for each in opened}
    opened += [each for each in before.opened if each.tp in unread and (each.tp, each.producer_id) not in seen]
    group_lags = before.group_lags
    if sample.held_groups is not None:
        held = [each for each in sample.held_groups if each.held]
        held += [each for each in group_lags if TopicPartition(each.topic or "", each.partition or 0) in unread]
        group_lags = sorted(held, key=lambda each: each.held or 0, reverse=True)
    leaders = {TopicPartition(each.topic, each.partition): each.broker_id for each in sample.late_transactions}
    return MetricSeries(
        sample=sample,
        partitions=dict(sorted((kept | read).items(), key=_by_urgency)),
        unread=len(unread),
        opened=opened,
        late={tp: leader for tp, leader in before.late.items() if tp in unread} | leaders,
        group_lags=group_lags,
        interval=interval,
    )


def _by_urgency(item: tuple[TopicPartition, PartitionSeries]) -> tuple[float, float, float, TopicPartition]:
    """Sort key that is stable over time, so that samples do not create new series each time."""
    tp, (gauges, _) = item
    lost = gauges["hanging_transactions"] + gauges["commits_without_marker"]
    return -lost, -gauges["late_transactions"], -gauges["lso_held_seconds"], tp


def _is_reported(finding: Finding, sample: Sample) -> bool:
    first_seen = sample.first_seen.get(finding.key)
    return not finding.verdict.is_brief or (first_seen is not None and first_seen < finding.observed_at)


def _partition_series(
    findings: Sequence[Finding], sample: Sample, *, late: int, before: PartitionSeries | None
) -> PartitionSeries:
    """Metrics of a partition that was read; of a transaction whose verdict is unknown by now, those `before` count."""
    gauges: dict[str, float] = {
        "lso_lag_offsets": max(each.offsets_held or 0 for each in findings),
        "lso_held_seconds": max(_held_seconds(each, sample) for each in findings),
        "open_transactions": sum(each.producer_id is not None for each in findings),
        "hanging_transactions": sum(each.verdict is Verdict.HANGING for each in findings),
        "late_transactions": late,
        "commits_without_marker": sum(
            each.outcome == COMMIT and each.verdict is not Verdict.ENDING for each in findings
        ),
    }
    if before is not None and (unknown := sum(each.verdict is Verdict.UNKNOWN for each in findings)):
        for name in ("hanging_transactions", "commits_without_marker"):
            gauges[name] = max(gauges[name], min(before.gauges[name], gauges[name] + unknown))
    groups = {group for each in findings for group in each.groups_held or ()}
    is_unread = any(
        each.queue_position == 1 and each.groups_held is None for each in findings if not each.verdict.is_brief
    )
    if before is not None and is_unread:  # a coordinator of groups did not answer: they still wait
        groups |= {*before.groups_held}
    return PartitionSeries(gauges, sorted(groups))


def _held_seconds(finding: Finding, sample: Sample) -> float:
    """How long a transaction has held the LSO: by the log, else since it opened, else since it was first observed."""
    if finding.queue_position != 1:
        return 0.0
    since, now = finding.held_from or finding.opened_at, finding.brokers_time
    if since is None or now is None:
        since, now = sample.first_seen.get(finding.key), finding.observed_at
    return 0.0 if since is None else max(0.0, (now - since).total_seconds())


class Metrics:
    """Metrics of the newest sample, and an HTTP server for them.

    `cluster`: label of all of them; null for none.
    Raises UsageError if prometheus-client is not installed.
    """

    def __init__(self, cluster: str | None = None) -> None:
        try:
            from prometheus_client import CollectorRegistry
        except ImportError as error:
            raise UsageError("--metrics-port needs prometheus-client.", do="pip install prometheus-client") from error
        self._cluster = {} if cluster is None else {"cluster": cluster}
        self._series = MetricSeries()
        self._last = time.monotonic()  # when a sample was taken, failed ones included, or at the start
        self._error: str | None = None  # of the last sample; null if it did not fail
        self._counts = dict.fromkeys((name for name, _ in COUNTS), 0)
        self._lock = threading.Lock()
        self._server: Any = None
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def serve(self, host: str, port: int) -> int:
        """Serve ``/metrics`` and ``/healthz`` until `close`.

        Returns: the port; a free one if `port` is 0. Raises UsageError if the address cannot be bound.
        """
        from prometheus_client import start_http_server

        try:
            self._server, _ = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            raise UsageError(
                f"Cannot listen on {host}:{port}: {error.strerror}.",
                do="Use a free port, and an address of this machine.",
            ) from error
        self._server.set_app(self._with_health(self._server.get_app()))
        return int(self._server.server_port)

    def _with_health(self, metrics: Callable[..., Any]) -> Callable[..., Any]:
        """A WSGI application with ``/healthz`` beside the metrics."""

        def application(environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Any:
            if environ["PATH_INFO"] != "/healthz":
                return metrics(environ, start_response)
            is_healthy, text = self.health()
            start_response("200 OK" if is_healthy else "503 Service Unavailable", [("Content-Type", "text/plain")])
            return [f"{text}\n".encode()]

        return application

    def health(self) -> tuple[bool, str]:
        """Whether samples are taken, and a sentence.

        One that fails is taken: a restart makes no broker answer, and KafkaTxnRecorderBlind alerts.
        """
        with self._lock:
            silent, interval = time.monotonic() - self._last, self._series.interval or 0.0
            failed = f"{self._counts['failed']} failed so far" + (f", it with {self._error}" if self._error else "")
        if silent > max(STUCK_S, 10 * interval):
            return False, f"no sample was taken for {silent:.0f} s"
        return True, f"the last sample was taken {silent:.0f} s ago; {failed}"

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def on_resume(self, sample: Sample) -> None:
        """Begin with samples before a restart, in order: what is not known by now resolves no alert."""
        with self._lock:
            self._series = measure(sample, self._series)

    def on_sample(self, sample: Sample, *, written: bool) -> None:
        """Update the metrics from a sample."""
        with self._lock:
            self._series = replace(measure(sample, self._series), is_unwritten=not written)
            self._last, self._error = time.monotonic(), sample.error
            self._counts["taken"] += 1
            self._counts["failed"] += sample.error is not None
            self._counts["unwritten"] += not written

    def on_skip(self, count: int) -> None:
        """Count skipped samples."""
        with self._lock:
            self._counts["skipped"] += count

    def collect(self) -> Iterator[Any]:
        """The metric families, for prometheus-client."""
        from prometheus_client.core import CounterMetricFamily

        with self._lock:
            series, counts = self._series, dict(self._counts)
        sample, partitions = series.sample, dict(islice(series.partitions.items(), MAX_PARTITIONS))
        verdicts, outcomes = (Counter(getattr(each, name) for each in series.opened) for name in ("verdict", "outcome"))
        groups = Counter(group for each in series.partitions.values() for group in each.groups_held)
        late = Counter(leader for leader in series.late.values() if leader is not None)
        brokers = dict.fromkeys([*((sample.row.brokers or ()) if sample else ()), *sorted(late)])
        for name, doc, label, numbers in (
            (
                LATE,
                "Partitions with a transaction open past its own timeout and a padding, by their leader.",
                "broker_id",
                {broker_id: late[broker_id] for broker_id in brokers},
            ),
            (
                "kafka_txn_transactions",
                "Open transactions by verdict.",
                "verdict",
                {verdict: verdicts[verdict] for verdict in OPEN if sample},
            ),
            (
                "kafka_txn_open_outcomes",
                "Open transactions by what was decided about their records.",
                "outcome",
                {outcome: outcomes[outcome] for outcome in OUTCOMES if sample},
            ),
            (
                "kafka_txn_group_held_partitions",
                "Partitions on which a held LSO blocks a consumer group.",
                "group",
                dict(groups.most_common(MAX_GROUPS)),
            ),
            ("kafka_txn_build_info", "Version of the recorder; always 1.", "version", {__version__: 1}),
        ):
            yield self._gauge(name, doc, {(key,): number for key, number in numbers.items()}, label)
        for name, doc in PARTITION_GAUGES.items():
            by_partition = {tp: each.gauges[name] for tp, each in partitions.items()}
            yield self._gauge(f"kafka_txn_partition_{name}", doc, by_partition, "topic", "partition")
        lags = series.group_lags[:MAX_GROUP_LAGS]
        of_group = {(each.group_id, each.topic or "", each.partition or 0): each for each in lags}
        for name, attribute, doc in GROUP_LAGS:
            by_group = {key: getattr(each, attribute) or 0 for key, each in sorted(of_group.items())}
            yield self._gauge(f"kafka_txn_group_{name}", doc, by_group, "group", "topic", "partition")
        more = {(): len(series.group_lags) - len(lags)}
        yield self._gauge("kafka_txn_group_series_omitted", "Groups on partitions without series of their own.", more)
        if series.interval is not None:
            yield self._gauge("kafka_txn_sample_interval_seconds", "Time between samples.", {(): series.interval})
            values = (
                sample.due.timestamp() if sample else 0.0,
                (sample.row.seconds or 0.0) if sample else 0.0,
                len(sample.row.gaps or ()) + len(sample.row.topic_gaps or ()) if sample else 0,
                series.unread,
                len(series.partitions) - len(partitions),
                series.is_unwritten,
            )
            for (name, doc), value in zip(SAMPLE_GAUGES, values, strict=True):
                yield self._gauge(f"kafka_txn_last_sample_{name}", doc, {(): value})
        for name, doc in COUNTS:
            family = CounterMetricFamily(f"kafka_txn_samples_{name}", doc, labels=[*self._cluster])
            family.add_metric([*self._cluster.values()], counts[name])
            yield family

    def _gauge(self, name: str, doc: str, values: Mapping[Any, float], *labels: str) -> Any:
        """A metric family, of values by what the labels are; without labels, of the one by an empty tuple."""
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(name, doc, labels=[*self._cluster, *labels])
        for key, value in values.items():
            family.add_metric([*self._cluster.values(), *map(str, key)], value)
        return family
