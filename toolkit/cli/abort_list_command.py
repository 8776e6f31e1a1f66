"""``kafka-txn abort --list``: many hanging transactions, with one confirmation that names their number."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.cli.action_answer import ActionAnswer
from toolkit.cli.output import progress
from toolkit.errors import ActionRefused, UsageError
from toolkit.views.action_texts import list_left_out, list_preview, list_result, to_confirm
from toolkit.views.row_formats import size_text

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
    from toolkit.actions.plan import PlanList
    from toolkit.schema import Row
    from toolkit.sources.live.cluster import Cluster

COLUMNS: Mapping[str, Callable[[str], str | int]] = {
    "topic": str,
    "partition": int,
    "producer_id": int,
    "start_offset": int,
}


def read_list(path: Path) -> list[Row]:
    """The transactions of a CSV file of ``find-hanging``, by the columns that name them.

    Raises UsageError if it cannot be read, lacks a column, or an entry is no number.
    """
    csv.field_size_limit(1 << 30)  # the evidence of a finding
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if missing := COLUMNS.keys() - set(rows.fieldnames or ()):
                raise UsageError(
                    f"{path} has no column {', '.join(sorted(missing))}.",
                    do="Make it by kafka-txn find-hanging --format csv.",
                )
            return [{name: read(row[name]) if row[name] else None for name, read in COLUMNS.items()} for row in rows]
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, csv.Error) as error:
        raise UsageError(f"{path} is no list of transactions: {error}.") from None


def abort_list(
    cluster: Cluster,
    transactions: Sequence[Row],
    answer: ActionAnswer,
    *,
    audit: Audit,
    confirm: str | None,
    recheck_after: float,
    save: bool,
    max_save_bytes: int,
) -> None:
    """Plan, ask for the confirmation, and abort, up to the first transaction that is not as planned.

    `cluster`, `transactions`, `audit`: as for `plan_abort_list` and `PlanList.execute`.
    `confirm`: what an option confirms; null to ask at a terminal.
    `recheck_after`, `save`, `max_save_bytes`: as for `Plan.execute`.
    Raises ToolkitError: what stopped the list, once the result is written.
    """
    from toolkit.actions.abort import plan_abort_list

    progress(f"Checking {len(transactions)} transactions ...")
    plan = plan_abort_list(cluster, transactions, recheck_after=recheck_after)
    if not plan.plans:
        answer.say(preview(plan, saves=save))
    if not plan.plans and confirm is None:
        raise ActionRefused("No transaction of the list is proven to be hanging.", means="Nothing was written.")
    confirmed = answer.confirmation(plan, confirm, preview(plan, saves=save))
    if confirmed is None:
        return
    done = plan.execute(
        confirm=confirmed,
        audit=audit,
        recheck_after=recheck_after,
        save=save,
        max_save_bytes=max_save_bytes,
        progress=lambda each: progress(f"Checking {each.target} again ..."),
    )
    answer.show_result(plan, done, list_result(plan, done), audit)
    if done.error is not None:
        raise done.error


def preview(plan: PlanList, *, saves: bool) -> Iterator[str]:
    """What is aborted, each by name, and what is left out and why."""
    if plan.plans:
        yield f"Dry run: nothing was changed. Abort markers would end {plan.target}:"
    yield from (f"- {line}" for lines in (list_preview(plan), list_left_out(plan)) for line in lines)
    if plan.plans:
        sizes = [each.impact.size for each in plan.plans]
        known = size_text(sum(size or 0 for size in sizes))
        size = f"at least {known}" if None in sizes else known
        yield f"Their records ({size} in the log) are saved first." if saves else "Their records are not saved."
        yield (
            "All are checked again before the first marker, and each right before its own. The first that is not as "
            "planned stops the list."
        )
        yield to_confirm(plan.target)
