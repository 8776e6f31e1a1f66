"""HTML of a plan and of its result: what would change, and what did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolkit.actions.plan import ListResult, PlanList, Result
from toolkit.views.action_texts import changes, groups_text, lead, list_left_out, list_preview, list_result, result
from toolkit.views.panel.panel_html import bullets, card, command, folded, line, paragraph
from toolkit.views.row_formats import count

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.actions.plan import Plan
    from toolkit.views.panel.action_steps import ActionPlan, ActionResult

ENDED = {"abort": "ended", "complete": "ended", "commit": "committed", "fence": "fenced"}
KAFKAS_TOOL = {
    "abort": "Kafka's tool writes the same marker without these checks, and saves nothing:",
    "fence": "Kafka's tool does the same without these checks:",
}


def plan_html(plan: ActionPlan, audit: Audit) -> str:
    """The result of a successful dry run, and what to type. `audit`: beside which records are saved."""
    parts = _list_parts(plan) if isinstance(plan, PlanList) else _parts(plan, audit)
    return card(
        "plain",
        "<h3>The dry run passed. Nothing was written.</h3>",
        *parts,
        f'<p>To do it, type <b class="number">{line(plan.target)}</b> and press the button.</p>',
    )


def _parts(plan: Plan, audit: Audit) -> Iterator[str]:
    yield paragraph(f"It was checked again just now. {lead(plan)}")
    yield bullets(changes(plan, audit=audit))
    if plan.command is not None and plan.refusal is None:
        yield paragraph(KAFKAS_TOOL[plan.action.name])
        yield command(plan.command)


def _list_parts(plan: PlanList) -> Iterator[str]:
    impacts = [each.impact for each in plan.plans]
    least = "at least " if any(each.records is None for each in impacts) else ""
    records = count(sum(each.records or 0 for each in impacts), "record")
    known = [each.groups for each in impacts if each.groups is not None]
    groups = sorted({group for of_one in known for group in of_one}) if len(known) == len(impacts) else None
    warnings = dict.fromkeys(text for each in plan.plans for text in each.warnings)
    yield paragraph(
        f"Checked again just now, each by itself, and still hanging: {plan.target}. An abort marker on each:"
    )
    yield bullets([f"{least}{records} of them are never read", groups_text(groups), *warnings])
    yield folded(f"All {plan.target}", bullets(list_preview(plan)))
    yield folded(f"{len(plan.left_out)} left out", bullets(list_left_out(plan))) if plan.left_out else ""
    yield paragraph(
        "Their records are saved first, beside the audit trail. All are checked again before the first marker, and "
        "each right before its own. The first that is not as planned stops the list."
    )


def done_html(plan: ActionPlan, done: ActionResult, audit: str) -> str:
    """What was done, and what it changed."""
    head, *rest = _done(plan, done)
    is_list = isinstance(plan, PlanList)
    return card(
        "done",
        f'<h3><span class="badge done">{_ended(plan)}</span> {line(plan.target)}</h3>',
        f'<p class="moved">{line(head)}</p>',
        folded("Each of them", bullets(rest)) if is_list else bullets(rest),
        paragraph(f"Audit trail: {audit}.", kind="soft"),
    )


def done_text(plan: ActionPlan, done: ActionResult) -> str:
    """The result in one sentence, for a screen reader."""
    head, *_ = _done(plan, done)
    return f"{_ended(plan).capitalize()}: {head}"


def _ended(plan: ActionPlan) -> str:
    return "ended" if isinstance(plan, PlanList) else ENDED[plan.action.name]


def _done(plan: ActionPlan, done: ActionResult) -> Iterator[str]:
    """The headline, and what else changed."""
    if isinstance(plan, PlanList) and isinstance(done, ListResult):
        stop = "" if done.stopped_at is None else f"; stopped at {done.stopped_at}"
        yield f"{len(done.done)} of {plan.target} aborted{stop}"
        yield from list_result(plan, done)
    elif not isinstance(plan, PlanList) and isinstance(done, Result):
        yield from result(plan, done)
