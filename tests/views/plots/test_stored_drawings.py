"""What each plot draws, whole: each number, text and colour of the figure and its SVG, of rows for rare branches.

No two values of a row are equal, so a column or a time in the place of another shows.
"""

import datetime as dt
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import plotly.graph_objects as go
import pytest

from tests.stored import compare
from tests.views.plots.busy import NOW, busy, finding, history
from tests.views.plots.drawn import words
from toolkit.schema import LSO_HOLDS
from toolkit.schema.live import GroupLag, Partition
from toolkit.schema.log import ClusterEvent, LogTransaction, LsoStep
from toolkit.schema.recorded import LsoHold
from toolkit.schema.verdict import Verdict
from toolkit.views.plots import (
    number_tiles,
    partition_plots,
    plot_holds,
    plot_lag,
    plot_overview,
    plot_timeline,
    timeline_data,
)
from toolkit.views.plots.notebook_figure import figure_html, figure_svg, figure_text, image_svg, theme_style

MINUTE, HOUR, DAY = (dt.timedelta(**{unit: 1}) for unit in ("minutes", "hours", "days"))
IDS = re.compile(r"\bf[0-9a-f]+-(?=area|\d)")  # of a picture in its page, made of the whole figure
LONG_NAME = "a & <b>$x$</b> name of 49 letters, cut in its middle"
PLACE: dict[str, Any] = {"topic": "orders", "partition": 0}
NO_HOLD: dict[str, Any] = dict.fromkeys(("held_from", "opened_at", "records_held", "offsets_held", "groups_held"))


def drawn(figure: go.Figure) -> Iterator[str]:
    """A line for each setting of a trace, for each one of the layout, and for each element of the SVG."""
    picture = json.loads(figure.to_json(), parse_float=lambda each: round(float(each), 4))
    picture["layout"].pop("template")
    notes = {name: picture["layout"].pop(name, ()) for name in ("annotations", "shapes")}
    for number, part in enumerate([*picture["data"], picture["layout"]]):
        yield f"trace {number}" if part is not picture["layout"] else "layout"
        yield from (f"  {name}: {json.dumps(part[name], ensure_ascii=False, sort_keys=True)}" for name in sorted(part))
    for name, each in notes.items():
        yield from (f"{name}: {json.dumps(note, ensure_ascii=False, sort_keys=True)}" for note in each)
    yield figure_text(figure)
    yield from IDS.sub("", figure_svg(figure)).replace("><", ">\n<").split("\n")


def timeline() -> go.Figure:
    """Most of its transactions are drawn together; an id in each of its states, and too short ones as one."""
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
    events = [ClusterEvent(timestamp=NOW - each * MINUTE, event="leader_changed", **PLACE,
                           text=f"broker {each} leads") for each in (9, 5, 4)]  # fmt: skip
    return plot_timeline(rows, findings=findings, transaction_history=states, cluster_events=events, most=4)


def transaction(number: int, **fields: Any) -> LogTransaction:
    """A committed transaction of 2 * `number` minutes, `number` hours ago; `fields` replace values."""
    offset, start = 1000 * (10 - number), NOW - number * HOUR
    known = LogTransaction(**PLACE, producer_id=70 + number, producer_epoch=number, first_offset=offset,
                           first_batch_last_offset=offset + 9, last_offset=offset + 20 + number, outcome="commit",
                           marker_offset=offset + 100 * number, marker="COMMIT", marker_epoch=number + 20,
                           coordinator_epoch=number + 40, start=start, start_clock="broker",
                           end=start + 2 * number * MINUTE, records=number + 60, bytes=1024 * number)  # fmt: skip
    return replace(known, **fields)


