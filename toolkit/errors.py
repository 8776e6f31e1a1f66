"""The error tree: every error says what happened, what it means and what to do.

::

    ToolkitError
    |-- UsageError             a wrong argument, key or combination: nothing was tried
    |-- ConnectionFailed       no broker answered, or the client was not let in
    |   `-- AuthenticationFailed
    |-- NotFound               a topic, partition, broker or id that the cluster does not have
    |-- BrokerError            a broker answered with a Kafka error code
    |-- DecodeError            bytes that are not what they should be, with their position
    |-- ActionRefused          an action that would not be safe; nothing was written
    |-- AuditFailed            an action happened, and its outcome could not be written to the audit file
    `-- SetupError             this machine lacks Java, jars or Spark, or they do not start
        `-- LabError           the embedded Kafka could not be fetched, started or staged
"""

from __future__ import annotations

__all__ = [
    "ActionRefused",
    "AuditFailed",
    "AuthenticationFailed",
    "BrokerError",
    "ConnectionFailed",
    "DecodeError",
    "LabError",
    "NotFound",
    "SetupError",
    "ToolkitError",
    "UsageError",
]


class ToolkitError(Exception):
    """Base of every error this package raises on purpose.

    Parameters
    ----------
    what
        What happened, as a sentence.
    means
        What that means for the person asking; optional.
    do
        What to do next; optional.
    """

    def __init__(self, what: str, *, means: str = "", do: str = "") -> None:
        self.what = what
        self.means = means
        self.do = do
        super().__init__(" ".join(part for part in (what, means, do) if part))


class UsageError(ToolkitError):
    """A wrong argument, key or combination; nothing was tried."""


class ConnectionFailed(ToolkitError):
    """No broker answered, or none let the client in."""


class AuthenticationFailed(ConnectionFailed):
    """The broker answered and refused the credentials."""


class NotFound(ToolkitError):
    """The cluster does not have what was requested."""


class BrokerError(ToolkitError):
    """A broker answered with an error.

    Parameters
    ----------
    code
        Kafka's error name, for example ``"TOPIC_AUTHORIZATION_FAILED"``.
    """

    def __init__(self, what: str, *, code: str, means: str = "", do: str = "") -> None:
        self.code = code
        super().__init__(what, means=means, do=do)


class DecodeError(ToolkitError):
    """Bytes that are not what they should be.

    Parameters
    ----------
    position
        Byte position in the buffer or file where reading stopped.
    """

    def __init__(self, what: str, *, position: int, means: str = "", do: str = "") -> None:
        self.position = position
        super().__init__(what, means=means, do=do)


class ActionRefused(ToolkitError):
    """An action that would not be safe, or not proven so; nothing was written."""


class AuditFailed(ToolkitError):
    """An action happened, and its outcome could not be written to the audit file."""


class SetupError(ToolkitError):
    """This machine lacks Java, jars or Spark, or they do not start."""


class LabError(SetupError):
    """The embedded Kafka could not be fetched, started or staged."""
