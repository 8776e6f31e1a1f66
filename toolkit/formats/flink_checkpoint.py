"""What a completed checkpoint of Flink says about Kafka's transactions: those that it has pre-committed.

``KafkaSink`` flushes its transaction, and the checkpoint keeps its id, producer id and epoch as a committable. Once the
checkpoint is complete, that is once its ``_metadata`` exists, the transaction has to be committed: by the running job,
or by the next one that is restored from the checkpoint.

Sources, of Flink 2.1.1 and flink-connector-kafka 4.0.1: ``Checkpoints``, ``MetadataV2V3SerializerBase`` and the
serializers of versions 2 to 6, ``ChannelStateHandleSerializerV1`` and ``V2``, ``OperatorBackendSerializationProxy``,
``SimpleVersionedSerialization``, ``CommittableCollectorSerializer``, ``KafkaCommittableSerializer``,
``KafkaWriterStateSerializer``.
"""

from __future__ import annotations

import os
import re
import struct
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from toolkit.errors import DecodeError, NotFound, UsageError
from toolkit.formats.batches import Reader
from toolkit.schema.checkpoint import Committable, FlinkCheckpoint

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
        _skip_keyed(reader)
    if version >= 3:
        for _ in range(2):  # of input channels, of result partitions
            for _ in range(reader.int32()):
                _skip(reader, MERGED_CHANNEL if version >= 6 and reader.int8() in {3, 4} else CHANNEL)
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
        _skip(reader, "4L")
        return _stream(reader, depth + 1)
    raise reader.malformed(f"bytes of a state are of kind {kind}", reader.position - 1)


KEYED = {  # kind of a keyed state to its form, as of `_skip`
    3: "4LS",
    5: "8T8S[TS][TS]",
    7: "4LS",
    8: "16[K][K]8T",
    9: "24[4B]T",
    10: "8[8S]16T",
    11: "8T16S[TS][TS]T",
    12: "4LST",
    13: "8[8S]16TT",
    14: "16[K][K]16T",
}
MERGED_CHANNEL, CHANNEL = "12SB", "12L8S"


def _skip(reader: Reader, form: str, depth: int = 0) -> None:
    """Skip what has a form.

    A number of bytes, L: int64s with their count before them, S: a stream, T: a text, B: bytes with their count, K: a
    keyed state; what is in brackets as often as the count before it says.
    """
    for part in re.findall(r"\d+|\[\w+\]|\w", form):
        if part.isdigit():
            reader.take(int(part))
        elif part.startswith("["):
            for _ in range(reader.int32()):
                _skip(reader, part[1:-1], depth)
        elif part == "L":
            _int64s(reader)
        elif part == "S":
            _stream(reader, depth)
        elif part == "T":
            read_utf(reader)
        elif part == "B":
            reader.take(reader.int32())
        else:
            _skip_keyed(reader, depth + 1)


def _skip_keyed(reader: Reader, depth: int = 0) -> None:
    kind = reader.int8()
    if kind:
        if depth >= MAX_DEPTH or kind not in KEYED:
            raise reader.malformed(f"a keyed state is of kind {kind}", reader.position - 1)
        _skip(reader, KEYED[kind], depth)


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


METADATA = "_metadata"
COLLECTOR = 0xB91F252C
COMMITTER, WRITER = "streaming_committer_raw_states", "writer_raw_states"
"""Operator states: of ``CommitterOperator``, and of ``StatefulSinkWriterStateHandler``."""
FINAL_REQUESTS = {2, 3}  # CommitRequestState: FAILED, COMMITTED
COMPRESSION_FROM = 6  # version of OperatorBackendSerializationProxy
CHECKPOINT_FOLDER = re.compile(r"chk-(\d+)")
JOB_FOLDER = re.compile(r"[0-9a-f]{32}")


def newer(checkpoint: FlinkCheckpoint) -> Path | None:
    """The newest completed checkpoint of the same job, beside this one; null if this one is the newest."""
    folder = checkpoint.path.parent
    if not CHECKPOINT_FOLDER.fullmatch(folder.name):
        return None
    newest = _newest(folder.parent)
    return newest if newest and _number(newest.parent) > checkpoint.checkpoint_id else None


def newer_of_other_job(checkpoint: FlinkCheckpoint) -> FlinkCheckpoint | None:
    """A later checkpoint of another job in the same checkpoint directory, with one of its prefixes; null if none.

    A restored job has a folder of its own, and counts on from the checkpoint that it was restored from. Where that is
    an earlier one, only the times of the files show it, which copies may have changed: they count against a commit, and
    prove none.

    Raises NotFound, DecodeError, UsageError as `read_checkpoint`: whether such a job writes with its prefixes is not
    known.
    """
    job = checkpoint.path.parent.parent
    if not (CHECKPOINT_FOLDER.fullmatch(checkpoint.path.parent.name) and JOB_FOLDER.fullmatch(job.name)):
        return None
    written = _written_at(checkpoint.path)
    for folder in sorted(job.parent.iterdir()):
        newest = _newest(folder) if folder != job and JOB_FOLDER.fullmatch(folder.name) else None
        # One that was restored from an earlier checkpoint than this one may not have counted up to it yet.
        if newest is not None and (_number(newest.parent) > checkpoint.checkpoint_id or _written_at(newest) > written):
            other = _read(newest)
            if other.prefixes & checkpoint.prefixes:
                return other
    return None


