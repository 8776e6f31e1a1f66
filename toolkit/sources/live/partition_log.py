"""The log of a live partition from its leader (Fetch): every batch, markers and open transactions included.

It is read in one go, or in ranges that can be read in parallel: each batch is in exactly one. Excerpts are bounded in
bytes: around the lowest open transaction of held partitions, many at once; and of the partitions that have markers of
a producer, where the coordinators' log does not prove an outcome.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Container, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.diagnosis.log_excerpts import (
    MAX_OFFSETS,
    MOST_OFFSETS,
    Excerpt,
    ExcerptStart,
    have_ended,
    plan_marker_search,
    search_from,
)
from toolkit.analysis.diagnosis.markers import MarkerSearch, OtherMarker, markers_found
from toolkit.analysis.log.log_transactions import EMPTY, PartialTransactions, begin
from toolkit.analysis.log.offset_status import AbortedRange, LogSlice, at_missing_offsets, intact
from toolkit.errors import BrokerError, ConnectionFailed, ToolkitError
from toolkit.formats.batches import CONTROL
from toolkit.formats.coordinator_log_rows import offsets_log
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.formats.headers import DamagedRange, Headers, LogChunk, concatenate
from toolkit.formats.scan import scan
from toolkit.schema.coerce import OffsetSpec
from toolkit.schema.live import Partition, Producer, open_starts
from toolkit.schema.log import OffsetsLogRecord
from toolkit.schema.table import Error, LogId, TopicPartition
from toolkit.sources.live import broker_client
from toolkit.sources.live.broker_client import BrokerClient, error_text, omitted_text, row_text
from toolkit.sources.live.coordinators import TOPICS, CoordinatorTopic, compacted_topics, describe_named, visibility_of
from toolkit.sources.live.leaders import (
    TRANSIENT,
    WAIT_MS,
    FetchedBatches,
    FetchPosition,
    Leader,
    fetch,
    is_missing,
    offset_of,
    read_metadata,
    read_partitions,
    read_producers,
)
from toolkit.sources.live.transactions import TransactionFilters, filtered_transactions
from toolkit.sources.log_tables import batch_tables
from toolkit.sources.offset_queries import check_offset_range
from toolkit.sources.offset_reader import WRONG_CHECKSUM, OffsetReader, slice_of
from toolkit.sources.progress_bar import progress

if TYPE_CHECKING:
    import pyarrow as pa


FETCH_BYTES = 8 << 20
PAUSE = 0.2  # seconds before a retry after an error
OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
NOT_RETURNED = (
    "REMOTE_STORAGE: the leader returns nothing at offset {}, which is in remote storage: that is slow, or fails there"
)
TRUNCATED = "a new leader has truncated the log, at offset {} or before, of what was read up to leader epoch {}"
UNREPLICATED = "OFFSET_NOT_AVAILABLE: the high watermark stays at {}, so later offsets are not replicated yet"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FetchedChunk(LogChunk):
    """A chunk of a partition's log; offsets that could not be read are damage of no bytes."""

    # the bytes that the broker sent, to which positions are relative. The last batch may be truncated, and batches
    # after the requested range may follow
    records: bytes = b""
    broker_id: int | None = None  # the broker that sent it, or failed to
    # producer id to the first offsets of its aborted transactions in the chunk; with read_committed only
    aborted: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def unread(cls, error: str, *, broker_id: int | None, records: bytes = b"") -> FetchedChunk:
        """What takes the place of offsets that could not be read. `error`: ``"NAME: text"``."""
        return cls(damage=(DamagedRange(0, 0, error),), broker_id=broker_id, records=records)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Batches of a partition whose base offset is in ``start <= offset < stop``."""

    tp: TopicPartition  # the partition
    # start, stop: bounds of the base offsets
    start: int
    stop: int
    is_first: bool = True  # whether this is the first range, which also has the batch that contains `start`


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRange:
    """A range of a partition's log, read lazily."""

    log_id: LogId  # with the partition's leader before anything is read
    # start, stop: the batches with an offset in ``start <= offset < stop``
    start: int
    stop: int
    # the log in chunks of some megabytes, which can be iterated once; the next chunk is prefetched
    chunks: Generator[FetchedChunk, None, None]

    @property
    def before(self) -> PartialTransactions:
        """The transactions that are open before it."""
        return begin() if self.start == 0 else EMPTY

    @property
    def divided(self) -> Iterator[LogChunk]:
        """Its chunks, divided at offsets that could not be read; what is missing without an error was compacted."""
        return at_missing_offsets(map(intact, self.chunks), expected=self.start, end=self.stop, cleaned=self.stop)


