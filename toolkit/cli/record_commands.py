"""Commands that watch a cluster: the recorder, and what Prometheus and Grafana read of its metrics."""

from __future__ import annotations

import datetime as dt
import math
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.common_options import LogEvidence, MaxTransactionTimeout, duration_option
from toolkit.cli.output import progress, remark
from toolkit.cli.source_options import TIMEOUT_S, SourceOptions, takes_source
from toolkit.errors import UsageError
from toolkit.schema.durations import duration as duration_text
from toolkit.schema.verdict import RUNBOOK_URL, Verdict

if TYPE_CHECKING:
    from toolkit.sources.recording.metrics import Metrics
    from toolkit.sources.recording.sampler import Sample

LOOPBACK = "127.0.0.1"
RETENTION_S = 30 * 86_400.0
LIMITS, METRICS = "How long", "Metrics"
IN_TIME = 0.8  # of an interval, so that a silent broker costs no sample

LsoHeld = Annotated[
    float, duration_option("--lso-held", "Alert when a transaction holds an LSO for longer.", default="15m")
]
RecorderBlind = Annotated[
    float, duration_option("--recorder-blind", "Alert when the recorder reads nothing for longer.", default="2m")
]


@takes_source()
def record(
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="DIR",
            help="Directory of the recording: a new one, or one to continue. Without it metrics are served, and "
            "nothing is written.",
        ),
    ] = None,
    interval: Annotated[float, duration_option("--interval", "Time between samples.", default="10s", at_least=1)] = 10,
    samples: Annotated[
        int | None,
        typer.Option("--samples", metavar="N", min=1, help="Stop after this many samples.", rich_help_panel=LIMITS),
    ] = None,
    duration: Annotated[float | None, duration_option("--duration", "Stop after this time.", panel=LIMITS)] = None,
    retention: Annotated[
        float,
        duration_option(
            "--retention",
            "Delete older samples; -1 keeps all.",
            default="30d",
            unit="h",
            at_least=3600,
            unlimited="-1",
            panel=LIMITS,
        ),
    ] = RETENTION_S,
    late_padding: Annotated[
        float,
        duration_option(
            "--late-padding", "Transactions open for this long past their timeout are late.", default="5m", unit="m"
        ),
    ] = 300,
    max_transaction_timeout: MaxTransactionTimeout = 900,
    log_evidence: LogEvidence = True,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            min=0,
            max=65_535,
            help="Serve Prometheus metrics on this port, each with the cluster as a label, at /metrics; and /healthz.",
            rich_help_panel=METRICS,
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option("--metrics-host", metavar="HOST", help="Address to serve metrics on.", rich_help_panel=METRICS),
    ] = LOOPBACK,
    source_options: SourceOptions,
) -> None:
    """Sample the cluster periodically into Parquet: state, findings and late transactions; and serve metrics.

    Ctrl-C or SIGTERM ends it after the current sample. Files stay complete even after a crash, are read with pandas,
    DuckDB and Spark (DIR/findings, DIR/producers, ...) at any time, and serve diagnose --recording DIR.
    """  # fmt: skip
    source_options.check()
    if output is None and metrics_port is None:
        raise UsageError("Nothing is to be written or served.", do="Add --output DIR, --metrics-port PORT, or both.")
    if output is None and retention != RETENTION_S:
        raise UsageError("--retention applies to a recording.", do="Add --output DIR.")
    if metrics_host != LOOPBACK and metrics_port is None:
        raise UsageError("--metrics-host applies to metrics that are served.", do="Add --metrics-port PORT.")

    from toolkit.analysis.diagnosis.case import DiagnoseOptions
    from toolkit.sources.recording.recorder import Recorder
    from toolkit.sources.recording.sample_writer import SampleWriter
    from toolkit.sources.recording.sampler import SampleOptions, Sampler

    metrics = None if metrics_port is None else _metrics(metrics_host, metrics_port, source_options.cluster_label)
    until = None if duration is None else dt.datetime.now(dt.UTC) + dt.timedelta(seconds=duration)
    screen = RecorderScreen(metrics, None if output is None else retention)
    with (
        closing(metrics) if metrics else nullcontext(),
        SampleWriter(output) if output else nullcontext() as writer,
        _until_stopped() as stop,
    ):
        sampler = Sampler(
            connect=replace(
                source_options, timeout=min(source_options.timeout or TIMEOUT_S, IN_TIME * interval)
            ).cluster,
            options=SampleOptions(
                interval_ms=int(interval * 1000),
                diagnosis=DiagnoseOptions(
                    max_transaction_timeout_ms=int(max_transaction_timeout * 1000), log_evidence=log_evidence
                ),
                late_padding_ms=int(late_padding * 1000),
                with_held_groups=metrics is not None,
            ),
        )
        recorder = Recorder(
            sampler=sampler,
            writer=writer,
            listener=screen,
            retention=None if math.isinf(retention) else dt.timedelta(seconds=retention),
        )
        recorder.run(stop, samples=samples, until=until)
    screen.end()


