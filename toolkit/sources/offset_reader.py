"""Content, transaction, visibility and status of offsets, of a live leader or of a replica's files (`OffsetReader`).

The log is read around them only. Markers and aborted records are no data loss.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from toolkit.analysis.log.log_transactions import markers
from toolkit.analysis.log.offset_status import (
    BEYOND_LSO,
    COMMITTED_RECORDS,
    RECORDS,
    LogSlice,
    StatusRange,
    TransactionAtOffset,
    batch_statuses,
    missing_reason,
    status_ranges,
    transactions_at,
    visibility_reason,
)
from toolkit.formats.batches import LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, Header, concatenate
from toolkit.schema import utc
from toolkit.schema.live import MissingOffsets, OffsetVisibility, Partition

if TYPE_CHECKING:
    from toolkit.sources.offset_queries import OffsetSpec


class LogBounds(NamedTuple):
    """The offsets of a partition that can be read."""

    log_start: int
    lso: int
    high_watermark: int


class OffsetReader(Protocol):
    """One partition; its offsets are read once, its log on request.

    Attributes
    ----------
    partition
        The partition; if offsets are null, `error` says why.
    """

    partition: Partition

    @property
    def is_compacted(self) -> bool | None:
        """Whether the log cleaner may have compacted the log; null if unknown."""

    @property
    def opened(self) -> Mapping[int, int]:
        """Start offset of every open transaction, by producer id."""

    @property
    def truncated_end(self) -> int | None:
        """Log end offset of an old leader whose last offsets were truncated; null if none is known."""

    def offset(self, bound: OffsetSpec) -> int:
        """The offset that a specification resolves to."""

    def slices(self, start: int, stop: int) -> Iterator[LogSlice]:
        """The batches with an offset in ``start <= offset < stop``, in chunks, in log order."""

    def transactional_id(self, producer_id: int) -> tuple[str | None, str | None]:
        """The transactional id that owns a producer id, null if the coordinators have none; and a read error."""


def bounds_of(reader: OffsetReader) -> LogBounds:
    """The offsets of a partition whose high watermark is known; then the others are, too."""
    partition = reader.partition
    return LogBounds(partition.log_start_offset or 0, partition.last_stable_offset or 0, partition.high_watermark or 0)


def of_partition(partition: Partition, offset: int) -> OffsetVisibility:
    """An offset of which nothing is known but its partition."""
    return OffsetVisibility.of_record(partition, offset=offset, reason="")


ENDED = {COMMIT: "commit", ABORT: "abort"}


def visibility(reader: OffsetReader, offset: int) -> OffsetVisibility:
    """What an offset holds, and which consumers receive it.

    `offset`: the offset. The status of one outside the log says so.
    """
    lso = bounds_of(reader).lso
    found = of_partition(reader.partition, offset)
    before, behind = outside_log(reader, offset, offset + 1)
    if before or behind:
        found = replace(found, status=(before or behind)[0].status)
    else:
        found = _in_log(reader, replace(found, error=None))
        found = replace(found, error=found.error or reader.partition.error)
    if found.status is not None:
        is_committed = found.status in COMMITTED_RECORDS
        found = replace(
            found,
            read_committed=None if is_committed and found.last_stable_offset is None else is_committed and offset < lso,
            read_uncommitted=found.status in RECORDS,
        )
    if not found.read_committed:
        found = replace(found, visible_at=None)
    if (
        found.status in RECORDS and found.read_committed is False and offset >= lso and reader.opened
    ):  # else it only waits for replication
        holder = min(reader.opened, key=lambda each: reader.opened[each])
        found = replace(found, holder_producer_id=holder, holder_first_offset=reader.opened[holder])
    return replace(found, reason=visibility_reason(found))


def _in_log(reader: OffsetReader, found: OffsetVisibility) -> OffsetVisibility:
    """With the batch at the offset and the batches around it."""
    offset = found.offset
    log = read_range(reader, offset, offset + 1)
    batch = next(iter(log.batches), None)
    if batch is None:
        return _with_status(found, log, reader, reaches_end=False)
    base, behind = int(batch["base_offset"]), int(batch["last_offset"]) + 1
    producer_id = int(batch["producer_id"]) if batch["attributes"] & TRANSACTIONAL else None
    earlier, is_start_known = read_back(reader, base, producer_id)
    so_far = transactions_at(add_slices([earlier, log]).batches, offset)
    without_marker = {each for each, transaction in so_far.items() if transaction.marker_offset is None}
    if without_marker:
        without_marker -= {each for each, start in reader.opened.items() if start <= offset}
    later, reaches_end = read_until_ended(reader, behind, without_marker)
    around = add_slices([earlier, log, later])
    known = _with_status(found, around, reader, reaches_end=reaches_end)
    if known.status is None and producer_id is not None and not reaches_end:  # only its marker decides
        rest, reaches_end = read_until_ended(reader, _end(around), {producer_id}, limit=None)
        around = add_slices([around, rest])
        known = _with_status(found, around, reader, reaches_end=reaches_end)
    at_offset = transactions_at(around.batches, offset)
    known = _with_batch(known, batch)
    if producer_id is not None:
        at = at_offset.get(producer_id)
        if not is_start_known and reaches_log_start(reader, base):
            is_start_known = _has_first_sequence(around, at)
        known = _with_transaction(known, reader, producer_id, at, is_start_known)
    ends = [each.marker_time_ms for each in at_offset.values() if each.marker_time_ms is not None]
    if not ends and batch["attributes"] & LOG_APPEND_TIME:
        ends = [int(batch["max_timestamp"])]
    return replace(known, visible_at=utc(max(ends)) if ends else None)


def _with_status(
    found: OffsetVisibility, log: LogSlice, reader: OffsetReader, *, reaches_end: bool
) -> OffsetVisibility:
    offset, lso = found.offset, bounds_of(reader).lso
    ((_, _, status),) = status_ranges(
        log,
        start=offset,
        stop=offset + 1,
        last_stable_offset=lso,
        opened=reader.opened if offset >= lso else {},
        reaches_end=reaches_end,
        is_compacted=reader.is_compacted,
    )
    error = unknown_status(reader, log.errors) if status is None else next(iter(log.errors), None)
    return replace(found, status=status, error=error)


def _has_first_sequence(log: LogSlice, at: TransactionAtOffset | None) -> bool:
    """Whether the first batch that was read of a transaction is the producer's first with its epoch."""
    if at is None or at.first_offset is None:
        return False
    batches = log.batches
    return bool((batches["base_sequence"][batches["base_offset"] == at.first_offset] == 0).any())


