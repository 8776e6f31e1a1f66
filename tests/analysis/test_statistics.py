"""Statistics of transactions: against plain Python."""

import math
import statistics as python
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.random_logs import Step, batches, random_headers
from toolkit.analysis.log.log_transactions import EMPTY, LOG_TRANSACTION, OUTCOMES, finish, partial_transactions
from toolkit.analysis.log.transaction_statistics import (
    NO_TRANSACTIONS,
    Statistics,
    combined,
    open_rows,
    statistic_rows,
    statistics,
)
from toolkit.formats.log.batches import LOG_APPEND_TIME
from toolkit.formats.log.headers import Headers
from toolkit.schema import utc
from toolkit.schema.log import LogTransaction

COMMITTED = Step("commit", 1)
ENDS = ("first_offset", "last_offset", "start", "end")


def statistics_of(*steps: Step, from_start: bool = True) -> Statistics:
    return statistics(finish(partial_transactions(batches(steps)), from_start=from_start))


def figures(statistics: Statistics) -> dict[str, Any]:
    """All but the open transactions themselves, as plain values; missing offsets and times are ``None``."""
    ends = (statistics.first_offset, statistics.last_offset, statistics.start, statistics.end)
    return {
        "committed": asdict(statistics.committed),
        "aborted": asdict(statistics.aborted),
        "empty": statistics.empty_count,
        "open": len(statistics.open),
        "undecided": statistics.undecided_count,
        "truncated": statistics.truncated_count,
        **{name: None if each < 0 else each for name, each in zip(ENDS, ends, strict=True)},
    }


def distribution(values: list[int]) -> dict[str, Any] | None:
    """The distribution by its definition: a percentile is the least value with that share at or below it."""
    if not values:
        return None
    ranked = sorted(values)
    nearest = {f"p{percent}": ranked[math.ceil(percent / 100 * len(ranked)) - 1] for percent in (50, 95, 99)}
    whole = {"count": len(ranked), "sum": sum(ranked), "min": ranked[0], "max": ranked[-1]}
    return whole | nearest | {"mean": pytest.approx(python.mean(ranked))}


@given(random_headers, st.booleans())
def test_statistics_match_plain_python(headers: Headers, from_start: bool) -> None:
    log_transactions = finish(partial_transactions(headers), from_start=from_start)
    rows = [dict(zip(LOG_TRANSACTION.names or (), row, strict=True)) for row in log_transactions.tolist()]
    found = figures(statistics(log_transactions))
    for outcome in ("commit", "abort"):
        of_outcome = [row for row in rows if row["outcome"] == OUTCOMES.index(outcome)]
        whole = [row for row in of_outcome if row["truncated"] == 0]
        by_column = found["committed" if outcome == "commit" else "aborted"]
        assert by_column["count"] == len(of_outcome)
        for name in ("batches", "records", "bytes"):
            assert by_column[name] == distribution([row[name] for row in whole])
        assert by_column["duration_ms"] == distribution([row["end"] - row["start"] for row in whole])
    outcomes = [row["outcome"] for row in rows]
    assert (found["open"], found["empty"]) == (outcomes.count(2), outcomes.count(3))
    assert found["undecided"] == outcomes.count(-2)
    assert found["truncated"] == sum(row["truncated"] != 0 and row["first_offset"] >= 0 for row in rows)


def test_transactions_of_version_2_are_committed_and_not_open() -> None:
    result = statistics_of(*[Step("data", 1), Step("commit", 1, version=2)] * 3, Step("data", 2))
    assert (result.committed.count, result.aborted.count, len(result.open)) == (3, 0, 1)
    assert result.open["first_offset"].tolist() == [6]
    assert (result.first_offset, result.last_offset) == (0, 6)
    assert (figures(result)["first_offset"], figures(result)["last_offset"]) == (0, 6)


def test_the_size_of_a_transaction_with_unread_start_is_not_counted() -> None:
    steps = [Step("data", 1, records=9), Step("commit", 1), Step("data", 1, records=2), Step("commit", 1)]
    result = statistics_of(*steps, from_start=False)
    assert (result.committed.count, result.truncated_count) == (2, 1)
    assert result.committed.records is not None
    assert result.committed.records.max == 2


