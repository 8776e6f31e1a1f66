"""Responses to an observation: nothing of them is lost, and a damaged one is an error."""

import copy
import random
import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import kafka.errors
import pytest
from kafka.protocol.api_key import ApiKey
from kafka.protocol.parser import KafkaProtocol

from tests.process import PATIENCE_S
from tests.tools.fake_cluster import FakeCluster
from toolkit import Cluster
from toolkit.config import ClientConfig
from toolkit.lab.clients import until
from toolkit.sources.live import broker_client

LARGE = (
    broker_client.Metadata(topics=None),
    broker_client.ListOffsets(partitions={"orders-00000": range(9)}, replica_id=-1, isolation_level=0),
    broker_client.DescribeProducers(topics=[("orders-00000", range(9))]),
    broker_client.ListTransactions(state_filters=[], producer_id_filters=[]),
)


def response_to(request: Any) -> bytes:
    """The response of a small cluster."""
    request = copy.copy(request)
    request.API_VERSION = request.max_version
    request.with_header(correlation_id=1)
    return FakeCluster(1, 100, 9).answer(0, bytes(request.encode(header=True, framed=True))[4:])[4:]


def decoded(request: Any, response: bytes | bytearray) -> Any:
    """Its message. Raises KafkaProtocolError if it is damaged."""
    request = copy.copy(request)
    request.API_VERSION = request.max_version
    parser = KafkaProtocol(client_id="damage")
    parser.send_request(request, correlation_id=1)
    return broker_client.decode_response(parser, bytearray(response))[1]


@pytest.mark.parametrize("request_", LARGE, ids=lambda each: each.name)
def test_a_damaged_response_is_rejected(request_: Any) -> None:
    """kafka-python takes a text that ends early and bytes left over, and other damage ended its network thread."""
    response, damage = response_to(request_), random.Random(request_.name)
    assert decoded(request_, response)
    for cut in range(0, len(response), 5):
        with pytest.raises(kafka.errors.KafkaProtocolError):
            decoded(request_, response[:cut])
    with pytest.raises(kafka.errors.KafkaProtocolError):
        decoded(request_, response + b"\0")
    for _ in range(300):
        damaged = bytearray(response)
        damaged[damage.randrange(len(damaged))] = damage.randrange(256)
        with suppress(kafka.errors.KafkaProtocolError):
            decoded(request_, damaged)


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


class Connection(socketserver.StreamRequestHandler):
    server: "Listener"

    def handle(self) -> None:
        with suppress(ConnectionError):
            while size := self.rfile.read(4):
                frame = self.rfile.read(int.from_bytes(size, "big"))
                self.wfile.write(self.server.cluster.answer(self.server.broker, frame))

    def finish(self) -> None:
        super().finish()
        self.server.connections_ended += 1


class Listener(socketserver.ThreadingTCPServer):
    """One broker. A thread for each connection: asyncio leaves one open that was accepted while its loop ends."""

    connections_ended = 0

    def __init__(self, cluster: FakeCluster, broker: int) -> None:
        super().__init__(("127.0.0.1", 0), Connection)
        self.cluster, self.broker = cluster, broker
        cluster.ports[broker] = self.server_address[1]


@contextmanager
def serving(cluster: FakeCluster) -> Iterator[list[Listener]]:
    with ExitStack() as exits:
        listeners = [exits.enter_context(Listener(cluster, broker)) for broker in range(len(cluster.ports))]
        for listener in listeners:
            thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
            thread.start()
            exits.callback(thread.join, PATIENCE_S)
            exits.callback(listener.shutdown)
        yield listeners


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
    name = ApiKey(api).name
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
    with serving(whole), serving(late) as (listener,):
        servers = f"127.0.0.1:{whole.ports[0]},127.0.0.1:{late.ports[0]}"
        with broker_client.BrokerClient(ClientConfig(servers)) as client:
            assert len(client.brokers) == 3
            late.may_answer.set()
            until(lambda: listener.connections_ended or None, awaited="the end of its connection")
            assert len(client.brokers) == 3