def _end(log: LogSlice) -> int:
    return int(log.batches["last_offset"][-1]) + 1


def _with_batch(found: OffsetVisibility, batch: Header) -> OffsetVisibility:
    attributes, producer_id = int(batch["attributes"]), int(batch["producer_id"])
    has_producer = producer_id >= 0
    return replace(
        found,
        base_offset=int(batch["base_offset"]),
        last_offset=int(batch["last_offset"]),
        timestamp=utc(int(batch["max_timestamp"])),
        timestamp_type="LogAppendTime" if attributes & LOG_APPEND_TIME else "CreateTime",
        producer_id=producer_id if has_producer else None,
        producer_epoch=int(batch["producer_epoch"]) if has_producer else None,
    )


def _with_transaction(
    found: OffsetVisibility,
    reader: OffsetReader,
    producer_id: int,
    at: TransactionAtOffset | None,
    is_start_known: bool,
) -> OffsetVisibility:
    """With begin, end and outcome of the transaction of a record or marker, as far as they were read, and its id."""
    transactional_id, unread = reader.transactional_id(producer_id)
    outcome = {"committed": "commit", "aborted": "abort", "open": "open"}.get(found.status or "")
    found = replace(found, transactional_id=transactional_id, error=found.error or unread, outcome=outcome)
    if at is None:
        return found
    if found.status == "marker":
        outcome = None if at.marker is None else ENDED.get(at.marker)
    own = reader.opened.get(producer_id) if found.status == "open" and not is_start_known else None
    return replace(
        found,
        outcome=outcome,
        first_offset=at.first_offset if is_start_known else own,
        marker_offset=at.marker_offset,
        marker_time=None if at.marker_time_ms is None else utc(at.marker_time_ms),
    )


