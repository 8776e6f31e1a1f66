"""A partition's log in the output of kafka-dump-log.sh, for when no segments are available."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

import numpy as np

from toolkit.analysis.log.offset_status import clip
from toolkit.errors import UsageError
from toolkit.formats.coordinator_records import USUAL_COUNT, coordinator_partition
from toolkit.formats.dumps import Dump, read_dump
from toolkit.formats.headers import Headers, LogChunk, LostOffsets
from toolkit.formats.log_dir_files import FileName, LogPath, parse_file_name
from toolkit.formats.scan import text_encoding
from toolkit.schema.log import CheckpointEntry, LogSegment, OffsetsLogRecord, TransactionLogRecord, TxnIndexEntry
from toolkit.schema.table import LogId
from toolkit.sources.logdir.log_dir_layout import LogDirRoot, SkippedFile
from toolkit.sources.logdir.replica_log import NO_OFFSETS, ProducerSnapshot, RecordIndex, between, index_entries

SEGMENTS = {"log", "unknown", "records"}  # kinds of dumps that have batches or records


class TextLog:
    """The dumps of one partition in one text (`toolkit.sources.logdir.replica_log.ReplicaLog`).

    `dumps`: chunks of the dumps of its segments, snapshots and indexes, in text order.
    """

    is_text = True
    is_remote = False
    root: LogDirRoot | None = None
    error: str | None = None
    left_out: Sequence[SkippedFile] = ()

    def __init__(self, path: LogPath, dumps: Sequence[Dump]) -> None:
        self.path, self.name = path, str(path)
        self.where = LogId(topic=dumps[0].topic, partition=dumps[0].partition)
        self._dumps = dumps
        self._segments = sorted((dump for dump in dumps if dump.kind in SEGMENTS), key=_first_offset)
        self.size = sum(int(dump.headers["size"].sum()) for dump in dumps)
        self.base_offsets: Sequence[int] = [_first_offset(dump) for dump in self._segments]
        self.local_start = self.base_offsets[0] if self.base_offsets else None

    def by_partition(self, count: int | None) -> list[TextLog]:
        """The records of a console consumer by the partitions of their ids; the log itself, of any other text.

        It prints neither partitions nor offsets: a line without an id that can be read may be of any of them.
        `count`: partitions of the topic, 50 if null.
        """
        dump, *_ = self._dumps
        if dump.kind != "records" or not any(each.transactional_id for each in dump.events):
            return [self]
        found: dict[int, list[TransactionLogRecord]] = {}
        for each in dump.events:
            if each.transactional_id is not None:
                number = coordinator_partition(each.transactional_id, count or USUAL_COUNT)
                found.setdefault(number, []).append(replace(each, txn_state_partition=number))
        unread = [each for each in dump.events if each.transactional_id is None]
        for number, events in found.items():
            events += [replace(each, txn_state_partition=number) for each in unread]
        return [
            TextLog(self.path, [replace(dump, partition=number, events=events)]) for number, events in found.items()
        ]

    def parts(self, *, start: int | None = None, stop: int | None = None, crc: bool = False) -> Iterator[LogChunk]:
        """Kafka's tool has checked the checksums; batches that it reports as invalid are damage."""
        return _divided(clip(self._parts(), start=start, stop=stop))

    def parts_near(self, start: int, *, crc: bool = False) -> Iterator[LogChunk]:
        return _divided(self._parts())

    def _parts(self) -> Iterator[LogChunk]:
        """Batches have positions in the dumped file, damage has lines of the text."""
        for dump in self._segments:
            if len(dump.headers):
                yield LogChunk(headers=dump.headers, end=dump.end, file=dump.path or self.name)
            if dump.damage:
                yield LogChunk(damage=tuple(dump.damage), end=dump.end, file=self.name)

    def transaction_log(self, *, start: int | None = None, stop: int | None = None) -> Iterator[TransactionLogRecord]:
        for dump in self._dumps:
            yield from between(dump.events, start, stop)
            for each in dump.damage:
                yield TransactionLogRecord(
                    txn_state_partition=self.where.partition, file=self.name, position=each.position, error=each.reason
                )

    def indexed(self) -> tuple[RecordIndex, Iterator[LogChunk]]:
        index = RecordIndex()
        for record in self.transaction_log():
            index.add_record(record)
        return index, _divided(self._parts())

    def offsets_log(self, *, start: int | None = None, stop: int | None = None) -> Iterator[OffsetsLogRecord]:
        yield OffsetsLogRecord(group_partition=self.where.partition, file=self.name, error=NO_OFFSETS)

    def offsets_log_in(self, headers: Headers) -> Iterator[OffsetsLogRecord]:
        return self.offsets_log()

    def snapshots(self) -> Iterator[ProducerSnapshot]:
        found = list[ProducerSnapshot]()
        for dump in self._dumps:
            name = _file_name(dump.path)
            if dump.kind == "snapshot" and name is not None:
                error = dump.damage[0].reason if dump.damage else None
                found.append(ProducerSnapshot(name.offset, tuple(dump.snapshot), error, dump.path or self.name))
        yield from sorted(found, reverse=True, key=lambda snapshot: snapshot.offset)

    def segment_rows(self) -> Iterator[LogSegment]:
        """The size of a segment is that of its printed batches; its modification time is unknown."""
        for base_offset, dump in zip(self.base_offsets, self._segments, strict=True):
            if dump.kind == "records":
                continue  # of a console consumer: of no segment
            size = int(dump.headers["size"].sum())
            yield LogSegment(**self.where.columns, base_offset=base_offset, size=size, file=dump.path or self.name)

    def aborted_rows(self) -> Iterator[TxnIndexEntry]:
        for dump in self._dumps:
            yield from index_entries(dump.aborted, self.where, self.name)
            if dump.kind == "txnindex":
                for each in dump.damage:
                    yield TxnIndexEntry(**self.where.columns, file=self.name, position=each.position, error=each.reason)

    def checkpoint_rows(self) -> Iterator[CheckpointEntry]:
        return iter(())

    def changes(self, *, appending: bool) -> list[str]:
        return []


