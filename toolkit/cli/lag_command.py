"""The command that shows how far a group is behind, and how much of that it could read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.common_options import BootstrapServer, CommandConfig, Format, LogDirs, Output, Timeout
from toolkit.cli.output import answer, exit_code, show, width
from toolkit.cli.source_options import logs_from_options

if TYPE_CHECKING:
    from toolkit.schema import Row

__all__ = ["lag"]


def lag(
    ctx: typer.Context,
    *,
    group: Annotated[
        list[str], typer.Option("--group", metavar="GROUP", help="Consumer group; may be repeated.", show_default=False)
    ],
    output: Output = Format.TABLE,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
    log_dir: LogDirs = None,
) -> None:
    """Show how far a group is behind, and why: records to read now, records held behind the LSO, markers.

    A read_committed client measures its lag to the LSO: a lag of 0 can hide held records. Kafka's tool measures to the
    high watermark: a lag that stays can be nothing but markers.
    """
    with logs_from_options(
        ctx, bootstrap_server=bootstrap_server, command_config=command_config, timeout=timeout, log_dir=log_dir
    ) as source:
        rows = [row for each in group for row in source.group_lag_rows(each)]
    from toolkit.schema import GROUP_LAG

    answer(GROUP_LAG, rows, output, without=("reason", "broker_id"))
    if output is Format.TABLE:
        from toolkit.views.findings_text import wrap

        for row in filter(_needs_a_sentence, rows):
            show(wrap(row["reason"], before=f"{row['topic']}-{row['partition']}  ", width=width()))
    raise typer.Exit(exit_code(rows))


def _needs_a_sentence(row: Row) -> bool:
    """Whether the numbers alone mislead: something is held, or all of a lag is nothing to read."""
    return bool(row["reason"] and (row["held"] or (row["lag"] and not row["behind"])))
