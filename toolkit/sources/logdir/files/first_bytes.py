"""The type of a file by its first bytes, for files whose name does not show it."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["SEGMENT", "TEXT", "kind_of"]

SEGMENT, TEXT = "segment", "text"
HEAD_BYTES = 1 << 16  # a text may begin with warnings of the JVM and of Kafka's logger
FIRST_BATCH = 61  # bytes of a batch header

PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
DUMPED = re.compile(  # the first line of every dump, and the lines of an excerpt
    rb"^(?:Dumping \S|Starting offset: |Log starting offset: |Snapshot end offset: |baseOffset: |offset: |\| offset: "
    rb"|producerId: )",
    re.MULTILINE,
)


def kind_of(path: Path) -> str | None:
    """`SEGMENT`, `TEXT` (of kafka-dump-log.sh), a sentence about a compressed file, or null."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return None
    for magic, name in PACKED.items():
        if head.startswith(magic):
            return f"It is compressed ({name}): unpack it first."
    if DUMPED.search(head):
        return TEXT
    return SEGMENT if _begins_with_a_batch(head) else None


def _begins_with_a_batch(head: bytes) -> bool:
    if len(head) < FIRST_BATCH:
        return False
    offset, length = int.from_bytes(head[:8], "big", signed=True), int.from_bytes(head[8:12], "big", signed=True)
    return offset >= 0 and length > 0 and head[16] in {0, 1, 2}
