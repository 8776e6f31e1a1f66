"""One read of a replica's log: the data for its state, consistency check, evidence, LSO holds and counts.

What its end says (offsets, producers, open transactions) is `ReplicaState`. ``__cluster_metadata`` in files is what the
controllers have decided, by the newest snapshot and the segments. Each node of KRaft has its replica of that log, so
several log directories repeat the same records.
"""

from __future__ import annotations

import datetime as dt
import operator
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from toolkit.analysis.log.log_transactions import EMPTY, RunningTotals, begin
from toolkit.analysis.log.offset_status import at_missing_offsets, intact
from toolkit.analysis.log.producer_state import open_batches, producer_records, producer_state, resume
from toolkit.formats.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.formats.headers import (
    NO_MARKER,
    SNAPSHOT_FOOTER,
    Array,
    HeaderField,
    Headers,
    LogChunk,
    LostOffsets,
    concatenate,
)
from toolkit.formats.log_dir_files import LogPath, scandir
from toolkit.formats.metadata_records import MetadataState, metadata_log
from toolkit.formats.scan import scan_file
from toolkit.schema import utc
from toolkit.schema.coerce import OffsetSpec
from toolkit.schema.live import Partition, Producer
from toolkit.schema.log import MetadataLogRecord
from toolkit.schema.table import EPOCH, TopicPartition
from toolkit.sources.log_tables import FoldedRange, LogFold, from_offset
from toolkit.sources.logdir.log_dir_layout import LOG_START, METADATA_TOPIC, PartitionCheckpoints
from toolkit.sources.logdir.replica_log import (
    FolderLog,
    ProducerSnapshot,
    RecordIndex,
    ReplicaLog,
    decoded,
    known_before,
    opened_before,
)
from toolkit.sources.offset_queries import NAMED, milliseconds

SNAPSHOT_NAME = re.compile(r"[0-9]{20}-.*\.checkpoint")
NO_METADATA_LOG = (
    "NO_METADATA_LOG: the files have no __cluster_metadata-0, as with ZooKeeper, or it was not copied; it is on every "
    "controller and broker."
)
NEWEST = dt.datetime.max.replace(tzinfo=dt.UTC)


class MetadataEnd(NamedTuple):
    """What a replica of the metadata log says at its end."""

    state: MetadataState  # what holds there
    log: FolderLog | None = None  # the replica; null without any
    offset: int = -1  # of its last record; -1 without any
    error: str | None = None  # why that is not all, other than a torn end; null if it is

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; null if the metadata log is not whole, or does not have the topic."""
        if self.error is not None:
            return None
        return sum(self.state.topics.get(topic_id) == topic for topic_id, _ in self.state.partitions) or None

    def is_without(self, topic: str) -> bool:
        """Whether the cluster has no such topic; false if the metadata log is not whole, or has no record."""
        return self.error is None and self.offset >= 0 and topic not in self.state.topics.values()

    def stale_replica_doubts(self, tp: TopicPartition, broker_id: int | None) -> list[str]:
        """What is missing if a broker's replica is not in sync there, as `Observation.doubts`."""
        partition = None if self.error is not None else self.state.partition(tp.topic, tp.partition)
        if partition is None or broker_id is None or broker_id in (isr := partition.isr or ()):
            return []
        return [
            f"a replica of {tp.topic}-{tp.partition} in sync: by the metadata log, that of broker {broker_id} was not "
            f"(ISR {', '.join(map(str, isr)) or 'empty'}), so its log may end before the marker"
        ]


def metadata_end(log: FolderLog) -> MetadataEnd:
    """Read a replica from its newest snapshot on."""
    state, offset, error = MetadataState(), -1, None
    for record in metadata_records(log, state, since=NEWEST):
        offset = offset if record.offset is None else record.offset
        if error is None and record.error is not None and not record.error.startswith("TORN_TAIL"):
            error = record.error
    return MetadataEnd(state, log, offset, error)


