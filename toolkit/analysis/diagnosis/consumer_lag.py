"""Split the lag of a consumer group: records to read, records held behind the LSO, and what no consumer receives.

A group that has read everything it can still shows a lag: offsets from the LSO on, which read_committed consumers do
not receive; markers, which no consumer receives (the "lag stuck at 1"); aborted records; and offsets that are gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from toolkit.schema.live import GroupLag

StatusCount = tuple[int, int, str | None]
"""First and last offset of a range, and their status: `toolkit.analysis.log.offset_status.StatusRange`."""

CONSUMED = {"non_transactional", "committed"}
HELD = {*CONSUMED, "open"}  # an open transaction may yet commit


class LagParts(NamedTuple):
    """A lag and its parts: the columns of ``schema.GROUP_LAG`` of the same names."""

    lag: int | None
    client_lag: int | None
    behind: int | None
    held: int
    markers: int | None
    aborted: int | None
    removed: int | None


def group_lag(
    committed: int, *, last_stable_offset: int, high_watermark: int, ranges: Iterable[StatusCount] | None = None
) -> LagParts:
    """Split a lag; `behind` and the columns after it add up to it.

    `last_stable_offset`, `high_watermark`: of the partition, read together.
    `ranges`: the status of the offsets from `committed` to the high watermark (`offset_status.status_ranges`); null if
        the log was not read.
    """
    lag = max(0, high_watermark - committed)
    client_lag = max(0, min(last_stable_offset, high_watermark) - committed)
    if ranges is None:
        return LagParts(lag, client_lag, client_lag, held=lag - client_lag, markers=None, aborted=None, removed=None)
    behind = held = 0
    of_status = Counter[str | None]()
    for first, last, status in ranges:
        first = max(first, committed)
        of_status[status] += max(0, last + 1 - first)
        below = max(0, min(last + 1, last_stable_offset) - first)
        behind += below if status in CONSUMED else 0
        held += max(0, last + 1 - max(first, last_stable_offset)) if status in HELD else 0
    markers, aborted = of_status["marker"], of_status["aborted"]
    removed = lag - behind - held - markers - aborted
    return LagParts(lag, client_lag, behind, held=held, markers=markers, aborted=aborted, removed=removed)


def share_group_lag(
    lag: int | None,
    *,
    start_offset: int,
    last_stable_offset: int,
    high_watermark: int,
    ranges: Iterable[StatusCount] | None,
    read_committed: bool,
) -> LagParts:
    """Split the lag of a share group, which acknowledges single records: its start offset does not give its lag.

    Returns: as for `group_lag`, with null ``client_lag``: share consumers do not measure it.
    `lag`: as the share coordinator counts it (KIP-1226): records up to the high watermark that are not acknowledged;
        null if the broker does not return it.
    `start_offset`, `last_stable_offset`, `high_watermark`: of the share partition, and of the partition.
    `ranges`: as for `group_lag`.
    `read_committed`: whether the group reads only up to the LSO (``share.isolation.level``).
    """
    if not read_committed:
        none = None if lag is None else 0
        return LagParts(lag, None, behind=lag, held=0, markers=none, aborted=none, removed=none)
    readable = max(last_stable_offset, start_offset)
    beyond = group_lag(readable, last_stable_offset=last_stable_offset, high_watermark=high_watermark, ranges=ranges)
    behind = None if lag is None else max(0, lag - (beyond.lag or 0))
    return beyond._replace(lag=lag, client_lag=None, behind=behind)


def lag_reason(lag: GroupLag) -> str | None:
    """A sentence that explains a lag; null if the lag is unknown. `lag`: the lag; its `reason` is not used."""
    if lag.lag is None:
        return None
    behind, held, lso = lag.behind or 0, lag.held or 0, lag.last_stable_offset
    if held and not behind:
        client = f"A read_committed client reports lag {lag.client_lag}"
        if lag.client_lag is None:
            client = "The share group has read everything it can"
        return f"{client}, and {_records(held)} held behind the LSO {lso}: visible once it moves."
    if held:
        return f"{_records(behind)} ready to read; {_records(held)} held behind the LSO {lso}."
    if behind:
        return f"{_records(behind)} ready to read, and nothing is held."
    if lag.never_read:
        return f"Nothing is left to read: {never_read(lag)}."
    return "Everything is read."


def never_read(lag: GroupLag) -> str:
    """What no consumer receives of a lag: ``1 marker, 3 aborted records``; empty if there is none, or not counted."""
    names = ((lag.markers, "marker", "markers"), (lag.aborted, "aborted record", "aborted records"))
    removed = "removed by compaction or retention"
    parts = [f"{number:,} {one if number == 1 else many}" for number, one, many in names if number]
    return ", ".join([*parts, *([f"{lag.removed:,} {removed}"] if lag.removed else [])])


def _records(count: int) -> str:
    return f"{count:,} record is" if count == 1 else f"{count:,} records are"
