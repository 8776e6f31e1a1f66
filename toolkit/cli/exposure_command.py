"""The command that shows how far a cluster is protected from hanging transactions."""

from __future__ import annotations

from typing import Annotated

import typer

from toolkit.cli.common_options import BootstrapServer, CommandConfig, Format, Output, Timeout
from toolkit.cli.output import answer, exit_code
from toolkit.cli.source_options import connect

__all__ = ["exposure"]


def exposure(
    ctx: typer.Context,
    *,
    output: Output = Format.TABLE,
    kafka_version: Annotated[
        str | None,
        typer.Option(help="Release of the brokers, as 4.2.1. Brokers report 4.2 only, and some bugs need the rest."),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """Show how far this cluster is protected from hanging transactions (KIP-890), and which clients are not.

    With the known bugs of the brokers that touch transactions, by the release that they answer like.
    """
    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        rows = cluster.exposure_rows(kafka_version=kafka_version)
    from toolkit.schema import EXPOSURE

    answer(EXPOSURE, rows, output)
    raise typer.Exit(exit_code(rows))
