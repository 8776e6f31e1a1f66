"""Kafka's primitive types, and the header of each record batch of format v2.

Sources: ``Type``, ``ByteUtils``, ``DefaultRecordBatch`` and ``DefaultRecord`` in Kafka's clients; KIP-482 (compact
types, tagged fields), KIP-98 (format v2), KIP-534 (delete horizon).
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple

from toolkit.errors import DecodeError

Buffer = bytes | bytearray | memoryview

INT8, INT16, INT32, INT64 = (struct.Struct(f">{form}") for form in "bhiq")


class Reader:
    """Read big-endian fields one after the other, and check every length.

    `buf`: a key or a value of a record, or a response.
    `what`: its name in errors: ``"value of a __transaction_state record"``.
    Raises DecodeError: from every method, with the byte position of the field, if the bytes end within it or it is
    invalid.
    """

    __slots__ = ("data", "position", "what")

    def __init__(self, buf: Buffer, what: str) -> None:
        self.data = bytes(buf)
        self.what = what
        self.position = 0

    def int8(self) -> int:
        return int(self.fields(INT8)[0])

    def int16(self) -> int:
        return int(self.fields(INT16)[0])

    def int32(self) -> int:
        return int(self.fields(INT32)[0])

    def int64(self) -> int:
        return int(self.fields(INT64)[0])

    def fields(self, form: struct.Struct) -> tuple[Any, ...]:
        """Several fields of fixed size at once."""
        start = self.position
        end = start + form.size
        if end > len(self.data):
            raise self._ends_early(form.size)
        self.position = end
        return form.unpack_from(self.data, start)

    def varint(self) -> int:
        """An unsigned varint of at most 32 bits in five bytes (``ByteUtils.readUnsignedVarint``)."""
        start = self.position
        number = self.data[start] if start < len(self.data) else self.take(1)[0]
        self.position = start + 1
        if number < 0x80:
            return number
        number &= 0x7F
        for shift in range(7, 35, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80 and number < 2**32:
                return number
        raise self.malformed("a varint is longer than 32 bits", start)

    def text(self, *, flexible: bool) -> str:
        """A text that must not be null."""
        start = self.position
        text = self.nullable_text(flexible=flexible)
        if text is None:
            raise self.malformed("a text that must be there is null", start)
        return text

    def nullable_text(self, *, flexible: bool) -> str | None:
        """A text, or ``None`` for null."""
        start, data = self.position, self.data
        try:
            if flexible and start < len(data) and 0 < (length := data[start]) < 0x80 and start + length <= len(data):
                self.position = start + length
                return str(data[start + 1 : start + length], "utf-8")
            size = self.varint() - 1 if flexible else self.int16()
            start = self.position
            return None if size == -1 else str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise self.malformed("a text is not UTF-8", start) from None

    def skip_text(self, *, flexible: bool) -> None:
        """Skip a nullable text."""
        size = self.varint() - 1 if flexible else self.int16()
        if size != -1:
            self.take(size)

    def skip_bytes(self, *, flexible: bool) -> None:
        """Skip nullable bytes."""
        size = self.varint() - 1 if flexible else self.int32()
        if size != -1:
            self.take(size)

    def length(self, *, flexible: bool, item_size: int, nullable: bool = False) -> int:
        """Length of an array whose items have at least `item_size` bytes; 0 for null."""
        start = self.position
        count = self.varint() - 1 if flexible else self.int32()
        if count < 0 and not nullable:
            raise self.malformed("an array that must be there is null", start)
        if count * item_size > len(self.data) - self.position:
            raise self.malformed(f"an array of {count} items does not fit into the bytes left", start)
        return count if count > 0 else 0

    def int32s(self, *, flexible: bool) -> tuple[int, ...]:
        """An array of numbers."""
        count = self.length(flexible=flexible, item_size=4)
        start = self.position
        self.position = start + 4 * count
        return _int32s(count).unpack_from(self.data, start)

    def tags(self, *, keep: int = 0) -> dict[int, tuple[int, bytes]]:
        """Tagged fields (KIP-482): position and bytes by tag, for tags below ``keep``; others are of a newer Kafka."""
        tagged: dict[int, tuple[int, bytes]] = {}
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            position, data = self.position, self.take(size)
            if tag < keep:
                tagged[tag] = (position, data)
        return tagged

    def end(self) -> None:
        """Check that no bytes are left."""
        if self.position != len(self.data):
            raise self.malformed(f"{len(self.data) - self.position} bytes are left over", self.position)

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        start = self.position
        end = start + size
        if size < 0:
            raise self.malformed(f"a length is {size}", start)
        if end > len(self.data):
            raise self._ends_early(size)
        self.position = end
        return self.data[start:end]

    def _ends_early(self, size: int) -> DecodeError:
        left = len(self.data) - self.position
        return self.malformed(f"it ends early, {size} bytes are needed and {left} left", self.position)

    def malformed(self, why: str, position: int) -> DecodeError:
        """The error of a field that is invalid, at a byte position."""
        return DecodeError(
            f"The {self.what} is malformed at byte {position}: {why}.",
            position=position,
            means="The bytes are damaged, or of another type.",
        )


@cache
def _int32s(count: int) -> struct.Struct:
    return struct.Struct(f">{count}i")


def known(number: int) -> int | None:
    """Null for Kafka's -1."""
    return None if number == -1 else number


HEADER = struct.Struct(">qiibIHiqqqhii")
HEADER_SIZE = HEADER.size  # 61 bytes
LENGTH_END = 12  # batch_length counts the bytes after itself
MAGIC_AT = 16  # in every format: offset, length, leader epoch or CRC
CRC_END = 21  # the CRC covers the bytes after it

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40  # bits of attributes


class BatchHeader(NamedTuple):
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
    offset, length, _, _, _, _, delta, *_, count = fields
    smallest = HEADER_SIZE - LENGTH_END  # without records, which compaction may remove
    if offset < 0 or length < smallest or delta < 0 or count < 0 or (count == 0 and length > smallest):
        raise DecodeError(
            f"The batch header at byte {position} contradicts itself: base offset {offset}, length {length}, "
            f"last offset delta {delta}, {count} records.",
            position=position,
            means="The bytes are damaged, or no batch starts here.",
        )
    return BatchHeader._make(map(known, fields))


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
