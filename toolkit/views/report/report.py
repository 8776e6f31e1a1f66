"""`report`: from rows to a `Report`."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit import schema
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.errors import UsageError
from toolkit.views.findings_text import summary
from toolkit.views.report.finding_sections import MAX_FINDINGS, NOTHING_OPEN, answer, by_weight, is_answer, others
from toolkit.views.report.gap_chart import gap_chart
from toolkit.views.report.report_parts import Figure, Grid, ReportSection, html, markdown, named
from toolkit.views.report.report_tables import (
    action_grid,
    event_grid,
    evidence_grid,
    history_grid,
    log_transaction_grid,
)
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    import pandas as pd

    from toolkit.schema import Row

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
        """One self-contained page without network requests.

        Raises
        ------
        UsageError
            If jinja2 is not installed.
        """
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
            For another suffix, a path that cannot be written to, or a page without jinja2.
        """
        path = Path(path)
        if path.suffix not in SUFFIXES:
            raise UsageError(f"{path} ends in none of {', '.join(SUFFIXES)}.", do="The suffix selects the format.")
        text = self.html if path.suffix == ".html" else self.markdown
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(path)
        except OSError as exc:
            raise UsageError(f"{path} cannot be written: {exc.strerror}.") from None
        finally:
            unfinished.unlink(missing_ok=True)
        return path

    def _repr_html_(self) -> str:
        """Show it in a frame, so that its styles do not affect the notebook."""
        from html import escape

        return f'<iframe srcdoc="{escape(self.html)}" style="width:100%;height:80vh;border:0"></iframe>'


