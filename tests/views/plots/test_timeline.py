"""The timeline, as data: nothing that hangs is ever hidden, and every id is there."""

import datetime as dt
import json
from typing import Any

import pytest

from tests.views.plots.busy import FIRST, NOW, busy, finding, history
from tests.views.plots.drawn import bars, hovers, traces, words
from toolkit.schema import FINDINGS, LOG_TRANSACTIONS
from toolkit.schema.coerce import records_of
from toolkit.schema.log import ClusterEvent, LogTransaction, PastTransaction
from toolkit.views.plots import plot_timeline
from toolkit.views.plots.plot_theme import when
from toolkit.views.plots.timeline_data import MANY, LsoCurve, TimelineTables, intervals, merged, timeline_data

HOUR = dt.timedelta(hours=1)


def test_a_reason_with_long_names_is_there_to_its_end() -> None:
    """An id of 249 letters, which Kafka allows, took both lines below the title: the end of the reason was cut off."""
    reason = f'coordinator 3: id "{"a" * 249}" is CompleteAbort, so no coordinator will end this transaction'
    figure = plot_timeline([], findings=[finding(transactional_id="a" * 249, reason=reason)])
    assert "so no coordinator will end this transaction" in words(figure)
    assert max(map(len, figure.layout.title.subtitle.text.split("<br>"))) < 110


@pytest.mark.parametrize("as_frames", [False, True])
def test_every_hanging_one_of_50_000_transactions_is_drawn(as_frames: bool) -> None:
    log_transactions, findings = busy(50_000, hanging=60)
    tables = (
        (LOG_TRANSACTIONS.frame(log_transactions), FINDINGS.frame(findings))
        if as_frames
        else (log_transactions, findings)
    )
    figure = plot_timeline(tables[0], findings=tables[1])
    drawn = {offset for _, _, offset in bars(traces(figure)["HANGING ✕"])}
    assert drawn == {row["start_offset"] for row in findings}
    assert all(end.startswith("2026-11-21 12:58:30") for _, end, _ in bars(traces(figure)["HANGING ✕"]))
    assert len(figure.to_json()) < 1_150_000
    assert sum(len(trace.get("x", ())) for trace in figure.to_dict()["data"]) < 4_000
    text = "\n".join(hovers(figure))
    assert all(f"producer <b>{row['producer_id']}<" in text for row in findings)
    assert all(f"transactional id <b>{row['transactional_id']}<" in text for row in findings)
    assert "49,700 short transactions are drawn together" in words(figure)


