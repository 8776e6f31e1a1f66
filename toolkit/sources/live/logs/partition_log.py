"""The log of a live partition from its leader: every batch, markers and open transactions included (Fetch)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from toolkit.errors import BrokerError, ToolkitError
from toolkit.formats.log.headers import ScanResult
from toolkit.formats.log.scan import scan
from toolkit.schema import Row
from toolkit.schema.table import Error, TopicPartition
from toolkit.sources.live.client.broker_client import BrokerClient
from toolkit.sources.live.logs.fetch import FetchedBatches, FetchPosition, fetch
from toolkit.sources.live.logs.offset_lookup import offset_of
from toolkit.sources.live.state.cluster_metadata import is_missing, read_metadata
from toolkit.sources.live.state.partition_offsets import partition_rows
from toolkit.sources.offset_queries.offset_spec import OffsetSpec, check_offset_range
from toolkit.sources.progress_bar import progress

FETCH_BYTES = 8 << 20
WAIT_MS = 500  # for a leader that does not have the offsets yet
PAUSE = 0.2  # seconds before a retry after an error
NOTHING = scan(b"")
OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
UNREPLICATED = "OFFSET_NOT_AVAILABLE: the high watermark stays at {}, so later offsets are not replicated yet"

# Transient errors: an election, a restart, a leader that does not know its high watermark yet.
TRANSIENT = (
    "BROKER_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "NOT_LEADER_OR_FOLLOWER",
    "OFFSET_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_LEADER_EPOCH",
    "UNKNOWN_TOPIC_OR_PARTITION",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FetchedChunk:
    """A chunk of a partition's log, or the error that prevented reading it.

    Parameters
    ----------
    scanned
        The batches of the chunk; positions are relative to `records`.
    records
        The bytes that the broker sent. The last batch may be truncated, and batches after the requested range may
        follow.
    broker_id
        The broker that sent it, or failed to.
    error
        ``"NAME: text"`` if offsets are missing; the chunk is then empty.
    aborted
        Producer id to the first offsets of its aborted transactions in the chunk; with read_committed only.
    """

    scanned: ScanResult
    records: bytes = b""
    broker_id: int | None = None
    error: str | None = None
    aborted: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedRange:
    """A range of a partition's log, read lazily.

    Parameters
    ----------
    tp
        Topic and partition.
    broker_id
        Its leader, before anything is read.
    start, stop
        The batches with an offset in ``start <= offset < stop``; the first one may begin before `start`.
    chunks
        The log in chunks of some megabytes, which can be iterated once; the next chunk is prefetched.
    """

    tp: TopicPartition
    broker_id: int | None
    start: int
    stop: int
    chunks: Iterator[FetchedChunk]


def fetch_range(
    client: BrokerClient, row: Row, start: OffsetSpec, stop: OffsetSpec, *, crc: bool = False
) -> FetchedRange:
    """Resolve a range of offsets and read it lazily.

    Follows leader changes. Offsets that cannot be read are a chunk with `error`: the log is never silently shorter.

    Parameters
    ----------
    client
        The connection to the brokers.
    row
        The partition's row of ``schema.PARTITIONS``.
    start, stop
        As for `offset_lookup.offset_of`. Offsets beyond the log end are left out.
    crc
        Check every batch's checksum.

    Raises
    ------
    UsageError
        If `start` or `stop` is not an offset specification, or `stop` comes before `start`.
    BrokerError, ConnectionFailed
        If the leader does not return the log start and end, or the offset of a time.
    """
    check_offset_range(start, stop)
    first, last = resolve_range(client, row, start, stop)
    return read_offsets(client, row, first, last, crc=crc)


def resolve_range(client: BrokerClient, row: Row, start: OffsetSpec, stop: OffsetSpec) -> tuple[int, int]:
    """The current offsets of `start` and `stop`.

    Parameters
    ----------
    client, row, start, stop
        As for `fetch_range`, which also documents the errors.
    """
    if row["error"]:
        code, text = Error.of(row["error"])
        raise BrokerError(f"{row['topic']}-{row['partition']} cannot be read: {code} ({text.rstrip('.')}).", code=code)
    first, last = (offset_of(client, bound, row) for bound in (start, stop))
    end = row["log_end_offset"]
    return first, min(last, row["high_watermark"] if end is None else end)


def read_offsets(
    client: BrokerClient,
    base: Row,
    start: int,
    stop: int,
    *,
    crc: bool = False,
    read_committed: bool = False,
    max_bytes: int | None = None,
) -> FetchedRange:
    """Read offsets of a partition that are known to have existed; deleted ones are a chunk with `error`.

    Parameters
    ----------
    client
        The connection to the brokers.
    base
        The metadata columns of the partition's row of ``schema.PARTITIONS``.
    start, stop
        The batches with an offset in ``start <= offset < stop``.
    crc
        Check every batch's checksum.
    read_committed
        Request the aborted transactions, too; the broker then sends nothing from the LSO on, so `stop` must not be
        after it.
    max_bytes
        Limit per response; some megabytes if null.
    """
    leader = _Leader(client, base, read_committed=read_committed, max_bytes=max_bytes)
    chunks = _read_chunks(leader, base, start, stop, crc=crc)
    tp = TopicPartition(base["topic"], base["partition"])
    return FetchedRange(tp=tp, broker_id=base["leader"], start=start, stop=stop, chunks=chunks)


def _read_chunks(leader: _Leader, row: Row, start: int, stop: int, *, crc: bool) -> Iterator[FetchedChunk]:
    at: int | None = start
    title = f"{row['topic']}-{row['partition']}"
    with (
        ThreadPoolExecutor(1, thread_name_prefix="kafka-txn-toolkit-fetch") as ahead,
        progress(title, total=stop - start, unit="offsets") as advance,
    ):
        pending = ahead.submit(leader.fetch, start, stop) if start < stop else None
        while pending and at is not None:
            reached, found = at, pending.result()
            chunk, at = _chunk(leader, found, reached, stop, crc=crc)
            pending = ahead.submit(leader.fetch, at, stop) if at is not None and at < stop else None
            yield chunk
            advance(min(at or stop, stop) - reached)


def _chunk(leader: _Leader, found: FetchedBatches, at: int, stop: int, *, crc: bool) -> tuple[FetchedChunk, int | None]:
    """The chunk fetched at an offset, and the next offset to fetch; null at the end."""
    if found.error:
        why, next_at = leader.explain(found.error, at, stop)
        return FetchedChunk(scanned=NOTHING, broker_id=leader.broker_id, error=why), next_at
    scanned = scan(found.records, crc=crc, last=False)
    if not len(scanned.headers):
        damaged = [f"{each.reason.rstrip('.')} (at offset {at})" for each in scanned.damage]
        error = _unread(damaged[0], at, stop) if found.records else None
        return FetchedChunk(scanned=NOTHING, records=found.records, broker_id=leader.broker_id, error=error), None
    last = int(scanned.headers["last_offset"][-1])
    if last >= stop:
        scanned = replace(scanned, headers=scanned.headers[scanned.headers["base_offset"] < stop])
    chunk = FetchedChunk(scanned=scanned, records=found.records, broker_id=leader.broker_id, aborted=found.aborted)
    return chunk, last + 1


def _unread(why: str, at: int, stop: int) -> str:
    return f"{why.rstrip('.')}; offsets {at} to {stop - 1} were not read"


class _Leader:
    """The current leader of a partition."""

    def __init__(self, client: BrokerClient, base: Row, *, read_committed: bool, max_bytes: int | None) -> None:
        self._client = client
        self._base = base
        self._read_committed = read_committed
        self._max_bytes = max_bytes
        self._tp: TopicPartition = TopicPartition(base["topic"], base["partition"])

    @property
    def broker_id(self) -> int | None:
        leader: int | None = self._base["leader"]
        return leader

    def fetch(self, at: int, stop: int) -> FetchedBatches:
        """Fetch from an offset; retry transient errors until the client's timeout."""
        deadline = time.monotonic() + self._client.timeout
        while True:
            found = self._fetch_once(at)
            if found.records or (found.error and not found.error.startswith(TRANSIENT)):
                return found
            if not found.error and (found.high_watermark or 0) >= stop:
                return found  # compacted away
            if time.monotonic() > deadline or (found.error and not self._refresh_leader()):
                return replace(found, error=found.error or UNREPLICATED.format(found.high_watermark))

    def _fetch_once(self, at: int) -> FetchedBatches:
        if self.broker_id is None:
            return FetchedBatches(error=self._base["error"] or "LEADER_NOT_AVAILABLE: the partition has no leader")
        epoch = self._base["leader_epoch"]
        fetch_position = FetchPosition(self._tp, at, self.broker_id, -1 if epoch is None else epoch)
        (found,) = fetch(
            self._client,
            [fetch_position],
            max_bytes=self._max_bytes or FETCH_BYTES,
            read_committed=self._read_committed,
            max_wait_ms=WAIT_MS,
        )
        return found

    def _refresh_leader(self) -> bool:
        """Read the leader again; false if the partition no longer exists."""
        threading.Event().wait(PAUSE)
        try:
            self._base = read_metadata(self._client, [self._tp[0]]).at([self._tp])[self._tp]
        except ToolkitError:
            return True  # no broker responds yet
        return not is_missing(self._base["error"])

    def explain(self, error: str, at: int, stop: int) -> tuple[str, int | None]:
        """The error text, and the offset to continue at, if any."""
        if not error.startswith(OUT_OF_RANGE):
            return _unread(error, at, stop), None
        try:
            (row,) = partition_rows(self._client, {self._tp: self._base})
        except ToolkitError:  # without further data, report only the leader's error
            return _unread(error, at, stop), None
        start, end = row["log_start_offset"], row["log_end_offset"] or row["high_watermark"]
        if start is not None and at < start:
            deleted = f"offsets {at} to {min(start, stop) - 1} are deleted, by retention or DeleteRecords"
            return f"{OUT_OF_RANGE}: the log starts at {start} now; {deleted}", start
        if end is not None and at > end:
            return _unread(f"{OUT_OF_RANGE}: the log ends at {end} now; a new leader has truncated it", at, stop), None
        return _unread(error, at, stop), None
