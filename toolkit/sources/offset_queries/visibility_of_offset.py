"""Content, transaction and visibility of an offset; the log is read around it only."""

from __future__ import annotations

from dataclasses import replace

from toolkit.analysis.log.offset_status import (
    COMMITTED_RECORDS,
    RECORDS,
    LogSlice,
    TransactionAtOffset,
    status_ranges,
    transactions_at,
    visibility_reason,
)
from toolkit.formats.log.batches import LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.log.headers import ABORT, COMMIT, Header
from toolkit.schema import utc
from toolkit.schema.live import OffsetVisibility
from toolkit.sources.offset_queries.offset_reader import OffsetReader, bounds_of, of_partition
from toolkit.sources.offset_queries.offset_scan import (
    add_slices,
    outside_log,
    reaches_log_start,
    read_back,
    read_range,
    read_until_ended,
    unknown_status,
)

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
