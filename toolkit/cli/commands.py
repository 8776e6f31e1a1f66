"""The commands of ``kafka-txn``: a module per group; those of the docs and of the lab here.

What a command needs is imported when it runs. Help is by panel, with whole flags at any width: the tables of typer's
own help cut them at 80 columns.
"""

from __future__ import annotations

import difflib
import os
import sys
import threading
import tomllib
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Annotated, Any

import typer
from typer._completion_classes import completion_init
from typer._completion_shared import get_completion_script
from typer.core import TyperCommand, TyperGroup

from toolkit.cli import action_commands, diagnose_commands, file_commands, record_commands, table_commands
from toolkit.cli.options import (
    WATCH_INTERVAL,
    BootstrapServer,
    ClusterName,
    CommandConfig,
    SourceOptions,
    key_values,
    option,
)
from toolkit.cli.output import DEFECT, exit_on_failure, remark, show, width, write_any_text
from toolkit.errors import NotFound
from toolkit.version import __version__

NAMES_SHOWN = 5


def docs(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A verdict, a cause, a symptom, an alert or another page, or an error in quotes; without it all names "
            "are listed.",
        ),
    ] = None,
) -> None:
    """Show the page of a verdict, cause, symptom, alert or how-to: from the package, without a network."""
    from toolkit.analysis.symptoms import SYMPTOMS, RecognizedSymptom, recognize
    from toolkit.views.docs_pages import page_names, page_text, page_title, section_of_alert
    from toolkit.views.explained_error import symptom_section
    from toolkit.views.renderers import text_lines

    pages = page_names()
    if name is None:
        titles = {each: page_title(path) for each, path in pages.items()}
        titles |= {each: symptom.title for each, symptom in SYMPTOMS.items() if each not in pages}
        longest = max(map(len, titles))
        show(f"{each:<{longest}}  {title}" for each, title in titles.items())
        return
    if name in pages:
        show(page_text(pages[name]).splitlines())
        return
    if section := section_of_alert(name):
        show(section.splitlines())
        return
    if name in SYMPTOMS:
        found = [RecognizedSymptom(SYMPTOMS[name], tuple({each.client: "" for each in SYMPTOMS[name].wordings}))]
    else:
        found = [*recognize(name)[0]]
    if not found:
        close = difflib.get_close_matches(name, [*pages, *SYMPTOMS], n=NAMES_SHOWN)
        hint = f"Is it {' or '.join(close)}?" if close else "Without a name, all are listed."
        raise NotFound(f"There is no page {name!r}.", do=hint)
    show(text_lines(map(symptom_section, found), width=width()))


EXIT_CODES = (
    "Exit codes: 0 nothing to do, 1 something to do (it hangs, is overdue or stuck, or an action is offered), 2 "
    "invalid usage or no output, 3 not known (no connection, evidence incomplete), 4 not found, 5 an action is refused "
    "and nothing was sent, 6 an action failed after its confirmation, 70 a defect of kafka-txn."
)
COMPLETE = "_KAFKA_TXN_COMPLETE"  # set by the script of `completion`, as typer has it
COLUMNS = 110  # a line that is longer is hard to read
HELP_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": COLUMNS}


@cache
def examples() -> Mapping[str, Sequence[str]]:
    """Of each command, those that end its help; a shell runs them as they stand."""
    return tomllib.loads((resources.files(__package__) / "examples.toml").read_text(encoding="utf-8"))


