"""Markers of the producer: which transactions they close, and what those on other partitions contradict."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from tests.analysis.build import observation, partition, producer, transaction
from tests.analysis.logged import (
    ELSEWHERE,
    HERE,
    at,
    coordinator_log,
    data,
    ended_records,
    excerpt,
    init,
    marker,
    open_transaction,
    record,
    with_logs,
)
from toolkit.analysis.diagnosis.decision import Outcome
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.log_excerpts import (
    MarkerSearchPlan,
    excerpt_starts,
    named_topics,
    plan_marker_search,
    search_from,
)
from toolkit.analysis.diagnosis.markers import (
    ClosedTransactions,
    DecidedTransaction,
    MarkerSearch,
    OtherMarker,
    ProducerMarker,
    other_markers,
    unexplained_marker,
)
from toolkit.analysis.transaction_history import IdHistory
from toolkit.formats.headers import ABORT, COMMIT
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition


def commit(decided_at: float, ended_at: float | None = None, **more: Any) -> DecidedTransaction:
    columns = {"is_commit": True, "is_version_2": False, "epoch": 3, "decided_from": decided_at}
    ended = decided_at + 10 if ended_at is None else ended_at
    return DecidedTransaction(**{**columns, "decided_at": decided_at, "ended_at": ended, **more})


def abort(decided_at: float, ended_at: float | None = None, **more: Any) -> DecidedTransaction:
    return commit(decided_at, ended_at, is_commit=False, **more)


def closing_marker(time: float | None, *, is_commit: bool = True, **more: Any) -> ProducerMarker:
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
    assert last([commit(20_000)], closing_marker(20_001, epoch=4), began=0, is_one_coordinator=False) == {0}
    assert last([commit(20_000)], closing_marker(16_000, is_commit=False, epoch=4)) == {0}
    assert last([commit(20_000, epoch=3), commit(20_100, epoch=4)], closing_marker(20_005)) == {0}
    old = [commit(1_000, epoch=2), commit(20_000)]
    assert last(old, closing_marker(1_005, epoch=2)) == {0}
    assert last(old, closing_marker(19_000, epoch=2), is_one_coordinator=False) == set(), (
        "no commit of epoch 2 was that late"
    )
    assert last([commit(19_000, epoch=2), commit(20_000)], closing_marker(19_005, epoch=2), has_gaps=True) == {0, 1}
    assert last([commit(19_000), commit(20_000), commit(21_000)], closing_marker(19_500), has_gaps=True) == {0, 1, 2}
    assert last([commit(1_000), commit(9_000, epoch=4)], closing_marker(None)) == {-1, 0}
    assert last([commit(1_000), commit(9_000, epoch=4)], closing_marker(None), has_gaps=True) == {-1, 0, 1}


def test_a_newer_epoch_closes_all_before() -> None:
    assert last([commit(20_000), commit(20_500)], closing_marker(20_100, is_commit=False, epoch=4)) == {1}


def test_an_abort_marker_of_an_older_epoch_may_be_an_operators() -> None:
    decided = [abort(1_000, epoch=2), commit(20_000)]
    assert last(decided, closing_marker(1_005, is_commit=False, epoch=2)) == {-1, 0}
    assert last(decided, closing_marker(21_000, is_commit=False, epoch=2)) == {0, 1}
    assert last(decided, closing_marker(25_002, is_commit=False, epoch=2)) == {1}


def test_with_version_2_the_marker_has_the_next_epoch() -> None:
    decided = [commit(1_000, is_version_2=True, epoch=2), commit(1_020, is_version_2=True, epoch=3)]
    assert last(decided, closing_marker(1_005, epoch=3)) == {0}
    assert last(decided, closing_marker(1_025, epoch=4), lowest_epoch=4) == {1}
    assert last(decided, read_from=math.inf) == {-1, 0}, "records of epoch 3 are not before its marker"
    assert last(decided, read_from=math.inf, lowest_epoch=2) == {-1}
    assert last([replace(each, epoch=None) for each in decided], read_from=math.inf) == {-1, 0, 1}


def test_with_version_2_a_marker_of_the_other_decision_is_not_its_own() -> None:
    assert last([abort(20_000, is_version_2=True)], closing_marker(20_001, epoch=4), began=19_000) == {-1}
    assert last([commit(20_000, is_version_2=True, epoch=None)], closing_marker(20_001)) == {0}, (
        "nor if its epoch is unknown"
    )


def test_with_version_2_an_operators_marker_has_the_same_epoch() -> None:
    decided = [commit(20_000, is_version_2=True)]
    assert last(decided, closing_marker(30_000, is_commit=False)) == {0}
    assert last(decided, closing_marker(20_000, is_commit=False)) == {-1, 0}
    assert last(decided, closing_marker(10_000, is_commit=False)) == {-1}
    assert last(decided, closing_marker(30_000, is_commit=False, epoch=2)) == set()


# By times


@pytest.mark.parametrize("began", [None, 0])
def test_clocks_differ_by_5_s_at_most(began: float | None) -> None:
    decided = [commit(1_000), commit(20_000)]
    unsure: dict[str, Any] = {"began": began, "is_one_coordinator": False}
    assert last(decided, closing_marker(25_002, is_commit=False), **unsure) == {1}
    assert last(decided, closing_marker(24_999, is_commit=False), **unsure) == {0, 1}
    assert last(decided, closing_marker(15_000, is_commit=False), **unsure) == {0, 1}
    assert last(decided, closing_marker(14_998, is_commit=False), **unsure) == {0}
    assert last([commit(20_000)], closing_marker(60_000), has_gaps=True, began=None) == set(), (
        "times contradict all the same"
    )
    assert last(decided, closing_marker(14_998, is_commit=False), has_gaps=True, **unsure) == {0, 1}, (
        "a marker may be gone"
    )


def test_a_commit_marker_is_of_a_commit() -> None:
    assert last([commit(20_000)], closing_marker(16_000)) == {0}
    assert last([commit(20_000)], closing_marker(25_000)) == {0}
    assert last([commit(19_000), abort(20_000)], closing_marker(20_005)) == {0}
    assert last([abort(19_000), commit(20_000)], closing_marker(19_005)) == {1}
    assert last([commit(19_000), commit(20_000)], closing_marker(19_500)) == {0, 1}
    assert last([commit(19_000, epoch=None), commit(20_000)], closing_marker(19_500)) == {0, 1}
    assert last([commit(19_000, epoch=2), commit(20_000)], closing_marker(19_500)) == {0, 1}, "it may be of epoch 2"
    assert last([commit(19_000, epoch=1), commit(20_000)], closing_marker(19_500)) == {1}


def test_a_commit_marker_is_written_between_the_decision_and_the_end() -> None:
    one_clock: dict[str, Any] = {"is_one_clock": True}
    decided = [commit(1_000, 1_010), commit(2_000, 2_010)]
    for time, found in ((1_000, 0), (1_010, 0), (2_000, 1), (2_010, 1)):
        assert last(decided, closing_marker(time), **one_clock) == {found}
    assert last(decided, closing_marker(1_500), **one_clock) == {0}, (
        "complete, by hand: what was decided before is closed"
    )
    assert last(decided, closing_marker(2_500), **one_clock) == {1}
    assert last(decided, closing_marker(999), **one_clock) == {-1}
    assert last([commit(1_000, math.inf)], closing_marker(1_500), **one_clock) == {0}
    assert last([commit(1_000, 1_010, decided_from=900)], closing_marker(950), **one_clock) == {0}


def test_an_abort_marker_closes_what_was_decided_before() -> None:
    decided = [commit(1_000), commit(2_000)]
    for time, found in ((999, -1), (1_000, 0), (1_999, 0), (2_000, 1), (9_000, 1)):
        assert last(decided, closing_marker(time, is_commit=False), is_one_clock=True) == {found}


def test_a_marker_of_an_unknown_time_shows_nothing() -> None:
    assert last([commit(1_000)], closing_marker(None)) == {-1, 0}
    assert last([commit(1_000), commit(9_000)], closing_marker(1_003), closing_marker(None)) == {-1, 0, 1}
    assert last([commit(1_000), commit(9_000)], closing_marker(None), closing_marker(1_003)) == {0, 1}, (
        "of clocks 8 s apart"
    )
    assert last([commit(1_000), commit(9_000)], closing_marker(1_003)) == {0}


def test_the_limit_of_5_s_holds_to_the_millisecond() -> None:
    assert last([commit(5_000, 5_000)], closing_marker(10_000, is_commit=False)) == {-1, 0}
    assert last([commit(4_999, 4_999)], closing_marker(10_000, is_commit=False)) == {0}
    by_its_start = commit(21_000, decided_from=-math.inf)
    assert last([commit(20_000), by_its_start], closing_marker(10_000, is_commit=False)) == {-1, 1}


# Differences of the clocks that explain other markers


BUSY = [commit(1_000), commit(1_300), commit(2_500), commit(3_100)]


@pytest.mark.parametrize("ahead", [-5_000, -700, 0, 700, 3_900])
def test_earlier_commit_markers_show_the_difference_of_the_clocks(ahead: int) -> None:
    written = [closing_marker(each.decided_at + 5 + ahead) for each in BUSY]
    assert last(BUSY, *written) == {3}
    assert last(BUSY, *written[:-1]) == {2}
    assert 2 in last(BUSY, *written[:-1], began=500)
    assert 3 not in last(BUSY, *written[:-1], began=500)
    assert last(BUSY, *written[:2], closing_marker(2_900 + ahead, is_commit=False)) == {2}, "an operator's"
    assert last(BUSY, *written[:2], closing_marker(3_150 + ahead, is_commit=False)) == {3}


def test_a_marker_may_be_of_a_transaction_before_the_first_record() -> None:
    assert last([commit(3_000)], closing_marker(3_005)) == {0}
    assert last([commit(3_000)], closing_marker(3_005), began=2_900) == {-1, 0}
    assert last([commit(7_910)], closing_marker(7_915), began=2_915) == {-1, 0}
    assert last([commit(7_910)], closing_marker(7_915), began=2_914) == {0}
    found = last([commit(1_000), commit(3_000)], closing_marker(1_200), closing_marker(3_005), began=900)
    assert found == {-1, 0, 1}, "the first marker may be that of an earlier one, by hand"


def test_another_leader_or_a_time_long_ago_shows_nothing() -> None:
    decided = [commit(100_000), commit(100_300), commit(200_000), commit(200_301)]
    two = [closing_marker(100_005), closing_marker(100_305)]
    assert last(decided, *two, closing_marker(200_005)) == {2}
    assert last(decided, *(replace(each, leader_epoch=0) for each in two), closing_marker(200_005)) == {1, 2, 3}
    much_later = [
        replace(each, decided_from=each.decided_at + 90_000, decided_at=each.decided_at + 90_000)
        for each in decided[2:]
    ]
    exact = [commit(100_000, 100_000), commit(200_000, 200_000), commit(200_100, 200_100)]
    assert last(exact, closing_marker(100_000), closing_marker(200_000)) == {1}
    assert last(exact, closing_marker(99_999), closing_marker(200_000)) == {1, 2}, "100 s are compared"
    later = [replace(each, ended_at=each.ended_at + 90_000) for each in much_later]
    assert last([*decided[:2], *later], *two, closing_marker(290_005)) == {1, 2, 3}
    assert last(decided, closing_marker(100_005, is_commit=False), closing_marker(200_005)) == {1, 2, 3}, (
        "an operator's shows nothing"
    )


def test_clocks_drift_apart_by_half_a_millisecond_in_a_second() -> None:
    decided = [commit(1_000, 1_000), commit(61_000, 61_000), commit(61_100, 61_100)]
    assert last(decided, closing_marker(1_000), closing_marker(61_000)) == {1}
    assert last(decided, closing_marker(1_000), closing_marker(61_032)) == {1}
    assert last(decided, closing_marker(1_000), closing_marker(61_033)) == set(), (
        "31 ms and rounding do not explain 32 to 34 ms"
    )
    assert last(decided, closing_marker(1_000), closing_marker(61_050)) == set(), (
        "no drift of 30 ms and rounding explains it"
    )
    assert last(decided, closing_marker(1_000), closing_marker(61_068)) == {1, 2}, (
        "or it is that of the second one, by hand"
    )


def test_markers_that_no_difference_explains_contradict() -> None:
    assert last([commit(20_000)], closing_marker(60_000)) == set(), (
        "the clocks differ by more, or somebody wrote it by hand"
    )
    assert last([commit(20_000)], closing_marker(60_000), closing_marker(90_000, is_commit=False)) == set()
    assert last([commit(20_000)], closing_marker(60_000), is_one_clock=True) == {0}


def test_a_coordinator_that_took_over_has_another_clock() -> None:
    decided = [commit(1_000), commit(9_000), commit(20_000)]
    assert last(decided, closing_marker(12_000), is_one_coordinator=False) == {0, 1}
    assert last(decided, closing_marker(14_000), is_one_coordinator=False) == {0, 1}
    assert last(decided, closing_marker(15_500), is_one_coordinator=False) == {1, 2}
    assert last([commit(9_000, 6_000)], closing_marker(15_000), is_one_coordinator=False) == set()
    assert last([commit(9_000, 7_000)], closing_marker(12_000), is_one_coordinator=False) == {0}, (
        "ended by a clock behind"
    )


def test_each_difference_that_explains_the_markers_is_possible() -> None:
    """By the leader's clock, the first marker came 3 s after the first commit, or just after the second."""
    decided = [commit(1_000), commit(4_000), commit(5_000)]
    assert last(decided, closing_marker(4_005), closing_marker(6_000, is_commit=False)) == {0, 2}


