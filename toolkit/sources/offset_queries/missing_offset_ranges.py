"""Offsets of a range that a consumer does not receive, and why: markers and aborted records are no data loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolkit.analysis.log.offset_status import BEYOND_LSO, COMMITTED_RECORDS, RECORDS, StatusRange, missing_reason
from toolkit.schema import Row
from toolkit.schema.live import Partition
from toolkit.sources.offset_queries.offset_reader import OffsetReader
from toolkit.sources.offset_queries.offset_scan import outside_log, ranges_of, unknown_status

OF_PARTITION = ("topic", "partition", "broker_id", "observed_at")


def missing_rows(reader: OffsetReader, start: int, stop: int, *, read_committed: bool) -> list[Row]:
    """Rows of ``schema.MISSING_OFFSETS``.

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
    return [_row(reader, each, errors, read_committed) for each in _missing(reader, ranges, read_committed)]


def classified_ranges(reader: OffsetReader, start: int, stop: int) -> tuple[list[StatusRange], Sequence[str]]:
    """The status of each offset of ``start <= offset < stop``, as consecutive ranges without a gap; and read errors."""
    before, behind = outside_log(reader, start, stop)
    first = max(start, reader.partition["log_start_offset"])
    last = min(stop, reader.partition["high_watermark"])
    ranges, errors = ranges_of(reader, first, last) if first < last else ([], [])
    return [*before, *ranges, *behind], errors


def _missing(reader: OffsetReader, ranges: Sequence[StatusRange], read_committed: bool) -> Iterator[StatusRange]:
    if not read_committed:
        yield from (each for each in ranges if each.status not in RECORDS)
        return
    lso = reader.partition["last_stable_offset"]
    for each in ranges:
        if each.status not in COMMITTED_RECORDS:
            yield each
        elif each.last >= lso:
            yield StatusRange(max(each.first, lso), each.last, BEYOND_LSO)


def _row(reader: OffsetReader, each: StatusRange, errors: Sequence[str], read_committed: bool) -> Row:
    error = reader.partition["error"]
    if each.status is None:
        error = unknown_status(reader, errors)
    return {
        **{name: reader.partition[name] for name in OF_PARTITION},
        "first_offset": each.first,
        "last_offset": each.last,
        "offsets": each.last - each.first + 1,
        "status": each.status,
        "isolation_level": "read_committed" if read_committed else "read_uncommitted",
        "reason": missing_reason(each.status, Partition.of(reader.partition)),
        "error": error,
    }
