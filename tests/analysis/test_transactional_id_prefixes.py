"""Transactional ids by prefix: where a prefix ends, what is new, and what grows."""

import datetime as dt

import pytest

from toolkit.analysis.coordinator.transaction_owners import transaction_owners
from toolkit.analysis.coordinator.transactional_id_prefixes import logged_ids, prefix_of, transactional_id_prefixes
from toolkit.analysis.exposure_rules import ObservedCluster, exposure_rows
from toolkit.schema import TRANSACTIONAL_ID_PREFIXES
from toolkit.schema.live import Transaction
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


def transaction(transactional_id: str | None, state: str = "CompleteCommit", error: str | None = None) -> Transaction:
    return Transaction(
        transactional_id=transactional_id,
        state=None if error else state,
        timeout_ms=900_000,
        source="DescribeTransactions",
        observed_at=NOW,
        error=error,
    )


def test_ids_are_counted_by_prefix() -> None:
    ids = [f"flink-tx-{subtask}-{number}" for number in range(1, 5) for subtask in range(2)]
    found = [*(transaction(each) for each in ids), transaction("payments", "Ongoing"), transaction(None, error="GONE")]
    records = [*(record(each, 10 - int(each[-1])) for each in ids), record("payments", 90, "Ongoing", 3)]
    owners = transaction_owners(found, all_ids=ids)
    rows = list(transactional_id_prefixes(found, owners, logged_ids(records), as_of=NOW))
    TRANSACTIONAL_ID_PREFIXES.frame([each.row() for each in rows])
    error, flink, payments = rows
    assert (error.prefix, error.ids, error.error) == (None, None, "GONE")
    assert (flink.prefix, flink.ids, flink.open_ids, flink.states) == ("flink-tx", 8, 0, ("CompleteCommit 8",))
    assert flink.owner == "Apache Flink flink-tx (likely)"
    assert (flink.new_ids, flink.new_ids_per_hour) == (8, 0.9)  # the first of them 9 hours ago
    assert flink.oldest_update == NOW - dt.timedelta(hours=9)
    assert flink.newest_update == NOW - dt.timedelta(hours=6)
    assert (payments.open_ids, payments.owner, payments.new_ids, payments.new_ids_per_hour) == (1, None, 0, 0.0)


def test_without_the_coordinators_log_growth_is_unknown() -> None:
    unread = logged_ids([record("tx-1", 1), TransactionLogRecord(error="NETWORK_EXCEPTION: gone")])
    (row,) = transactional_id_prefixes([transaction("tx-1")], [], unread, as_of=NOW)
    assert (row.ids, row.new_ids, row.new_ids_per_hour, row.oldest_update) == (1, None, None, None)


def test_an_id_is_new_by_its_first_record_only() -> None:
    found = logged_ids(
        [
            record("tx-1", 9, "Ongoing"),  # its first record is compacted away
            record("tx-1", 8),
            record("tx-2", 7, epoch=1),  # initialized again
            record("tx-3", 6),
            record("tx-3", 5, "Ongoing"),
            record("tx-4", 30),  # older than a day
            record("tx-5", 4, None, tombstone=True),
            record("tx-5", 3),  # expired, and created again
        ]
    )
    assert found is not None
    logged = found["tx"]
    assert [NOW - each for each in logged.recent(NOW)] == [dt.timedelta(hours=6), dt.timedelta(hours=3)]


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
