"""Which decided transactions have a marker after their decision, to the millisecond."""

import math
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from toolkit.analysis.diagnosis.markers import ClosedTransactions, DecidedTransaction, ProducerMarker


def commit(decided_at: float, ended_at: float | None = None, **more: Any) -> DecidedTransaction:
    columns = {"is_commit": True, "is_version_2": False, "epoch": 3, "decided_from": decided_at}
    ended = decided_at + 10 if ended_at is None else ended_at
    return DecidedTransaction(**{**columns, "decided_at": decided_at, "ended_at": ended, **more})


def abort(decided_at: float, ended_at: float | None = None, **more: Any) -> DecidedTransaction:
    return commit(decided_at, ended_at, is_commit=False, **more)


def marker(time: float | None, *, is_commit: bool = True, **more: Any) -> ProducerMarker:
    columns = {"offset": 9, "epoch": 3, "is_commit": is_commit, "time": time, "leader_epoch": 1}
    return ProducerMarker(**{**columns, **more})


def last(decided: list[DecidedTransaction], *markers: ProducerMarker, **more: Any) -> set[int]:
    fields: dict[str, Any] = {
        "lowest_epoch": 3, "began": None, "read_from": -math.inf, "is_whole": False, "has_gaps": False,
        "has_clocks": True, "is_one_coordinator": True, "is_one_clock": False,
    }  # fmt: skip
    return ClosedTransactions(decided=decided, markers=markers, **{**fields, **more}).last()


# Without a marker


def test_without_a_marker_nothing_is_closed_if_the_partition_was_read_from_before_the_decision() -> None:
    assert last([commit(20_000)]) == {-1}
    assert last([commit(20_000)], read_from=14_999) == {-1}
    assert last([commit(20_000)], read_from=15_000) == {-1, 0}
    assert last([commit(20_000, decided_from=19_000)], read_from=14_500) == {-1, 0}
    assert last([commit(20_000)], read_from=math.inf) == {-1, 0}
    assert last([commit(12_000), commit(20_000)], read_from=9_000) == {-1, 0}, "the second one's marker would be there"
    assert last([commit(20_000)], has_gaps=True) == {-1, 0}
    assert last([]) == {-1}


def test_offset_0_is_no_proof_that_the_log_is_older_than_the_decision() -> None:
    """A topic that was deleted and created again begins at offset 0, too, and has no marker from before."""
    assert last([commit(20_000)], read_from=math.inf, is_whole=True) == {-1, 0}
    assert last([commit(20_000)], read_from=14_999, has_clocks=False) == {-1, 0}, "clocks that contradict"


# By epochs


def test_a_marker_of_a_newer_epoch_closes_and_one_of_an_older_epoch_is_from_before() -> None:
    assert last([commit(20_000)], marker(20_001, epoch=4), began=0, is_one_coordinator=False) == {0}
    assert last([commit(20_000)], marker(16_000, is_commit=False, epoch=4)) == {0}
    assert last([commit(20_000, epoch=3), commit(20_100, epoch=4)], marker(20_005)) == {0}
    old = [commit(1_000, epoch=2), commit(20_000)]
    assert last(old, marker(1_005, epoch=2)) == {0}
    assert last(old, marker(19_000, epoch=2), is_one_coordinator=False) == set(), "no commit of epoch 2 was that late"
    assert last([commit(19_000, epoch=2), commit(20_000)], marker(19_005, epoch=2), has_gaps=True) == {0, 1}
    assert last([commit(19_000), commit(20_000), commit(21_000)], marker(19_500), has_gaps=True) == {0, 1, 2}
    assert last([commit(1_000), commit(9_000, epoch=4)], marker(None)) == {-1, 0}
    assert last([commit(1_000), commit(9_000, epoch=4)], marker(None), has_gaps=True) == {-1, 0, 1}


def test_a_newer_epoch_closes_all_before() -> None:
    assert last([commit(20_000), commit(20_500)], marker(20_100, is_commit=False, epoch=4)) == {1}


