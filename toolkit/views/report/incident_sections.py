"""Sections of a report about its incidents: overview, impact, records, times, and the cause with its proof."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.verdicts import CAUSES
from toolkit.schema.durations import duration
from toolkit.views.document import Grid
from toolkit.views.finding_document import cause_names
from toolkit.views.report.finding_sections import up_to
from toolkit.views.report.incident_facts import OFFSETS, GroupStall, IncidentFacts, IncidentTime
from toolkit.views.report.report_parts import UNKNOWN, ReportSection, moment, text
from toolkit.views.report.report_summary import what_became
from toolkit.views.row_formats import printable

if TYPE_CHECKING:
    from toolkit.schema.live import EvidenceEntry

NOT_SEEN = "-"
TO_ACT, TO_MITIGATE = "from detection to the first action", "to mitigate"
PROOF: Mapping[str, str] = {
    "batch_before": "the batch of this producer before the transaction",
    "marker_before": "the marker before the transaction",
    "first_batch": "the first batch of the transaction",
    "marker": "the marker that ended it",
    "marker_after": "a later marker of this producer",
    "marker_elsewhere": "a marker of this producer on another partition",
    "first_of_new_epoch": "the first batch of a newer epoch",
    "record": "a record of its coordinator",
    "records": "its transaction in the coordinator's log",
    "state": "the state at its coordinator",
    "expects_marker_here": "whether the coordinator will write a marker here",
    "outcome": "what was decided about the records",
    "outcome_from": "where the coordinator's log begins",
    "outcome_record": "the record of that decision",
    "proof": "why no coordinator is hidden",
}
"""Evidence that shows the cause, in the order of a proof."""
MAX_PROOF = 12


def overview_section(incidents: Sequence[IncidentFacts]) -> ReportSection:
    """All incidents, one per line."""
    columns = ("incident", "verdict while open", "held from (UTC)", "held to (UTC)", "for", "cause", "is it over")
    lines = tuple(
        (
            each.name,
            each.verdict,
            moment(each.begun.time if each.begun else None, otherwise=UNKNOWN if each.holds else NOT_SEEN),
            moment(each.ended.time if each.ended else None, otherwise=NOT_SEEN),
            _length(each),
            _causes(each),
            "yes" if each.is_over else "no",
        )
        for each in incidents
    )
    return ReportSection(title="The incidents", grids=(Grid(title="Overview", columns=columns, rows=lines),))


def impact_section(incidents: Sequence[IncidentFacts]) -> ReportSection:
    """Held records, bytes and groups, and what became of the transaction's records."""
    return ReportSection(
        title="Impact",
        lead="Held: from the LSO up to the end of the log, the transaction's own records included.",
        grids=(_amounts(incidents), _groups(incidents), _fates(incidents)),
    )


def times_section(incidents: Sequence[IncidentFacts]) -> ReportSection:
    """How long it took to detect, to act, to mitigate, and until groups moved; each with the sources of both times."""
    columns = ("incident", "measure", "time", "from (UTC)", "to (UTC)", "sources")
    rows = tuple(line for each in incidents for line in _measures(each))
    return ReportSection(
        title="Time to detect and to mitigate",
        lead="Clocks of different machines may differ. No pager or ticket is among the sources: add those times.",
        grids=(Grid(title="Times", columns=columns, rows=rows),),
    )


def cause_section(incidents: Sequence[IncidentFacts]) -> ReportSection:
    """The cause of each incident, and the observed values that prove it."""
    return ReportSection(title="Root cause", grids=tuple(map(_proof, incidents)))


def _length(incident: IncidentFacts) -> str:
    return NOT_SEEN if incident.length is None else f"{up_to(incident.end)}{duration(incident.length)}"


def _causes(incident: IncidentFacts) -> str:
    names = cause_names(incident.finding.cause)
    return ", ".join(names) or UNKNOWN


def _amounts(incidents: Sequence[IncidentFacts]) -> Grid:
    columns = ("incident", "records held", "of other producers", "bytes held", "offsets held", "log compaction")
    lines = tuple(
        (
            each.name,
            _number(each.finding.records_held),
            _number(each.other_records),
            _number(each.finding.bytes_held),
            _number(each.finding.offsets_held),
            {None: UNKNOWN, True: "waited", False: "did not wait"}[each.finding.compaction_held],
        )
        for each in incidents
        if each.holds
    )
    numbers = frozenset(columns[1:5])
    return Grid(title="Records and bytes", columns=columns, rows=lines, numbers=numbers)


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _groups(incidents: Sequence[IncidentFacts]) -> Grid:
    columns = ("incident", "consumer group", "stall", "seen waiting from (UTC)", "to (UTC)", "moved on (UTC)")
    lines = tuple(
        (
            each.name,
            printable(stall.group),
            stall_text(stall),
            text(stall.seen_from),
            text(stall.seen_to),
            NOT_SEEN if stall.moved_at is None else text(stall.moved_at),
        )
        for each in incidents
        for stall in each.stalls
    )
    silent = [f"{each.name} ({left})" for each in incidents if each.holds and (left := _without_stall(each))]
    note = "Seen: by the recorder, or by this diagnosis. Moved on: when the group committed a later offset."
    unknown = f" Not known: {'; '.join(silent)}." if silent else ""
    empty = "No group is known to have waited." if silent else "No group waited."
    return Grid(title="Consumer groups", columns=columns, rows=lines, note=note + unknown, empty=empty)


