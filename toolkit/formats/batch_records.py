"""Records of a batch of format v2: offset, time, key, value and headers, decompressed within a limit.

Sources: ``DefaultRecordBatch``, ``DefaultRecord``, ``ByteUtils`` (varints), ``Compression`` and ``CompressionType`` in
Kafka's clients; the framing of ``SnappyOutputStream`` in snappy-java, which Java writes and librdkafka does not.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from google_crc32c import value as crc32c

from toolkit.errors import DecodeError
from toolkit.formats.batches import CONTROL, CRC_END, HEADER_SIZE, BatchHeader, Buffer, read_header, read_varint
from toolkit.formats.headers import Array, Headers
from toolkit.schema.log import MetadataLogRecord, OffsetsLogRecord, TransactionLogRecord

R = TypeVar("R", TransactionLogRecord, OffsetsLogRecord, MetadataLogRecord)
LIMIT_OF_DECODED = 32 * 1024 * 1024  # bytes of a batch of Kafka's own records: some kilobytes, rarely a megabyte
LIMIT = 128 * 1024 * 1024
"""Bytes that the records of one batch may take; ``max.message.bytes`` is 1 MiB by default, before compression."""


FRAMED_SNAPPY = b"\x82SNAPPY\0"  # then two version numbers of four bytes, then blocks of length and raw snappy
FRAMED_SNAPPY_HEADER = len(FRAMED_SNAPPY) + 8
FIRST_GUESS = 16  # times the compressed size; a buffer that is too small is made larger and filled anew
SMALLEST_BUFFER = 65_536
GZIP = 16 + zlib.MAX_WBITS  # zlib: with a gzip header and trailer


class Record(NamedTuple):
    """A record of a batch."""

    offset: int
    timestamp_ms: int | None  # by the producer's clock; under LogAppendTime by the broker's, the same for the batch
    key: bytes | None
    value: bytes | None  # null in a tombstone
    headers: tuple[tuple[bytes, bytes | None], ...] = ()  # in their order; empty if they were not requested


def read_records(
    buf: Buffer, position: int = 0, *, header: BatchHeader | None = None, limit: int = LIMIT, with_headers: bool = False
) -> Iterator[Record]:
    """The records of the batch at a position, decompressed.

    The CRC is not checked. A control batch yields its control record.

    `buf`: bytes of a log segment or of a fetch response.
    `header`: the header of that batch, if it was read.
    `limit`: maximum bytes of its records, compressed or not.
    `with_headers`: keep the records' headers; few need them.
    Raises DecodeError: immediately if there is no complete batch at the position or it cannot be decompressed; during
    iteration if a record is damaged. The position is that of the record, or of the batch if it is compressed.
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
    data = decompress(header.compression, stored, limit=limit, position=position)
    return _records(header, data, position, with_headers=with_headers)


def _records(header: BatchHeader, data: bytes, position: int, *, with_headers: bool) -> Iterator[Record]:
    base_timestamp = -1 if header.base_timestamp is None else header.base_timestamp
    appended = header.max_timestamp if header.timestamp_type == "LogAppendTime" else None
    at = 0
    deltas = range(header.last_offset_delta + 1)  # possible values for the next record
    for _ in range(header.record_count):
        start = at
        try:
            timestamp_delta, offset_delta, key, value, header_start, at = _read_record(data, start, deltas)
        except (IndexError, ValueError) as exc:
            why = "the batch ends within it" if isinstance(exc, IndexError) else exc
            raise _damaged(header, position, start, f"a record is malformed: {why}") from None
        deltas = range(offset_delta + 1, deltas.stop)
        timestamp = base_timestamp + timestamp_delta if appended is None else appended
        headers = tuple(_read_headers(data, header_start, at)) if with_headers else ()
        yield Record(header.base_offset + offset_delta, None if timestamp == -1 else timestamp, key, value, headers)
    if at != len(data):
        raise _damaged(
            header, position, at, f"{len(data) - at} bytes are left over after {header.record_count} records"
        )