def test_an_abort_marker_of_an_older_epoch_may_be_an_operators() -> None:
    decided = [abort(1_000, epoch=2), commit(20_000)]
    assert last(decided, marker(1_005, is_commit=False, epoch=2)) == {-1, 0}
    assert last(decided, marker(21_000, is_commit=False, epoch=2)) == {0, 1}
    assert last(decided, marker(25_002, is_commit=False, epoch=2)) == {1}


def test_with_version_2_the_marker_has_the_next_epoch() -> None:
    decided = [commit(1_000, is_version_2=True, epoch=2), commit(1_020, is_version_2=True, epoch=3)]
    assert last(decided, marker(1_005, epoch=3)) == {0}
    assert last(decided, marker(1_025, epoch=4), lowest_epoch=4) == {1}
    assert last(decided, read_from=math.inf) == {-1, 0}, "records of epoch 3 are not before its marker"
    assert last(decided, read_from=math.inf, lowest_epoch=2) == {-1}
    assert last([replace(each, epoch=None) for each in decided], read_from=math.inf) == {-1, 0, 1}


def test_with_version_2_a_marker_of_the_other_decision_is_not_its_own() -> None:
    assert last([abort(20_000, is_version_2=True)], marker(20_001, epoch=4), began=19_000) == {-1}
    assert last([commit(20_000, is_version_2=True, epoch=None)], marker(20_001)) == {0}, "nor if its epoch is unknown"


def test_with_version_2_an_operators_marker_has_the_same_epoch() -> None:
    decided = [commit(20_000, is_version_2=True)]
    assert last(decided, marker(30_000, is_commit=False)) == {0}
    assert last(decided, marker(20_000, is_commit=False)) == {-1, 0}
    assert last(decided, marker(10_000, is_commit=False)) == {-1}
    assert last(decided, marker(30_000, is_commit=False, epoch=2)) == set()


# By times


@pytest.mark.parametrize("began", [None, 0])
def test_clocks_differ_by_5_s_at_most(began: float | None) -> None:
    decided = [commit(1_000), commit(20_000)]
    unsure: dict[str, Any] = {"began": began, "is_one_coordinator": False}
    assert last(decided, marker(25_002, is_commit=False), **unsure) == {1}
    assert last(decided, marker(24_999, is_commit=False), **unsure) == {0, 1}
    assert last(decided, marker(15_000, is_commit=False), **unsure) == {0, 1}
    assert last(decided, marker(14_998, is_commit=False), **unsure) == {0}
    assert last([commit(20_000)], marker(60_000), has_gaps=True, began=None) == set(), "times contradict all the same"
    assert last(decided, marker(14_998, is_commit=False), has_gaps=True, **unsure) == {0, 1}, "a marker may be gone"


def test_a_commit_marker_is_of_a_commit() -> None:
    assert last([commit(20_000)], marker(16_000)) == {0}
    assert last([commit(20_000)], marker(25_000)) == {0}
    assert last([commit(19_000), abort(20_000)], marker(20_005)) == {0}
    assert last([abort(19_000), commit(20_000)], marker(19_005)) == {1}
    assert last([commit(19_000), commit(20_000)], marker(19_500)) == {0, 1}
    assert last([commit(19_000, epoch=None), commit(20_000)], marker(19_500)) == {0, 1}
    assert last([commit(19_000, epoch=2), commit(20_000)], marker(19_500)) == {0, 1}, "it may be of epoch 2"
    assert last([commit(19_000, epoch=1), commit(20_000)], marker(19_500)) == {1}


