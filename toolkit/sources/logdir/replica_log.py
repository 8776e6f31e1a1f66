"""The log of a replica in files: those that belong to it, its batches in log order, records, snapshots, indexes."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from toolkit.analysis.log.log_transactions import (
    EMPTY,
    OPEN,
    PartialTransactions,
    begin,
    finish,
    merge,
    partial_transactions,
)
from toolkit.analysis.log.offset_status import at_missing_offsets, clip, intact
from toolkit.errors import DecodeError
from toolkit.formats.batches import CONTROL, HEADER_SIZE, read_header
from toolkit.formats.coordinator_log_rows import CODEC, FIELDS, locate, offsets_log, transaction_log
from toolkit.formats.headers import ABORT, Headers, LogChunk
from toolkit.formats.log_dir_files import (
    CHECKPOINT_NAMES,
    AbortedTxn,
    FileStamp,
    LogPath,
    SnapshotEntry,
    file_stamps,
    is_remote_file,
    log_path,
    parse_file_name,
    read_offset_index,
    read_snapshot,
    read_time_index,
    read_txn_index,
)
from toolkit.formats.scan import PIECE_BYTES, bytes_at, in_pieces, scan_file
from toolkit.schema import utc
from toolkit.schema.log import (
    CheckpointEntry,
    LogSegment,
    MetadataLogRecord,
    OffsetsLogRecord,
    TransactionLogRecord,
    TxnIndexEntry,
)
from toolkit.schema.table import LogId
from toolkit.sources.log_tables import LogFold
from toolkit.sources.logdir.log_dir_layout import IN_PARTITIONS, Replica, SkippedFile, checkpoint_rows_in

if TYPE_CHECKING:
    from toolkit.sources.logdir.dump_logs import TextLog


ENTRY = np.dtype([("key", "i4"), ("file", "i4"), ("size", "i4"), ("position", "i8"), ("producer_id", "i8")])


R = TypeVar("R", TransactionLogRecord, OffsetsLogRecord, MetadataLogRecord)


class RecordIndex:
    """Indexes the batches of a partition in order.

    Takes about 30 bytes of memory per record, and the decoded rows of records that cannot be located.

    `where`: a record that has only partition and broker; null where none is decoded.
    """

    def __init__(self, where: TransactionLogRecord | None = None) -> None:
        self._where = where or TransactionLogRecord()
        self.errors: list[TransactionLogRecord] = []  # what could not be read
        self._numbers: dict[bytes, int] = {}  # of each key
        self._files: list[str] = []
        self._decoded: dict[int, TransactionLogRecord] = {}  # by entry: records that cannot be located
        self._chunks: list[npt.NDArray[np.void]] = []
        self._count = 0
        self._neighbours: list[tuple[int, int]] = []  # previous and next producer ids, with the key's number

    def add(self, chunk: LogChunk) -> None:
        """Add the next batches, and what could not be read."""
        where, file = replace(self._where, file=chunk.file), chunk.file or ""
        self.errors += [replace(where, position=each.position, error=each.reason) for each in chunk.damage]
        if not self._files or self._files[-1] != file:
            self._files.append(file)
        headers = chunk.headers[chunk.headers["attributes"] & CONTROL == 0]
        try:
            for some, at, buf in in_pieces(replace(chunk, headers=headers)):
                self._add_batches(some, at, buf, file)
        except OSError as exc:
            self.errors.append(replace(where, error=_unreadable(exc)))

    def _add_batches(self, headers: Headers, at: int, buf: bytes, file: str) -> None:
        positions = headers["position"] - at
        plain = (headers["record_count"] == 1) & (headers["attributes"] & CODEC == 0) & (headers["magic"] == 2)
        plain &= headers["crc_ok"] == 1
        found = np.zeros((len(headers), FIELDS), np.int64)
        found[plain] = locate(buf, positions[plain], (positions + headers["size"])[plain])
        first = 0
        for odd in [*np.flatnonzero(found[:, 0] == 0).tolist(), len(headers)]:
            self._add_located(headers[first:odd], found[first:odd], buf)
            for position in headers["position"][odd : odd + 1].tolist():
                for record in self._decoded_at(buf, position - at, file, position):
                    self.add_record(record)
            first = odd + 1

    def _add_located(self, headers: Headers, found: npt.NDArray[np.int64], buf: bytes) -> None:
        known = self._numbers
        keys = zip(found[:, 0].tolist(), found[:, 1].tolist(), strict=True)
        numbers = [known.setdefault(buf[start:end], len(known)) for start, end in keys]
        entries = np.empty(len(numbers), ENTRY)
        entries["key"], entries["file"] = numbers, len(self._files) - 1
        entries["size"], entries["position"] = headers["size"], headers["position"]
        entries["producer_id"] = found[:, 2]
        self._chunks.append(entries)
        self._count += len(entries)
        for column in (3, 4):
            others = np.flatnonzero((found[:, column] >= 0) & (found[:, column] != found[:, 2]))
            self._neighbours += zip(found[others, column].tolist(), (numbers[row] for row in others), strict=True)

    def _decoded_at(self, buf: bytes, at: int, file: str, begin: int) -> Iterator[TransactionLogRecord]:
        return transaction_log(buf, at, where=replace(self._where, file=file), begin=begin)

    def add_record(self, record: TransactionLogRecord) -> None:
        """Add the next record decoded, or what could not be read."""
        if record.transactional_id is None:
            self.errors.append(record)
            return
        self._decoded[self._count] = record
        number = self._numbers.setdefault(_key(record.transactional_id), len(self._numbers))
        producer_id = -1 if record.producer_id is None else record.producer_id
        self._chunks.append(np.array([(number, len(self._files) - 1, 0, 0, producer_id)], ENTRY))
        self._count += 1
        other_ids = (record.previous_producer_id, record.next_producer_id)
        self._neighbours += [(each, number) for each in other_ids if each is not None]

    def newest(self) -> Iterator[TransactionLogRecord]:
        """The newest record of each id, in log order."""
        _, from_the_end = np.unique(self._entries["key"][::-1], return_index=True)
        return self._records(np.sort(self._count - 1 - from_the_end))

    def records(self, transactional_ids: Collection[str]) -> Iterator[TransactionLogRecord]:
        """Read errors, then every record of these ids in log order."""
        yield from self.errors
        key_numbers = [self._numbers.get(_key(name), -1) for name in transactional_ids]
        yield from self._records(np.flatnonzero(np.isin(self._entries["key"], key_numbers)))

    def ids_of(self, producer_ids: Collection[int]) -> set[str]:
        """Ids with a record that has one of these producer ids as its own, previous or next producer id."""
        own = np.isin(self._entries["producer_id"], list(producer_ids))
        numbers = set(self._entries["key"][own].tolist())
        numbers |= {number for producer_id, number in self._neighbours if producer_id in producer_ids}
        return {key[4:].decode(errors="replace") for key, number in self._numbers.items() if number in numbers}

    @property
    def _entries(self) -> npt.NDArray[np.void]:
        if len(self._chunks) != 1:
            self._chunks = [np.concatenate([np.empty(0, ENTRY), *self._chunks])]
        return self._chunks[0]

    def _records(self, numbers: npt.NDArray[np.int64]) -> Iterator[TransactionLogRecord]:
        found = zip(numbers.tolist(), self._entries[numbers].tolist(), strict=True)
        for file_id, of_file in groupby(found, key=lambda each: each[1][1]):
            if file_id < 0:
                yield from (self._decoded[number] for number, _ in of_file)
                continue
            file = self._files[file_id]
            try:
                with log_path(file).open("rb") as segment:
                    for number, (_, _, size, position, _) in of_file:
                        if number in self._decoded:
                            yield self._decoded[number]
                            continue
                        segment.seek(position)
                        yield from self._decoded_at(segment.read(size), 0, file, position)
            except OSError as exc:
                yield replace(self._where, file=file, error=f"UNREADABLE: {exc.strerror}.")


def _key(transactional_id: str) -> bytes:
    """``TransactionLogKey``: version 0, length, transactional id. A key of another version is never taken for it."""
    name = transactional_id.encode()
    return struct.pack(">hh", 0, len(name)) + name


def between(records: Iterable[R], start: int | None, stop: int | None) -> Iterator[R]:
    """The records with an offset in ``start <= offset < stop``, and what could not be read."""
    for record in records:
        offset = record.offset
        if offset is None or ((start is None or offset >= start) and (stop is None or offset < stop)):
            yield record


ReplicaLog: TypeAlias = "FolderLog | TextLog"
"""A log in files: segments, or output of kafka-dump-log.sh."""

WHY_LEFT_OUT = {
    "deleted": "DELETED: no longer part of the log; the broker has yet to remove it.",
    "cleaned": "CLEANED: unfinished output of the cleaner, not yet part of the log.",
    "swap": "SWAP: replaced by a newer run of the cleaner.",
    "remote": "REMOTE: a copy in remote storage of a segment that the broker has, or that was copied once more.",
    "swapped": "SWAPPED: replaced by finished output of the cleaner (.swap).",
}

NO_OFFSETS = "SKIPPED: Records of __consumer_offsets are not read from text: read the segments."
SMALL_PIECE_BYTES = 1 << 24  # for a range that ends within a segment, so that little is read after it
TORN_BETWEEN = "CORRUPT_BATCH: The segment ends within a batch, but another segment follows."


class LogFile(NamedTuple):
    """A file of a log: the offset in its name, and its path."""

    offset: int
    path: LogPath
    stop: int | None = None  # in remote storage: where the next segment begins, which may be before this one ends


NO_INDEX = (
    "NO_INDEX: the transaction index of this segment in remote storage is missing, so Kafka returns the records of "
    "this transaction to read_committed consumers."
)


class ProducerSnapshot(NamedTuple):
    """A producer snapshot: its offset, its producers or why it cannot be used, and its file."""

    offset: int
    producers: tuple[SnapshotEntry, ...]
    error: str | None = None
    file: str | None = None


class FolderLog:
    """The log of one replica, by one listing of its files: those that a broker has after its next start."""

    is_text = False  # whether it is output of kafka-dump-log.sh, in which nothing can be verified

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.where = LogId(topic=replica.topic, partition=replica.partition, broker_id=replica.root.broker_id)
        self.name = str(replica.path)  # folder or file, for messages
        self.root = replica.root
        self.is_remote = replica.is_remote  # whether its segments are those in remote storage, which end before the log
        self.error: str | None = None  # why it cannot be read at all, as ``NAME: sentence``
        # segments, snapshot_files, txn_indexes: in order of their offsets; segments in remote storage come first
        self.segments: Sequence[LogFile] = []
        self.snapshot_files: Sequence[LogFile] = []
        self.txn_indexes: Sequence[LogFile] = []
        # offset_indexes, time_indexes: by base offset
        self.offset_indexes: Mapping[int, LogPath] = {}
        self.time_indexes: Mapping[int, LogPath] = {}
        self.checkpoint_files: Sequence[LogPath] = []  # ``leader-epoch-checkpoint`` and ``partition.metadata``
        self.left_out: Sequence[SkippedFile] = []  # files that are not, or not yet, part of it
        self.stamps: Mapping[str, FileStamp] = {}  # by file name
        try:
            self._list()
        except OSError as exc:
            self.error = f"UNREADABLE: {replica.path}: {exc.strerror}."
        self.base_offsets: Sequence[int] = [segment.offset for segment in self.segments]
        self.remote_segments: Sequence[LogFile] = [each for each in self.segments if is_remote_file(each.path.name)]
        local = self.base_offsets[len(self.remote_segments) :]
        self.local_start = local[0] if local else None  # base offset of the first segment on the broker's disk
        self.size = sum(self.stamps[segment.path.name].size for segment in self.segments)  # bytes of its segments
        self._of_transactions = TransactionLogRecord(
            txn_state_partition=replica.partition, broker_id=replica.root.broker_id
        )
        self._of_offsets = OffsetsLogRecord(group_partition=replica.partition, broker_id=replica.root.broker_id)

    def _list(self) -> None:
        """Raises OSError if the folder is missing or cannot be listed."""
        replica = self.replica
        own = file_stamps(replica.path, replica.only)
        remote = {path: stamp for each in replica.remote_folders for path, stamp in file_stamps(each).items()}
        by_kind: dict[tuple[str, str | None], list[LogFile]] = {}
        for path in sorted(own):
            known = parse_file_name(path.name)
            if known is not None:
                suffix = None if replica.only else known.suffix  # a file that was passed by name is read
                by_kind.setdefault((known.kind, suffix), []).append(LogFile(known.offset, path))
            elif replica.only and path.name not in CHECKPOINT_NAMES:
                by_kind.setdefault(("log", None), []).append(LogFile(_first_offset(path), path))
        left_out = _finish_swaps(by_kind)
        for (_, suffix), files in by_kind.items():
            if suffix in {"deleted", "cleaned"}:
                left_out += [SkippedFile(file.path, WHY_LEFT_OUT[suffix]) for file in files]
        self.checkpoint_files = [path for path in sorted(own) if path.name in CHECKPOINT_NAMES]
        self.left_out = sorted(left_out)
        self.stamps = {path.name: stamp for path, stamp in own.items()}
        if replica.is_remote and replica.only is None:
            self._add_remote(own)
            return
        self.segments = sorted(by_kind.get(("log", None), ()))
        self.snapshot_files = [] if replica.is_remote else sorted(by_kind.get(("snapshot", None), ()))
        self.txn_indexes = sorted(by_kind.get(("txnindex", None), ()))
        self.offset_indexes = {file.offset: file.path for file in by_kind.get(("index", None), ())}
        self.time_indexes = {file.offset: file.path for file in by_kind.get(("timeindex", None), ())}
        if remote:
            self._add_remote({path: stamp for path, stamp in remote.items() if is_remote_file(path.name)})

    def _add_remote(self, remote: Mapping[LogPath, FileStamp]) -> None:
        """Add the segments in remote storage that begin before those of the broker.

        The largest copy of each remote segment counts: a leader that failed to finish one, or to note it, made another.
        Where segments overlap, as those that two leaders copied, each one ends where the next begins. Snapshots in
        remote storage have the base offset of their segment in their names, and the state at its end, so they are not
        read.
        """
        local_start = self.segments[0].offset if self.segments else None
        by_kind: dict[str, list[LogFile]] = {}
        for path in remote:
            known = parse_file_name(path.name)
            if known is not None and known.suffix is None:
                by_kind.setdefault(known.kind, []).append(LogFile(known.offset, path))
        largest: dict[int, LogFile] = {}
        for segment in sorted(by_kind.get("log", ()), key=lambda each: (remote[each.path].size, each)):
            if local_start is None or segment.offset < local_start:
                largest[segment.offset] = segment
        stops = dict(pairwise([*sorted(largest), local_start]))
        chosen = {each.path.stem: stops[each.offset] for each in largest.values()}
        others = [each.path for each in by_kind.get("log", ()) if each.path.stem not in chosen]
        kept = {
            kind: sorted(each._replace(stop=chosen[each.path.stem]) for each in files if each.path.stem in chosen)
            for kind, files in by_kind.items()
        }
        self.segments = [*kept.get("log", ()), *self.segments]
        self.txn_indexes = [*kept.get("txnindex", ()), *self.txn_indexes]
        self.offset_indexes = {**{each.offset: each.path for each in kept.get("index", ())}, **self.offset_indexes}
        self.time_indexes = {**{each.offset: each.path for each in kept.get("timeindex", ())}, **self.time_indexes}
        self.left_out = sorted([*self.left_out, *(SkippedFile(path, WHY_LEFT_OUT["remote"]) for path in others)])
        self.stamps = {path.name: stamp for path, stamp in remote.items()} | dict(self.stamps)

    @property
    def newest_size(self) -> int:
        """Bytes of its newest segment."""
        return sum(self.stamps[segment.path.name].size for segment in self.segments[-1:])

    @property
    def tail_size(self) -> int:
        """About how many bytes of that are after the newest producer snapshot; of brokers that were stopped, few."""
        newest, at = self.segments[-1:], max((each.offset for each in self.snapshot_files), default=0)
        return self.newest_size - sum(self._position_before(each, at) for each in newest)

    def changes(self, *, appending: bool) -> list[str]:
        """What happened to its files since they were listed, a sentence each.

        `appending`: whether a broker may be appending, so that larger files and new ones are not reported.
        """
        found, now = [], FolderLog(self.replica)
        for name in [file.path.name for file in (*self.segments, *self.snapshot_files)]:
            old, new = self.stamps.get(name), now.stamps.get(name)
            if new is None or old is None:
                found.append(f"{name} was removed while it was read")
            elif new.inode != old.inode or new.size < old.size:
                found.append(f"{name} was replaced while it was read")
            elif new != old and not appending:
                found.append(f"{name} was written to while it was read")
        if not appending and len(now.segments) > len(self.segments):
            found.append("a segment was added while it was read")
        return found

    def parts(self, *, start: int | None = None, stop: int | None = None, crc: bool = False) -> Iterator[LogChunk]:
        """The batches with an offset in ``start <= offset < stop`` in chunks, in log order and in bounded memory.

        A file that has disappeared since it was listed is damage (``UNREADABLE``).
        """
        return clip(self._scan(start, stop, crc=crc), start=start, stop=stop)

    def parts_near(self, start: int, *, crc: bool = False) -> Iterator[LogChunk]:
        """The batches from one at or before an offset on, depending on the offset index."""
        return self._scan(start, None, crc=crc)

    def with_bytes(self, start: int) -> Iterator[LogChunk]:
        """The batches with an offset from `start` on, with their bytes."""
        return clip(self._scan(start, with_bytes=True), start=start)

    def _scan(
        self, start: int | None = None, stop: int | None = None, *, crc: bool = True, with_bytes: bool = False
    ) -> Iterator[LogChunk]:
        """The batches of a range, and some before and after it."""
        for segment, position, is_newest in self.segments_of(start, stop):
            is_last = stop is not None and all(not segment.offset < each < stop for each in self.base_offsets)
            piece_bytes = SMALL_PIECE_BYTES if is_last else PIECE_BYTES
            scanned = scan_file(segment.path, start=position, crc=crc, with_bytes=with_bytes, piece_bytes=piece_bytes)
            for each in scanned:
                yield (part := segment_part(each, segment.path, segment.stop, is_newest=is_newest))
                if stop is not None and len(part.headers) and part.headers["base_offset"][-1] >= stop:
                    return

    def segments_of(self, start: int | None, stop: int | None) -> Iterator[tuple[LogFile, int, bool]]:
        """Segments with an offset of a range, the byte to start at, and whether the segment is the log's last."""
        first = 0 if start is None else max(bisect_right(self.base_offsets, start) - 1, 0)
        for number, segment in enumerate(self.segments[first:], start=first):
            if stop is not None and segment.offset >= stop:
                return
            position = self._position_before(segment, start) if start is not None and number == first else 0
            yield segment, position, number == len(self.segments) - 1

    def _position_before(self, segment: LogFile, offset: int) -> int:
        """Byte of a segment where a batch at or before an offset begins, by its offset index; 0 without a usable entry.

        An index has no checksum, so its entry is used only if there is a batch with such an offset.
        """
        path = self.offset_indexes.get(segment.offset)
        if path is None or offset <= segment.offset:
            return 0
        try:
            index = read_offset_index(path.read_bytes(), base_offset=segment.offset)
            at = int(index["offset"].searchsorted(offset, side="right")) - 1
            if at < 0:
                return 0
            position = int(index["position"][at])
            with segment.path.open("rb") as file:
                file.seek(position)
                header = read_header(file.read(HEADER_SIZE))
        except (OSError, DecodeError):
            return 0
        return position if segment.offset <= header.base_offset <= offset else 0

    def offset_before(self, time_ms: int) -> int:
        """An offset before which no record has this time or a newer one, by the time indexes; 0 if they have none."""
        found = 0
        for segment in self.segments:
            try:
                buf = self.time_indexes[segment.offset].read_bytes()
            except (KeyError, OSError):
                return max(found, segment.offset)
            index = read_time_index(buf, base_offset=segment.offset)
            older = int(index["timestamp"].searchsorted(time_ms))
            if older < len(index):
                return int(index["offset"][older - 1]) if older else max(found, segment.offset)
            found = int(index["offset"][-1]) if older else found
        return found

    def transaction_log(self, *, start: int | None = None, stop: int | None = None) -> Iterator[TransactionLogRecord]:
        """Records of ``__transaction_state``, and read errors."""
        return self._records(transaction_log, self._of_transactions, start, stop)

    def indexed(self) -> tuple[RecordIndex, Iterator[LogChunk]]:
        """All batches of a partition of ``__transaction_state``, and an index that is filled as they are consumed."""
        index = RecordIndex(self._of_transactions)
        return index, self._indexing(index)

    def _indexing(self, index: RecordIndex) -> Iterator[LogChunk]:
        for part in self._scan(with_bytes=True):
            index.add(part)
            yield part

    def offsets_log(self, *, start: int | None = None, stop: int | None = None) -> Iterator[OffsetsLogRecord]:
        """Records of ``__consumer_offsets``, and read errors."""
        return self._records(offsets_log, self._of_offsets, start, stop)

    def offsets_log_in(self, headers: Headers) -> Iterator[OffsetsLogRecord]:
        """The records of some batches of ``__consumer_offsets``."""
        for header in headers:
            position = int(header["position"])
            segment = self.segments[bisect_right(self.base_offsets, header["base_offset"]) - 1]
            where = replace(self._of_offsets, file=str(segment.path))
            try:
                buf = bytes_at(str(segment.path), position, int(header["size"]))
            except OSError as exc:
                yield replace(where, error=_unreadable(exc))
                continue
            yield from offsets_log(buf, 0, where=where, begin=position)

    def snapshots(self) -> Iterator[ProducerSnapshot]:
        """The producer snapshots, newest first."""
        for offset, path, _ in reversed(self.snapshot_files):
            try:
                yield ProducerSnapshot(offset, read_snapshot(path.read_bytes()), file=str(path))
            except DecodeError as exc:
                yield ProducerSnapshot(offset, (), f"CORRUPT_SNAPSHOT: {path.name}: {exc}", str(path))
            except OSError as exc:
                yield ProducerSnapshot(offset, (), f"UNREADABLE: {path.name}: {exc.strerror}.", str(path))

    def segment_rows(self) -> Iterator[LogSegment]:
        """Its segments."""
        where = self.where.columns
        for offset, path, _ in self.segments:
            stamp = self.stamps[path.name]
            modified = utc(stamp.modified_ns // 1_000_000)
            yield LogSegment(**where, base_offset=offset, size=stamp.size, modified=modified, file=str(path))

    def aborted_rows(self) -> Iterator[TxnIndexEntry]:
        """Entries of the transaction indexes, and read errors."""
        where = self.where.columns
        for _, path, stop in self.txn_indexes:
            file = str(path)
            try:
                entries, damage = read_txn_index(path.read_bytes())
            except OSError as exc:
                yield TxnIndexEntry(**where, file=file, error=_unreadable(exc))
                continue
            # one whose marker is in the next segment is in its index, too
            own = (entry for entry in entries if stop is None or entry.last_offset < stop)
            yield from index_entries(own, self.where, file)
            for each in damage:
                yield TxnIndexEntry(**where, file=file, position=each.position, error=each.reason)
        yield from self._unindexed_rows()

    def _unindexed_rows(self) -> Iterator[TxnIndexEntry]:
        """Aborted transactions of segments in remote storage without an index, by their batches.

        Kafka copies no index if nothing was aborted, and takes a lost one for that.
        """
        indexed = {index.offset for index in self.txn_indexes}
        segments = [] if self.replica.only else self.remote_segments
        stops = {str(each.path): each.stop for each in segments if each.offset not in indexed}
        if not stops:
            return
        fold, file_of = LogFold(partial=known_before(self, None)), dict[int, str | None]()
        for part in at_missing_offsets(map(intact, self.parts(stop=[*stops.values()][-1], crc=True))):
            fold.add(part)
            if part.file in stops:
                headers = part.headers
                markers = headers["base_offset"][headers["attributes"] & CONTROL != 0]
                file_of |= dict.fromkeys(markers.tolist(), part.file)
        for folded in fold.finish():
            aborted = folded.log_transactions[folded.log_transactions["outcome"] == ABORT]
            for producer_id, first, marker in aborted[["producer_id", "first_offset", "marker_offset"]].tolist():
                if marker in file_of:
                    yield TxnIndexEntry(
                        **self.where.columns,
                        producer_id=producer_id,
                        first_offset=first if first >= 0 else None,
                        last_offset=marker,
                        file=file_of[marker],
                        error=NO_INDEX,
                    )

    def checkpoint_rows(self) -> Iterator[CheckpointEntry]:
        """Entries of the checkpoint files in its folder."""
        if self.replica.only is None:
            names = [path.name for path in self.checkpoint_files] if not self.error else IN_PARTITIONS
            yield from checkpoint_rows_in(self.replica.path, **self.where.columns, names=names)

    def _records(
        self, decode: Callable[..., Iterator[R]], of_partition: R, start: int | None, stop: int | None
    ) -> Iterator[R]:
        if self.error:
            yield replace(of_partition, file=self.name, error=self.error)
            return
        for part in self._scan(start, stop, with_bytes=True):
            clipped = next(clip([part], start=start, stop=stop))
            yield from decoded(clipped, decode, replace(of_partition, file=part.file))


def decoded(part: LogChunk, decode: Callable[..., Iterator[R]], where: R) -> Iterator[R]:
    """The records of a chunk, and what could not be read. `where`: a record that has only the file and the log."""
    try:
        for headers, begin, buf in in_pieces(part):
            for position in headers["position"].tolist():
                yield from decode(buf, position - begin, where=where, begin=begin)
    except OSError as exc:
        yield replace(where, error=_unreadable(exc))
    for each in part.damage:
        yield replace(where, position=each.position, error=each.reason)


def _finish_swaps(by_kind: dict[tuple[str, str | None], list[LogFile]]) -> list[SkippedFile]:
    """Make the files those after the broker's next start (``LogLoader``), and return what these replace.

    A ``.swap`` file is finished and replaces the segments that it covers, with their indexes, unless a ``.cleaned``
    file shows that the cleaner was not done.
    """
    swaps = sorted(by_kind.get(("log", "swap"), ()))
    unfinished = min((file.offset for file in by_kind.get(("log", "cleaned"), ())), default=None)
    valid = [swap for swap in swaps if unfinished is None or swap.offset < unfinished]
    left_out = [SkippedFile(swap.path, WHY_LEFT_OUT["swap"]) for swap in swaps if swap not in valid]
    if not valid:
        return left_out
    covered, offsets = range(valid[0].offset, max(map(_next_offset, valid))), {swap.offset for swap in valid}
    for kind in ("log", "index", "timeindex", "txnindex"):
        files = by_kind.get((kind, None), [])
        if kind == "log":
            left_out += [SkippedFile(each.path, WHY_LEFT_OUT["swapped"]) for each in files if each.offset in covered]
        new = [each for each in by_kind.get((kind, "swap"), ()) if each.offset in offsets]
        by_kind[kind, None] = sorted([*(each for each in files if each.offset not in covered), *new])
    return left_out


def _next_offset(segment: LogFile) -> int:
    newest = segment.offset
    for part in scan_file(segment.path):
        if len(part.headers):
            newest = int(part.headers["last_offset"][-1]) + 1
    return newest


def _first_offset(path: LogPath) -> int:
    """First offset of a segment whose name does not have it."""
    try:
        with path.open("rb") as file:
            return max(int.from_bytes(file.read(8), "big", signed=True), 0)
    except OSError:
        return 0


def index_entries(txns: Iterable[AbortedTxn], log_id: LogId, file: str) -> Iterator[TxnIndexEntry]:
    """Rows of ``schema.ABORTED``."""
    for txn in txns:
        columns = txn._asdict()
        del columns["version"]
        yield TxnIndexEntry(**log_id.columns, file=file, **columns)


def opened_before(snapshot: ProducerSnapshot) -> dict[int, tuple[int, int]]:
    """Start offset and epoch of the transactions that are open in a snapshot, by producer id."""
    return {
        entry.producer_id: (entry.current_txn_start_offset, entry.producer_epoch)
        for entry in snapshot.producers
        if entry.current_txn_start_offset is not None
    }


def known_before(log: ReplicaLog, start: int | None, *, cleaned: int = -1) -> PartialTransactions:
    """The open transactions of a log at an offset, from a snapshot and the batches after it; unknown if one is missing.

    `start`: the offset; null for the base offset of the first segment.
    `cleaned`: offset up to which it was cleaned, as in `at_missing_offsets`.
    """
    first = log.base_offsets[0] if log.base_offsets else 0
    at = first if start is None else max(start, first)
    known = next((each for each in log.snapshots() if not each.error and first <= each.offset <= at), None)
    if known is None and first > 0:
        return EMPTY
    before = begin(opened_before=opened_before(known) if known else None)
    since = known.offset if known else None
    parts = map(intact, log.parts(start=since, stop=at, crc=True))
    for part in at_missing_offsets(parts, expected=since, cleaned=cleaned):
        if part.missing is not None or any(not each.is_torn for each in part.damage):
            return EMPTY
        headers = part.headers
        after = known.offset if known else 0
        inside = (headers["base_offset"] >= after) & (headers["last_offset"] < at)
        before = merge(before, partial_transactions(headers[inside])).take_closed()[1]
    log_transactions = finish(before)
    still_open = log_transactions[(log_transactions["outcome"] == OPEN) & (log_transactions["first_offset"] >= 0)]
    opened = still_open[["producer_id", "first_offset", "first_epoch"]].tolist()
    return begin(opened_before={producer_id: (first, epoch) for producer_id, first, epoch in opened})


def segment_part(part: LogChunk, path: LogPath | str, stop: int | None, *, is_newest: bool) -> LogChunk:
    """What was read of a segment, up to where the next one begins; a torn end is a loss unless it ends the log."""
    damage = part.damage
    if not is_newest:  # no broker is still writing to it
        damage = tuple(each._replace(reason=TORN_BETWEEN) if each.is_torn else each for each in damage)
    part = replace(part, file=str(path), damage=damage)
    return part if stop is None else next(clip([part], stop=stop))


def _unreadable(exc: OSError) -> str:
    return f"UNREADABLE: {exc.strerror}."
