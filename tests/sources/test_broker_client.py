"""Requests and responses: nothing is lost, a damaged one is an error, and a broker that fails is named."""

import copy
import logging
import random
import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import kafka.errors
import pytest
from kafka.protocol.api_key import ApiKey
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.parser import KafkaProtocol

from tests.process import PATIENCE_S
from tests.tools.fake_cluster import FakeCluster
from toolkit import Cluster
from toolkit.config import ClientConfig
from toolkit.errors import AuthenticationFailed, BrokerError, ConnectionFailed, NotFound, UsageError
from toolkit.lab import Kafka
from toolkit.lab.clients import until
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient, error_name

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


def test_the_first_token_is_made_before_the_time_of_a_request_begins() -> None:
    """Azure's package takes seconds to load on a busy machine: a recorder with 3.2 s for a request gave up (exit 3)."""
    threads = []

    def token(config: str) -> tuple[str, float]:
        threads.append(threading.current_thread())
        raise AuthenticationFailed("There is no token.", do="")

    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": token}
    with pytest.raises(AuthenticationFailed, match="There is no token"):
        BrokerClient(ClientConfig({"bootstrap.servers": "127.0.0.1:1", **login}), timeout=0.1)
    assert threads == [threading.current_thread()], "not the network's, which has no time for it"


def test_every_failed_address_is_named() -> None:
    first, second = unused(), unused()
    with pytest.raises(ConnectionFailed, match=f"^The broker at {first} cannot be used: connection refused. Check "):
        Cluster(first, timeout=NEVER_S)
    with pytest.raises(ConnectionFailed, match=rf"^No bootstrap server can be used\. (?=.*{first}).*{second}"):
        Cluster(f"{first},{second}")
    with pytest.raises(ConnectionFailed, match=r"no-such-host\.invalid:9092 cannot be used: DNS"):
        Cluster("no-such-host.invalid:9092")


def test_an_unresponsive_broker_times_out(listener: socket.socket) -> None:
    with pytest.raises(ConnectionFailed, match=f"^The broker at {address(listener)} did not answer .* within 1 s."):
        Cluster(address(listener), timeout=1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (TLS_ALERT, r"seems to use TLS, but security\.protocol is PLAINTEXT"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "This port speaks HTTP.*, not Kafka's"),
        (b"<!DOCTYPE HTML>", "This port speaks another protocol.*, not Kafka's"),
        (b"\xff" * 8, "This port speaks another.*, not Kafka's"),
        (b"", r"closed the connection: wrong security\.protocol \(PLAINTEXT\)\?$"),
    ],
    ids=["TLS", "HTTP", "HTML", "bytes", "nothing"],
)
def test_what_listens_is_recognized_by_its_first_bytes(listener: socket.socket, answer: bytes, said: str) -> None:
    serve_bytes(listener, answer)
    with pytest.raises(ConnectionFailed, match=said):
        Cluster(address(listener), timeout=5)


def test_kafka_python_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(ConnectionFailed):
        Cluster(unused())
    assert [record.name for record in caplog.records if record.name.startswith("kafka")] == []
    logging.getLogger("kafka.net.manager").warning("another user of kafka-python")
    assert caplog.records[-1].message == "another user of kafka-python"


def test_a_plaintext_listener_is_distinguished_from_tls(kafka: Kafka) -> None:
    with pytest.raises(ConnectionFailed, match=r"seems not to use TLS, but security\.protocol is SSL"):
        Cluster({"bootstrap.servers": kafka.bootstrap_servers, "security.protocol": "SSL"}, timeout=5)


def test_metadata_of_another_cluster_is_refused(kafka: Kafka) -> None:
    """Behind one address may be two clusters, and one of them stops: answers of both were taken for one's."""
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as client:
        brokers, client._cluster_id = client.brokers, "another"
        with pytest.raises(BrokerError, match="answered for cluster another") as failed:
            client.send_one(broker_client.Metadata(topics=[]))
        assert (failed.value.code, client.brokers) == ("OTHER_CLUSTER", brokers)


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


def test_one_responding_bootstrap_server_is_enough(kafka: Kafka, listener: socket.socket) -> None:
    config = ClientConfig(f"{unused()},{address(listener)},{kafka.bootstrap_servers}")
    with BrokerClient(config, timeout=NEVER_S) as opened:
        assert list(opened.brokers) == [1]


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
    assert answered[1].error_text == "BROKER_NOT_AVAILABLE: Broker 7 is not in the cluster; it has 1. Name one of these"


def test_a_request_can_be_limited_to_a_version(connected: BrokerClient) -> None:
    assert connected.send_one(broker_client.ListTransactions(max_version=1), broker_id=1).API_VERSION == 1
    with pytest.raises(BrokerError, match=r"^Broker 1 at .* does not support ListOffsets: ") as refused:
        connected.send_one(broker_client.ListOffsets(max_version=0), broker_id=1)
    assert refused.value.code == "UNSUPPORTED_VERSION"


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


def test_a_closed_client_raises(kafka: Kafka) -> None:
    with BrokerClient(ClientConfig(kafka.bootstrap_servers)) as opened:
        pass
    opened.close()
    with pytest.raises(UsageError, match=r"^This connection to the cluster is closed\. Connect again"):
        opened.send_one(broker_client.Metadata(topics=[]))


