"""The command that runs the pipeline on Spark: from files or a cluster to tables that are kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.common_options import Format, Topics, duration_option, key_values, time_option
from toolkit.cli.diagnose_commands import answer_findings, in_doubt, verdict_exit_code
from toolkit.cli.output import show, width
from toolkit.cli.source_options import FILES, SourceOptions, takes_source
from toolkit.errors import SetupError, UsageError
from toolkit.views.row_formats import size_text

if TYPE_CHECKING:
    from toolkit.sources.live.cluster import Cluster
    from toolkit.spark.pipeline.pipeline_run import RunSummary
    from toolkit.spark.pipeline.stored_tables import TableCounts

SPARK = "Spark"
MEMORY = "2g"  # of a Spark of our own: its Java, beside which its Python works


class TableFormat(StrEnum):
    """How tables are stored."""

    DELTA = "delta"
    PARQUET = "parquet"


@takes_source("consistent_copy", "as_of", "txn_state_partitions")
def pipeline(
    *,
    more: Annotated[list[str] | None, typer.Argument(metavar="[PATH]...", hidden=True)] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="PATH",
            help="Log directories, partition folders, segments, dumps, or recordings.",
            rich_help_panel=FILES,
        ),
    ] = None,
    output: Annotated[str, typer.Option("--output", metavar="DIR|CATALOG.SCHEMA", help="Where to keep the tables.")],
    table_format: Annotated[
        TableFormat,
        typer.Option("--format", help="delta: add to the tables. parquet: write them once, into an empty folder."),
    ] = TableFormat.DELTA,
    with_batches: Annotated[bool, typer.Option("--with-batches", help="Also keep a row for every batch.")] = False,
    topic: Topics = None,
    min_held: Annotated[
        float, duration_option("--min-held", "Leave out ended transactions that held an LSO for less.", default="1m")
    ] = 60,
    source_options: SourceOptions,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Where Spark runs. Default: local[*].", rich_help_panel=SPARK),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://host:port.", rich_help_panel=SPARK),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="Setting of Spark; may be repeated.", rich_help_panel=SPARK),
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
    of_files = source_options.consistent_copy or source_options.as_of or source_options.txn_state_partitions
    if not paths and of_files:
        raise UsageError(
            "--consistent-copy, --as-of and --txn-state-partitions apply to files.", do="Add --input PATH."
        )
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
                consistent_copy=source_options.consistent_copy,
                as_of=time_option(source_options.as_of),
                txn_state_partitions=source_options.txn_state_partitions,
                with_batches=with_batches,
                progress=report,
            )
    for sentence in (summary.proof, *summary.assumptions, *summary.repairs):
        if sentence is not None:
            show([*wrap(sentence, before="", width=width()), ""])
    show([*_lines(summary), ""])
    answer_findings(in_doubt(summary.findings), summary.findings, Format.TABLE)
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
