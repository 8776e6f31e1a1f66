"""Find record batches in bytes: where each starts, and where one could start after damage.

A loop in Python follows the lengths of batches, numpy compares their fields, many at once. Messages of magic 0 and 1,
which hold no transactions, are compared one by one.

Sources: ``DefaultRecordBatch``, ``LegacyRecord`` and ``ByteBufferLogInputStream`` in Kafka's clients.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from toolkit.formats.log.batches import HEADER_SIZE, LENGTH_END, MAGIC_AT
from toolkit.formats.log.headers import RAW, RAW_BYTES, Array

MESSAGE_SIZE = 26  # of the smallest message of magic 0; with the 8 bytes of its time, of magic 1
REACH = 1024  # maximum distance from the start of such a message to its value in a search
FEW, MANY = 32, 1 << 14  # batches that are followed before their fields are compared: few at first, and after damage
_length = struct.Struct(">i").unpack_from


class FoundBatches(NamedTuple):
    """Consecutive batches."""

    # positions, raw: position and first bytes (`RAW`) of each
    positions: npt.NDArray[np.int64]
    raw: Array
    stop: int  # position after them
    in_doubt: bool  # whether the batch there, or its follower, is implausible; if not, more bytes are needed


def find_batches(window: npt.NDArray[np.uint8], position: int, end: int, *, at_most: int) -> FoundBatches:
    """Find consecutive batches, while each is followed by a plausible header.

    `window`: bytes, with `RAW_BYTES` after their end.
    `end`: where the bytes end.
    `at_most`: where to stop; bytes made to look like headers would be followed again from each of them.
    """
    view = window.data
    size = readable_size(view, position, end)
    starts: list[int] = []
    at, last = position, end - HEADER_SIZE
    while size > 0 and at <= last and len(starts) <= at_most:
        starts.append(at)
        length = _length(view, at + 8)[0]
        if length < MESSAGE_SIZE - LENGTH_END:
            break
        at += LENGTH_END + length
    positions = np.array(starts, np.int64)
    raw = first_bytes(window, positions)
    if len(positions) < 2:
        return FoundBatches(positions[:0], raw[:0], position, in_doubt=size == 0)
    magic, sound, whole = raw["magic"], _plausible(raw), np.ones(len(raw), bool)
    for i in np.flatnonzero((magic == 0) | (magic == 1)).tolist():
        sound[i] = usual_size(view, starts[i], end) > 0
        whole[i] = i + 1 == len(starts) or is_whole(view, starts[i], starts[i + 1] - starts[i], starts[i + 1])
    hardly_ever = (magic[:-1] == 2) & (magic[1:] < 2)  # a log that returns to an old format
    wrong = np.flatnonzero(~(sound[1:] & whole[:-1]) | hardly_ever)
    count = int(wrong[0]) if len(wrong) else len(starts) - 1
    return FoundBatches(positions[:count], raw[:count], starts[count], in_doubt=len(wrong) > 0)


def candidates(window: npt.NDArray[np.uint8], end: int, room: int) -> Iterator[int]:
    """Positions of plausible headers, in order.

    A message of magic 0 or 1 is found only if its key is short: its value's size must be within `REACH`.

    `window`, `end`: as for `find_batches`. `room`: where the log ends, which may be after the bytes.
    """
    count = max(end - MESSAGE_SIZE + 1, 0)
    byte = [window[i : i + count] for i in range(MAGIC_AT + 1)]
    has_length = ((byte[8] | byte[9] | byte[10]) != 0) | (byte[11] >= MESSAGE_SIZE - LENGTH_END)
    near = np.flatnonzero((byte[0] == 0) & (byte[1] == 0) & (byte[8] < 0x80) & has_length & (byte[MAGIC_AT] <= 2))
    for start in range(0, len(near), MANY):
        some = near[start : start + MANY]
        raw = first_bytes(window, some)
        plausible = _plausible(raw) & (some + HEADER_SIZE <= end)
        old = (raw["magic"] < 2) & (window[some + MAGIC_AT + 1] & 7 <= 3)
        for i in np.flatnonzero((plausible | old) & (LENGTH_END + raw["length"] <= room - some)).tolist():
            at = int(some[i])
            size = usual_size(window.data, at, end) if old[i] else 0
            if plausible[i] or (size and is_whole(window.data, at, size, min(end, at + REACH))):
                yield at


def first_bytes(window: npt.NDArray[np.uint8], positions: npt.NDArray[np.int64]) -> Array:
    """The first bytes of the batches at positions, as `RAW`."""
    rows = np.ndarray(len(window) - RAW_BYTES + 1, f"V{RAW_BYTES}", window, strides=(1,))
    return rows[positions].view(RAW)


def _plausible(raw: Array) -> npt.NDArray[np.bool_]:
    """Which are of magic 2, with fields as `usual_size` wants them."""
    attributes, delta, count = raw["attributes"], raw["last_offset_delta"], raw["record_count"]
    plausible: npt.NDArray[np.bool_] = (raw["magic"] == 2) & (raw["length"] >= HEADER_SIZE - LENGTH_END)
    plausible &= (attributes >= 0) & (attributes < 0x80) & (attributes & 7 <= 4)
    plausible &= (count >= 0) & (count - 1 <= delta)
    plausible &= (count > 0) | (raw["length"] == HEADER_SIZE - LENGTH_END)
    plausible &= (raw["producer_epoch"] >= -(1 << 8)) & (raw["base_sequence"] >= -(1 << 24))
    for field, bits in (("leader_epoch", 24), ("producer_id", 48)):
        plausible &= (raw[field] >= -(1 << bits)) & (raw[field] < 1 << bits)
    plausible &= raw["base_offset"] >> 48 == 0
    return plausible


def readable_size(data: Any, position: int, end: int) -> int:
    """Size of the batch at a position; 0 if its header is contradictory, -1 if it is incomplete."""
    if position + MAGIC_AT >= end:
        return -1
    if data[position + MAGIC_AT] != 2:
        return _message_size(data, position, end)
    if position + HEADER_SIZE > end:
        return -1
    if data[position] >= 0x80 or data[position + 23] >= 0x80 or data[position + 57] >= 0x80:
        return 0  # offset, last offset delta or record count is negative
    size = LENGTH_END + _int32(data, position + 8)
    if size > HEADER_SIZE and _int32(data, position + 57) == 0:
        return 0  # a batch that compaction has emptied is a header alone; zeros may follow a cut
    return size if size >= HEADER_SIZE else 0


def usual_size(data: Any, position: int, end: int) -> int:
    """Size of the batch at a position; 0 if a field of its header has a value that Kafka up to 4.3 would hardly write.

    A batch of a newer Kafka may fail. Other bytes pass once in 10^12 positions, and bytes that repeat every 16 never.
    """
    p = position
    if p + MAGIC_AT >= end or data[p] != 0 or data[p + 1] != 0 or data[p + 8] >= 0x80:
        return 0  # offset beyond 2^48, or length negative
    if data[p + MAGIC_AT] != 2 or p + HEADER_SIZE > end:
        return max(_message_size(data, position, end), 0)
    if data[p + 21] != 0 or data[p + 22] >= 0x80 or data[p + 22] & 7 > 4:
        return 0  # attributes without a meaning so far
    if data[p + 43] != data[p + 44] or 0 < data[p + 43] < 0xFF or 0 < data[p + 12] < 0xFF:
        return 0  # producer id or leader epoch is below -1, or beyond 2^48 and 2^24
    if 0x80 <= data[p + 51] < 0xFF or 0x80 <= data[p + 53] < 0xFF:
        return 0  # producer epoch or base sequence is below -1
    if data[p + 23] >= 0x80 or data[p + 57] >= 0x80:
        return 0  # last offset delta or record count is negative
    delta = data[p + 23] << 24 | data[p + 24] << 16 | data[p + 25] << 8 | data[p + 26]
    count = data[p + 57] << 24 | data[p + 58] << 16 | data[p + 59] << 8 | data[p + 60]
    size = LENGTH_END + (data[p + 8] << 24 | data[p + 9] << 16 | data[p + 10] << 8 | data[p + 11])
    if size > HEADER_SIZE and count == 0:
        return 0  # as in `readable_size`
    return size if size >= HEADER_SIZE and count <= delta + 1 else 0


def is_whole(data: Any, position: int, size: int, end: int) -> bool:
    """Whether key and value of the message of magic 0 or 1 at a position fill it; always true for magic 2."""
    magic = data[position + MAGIC_AT]
    if magic == 2:
        return True
    key_at = position + MESSAGE_SIZE - 8 + 8 * magic
    value_at = key_at + 4 + max(_int32(data, key_at), 0)
    if value_at + 4 > end:
        return False
    whole: bool = value_at + 4 + max(_int32(data, value_at), 0) == position + size
    return whole


def _message_size(data: Any, position: int, end: int) -> int:
    """As `readable_size`, for magic 0 and 1."""
    magic = data[position + MAGIC_AT]
    if magic > 1 or data[position] >= 0x80:
        return 0
    smallest = MESSAGE_SIZE + 8 * magic
    if position + smallest > end:
        return -1
    size = LENGTH_END + _int32(data, position + 8)
    attributes, key_size = data[position + 17], _int32(data, position + smallest - 8)
    if attributes & 7 > 3 or attributes >= 8 << magic:  # magic 1 also has a bit for its timestamp type
        return 0
    return size if size >= smallest and -1 <= key_size <= size - smallest else 0


def _int32(data: Any, position: int) -> int:
    number: int = data[position] << 24 | data[position + 1] << 16 | data[position + 2] << 8 | data[position + 3]
    return number - ((number & 0x80000000) << 1)
