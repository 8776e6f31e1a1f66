"""For how long a transaction is proven to be open: by brokers' times, or by how long it was observed."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import NOW, ago, clock, observation, only, producer, transaction
from tests.analysis.logged import diagnosed
from toolkit.analysis.diagnosis.observation import (
    NOT_READ,
    TIMEOUT_GRACE,
    UNKNOWN_TIME,
    BrokersTime,
    MonotonicSpan,
    Observation,
    TransactionAge,
    age_verdict,
    is_overdue,
)
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.schema.live import Finding, Transaction
from toolkit.views.finding_document import age, expires_in, finding_lines

SECOND = dt.timedelta(seconds=1)
TIMEOUT = dt.timedelta(minutes=1)
PAST = TIMEOUT + TIMEOUT_GRACE
LONG = dt.timedelta(minutes=15)


def record_time(time: dt.datetime) -> BrokersTime:
    return BrokersTime(time=time, source="the newest record of __transaction_state-3")


@pytest.mark.parametrize("now", [clock(NOW), record_time(NOW)], ids=["clock", "record"])
def test_the_clocks_of_two_brokers_may_differ(now: BrokersTime) -> None:
    """The start is of one, and the time now of another."""
    for more, overdue in ((dt.timedelta(0), False), (dt.timedelta(milliseconds=1), True)):
        start = NOW - PAST - CLOCKS_DIFFER - more
        assert is_overdue(transaction(), TransactionAge.of(start, now)) is overdue


@pytest.mark.parametrize(
    ("began", "is_proven"),
    [(ago(minutes=20), False), (ago(seconds=5 + 5, milliseconds=1), False), (ago(seconds=5 + 5), True), (NOW, True)],
)
def test_a_coordinator_that_begins_transactions_in_the_past_proves_no_age(began: dt.datetime, is_proven: bool) -> None:
    """Its clock was 20 minutes behind: a transaction of seconds was overdue, and fenced without an override."""
    live = transaction(start_time=ago(minutes=20))
    other = transaction(8, transactional_id="other", start_time=began, on=())
    before, now = observation(live, at=ago(seconds=5)), observation(live, other)
    assert only(diagnosed([before, now])).verdict == ("overdue" if is_proven else "ongoing")
    gaps = replace(before, coverage=replace(before.coverage, gaps=["broker 2 did not answer"]))
    assert only(diagnosed([gaps, now])).verdict == "overdue", "it may have been open before"
    known = replace(before, transactions=(live, other))
    assert only(diagnosed([known, now])).verdict == "overdue"


@pytest.mark.parametrize(
    ("start", "now", "since_start"),
    [
        (ago(seconds=3), clock(NOW), 3 * SECOND),
        (NOW + 5 * SECOND, clock(NOW), 0 * SECOND),
        (NOW + 6 * SECOND, clock(NOW), None),
        (NOW + SECOND, record_time(NOW), None),
        (ago(days=1), UNKNOWN_TIME, None),
        (None, clock(NOW), None),
    ],
)
def test_an_age_is_known_if_both_times_are_brokers(
    start: dt.datetime | None, now: BrokersTime, since_start: dt.timedelta | None
) -> None:
    found = TransactionAge.of(start, now)
    assert found.since_start == since_start
    assert found.proven == max((since_start or dt.timedelta(0)) - CLOCKS_DIFFER, dt.timedelta(0))


def test_observations_prove_an_age_without_any_clock() -> None:
    seen = TransactionAge.of(None, UNKNOWN_TIME, observed_for=PAST + SECOND)
    assert (seen.proven, seen.is_observed, is_overdue(transaction(), seen)) == (PAST + SECOND, True, True)
    assert not is_overdue(transaction(), TransactionAge.of(None, UNKNOWN_TIME, observed_for=PAST))
    assert not TransactionAge.of(ago(hours=1), clock(NOW), observed_for=SECOND).is_observed


@pytest.mark.parametrize("owner", [None, transaction(timeout_ms=None), transaction(timeout_ms=2**31 - 1)])
def test_without_a_timeout_nothing_is_overdue(owner: Transaction | None) -> None:
    assert not is_overdue(owner, TransactionAge(since_start=dt.timedelta(days=99), observed_for=dt.timedelta(days=99)))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (TransactionAge(since_start=PAST + 6 * SECOND), "overdue"),
        (TransactionAge(since_start=PAST), "ongoing"),
        (TransactionAge(observed_for=PAST + SECOND), "overdue"),
        (TransactionAge(), "ongoing"),
    ],
)
def test_one_rule_decides_for_findings_and_for_a_fence(found: TransactionAge, verdict: str) -> None:
    assert age_verdict(transaction(), found, long_after=LONG) == verdict


def test_what_is_open_for_long_is_long_by_either_clock() -> None:
    owner = transaction(timeout_ms=3_600_000)
    for found, verdict in (
        (TransactionAge(since_start=LONG), "ongoing"),
        (TransactionAge(since_start=LONG + SECOND), "long"),
        (TransactionAge(observed_for=LONG + SECOND), "long"),
        (TransactionAge(since_start=SECOND, observed_for=LONG + SECOND), "long"),
    ):
        assert age_verdict(owner, found, long_after=LONG) == verdict


# Observations


def seen(*owners: Transaction, began: float, ended: float, time: dt.datetime = NOW, **more: Any) -> Observation:
    unknown = BrokersTime(error="none")
    return replace(observation(*owners, at=time, brokers_time=unknown, **more), monotonic=MonotonicSpan(began, ended))


def test_two_observations_of_one_process_prove_that_a_transaction_is_overdue() -> None:
    """From the end of the first to the begin of the second: the coordinator answered before and after."""
    owner = transaction(start_time=ago(days=1))
    first = seen(owner, began=0.0, ended=10.0)
    proven = only(diagnosed([first, seen(owner, began=85.5, ended=90.0)]))
    assert (proven.verdict, proven.action) == ("overdue", "fence")
    assert "and it has been observed for 1 min 16 s: it should have been aborted" in proven.reason
    assert only(diagnosed([first, seen(owner, began=85.0, ended=200.0)])).verdict == "ongoing"
    assert only(diagnosed([first])).verdict == "ongoing"


def test_where_no_brokers_clock_is_read_the_recheck_that_proves_an_age_is_named() -> None:
    """Before 3.3, and with ZooKeeper, an idle cluster showed "Wait" for good."""
    owner = transaction(start_time=ago(days=1))
    first = seen(owner, began=0.0, ended=1.0)
    words = "No broker's clock was read: --recheck-after 76 shows whether it should have ended."
    assert words in only(diagnosed([first])).remedy
    assert words not in only(diagnosed([replace(first, brokers_time=clock(ago(days=1)))])).remedy
    assert words not in only(diagnosed([observation(owner, brokers_time=BrokersTime.recorded(None, None))])).remedy
    ending = transaction(start_time=ago(days=1), last_update_time=None, state="PrepareCommit")
    assert "--recheck-after 61 shows" in only(diagnosed([seen(ending, began=0.0, ended=1.0)])).remedy
    proven = only(diagnosed([first, seen(owner, began=77.0, ended=78.0)]))
    assert (proven.verdict, words in proven.remedy) == ("overdue", False)


@pytest.mark.parametrize(
    "other",
    [
        transaction(start_time=ago(days=2)),
        transaction(start_time=ago(days=1), epoch=1),
        transaction(start_time=ago(days=1), state="PrepareAbort"),
        transaction(start_time=ago(days=1), transactional_id="other"),
    ],
)
def test_another_transaction_proves_no_age(other: Transaction) -> None:
    owner = transaction(start_time=ago(days=1))
    before = seen(other, began=0.0, ended=1.0, producers=[producer(epoch=other.producer_epoch or 0)])
    found = only(diagnosed([before, seen(owner, began=900.0, ended=901.0)]))
    assert found.verdict == "ongoing"


def test_observations_of_a_recording_prove_no_age() -> None:
    """The recorder's clock may have been set in between."""
    owner, unknown = transaction(start_time=ago(days=1)), BrokersTime.recorded(None, NOT_READ)
    two = [observation(owner, at=at, brokers_time=unknown) for at in (ago(hours=1), NOW)]
    row = only(diagnosed(two))
    assert (row.verdict, row.brokers_time) == ("ongoing", None)
    assert f"unknown: {NOT_READ}" in {each.value for each in row.evidence}


