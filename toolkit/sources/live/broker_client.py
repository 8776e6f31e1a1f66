"""Send any message of Kafka's protocol to any broker, over TLS and SASL; a response is an answer or an error.

Messages have Kafka's own names and fields in snake case, as in ``DescribeTransactions(transactional_ids=[...])``;
``max_version=8`` forces an older version of a request.

What this package changes in kafka-python at run time (docs/about/kafka-python.md asks upstream for it):

1. Data that arrives together with the end of file is kept: a broker that rejects a password sends its response and
   closes at once. Reads are 256 KiB instead of 4 KiB, which take 0.4 s more of processor time per GB (of 1.1 s).
2. A response with bytes missing or left over is an error of its request.
3. `toolkit.config.TokenProvider` counts as one of kafka-python's, without a base class of it.
4. Kerberos takes its ticket from a keytab if one is configured, and a missing ticket is a refused login.
"""

from __future__ import annotations

import copy
import datetime as dt
import io
import logging
import os
import re
import ssl
import struct
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import kafka.errors
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.protocol import admin, consumer, metadata, producer
from kafka.protocol.api_key import ApiKey
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.schemas.fields.codecs import UnsignedVarInt32
from kafka.record.default_records import DefaultRecordBatchBuilder

from toolkit.config import ClientConfig, TokenProvider
from toolkit.errors import AuthenticationFailed, BrokerError, ConnectionFailed, NotFound, ToolkitError, UsageError
from toolkit.formats.batches import INT32, INT64, LENGTH_END
from toolkit.schema.coerce import in_utc
from toolkit.schema.table import EPOCH, utc_now
from toolkit.sources import live

Broker = TypeVar("Broker", bound=int | None)
Item = TypeVar("Item")

AddOffsetsToTxn = producer.AddOffsetsToTxnRequest
AddPartitionsToTxn = producer.AddPartitionsToTxnRequest
ApiVersions = metadata.ApiVersionsRequest
CreateTopics = admin.CreateTopicsRequest
DeleteRecords = admin.DeleteRecordsRequest
DescribeAcls = admin.DescribeAclsRequest
DescribeConfigs = admin.DescribeConfigsRequest
DescribeGroups = admin.DescribeGroupsRequest
DescribeProducers = admin.DescribeProducersRequest
DescribeQuorum = admin.DescribeQuorumRequest
DescribeTransactions = admin.DescribeTransactionsRequest
ElectLeaders = admin.ElectLeadersRequest
EndTxn = producer.EndTxnRequest
Fetch = consumer.FetchRequest
FindCoordinator = metadata.FindCoordinatorRequest
InitProducerId = producer.InitProducerIdRequest
ListGroups = admin.ListGroupsRequest
ListTransactions = admin.ListTransactionsRequest
Metadata = metadata.MetadataRequest
OffsetFetch = consumer.OffsetFetchRequest
OffsetForLeaderEpoch = consumer.OffsetForLeaderEpochRequest
Produce = producer.ProduceRequest
TxnOffsetCommit = producer.TxnOffsetCommitRequest
WriteTxnMarkers = producer.WriteTxnMarkersRequest