def metadata_records(
    log: FolderLog, state: MetadataState | None = None, *, since: dt.datetime | None = None
) -> Iterator[MetadataLogRecord]:
    """The records of a replica, in the order of the log, each with what holds after it.

    A snapshot replaces the segments that are deleted: the oldest one that has what is missing before the first segment.

    `state`: filled with what the records say.
    `since`: begin with the newest snapshot that was written before this time, `NEWEST` for the state at the end.
    """
    if log.error:
        yield MetadataLogRecord(metadata_node_id=log.where.broker_id, file=log.name, error=log.error)
        return
    state, begin = MetadataState() if state is None else state, 0
    first = log.base_offsets[0] if log.base_offsets else None
    snapshots = [(path, end) for path, end in _snapshots(log) if first is None or end >= first]
    if first != 0 and not snapshots:
        error = f"NO_SNAPSHOT: no snapshot has the records before offset {first}."
        yield MetadataLogRecord(metadata_node_id=log.where.broker_id, file=log.name, error=error)
    needed = snapshots[-1:] if first is None else snapshots[:1] if first else []
    if since is not None and first is not None:
        needed = next(([each] for each in reversed(snapshots) if _is_before(log, each[0], since)), needed)
    for snapshot, begin in needed:
        for record in _in_snapshot(log, snapshot):
            yield state.add(replace(record, offset=begin - 1))
    where = MetadataLogRecord(metadata_node_id=log.where.broker_id)
    around = [offset for offset in log.base_offsets if offset <= begin][-1:]  # all of it is to be intact
    parts = log.with_bytes(*(around or [begin]))
    for part in at_missing_offsets(parts, expected=begin if needed and not around else None):
        if part.missing is not None and part.missing.error is not None:
            yield replace(where, file=part.file, error=part.missing.error)
        for record in decoded(part, metadata_log, replace(where, file=part.file)):
            if record.error or record.offset is None or record.offset >= begin:
                yield state.add(record)


def _is_before(log: FolderLog, snapshot: LogPath, time: dt.datetime) -> bool:
    record = next(_in_snapshot(log, snapshot), None)
    return record is not None and record.timestamp is not None and record.timestamp < time


def _snapshots(log: FolderLog) -> list[tuple[LogPath, int]]:
    """The snapshots, and the offset after the last one that each includes."""
    names = sorted(entry.name for entry in scandir(log.replica.path))
    return [(log.replica.path / name, int(name[:20])) for name in names if SNAPSHOT_NAME.fullmatch(name)]


def _in_snapshot(log: FolderLog, file: LogPath) -> Iterator[MetadataLogRecord]:
    where, last = MetadataLogRecord(metadata_node_id=log.where.broker_id, file=str(file)), NO_MARKER
    for scanned in scan_file(file, crc=True, with_bytes=True):
        yield from decoded(replace(scanned, file=str(file)), metadata_log, where)
        last = scanned.headers["marker"][-1] if len(scanned.headers) else last
    if last != SNAPSHOT_FOOTER:
        yield replace(where, error="INCOMPLETE_SNAPSHOT: It ends without a footer, so records of it are missing.")


MAX_GAPS = 1000
FORWARD = 200_000  # batches that are kept from the first offset of the lowest open transaction on
BACK = 2_000  # offsets before it that an excerpt begins with
FAR_BACK = 100_000  # offsets before it that are kept, and searched if `BACK` contains no marker of the producers
CONTROL_FIELDS: tuple[HeaderField, ...] = ("base_offset", "producer_id", "max_timestamp")


class ReadLimit(Enum):
    """How far back a log is read."""

    TAIL = "from the newest intact snapshot on, or from the lowest transaction that is open there, with checksums"
    OPEN = "as TAIL, with the batches around the lowest open transaction"
    WHOLE = "the complete log, with checksums"
    RECORDS = "the complete log of __transaction_state, with checksums and an index of its records"


class DamagedBytes(NamedTuple):
    """Bytes that are no batch, or a batch with a wrong checksum."""

    reason: str  # ``NAME: sentence``
    place: str  # the byte and the file
    is_torn: bool  # whether it is an incomplete batch at the end of a log, as a crash leaves it
    next_offset: int | None  # the offset after it; null if no batch follows

    @property
    def error(self) -> str:
        """`reason`, with `place`."""
        return f"{self.reason.rstrip('.')} ({self.place})."

    def reaches(self, offset: int) -> bool:
        """Whether it may be at or after an offset, by the batches around it."""
        return self.next_offset is None or self.next_offset > offset


