"""The widgets of the panel: sections, list of findings, timeline, and which of its parts are shown in which step.

Which action a finding has was decided with it (`analysis.diagnosis.decision`); nothing here chooses another one.
"""

from __future__ import annotations

import base64
import datetime as dt
import html
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import traitlets

from toolkit.actions.plan import ListResult, Plan, PlanList, Result
from toolkit.analysis.findings_over_time import close_by_log
from toolkit.errors import (
    ActionFailed,
    ActionRefused,
    AuditFailed,
    AuthenticationFailed,
    ConnectionFailed,
    ToolkitError,
)
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding
from toolkit.schema.log import LogTransaction, LsoStep, PastTransaction
from toolkit.schema.recorded import ActionStep
from toolkit.schema.table import TableRow, TransactionKey
from toolkit.schema.verdict import Verdict
from toolkit.views.action_document import done_section, fence_section, passed
from toolkit.views.document import Bullets, Command, Connection, Field, Fields, Paragraph, Part, Quote, Section
from toolkit.views.explained_error import ExplainedError
from toolkit.views.finding_document import (
    by_urgency,
    finding_groups,
    finding_section,
    remedy,
    summary,
    transaction_name,
)
from toolkit.views.renderers import DARK_PAGE, escaped_html, html_text, package_text, tone_variables
from toolkit.views.report import Report, report
from toolkit.views.report.incident import tables_around
from toolkit.views.report.report_sections import action_grid, evidence_grid
from toolkit.views.row_formats import count, printable

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.schema import Row
    from toolkit.schema.live import Partition
    from toolkit.sources.live.cluster import Cluster
    from toolkit.views.plots.plot_theme import ThemeName


def button_text(finding: Finding) -> str:
    """What the button says that takes the action of a finding."""
    if finding.action == "commit":
        return "Commit the transaction"
    if finding.action == "fence":
        return "Fence the id"
    is_commit = finding.action == "complete" and finding.outcome == "commit"
    return f"Write the {'COMMIT' if is_commit else 'abort'} marker"


def tone(finding: Finding) -> str:
    """The colour of a verdict: ``alarm``, ``warn`` or ``calm``."""
    return "calm" if finding.verdict.tone == "muted" else finding.verdict.tone


def choice(finding: Finding) -> str:
    """``HANGING · orders-0 at offset 12 · LSO 12 held for 2 min · 23 records waiting · group "a" cannot move``."""
    position = finding.queue_position or 1
    parts = [
        finding.verdict.upper() if finding.verdict is Verdict.HANGING else finding.verdict,
        transaction_name(finding),
        "" if finding.transactional_id is None else f'id "{finding.transactional_id}"',
        "committed, its marker is missing" if finding.action == "complete" else "",
        finding_section(finding).lead,
        f"behind {count(position - 1, 'other', 'others')}" if position > 1 else "",
    ]
    return printable(" · ".join(filter(None, parts)))


def is_same(finding: Finding | None, other: Finding | None) -> bool:
    """Whether two findings are about the same transaction, or the same partition if none is open."""
    return finding is not None and other is not None and finding.key == other.key


def next_actionable(findings: Sequence[Finding]) -> Finding | None:
    """The next finding with an action; null if there is none."""
    return next((each for each in by_urgency(findings) if each.action), None)


def answer_section(finding: Finding) -> Section:
    """The finding in a few lines, verdict first."""
    section = finding_section(finding)
    fields = tuple(each for each in section.fields if finding.action or each.label != "remedy")  # of `why_not_section`
    if finding.offsets_held and finding.groups_held is None:
        fields = (*fields, Field("groups", ("which of them wait is not known: their offsets were not read",)))
    return replace(section, badge=finding.verdict, tone=tone(finding), parts=(Fields(fields),))


def evidence_section(finding: Finding) -> Section:
    """All evidence of the finding."""
    return Section(title="All evidence", parts=(evidence_grid(finding),), is_folded=True)


