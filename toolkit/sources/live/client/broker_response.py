"""The response to one request, or its error: Kafka's names and texts of errors, and what to check."""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import kafka.errors

from toolkit.errors import AuthenticationFailed, BrokerError, ConnectionFailed, NotFound, ToolkitError

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
    return isinstance(error, ConnectionFailed) or is_timeout(error)


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