def _divided(chunks: Iterable[LogChunk]) -> Iterator[LogChunk]:
    """The chunks, divided where lines of batches are missing, which no cleaner has removed: the bytes are there."""
    for chunk in chunks:
        headers = chunk.headers
        begins, ends = headers["position"][1:], (headers["position"] + headers["size"])[:-1]
        for first, stop in pairwise([0, *(np.flatnonzero(begins != ends) + 1).tolist(), len(headers)]):
            if first:
                expected, found = int(headers["last_offset"][first - 1]) + 1, int(headers["base_offset"][first])
                yield LogChunk(file=chunk.file, missing=LostOffsets(expected, found, None))
            yield replace(chunk, headers=headers[first:stop])


def read_texts(path: LogPath) -> Sequence[TextLog]:
    """The partitions in a text, which is read again only if it has changed; each dump without topic and partition is a
    log of its own.

    Raises UsageError if the file cannot be read.
    """
    try:
        stat = path.stat()
        return _read(path, stat.st_size, stat.st_mtime_ns)
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}.", do="Name a file that you may read.") from None


@lru_cache(maxsize=4)
def _read(path: LogPath, size: int, modified_ns: int) -> Sequence[TextLog]:
    by_log: dict[tuple[object, ...], list[Dump]] = {}
    with path.open("rb") as file:
        encoding = text_encoding(file.read(2))
    with path.open(encoding=encoding, errors="replace", newline="\n") as lines:
        for dump in read_dump(lines, file=str(path)):
            key = dump.topic, dump.partition, dump.line if dump.topic is None else None
            by_log.setdefault(key, []).append(dump)
    return [TextLog(path, dumps) for dumps in by_log.values()]


def _first_offset(dump: Dump) -> int:
    name = _file_name(dump.path)
    if name is not None:
        return name.offset
    return int(dump.headers["base_offset"][0]) if len(dump.headers) else 0


def _file_name(path: str | None) -> FileName | None:
    return parse_file_name((path or "").replace("\\", "/").rpartition("/")[2])