def test_a_commit_marker_is_written_between_the_decision_and_the_end() -> None:
    one_clock: dict[str, Any] = {"is_one_clock": True}
    decided = [commit(1_000, 1_010), commit(2_000, 2_010)]
    for time, found in ((1_000, 0), (1_010, 0), (2_000, 1), (2_010, 1)):
        assert last(decided, marker(time), **one_clock) == {found}
    assert last(decided, marker(1_500), **one_clock) == {0}, "complete, by hand: what was decided before is closed"
    assert last(decided, marker(2_500), **one_clock) == {1}
    assert last(decided, marker(999), **one_clock) == {-1}
    assert last([commit(1_000, math.inf)], marker(1_500), **one_clock) == {0}
    assert last([commit(1_000, 1_010, decided_from=900)], marker(950), **one_clock) == {0}


def test_an_abort_marker_closes_what_was_decided_before() -> None:
    decided = [commit(1_000), commit(2_000)]
    for time, found in ((999, -1), (1_000, 0), (1_999, 0), (2_000, 1), (9_000, 1)):
        assert last(decided, marker(time, is_commit=False), is_one_clock=True) == {found}


def test_a_marker_of_an_unknown_time_shows_nothing() -> None:
    assert last([commit(1_000)], marker(None)) == {-1, 0}
    assert last([commit(1_000), commit(9_000)], marker(1_003), marker(None)) == {-1, 0, 1}
    assert last([commit(1_000), commit(9_000)], marker(None), marker(1_003)) == {0, 1}, "of clocks 8 s apart"
    assert last([commit(1_000), commit(9_000)], marker(1_003)) == {0}


def test_the_limit_of_5_s_holds_to_the_millisecond() -> None:
    assert last([commit(5_000, 5_000)], marker(10_000, is_commit=False)) == {-1, 0}
    assert last([commit(4_999, 4_999)], marker(10_000, is_commit=False)) == {0}
    by_its_start = commit(21_000, decided_from=-math.inf)
    assert last([commit(20_000), by_its_start], marker(10_000, is_commit=False)) == {-1, 1}


# Differences of the clocks that explain other markers


BUSY = [commit(1_000), commit(1_300), commit(2_500), commit(3_100)]


@pytest.mark.parametrize("ahead", [-5_000, -700, 0, 700, 3_900])
def test_earlier_commit_markers_show_the_difference_of_the_clocks(ahead: int) -> None:
    written = [marker(each.decided_at + 5 + ahead) for each in BUSY]
    assert last(BUSY, *written) == {3}
    assert last(BUSY, *written[:-1]) == {2}
    assert 2 in last(BUSY, *written[:-1], began=500)
    assert 3 not in last(BUSY, *written[:-1], began=500)
    assert last(BUSY, *written[:2], marker(2_900 + ahead, is_commit=False)) == {2}, "an operator's"
    assert last(BUSY, *written[:2], marker(3_150 + ahead, is_commit=False)) == {3}


def test_a_marker_may_be_of_a_transaction_before_the_first_record() -> None:
    assert last([commit(3_000)], marker(3_005)) == {0}
    assert last([commit(3_000)], marker(3_005), began=2_900) == {-1, 0}
    assert last([commit(7_910)], marker(7_915), began=2_915) == {-1, 0}
    assert last([commit(7_910)], marker(7_915), began=2_914) == {0}
    found = last([commit(1_000), commit(3_000)], marker(1_200), marker(3_005), began=900)
    assert found == {-1, 0, 1}, "the first marker may be that of an earlier one, by hand"


def test_another_leader_or_a_time_long_ago_shows_nothing() -> None:
    decided = [commit(100_000), commit(100_300), commit(200_000), commit(200_301)]
    two = [marker(100_005), marker(100_305)]
    assert last(decided, *two, marker(200_005)) == {2}
    assert last(decided, *(replace(each, leader_epoch=0) for each in two), marker(200_005)) == {1, 2, 3}
    much_later = [
        replace(each, decided_from=each.decided_at + 90_000, decided_at=each.decided_at + 90_000)
        for each in decided[2:]
    ]
    exact = [commit(100_000, 100_000), commit(200_000, 200_000), commit(200_100, 200_100)]
    assert last(exact, marker(100_000), marker(200_000)) == {1}
    assert last(exact, marker(99_999), marker(200_000)) == {1, 2}, "100 s are compared"
    later = [replace(each, ended_at=each.ended_at + 90_000) for each in much_later]
    assert last([*decided[:2], *later], *two, marker(290_005)) == {1, 2, 3}
    assert last(decided, marker(100_005, is_commit=False), marker(200_005)) == {1, 2, 3}, "an operator's shows nothing"