@dataclass(slots=True)
class Contiguity:
    """Missing offsets of a log: removed by the cleaner, or lost when the files were copied."""

    # for each missing range, the expected offset and the base offset of the next batch; only the last `MAX_GAPS`
    gaps: list[tuple[int, int]] = field(default_factory=list)
    _next: int | None = None

    def add(self, headers: Headers) -> None:
        """Add the next batches of the log."""
        if not len(headers):
            return
        begins, ends = headers["base_offset"], headers["last_offset"] + 1
        expected = np.concatenate(([begins[0] if self._next is None else self._next], ends[:-1]))
        wrong = np.flatnonzero(begins != expected)
        self.gaps += zip(expected[wrong].tolist(), begins[wrong].tolist(), strict=True)
        del self.gaps[:-MAX_GAPS]
        self._next = int(ends[-1])

    def after(self, offset: int) -> tuple[int, int] | None:
        """The last missing range that ends after an offset."""
        return next((gap for gap in reversed(self.gaps) if max(gap) > offset), None)


@dataclass(slots=True)
class MarkerNeighbourhood:
    """The batches around a log's lowest open transaction, kept before it is known which transaction stays open."""

    # start, stop: every batch with an offset in ``start <= offset < stop`` is kept; both 0 if none is
    start: int = 0
    stop: int = 0
    batches: Headers = field(default_factory=lambda: concatenate(()))  # the kept batches, once the log was read
    _chunks: list[Headers] = field(default_factory=list)
    _has_skipped: bool = False

    def add(self, headers: Headers, lowest: int | None) -> None:
        """Add the next batches, at least one; `lowest` is the lowest open offset after them, null for none."""
        anchor = int(headers["last_offset"][-1]) + 1 if lowest is None else lowest
        if lowest is not None and anchor < self.stop:
            kept = sum(len(chunk) - int(np.searchsorted(chunk["last_offset"], anchor)) for chunk in self._chunks)
            if kept >= FORWARD:
                self._has_skipped = True
                return
        if self._has_skipped or not self._chunks:
            self._chunks, self._has_skipped = [], False
            self.start = int(headers["base_offset"][0])
        self._chunks.append(headers)
        self.stop = int(headers["last_offset"][-1]) + 1
        while self._chunks and self._chunks[0]["last_offset"][-1] < anchor - FAR_BACK:
            self.start = int(self._chunks.pop(0)["last_offset"][-1]) + 1

    def settle(self, lowest: int) -> None:
        """Keep only the batches around the transaction that stayed open."""
        kept, room = [], FORWARD
        for chunk in self._chunks:
            first, anchor = np.searchsorted(chunk["last_offset"], (lowest - FAR_BACK, lowest))
            kept.append(chunk[first : anchor + room])
            room -= min(len(chunk) - int(anchor), room)
        self._chunks, self.batches = [], concatenate(kept)  # a view would keep all of its chunk
        self.start = max(self.start, lowest - FAR_BACK)
        if not room and len(self.batches):
            self.stop = int(self.batches["last_offset"][-1]) + 1

    def between(self, start: int, stop: int, *, most: int | None = None) -> Headers | None:
        """The batches with an offset in ``start <= offset < stop``, at most `most`; null if they are not kept."""
        if not self.start <= start < self.stop:
            return None
        first = bisect_left(self.batches["last_offset"], start)
        last = bisect_left(self.batches["base_offset"], stop)
        if stop > self.stop and (most is None or last - first < most):
            return None
        return self.batches[first:last][:most]


