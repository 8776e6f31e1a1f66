"""Commands that change a cluster, when confirmed by name: abort, complete, commit, fence.

They write sentences and a prompt, or with ``--format json`` an answer of one row.
"""

from __future__ import annotations

import csv
import dataclasses
import datetime as dt
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.options import (
    MaxTransactionTimeout,
    Partition,
    RecheckAfter,
    SourceOptions,
    Topic,
    option,
    takes_source,
)
from toolkit.cli.output import REFUSED, answer_json, progress, show, width
from toolkit.errors import ActionRefused, UsageError
from toolkit.schema import FINDINGS
from toolkit.schema.table import TopicPartition
from toolkit.views.row_formats import printable, size_text

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.actions.plan import ListResult, Plan, PlanList, Result
    from toolkit.schema import Row
    from toolkit.schema.live import Finding
    from toolkit.sources.live.cluster import Cluster
    from toolkit.views.document import Connection, Part


SCHEMA, VERSION = "action", 1 + FINDINGS.version  # of `ActionRow` in JSON, a finding among its fields; raised with them
NOT_CONFIRMED = "Not confirmed: nothing was sent."
# Fields of a plan that are no fact for a person: a connection, a file, what this process measures for itself.
INTERNAL = {"action", "cluster", "checkpoint", "coordinators", "observation", "planned_at"}

# Of a finding, what the audit trail has of a marker that is refused when it is planned.
OF_MARKER = ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "verdict", "outcome")


class ActionFormat(StrEnum):
    """How an action is answered."""

    TABLE = "table"
    JSON = "json"


