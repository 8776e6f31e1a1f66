"""A client of a cluster whose responses a test defines, for errors that no real cluster produces on demand."""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from tests.sources.recorded import RECORDED_APIS
from toolkit.errors import ToolkitError
from toolkit.sources.live.broker_client import BrokerResponse

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
STATE_TOPIC = "__transaction_state"
Node = SimpleNamespace


class FakeCluster:
    """Topic ``orders`` with one partition and a state topic with two, on brokers 1 and 2.

    Each API is a method that takes the broker and the request and returns the answer's message; a test replaces what
    shall go wrong. `asked` keeps (API, broker) in order.
    """

    timeout = 5.0

    def __init__(self, **replaced: Callable[..., Any]) -> None:
        self.sent_requests: list[tuple[str, int | None]] = []
        self.now = NOW  # by the controller's clock
        self.leaders = {("orders", 0): (1, 4), (STATE_TOPIC, 0): (1, 7), (STATE_TOPIC, 1): (2, 7)}
        self.ids = {1: [("payments", 7, "CompleteAbort")], 2: [("other", 8, "Empty")]}
        self.open = {("orders", 0): [producer(7, start=100)]}
        self.replaced = replaced

    @property
    def brokers(self) -> dict[int, str]:
        return {1: "one:9092", 2: "two:9092"}

    cluster_id: str | None = "M8XbVDmITl6ZTs4WNdt8eg"
    is_split = False

    def apis(self, broker_id: int) -> dict[int, tuple[int, int]] | None:
        """Those of Kafka 4.3.1, as a real broker listed them; a test replaces them."""
        return RECORDED_APIS["4.3.1"]

    def send(self, requests: Sequence[tuple[int | None, Any]], *, timeout: float | None = None) -> list[BrokerResponse]:
        return [self._answer(broker, request) for broker, request in requests]

    def send_one(self, request: Any, *, broker_id: int | None = None) -> Any:
        (answer,) = self.send([(broker_id, request)])
        if answer.error:
            raise answer.error
        return answer.message

    def _answer(self, broker: int | None, request: Any) -> BrokerResponse:
        api = str(request.name).removesuffix("Request")
        self.sent_requests.append((api, broker))
        answering = self.replaced.get(api) or getattr(self, api)
        try:
            return BrokerResponse(broker or 1, NOW, message=answering(broker, request))
        except ToolkitError as error:
            return BrokerResponse(broker, NOW, error=error)

    def Metadata(self, broker: int | None, request: Any) -> Node:  # noqa: N802
        names = {topic for topic, _ in self.leaders}
        sent_requests = names if request.topics is None else {topic.name for topic in request.topics}
        return Node(topics=[self._topic(name, 0 if name in names else 3) for name in sorted(sent_requests)])

    def _topic(self, name: str, error: int) -> Node:
        partitions = [
            Node(
                error_code=0,
                partition_index=p,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[1, 2],
                isr_nodes=[1, 2],
                offline_replicas=[],
            )
            for (topic, p), (leader, epoch) in self.leaders.items()
            if topic == name
        ]
        return Node(name=name, topic_id=None, error_code=error, partitions=partitions)

    def ListOffsets(self, broker: int, request: Any) -> Node:  # noqa: N802
        def offset(timestamp: int) -> int:
            return 0 if timestamp == -2 else 100 if request.isolation_level else 150

        return by_topic(
            (topic, self._offset(broker, topic, number, offset(request.timestamp)))
            for topic, numbers in request.partitions.items()
            for number in numbers
        )

    def _offset(self, broker: int, topic: str, partition: int, offset: int) -> Node:
        leader, epoch = self.leaders[topic, partition]
        if leader != broker:
            return listed_offset(partition, -1, error_code=6)
        return listed_offset(partition, offset, leader_epoch=epoch)

    def DescribeQuorum(self, broker: int | None, request: Any) -> Node:  # noqa: N802
        now = int(self.now.timestamp() * 1000)
        leader = Node(replica_id=1, last_caught_up_timestamp=now)
        of_log = Node(error_code=0, leader_id=1, current_voters=[leader], observers=[])
        return Node(error_code=0, topics=[Node(partitions=[of_log])])

    def DescribeProducers(self, broker: int, request: Any) -> Node:  # noqa: N802
        return by_topic(
            (topic, Node(partition_index=number, error_code=0, active_producers=self.open.get((topic, number), [])))
            for topic, numbers in request.topics
            for number in numbers
        )

    def ListTransactions(self, broker: int, request: Any) -> Node:  # noqa: N802
        listed = [Node(transactional_id=i, producer_id=pid, transaction_state=s) for i, pid, s in self.ids[broker]]
        return Node(error_code=0, API_VERSION=2, transaction_states=listed)

    def DescribeTransactions(self, broker: int, request: Any) -> Node:  # noqa: N802
        known = {i: (pid, s) for i, pid, s in self.ids[broker]}
        return Node(transaction_states=[described(i, *known.get(i, (None, None))) for i in request.transactional_ids])

    def DescribeAcls(self, broker: int, request: Any) -> Node:  # noqa: N802
        return Node(error_code=54, resources=[])

    def FindCoordinator(self, broker: int | None, request: Any) -> Node:  # noqa: N802
        found = [
            Node(key=key, node_id=broker, error_code=0, error_message=None)
            for key in request.coordinator_keys
            for broker, ids in self.ids.items()
            if key in {name for name, *_ in ids}
        ]
        return Node(coordinators=found)

    def Fetch(self, broker: int, request: Any) -> Node:  # noqa: N802
        return Node(error_code=0, responses=[Node(partitions=[Node(error_code=1, records=None)])])


