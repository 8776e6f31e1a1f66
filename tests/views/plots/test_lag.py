"""The lag of a group, as data."""

from typing import Any

from tests.views.plots.busy import NOW
from tests.views.plots.drawn import hovers, traces, words
from toolkit.schema import GROUP_LAG
from toolkit.views.plots import plot_lag

HELD = "held: they follow the LSO"


def lag(**fields: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(GROUP_LAG.names)
    row |= {"group_id": "billing", "topic": "payments", "partition": 0, "committed_offset": 10, "observed_at": NOW}
    row |= {"last_stable_offset": 12, "high_watermark": 33, "lag": 23, "behind": 2, "held": 20, "markers": 1}
    return row | fields


def test_the_title_is_the_result_and_parts_are_hatched() -> None:
    figure = plot_lag(GROUP_LAG.frame([lag(), lag(partition=1, held=0, behind=22)]))
    assert "billing: 20 records held from it on payments-0" in words(figure)
    drawn = traces(figure)
    assert list(drawn[HELD]["y"]) == ["payments-0", "payments-1"]
    assert len({trace["marker"]["pattern"]["shape"] for trace in drawn.values()}) == 3
    assert "<b>20 held</b>, 2 behind, 1 marker" in words(figure)
    assert all("group <b>billing<" in text for text in hovers(figure))


def test_a_lag_of_only_markers_is_no_alarm() -> None:
    figure = plot_lag([lag(lag=1, behind=0, held=0, markers=1)])
    assert "it has read everything; its lag is only markers" in words(figure)


def test_unknown_parts_are_named() -> None:
    unstable = lag(lag=None, behind=None, held=None, markers=None, error="UNSTABLE_OFFSET_COMMIT: open")
    assert "not known: UNSTABLE_OFFSET_COMMIT: open" in words(plot_lag([unstable]))
    assert "markers not counted on 1 partition" in words(plot_lag([lag(markers=None, held=21)]))


def test_an_empty_figure_states_the_reason() -> None:
    assert "No row of group_lag was given" in words(plot_lag([]))
    assert "given of &lt;b&gt;." in words(plot_lag([lag()], group="<b>"))
    assert "1 partition read: no lag" in words(plot_lag([lag(lag=0, behind=0, held=0, markers=0)]))


def test_no_title_clears_partitions_whose_lag_is_not_known() -> None:
    """With one partition read and one not, the title said "it has read everything", or "nothing is held"."""
    unread = lag(partition=1, lag=None, behind=None, held=None, markers=None, error="TIMEOUT: no answer")
    hidden = unread | {"topic": None, "partition": None}  # two of one rank were a TypeError
    read = plot_lag([lag(lag=1, behind=0, held=0, markers=1), unread, hidden])
    assert "billing: 2 partitions of 3 not known" in words(read)
    assert "all topics" in traces(read)[HELD]["y"]
    behind = words(plot_lag([lag(held=0, behind=22), unread]))
    assert "billing: it has 22 records yet to read; 1 partition not known" in behind
    assert "nothing is held" not in behind
    assert "billing: 21 offsets held from it on payments-0" in words(plot_lag([lag(markers=None, held=21)]))
