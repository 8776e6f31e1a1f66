"""Batch headers and the batch writer, against kafka-python's own reader and writer and against a real broker."""

import datetime as dt
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from toolkit.errors import DecodeError, UsageError
from toolkit.formats.batches import HEADER_SIZE, BatchHeader, read_header, write_batch

NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
NOON_MS = 1795262400000
NULLABLE = st.none() | st.binary(max_size=40)
RECORDS = st.lists(st.tuples(NULLABLE, NULLABLE), min_size=1, max_size=80)


def header_of(**fields: int) -> bytes:
    """A header with these fields, and nothing after it."""
    fields = {
        "base_offset": 0,
        "batch_length": 49,
        "partition_leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": 0,
        "base_timestamp": -1,
        "max_timestamp": -1,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": 0,
    } | fields
    return struct.pack(">qiibIhiqqqhii", *fields.values())


def test_a_header_is_61_bytes() -> None:
    assert HEADER_SIZE == len(header_of()) == 61


@given(
    RECORDS,
    st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC)),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
    st.booleans(),
)
def test_a_written_header_is_read(
    records: list[tuple[bytes | None, bytes | None]],
    timestamp: dt.datetime,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool,
) -> None:
    data = write_batch(
        records,
        timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
        base_offset=1000,
    )
    header = read_header(data)
    milliseconds = (timestamp - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
    assert (header.size, header.magic, header.record_count) == (len(data), 2, len(records))
    assert (header.base_offset, header.last_offset) == (1000, 999 + len(records))
    assert (header.base_timestamp, header.max_timestamp) == (milliseconds, milliseconds)
    assert [header.producer_id, header.producer_epoch, header.base_sequence] == [
        None if number == -1 else number for number in (producer_id, producer_epoch, base_sequence)
    ]
    assert header.is_transactional == is_transactional
    assert not header.is_control
    assert (header.timestamp_type, header.compression) == ("CreateTime", "none")

    (batch,) = batches_of(data)
    assert batch.validate_crc()
    assert [(record.offset, record.timestamp, record.key, record.value) for record in batch] == [
        (1000 + i, milliseconds, key, value) for i, (key, value) in enumerate(records)
    ]


def batches_of(data: bytes) -> list[Any]:
    """kafka-python's reading."""
    found = MemoryRecords(data)
    batches = []
    while found.has_next():
        batches.append(found.next_batch())
    return batches


@pytest.mark.parametrize("codec", [0, DefaultRecordBatch.CODEC_GZIP])
def test_a_batch_of_another_writer_is_read(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=1,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        batch_size=10_000,
    )
    for offset in range(5):
        builder.append(offset, timestamp=NOON_MS + offset, key=b"key", value=b"value" * 50, headers=[])
    data = bytes(builder.build())
    (batch,) = batches_of(data)
    header = read_header(b"before it" + data + b"after it", 9)
    assert header == BatchHeader(
        base_offset=0,
        batch_length=len(data) - 12,
        partition_leader_epoch=header.partition_leader_epoch,
        magic=2,
        crc=batch.crc,
        attributes=0x10 | codec,
        last_offset_delta=4,
        base_timestamp=NOON_MS,
        max_timestamp=NOON_MS + 4,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        record_count=5,
    )
    assert header.compression == ("gzip" if codec else "none")


@pytest.mark.parametrize(
    ("attributes", "meaning"),
    [
        (0x00, ("none", "CreateTime", False, False, False)),
        (0x04, ("zstd", "CreateTime", False, False, False)),
        (0x07, ("unknown (7)", "CreateTime", False, False, False)),
        (0x0A, ("snappy", "LogAppendTime", False, False, False)),
        (0x13, ("lz4", "CreateTime", True, False, False)),
        (0x30, ("none", "CreateTime", True, True, False)),
        (0x71, ("gzip", "CreateTime", True, True, True)),
    ],
)
def test_attributes_are_decoded(attributes: int, meaning: tuple[str, str, bool, bool, bool]) -> None:
    header = read_header(header_of(attributes=attributes))
    assert meaning == (
        header.compression,
        header.timestamp_type,
        header.is_transactional,
        header.is_control,
        header.has_delete_horizon,
    )


def test_missing_values_are_null() -> None:
    header = read_header(header_of())
    unsaid = (header.producer_id, header.producer_epoch, header.base_sequence)
    assert unsaid == (None, None, None)
    assert (header.partition_leader_epoch, header.base_timestamp, header.max_timestamp) == (None, None, None)


def test_last_offset_includes_compacted_records() -> None:
    header = read_header(header_of(base_offset=100, last_offset_delta=9, record_count=2))
    assert (header.last_offset, header.record_count) == (109, 2)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_magic_numbers_are_named(magic: int) -> None:
    with pytest.raises(DecodeError, match=f"byte 5 has magic {magic & 0xFF};") as caught:
        read_header(b"-----" + header_of(magic=magic)[:30], 5)  # an old message can be shorter than a v2 header
    assert caught.value.position == 5
    assert ("before Kafka 0.11" in str(caught.value)) == (magic in {0, 1})


@given(st.integers(0, HEADER_SIZE - 1), st.integers(0, 100))
def test_a_truncated_header_is_a_decode_error(size: int, position: int) -> None:
    with pytest.raises(DecodeError, match=f"ends early: {size} of 61 bytes") as caught:
        read_header(bytes(position) + header_of()[:size], position)
    assert caught.value.position == position


@pytest.mark.parametrize("position", [-1, 62, 10**12])
def test_a_position_outside_is_a_decode_error(position: int) -> None:
    with pytest.raises(DecodeError, match="0 of 61 bytes"):
        read_header(header_of(), position)


@pytest.mark.parametrize(
    "fields",
    [
        *({"batch_length": 48}, {"batch_length": -1}, {"base_offset": -1}, {"last_offset_delta": -1}),
        *({"record_count": -1}, {"record_count": 0, "batch_length": 50}),
    ],
)
def test_contradictions_are_decode_errors(fields: dict[str, int]) -> None:
    with pytest.raises(DecodeError, match="contradicts itself"):
        read_header(header_of(**fields))


def test_a_batch_needs_records_and_a_zone() -> None:
    with pytest.raises(UsageError, match="at least one record"):
        write_batch([], timestamp=NOON)
    with pytest.raises(UsageError, match="no time zone"):
        write_batch([(None, b"value")], timestamp=NOON.replace(tzinfo=None))