def timeline_of_past_holds() -> go.Figure:
    """Nothing is open: two holds have ended, and one end was not read; events, an id that expired, a failed sample."""
    over = [
        finding(verdict=Verdict.ENDED, queue_position=None, producer_id=70 + number, start_offset=1000 * (10 - number),
                held_from=NOW - number * HOUR, held_to=NOW - number * HOUR + 2 * number * MINUTE,
                opened_at=NOW - number * HOUR, transactional_id=f"id-{number}", groups_held=["a", "b"][: number - 3],
                last_stable_offset=None, high_watermark=None, records_held=None, offsets_held=number)
        for number in (4, 5)
    ]  # fmt: skip
    log_transactions = [
        transaction(9, outcome="abort", marker="ABORT"), transaction(7, outcome="empty", first_offset=None, start=None),
        transaction(6, outcome=None, marker_offset=None, marker=None, end=None, error="END_NOT_READ: may have ended",
                    truncated=True), transaction(5), transaction(4), transaction(3, marker=None, outcome=None),
    ]  # fmt: skip
    states = [
        history(transactional_id="id-5", kind="expired", state="Dead", end_time=NOW - HOUR, ended=None),
        history(transactional_id="id-4", kind="init", end_time=NOW - 4 * HOUR, first_offset=77, ended=None),
        history(transactional_id="id-4", start_time=NOW - 3 * HOUR, decided_at=None, end_time=None, ended="open",
                first_offset=88, topic_partitions=({"topic": "orders", "partition": 3},)),
    ]  # fmt: skip
    events = [
        ClusterEvent(timestamp=NOW - 2 * HOUR, event="broker_fenced", affected_broker=2, text="broker 2 was fenced",
                     line_count=3, last_timestamp=NOW - HOUR, file="server.log"),
        ClusterEvent(timestamp=NOW - HOUR, event="no_leader", **PLACE, text="no broker leads"),
    ]  # fmt: skip
    samples = [
        Partition(**PLACE, observed_at=NOW - minutes * MINUTE, high_watermark=mark,
                  last_stable_offset=mark and mark - 5, error=None if mark else "LEADER_NOT_AVAILABLE: none")
        for minutes, mark in ((50, 8000), (40, None), (30, 8100), (20, 8200))
    ]  # fmt: skip
    return plot_timeline(log_transactions, findings=over, transaction_history=states, cluster_events=events,
                         partitions=samples, now=NOW)  # fmt: skip


def timeline_of_days() -> go.Figure:
    """A hold of three days, with how it began, and behind it an open transaction of each verdict, on a dark page."""
    open_ones = [verdict for verdict in Verdict if verdict.is_open]
    findings = [
        finding(verdict=verdict, queue_position=place, producer_id=700 + place, producer_epoch=place,
                start_offset=5000 + 400 * place, opened_at=NOW - 3 * DAY + place * HOUR,
                held_from=NOW - 3 * DAY if place == 1 else None, last_stable_offset=5400, high_watermark=9999,
                transactional_id=f"id-{place}", opened_at_clock="producer", expires_at=NOW + place * HOUR,
                groups_held=[f"group-{each}" for each in range(7)], missing=["a right"] * (place == 2),
                cause=f"cause {place}", remedy="Do this.\nThen that.")
        for place, verdict in enumerate(open_ones, start=1)
    ]  # fmt: skip
    before = [transaction(72 - each, first_offset=4000 + 100 * each, first_batch_last_offset=4000 + 100 * each,
                          last_offset=4010 + 100 * each, marker_offset=4050 + 100 * each,
                          start=NOW - 3 * DAY + (each - 9) * MINUTE, end=NOW - 3 * DAY + (each - 8) * MINUTE)
              for each in range(13)]  # fmt: skip
    steps = [LsoStep(**PLACE, at=NOW - 3 * DAY, offset=5401, last_stable_offset=5400, event="open", open_count=1)]
    return plot_timeline(before, findings=findings, lso_timeline=steps, transaction_history=[history()], theme="dark",
                         most=12)  # fmt: skip


def overview(**settings: Any) -> go.Figure:
    """A partition with each verdict, in two clusters; one has several findings, and three are not drawn."""
    return plot_overview(overview_rows(), **settings)


def overview_rows() -> list[dict[str, Any]]:
    """Findings of each verdict; records, offsets or neither wait."""
    waiting: list[dict[str, Any]] = [
        {}, {"records_held": None}, {"records_held": None, "offsets_held": None}, {"records_held": 0},
    ]  # fmt: skip
    rows = [
        finding(verdict=verdict, topic=f"of {verdict} {LONG_NAME}"[: 20 + 4 * number], partition=number,
                cluster_id="abc" if number % 2 else None, held_from=NOW - (number + 1) ** 3 * MINUTE,
                start_offset=100 + number, offsets_held=70 + number, groups_held=[f"group-{number}", "g"],
                opened_at=NOW - 2 * DAY) | waiting[number % 4]
        for number, verdict in enumerate(Verdict)
    ]  # fmt: skip
    rows[3] |= NO_HOLD | {"queue_position": 2}
    return [*rows, rows[0] | {"verdict": Verdict.LONG, "queue_position": 2, "records_held": 9999, "producer_id": 8}]


def hold(name: str | None, begun: int, ended: int | None, **fields: Any) -> LsoHold:
    """A hold that began and ended some minutes ago."""
    held_to = None if ended is None else NOW - ended * MINUTE
    known = LsoHold(**PLACE, producer_id=7_000 + begun, transactional_id=name, first_offset=1200 + begun,
                    marker="ABORT", held_from=NOW - begun * MINUTE, held_to=held_to, records_held=begun)  # fmt: skip
    return replace(known, **fields)


