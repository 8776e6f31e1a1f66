"""What an action would do, and what it did, in sentences."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolkit.views.row_formats import count, size_text

if TYPE_CHECKING:
    from toolkit.actions.abort import AbortPlan, AbortResult
    from toolkit.actions.abort_list import AbortListPlan, AbortListResult
    from toolkit.actions.audit import Audit
    from toolkit.actions.commit import CommitPlan, CommitResult, CommittedPartition
    from toolkit.actions.complete import CompletePlan, CompleteResult
    from toolkit.actions.fence import FencePlan, FenceResult
    from toolkit.actions.impact import MarkerImpact
    from toolkit.schema.live import Finding

MAX_LINES = 20  # of committed offsets
NOT_DELIVERED = "Another transaction holds the LSO before its records: they are delivered once that has ended."


def abort_preview(plan: AbortPlan, audit: Audit | None) -> Iterator[str]:
    """What an abort marker would do; without `audit`, no records are saved."""
    impact = plan.impact
    yield (
        f"Dry run: nothing was changed. An abort marker would end producer {plan.producer_id} epoch "
        f"{plan.producer_epoch} on {plan.topic}-{plan.partition}; read_committed consumers will "
        "never read its records there."
    )
    if impact.unread:
        yield f"- The number of records is unknown. {impact.unread}"
    else:
        yield f"- its records, which are never read: {impact.records}"
        yield f"- records behind it that can then be read: {impact.records_released}"
    if audit is not None:
        size = "of unknown size" if impact.size is None else size_text(impact.size)
        yield f"- its records ({size} in the log) are saved first: {plan.records_path(audit)}"
    else:
        yield "- its records are not saved"
    yield from _after_marker(impact, plan.basis)
    yield from (f"- {text}" for text in plan.warnings)
    yield from _what_to_add(plan)
    yield f"Kafka's tool writes the same marker without these checks and without the copy: {plan.command}"


def abort_result(plan: AbortPlan, done: AbortResult) -> Iterator[str]:
    """How the LSO moved, and where the records are."""
    yield from _lso_moved(f"{plan.topic}-{plan.partition}", done)
    if done.records_file is not None:
        yield f"Records saved: {done.records_saved}, in {done.records_file}."


def complete_preview(plan: CompletePlan) -> Iterator[str]:
    """What was decided, and what its marker would do."""
    impact, is_commit = plan.impact, plan.outcome == "commit"
    it = "It" if plan.refusal is None else "It is likely, and not proven, that it"
    yield (
        f"Dry run: nothing was changed. {it} was decided to {plan.outcome} the transaction. "
        f"{'A COMMIT' if is_commit else 'An ABORT'} marker would end producer {plan.producer_id} epoch "
        f"{plan.producer_epoch} on {plan.topic}-{plan.partition}."
    )
    if impact.unread:
        yield f"- The number of records is unknown. {impact.unread}"
    else:
        becomes = "become visible to read_committed consumers" if is_commit else "are never read"
        size = "of unknown size" if impact.size is None else size_text(impact.size)
        where = f", offsets {impact.first_offset} to {impact.last_offset}" if impact.first_offset is not None else ""
        yield f"- its records, which {becomes}: {impact.records} ({size} in the log{where})"
        yield f"- records behind it that can then be read: {impact.records_released}"
    verb = "becomes" if is_commit else "does not become"
    for commit in impact.offset_commits[:MAX_LINES]:
        offset = "its removal" if commit.offset is None else f"offset {commit.offset}"
        yield (
            f"- {offset} of {commit.topic}-{commit.partition} {verb} that of group {commit.group_id}, unless the group "
            "has committed a newer one since"
        )
    if len(impact.offset_commits) > MAX_LINES:
        yield f"- and {len(impact.offset_commits) - MAX_LINES} more offsets of groups"
    yield from _after_marker(impact, plan.basis)
    yield from (f"- {text}" for text in plan.warnings)
    yield from _what_to_add(plan)


def complete_result(plan: CompletePlan, done: CompleteResult) -> Iterator[str]:
    """How the LSO moved, and what consumers and groups have received."""
    yield from _lso_moved(f"{plan.topic}-{plan.partition}", done)
    yield _received(done)
    for commit in done.offset_commits[:MAX_LINES]:
        yield f"Group {commit.group_id} is at offset {commit.offset} of {commit.topic}-{commit.partition}."
    if done.unread_groups:
        yield f"The offsets of these groups could not be read: {', '.join(done.unread_groups)}."


def commit_preview(plan: CommitPlan) -> Iterator[str]:
    """What the checkpoint says, and what a commit would do."""
    found = plan.committable
    yield (
        f"Dry run: nothing was changed. {plan.checkpoint.name} is to commit {found.transactional_id}: producer "
        f"{found.producer_id} epoch {found.producer_epoch}, which its coordinator has open. A commit would do this:"
    )
    for each in plan.partitions:
        impact = each.impact
        records = "an unknown number" if impact.records is None else impact.records
        yield (
            f"- {each.topic}-{each.partition}: records that become visible to read_committed consumers: {records}; the "
            f"LSO goes from {impact.last_stable_offset} to {impact.next_stable_offset}"
        )
    yield (
        "Before: stop the job, and make sure that it will be restored from this checkpoint. Flink's high availability "
        'restores the last checkpoint that it has registered (the JobManager logs "Completed checkpoint '
        f'{plan.checkpoint.checkpoint_id}"), which can be an earlier one than the newest folder.'
    )
    yield (
        "After: restore the job from this checkpoint or a later one. If it starts without state, or from an earlier "
        "checkpoint or savepoint, it writes these records again."
    )
    yield to_confirm(plan.target)


def commit_result(plan: CommitPlan, done: CommitResult) -> Iterator[str]:
    """The coordinator's state, and what consumers have received."""
    yield f"{plan.transactional_id} is {done.state}."
    for each in done.partitions:
        yield f"{each.topic}-{each.partition}: {_lso_after(each)}."
        yield _received(each)


