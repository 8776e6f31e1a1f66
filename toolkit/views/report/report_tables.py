"""Tables of a report: actions, evidence, the timeline of an incident, rows of log and coordinators around it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from toolkit.views.report.finding_sections import RECORDING, held_from_source, hold_end
from toolkit.views.report.report_parts import Grid, named, text

if TYPE_CHECKING:
    from toolkit.schema import Row


MAX_ROWS = 30
"""Maximum rows of transactions and histories on a page: those nearest to the incident."""

_LOG_TRANSACTIONS = {
    "from": "first_offset",
    "to": "last_offset",
    "marker": "marker_offset",
    "outcome": "outcome",
    "producer": "producer_id",
    "epoch": "producer_epoch",
    "start (UTC)": "start",
    "end (UTC)": "end",
    "records": "records",
    "bytes": "bytes",
}
_NUMBERS = frozenset({"from", "to", "marker", "producer", "epoch", "records", "bytes"})


def action_grid(actions: Sequence[Row]) -> Grid:
    """The audit trail, a line for each step."""
    columns = ("time (UTC)", "who", "step", "target", "sent, or answered", "LSO before", "LSO after")
    rows = sorted(actions, key=lambda row: row["at"])
    lines = tuple(
        (
            text(row["at"]),
            text(row["who"]),
            step_of(row),
            text(row["target"]),
            text(row["error"] or (row["request"] if row["step"] == "intent" else row["response"])),
            text(row["last_stable_offset_before"]),
            text(row["last_stable_offset_after"]),
        )
        for row in rows
    )
    return Grid(title="Audit trail", columns=columns, rows=lines, numbers=frozenset({"LSO before", "LSO after"}))


def step_of(row: Row) -> str:
    """``abort, intent``, and the overridden verdict."""
    override = f", override {text(row['override'])}" if row["override"] else ""
    return f"{text(row['action'])}, {text(row['step'])}{override}"


def evidence_grid(row: Row) -> Grid:
    """Evidence of a finding: values, sources and times."""
    columns = ("source", "broker", "time (UTC)", "name", "value")
    lines = tuple(
        tuple(text(entry.get(name)) for name in ("source", "broker_id", "observed_at", "name", "value"))
        for entry in row["evidence"]
    )
    title = f"{named(row)}, producer {text(row['producer_id'])}"
    return Grid(title=title, columns=columns, rows=lines, numbers=frozenset({"broker"}))


def log_transaction_grid(log_transactions: Sequence[Row], finding: Row) -> Grid:
    """Transactions of the partition: that of the finding, and those nearest to it in the log."""
    here = [row for row in log_transactions if _same_place(row, finding)]
    near = _nearest(here, key=_offset, to=finding["start_offset"])
    lines = tuple(tuple(text(row[name]) for name in _LOG_TRANSACTIONS.values()) for row in near)
    title, note = f"Transactions on {named(finding)}", _note(len(lines), len(here))
    return Grid(title=title, columns=tuple(_LOG_TRANSACTIONS), rows=lines, numbers=_NUMBERS, note=note)


def history_grid(transaction_history: Sequence[Row], finding: Row) -> Grid:
    """History of the finding's transactional id and producer id around the incident."""
    here = [row for row in transaction_history if is_owner(row, finding)]
    since = finding["opened_at"] or finding["held_from"]
    near = _nearest(here, key=_ended_at, to=since.timestamp() if since else None)
    lines = tuple(
        (
            text(row["transactional_id"]),
            text(row["kind"]) + (f", {text(row['ended'])}" if row["ended"] else ""),
            f"{text(row['producer_id'])} epoch {text(row['producer_epoch'])}",
            text(row["start_time"]),
            text(row["end_time"]),
            text(row["reason"]),
        )
        for row in near
    )
    columns = ("transactional id", "what", "producer", "start (UTC)", "end (UTC)", "what shows it")
    title = f"The coordinator about {_whom(finding)}"
    return Grid(title=title, columns=columns, rows=lines, note=_note(len(lines), len(here)))


def is_owner(row: Row, finding: Row) -> bool:
    """Whether a history is of the same transactional id, or of the same producer id."""
    name, producer_id = finding["transactional_id"], finding["producer_id"]
    return (name is not None and row["transactional_id"] == name) or (
        producer_id is not None and row["producer_id"] == producer_id
    )


def _whom(finding: Row) -> str:
    name = finding["transactional_id"]
    return f'"{text(name)}"' if name else f"producer {text(finding['producer_id'])}"


def _same_place(row: Row, finding: Row) -> bool:
    return (row["topic"], row["partition"]) == (finding["topic"], finding["partition"])


def _offset(row: Row) -> float | None:
    offset = row["first_offset"] if row["first_offset"] is not None else row["marker_offset"]
    return None if offset is None else float(offset)


def _ended_at(row: Row) -> float | None:
    times: list[dt.datetime | None] = [row["end_time"], row["decided_at"], row["start_time"]]
    return next((time.timestamp() for time in times if time is not None), None)


def _nearest(rows: Sequence[Row], *, key: Callable[[Row], float | None], to: float | None) -> list[Row]:
    """At most `MAX_ROWS` of ordered rows: those around an index, or the last ones if it is unknown."""
    if to is None or len(rows) <= MAX_ROWS:
        return list(rows[-MAX_ROWS:])
    middle = sum(1 for row in rows if (place := key(row)) is not None and place < to)
    first = max(0, min(middle - MAX_ROWS // 2, len(rows) - MAX_ROWS))
    return list(rows[first : first + MAX_ROWS])


def _note(count: int, of: int) -> str:
    return "" if of <= count else f"{count} of {of:,} rows: those nearest to the incident."


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