def _read_record(data: bytes, at: int, deltas: range) -> tuple[int, int, bytes | None, bytes | None, int, int]:
    """Timestamp delta, offset delta, key, value, where the headers start and where the next record does."""
    size, at = read_varint(data, at)
    end = at + size
    if size < 0 or end > len(data):
        raise ValueError(f"its size is {size}, and {len(data) - at} bytes are left")
    timestamp_delta, at = read_varint(data, at + 1, 70)  # one byte of attributes, all unused
    offset_delta, at = read_varint(data, at)
    if offset_delta not in deltas:
        raise ValueError(f"its offset delta is {offset_delta}, outside {deltas.start} to {deltas.stop - 1}")
    key, at = _bytes(data, at, end)
    value, at = _bytes(data, at, end)
    header_start = at
    headers, at = read_varint(data, at)
    if headers:
        at = _pass_over_headers(data, at, end, headers)
    if at != end:
        raise ValueError(f"its size is {size}, and its fields take {size + at - end}")
    return timestamp_delta, offset_delta, key, value, header_start, at


def _read_headers(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Key and value of each header of a record that was checked."""
    count, at = read_varint(data, at)
    for _ in range(count):
        key, at = _bytes(data, at, end)
        value, at = _bytes(data, at, end)
        yield key or b"", value


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    if size < 0:
        if size == -1:
            return None, at
        raise ValueError(f"a length is {size}")
    if at + size > end:
        raise ValueError(f"{size} bytes of it reach past its end")
    return data[at : at + size], at + size


def _pass_over_headers(data: bytes, at: int, end: int, count: int) -> int:
    if count < 0:
        raise ValueError(f"it has {count} headers")
    for _ in range(count):
        key, at = _bytes(data, at, end)
        if key is None:
            raise ValueError("the key of a header is null")
        _, at = _bytes(data, at, end)
    return at


def _damaged(header: BatchHeader, position: int, at: int, why: str) -> DecodeError:
    compressed = header.compression != "none"
    where = f"byte {at} of its records, decompressed" if compressed else f"its byte {HEADER_SIZE + at}"
    return DecodeError(
        f"The batch at offset {header.base_offset} is damaged: at {where}, {why}.",
        position=position if compressed else position + HEADER_SIZE + at,
        means="The bytes are damaged, or were never a batch.",
    )


def decompress(codec: str, data: Buffer, *, limit: int, position: int = 0) -> bytes:
    """Decompress the records of a batch.

    `codec`: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``, as `BatchHeader.compression` has it.
    `data`: everything of the batch after its header.
    `limit`: maximum size of the result, so that a few bytes that claim to be gigabytes take no memory.
    `position`: where the batch starts; for the error only.
    Raises DecodeError if the codec is unknown, the bytes are damaged or end early, or the result would exceed
    ``limit``.
    """
    found: bytes | None = None
    if codec == "none":
        found = bytes(data)
    elif len(data) <= limit:
        if codec not in CODECS:
            raise DecodeError(
                f"The compression of the batch at byte {position} is {codec}.",
                position=position,
                means="A newer Kafka wrote it, or the bytes are damaged; gzip, snappy, lz4 and zstd are known here.",
            )
        from cramjam import DecompressionError

        try:
            found = CODECS[codec](bytes(data), limit)
        except (DecompressionError, zlib.error, EOFError) as exc:
            raise DecodeError(
                f"The {codec} bytes of the batch at byte {position} cannot be decompressed: {exc}.",
                position=position,
                means="The bytes are damaged or end early.",
            ) from None
    if found is None or len(found) > limit:
        raise DecodeError(
            f"The records of the batch at byte {position} take more than {limit} bytes.",
            position=position,
            means="The bytes are damaged, or made to exhaust memory; Kafka's own batches are far smaller.",
            do="Raise the limit if such batches are yours.",
        )
    return found


def _gzip(data: bytes, limit: int) -> bytes | None:
    member = zlib.decompressobj(GZIP)
    out = member.decompress(data, limit + 1)
    if len(out) > limit:
        return None
    if not member.eof or member.unused_data:
        raise EOFError("bytes follow after the end" if member.eof else "they end early")
    return out


def _snappy(data: bytes, limit: int) -> bytes | None:
    if not data.startswith(FRAMED_SNAPPY):
        return _raw_snappy(data, limit)
    if len(data) < FRAMED_SNAPPY_HEADER:
        raise EOFError("they end early")
    out = bytearray()
    at = FRAMED_SNAPPY_HEADER
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            raise EOFError("a block runs past the end")
        block = _raw_snappy(data[at + 4 : end], limit - len(out))
        if block is None:
            return None
        out += block
        at = end
    return bytes(out)


def _raw_snappy(data: bytes, limit: int) -> bytes | None:
    from cramjam import snappy

    if snappy.decompress_raw_len(data) > limit:  # the block states it, and cannot exceed it
        return None
    return bytes(snappy.decompress_raw(data))


def _into_a_buffer(name: str, data: bytes, limit: int) -> bytes | None:
    """Decompress into a buffer of fixed size, which nothing in the bytes can make grow."""
    import cramjam

    codec = getattr(cramjam, name)
    size = min(max(FIRST_GUESS * len(data), SMALLEST_BUFFER), limit)
    while True:
        buffer = bytearray(size)
        try:
            return bytes(memoryview(buffer)[: codec.decompress_into(data, buffer)])
        except cramjam.DecompressionError as exc:
            if "whole buffer" not in str(exc):
                raise
        if size == limit:
            return None
        size = min(4 * size, limit)


CODECS: dict[str, Callable[[bytes, int], bytes | None]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": partial(_into_a_buffer, "lz4"),
    "zstd": partial(_into_a_buffer, "zstd"),
}


def partial_batches(headers: Headers) -> Array:
    """Indices of the data batches with fewer records than offsets; batches without records need not be read."""
    offsets = headers["last_offset"] - headers["base_offset"] + 1
    count = headers["record_count"]
    is_data = (headers["attributes"] & CONTROL == 0) & (headers["magic"] >= 2)
    return np.flatnonzero(is_data & (count > 0) & (count < offsets))


def decode_batch(
    buf: Buffer, position: int, where: R, begin: int | None, decode: Callable[[Record, BatchHeader, R, int | None], R]
) -> Iterator[R]:
    """The decoded records of one batch of an internal topic, and what could not be read; none of a control batch.

    One with ``error`` stands for a batch or its unreadable rest (``CORRUPT_BATCH``). A batch whose checksum is wrong
    yields none of its records, which may be none that Kafka wrote.

    `buf`, `position`: bytes, and where the batch starts in them.
    `where`: a record of its table with only the columns that say where the bytes are from.
    `begin`: where they begin in their file; null if they are of none.
    `decode`: makes the result of a record, of `where` and the position of its batch in the file.
    """
    offset = None
    in_file = None if begin is None else begin + position
    try:
        header = read_header(buf, position)
        offset = header.base_offset
        records = read_records(buf, position, header=header, limit=LIMIT_OF_DECODED)
        if crc32c(bytes(buf[position + CRC_END : position + header.size])) != header.crc:
            damage = DecodeError(
                f"The checksum of the batch at offset {header.base_offset} does not match its bytes.",
                position=position,
                means="The bytes are damaged, or were changed after they were written.",
            )
            yield replace(where, offset=offset, position=in_file, error=f"CORRUPT_BATCH: {damage}")
            return
        if header.is_control:  # these bits are covered by the checksum
            return
        for record in records:
            yield decode(record, header, where, in_file)
            offset = record.offset + 1
    except DecodeError as exc:
        yield replace(where, offset=offset, position=in_file, error=f"CORRUPT_BATCH: {exc}")