def holds() -> list[LsoHold]:
    """Of five ids; one is held still, one is of unknown time, one log was not read, and one partition is held twice."""
    return [
        hold("a", 900, 800), hold("a", 700, 650, partition=1), hold(LONG_NAME, 640, 20),
        hold(None, 300, None, as_of=NOW), hold("c", 500, 499, topic="refunds"), hold("e", 400, None, held_from=None),
        hold("f", 60, 59, partition=2), hold("h", 450, None, partition=4, least_ms=90_000),
        hold("g", 1500, None, as_of=NOW - 1000 * MINUTE, partition=3), LsoHold(**PLACE, error="CORRUPT_BATCH: torn"),
    ]  # fmt: skip


def lags() -> list[GroupLag]:
    """What is held, behind, never read, beyond the end, not counted, unknown and hidden, and one of another group."""
    known = GroupLag(group_id="billing & <co>", topic="payments", partition=0, committed_offset=10, observed_at=NOW,
                     last_stable_offset=12, high_watermark=1_233, lag=1_223, behind=2, held=1_020, markers=1,
                     aborted=190, removed=10)  # fmt: skip
    unknown = replace(known, lag=None, behind=None, held=None, markers=None, error=f"TIMEOUT: {LONG_NAME}")
    return [
        known, replace(known, partition=1, held=0, behind=1_022), replace(unknown, partition=9),
        replace(known, topic=LONG_NAME, partition=2, lag=0, behind=0, held=0, markers=0, aborted=0, removed=0,
                beyond_end=44),
        replace(known, partition=3, markers=None, held=1_021, lag=1_023), replace(known, partition=4, lag=0),
        replace(unknown, topic=None, partition=None, error=None), replace(known, group_id="other", lag=77),
        replace(known, partition=6, held=0, behind=0, lag=201), replace(known, partition=7, held=0, behind=7, lag=208),
    ]  # fmt: skip


FIGURES: dict[str, Callable[[], go.Figure]] = {
    "timeline": timeline,
    "timeline_of_a_finding": lambda: plot_timeline([], findings=[finding()]),
    "timeline_of_past_holds": timeline_of_past_holds,
    "timeline_of_days": timeline_of_days,
    "overview": overview,
    "holds": lambda: plot_holds(
        {"east": LSO_HOLDS.frame(holds()), "west": LSO_HOLDS.frame([hold("a", 888, 808)])}, since=NOW - 910 * MINUTE
    ),
    "holds_of_a_moment": lambda: plot_holds([hold("a", 0, None, as_of=NOW + MINUTE / 90)], theme="dark"),
    "lag": lambda: plot_lag(lags()),
    "nothing": lambda: plot_timeline([], findings=[finding()], topic=LONG_NAME, partition=1),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_drawing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeline_data, "MAX_EVENTS", 2)  # the newest
    monkeypatch.setattr(partition_plots, "MAX_LINES", 6)
    compare(f"drawings/{name}.txt", drawn(FIGURES[name]()))


