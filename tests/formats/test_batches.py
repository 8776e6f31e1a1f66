"""Batch headers, records, codecs and the writer: against kafka-python, Kafka's own tool and real segments."""

import datetime as dt
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from tests.formats.packed import CODECS, LOG_APPEND_TIME, Headers, compress, pack_batch, varint
from toolkit.errors import DecodeError, UsageError
from toolkit.formats.batch_records import Record, decompress, read_records
from toolkit.formats.batches import HEADER_SIZE, read_header
from toolkit.sources.live.broker_client import write_batch

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


@given(
    RECORDS,
    st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC)),
    st.fixed_dictionaries(
        {
            "producer_id": st.integers(-1, 2**63 - 1),
            "producer_epoch": st.integers(-1, 2**15 - 1),
            "base_sequence": st.integers(-1, 2**31 - 1),
        }
    ),
    st.booleans(),
)
def test_a_written_header_is_read(
    records: list[tuple[bytes | None, bytes | None]],
    timestamp: dt.datetime,
    producer: dict[str, int],
    is_transactional: bool,
) -> None:
    data = write_batch(records, timestamp=timestamp, **producer, is_transactional=is_transactional, base_offset=1000)
    header = read_header(data)
    milliseconds = (timestamp - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
    assert (header.size, header.magic, header.record_count) == (len(data), 2, len(records))
    assert (header.base_offset, header.last_offset) == (1000, 999 + len(records))
    assert (header.base_timestamp, header.max_timestamp) == (milliseconds, milliseconds)
    for name, number in producer.items():
        assert getattr(header, name) == (None if number == -1 else number)
    assert (header.is_transactional, header.is_control) == (is_transactional, False)
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
    names = ("compression", "timestamp_type", "is_transactional", "is_control", "has_delete_horizon")
    assert meaning == tuple(getattr(header, name) for name in names)


def test_missing_values_are_null_and_the_last_offset_includes_compacted_records() -> None:
    header = read_header(header_of(base_offset=100, last_offset_delta=9, record_count=2))
    nullable = ("producer_id", "producer_epoch", "base_sequence", "partition_leader_epoch", "base_timestamp")
    assert {getattr(header, name) for name in (*nullable, "max_timestamp")} == {None}
    assert (header.last_offset, header.record_count) == (109, 2)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_magic_numbers_are_named(magic: int) -> None:
    with pytest.raises(DecodeError, match=f"byte 5 has magic {magic & 0xFF};") as caught:
        read_header(b"-----" + header_of(magic=magic)[:30], 5)  # an old message can be shorter than a v2 header
    assert caught.value.position == 5
    assert ("before Kafka 0.11" in str(caught.value)) == (magic in {0, 1})


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


BYTES = st.none() | st.binary(max_size=40)
TIMES = st.none() | st.integers(0, 2**62)


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    found = []
    for step in draw(st.lists(st.integers(1, 300), min_size=1, max_size=8)):
        found.append(Record(offset, draw(TIMES), draw(BYTES), draw(BYTES)))
        offset += step
    return found


HEADERS = st.lists(st.tuples(st.binary(max_size=5), BYTES), max_size=3)


@given(records(), st.sampled_from(CODECS), HEADERS, st.binary(max_size=20))
def test_records_round_trip(found: list[Record], codec: str, headers: Headers, before: bytes) -> None:
    batch = pack_batch(found, codec=codec, headers=headers)
    buf = before + batch + b"and more"
    for form in (buf, bytearray(buf), memoryview(buf)):
        assert list(read_records(form, len(before))) == found
        with_headers = [record._replace(headers=tuple(headers)) for record in found]
        assert list(read_records(form, len(before), with_headers=True)) == with_headers


@given(records(), st.integers(0, 2**50))
def test_timestamps_are_relative_to_the_delete_horizon(found: list[Record], horizon: int) -> None:
    assert list(read_records(pack_batch(found, attributes=0x40, base_timestamp=horizon))) == found


def test_log_append_time_is_the_batchs_timestamp() -> None:
    batch = pack_batch([Record(5, 1000, b"a", None), Record(6, 3000, b"b", b"")], attributes=LOG_APPEND_TIME)
    assert list(read_records(batch)) == [Record(5, 3000, b"a", None), Record(6, 3000, b"b", b"")]


def test_records_before_a_damaged_one_are_read() -> None:
    first, second = Record(5, 1000, b"a", b"b"), Record(9, 1000, b"key", b"value")
    batch = bytearray(pack_batch([first, second]))
    second_at = HEADER_SIZE + 9
    batch[second_at + 4] = 0x7F  # the length of its key
    found = read_records(bytes(100) + batch, 100)
    assert next(found) == first
    with pytest.raises(DecodeError, match=r"^The batch at offset 5 is damaged: at its byte 70, a record") as caught:
        next(found)
    assert caught.value.position == 100 + second_at


@pytest.mark.parametrize("codec", CODECS[1:])
def test_damage_in_a_compressed_record_has_the_position_of_its_batch(codec: str) -> None:
    batch = bytearray(pack_batch([Record(5, 1000, b"a", b"b")], codec=codec))
    batch[HEADER_SIZE - 1] += 1  # one more record than there is
    with pytest.raises(DecodeError, match="at byte 9 of its records, decompressed") as caught:
        list(read_records(bytes(100) + batch, 100))
    assert caught.value.position == 100


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (varint(-5), "its size is -5"),
        (varint(100), "its size is 100, and 0 bytes are left"),
        (varint(6) + b"\0\0\0\1\1\0\0\0", "2 bytes are left over after 1 records"),
        (varint(7) + b"\0\0\0\1\1\0\0", "its size is 7, and its fields take 6"),
        (varint(6) + b"\0\0\0\3\1\0", "a length is -2"),
        (varint(6) + b"\0\0\2\1\1\0", "its offset delta is 1, outside 0 to 0"),
        (varint(6) + b"\0\0\1\1\1\0", "its offset delta is -1, outside 0 to 0"),
        (varint(6) + b"\0\0\0\1\1\1", "it has -1 headers"),
        (varint(8) + b"\0\0\0\1\1\2\1\1", "the key of a header is null"),
        (varint(7) + b"\0\0\0\1\1\4\0", "the batch ends within it"),
        (b"\xff" * 5, "a varint is longer than 5 bytes"),
        (varint(16) + b"\0" + b"\xff" * 15, "a varint is longer than 10 bytes"),
        (varint(5) + b"\0\0\0\6\0", "3 bytes of it reach past its end"),
    ],
)
def test_invalid_records_are_rejected(body: bytes, why: str) -> None:
    batch = bytearray(pack_batch([Record(0, 0, None, None)])[:HEADER_SIZE] + body)
    batch[8:12] = struct.pack(">i", len(batch) - 12)
    with pytest.raises(DecodeError, match=re.escape(why)):
        list(read_records(batch))


