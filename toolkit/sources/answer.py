"""What comes back for one request to one broker."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from toolkit.errors import ToolkitError
from toolkit.sources.failures import row_text

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one request: a message, or the error that stands in its place.

    Parameters
    ----------
    broker_id
        Broker that answered, or that should have.
    observed_at
        When the answer arrived, by this machine's clock.
    message
        The response with Kafka's field names in snake case; null where `error` is set. It may still carry Kafka error
        codes of its own.
    error
        Why there is no message.
    """

    broker_id: int | None
    observed_at: dt.datetime
    message: Any = None
    error: ToolkitError | None = None

    @property
    def error_text(self) -> str | None:
        """``"NAME: text"`` for the error column; null where there is a message."""
        return row_text(self.error) if self.error else None