def report(
    findings: pd.DataFrame | Iterable[Row],
    *,
    log_transactions: pd.DataFrame | Iterable[Row] | None = None,
    lso_timeline: pd.DataFrame | Iterable[Row] | None = None,
    transaction_history: pd.DataFrame | Iterable[Row] | None = None,
    partitions: pd.DataFrame | Iterable[Row] | None = None,
    actions: pd.DataFrame | Iterable[Row] | None = None,
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
    found = [{**dict.fromkeys(schema.FINDINGS.names), **row} for row in _rows(findings, schema.FINDINGS)]
    main_findings = complete(found)
    held = ReportTables(
        log_transactions=_known(log_transactions, schema.LOG_TRANSACTIONS),
        lso_timeline=_known(lso_timeline, schema.LSO_TIMELINE),
        transaction_history=_known(transaction_history, schema.TRANSACTION_HISTORY),
        partitions=_known(partitions, schema.PARTITIONS),
        actions=_about(_known(actions, schema.ACTIONS), found),
    )
    return Report(
        title=printable(title) if title else _title(main_findings or found),
        summary=tuple(_summary(found, generated_at or dt.datetime.now(dt.UTC))),
        sections=tuple(_sections(found, main_findings, held, has_figure=figure is not None)),
        figure=figure,
    )


def complete(findings: Iterable[Row]) -> list[Row]:
    """The findings with a section, the most urgent first: at most `MAX_FINDINGS`."""
    return [row for row in by_weight(list(findings)) if is_answer(row)][:MAX_FINDINGS]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTables:
    """The tables beside the findings; null if missing."""

    log_transactions: Sequence[Row] | None
    lso_timeline: Sequence[Row] | None
    transaction_history: Sequence[Row] | None
    partitions: Sequence[Row] | None
    actions: Sequence[Row] | None


def _rows(table: pd.DataFrame | Iterable[Row], declared: schema.Table) -> list[Row]:
    import pandas as pd

    return declared.rows(table) if isinstance(table, pd.DataFrame) else list(table)


def _known(table: pd.DataFrame | Iterable[Row] | None, declared: schema.Table) -> list[Row] | None:
    empty = dict.fromkeys(declared.names)
    return None if table is None else [{**empty, **row} for row in _rows(table, declared)]


def _about(actions: Sequence[Row] | None, findings: Sequence[Row]) -> list[Row] | None:
    """Rows of the audit trail about these partitions or ids, and unreadable lines."""
    topic_partitions = {(row["topic"], row["partition"]) for row in findings}
    names = {row["transactional_id"] for row in findings if row["transactional_id"] is not None}

    def is_about(row: Row) -> bool:
        if row["topic"] is not None:
            return (row["topic"], row["partition"]) in topic_partitions
        return row["transactional_id"] in names or not row["target"]

    return None if actions is None else [row for row in actions if is_about(row)]


def _title(rows: Sequence[Row]) -> str:
    topic_partitions = list(dict.fromkeys(named(row) for row in rows))
    shown = ", ".join(topic_partitions[:3]) + (
        f" and {len(topic_partitions) - 3} more" if len(topic_partitions) > 3 else ""
    )
    return f"Postmortem: {shown}" if topic_partitions else "Postmortem: nothing is open"


def _summary(rows: Sequence[Row], generated_at: dt.datetime) -> Iterator[str]:
    yield f"In short: {summary(rows)}."
    seen = [row["observed_at"] for row in rows if row["observed_at"]]
    as_of = f"; as of {at(max(seen))}" if seen else ""
    yield f"Made at {at(generated_at)}{as_of}. All times are in UTC."


def _sections(
    found: Sequence[Row], shown: Sequence[Row], held: ReportTables, *, has_figure: bool
) -> Iterator[ReportSection]:
    yield from (answer(row, log_transactions=held.log_transactions or []) for row in shown)
    rest = [row for row in found if not any(row is each for each in shown)]
    if rest:
        yield ReportSection(title="What else was found" if shown else "What was found", grids=(others(rest),))
    elif not shown:
        yield ReportSection(title="Nothing is open", lead="No transaction is open, and no last stable offset is held.")
    yield _done(held.actions)
    yield _timeline(shown, held, has_figure=has_figure)
    around = _around(shown, held)
    if around:
        yield ReportSection(title="Transactions and coordinators", grids=around)
    if shown:
        yield ReportSection(
            title="Evidence", lead="Observed values, with source and time.", grids=tuple(map(evidence_grid, shown))
        )
    yield ReportSection(title="Missing and unknown", lead=printable(" ".join(_missing(shown, held))))


def _done(actions: Sequence[Row] | None) -> ReportSection:
    title = "What was done"
    if actions is None:
        return ReportSection(title=title, lead="There is no audit trail.")
    if not actions:
        return ReportSection(title=title, lead="The audit trail has nothing about these partitions.")
    return ReportSection(title=title, grids=(action_grid(actions),))


def _timeline(shown: Sequence[Row], held: ReportTables, *, has_figure: bool) -> ReportSection:
    steps = held.lso_timeline or []
    topic_partitions = {(row["topic"], row["partition"]): row for row in reversed(shown)}
    charts = [
        gap_chart(row, steps=steps, log_transactions=held.log_transactions or [], samples=held.partitions or [])
        for row in reversed(topic_partitions.values())
    ]
    grids = [
        event_grid(
            row,
            lso_timeline=steps,
            transaction_history=held.transaction_history or [],
            actions=held.actions or [],
            log_transactions=held.log_transactions or [],
            samples=held.partitions or [],
        )
        for row in shown
        if row["producer_id"] is not None
    ]
    unknown = any(row["verdict"] not in NOTHING_OPEN for row in shown)
    lead = (
        ""
        if grids or has_figure
        else "It could not be read whether anything was open."
        if unknown
        else "Nothing was open."
    )
    return ReportSection(
        title="Timeline",
        lead=lead,
        grids=tuple(grids),
        charts=tuple(chart for chart in charts if chart),
        figure=has_figure,
    )


def _around(shown: Sequence[Row], held: ReportTables) -> tuple[Grid, ...]:
    grids: list[Grid] = []
    for row in shown:
        grids += [log_transaction_grid(held.log_transactions, row)] if held.log_transactions else []
        grids += (
            [history_grid(held.transaction_history, row)]
            if held.transaction_history and row["producer_id"] is not None
            else []
        )
    return tuple({grid.title: grid for grid in grids if grid.rows}.values())


def _missing(shown: Sequence[Row], held: ReportTables) -> Iterator[str]:
    optional = {"partitions"} if held.lso_timeline is not None else set()
    not_given = [name for name in ReportTables.__slots__ if getattr(held, name) is None and name not in optional]
    if not_given:
        yield f"Not included: {', '.join(not_given)}."
    missing = [f"{named(row)}: {text}" for row in shown for text in row["missing"]]
    missing += [f"{named(row)}: {row['error']}" for row in shown if row["error"] and row["error"] not in row["missing"]]
    for name in ReportTables.__slots__:
        errors = dict.fromkeys(
            row["error"] for row in getattr(held, name) or () if name != "actions" and row.get("error")
        )
        missing += [f"{name}: {error}" for error in errors]
    yield f"Not read: {'; '.join(missing)}." if missing else "No evidence is missing."