# kafka-python lacks these, and finds their schemas beside this module by the name of the class.
class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=live):  # type: ignore[misc, call-arg]
    """DescribeShareGroupOffsets (KIP-932); from version 1 on with the lag (KIP-1226)."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=live):  # type: ignore[misc, call-arg]
    """Its response."""


DescribeShareGroupOffsets = DescribeShareGroupOffsetsRequest


_QUERY = struct.Struct(">iiqx")
_length = cache(lambda number: UnsignedVarInt32.encode(number + 1))  # of a compact array or text


class ListOffsets(consumer.ListOffsetsRequest, init=False):  # type: ignore[misc, call-arg]
    """ListOffsets of partitions by topic, all at one timestamp.

    Flexible versions are encoded here: with kafka-python's encoder, `find-hanging` takes 44 % more processor time at
    200,000 partitions and 8 % at 15,000; 21 % and 5 % with tuples instead of its messages. Without our decoders and the
    encoder of DescribeProducers it takes 6 % and 2 %, so these went (November 2026, 2 cores, paired runs).
    """

    def __init__(
        self, *, partitions: Mapping[str, Sequence[int]] | None = None, timestamp: int = -1, **fields: Any
    ) -> None:
        self.partitions, self.timestamp = partitions or {}, timestamp
        super().__init__(**{"timeout_ms": 0} | fields)

    def encode(self, version: int | None = None, header: bool = False, framed: bool = False) -> Any:
        """Bytes."""
        if not framed or self.API_VERSION < 6:
            topic = self.ListOffsetsTopic
            self.topics = [
                topic(
                    name=name,
                    partitions=[
                        topic.ListOffsetsPartition(partition_index=each, timestamp=self.timestamp) for each in numbers
                    ],
                )
                for name, numbers in self.partitions.items()
            ]
            return super().encode(version=version, header=header, framed=framed)
        parts = [self.encode_header(flexible=True), struct.pack(">ib", self.replica_id, self.isolation_level)]
        parts.append(_length(len(self.partitions)))
        for name, numbers in self.partitions.items():
            text = bytes(name, "utf-8")
            parts += (_length(len(text)), text, _length(len(numbers)))
            parts += [_QUERY.pack(number, -1, self.timestamp) for number in numbers]
            parts.append(b"\0")
        parts.append(struct.pack(">ix", self.timeout_ms) if self.API_VERSION >= 10 else b"\0")
        body = b"".join(parts)
        return len(body).to_bytes(4, "big") + body


def batches(items: Iterable[tuple[Broker, Item]], size: int) -> list[tuple[Broker, list[Item]]]:
    """What goes to each broker in one request, at most `size` items; `items` have the id of their broker."""
    by_broker: dict[Broker, list[Item]] = {}
    for broker_id, item in items:
        by_broker.setdefault(broker_id, []).append(item)
    return [
        (broker_id, found[start : start + size])
        for broker_id, found in by_broker.items()
        for start in range(0, len(found), size)
    ]


TOO_OLD = "UNSUPPORTED_VERSION"  # the error of a broker that lacks an API, or its version
CHECK_ADDRESS = "Check bootstrap.servers, and that the broker is running and reachable from here."
CHECK_CREDENTIALS = "Check security.protocol, sasl.mechanism, and the user and password, token, or Kerberos ticket."

# Kafka's names; kafka-python renames some codes and lacks the newest.
_NAMES = {code: error.message for code, error in kafka.errors.kafka_errors.items() if code is not None} | {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    128: "INVALID_REGULAR_EXPRESSION",
    129: "REBOOTSTRAP_REQUIRED",
}


def error_name(code: int) -> str:
    """Kafka's name of an error code, for example ``"NOT_LEADER_OR_FOLLOWER"``."""
    return str(_NAMES.get(code, f"ERROR_{code}"))


def error_text(code: int, message: str | None = None) -> str:
    """``"NAME: text"`` for the error column, with the broker's own message if it sent one; no period ends it."""
    text = message or " ".join(str(getattr(kafka.errors.for_code(code), "description", "")).split())
    return f"{error_name(code)}: {text.rstrip('.')}" if text else error_name(code)


def omitted_text(api: str, what: str) -> str:
    """The error of what a broker was asked for and left out of its response: that is not "nothing there"."""
    return f"INCOMPLETE_RESPONSE: the response to {api} does not have {what}"


log = logging.getLogger(__name__)
TLS_ALERT = 0x15  # the first byte of what a TLS listener sends to a plaintext client


def row_text(error: ToolkitError) -> str:
    """``"NAME: text"`` for the error column, with Kafka's error name; no period ends it."""
    name = "BROKER_NOT_AVAILABLE" if isinstance(error, NotFound) else "NETWORK_EXCEPTION"
    if isinstance(error, BrokerError):
        name = error.code
    elif isinstance(error, AuthenticationFailed):
        name = "SASL_AUTHENTICATION_FAILED"
    return f"{name}: {str(error).rstrip('.')}"


def is_timeout(error: ToolkitError | None) -> bool:
    """Whether a request timed out."""
    return isinstance(error, BrokerError) and error.code == "REQUEST_TIMED_OUT"


