"""Batch headers and the batch writer, against kafka-python's own reader and writer and against a real broker."""

import datetime as dt
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from toolkit.config import ClientConfig
from toolkit.errors import DecodeError, UsageError
from toolkit.formats.log.batches import HEADER_SIZE, BatchHeader, read_header, write_batch
from toolkit.lab import Kafka
from toolkit.lab.queries import leader, send_until_accepted
from toolkit.sources.live.client import broker_client, messages

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


@pytest.mark.lab
def test_a_broker_accepts_written_batches(kafka: Kafka) -> None:
    """Produced as raw bytes, consumed by librdkafka, which checks the CRC."""
    topic = new_topic(kafka, "test-batches-written")
    records = [(b"key", b"value"), (None, b"no key"), (b"tombstone", None)]
    with broker_client.BrokerClient(ClientConfig(kafka.client_config())) as cluster:
        response = send_until_accepted(
            cluster,
            lambda: messages.InitProducerId(transactional_id=None, transaction_timeout_ms=0, max_version=2),
            of=topic,
            codes=lambda message: [message.error_code],
        )
        data = write_batch(
            records,
            timestamp=NOON,
            producer_id=response.producer_id,
            producer_epoch=response.producer_epoch,
            base_sequence=0,
        )
        produced = send_until_accepted(
            cluster,
            lambda: produce_request(topic, data),
            of=topic,
            codes=lambda message: [message.responses[0].partition_responses[0].error_code],
            to=lambda: leader(cluster, topic, 0),
        )
    assert produced.responses[0].partition_responses[0].base_offset == 0
    (written,) = read_headers(segment_of(kafka, topic))
    assert response.producer_id >= 0  # else the broker would not have checked epoch and sequence
    assert (written.producer_id, written.producer_epoch, written.base_sequence) == (
        response.producer_id,
        response.producer_epoch,
        0,
    )
    assert written.crc == read_header(data).crc  # the broker fills in offset and leader epoch, and checks the rest

    consumer = Consumer(kafka.client_config() | {"group.id": "test-batches", "check.crcs": "true"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    consumed: list[object] = []
    deadline = time.monotonic() + 180
    while len(consumed) < len(records) and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error():  # a tombstone has length 0, and so is false
            consumed.append((message.key(), message.value(), message.timestamp()[1]))
    consumer.close()
    assert consumed == [(key, value, NOON_MS) for key, value in records]


@pytest.mark.lab
def test_headers_of_a_real_log(kafka: Kafka) -> None:
    """A committed and an aborted transaction, each with its marker, read from the broker's own segment file."""
    topic = new_topic(kafka, "test-batches-read")
    config = kafka.client_config() | {"log_level": "0", "compression.type": "lz4", "linger.ms": "100"}
    producer = Producer(config | {"transactional.id": topic})
    producer.init_transactions(60)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, b"value" * 100, key=str(number).encode(), partition=0)
        producer.flush(30)
        end()
    segment = segment_of(kafka, topic)
    deadline = time.monotonic() + 180
    while len(headers := read_headers(segment)) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)  # the last marker is written after the client has heard of the decision
    assert [(each.base_offset, each.last_offset, each.is_control) for each in headers] == [
        (0, 2, False),
        (3, 3, True),
        (4, 6, False),
        (7, 7, True),
    ]
    assert all(each.is_transactional for each in headers)
    assert [each.compression for each in headers] == ["lz4", "none", "lz4", "none"]
    assert [each.base_sequence for each in headers] == [0, None, 3, None]
    assert len({each.producer_id for each in headers}) == 1


def produce_request(topic: str, data: bytes) -> Any:
    request = messages.Produce.TopicProduceData
    partition = request.PartitionProduceData(index=0, records=data)
    return messages.Produce(
        transactional_id=None,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[request(name=topic, partition_data=[partition])],
        max_version=8,
    )


def segment_of(kafka: Kafka, topic: str) -> Path:
    return kafka.log_dirs[1] / f"{topic}-0" / "00000000000000000000.log"


def new_topic(kafka: Kafka, name: str) -> str:
    admin = AdminClient(dict(kafka.client_config()))
    admin.create_topics([NewTopic(name, 1)])[name].result()
    return name


def read_headers(segment: Path) -> list[BatchHeader]:
    data = segment.read_bytes()
    headers: list[BatchHeader] = []
    position = 0
    while position < len(data):
        headers.append(read_header(data, position))
        position += headers[-1].size
    return headers
