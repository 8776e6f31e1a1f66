"""``kafka-txn abort --list``: many hanging transactions, with one confirmation that names their number."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolkit.cli.action_answer import ActionAnswer
from toolkit.cli.output import progress
from toolkit.errors import ActionRefused, UsageError

if TYPE_CHECKING:
    from toolkit.actions.audit import Audit
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
    from toolkit.views.action_document import preview

    progress(f"Checking {len(transactions)} transactions ...")
    plan = plan_abort_list(cluster, transactions, recheck_after=recheck_after)
    parts = preview(plan, audit=audit if save else None)
    if not plan.plans:
        answer.say(parts)
    if not plan.plans and confirm is None:
        raise ActionRefused("No transaction of the list is proven to be hanging.", means="Nothing was written.")
    confirmed = answer.confirmation(plan, confirm, parts)
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
    answer.show_result(plan, done, audit)
    if done.error is not None:
        raise done.error