def test_thousands_of_transactions_are_compared_at_once() -> None:
    """20 in a second, as a busy producer commits: this took minutes."""
    between = Random(1)
    decided = [commit(50 * each + between.randrange(40)) for each in range(20_000)]
    markers = [closing_marker(each.decided_at + 2) for each in decided[:-1]]
    assert last(decided, *markers) == {19_998}
    assert last([*decided, commit(1_020_000)], *markers, closing_marker(1_020_001)) == {19_999, 20_000}, (
        "it may be by hand"
    )
    assert last(decided, began=0, read_from=math.inf) == {*range(-1, 20_000)}


# Markers by hand


def test_within_9_s_of_another_marker_none_is_by_hand() -> None:
    """`complete` waits for 10 s. The last marker is that of the third commit, or a late one of the second."""
    decided = [commit(1_000), commit(5_000), commit(10_003)]
    assert last(decided, closing_marker(1_005), closing_marker(10_005)) == {1, 2}
    assert last(decided, closing_marker(1_006), closing_marker(10_005)) == {2}
    with_an_abort = [decided[0], abort(4_000), *decided[1:]]
    assert last(with_an_abort, closing_marker(1_005), closing_marker(10_005)) == {3}, (
        "`complete` refuses beside an abort"
    )


def test_a_marker_by_hand_is_of_a_commit_that_lacked_it_4_s_later_and_beside_the_marker_before() -> None:
    """9 s after it, less the 5 s that the clocks may differ by."""
    older = commit(1_000, epoch=1), closing_marker(1_005, epoch=1)
    assert last([older[0], commit(6_005), commit(10_003)], older[1], closing_marker(10_005)) == {1, 2}
    assert last([older[0], commit(6_006), commit(10_003)], older[1], closing_marker(10_005)) == {2}
    operators = closing_marker(20_005, is_commit=False)
    assert last([commit(15_005), commit(30_003)], operators, closing_marker(30_005)) == {0, 1}
    one = last([commit(15_004), commit(30_003)], operators, closing_marker(30_005), is_one_clock=True)
    assert one == {1}, "it has closed the first commit"
    decided = [abort(1_000), commit(11_000), commit(12_000), commit(13_000)]
    assert last(decided, closing_marker(11_005), closing_marker(12_005)) == {2, 3}, "no commit lacked the first one"