class FlinkCheckpoints:
    """Completed checkpoints of Flink jobs, for `toolkit.Cluster`: those at some paths, and the newest one beside each.

    A call reads them, and again what was completed since: the newest decides what an older one left. The last one stays
    if none is newer, also where the folder cannot be read any more.

    Parameters
    ----------
    *paths
        Of each its ``_metadata``, the folder that has it (``chk-5``), or the folder of the job, for its newest one.
    """

    def __init__(self, *paths: str | os.PathLike[str]) -> None:
        self._paths = paths
        self._first: Sequence[FlinkCheckpoint] = ()
        self._last: Sequence[FlinkCheckpoint] = ()

    def __call__(self) -> Sequence[FlinkCheckpoint]:
        """The checkpoints by now. Raises NotFound, DecodeError, UsageError as `read_checkpoint`."""
        named = self._first or [read_checkpoint(path) for path in self._paths]
        self._last = _with_newest(named, self._last)
        self._first = self._first or self._last
        return self._last


def _with_newest(named: Sequence[FlinkCheckpoint], known: Sequence[FlinkCheckpoint]) -> list[FlinkCheckpoint]:
    """Checkpoints, and the newest completed one beside each by now, or the newest of those `known` from before."""
    found = list[FlinkCheckpoint]()
    for each in named:
        of_job = (one for one in (each, *known) if _job(one) == _job(each))
        last = max(of_job, key=lambda one: one.checkpoint_id)
        newest = newer(last)
        last = last if newest is None else read_checkpoint(newest)
        found += [each] if last is each else [each, last]
    return found


def read_checkpoint(path: str | os.PathLike[str]) -> FlinkCheckpoint:
    """Read a completed checkpoint or a savepoint, and the files of the states that its sinks have.

    `path`: its ``_metadata``, the folder that has it (``chk-5``), or the folder of the job, for its newest one.
    Raises NotFound if there is none, or a file of its states is not there. Raises DecodeError if it is not whole, or of
    another version. Raises UsageError if none of its operators is a KafkaSink, its states are compressed, or its folder
    ``chk-N`` has another number.
    """
    checkpoint = _read(_find(Path(path).expanduser()))
    if not checkpoint.prefixes:
        raise UsageError(
            f"{checkpoint.path} has no state of a KafkaSink with exactly-once delivery.",
            means="It says nothing about transactions.",
            do="Name a checkpoint of the job that writes them.",
        )
    return checkpoint


def _read(metadata: Path) -> FlinkCheckpoint:
    """A checkpoint, also one without a KafkaSink."""
    try:
        checkpoint_id, states, properties = read_metadata(metadata.read_bytes())
    except OSError as error:
        raise NotFound(
            f"{metadata} cannot be read: {error.strerror}.", do="Name a completed checkpoint that you may read."
        ) from None
    if CHECKPOINT_FOLDER.fullmatch(metadata.parent.name) and _number(metadata.parent) != checkpoint_id:
        raise UsageError(
            f"{metadata} is checkpoint {checkpoint_id}.",
            means="Its folder was renamed, so that the last completed checkpoint of the job is not known.",
            do=f"Name the folder of the job as Flink wrote it, with chk-{checkpoint_id}.",
        )
    found: list[Committable | None] = []
    prefixes: set[str] = set()
    for state in states:
        wanted = {name for name in (COMMITTER, WRITER) if state.offsets.get(name)}
        if not wanted or state.stream is None:
            continue
        data = _bytes_of(state.stream, metadata)
        for offset in state.offsets.get(COMMITTER, ()):
            found += _committables(_item(data, offset))
        for offset in state.offsets.get(WRITER, ()):
            prefix = _writer_prefix(_item(data, offset))
            if prefix is not None:
                prefixes.add(prefix)
    committables = {each for each in found if each is not None}
    prefixes |= {each.transactional_id.rsplit("-", 2)[0] for each in committables}
    return FlinkCheckpoint(
        path=metadata,
        checkpoint_id=checkpoint_id,
        committables=tuple(sorted(committables)),
        prefixes=frozenset(prefixes),
        is_savepoint=SAVEPOINT in properties or metadata.parent.name.startswith("savepoint-"),
        others=found.count(None) + states.count(IN_FLIGHT),
    )


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    if (path / METADATA).is_file():
        return path / METADATA
    newest = _newest(path)
    if newest is None:
        raise NotFound(
            f"{path} has no completed checkpoint of Flink.",
            means=f"One is complete as soon as its folder has {METADATA}.",
            do="Name the folder of the job, for its newest one: Flink deletes old folders chk-N.",
        )
    return newest