def is_lost(error: ToolkitError | None) -> bool:
    """Whether a request got no response, so that another broker may answer it."""
    is_throttled = isinstance(error, BrokerError) and error.code == "THROTTLED"
    return isinstance(error, ConnectionFailed) or is_timeout(error) or is_throttled


def plain_text(text: str) -> str:
    """The system's text for ``"111 ECONNREFUSED"``; other text unchanged."""
    number = re.fullmatch(r"(\d+) E[A-Z]+", text.strip())
    return os.strerror(int(number[1])).lower() if number else text.strip().rstrip(".")


def what_to_check(text: str, protocol: str) -> str:
    """What to check after a failed connection, by its error text and ``security.protocol``."""
    plaintext = protocol in ("PLAINTEXT", "SASL_PLAINTEXT")
    if frame := re.search(r"Invalid frame length: (-?\d+)", text):
        begin = int(frame[1]).to_bytes(5, signed=True)[1:]
        if plaintext and begin[0] == TLS_ALERT:
            return f"The listener seems to use TLS, but security.protocol is {protocol}."
        protocol_of = "HTTP" if begin == b"HTTP" else "another protocol"
        return f"This port speaks {protocol_of}, not Kafka's: use the address of a Kafka listener."
    if not plaintext and re.search("WRONG_VERSION_NUMBER|record layer failure|EOF", text):
        return f"The listener seems not to use TLS, but security.protocol is {protocol}."
    if not plaintext and "CERTIFICATE_VERIFY_FAILED" in text:
        return "Check ssl.ca.location, and that the broker's certificate names this address."
    if re.search("disconnected|reset", text, re.IGNORECASE):
        credentials = " or credentials" if protocol.startswith("SASL") else ""
        return f"The broker closed the connection: wrong security.protocol ({protocol}){credentials}?"
    return CHECK_ADDRESS


def combine_failures(failures: Sequence[Exception]) -> Exception:
    """One error for all bootstrap servers; any other error takes precedence over `ConnectionFailed`."""
    connection_failures = [error for error in failures if type(error) is ConnectionFailed]
    if len(connection_failures) < len(failures) or len(failures) == 1:
        return next((error for error in failures if error not in connection_failures), failures[0])
    what = " ".join(dict.fromkeys(error.what for error in connection_failures))
    return ConnectionFailed(f"No bootstrap server can be used. {what}", do=connection_failures[0].do)


