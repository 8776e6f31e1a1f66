"""Commands that watch a cluster: the recorder, what Prometheus and Grafana read of its metrics, and the pipeline."""

from __future__ import annotations

import datetime as dt
import math
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.diagnose_commands import answer_parts, in_doubt, verdict_exit_code
from toolkit.cli.options import (
    ASSERTIONS,
    FILES,
    TIMEOUT_S,
    LogEvidence,
    MaxTransactionTimeout,
    SourceOptions,
    Topics,
    duration_option,
    flag,
    key_values,
    option,
    takes_source,
)
from toolkit.cli.output import INCOMPLETE, progress, remark, show, width
from toolkit.errors import SetupError, UsageError
from toolkit.schema.durations import duration as duration_text
from toolkit.schema.verdict import RUNBOOK_URL, Verdict
from toolkit.views.row_formats import size_text

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster
    from toolkit.sources.recording.metrics import Metrics
    from toolkit.sources.recording.recording import Sample
    from toolkit.spark.pipeline.pipeline_run import RunSummary
    from toolkit.spark.pipeline.stored_tables import TableCounts


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


@takes_source("flink_checkpoint")
def record(
    *,
    output: Annotated[
        Path | None,
        option(
            "--output DIR",
            "Directory of the recording: a new one, or one to continue. Without it metrics are served, and "
            "nothing is written.",
        ),
    ] = None,
    interval: Annotated[float, duration_option("--interval", "Time between samples.", default="10s", at_least=1)] = 10,
    samples: Annotated[int | None, option("--samples N", "Stop after this many samples.", panel=LIMITS, min=1)] = None,
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
        option(
            "--metrics-port PORT",
            "Serve Prometheus metrics on this port, each with the cluster as a label, at /metrics; and /healthz.",
            panel=METRICS,
            min=0,
            max=65_535,
        ),
    ] = None,
    metrics_host: Annotated[
        str, option("--metrics-host HOST", "Address to serve metrics on.", panel=METRICS)
    ] = LOOPBACK,
    source_options: SourceOptions,
) -> None:
    """Sample the cluster periodically into Parquet: state, findings and late transactions; and serve metrics.

    Ctrl-C or SIGTERM ends it after the current sample. Files stay complete even after a crash, are read with pandas,
    DuckDB and Spark (DIR/findings, DIR/producers, ...) at any time, and serve diagnose --recording DIR.

    Exit code 3: the cluster could not be reached at the start, unless metrics are served; or every sample of --samples
    or --duration failed.
    """  # fmt: skip
    source_options.check()
    if output is None and metrics_port is None:
        raise UsageError("Nothing is to be written or served.", do="Add --output DIR, --metrics-port PORT, or both.")
    if output is None and retention != RETENTION_S:
        raise UsageError("--retention applies to a recording.", do="Add --output DIR.")
    if metrics_host != LOOPBACK and metrics_port is None:
        raise UsageError("--metrics-host applies to metrics that are served.", do="Add --metrics-port PORT.")

    from toolkit.analysis.diagnosis.case import DiagnoseOptions
    from toolkit.sources.recording.recorder import Recorder, Sampler, SampleWriter

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
            interval_ms=int(interval * 1000),
            diagnosis=DiagnoseOptions(
                max_transaction_timeout_ms=int(max_transaction_timeout * 1000), log_evidence=log_evidence
            ),
            late_padding_ms=int(late_padding * 1000),
            with_held_groups=metrics is not None,
        )
        recorder = Recorder(
            sampler=sampler,
            writer=writer,
            listener=screen,
            retention=None if math.isinf(retention) else dt.timedelta(seconds=retention),
            is_service=metrics is not None,
        )
        recorder.run(stop, samples=samples, until=until)
    screen.end()
    if (samples, duration) != (None, None) and not screen.has_read:
        raise typer.Exit(INCOMPLETE)


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
    job: Annotated[str, option("--job NAME", "Prometheus' job that scrapes the recorder.")] = "kafka-txn",
    runbook_url: Annotated[str, option("--runbook-url URL", "Address of the alerts' runbook pages.")] = RUNBOOK_URL,
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
            self._kept = "Serving metrics; nothing is written"
        elif math.isinf(retention):
            self._kept = "Recording; all samples are kept (--retention)"
        else:
            kept = duration_text(dt.timedelta(seconds=retention))
            self._kept = f"Recording; samples are kept for {kept} (--retention)"
        self._samples = 0
        self.has_read = False  # whether a sample was successful, and written if it was to be
        self._gaps: set[str] = set()
        self._last = ""
        self._failed_since: dt.datetime | None = None
        self._skipped = self._skipped_warned = 0

    def on_resume(self, sample: Sample) -> None:
        """Measure the sample."""
        if self._metrics:
            self._metrics.on_resume(sample)

    def on_wait(self, due: dt.datetime) -> None:
        """Show when the next sample is due."""
        self._show(f"{self._last or 'no sample yet'} · next at {due:%H:%M:%S} UTC")

    def on_sample(self, sample: Sample, *, written: bool) -> None:
        """Show the sample; warn when samples fail, and when they succeed again."""
        if self._metrics:
            self._metrics.on_sample(sample, written=written)
        self._samples += written
        self.has_read |= written and sample.error is None
        if sample.error is not None and self._failed_since is None:
            self._failed_since = sample.due
            self.on_warning(f"Since {sample.due:%Y-%m-%d %H:%M:%S} UTC samples fail: {sample.error}")
        elif sample.error is None and self._failed_since is not None:
            self.on_warning(f"At {sample.due:%Y-%m-%d %H:%M:%S} UTC samples succeed again.")
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


