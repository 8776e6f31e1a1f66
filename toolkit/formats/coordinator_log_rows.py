"""Records of ``__transaction_state`` and ``__consumer_offsets``, by batch; and only where their keys are.

A batch whose checksum is wrong yields an error and none of its records, which may be none that a coordinator wrote.
`locate` finds keys and producer ids without decoding records, millions a second: those of one uncompressed record per
batch, as ``TransactionStateManager`` writes them (``TransactionLogValue``, versions 0 and 1).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from toolkit.errors import DecodeError
from toolkit.formats.batch_records import Record, decode_batch, read_records
from toolkit.formats.batches import CONTROL, HEADER_SIZE, BatchHeader, Buffer, read_varint
from toolkit.formats.coordinator_records import (
    GROUP_EPOCH_KINDS,
    OFFSETS_TOPIC,
    STATE_TOPIC,
    read_group_epoch,
    read_group_key,
    read_group_metadata,
    read_offset_commit,
    read_transaction_key,
    read_transaction_value,
)
from toolkit.formats.headers import Headers
from toolkit.schema import utc
from toolkit.schema.log import OffsetsLogRecord, TransactionLogRecord
from toolkit.schema.table import LAST_TIME

K = TypeVar("K")
CODEC = 0x07  # bits of attributes
Positions: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]


def transaction_log(
    buf: Buffer, position: int = 0, *, where: TransactionLogRecord, begin: int | None = None
) -> Iterator[TransactionLogRecord]:
    """The records of one batch of ``__transaction_state``.

    In offset order, and errors as from `decode_batch`, or of one record (``CORRUPT_RECORD``).
    `buf`: bytes of a log segment or of a fetch response.
    `where`, `begin`: partition, broker and file that they are from, and where they begin in it.
    """
    return decode_batch(buf, position, where, begin, _transaction_log_record)


def offsets_log(
    buf: Buffer, position: int = 0, *, where: OffsetsLogRecord, begin: int | None = None
) -> Iterator[OffsetsLogRecord]:
    """The records of one batch of ``__consumer_offsets``, as from `transaction_log`.

    The metadata that users commit with an offset is not kept.
    """
    return decode_batch(buf, position, where, begin, _offsets_log_record)


FEW = 30  # batches that are decoded one by one in less time: 7 microseconds for each, 180 and more for all others


def keys_and_values(buf: bytes, headers: Headers) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of each record of some batches, in log order; control batches have none.

    `headers`: their headers; all are complete.
    Raises DecodeError: during iteration, for a damaged batch or record.
    """
    headers = headers[headers["attributes"] & CONTROL == 0]
    positions, ends = headers["position"], headers["position"] + headers["size"]
    plain = (headers["record_count"] == 1) & (headers["attributes"] & CODEC == 0) & (headers["magic"] == 2)
    found = np.zeros((len(headers), FIELDS), np.int64)
    if len(headers) > FEW:
        found[plain] = locate(buf, positions[plain], ends[plain])
    located = found[:, :2].tolist()
    for position, (start, end) in zip(positions.tolist(), located, strict=True):
        if not start:
            yield from ((record.key, record.value) for record in read_records(buf, position))
            continue
        size, at = read_varint(buf, end)
        yield buf[start:end], None if size < 0 else buf[at : at + size]


def _transaction_log_record(
    record: Record, header: BatchHeader, where: TransactionLogRecord, position: int | None
) -> TransactionLogRecord:
    found: dict[str, Any] = {"offset": record.offset, "tombstone": record.value is None, "position": position}
    try:
        found |= {"timestamp": _time(record.timestamp_ms), "leader_epoch": header.partition_leader_epoch}
        found["transactional_id"] = _key(record, read_transaction_key, STATE_TOPIC)
        if record.value is not None:
            state = read_transaction_value(record.value)._asdict()
            start, last_update = state.pop("start_timestamp_ms"), state.pop("last_update_timestamp_ms")
            state["value_version"] = state.pop("version")
            found |= state
            found["start_time"] = _time(start)
            found["last_update_time"] = _time(last_update)
    except DecodeError as exc:
        found["error"] = f"CORRUPT_RECORD: {exc}"
    return TransactionLogRecord(
        txn_state_partition=where.txn_state_partition, broker_id=where.broker_id, file=where.file, **found
    )


def _key(record: Record, read: Callable[[bytes], K | None], topic: str) -> K:
    key = None if record.key is None else read(record.key)
    if key is None:
        raise DecodeError(f"The key of a {topic} record is null, or of a newer Kafka.", position=0)
    return key