class _ThreadFilter(logging.Filter):
    """Drop log records of one client's thread, unless this module's logger is at DEBUG; always those with a login.

    kafka-python logs at DEBUG what it sends: with SASL a password or a token, as a message and as bytes.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if not (record.threadName or "").endswith(self.name):
            return True
        return log.isEnabledFor(logging.DEBUG) and not any(map(_may_have_a_login, record.args or ()))


def _may_have_a_login(argument: object) -> bool:
    return isinstance(argument, bytes | bytearray | memoryview) or type(argument).__name__.startswith("Sasl")


@cache
def mute_kafka_python(client: str) -> None:
    """Drop kafka-python's log records about connections of `client`, and only those.

    It logs as errors what this package returns as values: rejected credentials, timeouts.
    """
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("kafka."):
            logging.getLogger(name).addFilter(_ThreadFilter(client))


@dataclass(frozen=True, slots=True)
class BrokerResponse:
    """The response to one request: a message, or an error."""

    broker_id: int | None  # broker that answered, or failed to
    observed_at: dt.datetime  # when the response arrived, by this machine's clock
    # the response with Kafka's field names in snake case, error codes included; null if `error` is set
    message: Any = None
    error: ToolkitError | None = None  # why there is no message

    @property
    def error_text(self) -> str | None:
        """``"NAME: text"`` for the error column; null if there is a message."""
        return row_text(self.error) if self.error else None

    @property
    def failure(self) -> str | None:
        """`error_text`, or the error code of the whole message as such a text; null if it succeeded."""
        if self.error:
            return row_text(self.error)
        return error_text(self.message.error_code) if self.message.error_code else None

    @property
    def is_too_old(self) -> bool:
        """Whether the broker lacks the API, or its version."""
        return isinstance(self.error, BrokerError) and self.error.code == TOO_OLD


READ_BYTES = 1 << 18  # per read of a socket
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

AbstractTokenProvider.register(TokenProvider)


class KerberosMechanism(SaslMechanismGSSAPI):  # type: ignore[misc]
    """GSSAPI with the ticket of a keytab, which the Kerberos library renews, or of the ticket cache."""

    def __init__(self, *, host: str, sasl_kerberos_name: Mapping[str, str], **_: Any) -> None:
        import gssapi

        service, keytab, principal = (
            sasl_kerberos_name.get(f"sasl.kerberos.{key}") for key in ("service.name", "keytab", "principal")
        )
        self._is_done = self._is_authenticated = False
        self.auth_id = f"{service or 'kafka'}@{host}"
        credentials, of_keytab = None, ""
        try:
            name = gssapi.Name(self.auth_id, name_type=gssapi.NameType.hostbased_service)
            self.gssapi_name = name.canonicalize(gssapi.MechType.kerberos)
            if keytab:
                of_keytab = f" with {keytab} for {principal or 'its principal'}"
                store = {"client_keytab": keytab, "ccache": f"MEMORY:kafka-txn-{keytab}-{principal}"}
                login = principal and gssapi.Name(principal, name_type=gssapi.NameType.kerberos_principal)
                credentials = gssapi.Credentials(name=login, usage="initiate", store=store)
            self._client_ctx = gssapi.SecurityContext(name=self.gssapi_name, creds=credentials, usage="initiate")
            self._next_token = self._client_ctx.step(None)
        except gssapi.exceptions.GSSError as exc:
            raise kafka.errors.SaslAuthenticationFailedError(f"Kerberos{of_keytab}: {exc}") from None

    def receive(self, auth_bytes: bytes) -> None:
        import gssapi

        try:
            super().receive(auth_bytes)
        except gssapi.exceptions.GSSError as exc:
            raise kafka.errors.SaslAuthenticationFailedError(f"Kerberos: {exc}") from None


register_sasl_mechanism("GSSAPI", KerberosMechanism, overwrite=True)


class ConnectionManager(KafkaConnectionManager):  # type: ignore[misc]
    """Connections that return data read together with end of file, which kafka-python drops."""

    async def _build_transport(self, *arguments: Any, **options: Any) -> Any:
        transport = await super()._build_transport(*arguments, **options)
        sock = transport._sock

        def receive() -> tuple[memoryview, Exception | None]:
            received, end = [], None
            while end is None:
                try:
                    received.append(sock.recv(READ_BYTES))
                except _WOULD_BLOCK:
                    break
                except OSError as exc:
                    end = kafka.errors.KafkaConnectionError(exc)
                else:
                    end = None if received[-1] else kafka.errors.KafkaConnectionError("socket disconnected")
            data = memoryview(received[0] if len(received) == 1 else b"".join(received))  # slices do not copy
            return (data, None) if data else (data, end)  # the next read returns the end again

        transport._sock_recv = receive
        return transport


def decode_response(parser: KafkaProtocol, response: bytearray) -> tuple[int, Any]:
    """Correlation id and message of a response. Raises KafkaProtocolError if it is damaged.

    kafka-python takes bytes left over and a text that ends early, and stops to read the connection after other damage.
    """
    if not parser.in_flight_requests:
        raise kafka.errors.CorrelationIdError("A response came without a request")
    header = parser.in_flight_requests.popleft()
    version = header.request_api_version
    kind = header.get_response_class()[None]
    flexible = kind.flexible_version_q(version)
    decode = kind._struct.compiled_decode_from(version, compact=flexible, tagged=flexible, data_class=kind)
    try:
        data = io.BytesIO(response)
        number = kind.parse_header(data, version=version).correlation_id
        message, end = decode(data.getvalue(), data.tell())
        damage = "" if end == len(response) else f"it has {len(response)} bytes, and its fields {end}"
    except ValueError as exc:
        damage = str(exc)
    except (IndexError, OverflowError, struct.error):
        damage = "it ends early"
    if damage:
        api = ApiKey(header.request_api_key).name
        raise kafka.errors.KafkaProtocolError(f"The response to {api} version {version} is malformed: {damage}")
    if number != header.correlation_id:
        raise kafka.errors.CorrelationIdError(f"Sent {header.correlation_id}, received {number}")
    return number, message


Request = Any  # a message of kafka-python, which is untyped

CLIENT = "kafka-txn-toolkit"
OTHER_CLUSTER = "OTHER_CLUSTER"
"""Code of the error that a broker of another cluster answers at the same address."""
# Bytes; ListTransactions of a coordinator with a million ids returns 60 MB in one frame. Must stay below 0x15030000,
# the first bytes of a TLS alert, which a TLS listener sends to a plaintext client.
MAX_RESPONSE_BYTES = 350_000_000
MAX_TIMEOUTS = 3  # brokers that may time out before a request to any broker fails
MAX_IN_FLIGHT = 8  # requests per connection; a broker processes one of them at a time

_SINCE = {"DescribeProducers": "2.8", "DescribeTransactions": "3.0", "ListTransactions": "3.0"}
_REJECTED = (
    kafka.errors.AuthorizationError,
    kafka.errors.IllegalSaslStateError,
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
)
_CONNECTION_ERRORS = (kafka.errors.KafkaError, OSError)
_TIMED_OUT = (kafka.errors.KafkaTimeoutError, kafka.errors.RequestTimedOutError)


class BrokerClient:
    """Connections to the brokers of one cluster.

    Raises ConnectionFailed if no bootstrap server answers in time.
    Raises AuthenticationFailed if a broker rejects the credentials, or there is no token.
    `config`: client configuration.
    `timeout`: seconds for connecting, once there is a token, and for every call of `send`.
    """

    def __init__(self, config: ClientConfig, *, timeout: float = 30.0) -> None:
        self._config = config
        self.timeout = timeout
        options = config.kafka_python()
        if provider := options.get("sasl_oauth_token_provider"):
            provider.token()  # before the time of a request begins: a vendor's package takes seconds to load
        milliseconds = int(timeout * 1000)
        self._timed_out: dict[int, tuple[float, ToolkitError]] = {}  # broker id to the time and the error
        self._apis: dict[int, dict[int, tuple[int, int]]] = {}  # by broker id, as its newest connection negotiated them
        self._cluster_id: str | None = None
        # By connection to a broker of this cluster: the brokers in its newest metadata
        self._known_to: WeakKeyDictionary[Any, frozenset[int]] = WeakKeyDictionary()
        # Whether these differ: no controller may reach one of the brokers, which does not know then who leads
        self.is_split = False
        self._net = NetworkSelector(client_id=CLIENT, slow_task_threshold_secs=0)
        self._manager = ConnectionManager(
            self._net,
            **{"client_id": CLIENT}
            | options
            | {
                "receive_message_max_bytes": MAX_RESPONSE_BYTES,
                "request_timeout_ms": milliseconds,
                "socket_connection_setup_timeout_ms": milliseconds,
                "max_in_flight_requests_per_connection": 1
                << 20,  # `MAX_IN_FLIGHT` limits them: kafka-python would fail
            },
        )
        mute_kafka_python(CLIENT)
        self._net.start()
        try:
            self._net.run(self._bootstrap, time.monotonic() + timeout)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BrokerClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and stop the network thread."""
        if not self._manager.closed:
            self._net.run(self._manager.close)
            self._net.close()

    @property
    def brokers(self) -> dict[int, str]:
        """Broker id to its advertised address, from the newest metadata response."""
        return {broker.node_id: f"{broker.host}:{broker.port}" for broker in self._manager.cluster.brokers()}

    def check_broker(self, broker_id: int | str) -> None:
        """Raise NotFound for a broker that the newest metadata response does not have."""
        if self._manager.cluster.broker_metadata(broker_id) is None:
            brokers = ", ".join(map(str, sorted(self.brokers)))
            raise NotFound(f"Broker {broker_id} is not in the cluster; it has {brokers}.", do="Name one of these.")

    @property
    def cluster_id(self) -> str | None:
        """From the newest metadata response that has one."""
        return self._cluster_id

    def apis(self, broker_id: int) -> dict[int, tuple[int, int]] | None:
        """API key to lowest and highest version, from the ApiVersions response of a broker's newest connection.

        It sends nothing; null if there was no connection to this broker yet.
        """
        return self._apis.get(broker_id)

    def send(
        self, requests: Sequence[tuple[int | None, Request]], *, timeout: float | None = None
    ) -> list[BrokerResponse]:
        """Send all requests at once and wait for all responses; one per request, in order.

        A broker that fails gives errors for its own requests only, and delays no other broker.

        `requests`: broker id, or null for any broker, and message.
        `timeout`: seconds, instead of those of this client.
        """
        if self._manager.closed:
            raise UsageError("This connection to the cluster is closed.", do="Connect again: toolkit.connect(...).")
        return list(self._net.run(self._send_all, requests, time.monotonic() + (timeout or self.timeout)))

    def send_one(self, request: Request, *, broker_id: int | None = None) -> Any:
        """Send one message to one broker, or any, and return its response.

        Raises BrokerError, ConnectionFailed, NotFound if there is no response. The caller checks error codes in the
        response.
        """
        (response,) = self.send([(broker_id, request)])
        if response.error:
            raise response.error
        return response.message

    # Everything below runs on the network thread.

    async def _bootstrap(self, deadline: float) -> None:
        """Read the brokers from the first bootstrap server that answers; all are tried at once."""
        nodes = self._manager.cluster.bootstrap_brokers()
        first = Future()
        failures: list[Exception] = []

        async def probe_bootstrap(node: Any) -> None:
            try:
                connection = await self._connection(node.node_id, deadline)
                response = await connection.send_request(Metadata(topics=[]), _remaining_ms(deadline))
                if not first.is_done:  # a later one may be of a broker that has just started, and knows no others
                    self._update_brokers(response)
            finally:
                self._manager.close(node.node_id)

        def failed(node: Any, exc: Exception) -> None:
            failures.append(
                self._failure(exc, node.node_id, "Metadata") if isinstance(exc, _CONNECTION_ERRORS) else exc
            )
            if len(failures) == len(nodes) and not first.is_done:
                first.failure(combine_failures(failures))

        for node in nodes:
            probe = self._net.call_soon_with_future(probe_bootstrap, node)
            probe.add_callback(lambda _: first.is_done or first.success(None))
            probe.add_errback(partial(failed, node))
        await first

    async def _connection(self, broker_id: int | str, deadline: float) -> Any:
        """An open connection: the current one, or a new one without backoff."""
        self.check_broker(broker_id)
        # So that each connection negotiates versions with its own broker, instead of reusing the first broker's.
        self._manager.broker_version_data = None
        self._manager.reset_backoff(broker_id)
        connection = self._manager.get_connection(
            broker_id, timeout_ms=_remaining_ms(deadline), refresh_metadata_on_err=False
        )
        try:
            await self._manager.wait_for(connection.init_future, _remaining_ms(deadline))
        except kafka.errors.KafkaTimeoutError:
            connection.close()
            raise
        connection.parser._process_response = partial(decode_response, connection.parser)
        if isinstance(broker_id, int):
            self._apis[broker_id] = connection.broker_version_data.api_versions
        # An address may lead to a broker of another cluster since the last connection, and most answers do not say so.
        if self._cluster_id is not None and connection not in self._known_to:
            message = await connection.send_request(Metadata(topics=[]), _remaining_ms(deadline))
            try:
                self._check_cluster(message)
            except BrokerError:
                connection.close()
                raise
            self._keep_known(connection, message)
        return connection

    async def _send_all(self, requests: Sequence[tuple[int | None, Request]], deadline: float) -> list[BrokerResponse]:
        """Send every broker its queue of requests, all queues at once."""
        queues: dict[int | None, list[int]] = {}
        for index, (broker_id, _) in enumerate(requests):
            queues.setdefault(broker_id, []).append(index)
        running = [
            self._net.call_soon_with_future(self._send_queue, broker_id, [requests[i][1] for i in indices], deadline)
            for broker_id, indices in queues.items()
        ]
        responses: dict[int, BrokerResponse] = {}
        for indices, future in zip(queues.values(), running, strict=True):
            responses.update(zip(indices, await future, strict=True))
        return [responses[index] for index in range(len(requests))]

    async def _send_queue(
        self, broker_id: int | None, queue: Sequence[Request], deadline: float
    ) -> list[BrokerResponse]:
        """Send a queue to a broker, or any. A broker that timed out is not tried again for `timeout` seconds."""
        if broker_id is None:
            return await self._send_to_any_broker(queue, deadline)
        since, error = self._timed_out.get(broker_id, (0.0, None))
        if error and time.monotonic() - since < self.timeout:
            return [BrokerResponse(broker_id, utc_now(), error=error)] * len(queue)
        responses = await self._send_on_connection(broker_id, queue, deadline)
        timeout = next((response.error for response in responses if is_timeout(response.error)), None)
        if timeout:
            self._timed_out[broker_id] = time.monotonic(), timeout
        return responses

    async def _send_to_any_broker(self, queue: Sequence[Request], deadline: float) -> list[BrokerResponse]:
        """Try brokers in turn, last used first, until `MAX_TIMEOUTS` have timed out within the deadline."""
        connected = [used.node_id for used in reversed(self._manager.least_used_connections())]
        nodes = dict.fromkeys([*connected, *(node for node in self.brokers if node not in self._timed_out)])
        nodes |= dict.fromkeys(node.node_id for node in self._manager.cluster.bootstrap_brokers())
        timeouts = 0
        for node in nodes:
            share = (deadline - time.monotonic()) / (MAX_TIMEOUTS - timeouts)
            responses = await self._send_on_connection(node, queue, time.monotonic() + share)
            timeouts += any(is_timeout(response.error) for response in responses)
            if timeouts == MAX_TIMEOUTS or not any(is_lost(response.error) for response in responses):
                break
        return responses

    async def _send_on_connection(
        self, node: int | str, queue: Sequence[Request], deadline: float
    ) -> list[BrokerResponse]:
        """Send a queue over one connection, up to `MAX_IN_FLIGHT` at a time; responses are in the same order."""
        try:
            connection = await self._connection(node, deadline)
        except (*_CONNECTION_ERRORS, ToolkitError) as exc:
            return [self._error_response(exc, node, request) for request in queue]
        responses: list[BrokerResponse] = []
        in_flight: deque[tuple[Request, Any]] = deque()
        for request in queue:
            # the broker throttles; if it does so beyond the deadline, the request fails at once
            while connection.paused and max(time.monotonic(), connection._throttle_time) < deadline:
                await self._net.sleep(0.01)
            # A copy, since sending sets this broker's version on it.
            in_flight.append((request, connection.send_request(copy.copy(request), max(1, _remaining_ms(deadline)))))
            if len(in_flight) == MAX_IN_FLIGHT:
                responses.append(await self._receive(node, connection, *in_flight.popleft()))
        responses += [await self._receive(node, connection, *pending) for pending in in_flight]
        return responses

    async def _receive(self, node: int | str, connection: Any, request: Request, future: Any) -> BrokerResponse:
        try:
            message = await future
            self._update_brokers(message)
            self._keep_known(connection, message)
        except (*_CONNECTION_ERRORS, BrokerError) as exc:
            return self._error_response(exc, node, request)
        return BrokerResponse(node if isinstance(node, int) else None, utc_now(), message=message)

    def _update_brokers(self, message: Any) -> None:
        """Update the brokers from a Metadata response, without its topics, which are slow by the thousands."""
        if isinstance(message, metadata.MetadataResponse):
            self._check_cluster(message)
            brokers = {"brokers": message.brokers, "controller_id": message.controller_id, "topics": []}
            self._manager.cluster.update_metadata(metadata.MetadataResponse(version=1, **brokers))
            self._cluster_id = message.cluster_id or self._cluster_id

    def _keep_known(self, connection: Any, message: Any) -> None:
        if isinstance(message, metadata.MetadataResponse):
            self._known_to[connection] = frozenset(each.node_id for each in message.brokers)
            connected = (each for each in self._known_to if each.connected and isinstance(each.node_id, int))
            self.is_split = len({self._known_to[each] for each in connected}) > 1

    def _check_cluster(self, message: Any) -> None:
        if message.cluster_id not in {None, self._cluster_id or message.cluster_id}:
            raise BrokerError(  # its answers and those of before would be taken for one cluster's
                f"A broker of cluster {message.cluster_id} answered for cluster {self._cluster_id}.",
                code=OTHER_CLUSTER,
                do="Name brokers of one cluster by --bootstrap-server.",
            )

    def _error_response(self, exc: Exception, node: int | str, request: Request) -> BrokerResponse:
        api = str(request.name).removesuffix("Request")
        return BrokerResponse(node if isinstance(node, int) else None, utc_now(), error=self._failure(exc, node, api))

    def _failure(self, exc: Exception, node: int | str, api: str) -> ToolkitError:
        """A connection failure as a `ToolkitError` that names the broker and what to check."""
        if isinstance(exc, ToolkitError):
            return exc
        broker = self._manager.cluster.broker_metadata(node)
        address = f"{broker.host}:{broker.port}" if broker else ", ".join(self._config.bootstrap_servers)
        name = f"Broker {node} at {address}" if isinstance(node, int) else f"The broker at {address}"
        text = self._config.scrub(_text(exc))
        if isinstance(exc, kafka.errors.IncompatibleBrokerVersion):
            reason = f", which needs Kafka {_SINCE[api]} or newer" if api in _SINCE else f": {text}"
            return BrokerError(f"{name} does not support {api}{reason}.", code="UNSUPPORTED_VERSION")
        if isinstance(exc, _REJECTED):
            return AuthenticationFailed(f"{name} refused the client: {text}.", do=CHECK_CREDENTIALS)
        if isinstance(exc, _TIMED_OUT) and isinstance(node, int):
            return BrokerError(f"{name} did not answer {api} in time.", code="REQUEST_TIMED_OUT")
        if isinstance(exc, _TIMED_OUT):
            return ConnectionFailed(f"{name} did not answer {api} within {self.timeout:g} s.", do=CHECK_ADDRESS)
        if isinstance(exc, kafka.errors.NodeNotReadyError) and "throttle" in text:
            limits = "consumer_byte_rate or request_percentage"
            return BrokerError(
                f"{name} has this client wait beyond its timeout by a quota, {limits}.", code="THROTTLED"
            )
        protocol = str(self._manager.config["security_protocol"])
        return ConnectionFailed(f"{name} cannot be used: {text}.", do=what_to_check(text, protocol))


