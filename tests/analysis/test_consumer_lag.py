"""Consumer lag and the parts that add up to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit.analysis.diagnosis.consumer_lag import LagParts, StatusCount, group_lag, lag_reason, share_group_lag
from toolkit.schema import Row
from toolkit.schema.live import GroupLag

LOG: list[StatusCount] = [
    (0, 4, "committed"), (5, 5, "marker"), (6, 9, "non_transactional"), (10, 13, "open"), (14, 19, "committed"),
    (20, 20, "marker"),
]  # fmt: skip


def lag_of(committed: int, *, lso: int = 10, ranges: list[StatusCount] | None = LOG) -> LagParts:
    return group_lag(committed, last_stable_offset=lso, high_watermark=21, ranges=ranges)


def test_a_lag_of_one_is_only_the_marker() -> None:
    assert lag_of(20, lso=21) == LagParts(lag=1, client_lag=1, behind=0, held=0, markers=1, aborted=0, removed=0)


def test_aborted_and_compacted_records_are_never_consumed() -> None:
    log: list[StatusCount] = [(0, 3, "compacted"), (4, 15, "aborted"), (16, 20, "committed")]
    parts = lag_of(0, lso=18, ranges=log)
    assert parts == LagParts(lag=21, client_lag=18, behind=2, held=3, markers=0, aborted=12, removed=4)
    lag = GroupLag(group_id="g", **{**parts._asdict(), "behind": 0, "held": 0, "markers": 1})
    said = "Nothing is left to read: 1 marker, 12 aborted records, 4 removed by compaction or retention."
    assert lag_reason(lag) == said, "it called all of them markers"


@pytest.mark.parametrize(
    ("lag", "read_committed", "parts"),
    [
        (11, True, {"lag": 11, "behind": 0, "held": 10, "markers": 1, "aborted": 0, "removed": 0}),
        (13, True, {"lag": 13, "behind": 2, "held": 10, "markers": 1, "aborted": 0, "removed": 0}),
        (None, True, {"lag": None, "behind": None, "held": 10, "markers": 1, "aborted": 0, "removed": 0}),
        (4, False, {"lag": 4, "behind": 4, "held": 0, "markers": 0, "aborted": 0, "removed": 0}),
    ],
)
def test_the_lag_of_a_share_group_is_reported_by_the_broker(lag: int | None, read_committed: bool, parts: Row) -> None:
    """It acknowledges single records, so its start offset does not show which are done."""
    row = share_group_lag(
        lag, start_offset=2, last_stable_offset=10, high_watermark=21, ranges=LOG, read_committed=read_committed
    )
    assert row._asdict() == {**parts, "client_lag": None}


def test_nothing_is_held_from_a_share_group_where_nothing_is_open() -> None:
    row = share_group_lag(
        3, start_offset=18, last_stable_offset=21, high_watermark=21, ranges=None, read_committed=True
    )
    assert row == LagParts(3, client_lag=None, behind=3, held=0, markers=None, aborted=None, removed=None)


@pytest.mark.parametrize(
    ("committed", "lso", "ranges", "sentence"),
    [
        (10, 10, LOG, "A read_committed client reports lag 0, and 10 records are held behind the LSO 10"),
        (2, 10, LOG, "7 records are ready to read; 10 records are held behind the LSO 10"),
        (2, 21, [(2, 20, "committed")], "19 records are ready to read, and nothing is held."),
        (20, 21, [(20, 20, "committed")], "1 record is ready to read, and nothing is held."),
        (20, 21, LOG, "Nothing is left to read"),
        (21, 21, LOG, "Everything is read."),
    ],
)
def test_the_reason_as_a_sentence(committed: int, lso: int, ranges: list[StatusCount], sentence: str) -> None:
    parts = lag_of(committed, lso=lso, ranges=ranges)._asdict()
    lag = GroupLag(group_id="billing", topic="orders", partition=0, last_stable_offset=lso, **parts)
    assert (lag_reason(lag) or "").startswith(sentence)


@given(st.integers(0, 25), st.integers(0, 21), st.booleans())
def test_the_parts_add_up_to_the_lag(committed: int, lso: int, log_was_read: bool) -> None:
    row = lag_of(committed, lso=lso, ranges=LOG if log_was_read else None)
    assert row.behind is not None
    rest = (row.markers or 0, row.aborted or 0, row.removed or 0)
    assert row.behind + row.held + sum(rest) == row.lag
    assert min(row.behind, row.held, *rest) >= 0
