"""What stands over a timeline: who holds the LSO, for how long, and whom it hits."""

from __future__ import annotations

from collections.abc import Sequence

from toolkit.analysis.wording import duration
from toolkit.schema import Row
from toolkit.views.plots.bars import Crowd
from toolkit.views.plots.held import past_holds
from toolkit.views.plots.scene import Scene
from toolkit.views.plots.words import count, lines, number, plain

__all__ = ["no_states", "subtitle_of", "title_of"]


def no_states(scene: Scene) -> str:
    """Why the lower lane is empty."""
    if not scene.was_coordinator_read:
        return "No record of __transaction_state was read: give histories or coordinator_events."
    if not scene.ids:
        return "None of these producers has a transactional id that a coordinator knows."
    return "No record of these ids was read."


def title_of(scene: Scene) -> str:
    """``orders-0: LSO held at 913,095,344 for 3 h by producer 4711``."""
    holder = next((row for row in scene.findings if row["position"] == 1 and row["verdict"] != "ended"), None)
    if holder is not None:
        since = holder["held_from"] or holder["opened_at"]
        for_ = f" for {duration(scene.now - since)}" if since and since <= scene.now else ""
        by = f" by producer {holder['producer_id']}" if holder["producer_id"] is not None else ""
        held = f"LSO held at {number(holder['last_stable_offset'])}{for_}{by}"
        hanging = [row for row in scene.findings if row["verdict"] == "hanging" and row is not holder]
        behind = f", {count(len(hanging), 'more hangs', 'more hang')} behind it" if hanging else ""
        return f"{scene.name}: {held}{behind}"
    past = past_holds(scene.findings)
    return f"{scene.name}: {_title_of_past(past) if past and not scene.open else _title_by_the_log(scene)}"


def _title_of_past(past: Sequence[Row]) -> str:
    longest = past[0]
    for_ = duration(longest["held_to"] - longest["held_from"])
    more = f", and {count(len(past) - 1, 'more time', 'more times')}" if past[1:] else ""
    return f"LSO was held at {number(longest['start_offset'])} for {for_} by producer {longest['producer_id']}{more}"


def _title_by_the_log(scene: Scene) -> str:
    if scene.open:
        first = scene.open[0]
        held = f"LSO held at {number(first.first_offset)} for {duration(first.length)}"
        return f"{held} by producer {first.span['producer_id']}"
    return f"nothing is open, {count(len(scene.bars), 'transaction')} ended"


def subtitle_of(scene: Scene, crowds: Sequence[Crowd]) -> str:
    """The verdict, whom it hits, and why."""
    parts = []
    first = scene.findings[0] if scene.findings else None
    if first is not None and first["position"] is None:
        first = next(iter(past_holds(scene.findings)), first)
    if first is not None:
        parts.append(f"<b>{plain(' · '.join(_facts(first)))}</b>")
        parts.append(lines(first["reason"].split(" (seen")[0].split(" (read from")[0]))
    if crowds:
        together = sum(each.committed + each.aborted + each.others for each in crowds)
        parts.append(f"{number(together)} short transactions are drawn together, by time; every open one is drawn.")
    return "<br>".join(parts)


def _facts(row: Row) -> list[str]:
    """The verdict and whom it hits, or has hit."""
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
