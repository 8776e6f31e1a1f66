"""Record batches, format v2: the header of each, and an uncompressed writer.

Sources: ``DefaultRecordBatch`` and ``DefaultRecord`` in Kafka's clients; KIP-98 (format v2), KIP-534 (delete horizon).
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from toolkit.errors import DecodeError, UsageError
from toolkit.formats.primitives import known
from toolkit.schema.coerce import in_utc
from toolkit.schema.table import EPOCH

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size  # 61 bytes
LENGTH_END = 12  # batch_length counts the bytes after itself
MAGIC_AT = 16  # in every format: offset, length, leader epoch or CRC
CRC_END = 21  # the CRC covers the bytes after it

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40  # bits of attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """The 61 bytes before the records of a batch; missing fields are ``None``, never -1."""

    base_offset: int
    batch_length: int  # bytes after this field
    partition_leader_epoch: int | None
    magic: int
    crc: int  # CRC32C of everything from attributes on
    attributes: int
    last_offset_delta: int
    base_timestamp: int | None  # ms; with has_delete_horizon, when the cleaner may drop the batch
    max_timestamp: int | None  # ms
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    record_count: int  # after compaction, fewer than the offsets

    @property
    def size(self) -> int:
        """Bytes of the complete batch."""
        return LENGTH_END + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record as written, even if compaction removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction, as data or as marker."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a marker (COMMIT, ABORT)."""
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether ``base_timestamp`` is a delete horizon instead of a record's time (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def timestamp_type(self) -> str:
        """``"LogAppendTime"`` (the broker's clock) or ``"CreateTime"`` (the producer's)."""
        return "LogAppendTime" if self.attributes & LOG_APPEND_TIME else "CreateTime"

    @property
    def compression(self) -> str:
        """``none``, ``gzip``, ``snappy``, ``lz4``, ``zstd``, or ``unknown (5)`` and up."""
        codec = self.attributes & 0x07
        return CODECS[codec] if codec < len(CODECS) else f"unknown ({codec})"


def read_header(buf: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Read the batch header at a position; neither the records nor the CRC are checked.

    `buf`: bytes of a log segment or of a fetch response.
    Raises DecodeError if the bytes end within the header, are contradictory, or of an older or unknown format (magic
    other than 2). The caller must check that the batch is complete (``size``).
    """
    left = max(len(buf) - position, 0) if position >= 0 else 0
    magic = buf[position + MAGIC_AT] if left > MAGIC_AT else 2
    if magic != 2:
        old = magic in {0, 1}
        raise DecodeError(
            f"The batch at byte {position} has magic {magic}; format v2 has 2.",
            position=position,
            means="Messages written before Kafka 0.11 carry no transactions." if old else "This is no record batch.",
        )
    if left < HEADER_SIZE:
        raise DecodeError(
            f"The batch header at byte {position} ends early: {left} of {HEADER_SIZE} bytes are there.",
            position=position,
            means="A tail still being written, or a fetch response cut at its size limit, looks like this.",
        )
    fields = HEADER.unpack_from(buf, position)
    offset, length, leader_epoch, _, crc, attributes, delta, base_time, max_time, pid, epoch, sequence, count = fields
    smallest = HEADER_SIZE - LENGTH_END  # without records, which compaction may remove
    if offset < 0 or length < smallest or delta < 0 or count < 0 or (count == 0 and length > smallest):
        raise DecodeError(
            f"The batch header at byte {position} contradicts itself: base offset {offset}, length {length}, "
            f"last offset delta {delta}, {count} records.",
            position=position,
            means="The bytes are damaged, or no batch starts here.",
        )
    return BatchHeader(
        base_offset=offset,
        batch_length=length,
        partition_leader_epoch=known(leader_epoch),
        magic=magic,
        crc=crc,
        attributes=attributes,
        last_offset_delta=delta,
        base_timestamp=known(base_time),
        max_timestamp=known(max_time),
        producer_id=known(pid),
        producer_epoch=known(epoch),
        base_sequence=known(sequence),
        record_count=count,
    )


def write_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    *,
    timestamp: dt.datetime,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    base_offset: int = 0,
) -> bytes:
    """Write an uncompressed record batch, ready for Produce.

    `records`: (key, value) of each; ``None`` is null.
    `timestamp`: create time of every record, with its time zone; precise to the millisecond.
    `producer_id`, `producer_epoch`, `base_sequence`: as assigned by the broker; -1 for a batch that is not idempotent.
    `is_transactional`: whether the batch is part of a transaction.
    `base_offset`: offset of the first record; a broker assigns its own.
    Raises UsageError: without records, or for a time without its zone.
    """
    from google_crc32c import value as crc32c

    if not records:
        raise UsageError("A batch needs at least one record.")
    milliseconds = (in_utc(timestamp) - EPOCH) // dt.timedelta(milliseconds=1)
    body = b"".join(_record(delta, key, value) for delta, (key, value) in enumerate(records))
    header = HEADER.pack(
        base_offset,
        HEADER_SIZE - LENGTH_END + len(body),
        -1,  # partition leader epoch, set by the broker
        2,
        0,
        TRANSACTIONAL if is_transactional else 0,
        len(records) - 1,
        milliseconds,
        milliseconds,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    covered = header[CRC_END:] + body
    crc: int = crc32c(covered)
    return header[: CRC_END - 4] + crc.to_bytes(4, "big") + covered


def _record(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """Length, attributes, timestamp delta, offset delta, key, value, no headers (``DefaultRecord``)."""
    body = b"\0" + _varint(0) + _varint(offset_delta) + _nullable(key) + _nullable(value) + _varint(0)
    return _varint(len(body)) + body


def _nullable(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """Zigzag varint (``ByteUtils.writeVarint``)."""
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def read_varint(data: bytes, at: int, bits: int = 35) -> tuple[int, int]:
    """A zigzag varint of at most so many bits, seven in a byte, and where it ends (``ByteUtils.readVarlong``).

    Raises ValueError or IndexError if it is longer, or the bytes end within it.
    """
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
            raise ValueError(f"a varint is longer than {bits // 7} bytes")
    return (number >> 1) ^ -(number & 1), at
