"""Every widget of the panel in every step, as stored: what it changes, where the focus goes, what is announced."""

from __future__ import annotations

import difflib
import html
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

from tests.actions.rows import abort_plan
from tests.stored import compare
from tests.views.panel.test_panel_html import GONE, PanelCluster, finding, impact, plan, result
from tests.views.test_report import action
from toolkit.actions.audit import Audit
from toolkit.actions.plan import Done, LeftOut, ListResult, Plan, PlanList, Result
from toolkit.analysis.symptoms import NamedResources
from toolkit.errors import ActionFailed, ActionRefused, ConnectionFailed
from toolkit.schema.live import Finding
from toolkit.views.explained_error import ExplainedError
from toolkit.views.panel import abort_panel
from toolkit.views.panel.abort_panel import AbortPanel
from toolkit.views.panel.layout import PanelLayout
from toolkit.views.report import report


def lines(widget: Any) -> Iterator[str]:
    """A line for each widget that is not hidden: its classes, its text, and whether it is disabled."""
    if widget.layout.display == "none":
        return
    words = [type(widget).__name__, *widget._dom_classes]
    text = getattr(widget, "description", "")
    if isinstance(widget, widgets.HTML):
        text = re.sub(r"<(style|script|svg).*?</\1>|<[^>]*>|\s+", " ", widget.value, flags=re.DOTALL)
        text = " ".join(html.unescape(text).split())
    elif isinstance(widget, (widgets.Text, widgets.Textarea, widgets.Dropdown)):
        more = (getattr(widget, "placeholder", "").strip("\u200b"), *getattr(widget, "options", ()))
        text += f": {widget.value!r} {'; '.join(more)}"
    words += [getattr(widget, "button_style", ""), "disabled" if getattr(widget, "disabled", False) else ""]
    yield f"{' '.join(filter(None, words))}: {text[:1500]}".rstrip()
    for child in getattr(widget, "children", ()):
        yield from (f"  {line}" for line in lines(child))


