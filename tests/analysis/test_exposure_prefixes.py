"""Transactional ids by prefix: where a prefix ends, what is new, and what grows."""

import datetime as dt

import pytest

from toolkit.analysis.coordinator.transaction_owners import prefix_of
from toolkit.analysis.exposure import ObservedCluster, exposure_rows, new_ids
from toolkit.schema.log import TransactionLogRecord

NOW = dt.datetime(2026, 11, 25, 12, tzinfo=dt.UTC)
UUID = "1f0c6b52-90ab-4c1e-8d31-2f6f0c0a9e11"


@pytest.mark.parametrize(
    ("transactional_id", "prefix"),
    [
        ("flink-tx-0-12", "flink-tx"),
        (f"orders-{UUID}-1", "orders"),
        (f"coordinator-txn-{UUID}-0", "coordinator-txn"),
        (f"Sink: out-{'0a' * 16}-7", "Sink: out"),
        ("orders-0_3", "orders"),
        ("team-1-tx", "team-1-tx"),
        ("tx7", "tx"),
        ("billing.orders.3", "billing.orders"),
        ("connect-cluster-blue", "connect-cluster-blue"),
        (UUID, ""),
        (UUID.upper(), ""),
        ("42", ""),
        ("facade", "facade"),
        ("healthy-03d071", "healthy"),
        ("orders-7d4b9c6f5-x2x9z-0", "orders"),
        ("tx-20261125-3", "tx"),
        ("tx-20261125-eu", "tx-20261125-eu"),
        ("", ""),
    ],
)
def test_where_a_prefix_ends(transactional_id: str, prefix: str) -> None:
    assert prefix_of(transactional_id) == prefix


def record(
    transactional_id: str, hours_ago: float, state: str | None = "Empty", epoch: int = 0, *, tombstone: bool = False
) -> TransactionLogRecord:
    return TransactionLogRecord(
        transactional_id=transactional_id,
        timestamp=NOW - dt.timedelta(hours=hours_ago),
        state=state,
        producer_epoch=epoch,
        tombstone=tombstone,
    )


def test_an_id_is_new_by_its_first_record_only() -> None:
    found = new_ids(
        [
            record("tx-1", 9, "Ongoing"),  # its first record is compacted away
            record("tx-1", 8),
            record("tx-2", 7, epoch=1),  # initialized again
            record("tx-3", 6),
            record("tx-3", 5, "Ongoing"),
            record("tx-4", 30),  # older than a day
            record("tx-5", 4, None, tombstone=True),
            record("tx-5", 3),  # expired, and created again
        ],
        NOW,
    )
    assert [NOW - each for each in found["tx"]] == [dt.timedelta(hours=6), dt.timedelta(hours=3)]


@pytest.mark.parametrize(
    ("records", "grows"),
    [
        ([record(f"tx-0-{each}", 10 - each / 4) for each in range(1, 25)], True),
        ([record(f"tx-0-{each}", 10 - each / 4) for each in range(1, 24)], False),
        ([record(f"tx-{each}", 1) for each in range(500)], False),  # a start of 500 instances
        ([record("tx-1", 10 - each / 4, "CompleteCommit") for each in range(40)], False),  # one id that is used again
    ],
)
def test_what_grows(records: list[TransactionLogRecord], grows: bool) -> None:
    cluster = ObservedCluster(observed_at=NOW, records=records, records_until=NOW)
    rows = [row for row in exposure_rows(cluster) if row.subject == "prefix"]
    assert bool(rows) == grows
    assert all(row.exposed and row.name in {"tx", "tx-0"} for row in rows)
