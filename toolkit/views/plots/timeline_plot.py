"""The timeline of a partition: its LSO and its end over time, its transactions, and what their coordinator knew."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from itertools import chain

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.schema.coerce import Data, records_of
from toolkit.schema.durations import duration
from toolkit.schema.live import Finding, Partition
from toolkit.schema.log import ClusterEvent, LogTransaction, LsoStep, PastTransaction, TransactionLogRecord
from toolkit.schema.verdict import Verdict
from toolkit.views.finding_groups import check_cluster
from toolkit.views.plots.notebook_figure import NotebookFigure, empty_figure
from toolkit.views.plots.plot_text import lines, number, place_name, plain, when
from toolkit.views.plots.plot_theme import Theme, ThemeName, apply_theme, theme_named
from toolkit.views.plots.state_lanes import add_lanes
from toolkit.views.plots.timeline_data import AggregatedBar, TimelineData, TimelineTables, aggregate_bars, timeline_data
from toolkit.views.plots.timeline_traces import (
    PastHold,
    add_aggregated_bars,
    add_bars,
    add_cluster_events,
    add_held,
    add_hover_points,
    add_labels,
    add_lines,
    add_past_holds,
    past_holds,
)
from toolkit.views.row_formats import count

LOWER_TITLE = "what their coordinator knew"


def plot_timeline(
    log_transactions: Data,
    *,
    lso_timeline: Data = None,
    partitions: Data = None,
    findings: Data = None,
    transaction_history: Data = None,
    transaction_log: Data = None,
    cluster_events: Data = None,
    topic: str | None = None,
    partition: int | None = None,
    now: dt.datetime | None = None,
    most: int = 300,
    theme: ThemeName = "light",
) -> go.Figure:
    """Draw one partition: LSO and log end over time, transactions as bars over time and offset, and their ids' states.

    Each transaction is a bar at its first offset, where it holds the LSO once nothing older is open, from its first
    batch to its marker. The lower lane has the states of the ids behind them, by their coordinator.

    Parameters
    ----------
    log_transactions
        ``schema.LOG_TRANSACTIONS``. Of one partition, or `topic` and `partition` name it.
    lso_timeline
        ``schema.LSO_TIMELINE``; without it, and without `partitions`, no LSO is drawn.
    partitions
        ``schema.PARTITIONS``: one sample, or the samples of a recording.
    findings
        ``schema.FINDINGS``: they show what hangs. Without them an open transaction is drawn as open.
    transaction_history, transaction_log
        ``schema.TRANSACTION_HISTORY`` or ``TRANSACTION_LOG``; either will do, the events show every state.
    cluster_events
        ``schema.CLUSTER_EVENTS``: leaders of this partition and of its coordinators, and brokers that start or stop.
    topic, partition
        Which partition; the first one that is found if null.
    now
        Where open transactions end; by default when the newest row was observed, else the last time in the log.
    most
        How many transactions to draw one by one; the rest is aggregated by time. Those that are open, and those
        that a finding speaks of, are always drawn.
    theme
        ``light`` or ``dark``.

    Returns
    -------
    plotly.graph_objects.Figure
        At most about `most` bars and a few thousand points, however large the log; what hangs, beside.

    Raises
    ------
    UsageError
        If there is no such theme.
    """
    colours = theme_named(theme)
    tables = TimelineTables(
        records_of(log_transactions, LogTransaction),
        records_of(lso_timeline, LsoStep),
        records_of(partitions, Partition),
        records_of(findings, Finding),
    )
    past = records_of(transaction_history, PastTransaction)
    records = records_of(transaction_log, TransactionLogRecord)
    of_cluster = records_of(cluster_events, ClusterEvent)
    tp = _topic_partition(tables, topic, partition)
    of_partition = TimelineTables(
        [txn for txn in tables.log_transactions if (txn.topic, txn.partition) == tp],
        [step for step in tables.lso_timeline if (step.topic, step.partition) == tp],
        [sample for sample in tables.partitions if (sample.topic, sample.partition) == tp],
        [finding for finding in tables.findings if (finding.topic, finding.partition) == tp],
    )
    check_cluster(of_partition.findings, "A timeline")
    if not any(of_partition):
        name = place_name(*tp)
        return empty_figure(colours, title=f"{name}: nothing to draw", missing=_missing(name, tables))
    timeline = timeline_data(of_partition, tp, past, records, of_cluster, now)
    return _draw(timeline, colours, most=most)


def _topic_partition(tables: TimelineTables, topic: str | None, partition: int | None) -> tuple[str | None, int | None]:
    """The partition that is meant: as named, else that of the first finding, else of the first row."""
    rows: Iterable[Finding | LogTransaction | LsoStep | Partition] = chain(tables.findings, *tables)
    for each in rows:
        if topic in (None, each.topic) and partition in (None, each.partition) and each.topic is not None:
            return each.topic, each.partition
    return topic, partition


def _missing(name: str, tables: TimelineTables) -> str:
    there = [f"{table}: {count(len(rows), 'row')} of others" for table, rows in tables._asdict().items() if rows]
    what = "No transactions, LSO steps, samples or findings"
    return f"{what} of {name}.<br>{'; '.join(there) or 'Every table is empty.'}"


def _draw(timeline: TimelineData, theme: Theme, *, most: int) -> go.Figure:
    edges = timeline.edges
    drawn, aggregated_bars = aggregate_bars(timeline.bars, edges=edges, most=most)
    lanes = max(1, len(timeline.ids) if timeline.states else 1)
    heights = [420, 60 + 34 * lanes]
    figure = make_subplots(
        figure=NotebookFigure(),
        rows=2,
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=0.07,
        subplot_titles=(None, LOWER_TITLE),
    )
    curve = timeline.curve.thinned(edges)
    add_past_holds(figure, timeline.findings, curve, theme)
    if timeline.open:
        add_held(figure, timeline.open[0], curve, theme, now=timeline.now)
    add_aggregated_bars(figure, aggregated_bars, theme)
    add_bars(figure, drawn, theme)
    add_hover_points(figure, drawn, timeline)
    add_lines(figure, curve, timeline.now, theme)
    add_cluster_events(figure, timeline, theme)
    add_labels(figure, timeline, theme)
    add_lanes(figure, timeline.states, ids=timeline.ids if timeline.states else (), theme=theme, row=2,
              shown_from=timeline.start, now=timeline.now, nothing=no_states(timeline))  # fmt: skip
    subtitle = subtitle_of(timeline, aggregated_bars)
    apply_theme(figure, theme, title=title_of(timeline), subtitle=subtitle, height=sum(heights) + 190)
    figure.update_annotations(
        selector={"text": LOWER_TITLE}, x=0, xanchor="left", font={"size": 13, "color": theme.muted}
    )
    _axes(figure, timeline)
    return figure


def _axes(figure: go.Figure, timeline: TimelineData) -> None:
    length = max(timeline.now - timeline.start, dt.timedelta(seconds=1))
    shown = [when(timeline.start - length * 0.02), when(timeline.now + length * 0.04)]
    figure.update_xaxes(range=shown, type="date", nticks=7, showticklabels=False, row=1, col=1)
    figure.update_xaxes(
        range=shown,
        type="date",
        title={"text": "time (UTC)", "standoff": 6},
        showticklabels=True,
        tickangle=0,
        nticks=7,
        row=2,
        col=1,
    )
    low, high = timeline.offset_range
    room = max(high - low, 4)
    figure.update_yaxes(
        range=[low - room * 0.16, high + room * 0.14],
        tickformat=",d",
        nticks=6,
        title={"text": "offset", "standoff": 8},
        row=1,
        col=1,
    )


def no_states(timeline: TimelineData) -> str:
    """Why the lower lane is empty."""
    if not timeline.was_coordinator_read:
        return "No record of __transaction_state was read: pass transaction_history or transaction_log."
    if not timeline.ids:
        return "None of these producers has a transactional id that a coordinator knows."
    return "No record of these ids was read."


def title_of(timeline: TimelineData) -> str:
    """``orders-0: LSO held at 913,095,344 for 3 h by producer 4711``."""
    holder = next(
        (each for each in timeline.findings if each.queue_position == 1 and each.verdict is not Verdict.ENDED), None
    )
    if holder is not None:
        since = holder.held_from or holder.opened_at
        is_known = since is not None and holder.brokers_time is not None and since <= timeline.now
        for_ = f" for {duration(timeline.now - since)}" if since and is_known else ""
        by = f" by producer {holder.producer_id}" if holder.producer_id is not None else ""
        held = f"LSO held at {number(holder.last_stable_offset)}{for_}{by}"
        hanging = [each for each in timeline.findings if each.verdict is Verdict.HANGING and each is not holder]
        behind = f", {count(len(hanging), 'more hangs', 'more hang')} behind it" if hanging else ""
        return f"{timeline.name}: {held}{behind}"
    past = past_holds(timeline.findings)
    return f"{timeline.name}: {_title_of_past(past) if past and not timeline.open else _title_by_the_log(timeline)}"


def _title_of_past(past: Sequence[PastHold]) -> str:
    longest = past[0]
    more = f", and {count(len(past) - 1, 'more time', 'more times')}" if past[1:] else ""
    held = f"LSO was held at {number(longest.start_offset)} for {duration(longest.length)}"
    return f"{held} by producer {longest.finding.producer_id}{more}"


def _title_by_the_log(timeline: TimelineData) -> str:
    if timeline.open:
        first = timeline.open[0]
        held = f"LSO held at {number(first.first_offset)} for {duration(first.length)}"
        return f"{held} by producer {first.log_transaction.producer_id}"
    return f"nothing is open, {count(len(timeline.bars), 'transaction')} ended"


def subtitle_of(timeline: TimelineData, aggregated_bars: Sequence[AggregatedBar]) -> str:
    """The verdict, who is affected, and why."""
    parts = []
    first = timeline.findings[0] if timeline.findings else None
    if first is not None and first.queue_position is None:
        first = next((hold.finding for hold in past_holds(timeline.findings)), first)
    if first is not None:
        parts.append(f"<b>{plain(' · '.join(_facts(first)))}</b>")
        parts.append(lines(first.reason.split(" (seen")[0].split(" (read from")[0]))
    if aggregated_bars:
        together = sum(bar.committed + bar.aborted + bar.others for bar in aggregated_bars)
        parts.append(f"{number(together)} short transactions are drawn together, by time; every open one is drawn.")
    return "<br>".join(parts)


def _facts(finding: Finding) -> list[str]:
    """The verdict, and who is or was affected."""
    is_over = finding.verdict is Verdict.ENDED
    facts = [finding.verdict.replace("_", " ")]
    waits, wait, cannot = ("waited", "waited", "could not") if is_over else ("waits", "wait", "cannot")
    if finding.records_held is not None:
        facts.append(count(finding.records_held, f"record {waits}", f"records {wait}"))
    elif finding.offsets_held:
        facts.append(count(finding.offsets_held, f"offset {waits}", f"offsets {wait}"))
    if finding.groups_held:
        facts.append(f"{count(len(finding.groups_held), 'group')} {cannot} move")
    if since := finding.held_from or finding.opened_at:
        facts.append(f"since {at(since)}")
    return facts
