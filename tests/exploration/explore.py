"""The client's seam: a `BrokerClient` whose brokers are the model, and the waits and clocks of our code."""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from tests.corpus import clocks
from tests.exploration.server import (
    BROKERS,
    TOPIC,
    WHOLE_STATE,
    Key,
    content_of,
    id_of,
    init_producer_id_response,
    key_of,
    message_of,
    names,
    write_txn_markers_response,
)
from tests.exploration.steps import append_marker, coordinator_of, init_producer_id, successors
from tests.exploration.world import EPOCH, NOBODY, State, World
from tests.sources.recorded import RECORDED_APIS
from toolkit.actions import marker_actions
from toolkit.actions.audit import ActionOutcome
from toolkit.actions.coordinator_actions import plan_fence
from toolkit.actions.marker_actions import plan_abort, plan_complete
from toolkit.analysis.diagnosis import markers
from toolkit.config import ClientConfig
from toolkit.errors import BrokerError, ToolkitError
from toolkit.schema import Row
from toolkit.schema.recorded import ActionStep
from toolkit.sources.live import partition_log
from toolkit.sources.live.broker_client import BrokerResponse, error_name
from toolkit.sources.live.cluster import Cluster

NOT_COORDINATOR = 16

BeforeRequest = Callable[[State, int | None, Key], State]


class ModelClient:
    """Brokers that answer from a state; `before` may change the state before each request.

    `writes` has what was written: the kind of request, its fields, and the states before and after it.
    """

    timeout = 5.0
    cluster_id: str | None = "M8XbVDmITl6ZTs4WNdt8eg"
    is_split = False

    def check_broker(self, broker_id: int) -> None:
        assert broker_id in self.brokers

    def __init__(self, world: World, state: State, before: BeforeRequest = lambda state, broker, key: state) -> None:
        self.world, self.state, self.before = world, state, before
        self.requests = 0
        self.writes: list[tuple[str, Mapping[str, Any], State, State]] = []
        self.waits = 0

    @property
    def brokers(self) -> dict[int, str]:
        return {broker: f"127.0.0.1:{9092 + broker}" for broker in BROKERS}

    def apis(self, broker_id: int) -> dict[int, tuple[int, int]] | None:
        return None if broker_id in self.state.silent else RECORDED_APIS["4.3.1"]

    def close(self) -> None:
        pass

    def send(self, requests: Sequence[tuple[int | None, Any]], *, timeout: float | None = None) -> list[BrokerResponse]:
        return [self._answer(broker, request) for broker, request in requests]

    def send_one(self, request: Any, *, broker_id: int | None = None) -> Any:
        (response,) = self.send([(broker_id, request)])
        if response.error:
            raise response.error
        return response.message

    def _answer(self, broker: int | None, request: Any) -> BrokerResponse:
        api = str(request.name).removesuffix("Request")
        key = key_of(request) if api not in WRITES else (api,)
        self.state = self.before(self.state, broker, key)
        self.requests += 1
        at = time_of(self.world, self.state)
        if api in WRITES:
            message = WRITES[api](self, broker, request)
        else:
            content = content_of(self.world, self.state, broker, key)
            message = None if content is None else message_of(api, content)
        if message is None:
            error = BrokerError(f"Broker {broker} did not answer {api} in time.", code="REQUEST_TIMED_OUT")
            return BrokerResponse(broker, at, error=error)
        return BrokerResponse(1 if broker is None else broker, at, message=message)

    def _write_txn_markers(self, broker: int, request: Any) -> Any:
        if broker in self.state.silent:
            return None
        (marker,) = request.markers
        (topic,) = marker.topics
        (number,) = topic.partition_indexes
        fields = {"pid": marker.producer_id, "epoch": marker.producer_epoch, "commit": bool(marker.transaction_result)}
        fields |= {"coordinator_epoch": marker.coordinator_epoch}
        before = self.state
        if self.state.partitions[number].leader != broker:
            code = "NOT_LEADER_OR_FOLLOWER"
        else:
            code, self.state = append_marker(self.world, self.state, number, **fields, ctxn=NOBODY)
            if not code:
                self.writes.append(("WriteTxnMarkers", {"partition": number, **fields}, before, self.state))
        return write_txn_markers_response(marker.producer_id, topic.name, number, _code(code))

    def _init_producer_id(self, broker: int, request: Any) -> Any:
        if broker in self.state.silent:
            return None
        id_ = names(self.world).index(request.transactional_id)
        coordinator = coordinator_of(self.world, self.state, id_)
        if coordinator.leader != broker:
            return init_producer_id_response(NOT_COORDINATOR, -1, -1)
        before = self.state
        error, self.state = init_producer_id(self.world, self.state, id_)
        self.writes.append(("InitProducerId", {"id": id_}, before, self.state))
        meta = coordinator_of(self.world, self.state, id_).meta(id_)
        pid, epoch = (-1, -1) if error or meta is None else (meta.pid, meta.epoch)
        return init_producer_id_response(_code(error), pid, epoch)


