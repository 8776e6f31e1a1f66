"""The command ``kafka-txn``: one module per group of commands; what a command needs is imported when it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from toolkit import __version__
from toolkit.cli import abort, exposure, fence, findings, local, pipeline, record, report, scan, tables
from toolkit.cli.connection import Given
from toolkit.cli.options import BootstrapServer, CommandConfig
from toolkit.cli.output import remark
from toolkit.errors import ToolkitError

__all__ = ["app", "main"]

BROKEN_PIPE, INTERRUPTED = 141, 130  # 128 + SIGPIPE, 128 + SIGINT: what a shell expects of either
EXIT_CODES = """
Exit codes: 0 answered and nothing hangs, 1 something hangs, 2 wrong use or no connection, 3 evidence incomplete.
"""


class Commands(TyperGroup):
    """The commands, with errors as one sentence each and without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except ToolkitError as error:
            remark(f"kafka-txn: {error}")
            raise typer.Exit(2) from error
        except BrokenPipeError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is left to flush at exit
            raise typer.Exit(BROKEN_PIPE) from error
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error
        return result


app = typer.Typer(
    name="kafka-txn",
    cls=Commands,
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # it prints local variables, passwords among them
    context_settings={"help_option_names": ["-h", "--help"]},
)

PANELS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Judge": {"diagnose": findings.diagnose, "find-hanging": findings.find_hanging, "report": report.report},
    "Look": {
        "list": tables.list_transactions,
        "describe": tables.describe,
        "describe-producers": tables.describe_producers,
        "partitions": tables.partitions,
        "exposure": exposure.exposure,
        "coordinator": tables.coordinator,
        "history": tables.history,
    },
    "Record": {"record": record.record, "pipeline": pipeline.pipeline},
    "Read files": {"scan": scan.scan, "txn-stat": scan.txn_stat, "abort-command": scan.abort_command},
    "Act": {"abort": abort.abort, "fence": fence.fence},
    "Try it here": {"demo": local.demo, "lab": local.lab},
}
for panel, commands in PANELS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel)(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kafka-txn {__version__}")
        raise typer.Exit


@app.callback()
def kafka_txn(
    ctx: typer.Context,
    *,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Who holds this Kafka partition's last stable offset (LSO), why, and what is safe?

    See it on a Kafka of your own:  kafka-txn demo

    Ask a cluster:  kafka-txn diagnose --bootstrap-server broker:9092

    Flags are those of kafka-transactions.sh. Only abort and fence change a cluster, and only when
    confirmed by name.
    """
    ctx.obj = Given(bootstrap_server=bootstrap_server, command_config=command_config)


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="kafka-txn")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
