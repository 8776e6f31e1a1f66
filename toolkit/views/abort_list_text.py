"""The plan and the result of an abort of many transactions as lines, for the command and the panel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolkit.views.row_formats import count

if TYPE_CHECKING:
    from toolkit.actions.abort_list import AbortListPlan, AbortListResult


def planned_lines(plan: AbortListPlan) -> Iterator[str]:
    """What the marker of each transaction changes."""
    for each in plan.plans:
        impact = each.impact
        records = "an unknown number of records" if impact.records is None else count(impact.records, "record")
        released = "an unknown number" if impact.records_released is None else f"{impact.records_released:,}"
        yield (
            f"{each.target}  producer {each.producer_id} epoch {each.producer_epoch}: {records} never read, "
            f"{released} behind it can then be read"
        )


def left_out_lines(plan: AbortListPlan) -> Iterator[str]:
    """What is not aborted, why not, and its own remedy."""
    for left in plan.left_out:
        verdict = f"{left.verdict}: " if left.verdict else ""
        yield f"left out: {left.target}  {verdict}{left.reason}{f' Remedy: {left.remedy}' if left.remedy else ''}"


def result_lines(plan: AbortListPlan, done: AbortListResult) -> Iterator[str]:
    """How the LSO of each partition moved, and where the list stopped."""
    for each in done.aborted:
        before, after = each.result.last_stable_offset_before, each.result.last_stable_offset_after
        saved = f", {count(each.result.records_saved or 0, 'record')} saved" if each.result.records_file else ""
        moved = f"stays at {after}" if before == after else f"moved from {before} to {after}"
        yield f"{each.target}: the LSO {moved}{saved}."
    yield f"Aborted: {len(done.aborted)} of {plan.target}."
    if done.stopped_at is not None:
        yield f"Stopped at {done.stopped_at}."
    if done.not_tried:
        yield f"Not tried: {', '.join(done.not_tried)}."
