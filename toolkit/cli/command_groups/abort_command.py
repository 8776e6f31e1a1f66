"""The command that ends one hanging transaction."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.common_options import BootstrapServer, CommandConfig, Partition, RecheckAfter, Timeout, Topic
from toolkit.cli.confirmation_prompt import AuditFile, Override, confirmation, is_at_terminal, print_notice
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
    from toolkit.actions.abort import AbortPlan, AbortResult
    from toolkit.actions.audit import Audit

MAX_SAVE_BYTES = 256_000_000  # as of actions.saved_records, which imports Arrow


def abort(
    ctx: typer.Context,
    *,
    topic: Topic,
    partition: Partition,
    start_offset: StartOffset,
    confirm: ConfirmTransaction = None,
    override: Override = None,
    save_records: Annotated[
        bool,
        typer.Option(
            "--save-records/--no-save-records",
            help="Save the transaction's records to a Parquet file beside the audit trail before they are discarded. "
            "They need not be saved where it is proven that they were not committed.",
        ),
    ] = True,
    max_save_bytes: Annotated[
        int,
        typer.Option(
            "--max-save-bytes",
            metavar="BYTES",
            min=0,
            help="Most bytes of the log to save; for more, a terminal asks, and else the abort is refused.",
        ),
    ] = MAX_SAVE_BYTES,
    audit_file: AuditFile = None,
    recheck_after: RecheckAfter = 5,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 30,
) -> None:
    """Abort one hanging transaction by an abort marker. Dry run unless confirmed.

    Refuses a transaction that is not proven to be hanging, or whose records may be committed, and checks again right
    before it writes. What the marker discards is saved first.
    """
    from toolkit.actions.abort import plan_abort
    from toolkit.actions.audit import Audit
    from toolkit.views.findings_text import finding_lines

    audit = Audit(audit_file)
    with connect(ctx, bootstrap_server, command_config, timeout=timeout) as cluster:
        progress("Checking that it hangs ...")
        found = find_transaction(cluster, topic, partition, start_offset=start_offset, recheck_after=recheck_after)
        with audited_plan("abort", cluster, found, audit if confirm is not None else None):
            plan = plan_abort(cluster, found)
        show([*finding_lines([found.row()], now=dt.datetime.now(dt.UTC), width=width()), ""])
        if confirm is None:
            print_notice(_dry_run(plan, audit if save_records else None))
        confirmed = confirmation(plan.target, confirm)
        if confirmed is not None:
            if save_records:
                max_save_bytes = _agreed_size(plan, max_save_bytes)
            progress("Checking it again ...")
            done = plan.execute(
                confirm=confirmed,
                audit=audit,
                override=override,
                recheck_after=recheck_after,
                save=save_records,
                max_save_bytes=max_save_bytes,
            )
            print_notice([*_done(plan, done), f"Audit trail: {audit.path}."])


def _agreed_size(plan: AbortPlan, max_save_bytes: int) -> int:
    """The limit, raised where a person agrees to save more."""
    size = plan.impact.bytes_dropped
    if size is None or size <= max_save_bytes or not is_at_terminal():
        return max_save_bytes
    question = f"Its records take {bytes_text(size)}, more than {bytes_text(max_save_bytes)}. Save them all the same?"
    return size if typer.confirm(question) else max_save_bytes


def _dry_run(plan: AbortPlan, audit: Audit | None) -> Iterator[str]:
    yield (
        f"Dry run: nothing was changed. An abort marker would end producer {plan.producer_id} epoch "
        f"{plan.producer_epoch} on {plan.topic}-{plan.partition}; read_committed consumers will "
        "never read its records there."
    )
    yield from (f"- {text}" for text in _consequences(plan, audit))
    if plan.refusal is None:
        yield f"To do it, add: --confirm {plan.target}"
    else:
        yield f"It would be refused: {plan.refusal}"
        yield f"To do it anyway: --confirm {plan.target} --override unknown"
    yield f"Kafka's tool writes the same marker without these checks and without the copy: {plan.command}"


def _consequences(plan: AbortPlan, audit: Audit | None) -> Iterator[str]:
    impact = plan.impact
    if impact.unread:
        yield f"The number of records is unknown. {impact.unread}"
    else:
        yield f"its records, which are never read: {impact.records_dropped}"
        yield f"records behind it that can then be read: {impact.records_released}"
    if audit is not None:
        yield f"its records ({bytes_text(impact.bytes_dropped)} in the log) are saved first: {plan.records_path(audit)}"
    else:
        yield "its records are not saved"
    yield from lso_texts(impact)
    yield f"groups that continue: {groups_text(impact.groups)}"
    yield from resume_texts(plan.basis)


def _done(plan: AbortPlan, done: AbortResult) -> Iterator[str]:
    yield from moved_texts(f"{plan.topic}-{plan.partition}", done)
    if done.records_file is not None:
        yield f"Records saved: {done.records_saved}, in {done.records_file}."