@dataclass(kw_only=True, eq=False)
class LogWindow:
    """The state of a log, updated chunk by chunk."""

    # offset of the snapshot at which the producer state begins; null if it was replayed from the segments
    snapshot: int | None = None
    tail: int = 0  # first offset of what every `ReadLimit` reads: of the snapshot, or of an earlier open transaction
    producers: Headers = field(default_factory=producer_state)  # the batches that decide their state
    # transactions from the snapshot on, or of the complete log; records and bytes before each of them, before each
    # marker, and before each offset passed in advance
    fold: LogFold = field(default_factory=lambda: LogFold(totals=RunningTotals()))
    # header of the first batch of every open transaction, by start offset
    first_batches: dict[int, Headers] = field(default_factory=dict)
    # the batches around the lowest open transaction
    neighbourhood: MarkerNeighbourhood = field(default_factory=MarkerNeighbourhood)
    contiguity: Contiguity = field(default_factory=Contiguity)  # missing offsets
    last_time: int | None = None  # time of the last batch, by whatever clock; null if there is none
    _tail_time: int | None = None
    _ends_by_broker: bool = False
    # those after the snapshot that the cleaner did not remove: transactions open before them may have ended, and others
    # may have begun
    missing: list[LostOffsets] = field(default_factory=list)
    # records, batch_times: for `ReadLimit.RECORDS`: the index of the records; base offset and time of every batch
    records: RecordIndex = field(default_factory=RecordIndex)
    batch_times: Array = field(default_factory=lambda: np.empty((0, 2), np.int64))
    # damage, wrong_checksums: unreadable bytes, and batches with a wrong checksum, in log order
    damage: list[DamagedBytes] = field(default_factory=list)
    wrong_checksums: list[DamagedBytes] = field(default_factory=list)
    _control: list[Array] = field(default_factory=list)

    def add(self, part: LogChunk) -> None:
        """Add the next chunk of the log."""
        headers = part.headers
        self.fold.add(part)
        self._add_damage(part)
        if part.missing is not None and part.missing.found > (self.snapshot or 0):
            self.missing.append(part.missing)
            self.producers = self.producers.copy()
            self.producers["attributes"] &= ~TRANSACTIONAL  # what is open may have ended there
        if not len(headers):
            return
        self.contiguity.add(headers)
        intact = headers[headers["crc_ok"] != 0]  # a damaged time may be any, and would date all that is open
        if len(intact):
            self.last_time = int(intact["max_timestamp"][-1])
            by_broker = intact["attributes"] & (CONTROL | LOG_APPEND_TIME) != 0
            found = intact["max_timestamp"][by_broker & (intact["base_offset"] >= self.tail)]
            self._tail_time = int(found[-1]) if len(found) else self._tail_time
            self._ends_by_broker = bool(by_broker[-1])
        control = np.flatnonzero(headers["attributes"] & CONTROL)
        self._control.append(np.stack([headers[name][control] for name in CONTROL_FIELDS]))
        self.producers = producer_state(self.producers, from_offset(headers, self.snapshot or 0))
        starts = self.open_starts
        self._add_first_batches(headers, starts)
        self.neighbourhood.add(headers, min(starts, default=None))

    @property
    def last_broker_time(self) -> int | None:
        """Time of the last batch with a time that a broker set, at the end or in the tail; null if there is none."""
        return self.last_time if self._ends_by_broker else self._tail_time

    @property
    def open_starts(self) -> list[int]:
        """Start offsets of the open transactions."""
        return open_batches(self.producers)["base_offset"].tolist()  # type: ignore[no-any-return]

    @cached_property
    def ranges(self) -> Sequence[FoldedRange]:
        """The collected transactions of each range, divided by missing offsets."""
        return self.fold.finish()

    def counted(self, first: int, stop: int) -> tuple[int, int] | None:
        """Records and bytes from one offset to another; null if one of them was not counted at."""
        return None if self.fold.totals is None else self.fold.totals.between(first, stop)

    def control_batches(self, start: int) -> Array:
        """Base offset, producer id and time of the control batches after an offset, in log order."""
        found = np.concatenate([np.empty((len(CONTROL_FIELDS), 0), np.int64), *self._control], axis=1)
        return found[:, found[0] > start]

    def _add_damage(self, part: LogChunk) -> None:
        headers = part.headers
        if len(headers) and self.damage and self.damage[-1].next_offset is None:
            follower = int(headers["base_offset"][0])
            self.damage = [
                each._replace(next_offset=follower) if each.next_offset is None else each for each in self.damage
            ]
        for each in part.damage:
            behind = headers["base_offset"][headers["position"] > each.position]
            next_offset = int(behind[0]) if len(behind) else None
            self.damage.append(
                DamagedBytes(each.reason, f"byte {each.position} of {part.file}", each.is_torn, next_offset)
            )
        wrong = np.flatnonzero(headers["crc_ok"] == 0)
        for row in dict.fromkeys(wrong[[0, -1]].tolist() if len(wrong) else ()):  # the last one reaches furthest
            header = headers[row]
            reason = f"CORRUPT_BATCH: the checksum at offset {header['base_offset']} is wrong."
            place = f"byte {header['position']} of {part.file}"
            after = int(header["last_offset"]) + 1
            self.wrong_checksums.append(DamagedBytes(reason, place, is_torn=False, next_offset=after))

    def _add_first_batches(self, headers: Headers, starts: list[int]) -> None:
        begins, ends = headers["base_offset"], headers["last_offset"]
        for start in starts:
            if begins[0] <= start <= ends[-1]:
                row = int(np.searchsorted(ends, start))
                if begins[row] <= start:
                    self.first_batches[start] = headers[row : row + 1].copy()
        if len(self.first_batches) > len(starts):
            self.first_batches = {start: self.first_batches[start] for start in starts if start in self.first_batches}


