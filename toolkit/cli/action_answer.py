"""What a command that acts writes: sentences and a prompt, or with ``--format json`` an answer of one row."""

from __future__ import annotations

import dataclasses
import datetime as dt
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolkit.cli.output import REFUSED, answer_json, progress, show, width
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.actions.plan import ListResult, Plan, PlanList, Result
    from toolkit.schema.live import Finding
    from toolkit.views.document import Connection, Part

SCHEMA, VERSION = "action", 1  # of `ActionRow` in JSON; the version is raised when a field of it changes
NOT_CONFIRMED = "Not confirmed: nothing was sent."
# Fields of a plan that are no fact for a person: a connection, a file, what this process measures for itself.
INTERNAL = {"action", "cluster", "checkpoint", "coordinators", "observation", "planned_at"}


class ActionFormat(StrEnum):
    """How an action is answered."""

    TABLE = "table"
    JSON = "json"


ActionOutput = Annotated[
    ActionFormat,
    typer.Option("--format", help="table for people; json for programs: one object, and no prompt, only --confirm."),
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
    """The answer of one command that acts."""

    action: str  # the command
    output: ActionFormat  # how it is written
    connection: Connection  # of the commands in it

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
        from toolkit.views.findings_text import finding_lines

        if not self.is_json:
            show([*finding_lines([finding], width=width(), connection=self.connection), ""])

    def act(
        self,
        plan: Plan,
        execute: Callable[..., Result],
        *,
        audit: Audit,
        confirm: str | None,
        override: str | None = None,
        saves: bool = False,
    ) -> None:
        """Write the dry run, or do it once it is confirmed, and write what was done.

        `execute`: of the plan. `saves`: whether records are saved beside the audit trail.
        Raises typer.Exit: of a dry run that would be refused.
        """
        from toolkit.views.action_document import preview

        parts = preview(plan, audit=audit if saves else None, override=override)
        is_refused = plan.refusal is not None and override != plan.needed_override
        confirmed = self.confirmation(plan, confirm, parts, is_refused=is_refused)
        if confirmed is None:
            return
        progress("Checking it again ...")
        done = execute(confirm=confirmed, audit=audit, override=override)
        self.show_result(plan, done, audit)

    def confirmation(
        self, plan: Plan | PlanList, option: str | None, preview: Sequence[Part], *, is_refused: bool = False
    ) -> str | None:
        """Write the dry run unless an option confirms it; return what was confirmed, null for a dry run.

        Raises typer.Exit: of a dry run that would be refused. Raises KeyboardInterrupt: at Ctrl-C, with a note that
        nothing was sent.
        """
        if option is not None:
            return option
        self._write(plan, preview)
        if is_refused:
            raise typer.Exit(REFUSED)
        return self._typed(plan.target) if not self.is_json and is_at_terminal() else None

    def show_result(self, plan: Plan | PlanList, done: Result | ListResult, audit: Audit) -> None:
        """Write what was done."""
        from toolkit.views.action_document import result

        self._write(plan, result(plan, done, str(audit.path)), result=done, audit_file=audit.path)

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
