"""Failed connections name address, error and what to check; one broker's failure does not affect others."""

import logging
import socket
import threading
from collections.abc import Iterator

import pytest

from toolkit import Cluster
from toolkit.config import ClientConfig
from toolkit.errors import AuthenticationFailed, BrokerError, ConnectionFailed, NotFound, UsageError
from toolkit.lab import Kafka
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient

TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x46"  # what a TLS listener sends to a client that speaks Kafka in the clear

NEVER_S = 10_000.0  # longer than a test may take: a client that waits for it fails the test


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def address(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def unused() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return address(server)


def serve_bytes(server: socket.socket, data: bytes) -> threading.Thread:
    def serve() -> None:
        client, _ = server.accept()
        with client:
            client.recv(1000)
            client.sendall(data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def test_no_broker_listens() -> None:
    nobody = unused()
    with pytest.raises(ConnectionFailed, match=f"^The broker at {nobody} cannot be used: connection refused. Check "):
        Cluster(nobody, timeout=NEVER_S)


def test_every_failed_address_is_named() -> None:
    first, second = unused(), unused()
    with pytest.raises(ConnectionFailed, match=r"^No bootstrap server can be used\. ") as failed:
        Cluster(f"{first},{second}")
    assert first in str(failed.value)
    assert second in str(failed.value)


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(ConnectionFailed, match=r"no-such-host\.invalid:9092 cannot be used: DNS"):
        Cluster("no-such-host.invalid:9092")


def test_an_unresponsive_broker_times_out(listener: socket.socket) -> None:
    with pytest.raises(ConnectionFailed, match=f"^The broker at {address(listener)} did not answer .* within 1 s."):
        Cluster(address(listener), timeout=1)


def test_a_tls_listener_is_recognized(listener: socket.socket) -> None:
    serve_bytes(listener, TLS_ALERT)
    with pytest.raises(ConnectionFailed, match=r"seems to use TLS, but security\.protocol is PLAINTEXT"):
        Cluster(address(listener), timeout=5)


@pytest.mark.parametrize(
    ("answer", "protocol"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"), (b"<!DOCTYPE HTML>", "another protocol"), (b"\xff" * 8, "another")],
)
def test_a_port_that_is_no_listener_is_not_taken_for_tls(listener: socket.socket, answer: bytes, protocol: str) -> None:
    serve_bytes(listener, answer)
    with pytest.raises(ConnectionFailed, match=f"This port speaks {protocol}.*, not Kafka's"):
        Cluster(address(listener), timeout=5)


def test_a_listener_that_closes_the_connection_is_recognized(listener: socket.socket) -> None:
    serve_bytes(listener, b"")
    with pytest.raises(ConnectionFailed, match=r"closed the connection: wrong security\.protocol \(PLAINTEXT\)\?$"):
        Cluster(address(listener), timeout=5)


def test_kafka_python_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(ConnectionFailed):
        Cluster(unused())
    assert [record.name for record in caplog.records if record.name.startswith("kafka")] == []
    logging.getLogger("kafka.net.manager").warning("another user of kafka-python")
    assert caplog.records[-1].message == "another user of kafka-python"


@pytest.mark.lab
def test_a_plaintext_listener_is_distinguished_from_tls(kafka: Kafka) -> None:
    with pytest.raises(ConnectionFailed, match=r"seems not to use TLS, but security\.protocol is SSL"):
        Cluster({"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": "SSL"}, timeout=5)


@pytest.mark.lab
def test_a_listener_without_sasl_rejects_authentication(kafka: Kafka) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    config = {"bootstrap.servers": kafka.bootstrap_servers, **login, "sasl.password": "not-telling"}
    with pytest.raises(AuthenticationFailed, match="ILLEGAL_SASL_STATE") as failed:
        Cluster(config, timeout=5)
    assert "not-telling" not in str(failed.value)


@pytest.fixture(scope="module")
def connected(kafka: Kafka) -> Iterator[BrokerClient]:
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as opened:
        yield opened


@pytest.mark.lab
def test_one_responding_bootstrap_server_is_enough(kafka: Kafka, listener: socket.socket) -> None:
    config = ClientConfig(f"{unused()},{address(listener)},{kafka.bootstrap_servers}")
    with BrokerClient(config, timeout=NEVER_S) as opened:
        assert list(opened.brokers) == [1]


@pytest.mark.lab
def test_responses_are_in_the_order_of_the_requests(connected: BrokerClient) -> None:
    requests = [
        (1, broker_client.ListTransactions()),
        (7, broker_client.ListTransactions()),
        (None, broker_client.Metadata(topics=[])),
    ] * 20
    answered = connected.send(requests)
    assert [answer.broker_id for answer in answered] == [1, 7, 1] * 20
    assert [type(answer.error) for answer in answered[:3]] == [type(None), NotFound, type(None)]
    assert type(answered[0].message).__name__ == "ListTransactionsResponse"
    assert type(answered[2].message).__name__ == "MetadataResponse"
    assert answered[1].error_text == "BROKER_NOT_AVAILABLE: Broker 7 is not in the cluster; it has 1"


@pytest.mark.lab
def test_a_request_can_be_limited_to_a_version(connected: BrokerClient) -> None:
    assert connected.send_one(broker_client.ListTransactions(max_version=1), broker_id=1).API_VERSION == 1
    with pytest.raises(BrokerError, match=r"^Broker 1 at .* does not support ListOffsets: ") as refused:
        connected.send_one(broker_client.ListOffsets(max_version=0), broker_id=1)
    assert refused.value.code == "UNSUPPORTED_VERSION"


@pytest.mark.lab
def test_many_threads_share_a_client(connected: BrokerClient) -> None:
    got: list[int] = []
    threads = [
        threading.Thread(
            target=lambda: got.append(len(connected.send([(1, broker_client.Metadata(topics=None))] * 25)))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert got == [25] * 8


@pytest.mark.lab
def test_a_closed_client_raises(kafka: Kafka) -> None:
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as opened:
        pass
    opened.close()
    with pytest.raises(UsageError, match=r"^This connection to the cluster is closed\.$"):
        opened.send_one(broker_client.Metadata(topics=[]))
