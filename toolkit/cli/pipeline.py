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

from toolkit.cli.connection import connect
from toolkit.cli.findings import answer_findings, in_doubt, verdict_exit_code
from toolkit.cli.options import FILES, BootstrapServer, CommandConfig, Format, Timeout, Topics
from toolkit.cli.output import show
from toolkit.errors import UsageError

if TYPE_CHECKING:
    from toolkit.spark.summary import Counts, Summary

__all__ = ["pipeline"]

SPARK = "Spark"
MEMORY = "2g"  # of a Spark of our own: its Java, beside which its Python works


class TableFormat(StrEnum):
    """How tables are stored."""

    DELTA = "delta"
    PARQUET = "parquet"


Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        metavar="PATH",
        help="Log directories, folders of partitions, segments, dumps; or a recording. Several may follow.",
        rich_help_panel=FILES,
    ),
]
AtRest = Annotated[
    bool,
    typer.Option(
        "--at-rest", help="Your word that the files are of one moment, as for diagnose.", rich_help_panel=FILES
    ),
]


def pipeline(
    ctx: typer.Context,
    *,
    more: Annotated[list[str] | None, typer.Argument(metavar="[PATH]...", hidden=True)] = None,
    source: Inputs = None,
    output: Annotated[
        str,
        typer.Option("--output", metavar="DIR|CATALOG.SCHEMA", help="Where the tables are kept."),
    ],
    table_format: Annotated[
        TableFormat,
        typer.Option("--format", help="delta: add to the tables. parquet: write them once, into an empty folder."),
    ] = TableFormat.DELTA,
    with_batches: Annotated[
        bool, typer.Option("--with-batches", help="Keep the header of every batch, too: a row for each.")
    ] = False,
    topic: Topics = None,
    min_held: Annotated[
        float,
        typer.Option("--min-held", metavar="SECONDS", min=0, help="Leave out what held an LSO for less and has ended."),
    ] = 60,
    at_rest: AtRest = False,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
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
    """Read logs into tables that are kept: who held which LSO from when to when, and who holds it now.

    Only what is new is read. After a crash, or when there is more, run it again: the tables are those of a single run.
    """
    inputs = [*(source or ()), *(more or ())]
    has_cluster = bool(bootstrap_server or command_config or ctx.obj.bootstrap_server or ctx.obj.command_config)
    _check(inputs, has_cluster=has_cluster, at_rest=at_rest, master=master, remote=remote)
    target = _target(output, inputs, is_here=remote is None)
    settings = _settings(conf or [])

    from toolkit.lab.session import local_session

    with ExitStack() as stack:
        told: Any = [_path(path, is_here=remote is None) for path in inputs]
        if not inputs:
            told = stack.enter_context(connect(ctx, bootstrap_server, command_config, timeout=timeout))
        tell = stack.enter_context(_progress())
        tell("starting Spark", False)
        config = _all_settings(settings, table_format, remote=remote)
        with ThreadPoolExecutor(1) as pool:  # Java takes seconds to start
            pool.submit(import_module, "toolkit.spark.pipeline")
            spark = local_session(master=master or "local[*]", remote=remote, config=config)
        stack.callback(spark.stop)
        tell("starting Spark", True)

        from toolkit.spark.pipeline import run
        from toolkit.spark.told import spark_said_plainly

        with spark_said_plainly():
            summary = run(
                spark,
                told,
                target,
                format=table_format.value,
                topics=topic,
                min_held_ms=int(min_held * 1000),
                at_rest=at_rest,
                with_batches=with_batches,
                progress=tell,
            )
    show([*_lines(summary), ""])
    answer_findings(in_doubt(summary.findings), summary.findings, Format.TABLE)
    raise typer.Exit(verdict_exit_code(summary.findings))


def _check(inputs: Sequence[str], *, has_cluster: bool, at_rest: bool, master: str | None, remote: str | None) -> None:
    if inputs and has_cluster:
        raise UsageError("--bootstrap-server asks a cluster, --input reads files.", do="Say one of them.")
    if not inputs and not has_cluster:
        raise UsageError("Nothing to read is named.", do="Add --input PATH, or --bootstrap-server HOST:PORT.")
    if at_rest and not inputs:
        raise UsageError("--at-rest is said of files.", do="Add --input PATH.")
    if master and remote:
        raise UsageError("--master starts Spark, --remote uses one that runs.", do="Say one of them.")


def _target(output: str, inputs: Sequence[str], *, is_here: bool) -> str:
    """A folder, unless it is written as catalog.schema and no folder has that name."""
    if "." in output.strip("./") and "/" not in output and not Path(output).is_dir():
        return output
    path = _path(output, is_here=is_here)
    for each in inputs:
        if is_here and Path(path).resolve().is_relative_to(Path(each).resolve()):
            raise UsageError(f"{output} lies in {each}, which is only read.", do="Write to another folder.")
    return path if "/" in path else f"./{path}"


def _path(path: str, *, is_here: bool) -> str:
    return path if ":" in path or not is_here else os.path.abspath(path)


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    if wrong := [pair for pair in pairs if "=" not in pair]:
        raise UsageError(f"--conf {wrong[0]} is not KEY=VALUE.")
    return dict(pair.split("=", 1) for pair in pairs)


def _all_settings(said: dict[str, str], table_format: TableFormat, *, remote: str | None) -> dict[str, str]:
    """What was said, over what a Spark of our own is started with."""
    if remote is not None and remote.startswith("sc://"):
        return said
    from toolkit.lab.java import class_archive_options
    from toolkit.lab.session import SMALL, class_archive

    archive = class_archive()
    classes = class_archive_options(archive, new=archive)
    # What is large is read by Python; Spark's own Java has little to do, and would compile longer than it works.
    own = {**SMALL, "spark.driver.memory": MEMORY, "spark.sql.shuffle.partitions": str(os.cpu_count() or 1)}
    own["spark.driver.extraJavaOptions"] = " ".join([own["spark.driver.extraJavaOptions"], *classes])
    own |= {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    if table_format is TableFormat.DELTA and "spark.sql.extensions" not in said:
        from toolkit.lab.delta import delta_settings

        own |= delta_settings()
    return own | said


@contextmanager
def _progress() -> Iterator[Callable[[str, bool], object]]:
    """Show a person the tables that are being made; a pipe or a log is not told."""
    if not sys.stderr.isatty():
        yield lambda table, done: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(finished_text=" "), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def tell(table: str, done: bool) -> None:
            if done:
                bars.update(tasks[table], completed=1)
            else:
                tasks[table] = bars.add_task(table, total=1)

        yield tell


def _lines(summary: Summary) -> Iterator[str]:
    for number, read in enumerate(summary.read):
        size = f", {_size(read.bytes_read)}" if read.bytes_read else ""
        of = "" if read.bytes_listed is None else f" ({_size(read.bytes_listed)} in all)"
        yield f"{'' if number else 'read':<8}{read.new:,} of {read.listed:,} {read.what}{size}{of}"
    yield f"tables  {summary.target} ({summary.format})"
    for name, counts in summary.tables.items():
        yield f"        {name:<26}  {_counted(counts)}"
    found = ", ".join(f"{number:,} {verdict}" for verdict, number in summary.verdicts.items())
    yield f"found   {found or 'nothing that is or was held'}"
    bytes_read = sum(read.bytes_read for read in summary.read)
    speed = f", {bytes_read / summary.seconds / 1e9:.2f} GB/s" if bytes_read else ""
    yield f"took    {summary.seconds:.1f} s{speed}"


def _counted(counts: Counts) -> str:
    new = "" if counts.new == counts.rows else f", {counts.new:,} new"
    errors = f", {counts.errors:,} with error" if counts.errors else ""
    return f"{counts.rows:>13,} rows{new}{errors}"


def _size(count: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"
