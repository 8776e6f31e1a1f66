"""Requests for thousands of partitions, encoded directly to bytes.

Source: ListOffsetsRequest.json and DescribeProducersRequest.json among the messages of Kafka's clients; KIP-482
(flexible versions). Tagged fields are left out everywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache

Partitions = Mapping[str, Sequence[int]]
"""Topic to partition numbers."""

LISTED = struct.Struct(">iiqx")
NO_TAGS = b"\0"


def list_offsets(
    partitions: Partitions, *, version: int, replica_id: int, isolation_level: int, timestamp: int, timeout_ms: int
) -> bytes:
    """Body of ListOffsets, version 6 or newer."""
    listed = LISTED.pack

    def offsets(numbers: Sequence[int]) -> bytes:
        return b"".join([listed(number, -1, timestamp) for number in numbers])

    timeout = struct.pack(">i", timeout_ms) if version >= 10 else b""
    return struct.pack(">ib", replica_id, isolation_level) + _topics(partitions, offsets) + timeout + NO_TAGS


def describe_producers(partitions: Partitions) -> bytes:
    """Body of DescribeProducers."""
    return _topics(partitions, lambda numbers: struct.pack(f">{len(numbers)}i", *numbers)) + NO_TAGS


def _topics(partitions: Partitions, encoded: Callable[[Sequence[int]], bytes]) -> bytes:
    parts = [_length(len(partitions))]
    for name, numbers in partitions.items():
        text = name.encode()
        parts += (_length(len(text)), text, _length(len(numbers)), encoded(numbers), NO_TAGS)
    return b"".join(parts)


@cache
def _length(number: int) -> bytes:
    """Length of a compact array or text."""
    number += 1
    if number < 0x80:
        return number.to_bytes(1, "big")
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
