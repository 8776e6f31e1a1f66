"""Commands that change a cluster, each a dry run until a person confirms it by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.abort_list_command import abort_list, read_list
from toolkit.cli.action_answer import ActionAnswer, ActionFormat, ActionOutput, is_at_terminal
from toolkit.cli.common_options import MaxTransactionTimeout, Partition, RecheckAfter, Topic
from toolkit.cli.output import progress
from toolkit.cli.source_options import SourceOptions, takes_source
from toolkit.errors import ActionRefused, UsageError
from toolkit.schema.table import TopicPartition
from toolkit.views.row_formats import size_text

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.actions.plan import Plan, Result
    from toolkit.schema.live import Finding
    from toolkit.schema.recorded import ActionStep
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
    from toolkit.actions.transaction import transaction_at

    if list_file is not None and (topic, partition, start_offset, override) != (None, None, None, None):
        raise UsageError("--list names the transactions, and nothing of it can be overridden.")
    audit = Audit(audit_file)
    answer = ActionAnswer(action="abort", output=output, connection=source_options.connection)
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
        tp = TopicPartition(topic, partition)
        found = transaction_at(cluster, tp, start_offset=start_offset, recheck_after=recheck_after)
        with audited(audit, confirm, marker_step("abort", cluster, found)):
            plan = plan_abort(cluster, found)
        answer.show_finding(found)

        def execute(**options: Any) -> Result:
            limit = agreed_size(plan, max_save_bytes) if save_records and not answer.is_json else max_save_bytes
            return plan.execute(**options, recheck_after=recheck_after, save=save_records, max_save_bytes=limit)

        answer.act(plan, execute, audit=audit, confirm=confirm, override=override, saves=save_records)


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
    from toolkit.actions.transaction import transaction_at

    audit, answer = (
        Audit(audit_file),
        ActionAnswer(action="complete", output=output, connection=source_options.connection),
    )
    if confirm is not None:
        audit.check()
    with source_options.connect() as cluster:
        progress("Checking what was decided ...")
        tp = TopicPartition(topic, partition)
        found = transaction_at(cluster, tp, start_offset=start_offset, recheck_after=recheck_after)
        answer.show_finding(found)
        with audited(audit, confirm, marker_step("complete", cluster, found)):
            plan = plan_complete(cluster, found)
        execute = partial(plan.execute, recheck_after=recheck_after)
        answer.act(plan, execute, audit=audit, confirm=confirm, override=override)


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
    audit, answer = (
        Audit(audit_file),
        ActionAnswer(action="commit", output=output, connection=source_options.connection),
    )
    if confirm is not None:
        audit.check()
    with source_options.connect() as cluster:
        progress("Checking what the checkpoint and the coordinator say ...")
        with audited(audit, confirm, id_step("commit", cluster, transactional_id)):
            plan = plan_commit(cluster, transactional_id, recheck_after=recheck_after)
        execute = partial(plan.execute, recheck_after=recheck_after)
        answer.act(plan, execute, audit=audit, confirm=confirm)


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

    The remedy for an owner that is overdue. One that is live within its own timeout (ongoing, long), prepared or idle
    is refused unless --override names that verdict; one whose outcome is decided always is.
    """
    from toolkit.actions.audit import Audit
    from toolkit.actions.fence import FLINK, plan_fence
    from toolkit.views.action_document import fence_owner
    from toolkit.views.document import Paragraph

    audit = Audit(audit_file)
    answer = ActionAnswer(action="fence", output=output, connection=source_options.connection)
    if confirm is not None:
        audit.check()
    with source_options.connect() as cluster:
        with audited(audit, confirm, id_step("fence", cluster, transactional_id)):
            plan = plan_fence(cluster, transactional_id, max_transaction_timeout_ms=int(max_transaction_timeout * 1000))
        answer.say(fence_owner(plan))
        if confirm is not None and FLINK in plan.warnings:
            answer.say([Paragraph(f"Warning: {FLINK}")])
        answer.act(plan, plan.execute, audit=audit, confirm=confirm, override=override)


def marker_step(action: str, cluster: Cluster, found: Finding) -> ActionStep:
    """What the audit trail has of a marker that is refused when it is planned."""
    from toolkit.actions.plan import step_on

    return step_on(
        cluster,
        action,
        f"{found.tp}@{found.start_offset}",
        topic=found.topic,
        partition=found.partition,
        start_offset=found.start_offset,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        verdict=found.verdict,
        outcome=found.outcome,
    )


def id_step(action: str, cluster: Cluster, transactional_id: str) -> ActionStep:
    """The same of an action on an id."""
    from toolkit.actions.plan import step_on

    return step_on(cluster, action, transactional_id, transactional_id=transactional_id)


@contextmanager
def audited(audit: Audit, confirm: str | None, step: ActionStep) -> Iterator[None]:
    """Write to the audit trail that what was confirmed is refused when it is planned."""
    try:
        yield
    except ActionRefused as error:
        if confirm is not None:
            audit.refused(error, step)
        raise


def agreed_size(plan: Plan, max_save_bytes: int) -> int:
    """The limit, raised where a person agrees to save more."""
    size = plan.impact.size
    if size is None or size <= max_save_bytes or not is_at_terminal():
        return max_save_bytes
    question = f"Its records take {size_text(size)}, more than {size_text(max_save_bytes)}. Save them all the same?"
    return size if typer.confirm(question) else max_save_bytes