BACK = (1_000, 20_000)  # offsets before a transaction's record in which to search its first one
FORWARD = 200_000  # offsets after it in which to search its marker


def outside_log(reader: OffsetReader, start: int, stop: int) -> tuple[list[StatusRange], list[StatusRange]]:
    """The ranges of ``start <= offset < stop`` before the log start, and at or after the high watermark."""
    log_start, _, high_watermark = bounds_of(reader)
    end = reader.partition.log_end_offset
    truncated_end = reader.truncated_end or end
    bounds: tuple[Sequence[tuple[int | None, str]], Sequence[tuple[int | None, str]]] = (
        [(log_start, "deleted")],
        [
            (high_watermark if end is None else end, "beyond_high_watermark"),
            (truncated_end, "truncated"),
            (stop, "beyond_high_watermark" if end is None else "beyond_log_end"),
        ],
    )
    found: tuple[list[StatusRange], list[StatusRange]] = [], []
    for ranges, named, first in zip(found, bounds, (start, max(start, high_watermark)), strict=True):
        at = first
        for bound, status in named:
            if bound is not None and at < min(bound, stop):
                ranges.append(StatusRange(at, min(bound, stop) - 1, status))
                at = min(bound, stop)
    return found


def read_range(reader: OffsetReader, start: int, stop: int) -> LogSlice:
    """The batches with an offset in ``start <= offset < stop``."""
    return add_slices(reader.slices(start, stop))


def read_back(reader: OffsetReader, offset: int, producer_id: int | None) -> tuple[LogSlice, bool]:
    """The batches before an offset, back to a producer's last marker within `BACK`; and whether they reach it.

    The first offset of a log reaches it, too. Where retention or DeleteRecords moved the log start, earlier batches of
    the transaction may be deleted.

    `offset`: base offset of a batch. `producer_id`: the producer; null reads the smallest range of `BACK` only.
    """
    log_start = bounds_of(reader).log_start
    found = LogSlice()
    for offsets in BACK:
        first = max(log_start, offset - offsets)
        if first >= offset:
            return found, log_start == 0
        found = read_range(reader, first, offset)
        batches = found.batches
        own = markers(batches) & (batches["producer_id"] == producer_id)
        if own.any():
            return found, True
        if producer_id is None or first == log_start:
            return found, log_start == 0
    return found, False


def reaches_log_start(reader: OffsetReader, offset: int) -> bool:
    """Whether `read_back` searches all that is left of the log before an offset."""
    return offset - bounds_of(reader).log_start <= BACK[-1]


def read_until_ended(
    reader: OffsetReader, offset: int, producer_ids: Collection[int], *, limit: int | None = FORWARD
) -> tuple[LogSlice, bool]:
    """The batches from an offset on, until each producer has a marker; and whether they reach the high watermark.

    `offset`: offset after a batch. `limit`: maximum number of offsets to read; null for no limit.
    """
    high_watermark = bounds_of(reader).high_watermark
    stop = high_watermark if limit is None else min(high_watermark, offset + limit)
    missing, found = set(producer_ids), list[LogSlice]()
    if offset < stop and missing:
        for each in reader.slices(offset, stop):
            found.append(each)
            batches = each.batches
            missing -= set(batches["producer_id"][markers(batches)].tolist())
            if not missing:
                return add_slices(found), False
    return add_slices(found), stop == high_watermark or offset >= high_watermark


