"""The type of a file by its first bytes, and why a header is no record batch."""

from __future__ import annotations

import re
from pathlib import Path

from toolkit.formats.log.batches import HEADER_SIZE, LENGTH_END, MAGIC_AT

SEGMENT, DUMP = "segment", "dump"
HEAD_BYTES = 1 << 16  # a dump may begin with warnings of the JVM and of Kafka's logger
SIGNATURES = (
    (b"\x1f\x8b", "gzip", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "zstd", "Unpack it first."),
    (b"\x04\x22\x4d\x18", "lz4", "Unpack it first."),
    (b"BZh", "bzip2", "Unpack it first."),
    (b"\xfd7zXZ\0", "xz", "Unpack it first."),
    (b"PK\x03\x04", "zip", "Unpack it first."),
    (b"PAR1", "Parquet", "Pass the log files that it was made from."),
    (b"\x7fELF", "a program", ""),
)
TEXT = bytes({*range(0x20, 0x7F), *range(0x80, 0x100), *b"\t\n\r\f\x1b"})
DUMP_LINE = re.compile(  # the first line of every dump, and the lines of an excerpt
    rb"^(?:Dumping \S|Starting offset: |Log starting offset: |Snapshot end offset: |baseOffset: |offset: |\| offset: "
    rb"|producerId: )",
    re.MULTILINE,
)


def file_type(path: Path) -> str:
    """`SEGMENT`, `DUMP` (output of kafka-dump-log.sh), a sentence about another type, or ``""`` if it is unknown."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return ""
    packed = any(head.startswith(signature) for signature, _, _ in SIGNATURES)
    if not packed and DUMP_LINE.search(head):
        return DUMP
    if other := other_type(head):
        return f"T{other[1:]}"
    offset, length = int.from_bytes(head[:8], signed=True), int.from_bytes(head[8:LENGTH_END], signed=True)
    is_batch = len(head) >= HEADER_SIZE and offset >= 0 and length > 0 and head[MAGIC_AT] in {0, 1, 2}
    return SEGMENT if is_batch else ""


def other_type(head: bytes) -> str:
    """A sentence about a file that begins with these bytes; empty if it could be a segment."""
    for signature, name, advice in SIGNATURES:
        if head.startswith(signature):
            return f"this is {name}. {advice}".strip()
    if head and not head.strip(TEXT) and len(head) > MAGIC_AT:
        return "this is text. If kafka-dump-log.sh printed it, read it as a dump."
    return ""


def header_error(head: bytes) -> str:
    """Why a complete header cannot be read."""
    magic, length = head[MAGIC_AT], int.from_bytes(head[8:LENGTH_END], signed=True)
    if magic > 2:
        return f"magic {magic} is not known"
    if head[0] >= 0x80:
        return "its base offset is negative"
    if length < 14:
        return f"its length is {length:,}"
    return "its fields contradict each other"
