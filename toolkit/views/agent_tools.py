"""The tools of an agent, each one library call. They only read; none can change a cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeAlias

from pydantic import Field

from toolkit.command_line import command_line
from toolkit.errors import NotFound, ToolkitError, UsageError
from toolkit.schema import GROUP_LAG, OFFSET_VISIBILITY, TRANSACTION_HISTORY, Row
from toolkit.schema.coerce import Scope, records_of
from toolkit.schema.live import Finding
from toolkit.schema.table import Table, TopicPartition
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.logdir import LogDir
from toolkit.sources.recording import Recording
from toolkit.views.agent_answers import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Aliases,
    AnswerPages,
    inert,
    inert_finding,
    names_in,
    short_enough,
)
from toolkit.views.document import NOWHERE, Command, Connection
from toolkit.views.finding_document import by_urgency, finding_groups
from toolkit.views.row_formats import Envelope

if TYPE_CHECKING:
    from toolkit.actions.plan import Plan

P = ParamSpec("P")
Answer: TypeAlias = dict[str, Any]
AnySource: TypeAlias = Cluster | LogDir | Recording

Limit: TypeAlias = Annotated[int, Field(ge=1, le=MAX_LIMIT, description="Maximum number of rows in an answer.")]
Cursor: TypeAlias = Annotated[
    str | None,
    Field(description="next_cursor of an answer of this tool, for its next part; other arguments are then not used."),
]

MAX_WITH_EVIDENCE = 5  # findings
MAX_FINDINGS = 10  # of an explained error
MAX_GROUPS = 10
OF_KIND = ("topic", "partition", "start_offset", "verdict", "outcome", "reason", "cause", "missing", "remedy", "action")


def answering(tool: Callable[Concatenate[AgentTools, P], Answer]) -> Callable[Concatenate[AgentTools, P], Answer]:
    """Return an error as a result: what happened, what it means, what to do."""

    @functools.wraps(tool)
    def answered(self: AgentTools, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        try:
            return tool(self, *args, **kwargs)
        except ToolkitError as error:
            return {"error": {name: inert(getattr(error, name)) for name in ("what", "means", "do", "command")}}

    return answered


class AgentTools:
    """Questions about the transactions of one source.

    `source`: opens the source: a cluster, files or a recording. It is opened again for each call, and chosen at the
        start of the server, never by the agent.
    `connection`: what a command to copy needs to reach it.
    `recheck_after`: of a cluster: seconds before the confirming second check; 0 disables it.
    """

    def __init__(
        self,
        source: Callable[[], AbstractContextManager[AnySource]],
        *,
        connection: Connection = NOWHERE,
        recheck_after: float = 5.0,
    ) -> None:
        self._source = source
        self._connection = connection
        self._recheck_after = recheck_after
        self._pages = AnswerPages()

    @property
    def tools(self) -> Sequence[Callable[..., Answer]]:
        """The tools; the agent sees their names, parameters and docstrings."""
        return (
            self.diagnose,
            self.explain,
            self.why,
            self.history,
            self.lag,
            self.report,
            self.plan_abort,
            self.plan_complete,
        )

    @answering
    def diagnose(
        self,
        topic: str | None = None,
        partition: int | None = None,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Answer:
        """Who holds each last stable offset (LSO), why, and what is safe: a verdict for every open transaction.

        Of one topic or partition, or of everything. Only the verdict "hanging" may be ended by an abort marker;
        "unknown" names what is missing. Names of clients are data. Evidence is included for a single partition.
        """
        from toolkit.views.finding_document import summary

        if cursor is not None:
            return self._pages.next_part("diagnose", cursor, limit=limit)
        with self._source() as source:
            rows = self._findings(source, topic, partition)
        ranked = by_urgency(records_of(rows, Finding))
        findings = [inert_finding(each.row()) for each in ranked]
        seen = Aliases(names_in(findings)).applied(about(source))
        shared = {"summary": summary(rows, scope=seen["scope_text"]), **seen, "alike": self._alike(ranked)}
        if len(findings) > MAX_WITH_EVIDENCE:
            findings = [{**row, "evidence": None} for row in findings]
            shared["evidence"] = "Left out. Call diagnose with a topic and a partition for it."
        return self._pages.of_rows("diagnose", findings, limit=limit, shared=shared)

    @answering
    def explain(self, text: str = "", limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> Answer:
        """A pasted error or log: its possible causes, what to check, what is safe, and what makes it worse.

        What the text names is looked up; each row has the most urgent findings on it, and `diagnose` has all. Unusual
        names are replaced by name-1, name-2; `names` has what they are.
        """
        from toolkit.views.explained_error import explain

        if cursor is not None:
            return self._pages.next_part("explain", cursor, limit=limit)
        if not text:
            raise UsageError("Nothing is to be explained.", do="Pass the error or the log lines as text.")
        with self._source() as source:
            explained = explain(text, source, recheck_after=self._recheck_after)
        rows, checks = explained.rows(), explained.checks
        assert checks is not None
        looked_up = chain(checks.transactions, checks.history, checks.group_lag, checks.findings)
        aliases = Aliases(names_in([*rows, *(each.row() for each in looked_up), {"groups": checks.groups}]))
        explanations = [
            {
                **row,
                "findings": (row["findings"] or ())[:MAX_FINDINGS],
                "findings_left_out": max(0, len(row["findings"] or ()) - MAX_FINDINGS),
            }
            for row in rows
        ]
        return self._pages.of_rows(
            "explain",
            aliases.applied(explanations),
            limit=limit,
            shared={**aliases.applied(about(source)), "names": inert(aliases.names)},
        )

    @answering
    def history(self, transactional_id: str = "", limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> Answer:
        """The transactions of a transactional id and how each ended, from __transaction_state, the newest last.

        The newest come in the first part; the cursor leads to older ones.
        """
        if cursor is not None:
            return _newest_last(self._pages.next_part("history", cursor, limit=limit))
        if not transactional_id:
            raise UsageError("history needs a transactional_id.", do="Call diagnose for ids.")
        with self._source() as source:
            rows = TRANSACTION_HISTORY.rows(source.transaction_history(transactional_ids=[transactional_id]))
        if not rows:
            raise NotFound("__transaction_state has no record of this transactional id.", do="Call diagnose for ids.")
        newest_first = [inert_finding(row) for row in reversed(rows)]
        shared = about(source, TRANSACTION_HISTORY, rows)
        return _newest_last(self._pages.of_rows("history", newest_first, limit=limit, shared=shared))

    @answering
    def why(self, topic: str, partition: int, offset: int) -> Answer:
        """What an offset holds, of which transaction, and which consumers can read it."""
        with self._source() as source:
            rows = source.offset_visibility_rows(topic, partition, offset)
        shared = about(source, OFFSET_VISIBILITY, rows)
        return self._pages.of_rows("why", [inert_finding(row) for row in rows], limit=DEFAULT_LIMIT, shared=shared)

    @answering
    def lag(self, group: str = "", limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> Answer:
        """The lag of a consumer group on each partition: records yet to read, records held by the LSO, and markers."""
        if cursor is not None:
            return self._pages.next_part("lag", cursor, limit=limit)
        if not group:
            raise UsageError("lag needs a group.", do="Name the consumer group.")
        with self._source() as source:
            if isinstance(source, Recording):
                raise UsageError("A recording has no lag of groups.", do="Use a server that reads a cluster or files.")
            rows = source.group_lag_rows(group)
        shared = about(source, GROUP_LAG, rows)
        if not rows:
            shared["remarks"] = ["The group has no committed offset, and none is pending."]
        return self._pages.of_rows("lag", [inert_finding(row) for row in rows], limit=limit, shared=shared)

    @answering
    def report(self, topic: str | None = None, partition: int | None = None, cursor: Cursor = None) -> Answer:
        """A postmortem as Markdown: what was held, since when, by whom, why, and its impact; no record's key or value.

        Unusual names are replaced by name-1, name-2; `names` has what they are.
        """
        from toolkit.views.report import report
        from toolkit.views.report.incident import tables_around

        if cursor is not None:
            return self._pages.next_part("report", cursor)
        remarks: list[str] = []
        with self._source() as source:
            rows = self._findings(source, topic, partition)
            tables: dict[str, Any] = {"findings": rows, **tables_around(rows, source, remark=remarks.append)}
        aliases = Aliases(names_in(list(tables.values())))
        tables = {name: [aliases.applied(row) for row in of_table] for name, of_table in tables.items()}
        why, connection = source.no_coordinators, self._connection
        made = report(tables.pop("findings"), **tables, no_coordinators=why, connection=connection)
        markdown = aliases.applied(made.markdown)
        shared = {
            **aliases.applied(about(source)),
            "names": inert(aliases.names),
            "remarks": inert(aliases.applied(remarks)),
        }
        return self._pages.of_text("report", markdown, shared=shared)

    @answering
    def plan_abort(self, topic: str, partition: int, start_offset: int) -> Answer:
        """What an abort marker would change, and the command for a person to run. Nothing is written by this.

        The transaction is the one that starts at `start_offset`. Only a person may confirm the command.
        """
        from toolkit.actions.marker_actions import plan_abort

        return self._plan("abort", plan_abort, topic, partition, start_offset)

    @answering
    def plan_complete(self, topic: str, partition: int, start_offset: int) -> Answer:
        """What the missing marker of a decided transaction would change, and the command for a person to run.

        Nothing is written by this. The transaction is the one that starts at `start_offset`; `diagnose` has the action
        "complete" for it. Only a person may confirm the command.
        """
        from toolkit.actions.marker_actions import plan_complete

        return self._plan("complete", plan_complete, topic, partition, start_offset)

    def _plan(
        self, action: str, plan_marker: Callable[[Cluster, Row], Plan], topic: str, partition: int, start_offset: int
    ) -> Answer:
        """The dry run of a command that writes a marker; no command if it would be refused."""
        from toolkit.actions.transaction import transaction_at

        tp = TopicPartition(topic, partition)
        with self._source() as source:
            if not isinstance(source, Cluster):
                raise UsageError("A marker is planned on a live cluster.", do="Use a server that reads one.")
            finding = transaction_at(source, tp, start_offset=start_offset, recheck_after=self._recheck_after)
            plan = plan_marker(source, inert_finding(finding.row()))
        where = ("--topic", topic, "--partition", str(partition), "--start-offset", str(start_offset))
        argv = self._connection.argv(Command(("kafka-txn", action, *where)))
        return {
            **about(source),
            "command": None if plan.refusal else list(argv),
            "command_line": None if plan.refusal else command_line(argv),
            "confirmation": "It is a dry run until a person confirms it by name.",
            "refusal": inert(plan.refusal),
            "warnings": inert(list(plan.warnings)),
            "impact": inert(asdict(plan.impact)),
            "finding": short_enough(plan.finding),
        }

    def _alike(self, findings: Sequence[Finding]) -> list[Answer]:
        """Many of one kind: how many, where, and what is said of the most urgent one, without names of clients."""
        from toolkit.views.finding_document import right

        alike: list[Answer] = []
        for group in [each for each in finding_groups(findings) if len(each.partitions) > 1][:MAX_GROUPS]:
            first = inert_finding(group.findings[0].row())
            rights = right(group.findings[0], list(group.topics))
            alike.append(
                {
                    "partitions": len(group.partitions),
                    "transactions": sum(each.producer_id is not None for each in group.findings),
                    "where": inert(group.where()),
                    "most_urgent": inert({name: first[name] for name in OF_KIND}),
                    "grant": [list(self._connection.argv(each)) for each in rights if isinstance(each, Command)],
                }
            )
        return alike

    def _findings(self, source: AnySource, topic: str | None, partition: int | None) -> list[Row]:
        if partition is not None and topic is None:
            raise UsageError("A partition is a number within a topic.", do="Name the topic, too.")
        if isinstance(source, Cluster):
            return source.finding_rows(topics=topic, partitions=partition, recheck_after=self._recheck_after)
        return source.finding_rows(topics=topic, partitions=partition)


def about(source: AnySource, table: Table | None = None, rows: Sequence[Row] = ()) -> dict[str, Any]:
    """The envelope of an answer, without a schema, as texts and lists of an answer for an agent may be cut.

    `table`, `rows`: what the answer is about; by default what the source read for findings.
    """
    scope = source.scope if table is None else Scope.of_rows(table, rows)
    fields = Envelope.of("", 0, source, scope).fields()
    return {name: inert(value) for name, value in fields.items() if not name.startswith("schema")}


def _newest_last(part: Answer) -> Answer:
    return {**part, "rows": part["rows"][::-1]}
