"""Indexes of a segment: as real brokers wrote them, as written here, and why an entry is none."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.formats.headers import DamagedRange
from toolkit.formats.log_dir_files import AbortedTxn, read_offset_index, read_time_index, read_txn_index

SIZE = 34  # bytes of an entry of a .txnindex


OFFSETS = st.integers(0, 2**62)


@st.composite
def aborted(draw: st.DrawFn, *, min_size: int = 0) -> list[AbortedTxn]:
    """Transactions in the order of their markers; any two may overlap."""
    markers = sorted(draw(st.sets(st.integers(1, 2**62), min_size=min_size, max_size=8)))
    return [
        AbortedTxn(SIZE * i, 0, draw(OFFSETS), draw(st.integers(0, marker)), marker, draw(OFFSETS))
        for i, marker in enumerate(markers)
    ]


def write_txn_index(transactions: list[AbortedTxn]) -> bytes:
    return b"".join(struct.pack(">hqqqq", *transaction[1:]) for transaction in transactions)


def covered(found: list[AbortedTxn], damage: list[DamagedRange]) -> bool:
    """Whether every byte is reported once."""
    parts = sorted([(each.position, SIZE) for each in found] + [(each.position, each.size) for each in damage])
    ends = [0, *(position + size for position, size in parts)]
    return [position for position, _ in parts] == ends[:-1]


# Aborted transactions


@given(aborted(), st.integers(0, 100))
def test_aborted_transactions_round_trip(transactions: list[AbortedTxn], zeros: int) -> None:
    found, damage = read_txn_index(memoryview(bytearray(write_txn_index(transactions) + bytes(zeros))))
    assert found == transactions
    assert [(each.size, each.reason[:9]) for each in damage] == [(zeros, "TORN_TAIL")] * (zeros > 0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ((1, 7, 10, 20, 21), "it has version 1, and 0 is known here"),
        ((0, -1, 10, 20, 21), "an id or offset is negative"),
        ((0, 7, 10, 20, -1), "an id or offset is negative"),
        ((0, 7, 20, 10, 21), "it starts at offset 20 and ends at 10"),
        ((0, 0, 0, 0, 0), "it is all zeros"),
        ((0, 7, 10, 5, 11), "it starts at offset 10 and ends at 5"),
        ((0, 7, 1, 2, 3), "its marker at offset 2 is out of order"),
        ((0, 7, 1, 2**60, 3), f"its marker at offset {2**60} is out of order"),
    ],
)
def test_damage_has_a_reason(wrong: tuple[int, ...], why: str) -> None:
    sound = [(0, 1, 3, 6, 7), (0, 2, 8, 9, 10), (0, 1, 30, 40, 41), (0, 1, 50, 60, 61)]
    entries = [*sound[:2], wrong, *sound[2:]]
    found, damage = read_txn_index(b"".join(struct.pack(">hqqqq", *entry) for entry in entries))
    assert [each[1:] for each in found] == sound
    assert damage == [DamagedRange(68, 34, f"CORRUPT_ENTRY: The entry at byte 68 is no aborted transaction: {why}.")]


def test_torn_tails_have_their_own_reason() -> None:
    entry = struct.pack(">hqqqq", 0, 1, 3, 6, 7)
    assert read_txn_index(entry + entry[:5])[1] == [
        DamagedRange(34, 5, "TORN_TAIL: The last 5 bytes are an incomplete entry, as a crash leaves them.")
    ]
    assert read_txn_index(entry + bytes(70))[1] == [
        DamagedRange(34, 70, "TORN_TAIL: The last 70 bytes are zeros, as a crash leaves them.")
    ]
    assert read_txn_index(b"") == ([], [])


# Offsets and times


def test_zeroed_pages_after_a_crash_are_skipped() -> None:
    data = struct.pack(">8i", 5, 100, 0, 0, 0, 0, 9, 300) + bytes(4096)
    assert read_offset_index(data, base_offset=1000).tolist() == [(1005, 100), (1009, 300)]
    data = struct.pack(">qiqiqi", 0, 0, 77, 0, 99, 4) + bytes(4096)
    assert read_time_index(data, base_offset=1000).tolist() == [(77, 1000), (99, 1004)]