def fence_owner(plan: FencePlan) -> Iterator[str]:
    """Whose id it is, and on which partitions its transaction is open."""
    owner = plan.owner
    who = f"producer {owner.producer_id} epoch {owner.producer_epoch}"
    since = f" since {owner.start_time:%Y-%m-%d %H:%M:%S} UTC" if owner.start_time else ""
    yield f"{plan.transactional_id}  {plan.verdict}  {who}, {owner.state}{since}"
    if plan.topic_partitions:
        yield "on " + ", ".join(f"{topic}-{partition}" for topic, partition in plan.topic_partitions)


def to_confirm(target: str) -> str:
    """What to add to a dry run, to do it."""
    return f"To do it, add: --confirm {shlex.quote(target)}"


def _what_to_add(plan: AbortPlan | CompletePlan | FencePlan) -> Iterator[str]:
    """What the command needs to do it, or why it would be refused."""
    if plan.refusal is None:
        yield to_confirm(plan.target)
    else:
        yield f"It would be refused: {plan.refusal}"
        if plan.needed_override is not None:
            override = shlex.quote(plan.needed_override)
            yield f"To do it anyway: --confirm {shlex.quote(plan.target)} --override {override}"


def fence_preview(plan: FencePlan, *, override: str | None) -> Iterator[str]:
    """What a fence would do. `override`: the verdict that the caller overrides, if any."""
    yield "Dry run: nothing was changed. A fence would do this:"
    yield from (f"- {text}" for text in plan.warnings)
    if plan.refusal is not None and override is not None and override == plan.needed_override:
        yield f"Overridden: {plan.refusal}"
        yield to_confirm(plan.target)
    else:
        yield from _what_to_add(plan)
    yield f"Kafka's tool (newer than 4.0) does the same without these checks: {plan.command}"