def _offsets_log_record(
    record: Record, header: BatchHeader, where: OffsetsLogRecord, position: int | None
) -> OffsetsLogRecord:
    value = record.value
    found: dict[str, Any] = {"offset": record.offset, "tombstone": value is None, "position": position}
    try:
        found |= {"timestamp": _time(record.timestamp_ms), "is_transactional": header.is_transactional}
        found |= {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
        key = _key(record, read_group_key, OFFSETS_TOPIC)
        found |= {"kind": key.kind, "group_id": key.group_id, "topic": key.topic, "partition": key.partition}
        found["member_ids"] = None if key.member_id is None else (key.member_id,)
        if value is not None and key.kind == "offset_commit":
            commit = read_offset_commit(value)
            found |= {"committed_offset": commit.offset, "committed_leader_epoch": commit.leader_epoch}
            found["commit_timestamp"] = _time(commit.commit_timestamp_ms)
            found["expire_timestamp"] = _time(commit.expire_timestamp_ms)
        elif value is not None and key.kind == "group_metadata":
            group = read_group_metadata(value)
            found |= {"generation": group.generation, "protocol_type": group.protocol_type, "protocol": group.protocol}
            found |= {"leader_member_id": group.leader_member_id, "member_ids": group.member_ids}
        elif value is not None and key.kind in GROUP_EPOCH_KINDS:
            found["generation"] = read_group_epoch(value)
    except DecodeError as exc:
        found["error"] = f"CORRUPT_RECORD: {exc}"
    return OffsetsLogRecord(group_partition=where.group_partition, broker_id=where.broker_id, file=where.file, **found)


def _time(milliseconds: int | None) -> dt.datetime | None:
    if milliseconds is not None and milliseconds > LAST_TIME:
        raise DecodeError(f"A time is {milliseconds} ms, after the year 9999.", position=0)
    return utc(milliseconds)


FIELDS = 5
"""Columns that `locate` returns: start and end of the key, producer id, previous and next producer id; -1 for none."""
LOST = -(1 << 40)  # the position after what does not end; what is added to it keeps it negative
MAX_ITEMS = 1_000  # topics, or tagged fields: a record with more is decoded


def locate(buf: bytes, positions: Positions, ends: Positions) -> Positions:
    """Key and producer ids of the only record of each batch.

    One row per batch with `FIELDS` columns; the start of the key is 0 if the record has an unknown form.
    `positions`, `ends`: where each batch starts and ends in the bytes; all of magic 2 with one uncompressed record.
    """
    data, found = np.frombuffer(buf, np.uint8), np.full((len(positions), FIELDS), -1, np.int64)
    _, at = _varints(data, positions + HEADER_SIZE, ends)  # size of the record
    _, at = _varints(data, at + 1, ends)  # after its attributes: the timestamp
    _, at = _varints(data, at, ends)  # the offset
    key_size, key = _varints(data, at, ends)
    value_at = key + _zigzag(key_size)
    value_size, at = _varints(data, np.where(_zigzag(key_size) >= 4, value_at, LOST), ends)
    stop = at + np.maximum(_zigzag(value_size), 0)
    is_known = (at >= 0) & (stop <= ends)
    rows = np.flatnonzero(is_known & (_zigzag(value_size) >= 0))
    ids = found[rows, 2:]
    is_known[rows] = _are_values_known(data, at[rows], stop[rows], ids)
    found[rows, 2:] = ids
    found[:, 0], found[:, 1] = np.where(is_known, key, 0), value_at
    return found


def _are_values_known(data: Bytes, at: Positions, stop: Positions, ids: Positions) -> npt.NDArray[np.bool_]:
    """Whether values have a known form; fill in the producer ids: the own one, the previous and the next one."""
    rows = np.flatnonzero(stop - at >= 17)
    rows = rows[(data[at[rows]] == 0) & (data[at[rows] + 1] <= 1)]
    is_known = np.zeros(len(at), np.bool_)
    is_known[rows] = True
    ids[rows, 0] = _int64s(data, at[rows] + 2)
    rows = rows[data[at[rows] + 1] == 1]
    stop, of_topics = stop[rows], ids[rows, 1:]
    topics, at = _varints(data, at[rows] + 17, stop)
    at[topics > MAX_ITEMS] = LOST
    while len(left := np.flatnonzero((topics > 1) & (at >= 0))):
        size, after = _varints(data, at[left], stop[left])
        count, after = _varints(data, after + size - 1, stop[left])
        after = _after_tags(data, after + 4 * (count - 1), stop[left])
        at[left] = np.where((size < 1) | (count < 1), LOST, after)
        topics[left] -= 1
    at = _after_tags(data, at + 16, stop, of_topics)  # after two times
    ids[rows, 1:] = of_topics
    is_known[rows] = at == stop
    return is_known


def _after_tags(data: Bytes, at: Positions, stop: Positions, numbers: Positions | None = None) -> Positions:
    """Where tagged fields end; `numbers` is filled with the numbers in those of tags 0 and 1."""
    count, at = _varints(data, at, stop)
    at[count > MAX_ITEMS] = LOST
    while len(left := np.flatnonzero((count > 0) & (at >= 0))):
        tag, after = _varints(data, at[left], stop[left])
        size, after = _varints(data, after, stop[left])
        end = np.where((after < 0) | (after + size > stop[left]), LOST, after + size)
        own = np.flatnonzero((end >= 0) & (tag <= 1) & (size == 8))
        if numbers is not None:
            numbers[left[own], tag[own]] = _int64s(data, after[own])
        at[left] = end
        count[left] -= 1
    return at


def _varints(data: Bytes, at: Positions, stop: Positions) -> tuple[Positions, Positions]:
    """Unsigned varints of at most 32 bits and their ends; 0 and `LOST` for one that does not end before `stop`."""
    numbers, after = np.zeros(len(at), np.int64), np.full(len(at), LOST)
    rows = np.flatnonzero(at >= 0)
    for number in range(5):
        rows = rows[at[rows] + number < stop[rows]]
        read = data[at[rows] + number].astype(np.int64)
        numbers[rows] |= (read & 0x7F) << 7 * number
        is_last = read < 0x80
        after[rows[is_last]] = at[rows[is_last]] + number + 1
        rows = rows[~is_last]
        if not len(rows):
            break
    return np.where(after < 0, 0, numbers), after


def _zigzag(numbers: Positions) -> Positions:
    return (numbers >> 1) ^ -(numbers & 1)


def _int64s(data: Bytes, at: Positions) -> Positions:
    """Producer ids; -1 for any negative one."""
    numbers: Positions = data[at[:, None] + np.arange(8)].view(">i8")[:, 0].astype(np.int64)
    return np.maximum(numbers, -1)