def test_a_marker_by_hand_is_of_a_commit_that_it_fits_and_beside_commits_only() -> None:
    assert last([commit(20_000, epoch=1), commit(20_500)], closing_marker(25_000)) == {1}, "the first has another epoch"
    assert last([commit(16_000), commit(25_500)], closing_marker(25_000)) == {0, 1}
    one = last([abort(10_000), commit(16_000), commit(24_500)], closing_marker(25_000), is_one_clock=True)
    assert one == {2}, "nor has the abort its marker"
    operators = closing_marker(15_000, is_commit=False)
    assert last([commit(25_500), commit(30_003)], operators, closing_marker(30_005)) == {0, 1}


def test_the_time_between_markers_of_two_leaders_is_not_known() -> None:
    decided = [commit(1_000), commit(4_000), commit(10_003)]
    assert last(decided, closing_marker(6_000, leader_epoch=0), closing_marker(10_005)) == {1, 2}
    assert last(decided, closing_marker(None), closing_marker(10_005)) == {1, 2}


def test_a_marker_before_one_by_hand_shows_the_difference_of_its_own_clock_only() -> None:
    """The last marker is by hand, of the second commit. By a clock that is 4 s behind, it is younger than the third."""
    decided = [commit(10_000), commit(20_000), commit(42_000)]
    assert last(decided, closing_marker(6_005, leader_epoch=0), closing_marker(40_000)) == {1, 2}
    long_ago = [commit(-100_000), *decided[1:]]
    assert last(long_ago, closing_marker(-103_995), closing_marker(40_000)) == {1, 2}
    assert last(decided, closing_marker(6_005), closing_marker(40_000), is_one_coordinator=False) == {1, 2}
    assert last(decided, closing_marker(6_005), closing_marker(40_000)) == set()


def test_the_marker_before_one_by_hand_is_of_one_transaction() -> None:
    """It is of the first commit if the leader's clock is 1 s ahead; then `complete` refuses, as the abort lacks one."""
    decided = [commit(10_000), abort(10_500), commit(11_000), commit(20_300), commit(21_000, 21_600)]
    assert last(decided, closing_marker(11_005), closing_marker(21_505)) == {4}


def test_after_a_marker_by_hand_another_one_may_be_by_hand() -> None:
    decided = [commit(1_000), commit(30_000), commit(45_003)]
    assert last(decided, closing_marker(21_000, is_by_hand=True), closing_marker(45_005)) == {1, 2}


def test_the_second_marker_may_be_by_hand() -> None:
    """It is that of the second commit, and fits the third if the leader's clock is 1 s behind. So does the last."""
    decided = [commit(1_000), commit(200_000), commit(211_000), commit(212_000)]
    assert last(decided, closing_marker(1_005), closing_marker(210_000), closing_marker(211_005)) == {2, 3}


def test_either_of_two_markers_may_be_by_hand() -> None:
    """Each leaves other clocks, by which the last marker is of another commit: both count."""
    decided = [commit(20_000), commit(35_000), commit(36_000), commit(37_000)]
    assert last(decided, closing_marker(24_000), closing_marker(39_000), closing_marker(40_005)) == {2, 3}


def test_a_marker_before_one_by_hand_may_be_of_a_transaction_before_the_first_record() -> None:
    decided = [commit(30_000), commit(45_003)]
    assert last(decided, closing_marker(10_000), closing_marker(46_500), began=9_000) == {0, 1}
    assert last(decided, closing_marker(10_000), closing_marker(45_993), began=9_000) == {0, 1}, (
        "the clocks drifted by 18 ms since"
    )


def test_a_marker_of_the_same_millisecond_is_compared() -> None:
    decided = [commit(4_000), commit(4_010, epoch=4), commit(8_000, epoch=4)]
    assert last(decided, closing_marker(5_000), closing_marker(5_000, epoch=4)) == {0, 1}


def found(*rows: dict[str, Any], tp: TopicPartition = ELSEWHERE, pid: int = 7) -> list[OtherMarker]:
    return list(other_markers(tp, excerpt(*rows), pid))


def decided(
    *rows: dict[str, Any],
    markers: Sequence[OtherMarker] = (),
    records: Sequence[Row] = (),
    unread: Sequence[str] = (),
    is_sought: bool = True,
    epoch: int = 4,
    **read: Any,
) -> Outcome:
    """Of open records, by rows of their log, markers on other partitions, and the coordinators' records."""
    search = MarkerSearch(markers=markers) if is_sought else None
    log = excerpt(*(rows or [data(100, epoch=epoch)]), **read)
    coordinators = coordinator_log(records, unread=unread)
    return with_logs(open_transaction(epoch=epoch), log, coordinators, marker_search=search).outcome


COMMITTED = (data(98, epoch=4), marker(99, COMMIT, epoch=5))
ABORTED = (data(98, epoch=4), marker(99, ABORT, epoch=5))
EARLIER_COMMIT = (data(96, epoch=3), marker(97, COMMIT, epoch=4))
THIRD = TopicPartition("payments", 4)
BEGUN = found(*EARLIER_COMMIT, tp=THIRD)  # the commit that began epoch 4
ENDED, ENDED_BY_ABORT = ([*BEGUN, *found(*rows)] for rows in (COMMITTED, ABORTED))
LATER = (data(100, epoch=5), marker(101, ABORT, epoch=6))
(AT_60,) = found(data(98, epoch=4), marker(99, COMMIT, epoch=5, second=60))