def by_topic(found: Iterable[tuple[str, Node]]) -> Node:
    """A message of these partitions, each with its topic."""
    topics: dict[str, list[Node]] = {}
    for topic, partition in found:
        topics.setdefault(topic, []).append(partition)
    return Node(topics=[Node(name=name, partitions=partitions) for name, partitions in topics.items()])


def listed_offset(partition: int, offset: int, *, error_code: int = 0, leader_epoch: int = -1) -> Node:
    return Node(
        partition_index=partition, error_code=error_code, timestamp=-1, offset=offset, leader_epoch=leader_epoch
    )


def fetched(
    records: bytes | None, *, error_code: int = 0, high_watermark: int = 150, aborted: Sequence[Any] | None = None
) -> Node:
    """An answer to Fetch of one partition."""
    partition = Node(
        error_code=error_code, records=records, high_watermark=high_watermark, aborted_transactions=aborted
    )
    return Node(error_code=0, throttle_time_ms=0, responses=[Node(topic="orders", partitions=[partition])])


def producer(producer_id: int, *, epoch: int = 0, start: int = -1, **more: Any) -> Node:
    fields = {"last_sequence": 3, "last_timestamp": 1_795_262_400_000, "coordinator_epoch": 0}
    return Node(
        **{"producer_id": producer_id, "producer_epoch": epoch, "current_txn_start_offset": start, **fields, **more}
    )


def described(name: str, producer_id: int | None, state: str | None, *, error: int = 0) -> Node:
    missing = producer_id is None
    return Node(
        transactional_id=name,
        error_code=105 if missing else error,
        producer_id=0 if missing else producer_id,
        producer_epoch=0,
        transaction_state=state or "",
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=1_795_262_400_000,
        topics=[],
    )


def ids_with_error(code: int) -> Callable[[int | None, Any], Node]:
    """DescribeTransactions of a broker that has this error for each id."""
    return lambda broker, request: Node(
        transaction_states=[described(each, 7, "", error=code) for each in request.transactional_ids]
    )


LOADING = Node(error_code=14, API_VERSION=2, transaction_states=[])
"""ListTransactions of a coordinator that loads."""