def fetch_range(
    client: BrokerClient, partition: Partition, start: OffsetSpec, stop: OffsetSpec, *, crc: bool = False
) -> FetchedRange:
    """Resolve a range of offsets and read it lazily.

    Follows leader changes. Offsets that cannot be read are damage: the log is never silently shorter.

    `start`, `stop`: as for `fetch.offset_of`. Offsets beyond the log end are left out.
    Raises UsageError if `start` or `stop` is not an offset specification, or `stop` comes before `start`. Raises
    BrokerError, ConnectionFailed if the leader does not return the log start and end, or the offset of a time.
    """
    check_offset_range(start, stop)
    first, last = resolve_range(client, partition, start, stop)
    return read_offsets(client, partition, first, last, crc=crc)


def resolve_range(client: BrokerClient, partition: Partition, start: OffsetSpec, stop: OffsetSpec) -> tuple[int, int]:
    """The current offsets of `start` and `stop`.

    `client`, `partition`, `start`, `stop`: as for `fetch_range`, which also documents the errors.
    """
    if partition.error:
        code, text = Error.of(partition.error)
        name = f"{partition.topic}-{partition.partition}"
        raise BrokerError(f"{name} cannot be read: {code} ({text.rstrip('.')}).", code=code)
    first, last = (offset_of(client, bound, partition) for bound in (start, stop))
    end = partition.high_watermark if partition.log_end_offset is None else partition.log_end_offset
    return first, min(last, end or 0)


def read_offsets(client: BrokerClient, partition: Leader, start: int, stop: int, *, crc: bool = False) -> FetchedRange:
    """Read offsets of a partition that are known to have existed; deleted ones are damage.

    `start`, `stop`: the batches with an offset in ``start <= offset < stop``.
    """
    leader = _LogLeader(client, partition)
    chunks = _read_chunks(leader, start, stop, crc=crc)
    log_id = LogId(topic=leader.tp.topic, partition=leader.tp.partition, broker_id=partition.leader)
    return FetchedRange(log_id=log_id, start=start, stop=stop, chunks=chunks)


def _read_chunks(leader: _LogLeader, start: int, stop: int, *, crc: bool) -> Generator[FetchedChunk, None, None]:
    at: int | None = start
    with (
        ThreadPoolExecutor(1, thread_name_prefix="kafka-txn-toolkit-fetch") as ahead,
        progress(str(leader.tp), total=stop - start, unit="offsets") as advance,
    ):
        pending = ahead.submit(leader.fetch, start, stop) if start < stop else None
        while pending and at is not None:
            reached, found = at, pending.result()
            chunk, at = _chunk(leader, found, reached, stop, crc=crc)
            pending = ahead.submit(leader.fetch, at, stop) if at is not None and at < stop else None
            yield chunk
            advance(min(at or stop, stop) - reached)