SPARK = "Spark"
MEMORY = "2g"  # of a Spark of our own: its Java, beside which its Python works


class TableFormat(StrEnum):
    """How tables are stored."""

    DELTA = "delta"
    PARQUET = "parquet"


@takes_source(*ASSERTIONS)
def pipeline(
    *,
    more: Annotated[list[str] | None, typer.Argument(metavar="[PATH]...", hidden=True)] = None,
    inputs: Annotated[
        list[str] | None,
        option("--input PATH", "Log directories, partition folders, segments, dumps, or recordings.", panel=FILES),
    ] = None,
    output: Annotated[str, option("--output DIR|CATALOG.SCHEMA", "Where to keep the tables.")],
    table_format: Annotated[
        TableFormat, option("--format", "delta: add to the tables. parquet: write them once, into an empty folder.")
    ] = TableFormat.DELTA,
    with_batches: Annotated[bool, option("--with-batches", "Also keep a row for every batch.")] = False,
    topic: Topics = None,
    min_held: Annotated[
        float, duration_option("--min-held", "Leave out ended transactions that held an LSO for less.", default="1m")
    ] = 60,
    source_options: SourceOptions,
    master: Annotated[str | None, option("--master URL", "Where Spark runs. Default: local[*].", panel=SPARK)] = None,
    remote: Annotated[
        str | None, option("--remote URL", "A Spark Connect server: sc://host:port.", panel=SPARK)
    ] = None,
    conf: Annotated[
        list[str] | None, option("--conf KEY=VALUE", "Setting of Spark; may be repeated.", panel=SPARK)
    ] = None,
) -> None:
    """Add what is new in logs to Delta tables: who held which LSO from when to when, and who holds it now.

    Only what is new is read. After a crash, or when there is more, run it again: the tables are those of a single run.
    """
    paths = [*(inputs or ()), *(more or ())]
    if paths and source_options.names_cluster:
        raise UsageError("--bootstrap-server names a cluster, --input names files.", do="Use one of them.")
    if not paths and not source_options.names_cluster:
        raise UsageError("Nothing to read is named.", do="Add --input PATH, or --bootstrap-server HOST:PORT.")
    if master and remote:
        raise UsageError("--master starts Spark, --remote uses one that runs.", do="Use one of them.")
    if not paths and (wrong := [flag(name) for name, value in source_options.assertions.items() if value]):
        raise UsageError(f"{wrong[0]} applies to files.", do="Add --input PATH.")
    target = _target(output, paths, is_here=remote is None)
    settings = key_values("--conf", conf)

    from toolkit.spark.spark_session import local_session

    with ExitStack() as stack:
        pipeline_input: list[str] | Cluster = [_path(path, is_here=remote is None) for path in paths]
        if not paths:
            pipeline_input = stack.enter_context(source_options.connect())
        report = stack.enter_context(_progress())
        report("starting Spark", False)
        import_module("toolkit.spark.datasources")  # here: two threads that import pyspark.sql at once fail
        config = _all_settings(settings, table_format, remote=remote)
        with ThreadPoolExecutor(1) as pool:  # Java takes seconds to start
            pool.submit(import_module, "toolkit.spark.pipeline.pipeline_run")
            spark = local_session(master=master or "local[*]", remote=remote, config=config)
        stack.callback(spark.stop)
        report("starting Spark", True)

        from toolkit.spark.pipeline.pipeline_run import run
        from toolkit.spark.spark_errors import translate_errors
        from toolkit.spark.spark_session import ship_if_missing
        from toolkit.views.renderers import text_lines
        from toolkit.views.row_formats import wrap

        with translate_errors():
            if remote is not None:
                ship_if_missing(spark)
            summary = run(
                spark,
                pipeline_input,
                target,
                format=table_format.value,
                topics=topic,
                min_held_ms=int(min_held * 1000),
                with_batches=with_batches,
                progress=report,
                **source_options.assertions,
            )
    for sentence in (summary.proof, *summary.assumptions, *summary.repairs):
        if sentence is not None:
            show([*wrap(sentence, before="", width=width()), ""])
    show([*_lines(summary), ""])
    parts = answer_parts(in_doubt(summary.findings), summary.findings)
    show(text_lines(parts, width=width()))
    raise typer.Exit(verdict_exit_code(summary.findings))


