"""Kafka's primitive types, in responses and in the coordinators' records.

Sources: ``Type`` and ``ByteUtils`` in Kafka's clients; KIP-482 (compact types, tagged fields).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from typing import Any

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

    def items(self, form: struct.Struct, *, flexible: bool) -> Iterable[tuple[Any, ...]]:
        """An array of items of fixed size; their tagged fields are skipped."""
        count = self.length(flexible=flexible, item_size=form.size + flexible)
        if not flexible:
            return form.iter_unpack(self.take(count * form.size))
        start, size = self.position, form.size + 1
        if self.data[start + form.size : start + count * size : size].count(0) < count:
            return [self._tagged(form) for _ in range(count)]
        return _before_tags(form).iter_unpack(self.take(count * size))  # no item has any

    def _tagged(self, form: struct.Struct) -> tuple[Any, ...]:
        fields = self.fields(form)
        self.tags()
        return fields

    def tags(self, *, keep: int = 0) -> tuple[dict[int, tuple[int, bytes]], int]:
        """Tagged fields (KIP-482): position and bytes by tag, for tags below ``keep``, and the number of others."""
        tagged: dict[int, tuple[int, bytes]] = {}
        others = 0
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            position, data = self.position, self.take(size)
            if tag < keep:
                tagged[tag] = (position, data)
            else:
                others += 1
        return tagged, others

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


@cache
def _before_tags(form: struct.Struct) -> struct.Struct:
    return struct.Struct(form.format + "x")


def known(number: int) -> int | None:
    """Null for Kafka's -1."""
    return None if number == -1 else number
