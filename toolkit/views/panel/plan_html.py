"""An abort in the panel: the result of the dry run, and of the marker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolkit.views.panel.html import bullets, card, command, line, paragraph
from toolkit.views.report.report_parts import counted

if TYPE_CHECKING:
    from toolkit.actions.abort import AbortPlan, AbortResult
    from toolkit.actions.abort_impact import AbortImpact

__all__ = ["done_html", "plan_html"]


def plan_html(plan: AbortPlan) -> str:
    """The result of a successful dry run."""
    return card(
        "plain",
        "<h3>The dry run passed. Nothing was written.</h3>",
        paragraph(
            f"It was checked again just now, and still hangs. An abort marker would end producer {plan.producer_id} "
            f"epoch {plan.producer_epoch} on {plan.topic}-{plan.partition} at offset {plan.start_offset}:"
        ),
        bullets(_changes(plan.impact)),
        paragraph("Kafka's tool writes the same marker without these checks:"),
        command(plan.command),
    )


def done_html(plan: AbortPlan, done: AbortResult, audit: str) -> str:
    """The result of the marker."""
    before, after = done.last_stable_offset_before, done.last_stable_offset_after
    is_moved = before is not None and after is not None and after > before
    head = f"The LSO moved: {before} → {after}" if is_moved else f"The LSO is still at {after}"
    return card(
        "done",
        f'<h3><span class="badge done">ended</span> {line(f"{plan.topic}-{plan.partition}")}</h3>',
        f'<p class="moved">{line(head)}</p>',
        bullets(_rest(done)),
        paragraph(f"Audit trail: {audit}.", kind="soft"),
        role="status",
    )


def _changes(impact: AbortImpact) -> Iterator[str]:
    if impact.unread:
        yield f"The number of records is unknown. {impact.unread}"
    else:
        dropped, released = impact.records_dropped or 0, impact.records_released or 0
        yield f"{counted(dropped, 'record', 'records')} of it: never read by any read_committed consumer."
        yield f"{counted(released, 'record', 'records')} behind it: can then be read."
    if impact.next_stable_offset == impact.last_stable_offset:
        yield f"The LSO stays at {impact.last_stable_offset}."
    else:
        yield f"The LSO goes from {impact.last_stable_offset} to {impact.next_stable_offset}."
    if impact.next_start_offset is not None:
        yield f"Then producer {impact.next_producer_id} holds it, from offset {impact.next_start_offset} on."
    groups = "not known" if impact.groups is None else ", ".join(impact.groups) or "none"
    yield f"Groups that continue: {groups}."


def _rest(done: AbortResult) -> Iterator[str]:
    if done.next_start_offset is None:
        yield f"Nothing else is open on this partition; its high watermark is {done.high_watermark}."
    else:
        yield f"The next transaction open on this partition starts at offset {done.next_start_offset}."