def test_every_step_of_the_panel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    hanging, committed = (
        finding(topic="refunds"),
        finding(topic="b", verdict="stuck_ending", outcome="commit", action="complete"),
    )
    live = finding(topic="c", verdict="ongoing", action=None, outcome=None, transactional_id="ledger-1",
                   groups_held=None, offsets_held=5, records_held=None)  # fmt: skip
    trail: list[Any] = []
    planned, log = plan(impact()), list[str]()
    fence = replace(planned, transactional_id="ledger-1", warnings=["It is aborted everywhere."])
    cluster: Any = PanelCluster(findings=[each.row() for each in (hanging, committed, live, finding(start_offset=5))])
    cluster.named = GONE
    answers: dict[str, Any] = {"plan": planned, "execute": Result(partitions=[result(9)]), "fence": fence}

    def answer(name: str) -> Any:
        if isinstance(answers[name], BaseException):
            raise answers[name]
        return answers[name]

    def executed(_: Plan | PlanList, *, progress: Any = None, **__: Any) -> Any:
        if progress is not None:
            progress(planned)
        trail.append(action(bootstrap_servers="one:9092"))
        return answer("execute")

    monkeypatch.setattr(Audit, "rows", lambda _: list(trail))
    for kind in (Plan, PlanList):
        monkeypatch.setattr(kind, "execute", executed)
    monkeypatch.setattr(abort_panel, "checked_plan", lambda *_, **__: answer("plan"))
    monkeypatch.setattr(abort_panel, "checked_list", lambda *_, **__: answer("plan"))
    monkeypatch.setattr(abort_panel, "plan_fence", lambda *_: answer("fence"))
    monkeypatch.setattr(abort_panel, "explain", lambda text, *_, **__: ExplainedError(
        recognized=(), named=NamedResources(groups=(text,))))  # fmt: skip
    monkeypatch.setattr(abort_panel, "postmortem", lambda _, found, **more: report(found, actions=more["actions"]))
    monkeypatch.setattr(PanelLayout, "focus_on", lambda _, area: log.append(f"focus on {area}"))
    panel = AbortPanel(cluster, audit=Audit("audit.jsonl"), recheck_after=0)

    def watch(_: Any) -> None:
        if panel.busy:
            cancel = panel.buttons["cancel"]
            shown = (
                "hidden"
                if cancel.layout.display == "none"
                else f"shown, {'disabled' if cancel.disabled else 'enabled'}"
            )
            log.append(f"busy: {panel.busy}; {' '.join(panel._dom_classes)}; Cancel is {shown}")

    panel.observe(watch, "busy")
    before, found = list[str](), list[str]()

    def chosen() -> str:
        return f"chosen: {panel.selected.key}, {panel.selected.reason}" if panel.selected else "chosen: none"

    def step(name: str, work: Any, *arguments: Any, **changed: Any) -> None:
        answers.update(changed)
        work(*arguments)
        for thread in [each for each in threading.enumerate() if each.name == "kafka-txn-panel"]:
            thread.join()
        now = [
            re.sub(r"\d\d\d\d-\d\d-\d\d |\d\d:\d\d:\d\d", "#", each) for each in [repr(panel), chosen(), *lines(panel)]
        ]
        changes = difflib.unified_diff(before, now, n=0, lineterm="")
        found.extend([f"# {name}", *log, *(each for each in [*changes][2:] if not each.startswith("@@"))])
        before[:], log[:] = now, []

    def click(name: str) -> None:
        panel._last = "", 0.0
        panel.buttons[name].click()

    def execute(typed: str) -> None:
        panel.confirmation.value = typed
        click("execute")

    def list_again(findings: Sequence[Finding]) -> None:
        cluster.findings = [each.row() for each in findings]
        panel.refresh()

    step("begun", lambda: None)
    step("dry run of nothing", click, "dry_run")
    step("execute without a plan", panel.execute)
    step("chosen", panel.list.choices.children[0].click)
    step("dry run", click, "dry_run")
    step(
        "another name",
        execute,
        "orders-0@1",
        execute=ActionRefused("It is another.", means="Nothing was written.", do="Type it."),
    )
    step("done", execute, planned.target, execute=Result(partitions=[result(9)]))
    step("next", click, "next")
    step("refused", click, "dry_run", plan=ActionRefused("It is live now.", do="Wait.", command=("kafka-txn", "list")))
    step("not committed", panel.select, committed)
    step("dry run again", click, "dry_run", plan=planned)
    cluster.named = finding(reason="It is there still.")
    step("it failed", execute, planned.target, execute=ActionFailed("No answer.", effect="uncertain", do="Diagnose."))
    step("live", panel.select, live)
    step("no text to explain", click, "explain")
    step("explained", panel.explain, "billing")
    step("postmortem", click, "postmortem")
    step("refreshed", click, "refresh")
    cluster.before = {("finding_rows", cluster.calls["finding_rows"] + 1): _unreachable}
    step("unreachable", click, "refresh")
    cluster.named = GONE
    step("nothing is open", list_again, [])
    step("next of nothing", panel.next)
    step("the postmortem of what was done", click, "postmortem")
    step(
        "sixty",
        list_again,
        [finding(partition=n, transactional_id=f"a-{n}", owner="Flink ledger (likely)") for n in range(60)],
    )
    step("next page", panel.list.next_page.click)
    step("last page", panel.list.next_page.click)
    step("previous page", panel.list.previous_page.click)
    step("group", setattr, panel.list.group, "value", panel.list.group.options[-1])
    step("search", setattr, panel.list.search, "value", "flink a-1")
    more = abort_plan(cluster, impact=impact(records=None, size=None, groups=None), start_offset=7)
    of_all = PlanList(cluster=cluster, plans=[planned, more], left_out=[LeftOut(
        target="orders-3@1", verdict="ongoing", outcome=None, reason="It is live.", remedy="Wait.")])  # fmt: skip
    step("dry run of all", click, "dry_run_all", plan=of_all)
    first = Done(target="orders-0@5", result=Result(partitions=[result(9)]))
    lost = ActionFailed("No answer.", effect="uncertain", do="")
    stopped = ListResult(done=[first], stopped_at="orders-0@7", error=lost, not_tried=["x-0@1"])
    step("all, up to one", execute, "2 transactions", execute=stopped)
    step("refreshed", click, "refresh")
    step("search of nothing", setattr, panel.list.search, "value", "nowhere")
    step("dry run of none", panel.dry_run_all)
    compare("variants/panel.txt", found)


def _unreachable(_: Any) -> None:
    raise ConnectionFailed("No broker answers.", do="Look at the network.")
