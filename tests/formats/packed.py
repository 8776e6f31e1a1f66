"""Batches of format v2 as `DefaultRecordBatch` lays them out, compressed too; a second hand beside the reader's."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence

import cramjam
from google_crc32c import value as crc32c

from toolkit.formats.batch_records import Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
HEADER_SIZE = 61

Headers = Sequence[tuple[bytes, bytes | None]]


def pack_batch(
    records: Sequence[Record],
    *,
    codec: str = "none",
    attributes: int = 0,
    headers: Headers = (),
    base_timestamp: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytes:
    """A batch of these records, each with the same headers; the base timestamp is that of the first by default."""
    base_offset = records[0].offset
    first = base_timestamp if base_timestamp is not None else raw(records[0].timestamp_ms)
    newest = max(raw(record.timestamp_ms) for record in records)
    body = compress(codec, b"".join(_record(record, base_offset, first, headers) for record in records))
    covered = struct.pack(
        ">hiqqqhii",
        attributes | CODECS.index(codec),
        records[-1].offset - base_offset,
        first,
        newest,
        producer_id,
        producer_epoch,
        -1,
        len(records),
    )
    return seal(struct.pack(">qiibI", base_offset, 49 + len(body), 7, 2, 0) + covered + body)


def seal(batch: bytes) -> bytes:
    """The batch with the checksum that its bytes have."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def compress(codec: str, data: bytes) -> bytes:
    """As Java writes it; `snappy_blocks` without its framing is what librdkafka writes."""
    match codec:
        case "gzip":
            return gzip.compress(data)
        case "snappy":
            return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + snappy_blocks(data)
        case "lz4":
            return bytes(cramjam.lz4.compress(data))
        case "zstd":
            return bytes(cramjam.zstd.compress(data))
    return data


def snappy_blocks(data: bytes, size: int = 32_768) -> bytes:
    blocks = [bytes(cramjam.snappy.compress_raw(data[at : at + size])) for at in range(0, len(data), size)]
    return b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def varint(number: int) -> bytes:
    """Zigzag, seven bits in a byte, the lowest first."""
    return unsigned_varint(number * 2 if number >= 0 else -number * 2 - 1)


def unsigned_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def raw(number: int | None) -> int:
    return -1 if number is None else number


def _record(record: Record, base_offset: int, base_timestamp: int, headers: Headers) -> bytes:
    body = b"\0" + varint(raw(record.timestamp_ms) - base_timestamp) + varint(record.offset - base_offset)
    body += _bytes(record.key) + _bytes(record.value) + varint(len(headers))
    body += b"".join(_bytes(key) + _bytes(value) for key, value in headers)
    return varint(len(body)) + body


def _bytes(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data
