"""Rows of records that a decoder printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolkit.formats.dumps.decoded_records import NotDecoded, read_offsets_log, read_time, read_transaction_event
from toolkit.formats.dumps.line_patterns import BatchLine
from toolkit.formats.log.batches import TRANSACTIONAL
from toolkit.schema import OFFSETS_LOG, TRANSACTION_LOG, Row

NO_TRANSACTION, NO_GROUP = (dict.fromkeys(table.names) for table in (TRANSACTION_LOG, OFFSETS_LOG))


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """Location of a record.

    Parameters
    ----------
    partition
        Partition of its topic.
    offset, timestamp
        Of the record; null if only its text was printed.
    batch
        Its batch; null if that line is missing.
    file, line
        In the text.
    """

    partition: int | None
    offset: int | None
    timestamp: int | None
    batch: BatchLine | None
    file: str | None
    line: int


def transaction_row(text: str, position: RecordPosition) -> Row:
    """Row of ``schema.TRANSACTION_LOG``, with ``error`` if the text cannot be read."""
    row: dict[str, Any] = {**NO_TRANSACTION, "txn_state_partition": position.partition, "file": position.file}
    if position.batch:
        row["leader_epoch"] = _known(position.batch.leader_epoch)
    return _filled(row, text, position, read_transaction_event)


def group_row(text: str, position: RecordPosition) -> Row:
    """Row of ``schema.OFFSETS_LOG``, with ``error`` if the text cannot be read."""
    row: dict[str, Any] = {**NO_GROUP, "group_partition": position.partition, "file": position.file}
    if batch := position.batch:
        row["is_transactional"] = bool(batch.attributes & TRANSACTIONAL)
        row["producer_id"], row["producer_epoch"] = _known(batch.producer_id), _known(batch.producer_epoch)
    return _filled(row, text, position, read_offsets_log)


def _filled(row: dict[str, Any], text: str, position: RecordPosition, read: Any) -> Row:
    row["offset"], row["position"] = position.offset, position.line
    try:
        row["timestamp"] = None if position.timestamp is None else read_time(position.timestamp)
        row |= read(text)
    except NotDecoded as exc:
        row["error"] = f"MALFORMED_LINE: The text of this record is damaged or of a newer Kafka: {exc}."
    return row


def _known(number: int) -> int | None:
    return None if number < 0 else number
