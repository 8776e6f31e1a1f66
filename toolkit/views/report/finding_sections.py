"""Findings as sections: what was held, since when, until when, by whom, why, and who was affected."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.outcome import OUTCOMES
from toolkit.analysis.diagnosis.verdicts import HEALTHY, VERDICTS
from toolkit.schema.durations import duration
from toolkit.views.findings_text import finding_page
from toolkit.views.report.report_parts import UNKNOWN, Fact, Grid, ReportSection, counted, moment, named, text
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    from toolkit.schema import Row


LOG, RECORDING = "the log", "the recording"

_BY_MARKER = re.compile(r"Its (?:\w+ )?marker is at offset \d+ of the log\b")
_OF_LOG = {"held_since", "first_batch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldEnd:
    """The end of a hold.

    Parameters
    ----------
    time
        Time of the marker; or of the first sample without the transaction, and the marker was written before.
    marker
        What is known of the marker, as a sentence; null if no log was read that has it.
    last_seen
        When it was last seen open, if the end is that of a sample and that is known.
    """

    time: dt.datetime
    marker: str | None = None
    last_seen: dt.datetime | None = None


def hold_end(row: Row, log_transactions: Iterable[Row] = ()) -> HoldEnd | None:
    """When a finding stopped holding the LSO; null if it still holds it, or that is not known.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    log_transactions
        Rows of ``schema.LOG_TRANSACTIONS`` around it.
    """
    if row["held_to"] is None:
        return None
    key = row["topic"], row["partition"], row["producer_id"], row["start_offset"]
    for each in log_transactions:
        own = each["topic"], each["partition"], each["producer_id"], each["first_offset"]
        if own == key and each["marker_offset"] is not None and each["end"] is not None:
            kind = f"{each['marker']} marker" if each["marker"] else "marker"
            return HoldEnd(time=each["end"], marker=f"its {kind} at offset {each['marker_offset']} ended it")
    names = {entry["name"] for entry in row["evidence"] or ()}
    if "marker" in names or _BY_MARKER.match(row["reason"] or ""):
        return HoldEnd(time=row["held_to"], marker="its marker ended it")
    seen = [entry["observed_at"] for entry in row["evidence"] or () if entry["name"] == "verdict_before"]
    return HoldEnd(time=row["held_to"], last_seen=next(iter(seen), None))


def held_from_source(row: Row, samples: Sequence[Row] = ()) -> str:
    """By what the start of a hold is known: `LOG`, or `RECORDING` if it is the first sample that shows the hold.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    samples
        Rows of the recording's partitions.
    """
    if row["held_from"] in {each.get("sampled_at") for each in samples}:
        return RECORDING
    evidence = row["evidence"] or ()
    is_recorded = any(entry["source"] == "recording" for entry in evidence)
    return RECORDING if is_recorded and _OF_LOG.isdisjoint(entry["name"] for entry in evidence) else LOG


MAX_FINDINGS = 20
"""Maximum number of findings with a section; the others are in one table."""

NOTHING_OPEN = {"clear", "unreplicated", "ended"}
"""Verdicts of a finding without producer that say that no transaction is open; others could not look."""

_CLOCKS = {
    "coordinator": "the coordinator's clock",
    "producer": "the producer's clock",
    "broker": "the broker's clock",
}
VERDICT_ORDER = ("hanging", "unknown", "stuck_ending", "overdue", "prepared", "unreplicated", "ended", "ending", "long")
"""Verdicts, the most urgent first."""


def is_answer(row: Row) -> bool:
    """Whether it held or holds an LSO, or needs action."""
    return row["queue_position"] == 1 or row["verdict"] not in HEALTHY or bool(row["cause"])


def by_weight(rows: Sequence[Row]) -> list[Row]:
    """Sort key: the most urgent verdict first, then partition and queue position."""
    return sorted(rows, key=lambda row: urgency(row["verdict"]))


def urgency(verdict: str) -> int:
    """The place of a verdict in `VERDICT_ORDER`."""
    return VERDICT_ORDER.index(verdict) if verdict in VERDICT_ORDER else len(VERDICT_ORDER)


def answer(row: Row, *, log_transactions: Sequence[Row] = ()) -> ReportSection:
    """The section of one finding.

    Parameters
    ----------
    row
        A row of ``schema.FINDINGS``.
    log_transactions
        Rows of ``schema.LOG_TRANSACTIONS``: they date its marker, which samples alone do not.
    """
    end = hold_end(row, log_transactions)
    return ReportSection(title=_title(row), verdict=row["verdict"], lead=_lead(row, end), facts=tuple(_facts(row, end)))


def others(rows: Sequence[Row]) -> Grid:
    """Findings, one per line."""
    columns = ("partition", "verdict", "producer", "transactional id", "from offset", "open since", "why")
    lines = tuple(
        (
            named(row),
            row["verdict"],
            _producer(row),
            text(row["transactional_id"]),
            text(row["start_offset"]),
            moment(row["opened_at"], otherwise="-"),
            printable(row["reason"]),
        )
        for row in rows
    )
    return Grid(title="In a line each", columns=columns, rows=lines, numbers=frozenset({"from offset"}))


def _title(row: Row) -> str:
    offset = "" if row["start_offset"] is None else f" at offset {row['start_offset']}"
    return f"{named(row)}{offset}"


def _lead(row: Row, end: HoldEnd | None) -> str:
    """The finding in one or two sentences."""
    where = named(row)
    who = f"producer {_producer(row)}" + (
        f' of "{printable(row["transactional_id"])}"' if row["transactional_id"] else ""
    )
    if row["verdict"] == "ended":
        return f"{where} was held{_how_long(row, end)} by {who}. It is over.{_waited(row, 'waited')}"
    if row["queue_position"] == 1 and row["producer_id"] is not None:
        return f"{where} has been held{_how_long(row, end)} by {who}.{_waited(row, 'wait')}"
    if row["producer_id"] is not None and row["queue_position"] is not None:
        before = counted(row["queue_position"] - 1, "other", "others")
        return f"Opened by {who}, behind {before}: it holds {where} once they have ended."
    return printable(row["reason"])


def _how_long(row: Row, end: HoldEnd | None) -> str:
    since, length = row["held_from"] or row["opened_at"], _length(row, end)
    text_ = f" since {moment(since)}" if row["verdict"] != "ended" and since else ""
    return text_ + (f" for {_up_to(end)}{duration(length)}" if length is not None else "")


def _up_to(end: HoldEnd | None) -> str:
    """For an end that is only the first sample without it."""
    return "at most " if end is not None and end.marker is None else ""


def _waited(row: Row, verb: str) -> str:
    if row["records_held"] is None:
        return ""
    verb = "waits" if verb == "wait" and row["records_held"] == 1 else verb
    return f" {counted(row['records_held'], 'record', 'records')} {verb} behind it."


def _length(row: Row, end: HoldEnd | None) -> dt.timedelta | None:
    if end is not None and row["held_from"] is not None:
        held_from: dt.datetime = row["held_from"]
        return max(end.time - held_from, dt.timedelta())
    if row["held_ms"] is not None:
        return dt.timedelta(milliseconds=row["held_ms"])
    since = row["held_from"] or (row["opened_at"] if row["queue_position"] == 1 else None)
    return row["observed_at"] - since if since and since <= row["observed_at"] else None


def _producer(row: Row) -> str:
    if row["producer_id"] is None:
        return "-"
    return f"{row['producer_id']} epoch {UNKNOWN if row['producer_epoch'] is None else row['producer_epoch']}"


def _facts(row: Row, end: HoldEnd | None) -> Iterator[Fact]:
    yield Fact("What was held", tuple(_what(row)))
    yield Fact("Since", (_since(row),))
    yield Fact("Until", (_until(row, end),))
    yield Fact("By whom", tuple(_who(row)))
    yield Fact("Verdict", (f"{row['verdict']}: {VERDICTS.get(row['verdict'], '')}",))
    if row.get("outcome"):
        yield Fact("Outcome", (f"{row['outcome']}: {OUTCOMES.get(row['outcome'], '')}",))
    yield Fact("Why", (printable(row["reason"]),))
    yield Fact("Cause", (printable(row["cause"]) if row["cause"] else UNKNOWN,))
    yield Fact("Who was affected", tuple(_affected(row)))
    yield Fact("Remedy", (printable(row["remedy"]),), command=row["remedy"].startswith("kafka-txn "))
    yield Fact("Docs", (finding_page(row),), link=True)
    yield Fact("Missing", tuple(map(printable, row["missing"])) or ("nothing: the evidence is complete",))
    if row["error"] and row["error"] not in row["missing"]:
        yield Fact("Error", (printable(row["error"]),))


def _what(row: Row) -> Iterator[str]:
    stable, high = row["last_stable_offset"], row["high_watermark"]
    if row["verdict"] == "ended":
        yield f"the last stable offset (LSO) of {named(row)}, at offset {text(row['start_offset'])}"
    elif stable is not None:
        yield f"the last stable offset (LSO) of {named(row)}, at {stable}; the high watermark is {text(high)}"
    else:
        yield f"the last stable offset (LSO) of {named(row)}, which is {UNKNOWN}"
    if row["offsets_held"]:
        could = "could" if row["verdict"] == "ended" else "can"
        yield f"{counted(row['offsets_held'], 'offset', 'offsets')} that no read_committed consumer {could} read"


def _since(row: Row) -> str:
    since = row["held_from"] or row["opened_at"]
    if since is None:
        return UNKNOWN
    opened = row["opened_at"] if row["held_from"] not in (None, row["opened_at"]) else None
    clock = f", by {_CLOCKS[row['opened_at_clock']]}" if row["opened_at_clock"] in _CLOCKS and opened is None else ""
    also = f"; it opened at {moment(opened)}" if opened else ""
    return f"{moment(since)}{clock}{also}"


def _until(row: Row, end: HoldEnd | None) -> str:
    if end is not None:
        length = _length(row, end)
        after = f", after {_up_to(end)}{duration(length)}" if length is not None else ""
        if end.marker:
            return f"{moment(end.time)}{after}"
        first_without = f"{moment(end.time)}, the first sample without it{after}"
        if end.last_seen is None:
            return f"before {first_without}"
        return f"between {moment(end.last_seen)}, when it was last seen open, and {first_without}"
    if row["producer_id"] is None and row["verdict"] not in NOTHING_OPEN:
        return UNKNOWN
    if row["queue_position"] is None:
        return "it does not hold the LSO"
    expires = f"; it expires at {moment(row['expires_at'])}" if row["expires_at"] else ""
    return f"open at the time of observation, {moment(row['observed_at'])}{expires}"


def _who(row: Row) -> Iterator[str]:
    if row["producer_id"] is None:
        yield "no producer: nothing is open" if row["verdict"] in NOTHING_OPEN else f"{UNKNOWN}: it could not be read"
        return
    yield f"producer id {row['producer_id']}, epoch {text(row['producer_epoch'])}"
    name = row["transactional_id"]
    yield f'transactional id "{printable(name)}"' if name else f"transactional id {UNKNOWN}"


def _affected(row: Row) -> Iterator[str]:
    groups = row["groups_held"]
    if groups is None:
        yield f"consumer groups: {UNKNOWN}, not queried"
    else:
        names = ", ".join(map(printable, groups)) if groups else "none"
        yield f"consumer groups that could not move: {names}"
    records, size = row["records_held"], row["bytes_held"]
    yield f"records behind it: {UNKNOWN if records is None else f'{records:,}'}"
    yield f"bytes behind it: {UNKNOWN if size is None else f'{size:,}'}"
    if row["compaction_held"] is not None:
        yield f"log compaction waits: {'yes' if row['compaction_held'] else 'no'}"