def _newest(folder: Path) -> Path | None:
    """The ``_metadata`` of the newest completed checkpoint in a job's folder."""
    complete = [each for each in folder.glob(f"chk-*/{METADATA}") if CHECKPOINT_FOLDER.fullmatch(each.parent.name)]
    return max(complete, key=lambda each: _number(each.parent), default=None)


def _written_at(metadata: Path) -> float:
    """When a checkpoint was completed, by the clock of its file system; never if it is gone."""
    try:
        return metadata.stat().st_mtime
    except OSError:
        return 0.0


def _job(checkpoint: FlinkCheckpoint) -> Path:
    """The folder of its job; of a savepoint its own, as none is newer beside it."""
    folder = checkpoint.path.parent
    return folder.parent if CHECKPOINT_FOLDER.fullmatch(folder.name) else folder


def _number(folder: Path) -> int:
    return int(folder.name.removeprefix("chk-"))


def _bytes_of(stream: StreamHandle, metadata: Path) -> bytes:
    if stream.data is not None:
        return stream.data
    for path in _places(stream, metadata):
        with suppress(OSError, ValueError):  # the next one, or the error below
            whole = path.read_bytes()
            return whole[stream.start :] if stream.size is None else whole[stream.start : stream.start + stream.size]
    raise NotFound(
        f"{stream.path}, a state of the checkpoint {metadata}, cannot be read.",
        means="Which transactions it is to commit is not known.",
        do=f"Copy that file beside {METADATA}.",
    )


def _places(stream: StreamHandle, metadata: Path) -> Iterator[Path]:
    """Where the file of a state may be: as the job named it, or beside the metadata, where it was copied."""
    scheme, _, rest = stream.path.rpartition(":")
    if stream.is_relative:
        yield metadata.parent / stream.path
    elif scheme in {"", "file"}:
        yield Path(urllib.parse.unquote(rest))
    yield metadata.parent / Path(rest).name


def _item(data: bytes, offset: int) -> Reader:
    """The bytes of an item of a list state. Raises UsageError if the states are compressed."""
    header = Reader(data, "state of an operator of Flink")
    if header.int32() >= COMPRESSION_FROM and header.int8():
        raise UsageError(
            "The states of this checkpoint are compressed (execution.checkpointing.snapshot-compression).",
            means="Which transactions it is to commit is not known.",
            do="Restore the job from it; its transactions are then committed.",
        )
    reader = Reader(data[offset:], "state of an operator of Flink")
    return Reader(reader.take(reader.int32()), "state of a sink of Flink")


def _committables(reader: Reader) -> Iterator[Committable | None]:
    """Those in a ``CommittableCollector`` that are not committed yet; null for one of another sink."""
    version, _ = reader.int32(), reader.int32()
    if version != 2 or reader.int32() & 0xFFFFFFFF != COLLECTOR:
        raise reader.malformed("committables begin with other bytes, as those of Flink before 1.15 do", 0)
    for checkpoint_version, checkpoint in _versioned_list(reader):
        checkpoint_id = checkpoint.int64()
        if checkpoint_version >= 1:
            checkpoint.int32()
        for subtask_version, subtask in _versioned_list(checkpoint):
            if subtask_version >= 1:
                subtask.int32()
            for _, request in _versioned_list(subtask):
                committable_version = request.int32()
                committable = request.take(request.int32())
                request.int32()  # retries
                if request.int32() not in FINAL_REQUESTS:
                    yield _committable(committable, checkpoint_id) if committable_version == 1 else None


def _committable(data: bytes, checkpoint_id: int) -> Committable | None:
    """A ``KafkaCommittable``; null for one of another sink."""
    reader = Reader(data, "committable")
    try:
        epoch, producer_id, transactional_id = reader.int16(), reader.int64(), read_utf(reader)
    except DecodeError:
        return None
    if reader.position != len(data) or epoch < 0 or producer_id < 0 or transactional_id.count("-") < 2:
        return None
    return Committable(transactional_id, producer_id, epoch, checkpoint_id)


def _writer_prefix(reader: Reader) -> str | None:
    """The prefix in a ``KafkaWriterState``; null for the state of another writer."""
    try:
        version, _ = reader.int32(), reader.int32()
        prefix = read_utf(reader)
        if version == 2:
            reader.take(12)
            for _ in range(reader.int32()):
                read_utf(reader), reader.int64()
    except DecodeError:
        return None
    return prefix if reader.position == len(reader.data) and version in {1, 2} else None


def _versioned_list(reader: Reader) -> Iterator[tuple[int, Reader]]:
    version = reader.int32()
    for _ in range(reader.int32()):
        yield version, Reader(reader.take(reader.int32()), reader.what)