def test_percentiles_are_the_least_values_with_that_share_at_or_below() -> None:
    result = statistics_of(*(step for size in range(100) for step in (Step("data", 1, records=size + 1), COMMITTED)))
    records = result.committed.records
    assert records is not None
    assert (records.p50, records.p95, records.p99, records.max) == (50, 95, 99, 100)
    assert (records.sum, records.mean) == (5050, 50.5)


def test_negative_durations_are_kept_and_impossible_times_left_out() -> None:
    headers = batches([Step("data", 1), Step("commit", 1, wait=-5), Step("data", 2), Step("abort", 2)])
    headers["base_timestamp"][2] = 2**62
    result = statistics(finish(partial_transactions(headers), from_start=True))
    assert result.committed.duration_ms is not None
    assert result.committed.duration_ms.max == -5
    assert (result.aborted.count, result.aborted.duration_ms) == (1, None)
    assert (result.start, result.end) == (996, 1001)
    headers["base_timestamp"], headers["max_timestamp"] = 2**62, 2**62
    result = statistics(finish(partial_transactions(headers), from_start=True))
    assert (result.start, result.end) == (-1, -1), "the start was 2**62"


def test_no_transactions_give_no_statistics() -> None:
    empty = statistics(finish(EMPTY))
    assert figures(empty) == figures(combined()) == figures(NO_TRANSACTIONS + NO_TRANSACTIONS)
    assert [figures(empty)[name] for name in ENDS] == [None] * 4
    assert empty.committed.records is None


def test_the_start_is_that_of_the_first_part_that_has_one() -> None:
    headers = batches([Step("data", 1), COMMITTED, Step("data", 1), COMMITTED])
    parts = [statistics(finish(partial_transactions(part))) for part in (headers[2:], headers[:2])]
    assert figures(combined(NO_TRANSACTIONS, *parts))["start"] == figures(parts[1])["start"] == 1001


def test_transactions_of_unknown_time_have_no_duration() -> None:
    headers = batches([Step("data", 1), COMMITTED])
    headers["base_timestamp"][0] = headers["max_timestamp"][0] = -1
    assert statistics(finish(partial_transactions(headers), from_start=True)).committed.duration_ms is None
    headers["base_timestamp"] = headers["max_timestamp"] = -1
    found = figures(statistics(finish(partial_transactions(headers), from_start=True)))
    assert (found["start"], found["end"]) == (None, None)


def test_rows_have_each_measure_and_the_other_counts() -> None:
    result = statistics_of(Step("data", 1, records=2), COMMITTED, Step("data", 2))
    rows = list(statistic_rows(result, topic="orders", partition=0, broker_id=1))
    assert [(row.outcome, row.transactions, row.measure, row.max) for row in rows] == [
        ("commit", 1, "records", 2),
        ("commit", 1, "bytes", 75),
        ("commit", 1, "batches", 1),
        ("commit", 1, "duration_ms", 1),
        ("abort", 0, None, None),
        ("empty", 0, None, None),
        ("open", 1, None, None),
        ("undecided", 0, None, None),
    ]
    assert {(row.topic, row.partition, row.broker_id) for row in rows} == {("orders", 0, 1)}


@pytest.mark.parametrize(("attributes", "clock"), [(0, "producer"), (LOG_APPEND_TIME, "broker")])
def test_open_transactions_have_their_key_and_start(attributes: int, clock: str) -> None:
    result = statistics_of(Step("data", 1), COMMITTED, Step("data", 2, records=2, attributes=attributes))
    assert open_rows(result, topic="orders", partition=0, broker_id=1) == [
        LogTransaction(
            topic="orders",
            partition=0,
            broker_id=1,
            producer_id=2000,
            producer_epoch=0,
            first_offset=2,
            last_offset=3,
            start=utc(1003 if clock == "producer" else 1005),
            start_clock=clock,
        )
    ]
