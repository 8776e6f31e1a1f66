"""The errors of this package: each states what happened, what it means and what to do.

::

    ToolkitError
    |-- UsageError             a wrong argument, key or combination; nothing was attempted
    |-- ConnectionFailed       no broker answered or accepted the client
    |   `-- AuthenticationFailed
    |-- NotFound               a topic, partition, broker, id or path that does not exist
    |-- BrokerError            a broker returned a Kafka error code
    |-- DecodeError            invalid bytes, with their position
    |-- ActionRefused          an action that is unsafe or not proven safe; nothing was written
    |-- ActionFailed           an action that failed on its way; says whether it was written
    |-- AuditFailed            an action was taken, but its outcome could not be written to the audit file
    `-- SetupError             Java, jars or Spark are missing on this machine or do not start
        `-- LabError           the embedded Kafka could not be fetched, started or staged
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from toolkit.command_line import command_line

__all__ = [
    "ActionFailed",
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


Effect = Literal["nothing", "written", "uncertain"]
"""What an action that failed did all the same."""


class ToolkitError(Exception):
    """Base class of the errors that this package raises on purpose.

    Parameters
    ----------
    what
        What happened, as a sentence.
    means
        What that means for the user; optional.
    do
        What to do next. Required, but of what a broker or bytes say: `BrokerError`, `DecodeError`.
    command
        The command that does it, as its arguments; a line of its own where the error is printed.
    """

    def __init__(self, what: str, *, means: str = "", do: str, command: Sequence[str] = ()) -> None:
        self.what = what
        self.means = means
        self.do = do
        self.command = tuple(command)
        super().__init__(self.text + (f"\n{command_line(command)}" if command else ""))

    def __reduce__(self) -> tuple[object, ...]:
        # A pickle calls the class with the text alone, which is not how it is made: workers of a pool send it.
        return type(self).__new__, (type(self), *self.args), vars(self)

    @property
    def text(self) -> str:
        """All of it but the command."""
        return " ".join(part for part in (self.what, self.means, self.do) if part)

    def _render_traceback_(self) -> list[str]:
        """A few lines, which IPython prints instead of a traceback: the error says what to do, the stack does not."""
        rest = " ".join(part for part in (self.means, self.do) if part)
        command = [command_line(self.command)] if self.command else []
        return [f"{type(self).__name__}: {self.what}", *([rest] if rest else []), *command]


class UsageError(ToolkitError):
    """A wrong argument, key or combination; nothing was attempted."""


class ConnectionFailed(ToolkitError):
    """No broker answered or accepted the client."""


class AuthenticationFailed(ConnectionFailed):
    """The broker rejected the credentials."""


class NotFound(ToolkitError):
    """A topic, partition, broker, id or path that does not exist."""


class BrokerError(ToolkitError):
    """A broker returned a Kafka error code.

    Parameters
    ----------
    what, means, do, command
        As for `ToolkitError`.
    code
        Kafka's error name, for example ``"TOPIC_AUTHORIZATION_FAILED"``.
    """

    def __init__(self, what: str, *, code: str, means: str = "", do: str = "", command: Sequence[str] = ()) -> None:
        self.code = code
        super().__init__(what, means=means, do=do, command=command)


class DecodeError(ToolkitError):
    """Invalid bytes.

    Parameters
    ----------
    what, means, do, command
        As for `ToolkitError`.
    position
        Byte position in the buffer or file where reading stopped.
    """

    def __init__(self, what: str, *, position: int, means: str = "", do: str = "", command: Sequence[str] = ()) -> None:
        self.position = position
        super().__init__(what, means=means, do=do, command=command)


class ActionRefused(ToolkitError):
    """An action that is unsafe or not proven safe; nothing was written."""


class ActionFailed(ToolkitError):
    """An action that failed on its way, after it was confirmed.

    Parameters
    ----------
    what, means, do, command
        As for `ToolkitError`.
    effect
        ``nothing``: nothing was written. ``written``: it was. ``uncertain``: it may have been, and `do` says how to
        find out.
    code
        Kafka's error name, if a broker returned one.
    """

    effect: Effect = "uncertain"
    code: str | None = None

    def __init__(
        self,
        what: str,
        *,
        effect: Effect,
        code: str | None = None,
        means: str = "",
        do: str,
        command: Sequence[str] = (),
    ) -> None:
        self.effect = effect
        self.code = code
        super().__init__(what, means=means, do=do, command=command)


class AuditFailed(ToolkitError):
    """An action was taken, but its outcome could not be written to the audit file.

    Parameters
    ----------
    what, means, do, command
        As for `ToolkitError`.
    effect
        As for `ActionFailed`.
    """

    effect: Effect = "written"

    def __init__(
        self, what: str, *, effect: Effect = "written", means: str = "", do: str, command: Sequence[str] = ()
    ) -> None:
        self.effect = effect
        super().__init__(what, means=means, do=do, command=command)


class SetupError(ToolkitError):
    """Java, jars or Spark are missing on this machine or do not start."""


class LabError(SetupError):
    """The embedded Kafka could not be fetched, started or staged."""
