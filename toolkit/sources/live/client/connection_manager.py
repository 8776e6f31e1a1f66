"""What this package changes in kafka-python at run time; docs/about/kafka-python.md asks upstream for it.

1. Data that arrives together with the end of file is kept: a broker that rejects a password sends its response and
   closes at once. Reads are 256 KiB instead of 4 KiB, which take 0.4 s more of processor time per GB (of 1.1 s).
2. A response with bytes missing or left over is an error of its request.
3. `toolkit.config.TokenProvider` counts as one of kafka-python's, without a base class of it.
4. Kerberos takes its ticket from a keytab if one is configured, and a missing ticket is a refused login.
"""

from __future__ import annotations

import io
import ssl
import struct
from collections.abc import Mapping
from typing import Any

import kafka.errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.api_key import ApiKey
from kafka.protocol.parser import KafkaProtocol

from toolkit.config import TokenProvider

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
