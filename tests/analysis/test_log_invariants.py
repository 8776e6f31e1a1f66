"""Each invariant is violated by a log that breaks it, and by none that only looks so.

That the logs of real brokers violate none is in test_transaction_history_live.py and tests/test_oracle.py.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.analysis.log_invariants import INVARIANTS, batch_violations, record_violations
from tests.analysis.test_transaction_history import record, transaction, version_2
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, HEADER, NO_MARKER, Headers
from toolkit.schema.log import TransactionLogRecord

LAST_SEQUENCE = 2**31 - 1


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
    for header, batch in zip(headers, map(dict, batches), strict=True):
        offset_count = batch.pop("offset_count")
        for name, value in ({"position": position, "base_offset": offset} | batch).items():
            header[name] = value
        header["last_offset"] = batch.get("last_offset", header["base_offset"] + offset_count - 1)
        position, offset = int(header["position"] + header["size"]), int(header["last_offset"]) + 1
    return headers


def violations(headers: Headers, *, is_compacted: bool = False) -> list[tuple[str, int | None]]:
    """Names and offsets of the violations in a file."""
    return [(row.invariant, row.offset) for row in batch_violations([(headers, "0.log")], is_compacted)]


LOGS: dict[str, tuple[Sequence[dict[str, Any]], list[tuple[str, int]]]] = {
    "before version 2": ([data(), data(sequence=1, records=3), marker(), data(sequence=4), marker(kind=ABORT)], []),
    "a marker that was sent twice": ([data(), marker(1), marker(1), data(1), marker(2)], []),
    "sequences wrap": ([data(sequence=LAST_SEQUENCE - 1, records=3), data(sequence=1), data(sequence=2)], []),
    "a new epoch without a marker": ([data(sequence=5), data(1), data(1, 1)], []),
    "a client of version 2, then one of version 1": (
        [data(), marker(1), data(2), marker(2, ABORT), data(2, 1), marker(2), data(2, 2)], []
    ),
    "a partition that was added but not written to": (
        [data(), marker(0), marker(1), data(1), marker(1), data(1, 1)], []
    ),
    "an old message set": ([data(magic=1, producer_id=-1, record_count=0, last_offset=9)], []),
    "an unknown leader epoch": (
        [data(leader_epoch=3), data(sequence=1, leader_epoch=-1), data(sequence=2, leader_epoch=3)], []
    ),
    "bytes between batches": ([data(), data(sequence=1, position=150)], [("position", 1)]),
    "the same batch twice": ([data(), data(base_offset=0)], [("offset_order", 0), ("sequence", 0)]),
    "one offset missing": ([data(), data(sequence=1, base_offset=2)], [("offset_gap", 2)]),
    "an end just before its beginning": ([data(last_offset=-1)], [("offset_range", 0)]),
    "fewer records than offsets": ([data(records=3, record_count=2)], [("record_count", 0)]),
    "more records than offsets": ([data(records=3, record_count=4)], [("record_count", 0)]),
    "a wrong checksum": ([data(), data(sequence=1, crc_ok=0)], [("crc", 1)]),
    "an older leader, but not the oldest": (
        [data(leader_epoch=3), data(sequence=1, leader_epoch=5), data(sequence=2, leader_epoch=4)],
        [("leader_epoch", 2)],
    ),
    "an older epoch in a marker": ([data(3), marker(2)], [("producer_epoch", 1)]),
    "a sequence left out": ([data(), data(sequence=2)], [("sequence", 1)]),
    "a sequence repeated": ([data(), marker(), data()], [("sequence", 2)]),
    "a new epoch that does not begin with 0": ([data(), marker(1), data(1, 1)], [("sequence", 2)]),
    "an older coordinator": (
        [data(), marker(coordinator_epoch=4), data(sequence=1), marker(coordinator_epoch=3)],
        [("coordinator_epoch", 3)],
    ),
    "late in version 2": ([data(), marker(1), data(sequence=1)], [("late_batch", 2)]),
    "late after a manual abort marker": (
        [data(), marker(1), data(1), marker(1, ABORT), data(1, 1), marker(2)], [("late_batch", 4)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_the_violations_of_a_log(name: str) -> None:
    batches, expected = LOGS[name]
    assert violations(log(*batches)) == expected


def test_compaction_leaves_gaps() -> None:
    headers = log(
        data(records=3, record_count=1),
        data(sequence=9, base_offset=7, records=2, record_count=0),
        marker(base_offset=20),
        data(sequence=50, base_offset=30),
    )
    assert {name for name, _ in violations(headers)} == {"record_count", "offset_gap", "sequence"}
    assert violations(headers, is_compacted=True) == []
    assert violations(log(data(records=2, record_count=3)), is_compacted=True) == [("record_count", 0)]


def test_positions_are_checked_within_a_file() -> None:
    headers = log(data(), data(sequence=1), data(sequence=2))
    headers["position"] = 0
    assert batch_violations([(headers, None)]) == []
    assert batch_violations([(headers[:1], "0.log"), (headers[1:2], "1.log"), (headers[2:], "2.log")]) == []
    assert [row.invariant for row in batch_violations([(headers[:2], "0.log"), (headers[2:], "0.log")])] == [
        "position", "position"
    ]  # fmt: skip


OVERFLOW = version_2(transaction("Commit", decide=10, epochs=(32766, 32767)))
UNREADABLE = replace(record(1, 0, None, None), tombstone=False, error="CORRUPT_RECORD: no.")
RECORDS: dict[str, tuple[list[TransactionLogRecord], list[tuple[str, int]]]] = {
    "a complete history of an id": (
        [
            record(0, 0, "Empty"), *transaction("Commit", decide=10, offset=1),
            *transaction("Abort", begin=20, decide=30, epochs=(0, 1), offset=4), record(7, 40, "Empty", 2),
            record(8, 50, None, None), record(9, 60, None, None), record(10, 70, "Empty", producer_id=9),
        ],
        [],
    ),
    "compacted": ([record(3, 0, "CompleteCommit", 4, start=0), record(9, 10, "Ongoing", 4, start=10)], []),
    "exhausted epochs": ([*OVERFLOW[:2], replace(OVERFLOW[2], producer_id=9, producer_epoch=0)], []),
    "a retried append": ([event for event in transaction("Commit", decide=10) for _ in range(2)], []),
    "an end without a transaction": (
        version_2([record(0, 0, "Empty"), *transaction("Abort", begin=5, decide=5, epochs=(1, 1))[1:]]), []
    ),
    "two ids": ([record(0, 0, "Ongoing", 5), record(1, 1, "CompleteAbort", 2, transactional_id="other")], []),
    "two replicas": ([record(1, 1, "CompleteAbort", 5), record(0, 0, "Ongoing", 4, broker_id=2)], []),
    **{
        f"an unreadable record of {name}": (
            [record(0, 0, "Empty", 5), replace(UNREADABLE, transactional_id=of), record(2, 0, "CompleteCommit", 1)], []
        )
        for name, of in (("the id", "payments"), ("an unknown id", None))
    },
    "a state left out": (transaction("Commit", decide=10)[::2], [("coordinator_state", 2)]),
    "another outcome": (
        [*transaction("Commit", decide=10)[:2], record(5, 20, "PrepareAbort")], [("coordinator_state", 5)]
    ),
    "prepared after its end": (
        [*transaction("Commit", decide=10), record(5, 20, "PrepareCommit")], [("coordinator_state", 5)]
    ),
    "an end without a transaction before version 2": (
        [record(0, 0, "Empty"), record(5, 20, "PrepareAbort")], [("coordinator_state", 5)]
    ),
    "expired while open": ([record(0, 0, "Ongoing"), record(5, 20, None, None)], [("coordinator_state", 5)]),
    **{
        f"an older epoch, after an unreadable record of another {name}": (
            [record(0, 0, "Empty", 4), replace(UNREADABLE, **other), record(5, 20, "Ongoing", 3)],
            [("coordinator_producer_epoch", 5)],
        )
        for name, other in (
            ("id", {"transactional_id": "other"}), ("replica", {"transactional_id": None, "broker_id": 2})
        )
    },
    "another producer": (
        [record(0, 0, "Empty", 4), record(5, 20, "Ongoing", 0, producer_id=9)], [("coordinator_producer_id", 5)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_the_violations_of_a_coordinators_records(name: str) -> None:
    records, expected = RECORDS[name]
    assert [(row.invariant, row.offset) for row in record_violations(records)] == expected


def test_every_invariant_has_a_violation() -> None:
    assert {name for _, expected in (*LOGS.values(), *RECORDS.values()) for name, _ in expected} == INVARIANTS.keys()
