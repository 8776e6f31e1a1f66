"""What each plot draws of rows without two equal values, as data: a column or a time in the place of another shows."""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import plotly.graph_objects as go
import pytest

from tests.stored import compare
from tests.views.plots.busy import NOW, busy, finding, history
from toolkit.schema.log import ClusterEvent
from toolkit.views.plots import plot_timeline, timeline_data

MINUTE = dt.timedelta(minutes=1)


def drawn(figure: go.Figure) -> Iterator[str]:
    """Each trace: where it is, and what a pointer finds there."""
    for trace in figure.to_dict()["data"]:
        yield f"{trace.get('name')}"
        for place in ("base", "x", "y"):
            if place in trace:
                yield f"    {place}: {', '.join(map(str, trace[place]))}"
        for place in ("text", "hovertext"):
            texts = trace.get(place) or ()
            yield from (f"    {each}" for each in dict.fromkeys([texts] if isinstance(texts, str) else texts) if each)
    for note in figure.to_dict()["layout"].get("annotations", ()):
        yield f"at {note['x']}, {note['y']}: {note['text']}"


def test_a_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of its transactions are drawn together; an id in each of its states, and too short ones as one."""
    monkeypatch.setattr(timeline_data, "MAX_EVENTS", 2)  # the newest
    log_transactions, findings = busy(20, hanging=2)
    findings[1] = {**findings[1], "transactional_id": "<b>payments</b>-2"}
    short = [dict(row) for row in log_transactions[8:] if row["outcome"] != "open"]
    for number, row in enumerate(short):
        row["start"] = short[0]["start"] + number * MINUTE / 60
        row["end"] = row["start"] + (1 + number) * MINUTE / 600
    rows = [*log_transactions[:8], *(row for row in log_transactions[8:] if row["outcome"] == "open"), *short]
    states: list[dict[str, Any]] = [history(transactional_id="payments-1", producer_id=4712, timeout_ms=61_000)]
    for number in range(3):
        times = {name: NOW + (20 * number + each) * MINUTE / 100 - dt.timedelta(hours=1)
                 for each, name in enumerate(("start_time", "decided_at", "end_time"))}  # fmt: skip
        states.append(history(**times, transactional_id="<b>payments</b>-2", first_offset=200 + number, ended="abort"))
    events = [ClusterEvent(timestamp=NOW - each * MINUTE, event="leader_changed",
                           topic="orders", partition=0, text=f"broker {each} leads") for each in (9, 5, 4)]  # fmt: skip
    figure = plot_timeline(rows, findings=findings, transaction_history=states, cluster_events=events,
                           most=4)  # fmt: skip
    compare("timeline_drawing.txt", drawn(figure))
    compare("timeline_of_a_finding_drawing.txt", drawn(plot_timeline([], findings=[finding()])))
