"""The client's seam: a `BrokerClient` whose brokers are the model, and the waits and clocks of our code."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from unittest import mock

from tests.corpus import clocks
from tests.exploration.coordinator import coordinator_of, init_producer_id
from tests.exploration.leaders import append_marker
from tests.exploration.server import (
    BROKERS,
    Key,
    content_of,
    init_producer_id_response,
    key_of,
    message_of,
    names,
    write_txn_markers_response,
)
from tests.exploration.state import NOBODY, State
from tests.exploration.world import EPOCH, World
from tests.sources.recorded_apis import RECORDED_APIS
from toolkit.actions import complete
from toolkit.analysis.diagnosis import markers
from toolkit.config import ClientConfig
from toolkit.errors import BrokerError
from toolkit.sources.live.client.broker_response import BrokerResponse, error_name
from toolkit.sources.live.cluster import Cluster
from toolkit.sources.live.logs import partition_log

NOT_COORDINATOR = 16

BeforeRequest = Callable[[State, int | None, Key], State]


class ModelClient:
    """Brokers that answer from a state; `before` may change the state before each request.

    `writes` has what was written: the kind of request, its fields, and the states before and after it.
    """

    timeout = 5.0
    cluster_id: str | None = "M8XbVDmITl6ZTs4WNdt8eg"

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
    "toolkit.sources.diagnose",
    "toolkit.sources.live",
    "toolkit.actions",
    "toolkit.analysis.diagnosis",
    "toolkit.analysis.coordinator",
    "toolkit.schema.table",
)


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
        mock.patch.object(complete, "delivered", lambda cluster, txn, done, check: done),
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
