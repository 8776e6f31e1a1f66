"""Any Kafka protocol message to any broker, with TLS and SASL done; the only importer of kafka-python.

Message classes stand here under Kafka's own names, so that the rest of the package builds a request as
``wire.DescribeProducers(topics=[...])`` and reads the fields of the answer in snake case. ``max_version=8`` on a
request forces an older version of it.
"""

from __future__ import annotations

import copy
import datetime as dt
import ssl
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import kafka.errors
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.protocol import admin, consumer, metadata, producer
from kafka.protocol.api_key import ApiKey
from kafka.protocol.parser import KafkaProtocol

from toolkit.config import ClientConfig, TokenProvider
from toolkit.errors import AuthenticationFailed, BrokerError, ConnectionFailed, NotFound, ToolkitError, UsageError
from toolkit.sources.answer import Answer
from toolkit.sources.failures import (
    CHECK_ADDRESS,
    CHECK_CREDENTIALS,
    is_lost,
    is_silence,
    keep_quiet,
    one_of_many,
    plain_words,
    what_to_check,
)

__all__ = ["Answer", "Wire", "error_name", "error_text"]  # and the messages below

AddOffsetsToTxn = producer.AddOffsetsToTxnRequest
AddPartitionsToTxn = producer.AddPartitionsToTxnRequest
ApiVersions = metadata.ApiVersionsRequest
CreateAcls = admin.CreateAclsRequest
CreateTopics = admin.CreateTopicsRequest
DeleteAcls = admin.DeleteAclsRequest
DeleteRecords = admin.DeleteRecordsRequest
DeleteTopics = admin.DeleteTopicsRequest
DescribeAcls = admin.DescribeAclsRequest
DescribeConfigs = admin.DescribeConfigsRequest
DescribeGroups = admin.DescribeGroupsRequest
DescribeProducers = admin.DescribeProducersRequest
DescribeTransactions = admin.DescribeTransactionsRequest
EndTxn = producer.EndTxnRequest
Fetch = consumer.FetchRequest
FindCoordinator = metadata.FindCoordinatorRequest
InitProducerId = producer.InitProducerIdRequest
ListGroups = admin.ListGroupsRequest
ListOffsets = consumer.ListOffsetsRequest
ListTransactions = admin.ListTransactionsRequest
Metadata = metadata.MetadataRequest
OffsetFetch = consumer.OffsetFetchRequest
Produce = producer.ProduceRequest
TxnOffsetCommit = producer.TxnOffsetCommitRequest
WriteTxnMarkers = producer.WriteTxnMarkersRequest

Request = Any  # a message of kafka-python, which is untyped: Any ends here and in the fields of answers

CLIENT = "kafka-txn-toolkit"
# Bytes; a coordinator with a million ids answers ListTransactions with 60 MB in one frame. It must stay below
# 0x15030000, which is how a TLS alert starts: so a listener that speaks TLS is told from a long answer.
LARGEST_ANSWER = 350_000_000
PATIENCE = 3  # silent brokers that may be tried where any will do
READ_BYTES = 1 << 18  # from a socket at once
IN_FLIGHT = 8  # requests on one connection at a time; a broker works on one of them anyway

# Kafka's names; kafka-python has its own for some codes, and does not know the newest.
_NAMES = {code: error.message for code, error in kafka.errors.kafka_errors.items() if code is not None} | {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
}
_SINCE = {"DescribeProducers": "2.8", "DescribeTransactions": "3.0", "ListTransactions": "3.0"}
_REFUSED = (
    kafka.errors.AuthorizationError,
    kafka.errors.IllegalSaslStateError,
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
)
_LOST = (kafka.errors.KafkaError, OSError)
_NOTHING_MORE = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_TIMED_OUT = (kafka.errors.KafkaTimeoutError, kafka.errors.RequestTimedOutError)


AbstractTokenProvider.register(TokenProvider)


def error_name(code: int) -> str:
    """Kafka's name of an error code, for example ``"NOT_LEADER_OR_FOLLOWER"``."""
    return str(_NAMES.get(code, f"ERROR_{code}"))


