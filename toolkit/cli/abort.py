"""The command that changes something."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.connection import connect
from toolkit.cli.options import BootstrapServer, CommandConfig, LooksApart, Partition, Timeout, Topic
from toolkit.cli.output import progress, show, width
from toolkit.errors import NotFound

if TYPE_CHECKING:
    from toolkit.actions.abort import Aborted, AbortPlan

__all__ = ["abort"]


def abort(
    ctx: typer.Context,
    *,
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int, typer.Option("--start-offset", metavar="OFFSET", min=0, help="Where the transaction starts.")
    ],
    yes_i_checked: Annotated[
        str | None,
        typer.Option(
            "--yes-i-checked",
            metavar="TOPIC-PARTITION@OFFSET",
            help="Do it, and name what: orders-0@913095344. Without this nothing is changed.",
        ),
    ] = None,
    looks_apart: LooksApart = 5,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """End one hanging transaction by an abort marker; a dry run unless confirmed.

    Refuses whatever is not proven to be hanging, and looks again right before it writes.
    """
    from toolkit.actions.abort import plan_abort
    from toolkit.views.text import finding_lines, wrap

    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        progress("Checking that it hangs ...")
        rows = cluster.finding_rows([topic], [partition], looks_apart=looks_apart)
        row = next((row for row in rows if row["start_offset"] == start_offset), None)
        if row is None:
            raise NotFound(
                f"{topic}-{partition} has no transaction open that starts at offset {start_offset}.",
                do="Ask kafka-txn diagnose; it may have ended.",
            )
        plan = plan_abort(cluster, row)
        show([*finding_lines([row], now=dt.datetime.now(dt.UTC), width=width()), ""])
        if yes_i_checked is None:
            texts = _dry_run(plan)
        else:
            texts = _done(plan, plan.execute(confirm=yes_i_checked, looks_apart=looks_apart))
        show(line for text in texts for line in wrap(text, before="", width=width()))


def _dry_run(plan: AbortPlan) -> list[str]:
    return [
        f"Dry run, nothing is changed. An abort marker would end producer {plan.producer_id} epoch "
        f"{plan.producer_epoch} on {plan.topic}-{plan.partition}; its records there stay unread for ever by "
        "read_committed consumers.",
        f"To do it, add: --yes-i-checked {plan.target}",
        f"Kafka's own tool would do the same, unchecked: {plan.command}",
    ]


def _done(plan: AbortPlan, done: Aborted) -> list[str]:
    name = f"{plan.topic}-{plan.partition}"
    moved = f"{name}: the LSO went from {done.last_stable_offset_before} to {done.last_stable_offset_after}"
    if done.next_start_offset is not None:
        return [f"{moved}.", f"The next transaction open on it starts at offset {done.next_start_offset}."]
    return [f"{moved}, and nothing else is open on it. The high watermark is {done.high_watermark}."]
