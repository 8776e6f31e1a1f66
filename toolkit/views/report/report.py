"""`report`: from rows to a `Report`."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from html import escape
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast
from urllib.parse import quote

from toolkit.errors import UsageError
from toolkit.schema import RECORDED, Row
from toolkit.schema.coerce import Data, records_of, rows_of
from toolkit.schema.live import Exposure, Finding, Partition
from toolkit.schema.log import ClusterEvent, LogTransaction, LsoStep, OffsetsLogRecord, PastTransaction
from toolkit.schema.recorded import ActionStep
from toolkit.schema.verdict import Verdict
from toolkit.views.document import NOWHERE, Connection, Paragraph, Section
from toolkit.views.finding_document import (
    FindingGroup,
    by_urgency,
    check_cluster,
    finding_groups,
    first_names,
    needs_no_action,
    partition_name,
    parts_of_groups,
    place,
)
from toolkit.views.renderers import (
    DocumentView,
    escaped_html,
    escaped_markdown,
    html_text,
    markdown_lines,
    package_text,
    page,
    text_lines,
    tone_variables,
)
from toolkit.views.report.incident_facts import Figure, IncidentFacts, ReportTables, incident_facts
from toolkit.views.report.report_sections import (
    MAX_FINDINGS,
    action_grid,
    event_grid,
    evidence_grid,
    history_grid,
    impact_section,
    incident_section,
    is_unread,
    items_section,
    log_transaction_grid,
    overview_section,
    prevention_section,
    proof_grid,
    summary_sentences,
    times_section,
)
from toolkit.views.row_formats import printable, replaced_file

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from toolkit.views.plots.plot_theme import ThemeName

SUFFIXES = (".html", ".md", ".ipynb")

WITHOUT: Mapping[str, str] = {
    "log_transactions": "the log: its markers, and the records of each transaction",
    "lso_timeline": "how the LSO moved",
    "transaction_history": "what the coordinators' log says of the transactional ids",
    "partitions": "the LSO at several times",
    "exposure": "the settings of the brokers",
    "actions": "the audit trail: what was done, and by whom",
}
"""Tables that may be left out, and what is not known without them."""


Chart: TypeAlias = "Callable[[ThemeName], go.Figure]"  # drawn when it is called
TIMELINE, EVENTS = "Timeline", "Events"  # the sections with charts
FLATTER = 160  # pixels of a chart's height: on paper it is on the first page, in letters that can be read


@dataclass(frozen=True, kw_only=True)
class Report:
    """The postmortem of an incident, as a page and as Markdown; ``report["Impact"]`` is one of its sections.

    Parameters
    ----------
    title
        Heading.
    summary
        Sentences under the heading: time, sources, summary.
    sections
        Content: what fits on one page.
    appendix
        All else.
    charts
        The timeline of each partition; the first has a section of its own.
    figure
        As for `report`.
    connection
        What the commands in it need to reach the cluster.
    """

    title: str
    summary: tuple[str, ...]
    sections: tuple[Section, ...]
    appendix: tuple[Section, ...] = ()
    charts: tuple[Chart, ...] = ()
    figure: Figure | None = None
    connection: Connection = NOWHERE

    def __repr__(self) -> str:
        """Heading and summary: what a notebook stores beside the page."""
        return "\n".join(text_lines(map(Paragraph, (self.title, *self.summary))))

    def __getitem__(self, title: str) -> DocumentView:
        """A section by its title."""
        found = {each.title: each for each in (*self.sections, *self.appendix)}
        if title not in found:
            raise UsageError(f"The report has no section {title!r}.", do=f"It has {', '.join(found)}.")
        return DocumentView((found[title],), self.connection)

    def __iter__(self) -> Iterator[DocumentView]:
        """Its sections, one after another."""
        return (DocumentView((each,), self.connection) for each in (*self.sections, *self.appendix))

    @cached_property
    def html(self) -> str:
        """One self-contained page without network requests."""
        pictures, dark = [picture for _, picture in self.pictures], ""
        if pictures:
            from toolkit.views.plots.plot_theme import DARK_VARIABLES, follow_theme

            pictures, dark = list(map(follow_theme, pictures)), DARK_VARIABLES
        rendered = partial(html_text, connection=self.connection)
        values = {
            "title": self.title,
            "written": escaped_html,
            "summary": rendered(Paragraph(sentence, "summary") for sentence in self.summary),
            "sections": [(each, rendered(each.parts)) for each in self.sections],
            "appendix": [(each, rendered(each.parts)) for each in self.appendix],
            "figures": {TIMELINE: _figures(self.figure)},
            "pictures": _by_section(pictures),
            "dark_pictures": dark,
            "verdicts": list(Verdict),
            "light_tones": tone_variables("light"),
            "dark_tones": tone_variables("dark"),
        }
        return page(__package__, "page.html", **values) + "\n"

    @cached_property
    def markdown(self) -> str:
        """The same content without pictures, which `save` writes beside it."""
        return "\n".join(self._cells())

    def _cells(self, links: Sequence[str] = ()) -> list[str]:
        """Its Markdown: the heading with the summary, and each section; `links`: to the pictures of all charts."""
        rendered = partial(markdown_lines, connection=self.connection)
        appendix = [(each, f"Appendix: {each.title}") for each in self.appendix]
        parts = [[f"# {escaped_markdown(self.title)}", "", *rendered(map(Paragraph, self.summary))]]
        for section, title in (*((each, each.title) for each in self.sections), *appendix):
            head = rendered([replace(section, title=title, parts=())], level=2)
            drawn = [line for link in _by_section(links).get(section.title, ()) for line in (link, "")]
            parts.append([*head[:-1], *drawn, *rendered(section.parts)])
        return ["\n".join(lines).rstrip() + "\n" for lines in parts]

    @cached_property
    def pictures(self) -> list[tuple[str, str]]:
        """The timeline of each partition: its alternative text, and an SVG file."""
        if not self.charts:  # perhaps as plotly is not installed
            return []
        from toolkit.views.plots.notebook_figure import figure_svg, figure_text

        return [(figure_text(figure), figure_svg(figure)) for figure in (chart("light") for chart in self.charts)]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it to a file, completely or not at all, and return its path.

        Parameters
        ----------
        path
            ``.html``; or ``.md`` or ``.ipynb``, a notebook to edit, with the pictures beside it as ``NAME-1.svg``.

        Raises
        ------
        UsageError
            For another suffix, or a path that cannot be written to.
        """
        path = Path(path)
        if path.suffix not in SUFFIXES:
            raise UsageError(f"{path} ends in none of {', '.join(SUFFIXES)}.", do="The suffix selects the format.")
        if path.suffix == ".html":
            _write(path, self.html)
            return path
        links = []
        for number, (text, picture) in enumerate(self.pictures, start=1):
            file = path.with_name(f"{path.stem}-{number}.svg")
            _write(file, _image(picture))
            links.append(f"![{escaped_markdown(text)}]({quote(file.name)})")
        cells = self._cells(links)
        _write(path, "\n".join(cells) if path.suffix == ".md" else _notebook(cells))
        return path

    def _repr_html_(self) -> str:
        """Show it in a frame, so that its styles do not affect the notebook, in the theme of JupyterLab.

        JupyterLab drops frames and styles of a notebook that is not trusted, and a frame is cut on paper: there, its
        summary and first picture stand in its place.
        """
        script = package_text(__package__, "theme.js")
        body = self.html.replace("</head>", f"<script>\n{script}</script></head>", 1)
        content = f'title="{escape(self.title)}" srcdoc="{escape(body)}"'
        parts = [f"<h3>{escape(self.title)}</h3>", *(f"<p>{escape(sentence)}</p>" for sentence in self.summary)]
        for text, picture in self.pictures[:1]:
            packed = base64.b64encode(_image(picture).encode()).decode("ascii")
            parts.append(f'<img alt="{escape(text)}" style="max-width:100%" src="data:image/svg+xml;base64,{packed}">')
        parts.append("<p>All of it: run the cell, choose Trust Notebook, or save it.</p>")
        frame = f'<iframe class="kafka-txn-frame" {content} style="width:100%;height:80vh;border:0"></iframe>'
        return f'{FRAME_STYLE}{frame}<div class="kafka-txn-without-frame">{"".join(parts)}</div>'


