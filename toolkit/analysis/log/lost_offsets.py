"""Offsets that are missing in a log: where nothing may be carried from the batches before to those after.

Offsets are contiguous from segment to segment and from batch to batch, except where the cleaner removed batches. The
cleaner never passes an open transaction, and its checkpoint shows how far it came. A segment that was not copied, or
not completely, leaves missing offsets before the next one; damaged bytes leave them anywhere. Within a file no copy
omits intact bytes, so without damage the offsets that are missing there are the cleaner's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toolkit.formats.log.headers import Array, DamagedRange, Headers


class LostOffsets(NamedTuple):
    """Offsets that were not read between two batches, and that the cleaner did not remove."""

    expected: int  # the offset after the batches before
    found: int  # the next base offset, of a segment or of a batch; less than `expected` if offsets go back
    # what is missing, as ``NAME: sentence``; null if damaged bytes between the batches have an error of their own
    error: str | None


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


def missing_within(expected: int, found: int, *, is_damaged: bool) -> LostOffsets | None:
    """The missing offsets before a batch of a file, as in `missing_in`."""
    return LostOffsets(expected, found, None) if is_damaged and found != expected else None


def _error(expected: int, found: int) -> str:
    if found < expected:
        return f"CORRUPT_BATCH: Offset {found:,} follows offset {expected - 1:,}."
    return (
        f"OFFSETS_LOST: No segment has offsets {expected:,} to {found - 1:,}: one is missing or incomplete, or this is "
        "a new replica of a compacted log."
    )
