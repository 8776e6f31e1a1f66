"""The command that ends one hanging transaction."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.common_options import BootstrapServer, CommandConfig, Partition, RecheckAfter, Timeout, Topic
from toolkit.cli.confirmation_prompt import AuditFile, Override, confirmation, print_notice
from toolkit.cli.output import progress, show, width
from toolkit.cli.source_options import connect
from toolkit.errors import NotFound

if TYPE_CHECKING:
    from toolkit.actions.abort import AbortPlan, AbortResult
    from toolkit.actions.abort_impact import AbortImpact

__all__ = ["abort"]


def abort(
    ctx: typer.Context,
    *,
    topic: Topic,
    partition: Partition,
    start_offset: Annotated[
        int, typer.Option("--start-offset", metavar="OFFSET", min=0, help="First offset of the transaction.")
    ],
    confirm: Annotated[
        str | None,
        typer.Option(
            "--confirm",
            metavar="TOPIC-PARTITION@OFFSET",
            help="Do it: name the transaction, orders-0@913095344. Default: ask at a terminal, else a dry run.",
        ),
    ] = None,
    override: Override = None,
    audit_file: AuditFile = None,
    recheck_after: RecheckAfter = 5,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """Abort one hanging transaction by an abort marker. Dry run unless confirmed.

    Refuses a transaction that is not proven to be hanging, and checks again right before it writes.
    """
    from toolkit.actions.abort import plan_abort
    from toolkit.actions.audit import Audit
    from toolkit.views.findings_text import finding_lines

    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        progress("Checking that it hangs ...")
        rows = cluster.finding_rows(topics=[topic], partitions=[partition], recheck_after=recheck_after)
        row = next((row for row in rows if row["start_offset"] == start_offset), None)
        if row is None:
            raise NotFound(
                f"{topic}-{partition} has no open transaction that starts at offset {start_offset}.",
                do="Run kafka-txn diagnose; it may have ended.",
            )
        plan = plan_abort(cluster, row)
        show([*finding_lines([row], now=dt.datetime.now(dt.UTC), width=width()), ""])
        if confirm is None:
            print_notice(_dry_run(plan))
        confirmed = confirmation(plan.target, confirm)
        if confirmed is not None:
            audit = Audit(audit_file)
            progress("Checking it again ...")
            done = plan.execute(confirm=confirmed, audit=audit, override=override, recheck_after=recheck_after)
            print_notice([*_done(plan, done), f"Audit trail: {audit.path}."])


def _dry_run(plan: AbortPlan) -> Iterator[str]:
    yield (
        f"Dry run: nothing was changed. An abort marker would end producer {plan.producer_id} epoch "
        f"{plan.producer_epoch} on {plan.topic}-{plan.partition}; read_committed consumers will "
        "never read its records there."
    )
    yield from (f"- {text}" for text in _consequences(plan.impact))
    if plan.refusal is None:
        yield f"To do it, add: --confirm {plan.target}"
    else:
        yield f"It would be refused: {plan.refusal}"
        yield f"To do it anyway: --confirm {plan.target} --override unknown"
    yield f"Kafka's tool does the same without these checks: {plan.command}"


def _consequences(impact: AbortImpact) -> Iterator[str]:
    if impact.unread:
        yield f"The number of records is unknown. {impact.unread}"
    else:
        yield f"its records, which are never read: {impact.records_dropped}"
        yield f"records behind it that can then be read: {impact.records_released}"
    moves = f"from {impact.last_stable_offset} to {impact.next_stable_offset}"
    stays = f"stays at {impact.last_stable_offset}"
    yield f"the LSO {stays if impact.next_stable_offset == impact.last_stable_offset else f'goes {moves}'}"
    if impact.next_start_offset is not None:
        yield f"then held by producer {impact.next_producer_id}, from offset {impact.next_start_offset} on"
    groups = "not known" if impact.groups is None else ", ".join(impact.groups) or "none"
    yield f"groups that continue: {groups}"


def _done(plan: AbortPlan, done: AbortResult) -> list[str]:
    name = f"{plan.topic}-{plan.partition}"
    moved = f"{name}: the LSO moved from {done.last_stable_offset_before} to {done.last_stable_offset_after}"
    if done.next_start_offset is not None:
        return [f"{moved}.", f"The next transaction open on it starts at offset {done.next_start_offset}."]
    return [f"{moved}, and nothing else is open on it. The high watermark is {done.high_watermark}."]
