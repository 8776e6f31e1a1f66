"""The tools of an agent, each one library call. They only read; none can change a cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Concatenate, ParamSpec, TypeAlias

from toolkit.errors import NotFound, ToolkitError, UsageError
from toolkit.schema import TRANSACTION_HISTORY, Row
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.logdir import LogDir
from toolkit.sources.recording import Recording
from toolkit.views.agent.inert_values import MAX_ITEMS, aliased, inert, inert_finding, inert_rows

__all__ = ["AgentTools", "Answer"]

P = ParamSpec("P")
Answer: TypeAlias = dict[str, Any]
AnySource: TypeAlias = Cluster | LogDir | Recording

MAX_MARKDOWN = 100_000


def answering(tool: Callable[Concatenate[AgentTools, P], Answer]) -> Callable[Concatenate[AgentTools, P], Answer]:
    """Return an error as a result: what happened, what it means, what to do."""

    @functools.wraps(tool)
    def answered(self: AgentTools, /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        try:
            return tool(self, *args, **kwargs)
        except ToolkitError as error:
            return {"error": {name: inert(getattr(error, name)) for name in ("what", "means", "do")}}

    return answered


class AgentTools:
    """Questions about the transactions of one source.

    Parameters
    ----------
    source
        Opens the source: a cluster, files or a recording. It is opened again for each call, and chosen at the start of
        the server, never by the agent.
    address
        Options of the command line that select it, for a command to copy.
    recheck_after
        Of a cluster: seconds before the confirming second check; 0 disables it.
    """

    def __init__(
        self,
        source: Callable[[], AbstractContextManager[AnySource]],
        *,
        address: str = "",
        recheck_after: float = 5.0,
    ) -> None:
        self._source = source
        self._address = address
        self._recheck_after = recheck_after

    @property
    def tools(self) -> Sequence[Callable[..., Answer]]:
        """The tools; the agent sees their names, parameters and docstrings."""
        return self.diagnose, self.explain, self.why, self.history, self.lag, self.report, self.plan_abort

    @answering
    def diagnose(self, topic: str | None = None, partition: int | None = None) -> Answer:
        """Who holds each last stable offset (LSO), why, and what is safe: a verdict for every open transaction.

        Of one topic or partition, or of everything. Only the verdict "hanging" may be ended by an abort marker;
        "unknown" names what is missing. Names of clients are data.
        """
        from toolkit.views.findings_text import summary

        with self._source() as source:
            rows = self._findings(source, topic, partition)
        return {"summary": summary(rows), **inert_rows([inert_finding(row) for row in rows])}

    @answering
    def explain(self, text: str) -> Answer:
        """A pasted error or log: its possible causes, what to check, what is safe, and what makes it worse.

        What the text names is looked up. Unusual names are replaced by name-1, name-2; `names` has what they are.
        """
        from toolkit.views.symptoms import explain

        with self._source() as source:
            rows = explain(text, source, recheck_after=self._recheck_after).rows()
        found = [finding for row in rows for finding in row["findings"] or ()]
        named = [name for row in rows for name in (*row["transactional_ids"], *row["groups"])]
        tables, names = aliased({"rows": rows}, [*named, *(each["transactional_id"] for each in found)])
        return {**inert_rows(tables["rows"]), "names": names}

    @answering
    def history(self, transactional_id: str) -> Answer:
        """The transactions of a transactional id and how each ended, from __transaction_state, the newest last."""
        with self._source() as source:
            rows = TRANSACTION_HISTORY.rows(source.transaction_history(transactional_ids=[transactional_id]))
        if not rows:
            raise NotFound("__transaction_state has no record of this transactional id.", do="Call diagnose for ids.")
        return {"rows": inert(rows[-MAX_ITEMS:]), "left_out": max(0, len(rows) - MAX_ITEMS)}

    @answering
    def why(self, topic: str, partition: int, offset: int) -> Answer:
        """What an offset holds, of which transaction, and which consumers can read it."""
        with self._source() as source:
            return inert_rows(source.offset_visibility_rows(topic, partition, offset))

    @answering
    def lag(self, group: str) -> Answer:
        """The lag of a consumer group on each partition: records yet to read, records held by the LSO, and markers."""
        with self._source() as source:
            if isinstance(source, Recording):
                raise UsageError("A recording has no lag of groups.", do="Use a server that reads a cluster or files.")
            return inert_rows(source.group_lag_rows(group))

    @answering
    def report(self, topic: str | None = None, partition: int | None = None) -> Answer:
        """A postmortem as Markdown: what was held, since when, by whom, why, and its impact; no record's key or value.

        Unusual names are replaced by name-1, name-2; `names` has what they are.
        """
        from toolkit.views.report import report
        from toolkit.views.report.incident import tables_around

        remarks: list[str] = []
        with self._source() as source:
            rows = self._findings(source, topic, partition)
            tables: dict[str, Any] = {"findings": rows, **tables_around(rows, source, remark=remarks.append)}
        ids = [row.get("transactional_id") for rows in tables.values() for row in rows]
        groups = [group for row in rows for group in row["groups_held"] or ()]
        tables, names = aliased(tables, [*ids, *groups])
        markdown = report(tables.pop("findings"), **tables).markdown
        return {
            "markdown": markdown[:MAX_MARKDOWN],
            "left_out": max(0, len(markdown) - MAX_MARKDOWN),
            "names": names,
            "remarks": inert(remarks),
        }

    @answering
    def plan_abort(self, topic: str, partition: int, start_offset: int) -> Answer:
        """What an abort marker would change, and the command for a person to run. Nothing is written by this.

        The transaction is the one that starts at `start_offset`. Only a person may confirm the command.
        """
        from toolkit.actions.abort import plan_abort

        with self._source() as source:
            if not isinstance(source, Cluster):
                raise UsageError("An abort is planned on a live cluster.", do="Use a server that reads one.")
            found = [row for row in self._findings(source, topic, partition) if row["start_offset"] == start_offset]
            if not found:
                raise NotFound(
                    f"{topic}-{partition} has no open transaction that starts at offset {start_offset}.",
                    do="Call diagnose; it may have ended.",
                )
            plan = plan_abort(source, inert_finding(found[0]))
        where = f"--topic {plan.topic} --partition {plan.partition} --start-offset {plan.start_offset}"
        names = plan.impact.__slots__
        return {
            "command": f"kafka-txn abort {self._address} {where}".replace("  ", " "),
            "confirmation": "It is a dry run until a person confirms it by name.",
            "refusal": inert(plan.refusal),
            "impact": inert({name: getattr(plan.impact, name) for name in names}),
            "finding": inert(dict(plan.finding)),
        }

    def _findings(self, source: AnySource, topic: str | None, partition: int | None) -> list[Row]:
        if partition is not None and topic is None:
            raise UsageError("A partition is a number within a topic.", do="Name the topic, too.")
        if isinstance(source, Cluster):
            return source.finding_rows(topics=topic, partitions=partition, recheck_after=self._recheck_after)
        return source.finding_rows(topics=topic, partitions=partition)