def prometheus_rules(
    *,
    lso_held: LsoHeld = 900,
    hanging: Annotated[
        float,
        duration_option(
            "--hanging", "Alert when a transaction hangs, or lacks the marker of its commit, for longer.", default="1m"
        ),
    ] = 60,
    late: Annotated[
        float, duration_option("--late", "Alert when a transaction is late for longer.", default="5m")
    ] = 300,
    group_held: Annotated[
        float, duration_option("--group-held", "Alert when a consumer group is blocked for longer.", default="10m")
    ] = 600,
    recorder_blind: RecorderBlind = 120,
    recorder_incomplete: Annotated[
        float,
        duration_option(
            "--recorder-incomplete", "Alert when samples are incomplete, or not written, for longer.", default="15m"
        ),
    ] = 900,
    job: Annotated[
        str, typer.Option("--job", metavar="NAME", help="Prometheus' job that scrapes the recorder.")
    ] = "kafka-txn",
    runbook_url: Annotated[
        str, typer.Option("--runbook-url", metavar="URL", help="Address of the alerts' runbook pages.")
    ] = RUNBOOK_URL,
) -> None:
    """Print recording and alerting rules for the metrics of record, for rule_files of Prometheus."""
    from toolkit.views.monitoring import AlertSettings
    from toolkit.views.monitoring import prometheus_rules as rules_text

    settings = AlertSettings(
        lso_held=lso_held,
        hanging=hanging,
        late=late,
        group_held=group_held,
        recorder_blind=recorder_blind,
        recorder_incomplete=recorder_incomplete,
        job=job,
        runbook_url=runbook_url,
    )
    sys.stdout.write(rules_text(settings))


def grafana_dashboard(*, lso_held: LsoHeld = 900, recorder_blind: RecorderBlind = 120) -> None:
    """Print a dashboard for the metrics of record, to import into Grafana 11.6 or newer."""
    from toolkit.views.monitoring import AlertSettings
    from toolkit.views.monitoring import grafana_dashboard as dashboard_text

    sys.stdout.write(dashboard_text(AlertSettings(lso_held=lso_held, recorder_blind=recorder_blind)))