def _by_section(pictures: Sequence[str]) -> Mapping[str, Sequence[str]]:
    return {TIMELINE: pictures[:1], EVENTS: pictures[1:]}


FRAME_STYLE = (
    "<style>@media screen { .kafka-txn-without-frame { display: none; } } "
    "@media print { .kafka-txn-frame { display: none; } }</style>"
)


def _image(picture: str) -> str:
    from toolkit.views.plots.notebook_figure import image_svg

    return image_svg(picture)


def _write(path: Path, text: str) -> None:
    with replaced_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _figures(figure: Figure | None) -> dict[str, str]:
    """HTML of the figure by theme, plotly's script in the first one only."""
    if figure is None:
        return {}
    made = {theme: figure(theme) for theme in ("light", "dark")} if callable(figure) else {"": figure}
    options = {"full_html": False, "config": {"responsive": True, "displaylogo": False}}
    return {
        theme: each.to_html(include_plotlyjs=number == 0, **options)
        for number, (theme, each) in enumerate(made.items())
    }


def _notebook(cells: Sequence[str]) -> str:
    """The JSON of a notebook (nbformat 4.5) of Markdown cells, without code."""
    made = [
        {"cell_type": "markdown", "id": f"section-{number}", "metadata": {}, "source": part.splitlines(keepends=True)}
        for number, part in enumerate(cells)
    ]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    content = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def report(
    findings: Data,
    *,
    log_transactions: Data = None,
    lso_timeline: Data = None,
    transaction_history: Data = None,
    partitions: Data = None,
    recorded_findings: Data = None,
    offsets_log: Data = None,
    exposure: Data = None,
    cluster_events: Data = None,
    actions: Data = None,
    problems: Sequence[str] = (),
    no_coordinators: str | None = None,
    figure: Figure | None = None,
    title: str | None = None,
    generated_at: dt.datetime | None = None,
    connection: Connection = NOWHERE,
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
    recorded_findings
        ``schema.RECORDED["findings"]``: the findings of each sample, which show how long each group waited.
    offsets_log
        ``schema.OFFSETS_LOG`` of these groups: when they moved on.
    exposure
        ``schema.EXPOSURE``: the settings and clients that let transactions hang.
    cluster_events
        ``schema.CLUSTER_EVENTS``: of leaders and brokers; those near the incident are in its timeline.
    actions
        ``schema.ACTIONS``, the audit trail, of which only these partitions and ids are included.
    problems
        What could not be read, as sentences.
    no_coordinators
        Why no transaction can begin; null if they can.
    figure
        A plotly Figure for the page, or a function that gives one for ``"light"`` and for ``"dark"``; plotly's script
        (4 MB) comes along. Without it, and on paper, the page has the timeline of each partition as a picture.
    title
        Heading; made of the partitions if null.
    generated_at
        Now, if null.
    connection
        What the commands in it need to reach the cluster.
    """
    records = records_of(findings, Finding)
    check_cluster(records, "A report")
    tables_by_name = {
        "log_transactions": log_transactions,
        "lso_timeline": lso_timeline,
        "transaction_history": transaction_history,
        "partitions": partitions,
        "exposure": exposure,
        "actions": actions,
    }
    samples, sampled_at = _samples(partitions)
    recorded = rows_of(recorded_findings, RECORDED["findings"])
    if any(row["sampled_at"] is None for row in recorded):
        raise UsageError("recorded_findings have no sampled_at.", do='Pass recording.history("findings").')
    tables = ReportTables(
        log_transactions=records_of(log_transactions, LogTransaction),
        lso_timeline=records_of(lso_timeline, LsoStep),
        transaction_history=records_of(transaction_history, PastTransaction),
        partitions=samples,
        sampled_at=sampled_at,
        recorded_findings=[(row["sampled_at"], Finding.of_columns(row)) for row in recorded],
        offsets_log=records_of(offsets_log, OffsetsLogRecord),
        exposure=records_of(exposure, Exposure),
        cluster_events=records_of(cluster_events, ClusterEvent),
        actions=_about(records_of(actions, ActionStep), records),
        absent=[name for name, table in tables_by_name.items() if table is None],
        problems=problems,
    )
    groups = finding_groups(records)
    shown = findings_in_full(records, groups)
    alike = {id(each) for group in groups if len(group.partitions) > 1 for each in group.findings} - {*map(id, shown)}
    others_of_them = (each for each in _answers(records) if not _is_in(each, shown))
    incidents = incident_facts([*shown, *others_of_them], tables, numbered=len(shown))
    with_section = incidents[: len(shown)]
    charts = tuple(_charts(shown or by_urgency(records)[:1], records, tables))  # a healthy one is worth one, too
    has_plotly = find_spec("plotly") is not None
    has_picture = (has_plotly and bool(charts)) or figure is not None
    left = len([each for each in incidents if id(each.finding) not in alike]) - len(with_section)
    now = generated_at or dt.datetime.now(dt.UTC)
    names = list(dict.fromkeys(partition_name(each.finding) for each in incidents))
    nothing = "no incident" if any(each.verdict.is_open for each in records) else "nothing is open"
    return Report(
        title=printable(title or f"Postmortem: {first_names(names, 3) if names else nothing}"),
        summary=tuple(
            summary_sentences(records, incidents, left=left, no_coordinators=no_coordinators, generated_at=now)
        ),
        sections=tuple(_sections(records, with_section, tables, has_picture=has_picture)),
        appendix=tuple(_appendix(records, with_section, tables, has_plotly=has_plotly)),
        charts=charts if has_plotly else (),
        figure=figure,
        connection=connection,
    )


def findings_in_full(findings: Sequence[Finding], groups: Sequence[FindingGroup] | None = None) -> list[Finding]:
    """Those with a section, at most `MAX_FINDINGS`, the most urgent first: of many that are alike, it stands for them.

    `groups`: of these findings, if they are made already.
    """
    groups = finding_groups(findings) if groups is None else groups
    alike = {id(each) for group in groups for each in group.findings[1:] if len(group.partitions) > 1}
    return [each for each in _answers(findings) if id(each) not in alike][:MAX_FINDINGS]


def _is_in(finding: Finding, findings: Iterable[Finding]) -> bool:
    return any(finding is each for each in findings)


def _answers(findings: Iterable[Finding]) -> list[Finding]:
    """The incidents, the most urgent first: what held an LSO for long, or needs action; a healthy transaction is none.

    Those on partitions that were not read, most of which are healthy, come after what was read.
    """
    answers = [finding for finding in by_urgency(findings) if not needs_no_action(finding)]
    return sorted(answers, key=lambda finding: finding.is_coordinators_only)


def _samples(partitions: Data) -> tuple[list[Partition], list[dt.datetime | None]]:
    """The partition at several times, and when the sample of each was due, if it is of a recording."""
    if partitions is None or hasattr(partitions, "columns"):
        return records_of(partitions, Partition), []
    rows = list(cast("Iterable[Row]", partitions))
    return records_of(rows, Partition), [row.get("sampled_at") if isinstance(row, Mapping) else None for row in rows]


def _about(actions: Iterable[ActionStep], findings: Sequence[Finding]) -> list[ActionStep]:
    """Steps of the audit trail about these partitions or ids of their cluster, and unreadable lines."""
    cluster_ids = {finding.cluster_id for finding in findings}
    topic_partitions = {(finding.topic, finding.partition) for finding in findings}
    names = {finding.transactional_id for finding in findings if finding.transactional_id is not None}

    def is_about(action: ActionStep) -> bool:
        if action.cluster_id is not None and not {action.cluster_id, None} & cluster_ids:
            return False  # a user's trail has the actions on all clusters
        if action.topic is not None:
            return (action.topic, action.partition) in topic_partitions
        return action.transactional_id in names or not action.target

    return list(filter(is_about, actions))


def _sections(
    findings: Sequence[Finding], incidents: Sequence[IncidentFacts], tables: ReportTables, *, has_picture: bool
) -> Iterator[Section]:
    """One page first: what happened is in the summary, then the picture, and what to do."""
    if not findings:
        lead = (
            "There is no finding: of what was read, no transaction is open, and no last stable offset is held. From"
            " files and recordings, what has ended is included if it held one for long enough: 1 min, or what"
            " --min-held, or min_held_ms of collect_incident, says."
        )
        yield Section(title="Nothing is open", lead=lead, parts=())
    if has_picture:
        yield Section(title=TIMELINE, parts=())
    if len(incidents) > 1:
        yield overview_section(incidents)
    yield items_section(incidents, tables)


def _appendix(
    findings: Sequence[Finding], incidents: Sequence[IncidentFacts], tables: ReportTables, *, has_plotly: bool
) -> Iterator[Section]:
    shown = [each.finding for each in incidents]
    yield from map(incident_section, incidents)
    if any(each.is_transaction for each in incidents):
        yield impact_section(incidents)
        yield times_section([each for each in incidents if each.holds])
    yield _events(findings, incidents, tables, has_plotly=has_plotly)
    if shown:
        yield Section(title="Root cause", parts=tuple(map(proof_grid, incidents)))
    done = "The audit trail has nothing about these partitions." if not tables.actions else ""
    done = "No audit trail was included." if "actions" in tables.absent else done
    yield Section(title="What was done", lead=done, parts=() if done else (action_grid(tables.actions),))
    yield prevention_section(incidents, tables)
    yield Section(title="Missing and unknown", lead=" ".join(_missing(shown, tables)), parts=())
    if shown:
        lead = "Observed values, with source and time."
        yield Section(title="Evidence", lead=lead, parts=tuple(map(evidence_grid, shown)))
    grids = []
    for each in shown:
        history = [] if each.producer_id is None else [history_grid(tables.transaction_history, each)]
        grids += [log_transaction_grid(tables.log_transactions, each), *history]
    if around := {grid.title: grid for grid in grids if grid.rows}:
        yield Section(title="Transactions and coordinators", parts=tuple(around.values()))
    if rest := [each for each in findings if not _is_in(each, shown)]:
        blocks = tuple(parts_of_groups(finding_groups(rest), incomplete=set(map(place, shown))))
        yield Section(title="What else was found" if shown else "What was found", parts=blocks)


def _events(
    findings: Sequence[Finding], incidents: Sequence[IncidentFacts], tables: ReportTables, *, has_plotly: bool
) -> Section:
    """What happened when, and the pictures of the other partitions."""
    grids = tuple(event_grid(each, tables) for each in incidents if each.is_transaction)
    lead = ""
    if not grids:
        unknown = any(each.finding.verdict.is_open for each in incidents)
        lead = "It could not be read whether anything was open." if unknown else "Nothing that was read was open."
        if not unknown and any(each.verdict.is_open for each in findings):
            lead = "What is open needs no action."
    if not has_plotly:
        lead = f"{lead} Not drawn: plotly is not installed (pip install plotly).".lstrip()
    return Section(title=EVENTS, lead=lead, parts=grids)


def _charts(shown: Iterable[Finding], findings: Sequence[Finding], tables: ReportTables) -> Iterator[Chart]:
    """The timeline of each partition of which more than findings is known."""

    def draw(
        theme: ThemeName, *, topic: str | None, partition: int | None, partitions: Sequence[Partition]
    ) -> go.Figure:
        from toolkit.views.plots import plot_timeline

        figure = plot_timeline(
            tables.log_transactions,
            lso_timeline=tables.lso_timeline,
            partitions=partitions,
            findings=findings,
            transaction_history=tables.transaction_history,
            cluster_events=tables.cluster_events,
            topic=topic,
            partition=partition,
            theme=theme,
        )
        figure.layout.height -= FLATTER
        return figure

    firsts: dict[tuple[str | None, int | None], Finding] = {}
    for finding in shown:
        firsts.setdefault((finding.topic, finding.partition), finding)
    for (topic, partition), first in firsts.items():
        # later samples would be drawn under an older verdict
        samples = [each for each in tables.partitions if first.held_to or each.observed_at <= first.observed_at]
        rows: Iterable[LogTransaction | LsoStep | Partition] = chain(
            tables.log_transactions, tables.lso_timeline, samples
        )
        if any((each.topic, each.partition) == (topic, partition) for each in rows):
            yield partial(draw, topic=topic, partition=partition, partitions=samples)


def _missing(shown: Sequence[Finding], tables: ReportTables) -> Iterator[str]:
    absent = [name for name in tables.absent if name != "partitions" or "lso_timeline" in tables.absent]
    if absent:
        yield f"Not included: {', '.join(f'{name} ({WITHOUT[name]})' for name in absent)}."
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
        "offsets_log": [record.error for record in tables.offsets_log],
        "exposure": [each.error for each in tables.exposure],
    }
    missing += tables.problems
    missing += [f"{name}: {error}" for name, texts in errors.items() for error in dict.fromkeys(texts) if error]
    if missing:
        yield f"Not read: {'; '.join(missing)}."
    elif not absent:
        yield "Every table was included and read."
    unread = dict.fromkeys(each.name for each in tables.exposure if is_unread(each) and not each.error)
    if unread:
        yield f"Settings that no table has: {', '.join(unread)}."
