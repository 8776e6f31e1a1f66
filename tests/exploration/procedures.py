"""What an operator does with our code: diagnose, then do what the remedy says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.exploration.seam import ModelClient, connect, running
from tests.exploration.server import TOPIC, id_of
from toolkit.actions.abort import plan_abort
from toolkit.actions.audit import ActionOutcome
from toolkit.actions.complete import plan_complete
from toolkit.actions.fence import plan_fence
from toolkit.errors import ToolkitError
from toolkit.schema import Row
from toolkit.schema.recorded import ActionStep

Procedure = Callable[[ModelClient], Any]

PLANNERS: dict[str, Callable[..., Any]] = {"abort": plan_abort, "complete": plan_complete}
SOON = 1e-6  # the shortest recheck


class NoAudit:
    """An audit trail that is not kept."""

    path = Path("audit.jsonl")

    @contextmanager
    def recording(self, intent: ActionStep) -> Iterator[ActionOutcome]:
        yield ActionOutcome()

    @contextmanager
    def exclusive(self, check: Callable[[], None] = lambda: None) -> Iterator[None]:
        yield

    def refused(self, error: Exception, intent: ActionStep) -> None:
        pass


def is_to_abort(row: Row) -> bool:
    """Whether the remedy of a finding is an abort marker."""
    return bool(row["action"] == "abort")


def diagnose(client: ModelClient) -> list[Row]:
    """Findings of the topic."""
    return connect(client).finding_rows(topics=[TOPIC], recheck_after=SOON)


def plans(client: ModelClient) -> list[Any]:
    """The plans of all actions on partitions that the findings of a state offer."""
    with running(client):
        cluster = connect(client)
        rows = [row for row in diagnose(client) if row["action"] in PLANNERS]
        return [PLANNERS[row["action"]](cluster, row) for row in rows]


def marker_of(plan: Any) -> Procedure:
    """Execute a plan that was made in the first state: what came of it."""

    more = {"save": False} if plan.action.discards else {}  # files are no part of the model

    def execute(client: ModelClient) -> str:
        now = replace(plan, cluster=connect(client))
        try:
            now.execute(confirm=now.target, audit=NoAudit(), recheck_after=SOON, **more)
        except ToolkitError as error:
            return f"{type(error).__name__}: {error.what}"
        return "done"

    return execute


def fence_of(plan: Any) -> Procedure:
    """Fence an id by a plan that was made in the first state."""

    def execute(client: ModelClient) -> str:
        now = replace(plan, cluster=connect(client))
        try:
            now.execute(confirm=now.target, audit=NoAudit())
        except ToolkitError as error:
            return f"{type(error).__name__}: {error.what}"
        return "done"

    return execute


def fence_plans(client: ModelClient) -> list[Any]:
    """The plans of all fences that are safe in a state."""
    found = []
    with running(client):
        cluster = connect(client)
        for id_ in range(client.world.ids):
            try:
                plan = plan_fence(cluster, id_of(client.world, id_))
            except ToolkitError:
                continue
            if plan.refusal is None:
                found.append(plan)
    return found
