"""Rows of the coordinators' topics: those of Kafka's own tool; what is located is where decoding finds it."""

from __future__ import annotations

import datetime as dt
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.packed import CODECS, CONTROL, TRANSACTIONAL, pack_batch, seal
from tests.formats.test_coordinator_records import states, write_key, write_value
from toolkit.formats import coordinator_log_rows
from toolkit.formats.batch_records import Record, read_records
from toolkit.formats.coordinator_log_rows import (
    FEW,
    LOST,
    _varints,
    keys_and_values,
    locate,
    offsets_log,
    transaction_log,
)
from toolkit.formats.coordinator_records import read_transaction_key, read_transaction_value
from toolkit.formats.scan import scan
from toolkit.schema import Row
from toolkit.schema.log import OffsetsLogRecord, TransactionLogRecord
from toolkit.sources.live.broker_client import write_batch

ID_KEY = bytes.fromhex("00000006676f6c64656e")  # "golden"
ONGOING = bytes.fromhex(  # by Kafka 4.3.1 on 2026-11-21, as in test_transaction_log_records
    "0001000000000000000100000000ea600102097061796d656e7473020000000000000001a1fe460f11000001a1fe460f11020008000000000000"
    "000102020002"
)
COMMIT_KEY = bytes.fromhex("0001000d67726f75702d636c6173736963000d62792d6c696272646b61666b6100000000")
COMMIT = bytes.fromhex("00040000000000000007ffffffff0853454352455400000001a1fee19c4500")  # its metadata is SECRET\0
TIME = 1_795_277_560_901


def coordinator_rows(buf: bytes, position: int = 0) -> list[Row]:
    return [
        record.row() for record in transaction_log(buf, position, where=TransactionLogRecord(txn_state_partition=4))
    ]


def group_rows(buf: bytes, position: int = 0) -> list[Row]:
    return [record.row() for record in offsets_log(buf, position, where=OffsetsLogRecord(group_partition=4))]


@pytest.mark.parametrize("few", [0, FEW])  # decoded at once, and one by one
@given(
    st.lists(
        st.tuples(
            st.sampled_from([*CODECS]),
            st.integers(0, 0x30),
            st.lists(
                st.tuples(st.sampled_from([ID_KEY, b"k", b"", None]), st.sampled_from([ONGOING, b"v", b"", None])),
                min_size=1,
                max_size=3,
            ),
        ),
        max_size=6,
    )
)
def test_keys_and_values_are_those_of_the_records(few: int, batches: list[Any]) -> None:
    buf, offset, expected = b"", 0, []
    for codec, attributes, records in batches:
        if attributes & CONTROL == 0:
            expected += records
        made = [Record(offset + number, TIME, key, value) for number, (key, value) in enumerate(records)]
        buf += pack_batch(made, codec=codec, attributes=attributes & (CONTROL | TRANSACTIONAL))
        offset += len(records)
    with mock.patch.object(coordinator_log_rows, "FEW", few):
        assert [*keys_and_values(buf, scan(buf).headers)] == expected


@pytest.mark.parametrize("rows_of", [coordinator_rows, group_rows])
def test_a_control_batch_has_no_rows(rows_of: Callable[[bytes], list[Row]]) -> None:
    batch = pack_batch([Record(8, TIME, b"\0\0\0\1", bytes(6))], attributes=TRANSACTIONAL | CONTROL)
    assert rows_of(batch) == []
    unseen = bytearray(pack_batch([Record(8, TIME, ID_KEY, ONGOING)]))
    unseen[22] |= CONTROL  # damage that turns a batch into a marker
    (row,) = rows_of(bytes(unseen))
    assert row["error"].startswith("CORRUPT_BATCH: The checksum of the batch at offset 8 does not match its bytes.")


