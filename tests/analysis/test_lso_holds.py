"""Holds of the LSO: against an offset-by-offset model, and case by case."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given

from tests.analysis.random_logs import LEADER_CHANGE, Step, batches, step_lists
from tests.analysis.test_lso_timeline import BASE, opened_before
from tests.tiers import fuzzed
from toolkit.analysis.history.hold_findings import lso_holds
from toolkit.analysis.log.log_transactions import (
    OPEN,
    LogTransactions,
    finish,
    log_transaction_table,
    lso_steps,
    partial_transactions,
)
from toolkit.formats.batches import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, UNREAD_MARKER, Headers
from toolkit.schema import LOG_TRANSACTIONS, Row, utc
from toolkit.schema.recorded import LSO_HOLDS

thorough = fuzzed(20)

MINUTE = 60_000


def table(log_transactions: LogTransactions) -> pa.Table:
    return log_transaction_table(log_transactions, topic="orders", partition=0, broker_id=1, files=("00.log",))


def holds_of(*steps: Step, **options: Any) -> list[Row]:
    rows: list[Row] = lso_holds(
        table(finish(partial_transactions(batches(steps)), from_start=True)), **options
    ).to_pylist()
    return rows


def holders_by_offset(headers: Headers, opened: dict[int, tuple[int, int]]) -> list[Any]:
    """Offset by offset, each lowest transaction: its first offset, where it became the lowest, and where it ended."""
    open_ = {producer: start for producer, (start, _) in opened.items()}
    holders: list[Any] = []
    holder = min(((start, producer) for producer, start in open_.items()), default=None)
    if holder:
        holders.append([holder[0], holder[0], None])
    for batch in headers:
        producer, control = int(batch["producer_id"]), batch["attributes"] & CONTROL
        if producer >= 0 and control and int(batch["marker"]) in {COMMIT, ABORT, UNREAD_MARKER}:
            open_.pop(producer, None)
        elif producer >= 0 and not control and batch["attributes"] & TRANSACTIONAL:
            open_.setdefault(producer, int(batch["base_offset"]))
        lowest = min(((start, producer) for producer, start in open_.items()), default=None)
        if holder and lowest != holder:
            holders[-1][2] = int(batch["base_offset"])
        if lowest and lowest != holder:
            holders.append([lowest[0], int(batch["base_offset"]), None])
        holder = lowest
    return [tuple(each) for each in holders]


def became_at(row: Row) -> int:
    return int(row["first_offset"] if row["after_offset"] is None else row["after_offset"])


@thorough
@given(step_lists, opened_before)
@example([Step("data", 1), Step("data", 2), Step("commit", 2), Step("data", 2), Step("commit", 2)], {})
def test_the_holders_match_an_offset_by_offset_model(steps: list[Step], opened: dict[int, tuple[int, int]]) -> None:
    headers = batches(steps, base_offset=BASE)
    holds = lso_holds(table(finish(partial_transactions(headers), opened_before=opened)))
    assert holds.schema.equals(LSO_HOLDS.arrow_schema, check_metadata=True)
    rows = holds.to_pylist()
    assert [(row["first_offset"], became_at(row), row["marker_offset"]) for row in rows] == holders_by_offset(
        headers, opened
    )
    for row in rows:
        assert (row["held_to"] is None) == (row["marker_offset"] is None)
        assert row["held_ms"] is None or row["held_ms"] >= 0
        assert row["held_ms"] is None or row["least_ms"] <= row["held_ms"] + 5_000


@thorough
@given(step_lists, opened_before)
def test_the_holders_match_the_steps_of_the_lso(steps: list[Step], opened: dict[int, tuple[int, int]]) -> None:
    headers = batches(steps, base_offset=BASE)
    log_transactions = finish(partial_transactions(headers), opened_before=opened)
    end = int(headers["last_offset"][-1]) + 1 if len(headers) else BASE
    holders: list[tuple[int, int]] = []
    for step in lso_steps(log_transactions, log_end_offset=end):
        holder = int(step["holder_first_offset"])
        if holder >= 0 and holder not in [first for first, _ in holders]:
            holders.append((holder, holder if step["event"] == OPEN else int(step["offset"]) - 1))
    assert [(row["first_offset"], became_at(row)) for row in lso_holds(table(log_transactions)).to_pylist()] == holders


def test_the_next_transaction_holds_from_the_marker_of_the_first() -> None:
    first, second = holds_of(
        Step("data", 1, records=2),  # 0, 1
        Step("data", 2, wait=MINUTE),  # 2
        Step("commit", 1, wait=MINUTE),  # 3
        Step("abort", 2, wait=MINUTE),  # 4
    )
    names = (
        "producer_id",
        "opened_at",
        "opened_at_clock",
        "after_offset",
        "held_from",
        "held_to",
        "held_ms",
        "least_ms",
    )
    start, middle, end = utc(1001), utc(1001 + 2 * MINUTE), utc(1001 + 3 * MINUTE)
    assert [first[name] for name in names] == [1000, start, "producer", None, start, middle, 2 * MINUTE, 0]
    opened = utc(1001 + MINUTE)
    assert [second[name] for name in names] == [2000, opened, "producer", 3, middle, end, MINUTE, MINUTE]


def test_a_producers_time_counts_once_the_earlier_transaction_has_ended() -> None:
    for wait, opened_at in ((1, 1002), (4_000, 5001), (-900, 101), (10_000, None)):
        _, row = holds_of(
            Step("data", 1), Step("data", 2, wait=wait), Step("commit", 1, wait=2 - wait), Step("commit", 2)
        )
        assert (row["opened_at"], row["held_from"]) == (utc(opened_at), utc(1003))


def test_only_long_or_open_holds_are_kept() -> None:
    none = (Step("data", 1), Step("commit", 1, wait=0))
    short, long = (Step("data", 1), Step("commit", 1, wait=5)), (Step("data", 2), Step("commit", 2, wait=6))
    steps = (*none, *short, *long, Step("data", 3))
    assert [row["producer_id"] for row in holds_of(*steps, min_held_ms=6)] == [2000, 3000]


BEFORE = (Step("data", 3), Step("commit", 3))  # a marker at 1002


@pytest.mark.parametrize(
    ("wait", "opened_at", "opened_at_clock", "held_ms"),
    [
        (1, 1003, "producer", MINUTE),
        (-3_600_000, 1002, "broker", MINUTE + 1),  # a backfill, or a clock behind
        (3_600_000, 1002, "broker", MINUTE + 1),  # a clock ahead
        (MINUTE + 1_000, 1002 + MINUTE + 1_000, "producer", 0),  # slightly ahead: the hold has no negative duration
    ],
)
def test_a_producers_clock_counts_within_the_markers(
    wait: int, opened_at: int, opened_at_clock: str, held_ms: int
) -> None:
    steps = (*BEFORE, Step("data", 1, wait=wait), Step("commit", 1, wait=MINUTE + 1 - wait))
    (row,) = [row for row in holds_of(*steps) if row["producer_id"] == 1000]
    assert (row["opened_at"], row["opened_at_clock"], row["held_ms"]) == (utc(opened_at), opened_at_clock, held_ms)
    assert row["held_from"] <= row["held_to"] == utc(1003 + MINUTE)


def holder(*steps: Step, **options: Any) -> Row:
    """The last hold."""
    return holds_of(*steps, **options)[-1]


HOUR = 60 * MINUTE


def test_a_clock_an_hour_behind_is_replaced_by_the_marker_before() -> None:
    row = holder(Step("data", 3, wait=2 * HOUR), Step("commit", 3), Step("data", 1, wait=-HOUR), Step("commit", 1))
    assert (row["opened_at"], row["opened_at_clock"]) == (utc(1001 + 2 * HOUR), "broker")


def test_the_marker_of_a_transaction_that_held_nothing_shows_that_a_clock_is_ahead() -> None:
    ahead = Step("data", 1, wait=10_000)
    never_lowest = (Step("data", 2), Step("commit", 2, wait=-10_000))
    row = holder(*BEFORE, ahead, *never_lowest, Step("commit", 1, wait=20_000))
    assert (row["opened_at"], row["opened_at_clock"]) == (utc(1002), "broker")


@pytest.mark.parametrize(
    ("before", "opened_at"),
    [
        ([Step("abort", 3)], 1001),  # of a transaction that wrote nothing: at offset 0
        ([*BEFORE, Step("data", 2), Step("commit", 2)], 1004),  # of a hold that is left out
        ([*BEFORE, Step("data", 2), Step("commit", 2, wait=-1004)], 1002),  # the last one has no time
    ],
)
def test_the_last_marker_with_a_time_shows_when_a_hold_began_at_least(before: list[Step], opened_at: int) -> None:
    row = holder(*before, Step("data", 1, wait=HOUR), Step("commit", 1, wait=5_000 - HOUR), min_held_ms=5)
    assert (row["opened_at"], row["opened_at_clock"]) == (utc(opened_at), "broker")


def test_a_brokers_clock_is_trusted() -> None:
    data = Step("data", 1, wait=-500, attributes=LOG_APPEND_TIME)
    (row,) = [row for row in holds_of(*BEFORE, data, Step("commit", 1)) if row["producer_id"] == 1000]
    assert (row["opened_at_clock"], row["held_from"]) == ("broker", utc(503))


def test_a_future_time_without_a_previous_marker_is_left_open() -> None:
    steps = (Step("data", 1, wait=3_600_000), Step("data", 2), Step("commit", 2, wait=-3_590_000), Step("commit", 1))
    (row,) = holds_of(*steps, min_held_ms=MINUTE)
    assert (row["opened_at"], row["held_from"], row["held_ms"], row["least_ms"]) == (None, None, None, 1)
    assert row["opened_at_clock"] is None


def test_a_transaction_open_before_the_log_has_no_start_time() -> None:
    log_transactions = finish(
        partial_transactions(batches([Step("commit", 1), Step("plain", 0)], base_offset=BASE)),
        opened_before={1000: (3, 0)},
    )
    (row,) = lso_holds(table(log_transactions)).to_pylist()
    assert (row["first_offset"], row["held_from"], row["held_to"], row["held_ms"]) == (3, None, utc(1001), None)


def test_other_control_records_and_damage_make_no_hold() -> None:
    assert LEADER_CHANGE not in (COMMIT, ABORT)
    damage = LOG_TRANSACTIONS.arrow([{"topic": "orders", "partition": 0, "error": "CORRUPT_BATCH: it is."}])
    log_transactions = table(
        finish(partial_transactions(batches([Step("data", 1), Step("other", 1)])), from_start=True)
    )
    (row,) = lso_holds(pa.concat_tables([damage, log_transactions])).to_pylist()
    assert (row["producer_id"], row["held_to"]) == (1000, None)
    assert lso_holds(damage).num_rows == 0


def test_a_log_is_observed_as_of_its_last_marker() -> None:
    rows = holds_of(*BEFORE, Step("commit", 3, wait=-100), Step("data", 1))
    assert {row["as_of"] for row in rows} == {utc(902)}
    assert [row["as_of"] for row in holds_of(Step("data", 1))] == [None]
