"""Producer snapshots: as real brokers wrote them, as written here, and why one is rejected."""

import dataclasses
import struct

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.brokers import by_tier
from tests.formats.broker_files import VERSIONS, BrokerFiles, broker_files
from toolkit.errors import DecodeError
from toolkit.formats.segment_files import SnapshotEntry, read_snapshot
from toolkit.schema import utc

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


@pytest.fixture(scope="module", params=by_tier(*VERSIONS, group="files of"))
def files(request: pytest.FixtureRequest) -> BrokerFiles:
    return broker_files(request.param)


def write_snapshot(states: list[SnapshotEntry], *, version: int = 1, count: int | None = None) -> bytes:
    body = struct.pack(">i", len(states) if count is None else count)
    for state in states:
        numbers = (-1 if number is None else number for number in dataclasses.astuple(state))
        body += struct.pack(">qhiqiqiq", *numbers)
    return struct.pack(">hI", version, google_crc32c.value(body)) + body


def test_snapshots_of_real_brokers(files: BrokerFiles) -> None:
    """Every field as DumpLogSegments prints it, in those written when a segment was rolled and in the last one."""
    snapshots = files.of_kind("snapshot")
    assert len(snapshots) >= 4
    for name, data in snapshots.items():
        states = [as_dumped(state) for state in read_snapshot(data)]
        assert states == [{key: line.get(key, -1) for key in states[0]} for line in files.dumped[name]]


def as_dumped(state: SnapshotEntry) -> dict[str, int]:
    printed = {
        "producerId": state.producer_id,
        "producerEpoch": state.producer_epoch,
        "lastSequence": state.last_sequence,
        "lastOffset": state.last_offset,
        "offsetDelta": state.offset_delta,
        "timestamp": state.last_timestamp,
        "coordinatorEpoch": state.coordinator_epoch,
        "currentTxnFirstOffset": state.current_txn_first_offset,
    }
    return {key: -1 if number is None else number for key, number in printed.items()}


def test_the_last_snapshot_matches_describe_producers(files: BrokerFiles) -> None:
    """A clean shutdown writes the producers that DescribeProducers returned."""
    snapshots = files.of_kind("snapshot")
    states = read_snapshot(snapshots[max(snapshots)])
    columns = "last_sequence", "last_timestamp", "coordinator_epoch"
    assert {
        (s.producer_id, s.producer_epoch, s.last_sequence, utc(s.last_timestamp), s.coordinator_epoch) for s in states
    } == {(row["producer_id"], row["producer_epoch"], *(row[column] for column in columns)) for row in files.producers}
    opened = {state.producer_id: state.current_txn_first_offset for state in states}
    assert opened == {row["producer_id"]: row["current_txn_start_offset"] for row in files.producers}
    assert len(opened) == 4
    assert list(opened.values()).count(None) == 3


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
