"""The timeline of an incident as a table: every event, in order."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from toolkit.views.report.hold_times import RECORDING, held_from_source, hold_end
from toolkit.views.report.report_parts import Grid, named, text
from toolkit.views.report.report_tables import is_owner, step_of

if TYPE_CHECKING:
    from toolkit.schema import Row

AROUND = dt.timedelta(minutes=10)  # events of the coordinator for so long before and after are part of the incident
MAX_EVENTS = 60


class _TimelineEntry(NamedTuple):
    time: dt.datetime
    what: str
    source: str


def event_grid(
    finding: Row,
    *,
    lso_timeline: Sequence[Row],
    transaction_history: Sequence[Row],
    actions: Sequence[Row],
    log_transactions: Sequence[Row] = (),
    samples: Sequence[Row] = (),
) -> Grid:
    """Events on a finding's partition, in order.

    Parameters
    ----------
    finding, lso_timeline, transaction_history, actions, log_transactions
        Rows of ``schema.FINDINGS`` and so on.
    samples
        Rows of the partitions at several times, as a recording has them.
    """
    found = [*_of_finding(finding, log_transactions, samples), *_of_steps(finding, lso_timeline)]
    found += _of_transaction_history(finding, transaction_history)
    found += _of_actions(finding, actions)
    events = sorted(dict.fromkeys(found), key=lambda event: event.time)
    kept = events[:MAX_EVENTS]
    return Grid(
        title=f"{named(finding)}, producer {text(finding['producer_id'])}",
        columns=("time (UTC)", "what happened", "source"),
        rows=tuple((text(event.time), event.what, event.source) for event in kept),
        note=f"The first {MAX_EVENTS} of {len(events)}." if len(events) > MAX_EVENTS else "",
    )


def _of_finding(row: Row, log_transactions: Sequence[Row], samples: Sequence[Row]) -> Iterator[_TimelineEntry]:
    who = f"producer {text(row['producer_id'])}"
    clock = f"the log ({row['opened_at_clock']})" if row["opened_at_clock"] else "the log"
    if row["opened_at_clock"] == "coordinator":
        clock = "the coordinator"
    if row["opened_at"]:
        offset = "" if row["start_offset"] is None else f" at offset {row['start_offset']}"
        yield _TimelineEntry(row["opened_at"], f"{who} opened the transaction{offset}", clock)
    if row["held_from"] and row["held_from"] != row["opened_at"]:
        source = held_from_source(row, samples)
        what = "is first seen to hold" if source == RECORDING else "began to hold"
        yield _TimelineEntry(row["held_from"], f"it {what} the LSO of {named(row)}", source)
    if row["expires_at"]:
        yield _TimelineEntry(row["expires_at"], "its own timeout is over", "the coordinator")
    end = hold_end(row, log_transactions)
    if end is not None and end.marker:
        yield _TimelineEntry(end.time, end.marker, "the log")
    elif end is not None:
        since = f"; it was last seen open at {text(end.last_seen)}" if end.last_seen else ""
        yield _TimelineEntry(end.time, f"the first sample without it{since}", RECORDING)
    else:
        yield _TimelineEntry(row["observed_at"], f"observed and diagnosed as {row['verdict']}", "this report's source")


def _of_steps(row: Row, steps: Sequence[Row]) -> Iterator[_TimelineEntry]:
    """Where the LSO stopped for it, and its next position."""
    was_held = False
    for step in steps:
        if (step["topic"], step["partition"]) != (row["topic"], row["partition"]):
            continue
        is_held = (step["holder_producer_id"], step["holder_first_offset"]) == (row["producer_id"], row["start_offset"])
        if is_held and not was_held and step["at"]:
            yield _TimelineEntry(step["at"], f"the LSO stops at {step['last_stable_offset']}", "the log")
        elif was_held and not is_held and step["at"]:
            done = f" after the {step['event'].upper()} marker" if step["event"] in {"commit", "abort"} else ""
            yield _TimelineEntry(step["at"], f"the LSO moves on to {step['last_stable_offset']}{done}", "the log")
        was_held = is_held


def _of_transaction_history(row: Row, transaction_history: Sequence[Row]) -> Iterator[_TimelineEntry]:
    opened = row["opened_at"] or row["held_from"] or row["observed_at"]
    until = row["held_to"] or row["observed_at"]
    for history in transaction_history:
        if not is_owner(history, row):
            continue
        for time, what in _moments(history):
            if time is not None and opened - AROUND <= time <= until + AROUND:
                yield _TimelineEntry(time, f'"{text(history["transactional_id"])}": {what}', "the coordinator's log")


def _moments(history: Row) -> Iterator[tuple[dt.datetime | None, str]]:
    if history["kind"] != "transaction":
        yield history["end_time"], text(history["reason"])
        return
    yield history["start_time"], f"a transaction of epoch {text(history['producer_epoch'])} began"
    yield history["decided_at"], f"decided: {text(history['ended'])}"
    yield history["end_time"], f"its markers are written ({text(history['state'])})"


def _of_actions(row: Row, actions: Sequence[Row]) -> Iterator[_TimelineEntry]:
    for action in actions:
        if _is_about(action, row):
            failed = f": {text(action['error'])}" if action["error"] else ""
            what = f"{text(action['target'])}: {step_of(action)}, by {text(action['who'])}{failed}"
            yield _TimelineEntry(action["at"], what, "the audit trail")


def _is_about(action: Row, row: Row) -> bool:
    if action["topic"] is not None:
        same = (action["topic"], action["partition"]) == (row["topic"], row["partition"])
        return same and action["start_offset"] in (None, row["start_offset"])
    return action["transactional_id"] is not None and action["transactional_id"] == row["transactional_id"]
