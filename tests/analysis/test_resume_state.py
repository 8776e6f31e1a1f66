"""Reading a log in ranges, with its state stored in between, gives the result of a single read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.random_logs import random_headers, splits
from toolkit.analysis.history.lso_holds import lso_holds
from toolkit.analysis.history.resume_state import COUNTED, LogState, RangeSummary
from toolkit.analysis.log.log_transactions import (
    EMPTY,
    PartialTransactions,
    begin,
    finish,
    log_transaction_table,
    merge,
    partial_transactions,
)
from toolkit.analysis.log.lso_timeline import lso_steps
from toolkit.analysis.log.record_counts import RunningTotals
from toolkit.formats.log.headers import Headers
from toolkit.schema import LOG_TRANSACTIONS, Row
from toolkit.schema.derived import LSO_HOLDS

PARTITION: dict[str, Any] = {"topic": "orders", "partition": 0, "broker_id": 1}


def range_summary_of(headers: Headers, before: PartialTransactions = EMPTY) -> RangeSummary:
    partial = merge(before, partial_transactions(headers))
    closed, rest = partial.take_closed()
    totals = RunningTotals()
    bounds = [each[name] for each in (closed, rest.edges) for name in ("first_offset", "marker_offset")]
    if not len(headers):
        return RangeSummary(closed=closed, edges=rest.edges, is_settled=rest.settled)
    totals.add(headers, np.concatenate(bounds))
    counts = np.array(list(map(tuple, totals.samples.tolist())), COUNTED)
    records, size = totals.total
    return RangeSummary(
        closed=closed,
        edges=rest.edges,
        is_settled=rest.settled,
        counts=counts,
        records=records,
        bytes=size,
        log_end_offset=int(headers["last_offset"][-1]) + 1,
        end_time=int(headers["max_timestamp"][-1]),
        leader_epoch=int(headers["leader_epoch"][-1]),
    )


def expected_holds(
    headers: Headers, log_transactions: pa.Table, min_held_ms: int, log_end_offset: int | None
) -> list[Row]:
    """The holds of a complete log, with the records that they held."""
    totals = RunningTotals()
    if len(headers):
        totals.add(headers, headers["base_offset"])
    holds = []
    for row in lso_holds(log_transactions, min_held_ms=min_held_ms).to_pylist():
        is_open = row["marker_offset"] is None
        stop = log_end_offset if is_open else row["marker_offset"]
        totals_held = None if row["truncated"] or stop is None else totals.between(row["first_offset"], stop)
        row["records_held"], row["bytes_held"] = totals_held or (None, None)
        row["log_end_offset"] = log_end_offset if is_open else None
        holds.append(row)
    rows: list[Row] = pa.Table.from_pylist(holds, schema=LSO_HOLDS.arrow_schema).to_pylist()
    return rows


@given(st.data(), random_headers, st.sampled_from([0, 3]), st.booleans(), st.booleans())
def test_ranges_give_the_result_of_a_single_read(
    data: st.DataObject, headers: Headers, least: int, from_start: bool, serialized: bool
) -> None:
    parts = data.draw(splits(headers))
    before = begin() if from_start else EMPTY
    state = LogState(**PARTITION, min_held_ms=least)
    log_transactions, steps = [], []
    for number, part in enumerate(parts):
        rows = state.add(range_summary_of(part, EMPTY if number else before))
        log_transactions.append(rows.log_transactions)
        steps.append(rows.steps)
        if serialized:
            state = LogState.from_bytes(state.to_bytes(), **PARTITION, min_held_ms=least)
    rest = state.open_rows()
    whole = finish(merge(before, partial_transactions(headers)))
    expected = log_transaction_table(whole, **PARTITION).to_pylist()
    assert sorted(map(repr, pa.concat_tables([*log_transactions, rest.log_transactions]).to_pylist())) == sorted(
        map(repr, expected)
    )
    end = int(headers["last_offset"][-1]) + 1 if len(headers) else None
    last = int(headers["max_timestamp"][-1]) if len(headers) else -1
    all_steps = np.concatenate([*steps, rest.steps])
    assert all_steps.tolist() == lso_steps(whole, log_end_offset=end, end_time=last).tolist()
    assert state.lso_holds().to_pylist() == expected_holds(
        headers, log_transaction_table(whole, **PARTITION), least, end
    )
    assert LOG_TRANSACTIONS.names == rest.log_transactions.column_names