def test_aggregated_transactions_are_counted_completely() -> None:
    log_transactions, findings = busy(5_000, hanging=3)
    figure = plot_timeline(log_transactions, findings=findings, most=100)
    together = [text for text in hovers(figure) if text.startswith("transactions <b>")][::2]
    alone = sum(len(trace["x"]) // 4 for name, trace in traces(figure).items() if name in NAMED)
    counted = [int(text.split("<b>")[1].split("<")[0].replace(",", "")) for text in together]
    assert sum(counted) + alone == 5_000


NAMED = {"committed ▲", "aborted ✕", "HANGING ✕"}


def test_events_of_the_cluster_are_lines_with_a_hover() -> None:
    """A leader of the partition, and a fenced broker; neither another partition's leader nor an earlier restart."""
    log_transactions, findings = busy(200, hanging=1)
    events = [
        ClusterEvent(timestamp=NOW - HOUR, event="leader_changed", topic="orders", partition=0, text="broker 3 leads"),
        ClusterEvent(timestamp=NOW - HOUR, event="leader_changed", topic="orders", partition=1, text="broker 1 leads"),
        ClusterEvent(timestamp=NOW - HOUR, event="broker_fenced", affected_broker=2, text="broker 2 was fenced"),
        ClusterEvent(timestamp=NOW - 100 * HOUR, event="broker_registered", affected_broker=2, text="it started"),
    ]
    drawn = traces(plot_timeline(log_transactions, findings=findings, cluster_events=events))
    assert ["broker 3 leads" in text for text in drawn["leader changed"]["hovertext"]] == [True]
    assert ["broker 2 was fenced" in text for text in drawn["cluster event"]["hovertext"]] == [True]


def test_a_producer_clock_ahead_does_not_distort_the_lines() -> None:
    log_transactions, _ = busy(20, hanging=0)
    wrong = [{**row, "start": row["start"] + HOUR} if row["first_offset"] > FIRST else row for row in log_transactions]
    curve = LsoCurve.of(log_transactions=records_of(wrong, LogTransaction), steps=[], partitions=[], now=NOW)
    assert [point.offset for point in curve.points] == sorted(point.offset for point in curve.points)
    assert [point.time for point in curve.points] == sorted(point.time for point in curve.points)
    assert curve.points[-1].time == max(row["end"] for row in wrong if row["end"])


def test_external_ids_are_only_text() -> None:
    evil = '<a href="https://x">$\\alpha$</a>\x1b[31m'
    figure = plot_timeline([], findings=[finding(transactional_id=evil, reason=evil)], transaction_history=[])
    text = json.dumps(figure.to_dict())
    assert "<a href" not in text
    assert "$" not in text
    assert "\\u001b" not in text


def test_short_states_are_aggregated_and_counted() -> None:
    second = dt.timedelta(seconds=1)
    start = NOW - HOUR
    rows = [
        history(start_time=start + n * second, decided_at=start + (n + 0.3) * second,
                end_time=start + (n + 0.5) * second, first_offset=3 * n)
        for n in range(100)
    ]  # fmt: skip
    found = intervals(records_of(rows, PastTransaction), now=NOW)
    few = merged(found, dt.timedelta(seconds=30))
    assert len(few) == 2
    assert [(each.state, each.transactions) for each in few] == [(MANY, 100), ("CompleteCommit", 0)]


def test_of_many_similar_transactions_some_of_every_hour_are_drawn() -> None:
    log_transactions, _ = busy(3_000, hanging=0)
    drawn = [
        start
        for name in ("committed ▲", "aborted ✕")
        for start, _, _ in bars(traces(plot_timeline(log_transactions))[name])
    ]
    assert {start[11:13] for start in drawn} == {"06", "07", "08", "09", "10", "11", "12"}


def test_the_hatched_area_starts_at_the_records_that_were_there() -> None:
    """It was drawn up to the next offset: 36, where the high watermark was 16 when the transaction opened."""
    opened, later = NOW - HOUR, NOW - HOUR / 2
    held = finding(start_offset=15, last_stable_offset=15, high_watermark=37, opened_at=opened, held_from=opened)
    place: dict[str, Any] = {"topic": "orders", "partition": 0, "start_clock": "broker"}
    late = LogTransaction(
        **place, producer_id=held["producer_id"], first_offset=15, first_batch_last_offset=15, start=opened
    )
    other = LogTransaction(**place, producer_id=9, first_offset=16, marker_offset=36, start=later, end=later,
                           first_batch_last_offset=35, outcome="commit")  # fmt: skip
    area = traces(plot_timeline([late, other], findings=[held]))["held back"]
    corners = list(zip(area["x"], area["y"], strict=True))
    assert corners[0] == (when(opened), 16)
    assert (when(later), 36) in corners
    assert "held back from offset <b>15<" in area["text"], "a pointer finds the area"
    assert area["hoveron"] == "fills"


def test_the_lower_lane_has_the_longest_transactions() -> None:
    """Which ids were drawn depended on the order of the log."""
    minutes, end = [3, 1, 9, 2, 7, 5], NOW
    rows = []
    for number, length in enumerate(minutes):
        first, start, end = 10 * number, end, end + dt.timedelta(minutes=length)
        rows.append(
            LogTransaction(
                topic="orders", partition=0, producer_id=number, producer_epoch=0, first_offset=first,
                first_batch_last_offset=first, last_offset=first, marker_offset=first + 1, marker="COMMIT",
                outcome="commit", start=start, end=end,
            )
        )  # fmt: skip
    past = records_of(
        [history(producer_id=number, transactional_id=f"{length} min") for number, length in enumerate(minutes)],
        PastTransaction,
    )
    drawn = timeline_data(TimelineTables(rows, [], [], []), ("orders", 0), past, [], None)
    assert drawn.ids == ["9 min", "7 min", "5 min", "3 min", "2 min"]
