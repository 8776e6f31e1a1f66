"""HTML of a plan and of its result: what would change, what did, and why the LSO is where it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit.actions.abort import AbortPlan, AbortResult
from toolkit.actions.abort_list import AbortListPlan, AbortListResult
from toolkit.actions.commit import CommitPlan, CommitResult
from toolkit.actions.complete import CompletePlan, CompleteResult
from toolkit.actions.fence import FencePlan, FenceResult
from toolkit.views.action_texts import NOT_DELIVERED, list_left_out, list_preview, list_result
from toolkit.views.panel.panel_html import bullets, card, command, folded, line, paragraph
from toolkit.views.row_formats import count, printable

if TYPE_CHECKING:
    from toolkit.actions.impact import MarkerImpact
    from toolkit.views.panel.action_steps import ActionPlan, ActionResult

MAX_COMMITS = 20


def plan_html(plan: ActionPlan) -> str:
    """The result of a successful dry run, and what to type."""
    lead, changes, *more = _planned(plan)
    return card(
        "plain",
        "<h3>The dry run passed. Nothing was written.</h3>",
        paragraph(lead),
        bullets(changes),
        *more,
        f'<p>To do it, type <b class="number">{line(plan.target)}</b> and press the button.</p>',
    )


def done_html(plan: ActionPlan, done: ActionResult, audit: str) -> str:
    """What was done, and what it changed."""
    head, *rest = _done(plan, done)
    return card(
        "done",
        f'<h3><span class="badge done">{_ENDED[type(plan)]}</span> {line(_name(plan))}</h3>',
        f'<p class="moved">{line(head)}</p>',
        folded("Each of them", bullets(rest)) if isinstance(plan, AbortListPlan) else bullets(rest),
        paragraph(f"Audit trail: {audit}.", kind="soft"),
    )


def done_text(plan: ActionPlan, done: ActionResult) -> str:
    """The result in one sentence, for a screen reader."""
    head, *_ = _done(plan, done)
    return f"{_name(plan)}: {_ENDED[type(plan)]}. {head}."


_ENDED = {
    AbortPlan: "ended",
    AbortListPlan: "ended",
    CompletePlan: "ended",
    CommitPlan: "committed",
    FencePlan: "fenced",
}


def _name(plan: ActionPlan) -> str:
    if isinstance(plan, CommitPlan | FencePlan):
        return plan.transactional_id
    if isinstance(plan, AbortListPlan):
        return plan.target
    return f"{plan.topic}-{plan.partition}"


def _planned(plan: ActionPlan) -> tuple[str, Iterable[str], *tuple[str, ...]]:
    """A sentence, what would change, and more HTML."""
    if isinstance(plan, AbortListPlan):
        return (
            f"Checked again just now, each by itself, and still hanging: {plan.target}. An abort marker on each:",
            _list_changes(plan),
            folded(f"All {plan.target}", bullets(list_preview(plan))),
            folded(f"{len(plan.left_out)} left out", bullets(list_left_out(plan))) if plan.left_out else "",
            paragraph(
                "Their records are saved first, beside the audit trail. Each is checked again right before its "
                "marker. The first that is not as planned stops the list."
            ),
        )
    if isinstance(plan, FencePlan):
        owner = plan.owner
        lead = (
            f"It was checked again just now: its coordinator has {owner.state} for producer {owner.producer_id} epoch "
            f"{owner.producer_epoch}. A fence of its id would do this:"
        )
        return (
            lead,
            _fence_changes(plan),
            paragraph("Kafka's tool does the same without these checks:"),
            command(plan.command),
        )
    if isinstance(plan, CommitPlan):
        lead = (
            f"It was checked again just now: {plan.checkpoint.name} is to commit producer "
            f"{plan.committable.producer_id} epoch {plan.committable.producer_epoch}, which its coordinator has open. "
            "Stop the job first. A commit would do this:"
        )
        return lead, _commit_changes(plan)
    where = f"{plan.topic}-{plan.partition} at offset {plan.start_offset}"
    who = f"producer {plan.producer_id} epoch {plan.producer_epoch} on {where}:"
    if isinstance(plan, CompletePlan):
        lead = f"It was checked again just now: its coordinator decided to {plan.outcome}, and the marker is missing."
        return f"{lead} The marker would end {who}", _complete_changes(plan)
    return (
        f"It was checked again just now, and still hangs. An abort marker would end {who}",
        (*_changes(plan.impact, "never read by any read_committed consumer"), *plan.warnings),
        paragraph("Its records are saved first, beside the audit trail."),
        paragraph("Kafka's tool writes the same marker without these checks, and saves nothing:"),
        command(plan.command),
    )


def _list_changes(plan: AbortListPlan) -> Iterator[str]:
    impacts = [each.impact for each in plan.plans]
    least = "At least " if any(each.records is None for each in impacts) else ""
    records = count(sum(each.records or 0 for each in impacts), "record")
    yield f"{least}{records} of them: never read by any read_committed consumer."
    known = [each.groups for each in impacts if each.groups is not None]
    yield _groups(sorted({group for groups in known for group in groups}) if len(known) == len(impacts) else None)
    yield from dict.fromkeys(text for each in plan.plans for text in each.warnings)


def _changes(impact: MarkerImpact, fate: str) -> Iterator[str]:
    """What a marker would change."""
    if impact.unread:
        yield f"The number of records is unknown. {impact.unread}"
    else:
        yield f"{count(impact.records or 0, 'record')} of it: {fate}."
        yield f"{count(impact.records_released or 0, 'record')} behind it: can then be read."
    yield lso_planned(impact)
    if impact.next_start_offset is not None:
        yield f"Then producer {impact.next_producer_id} holds it, from offset {impact.next_start_offset} on."
    yield _groups(impact.groups)


def _complete_changes(plan: CompletePlan) -> Iterator[str]:
    is_commit = plan.outcome == "commit"
    fate = "then visible to read_committed consumers" if is_commit else "never read by any read_committed consumer"
    yield from _changes(plan.impact, fate)
    for commit in plan.impact.offset_commits[:MAX_COMMITS]:
        partition = f"{printable(commit.topic)}-{commit.partition}"
        yield f"Group {printable(commit.group_id)} continues at {commit.offset} on {partition}."
    yield from plan.warnings


def _commit_changes(plan: CommitPlan) -> Iterator[str]:
    for each in plan.partitions:
        impact = each.impact
        records = "an unknown number of records" if impact.records is None else count(impact.records, "record")
        yield f"{each.topic}-{each.partition}: {records} then visible. {lso_planned(impact)}"
    yield (
        "Afterwards the job has to be restored from this checkpoint or a later one; from an earlier one it writes "
        "these records again."
    )


def _fence_changes(plan: FencePlan) -> Iterator[str]:
    yield from plan.warnings
    names = ", ".join(f"{topic}-{partition}" for topic, partition in plan.topic_partitions)
    yield f"Partitions of the transaction: {names or 'none'}."


def lso_planned(impact: MarkerImpact) -> str:
    """Where the LSO goes; with nothing else open, behind the marker, which takes an offset of its own."""
    now, then = impact.last_stable_offset, impact.next_stable_offset
    if impact.next_start_offset is None:
        return f"The LSO goes from {now} to {then + 1}: the marker takes offset {then}, the high watermark."
    return f"The LSO stays at {now}." if now == then else f"The LSO goes from {now} to {then}."


def lso_difference(impact: MarkerImpact, done: AbortResult | CompleteResult) -> str:
    """Why the LSO is not where the plan has it; empty if it is."""
    planned = impact.next_stable_offset + (impact.next_start_offset is None)
    after = done.last_stable_offset_after
    if after is None or after == planned:
        return ""
    if impact.next_start_offset is None and done.next_start_offset is None and after > planned:
        return (
            f"The plan had {planned}: {count(after - planned, 'more offset was', 'more offsets were')} written since."
        )
    if done.next_start_offset is not None and impact.next_start_offset is None:
        return f"The plan had {planned}: a transaction that was opened since holds it now."
    return f"The plan had {planned}: what is open behind it has changed since."


def _groups(groups: Sequence[str] | None) -> str:
    names = "not known" if groups is None else ", ".join(map(printable, groups)) or "none"
    return f"Groups that continue: {names}."


def _done(plan: ActionPlan, done: ActionResult) -> Iterator[str]:
    """The headline, and what else changed."""
    if isinstance(done, AbortListResult):
        assert isinstance(plan, AbortListPlan)
        stop = "" if done.stopped_at is None else f"; stopped at {done.stopped_at}"
        yield f"{len(done.aborted)} of {plan.target} aborted{stop}"
        yield from list_result(plan, done)
    elif isinstance(done, FenceResult):
        yield f"Epoch {done.producer_epoch_before} of producer {done.producer_id_before} is fenced"
        yield f"Epoch {done.producer_epoch} of producer {done.producer_id} owns the id, and is {done.state}."
        waiting = ", ".join(f"{topic}-{partition}" for topic, partition in done.still_open)
        if waiting:
            yield f"Markers are not yet written to {waiting}: diagnose again."
    elif isinstance(done, CommitResult):
        yield f"The transaction is {done.state}"
        for each in done.partitions:
            moved = _moved(each.last_stable_offset_before, each.last_stable_offset_after)
            yield f"{each.topic}-{each.partition}: {moved}. {_received(each.records_delivered, each.records_checked)}"
    else:
        assert isinstance(plan, AbortPlan | CompletePlan)
        yield _moved(done.last_stable_offset_before, done.last_stable_offset_after)
        if difference := lso_difference(plan.impact, done):
            yield difference
        yield from _marker_done(done)


def _marker_done(done: AbortResult | CompleteResult) -> Iterator[str]:
    if isinstance(done, CompleteResult) and done.records_delivered is not None:
        yield _received(done.records_delivered, done.records_checked)
    if isinstance(done, AbortResult) and done.records_file is not None:
        yield f"{count(done.records_saved or 0, 'record', 'records')} saved in {done.records_file}."
    if done.next_start_offset is None:
        yield f"Nothing else is open on this partition; its high watermark is {done.high_watermark}."
    else:
        yield f"The next transaction open on this partition starts at offset {done.next_start_offset}."


def _moved(before: int | None, after: int | None) -> str:
    is_moved = before is not None and after is not None and after > before
    return f"The LSO moved: {before} → {after}" if is_moved else f"The LSO is still at {after}"


def _received(delivered: int | None, checked: int | None) -> str:
    if checked is None:
        return NOT_DELIVERED
    return f"A read_committed consumer received {count(delivered or 0, 'record', 'records')} of {checked}."
