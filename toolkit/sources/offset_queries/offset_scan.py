"""The status of offsets, from as much of a log as it depends on, and the offsets that a consumer does not receive.

Markers and aborted records are no data loss.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from toolkit.analysis.log.log_transactions import markers
from toolkit.analysis.log.offset_status import (
    BEYOND_LSO,
    COMMITTED_RECORDS,
    RECORDS,
    LogSlice,
    StatusRange,
    batch_statuses,
    missing_reason,
    status_ranges,
)
from toolkit.formats.log.headers import concatenate
from toolkit.schema.live import MissingOffsets
from toolkit.sources.offset_queries.offset_reader import OffsetReader, bounds_of

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
