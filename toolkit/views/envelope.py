"""What every answer in JSON has before its rows: its schema, who asked which cluster, when, and what was seen."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from toolkit.schema.coerce import Scope
from toolkit.schema.table import utc_now
from toolkit.version import __version__

if TYPE_CHECKING:
    from toolkit.sources.source import Source

ENVELOPE_VERSION = 1
"""Of the fields before the rows; raised when one of them changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The fields of an answer before its rows."""

    schema: str  # name of the answer: ``docs/reference/schemas`` has a JSON Schema of each
    schema_version: str  # ``1.2``: that of these fields, and that of the columns of the rows
    tool_version: str = __version__
    cluster_id: str | None = None  # null where no broker and no file says it
    principal: str | None = None  # user name at the brokers; null if there is none
    time: dt.datetime = field(default_factory=utc_now)  # by this machine's clock
    scope: Scope | None = None  # null if nothing was read

    @classmethod
    def of(cls, schema: str, version: int, source: Source | None, scope: Scope | None) -> Envelope:
        """The envelope of an answer that a source gave; null if it needed none."""
        return cls(
            schema=schema,
            schema_version=f"{ENVELOPE_VERSION}.{version}",
            cluster_id=None if source is None else source.cluster_id,
            principal=None if source is None else source.principal,
            scope=scope,
        )

    @property
    def scope_text(self) -> str | None:
        """The scope as an all-clear names it; null of what was not read for findings."""
        return None if self.scope is None else self.scope.text(self.principal)

    def fields(self) -> dict[str, Any]:
        """The fields as plain values."""
        return {**asdict(self), "scope_text": self.scope_text}
