"""The command that fences the owner of a transactional id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.common_options import BootstrapServer, CommandConfig, MaxTransactionTimeout, Timeout
from toolkit.cli.confirmation_prompt import AuditFile, Override, confirmation, print_notice
from toolkit.cli.output import progress
from toolkit.cli.source_options import connect

if TYPE_CHECKING:
    from toolkit.actions.fence import FencePlan, FenceResult


def fence(
    ctx: typer.Context,
    *,
    transactional_id: Annotated[
        str, typer.Option("--transactional-id", metavar="ID", help="Transactional id to fence.")
    ],
    confirm: Annotated[
        str | None,
        typer.Option(
            "--confirm",
            metavar="ID",
            help="Do it: repeat the id. Default: ask at a terminal, else a dry run.",
        ),
    ] = None,
    override: Override = None,
    audit_file: AuditFile = None,
    max_transaction_timeout: MaxTransactionTimeout = 900,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """Fence a transactional id: abort its transaction everywhere, and fence its producer. Dry run unless confirmed.

    The remedy for an owner that is overdue or abandoned. One that is live within its own timeout (ongoing, long) or
    prepared is refused unless --override names that verdict; one whose outcome is decided always is.
    """
    from toolkit.actions.audit import Audit
    from toolkit.actions.fence import plan_fence

    most = int(max_transaction_timeout * 1000)
    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        plan = plan_fence(cluster, transactional_id, max_transaction_timeout_ms=most)
        print_notice(_owner(plan))
        if confirm is None:
            print_notice(_dry_run(plan))
        confirmed = confirmation(plan.target, confirm)
        if confirmed is not None:
            audit = Audit(audit_file)
            progress("Checking it again ...")
            done = plan.execute(confirm=confirmed, audit=audit, override=override)
            print_notice([*_done(plan, done), f"Audit trail: {audit.path}."])


def _owner(plan: FencePlan) -> Iterator[str]:
    owner = plan.owner
    who = f"producer {owner.producer_id} epoch {owner.producer_epoch}"
    since = f" since {owner.start_time:%Y-%m-%d %H:%M:%S} UTC" if owner.start_time else ""
    yield f"{plan.transactional_id}  {plan.verdict}  {who}, {owner.state}{since}"
    if plan.topic_partitions:
        yield "on " + ", ".join(f"{topic}-{partition}" for topic, partition in plan.topic_partitions)


def _dry_run(plan: FencePlan) -> Iterator[str]:
    yield "Dry run: nothing was changed. A fence would do this:"
    yield from (f"- {text}" for text in plan.warnings)
    if plan.refusal is None:
        yield f"To do it, add: --confirm {plan.target}"
    else:
        yield f"It would be refused: {plan.refusal}"
        if plan.needed_override:
            yield f"To do it anyway: --confirm {plan.target} --override {plan.needed_override}"
    yield f"Kafka's tool (newer than 4.0) does the same without these checks: {plan.command}"


def _done(plan: FencePlan, done: FenceResult) -> Iterator[str]:
    yield (
        f"{plan.transactional_id} is {done.state}: epoch {done.producer_epoch_before} of producer "
        f"{done.producer_id_before} is fenced, and epoch {done.producer_epoch} of {done.producer_id} owns the id."
    )
    if done.still_open:
        partitions = ", ".join(f"{topic}-{partition}" for topic, partition in done.still_open)
        yield f"Markers are not yet written to {partitions}."
