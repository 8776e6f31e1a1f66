"""What was not read is not drawn: no line through a hole, no bar that goes on, no other clock or replica."""

import datetime as dt
from dataclasses import replace

import pytest

from tests.views.plots.busy import NOW, finding, history
from tests.views.plots.drawn import bars, hovers, traces, words
from tests.views.plots.test_stored_drawings import HOUR, MINUTE, PLACE, hold
from toolkit.errors import UsageError
from toolkit.schema import FINDINGS, LSO_HOLDS
from toolkit.schema.live import GroupLag, Partition
from toolkit.schema.log import LogTransaction, LsoStep
from toolkit.schema.verdict import Verdict
from toolkit.views import next_steps, show
from toolkit.views.plots import number_tiles, plot_holds, plot_lag, plot_overview, plot_timeline

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


def test_a_transaction_of_which_the_beginning_was_not_read_is_that_of_its_finding() -> None:
    """It was two: one that hangs, and one that is open behind it."""
    row = finding()
    late = replace(OPEN, producer_id=row["producer_id"], first_offset=row["start_offset"] + 90, truncated=True)
    figure = plot_timeline([late], findings=[row])
    assert "open ●" not in traces(figure)
    assert [offset for _, _, offset in bars(traces(figure)["HANGING ✕"])] == [row["start_offset"]]


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


def test_holds_that_are_several_frames_are_an_error_and_a_hold_began_when_it_did() -> None:
    east, west = (LSO_HOLDS.frame([hold("a", 540, ended)]) for ended in (420, 480))
    with pytest.raises(UsageError, match="are several frames"):
        plot_holds([east, west])
    (hovered,) = hovers(plot_holds([hold("a", 1800, 60)], since=NOW - 6 * HOUR))
    assert "from <b>2026-11-20 06:58:30" in hovered, "it was when the day begins"
    assert "No row has a hold since 20" in words(plot_holds([hold("a", 540, 480)], since="today"))
    assert "a consumer of these 2 partitions: check" in repr(next_steps([CLEAR, CLEAR | {"partition": 1}]))


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
