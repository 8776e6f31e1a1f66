"""Rows of the records that a decoder has printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolkit.formats.batches import TRANSACTIONAL
from toolkit.formats.dumps.decoded import NotDecoded, read_group_event, read_time, read_transaction_event
from toolkit.formats.dumps.shapes import Batch
from toolkit.schema import COORDINATOR_EVENTS, GROUP_EVENTS, Row

__all__ = ["Place", "group_row", "transaction_row"]

NO_TRANSACTION, NO_GROUP = (dict.fromkeys(table.names) for table in (COORDINATOR_EVENTS, GROUP_EVENTS))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands.

    Parameters
    ----------
    partition
        Partition of its topic.
    offset, timestamp
        Its own; null where only its text was printed.
    batch
        Its batch; null where that line is missing.
    file, line
        In the text.
    """

    partition: int | None
    offset: int | None
    timestamp: int | None
    batch: Batch | None
    file: str | None
    line: int


def transaction_row(text: str, place: Place) -> Row:
    """Row of ``schema.COORDINATOR_EVENTS``, with ``error`` where the text cannot be read."""
    row: dict[str, Any] = {**NO_TRANSACTION, "txn_state_partition": place.partition, "file": place.file}
    if place.batch:
        row["leader_epoch"] = _known(place.batch.leader_epoch)
    return _filled(row, text, place, read_transaction_event)


def group_row(text: str, place: Place) -> Row:
    """Row of ``schema.GROUP_EVENTS``, with ``error`` where the text cannot be read."""
    row: dict[str, Any] = {**NO_GROUP, "group_partition": place.partition, "file": place.file}
    if batch := place.batch:
        row["is_transactional"] = bool(batch.attributes & TRANSACTIONAL)
        row["producer_id"], row["producer_epoch"] = _known(batch.producer_id), _known(batch.producer_epoch)
    return _filled(row, text, place, read_group_event)


def _filled(row: dict[str, Any], text: str, place: Place, read: Any) -> Row:
    row["offset"], row["position"] = place.offset, place.line
    try:
        row["timestamp"] = None if place.timestamp is None else read_time(place.timestamp)
        row |= read(text)
    except NotDecoded as exc:
        row["error"] = f"MALFORMED_LINE: The text of this record is damaged or of a newer Kafka: {exc}."
    return row


def _known(number: int) -> int | None:
    return None if number < 0 else number
