"""Findings as sections: what was held, since when, until when, by whom, why, and who was affected."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolkit.schema.durations import duration
from toolkit.schema.verdict import Verdict
from toolkit.views.document import Field, Grid
from toolkit.views.finding_document import explained_fields, is_healthy
from toolkit.views.report.report_parts import UNKNOWN, ReportSection, moment, partition_name, text
from toolkit.views.row_formats import count, printable

if TYPE_CHECKING:
    from toolkit.schema.live import Finding
    from toolkit.schema.log import LogTransaction

LOG, RECORDING = "the log", "the recording"

_BY_MARKER = re.compile(r"Its (?:\w+ )?marker is at offset \d+ of the log\b")
_OF_LOG = {"held_since", "first_batch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldEnd:
    """The end of a hold."""

    # time of the marker; or of the first sample without the transaction, and the marker was written before
    time: dt.datetime
    marker: str | None = None  # what is known of the marker, as a sentence; null if no log was read that has it
    last_seen: dt.datetime | None = None  # when it was last seen open, if the end is that of a sample and that is known


def hold_end(finding: Finding, log_transactions: Iterable[LogTransaction] = ()) -> HoldEnd | None:
    """When a finding stopped holding the LSO; null if it still holds it, or that is not known.

    `log_transactions`: transactions around it.
    """
    if finding.held_to is None:
        return None
    key = finding.topic, finding.partition, finding.producer_id, finding.start_offset
    for txn in log_transactions:
        own = txn.topic, txn.partition, txn.producer_id, txn.first_offset
        if own == key and txn.marker_offset is not None and txn.end is not None:
            kind = f"{txn.marker} marker" if txn.marker else "marker"
            return HoldEnd(time=txn.end, marker=f"its {kind} at offset {txn.marker_offset} ended it")
    names = {entry.name for entry in finding.evidence or ()}
    if "marker" in names or _BY_MARKER.match(finding.reason or ""):
        return HoldEnd(time=finding.held_to, marker="its marker ended it")
    seen = [entry.observed_at for entry in finding.evidence or () if entry.name == "verdict_before"]
    return HoldEnd(time=finding.held_to, last_seen=next(iter(seen), None))


def held_from_source(finding: Finding, sampled_at: Collection[dt.datetime | None] = ()) -> str:
    """By what the start of a hold is known: `LOG`, or `RECORDING` if it is the first sample that shows the hold."""
    if finding.held_from is not None and finding.held_from in sampled_at:
        return RECORDING
    evidence = finding.evidence or ()
    is_recorded = any(entry.source == "recording" for entry in evidence)
    return RECORDING if is_recorded and _OF_LOG.isdisjoint(entry.name for entry in evidence) else LOG


MAX_FINDINGS = 20
"""Maximum number of findings with a section; the others are in one table."""

"""Verdicts of a finding without producer that say that no transaction is open; others could not look."""

_CLOCKS = {"coordinator": "the coordinator's clock", "producer": "the producer's clock", "broker": "the broker's clock"}


def is_answer(finding: Finding) -> bool:
    """Whether it held an LSO for long, or needs action: a healthy transaction is no incident."""
    return not is_healthy(finding)


def answer(finding: Finding, *, log_transactions: Sequence[LogTransaction] = ()) -> ReportSection:
    """The section of one finding.

    `log_transactions`: transactions of the log: they date its marker, which samples alone do not.
    """
    end = hold_end(finding, log_transactions)
    return ReportSection(
        title=_title(finding), verdict=finding.verdict, lead=_lead(finding, end), fields=tuple(_fields(finding, end))
    )


def others(findings: Sequence[Finding]) -> Grid:
    """Findings, one per line."""
    columns = ("partition", "verdict", "producer", "transactional id", "from offset", "open since", "why")
    lines = tuple(
        (
            partition_name(finding),
            finding.verdict,
            _producer(finding),
            text(finding.transactional_id),
            text(finding.start_offset),
            moment(finding.opened_at, otherwise="-"),
            printable(finding.reason),
        )
        for finding in findings
    )
    return Grid(title="In a line each", columns=columns, rows=lines, numbers=frozenset({"from offset"}))


def _title(finding: Finding) -> str:
    offset = "" if finding.start_offset is None else f" at offset {finding.start_offset}"
    return f"{partition_name(finding)}{offset}"


def _lead(finding: Finding, end: HoldEnd | None) -> str:
    """The finding in one or two sentences."""
    where = partition_name(finding)
    who = f"producer {_producer(finding)}" + (
        f' of "{printable(finding.transactional_id)}"' if finding.transactional_id else ""
    )
    if finding.verdict is Verdict.ENDED:
        return f"{where} was held{_how_long(finding, end)} by {who}. It is over.{_held(finding)}"
    if finding.queue_position == 1 and finding.producer_id is not None:
        return f"{where} has been held{_how_long(finding, end)} by {who}.{_held(finding)}"
    if finding.producer_id is not None and finding.queue_position is not None:
        before = count(finding.queue_position - 1, "other", "others")
        return f"Opened by {who}, behind {before}: it holds {where} once they have ended."
    return printable(finding.reason)


def _how_long(finding: Finding, end: HoldEnd | None) -> str:
    since, length = finding.held_from or finding.opened_at, _length(finding, end)
    text_ = f" since {moment(since)}" if finding.verdict is not Verdict.ENDED and since else ""
    return text_ + (f" for {up_to(end)}{duration(length)}" if length is not None else "")


def up_to(end: HoldEnd | None) -> str:
    """``at most``, for an end that is only the first sample without it."""
    return "at most " if end is not None and end.marker is None else ""


def _held(finding: Finding) -> str:
    if finding.records_held is None:
        return ""
    one, many = ("was", "were") if finding.verdict is Verdict.ENDED else ("is", "are")
    return f" {count(finding.records_held, f'record {one}', f'records {many}')} held, its own included."


def _length(finding: Finding, end: HoldEnd | None) -> dt.timedelta | None:
    if end is not None and end.marker and finding.held_from is not None:
        return max(end.time - finding.held_from, dt.timedelta())
    if finding.held_ms is not None:
        return dt.timedelta(milliseconds=finding.held_ms)
    since = finding.held_from or (finding.opened_at if finding.queue_position == 1 else None)
    now = finding.brokers_time
    return now - since if since and now and since <= now else None


def _producer(finding: Finding) -> str:
    if finding.producer_id is None:
        return "-"
    return f"{finding.producer_id} epoch {UNKNOWN if finding.producer_epoch is None else finding.producer_epoch}"


def _fields(finding: Finding, end: HoldEnd | None) -> Iterator[Field]:
    yield Field("What was held", tuple(_what(finding)))
    yield Field("Since", (_since(finding),))
    yield Field("Until", (_until(finding, end),))
    yield Field("By whom", tuple(_who(finding)))
    yield Field("Verdict", (f"{finding.verdict}: {finding.verdict.sentence}",))
    if not finding.cause:
        yield Field("Cause", (UNKNOWN,))
    yield Field("Who was affected", tuple(_affected(finding)))
    yield from (Field(each.label.capitalize(), each.values) for each in explained_fields(finding))
    if not finding.missing:
        yield Field("Missing", ("nothing",))


def _what(finding: Finding) -> Iterator[str]:
    lso = f"the last stable offset (LSO) of {partition_name(finding)}"
    if finding.verdict is Verdict.ENDED:
        yield f"{lso}, at offset {text(finding.start_offset)}"
    elif finding.last_stable_offset is not None:
        yield f"{lso}, at {finding.last_stable_offset}; the high watermark is {text(finding.high_watermark)}"
    else:
        yield f"{lso}, which is {UNKNOWN}"
    if finding.offsets_held:
        could = "could" if finding.verdict is Verdict.ENDED else "can"
        yield f"{count(finding.offsets_held, 'offset', 'offsets')} that no read_committed consumer {could} read"


def _since(finding: Finding) -> str:
    since = finding.held_from or finding.opened_at
    if since is None:
        return UNKNOWN
    opened = finding.opened_at if finding.held_from not in (None, finding.opened_at) else None
    clock = f", by {_CLOCKS[finding.opened_at_clock]}" if finding.opened_at_clock in _CLOCKS and opened is None else ""
    also = f"; it opened at {moment(opened)}" if opened else ""
    return f"{moment(since)}{clock}{also}"


def _until(finding: Finding, end: HoldEnd | None) -> str:
    if end is not None:
        length = _length(finding, end)
        after = f", after {up_to(end)}{duration(length)}" if length is not None else ""
        if end.marker:
            return f"{moment(end.time)}{after}"
        first_without = f"{moment(end.time)}, the first sample without it{after}"
        if end.last_seen is None:
            return f"before {first_without}"
        return f"between {moment(end.last_seen)}, when it was last seen open, and {first_without}"
    if finding.producer_id is None and finding.verdict.is_open:
        return UNKNOWN
    if finding.queue_position is None:
        return "it does not hold the LSO"
    expires = f"; it expires at {moment(finding.expires_at)}" if finding.expires_at else ""
    return f"open at the time of observation, {moment(finding.observed_at)}{expires}"


def _who(finding: Finding) -> Iterator[str]:
    if finding.producer_id is None:
        yield f"{UNKNOWN}: it could not be read" if finding.verdict.is_open else "no producer: nothing is open"
        return
    yield f"producer id {finding.producer_id}, epoch {text(finding.producer_epoch)}"
    name = finding.transactional_id
    yield f'transactional id "{printable(name)}"' if name else f"transactional id {UNKNOWN}"


def _affected(finding: Finding) -> Iterator[str]:
    groups = finding.groups_held
    if groups is None:
        yield f"consumer groups: {UNKNOWN}, not queried"
    else:
        names = ", ".join(map(printable, groups)) if groups else "none"
        yield f"consumer groups that could not move: {names}"
    records, size = finding.records_held, finding.bytes_held
    yield f"records held, its own included: {UNKNOWN if records is None else f'{records:,}'}"
    yield f"bytes held: {UNKNOWN if size is None else f'{size:,}'}"
    if finding.compaction_held is not None:
        yield f"log compaction waits: {'yes' if finding.compaction_held else 'no'}"
