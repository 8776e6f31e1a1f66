"""What the panel shows of its state: its widgets, and how they are filled."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import traitlets

from toolkit.actions.abort import Aborted, AbortPlan
from toolkit.actions.fence import FencePlan
from toolkit.views.panel.choices import MOST, choice, next_hanging, same, sorted_out, tone
from toolkit.views.panel.chosen import answer_html, evidence_html, fence_html, why_not_html
from toolkit.views.panel.frame import FigureFrame
from toolkit.views.panel.picture import Picture
from toolkit.views.panel.pieces import bullets, grid, line, paragraph
from toolkit.views.panel.planned import done_html, plan_html
from toolkit.views.panel.problem import problem_html, traceback_html
from toolkit.views.panel.style import style_html
from toolkit.views.report.grids import action_grid
from toolkit.views.report.parts import counted
from toolkit.views.text import summary

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.schema import Row
    from toolkit.sources.cluster import Cluster

__all__ = ["STEPS", "Face"]

STEPS = ("choose", "chosen", "checked", "done")


class Face(widgets.VBox):  # type: ignore[misc]
    """The state of the panel as traits, and widgets that show it; nothing is asked of a cluster here."""

    findings: traitlets.List[Row] = traitlets.List()
    selected = traitlets.Any(allow_none=True)
    step = traitlets.Enum(STEPS, default_value="choose")
    plan = traitlets.Instance(AbortPlan, allow_none=True)
    fence = traitlets.Instance(FencePlan, allow_none=True)
    typed = traitlets.Unicode()
    ended = traitlets.Instance(AbortPlan, allow_none=True)
    result = traitlets.Instance(Aborted, allow_none=True)
    error = traitlets.Instance(BaseException, allow_none=True)
    problems = traitlets.List(traitlets.Unicode())
    picture = traitlets.Instance(Picture, allow_none=True)
    actions: traitlets.List[Row] = traitlets.List()
    busy = traitlets.Unicode()
    looked_at = traitlets.Instance(dt.datetime, allow_none=True)

    cluster: Cluster
    audit: Audit

    def __init__(self, choose: Callable[[Row], None]) -> None:
        self._choose = choose
        self._listed: list[Row] = []
        self.buttons = {
            "look": widgets.Button(description="Look again"),
            "dry_run": widgets.Button(description="Dry run", button_style="primary"),
            "execute": widgets.Button(description="Write the abort marker", button_style="danger"),
            "next": widgets.Button(description="Next", button_style="primary"),
        }
        # Sent as a whole when it is left: what is sent letter by letter may come after the click that follows it.
        self.confirmation = widgets.Text(continuous_update=False, placeholder="what is to be ended")
        names = ("head", "answer", "why_not", "planned", "asked", "status", "problem", "done", "beside")
        self._said = {name: widgets.HTML() for name in names}
        self._choices = widgets.VBox()
        self._evidence = _folded("Everything that was seen")
        self._traceback = _folded("Traceback")
        self._audit = _folded("Audit trail")
        self._figure = FigureFrame()
        top = widgets.HBox([self._said["head"], self.buttons["look"]])
        asked = self._said["asked"], self.confirmation
        self._road = widgets.HBox([self.buttons["dry_run"], *asked, self.buttons["execute"]])
        for box, name in ((top, "top"), (self._choices, "choices"), (self._road, "row")):
            box.add_class(name)
        said = self._said
        super().__init__(
            [
                *(widgets.HTML(style_html()), top, self._choices, said["answer"], self._evidence, said["why_not"]),
                *(said["planned"], self._road, said["status"], said["problem"], self._traceback, said["done"]),
                *(self.buttons["next"], said["beside"], self._figure, self._audit),
            ]
        )
        self.add_class("kafka-txn-panel")
        traitlets.link((self, "typed"), (self.confirmation, "value"))
        self.observe(self.draw_busy, "busy")

    def draw(self) -> None:
        """Show the state as it is."""
        row = None if self.step == "done" else self.selected
        hangs = row is not None and row["verdict"] == "hanging"
        self._draw_choices()
        self._say("answer", answer_html(row) if row else "")
        self._say("why_not", "" if row is None or hangs else self._why_not(row))
        self._say("planned", plan_html(self.plan) if self.plan and hangs else "")
        self._say("asked", self._asked())
        self._say("done", self._done())
        self._say("beside", bullets(self.problems) if self.problems else "")
        _show(self._road, hangs)
        _fold(self._evidence, evidence_html(row) if row else "")
        _fold(self._audit, grid(action_grid(self.actions)) if self.actions else "")
        self._audit.titles = (f"Audit trail: {counted(len(self.actions), 'line', 'lines')} in {self.audit.path}",)
        following = next_hanging(self.findings) if self.step == "done" else None
        self.buttons["next"].description = f"Next: {choice(following)}" if following else ""
        _show(self.buttons["next"], following is not None)
        if self.picture is None:
            self._figure.clear()
        else:
            self._figure.show(self.picture)

    def draw_problem(self) -> None:
        """Show what went wrong, or that nothing did."""
        self._say("problem", problem_html(self.error) if self.error else "")
        _fold(self._traceback, traceback_html(self.error) if self.error else "")

    def draw_busy(self, _: object = None) -> None:
        """Show whether something is under way; then nothing else can be begun."""
        told = f'<span class="busy" role="status">{line(self.busy)} …</span>' if self.busy else ""
        self._say("head", f"<h2>{self._headline()}</h2>{told or self._looked()}")
        self._say("status", told)
        idle = not self.busy
        for button in (*self._choices.children, self.buttons["look"], self.buttons["dry_run"], self.buttons["next"]):
            button.disabled = not idle
        for control in (self.confirmation, self.buttons["execute"]):
            control.disabled = not (idle and self.step == "checked")

    def _draw_choices(self) -> None:
        rows = sorted_out(self.findings)[:MOST]
        if rows != self._listed:
            old, self._listed = self._choices.children, rows
            self._choices.children = [self._button(row) for row in rows]
            for button in old:
                button.close()
        for button, row in zip(self._choices.children, rows, strict=True):
            (button.add_class if same(row, self.selected) else button.remove_class)("chosen")
        _show(self._choices, bool(rows))

    def _button(self, row: Row) -> Any:
        button = widgets.Button(description=choice(row), disabled=bool(self.busy))
        button.add_class(tone(row))
        button.on_click(lambda _: self._choose(row))
        return button

    def _say(self, name: str, text: str) -> None:
        widget = self._said[name]
        widget.value = text
        _show(widget, bool(text))

    def _headline(self) -> str:
        told = summary(self.findings) if self.looked_at else "not looked at yet"
        return line(told[:1].upper() + told[1:])

    def _looked(self) -> str:
        left_out = len(self.findings) - MOST
        more = f" · {left_out} more that are less urgent are not listed" if left_out > 0 else ""
        when = f" · looked at {self.looked_at:%Y-%m-%d %H:%M:%S} UTC" if self.looked_at else ""
        return f'<span class="soft">{line(self.cluster.bootstrap_servers)}{when}{more}</span>'

    def _why_not(self, row: Row) -> str:
        return why_not_html(row) + (fence_html(self.fence) if self.fence else "")

    def _asked(self) -> str:
        if self.plan is None:
            return "writes nothing. Then type its name:"
        return f'To do it, type <b class="number">{line(self.plan.target)}</b>'

    def _done(self) -> str:
        if self.step != "done" or self.ended is None or self.result is None:
            return ""
        last = "" if next_hanging(self.findings) else paragraph("Nothing else that was looked at hangs.")
        return done_html(self.ended, self.result, str(self.audit.path)) + last


def _folded(title: str) -> Any:
    return widgets.Accordion([widgets.HTML()], titles=(title,), selected_index=None)


def _fold(box: Any, text: str) -> None:
    box.children[0].value = text
    _show(box, bool(text))


def _show(widget: Any, shown: bool) -> None:
    widget.layout.display = None if shown else "none"
