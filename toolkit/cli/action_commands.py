"""Commands that change a cluster, each a dry run until a person confirms it by name."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolkit.cli.abort_list_command import abort_list, read_list
from toolkit.cli.action_answer import ActionAnswer, ActionFormat, ActionOutput, is_at_terminal
from toolkit.cli.common_options import MaxTransactionTimeout, Partition, RecheckAfter, Topic
from toolkit.cli.output import progress
from toolkit.cli.source_options import SourceOptions, takes_source
from toolkit.errors import NotFound, UsageError
from toolkit.views import action_texts as texts
from toolkit.views.row_formats import size_text

if TYPE_CHECKING:
    from toolkit.actions.abort import AbortPlan
    from toolkit.actions.audit import Audit
    from toolkit.schema.live import Finding
    from toolkit.sources.live.cluster import Cluster

MAX_SAVE_BYTES = 256_000_000  # as of actions.saved_records, which imports Arrow

StartOffset = Annotated[
    int, typer.Option("--start-offset", metavar="OFFSET", min=0, help="First offset of the transaction.")
]
OneTopic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Topic; needed without --list.")]
OnePartition = Annotated[
    int | None, typer.Option("--partition", metavar="N", min=0, help="Partition number; needed without --list.")
]
OneStartOffset = Annotated[
    int | None,
    typer.Option(
        "--start-offset", metavar="OFFSET", min=0, help="First offset of the transaction; needed without --list."
    ),
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
    typer.Option("--confirm", metavar="ID", help="Do it: repeat the id. Default: ask at a terminal, else a dry run."),
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
        metavar="CLAIM",
        help="Act although this is not proven: what the dry run names, word for word. What is refuted cannot be "
        "overridden.",
    ),
]


@takes_source("flink_checkpoint")
def abort(
    *,
    topic: OneTopic = None,
    partition: OnePartition = None,
    start_offset: OneStartOffset = None,
    list_file: Annotated[
        Path | None,
        typer.Option(
            "--list",
            metavar="FILE",
            help="Abort many, one after another up to the first that is not as planned: a CSV file of kafka-txn "
            "find-hanging --format csv, a line each. --confirm '12 transactions' names their number.",
        ),
    ] = None,
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
    output: ActionOutput = ActionFormat.TABLE,
    source_options: SourceOptions,
) -> None:
    """Abort one hanging transaction by an abort marker. Dry run unless confirmed.

    Refuses a transaction that is not proven to be hanging, or whose records may be committed, and checks again right
    before it writes. What the marker discards is saved first.
    """
    from toolkit.actions.abort import plan_abort
    from toolkit.actions.audit import Audit

    if list_file is not None and (topic, partition, start_offset, override) != (None, None, None, None):
        raise UsageError("--list names the transactions, and nothing of it can be overridden.")
    audit, answer = Audit(audit_file), ActionAnswer(action="abort", output=output)
    if confirm is not None:
        audit.check()
    if list_file is not None:
        transactions = read_list(list_file)
        with source_options.connect() as cluster:
            abort_list(
                cluster,
                transactions,
                answer,
                audit=audit,
                confirm=confirm,
                recheck_after=recheck_after,
                save=save_records,
                max_save_bytes=max_save_bytes,
            )
        return
    if topic is None or partition is None or start_offset is None:
        raise UsageError("abort needs --topic, --partition and --start-offset, or --list.")
    with source_options.connect() as cluster:
        progress("Checking that it hangs ...")
        found = find_transaction(cluster, topic, partition, start_offset=start_offset, recheck_after=recheck_after)
        with audited_plan("abort", cluster, found, audit if confirm is not None else None):
            plan = plan_abort(cluster, found)
        answer.show_finding(found, source_options)
        confirmed = answer.confirmation(plan, confirm, texts.abort_preview(plan, audit if save_records else None))
        if confirmed is None:
            return
        if save_records and not answer.is_json:
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
        answer.show_result(plan, done, texts.abort_result(plan, done), audit)


@takes_source()
def complete(
    *,
    topic: Topic,
    partition: Partition,
    start_offset: StartOffset,
    confirm: ConfirmTransaction = None,
    override: Override = None,
    audit_file: AuditFile = None,
    recheck_after: RecheckAfter = 5,
    output: ActionOutput = ActionFormat.TABLE,
    source_options: SourceOptions,
) -> None:
    """Write the marker that is missing where a transaction was committed, or aborted, without it. Dry run unless
    confirmed.

    The coordinators' log has to prove what was decided about every open record, and that nobody will write the marker
    any more. If a commit is only likely, --override asserts what is not proven. After a commit, a read_committed
    consumer then shows that the records are delivered.
    """
    from toolkit.actions.audit import Audit
    from toolkit.actions.complete import plan_complete

    audit, answer = Audit(audit_file), ActionAnswer(action="complete", output=output)
    if confirm is not None:
        audit.check()
    with source_options.connect() as cluster:
        progress("Checking what was decided ...")
        found = find_transaction(cluster, topic, partition, start_offset=start_offset, recheck_after=recheck_after)
        answer.show_finding(found, source_options)
        with audited_plan("complete", cluster, found, audit if confirm is not None else None):
            plan = plan_complete(cluster, found)
        confirmed = answer.confirmation(plan, confirm, texts.complete_preview(plan))
        if confirmed is None:
            return
        progress("Checking it again ...")
        done = plan.execute(confirm=confirmed, audit=audit, override=override, recheck_after=recheck_after)
        answer.show_result(plan, done, texts.complete_result(plan, done), audit)


@takes_source("flink_checkpoint")
def commit(
    *,
    transactional_id: Annotated[
        str, typer.Option("--transactional-id", metavar="ID", help="Transactional id that the checkpoint names.")
    ],
    confirm: ConfirmId = None,
    audit_file: AuditFile = None,
    recheck_after: RecheckAfter = 5,
    output: ActionOutput = ActionFormat.TABLE,
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
    audit, answer = Audit(audit_file), ActionAnswer(action="commit", output=output)
    if confirm is not None:
        audit.check()
    with source_options.connect() as cluster:
        progress("Checking what the checkpoint and the coordinator say ...")
        plan = plan_commit(cluster, transactional_id, recheck_after=recheck_after)
        confirmed = answer.confirmation(plan, confirm, texts.commit_preview(plan))
        if confirmed is None:
            return
        progress("Checking it again ...")
        done = plan.execute(confirm=confirmed, audit=audit, recheck_after=recheck_after)
        answer.show_result(plan, done, texts.commit_result(plan, done), audit)


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
    output: ActionOutput = ActionFormat.TABLE,
    source_options: SourceOptions,
) -> None:
    """Fence a transactional id: abort its transaction everywhere, and fence its producer. Dry run unless confirmed.

    The remedy for an owner that is overdue or abandoned. One that is live within its own timeout (ongoing, long) or
    prepared is refused unless --override names that verdict; one whose outcome is decided always is.
    """
    from toolkit.actions.audit import Audit
    from toolkit.actions.fence import plan_fence

    audit, answer = Audit(audit_file), ActionAnswer(action="fence", output=output)
    if confirm is not None:
        audit.check()
    with source_options.connect() as cluster:
        plan = plan_fence(cluster, transactional_id, max_transaction_timeout_ms=int(max_transaction_timeout * 1000))
        answer.say(texts.fence_owner(plan))
        if confirm is not None and plan.flink_warning:
            answer.say([f"Warning: {plan.flink_warning}"])
        confirmed = answer.confirmation(plan, confirm, texts.fence_preview(plan, override=override))
        if confirmed is None:
            return
        progress("Checking it again ...")
        done = plan.execute(confirm=confirmed, audit=audit, override=override)
        answer.show_result(plan, done, texts.fence_result(plan, done), audit)


def find_transaction(
    cluster: Cluster, topic: str, partition: int, *, start_offset: int, recheck_after: float
) -> Finding:
    """The finding of the transaction that starts at an offset. Raises NotFound if none does."""
    from toolkit.schema.live import Finding

    for row in cluster.finding_rows(topics=[topic], partitions=[partition], recheck_after=recheck_after):
        if row["start_offset"] == start_offset:
            return Finding.of(row)
    raise NotFound(
        f"{topic}-{partition} has no open transaction that starts at offset {start_offset}.",
        do="Run kafka-txn diagnose; it may have ended.",
    )


def audited_plan(action: str, cluster: Cluster, finding: Finding, audit: Audit | None) -> AbstractContextManager[None]:
    """Write to the audit trail that a confirmed action was refused when it was planned.

    `action`, `cluster`, `finding`: the action, and what it is for. `audit`: null unless it was confirmed.
    """
    from dataclasses import replace

    from toolkit.actions.marker_plan import audited_refusal, transaction_step

    if audit is None:
        return nullcontext()
    step = transaction_step(action, cluster, finding, verdict=finding.verdict)
    return audited_refusal(audit, replace(step, outcome=finding.outcome))


def agreed_size(plan: AbortPlan, max_save_bytes: int) -> int:
    """The limit, raised where a person agrees to save more."""
    size = plan.impact.size
    if size is None or size <= max_save_bytes or not is_at_terminal():
        return max_save_bytes
    question = f"Its records take {size_text(size)}, more than {size_text(max_save_bytes)}. Save them all the same?"
    return size if typer.confirm(question) else max_save_bytes
