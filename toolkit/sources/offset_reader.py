"""Content, transaction, visibility and status of offsets, of a live leader or of a replica's files (`OffsetReader`).

The log is read around them only. Markers and aborted records are no data loss.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from toolkit.analysis.log.log_transactions import markers
from toolkit.analysis.log.offset_status import (
    BEYOND_LSO,
    COMMITTED_RECORDS,
    RECORDS,
    AbortedRange,
    LogSlice,
    StatusRange,
    batch_statuses,
    missing_reason,
    status_ranges,
    transactions_at,
    visibility_reason,
)
from toolkit.errors import DecodeError
from toolkit.formats.batch_records import partial_batches, read_records
from toolkit.formats.batches import LOG_APPEND_TIME, TRANSACTIONAL, known
from toolkit.formats.headers import Header, Headers, LogChunk
from toolkit.schema import utc
from toolkit.schema.coerce import OffsetSpec
from toolkit.schema.live import MissingOffsets, OffsetVisibility, Partition
from toolkit.schema.log import LogTransaction

BACK = (1_000, 20_000)  # offsets before a transaction's record in which to search its first one
FORWARD = 200_000  # offsets after it in which to search its marker
WRONG_CHECKSUM = "CORRUPT_MESSAGE: the checksum of the batch at offset {} does not match its bytes"
NO_RECORDS = (
    "NO_RECORDS: compaction removed records of the batch at {}; the output of kafka-dump-log.sh does not show which"
)


class OffsetReader(ABC):
    """One partition; its offsets are read once, its log on request."""

    # log end offset of an old leader whose last offsets were truncated; null if none is known
    truncated_end: int | None = None

    def __init__(self, partition: Partition) -> None:
        self.partition = partition  # if offsets are null, its `error` says why
        # if the high watermark is known, the other two are
        self.log_start = partition.log_start_offset or 0
        self.lso = partition.last_stable_offset or 0
        self.high_watermark = partition.high_watermark or 0
        self.opened_error: str | None = None  # why `opened` may lack some, once it was read

    @property
    @abstractmethod
    def is_compacted(self) -> bool | None:
        """Whether the log cleaner may have compacted the log; null if unknown."""

    @property
    @abstractmethod
    def opened(self) -> Mapping[int, int]:
        """Start offset of every open transaction, by producer id."""

    @abstractmethod
    def offset(self, bound: OffsetSpec) -> int:
        """The offset that a specification resolves to."""

    @abstractmethod
    def slices(self, start: int, stop: int) -> Iterator[LogSlice]:
        """The batches with an offset in ``start <= offset < stop``, in chunks, in log order."""

    @abstractmethod
    def transactional_id(self, producer_id: int) -> tuple[str | None, str | None]:
        """The transactional id that owns a producer id, null if the coordinators have none; and a read error."""

    def visibility(self, offset: int) -> OffsetVisibility:
        """What an offset holds, and which consumers receive it; the status of one outside the log says so."""
        found = OffsetVisibility.of_record(self.partition, offset=offset, reason="")
        if outside := [each for ranges in self._outside(offset, offset + 1) for each in ranges]:
            found = replace(found, status=outside[0].status)
        else:
            found = self._in_log(replace(found, error=None))
            found = replace(found, error=found.error or self.partition.error)
        if found.status is not None:
            is_committed = found.status in COMMITTED_RECORDS
            is_known = not is_committed or found.last_stable_offset is not None
            found = replace(
                found,
                read_committed=(is_committed and offset < self.lso) if is_known else None,
                read_uncommitted=found.status in RECORDS,
            )
        if not found.read_committed:
            found = replace(found, visible_at=None)
        waits = found.status in RECORDS and found.read_committed is False and offset >= self.lso
        if waits and self.opened:  # else it only waits for replication
            holder, first = min(self.opened.items(), key=lambda each: each[1])
            found = replace(found, holder_producer_id=holder, holder_first_offset=first)
        elif waits and self.opened_error:
            found = replace(found, error=found.error or self.opened_error)
        return replace(found, reason=visibility_reason(found))

    def missing_offsets(self, start: int, stop: int, *, read_committed: bool) -> list[MissingOffsets]:
        """The ranges of offsets that a consumer does not receive.

        `start`, `stop`: the offsets ``start <= offset < stop``; they may lie outside the log.
        `read_committed`: the consumer's isolation level; read_uncommitted if false.
        """
        ranges, errors = self.classified_ranges(start, stop)
        return [
            MissingOffsets.of_record(
                self.partition,
                first_offset=each.first,
                last_offset=each.last,
                offsets=each.last - each.first + 1,
                status=each.status,
                isolation_level="read_committed" if read_committed else "read_uncommitted",
                reason=missing_reason(each.status, self.partition),
                error=self._unknown_status(errors) if each.status is None else self.partition.error,
            )
            for each in self._missing(ranges, read_committed)
        ]

    def classified_ranges(self, start: int, stop: int) -> tuple[list[StatusRange], Sequence[str]]:
        """The status of each offset of ``start <= offset < stop``, as ranges without a gap; and why some is unknown."""
        before, behind = self._outside(start, stop)
        first, last = max(start, self.log_start), min(stop, self.high_watermark)
        ranges, log = self._ranges(first, last) if first < last else ([], LogSlice())
        is_unknown = not log.errors and self.is_compacted is not None and any(each.status is None for each in ranges)
        return [*before, *ranges, *behind], [self._unknown_status([])] if is_unknown else log.errors

    def _in_log(self, found: OffsetVisibility) -> OffsetVisibility:
        """With the batch at the offset and the batches around it."""
        offset = found.offset
        ((_, _, status),), log = self._ranges(offset, offset + 1)
        error = self._unknown_status(log.errors) if status is None else next(iter(log.errors), None)
        found = replace(found, status=status, error=error)
        batch = next(iter(log.batches), None)
        if batch is None:
            return found
        base, behind = int(batch["base_offset"]), int(log.batches["last_offset"][-1]) + 1
        producer_id = int(batch["producer_id"]) if batch["attributes"] & TRANSACTIONAL else None
        earlier, is_start_known = self._read_back(base, producer_id)
        so_far = transactions_at(LogSlice.joined([earlier, log]).batches, offset)
        without_marker = {each for each, transaction in so_far.items() if transaction.marker_offset is None}
        if without_marker:
            without_marker -= {each for each, start in self.opened.items() if start <= offset}
        later, _ = self._read_until_ended(behind, without_marker)
        around = LogSlice.joined([earlier, log, later])
        at_offset = transactions_at(around.batches, offset)
        known = _with_batch(replace(found, error=found.error or next(iter(around.errors), None)), batch)
        if producer_id is not None:
            at = at_offset.get(producer_id)
            if not is_start_known and base - self.log_start <= BACK[-1]:  # all that is left of the log was searched
                is_start_known = _has_first_sequence(around, at)
            known = self._with_transaction(known, producer_id, at, is_start_known)
        ends = [each.end for each in at_offset.values() if each.end is not None]
        appended = known.timestamp if batch["attributes"] & LOG_APPEND_TIME else None
        return replace(known, visible_at=max(ends, default=appended))

    def _with_transaction(
        self, found: OffsetVisibility, producer_id: int, at: LogTransaction | None, is_start_known: bool
    ) -> OffsetVisibility:
        """With begin, end, outcome and id of the transaction of a record or marker, as far as they were read."""
        transactional_id, unread = self.transactional_id(producer_id)
        outcome = {"committed": "commit", "aborted": "abort", "open": "open"}.get(found.status or "")
        found = replace(found, transactional_id=transactional_id, error=found.error or unread, outcome=outcome)
        if at is None:
            return found
        if found.status == "marker":
            outcome = at.marker and at.marker.lower()
        own = self.opened.get(producer_id) if found.status == "open" and not is_start_known else None
        return replace(
            found,
            outcome=outcome,
            first_offset=at.first_offset if is_start_known else own,
            marker_offset=at.marker_offset,
            marker_time=at.end,
        )

    def _outside(self, start: int, stop: int) -> tuple[list[StatusRange], list[StatusRange]]:
        """The ranges of ``start <= offset < stop`` before the log start, and at or after the high watermark."""
        end = self.partition.log_end_offset
        before: list[tuple[int | None, str]] = [(self.log_start, "deleted")]
        behind: list[tuple[int | None, str]] = [
            (self.high_watermark if end is None else end, "beyond_high_watermark"),
            (self.truncated_end or end, "truncated"),
            (stop, "beyond_high_watermark" if end is None else "beyond_log_end"),
        ]
        found: tuple[list[StatusRange], list[StatusRange]] = [], []
        for ranges, named, first in zip(found, (before, behind), (start, max(start, self.high_watermark)), strict=True):
            at = first
            for bound, status in named:
                if bound is not None and at < min(bound, stop):
                    ranges.append(StatusRange(at, min(bound, stop) - 1, status))
                    at = min(bound, stop)
        return found

    def _read(self, start: int, stop: int) -> LogSlice:
        return LogSlice.joined(list(self.slices(start, stop)))

    def _read_back(self, offset: int, producer_id: int | None) -> tuple[LogSlice, bool]:
        """The batches before an offset, back to a producer's last marker within `BACK`; and whether they reach it.

        The first offset of a log reaches it, too. Where retention or DeleteRecords moved the log start, earlier batches
        of the transaction may be deleted.

        `offset`: base offset of a batch. `producer_id`: the producer; null reads the smallest range of `BACK` only.
        """
        found = LogSlice()
        for offsets in BACK:
            first = max(self.log_start, offset - offsets)
            if first >= offset:
                return found, self.log_start == 0
            found = self._read(first, offset)
            if (markers(found.batches) & (found.batches["producer_id"] == producer_id)).any():
                return found, True
            if producer_id is None or first == self.log_start:
                return found, self.log_start == 0
        return found, False

    def _read_until_ended(
        self, offset: int, producer_ids: Collection[int], *, limit: int | None = FORWARD
    ) -> tuple[LogSlice, bool]:
        """The batches from an offset on, until each producer has a marker; and whether they reach the high watermark.

        `offset`: offset after a batch. `limit`: maximum number of offsets to read; null for no limit.
        """
        stop = self.high_watermark if limit is None else min(self.high_watermark, offset + limit)
        missing, found = set(producer_ids), list[LogSlice]()
        if offset < stop and missing:
            for each in self.slices(offset, stop):
                found.append(each)
                missing -= set(each.batches["producer_id"][markers(each.batches)].tolist())
                if not missing:
                    return LogSlice.joined(found), False
        return LogSlice.joined(found), stop == self.high_watermark or offset >= self.high_watermark

    def _ranges(self, start: int, stop: int) -> tuple[list[StatusRange], LogSlice]:
        """The status of offsets between log start and high watermark, and the batches up to what decides it."""
        log = self._read(start, stop)
        opened: Mapping[int, int] = {}
        undecided = self._undecided(log, opened)
        if undecided:  # open transactions are only requested if they matter
            opened = self.opened
            undecided = self._undecided(log, opened)
        reaches_end = False
        if undecided:
            behind = int(log.batches["last_offset"][-1]) + 1
            rest, reaches_end = self._read_until_ended(behind, undecided, limit=None)
            log = LogSlice.joined([log, rest])
        ranges = status_ranges(
            log,
            start=start,
            stop=stop,
            last_stable_offset=self.lso,
            opened=opened,
            reaches_end=reaches_end,
            is_compacted=self.is_compacted,
        )
        return ranges, log

    def _undecided(self, log: LogSlice, opened: Mapping[int, int]) -> set[int]:
        """Producers whose next marker decides a status and was not read."""
        statuses = batch_statuses(log, last_stable_offset=self.lso, opened=opened, reaches_end=False)
        return set(np.unique(log.batches["producer_id"][statuses < 0]).tolist())

    def _unknown_status(self, errors: Sequence[str]) -> str:
        """Why the status of an offset is unknown, as ``NAME: sentence``."""
        if errors:
            return errors[0]
        if self.is_compacted is None:
            return "UNKNOWN: the deciding marker was not read, or the topic's cleanup policy is unknown"
        return "UNKNOWN: the deciding marker was not read"

    def _missing(self, ranges: Iterable[StatusRange], read_committed: bool) -> Iterator[StatusRange]:
        for each in ranges:
            if each.status not in (COMMITTED_RECORDS if read_committed else RECORDS):
                yield each
            elif read_committed and self.partition.last_stable_offset is None:
                yield each._replace(status=None)
            elif read_committed and each.last >= self.lso:
                yield StatusRange(max(each.first, self.lso), each.last, BEYOND_LSO)


def wrong_checksums(headers: Headers) -> list[str]:
    """An error for each batch whose checksum does not match its bytes."""
    return [WRONG_CHECKSUM.format(offset) for offset in headers["base_offset"][headers["crc_ok"] == 0].tolist()]


def slice_of(
    chunk: LogChunk,
    bytes_of: Callable[[Header], bytes | None],
    *,
    aborted: set[AbortedRange],
    is_index_complete: bool = True,
    errors: Iterable[str] = (),
) -> LogSlice:
    """A chunk, with the offsets of the records that compaction left of a batch.

    `bytes_of`: the bytes of a batch; null if they are not at hand.
    """
    headers = chunk.headers
    found = LogSlice(batches=headers, aborted=aborted, is_index_complete=is_index_complete, errors=[*errors])
    found.errors += wrong_checksums(headers)[:1]
    partial = headers[partial_batches(headers)]
    for header in partial[partial["crc_ok"] != 0]:
        base = int(header["base_offset"])
        try:
            buf = bytes_of(header)
            if buf is None:
                found.errors.append(NO_RECORDS.format(base))
            else:
                found.record_offsets[base] = [record.offset for record in read_records(buf)]
        except (DecodeError, OSError) as error:
            found.errors.append(f"CORRUPT_BATCH: {error}")
    return found


def _has_first_sequence(log: LogSlice, at: LogTransaction | None) -> bool:
    """Whether the first batch that was read of a transaction is the producer's first with its epoch."""
    if at is None or at.first_offset is None:
        return False
    batches = log.batches
    return bool((batches["base_sequence"][batches["base_offset"] == at.first_offset] == 0).any())


def _with_batch(found: OffsetVisibility, batch: Header) -> OffsetVisibility:
    attributes, producer_id = int(batch["attributes"]), int(batch["producer_id"])
    has_producer = producer_id >= 0
    return replace(
        found,
        base_offset=known(int(batch["base_offset"])),  # a compressed message of magic 1 has only its last offset
        last_offset=int(batch["last_offset"]),
        timestamp=utc(int(batch["max_timestamp"])),
        timestamp_type="LogAppendTime" if attributes & LOG_APPEND_TIME else "CreateTime",
        producer_id=producer_id if has_producer else None,
        producer_epoch=int(batch["producer_epoch"]) if has_producer else None,
    )
