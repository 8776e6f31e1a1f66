"""Steps of the LSO: against a batch-by-batch model, and case by case."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.analysis.aborted_transactions import aborted_transactions
from tests.analysis.random_logs import Step, batches, step_lists
from toolkit.analysis.log.log_transactions import (
    EMPTY,
    EVENTS,
    LogTransactions,
    finish,
    lso_steps,
    lso_table,
    partial_transactions,
)
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, UNREAD_MARKER, Headers
from toolkit.schema import LSO_TIMELINE, utc

BASE = 50  # transactions open before the log begin below it
opened_before = st.dictionaries(
    st.sampled_from([1000, 2000, 3000, 9000]), st.tuples(st.integers(0, BASE - 1), st.integers(0, 2)), max_size=3
).filter(lambda opened: len({start for start, _ in opened.values()}) == len(opened))


def reference_model(headers: Headers, opened: dict[int, tuple[int, int]]) -> tuple[list[Any], list[Any], list[Any]]:
    """Log end, LSO and open transactions after every batch; steps of the holder; aborted transactions."""
    open_ = {producer: start for producer, (start, _) in opened.items()}
    after_each_batch: list[Any] = []
    steps: list[Any] = []
    aborted_rows: list[Any] = []
    holder = min(((start, producer) for producer, start in open_.items()), default=None)
    if holder:
        steps.append((holder[0] + 1, "open", holder))
    for batch in headers:
        producer, end = int(batch["producer_id"]), int(batch["last_offset"]) + 1
        control, marker = batch["attributes"] & CONTROL, int(batch["marker"])
        event: str | None = "open"
        if producer >= 0 and control and marker in {COMMIT, ABORT, UNREAD_MARKER}:
            event = {COMMIT: "commit", ABORT: "abort"}.get(marker)
            first = open_.pop(producer, None)
            if first is not None and marker == ABORT:
                aborted_rows.append((producer, first, end - 1, min(open_.values(), default=end)))
        elif producer >= 0 and not control and batch["attributes"] & TRANSACTIONAL:
            open_.setdefault(producer, int(batch["base_offset"]))
        lowest = min(((start, producer) for producer, start in open_.items()), default=None)
        if lowest != holder:
            steps.append((end, event, lowest))
        holder = lowest
        after_each_batch.append((end, holder[0] if holder else end, len(open_)))
    return after_each_batch, steps, aborted_rows


def end_of(headers: Headers) -> int:
    return int(headers["last_offset"][-1]) + 1 if len(headers) else BASE


def log_of(*steps: Step) -> tuple[LogTransactions, int]:
    headers = batches(steps)
    return finish(partial_transactions(headers), from_start=True), end_of(headers)


def as_tuples(rows: Any) -> list[Any]:
    return [
        (
            row["offset"],
            row["event"],
            None if row["holder_producer_id"] is None else (row["holder_first_offset"], row["holder_producer_id"]),
        )
        for row in lso_table(rows, topic=None, partition=None).to_pylist()
    ]


@given(step_lists, opened_before)
@example([Step("data", 1), Step("data", 2), Step("commit", 2), Step("data", 2), Step("commit", 2)], {})
@example([Step("data", 1), Step("data", 2), Step("abort", 2), Step("abort", 2), Step("data", 3), Step("abort", 1)], {})
def test_steps_and_aborted_transactions_match_a_batch_by_batch_model(
    steps: list[Step], opened: dict[int, tuple[int, int]]
) -> None:
    headers = batches(steps, base_offset=BASE)
    end = end_of(headers)
    log_transactions = finish(partial_transactions(headers), opened_before=opened)
    after_each_batch, expected, aborted_rows = reference_model(headers, opened)
    result = lso_steps(log_transactions, log_end_offset=end)
    assert as_tuples(result) == [*expected, (end, "end", expected[-1][2] if expected else None)]
    right_after = {log_end: (lso, open_count) for log_end, lso, open_count in after_each_batch}
    for row in result[result["offset"] > BASE]:
        assert (row["last_stable_offset"], row["open_count"]) == right_after[int(row["offset"])]
    assert aborted_transactions(log_transactions) == aborted_rows


@given(step_lists, opened_before)
def test_the_lso_at_the_log_end_is_right_after_every_batch(
    steps: list[Step], opened: dict[int, tuple[int, int]]
) -> None:
    headers = batches(steps, base_offset=BASE)
    after_each_batch, _, _ = reference_model(headers, opened)
    for log_end, lso, open_count in after_each_batch:
        log_transactions = finish(partial_transactions(headers[headers["last_offset"] < log_end]), opened_before=opened)
        last = lso_steps(log_transactions, log_end_offset=log_end)[-1]
        assert (last["last_stable_offset"], last["open_count"]) == (lso, open_count)


def test_the_lso_moves_to_the_next_open_transaction_and_then_to_the_log_end() -> None:
    log_transactions, end = log_of(
        Step("data", 1, records=2),  # 0, 1
        Step("data", 2),  # 2
        Step("commit", 1),  # 3
        Step("abort", 2),  # 4
        Step("plain", 3),  # 5
    )
    steps = lso_steps(log_transactions, log_end_offset=end, end_time=1_006)
    output = [(row["at"], row["offset"], row["last_stable_offset"], EVENTS[row["event"]]) for row in steps]
    assert output == [(1001, 2, 0, "open"), (1003, 4, 2, "commit"), (1004, 5, 5, "abort"), (1006, 6, 6, "end")]
    assert steps["open_count"].tolist() == [1, 1, 0, 0]
    assert steps["holder_first_offset"].tolist() == [0, 2, -1, -1]


def test_the_table_is_as_declared() -> None:
    log_transactions, end = log_of(Step("data", 1), Step("unread", 1))
    table = lso_table(lso_steps(log_transactions, log_end_offset=end), topic="orders", partition=0, broker_id=2)
    assert table.schema.equals(LSO_TIMELINE.arrow_schema, check_metadata=True)
    assert table.to_pylist()[1] == {
        "topic": "orders", "partition": 0, "broker_id": 2, "at": utc(1002), "offset": 2, "last_stable_offset": 2,
        "event": None, "open_count": 0, "holder_producer_id": None, "holder_producer_epoch": None,
        "holder_first_offset": None,
    }  # fmt: skip


def test_an_empty_log_has_no_steps() -> None:
    no_transactions = finish(EMPTY)
    assert as_tuples(lso_steps(no_transactions, log_end_offset=7)) == [(7, "end", None)]
    assert aborted_transactions(no_transactions) == []