def test_a_batch_is_decompressed_at_once() -> None:
    """So that a batch that is not there is known before anything is made of it."""
    with pytest.raises(DecodeError, match=r"ends early: 61 of 70 bytes are there"):
        read_records(pack_batch([Record(0, 0, b"a", b"b")])[:61])


def test_more_than_the_limit_is_rejected() -> None:
    batch = pack_batch([Record(0, 0, None, bytes(1000))])
    assert len(list(read_records(batch, limit=1010))) == 1
    with pytest.raises(DecodeError, match="take more than 1000 bytes"):
        read_records(batch, limit=1000)


LIMIT = 1 << 20
SMALL = 100_000


DATA = st.binary(max_size=300) | st.builds(
    lambda data, times: data * times, st.binary(max_size=50), st.integers(0, 500)
)


@given(DATA)
def test_raw_snappy_of_librdkafka(data: bytes) -> None:
    assert decompress("snappy", bytes(cramjam.snappy.compress_raw(data)), limit=LIMIT) == data


def test_large_data_that_compresses_well() -> None:
    """The first buffer is too small for it."""
    data = bytes(10_000_000)
    for codec in CODECS:
        assert decompress(codec, compress(codec, data), limit=len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_rejects_more_than_the_limit(codec: str) -> None:
    stored = compress(codec, bytes(SMALL))
    with pytest.raises(DecodeError, match="The records of the batch at byte 7 take more than 99999 bytes") as caught:
        decompress(codec, stored, limit=SMALL - 1, position=7)
    assert caught.value.position == 7


IN_A_SMALL_SPACE = """
import resource, sys
from pathlib import Path
from toolkit.errors import DecodeError
from toolkit.formats.batch_records import decompress
decompress("gzip", bytes.fromhex(sys.argv[1]), limit=1 << 20)
import cramjam
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (200 << 20),) * 2)
for path in sys.argv[2:]:
    try:
        decompress(Path(path).name, Path(path).read_bytes(), limit=1 << 20)
    except DecodeError as exc:
        print(exc)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Only Linux holds a process to its address space.")
def test_a_decompression_bomb_takes_no_memory(tmp_path: Path) -> None:
    """Nor in the codec, outside of Python: of 256 MB, a process with 200 MB more reads the limit."""
    paths = []
    for codec in CODECS[1:]:
        path = tmp_path / codec
        path.write_bytes(compress(codec, bytes(256 << 20)))
        paths.append(str(path))
    small = compress("gzip", b"").hex()
    command = [sys.executable, "-c", IN_A_SMALL_SPACE, small, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.count("take more than 1048576 bytes") == len(paths), done.stdout + done.stderr


def test_a_snappy_block_that_claims_gigabytes() -> None:
    with pytest.raises(DecodeError, match="take more than"):
        decompress("snappy", b"\xff\xff\xff\xff\x0f" + bytes(20), limit=LIMIT)


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (zlib.compress(b"no gzip"), "incorrect header check"),
        (compress("gzip", b"two") + compress("gzip", b"members"), "bytes follow after the end"),
        (compress("gzip", b"cut")[:-1], "they end early"),
        (b"", "they end early"),
    ],
    ids=["zlib", "two members", "cut", "empty"],  # gzip writes the time, which workers do not share
)
def test_invalid_gzip_is_rejected(stored: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        decompress("gzip", stored, limit=LIMIT)


def test_a_codec_of_a_newer_kafka() -> None:
    with pytest.raises(DecodeError, match=r"The compression of the batch at byte 3 is unknown \(5\)\."):
        decompress("unknown (5)", b"", limit=LIMIT, position=3)
