"""HTML of a plan and of its result: what would change, what did, and why the LSO is where it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit.actions.plan import ListResult, Plan, PlanList, Result
from toolkit.actions.transaction import MarkerImpact, PartitionResult
from toolkit.views.action_texts import NOT_DELIVERED, list_left_out, list_preview, list_result
from toolkit.views.panel.panel_html import bullets, card, command, folded, line, paragraph
from toolkit.views.row_formats import count, printable

if TYPE_CHECKING:
    from toolkit.views.panel.action_steps import ActionPlan, ActionResult

MAX_COMMITS = 20
ENDED = {"abort": "ended", "complete": "ended", "commit": "committed", "fence": "fenced"}


def plan_html(plan: ActionPlan) -> str:
    """The result of a successful dry run, and what to type."""
    lead, changes, more = _planned(plan)
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
        f'<h3><span class="badge done">{_ended(plan)}</span> {line(_name(plan))}</h3>',
        f'<p class="moved">{line(head)}</p>',
        folded("Each of them", bullets(rest)) if isinstance(plan, PlanList) else bullets(rest),
        paragraph(f"Audit trail: {audit}.", kind="soft"),
    )


def done_text(plan: ActionPlan, done: ActionResult) -> str:
    """The result in one sentence, for a screen reader."""
    head, *_ = _done(plan, done)
    return f"{_name(plan)}: {_ended(plan)}. {head}."


def _ended(plan: ActionPlan) -> str:
    return "ended" if isinstance(plan, PlanList) else ENDED[plan.action.name]


def _name(plan: ActionPlan) -> str:
    is_marker = isinstance(plan, Plan) and plan.transactional_id is None
    return str(plan.topic_partitions[0]) if is_marker else plan.target


def _planned(plan: ActionPlan) -> tuple[str, Iterable[str], Sequence[str]]:
    """A sentence, what would change, and more HTML."""
    if isinstance(plan, PlanList):
        more = [
            folded(f"All {plan.target}", bullets(list_preview(plan))),
            folded(f"{len(plan.left_out)} left out", bullets(list_left_out(plan))) if plan.left_out else "",
            paragraph(
                "Their records are saved first, beside the audit trail. All are checked again before the first marker, "
                "and each right before its own. The first that is not as planned stops the list."
            ),
        ]
        lead = f"Checked again just now, each by itself, and still hanging: {plan.target}. An abort marker on each:"
        return lead, _list_changes(plan), more
    checked = "It was checked again just now"
    if plan.action.name == "fence" and plan.owner is not None:
        lead = (
            f"{checked}: its coordinator has {plan.owner.state} for producer {plan.owner.producer_id} epoch "
            f"{plan.owner.producer_epoch}. A fence of its id would do this:"
        )
        return lead, _fence_changes(plan), _kafkas_tool(plan, "Kafka's tool does the same without these checks:")
    if plan.checkpoint is not None and plan.committable is not None:
        lead = (
            f"{checked}: {plan.checkpoint.name} is to commit producer {plan.committable.producer_id} epoch "
            f"{plan.committable.producer_epoch}, which its coordinator has open. Stop the job first. A commit would do "
            "this:"
        )
        return lead, _commit_changes(plan), ()
    txn = plan.transaction
    who = f"producer {txn.producer_id} epoch {txn.producer_epoch} on {txn.tp} at offset {txn.start_offset}:"
    if plan.action.name == "complete":
        lead = f"{checked}: its coordinator decided to {plan.outcome}, and the marker is missing. The marker would end"
        return f"{lead} {who}", _complete_changes(plan), ()
    changes = (*_changes(plan.impact, "never read by any read_committed consumer"), *plan.warnings)
    saved = paragraph("Its records are saved first, beside the audit trail.")
    tool = _kafkas_tool(plan, "Kafka's tool writes the same marker without these checks, and saves nothing:")
    return f"{checked}, and still hangs. An abort marker would end {who}", changes, (saved, *tool)


def _kafkas_tool(plan: Plan, text: str) -> tuple[str, ...]:
    """The equal line of Kafka's tool; not where it would do what is refused."""
    return () if plan.command is None or plan.refusal is not None else (paragraph(text), command(plan.command))