def error_text(code: int, message: str | None = None) -> str:
    """``"NAME: text"`` as it stands in the error column; the broker's own text where it sent one."""
    text = message or " ".join(str(getattr(kafka.errors.for_code(code), "description", "")).split())
    return f"{error_name(code)}: {text}" if text else error_name(code)


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Connections that hear a broker out: kafka-python drops what it reads together with the end of a connection.

    A broker that refuses a password sends its refusal with the end, so without this it would be a broker that hung up.
    And they read more at once: kafka-python takes 4 KiB, which makes a long fetch wait for itself.
    """

    async def _build_transport(self, *arguments: Any, **options: Any) -> Any:
        transport = await super()._build_transport(*arguments, **options)
        sock = transport._sock

        def hear_out() -> tuple[memoryview, Exception | None]:
            parts, end = [], None
            while end is None:
                try:
                    parts.append(sock.recv(READ_BYTES))
                except _NOTHING_MORE:
                    break
                except OSError as exc:
                    end = kafka.errors.KafkaConnectionError(exc)
                else:
                    end = None if parts[-1] else kafka.errors.KafkaConnectionError("socket disconnected")
            data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts))  # of which a slice is no copy
            return (data, None) if data else (data, end)  # the end comes again with the next read

        transport._sock_recv = hear_out
        return transport


class _Unread:
    """The rest of an answer, to be read without copying it: kafka-python copies it twice, and it can be megabytes."""

    def __init__(self, answer: bytearray) -> None:
        self._view = memoryview(answer)
        self._at = 0

    def read(self, size: int | None = None) -> bytes | memoryview:
        start, self._at = self._at, len(self._view) if size is None else self._at + size
        found = self._view[start : self._at]
        return found if size is None else bytes(found)

    def seek(self, position: int) -> None:
        self._at = position

    def tell(self) -> int:
        return self._at


def _decode(parser: KafkaProtocol, answer: bytearray) -> Any:
    return KafkaProtocol._process_response(parser, _Unread(answer))


class Wire:
    """Connections to the brokers of one cluster.

    Parameters
    ----------
    config
        How to reach the cluster.
    timeout
        Seconds that connecting, and every call of `send`, may take.

    Raises
    ------
    ConnectionFailed
        If no bootstrap address answers in time: which, what happened and what to check.
    AuthenticationFailed
        If a broker refuses the credentials.
    """

    def __init__(self, config: ClientConfig, *, timeout: float = 30.0) -> None:
        self._config = config
        self.timeout = timeout
        milliseconds = int(timeout * 1000)
        self._silent: dict[int, tuple[float, ToolkitError]] = {}  # since when, and what was said about it
        self._net = NetworkSelector(client_id=CLIENT, slow_task_threshold_secs=0)
        self._manager = _Manager(
            self._net,
            **{"client_id": CLIENT}
            | config.kafka_python()
            | {
                "receive_message_max_bytes": LARGEST_ANSWER,
                "request_timeout_ms": milliseconds,
                "socket_connection_setup_timeout_ms": milliseconds,
                "max_in_flight_requests_per_connection": 1 << 20,  # beyond its limit kafka-python fails, we wait
            },
        )
        keep_quiet(CLIENT)
        self._net.start()
        try:
            self._net.run(self._bootstrap, time.monotonic() + timeout)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and end the thread that drives them."""
        if not self._manager.closed:
            self._net.run(self._manager.close)
            self._net.close()

    @property
    def brokers(self) -> dict[int, str]:
        """Broker id to the address it advertises, by the newest metadata that passed this wire."""
        return {broker.node_id: f"{broker.host}:{broker.port}" for broker in self._manager.cluster.brokers()}

    def versions(self, broker_id: int) -> dict[str, tuple[int, int]]:
        """API name to lowest and highest version, by this very broker's own ApiVersions answer.

        Raises
        ------
        ConnectionFailed, NotFound
            If the broker does not answer, or is not in the cluster.
        """
        try:
            connection = self._net.run(self._connection, broker_id, time.monotonic() + self.timeout)
        except _LOST as exc:
            raise self._failure(exc, broker_id, "ApiVersions") from None
        known = {key.value for key in ApiKey}
        return {
            ApiKey(key).name if key in known else str(key): versions
            for key, versions in connection.broker_version_data.api_versions.items()
        }

    def send(self, requests: Sequence[tuple[int | None, Request]]) -> list[Answer]:
        """Send every request at once and wait for every answer; one result per request, in order.

        A broker that fails gives an error in place of its own answers and delays or disturbs no other.

        Parameters
        ----------
        requests
            Broker id and message; no broker id means any broker.
        """
        if self._manager.closed:
            raise UsageError("This connection to the cluster is closed.")
        return list(self._net.run(self._send_all, requests, time.monotonic() + self.timeout))

    def ask(self, request: Request, *, broker_id: int | None = None) -> Any:
        """One message to one broker, and its response.

        Raises
        ------
        BrokerError, ConnectionFailed, NotFound
            If there is no response. Error codes inside a response are the caller's to read.
        """
        (answer,) = self.send([(broker_id, request)])
        if answer.error:
            raise answer.error
        return answer.message

    # Everything below runs on the thread of the connections.

    async def _bootstrap(self, deadline: float) -> None:
        """Learn the brokers from the first bootstrap address that answers; all are tried at once."""
        nodes = self._manager.cluster.bootstrap_brokers()
        first = Future()
        failures: list[Exception] = []

        async def knock(node: Any) -> None:
            try:
                connection = await self._connection(node.node_id, deadline)
                self._learn(await connection.send_request(Metadata(topics=[]), _left(deadline)))
            finally:
                self._manager.close(node.node_id)

        def failed(node: Any, exc: Exception) -> None:
            failures.append(self._failure(exc, node.node_id, "Metadata") if isinstance(exc, _LOST) else exc)
            if len(failures) == len(nodes) and not first.is_done:
                first.failure(one_of_many(failures))

        for node in nodes:
            knocked = self._net.call_soon_with_future(knock, node)
            knocked.add_callback(lambda _: first.is_done or first.success(None))
            knocked.add_errback(partial(failed, node))
        await first

    async def _connection(self, broker_id: int | str, deadline: float) -> Any:
        """An open connection: the present one, or a new one tried at once, whatever failed before."""
        if self._manager.cluster.broker_metadata(broker_id) is None:
            present = ", ".join(map(str, sorted(self.brokers)))
            raise NotFound(f"Broker {broker_id} is not in the cluster; it has {present}.")
        # Each connection then asks its broker for its versions; else the first broker's would stand for all.
        self._manager.broker_version_data = None
        self._manager.reset_backoff(broker_id)
        connection = self._manager.get_connection(broker_id, timeout_ms=_left(deadline), refresh_metadata_on_err=False)
        try:
            await self._manager.wait_for(connection.init_future, _left(deadline))
        except kafka.errors.KafkaTimeoutError:
            connection.close()
            raise
        connection.parser._process_response = partial(_decode, connection.parser)
        return connection

    async def _send_all(self, requests: Sequence[tuple[int | None, Request]], deadline: float) -> list[Answer]:
        """Give every broker its queue, all queues at once."""
        queues: dict[int | None, list[int]] = {}
        for index, (broker_id, _) in enumerate(requests):
            queues.setdefault(broker_id, []).append(index)
        running = [
            self._net.call_soon_with_future(self._serve, broker_id, [requests[i][1] for i in indices], deadline)
            for broker_id, indices in queues.items()
        ]
        answers: dict[int, Answer] = {}
        for indices, future in zip(queues.values(), running, strict=True):
            answers.update(zip(indices, await future, strict=True))
        return [answers[index] for index in range(len(requests))]

    async def _serve(self, broker_id: int | None, queue: Sequence[Request], deadline: float) -> list[Answer]:
        """Have a broker, or any, answer a queue. Who was silent is not waited for again until `timeout` has passed."""
        if broker_id is None:
            return await self._serve_anywhere(queue, deadline)
        since, error = self._silent.get(broker_id, (0.0, None))
        if error and time.monotonic() - since < self.timeout:
            return [Answer(broker_id, _now(), error=error)] * len(queue)
        answers = await self._serve_by(broker_id, queue, deadline)
        silence = next((answer.error for answer in answers if is_silence(answer.error)), None)
        if silence:
            self._silent[broker_id] = time.monotonic(), silence
        return answers

    async def _serve_anywhere(self, queue: Sequence[Request], deadline: float) -> list[Answer]:
        """Try brokers in turn, who spoke last first; a few silent ones share the time there is."""
        connected = [used.node_id for used in reversed(self._manager.least_used_connections())]
        waited_for_in_vain = sorted(self._silent)
        nodes = dict.fromkeys([*connected, *(node for node in self.brokers if node not in waited_for_in_vain)])
        nodes |= dict.fromkeys(node.node_id for node in self._manager.cluster.bootstrap_brokers())
        silences = 0
        for node in nodes:
            share = (deadline - time.monotonic()) / (PATIENCE - silences)
            answers = await self._serve_by(node, queue, time.monotonic() + share)
            silences += any(is_silence(answer.error) for answer in answers)
            if silences == PATIENCE or not any(is_lost(answer.error) for answer in answers):
                break
        return answers

    async def _serve_by(self, node: int | str, queue: Sequence[Request], deadline: float) -> list[Answer]:
        """Send a queue over one connection, a few in flight; answers come in the same order."""
        try:
            connection = await self._connection(node, deadline)
        except (*_LOST, ToolkitError) as exc:
            return [self._lost(exc, node, request) for request in queue]
        answers: list[Answer] = []
        in_flight: deque[tuple[Request, Any]] = deque()
        for request in queue:
            while connection.paused and time.monotonic() < deadline:  # the broker throttles
                await self._net.sleep(0.01)
            # A copy, as sending sets the version that this very broker speaks.
            in_flight.append((request, connection.send_request(copy.copy(request), max(1, _left(deadline)))))
            if len(in_flight) == IN_FLIGHT:
                answers.append(await self._receive(node, *in_flight.popleft()))
        answers += [await self._receive(node, *waiting) for waiting in in_flight]
        return answers

    async def _receive(self, node: int | str, request: Request, future: Any) -> Answer:
        try:
            message = await future
        except _LOST as exc:
            return self._lost(exc, node, request)
        self._learn(message)
        return Answer(node if isinstance(node, int) else None, _now(), message=message)

    def _learn(self, message: Any) -> None:
        """Take the brokers from a Metadata answer (not its topics: with thousands of partitions that costs)."""
        if isinstance(message, metadata.MetadataResponse):
            brokers = {"brokers": message.brokers, "controller_id": message.controller_id, "topics": []}
            self._manager.cluster.update_metadata(metadata.MetadataResponse(version=message.API_VERSION, **brokers))

    def _lost(self, exc: Exception, node: int | str, request: Request) -> Answer:
        api = str(request.name).removesuffix("Request")
        return Answer(node if isinstance(node, int) else None, _now(), error=self._failure(exc, node, api))

    def _failure(self, exc: Exception, node: int | str, api: str) -> ToolkitError:
        """A failure of the connection as one of our errors, which names the broker and says what to check."""
        if isinstance(exc, ToolkitError):
            return exc
        known = self._manager.cluster.broker_metadata(node)
        address = f"{known.host}:{known.port}" if known else ", ".join(self._config.bootstrap_servers)
        who = f"Broker {node} at {address}" if isinstance(node, int) else f"The broker at {address}"
        text = self._config.scrub(_text(exc))
        if isinstance(exc, kafka.errors.IncompatibleBrokerVersion):
            need = f", which came with Kafka {_SINCE[api]}" if api in _SINCE else f": {text}"
            return BrokerError(f"{who} does not support {api}{need}.", code="UNSUPPORTED_VERSION")
        if isinstance(exc, _REFUSED):
            return AuthenticationFailed(f"{who} refused the client: {text}.", do=CHECK_CREDENTIALS)
        if isinstance(exc, _TIMED_OUT) and isinstance(node, int):
            return BrokerError(f"{who} did not answer {api} in time.", code="REQUEST_TIMED_OUT")
        if isinstance(exc, _TIMED_OUT):
            return ConnectionFailed(f"{who} did not answer {api} within {self.timeout:g} s.", do=CHECK_ADDRESS)
        protocol = str(self._manager.config["security_protocol"])
        return ConnectionFailed(f"{who} cannot be used: {text}.", do=what_to_check(text, protocol))


def _text(exc: Exception) -> str:
    """What an exception says; an error code of Kafka says its name and Kafka's own text."""
    said = plain_words(str(exc.args[0])) if exc.args else ""
    code = getattr(exc, "errno", None)
    return said or (error_text(code) if isinstance(code, int) else type(exc).__name__).rstrip(".")


def _left(deadline: float) -> float:
    """Milliseconds until `deadline`, zero once it has passed."""
    return max(0.0, deadline - time.monotonic()) * 1000


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