def _chunk(
    leader: _LogLeader, found: FetchedBatches, at: int, stop: int, *, crc: bool
) -> tuple[FetchedChunk, int | None]:
    """The chunk fetched at an offset, and the next offset to fetch; null at the end."""
    if found.error:
        why, next_at = leader.explain(found.error, at, stop)
        return FetchedChunk.unread(why, broker_id=leader.broker_id), next_at
    scanned = scan(found.records, crc=crc, last=False)
    if not len(scanned.headers):
        if not found.records:
            return FetchedChunk(broker_id=leader.broker_id), None
        damaged = next((each.reason for each in scanned.damage), omitted_text("Fetch", "a whole batch"))
        why = _unread(f"{damaged.rstrip('.')} (at offset {at})", at, stop)
        return FetchedChunk.unread(why, broker_id=leader.broker_id, records=found.records), None
    last, leader.read_epoch = int(scanned.headers["last_offset"][-1]), int(scanned.headers["leader_epoch"][-1])
    leader.read_end = last + 1
    chunk = FetchedChunk(
        headers=scanned.headers[scanned.headers["base_offset"] < stop] if last >= stop else scanned.headers,
        damage=scanned.damage,
        records=found.records,
        broker_id=leader.broker_id,
        aborted=found.aborted,
    )
    return chunk, last + 1


def _unread(why: str, at: int, stop: int) -> str:
    return f"{why.rstrip('.')}; offsets {at} to {stop - 1} were not read"


class _LogLeader:
    """The current leader of a partition."""

    def __init__(self, client: BrokerClient, partition: Leader, *, max_bytes: int | None = None) -> None:
        self.tp = partition.tp
        self._client = client
        self._partition = partition
        # whether to request the aborted transactions, too; then the broker sends nothing from the LSO on
        self.read_committed = False
        self._max_bytes = max_bytes or FETCH_BYTES
        self.read_epoch, self.read_end = -1, 0  # leader epoch of the last batch that was read, and the offset after it
        self._compared_in = partition.leader_epoch  # leader epoch in which the log has what was read

    @property
    def broker_id(self) -> int | None:
        return self._partition.leader

    def fetch(self, at: int, stop: int) -> FetchedBatches:
        """Fetch from an offset; retry transient errors until the client's timeout."""
        deadline = time.monotonic() + self._client.timeout
        while True:
            found = self._fetch_once(at)
            if found.records or (found.error and Error.of(found.error).code not in TRANSIENT):
                return found
            if not found.error and (found.high_watermark or 0) >= stop:
                found = replace(found, error=self._why_nothing(at))
                if not found.error:
                    return found  # compacted away
            if time.monotonic() > deadline or (found.error and not self._refresh_leader()):
                return replace(found, error=found.error or UNREPLICATED.format(found.high_watermark))

    def _fetch_once(self, at: int) -> FetchedBatches:
        if self.broker_id is None:
            return FetchedBatches(error=self._partition.error or "LEADER_NOT_AVAILABLE: the partition has no leader")
        if self.read_epoch >= 0 and self._compared_in != self._partition.leader_epoch:
            if error := self._why_another_log():
                return FetchedBatches(error=error)
            self._compared_in = self._partition.leader_epoch
        (found,) = fetch(
            self._client,
            [FetchPosition.of(self._partition, at)],
            max_bytes=self._max_bytes,
            read_committed=self.read_committed,
            max_wait_ms=WAIT_MS,
        )
        return found

    def _why_another_log(self) -> str | None:
        """Why a new leader's log does not continue what was read (KIP-320); null if it does.

        After an unclean election it may have lost the last of that, and have other records there by now.
        """
        topic = broker_client.OffsetForLeaderEpoch.OffsetForLeaderTopic
        partition = topic.OffsetForLeaderPartition(
            partition=self.tp.partition,
            current_leader_epoch=FetchPosition.of(self._partition, self.read_end).leader_epoch,
            leader_epoch=self.read_epoch,
        )
        request = broker_client.OffsetForLeaderEpoch(
            replica_id=-1, topics=[topic(topic=self.tp.topic, partitions=[partition])]
        )
        (response,) = self._client.send([(self.broker_id, request)])
        if response.error:
            return response.error_text
        found = next((each for topic in response.message.topics for each in topic.partitions), None)
        if found is None or found.error_code:
            return error_text(found.error_code) if found else omitted_text("OffsetForLeaderEpoch", "this partition")
        if found.leader_epoch == self.read_epoch and found.end_offset >= self.read_end:
            return None
        return f"{OUT_OF_RANGE}: {TRUNCATED.format(found.end_offset, self.read_epoch)}"

    def _why_nothing(self, at: int) -> str | None:
        """Why a leader returns nothing at an offset below the high watermark; null if there is nothing.

        If a read of remote storage takes longer than ``remote.fetch.max.wait.ms``, it returns nothing and no error.
        """
        (now,) = read_partitions(self._client, {self.tp: self._partition}, tiered=True)
        log_start, local_start = now.log_start_offset, now.local_log_start_offset
        is_remote = log_start is not None and local_start is not None and log_start <= at < local_start
        return now.error or (NOT_RETURNED.format(at) if is_remote else None)

    def _refresh_leader(self) -> bool:
        """Read the leader again; false if the partition no longer exists."""
        threading.Event().wait(PAUSE)
        try:
            now = read_metadata(self._client, [self.tp.topic]).at([self.tp])[self.tp]
        except ToolkitError:
            return True  # no broker responds yet
        if (now.leader_epoch or 0) < (self._partition.leader_epoch or 0) and now.leader is not None:
            return True  # by a broker that is behind, or of a topic that was created again, whose offsets are others
        self._partition = now
        return not is_missing(now.error)

    def explain(self, error: str, at: int, stop: int) -> tuple[str, int | None]:
        """The error text, and the offset to continue at, if any."""
        if Error.of(error).code != OUT_OF_RANGE:
            return _unread(error, at, stop), None
        try:
            (now,) = read_partitions(self._client, {self.tp: self._partition})
        except ToolkitError:  # without further data, report only the leader's error
            return _unread(error, at, stop), None
        start, end = now.log_start_offset, now.log_end_offset or now.high_watermark
        if start is not None and at < start:
            deleted = f"offsets {at} to {min(start, stop) - 1} are deleted, by retention or DeleteRecords"
            return f"{OUT_OF_RANGE}: the log starts at {start} now; {deleted}", start
        if end is not None and at > end:
            return _unread(f"{OUT_OF_RANGE}: the log ends at {end} now; a new leader has truncated it", at, stop), None
        return _unread(error, at, stop), None


