"""What files tell of held partitions beyond a verdict: cause, true opening time, and what waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from toolkit.analysis.excerpts import Excerpt, LogEvidence, is_to_explain
from toolkit.analysis.explain import explain
from toolkit.analysis.traces import have_ended
from toolkit.formats.batches import CONTROL
from toolkit.formats.group_records import OFFSETS_TOPIC
from toolkit.formats.headers import Headers, joined
from toolkit.formats.records import STATE_TOPIC
from toolkit.schema import Row
from toolkit.sources.logdir.contents import Place, ReadLog
from toolkit.sources.logdir.coordinator_side import CoordinatorSide
from toolkit.sources.logdir.look import Looked
from toolkit.sources.logdir.neighbourhood import BACK, FORWARD
from toolkit.sources.logdir.tables import COMPACTED

__all__ = ["explained"]

MAX_PARTITIONS = 50
FAR_BACK = 100_000  # offsets before the first one, where no marker of its producers is within `BACK`


def explained(looked: Looked, rows: Sequence[Row]) -> list[Row]:
    """Rows of ``schema.FINDINGS`` with what the logs tell of them, where they are worth reading."""
    excerpts = dict(_excerpts(looked, rows))
    mine = [row for row in rows if (row["topic"], row["partition"]) in excerpts and is_to_explain(row)]
    if not mine:
        return list(rows)
    events = list(_events(looked.side, mine))
    errors = sorted({row["error"].partition(":")[0] for row in events if row.get("error")})
    unread = [*looked.side.gaps, *([f"{STATE_TOPIC} could not be read ({', '.join(errors)})"] if errors else [])]
    sound = [row for row in events if not row.get("error")]
    return explain(rows, [looked.look], LogEvidence(excerpts=excerpts, events=sound, unread=unread))


def _excerpts(looked: Looked, rows: Sequence[Row]) -> Iterator[tuple[Place, Excerpt]]:
    """Of the first partitions with something to explain, around their lowest open transaction."""
    count = 0
    for place, group in groupby(rows, key=lambda row: (row["topic"], row["partition"])):
        found = [row for row in group if row["start_offset"] is not None]
        wanted = {row["producer_id"] for row in found if is_to_explain(row)}
        if not wanted or place not in looked.replicas:
            continue
        read = looked.replicas[place][0]
        offset = max(read.state.log_start_offset or 0, min(row["start_offset"] for row in found))
        yield place, _excerpt(read, offset, wanted)
        count += 1
        if count == MAX_PARTITIONS:
            return


def _excerpt(read: ReadLog, offset: int, producer_ids: Collection[int]) -> Excerpt:
    """From an offset to the high watermark, and back to a marker of the producers, as far as the bounds let."""
    state = read.state
    log_start, end = state.log_start_offset or 0, state.high_watermark
    stop = (state.log_end_offset or 0) if end is None else end
    after, errors = _headers(read, offset, stop, most=FORWARD)
    if len(after) and after["last_offset"][-1] + 1 < stop:
        stop = int(after["last_offset"][-1]) + 1
    before, start = after[:0], offset
    for span in (BACK, FAR_BACK):
        if start > log_start and not have_ended(before, producer_ids):
            start = max(log_start, offset - span)
            before, earlier_errors = _headers(read, start, offset)
            errors = errors or earlier_errors
    before = before[before["last_offset"] < (after["base_offset"][0] if len(after) else offset)]
    where = state.log.where
    return Excerpt(
        headers=joined((before, after)) if len(before) else after,
        start=start,
        stop=stop,
        log_start_offset=state.log_start_offset,
        observed_at=state.observed_at,
        held=_held(read),
        is_compacted=_is_compacted(read),
        groups=_groups(read, after, producer_ids) if where.topic == OFFSETS_TOPIC else {},
        source="log",
        broker_id=where.broker_id,
        error=errors[0] if errors else None,
    )


def _headers(read: ReadLog, start: int, stop: int, *, most: int | None = None) -> tuple[Headers, list[str]]:
    """Batches that hold an offset of ``start <= offset < stop``: as the window has them, else read."""
    window = read.state.window
    if (kept := window.neighbourhood.between(start, stop, most=most)) is not None:
        return kept, [each.reason for each in window.damage if each.reaches(start) and not each.is_torn]
    parts, errors, count = [], [], 0
    for part in read.state.log.parts(start=start, stop=stop):
        parts.append(part.scanned.headers)
        errors += [damage.reason for damage in part.scanned.damage if not damage.is_torn]
        count += len(part.scanned.headers)
        if most is not None and count >= most:
            break
    return joined(parts)[:most], errors


def _held(read: ReadLog) -> tuple[int, int] | None:
    """Records and bytes from the LSO, or the log start if that is higher, to the high watermark."""
    state = read.state
    if state.last_stable_offset is None or state.high_watermark is None:
        return None
    return state.window.totals.between(max(state.last_stable_offset, state.log_start_offset or 0), state.high_watermark)


def _is_compacted(read: ReadLog) -> bool | None:
    """Whether the cleaner works on it: it was there, or the topic is always compacted; else no file tells."""
    where = read.state.log.where
    place = where.topic or "", where.partition or 0
    return True if place in read.marks.cleaned or where.topic in COMPACTED else None


def _groups(read: ReadLog, headers: Headers, producer_ids: Collection[int]) -> Mapping[int, Sequence[str]]:
    """Groups whose offsets the producers have open."""
    found: dict[int, set[str]] = {}
    data = np.isin(headers["producer_id"], list(producer_ids)) & (headers["attributes"] & CONTROL == 0)
    for row in read.state.log.group_events_in(headers[data]):
        if row.get("producer_id") is not None and row.get("group_id") is not None:
            found.setdefault(row["producer_id"], set()).add(row["group_id"])
    return {producer_id: sorted(groups) for producer_id, groups in found.items()}


def _events(side: CoordinatorSide, rows: Iterable[Row]) -> Iterator[Row]:
    """Records of the owners of transactions, and of former owners where nobody owns them."""
    rows = list(rows)
    owners = {row["transactional_id"] for row in rows} - {None}
    orphans = {row["producer_id"] for row in rows if row["transactional_id"] is None}
    for partition in side.partitions.values():
        ids = (owners & partition.newest.keys()) | partition.read.state.window.records.ids_of(orphans)
        if ids:
            yield from partition.read.state.window.records.records(ids)