def test_this_machines_clock_changes_nothing() -> None:
    owner = transaction(start_time=ago(seconds=3))
    for at in (ago(days=1), NOW, NOW + dt.timedelta(days=1)):
        row = only(diagnosed([observation(owner, at=at, brokers_time=clock(NOW))]))
        assert (row.verdict, row.action) == ("ongoing", None)
        assert "is Ongoing for 3 s, within its own timeout of 1 min." in row.reason


# Clocks that contradict each other


def test_a_start_that_the_clock_cannot_have_reached_shows_that_clocks_are_too_far_apart() -> None:
    now = clock(NOW)
    for start, elapsed, trusted in ((5, 0, True), (6, 0, False), (6, 1, True)):
        starts = {"the start of 'a'": ago(days=1), "the start of 'b'": NOW + start * SECOND}
        found = now.unless_behind(starts, elapsed=elapsed * SECOND)
        assert (found.time == NOW) is trusted
        if not trusted:
            assert found.text.startswith(
                "unknown: the start of 'b', 2026-11-21T12:00:06.000+00:00, is 6 s ahead of the"
            )
    assert now.unless_behind({}, elapsed=0 * SECOND) is now
    written = record_time(NOW)
    assert written.unless_behind({"the start of 'b'": NOW + 60 * SECOND}, elapsed=0 * SECOND) is written


