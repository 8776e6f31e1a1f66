"""A failed connection as sentences: what happened, where, and what to check."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from functools import cache

from toolkit.errors import AuthenticationFailed, BrokerError, ConnectionFailed, NotFound, ToolkitError

__all__ = [
    "CHECK_ADDRESS",
    "CHECK_CREDENTIALS",
    "is_lost",
    "is_silence",
    "keep_quiet",
    "one_of_many",
    "plain_words",
    "row_text",
    "what_to_check",
]

CHECK_ADDRESS = "Check bootstrap.servers, and that the broker runs and can be reached from here."
CHECK_CREDENTIALS = "Check security.protocol, sasl.mechanism, and the user and password."

log = logging.getLogger(__name__)


def row_text(error: ToolkitError) -> str:
    """``"NAME: text"`` for the error column of a row, by Kafka's names."""
    if isinstance(error, BrokerError):
        return f"{error.code}: {error}"
    if isinstance(error, AuthenticationFailed):
        return f"SASL_AUTHENTICATION_FAILED: {error}"
    return f"{'BROKER_NOT_AVAILABLE' if isinstance(error, NotFound) else 'NETWORK_EXCEPTION'}: {error}"


def is_silence(error: ToolkitError | None) -> bool:
    """Whether a broker let the time pass without an answer."""
    return isinstance(error, BrokerError) and error.code == "REQUEST_TIMED_OUT"


def is_lost(error: ToolkitError | None) -> bool:
    """Whether a request got no answer at all, so that another broker may do better."""
    return isinstance(error, ConnectionFailed) or is_silence(error)


def plain_words(text: str) -> str:
    """The system's words for ``"111 ECONNREFUSED"``; any other text as it is."""
    number = re.fullmatch(r"(\d+) E[A-Z]+", text.strip())
    return os.strerror(int(number[1])).lower() if number else text.strip().rstrip(".")


def what_to_check(text: str, protocol: str) -> str:
    """What to check after a failed connection, from what the other side did and the `protocol` we spoke."""
    plain = protocol in ("PLAINTEXT", "SASL_PLAINTEXT")
    if plain and "Invalid frame length" in text:
        return f"It seems to speak TLS, and security.protocol is {protocol}: check that."
    if not plain and re.search("WRONG_VERSION_NUMBER|record layer failure|EOF", text):
        return f"It does not seem to speak TLS, and security.protocol is {protocol}: check that."
    if not plain and "CERTIFICATE_VERIFY_FAILED" in text:
        return "Check ssl.ca.location, and that the address is one that the broker's certificate names."
    if re.search("disconnected|reset", text, re.IGNORECASE):
        refusal = ", or that refuses the credentials" if protocol.startswith("SASL") else ""
        return f"It hung up, as a listener does whose security.protocol is not {protocol}{refusal}."
    return CHECK_ADDRESS


def one_of_many(failures: Sequence[Exception]) -> Exception:
    """One error for all bootstrap addresses; a refusal, or a defect of ours, tells more than a silence."""
    silent = [error for error in failures if type(error) is ConnectionFailed]
    if len(silent) < len(failures) or len(failures) == 1:
        return next((error for error in failures if error not in silent), failures[0])
    what = " ".join(dict.fromkeys(error.what for error in silent))
    return ConnectionFailed(f"No bootstrap address can be used. {what}", do=silent[0].do)


class _ThreadFilter(logging.Filter):
    """Drops records that the thread of one client logs, unless this module's logger is at DEBUG."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.threadName or "").endswith(self.name) or log.isEnabledFor(logging.DEBUG)


@cache
def keep_quiet(client: str) -> None:
    """Drop what kafka-python logs about the connections of `client`.

    It logs as errors what is a value here: a broker that refuses, a request that times out. Records about other
    users of kafka-python in this process pass.
    """
    for name in list(logging.root.manager.loggerDict):
        if name.startswith("kafka."):
            logging.getLogger(name).addFilter(_ThreadFilter(client))
