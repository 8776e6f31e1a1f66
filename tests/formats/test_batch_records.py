"""Records of batches: as Kafka's own tool reads them in segments of real brokers, as packed here, and invalid."""

import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.packed import CODECS, HEADER_SIZE, LOG_APPEND_TIME, Headers, pack_batch, varint
from toolkit.errors import DecodeError
from toolkit.formats.batch_records import Record, read_records

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
        (varint(6) + b"\0\0\0\1\1\0\0", "bytes are left over after 1 records"),
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
