"""The state of a log that is read in ranges: what is lost, cut and read again; any ranges are in test_one_read."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.analysis.random_logs import Step, batches
from toolkit.analysis.hold_findings import hold_table, lso_holds
from toolkit.analysis.log.log_transactions import (
    EMPTY,
    END_NOT_READ,
    LogArray,
    LogTransactions,
    PartialTransactions,
    RunningTotals,
    begin,
    log_transaction_table,
)
from toolkit.formats.headers import Headers, LogChunk
from toolkit.schema import LSO_HOLDS, Row
from toolkit.schema.table import LogId
from toolkit.spark.pipeline.log_fold import LogRows, LogState
from toolkit.spark.pipeline.stored_tables import STATE, StoredState

WHERE = LogId(topic="orders", partition=0, broker_id=1)


def taken(state: LogState, headers: Headers, before: PartialTransactions = EMPTY) -> LogRows:
    """What a state gives out once a range was added."""
    state.begin(before)
    state.fold.add(LogChunk(headers=headers))
    return state.take()


def expected_holds(
    headers: Headers, ranges: Sequence[LogTransactions], min_held_ms: int, log_end_offset: int | None
) -> list[Row]:
    """The holds of a complete log, with the records that they held; `ranges` as for `lso_holds`."""
    totals = RunningTotals()
    if len(headers):
        totals.add(headers, headers["base_offset"])
    holds = []
    found = lso_holds(*ranges, min_held_ms=min_held_ms)
    for row in hold_table(LogArray(found, WHERE), log_end_offset=log_end_offset).to_pylist():
        is_open = row["marker_offset"] is None
        stop = log_end_offset if is_open else row["marker_offset"]
        totals_held = None if row["truncated"] or stop is None else totals.between(row["first_offset"], stop)
        row["records_held"], row["bytes_held"] = totals_held or (None, None)
        holds.append(row)
    rows: list[Row] = pa.Table.from_pylist(holds, schema=LSO_HOLDS.arrow_schema).to_pylist()
    return rows


OPENED = begin(opened_before={9000: (99, 0), 3000: (3, 0)})


def state_of(*steps: Step, before: PartialTransactions = EMPTY) -> LogState:
    state = LogState(where=WHERE)
    taken(state, batches(steps), before)
    return state


def test_a_log_without_batches_has_no_end() -> None:
    state = state_of()
    assert (state.log_end_offset, state.end_time, state.leader_epoch, state.stays_damaged) == (None, -1, -1, False)


def test_the_leader_epoch_is_the_highest_and_the_time_that_of_the_last_batch() -> None:
    state, known = LogState(where=WHERE), []
    for end_time, epoch in ((None, None), (70, 5), (60, 4), (None, None), (80, 6)):
        headers = batches([Step("plain", 0)])[: int(end_time is not None)]
        headers["max_timestamp"], headers["leader_epoch"] = end_time or 0, epoch or 0
        taken(state, headers)
        known.append((state.end_time, state.leader_epoch))
    assert known == [(-1, -1), (70, 5), (60, 5), (60, 5), (80, 6)]


def test_lost_transactions_are_returned_and_forgotten() -> None:
    state = state_of(Step("data", 1), Step("commit", 1), Step("data", 2), Step("data", 3))
    rows = log_transaction_table(state.lose_open(is_deleted=True)).to_pylist()
    assert [(row["first_offset"], row["outcome"], row["error"]) for row in rows] == [
        (2, None, END_NOT_READ),
        (3, None, END_NOT_READ),
    ]
    assert (state.log_end_offset, state.end_time, state.leader_epoch) == (None, -1, -1)
    assert [row["marker_offset"] for row in state.lso_holds().to_pylist()] == [1], "the one that has ended"
    assert len(state.lose_open(is_deleted=True)) == 0, "nothing was read since"


def test_transactions_are_lost_before_any_batch_was_read() -> None:
    state = state_of(before=OPENED)
    assert sorted(state.lose_open(is_deleted=False).rows["first_offset"].tolist()) == [3, 99]


def test_a_truncated_log_keeps_the_holds_before() -> None:
    state = state_of(Step("data", 1), Step("commit", 1), Step("data", 1), Step("commit", 1), Step("data", 2))
    state.stays_damaged = True
    state.truncate(3)
    assert (state.log_end_offset, state.stays_damaged) == (None, False)
    assert [row["marker_offset"] for row in state.lso_holds().to_pylist()] == [1]


def test_the_steps_before_a_truncated_part_are_not_repeated() -> None:
    state = state_of(Step("data", 1), Step("data", 2))
    state.truncate(1)
    again = batches([Step("data", 2), Step("commit", 1)], base_offset=1)
    rows = taken(state, again, begin(opened_before={1000: (0, 0)}))
    assert [int(step["offset"]) for step in rows.steps.rows] == [3]


def test_rows_of_a_state_are_no_slice_of_those_of_all_states() -> None:
    """A task got those of all logs with each; and before pyarrow 19, the first ones in place of its own."""
    held = [state_of(*[Step("data", 1)] * count, Step("data", 2)) for count in (1, 2)]
    stored = STATE.arrow([state.stored(f"log-{number}") for number, state in enumerate(held)])
    for each in StoredState.of_table(stored):
        assert each.open_transactions is not None
        assert (each.open_transactions.offset, len(pickle.dumps(each)) < 10_000) == (0, True)


@pytest.mark.parametrize("serialized", [False, True])
def test_the_steps_of_a_log_without_batches_are_not_repeated(serialized: bool) -> None:
    """What was open before the first batch of a log has been a step already if that batch is read again."""
    before = begin(opened_before={9000: (90, 0)})
    state = LogState(where=WHERE)
    state.truncate(91)
    assert [int(step["offset"]) for step in taken(state, batches([]), before).steps.rows] == [91]
    for offset in (95, 80):
        state.truncate(offset)
        if serialized:
            state = LogState.of(state.stored("log"))
        rows = taken(state, batches([], base_offset=100), before)
        assert [int(step["offset"]) for step in rows.steps.rows] == ([] if offset == 95 else [91])
