"""`report`: from rows to a `Report`."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.errors import UsageError
from toolkit.schema import Row
from toolkit.schema.actions import ActionStep
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.live import Finding, Partition
from toolkit.schema.log import LogTransaction, LsoStep, PastTransaction
from toolkit.schema.metadata import ClusterEvent
from toolkit.views.findings_text import summary
from toolkit.views.report.finding_sections import MAX_FINDINGS, NOTHING_OPEN, answer, by_weight, is_answer, others
from toolkit.views.report.gap_chart import gap_chart
from toolkit.views.report.report_parts import Figure, Grid, ReportSection, ReportTables, html, markdown, partition_name
from toolkit.views.report.report_tables import (
    action_grid,
    event_grid,
    evidence_grid,
    history_grid,
    log_transaction_grid,
)
from toolkit.views.row_formats import printable, replaced_file

SUFFIXES = (".html", ".md")


@dataclass(frozen=True, kw_only=True)
class Report:
    """The postmortem of an incident, as a page and as Markdown.

    Parameters
    ----------
    title
        Heading.
    summary
        Sentences under the heading: time, sources, summary.
    sections
        Content.
    figure
        As for `report`.
    """

    title: str
    summary: tuple[str, ...]
    sections: tuple[ReportSection, ...]
    figure: Figure | None = field(default=None, repr=False)

    @cached_property
    def html(self) -> str:
        """One self-contained page without network requests."""
        return html(self.title, self.summary, self.sections, figure=self.figure)

    @cached_property
    def markdown(self) -> str:
        """The same content, without the figure."""
        return markdown(self.title, self.summary, self.sections)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a ``.html`` or ``.md`` file, completely or not at all, and return its path.

        Raises
        ------
        UsageError
            For another suffix, or a path that cannot be written to.
        """
        path = Path(path)
        if path.suffix not in SUFFIXES:
            raise UsageError(f"{path} ends in none of {', '.join(SUFFIXES)}.", do="The suffix selects the format.")
        text = self.html if path.suffix == ".html" else self.markdown
        with replaced_file(path) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        """Show it in a frame, so that its styles do not affect the notebook."""
        from html import escape

        return (
            f'<iframe title="postmortem" srcdoc="{escape(self.html)}" style="width:100%;height:80vh;border:0"></iframe>'
        )


def report(
    findings: Data,
    *,
    log_transactions: Data = None,
    lso_timeline: Data = None,
    transaction_history: Data = None,
    partitions: Data = None,
    cluster_events: Data = None,
    actions: Data = None,
    figure: Figure | None = None,
    title: str | None = None,
    generated_at: dt.datetime | None = None,
) -> Report:
    """Make a postmortem: what was held, since when, until when, by whom, why, who was affected, what was done.

    Every table is a frame or its rows. The report lists missing tables. Neither keys nor values of records, nor
    settings of a client, are in any of these tables.

    Parameters
    ----------
    findings
        ``schema.FINDINGS``; those of a recording or of ``LogDir.findings(min_held_ms=...)`` include ended transactions.
    log_transactions, lso_timeline, transaction_history
        ``schema.LOG_TRANSACTIONS``, ``LSO_TIMELINE`` and ``TRANSACTION_HISTORY`` of the same partitions and ids.
    partitions
        ``schema.PARTITIONS`` at several times, as a recording has them: the LSO where no log is at hand.
    cluster_events
        ``schema.CLUSTER_EVENTS``: of leaders and brokers; those near the incident are in its timeline.
    actions
        ``schema.ACTIONS``, the audit trail, of which only these partitions and ids are included.
    figure
        A plotly Figure for the page, or a function that gives one for ``"light"`` and for ``"dark"``; plotly's script
        (4 MB) comes along. Without it, and on paper, the page draws the LSO itself.
    title
        Heading; made of the partitions if null.
    generated_at
        Now, if null.
    """
    records = records_of(findings, Finding)
    main_findings = complete(records)
    given = {
        "log_transactions": log_transactions,
        "lso_timeline": lso_timeline,
        "transaction_history": transaction_history,
        "partitions": partitions,
        "actions": actions,
    }
    samples, sampled_at = _samples(partitions)
    tables = ReportTables(
        log_transactions=records_of(log_transactions, LogTransaction),
        lso_timeline=records_of(lso_timeline, LsoStep),
        transaction_history=records_of(transaction_history, PastTransaction),
        partitions=samples,
        sampled_at=sampled_at,
        cluster_events=records_of(cluster_events, ClusterEvent),
        actions=_about(records_of(actions, ActionStep), records),
        absent=[name for name, table in given.items() if table is None],
    )
    return Report(
        title=printable(title) if title else _title(main_findings or records),
        summary=tuple(_summary(records, generated_at or dt.datetime.now(dt.UTC))),
        sections=tuple(_sections(records, main_findings, tables, has_figure=figure is not None)),
        figure=figure,
    )


def complete(findings: Iterable[Finding]) -> list[Finding]:
    """The findings with a section, the most urgent first: at most `MAX_FINDINGS`."""
    return [finding for finding in by_weight(findings) if is_answer(finding)][:MAX_FINDINGS]