def test_the_coordinators_log_shows_a_time_only_where_nothing_else_does() -> None:
    unknown = BrokersTime(error="DescribeQuorum: UNSUPPORTED_VERSION")
    found = unknown.or_of_log(NOW, elapsed=2 * SECOND)
    assert (found.time, found.is_current) == (ago(seconds=2), False)
    contradicted = replace(unknown, is_contradicted=True)
    assert contradicted.or_of_log(NOW, elapsed=0 * SECOND) is contradicted
    assert unknown.or_of_log(None, elapsed=0 * SECOND) is unknown
    assert clock(NOW).or_of_log(ago(hours=1), elapsed=0 * SECOND) == clock(NOW)


@pytest.mark.parametrize("one", [clock(NOW), record_time(NOW)])
def test_a_recording_keeps_the_time_and_whose_it_is(one: BrokersTime) -> None:
    assert BrokersTime.recorded(one.time, one.clock) == one
    denied = BrokersTime(error="DescribeQuorum: CLUSTER_AUTHORIZATION_FAILED")
    assert BrokersTime.recorded(denied.time, denied.clock) == denied


# Views


@pytest.mark.parametrize("opened", [-30, -1, 0, 3, 6])
def test_what_is_left_is_never_more_than_the_timeout(opened: int) -> None:
    """A start of 4 min 49 s ahead gave "expires in 5 min 49 s" for a timeout of 1 min."""
    row = only(diagnosed([observation(transaction(start_time=NOW + opened * SECOND))]))
    left = expires_in(row)
    assert left is None or left <= TIMEOUT
    assert (left is None) == (opened > 0)
    behind = replace(row, offsets_held=0)  # a line, as nothing waits
    (_, line, *_) = finding_lines([replace(behind, partition=1), behind])
    assert ("expires at" in line) == (opened > 0)


def test_a_view_counts_no_age_without_a_brokers_time() -> None:
    row = only(diagnosed([observation(transaction())]))
    unknown: Finding = replace(row, brokers_time=None)
    assert (age(row), age(unknown), expires_in(unknown)) == (10 * SECOND, None, None)
    assert age(row, NOW + SECOND) == 11 * SECOND
