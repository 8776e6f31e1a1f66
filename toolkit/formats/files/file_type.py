"""What bytes are that are no record batch, in words."""

from __future__ import annotations

from toolkit.formats.log.batches import MAGIC_AT

__all__ = ["complaint", "kind_of_file"]

SIGNATURES = (
    (b"\x1f\x8b", "gzip", "Unpack it first."),
    (b"\x28\xb5\x2f\xfd", "zstd", "Unpack it first."),
    (b"\x04\x22\x4d\x18", "lz4", "Unpack it first."),
    (b"BZh", "bzip2", "Unpack it first."),
    (b"\xfd7zXZ\0", "xz", "Unpack it first."),
    (b"PK\x03\x04", "zip", "Unpack it first."),
    (b"PAR1", "Parquet", "Give the log files it was made from."),
    (b"\x7fELF", "a program", ""),
)
TEXT = bytes({*range(0x20, 0x7F), *range(0x80, 0x100), *b"\t\n\r\f\x1b"})


def kind_of_file(start: bytes) -> str:
    """A sentence on what a file is that begins so; empty if it could be a segment."""
    for signature, name, advice in SIGNATURES:
        if start.startswith(signature):
            return f"this is {name}. {advice}".strip()
    if start and not start.strip(TEXT) and len(start) > MAGIC_AT:
        return "this is text. If kafka-dump-log.sh printed it, read it as a dump."
    return ""


def complaint(head: bytes) -> str:
    """What is wrong with a header that is there but cannot be read."""
    magic, length = head[MAGIC_AT], int.from_bytes(head[8:12], signed=True)
    if magic > 2:
        return f"magic {magic} is not known"
    if head[0] >= 0x80:
        return "its base offset is negative"
    if length < 14:
        return f"its length is {length:,}"
    return "its fields contradict each other"
