"""Bytes of a checkpoint of Flink, as its serializers write them, for what no job of the lab writes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from toolkit.schema.checkpoint import Committable

CHECKPOINT = b"\xac\xed\x00\x05sr\x003org.apache.flink.runtime.checkpoint.CheckpointType"
SAVEPOINT = CHECKPOINT.replace(b"CheckpointType", b"SavepointType")


def utf(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def versioned(version: int, items: Sequence[bytes]) -> bytes:
    """A list of ``SimpleVersionedSerialization``."""
    return struct.pack(">ii", version, len(items)) + b"".join(map(sized, items))


def committable(each: Committable, *, state: int = 0, version: int = 1) -> bytes:
    """A request of a ``CommittableCollector``; of these states 2 has failed and 3 is committed."""
    own = struct.pack(">hq", each.producer_epoch, each.producer_id) + utf(each.transactional_id)
    return struct.pack(">i", version) + sized(own) + struct.pack(">ii", 0, state)


def collector(checkpoint_id: int, requests: Sequence[bytes], *, versions: tuple[int, int] = (1, 2)) -> bytes:
    """A ``CommittableCollector`` with one checkpoint and one subtask; `versions` are those of these two."""
    of_checkpoint, of_subtask = versions
    subtask = (struct.pack(">i", 0) if of_subtask else b"") + versioned(0, requests) + struct.pack(">ii", 1, 0)
    checkpoint = struct.pack(">q", checkpoint_id) + (struct.pack(">i", 1) if of_checkpoint else b"")
    data = struct.pack(">I", 0xB91F252C) + versioned(of_checkpoint, [checkpoint + versioned(of_subtask, [subtask])])
    return struct.pack(">i", 2) + sized(data)


def writer_state(prefix: str, *, version: int = 2) -> bytes:
    """A ``KafkaWriterState``."""
    more = struct.pack(">iiii", 0, 1, 1, 1) + utf(f"{prefix}-0-1") + struct.pack(">q", 4) if version == 2 else b""
    return struct.pack(">i", version) + sized(utf(prefix) + more)


def state_file(items: dict[str, bytes], *, compressed: bool = False) -> tuple[bytes, dict[str, int]]:
    """The list states of an operator, one item each, and where it begins."""
    data, offsets = struct.pack(">i?", 6, compressed) + b"\x00" * 7, {}
    for name, item in items.items():
        offsets[name] = len(data)
        data += sized(item)
    return data, offsets


def operator_state(offsets: dict[str, int], stream: bytes) -> bytes:
    """The managed state of a subtask, and the handle of its bytes."""
    states = b"".join(utf(name) + struct.pack(">biq", 0, 1, offset) for name, offset in offsets.items())
    return struct.pack(">bi", 4, len(offsets)) + states + stream


def in_metadata(data: bytes) -> bytes:
    """The handle of bytes in the metadata itself."""
    return b"\x01" + utf("handle") + sized(data)


def metadata(
    checkpoint_id: int,
    subtasks: Sequence[bytes],
    *,
    version: int = 6,
    keyed: bytes = b"\x00",
    channels: bytes = b"\x00" * 8,
    properties: bytes = CHECKPOINT,
) -> bytes:
    """``_metadata`` with one operator whose subtasks have these managed states."""
    of_job = struct.pack(">Ii", 0xC96B1696, 3) + b"abc"
    found = struct.pack(">Iiq", 0x4960672D, version, checkpoint_id) + struct.pack(">i", 1) + of_job
    found += struct.pack(">i", 1) + (utf("sink") + utf("") if version >= 5 else b"")
    found += struct.pack(">qqii", 1, 2, len(subtasks), 128) + (struct.pack(">i", 1) if version == 2 else b"\x00")
    found += struct.pack(">i", len(subtasks) + (version >= 3))
    for number, each in enumerate(subtasks):
        found += struct.pack(">i", number) + (struct.pack(">qi", -1, 0) if version == 2 else b"")
        found += struct.pack(">i", 1) + each + struct.pack(">i", 0) + keyed + b"\x00"
        found += channels if version >= 3 else b""
    if version >= 3:
        found += struct.pack(">i", -(len(subtasks) + 1))  # a finished subtask
    return found + (properties if version >= 4 else b"")


def write_checkpoint(folder: Path, checkpoint_id: int, committables: Sequence[Committable], *, prefix: str) -> Path:
    """A complete checkpoint ``chk-N`` of a KafkaSink, and its path."""
    items = {
        "writer_raw_states": writer_state(prefix),
        "streaming_committer_raw_states": collector(checkpoint_id, [committable(each) for each in committables]),
    }
    data, offsets = state_file(items)
    path = folder / f"chk-{checkpoint_id}"
    path.mkdir(parents=True)
    (path / "_metadata").write_bytes(metadata(checkpoint_id, [operator_state(offsets, in_metadata(data))]))
    return path
