"""What was not read is not drawn: no line through a hole, no bar that goes on, no other clock or replica."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.views.plots.busy import NOW, finding, history
from tests.views.plots.drawn import bars, hovers, traces, words
from tests.views.plots.test_holds import HOUR, hold
from toolkit.errors import UsageError
from toolkit.schema import FINDINGS
from toolkit.schema.live import GroupLag, Partition
from toolkit.schema.log import LogTransaction, LsoStep
from toolkit.schema.recorded import LSO_HOLDS
from toolkit.schema.verdict import Verdict
from toolkit.views import next_steps, show
from toolkit.views.plots import number_tiles, plot_holds, plot_lag, plot_overview, plot_timeline

MINUTE = dt.timedelta(minutes=1)
PLACE: dict[str, Any] = {"topic": "orders", "partition": 0}
OPEN = LogTransaction(**PLACE, producer_id=7, producer_epoch=1, first_offset=5, first_batch_last_offset=5,
                      last_offset=6, start=NOW - HOUR, start_clock="broker", outcome="open")  # fmt: skip
ENDED = replace(OPEN, marker_offset=7, marker="COMMIT", outcome="commit", end=NOW - 59 * MINUTE)
OPENED = LsoStep(**PLACE, at=NOW - HOUR, offset=6, last_stable_offset=5, event="open", open_count=1,
                 holder_producer_id=7, holder_first_offset=5)  # fmt: skip
CLEAR = finding(verdict=Verdict.CLEAR, queue_position=None, start_offset=None, producer_id=None, held_from=None,
                opened_at=None, last_stable_offset=600, high_watermark=600, records_held=None)  # fmt: skip


def test_an_observers_clock_moves_no_transaction() -> None:
    """A machine half an hour behind the brokers drew every transaction of the last half hour at one moment."""
    log_transactions = [
        replace(ENDED, first_offset=10 * number, first_batch_last_offset=10 * number, marker_offset=10 * number + 4,
                start=NOW - (60 - number) * MINUTE, end=NOW - (60 - number) * MINUTE + MINUTE / 2)
        for number in range(60)
    ]  # fmt: skip
    figure = plot_timeline(log_transactions, findings=[CLEAR | {"observed_at": NOW - HOUR / 2}])
    ends = [end for _, end, _ in bars(traces(figure)["committed ▲"])]
    assert len(set(ends)) == 60
    assert ends[-1].startswith("2026-11-21 12:58:00")


def test_a_marker_after_the_brokers_time_is_not_earlier() -> None:
    """Of a cluster with ZooKeeper the brokers' time may be that of a record some minutes ago."""
    figure = plot_timeline([replace(ENDED, end=NOW)], findings=[CLEAR | {"brokers_time": NOW - 3 * MINUTE}])
    assert next(bars(traces(figure)["committed ▲"]))[1].startswith("2026-11-21 12:58:30")


def test_a_transaction_that_lost_its_end_is_not_open() -> None:
    """Its end was among missing offsets, and the title was "LSO held at 5 for at least 51 min"."""
    lost = replace(OPEN, outcome=None, error="END_NOT_READ: may have ended")
    later = replace(ENDED, producer_id=8, first_offset=100, first_batch_last_offset=100, marker_offset=102)
    figure = plot_timeline([lost, later])
    assert "it is not known whether anything is open, 1 transaction ended" in words(figure)
    assert "its end was not read" in traces(figure)
    assert "held back" not in traces(figure)


def test_what_the_lso_has_passed_is_not_open() -> None:
    """The log was read before the transaction ended, and the finding after: it was "LSO held"."""
    figure = plot_timeline([OPEN], findings=[CLEAR])
    assert "nothing is open in these tables, 1 transaction ended" in words(figure)


def test_a_transaction_of_which_the_beginning_was_not_read_is_that_of_its_finding() -> None:
    """It was two: one that hangs, and one that is open behind it."""
    row = finding()
    late = replace(OPEN, producer_id=row["producer_id"], first_offset=row["start_offset"] + 90, truncated=True)
    figure = plot_timeline([late], findings=[row])
    assert "open ●" not in traces(figure)
    assert [offset for _, _, offset in bars(traces(figure)["HANGING ✕"])] == [row["start_offset"]]


def test_a_replica_that_lags_holds_nothing() -> None:
    """Files of two brokers: one lacks the marker. The title was "LSO held at 5 for at least 10 min"."""
    steps = [
        replace(OPENED, broker_id=1), replace(OPENED, broker_id=1, offset=7, event="end"),
        replace(OPENED, broker_id=2),
        LsoStep(**PLACE, broker_id=2, at=NOW, offset=20, last_stable_offset=20, event="end", open_count=0),
    ]  # fmt: skip
    figure = plot_timeline([replace(OPEN, broker_id=1), replace(ENDED, broker_id=2)], lso_timeline=steps)
    assert "nothing is open in these tables, 1 transaction ended" in words(figure)
    assert "LSO = high watermark <b>20<" in words(figure)


def test_a_former_leader_that_reaches_further_is_not_drawn_for_the_replica_that_was_diagnosed() -> None:
    """Its marker was lost by an unclean election: what hangs was drawn as committed."""
    hanging = finding(broker_id=1, producer_id=7, start_offset=5)
    drawn = traces(plot_timeline([replace(OPEN, broker_id=1), replace(ENDED, broker_id=2)], findings=[hanging]))
    assert "committed ▲" not in drawn
    assert [offset for _, _, offset in bars(drawn["HANGING ✕"])] == [5]


