"""From where to where a log in files is read: offsets, times, or their names, as for a live partition."""

from __future__ import annotations

import datetime as dt
import operator
from typing import SupportsIndex

import numpy as np

from toolkit.errors import UsageError
from toolkit.sources.logdir.log import Log
from toolkit.sources.logdir.state import State

__all__ = ["Bound", "check_bound", "offset_of"]

Bound = SupportsIndex | dt.datetime | str

EPOCH, MILLISECOND = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(milliseconds=1)
NAMES = {
    "log_start": "log_start_offset",
    "lso": "last_stable_offset",
    "high_watermark": "high_watermark",
    "log_end": "log_end_offset",
}


def check_bound(bound: Bound | None) -> None:
    """Refuse what is no bound, before anything is read.

    Raises
    ------
    UsageError
        For a name that is not known, a time without its zone, or a negative offset.
    """
    if isinstance(bound, str):
        if bound not in NAMES:
            raise UsageError(f"{bound!r} is no place in a log.", do=f"Say an offset, a time, or {', '.join(NAMES)}.")
    elif isinstance(bound, dt.datetime):
        if bound.tzinfo is None:
            raise UsageError(f"The time {bound} has no time zone.", do="Say which: datetime.now(timezone.utc).")
    elif bound is not None and operator.index(bound) < 0:
        raise UsageError(f"{bound} is no offset: they count from 0.", do=f"Or say {', '.join(NAMES)}.")


def offset_of(log: Log, bound: Bound | None, state: State | None) -> int | None:
    """The offset that a bound means in a log; null for none, also where nothing tells it.

    Parameters
    ----------
    log
        The log.
    bound
        An offset; a time with its zone, which means the first batch with a record that is as new; or ``"log_start"``,
        ``"lso"``, ``"high_watermark"``, ``"log_end"``.
    state
        The log's state, for a name.
    """
    if bound is None:
        return None
    if isinstance(bound, str):
        named: int | None = getattr(state, NAMES[bound]) if state else None
        return named
    if isinstance(bound, dt.datetime):
        return _offset_at(log, -((EPOCH - bound) // MILLISECOND))
    return operator.index(bound)


def _offset_at(log: Log, milliseconds: int) -> int:
    """Offset of the first batch with a record at or after a time; beyond the end of the log if there is none."""
    end = 0
    for part in log.parts():
        headers = part.scanned.headers
        newer = np.flatnonzero(headers["max_timestamp"] >= milliseconds)
        if newer.size:
            return int(headers["base_offset"][newer[0]])
        if len(headers):
            end = int(headers["last_offset"][-1]) + 1
    return end
