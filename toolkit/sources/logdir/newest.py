"""The newest record of each key in a compacted log, found by reading keys only: millions of records in seconds."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from toolkit.formats.batches import CONTROL, HEADER_SIZE
from toolkit.formats.headers import Headers
from toolkit.schema import Row

__all__ = ["Decode", "NewestRecords"]

Decode = Callable[[bytes, int, int, str], Iterator[Row]]
Array = npt.NDArray[Any]

HEAD = 16  # bytes of a record, at most, before its key
CODEC = 0x07


class NewestRecords:
    """Follows the batches of ``__transaction_state`` in the order of the log.

    A coordinator writes one record a batch, and never compresses them: of those only the key is read. Any other batch,
    and one whose checksum is wrong, is decoded as it comes.

    Parameters
    ----------
    decode
        From bytes, the position of a batch in them, its position in the file, and the file, to rows of
        ``schema.COORDINATOR_EVENTS``.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._last: dict[bytes, tuple[str, int, int] | Row] = {}
        self._errors: list[Row] = []

    def add(self, headers: Headers, buf: bytes, file: str) -> None:
        """The next batches: they lie in `buf`, from the first one's position in the file on."""
        headers = headers[headers["attributes"] & CONTROL == 0]
        if not len(headers):
            return
        begin = int(headers["position"][0])
        starts, ends = _keys(headers, np.frombuffer(buf, np.uint8), begin)
        positions, sizes = headers["position"].tolist(), headers["size"].tolist()
        last = self._last
        for start, end, position, size in zip(starts.tolist(), ends.tolist(), positions, sizes, strict=True):
            if start:
                last[buf[start:end]] = (file, position, size)
            else:
                self._take(self._decode(buf, position - begin, position, file))

    def rows(self) -> Iterator[Row]:
        """The newest record of each id, decoded, and what could not be read."""
        yield from self._errors
        by_file: dict[str, list[tuple[int, int]]] = {}
        for where in self._last.values():
            if isinstance(where, tuple):
                by_file.setdefault(where[0], []).append(where[1:])
            else:
                yield where
        for file, places in by_file.items():
            with open(file, "rb") as segment:
                for position, size in sorted(places):
                    segment.seek(position)
                    yield from self._decode(segment.read(size), 0, position, file)

    def _take(self, rows: Iterator[Row]) -> None:
        for row in rows:
            if row["transactional_id"] is None:
                self._errors.append(row)
            else:
                name = row["transactional_id"].encode()
                self._last[struct.pack(">hh", 0, len(name)) + name] = row


def _keys(headers: Headers, data: Array, begin: int) -> tuple[Array, Array]:
    """Where the key of each batch's only record starts and ends in the bytes; start 0 where there is more to it."""
    records = headers["position"] - begin + HEADER_SIZE
    ends = records - HEADER_SIZE + headers["size"]
    plain = (headers["record_count"] == 1) & (headers["attributes"] & CODEC == 0) & (headers["magic"] == 2)
    plain &= (headers["crc_ok"] == 1) & (headers["size"] > HEADER_SIZE + HEAD) & (ends <= len(data))
    heads = data[np.where(plain, records, 0)[:, None] + np.arange(min(HEAD, len(data)))]
    at = np.zeros(len(headers), np.int64)
    sound = plain
    for step in ("size", "attributes", "timestamp", "offset", "key"):
        value, after, ended = _varint(heads, at)
        at = at + 1 if step == "attributes" else after
        sound = sound & ended
    starts = records + at
    sound &= (value > 0) & (starts + value <= ends)
    return np.where(sound, starts, 0), starts + value


def _varint(heads: Array, at: Array) -> tuple[Array, Array, Array]:
    """The zigzag varints that stand at an index of each row, where they end, and whether they do within four bytes."""
    rows, width = np.arange(len(heads)), heads.shape[1]
    number = np.zeros(len(heads), np.int64)
    going, after = np.ones(len(heads), np.bool_), at.copy()
    for shift in range(0, 28, 7):
        byte = heads[rows, np.minimum(after, width - 1)].astype(np.int64)
        number |= np.where(going, (byte & 0x7F) << shift, 0)
        after = after + going
        going &= byte >= 0x80
    return (number >> 1) ^ -(number & 1), after, ~going & (after < width)