def test_no_line_goes_on_through_samples_that_failed() -> None:
    """Half an hour without a leader was a straight line of the LSO."""
    times = [NOW - (60 - minute) * MINUTE for minute in range(60)]
    samples = [
        Partition(**PLACE, high_watermark=100 + number, last_stable_offset=50 + number, observed_at=time)
        if not 10 < number < 40
        else Partition(**PLACE, observed_at=time, error="LEADER_NOT_AVAILABLE: no leader")
        for number, time in enumerate(times)
    ]
    for name in ("LSO", "high watermark"):
        drawn = traces(plot_timeline([], partitions=samples))[name]
        gap = list(drawn["x"]).index(None)
        assert drawn["y"][gap] is None
        assert (drawn["x"][gap - 1][11:16], drawn["x"][gap + 1][11:16]) == ("12:09", "12:38")


def test_no_line_goes_on_behind_a_hole_in_the_log() -> None:
    """The LSO followed the log end there, as if nothing were open."""
    hole = LsoStep(**PLACE, offset=40, error="OFFSETS_LOST: No segment has offsets 40 to 59.")
    steps = [OPENED, LsoStep(**PLACE, at=NOW, offset=90, last_stable_offset=90, event="end", open_count=0), hole]
    figure = plot_timeline([OPEN], lso_timeline=steps)
    assert traces(figure)["LSO"]["y"][-1] is None
    assert "LSO = high watermark" not in words(figure)


def test_short_states_have_no_facts_of_the_first_one() -> None:
    second = dt.timedelta(seconds=1)
    rows = [
        history(start_time=time, decided_at=time, end_time=time, producer_epoch=n, first_offset=n)
        for n, time in enumerate(NOW - HOUR + n * second for n in range(50))
    ]
    figure = plot_timeline([], findings=[finding()], transaction_history=rows)
    (text,) = [each for each in hovers(figure) if "transactions <b>50<" in each]
    assert "epoch" not in text


def test_holds_of_two_clusters_are_not_one() -> None:
    """The same id in both was "a held an LSO longest: 2 h in 2 holds"."""
    east, west = (LSO_HOLDS.frame([each]) for each in (hold("a", 9, 7), hold("a", 9, 8)))
    figure = plot_holds({"east": east, "west": west})
    assert "a (east) held an LSO longest: 2 h in 1 hold" in words(figure)
    assert "2 holds of 2 partitions by 2 ids" in words(figure)
    with pytest.raises(UsageError, match="are several frames"):
        plot_holds([east, west])
    assert "of several clusters or logs" in words(plot_holds([hold("a", 9, 7), hold("b", 9, 8)]))


def test_a_hold_goes_on_up_to_when_it_was_seen() -> None:
    """Without a time of its own, it went on to the newest time of another partition; before a day, into that day."""
    unseen, other = hold("a", 9, None), replace(hold("b", 3, 1), partition=1)
    assert "b held an LSO longest: 2 h" in words(plot_holds([unseen, other]))
    seen = replace(hold("a", 30, None), as_of=NOW - 20 * HOUR)
    text = words(plot_holds([seen, hold("b", 3, 2)], since=NOW - 6 * HOUR))
    assert "1 hold of 1 partition by 1 id; 1 held when last seen, before that time, not drawn" in text
    (hovered,) = hovers(plot_holds([hold("a", 30, 1)], since=NOW - 6 * HOUR))
    assert "from <b>2026-11-20 06:58:30" in hovered, "it was when the day begins"


def test_lag_of_two_clusters_is_not_added_up() -> None:
    lag = GroupLag(group_id="g", **PLACE, lag=8, behind=8, held=0)
    with pytest.raises(UsageError, match="several rows of this group"):
        plot_lag([lag, replace(lag, lag=5, behind=5)])


@pytest.mark.parametrize("names", [["topic", "partition"], ["verdict", "topic"], ["partition", "reason"], ["verdict"]])
def test_a_frame_that_lacks_columns_says_nothing_of_them(names: list[str]) -> None:
    """An empty one was "no segments"; with a row, "0 records waiting", or an AttributeError."""
    empty, rows = FINDINGS.frame()[names], FINDINGS.frame([finding()])[names]
    assert repr(show(empty)) == "no findings"
    assert repr(show(empty.reset_index(drop=True).rename_axis(None).copy())) == "no findings"
    bare = rows.iloc[:0].copy()
    bare.attrs = {}
    assert repr(show(bare)) == "no rows"
    assert "findings" in show(rows)._repr_html_()
    for function in (plot_overview, number_tiles, next_steps, lambda data: plot_timeline(None, findings=data)):
        with pytest.raises(UsageError, match="The whole table findings is needed; this frame lacks"):
            function(rows)
    assert "no findings" in number_tiles(empty)
    assert "0" not in number_tiles(empty).split("</style>")[1]
    reordered = FINDINGS.frame([finding()])[FINDINGS.names[::-1]]
    assert words(plot_overview(reordered)) == words(plot_overview([finding()]))


def test_an_all_clear_of_a_selection_is_about_it_only() -> None:
    rows = [CLEAR, CLEAR | {"partition": 1}]
    assert "Nothing is held on 2 partitions" in words(plot_overview(rows))
    assert "a consumer of these 2 partitions: check" in repr(next_steps(rows))
