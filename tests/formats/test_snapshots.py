"""Producer snapshots: as real brokers wrote them, as written here, and why one is rejected."""

import dataclasses
import struct

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.errors import DecodeError
from toolkit.formats.log_dir_files import SnapshotEntry, read_snapshot

INT16, INT32, INT64 = (st.integers(0, 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
STATES = st.builds(
    SnapshotEntry,
    producer_id=INT64,
    producer_epoch=INT16,
    last_sequence=st.none() | INT32,
    last_offset=st.none() | INT64,
    offset_delta=INT32,
    last_timestamp=st.none() | INT64,
    coordinator_epoch=st.none() | INT32,
    current_txn_first_offset=st.none() | INT64,
)


def write_snapshot(states: list[SnapshotEntry], *, version: int = 1, count: int | None = None) -> bytes:
    body = struct.pack(">i", len(states) if count is None else count)
    for state in states:
        numbers = (-1 if number is None else number for number in dataclasses.astuple(state))
        body += struct.pack(">qhiqiqiq", *numbers)
    return struct.pack(">hI", version, google_crc32c.value(body)) + body


@given(st.lists(STATES, max_size=5))
def test_snapshots_round_trip(states: list[SnapshotEntry]) -> None:
    data = write_snapshot(states)
    assert read_snapshot(data) == tuple(states)
    assert read_snapshot(memoryview(bytearray(data))) == tuple(states)


@pytest.mark.parametrize(
    ("data", "sentence", "position"),
    [
        (b"", "The producer snapshot is empty.", 0),
        (b"\0", "The producer snapshot ends early: 1 of the 10 bytes before its entries are there.", 1),
        (write_snapshot([], version=2), "The producer snapshot has version 2; 1 is known here.", 0),
        (bytes(10), "The producer snapshot has version 0; 1 is known here.", 0),
        (
            write_snapshot([])[:-1],
            "The producer snapshot ends early: 9 of the 10 bytes before its entries are there.",
            9,
        ),
        (write_snapshot([], count=2), "The producer snapshot has 10 bytes; 2 producers take 102.", 10),
        (
            write_snapshot([], count=2**31 - 1),
            "The producer snapshot has 10 bytes; 2147483647 producers take 98784247772.",
            10,
        ),
        (write_snapshot([], count=-1), "The producer snapshot has 10 bytes; -1 producers take -36.", 6),
        (write_snapshot([]) + b"more", "The producer snapshot has 14 bytes; 0 producers take 10.", 10),
        (
            b"\0\1\0\0\0\1\0\0\0\0",
            "The producer snapshot does not match its CRC: 0x00000001 is written, 0x48674bc7 is right.",
            6,
        ),
    ],
)
def test_errors_have_a_reason(data: bytes, sentence: str, position: int) -> None:
    with pytest.raises(DecodeError) as caught:
        read_snapshot(data)
    assert caught.value.what == sentence
    assert caught.value.position == position
    assert caught.value.means
