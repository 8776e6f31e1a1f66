"""Offset specs: an offset, a time, or a name such as ``lso``; for live partitions and for files."""

from __future__ import annotations

import datetime as dt
import operator
import re
from collections.abc import Mapping
from typing import SupportsIndex

from toolkit.errors import UsageError
from toolkit.schema.coerce import in_utc
from toolkit.schema.live import Partition
from toolkit.schema.table import EPOCH

OffsetSpec = SupportsIndex | dt.datetime | str

EXAMPLE = "2026-11-21T12:00:00Z"
MILLISECOND = dt.timedelta(milliseconds=1)

NAMED: Mapping[str, str] = {
    "log_start": "log_start_offset",
    "lso": "last_stable_offset",
    "high_watermark": "high_watermark",
    "log_end": "log_end_offset",
}
"""Named offset to its column in ``schema.PARTITIONS``."""


def named_offset(partition: Partition, name: str) -> int | None:
    """The offset of a partition that one of the names stands for; null if it is unknown."""
    offset: int | None = getattr(partition, NAMED[name])
    return offset


def parsed_offset_spec(bound: OffsetSpec | None) -> OffsetSpec | None:
    """An offset spec with a time in place of its text, which begins with a year. Raises UsageError as `in_utc`."""
    if isinstance(bound, str) and re.match(r"\d{4}-", bound):
        return in_utc(bound)
    return bound


def check_offset_spec(bound: OffsetSpec | None) -> None:
    """Raise for an invalid offset spec before anything is read.

    Raises UsageError for an unknown name, a time without a zone, or a negative offset.
    """
    if isinstance(bound, str):
        if bound not in NAMED:
            names = ", ".join(NAMED)
            raise UsageError(f"{bound!r} is not an offset.", do=f"Use a number, a time as {EXAMPLE}, or {names}.")
    elif isinstance(bound, dt.datetime):
        in_utc(bound)
    elif bound is not None and operator.index(bound) < 0:
        raise UsageError(f"Offset {bound} is negative.", do=f"Use 0 or more, or {', '.join(NAMED)}.")


def check_offset_range(start: OffsetSpec | None, stop: OffsetSpec | None) -> None:
    """Raise for an invalid offset spec, and for a range that ends before it starts.

    Bounds of different kinds, such as a time and an offset, are comparable only once they are resolved.

    Raises UsageError as `check_offset_spec`, or if `stop` comes before `start`.
    """
    for bound in (start, stop):
        check_offset_spec(bound)
    if start is None or stop is None:
        return
    if isinstance(start, str) and isinstance(stop, str):
        is_reversed = list(NAMED).index(start) > list(NAMED).index(stop)
    elif isinstance(start, dt.datetime) and isinstance(stop, dt.datetime):
        is_reversed = start > stop
    elif isinstance(start, str | dt.datetime) or isinstance(stop, str | dt.datetime):
        return
    else:
        is_reversed = operator.index(start) > operator.index(stop)
    if is_reversed:
        raise UsageError(f"The range ends at {stop}, before it starts at {start}.", do="Exchange the two bounds.")


def milliseconds(time: dt.datetime) -> int:
    """Epoch milliseconds of a time with zone, rounded up: earlier records are older."""
    return -((EPOCH - time) // MILLISECOND)
