"""Breadth first: the states of a world, and every schedule of its steps between our requests, up to bounds.

A schedule is repeated from its start, since our code cannot be resumed in the middle. Steps that the next request
cannot see are left for later: so of all schedules that differ in nothing that our code sees, one is run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from tests.exploration.seam import ModelClient, running
from tests.exploration.server import WHOLE_STATE, Key, content_of
from tests.exploration.state import State
from tests.exploration.steps import successors
from tests.exploration.world import World

Procedure = Callable[[ModelClient], Any]
Plan = Mapping[int, tuple[tuple[str, ...], State]]  # before which request: the steps, and the state after them


class Point(NamedTuple):
    """Before a request."""

    broker: int | None
    key: Key
    state: State
    seen: int  # a hash of all answers before


@dataclass(slots=True)
class Run:
    """One run of a procedure under a schedule.

    Parameters
    ----------
    plan
        The schedule.
    points
        Request and state, before each request, and a hash of all answers before it.
    result
        What the procedure returned, or its error.
    client
        Has what was written, and the last state.
    """

    plan: Plan
    points: list[Point]
    result: Any
    client: ModelClient

    @property
    def states(self) -> list[State]:
        """The states during the run."""
        return [*(point.state for point in self.points), self.client.state]


def run(world: World, state: State, procedure: Procedure, plan: Plan = {}) -> Run:  # noqa: B006
    """Run a procedure from a state under a schedule."""
    points: list[Point] = []
    seen = 0

    def before(current: State, broker: int | None, key: Key) -> State:
        nonlocal seen
        if len(points) in plan:
            current = plan[len(points)][1]
        points.append(Point(broker, key, current, seen))
        seen = hash((seen, broker, key, _seen(world, points[-1], current)))
        return current

    client = ModelClient(world, state, before)
    with running(client):
        result = procedure(client)
    return Run(plan, points, result, client)


def schedules(
    world: World, state: State, procedure: Procedure, *, steps: int, limit: int | None = None
) -> Iterator[Run]:
    """Every run from a state with at most this many steps in between, those with the fewest insertions first."""
    visited: set[tuple[State, int, int]] = set()
    queue: deque[tuple[Plan, int, int]] = deque([({}, 0, 0)])
    count = 0
    while queue:
        plan, used, first = queue.popleft()
        done = run(world, state, procedure, plan)
        yield done
        count += 1
        if limit is not None and count >= limit:
            return
        if used == steps:
            continue
        for point in range(first, len(done.points)):
            at = done.points[point]
            for labels, previous, after in _paths(world, at.state, steps - used):
                if _seen(world, at, previous) == _seen(world, at, after) or (after, point, at.seen) in visited:
                    continue
                visited.add((after, point, at.seen))
                queue.append(({**plan, point: (labels, after)}, used + len(labels), point + 1))


def _seen(world: World, point: Point, state: State) -> Any:
    """What a request sees of a state: its answer and the time, or the whole state if it changes it."""
    if point.key[0] in WHOLE_STATE:
        return state
    return content_of(world, state, point.broker, point.key), state.tick


@lru_cache(maxsize=20_000)
def _paths(world: World, state: State, steps: int) -> tuple[tuple[tuple[str, ...], State, State], ...]:
    """Every state within some steps: the steps, the state before the last of them, and the state; shortest first."""
    found: dict[State, None] = {state: None}
    paths: list[tuple[tuple[str, ...], State, State]] = []
    frontier: list[tuple[tuple[str, ...], State]] = [((), state)]
    for _ in range(steps):
        following: list[tuple[tuple[str, ...], State]] = []
        for labels, current in frontier:
            for label, after in successors(world, current):
                if after not in found:
                    found[after] = None
                    following.append(((*labels, label), after))
                    paths.append(((*labels, label), current, after))
        frontier = following
    return tuple(paths)


@dataclass(slots=True)
class Trace:
    """How a state was reached first."""

    parents: dict[State, tuple[State, str] | None]
    before: tuple[str, ...] = ()

    def of(self, state: State) -> list[str]:
        """The steps from the start."""
        steps: list[str] = []
        at: State | None = state
        while at is not None and (parent := self.parents[at]) is not None:
            at, label = parent
            steps.append(label)
        return [*self.before, *steps[::-1]]


def reached(
    world: World, *, depth: int, limit: int | None = None, interesting: Callable[[State], Hashable] | None = None
) -> Iterator[tuple[int, State, Trace]]:
    """Every state within a depth, breadth first, with its depth and the trace of all.

    Parameters
    ----------
    limit
        Stop after so many states.
    """
    trace = Trace({world.start: None}, world.after)
    frontier = [world.start]
    yield 0, world.start, trace
    count = 1
    for level in range(1, depth + 1):
        following = []
        for state in frontier:
            for label, after in successors(world, state):
                if after in trace.parents:
                    continue
                trace.parents[after] = state, label
                following.append(after)
                yield level, after, trace
                count += 1
                if limit is not None and count >= limit:
                    return
        frontier = following
        if not frontier:
            return


def trace_of(steps: list[str], plan: Plan) -> list[str]:
    """The steps to a state, and those between the requests of a run."""
    during = [f"before request {point}: {', '.join(labels)}" for point, (labels, _) in sorted(plan.items())]
    return [*steps, *during]
