"""Locate keys and producer ids in records of ``__transaction_state`` without decoding them: millions a second.

Source: ``TransactionLogKey`` and ``TransactionLogValue`` (versions 0 and 1), one uncompressed record per batch, as
``TransactionStateManager`` writes them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from toolkit.formats.jit import compiled
from toolkit.formats.log.batch_positions import batch_loops
from toolkit.formats.log.batches import HEADER_SIZE

FIELDS = 5
"""Columns that `locate` returns: start and end of the key, producer id, previous and next producer id; -1 for none."""


def locate(buf: bytes, positions: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Key and producer ids of the only record of each batch.

    Parameters
    ----------
    buf
        Bytes with the batches.
    positions, ends
        Where each batch starts and ends in the bytes; all of magic 2 with one uncompressed record.

    Returns
    -------
    numpy.ndarray
        One row per batch with `FIELDS` columns; the start of the key is 0 if the record has an unknown form.
    """
    found = np.full((len(positions), FIELDS), -1, np.int64)
    if batch_loops(len(buf)).is_jitted:
        _jitted()(np.frombuffer(buf, np.uint8), positions, ends, found)
    else:
        _locate(memoryview(buf), positions.tolist(), ends.tolist(), found)
    return found


@functools.cache
def _jitted() -> Callable[..., None]:
    numbers = np.empty(0, np.int64)
    example = (np.empty(0, np.uint8), numbers, numbers, np.empty((0, FIELDS), np.int64))
    return compiled(_locate, example=example, helpers=HELPERS)  # type: ignore[no-any-return]


def _locate(data: Any, positions: Any, ends: Any, found: Any) -> None:
    for i in range(len(positions)):
        end = ends[i]
        found[i, 0] = 0
        _, at = _varint(data, positions[i] + HEADER_SIZE, end)  # size of the record
        _, at = _varint(data, at + 1, end)  # after its attributes: the timestamp
        _, at = _varint(data, at, end)  # the offset
        key_size, at = _varint(data, at, end)
        key, value_at = at, at + _zigzag(key_size)
        if at < 0 or _zigzag(key_size) < 4 or value_at >= end:
            continue
        value_size, at = _varint(data, value_at, end)
        if at < 0 or at + _zigzag(value_size) > end:
            continue
        if _zigzag(value_size) >= 0:
            stop = at + _zigzag(value_size)
            if stop - at < 17 or data[at] != 0 or data[at + 1] > 1:
                continue
            found[i, 2] = _int64(data, at + 2)
            if data[at + 1] == 1 and not _tagged_producer_ids(data, at + 17, stop, found, i):
                continue
        found[i, 0], found[i, 1] = key, value_at


def _tagged_producer_ids(data: Any, at: int, end: int, found: Any, i: int) -> bool:
    """Find previous and next producer id, after the partitions and two times; false if the form is unknown."""
    topics, at = _varint(data, at, end)
    for _ in range(topics - 1):
        size, at = _varint(data, at, end)
        count, at = _varint(data, at + size - 1, end)
        at = _pass_over_tags(data, at + 4 * (count - 1), end)
        if at < 0 or size < 1 or count < 1:
            return False
    count, at = _varint(data, at + 16, end)
    for _ in range(count):
        tag, at = _varint(data, at, end)
        size, at = _varint(data, at, end)
        if at < 0 or at + size > end:
            return False
        if tag < 2 and size == 8:
            found[i, 3 + tag] = _int64(data, at)
        at += size
    return bool(at == end)


def _pass_over_tags(data: Any, at: int, end: int) -> int:
    """Where tagged fields end; -1 if they do not."""
    count, at = _varint(data, at, end)
    for _ in range(count):
        _, at = _varint(data, at, end)
        size, at = _varint(data, at, end)
        at = at + size if 0 <= at <= end - size else -1
    return at


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    """An unsigned varint and its end; 0 and a very low position if it does not end."""
    number, shift = 0, 0
    while 0 <= at < end and shift < 63:
        byte = int(data[at])
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
    return 0, -(1 << 62)


def _zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _int64(data: Any, at: int) -> int:
    """A producer id; -1 for any negative one."""
    if data[at] >= 0x80:
        return -1
    number = 0
    for i in range(8):
        number = (number << 8) | int(data[at + i])
    return number


HELPERS = (_varint, _zigzag, _int64, _pass_over_tags, _tagged_producer_ids)
