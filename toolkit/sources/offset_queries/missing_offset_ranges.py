"""Offsets of a range that a consumer does not receive, and why: markers and aborted records are no data loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.analysis.log.offset_status import BEYOND_LSO, COMMITTED_RECORDS, RECORDS, StatusRange, missing_reason
from toolkit.schema.offsets import MissingOffsets
from toolkit.sources.offset_queries.offset_reader import OffsetReader, bounds_of
from toolkit.sources.offset_queries.offset_scan import outside_log, ranges_of, unknown_status


def missing_offsets(reader: OffsetReader, start: int, stop: int, *, read_committed: bool) -> list[MissingOffsets]:
    """The ranges of offsets that a consumer does not receive.

    Parameters
    ----------
    reader
        The partition.
    start, stop
        The offsets ``start <= offset < stop``; they may lie outside the log.
    read_committed
        The consumer's isolation level; read_uncommitted if false.
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
        elif each.last >= lso:
            yield StatusRange(max(each.first, lso), each.last, BEYOND_LSO)


def _range(reader: OffsetReader, each: StatusRange, errors: Sequence[str], read_committed: bool) -> MissingOffsets:
    partition = reader.partition
    return MissingOffsets(
        topic=partition.topic,
        partition=partition.partition,
        first_offset=each.first,
        last_offset=each.last,
        offsets=each.last - each.first + 1,
        status=each.status,
        isolation_level="read_committed" if read_committed else "read_uncommitted",
        reason=missing_reason(each.status, partition),
        broker_id=partition.broker_id,
        observed_at=partition.observed_at,
        error=unknown_status(reader, errors) if each.status is None else partition.error,
    )
