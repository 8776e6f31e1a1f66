"""Offsets that are missing in a log: where nothing may be carried from the batches before to those after.

Offsets are contiguous from batch to batch, except where the cleaner removed batches. The cleaner never passes an open
transaction, and its checkpoint shows how far it came. A segment that was not copied, or only in part, leaves missing
offsets at the beginning of the next segment; damaged bytes leave them anywhere. Within a file no copy omits intact
bytes, so missing offsets without damage are the cleaner's there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from toolkit.formats.log.headers import Array, DamagedRange, Headers

WITHIN_FILE = int(np.iinfo(np.int64).max)
"""The cleaner's checkpoint for a batch that is not the first one of its file: any offsets before it may be missing."""


class MissingOffsets(NamedTuple):
    """Offsets that were not read between two batches, and that the cleaner did not remove.

    Parameters
    ----------
    expected
        The offset after the batches before.
    found
        The next base offset, of a batch or of an empty newest segment; less than `expected` if offsets go back.
    error
        What is missing, as ``NAME: sentence``; null if damaged bytes between the batches have an error of their own.
    """

    expected: int
    found: int
    error: str | None


def missing_between(expected: int, found: int, *, cleaned: int, is_damaged: bool) -> MissingOffsets | None:
    """The missing offsets between two batches; null if there are none, or the cleaner may have removed them.

    Parameters
    ----------
    expected, found
        As in `MissingOffsets`.
    cleaned
        Offset up to which the log was cleaned, by the cleaner's checkpoint; -1 for never or unknown.
    is_damaged
        Whether there are unreadable bytes between the batches.
    """
    if found == expected or (expected < found <= cleaned and not is_damaged):
        return None
    if is_damaged:
        error = None
    elif found < expected:
        error = f"CORRUPT_BATCH: Offset {found:,} follows offset {expected - 1:,}."
    else:
        error = f"OFFSETS_LOST: Offsets {expected:,} to {found - 1:,} are in no segment, and the cleaner did not remove them."
    return MissingOffsets(expected, found, error)


def missing_in(
    headers: Headers, damage: tuple[DamagedRange, ...], *, expected: int | None, cleaned: int, is_damaged: bool
) -> list[tuple[int, MissingOffsets]]:
    """The batches before which offsets are missing, by row.

    Parameters
    ----------
    headers
        Consecutive batches of one file, at least one.
    damage
        Unreadable bytes between and around them.
    expected
        The offset after the batches before them; null if there is none.
    cleaned, is_damaged
        For the first batch, as in `missing_between`.
    """
    begins, ends = headers["base_offset"].copy(), headers["last_offset"] + 1
    due: Array = np.maximum.accumulate(np.append(begins[0] if expected is None else expected, ends[:-1]))
    jumps = np.flatnonzero(begins != due)
    if not jumps.size:
        return []
    damaged_before: Array = np.searchsorted([each.position for each in damage], headers["position"])
    after_damage = np.diff(damaged_before, prepend=0) > 0
    after_damage[0] |= is_damaged
    jumps = jumps[(jumps == 0) | after_damage[jumps] | (begins[jumps] < due[jumps])]
    found = (
        (
            row,
            missing_between(
                int(due[row]),
                int(begins[row]),
                cleaned=WITHIN_FILE if row else cleaned,
                is_damaged=bool(after_damage[row]),
            ),
        )
        for row in jumps.tolist()
    )
    return [(row, missing) for row, missing in found if missing is not None]
