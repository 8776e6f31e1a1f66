"""Responses to an observation: kafka-python encodes the same bytes, and our decoders read the same values."""

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.parser import KafkaProtocol

from tests.bench.fake_cluster import BY_KEY, FakeCluster, serve
from tests.brokers import NEWEST, OLDER, on_cluster
from tests.formats.test_responses import same
from tests.process import PATIENCE_S
from toolkit import Cluster
from toolkit.config import ClientConfig
from toolkit.formats.bulk_messages import APIS, decode
from toolkit.lab import Kafka
from toolkit.lab.incidents import EVERYDAY, INCIDENTS
from toolkit.lab.queries import until
from toolkit.sources.live.client import broker_client, connection_manager

Response = tuple[int, int, bytes]  # API key, version, header and body


@pytest.fixture
def responses(monkeypatch: pytest.MonkeyPatch) -> list[Response]:
    observed: list[Response] = []
    plain = connection_manager.decode_fast

    def decode_fast(parser: KafkaProtocol, answer: bytearray) -> Any:
        header = parser.in_flight_requests[0]
        observed.append((header.request_api_key, header.request_api_version, bytes(answer)))
        return plain(parser, answer)

    monkeypatch.setattr(broker_client, "decode_fast", decode_fast)
    return observed


@pytest.mark.lab
@pytest.mark.parametrize(
    "lab", [on_cluster(version, EVERYDAY, id=version) for version in ("2.8.2", OLDER, NEWEST)], indirect=True
)
def test_responses_of_an_observation_are_decoded(lab: Kafka, responses: list[Response]) -> None:
    with INCIDENTS["open_young"](lab) as staged:
        responses.clear()
        with Cluster(lab.bootstrap_servers) as cluster:
            cluster.finding_rows(topics=[staged.topic], recheck_after=0)
            cluster.producers()
        observed = list(responses)
    kinds = {key for key, _, _ in observed}
    assert kinds >= (APIS.keys() if lab.version != "2.8.2" else APIS.keys() - {66}), "which came with 3.0"
    assert kinds <= BY_KEY.keys(), "what the bench's brokers answer"
    for key, version, response in observed:
        theirs = ResponseClassRegistry._response_class_registry[key].decode(response, version=version, header=True)
        theirs._header = None
        theirs.API_VERSION = version
        theirs.with_header(correlation_id=int.from_bytes(response[:4], "big"))
        assert bytes(theirs.encode(header=True)) == response
        if key in APIS:
            assert same(decode(response, api_key=key, version=version)[1], theirs)


class Damaging(FakeCluster):
    """Of two brokers, the second one sends damaged answers to ListOffsets, or to DescribeProducers."""

    damaged: int | None = None

    def answer(self, broker: int, frame: bytes) -> bytes:
        whole = super().answer(broker, frame)
        if broker != 1 or int.from_bytes(frame[:2], "big") != self.damaged:
            return whole
        return (len(whole) - 5).to_bytes(4, "big") + whole[4:-1]


@pytest.fixture(scope="module")
def damaging() -> Iterator[Damaging]:
    cluster = Damaging(2, 200, 10)
    with serving(cluster):
        yield cluster


@contextmanager
def serving(cluster: FakeCluster) -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    servers = loop.run_until_complete(serve(cluster))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(PATIENCE_S)
    for server in servers:
        server.close()
    loop.run_until_complete(end_connections())
    loop.close()


async def end_connections() -> None:
    """Otherwise their tasks are destroyed in whatever test comes next, which fails then."""
    connections = asyncio.all_tasks() - {asyncio.current_task()}
    for connection in connections:
        connection.cancel()
    if connections:
        await asyncio.wait(connections)
    await asyncio.sleep(0)  # their sockets are closed in the next round


@pytest.mark.parametrize(("api", "method"), [(2, Cluster.partition_rows), (61, Cluster.producer_rows)])
def test_a_damaged_response_gives_error_rows(damaging: Damaging, api: int, method: Any) -> None:
    damaging.damaged = None
    with Cluster(f"127.0.0.1:{damaging.ports[0]}", timeout=PATIENCE_S) as cluster:
        whole = {(row["topic"], row["partition"]): row for row in method(cluster)}
        damaging.damaged = api
        rows = method(cluster)
        damaging.damaged = None
    failed = [row for row in rows if row["error"]]
    assert {row["broker_id"] for row in failed} == {1}
    assert {row["partition"] % 2 for row in failed} == {1}, "what the second broker leads"
    name = APIS[api].name
    for row in failed:
        assert re.search(rf"NETWORK_EXCEPTION: Broker 1 at .*: The response to {name} .* is malformed", row["error"])
    for row in rows:
        if not row["error"]:
            assert {**row, "observed_at": None} == {**whole[row["topic"], row["partition"]], "observed_at": None}


class Late(FakeCluster):
    """A broker that has just started and knows no other yet; it answers once it may."""

    may_answer = threading.Event()

    def answer(self, broker: int, frame: bytes) -> bytes:
        self.may_answer.wait(PATIENCE_S)
        return super().answer(broker, frame)


def test_a_late_answer_of_a_bootstrap_server_changes_no_brokers() -> None:
    """Two of three brokers were unknown from then on, until the next Metadata response."""
    whole, late = FakeCluster(3, 200, 10), Late(1, 200, 10)
    with serving(whole), serving(late) as loop:
        servers = f"127.0.0.1:{whole.ports[0]},127.0.0.1:{late.ports[0]}"
        with broker_client.BrokerClient(ClientConfig(servers)) as client:
            assert len(client.brokers) == 3
            late.may_answer.set()
            until(lambda: True if not asyncio.all_tasks(loop) else None, awaited="the end of its connection")
            assert len(client.brokers) == 3
