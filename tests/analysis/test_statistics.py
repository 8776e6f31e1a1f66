"""Statistics of transactions: against plain Python."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.random_logs import Step, batches, random_headers
from toolkit.analysis.log.log_transactions import (
    EMPTY,
    LOG_TRANSACTION,
    OUTCOMES,
    Statistics,
    Summary,
    finish,
    open_rows,
    partial_transactions,
    statistics,
    statistics_row,
)
from toolkit.formats.batches import LOG_APPEND_TIME
from toolkit.formats.headers import Headers
from toolkit.schema import STATISTICS, Row, utc
from toolkit.schema.log import LogTransaction

COMMITTED = Step("commit", 1)


def statistics_of(*steps: Step, from_start: bool = True) -> Statistics:
    return statistics(finish(partial_transactions(batches(steps)), from_start=from_start))


def figures(statistics: Statistics) -> Row:
    """All but the open transactions themselves, as a row of the table."""
    row = statistics_row(statistics, topic="orders", partition=0, broker_id=1).row()
    assert len(STATISTICS.arrow([row])) == 1
    return row


def summary(name: str, values: list[int]) -> dict[str, Any]:
    mean = pytest.approx(sum(values) / len(values)) if values else None
    whole = {"count": len(values), "sum": sum(values), "min": min(values, default=None), "mean": mean}
    return {f"{name}_{key}": value for key, value in (whole | {"max": max(values, default=None)}).items()}


@given(random_headers, st.booleans())
def test_statistics_match_plain_python(headers: Headers, from_start: bool) -> None:
    log_transactions = finish(partial_transactions(headers), from_start=from_start)
    rows = [dict(zip(LOG_TRANSACTION.names or (), row, strict=True)) for row in log_transactions.tolist()]
    outcomes = [row["outcome"] for row in rows]
    ended = [row for row in rows if row["outcome"] in {0, 1} and row["truncated"] == 0]
    assert figures(statistics(log_transactions)) == {
        "topic": "orders", "partition": 0, "broker_id": 1, "error": None,
        "committed": outcomes.count(OUTCOMES.index("commit")), "aborted": outcomes.count(OUTCOMES.index("abort")),
        "open": outcomes.count(2), "empty": outcomes.count(3), "undecided": outcomes.count(-2),
        **summary("batches", [row["batches"] for row in ended]),
        **summary("duration_ms", [row["end"] - row["start"] for row in ended]),
    }  # fmt: skip


def test_transactions_of_version_2_are_committed_and_not_open() -> None:
    result = statistics_of(*[Step("data", 1), Step("commit", 1, version=2)] * 3, Step("data", 2))
    assert (result.committed, result.aborted, len(result.open)) == (3, 0, 1)
    assert result.open["first_offset"].tolist() == [6]


def test_the_size_of_a_transaction_with_unread_start_is_not_counted() -> None:
    steps = [*[Step("data", 1)] * 9, Step("commit", 1), *[Step("data", 1)] * 2, Step("commit", 1)]
    result = statistics_of(*steps, from_start=False)
    assert (result.committed, result.batches) == (2, Summary(count=1, sum=2, min=2, max=2))


def test_negative_durations_are_kept_and_impossible_times_left_out() -> None:
    headers = batches([Step("data", 1), Step("commit", 1, wait=-5), Step("data", 2), Step("abort", 2)])
    headers["base_timestamp"][2] = 2**62
    result = statistics(finish(partial_transactions(headers), from_start=True))
    assert (result.committed, result.aborted, result.batches.count) == (1, 1, 2)
    assert result.duration_ms == Summary(count=1, sum=-5, min=-5, max=-5)


@pytest.mark.parametrize("missing", [0, 1])
def test_transactions_of_unknown_time_have_no_duration(missing: int) -> None:
    headers = batches([Step("data", 1), COMMITTED])
    headers["base_timestamp"][missing] = headers["max_timestamp"][missing] = -1
    result = statistics(finish(partial_transactions(headers), from_start=True))
    assert (result.batches.count, result.duration_ms) == (1, Summary())


def test_no_transactions_have_no_size() -> None:
    empty = statistics(finish(EMPTY))
    assert figures(empty) == figures(Statistics()) == figures(empty + Statistics())
    assert (empty.committed, empty.batches.mean, empty.duration_ms.min) == (0, None, None)


def test_two_sets_are_combined_in_any_order() -> None:
    one = statistics_of(Step("data", 1), Step("data", 1), COMMITTED, Step("data", 2), Step("abort", 2))
    other = statistics_of(*[Step("data", 1)] * 6, COMMITTED, Step("data", 3))
    for result in (one + other, other + one):
        assert (result.committed, result.aborted, len(result.open)) == (2, 1, 1)
        assert result.batches == Summary(count=3, sum=9, min=1, max=6)
        assert result.batches.mean == 3


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