class RecorderScreen:
    """Shows what a recorder does, in a terminal in one line; a pipe or a log has warnings only.

    `metrics`: the metrics to update; may be null.
    `retention`: for how many seconds samples are kept; infinity for all, null for none.
    """

    def __init__(self, metrics: Metrics | None, retention: float | None) -> None:
        self._metrics = metrics
        if retention is None:
            self._kept = "Serving metrics, writes nothing"
        elif math.isinf(retention):
            self._kept = "Recording, keeps all samples (--retention)"
        else:
            kept = duration_text(dt.timedelta(seconds=retention))
            self._kept = f"Recording, keeps samples for {kept} (--retention)"
        self._samples = 0
        self._gaps: set[str] = set()
        self._last = ""
        self._failed_since: dt.datetime | None = None
        self._skipped = self._skipped_warned = 0

    def on_wait(self, due: dt.datetime) -> None:
        """Show when the next sample is due."""
        self._show(f"{self._last or 'no sample yet'} · next at {due:%H:%M:%S} UTC")

    def on_sample(self, sample: Sample, *, written: bool) -> None:
        """Show the sample; warn when the cluster cannot be reached, and when it can again."""
        if self._metrics:
            self._metrics.on_sample(sample, written=written)
        self._samples += written
        if sample.error is not None and self._failed_since is None:
            self._failed_since = sample.due
            self.on_warning(f"Since {sample.due:%Y-%m-%d %H:%M:%S} UTC the cluster cannot be read: {sample.error}")
        elif sample.error is None and self._failed_since is not None:
            self.on_warning(f"At {sample.due:%Y-%m-%d %H:%M:%S} UTC the cluster can be read again.")
            self._failed_since = None
        self._warn_of_gaps(sample)
        samples = f"{self._samples:,} sample{'' if self._samples == 1 else 's'}"
        self._last = f"{samples} · last {sample.due:%H:%M:%S}: {_sample_text(sample)}"
        self._show(self._last)
        if self._samples == 1 and sample.error is None and not sys.stderr.isatty():  # a log shows that it works
            first = f"first sample at {sample.due:%Y-%m-%d %H:%M:%S} UTC: {_sample_text(sample)}"
            remark(f"{self._kept}; {first}")

    def _warn_of_gaps(self, sample: Sample) -> None:
        """Warn when what the samples cannot see changes: they would show nothing of it."""
        if sample.error is not None:
            return
        gaps = {text for each in sample.findings if each.topic is None for text in each.missing}
        if gaps - self._gaps:
            since = f"Since {sample.due:%Y-%m-%d %H:%M:%S} UTC"
            self.on_warning(f"{since} samples are incomplete; missing: {'; '.join(sorted(gaps))}.")
        self._gaps = gaps

    def on_skip(self, count: int) -> None:
        """Warn of samples that were skipped."""
        if self._metrics:
            self._metrics.on_skip(count)
        self._skipped += count
        if self._skipped >= 10 * self._skipped_warned:  # a warning at 1, 10, 100, ... skipped samples
            self._skipped_warned = self._skipped
            many = f"{self._skipped} samples were" if self._skipped > 1 else "A sample was"
            self.on_warning(f"{many} skipped so far, as others took longer than the interval.")

    def on_warning(self, text: str) -> None:
        """Print a line of its own."""
        self._clear()
        remark(f"kafka-txn: {text}")

    def end(self) -> None:
        """Leave the last sample's line standing, also after a warning that took its place."""
        self._show(self._last)
        if sys.stderr.isatty():
            sys.stderr.write("\n")

    def _show(self, text: str) -> None:
        if sys.stderr.isatty():
            self._clear()
            sys.stderr.write(text[: shutil.get_terminal_size().columns - 1])
            sys.stderr.flush()

    @staticmethod
    def _clear() -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[2K")


def _sample_text(sample: Sample) -> str:
    if sample.error is not None:
        return "failed"
    verdicts = Counter(each.verdict for each in sample.findings)
    opened = sum(each.producer_id is not None for each in sample.findings)
    text = f"{opened:,} open, {verdicts[Verdict.HANGING]:,} hanging, {len(sample.late_transactions):,} late"
    return text + (f", {verdicts[Verdict.UNKNOWN]:,} unknown" if verdicts[Verdict.UNKNOWN] else "")


def _metrics(host: str, port: int, cluster: str) -> Metrics:
    from toolkit.sources.recording.metrics import Metrics

    metrics = Metrics(cluster)
    at = metrics.serve(host, port)
    (progress if port else remark)(f"Metrics at http://{host}:{at}/metrics")  # a random port must be shown
    return metrics


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """An event that Ctrl-C, or a SIGTERM, sets; a second one ends this process as usual."""
    stop = threading.Event()
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop_once(signal_number: int, frame: object) -> None:
        stop.set()
        for number, handler in former.items():
            signal.signal(number, handler)

    for number in former:
        signal.signal(number, stop_once)
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