def why_not_section(finding: Finding) -> Section:
    """What a finding without an action means, and its remedy."""
    parts = (Paragraph(finding.verdict.sentence), Fields((Field("Remedy", remedy(finding)),)))
    return Section(title=f"No action here: {finding.verdict}", tone=tone(finding), parts=parts)


_HEADS = (
    (ActionRefused, "Refused"),
    (AuditFailed, "Done, but missing from the audit trail"),
    (AuthenticationFailed, "Authentication failed"),
    (ConnectionFailed, "No response"),
    (ToolkitError, "Failed"),
)
_EFFECTS = {
    "nothing": "Failed: nothing was written",
    "written": "Written, but not verified",
    "uncertain": "It is uncertain whether it was written",
}
_UNEXPECTED = "This is a bug in the toolkit, not a result about the cluster."
_UNKNOWN = "What was done before it is uncertain."
_NEXT = "Diagnose again before anything else; the traceback below shows where it happened."


def problem_section(error: BaseException) -> Section:
    """Any error."""
    if not isinstance(error, ToolkitError):
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        head, why = ("Interrupted", "") if isinstance(error, KeyboardInterrupt) else ("Unexpected error", _UNEXPECTED)
        done = " ".join(getattr(error, "__notes__", (_UNKNOWN,)))  # by an action, up to then
        return _problem(head, ToolkitError(text, means=f"{why} {done}".lstrip(), do=_NEXT))
    head = next(text for kind, text in _HEADS if isinstance(error, kind))
    if isinstance(error, ActionFailed) or (isinstance(error, AuditFailed) and error.effect != "written"):
        head = _EFFECTS[error.effect]
    return _problem(head, error)


def _problem(head: str, error: ToolkitError) -> Section:
    command = (Command(error.command),) if error.command else ()
    said = (("Means", (error.means,)), ("Do", (error.do, *command)))
    fields = tuple(Field(label, values) for label, values in said if values[0])
    return Section(title=head, tone="problem", lead=error.what, parts=(Fields(fields),) if fields else ())


def traceback_parts(error: BaseException) -> list[Part]:
    """Traceback of an unexpected error; none for a `ToolkitError`."""
    if isinstance(error, ToolkitError):
        return []
    quote = Quote("".join(traceback.format_exception(error)))
    return [Section(title="Traceback", parts=(quote,), is_folded=True)]


BEFORE, BEHIND = 2_000, 50_000  # offsets of the log to read around the start of the transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePicture:
    """A timeline by theme, and sentences about unreadable data."""

    figures: Mapping[str, Any]
    problems: Sequence[str]


def picture(
    cluster: Cluster,
    selected: Finding,
    *,
    findings: Sequence[Finding],
    ended: Sequence[Finding],
    samples: Sequence[Partition],
) -> TimelinePicture:
    """Read the log around the start of a transaction, and draw it.

    `selected`: the selected finding: its start is drawn, and the states of its id, even if it has ended.
    `findings`: the current findings of its partition, at least one.
    `ended`: those that were ended here, as of before it, so that the picture has both.
    `samples`: the partition at several times, at least one, the newest last.
    """
    from toolkit.views.plots import plot_timeline

    last = samples[-1]
    problems = [f"The partition could not be read: {last.error}"] if last.error else []

    middle = last.last_stable_offset or 0 if selected.start_offset is None else selected.start_offset
    where: dict[str, Any] = {"topics": selected.topic, "partitions": selected.partition}
    where |= {"start": max(last.log_start_offset or 0, middle - BEFORE), "stop": middle + BEHIND}
    ids = sorted({each.transactional_id for each in (selected, *findings) if each.transactional_id is not None})
    reads: list[tuple[str, type[TableRow], dict[str, Any]]] = []
    if not last.error:
        reads += [("The log", LogTransaction, where), ("How the LSO moved", LsoStep, where)]
    if ids:
        reads.append(("Records of the coordinators", PastTransaction, {"transactional_ids": ids}))
    tables: dict[str, Any] = {"log_transactions": []}
    for what, kind, arguments in reads:
        try:
            tables[kind.table.name] = cluster.records(kind, **arguments)
        except ToolkitError as error:
            problems.append(f"{what} could not be read: {error}")
    errors = [each.error for name in ("log_transactions", "lso_timeline") for each in tables.get(name, ())]
    problems += [f"A part of the log could not be read: {error}" for error in dict.fromkeys(errors) if error]
    closed = [each for each in close_by_log(ended, tables["log_transactions"]) if each.verdict is Verdict.ENDED]
    themes: tuple[ThemeName, ...] = ("light", "dark")
    figures: dict[str, Any] = {
        theme: plot_timeline(
            **tables,
            partitions=samples,
            findings=[*findings, *closed],
            topic=selected.topic,
            partition=selected.partition,
            theme=theme,
        )
        for theme in themes
    }
    return TimelinePicture(figures=figures, problems=problems)


