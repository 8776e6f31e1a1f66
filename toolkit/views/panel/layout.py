"""The widgets of the panel, and their content from its state."""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import traitlets

from toolkit.actions.plan import ListResult, Plan, PlanList, Result
from toolkit.errors import ConnectionFailed
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding
from toolkit.schema.recorded import ActionStep
from toolkit.views.action_document import done_section, fence_section, passed
from toolkit.views.document import Bullets, Connection, Paragraph, Part, Section
from toolkit.views.explained_error import ExplainedError
from toolkit.views.findings_text import summary
from toolkit.views.panel.action_steps import button_text
from toolkit.views.panel.finding_list import FindingList
from toolkit.views.panel.panel_html import (
    answer_section,
    choice,
    evidence_section,
    next_actionable,
    problem_section,
    traceback_parts,
    why_not_section,
)
from toolkit.views.panel.postmortem import postmortem_html
from toolkit.views.panel.timeline_picture import FigureFrame, TimelinePicture
from toolkit.views.renderers import escaped_html, html_text
from toolkit.views.report import Report
from toolkit.views.report.report_tables import action_grid
from toolkit.views.row_formats import count

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.schema import Row
    from toolkit.sources.live.cluster import Cluster

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
        self.list.search.observe(self._draw_list_step, "value")
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
        text = summary(self.findings) if self.checked_at else "not checked yet"
        return escaped_html(text[:1].upper() + text[1:])

    def _checked(self) -> str:
        when = f" · checked {self.checked_at:%Y-%m-%d %H:%M:%S} UTC" if self.checked_at else ""
        return f'<span class="soft">{escaped_html(self.cluster.bootstrap_servers)}{when}</span>'

    def _done(self) -> str:
        if self.step != "done" or self.ended is None or self.result is None:
            return ""
        last = [] if next_actionable(self.findings) else [Paragraph("Nothing else needs an action.")]
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
    files = resources.files(__package__)
    assist = html.escape((files / "assist.html").read_text(encoding="utf-8"), quote=True)
    frame = f'<iframe hidden title="accessibility of the panel" srcdoc="{assist}"></iframe>'
    return f"<style>{(files / 'panel.css').read_text(encoding='utf-8')}</style>{frame}"
