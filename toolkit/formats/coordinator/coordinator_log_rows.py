"""Batches of ``__transaction_state`` and ``__consumer_offsets`` as rows, one per record.

A batch whose checksum is wrong yields one error row and none of its records, which may be none that a coordinator
wrote.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

from google_crc32c import value as crc32c

from toolkit.errors import DecodeError
from toolkit.formats.coordinator.offsets_log_records import (
    GROUP_EPOCH_KINDS,
    read_group_epoch,
    read_group_key,
    read_group_metadata,
    read_offset_commit,
)
from toolkit.formats.coordinator.transaction_log_records import (
    STATE_TOPIC,
    read_transaction_key,
    read_transaction_value,
)
from toolkit.formats.log.batch_records import Record, read_records
from toolkit.formats.log.batches import CRC_END, BatchHeader, read_header
from toolkit.formats.protocol.primitives import Buffer
from toolkit.schema import OFFSETS_LOG, TRANSACTION_LOG, Row, utc
from toolkit.schema.table import LAST_TIME

NO_TRANSACTION_LOG, NO_OFFSETS_LOG = (dict.fromkeys(table.names) for table in (TRANSACTION_LOG, OFFSETS_LOG))
LIMIT = 32 * 1024 * 1024  # bytes of a batch's records; a coordinator's value is some kilobytes, rarely a megabyte
Fill = Callable[[dict[str, Any], Record, BatchHeader], None]


def transaction_log(
    buf: Buffer,
    position: int = 0,
    *,
    txn_state_partition: int | None,
    broker_id: int | None = None,
    file: str | None = None,
    file_position: int | None = None,
) -> Iterator[Row]:
    """The records of one batch of ``__transaction_state``.

    Parameters
    ----------
    buf
        Bytes of a log segment or of a fetch response.
    position
        Where the batch starts in the bytes.
    txn_state_partition
        Partition of the topic.
    broker_id, file
        Where the bytes are from.
    file_position
        Where the batch starts in the file, if the buffer is only a part of it.

    Returns
    -------
    iterator of Row
        Rows of ``schema.TRANSACTION_LOG`` in offset order; none for an intact control batch. A row with ``error``
        stands for a batch or its unreadable rest (``CORRUPT_BATCH``), or for one record (``CORRUPT_RECORD``).
    """
    log_columns = {
        **NO_TRANSACTION_LOG,
        "txn_state_partition": txn_state_partition,
        "broker_id": broker_id,
        "file": file,
        "position": file_position if file_position is not None or file is None else position,
    }
    return _rows(buf, position, log_columns, _fill_transaction_log)


def offsets_log(
    buf: Buffer,
    position: int = 0,
    *,
    group_partition: int | None,
    broker_id: int | None = None,
    file: str | None = None,
    file_position: int | None = None,
) -> Iterator[Row]:
    """The records of one batch of ``__consumer_offsets``.

    The metadata that users commit with an offset is not kept.

    Parameters
    ----------
    buf
        Bytes of a log segment or of a fetch response.
    position
        Where the batch starts in them.
    group_partition
        Partition of the topic.
    broker_id, file
        Where the bytes are from.
    file_position
        Where the batch starts in the file, if the buffer is only a part of it.

    Returns
    -------
    iterator of Row
        Rows of ``schema.OFFSETS_LOG`` in offset order; none for a control batch, and errors as in
        `transaction_log`.
    """
    log_columns = {
        **NO_OFFSETS_LOG,
        "group_partition": group_partition,
        "broker_id": broker_id,
        "file": file,
        "position": file_position if file_position is not None or file is None else position,
    }
    return _rows(buf, position, log_columns, _fill_offsets_log)


def unread_records(
    topic: str,
    partition: int | None,
    *,
    error: str,
    broker_id: int | None = None,
    file: str | None = None,
    position: int | None = None,
) -> Row:
    """The row for a range of a coordinators' topic that could not be read.

    Parameters
    ----------
    topic
        ``__transaction_state``, for a row of ``schema.TRANSACTION_LOG``; else one of ``schema.OFFSETS_LOG``.
    partition
        Partition of the topic.
    error
        ``"NAME: sentence"``.
    broker_id, file, position
        Location of the range.
    """
    of_transactions = topic == STATE_TOPIC
    number = "txn_state_partition" if of_transactions else "group_partition"
    where = {number: partition, "broker_id": broker_id, "file": file, "position": position}
    return {**(NO_TRANSACTION_LOG if of_transactions else NO_OFFSETS_LOG), **where, "error": error}


def _rows(buf: Buffer, position: int, log_columns: Row, fill: Fill) -> Iterator[Row]:
    """A row for each record, with the columns that could be read."""
    offset = None
    try:
        header = read_header(buf, position)
        offset = header.base_offset
        records = read_records(buf, position, header=header, limit=LIMIT)
        if crc32c(bytes(buf[position + CRC_END : position + header.size])) != header.crc:
            damage = DecodeError(
                f"The checksum of the batch at offset {header.base_offset} does not match its bytes.",
                position=position,
                means="The bytes are damaged, or were changed after they were written.",
            )
            yield {**log_columns, "offset": offset, "error": f"CORRUPT_BATCH: {damage}"}
            return
        if header.is_control:  # these bits are covered by the checksum
            return
        for record in records:
            row = {**log_columns, "offset": record.offset, "tombstone": record.value is None}
            try:
                row["timestamp"] = _time(record.timestamp_ms)
                fill(row, record, header)
            except DecodeError as exc:
                row["error"] = f"CORRUPT_RECORD: {exc}"
            yield row
            offset = record.offset + 1
    except DecodeError as exc:
        yield {**log_columns, "offset": offset, "error": f"CORRUPT_BATCH: {exc}"}


def _fill_transaction_log(row: dict[str, Any], record: Record, header: BatchHeader) -> None:
    row["leader_epoch"] = header.partition_leader_epoch
    transactional_id = None if record.key is None else read_transaction_key(record.key)
    if transactional_id is None:
        raise DecodeError("The key of a __transaction_state record is null, or of a newer Kafka.", position=0)
    row["transactional_id"] = transactional_id
    if record.value is None:
        return
    state = read_transaction_value(record.value)
    row["producer_id"] = state.producer_id
    row["producer_epoch"] = state.producer_epoch
    row["previous_producer_id"] = state.previous_producer_id
    row["next_producer_id"] = state.next_producer_id
    row["next_producer_epoch"] = state.next_producer_epoch
    row["state"] = state.state
    row["timeout_ms"] = state.timeout_ms
    row["topic_partitions"] = [{"topic": topic, "partition": number} for topic, number in state.topic_partitions]
    row["client_transaction_version"] = state.client_transaction_version
    row["value_version"] = state.version
    row["start_time"] = _time(state.start_timestamp_ms)
    row["last_update_time"] = _time(state.last_update_timestamp_ms)


def _fill_offsets_log(row: dict[str, Any], record: Record, header: BatchHeader) -> None:
    row["is_transactional"] = header.is_transactional
    row["producer_id"], row["producer_epoch"] = header.producer_id, header.producer_epoch
    key = None if record.key is None else read_group_key(record.key)
    if key is None:
        raise DecodeError("The key of a __consumer_offsets record is null, or of a newer Kafka.", position=0)
    row["kind"], row["group_id"] = key.kind, key.group_id
    row["topic"], row["partition"] = key.topic, key.partition
    row["member_ids"] = None if key.member_id is None else [key.member_id]
    if record.value is None:
        return
    if key.kind == "offset_commit":
        _fill_offset_commit(row, record.value)
    elif key.kind == "group_metadata":
        _fill_group_metadata(row, record.value)
    elif key.kind in GROUP_EPOCH_KINDS:
        row["generation"] = read_group_epoch(record.value)


def _fill_offset_commit(row: dict[str, Any], value: bytes) -> None:
    commit = read_offset_commit(value)
    row["committed_offset"] = commit.offset
    row["committed_leader_epoch"] = commit.leader_epoch
    row["commit_timestamp"] = _time(commit.commit_timestamp_ms)
    row["expire_timestamp"] = _time(commit.expire_timestamp_ms)


def _fill_group_metadata(row: dict[str, Any], value: bytes) -> None:
    group = read_group_metadata(value)
    row["generation"] = group.generation
    row["protocol_type"] = group.protocol_type
    row["protocol"] = group.protocol
    row["leader_member_id"] = group.leader_member_id
    row["member_ids"] = list(group.member_ids)


def _time(milliseconds: int | None) -> dt.datetime | None:
    if milliseconds is not None and milliseconds > LAST_TIME:
        raise DecodeError(f"A time is {milliseconds} ms, after the year 9999.", position=0)
    return utc(milliseconds)
