"""The log of a live partition from its leader: every batch, markers and open transactions included (Fetch).

It is read in one go, or in ranges that can be read in parallel: each batch is in exactly one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise

from toolkit.errors import BrokerError, ToolkitError
from toolkit.formats.log.headers import LogChunk
from toolkit.formats.log.scan import scan
from toolkit.schema.live import Partition
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.client.broker_response import omitted_text
from toolkit.sources.live.logs.fetch import TRANSIENT, WAIT_MS, FetchedBatches, FetchPosition, fetch, offset_of
from toolkit.sources.live.state.leaders import Leader, is_missing, read_metadata, read_partitions
from toolkit.sources.offset_queries.offset_spec import OffsetSpec, check_offset_range
from toolkit.sources.progress_bar import progress

FETCH_BYTES = 8 << 20
PAUSE = 0.2  # seconds before a retry after an error
OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
NOT_RETURNED = (
    "REMOTE_STORAGE: the leader returns nothing at offset {}, which is in remote storage: that is slow, or fails there"
)
UNREPLICATED = "OFFSET_NOT_AVAILABLE: the high watermark stays at {}, so later offsets are not replicated yet"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FetchedChunk(LogChunk):
    """A chunk of a partition's log, or the error that prevented reading it."""

    # the bytes that the broker sent, to which positions are relative. The last batch may be truncated, and batches
    # after the requested range may follow
    records: bytes = b""
    broker_id: int | None = None  # the broker that sent it, or failed to
    error: str | None = None  # ``"NAME: text"`` if offsets are missing; the chunk is then empty
    # producer id to the first offsets of its aborted transactions in the chunk; with read_committed only
    aborted: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Batches of a partition whose base offset is in ``start <= offset < stop``."""

    tp: TopicPartition  # the partition
    # start, stop: bounds of the base offsets
    start: int
    stop: int
    is_first: bool = True  # whether this is the first range, which also has the batch that contains `start`


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRange(LogRange):
    """A range of a partition's log, read lazily."""

    broker_id: int | None  # its leader, before anything is read
    # the log in chunks of some megabytes, which can be iterated once; the next chunk is prefetched
    chunks: Generator[FetchedChunk, None, None]


def fetch_range(
    client: BrokerClient, partition: Partition, start: OffsetSpec, stop: OffsetSpec, *, crc: bool = False
) -> FetchedRange:
    """Resolve a range of offsets and read it lazily.

    Follows leader changes. Offsets that cannot be read are a chunk with `error`: the log is never silently shorter.

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


def read_offsets(
    client: BrokerClient,
    partition: Leader,
    start: int,
    stop: int,
    *,
    crc: bool = False,
    read_committed: bool = False,
    max_bytes: int | None = None,
) -> FetchedRange:
    """Read offsets of a partition that are known to have existed; deleted ones are a chunk with `error`.

    `start`, `stop`: the batches with an offset in ``start <= offset < stop``.
    `read_committed`: request the aborted transactions, too; the broker then sends nothing from the LSO on, so `stop`
        must not be after it.
    `max_bytes`: limit per response; some megabytes if null.
    """
    leader = _LogLeader(client, partition, read_committed=read_committed, max_bytes=max_bytes)
    chunks = _read_chunks(leader, start, stop, crc=crc)
    return FetchedRange(tp=leader.tp, broker_id=partition.leader, start=start, stop=stop, chunks=chunks)


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
        return FetchedChunk(broker_id=leader.broker_id, error=why), next_at
    scanned = scan(found.records, crc=crc, last=False)
    if not len(scanned.headers):
        damaged = next((each.reason for each in scanned.damage), omitted_text("Fetch", "a whole batch"))
        error = _unread(f"{damaged.rstrip('.')} (at offset {at})", at, stop) if found.records else None
        return FetchedChunk(records=found.records, broker_id=leader.broker_id, error=error), None
    last = int(scanned.headers["last_offset"][-1])
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

    def __init__(self, client: BrokerClient, partition: Leader, *, read_committed: bool, max_bytes: int | None) -> None:
        self.tp = partition.tp
        self._client = client
        self._partition = partition
        self._read_committed = read_committed
        self._max_bytes = max_bytes

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
        (found,) = fetch(
            self._client,
            [FetchPosition.of(self._partition, at)],
            max_bytes=self._max_bytes or FETCH_BYTES,
            read_committed=self._read_committed,
            max_wait_ms=WAIT_MS,
        )
        return found

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
            self._partition = read_metadata(self._client, [self.tp.topic]).at([self.tp])[self.tp]
        except ToolkitError:
            return True  # no broker responds yet
        return not is_missing(self._partition.error)

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
    """Read a range of a log, lazily; offsets deleted since `split` are a chunk with `error`.

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
    return replace(fetched, is_first=False, chunks=own)
