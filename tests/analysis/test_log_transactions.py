"""Transactions of a partition, its LSO, counts and statistics, wherever the log is split."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.analysis.aborted_transactions import aborted_transactions
from tests.analysis.random_logs import Step, batches, random_headers, step_lists
from toolkit.analysis.log.log_transactions import (
    EMPTY,
    LOG_TRANSACTION,
    NO_DATA,
    OPEN,
    OUTCOMES,
    LogArray,
    LogTransactions,
    RunningTotals,
    Statistics,
    amounts,
    begin,
    finish,
    log_transaction_table,
    lso_steps,
    lso_table,
    open_rows,
    partial_transactions,
    statistics,
    statistics_row,
)
from toolkit.errors import UsageError
from toolkit.formats.batches import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, UNREAD_MARKER, Headers
from toolkit.schema import LOG_TRANSACTIONS, LSO_TIMELINE, STATISTICS, utc
from toolkit.schema.table import LogId

Opened = dict[int, tuple[int, int]]
NAMES = LOG_TRANSACTION.names or ()
LAST = 2**63 - 1
WHERE = LogId(topic="orders", partition=0, broker_id=1)
opened_before = st.none() | st.dictionaries(
    st.sampled_from([1000, 2000, 3000, 9000]), st.tuples(st.integers(0, 40), st.integers(0, 2))
)


def finished(headers: Headers, *, from_start: bool = True, opened: Opened | None = None) -> LogTransactions:
    known = from_start or opened is not None
    before = begin(opened_before=None if from_start else opened) if known else EMPTY
    return finish(before + partial_transactions(headers))


def reference_model(headers: Headers, *, from_start: bool, opened: Opened | None) -> list[dict[str, Any]]:
    """Batch by batch, with a dictionary of open transactions: slow, and obviously correct."""
    closed: list[dict[str, Any]] = []
    known = from_start or opened is not None
    observed: set[int] = set()
    open_: dict[int, dict[str, Any]] = {}
    unknown = dict.fromkeys(NAMES, -1) | {"batches": 0, "records": 0, "bytes": 0, "outcome": OPEN}
    for producer, (start, epoch) in ({} if from_start else opened or {}).items():
        epochs = {"producer_epoch": epoch, "first_epoch": epoch}
        open_[producer] = unknown | epochs | {"producer_id": producer, "first_offset": start, "truncated": 1}
        open_[producer]["file"] = 0
    for batch in headers:
        producer = int(batch["producer_id"])
        control = bool(batch["attributes"] & CONTROL)
        if producer < 0 or (batch["marker"] not in {COMMIT, ABORT, UNREAD_MARKER} if control else False):
            continue
        if not control and not batch["attributes"] & TRANSACTIONAL:
            continue
        truncated = 0 if known or producer in observed else -1
        log_transaction = open_.setdefault(producer, unknown | {"producer_id": producer, "truncated": truncated})
        observed.add(producer)
        if log_transaction["position"] == -1:
            log_transaction |= {"position": int(batch["position"]), "file": 0}
        if control:
            log_transaction["marker_offset"] = int(batch["base_offset"])
            log_transaction["marker_epoch"] = int(batch["producer_epoch"])
            log_transaction["coordinator_epoch"] = int(batch["coordinator_epoch"])
            log_transaction["marker"] = int(batch["marker"])
            log_transaction["end"] = int(batch["max_timestamp"])
            log_transaction["outcome"] = log_transaction["marker"] if log_transaction["first_offset"] >= 0 else NO_DATA
            if log_transaction["first_offset"] < 0:
                log_transaction["producer_epoch"] = log_transaction["marker_epoch"]
            closed.append(open_.pop(producer))
            continue
        last = int(batch["base_sequence"]) + int(batch["last_offset"] - batch["base_offset"])
        if log_transaction["first_offset"] < 0:
            by_broker = bool(batch["attributes"] & LOG_APPEND_TIME)
            base_lost = by_broker or batch["attributes"] & DELETE_HORIZON
            log_transaction["start"] = int(batch["max_timestamp"] if base_lost else batch["base_timestamp"])
            log_transaction["start_clock"] = int(by_broker)
            log_transaction["first_offset"] = int(batch["base_offset"])
            log_transaction["first_batch_end"] = int(batch["last_offset"]) + 1
            log_transaction["first_epoch"] = int(batch["producer_epoch"])
            log_transaction["first_sequence"] = int(batch["base_sequence"])
        log_transaction["last_offset"] = int(batch["last_offset"])
        log_transaction["last_sequence"] = last % 2**31
        log_transaction["producer_epoch"] = int(batch["producer_epoch"])
        log_transaction["batches"] += 1
        log_transaction["records"] += int(batch["record_count"])
        log_transaction["bytes"] += int(batch["size"])

    def order(log_transaction: dict[str, Any]) -> tuple[int, ...]:
        first, marker = log_transaction["first_offset"], log_transaction["marker_offset"]
        return (LAST if first < 0 else first, LAST if marker < 0 else marker, log_transaction["producer_id"])

    return sorted([*closed, *open_.values()], key=order)


def rows(log_transactions: LogTransactions) -> list[dict[str, Any]]:
    return [dict(zip(NAMES, each, strict=True)) for each in log_transactions.tolist()]


def sorted_rows(log_transactions: LogTransactions) -> list[dict[str, Any]]:
    """Rows, sorted; by producer id if offsets are equal, as only in artificial snapshots."""
    unsorted = rows(log_transactions)
    return sorted(
        unsorted,
        key=lambda row: [row[name] % 2**63 for name in ("first_offset", "marker_offset")] + [row["producer_id"]],
    )


A_B = [Step("commit", 1), Step("data", 2), Step("abort", 2), Step("data", 1), Step("commit", 2)]


@given(random_headers, st.booleans(), opened_before)
@example(
    batches([Step("data", 1, records=3), Step("data", 2), Step("commit", 1), *A_B[3:], Step("abort", 2)]), True, None
)
@example(batches([Step("data", 1), Step("commit", 1, version=2)]), True, None)
@example(batches([Step("data", 1), Step("abort", 1), Step("data", 1)]), True, None)
@example(batches([Step("data", 1), Step("fence", 1), Step("data", 1), Step("commit", 1)]), True, None)
@example(batches(A_B), False, None)
@example(batches([Step("commit", 1), Step("data", 2), Step("abort", 3)]), False, {1000: (4, 3), 9000: (2, 0)})
@example(batches([Step("data", 1), Step("unread", 1), Step("data", 1)]), True, None)
@example(batches([Step("data", 1, gap=4), Step("commit", 1)]), True, None)
def test_log_transactions_match_a_batch_by_batch_model(
    headers: Headers, from_start: bool, opened: Opened | None
) -> None:
    log_transactions = finished(headers, from_start=from_start, opened=opened)
    assert sorted_rows(log_transactions) == reference_model(headers, from_start=from_start, opened=opened)


def test_an_empty_control_batch_ends_nothing() -> None:
    headers = batches([Step("data", 1), Step("commit", 1)])
    headers["record_count"][1] = 0
    assert rows(finish(partial_transactions(headers)))[0]["outcome"] == OPEN


def test_partial_transactions_keep_their_file() -> None:
    headers = batches([Step("data", 1), Step("commit", 1), Step("data", 1), Step("commit", 1)])
    parts = partial_transactions(headers[:1], file_id=3) + partial_transactions(headers[1:], file_id=4)
    assert finish(parts)["file"].tolist() == [3, 4]


def test_nothing_precedes_the_first_part_of_a_log() -> None:
    data = partial_transactions(batches([Step("data", 1)]))
    assert len(finish(EMPTY + begin() + data)) == 1
    with pytest.raises(UsageError, match="cannot follow"):
        data + begin()


def test_no_batches_give_no_transactions() -> None:
    assert finish(begin()).size == 0
    assert finish(partial_transactions(batches([Step("plain", 1), Step("data", 0)]))).size == 0


def test_unknown_values_are_null_in_the_table() -> None:
    steps = [Step("data", 1), Step("data", 2, attributes=LOG_APPEND_TIME), Step("commit", 1), Step("abort", 3)]
    log_transactions = finish(partial_transactions(batches([*steps, Step("unread", 2)])))
    table = log_transaction_table(LogArray(log_transactions, WHERE, ["a.log"]))
    assert table.schema.equals(LOG_TRANSACTIONS.arrow_schema, check_metadata=True)
    commit, unread, empty = table.to_pylist()
    assert commit == {
        "topic": "orders", "partition": 0, "broker_id": 1, "file": "a.log", "position": 0, "error": None,
        "producer_id": 1000, "producer_epoch": 0, "first_epoch": 0, "marker_epoch": 0, "coordinator_epoch": 7,
        "first_offset": 0, "first_batch_last_offset": 0,
        "last_offset": 0, "marker_offset": 2, "outcome": "commit", "marker": "COMMIT",
        "start": utc(1001), "start_clock": "producer", "end": utc(1003), "batches": 1, "records": 1, "bytes": 68,
        "first_sequence": 2**31 - 2, "last_sequence": 2**31 - 2, "truncated": None,
    }  # fmt: skip
    assert (unread["outcome"], unread["marker"], unread["marker_offset"]) == (None, None, 4)
    assert unread["error"].startswith("NO_MARKER_TYPE: ")
    assert (unread["start_clock"], unread["start"]) == ("broker", utc(1003))
    assert (empty["outcome"], empty["marker"], empty["start_clock"], empty["records"]) == ("empty", "ABORT", None, 0)


def test_a_table_of_many_logs_has_the_rows_of_each() -> None:
    logs, steps = [], [Step("data", 1), Step("commit", 1), Step("data", 2)]
    all_files: list[list[str | None]] = [["a.log"], ["b.log", "c.log"], ["d.log"], [None]]
    for number, files in enumerate(all_files):
        rows = finish(partial_transactions(batches(steps[: 3 - number])))
        rows["file"] = [1, 0][: len(rows)]
        where = LogId(topic=f"t{number}", partition=number or None, broker_id=10 - number)
        logs += [LogArray(rows, where, files), LogArray(lso_steps(rows, log_end_offset=9), where)]
    for table, arrays in ((log_transaction_table, logs[::2]), (lso_table, logs[1::2])):
        assert table(*arrays).to_pylist() == [row for each in arrays for row in table(each).to_pylist()]
    assert log_transaction_table(*logs[::2])["file"].to_pylist() == [None, "a.log", "c.log", None]


@given(random_headers, st.booleans())
def test_the_table_is_sorted_as_declared(headers: Headers, from_start: bool) -> None:
    table = log_transaction_table(LogArray(finished(headers, from_start=from_start), WHERE))
    assert table == table.sort_by([(name, "ascending") for name in LOG_TRANSACTIONS.sort])


BASE = 50  # transactions open before the log begin below it
all_opened_before = st.dictionaries(
    st.sampled_from([1000, 2000, 3000, 9000]), st.tuples(st.integers(0, BASE - 1), st.integers(0, 2)), max_size=3
).filter(lambda opened: len({start for start, _ in opened.values()}) == len(opened))


def reference_steps(headers: Headers, opened: dict[int, tuple[int, int]]) -> tuple[list[Any], list[Any], list[Any]]:
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
    return finished(headers), end_of(headers)


def as_tuples(rows: Any) -> list[Any]:
    return [
        (
            row["offset"],
            row["event"],
            None if row["holder_producer_id"] is None else (row["holder_first_offset"], row["holder_producer_id"]),
        )
        for row in lso_table(LogArray(rows, WHERE)).to_pylist()
    ]


@given(step_lists, all_opened_before)
@example([Step("data", 1), Step("data", 2), Step("commit", 2), Step("data", 2), Step("commit", 2)], {})
@example([Step("data", 1), Step("data", 2), Step("abort", 2), Step("abort", 2), Step("data", 3), Step("abort", 1)], {})
def test_steps_and_aborted_transactions_match_a_batch_by_batch_model(
    steps: list[Step], opened: dict[int, tuple[int, int]]
) -> None:
    headers = batches(steps, base_offset=BASE)
    end = end_of(headers)
    log_transactions = finish(begin(opened_before=opened) + partial_transactions(headers))
    after_each_batch, expected, aborted_rows = reference_steps(headers, opened)
    result = lso_steps(log_transactions, log_end_offset=end)
    assert as_tuples(result) == [*expected, (end, "end", expected[-1][2] if expected else None)]
    right_after = {log_end: (lso, open_count) for log_end, lso, open_count in after_each_batch}
    for row in result[result["offset"] > BASE]:
        assert (row["last_stable_offset"], row["open_count"]) == right_after[int(row["offset"])]
    assert aborted_transactions(log_transactions) == aborted_rows


@given(step_lists, all_opened_before)
def test_the_lso_at_the_log_end_is_right_after_every_batch(
    steps: list[Step], opened: dict[int, tuple[int, int]]
) -> None:
    headers = batches(steps, base_offset=BASE)
    after_each_batch, _, _ = reference_steps(headers, opened)
    for log_end, lso, open_count in after_each_batch:
        log_transactions = finished(headers[headers["last_offset"] < log_end], from_start=False, opened=opened)
        last = lso_steps(log_transactions, log_end_offset=log_end)[-1]
        assert (last["last_stable_offset"], last["open_count"]) == (lso, open_count)


def test_the_table_is_as_declared() -> None:
    log_transactions, end = log_of(Step("data", 1), Step("unread", 1))
    table = lso_table(LogArray(lso_steps(log_transactions, log_end_offset=end), WHERE))
    assert table.schema.equals(LSO_TIMELINE.arrow_schema, check_metadata=True)
    assert table.to_pylist()[1] == {
        "topic": "orders", "partition": 0, "broker_id": 1, "at": utc(1002), "offset": 2, "last_stable_offset": 2,
        "event": None, "open_count": 0, "holder_producer_id": None, "holder_producer_epoch": None,
        "holder_first_offset": None, "error": None,
    }  # fmt: skip


def test_an_empty_log_has_no_steps() -> None:
    no_transactions = finish(EMPTY)
    assert as_tuples(lso_steps(no_transactions, log_end_offset=7)) == [(7, "end", None)]
    assert aborted_transactions(no_transactions) == []


LOG = batches(
    [
        Step("data", 1, records=3),  # offsets 0 to 2, 82 bytes
        Step("commit", 1),  # 3, 68 bytes
        Step("data", 1, records=2, gap=2),  # 4 to 7, 75 bytes
        Step("plain", 2, records=4),  # 8 to 11, 89 bytes
        Step("data", 1),  # 12, 68 bytes
    ]
)


def test_an_offset_that_was_not_counted_at_has_no_totals() -> None:
    totals = RunningTotals()
    for part in (LOG[:2], LOG[2:]):
        totals.add(part, np.array([4]))
    assert totals.between(4, 13) == amounts(LOG, 4, 13)
    assert (totals.between(4, 8), totals.between(8, 13), totals.between(0, 4)) == (None, None, None)


def test_a_log_without_batches_has_no_records() -> None:
    assert RunningTotals().between(0, 5) == (0, 0)


COMMITTED = Step("commit", 1)


def statistics_of(*steps: Step, from_start: bool = True) -> Statistics:
    return statistics(finished(batches(steps), from_start=from_start))


def figures(statistics: Statistics) -> dict[str, Any]:
    """All but the open transactions themselves, as a row of the table."""
    row = statistics_row(statistics, WHERE).row()
    assert len(STATISTICS.arrow([row])) == 1
    return row


def summary(name: str, values: list[int]) -> dict[str, Any]:
    mean = pytest.approx(sum(values) / len(values)) if values else None
    whole = {"count": len(values), "sum": sum(values), "min": min(values, default=None), "mean": mean}
    return {f"{name}_{key}": value for key, value in (whole | {"max": max(values, default=None)}).items()}


@given(random_headers, st.booleans())
def test_statistics_match_plain_python(headers: Headers, from_start: bool) -> None:
    log_transactions = finished(headers, from_start=from_start)
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


def test_no_transactions_have_no_size() -> None:
    empty = statistics(finish(EMPTY))
    assert figures(empty) == figures(Statistics()) == figures(empty + Statistics())
    assert figures(empty) == figures(empty) | {"committed": 0} | summary("batches", []) | summary("duration_ms", [])


def test_two_sets_are_combined_in_any_order() -> None:
    one = statistics_of(Step("data", 1), Step("data", 1), COMMITTED, Step("data", 2), Step("abort", 2))
    other = statistics_of(*[Step("data", 1)] * 6, COMMITTED, Step("data", 3))
    for result in (one + other, other + one):
        found = figures(result)
        assert (found["committed"], found["aborted"], found["open"]) == (2, 1, 1)
        assert found == found | summary("batches", [2, 1, 6])


@pytest.mark.parametrize(("attributes", "clock"), [(0, "producer"), (LOG_APPEND_TIME, "broker")])
def test_open_transactions_have_their_key_and_start(attributes: int, clock: str) -> None:
    result = statistics_of(Step("data", 1), COMMITTED, Step("data", 2, records=2, attributes=attributes))
    (found,) = open_rows(result, WHERE)
    assert (found.topic, found.partition, found.broker_id) == ("orders", 0, 1)
    assert (found.producer_id, found.producer_epoch, found.first_offset, found.last_offset) == (2000, 0, 2, 3)
    assert (found.start, found.start_clock) == (utc(1003 if clock == "producer" else 1005), clock)