class PanelCommand(TyperCommand):
    """A command whose help has its options by panel, and whose ``--watch`` needs no value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options."""
        watches = any("--watch" in each.opts for each in self.params)
        for at in range(len(args) - 1, -1, -1) if watches else ():
            if args[at] == "--watch" and (at + 1 == len(args) or args[at + 1].startswith("-")):
                args.insert(at + 1, WATCH_INTERVAL)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, then the examples."""
        _write_parameters(self.get_params(ctx), ctx, formatter)
        with formatter.section("Examples"):
            for example in examples()[self.name or ""]:
                formatter.write(f"  {example}\n")


def _write_parameters(parameters: Iterable[Any], ctx: Any, formatter: Any) -> None:
    records = ((each, each.get_help_record(ctx)) for each in parameters)
    panels = (
        ("Arguments" if each.param_type_name == "argument" else each.rich_help_panel, record)
        for each, record in records
        if record is not None
    )
    _write(panels, formatter, default="Options")


def _write(rows: Iterable[tuple[str | None, tuple[str, str]]], formatter: Any, *, default: str) -> None:
    by_panel: dict[str, list[tuple[str, str]]] = {}
    for panel, row in rows:
        by_panel.setdefault(panel or default, []).append(row)
    for panel, of_panel in by_panel.items():
        with formatter.section(panel):
            formatter.write_dl(of_panel)


class Commands(TyperGroup):
    """The commands, by panel, with errors as one sentence each and without a traceback."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, then the commands."""
        _write_parameters(self.get_params(ctx), ctx, formatter)
        longest = max(map(len, self.commands))
        _write(
            (
                (getattr(each, "rich_help_panel", None), (f"{name:<{longest}}", each.get_short_help_str(200)))
                for name, each in self.commands.items()
            ),
            formatter,
            default="Commands",
        )

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options; help and version are written here."""
        with exit_on_failure():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        with exit_on_failure():
            try:
                result = super().invoke(ctx)
            except typer.Exit:
                sys.stdout.flush()
                raise
            sys.stdout.flush()
            return result


Version = Annotated[str, option("--version VERSION", "Kafka version of the lab, 2.8.2 to 4.4.0.")]


def lab(
    *,
    version: Version = "4.3.1",
    brokers: Annotated[int, option("--brokers N", "Number of brokers.", min=1, max=3)] = 1,
    properties: Annotated[list[str] | None, option("--property KEY=VALUE", "Broker setting; may be repeated.")] = None,
) -> None:
    """Run Kafka on this machine until Ctrl-C; nothing is left behind."""
    settings = key_values("--property", properties)

    from toolkit.lab import Kafka

    remark(f"Starting Kafka {version} ...")
    with Kafka(version, brokers=brokers, properties=settings) as kafka:
        count = "1 broker" if brokers == 1 else f"{brokers} brokers"
        try:
            show(
                [
                    f"Kafka {version} with {count} is ready at {kafka.bootstrap_servers}",
                    f"  kafka-txn diagnose --bootstrap-server {kafka.bootstrap_servers}",
                    "Ctrl-C ends it and deletes its data.",
                ]
            )
            threading.Event().wait()
        except KeyboardInterrupt:
            remark("Stopping.")


def demo(*, version: Version = "4.3.1") -> None:
    """Stage real incidents on a local Kafka, find them, end them, and check that consumers move on."""
    from toolkit.lab.demo import run

    raise typer.Exit(0 if run(version, show=show, width=width()) else 1)


class Shell(StrEnum):
    """A shell that completes."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(metavar="bash|zsh|fish", help="The shell.")]) -> None:
    """Print the script by which a shell completes commands, options, names of clusters and of samples."""
    show(get_completion_script(prog_name="kafka-txn", complete_var=COMPLETE, shell=shell).splitlines())


app = typer.Typer(
    name="kafka-txn",
    cls=Commands,
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # it prints local variables, passwords among them
    context_settings=HELP_SETTINGS,
    rich_markup_mode=None,
)

PANELS: Mapping[str, Mapping[str, Callable[..., None]]] = {
    "Diagnose": {
        "diagnose": diagnose_commands.diagnose,
        "find-hanging": diagnose_commands.find_hanging,
        "explain": diagnose_commands.explain,
        "why": table_commands.why,
        "gaps": table_commands.gaps,
        "report": diagnose_commands.report,
        "mcp": diagnose_commands.mcp,
    },
    "Inspect": {
        "list": table_commands.list_transactions,
        "describe": table_commands.describe,
        "describe-producers": table_commands.describe_producers,
        "partitions": table_commands.partitions,
        "lag": table_commands.lag,
        "exposure": table_commands.exposure,
        "coordinator": table_commands.coordinator,
        "history": table_commands.history,
    },
    "Record": {
        "record": record_commands.record,
        "prometheus-rules": record_commands.prometheus_rules,
        "grafana-dashboard": record_commands.grafana_dashboard,
        "pipeline": record_commands.pipeline,
    },
    "Read files": {
        "copy": file_commands.copy,
        "scan": file_commands.scan,
        "txn-stat": file_commands.txn_stat,
        "abort-command": file_commands.abort_command,
    },
    "Remediate": {
        "abort": action_commands.abort,
        "complete": action_commands.complete,
        "commit": action_commands.commit,
        "fence": action_commands.fence,
    },
    "Read about it": {"docs": docs},
    "Try it here": {"demo": demo, "lab": lab, "completion": completion},
}
for panel, commands in PANELS.items():
    for name, command in commands.items():
        app.command(name, cls=PanelCommand, rich_help_panel=panel)(command)


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
    cluster_name: ClusterName = None,
    version: Annotated[
        bool, option("--version", "Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Who holds this Kafka partition's last stable offset (LSO), why, and what is safe?

    See it on a Kafka of your own:  kafka-txn demo

    Diagnose a cluster:  kafka-txn diagnose --bootstrap-server broker:9092

    Flags are those of kafka-transactions.sh. Only abort, complete, commit and fence change a cluster, and only
    when confirmed by name.
    """
    ctx.obj = SourceOptions(bootstrap_server=bootstrap_server, command_config=command_config, cluster_name=cluster_name)


def run() -> None:
    """Run the command line."""
    write_any_text()
    if COMPLETE in os.environ:
        completion_init()
    # Typer builds every registered command, which is 4% of the processor time of a short run.
    named = [each for each in app.registered_commands if each.name in sys.argv[1:2]]
    selected = copy(app)
    selected.registered_commands = named or app.registered_commands
    try:
        with exit_on_failure():
            try:
                selected(prog_name="kafka-txn")
            finally:
                sys.stdout.flush()
    except typer.Exit as failed:
        sys.exit(failed.exit_code)
    except Exception:  # noqa: BLE001 - Python's own code for it is 1, which says that there is something to do
        traceback.print_exc()
        remark("kafka-txn: this is a defect of kafka-txn; nothing is known from this run.")
        sys.exit(DEFECT)
