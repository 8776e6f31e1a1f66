"""A partition's log in its folder: batches, records of the coordinators, snapshots, indexes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from toolkit.errors import DecodeError
from toolkit.formats.coordinator.coordinator_log_rows import offsets_log, transaction_log
from toolkit.formats.log.batches import CONTROL
from toolkit.formats.log.headers import ABORT, Headers
from toolkit.formats.segment_files import read_snapshot, read_txn_index
from toolkit.schema import utc
from toolkit.schema.log import CheckpointEntry, LogSegment, OffsetsLogRecord, TransactionLogRecord, TxnIndexEntry
from toolkit.sources.log_tables import LogFold, LogId, ScanChunk, at_missing_offsets, clip
from toolkit.sources.logdir.replica.log_dir_layout import IN_PARTITIONS, Replica, checkpoint_rows_in
from toolkit.sources.logdir.replica.replica_files import (
    ReplicaFiles,
    bytes_at,
    changes,
    in_pieces,
    list_files,
    offset_before,
    read_bytes,
    read_parts,
)
from toolkit.sources.logdir.replica.replica_log import ProducerSnapshot, R, RecordIndex, index_entries
from toolkit.sources.logdir.replica.replica_state import known_before

NO_INDEX = (
    "NO_INDEX: the transaction index of this segment in remote storage is missing, so Kafka returns the records of "
    "this transaction to read_committed consumers."
)


class FolderLog:
    """The log of one replica (`toolkit.sources.logdir.replica.replica_log.ReplicaLog`)."""

    is_text = False

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.listing: ReplicaFiles = list_files(replica)
        self.where = LogId(topic=replica.topic, partition=replica.partition, broker_id=replica.root.broker_id)
        self.name = str(replica.path)
        self.root = replica.root
        self.is_remote = replica.is_remote
        self.error = self.listing.error
        self.left_out = self.listing.left_out
        self.base_offsets: Sequence[int] = [segment.offset for segment in self.listing.segments]
        local = self.base_offsets[len(self.listing.remote_segments) :]
        self.local_start = local[0] if local else None
        stamps = self.listing.stamps
        self.size = sum(stamps[segment.path.name].size for segment in self.listing.segments)
        number, broker_id = replica.partition, replica.root.broker_id
        self._of_transactions = TransactionLogRecord(txn_state_partition=number, broker_id=broker_id)
        self._of_offsets = OffsetsLogRecord(group_partition=number, broker_id=broker_id)

    @property
    def newest_size(self) -> int:
        """Bytes of its newest segment."""
        return sum(self.listing.stamps[segment.path.name].size for segment in self.listing.segments[-1:])

    def offset_before(self, time_ms: int) -> int:
        """An offset before which no record has this time or a newer one."""
        return offset_before(self.listing, time_ms)

    def parts_near(self, start: int, *, crc: bool = False) -> Iterator[ScanChunk]:
        return read_parts(self.listing, start=start, crc=crc)

    def parts(self, *, start: int | None = None, stop: int | None = None, crc: bool = False) -> Iterator[ScanChunk]:
        return clip(read_parts(self.listing, start=start, stop=stop, crc=crc), start=start, stop=stop)

    def transaction_log(self, *, start: int | None = None, stop: int | None = None) -> Iterator[TransactionLogRecord]:
        return self._records(transaction_log, self._of_transactions, start, stop)

    def indexed(self) -> tuple[RecordIndex, Iterator[ScanChunk]]:
        index = RecordIndex(self._of_transactions)
        return index, self._indexing(index)

    def _indexing(self, index: RecordIndex) -> Iterator[ScanChunk]:
        for part, pieces in read_bytes(self.listing):
            where = replace(self._of_transactions, file=part.file)
            for each in part.scanned.damage:
                index.add_record(replace(where, position=each.position, error=each.reason))
            try:
                index.add(part.scanned.headers, pieces, part.file or "")
            except OSError as exc:
                index.add_record(replace(where, error=_unreadable(exc)))
            yield part

    def offsets_log(self, *, start: int | None = None, stop: int | None = None) -> Iterator[OffsetsLogRecord]:
        return self._records(offsets_log, self._of_offsets, start, stop)

    def offsets_log_in(self, headers: Headers) -> Iterator[OffsetsLogRecord]:
        for header in headers:
            position = int(header["position"])
            segment = self.listing.segments[bisect_right(self.base_offsets, header["base_offset"]) - 1]
            where = replace(self._of_offsets, file=str(segment.path))
            try:
                buf = bytes_at(str(segment.path), position, int(header["size"]))
            except OSError as exc:
                yield replace(where, error=_unreadable(exc))
                continue
            yield from offsets_log(buf, 0, where=where, begin=position)

    def snapshots(self) -> Iterator[ProducerSnapshot]:
        for offset, path, _ in reversed(self.listing.snapshots):
            try:
                yield ProducerSnapshot(offset, read_snapshot(path.read_bytes()), file=str(path))
            except DecodeError as exc:
                yield ProducerSnapshot(offset, (), f"CORRUPT_SNAPSHOT: {path.name}: {exc}", str(path))
            except OSError as exc:
                yield ProducerSnapshot(offset, (), f"UNREADABLE: {path.name}: {exc.strerror}.", str(path))

    def segment_rows(self) -> Iterator[LogSegment]:
        where = self.where.columns
        for offset, path, _ in self.listing.segments:
            stamp = self.listing.stamps[path.name]
            modified = utc(stamp.modified_ns // 1_000_000)
            yield LogSegment(**where, base_offset=offset, size=stamp.size, modified=modified, file=str(path))

    def aborted_rows(self) -> Iterator[TxnIndexEntry]:
        where = self.where.columns
        for _, path, stop in self.listing.txn_indexes:
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
        indexed = {index.offset for index in self.listing.txn_indexes}
        segments = [] if self.replica.only else self.listing.remote_segments
        stops = {str(each.path): each.stop for each in segments if each.offset not in indexed}
        if not stops:
            return
        fold, file_of = LogFold(partial=known_before(self, None)), dict[int, str | None]()
        for part in at_missing_offsets(self.parts(stop=[*stops.values()][-1])):
            fold.add(part)
            if part.file in stops:
                headers = part.scanned.headers
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
        if self.replica.only is None:
            names = [path.name for path in self.listing.checkpoints] if not self.listing.error else IN_PARTITIONS
            yield from checkpoint_rows_in(self.replica.path, **self.where.columns, names=names)

    def changes(self, *, appending: bool) -> list[str]:
        return changes(self.listing, list_files(self.replica), appending=appending)

    def _records(
        self, decode: Callable[..., Iterator[R]], of_partition: R, start: int | None, stop: int | None
    ) -> Iterator[R]:
        if self.error:
            yield replace(of_partition, file=self.name, error=self.error)
            return
        for (scanned, file, _), pieces in read_bytes(self.listing, start=start, stop=stop):
            where = replace(of_partition, file=file)
            clipped = next(clip([ScanChunk(scanned, file)], start=start, stop=stop)).scanned
            try:
                for headers, begin, buf in in_pieces(clipped.headers, pieces, file or ""):
                    for position in headers["position"].tolist():
                        yield from decode(buf, position - begin, where=where, begin=begin)
            except OSError as exc:
                yield replace(where, error=_unreadable(exc))
            for each in clipped.damage:
                yield replace(where, position=each.position, error=each.reason)


def _unreadable(exc: OSError) -> str:
    return f"UNREADABLE: {exc.strerror}."
