"""A lag in three parts that add up to it."""

from hypothesis import given
from hypothesis import strategies as st

from toolkit.analysis.lag import group_lag
from toolkit.schema import Row


def batch(base: int, last: int, *, control: bool = False, records: int | None = None) -> Row:
    count = last - base + 1 if records is None else records
    return {"base_offset": base, "last_offset": last, "is_control": control, "record_count": count, "error": None}


LOG = [batch(0, 4), batch(5, 5, control=True), batch(6, 9), batch(10, 19), batch(20, 20, control=True)]


def test_what_is_behind_what_is_held_and_what_is_a_marker() -> None:
    split = group_lag(2, last_stable_offset=10, high_watermark=21, batches=LOG)
    assert split == {"lag": 19, "behind": 7, "held": 10, "markers": 2}


def test_r18_a_lag_of_one_is_only_the_marker() -> None:
    split = group_lag(20, last_stable_offset=21, high_watermark=21, batches=LOG)
    assert split == {"lag": 1, "behind": 0, "held": 0, "markers": 1}


def test_a_group_that_reads_uncommitted_may_stand_behind_the_lso() -> None:
    split = group_lag(15, last_stable_offset=10, high_watermark=21, batches=LOG)
    assert split == {"lag": 6, "behind": 0, "held": 5, "markers": 1}


def test_what_compaction_took_away_is_nothing_to_read() -> None:
    split = group_lag(0, last_stable_offset=10, high_watermark=10, batches=[batch(0, 9, records=3)])
    assert split == {"lag": 10, "behind": 3, "held": 0, "markers": 7}


def test_without_the_log_markers_are_not_known() -> None:
    assert group_lag(2, last_stable_offset=10, high_watermark=21) == {
        "lag": 19, "behind": 8, "held": 11, "markers": None,
    }  # fmt: skip


def test_a_group_ahead_of_the_high_watermark_has_no_lag() -> None:
    assert group_lag(30, last_stable_offset=10, high_watermark=21) == {
        "lag": 0, "behind": 0, "held": 0, "markers": None,
    }  # fmt: skip


@given(st.integers(0, 25), st.integers(0, 21), st.booleans())
def test_the_parts_add_up(committed: int, lso: int, read: bool) -> None:
    split = group_lag(committed, last_stable_offset=lso, high_watermark=21, batches=LOG if read else None)
    assert split["behind"] + split["held"] + (split["markers"] or 0) == split["lag"]
    assert min(split["behind"], split["held"]) >= 0
