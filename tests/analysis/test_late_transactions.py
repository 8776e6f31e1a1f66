"""Late transactions: which ones, by whose clock, and since when."""

import datetime as dt
from typing import Any

import pytest

from tests.analysis.build import NOW, ago, first_batch, observation, partition, producer, transaction
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.observation import Observation
from toolkit.analysis.history.findings_over_time import first_seen, late_transactions
from toolkit.schema import LATE_TRANSACTIONS
from toolkit.schema.recorded import LateTransaction
from toolkit.schema.table import TransactionKey

KEY = TransactionKey("orders", 0, 7, 100)


def late(one: Observation, *, first_seen_at: dt.datetime = NOW, **options: Any) -> list[LateTransaction]:
    rows = late_transactions(
        Diagnosis.of([one]).findings(), one, sampled_at=NOW, first_seen={KEY: first_seen_at}, **options
    )
    LATE_TRANSACTIONS.arrow(row.row() for row in rows)
    return rows


def test_a_transaction_is_late_by_its_own_timeout_and_the_padding() -> None:
    (row,) = late(observation(transaction(timeout_ms=60_000, start_time=ago(minutes=6, seconds=6))))
    assert (row.opened_at, row.opened_at_clock, row.timeout_ms) == (ago(minutes=6, seconds=6), "coordinator", 60_000)
    assert (row.late_since, row.late_ms) == (ago(seconds=6), 1_000)
    assert (row.transactional_id, row.start_offset, row.broker_id) == ("payments-7", 100, 1)
    assert late(observation(transaction(timeout_ms=60_000, start_time=ago(minutes=6, seconds=5)))) == []
    assert late(observation(transaction(timeout_ms=3_600_000, start_time=ago(minutes=50)))) == [], (
        "it may be open for an hour"
    )


def test_the_default_padding_is_five_minutes() -> None:
    one = observation(transaction(timeout_ms=60_000, start_time=ago(minutes=2)))
    assert late(one) == []
    assert [row.late_ms for row in late(one, padding_ms=0)] == [55_000]


def test_a_transaction_without_owner_is_late_past_the_longest_timeout() -> None:
    (row,) = late(observation(first_batches=[first_batch(time=ago(minutes=21), log_append_time=True)]))
    assert (row.transactional_id, row.timeout_ms, row.opened_at_clock) == (None, 900_000, "broker")
    assert late(observation(first_batches=[first_batch(time=ago(minutes=19))])) == []
    assert late(observation(first_batches=[first_batch(time=ago(minutes=21))]), longest_timeout_ms=3_600_000) == []


def test_a_superseded_transaction_is_late_by_the_timeout_of_its_id() -> None:
    (row,) = late(observation(transaction(state="Empty", on=()), first_batches=[first_batch(time=ago(minutes=7))]))
    assert (row.opened_at_clock, row.timeout_ms) == ("producer", 60_000)


@pytest.mark.parametrize("time", [None, NOW + dt.timedelta(minutes=50)], ids=["no time", "clock ahead"])
def test_without_a_start_time_a_transaction_counts_from_its_first_sample(time: dt.datetime | None) -> None:
    one = observation(first_batches=[first_batch(time=time)])
    (row,) = late(one, first_seen_at=ago(minutes=30))
    assert (row.opened_at, row.opened_at_clock) == (ago(minutes=30), "recorder")
    assert late(one, first_seen_at=ago(minutes=3)) == []


def test_a_transaction_seen_for_the_first_time_is_not_late() -> None:
    one = observation(first_batches=[first_batch(time=None)])
    assert late_transactions(Diagnosis.of([one]).findings(), one, sampled_at=NOW, first_seen={}, padding_ms=0) == []


def test_an_unknown_timeout_is_the_longest_one() -> None:
    """The coordinator listed the id and did not describe it."""
    (row,) = late(observation(transaction(timeout_ms=None, start_time=ago(minutes=21))))
    assert row.timeout_ms == 900_000


def test_a_late_transaction_is_found_behind_others() -> None:
    unread = partition("a", error="LEADER_NOT_AVAILABLE: x", lso=None, hw=None)
    other = transaction(8, transactional_id="payments-8", start_time=ago(minutes=30))
    one = observation(
        transaction(start_time=ago(minutes=1)),
        other,
        partitions=[unread, partition()],
        producers=[producer(), producer(8, start=120)],
    )
    (row,) = late(one)
    assert (row.producer_id, row.transactional_id) == (8, "payments-8")


def test_two_phase_commit_has_no_timeout() -> None:
    assert late(observation(transaction(timeout_ms=2**31 - 1, start_time=ago(days=60)))) == []


def test_without_an_open_transaction_nothing_is_late() -> None:
    assert late(observation(producers=[producer(start=None)])) == [], "unreplicated"
    assert (
        late(observation(producers=[], partitions=[partition(error="LEADER_NOT_AVAILABLE: x", lso=None, hw=None)]))
        == []
    )
    without_records = observation(transaction(start_time=ago(days=1)), producers=[], partitions=[partition(hw=100)])
    assert late(without_records) == [], "it has not written to this partition yet"


def test_the_first_sample_is_kept_while_the_transaction_is_open() -> None:
    before = first_seen(observation(at=ago(seconds=10)), {})
    assert before == {KEY: ago(seconds=10)}
    assert first_seen(observation(), before) == before
    other = observation(producers=[producer(start=140)])
    assert first_seen(other, before) == {("orders", 0, 7, 140): NOW}
    unread = observation(producers=[producer(None, start=None, error="NETWORK_EXCEPTION: gone")])  # type: ignore[arg-type]
    assert first_seen(unread, before) == before, "it may still be open"
    assert first_seen(observation(producers=[], partitions=[]), before) == {}, "the topic was deleted"
    assert first_seen(observation(producers=[producer(start=None)]), before) == {}, "it has ended"
