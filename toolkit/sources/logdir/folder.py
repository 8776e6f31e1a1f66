"""A partition's log in its folder: batches, records of the coordinators, snapshots, indexes."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from toolkit.errors import DecodeError
from toolkit.formats.events import coordinator_events, group_events, unread_records
from toolkit.formats.group_records import OFFSETS_TOPIC
from toolkit.formats.headers import Headers, Scanned
from toolkit.formats.indexes import read_txn_index
from toolkit.formats.records import STATE_TOPIC
from toolkit.formats.snapshots import read_snapshot
from toolkit.schema import Row, utc
from toolkit.sources.log_tables import Part, Where, clip
from toolkit.sources.logdir.batches import bytes_at, in_pieces, read_bytes, read_parts
from toolkit.sources.logdir.files import Listing, changes, list_files
from toolkit.sources.logdir.layout import LeftOut, Replica, Root
from toolkit.sources.logdir.log import Snapshot
from toolkit.sources.logdir.marks import replica_rows
from toolkit.sources.logdir.record_index import Decode, RecordIndex

__all__ = ["FolderLog"]


class FolderLog:
    """The log of one replica (`toolkit.sources.logdir.log.Log`).

    Parameters
    ----------
    replica
        Where it is.
    """

    is_text = False

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.listing: Listing = list_files(replica)
        self.where = Where(topic=replica.topic, partition=replica.partition, broker_id=replica.broker_id)

    @property
    def name(self) -> str:
        return str(self.replica.path)

    @property
    def root(self) -> Root:
        return self.replica.root

    @property
    def error(self) -> str | None:
        return self.listing.error

    @property
    def modified(self) -> dt.datetime | None:
        return self.listing.modified

    @property
    def size(self) -> int:
        return sum(self.listing.stamps[segment.path.name].size for segment in self.listing.segments)

    @property
    def base_offsets(self) -> Sequence[int]:
        return [segment.offset for segment in self.listing.segments]

    @property
    def left_out(self) -> Sequence[LeftOut]:
        return self.listing.left_out

    def parts_near(self, start: int, *, crc: bool = False) -> Iterator[Part]:
        return read_parts(self.listing, start=start, crc=crc)

    def parts(self, *, start: int | None = None, stop: int | None = None, crc: bool = False) -> Iterator[Part]:
        return clip(read_parts(self.listing, start=start, stop=stop, crc=crc), start=start, stop=stop)

    def coordinator_events(self, *, start: int | None = None, stop: int | None = None) -> Iterator[Row]:
        return self._records(self._coordinator_events, STATE_TOPIC, start, stop)

    def indexed(self) -> tuple[RecordIndex, Iterator[Part]]:
        index = RecordIndex(self._coordinator_events)
        return index, self._indexing(index)

    def _indexing(self, index: RecordIndex) -> Iterator[Part]:
        for part, pieces in read_bytes(self.listing):
            for row in self._unread(STATE_TOPIC, part.scanned, part.file):
                index.add_row(row)
            try:
                index.add(part.scanned.headers, pieces, part.file or "")
            except OSError as exc:
                index.add_row(self._unreadable(STATE_TOPIC, exc, part.file))
            yield part

    def _coordinator_events(self, buf: bytes, position: int, file_position: int, file: str) -> Iterator[Row]:
        return coordinator_events(
            buf,
            position,
            txn_state_partition=self.where.partition,
            broker_id=self.where.broker_id,
            file=file,
            file_position=file_position,
        )

    def group_events(self, *, start: int | None = None, stop: int | None = None) -> Iterator[Row]:
        return self._records(self._group_events, OFFSETS_TOPIC, start, stop)

    def group_events_in(self, headers: Headers) -> Iterator[Row]:
        for header in headers:
            position = int(header["position"])
            segment = self.listing.segments[bisect_right(self.base_offsets, header["base_offset"]) - 1]
            try:
                buf = bytes_at(str(segment.path), position, int(header["size"]))
            except OSError as exc:
                yield self._unreadable(OFFSETS_TOPIC, exc, str(segment.path))
                continue
            yield from self._group_events(buf, 0, position, str(segment.path))

    def _group_events(self, buf: bytes, position: int, file_position: int, file: str) -> Iterator[Row]:
        return group_events(
            buf,
            position,
            group_partition=self.where.partition,
            broker_id=self.where.broker_id,
            file=file,
            file_position=file_position,
        )

    def snapshots(self) -> Iterator[Snapshot]:
        for offset, path in reversed(self.listing.snapshots):
            try:
                yield Snapshot(offset, read_snapshot(path.read_bytes()), file=str(path))
            except DecodeError as exc:
                yield Snapshot(offset, (), f"CORRUPT_SNAPSHOT: {path.name}: {exc}", str(path))
            except OSError as exc:
                yield Snapshot(offset, (), f"UNREADABLE: {path.name}: {exc.strerror}.", str(path))

    def segment_rows(self) -> Iterator[Row]:
        for offset, path in self.listing.segments:
            stamp = self.listing.stamps[path.name]
            yield {
                **self.where.columns,
                "base_offset": offset,
                "size": stamp.size,
                "modified": utc(stamp.modified_ns // 1_000_000),
                "file": str(path),
            }

    def aborted_rows(self) -> Iterator[Row]:
        for _, path in self.listing.txn_indexes:
            place = {**self.where.columns, "file": str(path)}
            try:
                entries, damage = read_txn_index(path.read_bytes())
            except OSError as exc:
                yield {**place, "error": f"UNREADABLE: {exc.strerror}."}
                continue
            for entry in entries:
                yield {
                    **place,
                    "producer_id": entry.producer_id,
                    "first_offset": entry.first_offset,
                    "last_offset": entry.last_offset,
                    "last_stable_offset": entry.last_stable_offset,
                    "position": entry.position,
                }
            for each in damage:
                yield {**place, "position": each.position, "error": each.reason}

    def checkpoint_rows(self) -> Iterator[Row]:
        return replica_rows(self.replica)

    def changes(self, *, appending: bool) -> list[str]:
        return changes(self.listing, list_files(self.replica), appending=appending)

    def _records(self, decode: Decode, topic: str, start: int | None, stop: int | None) -> Iterator[Row]:
        for (scanned, file), pieces in read_bytes(self.listing, start=start, stop=stop):
            clipped = next(clip([Part(scanned, file)], start=start, stop=stop)).scanned
            try:
                for headers, begin, buf in in_pieces(clipped.headers, pieces, file or ""):
                    for position in headers["position"].tolist():
                        yield from decode(buf, position - begin, position, file or "")
            except OSError as exc:
                yield self._unreadable(topic, exc, file)
            yield from self._unread(topic, clipped, file)

    def _unread(self, topic: str, scanned: Scanned, file: str | None) -> Iterator[Row]:
        for each in scanned.damage:
            yield unread_records(
                topic,
                self.where.partition,
                error=each.reason,
                broker_id=self.where.broker_id,
                file=file,
                position=each.position,
            )

    def _unreadable(self, topic: str, exc: OSError, file: str | None) -> Row:
        error = f"UNREADABLE: {exc.strerror}."
        return unread_records(topic, self.where.partition, error=error, broker_id=self.where.broker_id, file=file)
