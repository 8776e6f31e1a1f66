"""The bytes of the model's logs: batches, markers, and records of ``__transaction_state``, as brokers write them."""

from __future__ import annotations

import datetime as dt
import struct
from functools import lru_cache

from google_crc32c import value as crc32c

from tests.exploration.state import Meta, Record, StateRecord
from tests.exploration.world import EPOCH_MS
from tests.formats.logs import control_batch
from toolkit.formats.coordinator.transaction_log_records import STATES
from toolkit.formats.log.batches import LOG_APPEND_TIME, TRANSACTIONAL, write_batch

TIMESTAMPS = struct.Struct(">qq")


@lru_cache(maxsize=100_000)
def log_bytes(log: tuple[Record, ...], start: int, stop: int, *, append_time: bool) -> bytes:
    """Batches of a data partition."""
    return b"".join(_batch(record, start + index, append_time) for index, record in enumerate(log[start:stop]))


@lru_cache(maxsize=100_000)
def state_log_bytes(
    log: tuple[StateRecord, ...], ids: tuple[str, ...], topic: str, start: int, *, is_flexible: bool
) -> bytes:
    """Batches of a partition of ``__transaction_state`` from an offset on."""
    return b"".join(
        _state_batch(record, ids[record.id], topic, is_flexible) for record in log if record.offset >= start
    )


@lru_cache(maxsize=100_000)
def _batch(record: Record, offset: int, append_time: bool) -> bytes:
    if record.kind == "data":
        return _placed(_data_batch(record, append_time), offset, record.leader_epoch)
    type_ = int(record.kind == "commit")
    key, value = struct.pack(">hh", 0, type_), struct.pack(">hi", 0, record.coordinator_epoch)
    body = b"\x20\0\0\0" + b"\x08" + key + b"\x0c" + value + b"\0"
    batch = control_batch(body, producer_id=record.pid, producer_epoch=record.epoch)
    return _placed(_timed(batch, EPOCH_MS + record.time), offset, record.leader_epoch)


def _data_batch(record: Record, append_time: bool) -> bytes:
    batch = write_batch(
        [(b"key", b"value")],
        timestamp=_time(EPOCH_MS + record.time),
        producer_id=record.pid,
        producer_epoch=record.epoch,
        base_sequence=record.sequence,
        is_transactional=True,
    )
    return (
        _checked(batch[:21] + struct.pack(">h", TRANSACTIONAL | LOG_APPEND_TIME) + batch[23:]) if append_time else batch
    )


def _time(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=milliseconds)


def _timed(batch: bytes, time_ms: int) -> bytes:
    """A control batch with another time."""
    return _checked(batch[:27] + TIMESTAMPS.pack(time_ms, time_ms) + batch[43:])


def _checked(batch: bytes) -> bytes:
    return batch[:17] + int(crc32c(batch[21:])).to_bytes(4, "big") + batch[21:]


def _placed(batch: bytes, offset: int, leader_epoch: int) -> bytes:
    return struct.pack(">qii", offset, len(batch) - 12, leader_epoch) + batch[16:]


@lru_cache(maxsize=100_000)
def _state_batch(record: StateRecord, name: str, topic: str, is_flexible: bool) -> bytes:
    key = struct.pack(">hh", 0, len(name)) + name.encode()
    value = None if record.meta is None else _value(record.meta, topic, is_flexible)
    batch = write_batch([(key, value)], timestamp=_time(EPOCH_MS + record.time))
    return _placed(batch, record.offset, record.leader_epoch)


def _value(meta: Meta, topic: str, is_flexible: bool) -> bytes:
    """TransactionLogValue.json, version 0; version 1 (flexible, with tags) where brokers have transaction version 2."""
    head = struct.pack(">qhib", meta.pid, meta.epoch, meta.timeout_ms, STATES.index(meta.state))
    start = EPOCH_MS + meta.start if meta.start >= 0 else -1
    times = TIMESTAMPS.pack(EPOCH_MS + meta.updated, start)
    name = topic.encode()
    if not is_flexible:
        if not meta.partitions:
            return b"\0\0" + head + struct.pack(">i", -1 if meta.state == "Empty" else 0) + times
        numbers = struct.pack(f">{len(meta.partitions)}i", *meta.partitions)
        listed = struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", len(meta.partitions)) + numbers
        return b"\0\0" + head + listed + times
    if meta.partitions:
        numbers = struct.pack(f">{len(meta.partitions)}i", *meta.partitions)
        listed = bytes([2, len(name) + 1]) + name + bytes([len(meta.partitions) + 1]) + numbers + b"\0"
    else:
        listed = b"\0" if meta.state == "Empty" else b"\x01"
    tags = [(0, struct.pack(">q", meta.previous_pid))] if meta.previous_pid >= 0 else []
    tags += [(1, struct.pack(">q", meta.next_pid))] if meta.next_pid >= 0 else []
    tags += [(2, struct.pack(">h", meta.client_version))] if meta.client_version else []
    tagged = bytes([len(tags)]) + b"".join(bytes([tag, len(data)]) + data for tag, data in tags)
    return b"\0\x01" + head + listed + times + tagged
