"""The response to one request, or its error."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from toolkit.errors import ToolkitError
from toolkit.sources.live.client.connection_errors import row_text


@dataclass(frozen=True, slots=True)
class BrokerResponse:
    """The response to one request: a message, or an error.

    Parameters
    ----------
    broker_id
        Broker that answered, or failed to.
    observed_at
        When the response arrived, by this machine's clock.
    message
        The response with Kafka's field names in snake case, error codes included; null if `error` is set.
    error
        Why there is no message.
    """

    broker_id: int | None
    observed_at: dt.datetime
    message: Any = None
    error: ToolkitError | None = None

    @property
    def error_text(self) -> str | None:
        """``"NAME: text"`` for the error column; null if there is a message."""
        return row_text(self.error) if self.error else None