def _target(output: str, inputs: Sequence[str], *, is_here: bool) -> str:
    """A folder, unless it is written as catalog.schema and no folder has that name."""
    if "." in output.strip("./") and "/" not in output and not Path(output).is_dir():
        return output
    path = _path(output, is_here=is_here)
    for each in inputs:
        if is_here and Path(path).resolve().is_relative_to(Path(each).resolve()):
            raise UsageError(f"{output} is in {each}, which is never written to.", do="Write to another folder.")
    return path if "/" in path else f"./{path}"


def _path(path: str, *, is_here: bool) -> str:
    return path if ":" in path or not is_here else os.path.abspath(path)


def _all_settings(settings: dict[str, str], table_format: TableFormat, *, remote: str | None) -> dict[str, str]:
    """Settings of --conf over the defaults of a local Spark."""
    if remote is not None and remote.startswith("sc://"):
        return settings
    from toolkit.java import class_archive_options
    from toolkit.spark.spark_session import SMALL, class_archive

    archive = class_archive()
    classes = class_archive_options(archive, new=archive)
    # What is large is read by Python; Spark's own Java has little to do, and would compile longer than it works.
    own = {**SMALL, "spark.driver.memory": MEMORY, "spark.sql.shuffle.partitions": str(os.cpu_count() or 1)}
    own["spark.driver.extraJavaOptions"] = " ".join([own["spark.driver.extraJavaOptions"], *classes])
    own |= {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    if table_format is TableFormat.DELTA and "spark.sql.extensions" not in settings:
        from toolkit.spark.spark_session import delta_settings

        try:
            own |= delta_settings()
        except SetupError as error:
            do = f"{error.do} Or write Parquet, which needs no jars: --format parquet."
            raise SetupError(error.what, means=error.means, do=do) from None
    return own | settings


@contextmanager
def _progress() -> Iterator[Callable[[str, bool], object]]:
    """Show the tables being written, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda table, done: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(finished_text=" "), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(table: str, done: bool) -> None:
            if done:
                bars.update(tasks[table], completed=1)
            else:
                tasks[table] = bars.add_task(table, total=1)

        yield report


def _lines(summary: RunSummary) -> Iterator[str]:
    for number, read in enumerate(summary.read):
        size = f", {size_text(read.bytes_read)}" if read.bytes_read else ""
        of = "" if read.bytes_listed is None else f" ({size_text(read.bytes_listed)} in all)"
        yield f"{'' if number else 'read':<8}{read.new:,} of {read.listed:,} {read.what}{size}{of}"
    yield f"tables  {summary.target} ({summary.format})"
    for name, counts in summary.tables.items():
        yield f"        {name:<26}  {_counted(counts)}"
    found = ", ".join(f"{number:,} {verdict}" for verdict, number in summary.verdicts.items())
    yield f"found   {found or 'no LSO is or was held'}"
    bytes_read = sum(read.bytes_read for read in summary.read)
    speed = f", {bytes_read / summary.seconds / 1e9:.2f} GB/s" if bytes_read else ""
    yield f"took    {summary.seconds:.1f} s{speed}"


def _counted(counts: TableCounts) -> str:
    new = "" if counts.new == counts.rows else f", {counts.new:,} new"
    errors = f", {counts.errors:,} with error" if counts.errors else ""
    return f"{counts.rows:>13,} rows{new}{errors}"
