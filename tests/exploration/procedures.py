"""What an operator does with our code: diagnose, then do what the remedy says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.exploration.seam import ModelClient, connect
from tests.exploration.server import TOPIC, id_of
from toolkit.actions.abort import plan_abort
from toolkit.actions.fence import plan_fence
from toolkit.errors import ToolkitError
from toolkit.schema import Row

__all__ = ["Aborted", "diagnose", "diagnose_and_abort", "fence", "is_to_abort"]

SOON = 1e-6  # the shortest recheck


class NoAudit:
    """An audit trail that is not kept."""

    @contextmanager
    def recording(self, **intent: object) -> Iterator[dict[str, Any]]:
        yield {}

    def refused(self, error: Exception, **intent: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Aborted:
    """Findings, and what came of the first one to abort: null if there is none, else the error's text or ``done``."""

    rows: list[Row]
    outcome: str | None = None


def is_to_abort(row: Row) -> bool:
    """Whether the remedy of a finding is an abort marker."""
    action = row.get("action")
    return row["verdict"] == "hanging" if action is None else action == "abort"


def diagnose(client: ModelClient) -> list[Row]:
    """Findings of the topic."""
    return connect(client).finding_rows(topics=[TOPIC], recheck_after=SOON)


def diagnose_and_abort(client: ModelClient) -> Aborted:
    """Findings, and the abort marker of the first one that is to be aborted."""
    cluster = connect(client)
    try:
        rows = cluster.finding_rows(topics=[TOPIC], recheck_after=SOON)
    except ToolkitError as error:
        return Aborted([], f"{type(error).__name__}: {error.what}")
    target = next((row for row in rows if is_to_abort(row)), None)
    if target is None:
        return Aborted(rows)
    try:
        plan = plan_abort(cluster, target)
        plan.execute(confirm=plan.target, audit=NoAudit(), recheck_after=SOON)  # type: ignore[arg-type]
    except ToolkitError as error:
        return Aborted(rows, f"{type(error).__name__}: {error.what}")
    return Aborted(rows, "done")


def fence(client: ModelClient) -> str:
    """Fence the first id if that is safe."""
    cluster = connect(client)
    try:
        plan = plan_fence(cluster, id_of(client.world, 0))
        if plan.refusal:
            return f"refused: {plan.verdict}"
        plan.execute(confirm=plan.target, audit=NoAudit())  # type: ignore[arg-type]
    except ToolkitError as error:
        return f"{type(error).__name__}: {error.what}"
    return "done"
