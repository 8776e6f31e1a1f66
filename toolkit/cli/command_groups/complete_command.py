"""The command that writes the marker that was decided and is missing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from toolkit.cli.common_options import BootstrapServer, CommandConfig, Partition, RecheckAfter, Timeout, Topic
from toolkit.cli.confirmation_prompt import AuditFile, confirmation, print_notice
from toolkit.cli.open_transaction import (
    ConfirmTransaction,
    StartOffset,
    audited_plan,
    bytes_text,
    find_transaction,
    groups_text,
    lso_texts,
    moved_texts,
    resume_texts,
)
from toolkit.cli.output import progress, show, width
from toolkit.cli.source_options import connect

if TYPE_CHECKING:
    from toolkit.actions.complete import CompletePlan, CompleteResult

MAX_LINES = 20  # of committed offsets


def complete(
    ctx: typer.Context,
    *,
    topic: Topic,
    partition: Partition,
    start_offset: StartOffset,
    confirm: ConfirmTransaction = None,
    audit_file: AuditFile = None,
    recheck_after: RecheckAfter = 5,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """Write the marker that is missing where a transaction was committed, or aborted, without it. Dry run unless
    confirmed.

    The coordinators' log has to prove what was decided, and that nobody will write the marker any more; nothing can be
    overridden. After a commit, a read_committed consumer then shows that the records are delivered.
    """
    from toolkit.actions.audit import Audit
    from toolkit.actions.complete import plan_complete
    from toolkit.views.findings_text import finding_lines

    audit = Audit(audit_file)
    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        progress("Checking what was decided ...")
        found = find_transaction(cluster, topic, partition, start_offset=start_offset, recheck_after=recheck_after)
        show([*finding_lines([found.row()], now=dt.datetime.now(dt.UTC), width=width()), ""])
        with audited_plan("complete", cluster, found, audit if confirm is not None else None):
            plan = plan_complete(cluster, found)
        if confirm is None:
            print_notice(_dry_run(plan))
        confirmed = confirmation(plan.target, confirm)
        if confirmed is not None:
            progress("Checking it again ...")
            done = plan.execute(confirm=confirmed, audit=audit, recheck_after=recheck_after)
            print_notice([*_done(plan, done), f"Audit trail: {audit.path}."])


def _dry_run(plan: CompletePlan) -> Iterator[str]:
    kind = "A COMMIT" if plan.outcome == "commit" else "An ABORT"
    yield (
        f"Dry run: nothing was changed. It was decided to {plan.outcome} the transaction. {kind} marker "
        f"would end producer {plan.producer_id} epoch {plan.producer_epoch} on {plan.topic}-{plan.partition}."
    )
    yield from (f"- {text}" for text in _consequences(plan))
    yield f"To do it, add: --confirm {plan.target}"


def _consequences(plan: CompletePlan) -> Iterator[str]:
    impact = plan.impact
    becomes = "become visible to read_committed consumers" if plan.outcome == "commit" else "are never read"
    if impact.unread:
        yield f"The number of records is unknown. {impact.unread}"
    else:
        where = f", offsets {impact.first_offset} to {impact.last_offset}" if impact.first_offset is not None else ""
        yield f"its records, which {becomes}: {impact.records} ({bytes_text(impact.size)} in the log{where})"
        yield f"records behind it that can then be read: {impact.records_released}"
    verb = "becomes" if plan.outcome == "commit" else "does not become"
    for each in impact.offset_commits[:MAX_LINES]:
        offset = "its removal" if each.offset is None else f"offset {each.offset}"
        yield (
            f"{offset} of {each.topic}-{each.partition} {verb} that of group {each.group_id}, unless the group has "
            "committed a newer one since"
        )
    if len(impact.offset_commits) > MAX_LINES:
        yield f"and {len(impact.offset_commits) - MAX_LINES} more offsets of groups"
    yield from lso_texts(impact)
    yield f"groups that continue: {groups_text(impact.groups)}"
    yield from resume_texts(plan.basis)


def _done(plan: CompletePlan, done: CompleteResult) -> Iterator[str]:
    yield from moved_texts(f"{plan.topic}-{plan.partition}", done)
    if done.records_checked is None:
        yield "Another transaction holds the LSO before its records: they are delivered once that has ended."
    else:
        received = f"{done.records_delivered} of {done.records_checked} records"
        yield f"A read_committed consumer received {received} of it."
    for each in done.offset_commits[:MAX_LINES]:
        yield f"Group {each.group_id} is at offset {each.offset} of {each.topic}-{each.partition}."
    if done.unread_groups:
        yield f"The offsets of these groups could not be read: {', '.join(done.unread_groups)}."
