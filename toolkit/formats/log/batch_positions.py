"""Find record batches in bytes: where each starts, and where one could start after damage.

Each function has two forms. The plain one reads a few megabytes in less time than numba takes to import; the jitted
one, compiled on first use from the same source, reads gigabytes.

Sources: ``DefaultRecordBatch``, ``LegacyRecord`` and ``ByteBufferLogInputStream`` in Kafka's clients.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from toolkit.formats.log.batches import HEADER_SIZE, LENGTH_END, MAGIC_AT


def compiled(function: Callable[..., Any], *, example: tuple[Any, ...], helpers: tuple[Any, ...] = ()) -> Any:
    """Compile a function for arguments of the example's types; the result releases the GIL.

    Parameters
    ----------
    function
        A function that numba can compile; it is not changed.
    example
        Arguments of one call, which compiles it.
    helpers
        Functions of its module that it calls.
    """
    from numba import njit
    from numba.extending import register_jitable

    for helper in helpers:
        register_jitable(helper)
    try:
        jitted = njit(nogil=True, cache=True)(function)
        jitted(*example)
    except (
        OSError,
        RuntimeError,
    ):  # no writable folder for compiled code, neither beside the source nor in the home directory
        jitted = njit(nogil=True)(function)
        jitted(*example)
    return jitted


MESSAGE_SIZE = 26  # of the smallest message of magic 0; with the 8 bytes of its time, of magic 1
REACH = 1024  # maximum distance from the start of such a message to its value in a search
PLAIN_BYTES = 32_000_000  # from here on the jitted form is faster, its import included


def find_batches(data: Any, position: int, end: int, found: Any) -> tuple[int, int, bool]:
    """Find the positions of consecutive batches, while each is followed by a plausible header.

    Parameters
    ----------
    data
        Bytes: an object with integers by index.
    position
        Where to start.
    end
        Where the bytes end.
    found
        Array of int64 with room for every batch, filled from 0.

    Returns
    -------
    count, position, doubt
        Number of batches found, the position after them, and whether the batch there, or its follower, is implausible;
        if not, more bytes are needed.
    """
    count = 0
    size = readable_size(data, position, end)
    while size > 0:
        follower = position + size
        if follower + HEADER_SIZE > end:
            return count, position, False
        size = usual_size(data, follower, end)
        magic = data[position + MAGIC_AT]
        if size == 0 or (magic < 2 and not is_whole(data, position, follower - position, follower)):
            return count, position, True
        if magic == 2 and data[follower + MAGIC_AT] < 2:  # logs hardly ever return to an old format
            return count, position, True
        found[count] = position
        count += 1
        position = follower
    return count, position, size == 0


def search(data: Any, position: int, end: int, room: int) -> int:
    """Position of the first plausible header; -1 if there is none.

    A message of magic 0 or 1 is found only if its key is short: its value's size must be within `REACH`.

    Parameters
    ----------
    data, position, end
        As for `find_batches`.
    room
        Where the log ends, which may be after the bytes.
    """
    while position + MESSAGE_SIZE <= end:
        if data[position + MAGIC_AT] <= 2 and data[position] == 0:
            size = usual_size(data, position, end)
            if 0 < size <= room - position and is_whole(data, position, size, min(end, position + REACH)):
                return position
        position += 1
    return -1


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


class BatchLoops(NamedTuple):
    """The loops in one of their two forms."""

    hop: Callable[[Any, int, int, Any], tuple[int, int, bool]]
    search: Callable[[Any, int, int, int], int]
    is_jitted: bool


PLAIN = BatchLoops(find_batches, search, is_jitted=False)


def jitted_batch_loops() -> BatchLoops:
    """The compiled loops, for arrays of uint8."""
    with _compiling:
        return _jitted_batch_loops()


_compiling = threading.Lock()


@functools.cache
def _jitted_batch_loops() -> BatchLoops:
    nothing, helpers = np.empty(0, np.uint8), (readable_size, usual_size, is_whole, _message_size, _int32)
    return BatchLoops(
        hop=compiled(find_batches, example=(nothing, 0, 0, np.empty(0, np.int64)), helpers=helpers),
        search=compiled(search, example=(nothing, 0, 0, 0), helpers=helpers),
        is_jitted=True,
    )


class _PlainBytes:
    """Bytes that the plain form has read in this process."""

    total = 0


def batch_loops(size: int) -> BatchLoops:
    """The faster form for so many bytes: jitted for many at once, or after many small reads."""
    _PlainBytes.total += size
    return jitted_batch_loops() if _PlainBytes.total >= PLAIN_BYTES else PLAIN
