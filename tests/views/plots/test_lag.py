"""The lag of a group, as data."""

from typing import Any

from tests.views.plots.busy import NOW
from tests.views.plots.drawn import traces, words
from toolkit.schema import GROUP_LAG
from toolkit.views.plots import plot_lag


def lag(**fields: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(GROUP_LAG.names)
    row |= {"group_id": "billing", "topic": "payments", "partition": 0, "committed_offset": 10, "observed_at": NOW}
    row |= {"last_stable_offset": 12, "high_watermark": 33, "lag": 23, "behind": 2, "held": 20, "markers": 1}
    return row | fields


def test_no_title_clears_partitions_whose_lag_is_not_known() -> None:
    """With one partition read and one not, the title said "it has read everything", or "nothing is held"."""
    unread = lag(partition=1, lag=None, behind=None, held=None, markers=None, error="TIMEOUT: no answer")
    hidden = unread | {"topic": None, "partition": None}  # two of one rank were a TypeError
    read = plot_lag([lag(lag=1, behind=0, held=0, markers=1), unread, hidden])
    assert "billing: 2 partitions of 3 not known" in words(read)
    assert "all topics" in traces(read)["held: they follow the LSO"]["y"]
    behind = words(plot_lag([lag(held=0, behind=22), unread]))
    assert "billing: it has 22 records yet to read; 1 partition not known" in behind
    assert "nothing is held" not in behind
    assert "billing: 21 offsets held from it on payments-0" in words(plot_lag([lag(markers=None, held=21)]))
