"""Records and bytes of an offset range: by examples, and running totals against a count of the same batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.analysis.random_logs import Step, batches, random_headers, splits
from toolkit.analysis.log.record_counts import RunningTotals, amounts
from toolkit.formats.log.headers import Headers

LOG = batches(
    [
        Step("data", 1, records=3),  # offsets 0 to 2, 82 bytes
        Step("commit", 1),  # 3, 68 bytes
        Step("data", 1, records=2, gap=2),  # 4 to 7, 75 bytes
        Step("plain", 2, records=4),  # 8 to 11, 89 bytes
        Step("data", 1),  # 12, 68 bytes
    ]
)


@pytest.mark.parametrize(
    ("first", "stop", "expected"),
    [
        (0, 13, (10, 382)),
        (2, 8, (3, 225)),
        (2, 3, (1, 82)),
        (3, 4, (0, 68)),
        (5, 8, (2, 75)),
        (7, 8, (1, 75)),
        (6, 9, (6, 164)),
        (12, 12, (0, 0)),
        (13, 20, (0, 0)),
    ],
)
def test_data_records_and_bytes_of_complete_batches(first: int, stop: int, expected: tuple[int, int]) -> None:
    assert amounts(LOG, first, stop) == expected


def assert_totals_are_amounts(parts: list[Headers], offsets: list[int]) -> None:
    headers, totals = np.concatenate(parts), RunningTotals(offsets)
    for part in parts:
        if len(part):
            totals.add(part, np.append(part["base_offset"][::-1], 1_000))  # which is after the last batch
    counted = {*offsets, *headers["base_offset"].tolist()}
    for first in counted:
        for stop in counted:
            if first <= stop:
                assert totals.between(first, stop) == amounts(headers, first, stop), (first, stop)
    assert totals.total == amounts(headers, 0, 2**62)


@pytest.mark.parametrize("point", range(len(LOG) + 1))
def test_running_totals_of_two_ranges_are_those_of_one(point: int) -> None:
    assert_totals_are_amounts([LOG[:point], LOG[point:]], list(range(15)))
    assert_totals_are_amounts([LOG[:point], LOG[point:]], [9, 1, 5, 9, 16])


@given(st.data(), random_headers)
def test_running_totals_count_any_log_that_compaction_has_cleaned(data: st.DataObject, headers: Headers) -> None:
    kept = data.draw(st.lists(st.booleans(), min_size=len(headers), max_size=len(headers)))
    parts = data.draw(splits(headers[np.array(kept, np.bool_)]))
    assert_totals_are_amounts(parts, data.draw(st.lists(st.integers(0, 100), max_size=8)))


def test_an_offset_that_was_not_counted_at_has_no_totals() -> None:
    totals = RunningTotals()
    for part in (LOG[:2], LOG[2:]):
        totals.add(part, np.array([4]))
    assert totals.between(4, 13) == amounts(LOG, 4, 13)
    assert (totals.between(4, 8), totals.between(8, 13), totals.between(0, 4)) == (None, None, None)


def test_a_log_without_batches_has_no_records() -> None:
    assert RunningTotals().between(0, 5) == (0, 0)
