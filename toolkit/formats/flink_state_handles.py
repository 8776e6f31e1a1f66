"""The layout of a checkpoint's ``_metadata`` of Flink: the states of its operators, and where their bytes are.

Sources, of Flink 2.1.1: ``Checkpoints``, ``MetadataV2V3SerializerBase`` and the serializers of versions 2 to 6,
``ChannelStateHandleSerializerV1`` and ``V2``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from toolkit.errors import DecodeError
from toolkit.formats.primitives import Reader

MAGIC, MASTER_STATE = 0x4960672D, 0xC96B1696
VERSIONS = range(2, 7)
WITH_PROPERTIES = 4
TYPES = CHECKPOINT, SAVEPOINT = b"CheckpointType", b"SavepointType"  # classes of Flink
UTF_LENGTH = struct.Struct(">H")
MAX_DEPTH = 8
WHAT = "checkpoint of Flink"


class StreamHandle(NamedTuple):
    """Where bytes of a state are: here, or in a file."""

    data: bytes | None = None
    path: str = ""
    is_relative: bool = False
    start: int = 0
    size: int | None = None


class OperatorState(NamedTuple):
    """The list states of one subtask of an operator: the offsets of the items of each, by name."""

    offsets: dict[str, list[int]]
    stream: StreamHandle | None


IN_FLIGHT = OperatorState({}, None)
"""Records between two operators, in an unaligned checkpoint: what they are is not read."""


def read_metadata(data: bytes) -> tuple[int, list[OperatorState], bytes]:
    """The number of the checkpoint, the states of all subtasks, and the bytes after them (its properties).

    The properties are an object of Java, of which only the type is read: a checkpoint or a savepoint.
    """
    reader = Reader(data, WHAT)
    if reader.int32() != MAGIC:
        raise DecodeError("This is no checkpoint of Flink: it begins with other bytes.", position=0)
    version = reader.int32()
    if version not in VERSIONS:
        raise DecodeError(
            f"The checkpoint has version {version}; versions {VERSIONS[0]} to {VERSIONS[-1]} are known.", position=4
        )
    checkpoint_id = reader.int64()
    for _ in range(reader.int32()):
        if reader.int32() & 0xFFFFFFFF != MASTER_STATE:
            raise reader.malformed("a state of the master begins with other bytes", reader.position - 4)
        reader.take(reader.int32())
    states: list[OperatorState] = []
    for _ in range(reader.int32()):
        states += _operator(reader, version)
    properties = data[reader.position :]
    if version >= WITH_PROPERTIES and not any(name in properties for name in TYPES):
        raise reader.malformed("its properties, which say whether it is a savepoint, end early", reader.position)
    return checkpoint_id, states, properties


def _operator(reader: Reader, version: int) -> Iterator[OperatorState]:
    if version >= 5:
        read_utf(reader), read_utf(reader)  # name and uid
    reader.take(16 + 8)  # id, parallelism, maximum parallelism
    if version == 2:
        reader.int32()  # length of its chain
    else:
        _stream(reader)  # of its coordinator
    for _ in range(reader.int32()):  # negative if it has finished
        index = reader.int32()
        if version == 2:
            reader.take(8 + 4)  # duration, legacy states
        if index >= 0 or version == 2:  # a finished subtask has no state
            yield from _subtask(reader, version)


def _subtask(reader: Reader, version: int) -> Iterator[OperatorState]:
    for _ in range(2):  # managed and raw
        if reader.int32() and (state := _operator_state(reader)) is not None:
            yield state
    for _ in range(2):
        _keyed(reader)
    if version >= 3:
        for _ in range(2):  # of input channels, of result partitions
            for _ in range(reader.int32()):
                _channel(reader, version)
                yield IN_FLIGHT


def _operator_state(reader: Reader) -> OperatorState | None:
    kind = reader.int8()
    if kind == 0:
        return None
    if kind not in {4, 17}:
        raise reader.malformed(f"a state of an operator is of kind {kind}", reader.position - 1)
    offsets: dict[str, list[int]] = {}
    for _ in range(reader.int32()):
        name = read_utf(reader)
        reader.int8()  # how it is distributed
        offsets[name] = _int64s(reader)
    if kind == 17:  # states of several subtasks share a file
        read_utf(reader), read_utf(reader), reader.int8()
    return OperatorState(offsets, _stream(reader))


def _stream(reader: Reader, depth: int = 0) -> StreamHandle | None:
    kind = reader.int8()
    if kind in {0, 16}:
        return None
    if kind == 1:
        read_utf(reader)
        return StreamHandle(data=reader.take(reader.int32()))
    if kind == 2:
        reader.int64()
        return StreamHandle(path=read_utf(reader))
    if kind == 6:
        path = read_utf(reader)
        reader.int64()
        return StreamHandle(path=path, is_relative=True)
    if kind == 15:
        start, size, _ = reader.int64(), reader.int64(), reader.int32()
        path = read_utf(reader)
        read_utf(reader)
        return StreamHandle(path=path, start=start, size=size)
    if kind == 3 and depth < MAX_DEPTH:
        _key_groups(reader)
        return _stream(reader, depth + 1)
    raise reader.malformed(f"bytes of a state are of kind {kind}", reader.position - 1)


def _key_groups(reader: Reader) -> None:
    reader.int32()
    _int64s(reader)


def _keyed(reader: Reader, depth: int = 0) -> None:
    """Skip a keyed state."""
    kind = reader.int8()
    if kind == 0:
        return
    if depth >= MAX_DEPTH or kind not in KEYED:
        raise reader.malformed(f"a keyed state is of kind {kind}", reader.position - 1)
    KEYED[kind](reader, kind, depth)


def _keyed_groups(reader: Reader, kind: int, _: int) -> None:
    _key_groups(reader)
    _stream(reader)
    if kind == 12:
        read_utf(reader)


def _keyed_incremental(reader: Reader, kind: int, _: int) -> None:
    reader.int64()
    read_utf(reader)
    reader.take(8)  # key groups
    if kind == 11:
        reader.int64()
    _stream(reader)
    for _ in range(2):  # shared and private files
        for _ in range(reader.int32()):
            read_utf(reader)
            _stream(reader)
    if kind == 11:
        read_utf(reader)


def _keyed_changelog(reader: Reader, kind: int, depth: int) -> None:
    reader.take(8 + 8)  # key groups, size
    for _ in range(2):
        for _ in range(reader.int32()):
            _keyed(reader, depth + 1)
    reader.int64()
    if kind == 14:
        reader.int64()
    read_utf(reader)


def _keyed_changes(reader: Reader, _: int, __: int) -> None:
    reader.take(8 + 16)  # key groups, from, to
    for _ in range(reader.int32()):
        reader.int32()
        reader.take(reader.int32())
    read_utf(reader)


def _keyed_change_files(reader: Reader, kind: int, _: int) -> None:
    reader.take(8)  # key groups
    for _ in range(reader.int32()):
        reader.int64()
        _stream(reader)
    reader.take(16)  # sizes
    read_utf(reader)
    if kind == 13:
        read_utf(reader)


KEYED: dict[int, Callable[[Reader, int, int], None]] = {
    **dict.fromkeys((3, 7, 12), _keyed_groups),
    **dict.fromkeys((5, 11), _keyed_incremental),
    **dict.fromkeys((8, 14), _keyed_changelog),
    9: _keyed_changes,
    **dict.fromkeys((10, 13), _keyed_change_files),
}
"""Kind of a keyed state to what skips it."""


def _channel(reader: Reader, version: int) -> None:
    """Skip a state of a channel."""
    is_merged = version >= 6 and reader.int8() in {3, 4}
    reader.int32()
    if is_merged:
        reader.int64()
        _stream(reader)
        reader.take(reader.int32())
        return
    reader.take(8)  # its gate and channel
    _int64s(reader)
    reader.int64()
    _stream(reader)


def _int64s(reader: Reader) -> list[int]:
    count = reader.int32()
    if count < 0:
        raise reader.malformed("a list has a negative length", reader.position - 4)
    return list(struct.unpack(f">{count}q", reader.take(8 * count)))


def read_utf(reader: Reader) -> str:
    """A text as ``DataOutput.writeUTF`` writes it."""
    start = reader.position
    data = reader.take(reader.fields(UTF_LENGTH)[0])
    try:
        text = data.replace(b"\xc0\x80", b"\x00").decode("utf-8", "surrogatepass")
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise reader.malformed("a text is not UTF-8", start) from None