def read_window(
    log: ReplicaLog,
    snapshot: ProducerSnapshot | None,
    *,
    limit: ReadLimit,
    count_at: Collection[int] = (),
    cleaned: int = -1,
) -> LogWindow:
    """Read a log once.

    `snapshot`: snapshot at which the producer state begins; null to replay from the first segment.
    `limit`: how far back to read.
    `count_at`: offsets at which to count records and bytes, in addition to those of transactions and markers.
    `cleaned`: offset up to which the log was cleaned, by the cleaner's checkpoint; -1 for never or unknown.
    """
    opened = opened_before(snapshot) if snapshot else {}
    starts = [start for start, _ in opened.values()]
    after = snapshot.offset if snapshot else 0
    lowest = min([after, *starts])
    if limit is ReadLimit.WHOLE:
        before = known_before(log, None)
    else:
        before = begin(opened_before=opened) if snapshot or log.base_offsets[:1] == [0] else EMPTY
    window = LogWindow(
        snapshot=snapshot.offset if snapshot else None,
        tail=lowest,
        producers=resume(snapshot.producers if snapshot else ()),
        fold=LogFold(
            partial=before, since=0 if limit is ReadLimit.WHOLE else after, totals=RunningTotals((*count_at, *starts))
        ),
    )
    if limit is ReadLimit.RECORDS:
        window.records, parts = log.indexed()
    elif limit is ReadLimit.WHOLE:
        parts = map(intact, log.parts(crc=True))  # whose a batch with a wrong checksum is, no hold shows
    else:
        parts = log.parts_near(lowest, crc=True) if snapshot else log.parts(crc=True)
    times = [window.batch_times]
    newest = log.base_offsets[-1] if log.base_offsets else None
    for part in at_missing_offsets(parts, end=newest, cleaned=cleaned):
        if part.missing is not None and part.missing.found <= window.fold.since:
            part = replace(part, missing=None)  # the snapshot has the state after it
        window.add(part)
        if limit is ReadLimit.RECORDS:
            headers = part.headers[part.headers["crc_ok"] != 0]
            times.append(np.column_stack((headers["base_offset"], headers["max_timestamp"])))
    window.batch_times = np.concatenate(times)
    if limit is ReadLimit.TAIL or not window.open_starts:
        window.neighbourhood = MarkerNeighbourhood()
    else:
        window.neighbourhood.settle(min(window.open_starts))
    return window


NO_HIGH_WATERMARK = (
    "NO_HIGH_WATERMARK: no replication-offset-checkpoint has it, so last_stable_offset assumes a log that is "
    "replicated to its end"
)