def test_clocks_drift_apart_by_half_a_millisecond_in_a_second() -> None:
    decided = [commit(1_000, 1_000), commit(61_000, 61_000), commit(61_100, 61_100)]
    assert last(decided, marker(1_000), marker(61_000)) == {1}
    assert last(decided, marker(1_000), marker(61_032)) == {1}
    assert last(decided, marker(1_000), marker(61_033)) == set(), "31 ms and rounding do not explain 32 to 34 ms"
    assert last(decided, marker(1_000), marker(61_050)) == set(), "no drift of 30 ms and rounding explains it"
    assert last(decided, marker(1_000), marker(61_068)) == {1, 2}, "or it is that of the second one, by hand"


def test_markers_that_no_difference_explains_contradict() -> None:
    assert last([commit(20_000)], marker(60_000)) == set(), "the clocks differ by more, or somebody wrote it by hand"
    assert last([commit(20_000)], marker(60_000), marker(90_000, is_commit=False)) == set()
    assert last([commit(20_000)], marker(60_000), is_one_clock=True) == {0}


def test_a_coordinator_that_took_over_has_another_clock() -> None:
    decided = [commit(1_000), commit(9_000), commit(20_000)]
    assert last(decided, marker(12_000), is_one_coordinator=False) == {0, 1}
    assert last(decided, marker(14_000), is_one_coordinator=False) == {0, 1}
    assert last(decided, marker(15_500), is_one_coordinator=False) == {1, 2}
    assert last([commit(9_000, 6_000)], marker(15_000), is_one_coordinator=False) == set()
    assert last([commit(9_000, 7_000)], marker(12_000), is_one_coordinator=False) == {0}, "ended by a clock behind"


def test_each_difference_that_explains_the_markers_is_possible() -> None:
    """By the leader's clock, the first marker came 3 s after the first commit, or just after the second."""
    decided = [commit(1_000), commit(4_000), commit(5_000)]
    assert last(decided, marker(4_005), marker(6_000, is_commit=False)) == {0, 2}


def test_thousands_of_transactions_are_compared_at_once() -> None:
    """20 in a second, as a busy producer commits: this took minutes."""
    between = Random(1)
    decided = [commit(50 * each + between.randrange(40)) for each in range(20_000)]
    markers = [marker(each.decided_at + 2) for each in decided[:-1]]
    assert last(decided, *markers) == {19_998}
    assert last([*decided, commit(1_020_000)], *markers, marker(1_020_001)) == {19_999, 20_000}, "it may be by hand"
    assert last(decided, began=0, read_from=math.inf) == {*range(-1, 20_000)}


# Markers by hand


def test_within_9_s_of_another_marker_none_is_by_hand() -> None:
    """`complete` waits for 10 s. The last marker is that of the third commit, or a late one of the second."""
    decided = [commit(1_000), commit(5_000), commit(10_003)]
    assert last(decided, marker(1_005), marker(10_005)) == {1, 2}
    assert last(decided, marker(1_006), marker(10_005)) == {2}
    with_an_abort = [decided[0], abort(4_000), *decided[1:]]
    assert last(with_an_abort, marker(1_005), marker(10_005)) == {3}, "`complete` refuses beside an abort"