WRITES: Mapping[str, Any] = {
    "WriteTxnMarkers": ModelClient._write_txn_markers,
    "InitProducerId": ModelClient._init_producer_id,
}


def _code(name: str) -> int:
    return next(code for code in range(120) if error_name(code) == (name or "NONE"))


def time_of(world: World, state: State) -> dt.datetime:
    """This machine's time in a state."""
    return _time_of(world.now(state) + world.operator_ms)


@lru_cache(maxsize=1000)
def _time_of(milliseconds: int) -> dt.datetime:
    return EPOCH + dt.timedelta(milliseconds=milliseconds)


def connect(client: ModelClient) -> Cluster:
    """A `Cluster` on the model."""
    cluster = object.__new__(Cluster)
    cluster.config = ClientConfig("127.0.0.1:9092")
    cluster.timeout = client.timeout
    cluster.client = client  # type: ignore[assignment]
    cluster.on_clock_warning = lambda text: None  # worlds have clocks that are far off
    return cluster


# Clocks and waits


class _Clock:
    """The time of the run that goes on: of its client's state; and a monotonic clock that only waits move."""

    client: ModelClient | None = None
    seconds = 0.0

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) if self.client is None else time_of(self.client.world, self.client.state)

    def monotonic(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += max(10.0, seconds)
        if self.client is not None:
            self.client.waits += 1


_clock = _Clock()
PACKAGES = (
    "toolkit.sources.diagnose", "toolkit.sources.live", "toolkit.actions", "toolkit.analysis.diagnosis",
    "toolkit.analysis.transaction_history", "toolkit.analysis.transaction_owners", "toolkit.schema.table",
)  # fmt: skip


class _Executor:
    """Runs what is submitted at once."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> _Executor:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future


@contextmanager
def controlled() -> Iterator[None]:
    """Replace clocks, waits and threads of our code, which is not changed otherwise."""
    with (
        clocks.controlled(_clock, packages=PACKAGES),
        mock.patch.object(partition_log, "ThreadPoolExecutor", _Executor),
        # After the marker, a real consumer reads: no broker is here.
        mock.patch.object(marker_actions, "delivered", lambda cluster, txn, done, check: done),
        # A step takes seconds here, also from a decision to its end; a coordinator that starts again has a new epoch.
        mock.patch.object(markers, "RESTART", dt.timedelta(days=1)),
    ):
        yield


@contextmanager
def running(client: ModelClient) -> Iterator[None]:
    """The run whose state tells the time."""
    _clock.client, _clock.seconds = client, 0.0
    try:
        yield
    finally:
        _clock.client = None


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


def execution_of(plan: Any) -> Procedure:
    """Execute a plan that was made in the first state: what came of it."""

    def execute(client: ModelClient) -> str:
        now = replace(plan, cluster=connect(client))
        try:
            now.execute(confirm=now.target, audit=NoAudit(), recheck_after=SOON, save=False)  # the model has no files
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


Plan = Mapping[int, tuple[tuple[str, ...], State]]  # before which request: the steps, and the state after them


class Point(NamedTuple):
    """Before a request."""

    broker: int | None
    key: Key
    state: State
    seen: int  # a hash of all answers before


@dataclass(slots=True)
class Run:
    """One run of a procedure under a schedule."""

    plan: Plan  # the schedule
    points: list[Point]  # request and state, before each request, and a hash of all answers before it
    result: Any  # what the procedure returned, or its error
    client: ModelClient  # has what was written, and the last state

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
    """Every state within a depth, breadth first and at most so many, with its depth and the trace of all."""
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