def _without_stall(incident: IncidentFacts) -> str:
    """Groups whose stall is not known; empty without any."""
    if incident.finding.groups_held is None:
        return "" if incident.stalls else "groups were not queried"
    known = {stall.group for stall in incident.stalls}
    return ", ".join(printable(group) for group in incident.finding.groups_held if group not in known)


def stall_text(stall: GroupStall) -> str:
    """``12 s to 14 s``: at least between the observations, at most between the bounds."""
    least, most = duration(stall.at_least), stall.at_most
    if most is None:
        return f"at least {least}" if stall.at_least else "not known: it was seen waiting once"
    return least if duration(most) == least else f"{least} to {duration(most)}"


def _fates(incidents: Sequence[IncidentFacts]) -> Grid:
    columns = ("incident", "committed records lost", "records of the transaction", "what became of them")
    words = {None: UNKNOWN, True: "yes", False: "no"}
    lines = tuple(
        (each.name, words[each.is_lost], _number(each.own_records), what_became(each))
        for each in incidents
        if each.finding.producer_id is not None
    )
    return Grid(title="Records lost or saved", columns=columns, rows=lines, numbers=frozenset({columns[2]}))


def _measures(incident: IncidentFacts) -> Iterator[tuple[str, ...]]:
    begun = incident.begun
    if incident.seen != incident.detected:
        yield _measure(incident, "until a sample showed it", begun, incident.seen)
    yield _measure(incident, "to detect", begun, incident.detected)
    acted = incident.acted
    if acted is None and incident.has_trail:
        none = "no action" if incident.is_over else "no action yet"
        detected = text(incident.detected.time) if incident.detected else NOT_SEEN
        yield incident.name, TO_ACT, none, detected, NOT_SEEN, "the audit trail has no action on it"
    else:
        yield _measure(incident, TO_ACT, incident.detected, acted)
    if begun is not None and not incident.is_over:
        seen = f"it was still open at {moment(incident.finding.observed_at)}"
        yield incident.name, TO_MITIGATE, "not over", text(begun.time), NOT_SEEN, seen
    else:
        yield _measure(incident, TO_MITIGATE, begun, incident.ended, at_most=up_to(incident.end))
    moved = [stall.moved_at for stall in incident.stalls if stall.moved_at is not None]
    if moved and incident.ended:
        last = IncidentTime(time=max(moved), what="the last group moved on", source=OFFSETS)
        yield _measure(incident, "until the last group moved on", incident.ended, last)


def _measure(
    incident: IncidentFacts, name: str, start: IncidentTime | None, stop: IncidentTime | None, *, at_most: str = ""
) -> tuple[str, ...]:
    if start is None or stop is None:
        missing = " and ".join(what for what, time in (("its start", start), ("its end", stop)) if time is None)
        times = tuple(NOT_SEEN if each is None else text(each.time) for each in (start, stop))
        return (incident.name, name, UNKNOWN, *times, f"no source has {missing}")
    elapsed = stop.time - start.time
    length = (
        at_most + duration(elapsed) if elapsed >= dt.timedelta() else f"{duration(elapsed)} before it, by another clock"
    )
    sources = f"from: {start.source}; to: {stop.source}: {stop.what}"
    return (incident.name, name, length, text(start.time), text(stop.time), sources)


def _proof(incident: IncidentFacts) -> Grid:
    columns = ("what it shows", "source", "broker", "time (UTC)", "value")
    order = list(PROOF)
    entries = sorted(
        (entry for entry in incident.finding.evidence if entry.name in PROOF and entry.source != "recording"),
        key=lambda entry: order.index(str(entry.name)),
    )
    once = {(entry.name, entry.broker_id, entry.value): entry for entry in reversed(entries)}
    lines = tuple(_proof_line(entry) for entry in reversed(once.values()))  # seen again, it proves no more
    cause = incident.finding.cause
    known = f"Cause: {printable(cause)}." if cause else f"The cause is {UNKNOWN}."
    meaning = " ".join(CAUSES[name] for name in cause_names(cause))
    left = f" {len(lines) - MAX_PROOF} more values are in the appendix." if len(lines) > MAX_PROOF else ""
    note = " ".join(f"{known} {meaning}{left}".split())
    return Grid(title=incident.name, columns=columns, rows=lines[:MAX_PROOF], numbers=frozenset({"broker"}), note=note)


def _proof_line(entry: EvidenceEntry) -> tuple[str, ...]:
    return (
        PROOF[str(entry.name)],
        text(entry.source),
        text(entry.broker_id),
        text(entry.observed_at),
        text(entry.value),
    )