def _text(exc: Exception) -> str:
    """Text of an exception, or Kafka's name and text of its error code."""
    text = plain_text(str(exc.args[0])) if exc.args else ""
    code = getattr(exc, "errno", None)
    return text or (error_text(code) if isinstance(code, int) else type(exc).__name__).rstrip(".")


def _remaining_ms(deadline: float) -> float:
    """Milliseconds until `deadline`, zero once it has passed."""
    return max(0.0, deadline - time.monotonic()) * 1000


MAX_BATCH = (1 << 31) - 1  # bytes


def write_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamp: dt.datetime,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    base_offset: int = 0,
) -> bytes:
    """Write an uncompressed record batch, ready for Produce.

    `records`: (key, value) of each; ``None`` is null.
    `timestamp`: create time of every record, with its time zone; precise to the millisecond.
    `producer_id`, `producer_epoch`, `base_sequence`: as assigned by the broker; -1 for a batch that is not idempotent.
    `is_transactional`: whether the batch is part of a transaction.
    `base_offset`: offset of the first record; a broker assigns its own.
    Raises UsageError: without records, or for a time without its zone.
    """
    if not records:
        raise UsageError("A batch needs at least one record.", do="Pass records.")
    milliseconds = (in_utc(timestamp) - EPOCH) // dt.timedelta(milliseconds=1)
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=is_transactional,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        batch_size=MAX_BATCH,
    )
    for delta, (key, value) in enumerate(records):
        builder.append(delta, milliseconds, key, value, [])
    batch = builder.build()
    INT64.pack_into(batch, 0, base_offset)
    INT32.pack_into(batch, LENGTH_END, -1)  # leader epoch, set by the broker; the CRC covers neither
    return bytes(batch)
