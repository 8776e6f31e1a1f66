"""Content, transaction and visibility of an offset; the log is read around it only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from toolkit.formats.log.headers import ABORT, COMMIT, Array
from toolkit.schema import OFFSET_VISIBILITY, Row, utc
from toolkit.schema.offsets import OffsetVisibility
from toolkit.sources.offset_queries.offset_reader import PARTITION_COLUMNS, OffsetReader
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


def visibility_row(reader: OffsetReader, offset: int) -> Row:
    """Row of ``schema.OFFSET_VISIBILITY``.

    Parameters
    ----------
    reader
        The partition.
    offset
        The offset. The status of one outside the log says so.
    """
    row: dict[str, Any] = dict.fromkeys(OFFSET_VISIBILITY.names) | {
        name: reader.partition[name] for name in PARTITION_COLUMNS
    }
    row["offset"] = offset
    before, behind = outside_log(reader, offset, offset + 1)
    if before or behind:
        row["status"] = (before or behind)[0].status
    else:
        found = _in_log(reader, offset)
        row |= found | {"error": found["error"] or row["error"]}
    known = row["status"] is not None
    row["read_committed"] = row["status"] in COMMITTED_RECORDS and offset < row["last_stable_offset"] if known else None
    row["read_uncommitted"] = row["status"] in RECORDS if known else None
    if not row["read_committed"]:
        row["visible_at"] = None
    if row["status"] in RECORDS and offset >= row["last_stable_offset"]:
        row |= _holder(reader.opened)
    return row | {"reason": visibility_reason(OffsetVisibility.of({**row, "reason": ""}))}


def _in_log(reader: OffsetReader, offset: int) -> dict[str, Any]:
    """Columns from the batch at an offset and the batches around it."""
    log = read_range(reader, offset, offset + 1)
    batch = next(iter(log.batches), None)
    if batch is None:
        return _status(log, reader, offset, reaches_end=False)
    base, behind = int(batch["base_offset"]), int(batch["last_offset"]) + 1
    producer_id = int(batch["producer_id"]) if batch["attributes"] & TRANSACTIONAL else None
    earlier, is_start_known = read_back(reader, base, producer_id)
    so_far = transactions_at(add_slices([earlier, log]).batches, offset)
    without_marker = {each for each, transaction in so_far.items() if transaction.marker_offset is None}
    if without_marker:
        without_marker -= {each for each, start in reader.opened.items() if start <= offset}
    later, reaches_end = read_until_ended(reader, behind, without_marker)
    around = add_slices([earlier, log, later])
    status = _status(around, reader, offset, reaches_end=reaches_end)
    if status["status"] is None and producer_id is not None and not reaches_end:  # only its marker decides
        rest, reaches_end = read_until_ended(reader, _end(around), {producer_id}, limit=None)
        around = add_slices([around, rest])
        status = _status(around, reader, offset, reaches_end=reaches_end)
    at_offset = transactions_at(around.batches, offset)
    found = status | _batch_columns(batch)
    if producer_id is not None:
        at = at_offset.get(producer_id)
        if not is_start_known and reaches_log_start(reader, base):
            is_start_known = _has_first_sequence(around, at)
        found |= _transaction(reader, producer_id, at, is_start_known, found["status"])
        found["transactional_id"], unread = reader.transactional_id(producer_id)
        found["error"] = found["error"] or unread
    ends = [each.marker_time_ms for each in at_offset.values() if each.marker_time_ms is not None]
    if not ends and batch["attributes"] & LOG_APPEND_TIME:
        ends = [int(batch["max_timestamp"])]
    return found | {"visible_at": utc(max(ends)) if ends else None}


def _status(log: LogSlice, reader: OffsetReader, offset: int, *, reaches_end: bool) -> dict[str, Any]:
    ((_, _, status),) = status_ranges(
        log,
        start=offset,
        stop=offset + 1,
        last_stable_offset=reader.partition["last_stable_offset"],
        opened=reader.opened if offset >= reader.partition["last_stable_offset"] else {},
        reaches_end=reaches_end,
        is_compacted=reader.is_compacted,
    )
    error = unknown_status(reader, log.errors) if status is None else next(iter(log.errors), None)
    return {"status": status, "error": error}


def _has_first_sequence(log: LogSlice, at: TransactionAtOffset | None) -> bool:
    """Whether the first batch that was read of a transaction is the producer's first with its epoch."""
    if at is None or at.first_offset is None:
        return False
    batches = log.batches
    return bool((batches["base_sequence"][batches["base_offset"] == at.first_offset] == 0).any())


def _end(log: LogSlice) -> int:
    return int(log.batches["last_offset"][-1]) + 1


def _batch_columns(batch: Array) -> dict[str, Any]:
    attributes, producer_id = int(batch["attributes"]), int(batch["producer_id"])
    has_producer = producer_id >= 0
    return {
        "base_offset": int(batch["base_offset"]),
        "last_offset": int(batch["last_offset"]),
        "timestamp": utc(int(batch["max_timestamp"])),
        "timestamp_type": "LogAppendTime" if attributes & LOG_APPEND_TIME else "CreateTime",
        "producer_id": producer_id if has_producer else None,
        "producer_epoch": int(batch["producer_epoch"]) if has_producer else None,
    }


def _transaction(
    reader: OffsetReader, producer_id: int, at: TransactionAtOffset | None, is_start_known: bool, status: str | None
) -> dict[str, Any]:
    """Begin, end and outcome of the transaction of a record or marker, as far as they were read."""
    outcome = {"committed": "commit", "aborted": "abort", "open": "open"}.get(status or "")
    if at is None:
        return {"outcome": outcome}
    if status == "marker":
        outcome = None if at.marker is None else ENDED.get(at.marker)
    own = reader.opened.get(producer_id) if status == "open" and not is_start_known else None
    return {
        "outcome": outcome,
        "first_offset": at.first_offset if is_start_known else own,
        "marker_offset": at.marker_offset,
        "marker_time": None if at.marker_time_ms is None else utc(at.marker_time_ms),
    }


def _holder(opened: Mapping[int, int]) -> dict[str, int]:
    """The lowest open transaction; empty if the LSO only waits for replication."""
    if not opened:
        return {}
    producer_id = min(opened, key=lambda each: opened[each])
    return {"holder_producer_id": producer_id, "holder_first_offset": opened[producer_id]}