def test_a_commit_marker_of_the_same_transaction_proves_the_commit() -> None:
    proven = decided(markers=ENDED)
    assert (proven.name, proven.missing) == ("commit", ())
    assert proven.reason == (
        "the COMMIT marker at offset 99 of payments-3 is of the same transaction (epoch 4), and the log has no marker "
        "of it here"
    )
    (entry,) = proven.evidence
    assert (entry.name, entry.value and entry.value[:24]) == ("marker_elsewhere", "offsets 99..99: COMMIT, ")
    assert proven.offsets == "offsets from 100 on of orders-0", "as without the markers"


def younger(second: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Open records that are younger than another producer's marker of that time."""
    return marker(99, COMMIT, pid=8, second=second), data(100, epoch=4, second=second)


def after(*earlier: dict[str, Any], ended: Sequence[dict[str, Any]] = COMMITTED) -> list[OtherMarker]:
    """The markers of an earlier transaction, and of this one."""
    pid = earlier[-1]["producer_id"] if earlier else 7
    return [*found(*earlier, tp=THIRD, pid=pid), *found(*ended)]


# A coordinator that times out or fences a transaction raises the epoch of clients of version 1, too, and a client can
# go from version 1 to 2 within an epoch: of many transactions with this epoch, the marker is of the last.
EARLIER: dict[str, tuple[dict[str, Any], ...]] = {
    "nothing": (),
    "a commit of an older epoch": (data(96, epoch=2), marker(97, COMMIT, epoch=3)),
    "a commit of version 1": (data(96, epoch=4), marker(97, COMMIT, epoch=4)),
    "an abort": (data(96, epoch=3), marker(97, ABORT, epoch=4)),
    "a commit of which a batch is missing": (data(94, epoch=3), marker(97, COMMIT, epoch=4)),
    "a commit of another producer": (data(96, epoch=3, pid=8), marker(97, COMMIT, epoch=4, pid=8)),
}
OF_ANOTHER: dict[str, tuple[dict[str, Any], ...]] = {  # markers that may be of another transaction
    "version 1: the epoch of its data": (data(98, epoch=4), marker(99, COMMIT, epoch=4)),
    "data of an older epoch": (data(98, epoch=3), marker(99, COMMIT, epoch=5)),
    "newer data since": (data(97, epoch=4), data(98, epoch=5), marker(99, COMMIT, epoch=5)),
    "data of another producer": (data(98, epoch=4, pid=8), marker(99, COMMIT, epoch=5)),
    "marker of another producer": (data(98, epoch=4), marker(99, COMMIT, epoch=5, pid=8)),
    "data after the marker only": (marker(99, COMMIT, epoch=5), data(100, epoch=4)),
    "a marker is no data": (marker(98, ABORT, epoch=4), marker(99, COMMIT, epoch=5)),
    "outside of transactions": (data(98, epoch=4, attributes=0), marker(99, COMMIT, epoch=5)),
}
PROVEN: dict[str, tuple[str, Sequence[dict[str, Any]], dict[str, Any]]] = {  # the outcome; the log, and what else
    "an epoch that a commit began, and an abort": ("abort", (), {"markers": ENDED_BY_ABORT}),
    **{f"{name} before a {end}": ("unknown", (), {"markers": after(*rows, ended=ended)})
       for name, rows in EARLIER.items() for end, ended in (("commit", COMMITTED), ("abort", ABORTED))},
    # A restore of the coordinators' log: another instance got the epoch, and its commit of version 1 was aborted.
    **{
        f"the log has {state} of version {version} of this epoch": (expected, (), {
            "markers": ENDED_BY_ABORT, "unread": ["a part was not read"],
            "records": [record(3, state, second=60, epoch=4, client_transaction_version=version)]})
        for state, version, expected in (("Empty", 2, "unknown"), ("CompleteCommit", None, "unknown"),
                                         ("Ongoing", 1, "unknown"), ("CompleteCommit", 2, "abort"))
    },
    "the commit that began it is on the partition itself": (
        "commit", (*EARLIER_COMMIT, data(100, epoch=4)), {"markers": found(*COMMITTED)}),
    "and began another one": (
        "unknown", (*EARLIER["a commit of version 1"], data(100, epoch=4)), {"markers": found(*COMMITTED)}),
    "others are before and after it": ("commit", (), {"markers": found(*EARLIER_COMMIT, *COMMITTED, *LATER)}),
    "neither is of its epoch": ("unknown", (), {"markers": found(*EARLIER_COMMIT, *LATER)}),
    **{f"a marker of another: {name}": ("unknown", (), {"markers": [*BEGUN, *found(*rows)]})
       for name, rows in OF_ANOTHER.items()},
    "they contradict": ("unknown", (), {"markers": [*ENDED, *found(*ABORTED, tp=THIRD)]}),
    # The reader collects the markers of all producers, and a partition is another one for some of them only.
    "another producer's": ("unknown", (), {
        "markers": [*BEGUN, *found(data(98, pid=8, epoch=4), marker(99, COMMIT, pid=8, epoch=5), pid=8)]}),
    "on the partition itself": ("unknown", (), {"markers": [*BEGUN, *found(*COMMITTED, tp=HERE)]}),
    # One transaction wrote the older records, another one the newer; one marker ends both.
    **{
        f"records of epochs {first} and {newest}": (expected, (data(100, epoch=first), data(101, epoch=newest)), {
            "markers": ENDED, "epoch": newest})
        for first, newest, expected in ((4, 4, "commit"), (4, 5, "unknown"), (3, 4, "unknown"))
    },
    # The epoch of the open records is that of its transactions of version 1, too.
    "a client that goes from version 1 to 2 within an epoch": (
        "unknown", [data(100, epoch=4, sequence=1)], {"markers": ENDED}),
    # DeleteRecords moves the start of the log past it; the LSO stays below.
    "the opening batch was deleted": ("unknown", [data(101, epoch=4)], {"markers": ENDED}),
    # They are a late batch. The clocks of two leaders may differ by 5 s.
    "a marker within the bound before the records": ("commit", younger(65), {"markers": [*BEGUN, AT_60]}),
    "beyond it": ("unknown", younger(65.001), {"markers": [*BEGUN, AT_60]}),
    "one of two is": ("unknown", younger(70), {"markers": [*BEGUN, AT_60, replace(AT_60, tp=THIRD, time=at(80))]}),
    "it may be an old one": ("unknown", younger(70), {"markers": [*BEGUN, replace(AT_60, time=None)]}),
    "markers elsewhere count only once they were sought": (
        "unknown", (*EARLIER_COMMIT, data(100, epoch=4)), {"is_sought": False}),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVEN)
def test_what_markers_elsewhere_prove(name: str) -> None:
    expected, rows, more = PROVEN[name]
    assert decided(*rows, **more).name == expected


def test_markers_of_a_partition() -> None:
    """Of which each has the first batch of its transaction, others' batches in between, and a raised epoch."""
    markers = found(*EARLIER_COMMIT, *COMMITTED, *LATER)
    assert [(each.offset, each.epoch, each.is_raised, each.is_first, each.is_commit) for each in markers] == [
        (97, 4, True, True, True),
        (99, 5, True, True, True),
        (101, 6, True, True, False),
    ]
    assert not any(each.is_raised for rows in OF_ANOTHER.values() for each in found(*rows))
    rows = (data(96, epoch=4, sequence=0), data(97, pid=8, epoch=9), data(98, pid=9), marker(99, COMMIT, epoch=5))
    assert [(each.epoch, each.is_raised) for each in found(*rows)] == [(5, True)]


# A COMMIT marker that the coordinators' log does not explain


ORDERS_7 = TopicPartition("orders", 7)
COMMITS = [init(), *ended_records("Commit", began=60, at_second=70, on=(ELSEWHERE,))]


def history(*rows: Row) -> IdHistory:
    (found,) = coordinator_log(rows or COMMITS).histories.values()
    return found


def commit_at(second: float | None, *, tp: TopicPartition = ELSEWHERE, kind: int = COMMIT, **more: Any) -> OtherMarker:
    """A marker of version 1 with data right before it."""
    times = {"max_timestamp": -1} if second is None else {"second": second}
    (only,) = found(data(98), marker(99, kind, **times, **more), tp=tp)
    return only


COMMIT_70 = ended_records("Commit", began=60, at_second=70, on=(ELSEWHERE,))
AFTER_IT = ended_records("Commit", began=70.1, at_second=70.2, on=(ELSEWHERE,), offset=4)
ON_BOTH = ended_records("Commit", began=60, at_second=70, on=(ELSEWHERE, ORDERS_7))
OF_VERSION_2 = [
    {**row, "client_transaction_version": 2, "producer_epoch": int(number > 1)} for number, row in enumerate(COMMITS)
]
COMMIT_THEN_ABORT, ABORT_THEN_COMMIT = (
    [init(), *ended_records(first, began=60, at_second=66, on=(ELSEWHERE,)),
     *ended_records(second, began=67, at_second=69.9, on=(ELSEWHERE,), offset=4)]
    for first, second in (("Commit", "Abort"), ("Abort", "Commit"))
)  # fmt: skip
AT_70, NEXT, ABORT_70 = commit_at(70), replace(commit_at(70.2), offset=101), commit_at(70, kind=ABORT)
WRITTEN_TWICE = found(data(98), marker(99, COMMIT, second=70), marker(100, COMMIT, second=70.2))
UNEXPLAINED: dict[str, tuple[Sequence[Row], list[OtherMarker], int | None]] = {  # records; markers, and which of them
    "its own commit": (COMMITS, [commit_at(70.1)], None),
    "no markers": (COMMITS, [], None),
    **{  # it was decided at 70 and ended at 70.1; the clocks may differ by 5 s
        f"at {second}": (COMMITS, [commit_at(second)], which)
        for second, which in ((64.9, 0), (65, None), (70, None), (75.1, None), (75.2, 0))
    },
    "a commit that is not ended yet": (COMMITS[:-1], [commit_at(500)], None),
    "it does not list the partition": (COMMITS, [commit_at(70, tp=ORDERS_7)], 0),
    "of another epoch": (COMMITS, [commit_at(70, epoch=1)], 0),
    "it was aborted": ([init(), *ended_records("Abort", began=60, at_second=70, on=(ELSEWHERE,))], [AT_70], 0),
    "it is open, and not decided": ([init(), COMMITS[1]], [AT_70], 0),
    "of the id's next producer id": ([init(), *({**row, "producer_id": 8} for row in COMMIT_70)], [AT_70], 0),
    "a commit of version 2 has a marker of the next epoch": (OF_VERSION_2, [commit_at(70, epoch=1)], None),
    "not of its own": (OF_VERSION_2, [AT_70], 0),
    # Of a transaction, compaction may leave CompleteCommit only, which lists none.
    "its partitions are not known": ([init(), COMMITS[-1]], [commit_at(70, tp=ORDERS_7)], None),
    "one commit explains one marker": (COMMITS, [NEXT, AT_70], 0),
    "on each partition": ([init(), *ON_BOTH], [AT_70, replace(NEXT, tp=ORDERS_7)], None),
    "two commits": ([*COMMITS, *AFTER_IT], [AT_70, NEXT], None),
    # An ABORT marker comes before the commit that the log lost, so that is not of the commit before the abort.
    "a commit after an abort": (COMMIT_THEN_ABORT, [ABORT_70, NEXT], 1),
    "in whatever order they are read": (COMMIT_THEN_ABORT, [NEXT, ABORT_70], 0),
    "it may be of the commit before, within the bound": (COMMIT_THEN_ABORT, [NEXT], None),
    "a commit after an abort that the log has": (ABORT_THEN_COMMIT, [ABORT_70, NEXT], None),
    # A coordinator that takes over writes it again; an operator may, too. No data is between the two.
    "a marker that was written twice": (COMMITS, WRITTEN_TWICE, None),
    "with data in between": (
        COMMITS, found(data(98), marker(99, COMMIT, second=70), data(100), marker(101, COMMIT, second=70.2)), 1
    ),
    # Of a commit that the log lost, compaction took the data on __consumer_offsets.
    "a commit of another epoch repeats none": (
        COMMITS, found(data(98), marker(99, COMMIT, second=70), marker(103, COMMIT, epoch=1, second=300)), 1
    ),
    "nor does one after an abort": (
        COMMIT_THEN_ABORT, found(data(98), marker(99, ABORT, second=70), marker(100, COMMIT, second=300)), 1
    ),
    "what is before it was not read": (COMMITS, found(marker(99, COMMIT, second=300)), None),
    "nothing is before it: the topic was created again": (
        COMMITS, list(other_markers(ELSEWHERE, excerpt(data(0, pid=8), marker(1, COMMIT, second=300), start=0), 7)), 0
    ),
    "a batch may be missing": (
        COMMITS, list(other_markers(ELSEWHERE, excerpt(marker(1, COMMIT, second=300), start=0), 7)), None
    ),
    "operators write ABORT markers, too": (COMMITS, [commit_at(300, kind=ABORT)], None),
    "it has no time": (COMMITS, [commit_at(None)], None),
    "of another producer": (COMMITS, found(data(98, pid=8), marker(99, COMMIT, pid=8, second=300), pid=8), None),
    "the records have no time": ([{**row, "timestamp": None} for row in COMMITS], [commit_at(300)], None),
    # From before the records that are left: it may be of a commit that compaction took.
    **{
        f"at {second}, and the records begin at 60": (COMMIT_70, [commit_at(second, tp=ORDERS_7)], which)
        for second, which in ((30, None), (64.9, None), (65, 0))
    },
    "they begin with another epoch": ([record(0, "Empty", second=60, epoch=1)], [commit_at(30)], None),
    "they begin with an end": ([record(0, "CompleteAbort", second=60)], [commit_at(30)], None),
    "they begin with the producer id": ([record(0, "Empty", second=60)], [commit_at(30)], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", UNEXPLAINED)
def test_a_commit_marker_that_the_log_does_not_explain(name: str) -> None:
    records, markers, which = UNEXPLAINED[name]
    found = unexplained_marker(7, history(*records), markers, is_commit=True)
    assert found == (None if which is None else markers[which])


def test_what_is_not_of_this_producer_contradicts_nothing() -> None:
    assert unexplained_marker(7, None, [commit_at(300)], is_commit=True) is None, "no record of its id is left"
    of_9 = replace(commit_at(300), producer_id=9)
    assert unexplained_marker(9, history(), [of_9], is_commit=True) is None, "nor of this producer"
    assert [each.is_first for each in WRITTEN_TWICE] == [True, False]


@pytest.mark.parametrize(
    ("state", "kind", "epoch", "is_since"),
    [
        ("Empty", COMMIT, 2, True),
        ("Empty", COMMIT, 1, False),
        ("Empty", ABORT, 2, False),
        ("Empty", ABORT, 3, True),
        ("CompleteCommit", COMMIT, 2, False),
        ("CompleteCommit", COMMIT, 3, True),
    ],
)
def test_an_epoch_shows_that_a_marker_is_younger_than_what_compaction_left(
    state: str, kind: int, epoch: int, is_since: bool
) -> None:
    """A second after InitProducerId, the clocks do not; the coordinators' log had lost the commit."""
    left = history(record(5, state, second=69, epoch=2))
    one = commit_at(70, kind=kind, epoch=epoch)
    assert unexplained_marker(7, left, [one], is_commit=kind == COMMIT) == (one if is_since else None)


# A transaction that was ended twice: the coordinators' log may have lost its end, and the next one


TWICE = (data(98, second=60), marker(99, COMMIT, second=70), marker(100, COMMIT, second=90))
ENDED_LATER = [
    *COMMITS[:-2],
    record(2, "PrepareCommit", second=70, started=60, on=(ELSEWHERE,), leader_epoch=3),
    record(3, "CompleteCommit", second=90, started=60, leader_epoch=5),
]


def unproven(*markers: OtherMarker, here: Sequence[dict[str, Any]] = (), records: Sequence[Row] = COMMITS) -> str:
    """What is missing for an open record of epoch 0 at offset 100, written at second 80 by its client."""
    return "; ".join(decided(*here, data(100, second=80), start=0, markers=markers, records=records, epoch=0).missing)


def other(offset: int, second: float, **more: Any) -> dict[str, Any]:
    """Another producer's marker: a broker's time."""
    return marker(offset, COMMIT, pid=8, second=second, **more)


def test_a_repeated_marker_may_hide_a_later_commit() -> None:
    """A power loss took the end of a commit and all of the next one; `abort` lost the records of that one."""
    missing = unproven(*found(*TWICE), records=ENDED_LATER)
    assert "ended twice (the COMMIT marker at offset 100 of payments-3, of " in missing
    assert unproven(*found(*TWICE[:2])) == ""
    with_data = (*TWICE[:2], data(100, second=80), marker(101, COMMIT, second=90))
    assert "repeats" not in unproven(*found(*with_data), records=ENDED_LATER), "they are of two transactions"
    assert "repeats" not in unproven(*found(*TWICE[:2], marker(101, COMMIT, second=90))), "a batch may be missing"
    assert "repeats" not in unproven(*found(TWICE[0], marker(99, ABORT, second=70), TWICE[2])), "one is an ABORT"
    raised = marker(100, COMMIT, second=90, epoch=1)
    assert "repeats" not in unproven(*found(*TWICE[:2], raised)), "of the next epoch"


def test_a_transaction_without_records_on_a_partition_has_a_marker_there_too() -> None:
    """Only the coordinators' log tells it from a marker that was written twice."""
    first = ended_records("Commit", began=60, at_second=69.9, on=(ELSEWHERE,))
    second = ended_records("Commit", began=85, at_second=89.9, on=(ELSEWHERE,), offset=4)
    assert "repeats" not in unproven(*found(*TWICE), records=[init(), *first, *second])
    on_another = ended_records("Commit", began=85, at_second=89.9, on=(ORDERS_7,), offset=4)
    assert "repeats" in unproven(*found(*TWICE), records=[init(), *first, *on_another])
    thrice = (data(96, second=60), marker(97, COMMIT, second=60.2), data(98, second=61), *TWICE[1:2])
    soon = ended_records("Commit", began=60, at_second=60.1, on=(ELSEWHERE,))
    ahead = ended_records("Commit", began=61, at_second=70.1, on=(ELSEWHERE,), offset=4)
    repeated = found(*thrice, marker(100, COMMIT, second=73))
    assert "repeats" in unproven(*repeated, records=[init(), *soon, *ahead]), "its clock is ahead, and both are used"


def test_the_end_by_another_coordinator_may_be_the_second_one() -> None:
    """From 4.3.0 on it skips a partition without a leader, and there is no second marker."""
    assert "it was decided at" in unproven(*found(*TWICE[:2]), records=ENDED_LATER)
    by_second = found(data(98, second=60), marker(99, COMMIT, second=90, coordinator_epoch=5))
    assert unproven(*by_second, records=ENDED_LATER) == "", "the first one had not ended it"
    of_other = found(data(98, pid=8), marker(99, COMMIT, pid=8, second=90, coordinator_epoch=5), pid=8)
    assert "it was decided at" in unproven(*of_other, records=ENDED_LATER), "the marker is another producer's"


@pytest.mark.parametrize(
    ("marked", "ended", "is_doubtful"),
    [(70, 73, False), (70, 73.1, True), (70, 90, True), (90, 90, True), (92.1, 90, False), (None, 90, True)],
)
def test_a_broker_that_starts_again_ends_a_transaction_long_after_its_decision(
    marked: float | None, ended: float, is_doubtful: bool
) -> None:
    """Without a leader epoch of its own: it had loaded before there was an election. The clocks may differ by 5 s."""
    by_one = [*ENDED_LATER[:-1], record(3, "CompleteCommit", second=ended, started=60, leader_epoch=3)]
    markers = () if marked is None else found(data(98, second=60), marker(99, COMMIT, second=marked))
    assert ("it was decided at" in unproven(*markers, records=by_one)) is is_doubtful


@pytest.mark.parametrize(
    ("here", "begun", "is_between"),
    [
        ((), None, True),
        ((other(99, 94.9),), None, True),
        ((other(99, 200),), None, True),
        ((other(99, 200),), 100, False),
        ((other(99, 104.9),), 100, True),
    ],
    ids=["no broker's time", "soon", "its client goes on", "it has begun another", "within the bound"],
)
def test_the_client_of_the_lost_transaction_may_go_on_until_it_begins_another(
    here: Sequence[dict[str, Any]], begun: float | None, is_between: bool
) -> None:
    records = [*COMMITS[:-1], record(3, "CompleteCommit", second=90, started=60)]
    if begun is not None:
        records += [record(4, "Ongoing", second=begun, started=begun, on=(ELSEWHERE,))]
    assert ("ended twice" in unproven(*found(*TWICE), here=here, records=records)) is is_between


def test_records_from_before_the_first_end_are_of_no_later_transaction() -> None:
    for second, is_between in ((64.9, False), (65.1, True)):
        log = partial(
            with_logs,
            log=excerpt(data(100, second=60), other(101, second), start=0),
            coordinators=coordinator_log(ENDED_LATER),
            marker_search=MarkerSearch(markers=found(*TWICE)),
        )
        txn = open_transaction(leader=partition(high_watermark=102, log_end_offset=102))
        missing = "; ".join(log(txn).outcome.missing)
        assert ("ended twice" in missing) is is_between


def test_a_commit_that_the_log_does_not_have_is_a_contradiction() -> None:
    """It has lost its tail, or came back from a backup: then it may have lost a commit of the open records, too."""
    lost = commit_at(30)
    contradicted = decided(data(100, second=20), stop=150, markers=[lost], records=[init()], epoch=0)
    assert (contradicted.name, contradicted.evidence) == ("unknown", (lost.entry,))
    assert contradicted.missing == (
        "the decision of the COMMIT marker at offset 99 of payments-3, of 2026-11-21 11:50:30 UTC: the coordinators' "
        "log does not have it, so it has lost records, and may have lost a decision on offset 100 of orders-0",
    )
    assert contradicted.offsets == "offset 100 of orders-0"
    assert contradicted.no_commit.status == "not proven"


OWN = (data(94, second=62), marker(95, COMMIT, second=70), data(96, pid=1, records=4), data(100, second=80))
LOST_BEFORE = (data(90, pid=1, records=2), data(92, second=28), marker(93, COMMIT, second=30))
COMMITTED_HERE = {"records": [init(), *ended_records("Commit", began=3, at_second=11, on=(HERE, ELSEWHERE))]}
PROVEN_HERE = [
    {**each, "leader_epoch": 3}
    for each in (data(90, pid=1, records=10), data(100, second=4), marker(101, COMMIT, pid=1, second=5))
]
CONTRADICTED: dict[str, tuple[str, Sequence[dict[str, Any]], dict[str, Any]]] = {
    "nothing was committed": ("undecided", [data(100, second=20)], {"records": [init()]}),
    # What no commit includes may be aborted, whatever else was.
    "an abort that the log does not have contradicts a commit only": (
        "undecided", [data(100, second=20)], {"records": [init()], "markers": [commit_at(300, kind=ABORT)]}),
    **{
        f"its own partition's markers: {name}": (expected, (*rows, *OWN), {
            "records": [init(), *ended_records("Commit", began=60, at_second=70)], "is_sought": is_sought})
        for name, rows, is_sought, expected in (
            ("a commit that is lost", LOST_BEFORE, True, "unknown"),
            ("not sought", LOST_BEFORE, False, "undecided"),
            ("its own alone", [data(90, pid=1, records=4)], True, "undecided"))
    },
    # Of a proven commit, it may have lost the abort: then they joined a transaction that was committed later. A commit
    # that lacked its marker on several partitions was completed on one: nothing was proven on the others then.
    **{
        f"a proven commit, and elsewhere {name}": (expected, PROVEN_HERE, {**COMMITTED_HERE, "markers": markers})
        for name, markers, expected in (
            ("nothing", [], "commit"), ("its own", [commit_at(11)], "commit"),
            ("its own, that was completed", [commit_at(300)], "commit"),
            ("a commit after its own", [commit_at(11), replace(commit_at(300), offset=101)], "unknown"),
            ("a commit on another partition", [commit_at(300, tp=ORDERS_7)], "unknown"),
            ("a commit of another epoch", [commit_at(300, epoch=1)], "unknown"),
            ("an abort", [commit_at(300, kind=ABORT)], "unknown"),
            ("an abort at the time of the commit", [commit_at(11, kind=ABORT)], "unknown"))
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTED)
def test_what_contradicts_an_outcome(name: str) -> None:
    expected, rows, more = CONTRADICTED[name]
    assert decided(*rows, stop=150, epoch=0, **more).name == expected


@pytest.mark.parametrize(
    ("end", "data_epoch", "is_explained"),
    [("Commit", 1, True), ("Commit", 0, False), ("Abort", 1, False)],
    ids=["by hand", "a coordinator's", "of no commit"],
)
def test_a_commit_that_was_completed_contradicts_no_other_commit(end: str, data_epoch: int, is_explained: bool) -> None:
    """Two commits of a producer lacked their markers, and once the first one was completed, the other was unknown."""
    of_version_2 = {"epoch": 1, "client_transaction_version": 2}
    log = history(init(), *ended_records(end, began=60, at_second=70, on=(ELSEWHERE,), **of_version_2))
    (one,) = found(data(98, epoch=data_epoch), marker(99, COMMIT, epoch=1, second=300))
    assert unexplained_marker(7, log, [one], is_commit=True) == (None if is_explained else one)


@pytest.mark.parametrize(("epoch", "is_explained"), [(0, True), (1, True), (2, False)])
def test_a_coordinator_may_raise_the_epoch_in_an_abort(epoch: int, is_explained: bool) -> None:
    """Of clients of version 1, too, when it fences or times out; in a commit of theirs it does not."""
    aborted = history(init(), *ended_records("Abort", began=60, at_second=70, on=(ELSEWHERE,)))
    one = commit_at(70, kind=ABORT, epoch=epoch)
    assert unexplained_marker(7, aborted, [one], is_commit=False) == (None if is_explained else one)
    assert unexplained_marker(7, aborted, [one], is_commit=True) is None, "only aborts are looked at"
    if epoch:
        assert unexplained_marker(7, history(), [commit_at(70, epoch=epoch)], is_commit=True) is not None


def test_a_log_that_was_not_read_up_to_the_start_shows_no_batches() -> None:
    """An excerpt up to the offset before it says nothing about what is open."""
    one = open_transaction()
    for rows, shown in (((data(98), data(99)), False), ((data(98), data(100)), True)):
        context = with_logs(one, log=excerpt(*rows))
        assert (context.batches is not None) is shown
    assert one.id_histories == ()


def test_between_the_data_and_its_marker_nothing_may_be_missing() -> None:
    """A batch that the cleaner removed may have had the marker's own epoch, as with version 1."""
    (only,) = found(data(97, epoch=4), marker(99, COMMIT, epoch=5))
    assert (only.is_raised, only.is_first) == (False, True)
    first = marker(95, ABORT, epoch=4)
    markers = found(first, data(98, epoch=4), marker(99, COMMIT, epoch=5))
    assert [(each.offset, each.is_raised) for each in markers] == [(95, False), (99, True)]


def test_the_partitions_of_a_producer_are_read_those_of_its_epoch_and_of_higher_ones_first() -> None:
    """A marker of version 1 has the epoch of its data; what has a lower epoch was written before."""
    context = open_transaction(epoch=4)
    epochs = {("a", 0): 9, ("b", 0): 5, ("e", 0): 4, HERE: 5, ("__transaction_state", 0): 5}
    older = [producer(epoch=3, topic="older", partition=n) for n in range(60)]
    rows = [producer(epoch=epoch, topic=topic, partition=n) for (topic, n), epoch in epochs.items()]
    rows += [producer(8, epoch=5, topic="f"), replace(producer(topic="g"), producer_epoch=None)]
    plan = plan_marker_search([context], [*older, *rows], partitions=())
    names = [("e", 0), ("b", 0), ("a", 0), *(("older", n) for n in range(60))]
    assert [tuple(tp) for tp in plan.partitions] == names
    assert {tuple(map(id, found)) for found in plan.partitions.values()} == {(id(context),)}
    assert plan.unread == {}
    assert named_topics([context]) == {"orders"}
    many = [producer(epoch=4, topic="many", partition=n) for n in range(1_001)]
    assert plan_marker_search([context], many[1:], partitions=()).unread == {}
    assert plan_marker_search([context], many, partitions=()).unread == {
        7: "more than 1,000 partitions would have to be read"
    }
    assert plan_marker_search([context], [], partitions=()) == MarkerSearchPlan(partitions={}, unread={}, ahead={})


@pytest.mark.parametrize(("epoch", "is_ahead"), [(0, False), (1, True)])
def test_an_epoch_that_the_log_does_not_have_shows_that_it_has_lost_records(epoch: int, is_ahead: bool) -> None:
    """It lost a commit of version 2 with the epoch that it raised; the next data was elsewhere, and `abort` lost it."""
    here = excerpt(data(100, second=80), start=0)
    log = partial(with_logs, log=here, coordinators=coordinator_log([init()]), marker_search=MarkerSearch())
    rows = [producer(epoch=0), producer(epoch=epoch, topic="payments", partition=3), producer(8, epoch=9)]
    plan = plan_marker_search([log(open_transaction())], rows, partitions=())
    assert plan.ahead == ({7: rows[1]} if is_ahead else {})
    outcome = partial(log, marker_search=MarkerSearch(ahead=plan.ahead))(open_transaction()).outcome
    assert outcome.name == ("unknown" if is_ahead else "undecided")
    if is_ahead:
        assert outcome.missing[0].startswith("why producer 7 has epoch 1 on payments-3: ")
        assert [(each.source, each.value) for each in outcome.evidence] == [
            ("DescribeProducers", "epoch 1 on payments-3")
        ]
    nothing_left = partial(log, coordinators=coordinator_log([]))(open_transaction())
    assert plan_marker_search([nothing_left], rows, partitions=()).ahead == {}


def test_a_thousand_partitions_are_read_each_for_all_of_its_producers() -> None:
    contexts = [open_transaction(pid=pid) for pid in range(1_002)]
    rows = [producer(pid, epoch=5, topic="payments", partition=pid) for pid in range(1_001)]
    rows.append(producer(1_001, epoch=5, topic="payments", partition=0))
    plan = plan_marker_search(contexts, rows, partitions=())
    assert set(plan.partitions) == {("payments", number) for number in range(1_000)}
    assert plan.partitions[TopicPartition("payments", 0)] == [contexts[0], contexts[1_001]]
    assert plan.unread == {1_000: "more than 1,000 partitions would have to be read"}


def test_partitions_whose_leader_has_forgotten_the_producer_are_read_if_the_records_name_them() -> None:
    """A day after a commit that the coordinators' log lost, nobody looked at its marker elsewhere: `abort` lost it."""
    log = partial(with_logs, coordinators=coordinator_log([record(1, "Ongoing", second=1, on=(ELSEWHERE, HERE))]))
    context = log(open_transaction())
    plan = plan_marker_search([context], [], partitions=[ELSEWHERE, HERE, TopicPartition("other", 0)])
    assert plan.partitions == {ELSEWHERE: [context]}
    assert plan_marker_search([context], [], partitions=[HERE]).partitions == {}, "its topic is deleted"


def test_a_partition_that_the_coordinators_records_name_and_that_could_not_be_read_is_missing() -> None:
    rows = [record(1, "Ongoing", second=1, on=(ELSEWHERE,)), record(2, "Empty", second=2, topic_partitions=None)]
    log = partial(with_logs, coordinators=coordinator_log(rows))
    context, other = log(open_transaction()), log(open_transaction(pid=8))
    assert context.recorded_partitions == {ELSEWHERE}
    failed = producer(topic="payments", partition=3, error="LEADER_NOT_AVAILABLE: none")
    unread = {7: "payments-3 could not be read (LEADER_NOT_AVAILABLE)"}
    assert plan_marker_search([context], [failed], partitions=()) == MarkerSearchPlan(
        partitions={}, unread=unread, ahead={}
    )
    nobody = producer(topic="payments", partition=4, error="LEADER_NOT_AVAILABLE: none")
    assert plan_marker_search([context], [nobody], partitions=()).unread == {}, "no record names it"
    assert plan_marker_search([other], [failed], partitions=()).unread == {}, "another producer's records do"


def test_the_topics_of_its_producer_are_those_that_the_coordinators_records_name() -> None:
    rows = [record(1, "Ongoing", second=1, on=(ELSEWHERE,)), record(2, "Empty", second=2, topic_partitions=None)]
    log = partial(with_logs, coordinators=coordinator_log(rows))
    assert named_topics([log(open_transaction())]) == {"orders", "payments"}


def test_a_partition_is_read_from_before_the_oldest_of_the_open_records() -> None:
    """5 s before a broker's time ahead of them, and a minute more; or before the first record of their producer."""
    one, older = (
        with_logs(open_transaction(), log=excerpt(before, data(100)))
        for before in (marker(99, COMMIT, second=160), marker(99, COMMIT, second=150))
    )
    assert search_from([one, older]) == search_from([older, one]) == at(85)
    assert search_from([one]) == at(95)
    log = partial(with_logs, log=excerpt(data(100, second=-3_000)), coordinators=coordinator_log([init()]))
    by_record = log(open_transaction(transaction(on=())))
    assert search_from([by_record, one]) == at(-66), "a client's time may be any"
    assert search_from([one, open_transaction()]) is None, "one was not read"


def test_the_logs_to_read_for_open_transactions() -> None:
    """Each partition from its lowest transaction on that has written something."""
    leaders = [partition(log_start_offset=60), partition("payments", 3, log_start_offset=None)]
    nowhere = transaction(9, transactional_id="refunds-9", txn_state_partition=None, state="Empty")
    producers = [
        producer(7, start=120),
        producer(8, start=50),
        producer(9, start=130),
        producer(8, start=0, topic="payments", partition=3),
    ]
    unwritten = transaction(10, transactional_id="orders-10")
    one = observation(transaction(7), nowhere, unwritten, producers=producers, partitions=leaders)
    to_read = [each for opened in Diagnosis.of([one]).opened.values() for each in opened]
    starts = excerpt_starts(to_read)
    assert {each.tp: (each.offset, each.producer_ids, each.leader) for each in starts} == {
        HERE: (60, frozenset({7, 8, 9, 10}), leaders[0]),
        ELSEWHERE: (0, frozenset({8}), leaders[1]),
    }
    assert excerpt_starts([]) == []
