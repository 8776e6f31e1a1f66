"""The widgets of the panel, and their content from its state."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import traitlets

from toolkit.actions.abort import AbortPlan, AbortResult
from toolkit.actions.complete import CompletePlan, CompleteResult
from toolkit.actions.fence import FencePlan
from toolkit.schema.actions import ActionStep
from toolkit.schema.coerce import records_of
from toolkit.schema.live import Finding
from toolkit.views.findings_text import summary
from toolkit.views.panel.panel_html import (
    MARKED,
    MAX_CHOICES,
    answer_html,
    bullets,
    choice,
    done_html,
    evidence_html,
    fence_html,
    grid,
    is_same,
    line,
    next_actionable,
    paragraph,
    plan_html,
    problem_html,
    rank_findings,
    tone,
    traceback_html,
    why_not_html,
)
from toolkit.views.panel.timeline_picture import FigureFrame, TimelinePicture
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
    "execute": "Checking once more, writing the marker, and watching the LSO",
    "next": "Reading the log around it",
}
"""Text while a step is running."""
_MARKER = {"abort": "Write the abort marker", "commit": "Write the COMMIT marker"}


def _either(*classes: type) -> Any:
    """A trait with an instance of one of the classes, or null."""
    return traitlets.Union([traitlets.Instance(each, allow_none=True) for each in classes], allow_none=True)


class PanelLayout(widgets.VBox):  # type: ignore[misc]
    """State of the panel as traits, and its widgets; sends no requests."""

    findings: traitlets.List[Finding] = traitlets.List(traitlets.Instance(Finding))
    selected = traitlets.Instance(Finding, allow_none=True)
    step = traitlets.Enum(STEPS, default_value="choose")
    plan = _either(AbortPlan, CompletePlan)
    fence = traitlets.Instance(FencePlan, allow_none=True)
    typed = traitlets.Unicode()
    ended = _either(AbortPlan, CompletePlan)
    result = _either(AbortResult, CompleteResult)
    error = traitlets.Instance(BaseException, allow_none=True)
    problems = traitlets.List(traitlets.Unicode())
    picture = traitlets.Instance(TimelinePicture, allow_none=True)
    actions: traitlets.List[Row] = traitlets.List()
    busy = traitlets.Unicode()
    checked_at = traitlets.Instance(dt.datetime, allow_none=True)

    cluster: Cluster
    audit: Audit

    def __init__(self, choose: Callable[[Finding], None]) -> None:
        self._choose = choose
        self._listed: list[Finding] = []
        self.buttons = {
            "refresh": widgets.Button(description="Refresh"),
            "dry_run": widgets.Button(description="Dry run", button_style="primary"),
            "execute": widgets.Button(description="Write the abort marker", button_style="danger"),
            "cancel": widgets.Button(description="Cancel"),
            "next": widgets.Button(description="Next", button_style="primary"),
        }
        # Sent when the field loses focus: single letters could arrive after the click that follows.
        self.confirmation = widgets.Text(continuous_update=False, placeholder="name of the transaction")
        names = ("head", "answer", "why_not", "planned", "confirm", "status", "problem", "done", "beside")
        self._areas = {name: widgets.HTML() for name in names}
        self._choices = widgets.VBox()
        self._evidence = _folded("All evidence")
        self._traceback = _folded("Traceback")
        self._audit = _folded("Audit trail")
        self._figure = FigureFrame()
        top = widgets.HBox([self._areas["head"], self.buttons["refresh"]])
        confirm = self._areas["confirm"], self.confirmation
        self._steps = widgets.HBox([self.buttons["dry_run"], *confirm, self.buttons["execute"], self.buttons["cancel"]])
        for box, name in ((top, "top"), (self._choices, "choices"), (self._steps, "row")):
            box.add_class(name)
        areas = self._areas
        super().__init__(
            [
                *(widgets.HTML(style_html()), top, self._choices, areas["answer"], self._evidence, areas["why_not"]),
                *(areas["planned"], self._steps, areas["status"], areas["problem"], self._traceback, areas["done"]),
                *(self.buttons["next"], areas["beside"], self._figure, self._audit),
            ]
        )
        self.add_class("kafka-txn-panel")
        traitlets.link((self, "typed"), (self.confirmation, "value"))
        self.observe(self.draw_busy, "busy")

    def draw(self) -> None:
        """Show the current state."""
        finding = None if self.step == "done" else self.selected
        is_marked = finding is not None and finding.action in MARKED
        self._draw_choices()
        self._set_html("answer", answer_html(finding) if finding else "")
        fence = fence_html(self.fence) if self.fence else ""
        self._set_html("why_not", "" if finding is None or is_marked else why_not_html(finding) + fence)
        self._set_html("planned", plan_html(self.plan) if self.plan and is_marked else "")
        self._set_html("confirm", self._confirm())
        self._set_html("done", self._done())
        self._set_html("beside", bullets(self.problems) if self.problems else "")
        _show(self._steps, is_marked)
        if finding is not None and is_marked:
            self.buttons["execute"].description = _MARKER[
                "commit" if finding.action == "complete" and finding.outcome == "commit" else "abort"
            ]
        _fold(self._evidence, evidence_html(finding) if finding else "")
        _fold(self._audit, grid(action_grid(records_of(self.actions, ActionStep))) if self.actions else "")
        self._audit.titles = (f"Audit trail: {count(len(self.actions), 'line', 'lines')} in {self.audit.path}",)
        following = next_actionable(self.findings) if self.step == "done" else None
        self.buttons["next"].description = f"Next: {choice(following)}" if following else ""
        _show(self.buttons["next"], following is not None)
        if self.picture is None:
            self._figure.clear()
        else:
            self._figure.show(self.picture)

    def draw_problem(self) -> None:
        """Show the error, or clear it."""
        self._set_html("problem", problem_html(self.error) if self.error else "")
        _fold(self._traceback, traceback_html(self.error) if self.error else "")

    def draw_busy(self, _: object = None) -> None:
        """Show whether a step is running, and disable the buttons meanwhile."""
        text = f'<span class="busy" role="status">{line(self.busy)} …</span>' if self.busy else ""
        self._set_html("head", f"<h2>{self._headline()}</h2>{text or self._checked()}")
        self._set_html("status", text)
        idle = not self.busy
        is_executing = self.busy == WORK["execute"]
        self.buttons["cancel"].disabled = not is_executing
        _show(self.buttons["cancel"], is_executing)
        for button in (*self._choices.children, self.buttons["refresh"], self.buttons["dry_run"], self.buttons["next"]):
            button.disabled = not idle
        for control in (self.confirmation, self.buttons["execute"]):
            control.disabled = not (idle and self.step == "checked")

    def _draw_choices(self) -> None:
        listed = rank_findings(self.findings)[:MAX_CHOICES]
        if listed != self._listed:
            old, self._listed = self._choices.children, listed
            self._choices.children = [self._button(finding) for finding in listed]
            for button in old:
                button.close()
        for button, finding in zip(self._choices.children, listed, strict=True):
            (button.add_class if is_same(finding, self.selected) else button.remove_class)("chosen")
        _show(self._choices, bool(listed))

    def _button(self, finding: Finding) -> Any:
        button = widgets.Button(description=choice(finding), disabled=bool(self.busy))
        button.add_class(tone(finding))
        button.on_click(lambda _: self._choose(finding))
        return button

    def _set_html(self, name: str, text: str) -> None:
        widget = self._areas[name]
        widget.value = text
        _show(widget, bool(text))

    def _headline(self) -> str:
        text = summary(self.findings) if self.checked_at else "not checked yet"
        return line(text[:1].upper() + text[1:])

    def _checked(self) -> str:
        left_out = len(self.findings) - MAX_CHOICES
        more = f" · {left_out} more that are less urgent are not listed" if left_out > 0 else ""
        when = f" · checked {self.checked_at:%Y-%m-%d %H:%M:%S} UTC" if self.checked_at else ""
        return f'<span class="soft">{line(self.cluster.bootstrap_servers)}{when}{more}</span>'

    def _confirm(self) -> str:
        if self.plan is None:
            return "writes nothing. Then type its name:"
        return f'To do it, type <b class="number">{line(self.plan.target)}</b>'

    def _done(self) -> str:
        if self.step != "done" or self.ended is None or self.result is None:
            return ""
        last = "" if next_actionable(self.findings) else paragraph("Nothing else hangs.")
        return done_html(self.ended, self.result, str(self.audit.path)) + last


def _folded(title: str) -> Any:
    return widgets.Accordion([widgets.HTML()], titles=(title,), selected_index=None)


def _fold(box: Any, text: str) -> None:
    box.children[0].value = text
    _show(box, bool(text))


def _show(widget: Any, visible: bool) -> None:
    widget.layout.display = None if visible else "none"


@cache
def style_html() -> str:
    """The style sheet as an element."""
    return f"<style>{(resources.files(__package__) / 'panel.css').read_text(encoding='utf-8')}</style>"
