"""Records inside a batch of format v2: offset, time, key and value.

Sources: ``DefaultRecordBatch`` and ``DefaultRecord`` in Kafka's clients, ``ByteUtils`` for varints.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from toolkit.errors import DecodeError
from toolkit.formats.log.batches import HEADER_SIZE, BatchHeader, read_header
from toolkit.formats.log.compression import decompress
from toolkit.formats.protocol.primitives import Buffer

__all__ = ["LIMIT", "Record", "read_records"]

LIMIT = 128 * 1024 * 1024
"""Bytes that the records of one batch may take; ``max.message.bytes`` is 1 MiB by default, before compression."""


class Record(NamedTuple):
    """A record of a batch; null is ``None``.

    Parameters
    ----------
    offset
        Offset in the partition.
    timestamp_ms
        By the producer's clock; under LogAppendTime by the broker's, the same for the whole batch.
    key, value
        As written; a value of ``None`` is a tombstone.
    """

    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None


def read_records(
    buf: Buffer, position: int = 0, *, header: BatchHeader | None = None, limit: int = LIMIT
) -> Iterator[Record]:
    """The records of the batch that starts at a position, decompressed; headers of records are passed over.

    The CRC is not checked. A control batch gives its control record.

    Parameters
    ----------
    buf
        Bytes of a log segment or of a fetch response.
    position
        Where the batch starts in them.
    header
        The header of that batch, if it has been read.
    limit
        Bytes that its records may take, compressed or not.

    Raises
    ------
    DecodeError
        At once if there is no whole batch at the position or it cannot be decompressed; while iterating if a record
        is damaged, after those before it. The position is that of the record, in a compressed batch that of the batch.
    """
    header = header or read_header(buf, position)
    end = position + header.size
    if end > len(buf):
        raise DecodeError(
            f"The batch at byte {position} ends early: {len(buf) - position} of {header.size} bytes are there.",
            position=position,
            means="A tail still being written, or a fetch response cut at its size limit, looks like this.",
        )
    stored = buf[position + HEADER_SIZE : end]
    return _records(header, decompress(header.compression, stored, limit=limit, position=position), position)


def _records(header: BatchHeader, data: bytes, position: int) -> Iterator[Record]:
    base_timestamp = -1 if header.base_timestamp is None else header.base_timestamp
    appended = header.max_timestamp if header.timestamp_type == "LogAppendTime" else None
    at = 0
    deltas = range(header.last_offset_delta + 1)  # those that are still to come
    for _ in range(header.record_count):
        start = at
        try:
            timestamp_delta, offset_delta, key, value, at = _read_record(data, start, deltas)
        except (IndexError, _Malformed) as exc:
            why = "the batch ends within it" if isinstance(exc, IndexError) else exc
            raise _damaged(header, position, start, f"a record is malformed: {why}") from None
        deltas = range(offset_delta + 1, deltas.stop)
        timestamp = base_timestamp + timestamp_delta if appended is None else appended
        yield Record(header.base_offset + offset_delta, None if timestamp == -1 else timestamp, key, value)
    if at != len(data):
        raise _damaged(
            header, position, at, f"{len(data) - at} bytes are left over after {header.record_count} records"
        )


def _read_record(data: bytes, at: int, deltas: range) -> tuple[int, int, bytes | None, bytes | None, int]:
    """Timestamp delta, offset delta, key, value and where the next record starts."""
    size, at = _varint(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise _Malformed(f"its size is {size}, and {len(data) - at} bytes are left")
    timestamp_delta, at = _varint(data, at + 1, 70)  # one byte of attributes, all unused
    offset_delta, at = _varint(data, at)
    if offset_delta not in deltas:
        raise _Malformed(f"its offset delta is {offset_delta}, outside {deltas.start} to {deltas.stop - 1}")
    key, at = _bytes(data, at, end)
    value, at = _bytes(data, at, end)
    headers, at = _varint(data, at)
    if headers:
        at = _pass_over_headers(data, at, end, headers)
    if at != end:
        raise _Malformed(f"its size is {size}, and its fields take {size + at - end}")
    return timestamp_delta, offset_delta, key, value, at


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = _varint(data, at)
    if size < 0:
        if size == -1:
            return None, at
        raise _Malformed(f"a length is {size}")
    if at + size > end:
        raise _Malformed(f"{size} bytes of it reach past its end")
    return data[at : at + size], at + size


def _pass_over_headers(data: bytes, at: int, end: int, count: int) -> int:
    if count < 0:
        raise _Malformed(f"it has {count} headers")
    for _ in range(count):
        key, at = _bytes(data, at, end)
        if key is None:
            raise _Malformed("the key of a header is null")
        _, at = _bytes(data, at, end)
    return at


def _varint(data: bytes, at: int, bits: int = 35) -> tuple[int, int]:
    """Zigzag varint of at most so many bits, seven in a byte, and where it ends."""
    number = data[at]
    at += 1
    if number >= 0x80:
        number &= 0x7F
        for shift in range(7, bits, 7):
            byte = data[at]
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise _Malformed(f"a varint is longer than {bits // 7} bytes")
    return (number >> 1) ^ -(number & 1), at


def _damaged(header: BatchHeader, position: int, at: int, why: str) -> DecodeError:
    compressed = header.compression != "none"
    where = f"byte {at} of its records, decompressed" if compressed else f"its byte {HEADER_SIZE + at}"
    return DecodeError(
        f"The batch at offset {header.base_offset} is damaged: at {where}, {why}.",
        position=position if compressed else position + HEADER_SIZE + at,
        means="The bytes are damaged, or were never a batch.",
    )


class _Malformed(Exception):
    """What is wrong with a record; where it is, only the caller knows."""