ActionOutput = Annotated[
    ActionFormat, option("--format", "table for people; json for programs: one object, and no prompt, only --confirm.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRow:
    """The answer as data."""

    action: str  # the command
    target: str  # what a person types to confirm it
    dry_run: bool
    refusal: str | None  # why a dry run would be refused; null if it would not
    warnings: Sequence[str]
    plan: Plan | PlanList
    result: Result | ListResult | None = None  # null of a dry run, as is the audit file
    audit_file: Path | None = None
    document: Sequence[Mapping[str, Any]]  # the parts of the text


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionAnswer:
    """The answer of one command that acts, and what confirms and records it."""

    action: str  # the command
    output: ActionFormat  # how it is written
    connection: Connection  # of the commands in it
    audit: Audit  # the trail
    confirm: str | None  # what an option confirms; null to ask at a terminal
    override: str | None = None

    @classmethod
    def of(
        cls, action: str, source_options: SourceOptions, *, audit_file: Path | None, confirm: str | None, **more: Any
    ) -> ActionAnswer:
        """Of a command's options. Raises ActionRefused if what is confirmed could not be written to the audit trail."""
        from toolkit.actions.audit import Audit

        audit = Audit(audit_file)
        if confirm is not None:
            audit.check()
        return cls(action=action, connection=source_options.connection, audit=audit, confirm=confirm, **more)

    @property
    def is_json(self) -> bool:
        """Whether one object is written, and nothing else."""
        return self.output is ActionFormat.JSON

    def say(self, parts: Iterable[Part]) -> None:
        """Write parts of a document, wrapped to the terminal, for a person."""
        from toolkit.views.renderers import text_lines

        if not self.is_json:
            show(text_lines(parts, connection=self.connection, width=width()))

    def show_finding(self, finding: Finding) -> None:
        """Write what is known of the transaction, for a person."""
        from toolkit.views.document import Quote
        from toolkit.views.finding_document import finding_section

        self.say([finding_section(finding), Quote("")])  # and an empty line

    def planned(self, plan: Callable[..., Plan], cluster: Cluster, target: Finding | str, **options: Any) -> Plan:
        """The plan for a transaction or an id. The audit trail has it if what was confirmed is refused already here."""
        try:
            return plan(cluster, target, **options)
        except ActionRefused as error:
            if self.confirm is not None:
                from toolkit.actions.plan import step_on

                if isinstance(target, str):
                    name, columns = target, {"transactional_id": target}
                else:
                    name = f"{target.tp}@{target.start_offset}"
                    columns = {each: getattr(target, each) for each in OF_MARKER}
                self.audit.refused(error, step_on(cluster, self.action, name, **columns))
            raise

    def act(self, plan: Plan | PlanList, execute: Callable[..., Any], *, saves: bool = False) -> None:
        """Write the dry run, or do it once it is confirmed, and write what was done.

        `execute`: of the plan. `saves`: whether records are saved beside the audit trail.
        Raises typer.Exit: of a dry run that would be refused. Raises KeyboardInterrupt: at Ctrl-C, with a note that
        nothing was sent. Raises ToolkitError: what stopped a list, once the result is written.
        """
        from toolkit.actions.plan import ListResult, PlanList, no_targets
        from toolkit.views.action_document import preview, result

        confirmed = self.confirm
        parts = preview(plan, audit=self.audit if saves else None, override=self.override)
        if isinstance(plan, PlanList) and not plan.plans:
            self.say(parts)
            if confirmed is None:
                raise no_targets()
        if confirmed is None:
            self._write(plan, parts)
            refusal, needed = getattr(plan, "refusal", None), getattr(plan, "needed_override", None)
            is_refused = refusal is not None if self.override is None else self.override != needed
            if is_refused:
                raise typer.Exit(REFUSED)
            confirmed = self._typed(plan.target) if not self.is_json and is_at_terminal() else None
        if confirmed is None:
            return
        show_turn(plan)
        done = execute(confirm=confirmed, audit=self.audit)
        path = self.audit.path
        self._write(plan, result(plan, done, str(path)), result=done, audit_file=path)
        if isinstance(done, ListResult) and done.error is not None:
            raise done.error

    def _write(self, plan: Plan | PlanList, parts: Sequence[Part], **done: Any) -> None:
        from toolkit.views.renderers import json_value
        from toolkit.views.row_formats import array_pieces

        if not self.is_json:
            self.say(parts)
            return
        row = ActionRow(
            action=self.action,
            target=plan.target,
            dry_run=not done,
            refusal=getattr(plan, "refusal", None),
            warnings=getattr(plan, "warnings", ()),
            plan=plan,
            document=json_value(parts, connection=self.connection),
            **done,
        )
        rows = [{each.name: plain(getattr(row, each.name)) for each in dataclasses.fields(row)}]
        answer_json(SCHEMA, VERSION, array_pieces(rows), source=plan.cluster, scope=plan.cluster.scope)

    def _typed(self, target: str) -> str | None:
        """What a person types at a terminal; null if nothing."""
        question = f"Type {printable(target)} to confirm; Enter cancels"
        try:
            return str(typer.prompt(question, default="", show_default=False)).strip() or None
        except typer.Abort as aborted:
            if isinstance(aborted.__context__, EOFError):  # Ctrl-D
                show(["", NOT_CONFIRMED])
                return None
            interrupt = KeyboardInterrupt()
            interrupt.add_note(NOT_CONFIRMED)
            raise interrupt from aborted


def is_at_terminal() -> bool:
    """Whether a person can answer a prompt."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def plain(value: Any) -> Any:
    """A value as plain values: records as objects."""
    if dataclasses.is_dataclass(value):
        names = [each.name for each in dataclasses.fields(value) if each.name not in INTERNAL]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str | dt.datetime) else str(value)


COLUMNS: Mapping[str, Callable[[str], str | int]] = {
    "topic": str,
    "partition": int,
    "producer_id": int,
    "start_offset": int,
}

LISTS = "Make it by kafka-txn find-hanging --format csv."


def read_list(path: Path) -> list[Row]:
    """The transactions of a CSV file of ``find-hanging``, by the columns that name them.

    Raises UsageError if it cannot be read, lacks a column, or an entry is no number.
    """
    csv.field_size_limit(1 << 30)  # the evidence of a finding
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if missing := COLUMNS.keys() - set(rows.fieldnames or ()):
                raise UsageError(f"{path} has no column {', '.join(sorted(missing))}.", do=LISTS)
            found = list(rows)
            if len(clusters := {row["cluster"] for row in found if "cluster" in row}) > 1:
                raise UsageError(f"{path} names transactions of {', '.join(sorted(clusters))}.", do="Use one for each.")
            return [
                {
                    "cluster_id": row.get("cluster_id") or None,
                    **{name: read(row[name]) if row[name] else None for name, read in COLUMNS.items()},
                }
                for row in found
            ]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.", do=LISTS) from None
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{path} is no list of transactions: {error}.", do=LISTS) from None


MAX_SAVE_BYTES = 256_000_000  # as of actions.saved_records, which imports Arrow

StartOffset = Annotated[int, option("--start-offset OFFSET", "First offset of the transaction.", min=0)]
OneTopic = Annotated[str | None, option("--topic TOPIC", "Topic; needed without --list.")]
OnePartition = Annotated[int | None, option("--partition N", "Partition number; needed without --list.", min=0)]
OneStartOffset = Annotated[
    int | None, option("--start-offset OFFSET", "First offset of the transaction; needed without --list.", min=0)
]
ConfirmTransaction = Annotated[
    str | None,
    option(
        "--confirm TOPIC-PARTITION@OFFSET",
        "Do it: name the transaction, orders-0@913095344. Default: ask at a terminal, else a dry run.",
    ),
]
ConfirmId = Annotated[
    str | None, option("--confirm ID", "Do it: repeat the id. Default: ask at a terminal, else a dry run.")
]
AuditFile = Annotated[
    Path | None,
    option(
        "--audit-file FILE",
        "File of the audit trail. Default: audit.jsonl in the user's state directory.",
        envvar="KAFKA_TXN_AUDIT_FILE",
    ),
]
Override = Annotated[
    str | None,
    option(
        "--override CLAIM",
        "Act although this is not proven: what the dry run names, word for word. What is refuted cannot be overridden.",
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
        option(
            "--list FILE",
            "Abort many, one after another up to the first that is not as planned: a CSV file of kafka-txn "
            "find-hanging --format csv, a line each. --confirm '12 transactions' names their number.",
        ),
    ] = None,
    confirm: ConfirmTransaction = None,
    override: Override = None,
    save_records: Annotated[
        bool,
        option(
            "--save-records/--no-save-records",
            "Save the transaction's records to a Parquet file beside the audit trail before they are discarded. "
            "They need not be saved where it is proven that they were not committed.",
        ),
    ] = True,
    max_save_bytes: Annotated[
        int,
        option(
            "--max-save-bytes BYTES",
            "Most bytes of the log to save; for more, a terminal asks, and else the abort is refused.",
            min=0,
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
    from toolkit.actions.marker_actions import plan_abort, plan_abort_list
    from toolkit.actions.transaction import transaction_at

    if list_file is not None and (topic, partition, start_offset, override) != (None, None, None, None):
        raise UsageError(
            "--list names the transactions, and nothing of it can be overridden.",
            do="Leave --topic, --partition, --start-offset and --override out.",
        )
    answer = ActionAnswer.of(
        "abort", source_options, output=output, audit_file=audit_file, confirm=confirm, override=override
    )
    saving: dict[str, Any] = {"recheck_after": recheck_after, "save": save_records}
    if list_file is not None:
        transactions = read_list(list_file)
        with source_options.connect() as cluster:
            progress(f"Checking {len(transactions)} transactions ...")
            plans = plan_abort_list(cluster, transactions, recheck_after=recheck_after)
            saving |= {"max_save_bytes": max_save_bytes, "progress": show_turn}
            answer.act(plans, partial(plans.execute, **saving), saves=save_records)
        if plans.left_out:
            raise typer.Exit(REFUSED)
        return
    if topic is None or partition is None or start_offset is None:
        raise UsageError(
            "abort needs --topic, --partition and --start-offset, or --list.",
            do="kafka-txn find-hanging prints them, in a command to copy.",
        )
    with source_options.connect() as cluster:
        progress("Checking that it hangs ...")
        tp = TopicPartition(topic, partition)
        found = transaction_at(cluster, tp, start_offset=start_offset, recheck_after=recheck_after)
        plan = answer.planned(plan_abort, cluster, found)
        answer.show_finding(found)

        def execute(**options: Any) -> Result:
            limit = agreed_size(plan, max_save_bytes) if save_records and not answer.is_json else max_save_bytes
            return plan.execute(**options, **saving, override=override, max_save_bytes=limit)

        answer.act(plan, execute, saves=save_records)


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
    from toolkit.actions.marker_actions import plan_complete
    from toolkit.actions.transaction import transaction_at

    answer = ActionAnswer.of(
        "complete", source_options, output=output, audit_file=audit_file, confirm=confirm, override=override
    )
    with source_options.connect() as cluster:
        progress("Checking what was decided ...")
        tp = TopicPartition(topic, partition)
        found = transaction_at(cluster, tp, start_offset=start_offset, recheck_after=recheck_after)
        answer.show_finding(found)
        plan = answer.planned(plan_complete, cluster, found)
        answer.act(plan, partial(plan.execute, override=override, recheck_after=recheck_after))


@takes_source("flink_checkpoint")
def commit(
    *,
    transactional_id: Annotated[str, option("--transactional-id ID", "Transactional id that the checkpoint names.")],
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
    from toolkit.actions.coordinator_actions import plan_commit

    if not source_options.flink_checkpoint:
        raise UsageError("commit needs the checkpoint that decides.", do="Add --flink-checkpoint PATH.")
    answer = ActionAnswer.of("commit", source_options, output=output, audit_file=audit_file, confirm=confirm)
    with source_options.connect() as cluster:
        progress("Checking what the checkpoint and the coordinator say ...")
        plan = answer.planned(plan_commit, cluster, transactional_id, recheck_after=recheck_after)
        answer.act(plan, partial(plan.execute, recheck_after=recheck_after))


@takes_source("flink_checkpoint")
def fence(
    *,
    transactional_id: Annotated[str, option("--transactional-id ID", "Transactional id to fence.")],
    confirm: ConfirmId = None,
    override: Override = None,
    audit_file: AuditFile = None,
    max_transaction_timeout: MaxTransactionTimeout = 900,
    output: ActionOutput = ActionFormat.TABLE,
    source_options: SourceOptions,
) -> None:
    """Fence a transactional id: abort its transaction everywhere, and fence its producer. Dry run unless confirmed.

    The remedy for an owner that is overdue. One that is live within its own timeout (ongoing, long), prepared or idle,
    or may have committed records open, is refused unless --override repeats what the dry run names; one whose outcome
    is decided, or that a checkpoint is to commit, always is.
    """
    from toolkit.actions.coordinator_actions import FLINK, plan_fence
    from toolkit.views.action_document import fence_owner
    from toolkit.views.document import Paragraph

    answer = ActionAnswer.of(
        "fence", source_options, output=output, audit_file=audit_file, confirm=confirm, override=override
    )
    with source_options.connect() as cluster:
        limit = {"max_transaction_timeout_ms": int(max_transaction_timeout * 1000)}
        plan = answer.planned(plan_fence, cluster, transactional_id, **limit)
        answer.say(fence_owner(plan))
        if confirm is not None and FLINK in plan.warnings:
            answer.say([Paragraph(f"Warning: {FLINK}")])
        answer.act(plan, partial(plan.execute, override=override))


def show_turn(plan: Plan | PlanList) -> None:
    """Say whose turn it is, at a terminal."""
    progress(f"Checking {plan.target} again ...")


def agreed_size(plan: Plan, max_save_bytes: int) -> int:
    """The limit, raised where a person agrees to save more."""
    size = plan.impact.size
    if size is None or size <= max_save_bytes or not is_at_terminal():
        return max_save_bytes
    question = f"Its records take {size_text(size)}, more than {size_text(max_save_bytes)}. Save them all the same?"
    return size if typer.confirm(question) else max_save_bytes
