"""What an action would do, and what it did, in sentences."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit.views.row_formats import count, size_text

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.actions.plan import ListResult, Plan, PlanList, Result
    from toolkit.actions.transaction import MarkerImpact, PartitionResult, PlannedTransaction

MAX_LINES = 20  # of committed offsets
NOT_DELIVERED = "Another transaction holds the LSO before its records: they are delivered once that has ended."
KAFKAS_TOOL = {
    "abort": "Kafka's tool writes the same marker without these checks and without the copy",
    "fence": "Kafka's tool (newer than 4.0) does the same without these checks",
}


def preview(plan: Plan, *, audit: Audit | None = None, override: str | None = None) -> Iterator[str]:
    """What an action would do, and how to do it, or why it would be refused.

    `audit`: of an abort, beside which its records are saved; null if they are not. `override`: what the caller asserts.
    """
    yield f"Dry run: nothing was changed. {lead(plan)}"
    yield from (f"- {each}" for each in changes(plan, audit=audit))
    if plan.refusal is not None and override != plan.needed_override:
        yield f"It would be refused: {plan.refusal}"
        if plan.needed_override is not None:
            yield f"An override has to repeat, word for word: {plan.needed_override}"
        return
    if plan.refusal is not None:
        yield f"Overridden: {plan.refusal}"
    yield to_confirm(plan.target)
    if plan.refusal is None and plan.command is not None:
        yield f"{KAFKAS_TOOL[plan.action.name]}: {plan.command}"


def lead(plan: Plan) -> str:
    """What an action is, in a sentence."""
    if plan.action.name == "fence":
        return f"A fence of {plan.target} would do this:"
    if plan.committable is not None and plan.checkpoint is not None:
        found = plan.committable
        return (
            f"{plan.checkpoint.name} is to commit {found.transactional_id}: producer {found.producer_id} epoch "
            f"{found.producer_epoch}, which its coordinator has open. A commit would do this:"
        )
    txn = plan.transaction
    ends = f"would end producer {txn.producer_id} epoch {txn.producer_epoch} on {txn.tp} at offset {txn.start_offset}"
    if plan.action.name == "abort":
        return f"An abort marker {ends}; read_committed consumers will never read its records there."
    it = "It" if plan.refusal is None else "It is likely, and not proven, that it"
    marker = "A COMMIT" if plan.outcome == "commit" else "An ABORT"
    return f"{it} was decided to {plan.outcome} the transaction. {marker} marker {ends}."


def changes(plan: Plan, *, audit: Audit | None) -> Iterator[str]:
    """What an action changes, and what no check can rule out, a sentence each; `audit`: as for `preview`."""
    if plan.transactional_id is None:
        yield from _of_marker(plan, audit)
    elif plan.checkpoint is not None and plan.action.name == "commit":
        for each in plan.transactions:
            impact = _impact(each)
            records = "an unknown number" if impact.records is None else impact.records
            yield f"{each.tp}: records that become visible to read_committed consumers: {records}; {_lso(impact)}"
        yield (
            "before: stop the job, and make sure that it will be restored from this checkpoint. Flink's high "
            'availability restores the last checkpoint that it has registered (the JobManager logs "Completed '
            f'checkpoint {plan.checkpoint.checkpoint_id}"), which can be an earlier one than the newest folder'
        )
        yield (
            "after: restore the job from this checkpoint or a later one. If it starts without state, or from an "
            "earlier checkpoint or savepoint, it writes these records again"
        )
    yield from plan.warnings


def _of_marker(plan: Plan, audit: Audit | None) -> Iterator[str]:
    txn, impact = plan.transaction, plan.impact
    becomes = "become visible to read_committed consumers" if plan.outcome == "commit" else "are never read"
    size = "of unknown size" if impact.size is None else size_text(impact.size)
    where = f", offsets {impact.first_offset} to {impact.last_offset}" if impact.first_offset is not None else ""
    if impact.unread:
        yield f"The number of records is unknown. {impact.unread}"
    else:
        yield f"its records, which {becomes}: {impact.records} ({size} in the log{where})"
        yield f"records behind it that can then be read: {impact.records_released}"
    if plan.action.discards and audit is not None:
        yield f"its records ({size} in the log) are saved first: {audit.records_path(plan.target, txn.producer_id)}"
    elif plan.action.discards:
        yield "its records are not saved"
    verb = "becomes" if plan.outcome == "commit" else "does not become"
    for commit in impact.offset_commits[:MAX_LINES]:
        offset = "its removal" if commit.offset is None else f"offset {commit.offset}"
        yield (
            f"{offset} of {commit.topic}-{commit.partition} {verb} that of group {commit.group_id}, unless the group "
            "has committed a newer one since"
        )
    if len(impact.offset_commits) > MAX_LINES:
        yield f"and {len(impact.offset_commits) - MAX_LINES} more offsets of groups"
    yield _lso(impact)
    if impact.next_start_offset is not None:
        yield f"then held by producer {impact.next_producer_id}, from offset {impact.next_start_offset} on"
    yield groups_text(impact.groups)
    if txn.basis.transactional_id is not None:  # the protocol has no conditional marker
        yield (
            f'if a client with transaction version 1 begins again as "{txn.basis.transactional_id}" on this partition '
            "in the milliseconds between the last check and the marker, the marker ends that transaction here, too"
        )


def _lso(impact: MarkerImpact) -> str:
    """Where the LSO goes; with nothing else open, behind the marker, which takes an offset of its own."""
    now, then = impact.last_stable_offset, impact.next_stable_offset
    if impact.next_start_offset is None:
        return f"the LSO goes from {now} to {impact.planned_lso}: the marker takes offset {then}"
    return f"the LSO stays at {now}" if then == now else f"the LSO goes from {now} to {then}"


def groups_text(groups: Sequence[str] | None) -> str:
    """Which groups continue."""
    return f"groups that continue: {'not known' if groups is None else ', '.join(groups) or 'none'}"


def result(plan: Plan, done: Result) -> Iterator[str]:
    """What an action did, the headline first."""
    was, now = plan.owner, done.owner
    if was is None or now is None:
        yield from _marker_result(plan, done)
    elif plan.action.name == "fence":
        yield (
            f"{plan.target} is {now.state}: epoch {was.producer_epoch} of producer {was.producer_id} is fenced, and "
            f"epoch {now.producer_epoch} of {now.producer_id} owns the id."
        )
        if done.still_open:
            yield f"Markers are not yet written to {', '.join(map(str, done.still_open))}."
    else:
        yield f"{plan.target} is {now.state}."
        for each in done.partitions:
            yield f"{each.topic}-{each.partition}: {_lso_after(each)}."
            yield _received(each)


def _marker_result(plan: Plan, done: Result) -> Iterator[str]:
    (moved,) = done.partitions
    text = f"{plan.transaction.tp}: {_lso_after(moved)}"
    if moved.next_start_offset is None:
        yield f"{text}, and nothing else is open on it. The high watermark is {moved.high_watermark}."
    else:
        yield f"{text}."
        yield f"The next transaction open on it starts at offset {moved.next_start_offset}."
    if difference := lso_difference(plan.impact, moved):
        yield difference
    if plan.action.name == "complete":
        yield _received(moved)
    for commit in done.offset_commits[:MAX_LINES]:
        yield f"Group {commit.group_id} is at offset {commit.offset} of {commit.topic}-{commit.partition}."
    if done.unread_groups:
        yield f"The offsets of these groups could not be read: {', '.join(done.unread_groups)}."
    if done.records_file is not None:
        yield f"Records saved: {done.records_saved}, in {done.records_file}."


def lso_difference(impact: MarkerImpact, done: PartitionResult) -> str:
    """Why the LSO is not where the plan has it; empty if it is."""
    planned, after = impact.planned_lso, done.last_stable_offset_after
    if after is None or after == planned:
        return ""
    if impact.next_start_offset is None and done.next_start_offset is None and after > planned:
        return (
            f"The plan had {planned}: {count(after - planned, 'more offset was', 'more offsets were')} written since."
        )
    if done.next_start_offset is not None and impact.next_start_offset is None:
        return f"The plan had {planned}: a transaction that was opened since holds it now."
    return f"The plan had {planned}: what is open behind it has changed since."


def fence_owner(plan: Plan) -> Iterator[str]:
    """Whose id it is, and on which partitions its transaction is open."""
    owner = plan.owner
    assert owner is not None
    who = f"producer {owner.producer_id} epoch {owner.producer_epoch}"
    since = f" since {owner.start_time:%Y-%m-%d %H:%M:%S} UTC" if owner.start_time else ""
    yield f"{plan.target}  {plan.verdict}  {who}, {owner.state}{since}"
    if plan.topic_partitions:
        yield "on " + ", ".join(map(str, plan.topic_partitions))


def to_confirm(target: str) -> str:
    """What to add to a dry run, to do it."""
    return f"To do it, add: --confirm {shlex.quote(target)}"


def _impact(txn: PlannedTransaction) -> MarkerImpact:
    assert txn.impact is not None
    return txn.impact


def _received(done: PartitionResult) -> str:
    if done.records_checked is None:
        return NOT_DELIVERED
    return f"A read_committed consumer received {done.records_delivered} of {done.records_checked} records of it."


def _lso_after(done: PartitionResult) -> str:
    before, after = done.last_stable_offset_before, done.last_stable_offset_after
    return f"the LSO stays at {after}" if before == after else f"the LSO moved from {before} to {after}"


def list_preview(plan: PlanList) -> Iterator[str]:
    """What the marker of each transaction changes."""
    for each in plan.plans:
        txn, impact = each.transaction, each.impact
        records = "an unknown number of records" if impact.records is None else count(impact.records, "record")
        released = "an unknown number" if impact.records_released is None else f"{impact.records_released:,}"
        yield (
            f"{each.target}  producer {txn.producer_id} epoch {txn.producer_epoch}: {records} never read, {released} "
            "behind it can then be read"
        )
        yield from (f"{each.target}: {text}" for text in each.warnings)
        if impact.groups:
            yield f"{each.target}: {groups_text(impact.groups)}"


def list_left_out(plan: PlanList) -> Iterator[str]:
    """What is not aborted, why not, and its own remedy."""
    for left in plan.left_out:
        verdict = f"{left.verdict}: " if left.verdict else ""
        yield f"left out: {left.target}  {verdict}{left.reason}{f' Remedy: {left.remedy}' if left.remedy else ''}"


def list_result(plan: PlanList, done: ListResult) -> Iterator[str]:
    """How the LSO of each partition moved, and where the list stopped."""
    for each in done.done:
        saved = f", {count(each.result.records_saved or 0, 'record')} saved" if each.result.records_file else ""
        yield f"{each.target}: {_lso_after(each.result.partitions[0])}{saved}."
    yield f"Aborted: {len(done.done)} of {plan.target}."
    if done.stopped_at is not None:
        yield f"Stopped at {done.stopped_at}."
    if done.not_tried:
        yield f"Not tried: {', '.join(done.not_tried)}."
