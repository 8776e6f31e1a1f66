"""From where to where a log is read: offsets, times, or their names; the same for live partitions and for files."""

from __future__ import annotations

import datetime as dt
import operator
from collections.abc import Mapping
from typing import SupportsIndex

from toolkit.errors import UsageError

__all__ = ["NAMED", "Bound", "check_bound", "milliseconds"]

Bound = SupportsIndex | dt.datetime | str

EPOCH, MILLISECOND = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(milliseconds=1)

NAMED: Mapping[str, str] = {
    "log_start": "log_start_offset",
    "lso": "last_stable_offset",
    "high_watermark": "high_watermark",
    "log_end": "log_end_offset",
}
"""Name of a place to its column in ``schema.PARTITIONS``."""


def check_bound(bound: Bound | None) -> None:
    """Refuse what is no bound, before anything is read.

    Raises
    ------
    UsageError
        For a name that is not known, a time without its zone, or a negative offset.
    """
    if isinstance(bound, str):
        if bound not in NAMED:
            raise UsageError(f"{bound!r} is no place in a log.", do=f"Say an offset, a time, or {', '.join(NAMED)}.")
    elif isinstance(bound, dt.datetime):
        if bound.tzinfo is None:
            raise UsageError(f"The time {bound} has no time zone.", do="Say which: datetime.now(timezone.utc).")
    elif bound is not None and operator.index(bound) < 0:
        raise UsageError(f"{bound} is no offset: they count from 0.", do=f"Or say {', '.join(NAMED)}.")


def milliseconds(time: dt.datetime) -> int:
    """A time with its zone as Kafka's epoch milliseconds, rounded up: no record before it is as new."""
    return -((EPOCH - time) // MILLISECOND)
