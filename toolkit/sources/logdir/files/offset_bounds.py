"""The offset that a bound means in a log in files."""

from __future__ import annotations

import datetime as dt
import operator

import numpy as np

from toolkit.sources.logdir.files.replica_log import ReplicaLog
from toolkit.sources.logdir.state.replica_state import ReplicaState
from toolkit.sources.offset_spec import NAMED, OffsetSpec, milliseconds

__all__ = ["offset_of"]


def offset_of(log: ReplicaLog, bound: OffsetSpec | None, state: ReplicaState | None) -> int | None:
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
        offset: int | None = getattr(state, NAMED[bound]) if state else None
        return offset
    if isinstance(bound, dt.datetime):
        return _offset_at(log, milliseconds(bound))
    return operator.index(bound)


def _offset_at(log: ReplicaLog, time_ms: int) -> int:
    """Offset of the first batch with a record at or after a time; beyond the end of the log if there is none."""
    end = 0
    for part in log.parts():
        headers = part.scanned.headers
        newer = np.flatnonzero(headers["max_timestamp"] >= time_ms)
        if newer.size:
            return int(headers["base_offset"][newer[0]])
        if len(headers):
            end = int(headers["last_offset"][-1]) + 1
    return end
