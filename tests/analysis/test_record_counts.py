"""Records and bytes of an offset range: by examples; any log is in test_one_read."""

import numpy as np
import pytest

from tests.analysis.random_logs import Step, batches
from toolkit.analysis.log.log_transactions import RunningTotals, amounts

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


def test_an_offset_that_was_not_counted_at_has_no_totals() -> None:
    totals = RunningTotals()
    for part in (LOG[:2], LOG[2:]):
        totals.add(part, np.array([4]))
    assert totals.between(4, 13) == amounts(LOG, 4, 13)
    assert (totals.between(4, 8), totals.between(8, 13), totals.between(0, 4)) == (None, None, None)


def test_a_log_without_batches_has_no_records() -> None:
    assert RunningTotals().between(0, 5) == (0, 0)