@pytest.mark.parametrize("rows_of", [coordinator_rows, group_rows])
def test_an_unreadable_record_is_a_row(rows_of: Callable[[bytes], list[Row]]) -> None:
    key, value = (ID_KEY, ONGOING) if rows_of is coordinator_rows else (COMMIT_KEY, COMMIT)
    other = {"coordinator_rows": "transactional_id", "group_rows": "group_id"}[rows_of.__name__]
    good = Record(3, TIME, key, value)
    records = [
        good,
        Record(4, TIME, key, value[:-1]),
        Record(5, TIME, key[:-1], value),
        Record(6, TIME, None, value),
        Record(7, TIME, b"\x7f\xff", value),
        Record(8, 2**60, key, value),
        Record(9, TIME, key, b"\x00\x09"),
        good._replace(offset=10),
    ]
    rows = rows_of(pack_batch(records))
    assert [row["offset"] for row in rows] == list(range(3, 11))
    assert [row["offset"] for row in rows if not row["error"]] == [3, 10]
    errors = [row["error"] or "" for row in rows]
    assert all(error.startswith("CORRUPT_RECORD: ") for error in errors[1:-1])
    assert "ends early" in errors[1]
    assert rows[1][other] == rows[0][other]  # the columns of its key are kept
    assert "is null" in errors[3]
    assert "of a newer Kafka" in errors[4]
    assert "after the year 9999" in errors[5]
    assert "version 9" in errors[6]


@pytest.mark.parametrize("rows_of", [coordinator_rows, group_rows])
def test_an_unreadable_batch_is_a_row(rows_of: Callable[[bytes], list[Row]]) -> None:
    batch = pack_batch([Record(3, TIME, ID_KEY, None), Record(4, TIME, ID_KEY, None)])
    cut_inside = bytearray(batch)
    cut_inside[57:61] = struct.pack(">i", 3)
    torn, headerless, changed = rows_of(batch[:-1]), rows_of(batch[:30]), rows_of(batch[:-1] + b"\1")
    assert [(row["offset"], "ends early" in row["error"]) for row in torn + headerless] == [(3, True), (None, True)]
    assert [row["offset"] for row in changed] == [3]
    *_, last = rows_of(seal(bytes(cut_inside)))
    assert last["offset"] == 5
    assert last["error"].startswith("CORRUPT_BATCH: The batch at offset 3 is damaged: at its byte ")


# Against DumpLogSegments


NOW = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
BATCHES = st.lists(
    st.builds(
        lambda name, state: write_batch([(write_key(name), state and write_value(state))], timestamp=NOW),
        st.sampled_from(["a", "é" * 70, "payments-7"]),
        st.none() | states(),
    ),
    min_size=1,
    max_size=12,
)


def columns(parts: Sequence[bytes]) -> tuple[bytes, Any, Any]:
    ends = np.cumsum([len(part) for part in parts])
    return b"".join(parts), ends - [len(part) for part in parts], ends


@given(BATCHES)
def test_located_records_match_decoded_records(parts: list[bytes]) -> None:
    buf, positions, ends = columns(parts)
    for (start, end, *ids), part in zip(locate(buf, positions, ends).tolist(), parts, strict=True):
        (record,) = read_records(part)
        assert record.key is not None
        assert read_transaction_key(buf[start:end]) == read_transaction_key(record.key)
        state = None if record.value is None else read_transaction_value(record.value)
        expected = state and (state.producer_id, state.previous_producer_id, state.next_producer_id)
        assert ids == [-1 if each is None else each for each in expected or (None, None, None)]


@given(BATCHES, st.randoms(use_true_random=False))
def test_what_is_damaged_is_left_to_the_decoder(sound: list[bytes], chance: random.Random) -> None:
    """Altered at any byte of the record: nothing is raised, no id is made up from what follows."""
    parts = [bytearray(part) for part in sound]
    for part in parts:
        part[chance.randrange(61, len(part))] = chance.randrange(256)
    buf, positions, ends = columns([bytes(part) for part in parts])
    found = locate(buf, positions, ends)
    alone = [locate(bytes(part), np.array([0]), np.array([len(part)]))[0] for part in parts]
    for row, one, position, end in zip(found, alone, positions, ends, strict=True):
        assert (row[0] > 0) == (one[0] > 0)
        if row[0] > 0:
            assert position < row[0] <= row[1] <= end
            assert (row - [position, position, 0, 0, 0] == one).all()


def test_a_varint_has_at_most_five_bytes() -> None:
    data = np.frombuffer(b"\x80\x80\x80\x80\x01" + b"\x80" * 5 + b"\x01", np.uint8)
    numbers, after = _varints(data, np.array([0, 5, LOST]), np.array([5, 11, 11]))
    assert (numbers.tolist(), after.tolist()) == ([1 << 28, 0, 0], [5, LOST, LOST])