def _samples(partitions: Data) -> tuple[list[Partition], frozenset[dt.datetime]]:
    """The partition at several times, and when the samples of a recording were due, whose rows say it."""
    if partitions is None or hasattr(partitions, "columns"):
        return records_of(partitions, Partition), frozenset()
    rows = list(cast("Iterable[Row]", partitions))
    due = frozenset(row["sampled_at"] for row in rows if isinstance(row, Mapping) and row.get("sampled_at"))
    return records_of(rows, Partition), due


def _about(actions: Iterable[ActionStep], findings: Sequence[Finding]) -> list[ActionStep]:
    """Steps of the audit trail about these partitions or ids, and unreadable lines."""
    topic_partitions = {(finding.topic, finding.partition) for finding in findings}
    names = {finding.transactional_id for finding in findings if finding.transactional_id is not None}

    def is_about(action: ActionStep) -> bool:
        if action.topic is not None:
            return (action.topic, action.partition) in topic_partitions
        return action.transactional_id in names or not action.target

    return list(filter(is_about, actions))


def _title(findings: Iterable[Finding]) -> str:
    names = list(dict.fromkeys(map(partition_name, findings)))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"Postmortem: {', '.join(names[:3])}{more}" if names else "Postmortem: nothing is open"


def _summary(findings: Sequence[Finding], generated_at: dt.datetime) -> Iterator[str]:
    yield f"In short: {summary(findings)}."
    times = [finding.observed_at for finding in findings if finding.observed_at]
    as_of = f"; as of {at(max(times))}" if times else ""
    yield f"Made at {at(generated_at)}{as_of}. All times are in UTC."


def _sections(
    findings: Sequence[Finding], shown: Sequence[Finding], tables: ReportTables, *, has_figure: bool
) -> Iterator[ReportSection]:
    yield from (answer(finding, log_transactions=tables.log_transactions) for finding in shown)
    rest = [finding for finding in findings if not any(finding is one for one in shown)]
    if rest:
        yield ReportSection(title="What else was found" if shown else "What was found", grids=(others(rest),))
    elif not shown:
        yield ReportSection(title="Nothing is open", lead="No transaction is open, and no last stable offset is held.")
    yield _done(tables)
    yield _timeline(shown, tables, has_figure=has_figure)
    around = _around(shown, tables)
    if around:
        yield ReportSection(title="Transactions and coordinators", grids=around)
    if shown:
        yield ReportSection(
            title="Evidence", lead="Observed values, with source and time.", grids=tuple(map(evidence_grid, shown))
        )
    yield ReportSection(title="Missing and unknown", lead=printable(" ".join(_missing(shown, tables))))


def _done(tables: ReportTables) -> ReportSection:
    title = "What was done"
    if "actions" in tables.absent:
        return ReportSection(title=title, lead="There is no audit trail.")
    if not tables.actions:
        return ReportSection(title=title, lead="The audit trail has nothing about these partitions.")
    return ReportSection(title=title, grids=(action_grid(tables.actions),))


def _timeline(shown: Sequence[Finding], tables: ReportTables, *, has_figure: bool) -> ReportSection:
    first_of_partition = {(finding.topic, finding.partition): finding for finding in reversed(shown)}
    charts = [
        gap_chart(
            finding,
            steps=tables.lso_timeline,
            log_transactions=tables.log_transactions,
            samples=tables.partitions,
        )
        for finding in reversed(first_of_partition.values())
    ]
    grids = tuple(event_grid(finding, tables) for finding in shown if finding.producer_id is not None)
    lead = ""
    if not grids and not has_figure:
        unknown = any(finding.verdict not in NOTHING_OPEN for finding in shown)
        lead = "It could not be read whether anything was open." if unknown else "Nothing was open."
    drawn = tuple(chart for chart in charts if chart)
    return ReportSection(title="Timeline", lead=lead, grids=grids, charts=drawn, figure=has_figure)


def _around(shown: Iterable[Finding], tables: ReportTables) -> tuple[Grid, ...]:
    grids: list[Grid] = []
    for finding in shown:
        grids.append(log_transaction_grid(tables.log_transactions, finding))
        if finding.producer_id is not None:
            grids.append(history_grid(tables.transaction_history, finding))
    return tuple({grid.title: grid for grid in grids if grid.rows}.values())


def _missing(shown: Sequence[Finding], tables: ReportTables) -> Iterator[str]:
    absent = [name for name in tables.absent if name != "partitions" or "lso_timeline" in tables.absent]
    if absent:
        yield f"Not included: {', '.join(absent)}."
    missing = [f"{partition_name(finding)}: {text}" for finding in shown for text in finding.missing]
    missing += [
        f"{partition_name(finding)}: {finding.error}"
        for finding in shown
        if finding.error and finding.error not in finding.missing
    ]
    errors = {
        "log_transactions": [txn.error for txn in tables.log_transactions],
        "transaction_history": [past.error for past in tables.transaction_history],
        "partitions": [sample.error for sample in tables.partitions],
        "cluster_events": [event.error for event in tables.cluster_events],
    }
    missing += [f"{name}: {error}" for name, texts in errors.items() for error in dict.fromkeys(texts) if error]
    yield f"Not read: {'; '.join(missing)}." if missing else "No evidence is missing."
