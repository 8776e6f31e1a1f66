"""Resolve offset specifications in the files of a log."""

from __future__ import annotations

import datetime as dt
import operator

import numpy as np

from toolkit.sources.logdir.files.replica_log import ReplicaLog
from toolkit.sources.logdir.state.replica_state import ReplicaState
from toolkit.sources.offset_queries.offset_spec import NAMED, OffsetSpec, milliseconds


def offset_of(log: ReplicaLog, bound: OffsetSpec | None, state: ReplicaState | None) -> int | None:
    """The offset of a specification in a log; null if the specification is null or the offset is unknown.

    Parameters
    ----------
    log
        The log.
    bound
        An offset; a time with time zone, for the first batch with a record at or after it; or ``"log_start"``,
        ``"lso"``, ``"high_watermark"``, ``"log_end"``.
    state
        The log's state, for the named offsets.
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
    """Offset of the first batch with a record at or after a time; the log end offset if there is none."""
    end = 0
    for part in log.parts():
        headers = part.scanned.headers
        newer = np.flatnonzero(headers["max_timestamp"] >= time_ms)
        if newer.size:
            return int(headers["base_offset"][newer[0]])
        if len(headers):
            end = int(headers["last_offset"][-1]) + 1
    return end
