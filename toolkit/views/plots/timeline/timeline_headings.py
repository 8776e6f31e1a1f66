"""Headings of a timeline: who holds the LSO, for how long, and who is affected."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.schema import Row
from toolkit.schema.durations import duration
from toolkit.views.plots.plot_text import count, lines, number, plain
from toolkit.views.plots.timeline.held_areas import past_holds
from toolkit.views.plots.timeline.timeline_data import TimelineData
from toolkit.views.plots.timeline.transaction_bars import AggregatedBar


def no_states(timeline: TimelineData) -> str:
    """Why the lower lane is empty."""
    if not timeline.was_coordinator_read:
        return "No record of __transaction_state was read: pass transaction_history or transaction_log."
    if not timeline.ids:
        return "None of these producers has a transactional id that a coordinator knows."
    return "No record of these ids was read."


def title_of(timeline: TimelineData) -> str:
    """``orders-0: LSO held at 913,095,344 for 3 h by producer 4711``."""
    holder = next((row for row in timeline.findings if row["queue_position"] == 1 and row["verdict"] != "ended"), None)
    if holder is not None:
        since = holder["held_from"] or holder["opened_at"]
        for_ = f" for {duration(timeline.now - since)}" if since and since <= timeline.now else ""
        by = f" by producer {holder['producer_id']}" if holder["producer_id"] is not None else ""
        held = f"LSO held at {number(holder['last_stable_offset'])}{for_}{by}"
        hanging = [row for row in timeline.findings if row["verdict"] == "hanging" and row is not holder]
        behind = f", {count(len(hanging), 'more hangs', 'more hang')} behind it" if hanging else ""
        return f"{timeline.name}: {held}{behind}"
    past = past_holds(timeline.findings)
    return f"{timeline.name}: {_title_of_past(past) if past and not timeline.open else _title_by_the_log(timeline)}"


def _title_of_past(past: Sequence[Row]) -> str:
    longest = past[0]
    for_ = duration(longest["held_to"] - longest["held_from"])
    more = f", and {count(len(past) - 1, 'more time', 'more times')}" if past[1:] else ""
    return f"LSO was held at {number(longest['start_offset'])} for {for_} by producer {longest['producer_id']}{more}"


def _title_by_the_log(timeline: TimelineData) -> str:
    if timeline.open:
        first = timeline.open[0]
        held = f"LSO held at {number(first.first_offset)} for {duration(first.length)}"
        return f"{held} by producer {first.log_transaction['producer_id']}"
    return f"nothing is open, {count(len(timeline.bars), 'transaction')} ended"


def subtitle_of(timeline: TimelineData, crowds: Sequence[AggregatedBar]) -> str:
    """The verdict, who is affected, and why."""
    parts = []
    first = timeline.findings[0] if timeline.findings else None
    if first is not None and first["queue_position"] is None:
        first = next(iter(past_holds(timeline.findings)), first)
    if first is not None:
        parts.append(f"<b>{plain(' · '.join(_facts(first)))}</b>")
        parts.append(lines(first["reason"].split(" (seen")[0].split(" (read from")[0]))
    if crowds:
        together = sum(each.committed + each.aborted + each.others for each in crowds)
        parts.append(f"{number(together)} short transactions are drawn together, by time; every open one is drawn.")
    return "<br>".join(parts)


def _facts(row: Row) -> list[str]:
    """The verdict, and who is or was affected."""
    is_over = row["verdict"] == "ended"
    facts = [row["verdict"].replace("_", " ")]
    waits, wait, cannot = ("waited", "waited", "could not") if is_over else ("waits", "wait", "cannot")
    if row["records_held"] is not None:
        facts.append(count(row["records_held"], f"record {waits}", f"records {wait}"))
    elif row["offsets_held"]:
        facts.append(count(row["offsets_held"], f"offset {waits}", f"offsets {wait}"))
    if row["groups_held"]:
        facts.append(f"{count(len(row['groups_held']), 'group')} {cannot} move")
    return facts
