"""Records of ``__transaction_state`` and ``__consumer_offsets``, by batch; and only where their keys are.

A batch whose checksum is wrong yields an error and none of its records, which may be none that a coordinator wrote.
`locate` finds keys and producer ids without decoding records, millions a second: those of one uncompressed record per
batch, as ``TransactionStateManager`` writes them (``TransactionLogValue``, versions 0 and 1).
"""

from __future__ import annotations

import datetime as dt
import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from toolkit.errors import DecodeError
from toolkit.formats.batch_records import Record, decode_batch, read_records
from toolkit.formats.batches import CONTROL, HEADER_SIZE, BatchHeader, Buffer, read_varint
from toolkit.formats.coordinator_records import (
    GROUP_EPOCH_KINDS,
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

CODEC = 0x07  # bits of attributes


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


def keys_and_values(buf: bytes, headers: Headers) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Key and value of each record of some batches, in log order; control batches have none.

    `headers`: their headers; all are complete.
    Raises DecodeError: during iteration, for a damaged batch or record.
    """
    headers = headers[headers["attributes"] & CONTROL == 0]
    positions, ends = headers["position"], headers["position"] + headers["size"]
    plain = (headers["record_count"] == 1) & (headers["attributes"] & CODEC == 0) & (headers["magic"] == 2)
    found = np.zeros((len(headers), FIELDS), np.int64)
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
    timestamp = leader_epoch = transactional_id = state = start_time = last_update_time = error = None
    try:
        timestamp, leader_epoch = _time(record.timestamp_ms), header.partition_leader_epoch
        transactional_id = _transactional_id(record)
        state = None if record.value is None else read_transaction_value(record.value)
        if state is not None:
            start_time = _time(state.start_timestamp_ms)
            last_update_time = _time(state.last_update_timestamp_ms)
    except DecodeError as exc:
        error = f"CORRUPT_RECORD: {exc}"
    if state is None:
        return replace(
            where,
            offset=record.offset,
            timestamp=timestamp,
            transactional_id=transactional_id,
            tombstone=record.value is None,
            leader_epoch=leader_epoch,
            position=position,
            error=error,
        )
    return TransactionLogRecord(
        txn_state_partition=where.txn_state_partition,
        offset=record.offset,
        timestamp=timestamp,
        transactional_id=transactional_id,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        previous_producer_id=state.previous_producer_id,
        next_producer_id=state.next_producer_id,
        next_producer_epoch=state.next_producer_epoch,
        state=state.state,
        timeout_ms=state.timeout_ms,
        topic_partitions=state.topic_partitions,
        start_time=start_time,
        last_update_time=last_update_time,
        client_transaction_version=state.client_transaction_version,
        tombstone=False,
        value_version=state.version,
        leader_epoch=leader_epoch,
        broker_id=where.broker_id,
        file=where.file,
        position=position,
        error=error,
    )


def _transactional_id(record: Record) -> str:
    transactional_id = None if record.key is None else read_transaction_key(record.key)
    if transactional_id is None:
        raise DecodeError("The key of a __transaction_state record is null, or of a newer Kafka.", position=0)
    return transactional_id


def _offsets_log_record(
    record: Record, header: BatchHeader, where: OffsetsLogRecord, position: int | None
) -> OffsetsLogRecord:
    timestamp = is_transactional = producer_id = producer_epoch = key = error = None
    commit = committed_at = expires_at = group = generation = None
    value = record.value
    try:
        timestamp, is_transactional = _time(record.timestamp_ms), header.is_transactional
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        key = None if record.key is None else read_group_key(record.key)
        if key is None:
            error = "CORRUPT_RECORD: The key of a __consumer_offsets record is null, or of a newer Kafka."
        elif value is not None and key.kind == "offset_commit":
            commit = read_offset_commit(value)
            committed_at = _time(commit.commit_timestamp_ms)
            expires_at = _time(commit.expire_timestamp_ms)
        elif value is not None and key.kind == "group_metadata":
            group = read_group_metadata(value)
            generation = group.generation
        elif value is not None and key.kind in GROUP_EPOCH_KINDS:
            generation = read_group_epoch(value)
    except DecodeError as exc:
        error = f"CORRUPT_RECORD: {exc}"
    member_id = None if key is None else key.member_id
    return OffsetsLogRecord(
        group_partition=where.group_partition,
        offset=record.offset,
        timestamp=timestamp,
        kind=None if key is None else key.kind,
        group_id=None if key is None else key.group_id,
        topic=None if key is None else key.topic,
        partition=None if key is None else key.partition,
        committed_offset=None if commit is None else commit.offset,
        committed_leader_epoch=None if commit is None else commit.leader_epoch,
        commit_timestamp=committed_at,
        expire_timestamp=expires_at,
        generation=generation,
        protocol_type=None if group is None else group.protocol_type,
        protocol=None if group is None else group.protocol,
        leader_member_id=None if group is None else group.leader_member_id,
        member_ids=tuple(group.member_ids) if group else None if member_id is None else (member_id,),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        tombstone=value is None,
        broker_id=where.broker_id,
        file=where.file,
        position=position,
        error=error,
    )


def _time(milliseconds: int | None) -> dt.datetime | None:
    if milliseconds is not None and milliseconds > LAST_TIME:
        raise DecodeError(f"A time is {milliseconds} ms, after the year 9999.", position=0)
    return utc(milliseconds)


FIELDS = 5
"""Columns that `locate` returns: start and end of the key, producer id, previous and next producer id; -1 for none."""


def locate(buf: bytes, positions: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Key and producer ids of the only record of each batch.

    One row per batch with `FIELDS` columns; the start of the key is 0 if the record has an unknown form.
    `positions`, `ends`: where each batch starts and ends in the bytes; all of magic 2 with one uncompressed record.
    """
    found = np.full((len(positions), FIELDS), -1, np.int64)
    _PlainBytes.total += len(buf)
    compiled = _compiled() if _PlainBytes.total >= PLAIN_BYTES else None
    if compiled is not None:
        compiled(np.frombuffer(buf, np.uint8), positions, ends, found)
    else:
        _locate(memoryview(buf), positions.tolist(), ends.tolist(), found)
    return found


_compiling = threading.Lock()
PLAIN_BYTES = 16_000_000  # from here on compiled code is faster, its start included


class _PlainBytes:
    """Bytes that `locate` has read in this process."""

    total = 0


@functools.cache
def _compiled() -> Callable[..., None] | None:
    """`_locate`, compiled, which releases the GIL; null without numba.

    Compiled code is cached on disk. To load it takes half a second of processor time, to compile it some seconds.
    """
    try:
        from numba import njit
        from numba.extending import register_jitable
    except ImportError:
        return None
    for helper in HELPERS:
        register_jitable(helper)
    numbers = np.empty(0, np.int64)
    example = (np.empty(0, np.uint8), numbers, numbers, np.empty((0, FIELDS), np.int64))
    with _compiling:
        try:
            jitted = njit(nogil=True, cache=True)(_locate)
            jitted(*example)
        except (OSError, RuntimeError):  # no writable folder for compiled code, beside the source or in the home
            jitted = njit(nogil=True)(_locate)
            jitted(*example)
    return jitted


def _locate(data: Any, positions: Any, ends: Any, found: Any) -> None:
    for i in range(len(positions)):
        end = ends[i]
        found[i, 0] = 0
        _, at = _varint(data, positions[i] + HEADER_SIZE, end)  # size of the record
        _, at = _varint(data, at + 1, end)  # after its attributes: the timestamp
        _, at = _varint(data, at, end)  # the offset
        key_size, at = _varint(data, at, end)
        key, value_at = at, at + _zigzag(key_size)
        if at < 0 or _zigzag(key_size) < 4 or value_at >= end:
            continue
        value_size, at = _varint(data, value_at, end)
        if at < 0 or at + _zigzag(value_size) > end:
            continue
        if _zigzag(value_size) >= 0:
            stop = at + _zigzag(value_size)
            if stop - at < 17 or data[at] != 0 or data[at + 1] > 1:
                continue
            found[i, 2] = _int64(data, at + 2)
            if data[at + 1] == 1 and not _tagged_producer_ids(data, at + 17, stop, found, i):
                continue
        found[i, 0], found[i, 1] = key, value_at


def _tagged_producer_ids(data: Any, at: int, end: int, found: Any, i: int) -> bool:
    """Find previous and next producer id, after the partitions and two times; false if the form is unknown."""
    topics, at = _varint(data, at, end)
    for _ in range(topics - 1):
        size, at = _varint(data, at, end)
        count, at = _varint(data, at + size - 1, end)
        at = _pass_over_tags(data, at + 4 * (count - 1), end)
        if at < 0 or size < 1 or count < 1:
            return False
    count, at = _varint(data, at + 16, end)
    for _ in range(count):
        tag, at = _varint(data, at, end)
        size, at = _varint(data, at, end)
        if at < 0 or at + size > end:
            return False
        if tag < 2 and size == 8:
            found[i, 3 + tag] = _int64(data, at)
        at += size
    return bool(at == end)


def _pass_over_tags(data: Any, at: int, end: int) -> int:
    """Where tagged fields end; -1 if they do not."""
    count, at = _varint(data, at, end)
    for _ in range(count):
        _, at = _varint(data, at, end)
        size, at = _varint(data, at, end)
        at = at + size if 0 <= at <= end - size else -1
    return at


def _varint(data: Any, at: int, end: int) -> tuple[int, int]:
    """An unsigned varint and its end; 0 and a very low position if it does not end."""
    number, shift = 0, 0
    while 0 <= at < end and shift < 63:
        byte = int(data[at])
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
    return 0, -(1 << 62)


def _zigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def _int64(data: Any, at: int) -> int:
    """A producer id; -1 for any negative one."""
    if data[at] >= 0x80:
        return -1
    number = 0
    for i in range(8):
        number = (number << 8) | int(data[at + i])
    return number


HELPERS = (_varint, _zigzag, _int64, _pass_over_tags, _tagged_producer_ids)