WRITTEN_BY_BROKERS = {STATE_TOPIC, OFFSETS_TOPIC, METADATA_TOPIC}
EMPTY_FOLDER = "EMPTY: it contains no segment."
END_LOST = "OFFSETS_LOST: The files end at offset {}, before {}: the last segment is missing or incomplete"
START_LOST = "OFFSETS_LOST: The files begin at offset {}, and the log at {}: the first segment is missing"
NO_PRODUCER_SNAPSHOT = (
    "NO_SNAPSHOT: the files begin at offset {}, and none is an intact producer snapshot: what is open may have "
    "begun before"
)
WITHOUT_TRANSACTIONS = {STATE_TOPIC, METADATA_TOPIC}
REMOTE = (
    "REMOTE_STORAGE: the segments in remote storage end before the log does; its end is in the leader's log directory"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """The state of a replica at its log end."""

    log: ReplicaLog
    # log_start_offset, log_end_offset, leader_epoch: of these files, those in remote storage included; null if unknown
    log_start_offset: int | None = None
    # the log start offset by the checkpoint, if it lies before these files: the segments between are in remote storage,
    # or were not copied
    remote_log_start: int | None = None
    log_end_offset: int | None = None
    # by the checkpoint, which lags if the broker is running or crashed; null without checkpoint
    high_watermark: int | None = None
    # as the broker computes it, bounded by that high watermark; null if offsets are missing that decide it
    last_stable_offset: int | None = None
    leader_epoch: int | None = None
    window: LogWindow = field(default_factory=LogWindow)  # the data that was read
    # of its log directory; empty for a text
    checkpoints: PartitionCheckpoints = field(default_factory=PartitionCheckpoints)
    # unusable snapshots, for which an older one or none was used; a broker does the same
    snapshot_errors: Sequence[str] = ()
    topic_id: str | None = None  # by ``partition.metadata``; differs if the topic was deleted and created again
    # newest time in it that a broker set; null if there is none. Its files are not older.
    written_at: dt.datetime | None = None
    # the later one of that time and of when it was copied; else the newest time in it by producers' clocks; 1970 if it
    # has no time at all
    observed_at: dt.datetime
    error: str | None = None  # why the replica could not be read completely
    # what it lacks, as an error, that is no damage of its own: missing offsets, its end, what another replica has
    lost: str | None = None
    reached: int | None = None  # log end offset; if the end is lost, the one up to which the log went on at least


def read_state(
    log: ReplicaLog,
    checkpoints: PartitionCheckpoints,
    *,
    limit: ReadLimit = ReadLimit.TAIL,
    copied_at: dt.datetime | None = None,
    is_consistent: bool = False,
) -> ReplicaState:
    """Replay a log from its newest intact snapshot on, or from its first segment.

    `checkpoints`: the checkpoints of its log directory.
    `limit`: how far back to read for the other data of the window.
    `copied_at`: when its files were copied; null if unknown.
    `is_consistent`: whether the caller asserts that its log and checkpoints are of one moment.
    """
    observed_at = copied_at or EPOCH
    if log.error or not (log.base_offsets or any(True for _ in log.snapshots())):
        empty = None if log.error else EMPTY_FOLDER
        return ReplicaState(
            log=log, checkpoints=checkpoints, observed_at=observed_at, error=log.error or empty, lost=empty
        )
    tp = log.where.tp
    written = checkpoints.high_watermark.get(tp)
    # After a clean shutdown the checkpoint is final: a marker at or after it still holds the LSO.
    needed = written if checkpoints.clean_shutdown else None
    log_start = listed_start = checkpoints.log_start.get(tp, 0)
    count_at = [log_start, *log.base_offsets[:1], *([] if written is None else [written])]
    window, snapshot_errors = _read(log, needed, limit, count_at, cleaned=checkpoints.cleaned.get(tp, -1))
    entries = list(log.checkpoint_rows())
    # leader-epoch-checkpoint has a new epoch before any batch does.
    epochs = [entry.leader_epoch for entry in entries if entry.leader_epoch is not None]
    leader_epoch = max([window.fold.leader_epoch, *epochs])
    log_end = max(window.fold.log_end_offset, window.snapshot or 0, *log.base_offsets[-1:])
    first = log.base_offsets[0] if log.base_offsets else log_end
    log_start = max(first, log_start)
    # What a batch with a wrong checksum says, whose it is and whether it is a marker, is not known.
    damage = [each for each in (*window.damage, *window.wrong_checksums) if not each.is_torn]
    unread = [each.error for each in damage if each.reaches(window.snapshot or 0)]
    unread += [each.reason for each in window.missing]
    unread += [each.error for each in window.records.errors if each.error and not each.error.startswith("TORN_TAIL")]
    may_have_begun_before = window.snapshot is None and first > 0 and tp.topic not in WITHOUT_TRANSACTIONS
    unread += [NO_PRODUCER_SNAPSHOT.format(first)] if may_have_begun_before else []
    # In a copy of a running broker the checkpoint may be newer than the log.
    is_final = is_consistent or checkpoints.clean_shutdown or (isinstance(log, FolderLog) and bool(log.replica.only))
    lost_end = list(_lost_end(log, log_end, written if is_final else None, listed_start))
    if (is_consistent or checkpoints.clean_shutdown) and any(each.is_torn for each in window.damage):
        lost_end.append(END_LOST.format(log_end, "a batch that is torn"))
    lost_end += [] if log.base_offsets else [EMPTY_FOLDER]  # a snapshot alone does not show what came after it
    # The cleaner keeps the first base offset, and Kafka deletes no segment of these topics.
    is_whole = tp.topic in {STATE_TOPIC, OFFSETS_TOPIC} and isinstance(log, FolderLog) and not log.replica.only
    lost_start = [START_LOST.format(first, listed_start)] if is_whole and first > listed_start else []
    unread += [*lost_end, *(lost_start if tp.topic == STATE_TOPIC else [])]
    lost_offsets = [each.reason for each in window.missing if each.damaged is None or each.damaged.is_torn]
    is_start_lost = may_have_begun_before and min(window.open_starts, default=log_end) > log_start
    high_watermark = None if written is None else min(max(written, log_start), log_end)
    last_time = window.last_time if log.where.topic in WRITTEN_BY_BROKERS else window.last_broker_time
    written_at = utc(last_time)
    by_producers = min(utc(window.last_time) or EPOCH, dt.datetime.now(dt.UTC))  # their clocks may be ahead
    observed_at = max(filter(None, (written_at, copied_at)), default=by_producers)
    return ReplicaState(
        log=log,
        log_start_offset=log_start,
        remote_log_start=listed_start if tp in checkpoints.log_start and listed_start < first else None,
        log_end_offset=log_end,
        high_watermark=high_watermark,
        last_stable_offset=_last_stable_offset(
            window, log_start, log_end if high_watermark is None else high_watermark, final=needed is not None
        )
        if not (window.missing or lost_end or is_start_lost)
        else None,
        leader_epoch=None if leader_epoch < 0 else leader_epoch,
        window=window,
        checkpoints=checkpoints,
        snapshot_errors=snapshot_errors,
        topic_id=next((entry.value for entry in entries if entry.key == "topic_id" and not entry.error), None),
        written_at=written_at,
        observed_at=observed_at,
        error=REMOTE if log.is_remote else next(iter(unread), None),
        lost=next(iter([*lost_start, *lost_offsets, *lost_end]), None),
        reached=max(log_end + 1, written if is_final and written is not None else 0) if lost_end else log_end,
    )


def _read(
    log: ReplicaLog, needed: int | None, limit: ReadLimit, count_at: Sequence[int], *, cleaned: int
) -> tuple[LogWindow, list[str]]:
    """Try the snapshots, newest first; one beyond the end of the log does not belong to it.

    `needed` is the highest usable snapshot offset; null for any.
    """
    errors: list[str] = []
    first = log.base_offsets[0] if log.base_offsets else None
    for snapshot in () if log.where.topic == STATE_TOPIC else log.snapshots():  # it has no ids
        if snapshot.error:
            errors.append(snapshot.error)
            continue
        if needed is not None and snapshot.offset > needed:
            continue
        if first is not None and snapshot.offset < first:
            break
        window = read_window(log, snapshot, limit=limit, count_at=count_at, cleaned=cleaned)
        if first is None or max(window.fold.log_end_offset, *log.base_offsets[-1:]) >= snapshot.offset:
            return window, errors
        errors.append(f"FOREIGN_SNAPSHOT: the snapshot at {snapshot.offset} lies beyond the end of the log.")
    return read_window(log, None, limit=limit, count_at=count_at, cleaned=cleaned), errors


def is_whole(log: ReplicaLog, checkpoints: PartitionCheckpoints, log_end: int, *, is_consistent: bool) -> bool:
    """Whether a log without damage that ends at an offset has no `error` as a state, and holds nothing if none is open.

    `checkpoints`, `is_consistent`: as for `read_state`.
    """
    if not log.base_offsets or log.is_remote or not isinstance(log, FolderLog) or log.replica.only:
        return False
    newest, written = next(log.snapshots(), None), checkpoints.high_watermark.get(log.where.tp)
    is_begun = log.base_offsets[0] == 0 if newest is None else newest.offset >= log.base_offsets[0]
    agrees = newest is None or not (newest.error or opened_before(newest))
    is_final = is_consistent or checkpoints.clean_shutdown
    is_replicated = not is_final or written is None or written == log_end
    lost_end = _lost_end(log, log_end, None, checkpoints.log_start.get(log.where.tp, 0))
    return is_begun and agrees and is_replicated and next(lost_end, None) is None


def _lost_end(log: ReplicaLog, log_end: int, high_watermark: int | None, log_start: int) -> Iterator[str]:
    """What shows that the log went on after these files, as an error.

    `high_watermark`: by a checkpoint that is not newer than the log; null if unknown.
    `log_start`: by its checkpoint, however new: with a later one, all that these files have is deleted.
    """
    if log_start > log_end:
        yield END_LOST.format(log_end, f"the log start {log_start} of {LOG_START}")
    if high_watermark is not None and high_watermark > log_end:
        yield END_LOST.format(log_end, f"the high watermark {high_watermark} of replication-offset-checkpoint")
    newest = next(log.snapshots(), None)
    later = [] if newest is None or newest.offset <= log_end else [newest.offset]
    if isinstance(log, FolderLog) and not log.is_remote:  # a broker creates a segment before its indexes
        last = max(log.base_offsets, default=-1)
        later += [offset for offset in (*log.offset_indexes, *log.time_indexes) if offset > last]
    if later:
        yield END_LOST.format(log_end, f"its snapshot or index of offset {max(later)}")


def _last_stable_offset(window: LogWindow, log_start: int, bound: int, *, final: bool) -> int:
    """``UnifiedLog.fetchLastStableOffsetMetadata``: the first unstable offset, if it is below the high watermark.

    A transaction whose marker is not below the high watermark is unstable, too. This counts only with a `final` high
    watermark: a lagging checkpoint would make ended transactions appear to hold the LSO.
    """
    unstable = window.open_starts
    if final:
        log_transactions = window.ranges[-1].log_transactions
        waiting = log_transactions[
            (log_transactions["marker_offset"] >= bound) & (log_transactions["first_offset"] >= 0)
        ]
        unstable += waiting["first_offset"].tolist()
    return min(max(min(unstable), log_start), bound) if unstable else bound


def producers_of(state: ReplicaState) -> list[Producer]:
    """The producers, and one without id if they may be incomplete."""
    (topic, partition), broker_id, observed_at = state.log.where.tp, state.log.where.broker_id, state.observed_at
    found = producer_records(state.window.producers, state.log.where, observed_at=observed_at)
    for error in [state.error] if state.error else state.snapshot_errors[:1]:
        found.append(
            Producer(topic=topic, partition=partition, broker_id=broker_id, observed_at=observed_at, error=error)
        )
    return found


def partition_of(state: ReplicaState) -> Partition:
    """The partition; leader, replicas and ISR are null, as no file has them."""
    error = state.error
    if error is None and state.high_watermark is None:
        error = NO_HIGH_WATERMARK
    unread, is_read = state.checkpoints.errors.get(LOG_START), state.log.where.tp in state.checkpoints.log_start
    if error is None and unread and not is_read:
        error = f"{unread.rstrip('.')} ({LOG_START}), so the log may start later"
    starts = [each for each in (state.log.local_start, state.log_start_offset) if each is not None]
    return Partition(
        topic=state.log.where.tp.topic,
        partition=state.log.where.tp.partition,
        broker_id=state.log.where.broker_id,
        leader_epoch=state.leader_epoch,
        log_start_offset=state.log_start_offset if state.remote_log_start is None else state.remote_log_start,
        local_log_start_offset=None if state.log.is_remote else max(starts, default=None),
        last_stable_offset=state.last_stable_offset,
        high_watermark=state.high_watermark,
        log_end_offset=state.log_end_offset,
        observed_at=state.observed_at,
        error=error,
    )


def offset_of(
    log: ReplicaLog, bound: OffsetSpec | None, state: ReplicaState | None, *, is_stop: bool = False
) -> int | None:
    """The offset of a specification in a log; null if the specification is null or the offset is unknown.

    `bound`: an offset; a time with time zone, for the first batch with a record at or after it; or ``"log_start"``,
        ``"lso"``, ``"high_watermark"``, ``"log_end"``.
    `state`: the log's state, for the named offsets.
    `is_stop`: whether it ends a range, of which unreadable bytes that may be before a time are a part; else it begins
        one.
    """
    if bound is None:
        return None
    if isinstance(bound, str):
        offset: int | None = getattr(state, NAMED[bound]) if state else None
        return offset
    if isinstance(bound, dt.datetime):
        return _offset_at(log, milliseconds(bound), is_stop=is_stop)
    return operator.index(bound)


def _offset_at(log: ReplicaLog, time_ms: int, *, is_stop: bool) -> int | None:
    """Offset of the first batch with a record at or after a time; the log end offset if there is none.

    Unreadable bytes right before it may have one, too: then a range begins before them, and does not end at them.
    """
    end, is_damaged = 0, False  # after the last older batch
    for part in map(intact, log.parts(crc=True)):
        headers, positions = part.headers, part.headers["position"]
        newer = np.flatnonzero(headers["max_timestamp"] >= time_ms)
        older = int(newer[0]) if newer.size else len(headers)
        if older:
            end, is_damaged = int(headers["last_offset"][older - 1]) + 1, False
        for each in part.damage:
            is_behind = not older or each.position > positions[older - 1]
            is_before = not newer.size or each.position < positions[older]
            is_damaged |= is_behind and is_before and not each.is_torn
        if newer.size:
            base_offset = int(headers["base_offset"][older])
            return end if base_offset < 0 or (is_damaged and not is_stop) else base_offset
    return None if is_stop and is_damaged else end
