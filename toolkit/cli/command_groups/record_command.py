"""The command that records: the flight recorder of a cluster."""

from __future__ import annotations

import datetime as dt
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.common_options import (
    BootstrapServer,
    CommandConfig,
    LogEvidence,
    MaxTransactionTimeout,
    Timeout,
    duration_option,
)
from toolkit.cli.output import progress, remark
from toolkit.cli.source_options import check_source_options, connect

if TYPE_CHECKING:
    from toolkit.sources.recording.sampling.metrics import Metrics
    from toolkit.sources.recording.sampling.sample import Sample

LIMITS, METRICS = "How long", "Metrics"
IN_TIME = 0.8  # of an interval, so that a silent broker costs no sample


def record(
    ctx: typer.Context,
    *,
    output: Annotated[
        Path, typer.Option("--output", metavar="DIR", help="Directory of the recording: a new one, or one to continue.")
    ],
    interval: Annotated[float, duration_option("--interval", "Time between samples.", default="10s", at_least=1)] = 10,
    samples: Annotated[
        int | None,
        typer.Option("--samples", metavar="N", min=1, help="Stop after this many samples.", rich_help_panel=LIMITS),
    ] = None,
    duration: Annotated[float | None, duration_option("--duration", "Stop after this time.", panel=LIMITS)] = None,
    retention: Annotated[
        float | None,
        duration_option(
            "--retention", "Delete older samples. Default: delete nothing.", unit="h", at_least=3600, panel=LIMITS
        ),
    ] = None,
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
            help="Serve Prometheus metrics on this port.",
            rich_help_panel=METRICS,
        ),
    ] = None,
    metrics_host: Annotated[
        str,
        typer.Option("--metrics-host", metavar="HOST", help="Address to serve metrics on.", rich_help_panel=METRICS),
    ] = "127.0.0.1",
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """Sample the cluster periodically into Parquet: state, findings and late transactions.

    Ctrl-C ends it after the current sample. Files stay complete even after a crash, are read with pandas,
    DuckDB and Spark (DIR/findings, DIR/producers, ...) at any time, and serve diagnose --recording DIR.
    """  # fmt: skip
    check_source_options(ctx, bootstrap_server=bootstrap_server, command_config=command_config)

    from toolkit.sources.recording.sample_files.sample_writer import SampleWriter
    from toolkit.sources.recording.sampling.recorder import Recorder
    from toolkit.sources.recording.sampling.sampler import Sampler

    metrics = _metrics(metrics_host, metrics_port)
    until = None if duration is None else dt.datetime.now(dt.UTC) + dt.timedelta(seconds=duration)
    screen = RecorderScreen(metrics)
    with closing(metrics) if metrics else nullcontext(), SampleWriter(output) as writer, _until_stopped() as stop:
        sampler = Sampler(
            connect=lambda: connect(ctx, bootstrap_server, command_config, timeout=min(timeout, IN_TIME * interval)),
            interval_ms=int(interval * 1000),
            options={
                "late_padding_ms": int(late_padding * 1000),
                "max_transaction_timeout_ms": int(max_transaction_timeout * 1000),
                "log_evidence": log_evidence,
                "with_held_groups": metrics is not None,
            },
        )
        recorder = Recorder(
            sampler=sampler,
            writer=writer,
            listener=screen,
            retention=None if retention is None else dt.timedelta(seconds=retention),
        )
        recorder.run(stop, samples=samples, until=until)
    screen.end()


class RecorderScreen:
    """Shows what a recorder does, in a terminal in one line; a pipe or a log has warnings only.

    Parameters
    ----------
    metrics
        The metrics to update; may be null.
    """

    def __init__(self, metrics: Metrics | None) -> None:
        self._metrics = metrics
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

    def _warn_of_gaps(self, sample: Sample) -> None:
        """Warn when what the samples cannot see changes: they would show nothing of it."""
        if sample.error is not None:
            return
        gaps = {text for row in sample.tables["findings"] if row["topic"] is None for text in row["missing"] or ()}
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
    verdicts = Counter(row["verdict"] for row in sample.tables["findings"])
    opened = sum(row["producer_id"] is not None for row in sample.tables["findings"])
    text = f"{opened:,} open, {verdicts['hanging']:,} hanging, {len(sample.tables['late_transactions']):,} late"
    return text + (f", {verdicts['unknown']:,} unknown" if verdicts["unknown"] else "")


def _metrics(host: str, port: int | None) -> Metrics | None:
    if port is None:
        return None
    from toolkit.sources.recording.sampling.metrics import Metrics

    metrics = Metrics()
    at = metrics.serve(host, port)
    (progress if port else remark)(f"Metrics at http://{host}:{at}/metrics")  # a random port must be shown
    return metrics


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """An event that Ctrl-C, or a SIGTERM, sets; a second one ends this process as usual."""
    stop = threading.Event()
    former = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def text(number: int, frame: object) -> None:
        stop.set()
        for each, handler in former.items():
            signal.signal(each, handler)

    for number in former:
        signal.signal(number, text)
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