def _list_changes(plan: PlanList) -> Iterator[str]:
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


def _complete_changes(plan: Plan) -> Iterator[str]:
    is_commit = plan.outcome == "commit"
    fate = "then visible to read_committed consumers" if is_commit else "never read by any read_committed consumer"
    yield from _changes(plan.impact, fate)
    for commit in plan.impact.offset_commits[:MAX_COMMITS]:
        partition = f"{printable(commit.topic)}-{commit.partition}"
        yield f"Group {printable(commit.group_id)} continues at {commit.offset} on {partition}."
    yield from plan.warnings


def _commit_changes(plan: Plan) -> Iterator[str]:
    for each in plan.transactions:
        impact = each.impact
        assert impact is not None
        records = "an unknown number of records" if impact.records is None else count(impact.records, "record")
        yield f"{each.tp}: {records} then visible. {lso_planned(impact)}"
    yield (
        "Afterwards the job has to be restored from this checkpoint or a later one; from an earlier one it writes "
        "these records again."
    )


def _fence_changes(plan: Plan) -> Iterator[str]:
    yield from plan.warnings
    names = ", ".join(map(str, plan.topic_partitions))
    yield f"Partitions of the transaction: {names or 'none'}."


def lso_planned(impact: MarkerImpact) -> str:
    """Where the LSO goes; with nothing else open, behind the marker, which takes an offset of its own."""
    now, then = impact.last_stable_offset, impact.next_stable_offset
    if impact.next_start_offset is None:
        return f"The LSO goes from {now} to {impact.planned_lso}: the marker takes offset {then}, the high watermark."
    return f"The LSO stays at {now}." if now == then else f"The LSO goes from {now} to {then}."


def lso_difference(impact: MarkerImpact, done: PartitionResult) -> str:
    """Why the LSO is not where the plan has it; empty if it is."""
    planned = impact.planned_lso
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
    if isinstance(plan, PlanList):
        assert isinstance(done, ListResult)
        stop = "" if done.stopped_at is None else f"; stopped at {done.stopped_at}"
        yield f"{len(done.done)} of {plan.target} aborted{stop}"
        yield from list_result(plan, done)
        return
    assert isinstance(done, Result)
    was, now = plan.owner, done.owner
    if was is None or now is None:
        yield from _marker_done(plan, done)
    elif plan.action.name == "fence":
        yield f"Epoch {was.producer_epoch} of producer {was.producer_id} is fenced"
        yield f"Epoch {now.producer_epoch} of producer {now.producer_id} owns the id, and is {now.state}."
        if done.still_open:
            yield f"Markers are not yet written to {', '.join(map(str, done.still_open))}: diagnose again."
    else:
        yield f"The transaction is {now.state}"
        for each in done.partitions:
            yield f"{each.topic}-{each.partition}: {_moved(each)}. {_received(each)}"


def _marker_done(plan: Plan, done: Result) -> Iterator[str]:
    (moved,) = done.partitions
    yield _moved(moved)
    if difference := lso_difference(plan.impact, moved):
        yield difference
    if moved.records_delivered is not None:
        yield _received(moved)
    if done.records_file is not None:
        yield f"{count(done.records_saved or 0, 'record', 'records')} saved in {done.records_file}."
    if moved.next_start_offset is None:
        yield f"Nothing else is open on this partition; its high watermark is {moved.high_watermark}."
    else:
        yield f"The next transaction open on this partition starts at offset {moved.next_start_offset}."


def _moved(done: PartitionResult) -> str:
    before, after = done.last_stable_offset_before, done.last_stable_offset_after
    is_moved = before is not None and after is not None and after > before
    return f"The LSO moved: {before} → {after}" if is_moved else f"The LSO is still at {after}"


def _received(done: PartitionResult) -> str:
    if done.records_checked is None:
        return NOT_DELIVERED
    received = count(done.records_delivered or 0, "record", "records")
    return f"A read_committed consumer received {received} of {done.records_checked}."
