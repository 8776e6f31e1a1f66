"""The bytes of the model's logs: batches, markers, and records of ``__transaction_state``, as brokers write them."""

from __future__ import annotations

import datetime as dt
import struct
from functools import lru_cache

from google_crc32c import value as crc32c

from tests.exploration.state import Meta, Record, StateRecord
from tests.exploration.world import World
from tests.formats.logs import control_batch
from toolkit.formats.coordinator.transaction_log_records import STATES
from toolkit.formats.log.batches import write_batch

TIMESTAMPS = struct.Struct(">qq")


@lru_cache(maxsize=100_000)
def log_bytes(world: World, broker: int, log: tuple[Record, ...], start: int, stop: int) -> bytes:
    """Batches of a data partition; markers have the time of the broker's clock."""
    return b"".join(_batch(world, broker, record, start + index) for index, record in enumerate(log[start:stop]))


@lru_cache(maxsize=100_000)
def state_log_bytes(
    world: World, broker: int, log: tuple[StateRecord, ...], ids: tuple[str, ...], topic: str, start: int
) -> bytes:
    """Batches of a partition of ``__transaction_state`` from an offset on."""
    return b"".join(
        _state_batch(world, broker, record, ids[record.id], topic) for record in log if record.offset >= start
    )


@lru_cache(maxsize=100_000)
def _batch(world: World, broker: int, record: Record, offset: int) -> bytes:
    if record.kind == "data":
        return _placed(_data_batch(world, record), offset, record.leader_epoch)
    type_ = int(record.kind == "commit")
    key, value = struct.pack(">hh", 0, type_), struct.pack(">hi", 0, record.coordinator_epoch)
    body = b"\x20\0\0\0" + b"\x08" + key + b"\x0c" + value + b"\0"
    batch = control_batch(body, producer_id=record.pid, producer_epoch=record.epoch)
    return _placed(_timed(batch, world.timestamp(record.time, broker)), offset, record.leader_epoch)


def _data_batch(world: World, record: Record) -> bytes:
    return write_batch(
        [(b"key", b"value")],
        timestamp=_time(world.timestamp(record.time)),
        producer_id=record.pid,
        producer_epoch=record.epoch,
        base_sequence=record.sequence,
        is_transactional=True,
    )


def _time(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=milliseconds)


def _timed(batch: bytes, time_ms: int) -> bytes:
    """A control batch with another time."""
    covered = batch[21:27] + TIMESTAMPS.pack(time_ms, time_ms) + batch[43:]
    return batch[:17] + int(crc32c(covered)).to_bytes(4, "big") + covered


def _placed(batch: bytes, offset: int, leader_epoch: int) -> bytes:
    return struct.pack(">qii", offset, len(batch) - 12, leader_epoch) + batch[16:]


@lru_cache(maxsize=100_000)
def _state_batch(world: World, broker: int, record: StateRecord, name: str, topic: str) -> bytes:
    key = struct.pack(">hh", 0, len(name)) + name.encode()
    value = None if record.meta is None else _value(world, broker, record.meta, topic)
    batch = write_batch([(key, value)], timestamp=_time(world.timestamp(record.time, broker)))
    return _placed(batch, record.offset, record.leader_epoch)


def _value(world: World, broker: int, meta: Meta, topic: str) -> bytes:
    """TransactionLogValue.json, version 0; version 1 (flexible, with tags) where clients have transaction version 2."""
    head = struct.pack(">qhib", meta.pid, meta.epoch, meta.timeout_ms, STATES.index(meta.state))
    start = world.timestamp(meta.start, broker) if meta.start >= 0 else -1
    times = TIMESTAMPS.pack(world.timestamp(meta.updated, broker), start)
    name = topic.encode()
    if world.version == 1:
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
