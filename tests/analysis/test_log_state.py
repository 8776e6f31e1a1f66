"""A log that is read in sections, with its state written down in between, tells what a single read tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.histories import cuts, histories
from toolkit.analysis.holds import HOLDS, holds
from toolkit.analysis.log_state import COUNTED, LogState, Section
from toolkit.analysis.lso import lso_steps
from toolkit.analysis.spans import EMPTY, Piece, begin, finish, merge, piece, span_table
from toolkit.formats.headers import Headers
from toolkit.schema import SPANS, Row
from toolkit.sources.logdir.totals import RunningTotals

PLACE: dict[str, Any] = {"topic": "orders", "partition": 0, "broker_id": 1}


def section(headers: Headers, before: Piece = EMPTY) -> Section:
    found = merge(before, piece(headers))
    closed, rest = found.take_closed()
    totals = RunningTotals()
    bounds = [each[name] for each in (closed, rest.edges) for name in ("first_offset", "marker_offset")]
    if not len(headers):
        return Section(closed=closed, edges=rest.edges, is_settled=rest.settled)
    totals.add(headers, np.concatenate(bounds))
    counts = np.array(list(map(tuple, totals.samples.tolist())), COUNTED)
    records, size = totals.total
    return Section(
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


def expected_holds(headers: Headers, spans: pa.Table, min_held_ms: int, log_end_offset: int | None) -> list[Row]:
    """The holds of a whole log, and what waited behind them."""
    totals = RunningTotals()
    if len(headers):
        totals.add(headers, headers["base_offset"])
    found = []
    for row in holds(spans, min_held_ms=min_held_ms).to_pylist():
        is_open = row["marker_offset"] is None
        stop = log_end_offset if is_open else row["marker_offset"]
        counted = None if row["truncated"] or stop is None else totals.between(row["first_offset"], stop)
        row["records_held"], row["bytes_held"] = counted or (None, None)
        row["log_end_offset"] = log_end_offset if is_open else None
        found.append(row)
    rows: list[Row] = pa.Table.from_pylist(found, schema=HOLDS.arrow_schema).to_pylist()
    return rows


@settings(deadline=None)
@given(st.data(), histories, st.sampled_from([0, 3]), st.booleans(), st.booleans())
def test_sections_tell_what_a_single_read_tells(
    data: st.DataObject, headers: Headers, least: int, known: bool, remembered: bool
) -> None:
    parts = data.draw(cuts(headers))
    before = begin() if known else EMPTY
    state = LogState(**PLACE, min_held_ms=least)
    spans, steps = [], []
    for number, part in enumerate(parts):
        rows = state.add(section(part, EMPTY if number else before))
        spans.append(rows.spans)
        steps.append(rows.steps)
        if remembered:
            state = LogState.from_bytes(state.to_bytes(), **PLACE, min_held_ms=least)
    rest = state.open_rows()
    whole = finish(merge(before, piece(headers)))
    expected = span_table(whole, **PLACE).to_pylist()
    assert sorted(map(repr, pa.concat_tables([*spans, rest.spans]).to_pylist())) == sorted(map(repr, expected))
    end = int(headers["last_offset"][-1]) + 1 if len(headers) else None
    last = int(headers["max_timestamp"][-1]) if len(headers) else -1
    told = np.concatenate([*steps, rest.steps])
    assert told.tolist() == lso_steps(whole, log_end_offset=end, end_time=last).tolist()
    assert state.holds().to_pylist() == expected_holds(headers, span_table(whole, **PLACE), least, end)
    assert SPANS.names == rest.spans.column_names
