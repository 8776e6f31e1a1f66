"""Commands that change a cluster, each a dry run until a person confirms it by name."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli import action_texts as texts
from toolkit.cli.common_options import MaxTransactionTimeout, Partition, RecheckAfter, Topic
from toolkit.cli.output import progress, show, size_text, width
from toolkit.cli.source_options import SourceOptions, takes_source
from toolkit.errors import ActionRefused, NotFound, UsageError

if TYPE_CHECKING:
    from toolkit.actions.abort import AbortPlan
    from toolkit.actions.audit import Audit
    from toolkit.schema.live import Finding
    from toolkit.sources.live.cluster import Cluster

MAX_SAVE_BYTES = 256_000_000  # as of actions.saved_records, which imports Arrow
NOT_CONFIRMED = "Not confirmed: nothing was sent."

StartOffset = Annotated[
    int, typer.Option("--start-offset", metavar="OFFSET", min=0, help="First offset of the transaction.")
]
ConfirmTransaction = Annotated[
    str | None,
    typer.Option(
        "--confirm",
        metavar="TOPIC-PARTITION@OFFSET",
        help="Do it: name the transaction, orders-0@913095344. Default: ask at a terminal, else a dry run.",
    ),
]
ConfirmId = Annotated[
    str | None,
    typer.Option(
        "--confirm",
        metavar="ID",
        help="Do it: repeat the id. Default: ask at a terminal, else a dry run.",
    ),
]
AuditFile = Annotated[
    Path | None,
    typer.Option(
        "--audit-file",
        metavar="FILE",
        envvar="KAFKA_TXN_AUDIT_FILE",
        help="File of the audit trail. Default: audit.jsonl in the user's state directory.",
    ),
]
Override = Annotated[
    str | None,
    typer.Option(
        "--override",
        metavar="VERDICT",
        help="Act although the verdict is this one; it must be the verdict of the check right before.",
    ),
]


@takes_source("flink_checkpoint")
def abort(
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
    source_options: SourceOptions,
) -> None:
    """Abort one hanging transaction by an abort marker. Dry run unless confirmed.

    Refuses a transaction that is not proven to be hanging, or whose records may be committed, and checks again right
    before it writes. What the marker discards is saved first.
    """
    from toolkit.actions.abort import plan_abort
    from toolkit.actions.audit import Audit

    audit = Audit(audit_file)
    with source_options.connect() as cluster:
        progress("Checking that it hangs ...")
        found = find_transaction(cluster, topic, partition, start_offset=start_offset, recheck_after=recheck_after)
        with audited_plan("abort", cluster, found, audit if confirm is not None else None):
            plan = plan_abort(cluster, found)
        show_finding(found)
        if confirm is None:
            print_notice(texts.abort_preview(plan, audit if save_records else None))
        confirmed = confirmation(plan.target, confirm)
        if confirmed is None:
            return
        if save_records:
            max_save_bytes = agreed_size(plan, max_save_bytes)
        progress("Checking it again ...")
        done = plan.execute(
            confirm=confirmed,
            audit=audit,
            override=override,
            recheck_after=recheck_after,
            save=save_records,
            max_save_bytes=max_save_bytes,
        )
        print_notice([*texts.abort_result(plan, done), f"Audit trail: {audit.path}."])


@takes_source()
def complete(
    *,
    topic: Topic,
    partition: Partition,
    start_offset: StartOffset,
    confirm: ConfirmTransaction = None,
    audit_file: AuditFile = None,
    recheck_after: RecheckAfter = 5,
    source_options: SourceOptions,
) -> None:
    """Write the marker that is missing where a transaction was committed, or aborted, without it. Dry run unless
    confirmed.

    The coordinators' log has to prove what was decided, and that nobody will write the marker any more; nothing can be
    overridden. After a commit, a read_committed consumer then shows that the records are delivered.
    """
    from toolkit.actions.audit import Audit
    from toolkit.actions.complete import plan_complete

    audit = Audit(audit_file)
    with source_options.connect() as cluster:
        progress("Checking what was decided ...")
        found = find_transaction(cluster, topic, partition, start_offset=start_offset, recheck_after=recheck_after)
        show_finding(found)
        with audited_plan("complete", cluster, found, audit if confirm is not None else None):
            plan = plan_complete(cluster, found)
        if confirm is None:
            print_notice(texts.complete_preview(plan))
        confirmed = confirmation(plan.target, confirm)
        if confirmed is None:
            return
        progress("Checking it again ...")
        done = plan.execute(confirm=confirmed, audit=audit, recheck_after=recheck_after)
        print_notice([*texts.complete_result(plan, done), f"Audit trail: {audit.path}."])


@takes_source("flink_checkpoint")
def commit(
    *,
    transactional_id: Annotated[
        str, typer.Option("--transactional-id", metavar="ID", help="Transactional id that the checkpoint names.")
    ],
    confirm: ConfirmId = None,
    audit_file: AuditFile = None,
    recheck_after: RecheckAfter = 5,
    source_options: SourceOptions,
) -> None:
    """Commit a transaction that the last completed checkpoint of a Flink job is to commit. Dry run unless confirmed.

    For a job that died before its commit and cannot be restored in time. Needs --flink-checkpoint. Refused unless the
    coordinator has exactly the checkpoint's producer id and epoch open; nothing can be overridden. A read_committed
    consumer then shows that the records are delivered.
    """
    from toolkit.actions.audit import Audit
    from toolkit.actions.commit import plan_commit

    if not source_options.flink_checkpoint:
        raise UsageError("commit needs the checkpoint that decides.", do="Add --flink-checkpoint PATH.")
    with source_options.connect() as cluster:
        progress("Checking what the checkpoint and the coordinator say ...")
        plan = plan_commit(cluster, transactional_id, recheck_after=recheck_after)
        if confirm is None:
            print_notice(texts.commit_preview(plan))
        confirmed = confirmation(plan.target, confirm)
        if confirmed is None:
            return
        audit = Audit(audit_file)
        progress("Checking it again ...")
        done = plan.execute(confirm=confirmed, audit=audit, recheck_after=recheck_after)
        print_notice([*texts.commit_result(plan, done), f"Audit trail: {audit.path}."])


@takes_source("flink_checkpoint")
def fence(
    *,
    transactional_id: Annotated[
        str, typer.Option("--transactional-id", metavar="ID", help="Transactional id to fence.")
    ],
    confirm: ConfirmId = None,
    override: Override = None,
    audit_file: AuditFile = None,
    max_transaction_timeout: MaxTransactionTimeout = 900,
    source_options: SourceOptions,
) -> None:
    """Fence a transactional id: abort its transaction everywhere, and fence its producer. Dry run unless confirmed.

    The remedy for an owner that is overdue or abandoned. One that is live within its own timeout (ongoing, long) or
    prepared is refused unless --override names that verdict; one whose outcome is decided always is.
    """
    from toolkit.actions.audit import Audit
    from toolkit.actions.fence import plan_fence

    max_timeout_ms = int(max_transaction_timeout * 1000)
    with source_options.connect() as cluster:
        plan = plan_fence(cluster, transactional_id, max_transaction_timeout_ms=max_timeout_ms)
        print_notice(texts.fence_owner(plan))
        if confirm is None:
            print_notice(texts.fence_preview(plan))
        elif plan.flink_warning:
            print_notice([f"Warning: {plan.flink_warning}"])
        confirmed = confirmation(plan.target, confirm)
        if confirmed is None:
            return
        audit = Audit(audit_file)
        progress("Checking it again ...")
        done = plan.execute(confirm=confirmed, audit=audit, override=override)
        print_notice([*texts.fence_result(plan, done), f"Audit trail: {audit.path}."])


def find_transaction(
    cluster: Cluster, topic: str, partition: int, *, start_offset: int, recheck_after: float
) -> Finding:
    """The finding of the transaction that starts at an offset.

    Raises
    ------
    NotFound
        If none does.
    """
    from toolkit.schema.live import Finding

    for row in cluster.finding_rows(topics=[topic], partitions=[partition], recheck_after=recheck_after):
        if row["start_offset"] == start_offset:
            return Finding.of(row)
    raise NotFound(
        f"{topic}-{partition} has no open transaction that starts at offset {start_offset}.",
        do="Run kafka-txn diagnose; it may have ended.",
    )


@contextmanager
def audited_plan(action: str, cluster: Cluster, finding: Finding, audit: Audit | None) -> Iterator[None]:
    """Write to the audit trail that a confirmed action was refused when it was planned.

    Parameters
    ----------
    action, cluster, finding
        The action, and what it is for.
    audit
        Null unless it was confirmed.
    """
    try:
        yield
    except ActionRefused as error:
        if audit is not None:
            audit.refused(
                error,
                action=action,
                bootstrap_servers=cluster.bootstrap_servers,
                target=f"{finding.topic}-{finding.partition}@{finding.start_offset}",
                topic=finding.topic,
                partition=finding.partition,
                start_offset=finding.start_offset,
                producer_id=finding.producer_id,
                producer_epoch=finding.producer_epoch,
                verdict=finding.verdict,
                outcome=finding.outcome,
            )
        raise


def show_finding(finding: Finding) -> None:
    """Write what is known of the transaction."""
    from toolkit.views.findings_text import finding_lines

    show([*finding_lines([finding.row()], now=dt.datetime.now(dt.UTC), width=width()), ""])


def agreed_size(plan: AbortPlan, max_save_bytes: int) -> int:
    """The limit, raised where a person agrees to save more."""
    size = plan.impact.size
    if size is None or size <= max_save_bytes or not is_at_terminal():
        return max_save_bytes
    question = f"Its records take {size_text(size)}, more than {size_text(max_save_bytes)}. Save them all the same?"
    return size if typer.confirm(question) else max_save_bytes


def is_at_terminal() -> bool:
    """Whether a person can answer a prompt."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirmation(target: str, option: str | None) -> str | None:
    """What was confirmed, by an option or by a person at a terminal; null for a dry run.

    Raises
    ------
    KeyboardInterrupt
        At Ctrl-C, with a note that nothing was sent.
    """
    if option is not None or not is_at_terminal():
        return option
    question = f"Type {target} to confirm; Enter cancels"
    try:
        return str(typer.prompt(question, default="", show_default=False)).strip() or None
    except typer.Abort as aborted:
        if isinstance(aborted.__context__, EOFError):  # Ctrl-D
            print_notice(["", NOT_CONFIRMED])
            return None
        interrupt = KeyboardInterrupt()
        interrupt.add_note(NOT_CONFIRMED)
        raise interrupt from aborted


def print_notice(sentences: Iterable[str]) -> None:
    """Write sentences, wrapped to the terminal."""
    from toolkit.views.findings_text import wrap

    show(line for text in sentences for line in wrap(text, before="", width=width()))
