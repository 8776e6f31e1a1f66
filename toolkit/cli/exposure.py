"""The command that tells how far a cluster is protected from hanging transactions."""

from __future__ import annotations

import typer

from toolkit.cli.connection import connect
from toolkit.cli.options import BootstrapServer, CommandConfig, Format, Output, Timeout
from toolkit.cli.output import answer, exit_code

__all__ = ["exposure"]


def exposure(
    ctx: typer.Context,
    *,
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """Tell what keeps transactions from hanging here (KIP-890), and which clients it does not cover."""
    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        rows = cluster.exposure_rows()
    from toolkit.schema import EXPOSURE

    answer(EXPOSURE, rows, output)
    raise typer.Exit(exit_code(rows))
