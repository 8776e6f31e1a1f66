"""Handmade logs, with everything that a broker fills in, and checks of scans of them."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Sequence

import numpy as np
from google_crc32c import value as crc32c
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from toolkit.formats.batches import HEADER, read_header
from toolkit.formats.headers import ABORT, COMMIT, Headers, LogChunk
from toolkit.sources.live.broker_client import write_batch

NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
NOON_MS = 1795262400000


def batch(records: int = 1, size: int = 20, *, seed: int = 0, producer_id: int = -1) -> bytes:
    """A data batch; batches with other seeds have other bytes."""
    rng = np.random.default_rng(seed)
    in_transaction = producer_id >= 0
    return write_batch(
        [(b"key", rng.bytes(size)) for _ in range(records)],
        timestamp=NOON,
        producer_id=producer_id,
        producer_epoch=0 if in_transaction else -1,
        base_sequence=0 if in_transaction else -1,
        is_transactional=in_transaction,
    )


def marker(type_: int, *, producer_id: int = 1, producer_epoch: int = 0, coordinator_epoch: int = 0) -> bytes:
    """A control batch that ends a transaction, as a coordinator has it written."""
    record = b"\x20\0\0\0" + b"\x08" + struct.pack(">hh", 0, type_) + b"\x0c" + struct.pack(">hi", 0, coordinator_epoch)
    return control_batch(record + b"\0", producer_id=producer_id, producer_epoch=producer_epoch)


def control_batch(
    records: bytes, *, attributes: int = 0x30, count: int = 1, producer_id: int = -1, producer_epoch: int = -1
) -> bytes:
    """A control batch with these bytes as its records."""
    length = HEADER.size - 12 + len(records)
    time = (NOON_MS, NOON_MS)
    head = HEADER.pack(0, length, 0, 2, 0, attributes, 0, *time, producer_id, producer_epoch, -1, count)
    covered = head[21:] + records
    crc: int = crc32c(covered)
    return head[:17] + crc.to_bytes(4, "big") + covered


def message(magic: int, *, codec: int = 0, size: int = 20, seed: int = 0) -> bytes:
    """A message of magic 0 or 1, or a wrapper of two."""
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for offset in range(2 if codec else 1):
        builder.append(offset, timestamp=NOON_MS, key=None, value=np.random.default_rng(seed).bytes(size))
    return bytes(builder.build())


def placed(batches: Sequence[bytes], *, base_offset: int = 0, leader_epoch: int = 3) -> list[bytes]:
    """The batches with consecutive offsets, as a log has them; no checksum covers these."""
    out = []
    for each in batches:
        if each[16] == 2:
            out.append(struct.pack(">qii", base_offset, len(each) - 12, leader_epoch) + each[16:])
            base_offset += read_header(each).last_offset_delta + 1
        else:
            out.append(struct.pack(">q", base_offset) + each[8:])
            base_offset += 1
    return out


def joined(parts: Sequence[LogChunk]) -> LogChunk:
    """Consecutive parts as one."""
    headers = np.concatenate([part.headers for part in parts])
    return LogChunk(headers=headers, damage=tuple(d for part in parts for d in part.damage), end=parts[-1].end)


def positions(headers: Headers) -> list[int]:
    found: list[int] = headers["position"].tolist()
    return found


def assert_accounted(scanned: LogChunk, start: int, end: int) -> None:
    """Every byte belongs to one header or one damaged range, and both are in order."""
    log_transactions = list(zip(scanned.headers["position"].tolist(), scanned.headers["size"].tolist(), strict=True))
    damaged = [(each.position, each.size) for each in scanned.damage]
    assert log_transactions == sorted(log_transactions)
    assert damaged == sorted(damaged)
    at = start
    for position, size in sorted(log_transactions + damaged):
        assert position == at
        assert size > 0
        at += size
    assert at == end == scanned.end


_data = st.builds(
    batch, st.integers(1, 4), st.integers(0, 60), seed=st.integers(0, 2**32), producer_id=st.sampled_from([-1, 0, 1, 2])
)
_markers = st.builds(
    marker, st.sampled_from([ABORT, COMMIT]), producer_id=st.integers(0, 2), coordinator_epoch=st.integers(0, 99)
)
_messages = st.builds(message, st.sampled_from([0, 1]), codec=st.sampled_from([0, 0, 1]), seed=st.integers(0, 2**32))
logs = st.builds(
    lambda old, new: placed([*old, *new]),
    st.one_of(st.just([]), st.lists(_messages, max_size=4)),
    st.lists(st.one_of(_data, _data, _markers), min_size=1, max_size=12),
)
"""Batches of a log, sometimes with messages of an old format before them."""
