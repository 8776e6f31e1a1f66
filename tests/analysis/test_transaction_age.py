"""For how long a transaction is proven to be open: by brokers' times, or by how long it was observed."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import NOW, ago, clock, observation, only, transaction
from tests.analysis.logged import diagnosed
from toolkit.analysis.diagnosis.observation import BrokersTime, MonotonicSpan, Observation
from toolkit.schema.live import Transaction
from toolkit.views.finding_document import expires_in, finding_lines

SECOND = dt.timedelta(seconds=1)
TIMEOUT = dt.timedelta(minutes=1)


def record_time(time: dt.datetime) -> BrokersTime:
    return BrokersTime(time=time, source="the newest record of __transaction_state-3")


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
    (_, line, *_) = finding_lines([replace(row, partition=1), row])
    assert ("expires at" in line) == (opened > 0)
