"""Offsets that are missing in a log: where nothing may be carried from the batches before to those after.

Offsets are contiguous from segment to segment and from batch to batch, except where the cleaner removed batches. The
cleaner never passes an open transaction, and its checkpoint shows how far it came. A segment that was not copied, or
not completely, leaves missing offsets before the next one; damaged bytes leave them anywhere. Within a file no copy
omits intact bytes, so without damage the offsets that are missing there are the cleaner's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from toolkit.formats.log.headers import Array, DamagedRange, Headers, LogChunk, LostOffsets
from toolkit.formats.log_dir_files import segment_base_offset

NEVER = np.iinfo(np.int64).max


def clip(chunks: Iterable[LogChunk], *, start: int | None = None, stop: int | None = None) -> Iterator[LogChunk]:
    """The batches with an offset in ``start <= offset < stop``; null means unbounded.

    Damage is kept unless neighbouring batches prove it outside the range. Nothing if `start` is after `stop`.
    """
    if start is not None and stop is not None and start > stop:
        return
    has_begun = start is None
    for chunk in chunks:
        headers, damage = chunk.headers, chunk.damage
        in_range = np.ones(len(headers), np.bool_)
        if start is not None:
            in_range &= np.logical_or.accumulate(headers["last_offset"] >= start) | has_begun
            has_begun |= bool(in_range.any())
            before = headers["position"][headers["base_offset"] <= start]
            damage = tuple(item for item in damage if not (before > item.position).any())
        if stop is not None:
            in_range &= headers["base_offset"] < stop
            behind = headers["position"][headers["last_offset"] + 1 >= stop]
            damage = tuple(item for item in damage if not (behind < item.position).any())
        unchanged = bool(in_range.all()) and len(damage) == len(chunk.damage)
        yield (chunk if unchanged else replace(chunk, headers=headers[in_range], damage=damage))


def at_missing_offsets(
    chunks: Iterable[LogChunk],
    *,
    is_within_file: bool = False,
    expected: int | None = None,
    end: int | None = None,
    cleaned: int = -1,
) -> Iterator[LogChunk]:
    """The chunks of a log, divided where offsets are missing.

    `chunks`: consecutive chunks of one log, in order.
    `is_within_file`: whether the first one does not begin its segment.
    `expected`: end of an earlier read that the chunks continue; null for none.
    `end`: base offset of the newest segment, which may be empty, if the chunks end there.
    `cleaned`: offset up to which the log was cleaned, as in `missing_between`.
    """
    start, files = expected, set[str | None]()
    is_damaged = False
    for chunk in chunks:
        base_offset = segment_base_offset(chunk.file)
        if not files and start is not None:
            is_within_file = base_offset is None or base_offset < start
        if chunk.file not in files and base_offset is not None and (files or not is_within_file):
            if expected is not None:
                missing = missing_between(expected, base_offset, cleaned=cleaned, is_damaged=is_damaged)
                if missing is not None:
                    yield LogChunk(file=chunk.file, missing=missing)
            expected, is_damaged = base_offset, False
        files.add(chunk.file)
        if len(chunk.headers):
            if expected == start and is_within_file and chunk.headers["base_offset"][0] < (start or 0):
                expected = None  # the first batch begins before the end of the earlier read
            chunk = _with_base_offsets(chunk, expected)
            expected = _expected(chunk.headers, expected, base_offset)
            chunk = _in_order(chunk, expected)
        headers, damage = chunk.headers, chunk.damage
        if expected is None or not len(headers):
            is_damaged |= bool(damage)
            yield chunk
            continue
        yield from _divided(chunk, missing_in(headers, damage, expected=expected, is_damaged=is_damaged))
        expected = max(int(headers["last_offset"].max()) + 1, expected)
        is_damaged = any(each.position > headers["position"][-1] for each in damage)
    if expected is not None and end is not None and end > expected:
        missing = missing_between(expected, end, cleaned=cleaned, is_damaged=is_damaged)
        if missing is not None:
            yield LogChunk(missing=missing)


def _with_base_offsets(chunk: LogChunk, expected: int | None) -> LogChunk:
    """A chunk whose compressed messages of magic 0 and 1, which have only their last offset, begin after the last."""
    unknown = np.flatnonzero(chunk.headers["base_offset"] < 0)
    if not len(unknown):
        return chunk
    headers = chunk.headers.copy()
    last = headers["last_offset"]
    due = np.append(last[0] if expected is None else expected, last[:-1] + 1)
    headers["base_offset"][unknown] = np.minimum(due, last)[unknown]
    return replace(chunk, headers=headers)


def _expected(headers: Headers, expected: int | None, base_offset: int | None) -> int:
    """The offset that the first batch should have."""
    first, last = int(headers["base_offset"][0]), int(headers["last_offset"][0])
    if expected is None or (first < expected <= last and expected == base_offset):
        return first  # a follower begins its log where the leader's began, which may be within a batch
    return expected


def _in_order(chunk: LogChunk, expected: int) -> LogChunk:
    """A chunk in which batches with a damaged offset are damage."""
    headers = chunk.headers
    wrong = out_of_order(headers, expected=expected)
    if not wrong.any():
        return chunk
    columns = (headers[name][wrong].tolist() for name in ("position", "size", "base_offset"))
    found = [
        DamagedRange(position, size, f"CORRUPT_BATCH: its base offset {offset:,} is out of order.")
        for position, size, offset in zip(*columns, strict=True)
    ]
    damage = tuple(sorted([*chunk.damage, *found]))
    return replace(chunk, headers=headers[~wrong], damage=damage)


def _divided(chunk: LogChunk, missing: Sequence[tuple[int, LostOffsets]]) -> Iterator[LogChunk]:
    if not missing:
        yield chunk
        return
    headers, damage = chunk.headers, chunk.damage
    by_row = dict(missing)
    bounds = [*sorted({0, *by_row}), len(headers)]
    for row, stop in pairwise(bounds):
        # Damage before a batch after which offsets are missing belongs to the chunk before it.
        low = headers["position"][row] if row else -1
        high = headers["position"][stop] if stop < len(headers) else NEVER
        inside = tuple(each for each in damage if low <= each.position < high)
        yield replace(chunk, headers=headers[row:stop], damage=inside, missing=by_row.get(row))


def missing_between(expected: int, found: int, *, cleaned: int, is_damaged: bool) -> LostOffsets | None:
    """The missing offsets before a segment; null if there are none, or the cleaner may have removed them.

    `expected`, `found`: the offset after the batches of earlier segments, and the segment's base offset.
    `cleaned`: offset up to which the log was cleaned, by the cleaner's checkpoint; -1 for never or unknown.
    `is_damaged`: whether there are unreadable bytes after those batches.
    """
    if found == expected or (expected < found <= cleaned and not is_damaged):
        return None
    return LostOffsets(expected, found, None if is_damaged else _error(expected, found))


def out_of_order(headers: Headers, *, expected: int) -> Array:
    """Which batches of a file have an offset that is damaged, as no checksum covers it: those that go back, or far on.

    `headers`: consecutive batches of the file, at least one. `expected`: the offset after the batches before them.
    """
    begins, ends = headers["base_offset"].copy(), headers["last_offset"] + 1
    due = np.maximum.accumulate(np.append(expected, ends[:-1]))
    if (begins >= due).all():
        return np.zeros(len(headers), np.bool_)
    is_ahead = np.append((begins[:-1] > begins[1:]) & (begins[1:] >= due[:-1]), False)
    due = np.maximum.accumulate(np.append(expected, np.where(is_ahead, -1, ends)[:-1]))
    return is_ahead | (begins < due)


def missing_in(
    headers: Headers, damage: tuple[DamagedRange, ...], *, expected: int, is_damaged: bool
) -> list[tuple[int, LostOffsets]]:
    """The batches of a file before which offsets are missing, by row.

    `headers`: consecutive batches of the file, at least one, without those `out_of_order`.
    `damage`: unreadable bytes between and around them.
    `expected`: the offset after the batches before them.
    `is_damaged`: whether there are unreadable bytes before them in the file, after those batches.
    """
    begins, ends = headers["base_offset"].copy(), headers["last_offset"] + 1
    due = np.append(expected, ends[:-1])
    jumps = np.flatnonzero(begins != due)
    if not jumps.size:
        return []
    damaged_before: Array = np.searchsorted([each.position for each in damage], headers["position"])
    after_damage = np.diff(damaged_before, prepend=0) > 0
    after_damage[0] |= is_damaged
    lost = jumps[after_damage[jumps]].tolist()
    return [(row, LostOffsets(int(due[row]), int(begins[row]), None)) for row in lost]


def _error(expected: int, found: int) -> str:
    if found < expected:
        return f"CORRUPT_BATCH: Offset {found:,} follows offset {expected - 1:,}."
    return (
        f"OFFSETS_LOST: No segment has offsets {expected:,} to {found - 1:,}: one is missing or incomplete, or this is "
        "a new replica of a compacted log."
    )
