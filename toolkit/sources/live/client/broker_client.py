"""Send any Kafka protocol message to any broker, over TLS and SASL."""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import kafka.errors
from kafka.future import Future
from kafka.net.selector import NetworkSelector
from kafka.protocol import metadata
from kafka.protocol.api_key import ApiKey

from toolkit.config import ClientConfig
from toolkit.errors import AuthenticationFailed, BrokerError, ConnectionFailed, NotFound, ToolkitError, UsageError
from toolkit.schema.table import utc_now
from toolkit.sources.live.client.broker_response import (
    CHECK_ADDRESS,
    CHECK_CREDENTIALS,
    BrokerResponse,
    combine_failures,
    error_text,
    is_lost,
    is_timeout,
    mute_kafka_python,
    plain_text,
    what_to_check,
)
from toolkit.sources.live.client.connection_manager import ConnectionManager, decode_response
from toolkit.sources.live.client.messages import Metadata

Request = Any  # a message of kafka-python, which is untyped

CLIENT = "kafka-txn-toolkit"
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
    Raises AuthenticationFailed if a broker rejects the credentials.
    `config`: client configuration.
    `timeout`: seconds for connecting and for every call of `send`.
    """

    def __init__(self, config: ClientConfig, *, timeout: float = 30.0) -> None:
        self._config = config
        self.timeout = timeout
        milliseconds = int(timeout * 1000)
        self._timed_out: dict[int, tuple[float, ToolkitError]] = {}  # broker id to the time and the error
        self._apis: dict[int, dict[int, tuple[int, int]]] = {}  # by broker id, as its newest connection negotiated them
        self._cluster_id: str | None = None
        self._net = NetworkSelector(client_id=CLIENT, slow_task_threshold_secs=0)
        self._manager = ConnectionManager(
            self._net,
            **{"client_id": CLIENT}
            | config.kafka_python()
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

    @property
    def cluster_id(self) -> str | None:
        """From the newest metadata response that has one."""
        return self._cluster_id

    def apis(self, broker_id: int) -> dict[int, tuple[int, int]] | None:
        """API key to lowest and highest version, from the ApiVersions response of a broker's newest connection.

        It sends nothing; null if there was no connection to this broker yet.
        """
        return self._apis.get(broker_id)

    def versions(self, broker_id: int) -> dict[str, tuple[int, int]]:
        """API name to lowest and highest version, from this broker's ApiVersions response.

        Raises ConnectionFailed, NotFound if the broker does not answer, or is not in the cluster.
        """
        try:
            connection = self._net.run(self._connection, broker_id, time.monotonic() + self.timeout)
        except _CONNECTION_ERRORS as exc:
            raise self._failure(exc, broker_id, "ApiVersions") from None
        known = {key.value for key in ApiKey}
        return {
            ApiKey(key).name if key in known else str(key): versions
            for key, versions in connection.broker_version_data.api_versions.items()
        }

    def send(
        self, requests: Sequence[tuple[int | None, Request]], *, timeout: float | None = None
    ) -> list[BrokerResponse]:
        """Send all requests at once and wait for all responses; one per request, in order.

        A broker that fails gives errors for its own requests only, and delays no other broker.

        `requests`: broker id, or null for any broker, and message.
        `timeout`: seconds, instead of those of this client.
        """
        if self._manager.closed:
            raise UsageError("This connection to the cluster is closed.")
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
        if self._manager.cluster.broker_metadata(broker_id) is None:
            brokers = ", ".join(map(str, sorted(self.brokers)))
            raise NotFound(f"Broker {broker_id} is not in the cluster; it has {brokers}.")
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
            while connection.paused and time.monotonic() < deadline:  # the broker throttles
                await self._net.sleep(0.01)
            # A copy, since sending sets this broker's version on it.
            in_flight.append((request, connection.send_request(copy.copy(request), max(1, _remaining_ms(deadline)))))
            if len(in_flight) == MAX_IN_FLIGHT:
                responses.append(await self._receive(node, *in_flight.popleft()))
        responses += [await self._receive(node, *pending) for pending in in_flight]
        return responses

    async def _receive(self, node: int | str, request: Request, future: Any) -> BrokerResponse:
        try:
            message = await future
        except _CONNECTION_ERRORS as exc:
            return self._error_response(exc, node, request)
        self._update_brokers(message)
        return BrokerResponse(node if isinstance(node, int) else None, utc_now(), message=message)

    def _update_brokers(self, message: Any) -> None:
        """Update the brokers from a Metadata response, without its topics, which are slow by the thousands."""
        if isinstance(message, metadata.MetadataResponse):
            brokers = {"brokers": message.brokers, "controller_id": message.controller_id, "topics": []}
            self._manager.cluster.update_metadata(metadata.MetadataResponse(version=1, **brokers))
            self._cluster_id = message.cluster_id or self._cluster_id

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