def ranges_of(reader: OffsetReader, start: int, stop: int) -> tuple[list[StatusRange], list[str]]:
    """The status of offsets between log start and high watermark, and read errors."""
    log = read_range(reader, start, stop)
    opened: Mapping[int, int] = {}
    undecided = _undecided(reader, log, opened)
    if undecided:  # open transactions are only requested if they matter
        opened = reader.opened
        undecided = _undecided(reader, log, opened)
    reaches_end = False
    if undecided:
        behind = int(log.batches["last_offset"][-1]) + 1
        rest, reaches_end = read_until_ended(reader, behind, undecided, limit=None)
        log = add_slices([log, rest])
    ranges = status_ranges(
        log,
        start=start,
        stop=stop,
        last_stable_offset=bounds_of(reader).lso,
        opened=opened,
        reaches_end=reaches_end,
        is_compacted=reader.is_compacted,
    )
    return ranges, log.errors


def _undecided(reader: OffsetReader, log: LogSlice, opened: Mapping[int, int]) -> set[int]:
    """Producers whose next marker decides a status and was not read."""
    batches, lso = log.batches, bounds_of(reader).lso
    statuses = batch_statuses(batches, log, last_stable_offset=lso, opened=opened, reaches_end=False)
    return set(np.unique(batches["producer_id"][statuses < 0]).tolist())


def unknown_status(reader: OffsetReader, errors: Sequence[str]) -> str:
    """Why the status of an offset is unknown, as ``NAME: sentence``."""
    if errors:
        return errors[0]
    if reader.is_compacted is None:
        return "UNKNOWN: the deciding marker was not read, or the topic's cleanup policy is unknown"
    return "UNKNOWN: the deciding marker was not read"


def add_slices(slices: Iterable[LogSlice]) -> LogSlice:
    """Consecutive slices as one."""
    slices = list(slices)
    merged = LogSlice(headers=[concatenate(part for each in slices for part in each.headers)])
    for each in slices:
        merged.record_offsets |= each.record_offsets
        merged.aborted |= each.aborted
        merged.is_index_complete &= each.is_index_complete
        merged.errors += [error for error in each.errors if error not in merged.errors]
    return merged


def missing_offsets(reader: OffsetReader, start: int, stop: int, *, read_committed: bool) -> list[MissingOffsets]:
    """The ranges of offsets that a consumer does not receive.

    `start`, `stop`: the offsets ``start <= offset < stop``; they may lie outside the log.
    `read_committed`: the consumer's isolation level; read_uncommitted if false.
    """
    ranges, errors = classified_ranges(reader, start, stop)
    return [_range(reader, each, errors, read_committed) for each in _missing(reader, ranges, read_committed)]


def classified_ranges(reader: OffsetReader, start: int, stop: int) -> tuple[list[StatusRange], Sequence[str]]:
    """The status of each offset of ``start <= offset < stop``, as consecutive ranges without a gap; and read errors."""
    before, behind = outside_log(reader, start, stop)
    bounds = bounds_of(reader)
    first, last = max(start, bounds.log_start), min(stop, bounds.high_watermark)
    ranges, errors = ranges_of(reader, first, last) if first < last else ([], [])
    return [*before, *ranges, *behind], errors


def _missing(reader: OffsetReader, ranges: Sequence[StatusRange], read_committed: bool) -> Iterator[StatusRange]:
    if not read_committed:
        yield from (each for each in ranges if each.status not in RECORDS)
        return
    lso = bounds_of(reader).lso
    for each in ranges:
        if each.status not in COMMITTED_RECORDS:
            yield each
        elif reader.partition.last_stable_offset is None:
            yield each._replace(status=None)
        elif each.last >= lso:
            yield StatusRange(max(each.first, lso), each.last, BEYOND_LSO)


def _range(reader: OffsetReader, each: StatusRange, errors: Sequence[str], read_committed: bool) -> MissingOffsets:
    partition = reader.partition
    return MissingOffsets.of_record(
        partition,
        first_offset=each.first,
        last_offset=each.last,
        offsets=each.last - each.first + 1,
        status=each.status,
        isolation_level="read_committed" if read_committed else "read_uncommitted",
        reason=missing_reason(each.status, partition),
        error=unknown_status(reader, errors) if each.status is None else partition.error,
    )