def fence_result(plan: FencePlan, done: FenceResult) -> Iterator[str]:
    """The new epoch, and the partitions that still wait for their marker."""
    yield (
        f"{plan.transactional_id} is {done.state}: epoch {done.producer_epoch_before} of producer "
        f"{done.producer_id_before} is fenced, and epoch {done.producer_epoch} of {done.producer_id} owns the id."
    )
    if done.still_open:
        partitions = ", ".join(f"{topic}-{partition}" for topic, partition in done.still_open)
        yield f"Markers are not yet written to {partitions}."


def _after_marker(impact: MarkerImpact, finding: Finding) -> Iterator[str]:
    """Where the LSO goes, who holds it then, which groups continue; and what no check can rule out."""
    now, then = impact.last_stable_offset, impact.next_stable_offset
    if impact.next_start_offset is None:
        yield f"- the LSO goes from {now} to {then + 1}: the marker takes offset {then}"
    else:
        yield f"- the LSO stays at {now}" if then == now else f"- the LSO goes from {now} to {then}"
        yield f"- then held by producer {impact.next_producer_id}, from offset {impact.next_start_offset} on"
    groups = "not known" if impact.groups is None else ", ".join(impact.groups) or "none"
    yield f"- groups that continue: {groups}"
    if finding.transactional_id is not None:  # the protocol has no conditional marker
        yield (
            f'- if a client with transaction version 1 begins again as "{finding.transactional_id}" on this partition '
            "in the milliseconds between the last check and the marker, the marker ends that transaction here, too"
        )


def _lso_moved(name: str, done: AbortResult | CompleteResult) -> Iterator[str]:
    """How the LSO moved, and what is open now."""
    moved = f"{name}: the LSO moved from {done.last_stable_offset_before} to {done.last_stable_offset_after}"
    if done.next_start_offset is None:
        yield f"{moved}, and nothing else is open on it. The high watermark is {done.high_watermark}."
    else:
        yield f"{moved}."
        yield f"The next transaction open on it starts at offset {done.next_start_offset}."


def _lso_after(done: AbortResult | CommittedPartition) -> str:
    before, after = done.last_stable_offset_before, done.last_stable_offset_after
    return f"the LSO stays at {after}" if before == after else f"the LSO moved from {before} to {after}"


def _received(done: CompleteResult | CommittedPartition) -> str:
    if done.records_checked is None:
        return NOT_DELIVERED
    return f"A read_committed consumer received {done.records_delivered} of {done.records_checked} records of it."


def list_preview(plan: AbortListPlan) -> Iterator[str]:
    """What the marker of each transaction changes."""
    for each in plan.plans:
        impact = each.impact
        records = "an unknown number of records" if impact.records is None else count(impact.records, "record")
        released = "an unknown number" if impact.records_released is None else f"{impact.records_released:,}"
        yield (
            f"{each.target}  producer {each.producer_id} epoch {each.producer_epoch}: {records} never read, "
            f"{released} behind it can then be read"
        )
        yield from (f"{each.target}: {text}" for text in each.warnings)
        if impact.groups:
            yield f"{each.target}: groups that continue: {', '.join(impact.groups)}"


def list_left_out(plan: AbortListPlan) -> Iterator[str]:
    """What is not aborted, why not, and its own remedy."""
    for left in plan.left_out:
        verdict = f"{left.verdict}: " if left.verdict else ""
        yield f"left out: {left.target}  {verdict}{left.reason}{f' Remedy: {left.remedy}' if left.remedy else ''}"


def list_result(plan: AbortListPlan, done: AbortListResult) -> Iterator[str]:
    """How the LSO of each partition moved, and where the list stopped."""
    for each in done.aborted:
        saved = f", {count(each.result.records_saved or 0, 'record')} saved" if each.result.records_file else ""
        yield f"{each.target}: {_lso_after(each.result)}{saved}."
    yield f"Aborted: {len(done.aborted)} of {plan.target}."
    if done.stopped_at is not None:
        yield f"Stopped at {done.stopped_at}."
    if done.not_tried:
        yield f"Not tried: {', '.join(done.not_tried)}."