def titles() -> Iterator[go.Figure]:
    """Small figures: each branch of a title or of what is missing. Of what was not read, none is an all-clear."""
    sample = Partition(**PLACE, observed_at=NOW, last_stable_offset=3, high_watermark=90)
    whole, failed = replace(sample, last_stable_offset=90), replace(sample, error="TIMEOUT: no answer")
    clear = finding(verdict=Verdict.CLEAR, queue_position=None, start_offset=None, producer_id=None, **NO_HOLD)
    unknown = clear | {"verdict": Verdict.UNKNOWN, "topic": None, "partition": None}
    waits = finding(verdict=Verdict.UNREPLICATED, records_held=None, offsets_held=1, reason="It lags. (read from 3)")
    for read in ([], [whole], [sample], [failed], [whole, failed], [sample, replace(whole, partition=1)]):
        yield plot_overview([], partitions=read)
        yield plot_timeline([], partitions=read[:1])
    alone = finding(verdict=Verdict.UNKNOWN, missing=["broker 2"])
    for findings in ([clear], [clear, unknown], [waits], [finding(), finding(topic="b", held_from=NOW - DAY)], [alone],
                     [finding(verdict=Verdict.ONGOING)], [clear, clear | {"partition": 1}]):  # fmt: skip
        yield plot_overview(findings, theme="dark")
    late = finding(queue_position=2, producer_id=5, start_offset=913_095_400, held_from=None)
    begun, later = finding(brokers_time=NOW - 4 * HOUR), late | {"start_offset": 7, "queue_position": 3}
    for findings in ([clear], [unknown], [waits], [finding(brokers_time=None), late], [late],
                     [finding(held_from=NOW)], [begun, late, later]):  # fmt: skip
        yield plot_timeline([], findings=findings)
    opened = transaction(3, marker_offset=None, marker=None, outcome="open", end=None)
    for log_transactions in ([transaction(3)], [transaction(3), transaction(2)], [opened], [opened, transaction(2)],
                             [transaction(2, error="TORN: cut")]):  # fmt: skip
        yield plot_timeline(log_transactions, transaction_history=[history()], theme="dark")
    # The log was read before it ended; its end is among missing offsets; and a replica that lags has no marker.
    passed = clear | {"last_stable_offset": 9000, "high_watermark": 9000}
    yield plot_timeline([opened], findings=[passed])
    yield plot_timeline([replace(opened, outcome=None, error="END_NOT_READ: may have ended"), transaction(2)])
    step = LsoStep(**PLACE, broker_id=1, at=NOW - HOUR, offset=7001, last_stable_offset=7000, event="open",
                   open_count=1, holder_producer_id=73, holder_first_offset=7000)  # fmt: skip
    end = replace(step, broker_id=2, at=NOW, offset=7301, last_stable_offset=7301, event="end", open_count=0)
    of_both = [replace(opened, broker_id=1), transaction(3, broker_id=2)]
    yield plot_timeline(of_both, lso_timeline=[step, replace(step, broker_id=2), end])
    over = finding(verdict=Verdict.ENDED, queue_position=None, start_offset=7000, held_from=NOW - 3 * HOUR,
                   held_to=NOW - 2 * HOUR)  # fmt: skip
    yield plot_timeline([transaction(3)], findings=[over, finding()])
    just_begun = hold("a", 0, None, as_of=NOW + MINUTE / 90)
    for some in ([], [just_begun], [hold("a", 9, 8)], [LsoHold(**PLACE, error="TORN: cut")], [hold("a", 9, None)]):
        yield plot_holds(some, theme="dark")
        yield plot_holds(some, since=NOW - 8 * MINUTE)
    # Holds at one time count once, those of two clusters are two, and one goes on up to when it was seen.
    at_once = [hold("a", 120, 60, partition=number) for number in range(10)]
    of_a_day: list[tuple[list[LsoHold], Any]] = [
        ([hold("a", 540, None, as_of=NOW - 4 * HOUR)], None), ([hold("a", 540, 480)], NOW),
        ([hold("a", 540, 480), hold("b", 420, 240), hold("c", 180, 120)], (NOW - 5 * HOUR).isoformat()),
        *(([hold("d", 1800, None, as_of=NOW)], day) for day in (NOW.date(), str(NOW.date()))),
        ([*at_once, hold("b", 300, 120), hold("c", 60, None, held_from=None), LsoHold(**PLACE, error="TORN: x")], None),
        ([hold("a", 540, None), hold("b", 180, 60, partition=1)], None),
        ([hold("a", 540, 420), hold("b", 540, 480)], None),
        ([hold("a", 1800, None, as_of=NOW - 20 * HOUR), hold("b", 180, 120)], NOW - 6 * HOUR),
    ]  # fmt: skip
    for some, since in of_a_day:
        yield plot_holds(some, since=since)
    yield plot_holds({name: LSO_HOLDS.frame([hold("a", 540, to)]) for name, to in (("east", 420), ("west", 480))})
    some_lags, read_all = lags(), replace(lags()[0], held=0, behind=0, aborted=0, removed=0, lag=1)
    for rows in ([], [read_all], [replace(read_all, lag=0, markers=0)], [replace(read_all, removed=2, lag=3)],
                 [replace(read_all, beyond_end=1)], *([each] for each in some_lags), some_lags[1:3],
                 [read_all, some_lags[2], some_lags[6]], [replace(some_lags[0], topic=LONG_NAME)]):  # fmt: skip
        yield plot_lag(rows, theme="dark")
    yield plot_lag(some_lags, group="<b>")


def test_titles_and_tiles() -> None:
    """The four numbers above the overview, too; of a worse transaction behind the holder, "0 records waiting" once."""
    lines = [words(figure).replace("\n", " | ") for figure in titles()]
    held, rows = finding(groups_held=None), overview_rows()
    behind = [held | {"verdict": Verdict.ONGOING}, held | {"producer_id": 5, "queue_position": 2, "held_from": None}]
    for some in ([], [held], [held | {"records_held": None}], behind, rows, rows[1:2], [rows[0], rows[10]], [rows[11]]):
        lines += number_tiles(some).partition("</style>")[2].replace("<div", "\n<div").split("\n")
    for page in (theme_style(), figure_html(plot_lag([])), image_svg("<svg>")):
        lines += IDS.sub("", page).replace("}", "}\n").split("\n")
    compare("drawings/titles.txt", lines)
