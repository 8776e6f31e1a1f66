"""What a completed checkpoint of Flink says about Kafka's transactions: those that it has pre-committed.

``KafkaSink`` flushes its transaction, and the checkpoint keeps its id, producer id and epoch as a committable. Once the
checkpoint is complete, that is once its ``_metadata`` exists, the transaction has to be committed: by the running job,
or by the next one that is restored from the checkpoint.

Sources, of Flink 2.1.1 and flink-connector-kafka 4.0.1: ``OperatorBackendSerializationProxy``,
``SimpleVersionedSerialization``, ``CommittableCollectorSerializer``, ``KafkaCommittableSerializer``,
``KafkaWriterStateSerializer``.
"""

from __future__ import annotations

import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from toolkit.errors import DecodeError, NotFound, UsageError
from toolkit.formats.flink_state_handles import IN_FLIGHT, SAVEPOINT, StreamHandle, read_metadata, read_utf
from toolkit.formats.primitives import Reader

METADATA = "_metadata"
COLLECTOR = 0xB91F252C
COMMITTER, WRITER = "streaming_committer_raw_states", "writer_raw_states"
"""Operator states: of ``CommitterOperator``, and of ``StatefulSinkWriterStateHandler``."""
FINAL_REQUESTS = {2, 3}  # CommitRequestState: FAILED, COMMITTED
COMPRESSION_FROM = 6  # version of OperatorBackendSerializationProxy
CHECKPOINT_FOLDER = re.compile(r"chk-(\d+)")
JOB_FOLDER = re.compile(r"[0-9a-f]{32}")


class Committable(NamedTuple):
    """A transaction that a checkpoint has pre-committed (``KafkaCommittable``), and the number of that checkpoint."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    checkpoint_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlinkCheckpoint:
    """A completed checkpoint or a savepoint."""

    path: Path  # its ``_metadata``
    checkpoint_id: int  # its number
    committables: Sequence[Committable]  # the transactions that it is to commit
    prefixes: frozenset[str]  # transactional id prefixes of its sinks
    # whether it is a savepoint: only a job that is restored from it commits its transactions (FLIP-203)
    is_savepoint: bool
    # committables that are not Kafka's, or not of a version that is known; and states of channels, which may have some
    # in an unaligned checkpoint of Flink 1
    others: int = 0

    @property
    def name(self) -> str:
        """``checkpoint 5 (/flink/checkpoints/.../chk-5)``."""
        return f"{'savepoint' if self.is_savepoint else 'checkpoint'} {self.checkpoint_id} ({self.path.parent})"

    def committable(self, transactional_id: str) -> Committable | None:
        """What it is to commit under an id; null if nothing."""
        return next((each for each in self.committables if each.transactional_id == transactional_id), None)

    def has_prefix_of(self, transactional_id: str) -> bool:
        """Whether an id is one of its sinks'."""
        return transactional_id.rsplit("-", 2)[0] in self.prefixes

    def newer(self) -> Path | None:
        """The newest completed checkpoint of the same job, beside this one; null if this one is the newest."""
        folder = self.path.parent
        if not CHECKPOINT_FOLDER.fullmatch(folder.name):
            return None
        newest = _newest(folder.parent)
        return newest if newest and _number(newest.parent) > self.checkpoint_id else None

    def newer_of_other_job(self) -> FlinkCheckpoint | None:
        """A later checkpoint of another job in the same checkpoint directory, with one of its prefixes; null if none.

        A restored job has a folder of its own, and counts on from the checkpoint that it was restored from.

        Raises NotFound, DecodeError, UsageError as `read_checkpoint`: whether such a job writes with its prefixes is
        not known.
        """
        job = self.path.parent.parent
        if not (CHECKPOINT_FOLDER.fullmatch(self.path.parent.name) and JOB_FOLDER.fullmatch(job.name)):
            return None
        for folder in sorted(job.parent.iterdir()):
            newest = _newest(folder) if folder != job and JOB_FOLDER.fullmatch(folder.name) else None
            if newest is not None and _number(newest.parent) > self.checkpoint_id:
                other = _read(newest)
                if other.prefixes & self.prefixes:
                    return other
        return None


def read_checkpoints(paths: Iterable[str | os.PathLike[str]]) -> list[FlinkCheckpoint]:
    """The checkpoints at some paths, and the newest completed one beside each, which decides what an older one left.

    Raises NotFound, DecodeError, UsageError as `read_checkpoint`.
    """
    found: list[FlinkCheckpoint] = []
    for path in paths:
        checkpoint = read_checkpoint(path)
        newer = checkpoint.newer()
        found += [checkpoint] if newer is None else [checkpoint, read_checkpoint(newer)]
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
        raise NotFound(f"{metadata} cannot be read: {error.strerror}.") from None
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
            do=f"Name a folder chk-N that has {METADATA}, or the folder above it.",
        )
    return newest


def _newest(folder: Path) -> Path | None:
    """The ``_metadata`` of the newest completed checkpoint in a job's folder."""
    complete = [each for each in folder.glob(f"chk-*/{METADATA}") if CHECKPOINT_FOLDER.fullmatch(each.parent.name)]
    return max(complete, key=lambda each: _number(each.parent), default=None)


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