def test_a_response_is_decoded_from_the_bytes_we_pass() -> None:
    assert issubclass(KafkaBytes, bytearray)
    parser = KafkaProtocol(client_id="contract")
    request = broker_client.ListGroups()
    request.API_VERSION = 0
    number = parser.send_request(request)
    answer = b"".join(each.to_bytes(size, "big") for each, size in ((number, 4), (15, 2), (0, 4)))
    received, message = broker_client.decode_response(parser, bytearray(answer))
    assert (received, message.error_code, message.groups) == (number, 15, [])


def test_error_codes_have_kafkas_names() -> None:
    """Those of which no other test has an answer; kafka-python renames some."""
    names = {
        48: "INVALID_TXN_STATE",
        52: "TRANSACTION_COORDINATOR_FENCED",
        53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        120: "TRANSACTION_ABORTABLE",
        4711: "ERROR_4711",
    }
    assert {code: error_name(code) for code in names} == names


PARTITIONS = {"orders": [0, 7], "a" * 200: list(range(300)), "ñ": [2**31 - 1]}


def test_requests_of_many_partitions_are_encoded_as_kafka_python_does() -> None:
    fields = {"timestamp": -2, "replica_id": -2, "isolation_level": 1, "timeout_ms": 30_000}
    for number in range(1, broker_client.ListOffsets.max_version + 1):
        request = broker_client.ListOffsets(partitions=PARTITIONS, **fields)
        request.API_VERSION = number
        request.with_header(correlation_id=9, client_id="contract")
        ours = copy.copy(request).encode(header=True, framed=True)
        assert ours[4:] == request.encode(header=True)
        assert int.from_bytes(ours[:4], "big") == len(ours) - 4


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


def test_a_broker_is_asked_for_the_partitions_of_which_it_has_a_replica() -> None:
    brokers = FakeCluster(5, 100, 10)
    with serving(brokers), Cluster(f"127.0.0.1:{brokers.ports[0]}", timeout=PATIENCE_S) as cluster:
        own = {row["partition"] for row in cluster.partition_rows() if 3 in row["replicas"]}
        assert {row["partition"] for row in cluster.producer_rows(broker_id=3)} <= own
        assert {row["partition"] for row in cluster.finding_rows(broker_id=3, recheck_after=0)} == own


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


class Moved(FakeCluster):
    """The address of the second broker leads to a broker of another cluster, which says so in metadata only."""

    def answer(self, broker: int, frame: bytes) -> bytes:
        whole = super().answer(broker, frame)
        is_metadata = broker == 1 and int.from_bytes(frame[:2], "big") == ApiKey.Metadata
        return whole.replace(b"\x05fake", b"\x05that") if is_metadata else whole


def test_an_address_that_leads_to_another_cluster_is_no_broker_of_this_one() -> None:
    """Its topics have the same names, its coordinators other ids: a live transaction had no owner, another LSO held."""
    moved = Moved(2, 20, 10)
    with serving(moved), Cluster(f"127.0.0.1:{moved.ports[0]}", timeout=PATIENCE_S) as cluster:
        rows = [*cluster.producer_rows(), *cluster.partition_rows()]
        with pytest.raises(BrokerError, match="A broker of cluster that answered for cluster fake"):
            cluster.transaction_rows()
    assert {str(row["error"]).partition(":")[0] for row in rows if row["broker_id"] == 1} == {"OTHER_CLUSTER"}
    assert {row["error"] for row in rows if row["broker_id"] == 0} == {None}


class CutOff(FakeCluster):
    """No controller reaches the first of three brokers: it takes itself for the leader of what the second one leads."""

    lock, asked = threading.Lock(), 0

    def answer(self, broker: int, frame: bytes) -> bytes:
        with self.lock:
            self.asked = broker
            return super().answer(broker, frame)

    @property
    def registered(self) -> list[int]:
        return [0, 1, 2] if self.asked == 0 else [1, 2]

    def leader(self, topic: str, partition: int) -> int:
        leader = super().leader(topic, partition)
        return 1 if leader == 0 and self.asked > 0 else leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        return int(self.asked > 0)

    def is_held(self, topic: str, partition: int) -> bool:
        return self.asked > 0 and super().is_held(topic, partition)


def test_a_broker_that_no_controller_reaches_names_no_leaders() -> None:
    """What was open since on the partitions that it had led was in no finding, and nothing hung."""
    cut_off, tp = CutOff(3, 100, 0), ("orders-00000", 0)

    @contextmanager
    def connected() -> Iterator[Cluster]:
        with Cluster(f"127.0.0.1:{cut_off.ports[0]}", timeout=PATIENCE_S) as cluster:
            cluster.client.send_one(broker_client.Metadata(topics=[]), broker_id=0)  # the last one used names leaders
            yield cluster

    with serving(cut_off):
        with connected() as cluster:
            rows = cluster.finding_rows(recheck_after=0, log_evidence=False)
        assert [(row["topic"], row["partition"], row["start_offset"]) for row in rows] == [(*tp, 500)]
        with connected() as cluster:
            assert [(each.tp, each.broker_id) for each in cluster.observe(partitions=[tp]).producers] == [(tp, 1)]
        with connected() as cluster:
            for selected in ([tp], None):  # of all topics, who leads is read by all if brokers differ
                rows = [*cluster.partition_rows(partitions=selected), *cluster.producer_rows(partitions=selected)]
                assert {row["broker_id"] for row in rows if (row["topic"], row["partition"]) == tp} == {1}, selected


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
