"""The open batches of a transaction: a marker decides each of them, so each is compared with the decisions.

Batches of one epoch between the same brokers' times are one part, as all that is known of them is the same. Brokers'
times are those of markers, of batches under LogAppendTime, and of what the group coordinator writes; any other
CreateTime is a client's, and may be any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from toolkit.formats.log.batches import CONTROL, LOG_APPEND_TIME
from toolkit.formats.log.headers import Headers

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.case import Case

LAST_EPOCH = 2**15 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTime:
    """A time that the partition's leader wrote: of a marker, or of a batch under LogAppendTime."""

    time: float  # in ms
    leader_epoch: int
    is_exact: bool  # whether it is the append's; markers and offsets are appended a little after their time


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPart:
    """Consecutive open batches of the producer of which the same is known."""

    first_offset: int
    last_offset: int | None  # null if they may go on beyond what was read
    lowest_epoch: int
    highest_epoch: int
    after: LogTime | None  # the last broker's time before them in the log; null if none was read
    before: LogTime | None  # the first broker's time after them
    written_at: float | None = None  # the earliest time of their records by their client, in ms; null if none was read

    @property
    def epoch(self) -> int | None:
        """Their epoch; null if it is not known."""
        return self.lowest_epoch if self.lowest_epoch == self.highest_epoch else None

    @property
    def offsets(self) -> str:
        """``offsets 4 to 9``."""
        return offsets_text(self.first_offset, self.last_offset)


def offsets_text(first: int, last: int | None) -> str:
    """``offset 4``, ``offsets 4 to 9``, or ``offsets from 4 on``."""
    if last is None:
        return f"offsets from {first} on"
    return f"offset {first}" if first == last else f"offsets {first} to {last}"


def open_parts(case: Case) -> Sequence[OpenPart]:
    """The open batches in offset order; those that were not read are a part of unknown batches at the end."""
    batches = case.batches
    highest = LAST_EPOCH if case.epoch < 0 else case.epoch
    if batches is None or not len(batches.open_data):
        lowest = -1 if case.first_epoch is None else case.first_epoch
        return [_unread_part(case.start or 0, lowest, highest, after=None)]
    headers, data = batches.excerpt.headers, batches.open_data
    timed: Headers = headers[batches.excerpt.has_brokers_time]
    # A batch that has a broker's time of its own is at that time, neither before nor after it.
    before = timed["base_offset"].searchsorted(data["base_offset"], side="left")
    after = timed["base_offset"].searchsorted(data["base_offset"], side="right") - 1
    epochs = data["producer_epoch"]
    changes = (np.diff(before) != 0) | (np.diff(after) != 0) | (np.diff(epochs) != 0)
    starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
    stops = [*starts[1:], len(data)]
    parts = [
        OpenPart(
            first_offset=max(int(data["base_offset"][start]), case.start or 0),
            last_offset=int(data["last_offset"][stop - 1]),
            lowest_epoch=int(epochs[start]),
            highest_epoch=int(epochs[start]),
            after=_brokers_time(timed, int(after[start])),
            before=_brokers_time(timed, int(before[start])),
            written_at=min((t for t in data["max_timestamp"][start:stop].tolist() if t >= 0), default=None),
        )
        for start, stop in zip(starts, stops, strict=True)
    ]
    end = case.leader.high_watermark if case.leader.high_watermark is not None else case.leader.log_end_offset
    if end is not None and batches.excerpt.stop < end and not len(batches.markers_after):
        latest = _brokers_time(timed, len(timed) - 1)
        parts.append(_unread_part(batches.excerpt.stop, parts[-1].highest_epoch, highest, after=latest))
    return parts


def _unread_part(first_offset: int, lowest: int, highest: int, *, after: LogTime | None) -> OpenPart:
    return OpenPart(
        first_offset=first_offset,
        last_offset=None,
        lowest_epoch=lowest,
        highest_epoch=max(lowest, highest),
        after=after,
        before=None,
    )


def _brokers_time(timed: Headers, index: int) -> LogTime | None:
    if not 0 <= index < len(timed):
        return None
    return LogTime(
        time=float(timed["max_timestamp"][index]),
        leader_epoch=int(timed["leader_epoch"][index]),
        is_exact=bool(timed["attributes"][index] & (CONTROL | LOG_APPEND_TIME) == LOG_APPEND_TIME),
    )
