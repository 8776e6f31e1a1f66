"""What this package changes in kafka-python at run time; CONTRIBUTING.md has the words that ask upstream for it.

1. Data that arrives together with the end of file is kept: a broker that rejects a password sends its response and
   closes at once. Reads are 256 KiB instead of 4 KiB, which slow down large fetches.
2. Responses are decoded without copies, and the largest of them by this package.
3. `toolkit.config.TokenProvider` counts as one of kafka-python's, without a base class of it.
4. Kerberos takes its ticket from a keytab if one is configured, and a missing ticket is a refused login.
"""

from __future__ import annotations

import ssl
from typing import Any

import kafka.errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.parser import KafkaProtocol

from toolkit.config import KerberosLogin, TokenProvider
from toolkit.errors import DecodeError
from toolkit.formats.bulk_messages import APIS, decode

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


class _ResponseReader:
    """A response read without copies; kafka-python copies it twice, and it can be megabytes."""

    def __init__(self, response: bytearray) -> None:
        self._view = memoryview(response)
        self._position = 0

    def read(self, size: int | None = None) -> bytes | memoryview:
        start, self._position = self._position, len(self._view) if size is None else self._position + size
        data = self._view[start : self._position]
        return data if size is None else bytes(data)

    def seek(self, position: int) -> None:
        self._position = position

    def tell(self) -> int:
        return self._position


def decode_fast(parser: KafkaProtocol, response: bytearray) -> Any:
    """Correlation id and message of a response; those with every partition or id are decoded by this package."""
    header = parser.in_flight_requests[0] if parser.in_flight_requests else None
    if header is None or header.request_api_key not in APIS:
        return KafkaProtocol._process_response(parser, _ResponseReader(response))
    parser.in_flight_requests.popleft()
    try:
        decoded = decode(response, api_key=header.request_api_key, version=header.request_api_version)
    except DecodeError as exc:
        raise kafka.errors.KafkaProtocolError(exc.what) from None
    if decoded[0] != header.correlation_id:
        raise kafka.errors.CorrelationIdError(f"Sent {header.correlation_id}, received {decoded[0]}")
    return decoded
