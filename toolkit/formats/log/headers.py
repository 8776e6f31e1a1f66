"""Headers of record batches as arrays: what a scan of a segment, of a fetch response or of a dump gives.

Sources: ``DefaultRecordBatch``, ``AbstractLegacyRecordBatch``, ``ControlRecordType`` and ``EndTransactionMarker`` in
Kafka's clients.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "ABORT",
    "COMMIT",
    "HEADER",
    "NO_MARKER",
    "UNREAD_MARKER",
    "Array",
    "DamagedRange",
    "Headers",
    "ScanResult",
    "concatenate",
]

HEADER = np.dtype(
    [
        ("position", "i8"),
        ("size", "i8"),
        ("base_offset", "i8"),
        ("last_offset", "i8"),
        ("base_timestamp", "i8"),  # ms, raw; a delete horizon where the attributes say so
        ("max_timestamp", "i8"),
        ("producer_id", "i8"),
        ("crc", "u4"),
        ("base_sequence", "i4"),
        ("record_count", "i4"),
        ("leader_epoch", "i4"),
        ("coordinator_epoch", "i4"),  # of a marker
        ("attributes", "i2"),
        ("producer_epoch", "i2"),
        ("marker", "i2"),  # ABORT, COMMIT, another type of control record, NO_MARKER or UNREAD_MARKER
        ("magic", "i1"),
        ("crc_ok", "i1"),  # 1 right, 0 wrong, -1 not checked
    ]
)
"""One row per batch in the order of the file; the numbers as written, so -1 is unknown."""

ABORT, COMMIT, NO_MARKER = 0, 1, -1  # ControlRecordType
UNREAD_MARKER = -2  # a control batch whose record was not read: a dump that shows batches only

Array = Any
"""A numpy array; ``NDArray[Any]`` makes mypy go through all of numpy's overloads, for a third of its time."""

Headers = Array
"""A structured array of `HEADER`."""


class DamagedRange(NamedTuple):
    """A range of bytes that is no batch.

    Parameters
    ----------
    position, size
        Where it starts, and how many bytes were passed over.
    reason
        ``"NAME: sentence"``: ``TORN_TAIL`` (normal after a crash), ``CORRUPT_BATCH``, ``NOT_A_SEGMENT``,
        ``UNREADABLE``; of an index ``CORRUPT_ENTRY``; of a printed text those of `toolkit.formats.dumps`.
    """

    position: int
    size: int
    reason: str

    @property
    def is_torn(self) -> bool:
        """Whether it is what a crash leaves, or a broker that is writing."""
        return self.reason.startswith("TORN_TAIL")

    @property
    def is_unreadable(self) -> bool:
        """Whether the file could not be opened or read, so that it may be whole."""
        return self.reason.startswith("UNREADABLE")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScanResult:
    """A part of a log, in order: the headers in it, and what could not be read as one.

    Parameters
    ----------
    headers
        Structured array of `HEADER`.
    damage
        Ranges between or after them.
    end
        Position up to which bytes were scanned.
    """

    headers: Headers
    damage: tuple[DamagedRange, ...] = ()
    end: int


def concatenate(parts: Iterable[Headers]) -> Headers:
    """Headers one after the other; numpy copies plain bytes faster than fields."""
    row = f"V{HEADER.itemsize}"
    return np.concatenate([np.empty(0, row), *(part.view(row) for part in parts)]).view(HEADER)
