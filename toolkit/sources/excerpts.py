"""Parts of held partitions' logs, around their lowest open transaction: many at once, bounded in bytes."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toolkit.analysis.excerpts import Excerpt
from toolkit.analysis.traces import have_ended
from toolkit.formats.batches import CONTROL
from toolkit.formats.events import group_events
from toolkit.formats.group_records import OFFSETS_TOPIC
from toolkit.formats.headers import Headers, joined
from toolkit.formats.scan import scan
from toolkit.sources.fetch import Fetched, Spot, fetch
from toolkit.sources.topology import Place
from toolkit.sources.wire import Wire

__all__ = ["Held", "read_excerpts"]

PIECE = 1 << 20  # bytes of one answer
FORWARD = 4 << 20  # bytes from the first offset on
BACK = ((100, PIECE), (2_000, PIECE))  # offsets before it, and bytes; further only where no marker is that close by


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A held partition, and where it is to be read.

    Parameters
    ----------
    place
        Topic and partition.
    offset
        First offset of its lowest open transaction that is still in the log.
    log_start, high_watermark
        From where to where it can be read.
    producer_ids
        Whose markers before the offset are looked for.
    broker_id, leader_epoch
        Who leads it; the epoch is -1 if not known.
    """

    place: Place
    offset: int
    log_start: int
    high_watermark: int
    producer_ids: frozenset[int]
    broker_id: int
    leader_epoch: int


def read_excerpts(
    wire: Wire, held: Sequence[Held], *, compacted: Mapping[str, bool], deadline: float
) -> dict[Place, Excerpt]:
    """Read from each offset to the high watermark, and back to a marker of the producers, as far as the bounds let.

    Parameters
    ----------
    held
        Partitions; a few megabytes of memory are taken for each.
    compacted
        Whether a topic is compacted, where that is known.
    deadline
        By ``time.monotonic()``; what has been read by then is what there is.
    """
    after = [_Reading(one, one.offset, one.high_watermark, FORWARD) for one in held]
    _read(wire, after, deadline)
    before: dict[Place, _Reading] = {}
    for offsets, room in BACK:
        back = [
            _Reading(one, max(one.log_start, one.offset - offsets), one.offset, room)
            for one in held
            if one.log_start < one.offset and not _has_marker(before.get(one.place))
        ]
        _read(wire, back, deadline)
        before |= {each.held.place: each for each in back if each.at >= each.stop}
    now = dt.datetime.now(dt.UTC)
    return {each.held.place: _excerpt(before.get(each.held.place), each, compacted, now) for each in after}


@dataclass(slots=True)
class _Reading:
    """A section of a log as it comes, a piece at a time."""

    held: Held
    at: int
    stop: int
    room: int
    start: int = -1
    is_done: bool = False
    error: str | None = None
    headers: list[Headers] = field(default_factory=list)
    groups: dict[int, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start = self.at
        self.is_done = self.at >= self.stop

    @property
    def spot(self) -> Spot:
        return Spot(self.held.place, self.at, self.held.broker_id, self.held.leader_epoch)

    def take(self, found: Fetched) -> None:
        """Add what the leader sent; it may be more than was asked for."""
        scanned = scan(found.records, last=False)
        self.error = found.error
        self.room -= len(found.records)
        if len(scanned.headers):
            self.headers.append(scanned.headers)
            self.at = int(scanned.headers["last_offset"][-1]) + 1
            if self.held.place[0] == OFFSETS_TOPIC:
                self._take_groups(found.records, scanned.headers)
        elif not found.error and not found.records and (found.high_watermark or 0) >= self.stop:
            self.at = self.stop  # compaction has taken all that was there
        self.is_done = self.at >= self.stop or self.room <= 0 or not len(scanned.headers)

    def _take_groups(self, records: bytes, headers: Headers) -> None:
        """Whose offsets the transactions hold."""
        data = np.isin(headers["producer_id"], list(self.held.producer_ids)) & (headers["attributes"] & CONTROL == 0)
        for position in headers["position"][data & (headers["base_offset"] >= self.held.offset)]:
            for row in group_events(records, int(position), group_partition=self.held.place[1]):
                if row["group_id"] is not None and row["producer_id"] is not None:
                    self.groups.setdefault(row["producer_id"], set()).add(row["group_id"])


def _read(wire: Wire, readings: Sequence[_Reading], deadline: float) -> None:
    while (left := [each for each in readings if not each.is_done]) and time.monotonic() < deadline:
        for each, found in zip(left, fetch(wire, [one.spot for one in left], max_bytes=PIECE), strict=True):
            each.take(found)


def _has_marker(reading: _Reading | None) -> bool:
    """Whether it holds a marker of every producer that is looked for."""
    return reading is not None and have_ended(joined(reading.headers), reading.held.producer_ids)


def _excerpt(
    before: _Reading | None, after: _Reading, compacted: Mapping[str, bool], observed_at: dt.datetime
) -> Excerpt:
    headers = joined(after.headers)
    first = int(headers["base_offset"][0]) if len(headers) else after.start
    if before is not None:
        earlier = joined(before.headers)
        headers = joined((earlier[earlier["base_offset"] < min(first, after.start)], headers))
    headers["position"] = -1  # in an answer it means nothing
    return Excerpt(
        headers=headers,
        start=after.start if before is None else before.start,
        stop=after.at,
        log_start_offset=after.held.log_start,
        observed_at=observed_at,
        is_compacted=compacted.get(after.held.place[0]),
        groups={producer_id: sorted(groups) for producer_id, groups in after.groups.items()},
        broker_id=after.held.broker_id,
        error=after.error,
    )
