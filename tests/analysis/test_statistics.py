"""Statistics of transactions: against plain Python, and added up over chunks."""

import math
import statistics as python
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.random_logs import Step, batches, cuts, transaction_history
from toolkit.analysis.log.log_transactions import EMPTY, LOG_TRANSACTION, OUTCOMES, begin, finish, partial_transactions
from toolkit.analysis.log.transaction_statistics import NO_TRANSACTIONS, Statistics, combined, statistics
from toolkit.formats.log.headers import Headers


def of(*steps: Step, from_start: bool = True) -> Statistics:
    return statistics(finish(partial_transactions(batches(steps)), from_start=from_start))


def spread(values: list[int]) -> dict[str, Any] | None:
    """The distribution by its definition: the nearest rank is the least value that so many do not exceed."""
    if not values:
        return None
    ranked = sorted(values)
    nearest = {f"p{percent}": ranked[math.ceil(percent / 100 * len(ranked)) - 1] for percent in (50, 95, 99)}
    whole = {"count": len(ranked), "sum": sum(ranked), "min": ranked[0], "max": ranked[-1]}
    return whole | nearest | {"mean": pytest.approx(python.mean(ranked))}


@given(transaction_history, st.booleans())
def test_statistics_match_plain_python(headers: Headers, from_start: bool) -> None:
    log_transactions = finish(partial_transactions(headers), from_start=from_start)
    rows = [dict(zip(LOG_TRANSACTION.names or (), row, strict=True)) for row in log_transactions.tolist()]
    found = statistics(log_transactions).summary()
    for outcome in ("commit", "abort"):
        these = [row for row in rows if row["outcome"] == OUTCOMES.index(outcome)]
        whole = [row for row in these if row["truncated"] == 0]
        figures = found["committed" if outcome == "commit" else "aborted"]
        assert figures["count"] == len(these)
        for name in ("batches", "records", "bytes"):
            assert figures[name] == spread([row[name] for row in whole])
        assert figures["duration_ms"] == spread([row["end"] - row["start"] for row in whole])
    outcomes = [row["outcome"] for row in rows]
    assert (found["open"], found["empty"]) == (outcomes.count(2), outcomes.count(3))
    assert found["undecided"] == outcomes.count(-2)
    assert found["truncated"] == sum(row["truncated"] != 0 and row["first_offset"] >= 0 for row in rows)


@given(transaction_history, st.data())
def test_statistics_of_chunks_add_up(headers: Headers, data: st.DataObject) -> None:
    rest, parts = begin(), []
    for part in data.draw(cuts(headers)):
        closed, rest = (rest + partial_transactions(part)).take_closed()
        parts.append(statistics(closed))
    parts.append(statistics(finish(rest)))
    whole = statistics(finish(partial_transactions(headers), from_start=True))
    assert combined(*parts).summary() == whole.summary()
    assert sum(parts, NO_TRANSACTIONS).summary() == whole.summary()
    assert combined(*parts).open.tolist() == whole.open.tolist()


def test_transactions_of_version_2_are_committed_and_not_open() -> None:
    found = of(*[Step("data", 1), Step("commit", 1, version=2)] * 3, Step("data", 2))
    assert (found.committed.count, found.aborted.count, len(found.open)) == (3, 0, 1)
    assert found.open["first_offset"].tolist() == [6]
    assert (found.first_offset, found.last_offset) == (0, 6)


def test_the_size_of_a_transaction_with_unread_start_is_not_counted() -> None:
    steps = [Step("data", 1, records=9), Step("commit", 1), Step("data", 1, records=2), Step("commit", 1)]
    found = of(*steps, from_start=False)
    assert (found.committed.count, found.truncated_count) == (2, 1)
    assert found.committed.records is not None
    assert found.committed.records.max == 2


def test_negative_durations_are_kept_and_impossible_times_left_out() -> None:
    headers = batches([Step("data", 1), Step("commit", 1, wait=-5), Step("data", 2), Step("abort", 2)])
    headers["base_timestamp"][2] = 2**62
    found = statistics(finish(partial_transactions(headers), from_start=True))
    assert found.committed.duration_ms is not None
    assert found.committed.duration_ms.max == -5
    assert (found.aborted.count, found.aborted.duration_ms) == (1, None)
    assert (found.start, found.end) == (996, 1001)


def test_no_transactions_give_no_statistics() -> None:
    nothing = statistics(finish(EMPTY))
    assert nothing.summary() == combined().summary() == (NO_TRANSACTIONS + NO_TRANSACTIONS).summary()
    assert nothing.summary()["first_offset"] is None
    assert nothing.committed.records is None
