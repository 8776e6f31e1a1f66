"""What this package changes in kafka-python at run time; CONTRIBUTING.md has the words that ask upstream for it.

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
from typing import Any

import kafka.errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.api_key import ApiKey
from kafka.protocol.parser import KafkaProtocol

from toolkit.config import KerberosLogin, TokenProvider

READ_BYTES = 1 << 18  # per read of a socket
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

AbstractTokenProvider.register(TokenProvider)


class KerberosMechanism(SaslMechanismGSSAPI):  # type: ignore[misc]
    """GSSAPI for a `KerberosLogin`, and kafka-python's own for every other name."""

    def __init__(self, **config: Any) -> None:
        login = config.get("sasl_kerberos_name")
        if not isinstance(login, KerberosLogin):
            super().__init__(**config)
            return
        import gssapi

        self._is_done = self._is_authenticated = False
        self.auth_id = f"{login.service}@{config['host']}"
        service = gssapi.Name(self.auth_id, name_type=gssapi.NameType.hostbased_service)
        try:
            self.gssapi_name = service.canonicalize(gssapi.MechType.kerberos)
            self._client_ctx = gssapi.SecurityContext(
                name=self.gssapi_name, creds=_credentials(login), usage="initiate"
            )
            self._next_token = self._client_ctx.step(None)
        except gssapi.exceptions.GSSError as exc:
            raise _refused(exc, login) from None

    def receive(self, auth_bytes: bytes) -> None:
        import gssapi

        try:
            super().receive(auth_bytes)
        except gssapi.exceptions.GSSError as exc:
            raise _refused(exc) from None


def _credentials(login: KerberosLogin) -> Any:
    """The credentials of a keytab, which the Kerberos library renews; null for those of the ticket cache."""
    import gssapi

    if login.keytab is None:
        return None
    name = login.principal and gssapi.Name(login.principal, name_type=gssapi.NameType.kerberos_principal)
    cache = f"MEMORY:kafka-txn-{login.keytab}-{login.principal}"
    return gssapi.Credentials(name=name, usage="initiate", store={"client_keytab": login.keytab, "ccache": cache})


def _refused(exc: Exception, login: KerberosLogin | None = None) -> kafka.errors.SaslAuthenticationFailedError:
    of_keytab = f" with {login.keytab} for {login.principal or 'its principal'}" if login and login.keytab else ""
    return kafka.errors.SaslAuthenticationFailedError(f"Kerberos{of_keytab}: {exc}")


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