def test_a_marker_by_hand_is_of_a_commit_that_lacked_it_4_s_later_and_beside_the_marker_before() -> None:
    """9 s after it, less the 5 s that the clocks may differ by."""
    older = commit(1_000, epoch=1), marker(1_005, epoch=1)
    assert last([older[0], commit(6_005), commit(10_003)], older[1], marker(10_005)) == {1, 2}
    assert last([older[0], commit(6_006), commit(10_003)], older[1], marker(10_005)) == {2}
    operators = marker(20_005, is_commit=False)
    assert last([commit(15_005), commit(30_003)], operators, marker(30_005)) == {0, 1}
    one = last([commit(15_004), commit(30_003)], operators, marker(30_005), is_one_clock=True)
    assert one == {1}, "it has closed the first commit"
    decided = [abort(1_000), commit(11_000), commit(12_000), commit(13_000)]
    assert last(decided, marker(11_005), marker(12_005)) == {2, 3}, "no commit lacked the first one"


def test_a_marker_by_hand_is_of_a_commit_that_it_fits_and_beside_commits_only() -> None:
    assert last([commit(20_000, epoch=1), commit(20_500)], marker(25_000)) == {1}, "the first has another epoch"
    assert last([commit(16_000), commit(25_500)], marker(25_000)) == {0, 1}
    one = last([abort(10_000), commit(16_000), commit(24_500)], marker(25_000), is_one_clock=True)
    assert one == {2}, "nor has the abort its marker"
    operators = marker(15_000, is_commit=False)
    assert last([commit(25_500), commit(30_003)], operators, marker(30_005)) == {0, 1}


def test_the_time_between_markers_of_two_leaders_is_not_known() -> None:
    decided = [commit(1_000), commit(4_000), commit(10_003)]
    assert last(decided, marker(6_000, leader_epoch=0), marker(10_005)) == {1, 2}
    assert last(decided, marker(None), marker(10_005)) == {1, 2}


def test_a_marker_before_one_by_hand_shows_the_difference_of_its_own_clock_only() -> None:
    """The last marker is by hand, of the second commit. By a clock that is 4 s behind, it is younger than the third."""
    decided = [commit(10_000), commit(20_000), commit(42_000)]
    assert last(decided, marker(6_005, leader_epoch=0), marker(40_000)) == {1, 2}
    long_ago = [commit(-100_000), *decided[1:]]
    assert last(long_ago, marker(-103_995), marker(40_000)) == {1, 2}
    assert last(decided, marker(6_005), marker(40_000), is_one_coordinator=False) == {1, 2}
    assert last(decided, marker(6_005), marker(40_000)) == set()


def test_the_marker_before_one_by_hand_is_of_one_transaction() -> None:
    """It is of the first commit if the leader's clock is 1 s ahead; then `complete` refuses, as the abort lacks one."""
    decided = [commit(10_000), abort(10_500), commit(11_000), commit(20_300), commit(21_000, 21_600)]
    assert last(decided, marker(11_005), marker(21_505)) == {4}


def test_after_a_marker_by_hand_another_one_may_be_by_hand() -> None:
    decided = [commit(1_000), commit(30_000), commit(45_003)]
    assert last(decided, marker(21_000, is_by_hand=True), marker(45_005)) == {1, 2}


def test_the_second_marker_may_be_by_hand() -> None:
    """It is that of the second commit, and fits the third if the leader's clock is 1 s behind. So does the last."""
    decided = [commit(1_000), commit(200_000), commit(211_000), commit(212_000)]
    assert last(decided, marker(1_005), marker(210_000), marker(211_005)) == {2, 3}


def test_a_marker_before_one_by_hand_may_be_of_a_transaction_before_the_first_record() -> None:
    decided = [commit(30_000), commit(45_003)]
    assert last(decided, marker(10_000), marker(46_500), began=9_000) == {0, 1}
    assert last(decided, marker(10_000), marker(45_993), began=9_000) == {0, 1}, "the clocks drifted by 18 ms since"


def test_a_marker_of_the_same_millisecond_is_compared() -> None:
    decided = [commit(4_000), commit(4_010, epoch=4), commit(8_000, epoch=4)]
    assert last(decided, marker(5_000), marker(5_000, epoch=4)) == {0, 1}