def split(tp: TopicPartition, start: int, stop: int, *, log_start: int, max_offsets: int) -> list[LogRange]:
    """Divide offsets into ranges of equal size.

    `log_start`: log start offset; deleted offsets before it are not divided.
    `max_offsets`: maximum number of offsets per range.
    """
    first = max(start, log_start)
    if first >= stop:
        return [LogRange(tp=tp, start=start, stop=stop)] if start < stop else []
    count = -(-(stop - first) // max_offsets)
    bounds = [start, *(first + (stop - first) * index // count for index in range(1, count)), stop]
    return [LogRange(tp=tp, start=low, stop=high, is_first=low == start) for low, high in pairwise(bounds)]


def read_range(client: BrokerClient, log_range: LogRange, *, crc: bool = False) -> FetchedRange:
    """Read a range of a log, lazily; offsets deleted since `split` are damage.

    Raises ConnectionFailed or BrokerError if no broker returns the metadata of the topic.
    """
    tp = log_range.tp
    leader = read_metadata(client, [tp.topic]).at([tp])[tp]
    fetched = read_offsets(client, leader, log_range.start, log_range.stop, crc=crc)
    if log_range.is_first:
        return fetched
    own = (  # without the batch that begins before the range: it belongs to the range before
        replace(chunk, headers=chunk.headers[chunk.headers["base_offset"] >= log_range.start])
        for chunk in fetched.chunks
    )
    return replace(fetched, chunks=own)


SLICE_FETCH_BYTES = 1 << 20  # most ranges are small; a long one takes several requests


class LiveOffsetReader(OffsetReader):
    """A partition, read from its current leader. `partition`: the partition as its leader has it."""

    def __init__(self, client: BrokerClient, partition: Partition) -> None:
        super().__init__(partition)
        self._client = client

    @cached_property
    def is_compacted(self) -> bool | None:
        return compacted_topics(self._client, [self.partition.topic]).get(self.partition.topic)

    @cached_property
    def opened(self) -> Mapping[int, int]:
        producers = read_producers(self._client, {self.partition.tp: self.partition}, idle_producers=False)
        self.opened_error = next((each.error for each in producers if each.error), None)
        return open_starts(producers)

    def offset(self, bound: OffsetSpec) -> int:
        return offset_of(self._client, bound, self.partition)

    def slices(self, start: int, stop: int) -> Iterator[LogSlice]:
        """Read with read_committed up to the LSO, for the broker's list of aborted transactions; then uncommitted."""
        lso = min(max(self.lso, start), stop)
        # One leader for both: if it changes between them, its log has to continue what was read.
        leader = _LogLeader(self._client, self.partition, max_bytes=SLICE_FETCH_BYTES)
        for first, last, leader.read_committed in ((start, lso, True), (lso, stop, False)):
            if first < last:
                yield from map(_slice, _read_chunks(leader, first, last, crc=True))

    def transactional_id(self, producer_id: int) -> tuple[str | None, str | None]:
        try:
            found = filtered_transactions(self._client, TransactionFilters(producer_ids=(producer_id,)))
        except (BrokerError, ConnectionFailed) as error:  # the other columns are valid without it
            return None, row_text(error)
        owner = next((each.transactional_id for each in found if each.producer_id == producer_id), None)
        return owner, None if owner else next((each.error for each in found if each.error), None)


def _slice(chunk: FetchedChunk) -> LogSlice:
    return slice_of(
        chunk,
        lambda header: chunk.records[header["position"] : header["position"] + header["size"]],
        aborted={AbortedRange(producer, first) for producer, firsts in chunk.aborted.items() for first in firsts},
        errors=[each.reason for each in chunk.damage],
    )


EXCERPT_FETCH_BYTES = 1 << 20
MAX_BYTES_AFTER = 4 << 20  # from the first offset on
SEARCH_TIMEOUT_S = 60.0  # to search more than `MAX_OFFSETS` of partitions
OFFSETS_BEFORE = (100, 2_000, 20_000)  # the next only if none before has a marker


def read_excerpts(
    client: BrokerClient,
    starts: Sequence[ExcerptStart],
    *,
    compacted: Mapping[str, bool],
    deadline: float,
    max_bytes: int | None = None,
) -> dict[TopicPartition, Excerpt]:
    """Read from each offset to the high watermark, and back to a marker of the producers, within the byte limits.

    `starts`: where, on partitions with a leader and a high watermark; each takes a few megabytes of memory.
    `compacted`: whether a topic is compacted, where known.
    `deadline`: by ``time.monotonic()``; reading stops then.
    `max_bytes`: to read of each partition from its offset on, and of each step before it; 4 MB and 1 MB if null.
    """
    max_bytes = MAX_BYTES_AFTER if max_bytes is None else max_bytes
    after = [_ExcerptScan(each, each.offset, each.leader.high_watermark or 0, max_bytes) for each in starts]
    _read(client, after, deadline)
    before: dict[TopicPartition, _ExcerptScan] = {}
    for offsets in OFFSETS_BEFORE:
        scans = [
            _ExcerptScan(each, max(log_start, each.offset - offsets), each.offset, min(max_bytes, EXCERPT_FETCH_BYTES))
            for each in starts
            if (log_start := each.leader.log_start_offset or 0) < each.offset and not _has_marker(before.get(each.tp))
        ]
        _read(client, scans, deadline)
        before |= {each.target.tp: each for each in scans if each.position >= each.stop}
    now = dt.datetime.now(dt.UTC)
    return {each.target.tp: _excerpt(before.get(each.target.tp), each, compacted, now) for each in after}


@dataclass(slots=True)
class _ExcerptScan:
    """Progress of reading an offset range."""

    target: ExcerptStart
    position: int
    stop: int
    remaining_bytes: int
    start: int = -1
    is_done: bool = False
    error: str | None = None
    headers: list[Headers] = field(default_factory=list)
    groups: dict[int, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start = self.position
        self.is_done = self.position >= self.stop

    def add(self, fetched: FetchedBatches) -> None:
        """Add fetched batches; they may extend beyond the range."""
        scanned = scan(fetched.records, crc=True, last=False)
        self.error, headers = fetched.error, scanned.headers
        self.remaining_bytes -= len(fetched.records)
        if (headers["crc_ok"] == 0).any():  # what it says may be another producer's, or no marker
            headers = headers[: int((headers["crc_ok"] == 0).argmax())]
            self.error = WRONG_CHECKSUM.format(int(scanned.headers["base_offset"][len(headers)]))
        if (damage := next((each for each in scanned.damage if not each.is_torn), None)) is not None:
            headers, self.error = headers[headers["position"] < damage.position], self.error or damage.reason
        if len(headers):
            self.headers.append(headers)
            self.position = int(headers["last_offset"][-1]) + 1
            if self.target.tp.topic == OFFSETS_TOPIC:
                self._add_groups(fetched.records, headers)
        elif not self.error and not fetched.records and (fetched.high_watermark or 0) >= self.stop:
            self.position = self.stop  # compacted away
        self.is_done = (
            self.position >= self.stop or self.remaining_bytes <= 0 or len(headers) < max(len(scanned.headers), 1)
        )

    def _add_groups(self, records: bytes, headers: Headers) -> None:
        """Add the groups whose offsets the transactions have pending."""
        data = np.isin(headers["producer_id"], list(self.target.producer_ids)) & (headers["attributes"] & CONTROL == 0)
        for position in headers["position"][data & (headers["base_offset"] >= self.target.offset)]:
            for record in offsets_log(records, int(position), where=OffsetsLogRecord()):
                if record.group_id is not None and record.producer_id is not None:
                    self.groups.setdefault(record.producer_id, set()).add(record.group_id)


def _read(client: BrokerClient, scans: Sequence[_ExcerptScan], deadline: float) -> None:
    while (unfinished := [each for each in scans if not each.is_done]) and time.monotonic() < deadline:
        positions = [FetchPosition.of(each.target.leader, each.position) for each in unfinished]
        fetched = fetch(client, positions, max_bytes=EXCERPT_FETCH_BYTES)
        for each, batches in zip(unfinished, fetched, strict=True):
            each.add(batches)


def _has_marker(excerpt: _ExcerptScan | None) -> bool:
    """Whether it has a marker of every searched producer."""
    return excerpt is not None and have_ended(concatenate(excerpt.headers), excerpt.target.producer_ids)


def _excerpt(
    before: _ExcerptScan | None, after: _ExcerptScan, compacted: Mapping[str, bool], observed_at: dt.datetime
) -> Excerpt:
    headers = concatenate(after.headers)
    first = int(headers["base_offset"][0]) if len(headers) else after.start
    if before is not None:
        earlier = concatenate(before.headers)
        headers = concatenate((earlier[earlier["base_offset"] < min(first, after.start)], headers))
    headers["position"] = -1  # meaningless in a response
    return Excerpt(
        headers=headers,
        start=after.start if before is None else before.start,
        stop=after.position,
        log_start_offset=after.target.leader.log_start_offset or 0,
        observed_at=observed_at,
        is_compacted=compacted.get(after.target.tp.topic),
        groups={producer_id: sorted(groups) for producer_id, groups in after.groups.items()},
        broker_id=after.target.leader.leader,
        error=after.error,
        brokers_write=after.target.tp.topic == OFFSETS_TOPIC,
    )


def search_markers(client: BrokerClient, cases: Sequence[Case]) -> MarkerSearch:
    """The markers of the producers on the partitions where their leaders show them, or the coordinators' records.

    `cases`: open transactions that no coordinator will end.
    """
    try:
        metadata = read_metadata(client, None)
        hidden = _hidden(client, metadata.partitions, cases)
        producers = read_producers(client, metadata.partitions, producer_ids={each.producer_id for each in cases})
        plan = plan_marker_search(cases, producers, partitions=metadata.partitions, unread=hidden)
        topics = {tp.topic for tp in plan.partitions}
        markers: list[OtherMarker] = []
        unread = dict(plan.unread)
        ahead = _still_ahead(client, plan.ahead, cases)
        deadline = time.monotonic() + SEARCH_TIMEOUT_S
        for partition in read_partitions(client, read_metadata(client, topics).at(sorted(plan.partitions))):
            of_partition = plan.partitions[partition.tp]
            found = _read_markers(client, partition, of_partition, plan.states, deadline=deadline)
            markers += found.markers
            unread |= found.unread
    except ToolkitError as error:
        return MarkerSearch(unread={each.producer_id: error.what.rstrip(".") for each in cases})
    return MarkerSearch(markers=markers, unread=unread, ahead=ahead)


def _hidden(
    client: BrokerClient, visible: Container[TopicPartition], cases: Sequence[Case]
) -> Mapping[TopicPartition, str]:
    """Partitions that coordinators' records name and the metadata does not show, if it may hide them; and why."""
    named = {tp for each in cases for tp in each.recorded_partitions if tp not in visible}
    gaps = visibility_of(TOPICS, client, sorted(client.brokers)).gaps if named else ()
    return dict.fromkeys(named, f"its topic is deleted or hidden; missing: {'; '.join(gaps)}") if gaps else {}


def _still_ahead(client: BrokerClient, ahead: Mapping[int, Producer], cases: Sequence[Case]) -> dict[int, Producer]:
    """Those producers whose coordinator does not have the epoch, now that a partition has it.

    A client of transaction version 2 may have begun another one since the coordinators' log was read.
    """
    ids = {history.transactional_id for each in cases if each.producer_id in ahead for history in each.id_histories}
    found = dict(ahead)
    if not ids:
        return found
    for owner in describe_named(client, CoordinatorTopic.read(client, STATE_TOPIC), sorted(ids)):
        producer = found.get(-1 if owner.producer_id is None else owner.producer_id)
        if producer is not None and (owner.producer_epoch or 0) >= (producer.producer_epoch or 0):
            del found[producer.producer_id or 0]
    return found


def _read_markers(
    client: BrokerClient,
    partition: Partition,
    cases: Sequence[Case],
    states: Mapping[tuple[TopicPartition, int], Producer],
    *,
    deadline: float,
) -> MarkerSearch:
    """The markers of open transactions' producers on another partition."""
    tp = partition.tp
    if partition.error:
        name = f"{tp.topic}-{tp.partition}"
        return MarkerSearch(
            unread={each.producer_id: f"{name} could not be read ({partition.error})" for each in cases}
        )
    begin, end = partition.log_start_offset or 0, partition.high_watermark or 0
    since = search_from(cases)
    start = max(begin, end - MAX_OFFSETS) if since is None else since
    fetched = fetch_range(client, partition, start, "high_watermark", crc=True)
    parts, errors, most = list[Headers](), list[str](), MAX_OFFSETS

    def found(stop: int) -> MarkerSearch:
        excerpt = Excerpt(
            headers=concatenate(parts),
            start=fetched.start,
            stop=stop,
            log_start_offset=begin,
            observed_at=partition.observed_at,
            broker_id=partition.leader,
        )
        return markers_found(tp, excerpt, cases, states, errors=errors, end=fetched.stop)

    for chunk in map(intact, fetched.chunks):
        headers = chunk.headers
        parts.append(headers)
        errors += [each.reason for each in chunk.damage if not each.is_torn]
        reached = int(headers["last_offset"][-1]) + 1 if len(headers) else fetched.start
        if fetched.start + most <= reached < fetched.stop:
            so_far = found(reached)
            if errors or not so_far.unread or most == MOST_OFFSETS or time.monotonic() > deadline:
                return so_far
            most = MOST_OFFSETS
    return found(fetched.stop)


def batch_tables_of(log_range: FetchedRange, *, producer_id: int | None = None) -> Iterator[pa.Table]:
    """Batches, or a producer's, as ``schema.BATCHES``, in log order, with error rows between them."""
    for chunk in log_range.chunks:
        log_id = replace(log_range.log_id, broker_id=chunk.broker_id)
        yield from batch_tables([chunk], log_id, producer_id=producer_id)