# A figure in an Output needs a renderer that Databricks does not bring, HTML of a widget runs no script, and a picture
# needs a browser in the kernel. A frame with a document of its own runs its script in JupyterLab, Voila and Databricks:
# plotly.js is in it once, packed (2.0 MB, 4.8 as it is), and draws what a second widget holds (some 40 kB a figure).
# If a page forbids even that, the static picture in the second widget is shown.


class FigureFrame(widgets.VBox):  # type: ignore[misc]
    """A figure that can be replaced in place, in the colours of the page."""

    def __init__(self) -> None:
        self._data = widgets.HTML()
        self._has_script = False
        super().__init__()
        self.add_class("figure")

    def show(self, picture: TimelinePicture) -> None:
        """Draw another figure."""
        if not self._has_script:  # the script is sent once a figure is shown
            self.children = (widgets.HTML(_frame_html()), self._data)
            self._has_script = True
        from toolkit.views.plots import figure_html

        by_theme = ", ".join(f'"{theme}": {figure.to_json()}' for theme, figure in picture.figures.items())
        data = f'<script type="application/json">{{{by_theme}}}</script>'  # plotly escapes `<` in it
        # The static picture is for pages that forbid the script.
        self._data.value = f'{data}<div class="still">{figure_html(picture.figures["light"])}</div>'

    def clear(self) -> None:
        """Show none."""
        self._data.value = ""


def _frame_html() -> str:
    from toolkit.views.plots.plot_theme import packed_script

    document = html.escape(package_text(__package__, "frame.html").replace("PLOTLY", packed_script()), quote=True)
    return f'<iframe class="drawn" title="timeline of the partition" srcdoc="{document}"></iframe>'


def postmortem(
    cluster: Cluster, findings: Sequence[Finding], *, actions: Sequence[Row], remark: Callable[[str], object]
) -> Report:
    """The postmortem of some findings: those that have ended are closed by their markers in the log.

    `cluster`: the cluster, whose logs are read around them.
    `findings`: the findings, as of the last time that they were open.
    `remark`: called with a sentence about what cannot be read.
    """
    tables = tables_around(findings, cluster, remark=remark)
    closed = close_by_log(findings, records_of(tables.get("log_transactions"), LogTransaction))
    return report(closed, actions=actions, connection=Connection.of(cluster), **tables)


def postmortem_html(page: Report) -> str:
    """The page in a frame, and links that save it without a server."""
    links = []
    for suffix, kind, text in (("html", "text/html", page.html), ("md", "text/markdown", page.markdown)):
        data = f"data:{kind};base64,{base64.b64encode(text.encode()).decode()}"
        links.append(f'<a download="postmortem.{suffix}" href="{data}">Download postmortem.{suffix}</a>')
    return f"<p>{' '.join(links)}</p>{page._repr_html_()}"


PAGE = 25
ALL_GROUPS = "all findings"


