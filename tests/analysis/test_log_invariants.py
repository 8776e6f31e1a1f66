"""Violations of each invariant; test_transaction_history_live.py checks that real logs have none."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.test_transaction_history import record, transaction, version_2
from toolkit.analysis.log import log_invariants
from toolkit.analysis.log.log_invariants import INVARIANTS, InvariantChecker, event_violations
from toolkit.formats.log.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.log.headers import ABORT, COMMIT, HEADER, NO_MARKER, UNREAD_MARKER, Headers
from toolkit.schema import VIOLATIONS
from toolkit.schema.log import TransactionLogRecord, Violation

LAST_SEQUENCE = 2**31 - 1


def batch_violations(headers: Headers, *, file: str | None = None, **columns: Any) -> Sequence[Violation]:
    """Violations in all batches of a partition, checked in one call."""
    return InvariantChecker(**columns).check(headers, file=file)


def data(epoch: int = 0, sequence: int = 0, *, records: int = 1, producer_id: int = 7, **more: Any) -> dict[str, Any]:
    return {
        "producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence, "record_count": records,
        "attributes": TRANSACTIONAL, "marker": NO_MARKER, "coordinator_epoch": -1, "offset_count": records, **more,
    }  # fmt: skip


def marker(epoch: int = 0, kind: int = COMMIT, *, coordinator_epoch: int = 3, **more: Any) -> dict[str, Any]:
    control = {"attributes": TRANSACTIONAL | CONTROL, "marker": kind, "coordinator_epoch": coordinator_epoch}
    return data(epoch, -1) | control | more


def log(*batches: dict[str, Any]) -> Headers:
    """Consecutive headers with arbitrary other fields."""
    headers = np.zeros(len(batches), HEADER)
    headers["magic"], headers["crc_ok"], headers["size"] = 2, 1, 100
    position, offset = 0, 0
    for header, batch in zip(headers, batches, strict=True):
        offset_count = batch.pop("offset_count")
        for name, value in ({"position": position, "base_offset": offset} | batch).items():
            header[name] = value
        header["last_offset"] = batch.get("last_offset", header["base_offset"] + offset_count - 1)
        position, offset = int(header["position"] + header["size"]), int(header["last_offset"]) + 1
    return headers


def violations(headers: Headers, **options: Any) -> list[tuple[str, int | None]]:
    """Names and offsets of the violations in a file; the rows fit their table."""
    rows = batch_violations(headers, topic="orders", partition=0, broker_id=1, file="0.log", **options)
    assert len(VIOLATIONS.arrow(row.row() for row in rows)) == len(rows)
    assert {row.invariant for row in rows} <= INVARIANTS.keys()
    return [(row.invariant, row.offset) for row in rows]


VALID = {
    "before version 2": [data(), data(sequence=1, records=3), marker(), data(sequence=4), marker(kind=ABORT)],
    "version 2": [data(), marker(1), data(1), data(1, 1), marker(2, ABORT), data(2), marker(3)],
    "a timeout, then a new instance": [data(), marker(1, ABORT), data(2), marker(2), data(2, 1)],
    "a marker that was sent twice": [data(), marker(1), marker(1), data(1), marker(2)],
    "markers without data": [marker(), marker(), data(), marker(), marker(1), marker(2)],
    "an epoch with only its markers left": [marker(4), data(4, 17), marker(4)],
    "sequences wrap": [data(sequence=LAST_SEQUENCE - 1, records=3), data(sequence=1), data(sequence=2)],
    "sequences wrap between batches": [data(sequence=LAST_SEQUENCE), data()],
    "the beginning is deleted": [data(3, 40), marker(3), data(3, 41)],
    "a new epoch without a marker": [data(sequence=5), data(1), data(1, 1)],
    "offsets of a group, which have no sequence": [data(sequence=-1), data(sequence=-1), marker(), data(sequence=-1)],
    "no transactions": [data(attributes=0), data(sequence=1, attributes=0), data(sequence=-1, producer_id=-1)],
    "two producers": [data(), data(producer_id=8), marker(), data(sequence=1, producer_id=8), data(sequence=1)],
    "a client of version 2, then one of version 1": [
        data(), marker(1), data(2), marker(2, ABORT), data(2, 1), marker(2), data(2, 2)
    ],
    "a partition that was added but not written to": [data(), marker(0), marker(1), data(1), marker(1), data(1, 1)],
    "a coordinator that moved": [data(), marker(coordinator_epoch=1), data(sequence=1), marker(coordinator_epoch=2)],
    "an old message set": [data(magic=1, producer_id=-1, record_count=0, last_offset=9)],
    "an unknown leader epoch": [
        data(leader_epoch=3), data(sequence=1, leader_epoch=-1), data(sequence=2, leader_epoch=3)
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", VALID)
def test_a_valid_log_violates_no_invariant(name: str) -> None:
    assert violations(log(*(dict(batch) for batch in VALID[name]))) == []


INVALID: dict[str, tuple[Sequence[dict[str, Any]], list[tuple[str, int]]]] = {
    "bytes between batches": ([data(), data(sequence=1, position=150)], [("position", 1)]),
    "the same batch twice": ([data(), data(base_offset=0)], [("offset_order", 0), ("sequence", 0)]),
    "offsets missing": ([data(), data(sequence=1, base_offset=9)], [("offset_gap", 9)]),
    "one offset missing": ([data(), data(sequence=1, base_offset=2)], [("offset_gap", 2)]),
    "an end just before its beginning": ([data(last_offset=-1)], [("offset_range", 0)]),
    "no record at its only offset": ([data(record_count=0)], [("record_count", 0)]),
    "two records at its only offset": ([data(record_count=2)], [("record_count", 0)]),
    "the first leader after another one": (
        [data(leader_epoch=5), data(sequence=1, leader_epoch=0)],
        [("leader_epoch", 1)],
    ),
    "an end before its beginning": ([data(last_offset=-5)], [("offset_range", 0)]),
    "fewer records than offsets": ([data(records=3, record_count=2)], [("record_count", 0)]),
    "more records than offsets": ([data(records=3, record_count=4)], [("record_count", 0)]),
    "a wrong checksum": ([data(), data(sequence=1, crc_ok=0)], [("crc", 1)]),
    "an older leader": (
        [data(leader_epoch=5), data(sequence=1, leader_epoch=4), data(sequence=2, leader_epoch=4)],
        [("leader_epoch", 1), ("leader_epoch", 2)],
    ),
    "an older leader, but not the oldest": (
        [data(leader_epoch=3), data(sequence=1, leader_epoch=5), data(sequence=2, leader_epoch=4)],
        [("leader_epoch", 2)],
    ),
    "an older epoch": ([data(3), data(2)], [("producer_epoch", 1)]),
    "an older epoch in a marker": ([data(3), marker(2)], [("producer_epoch", 1)]),
    "a sequence left out": ([data(), data(sequence=2)], [("sequence", 1)]),
    "a sequence repeated": ([data(), marker(), data()], [("sequence", 2)]),
    "a new epoch that does not begin with 0": ([data(), data(1, 1)], [("sequence", 1)]),
    "a new epoch that does not begin with 0, after a marker": ([data(), marker(1), data(1, 1)], [("sequence", 2)]),
    "an older coordinator": (
        [data(), marker(coordinator_epoch=4), data(sequence=1), marker(coordinator_epoch=3)],
        [("coordinator_epoch", 3)],
    ),
    "late in version 2": ([data(), marker(1), data(sequence=1)], [("late_batch", 2)]),
    "late after the coordinator's abort": ([data(), marker(1, ABORT), data(sequence=1)], [("late_batch", 2)]),
    "late after a manual abort marker": (
        [data(), marker(1), data(1), marker(1, ABORT), data(1, 1), marker(2)],
        [("late_batch", 4)],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_each_violated_invariant_is_named(name: str) -> None:
    batches, expected = INVALID[name]
    assert violations(log(*(dict(batch) for batch in batches))) == expected


def test_every_invariant_of_batches_has_a_violation() -> None:
    assert {name for _, expected in INVALID.values() for name, _ in expected} == {
        name for name in INVARIANTS if not name.startswith("coordinator_") or name == "coordinator_epoch"
    }


def test_a_row_has_the_expected_value() -> None:
    headers = log(data(), data(sequence=2, position=150))
    rows = batch_violations(headers, topic="orders", partition=0, broker_id=1, file="0.log")
    assert [row.detail for row in rows] == [
        "It starts at byte 150; the one before it ends at 100.",
        "Producer 7, epoch 0, continues with sequence 2, not with 1.",
    ]
    assert rows[0] == Violation(
        invariant="position", topic="orders", partition=0, offset=1, producer_id=7, transactional_id=None,
        detail=rows[0].detail, broker_id=1, file="0.log", position=150,
    )  # fmt: skip


@pytest.mark.parametrize(("producer_id", "shown"), [(0, 0), (-1, None)])
def test_a_row_has_its_producer(producer_id: int, shown: int | None) -> None:
    (row,) = batch_violations(log(data(crc_ok=0, producer_id=producer_id)))
    assert row.producer_id == shown


def test_compaction_leaves_gaps() -> None:
    headers = log(
        data(records=3, record_count=1),
        data(sequence=9, base_offset=7, records=2, record_count=0),
        marker(base_offset=20),
        data(sequence=50, base_offset=30),
    )
    assert {name for name, _ in violations(headers)} == {"record_count", "offset_gap", "sequence"}
    assert violations(headers, compacted=True) == []
    assert violations(log(data(records=2, record_count=3)), compacted=True) == [("record_count", 0)]


def test_positions_are_checked_within_a_file() -> None:
    headers = log(data(), data(sequence=1), data(sequence=2))
    second, third = headers[1:2], headers[2:].copy()
    third["position"] = 0
    checker = InvariantChecker()
    assert checker.check(headers[:1], file="0.log") == []
    assert checker.check(second, file="0.log") == []
    assert checker.check(third, file="2.log") == []
    headers["position"] = 0  # as in Fetch responses
    assert batch_violations(headers) == []
    assert [row.invariant for row in batch_violations(headers, file="0.log")] == ["position", "position"]


def rejected_by_leader(headers: Headers) -> list[tuple[str, int]]:
    """What a leader would reject (``ProducerAppendInfo``), batch by batch; the reference for the array code."""
    rejected = []
    epochs: dict[int, int] = {}
    sequences: dict[int, tuple[int, int]] = {}  # epoch and next sequence
    coordinators: dict[int, int] = {}
    for index, header in enumerate(headers):
        producer_id, epoch, sequence = (int(header[k]) for k in ("producer_id", "producer_epoch", "base_sequence"))
        is_marker = bool(header["attributes"] & CONTROL)
        if producer_id < 0 or (is_marker and header["marker"] not in {COMMIT, ABORT, UNREAD_MARKER}):
            continue
        newest = epochs.get(producer_id, -1)
        if epoch < newest:
            rejected.append(("epoch", index))
        elif not is_marker and sequence >= 0:
            last_epoch, next_sequence = sequences.get(producer_id, (None, 0))
            known = last_epoch is not None or (newest >= 0 and epoch > newest)
            if known and sequence != (next_sequence if last_epoch == epoch else 0):
                rejected.append(("sequence", index))
        if not is_marker and sequence >= 0:
            count = int(header["last_offset"] - header["base_offset"]) + 1
            sequences[producer_id] = epoch, (sequence + count) % (LAST_SEQUENCE + 1)
        if is_marker and header["coordinator_epoch"] >= 0:
            if header["coordinator_epoch"] < coordinators.get(producer_id, -1):
                rejected.append(("coordinator_epoch", index))
            coordinators[producer_id] = int(header["coordinator_epoch"])
        epochs[producer_id] = max(newest, epoch)
    return rejected


batch_fields = st.fixed_dictionaries(
    {
        "producer_id": st.sampled_from([-1, 7, 8]),
        "producer_epoch": st.integers(0, 2),
        "base_sequence": st.sampled_from([-1, 0, 1, 2, LAST_SEQUENCE]),
        "offset_count": st.integers(1, 2),
        "record_count": st.just(-1),  # unknown
        "marker": st.sampled_from([NO_MARKER, NO_MARKER, NO_MARKER, COMMIT, ABORT, UNREAD_MARKER]),
        "coordinator_epoch": st.integers(-1, 2),
    }
)


@given(st.lists(batch_fields, max_size=20))
def test_sequences_that_a_leader_would_reject_are_found(batches: list[dict[str, Any]]) -> None:
    headers = log(*(data() | batch for batch in batches))
    headers["attributes"][headers["marker"] != NO_MARKER] |= CONTROL
    names = {"late_batch": "epoch", "producer_epoch": "epoch"}
    rows = [
        (names.get(row.invariant, row.invariant), int(np.searchsorted(headers["base_offset"], row.offset or 0)))
        for row in batch_violations(headers)
        if "though its markers raise" not in row.detail
    ]
    assert sorted(rows) == sorted(rejected_by_leader(headers))


numbers = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 7, 100, 2**31 - 1, 2**63 - 1])
arbitrary_rows = st.lists(st.tuples(*[numbers] * len(HEADER.names or ())), max_size=12)


@given(arbitrary_rows, st.integers(0, 12), st.booleans())
def test_invalid_headers_give_rows_and_no_exception(rows: list[tuple[int, ...]], split: int, compacted: bool) -> None:
    headers = np.zeros(len(rows), HEADER)
    for name, column in zip(HEADER.names or (), zip(*rows, strict=True), strict=False):
        headers[name] = np.array(column, "i8").astype(HEADER[name])
    whole = batch_violations(headers, file="0.log", compacted=compacted)
    VIOLATIONS.arrow(each.row() for each in whole)
    checker = InvariantChecker(compacted=compacted)
    parts = checker.check(headers[:split], file="0.log") + checker.check(headers[split:], file="0.log")
    assert parts == whole


def test_thousands_of_violations_end_in_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_invariants, "AT_ONCE", 2)
    headers = log(*(data(sequence=number * 2) for number in range(6)))
    rows = batch_violations(headers)
    assert [row.offset for row in rows] == [1, 2, 3]
    assert rows[-1].detail == "This and 2 more up to offset 5."
    checker = InvariantChecker()
    assert [row.offset for row in checker.check(headers[:3])] == [1, 2]
    (last,) = checker.check(headers[3:])
    assert (last.offset, last.detail) == (3, "This and 2 more up to offset 5.")


def test_the_state_per_producer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_invariants, "REMEMBERED", 4)
    checker = InvariantChecker()
    for number in range(40):
        [batch] = (log(data(producer_id=number, base_offset=number)),)
        assert checker.check(batch) == []
    assert checker._of_producers.size <= 9
    late = log(data(sequence=5, producer_id=0, base_offset=40))
    assert checker.check(late) == []  # its producer was dropped and counts as new


def test_producers_within_the_bound_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_invariants, "REMEMBERED", 4)
    checker = InvariantChecker()
    for number in range(6):
        assert checker.check(log(data(producer_id=number, base_offset=number))) == []
    (row,) = checker.check(log(data(sequence=5, producer_id=0, base_offset=6)))
    assert (row.invariant, row.producer_id) == ("sequence", 0)


# Records of coordinators


def violations_of_records(events: Sequence[TransactionLogRecord]) -> list[tuple[str, int | None]]:
    rows = event_violations(events)
    assert len(VIOLATIONS.arrow(row.row() for row in rows)) == len(rows)
    return [(row.invariant, row.offset) for row in rows]


OVERFLOW = version_2(transaction("Commit", decide=10, epochs=(32766, 32767)))
ABORTED = version_2(transaction("Abort", decide=10, epochs=(32766, 32767)))
UNREADABLE = replace(record(1, 0, None, None), tombstone=False, error="CORRUPT_RECORD: no.")
VALID_EVENTS = {
    "a complete history of an id": [
        record(0, 0, "Empty"), *transaction("Commit", decide=10, offset=1),
        *transaction("Abort", begin=20, decide=30, epochs=(0, 1), offset=4), record(7, 40, "Empty", 2),
        record(8, 50, None, None), record(9, 60, None, None), record(10, 70, "Empty", producer_id=9),
    ],
    "compacted": [record(3, 0, "CompleteCommit", 4, start=0), record(9, 10, "Ongoing", 4, start=10)],
    "exhausted epochs": [*OVERFLOW[:2], replace(OVERFLOW[2], producer_id=9, producer_epoch=0)],
    "exhausted epochs in an abort": [*ABORTED[:2], replace(ABORTED[2], producer_id=9, producer_epoch=0)],
    "a new producer id": [record(0, 0, "Empty", 4), record(1, 10, "Empty", 0, producer_id=9)],
    "a retried append": [event for event in transaction("Commit", decide=10) for _ in range(2)],
    "an end without a transaction": version_2(
        [record(0, 0, "Empty"), *transaction("Abort", begin=5, decide=5, epochs=(1, 1))[1:]]
    ),
    "two ids": [record(0, 0, "Ongoing", 5), record(1, 1, "CompleteAbort", 2, transactional_id="other")],
    "two replicas": [record(1, 1, "CompleteAbort", 5), record(0, 0, "Ongoing", 4, broker_id=2)],
    "an unreadable record of the id": [
        record(0, 0, "Empty", 5),
        replace(record(1, 0, None, None), tombstone=False, error="CORRUPT_RECORD: no."),
        record(2, 0, "CompleteCommit", 1),
    ],
    "an unreadable record of an unknown id": [
        record(0, 0, "Empty", 5),
        replace(record(1, 0, None, None, transactional_id=None), tombstone=False, error="CORRUPT_BATCH: no."),
        record(2, 0, "CompleteCommit", 1),
    ],
}  # fmt: skip
INVALID_EVENTS: dict[str, tuple[Callable[[], list[TransactionLogRecord]], list[tuple[str, int]]]] = {
    "a state left out": (lambda: transaction("Commit", decide=10)[::2], [("coordinator_state", 2)]),
    "another outcome": (
        lambda: [*transaction("Commit", decide=10)[:2], record(5, 20, "PrepareAbort")], [("coordinator_state", 5)]
    ),
    "prepared after its end": (
        lambda: [*transaction("Commit", decide=10), record(5, 20, "PrepareCommit")], [("coordinator_state", 5)]
    ),
    "an end without a transaction before version 2": (
        lambda: [record(0, 0, "Empty"), record(5, 20, "PrepareAbort")], [("coordinator_state", 5)]
    ),
    "expired while open": (lambda: [record(0, 0, "Ongoing"), record(5, 20, None, None)], [("coordinator_state", 5)]),
    "ongoing after expiry": (lambda: [record(0, 0, None, None), record(5, 20, "Ongoing")], [("coordinator_state", 5)]),
    "an older epoch": (
        lambda: [record(0, 0, "Empty", 4), record(5, 20, "Ongoing", 3)], [("coordinator_producer_epoch", 5)]
    ),
    "an older epoch, after an unreadable record of another id": (
        lambda: [
            record(0, 0, "Empty", 4), replace(UNREADABLE, transactional_id="other"), record(5, 20, "Ongoing", 3)
        ],
        [("coordinator_producer_epoch", 5)],
    ),
    "an older epoch, after an unreadable record of another replica": (
        lambda: [
            record(0, 0, "Empty", 4), replace(UNREADABLE, transactional_id=None, broker_id=2),
            record(5, 20, "Ongoing", 3),
        ],
        [("coordinator_producer_epoch", 5)],
    ),
    "another producer": (
        lambda: [record(0, 0, "Empty", 4), record(5, 20, "Ongoing", 0, producer_id=9)], [("coordinator_producer_id", 5)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VALID_EVENTS)
def test_valid_records_violate_no_invariant(name: str) -> None:
    assert violations_of_records(VALID_EVENTS[name]) == []


@pytest.mark.parametrize("name", INVALID_EVENTS)
def test_each_violated_invariant_of_records_is_named(name: str) -> None:
    events, expected = INVALID_EVENTS[name]
    assert violations_of_records(events()) == expected


def test_every_invariant_of_coordinators_has_a_violation() -> None:
    assert {name for _, expected in INVALID_EVENTS.values() for name, _ in expected} == {
        name for name in INVARIANTS if name.startswith("coordinator_") and name != "coordinator_epoch"
    }


def test_a_row_of_a_coordinator_has_the_transactional_id() -> None:
    [row] = event_violations(transaction("Commit", decide=10)[::2])
    assert row.detail == "CompleteCommit follows Ongoing at offset 0."
    assert (row.topic, row.partition, row.transactional_id) == ("__transaction_state", 3, "payments")
