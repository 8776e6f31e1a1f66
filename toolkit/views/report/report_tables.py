"""Tables of a report: actions, evidence, and rows of log and coordinators around an incident."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

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