class FindingList(widgets.VBox):  # type: ignore[misc]
    """Search, groups of findings that are alike, the buttons of one page, and buttons for the other pages.

    `choose`: called with the finding whose button is clicked. `announce`: called with a sentence about what is listed.
    """

    def __init__(self, choose: Callable[[Finding], None], announce: Callable[[str], None]) -> None:
        self._choose, self._announce = choose, announce
        self._findings: list[Finding] = []
        self._ranked: list[Finding] = []
        self._texts: list[str] = []  # what is searched
        self._selected: Finding | None = None
        self._in_group: dict[str, set[TransactionKey]] = {}
        self.matches: list[Finding] = []
        self.page = 0
        self.search = widgets.Text(description="Search", placeholder="topic, id, group, verdict ...")
        self.search.observe(self._searched, "value")
        self.group = widgets.Dropdown(description="Group", options=[ALL_GROUPS], layout={"width": "auto"})
        self.group.observe(self._searched, "value")
        self.previous_page = widgets.Button(description="Previous page")
        self.next_page = widgets.Button(description="Next page")
        self.previous_page.on_click(lambda _: self._turn(-1))
        self.next_page.on_click(lambda _: self._turn(1))
        self._count = widgets.HTML()
        self.choices = widgets.VBox()
        self._bar = widgets.HBox([self.search, self.group, self._count, self.previous_page, self.next_page])
        self._bar.add_class("row")
        self.choices.add_class("choices")
        super().__init__([self._bar, self.choices])

    def show(self, findings: Sequence[Finding], selected: Finding | None) -> None:
        """Show findings, and which one is selected; search and page stay."""
        self._selected = selected
        if list(findings) != self._findings:
            self._findings = list(findings)
            self._ranked = by_urgency(findings)
            self._texts = [" ".join([choice(each), *_hidden_texts(each)]).lower() for each in self._ranked]
            self._show_groups()
        self._filter()

    def _show_groups(self) -> None:
        """Offer the groups of several partitions, and keep the selected one if it is still there."""
        groups = [each for each in finding_groups(self._findings) if len(each.partitions) > 1]
        options = {f"{count(len(each.partitions), 'partition')}: {', '.join(each.common())}": each for each in groups}
        self._in_group = {label: {each.key for each in group.findings} for label, group in options.items()}
        labels, selected = [ALL_GROUPS, *options], self.group.value
        if list(self.group.options) != labels:
            self.group.options = labels
            self.group.value = selected if selected in options else ALL_GROUPS
        self.group.layout.display = None if options else "none"

    def _searched(self, _: object) -> None:
        self.page = 0
        self._filter()
        self._announce(f"{len(self.matches)} of {len(self._findings)} findings match.")

    def _filter(self) -> None:
        words = self.search.value.lower().split()
        pairs = zip(self._ranked, self._texts, strict=True)
        group = self._in_group.get(self.group.value)
        self.matches = [
            each for each, text in pairs if all(word in text for word in words) and (group is None or each.key in group)
        ]
        self.page = min(self.page, max(0, (len(self.matches) - 1) // PAGE))
        self._draw()

    def _turn(self, by: int) -> None:
        last = max(0, (len(self.matches) - 1) // PAGE)
        self.page = min(max(self.page + by, 0), last)
        self._draw()
        self._announce(self._range())
        if self.previous_page.disabled or self.next_page.disabled:  # a button that is disabled loses the focus
            self.choices.children[0].focus()

    def _draw(self) -> None:
        listed = self.matches[self.page * PAGE : (self.page + 1) * PAGE]
        if len(listed) > len(self.choices.children):
            new = [self._button(number) for number in range(len(self.choices.children), len(listed))]
            self.choices.children = (*self.choices.children, *new)
        for number, button in enumerate(self.choices.children):
            finding = listed[number] if number < len(listed) else None
            button.layout.display = None if finding else "none"
            if finding:
                _dress(button, finding, self.search.value, is_selected=is_same(finding, self._selected))
        many = len(self._findings) > PAGE
        self._count.value = f'<span class="soft">{escaped_html(self._range())}</span>'
        self._bar.layout.display = None if many or self.search.value else "none"
        self.choices.layout.display = None if listed else "none"
        for button in (self.previous_page, self.next_page):
            button.layout.display = None if len(self.matches) > PAGE else "none"
        self.previous_page.disabled = self.page == 0
        self.next_page.disabled = (self.page + 1) * PAGE >= len(self.matches)

    def _range(self) -> str:
        """``1 to 25 of 500, the most urgent first``."""
        if not self.matches:
            return f"none of {len(self._findings)}"
        first = self.page * PAGE + 1
        last = min(first + PAGE - 1, len(self.matches))
        found = "" if len(self.matches) == len(self._findings) else f" that match, of {len(self._findings)}"
        return f"{first} to {last} of {len(self.matches)}{found}, the most urgent first"

    def _button(self, number: int) -> Any:
        button = widgets.Button()
        button.on_click(partial(self._clicked, number))
        return button

    def _clicked(self, number: int, _: object) -> None:
        place = self.page * PAGE + number
        if place < len(self.matches):
            self._choose(self.matches[place])


def _dress(button: Any, finding: Finding, search: str, *, is_selected: bool) -> None:
    """The text and the colour of a finding on a button, with what the search found; what is the same is not sent."""
    classes = (tone(finding), *(("chosen",) if is_selected else ()))
    if button._dom_classes != classes:
        button._dom_classes = classes
    text = choice(finding)
    words = [word for word in search.lower().split() if word not in text.lower()]
    found = [part for part in _hidden_texts(finding) if any(word in part.lower() for word in words)]
    button.description = " · ".join([text, *map(printable, found)])


def _hidden_texts(finding: Finding) -> list[str]:
    """What is searched and not on a button, unless it was searched for."""
    parts = [finding.transactional_id, finding.owner, finding.outcome, finding.cause, *(finding.groups_held or ())]
    producer = [] if finding.producer_id is None else [f"producer {finding.producer_id}"]
    return [*producer, *(each for each in parts if each is not None)]


STEPS = ("choose", "chosen", "checked", "done")
WORK: Mapping[str, str] = {
    "refresh": "Reading the cluster; doubtful partitions are checked twice",
    "choose": "Reading the log around it",
    "dry_run": "Checking again what was decided; nothing is written",
    "dry_run_all": "Checking each of them again; nothing is written",
    "execute": "Checking once more, acting, and watching the LSO",
    "next": "Reading the log around it",
    "explain": "Looking up what the text names",
    "postmortem": "Reading the logs around what was found",
}
"""Text while a step is running."""
FOCUSED = ("answer", "problem", "done", "explained", "postmortem")
"""Areas that can have the focus."""


def _either(*classes: type) -> Any:
    """A trait with an instance of one of the classes, or null."""
    return traitlets.Union([traitlets.Instance(each, allow_none=True) for each in classes], allow_none=True)


class PanelLayout(widgets.VBox):  # type: ignore[misc]
    """State of the panel as traits, and its widgets; sends no requests."""

    findings: traitlets.List[Finding] = traitlets.List(traitlets.Instance(Finding))
    selected = traitlets.Instance(Finding, allow_none=True)
    step = traitlets.Enum(STEPS, default_value="choose")
    plan = _either(Plan, PlanList)
    fence = traitlets.Instance(Plan, allow_none=True)
    typed = traitlets.Unicode()
    ended = _either(Plan, PlanList)
    result = _either(Result, ListResult)
    explained = traitlets.Instance(ExplainedError, allow_none=True)
    report = traitlets.Instance(Report, allow_none=True)
    error = traitlets.Instance(BaseException, allow_none=True)
    problems = traitlets.List(traitlets.Unicode())
    picture = traitlets.Instance(TimelinePicture, allow_none=True)
    actions: traitlets.List[Row] = traitlets.List()
    busy = traitlets.Unicode()
    checked_at = traitlets.Instance(dt.datetime, allow_none=True)
    seen: str | None = None  # what was read for the findings, which an all-clear names

    cluster: Cluster
    audit: Audit

    def __init__(self, choose: Callable[[Finding], None]) -> None:
        self.buttons = {
            "refresh": widgets.Button(description="Refresh"),
            "dry_run_all": widgets.Button(description="Plan the abort of all"),
            "dry_run": widgets.Button(description="Dry run", button_style="primary"),
            "execute": widgets.Button(description="Write the abort marker", button_style="danger"),
            "cancel": widgets.Button(description="Cancel"),
            "next": widgets.Button(description="Next", button_style="primary"),
            "explain": widgets.Button(description="Explain"),
            "postmortem": widgets.Button(description="Make the postmortem"),
        }
        # Sent when the field loses focus: single letters could arrive after the click that follows.
        self.confirmation = widgets.Text(continuous_update=False, description="Confirmation")
        self.pasted = widgets.Textarea(continuous_update=False, description="Error text", rows=3)
        names = ("head", "live", "answer", "evidence", "why_not", "planned", "status", "problem", "done", "beside")
        self._areas = {name: widgets.HTML() for name in (*names, "audit", "explained", "postmortem")}
        # They take the focus from a control that goes; an HTML widget itself cannot, a box by assist.html.
        self._boxes = {name: widgets.VBox([self._areas[name]]) for name in FOCUSED}
        for box in self._boxes.values():
            box.add_class("area")
        self.list = FindingList(choose, self.announce)
        for filter_by in (self.list.search, self.list.group):
            filter_by.observe(self._draw_list_step, "value")
        self._figure = FigureFrame()
        areas, buttons = {**self._areas, **self._boxes}, self.buttons
        areas["live"].add_class("live")
        top = widgets.HBox([areas["head"], buttons["refresh"]])
        self._steps = widgets.HBox([buttons["dry_run"], self.confirmation, buttons["execute"], buttons["cancel"]])
        explain = widgets.HBox([self.pasted, buttons["explain"]])
        for box, name in ((top, "top"), (self._steps, "row"), (explain, "row")):
            box.add_class(name)
        super().__init__(
            [
                *(widgets.HTML(style_html()), top, areas["live"], self.list, buttons["dry_run_all"]),
                *(
                    areas["answer"],
                    areas["evidence"],
                    areas["why_not"],
                    areas["planned"],
                    self._steps,
                    areas["status"],
                    areas["problem"],
                    areas["done"],
                ),
                *(buttons["next"], areas["beside"], self._figure, areas["audit"]),
                *(_heading("Explain an error"), explain, areas["explained"]),
                *(_heading("Postmortem"), buttons["postmortem"], areas["postmortem"]),
            ]
        )
        self.add_class("kafka-txn-panel")
        traitlets.link((self, "typed"), (self.confirmation, "value"))
        self.observe(self.draw_busy, "busy")

    def announce(self, text: str) -> None:
        """Have a screen reader say a sentence."""
        self._areas["live"].value = escaped_html(text)

    def focus_on(self, area: str) -> None:
        """Move the focus to an area, and the area into view."""
        self._boxes[area].focus()

    def draw(self) -> None:
        """Show the current state."""
        finding = None if self.step == "done" else self.selected
        is_actionable = self.plan is not None or (finding is not None and finding.action is not None)
        self.list.show(self.findings, self.selected)
        self._draw_list_step()
        self._set_html("answer", self._html(answer_section(finding)) if finding else "")
        fence = [fence_section(self.fence)] if self.fence else []
        why_not = [] if finding is None or is_actionable else [why_not_section(finding), *fence]
        self._set_html("why_not", self._html(*why_not))
        self._set_html("planned", self._html(passed(self.plan, self.audit)) if self.plan else "")
        self.confirmation.description = f"To do it, type {self.plan.target}" if self.plan else "Confirmation"
        self._set_html("done", self._done())
        self._set_html("beside", self._html(Bullets(tuple(self.problems))) if self.problems else "")
        _show(self._steps, is_actionable)
        _show(self.buttons["dry_run"], finding is not None)
        if isinstance(self.plan, PlanList):
            self.buttons["execute"].description = "Write the abort markers"
        elif finding is not None and is_actionable:
            self.buttons["execute"].description = button_text(finding)
        self._set_html("evidence", self._html(evidence_section(finding)) if finding else "")
        trail = f"Audit trail: {count(len(self.actions), 'line', 'lines')} in {self.audit.path}"
        steps = (action_grid(records_of(self.actions, ActionStep)),) if self.actions else ()
        self._set_html("audit", self._html(Section(title=trail, parts=steps, is_folded=True)))
        following = next_actionable(self.findings) if self.step == "done" else None
        self.buttons["next"].description = f"Next: {choice(following)}" if following else ""
        _show(self.buttons["next"], following is not None)
        self._set_html("explained", self.explained._repr_html_() if self.explained else "")
        self._set_html("postmortem", postmortem_html(self.report) if self.report else "")
        if self.picture is None:
            self._figure.clear()
        else:
            self._figure.show(self.picture)

    def hanging(self) -> list[Finding]:
        """The findings that are listed, and that an abort would end."""
        return [each for each in self.list.matches if each.action == "abort"]

    def _draw_list_step(self, _: object = None) -> None:
        number = len(self.hanging())
        self.buttons["dry_run_all"].description = f"Plan the abort of all {number} that hang"
        _show(self.buttons["dry_run_all"], number > 1)

    def draw_problem(self) -> None:
        """Show the error, or clear it."""
        parts: list[Part] = []
        if self.error is not None:
            parts = [problem_section(self.error), *traceback_parts(self.error)]
        if isinstance(self.error, ConnectionFailed):  # that of an action says itself what was written
            as_of = f"What is shown is as of {self.checked_at:%H:%M:%S} UTC. " if self.checked_at else ""
            parts.insert(1, Paragraph(f"Nothing was written. {as_of}Repeat the step once the brokers respond."))
        self._set_html("problem", self._html(*parts))

    def draw_busy(self, _: object = None) -> None:
        """Show whether a step is running. Its buttons stay enabled, as one that is disabled loses the focus."""
        text = f'<span class="busy">{escaped_html(self.busy)} …</span>' if self.busy else ""
        self._set_html("head", f"<h2>{self._headline()}</h2>{text or self._checked()}")
        self._set_html("status", text)
        if self.busy:
            self.announce(self.busy)
        (self.add_class if self.busy else self.remove_class)("at-work")
        is_executing = self.busy.startswith(WORK["execute"])
        self.buttons["cancel"].disabled = not is_executing
        _show(self.buttons["cancel"], is_executing)
        for control in (self.confirmation, self.buttons["execute"]):
            control.disabled = self.step != "checked"

    def _set_html(self, name: str, text: str) -> None:
        widget = self._areas[name]
        widget.value = text
        _show(self._boxes.get(name, widget), bool(text))

    def _headline(self) -> str:
        text = summary(self.findings, scope=self.seen) if self.checked_at else "not checked yet"
        return escaped_html(text[:1].upper() + text[1:])

    def _checked(self) -> str:
        when = f" · checked {self.checked_at:%Y-%m-%d %H:%M:%S} UTC" if self.checked_at else ""
        return f'<span class="soft">{escaped_html(self.cluster.bootstrap_servers)}{when}</span>'

    def _done(self) -> str:
        if self.step != "done" or self.ended is None or self.result is None:
            return ""
        is_more = any(each.action or each.verdict.exit_code for each in self.findings)  # some have no action here
        last = [] if is_more else [Paragraph("Nothing else needs an action.")]
        return self._html(done_section(self.ended, self.result, str(self.audit.path)), *last)

    def _html(self, *parts: Part) -> str:
        return html_text(parts, connection=Connection.of(self.cluster))


def _heading(text: str) -> Any:
    return widgets.HTML(f"<h2>{text}</h2>")


def _show(widget: Any, visible: bool) -> None:
    widget.layout.display = None if visible else "none"


@cache
def style_html() -> str:
    """The style sheet, and a hidden frame whose script sets ARIA attributes."""
    assist = html.escape(package_text(__package__, "assist.html"), quote=True)
    frame = f'<iframe hidden title="accessibility of the panel" srcdoc="{assist}"></iframe>'
    light, dark = (f".kafka-txn-panel {{ {tone_variables(theme)} }}" for theme in ("light", "dark"))
    return f"<style>{light} {DARK_PAGE} {dark}\n{package_text(__package__, 'panel.css')}</style>{frame}"
