"""The bytes of the model's logs: batches, markers, and records of ``__transaction_state``, as brokers write them."""

from __future__ import annotations

import datetime as dt
import struct
from functools import lru_cache

from tests.exploration.state import Meta, Record, StateRecord
from tests.formats.logs import control_batch
from toolkit.formats.coordinator.transaction_log_records import STATES
from toolkit.formats.log.batches import write_batch

__all__ = ["EPOCH", "EPOCH_MS", "log_bytes", "state_log_bytes"]

EPOCH = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
EPOCH_MS = int(EPOCH.timestamp() * 1000)
TIMESTAMPS = struct.Struct(">qq")


@lru_cache(maxsize=50_000)
def log_bytes(log: tuple[Record, ...], start: int, stop: int) -> bytes:
    """Batches of a data partition."""
    return b"".join(_batch(record, start + index) for index, record in enumerate(log[start:stop]))


@lru_cache(maxsize=50_000)
def state_log_bytes(log: tuple[StateRecord, ...], ids: tuple[str, ...], topic: str, version: int, start: int) -> bytes:
    """Batches of a partition of ``__transaction_state`` from an offset on."""
    return b"".join(_state_batch(record, ids[record.id], topic, version) for record in log if record.offset >= start)


@lru_cache(maxsize=50_000)
def _batch(record: Record, offset: int) -> bytes:
    if record.kind == "data":
        return _placed(_data_batch(record), offset, record.leader_epoch)
    type_ = int(record.kind == "commit")
    body = b"\x20\0\0\0" + b"\x08" + struct.pack(">hh", 0, type_) + b"\x0c" + struct.pack(">hi", 0, record.coordinator_epoch)
    batch = control_batch(body + b"\0", producer_id=record.pid, producer_epoch=record.epoch)
    return _placed(_timed(batch, EPOCH_MS + record.time), offset, record.leader_epoch)


def _data_batch(record: Record) -> bytes:
    return write_batch(
        [(b"key", b"value")],
        timestamp=EPOCH + dt.timedelta(milliseconds=record.time),
        producer_id=record.pid,
        producer_epoch=record.epoch,
        base_sequence=record.sequence,
        is_transactional=True,
    )


def _timed(batch: bytes, time_ms: int) -> bytes:
    """A control batch with another time."""
    from google_crc32c import value as crc32c

    covered = batch[21:27] + TIMESTAMPS.pack(time_ms, time_ms) + batch[43:]
    return batch[:17] + int(crc32c(covered)).to_bytes(4, "big") + covered


def _placed(batch: bytes, offset: int, leader_epoch: int) -> bytes:
    return struct.pack(">qii", offset, len(batch) - 12, leader_epoch) + batch[16:]


@lru_cache(maxsize=50_000)
def _state_batch(record: StateRecord, name: str, topic: str, version: int) -> bytes:
    key = struct.pack(">hh", 0, len(name)) + name.encode()
    value = None if record.meta is None else _value(record.meta, topic, version)
    time = EPOCH + dt.timedelta(milliseconds=record.time)
    return _placed(write_batch([(key, value)], timestamp=time), record.offset, record.leader_epoch)


def _value(meta: Meta, topic: str, version: int) -> bytes:
    """TransactionLogValue.json, version 0; version 1 (flexible, with tags) where clients have transaction version 2."""
    head = struct.pack(">qhib", meta.pid, meta.epoch, meta.timeout_ms, STATES.index(meta.state))
    start = EPOCH_MS + meta.start if meta.start >= 0 else -1
    times = struct.pack(">qq", EPOCH_MS + meta.updated, start)
    name = topic.encode()
    if version == 1:
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

