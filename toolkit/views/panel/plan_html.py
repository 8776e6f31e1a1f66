"""A marker in the panel: the result of the dry run, and of the marker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit.actions.abort import AbortPlan, AbortResult
from toolkit.actions.complete import CompletePlan, CompleteResult
from toolkit.views.panel.html import bullets, card, command, line, paragraph
from toolkit.views.report.report_parts import counted
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    from toolkit.actions.abort_impact import AbortImpact

MAX_COMMITS = 20


def plan_html(plan: AbortPlan | CompletePlan) -> str:
    """The result of a successful dry run."""
    where = f"{plan.topic}-{plan.partition} at offset {plan.start_offset}"
    if isinstance(plan, CompletePlan):
        return card(
            "plain",
            "<h3>The dry run passed. Nothing was written.</h3>",
            paragraph(
                f"It was checked again just now: its coordinator decided to {plan.outcome}, and the marker is missing. "
                f"The marker would end producer {plan.producer_id} epoch {plan.producer_epoch} on {where}:"
            ),
            bullets(_visible(plan)),
        )
    return card(
        "plain",
        "<h3>The dry run passed. Nothing was written.</h3>",
        paragraph(
            f"It was checked again just now, and still hangs. An abort marker would end producer {plan.producer_id} "
            f"epoch {plan.producer_epoch} on {where}:"
        ),
        bullets(_changes(plan.impact)),
        paragraph("Its records are saved first, beside the audit trail."),
        paragraph("Kafka's tool writes the same marker without these checks, and saves nothing:"),
        command(plan.command),
    )


def done_html(plan: AbortPlan | CompletePlan, done: AbortResult | CompleteResult, audit: str) -> str:
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


def _visible(plan: CompletePlan) -> Iterator[str]:
    impact = plan.impact
    if impact.unread:
        yield f"The number of records is unknown. {impact.unread}"
    elif plan.outcome == "commit":
        yield f"{counted(impact.records or 0, 'record', 'records')} of it: then visible to read_committed consumers."
    else:
        yield f"{counted(impact.records or 0, 'record', 'records')} of it: never read by any read_committed consumer."
    if not impact.unread:
        yield f"{counted(impact.records_released or 0, 'record', 'records')} behind it: can then be read."
    for committed in impact.offset_commits[:MAX_COMMITS]:
        yield (
            f"Group {printable(committed.group_id)} continues at {committed.offset} on {printable(committed.topic)}-"
            f"{committed.partition}."
        )
    yield from _next(impact.last_stable_offset, impact.next_stable_offset)
    if impact.next_start_offset is not None:
        yield f"Then producer {impact.next_producer_id} holds it, from offset {impact.next_start_offset} on."
    yield _groups(impact.groups)


def _changes(impact: AbortImpact) -> Iterator[str]:
    if impact.unread:
        yield f"The number of records is unknown. {impact.unread}"
    else:
        dropped, released = impact.records_dropped or 0, impact.records_released or 0
        yield f"{counted(dropped, 'record', 'records')} of it: never read by any read_committed consumer."
        yield f"{counted(released, 'record', 'records')} behind it: can then be read."
    yield from _next(impact.last_stable_offset, impact.next_stable_offset)
    if impact.next_start_offset is not None:
        yield f"Then producer {impact.next_producer_id} holds it, from offset {impact.next_start_offset} on."
    yield _groups(impact.groups)


def _next(now: int | None, then: int | None) -> Iterator[str]:
    yield f"The LSO stays at {now}." if now == then else f"The LSO goes from {now} to {then}."


def _groups(groups: Sequence[str] | None) -> str:
    names = "not known" if groups is None else ", ".join(map(printable, groups)) or "none"
    return f"Groups that continue: {names}."


def _rest(done: AbortResult | CompleteResult) -> Iterator[str]:
    if isinstance(done, CompleteResult) and done.records_delivered is not None:
        received = counted(done.records_delivered, "record", "records")
        yield f"A read_committed consumer received {received} of {done.records_checked}."
    if isinstance(done, AbortResult) and done.records_file is not None:
        yield f"{counted(done.records_saved or 0, 'record', 'records')} saved in {done.records_file}."
    if done.next_start_offset is None:
        yield f"Nothing else is open on this partition; its high watermark is {done.high_watermark}."
    else:
        yield f"The next transaction open on this partition starts at offset {done.next_start_offset}."
