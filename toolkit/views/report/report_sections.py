"""The sections of a report: summary, overview, impact, times and cause of its incidents, findings, and prevention."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.decision import CAUSES, COMMIT, OUTCOMES, UNKNOWN
from toolkit.schema.durations import duration
from toolkit.schema.recorded import OUTCOME
from toolkit.schema.verdict import DOCS_URL, RUNBOOK_URL, Verdict
from toolkit.views.document import Field, Grid
from toolkit.views.finding_document import cause_names, explained_fields, finding_page, is_healthy, remedy, summary
from toolkit.views.report.incident_facts import (
    NOT_KNOWN,
    OFFSETS,
    GroupStall,
    HoldEnd,
    IncidentFacts,
    IncidentTime,
    ReportSection,
    ReportTables,
    hold_end,
    moment,
    partition_name,
    text,
    up_to,
)
from toolkit.views.row_formats import count, printable

if TYPE_CHECKING:
    from toolkit.schema.live import EvidenceEntry, Exposure, Finding
    from toolkit.schema.log import LogTransaction


MAX_FINDINGS = 20
"""Maximum number of findings with a section; the others are in one table."""

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
        return f"{where} was held{_how_long(finding, end)} by {who}. It is over.{_held_records(finding)}"
    if finding.queue_position == 1 and finding.producer_id is not None:
        return f"{where} has been held{_how_long(finding, end)} by {who}.{_held_records(finding)}"
    if finding.producer_id is not None and finding.queue_position is not None:
        before = count(finding.queue_position - 1, "other", "others")
        return f"Opened by {who}, behind {before}: it holds {where} once they have ended."
    return printable(finding.reason)


def _how_long(finding: Finding, end: HoldEnd | None) -> str:
    since, length = finding.held_from or finding.opened_at, _length(finding, end)
    text_ = f" since {moment(since)}" if finding.verdict is not Verdict.ENDED and since else ""
    return text_ + (f" for {up_to(end)}{duration(length)}" if length is not None else "")


def _held_records(finding: Finding) -> str:
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
    return f"{finding.producer_id} epoch {NOT_KNOWN if finding.producer_epoch is None else finding.producer_epoch}"


def _fields(finding: Finding, end: HoldEnd | None) -> Iterator[Field]:
    yield Field("What was held", tuple(_what(finding)))
    yield Field("Since", (_since(finding),))
    yield Field("Until", (_until(finding, end),))
    yield Field("By whom", tuple(_who(finding)))
    yield Field("Verdict", (f"{finding.verdict}: {finding.verdict.sentence}",))
    if not finding.cause:
        yield Field("Cause", (NOT_KNOWN,))
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
        yield f"{lso}, which is {NOT_KNOWN}"
    if finding.offsets_held:
        could = "could" if finding.verdict is Verdict.ENDED else "can"
        yield f"{count(finding.offsets_held, 'offset', 'offsets')} that no read_committed consumer {could} read"


def _since(finding: Finding) -> str:
    since = finding.held_from or finding.opened_at
    if since is None:
        return NOT_KNOWN
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
        return NOT_KNOWN
    if finding.queue_position is None:
        return "it does not hold the LSO"
    expires = f"; it expires at {moment(finding.expires_at)}" if finding.expires_at else ""
    return f"open at the time of observation, {moment(finding.observed_at)}{expires}"


def _who(finding: Finding) -> Iterator[str]:
    if finding.producer_id is None:
        yield f"{NOT_KNOWN}: it could not be read" if finding.verdict.is_open else "no producer: nothing is open"
        return
    yield f"producer id {finding.producer_id}, epoch {text(finding.producer_epoch)}"
    name = finding.transactional_id
    yield f'transactional id "{printable(name)}"' if name else f"transactional id {NOT_KNOWN}"


def _affected(finding: Finding) -> Iterator[str]:
    groups = finding.groups_held
    if groups is None:
        yield f"consumer groups: {NOT_KNOWN}, not queried"
    else:
        names = ", ".join(map(printable, groups)) if groups else "none"
        yield f"consumer groups that could not move: {names}"
    records, size = finding.records_held, finding.bytes_held
    yield f"records held, its own included: {NOT_KNOWN if records is None else f'{records:,}'}"
    yield f"bytes held: {NOT_KNOWN if size is None else f'{size:,}'}"
    if finding.compaction_held is not None:
        yield f"log compaction waits: {'yes' if finding.compaction_held else 'no'}"


MAX_NAMES = 5


def summary_sentences(
    findings: Sequence[Finding], incidents: Sequence[IncidentFacts], *, left: int = 0, generated_at: dt.datetime
) -> Iterator[str]:
    """The paragraphs under the heading.

    `incidents`: all, those with a section first. `left`: how many have none. `generated_at`: when the report was made.
    """
    holds = [each for each in incidents if each.holds]
    if len(holds) == 1:
        yield from _of_one(holds[0])
    elif holds:
        yield from _of_several(holds)
    behind = [each for each in incidents if each.finding.producer_id is not None and not each.holds]
    if behind:
        yield f"Open behind it, and next to hold the LSO: {_numbers(behind)}."
    if left:
        yield f"{count(left, 'of them has', 'of them have')} no section: see the appendix."
    if len(findings) != 1 or not all(each.is_over for each in holds):
        yield f"In short: {summary(findings)}."
    times = [finding.observed_at for finding in findings]
    as_of = f", from data as of {moment(max(times))}" if times else ""
    yield f"Made at {moment(generated_at)}{as_of}. All times are in UTC."


def what_became(incident: IncidentFacts) -> str:
    """Whether the records of the transaction were lost, delivered or saved, as sentences."""
    own = "the transaction's records" if incident.own_records is None else _own(incident.own_records)
    if not incident.is_over:
        return f"The log still has {own}: nothing is discarded yet."
    if incident.marker == "COMMIT":
        return f"The COMMIT marker delivered {own}; nothing is lost."
    if incident.marker is None:
        return "What became of its records is not known: no log was read that has the marker."
    if incident.outcome == UNKNOWN:
        lost = "It is not known whether a commit included them."
    elif incident.outcome == COMMIT:
        lost = "The coordinator had committed them: they are lost for read_committed consumers."
    else:
        lost = f"{OUTCOMES[incident.outcome]} So nothing that was committed is lost."
    saved = f" A copy was saved before: {text(incident.saved_to)}." if incident.saved_to else ""
    return f"The ABORT marker discarded {own}. {lost}{saved}"


def what_was_done(incident: IncidentFacts) -> str:
    """Who ended it and when, as a sentence; or what is safe."""
    step = incident.marker_step
    if step is not None:
        after = "" if step.last_stable_offset_after is None else (
            f"; the LSO moved from {text(step.last_stable_offset_before)} to {step.last_stable_offset_after}"
        )  # fmt: skip
        override = f", with the override {text(step.override)}" if step.override else ""
        marker = f"{incident.marker} marker" if incident.marker else "marker"
        how = f"with kafka-txn {step.action}{override} at {moment(step.at)}"
        return f"{text(step.who)} wrote the {marker} {how}{after}."
    done = [each for each in incident.actions if each.step == OUTCOME and each.error is None]
    if done:
        return f"{text(done[-1].who)} ran kafka-txn {done[-1].action} at {moment(done[-1].at)}."
    if incident.unfinished:
        step = incident.unfinished[-1]
        return f"{text(step.who)} started kafka-txn {step.action} at {moment(step.at)}; its result is not known."
    if incident.is_over and not incident.has_trail:
        return "What was done is not known: no audit trail was included."
    if incident.is_over:
        return "No action is in the audit trail: its client, its coordinator or another tool ended it."
    return "What is safe: the command of its remedy, below." if incident.finding.command else (
        f"What is safe: {printable(incident.finding.remedy)}")  # fmt: skip


def groups_text(incident: IncidentFacts) -> str:
    """The consumer groups that waited, or that this is not known."""
    groups = incident.finding.groups_held
    if groups is None:
        return f"Which consumer groups {'waited' if incident.is_over else 'wait'} is not known."
    verb = "waited" if incident.is_over else "cannot move"
    if not groups:
        return f"No consumer group {'waited' if incident.is_over else 'waits'}."
    return _groups(groups, verb)


def _groups(names: Sequence[str], verb: str) -> str:
    """``Consumer group billing waited.``; or ``2 consumer groups waited: billing, ledger.``."""
    if len(names) == 1:
        return f"Consumer group {printable(names[0])} {verb}."
    return f"{_few(names, '', f'consumer groups {verb}')}."


def _of_one(incident: IncidentFacts) -> Iterator[str]:
    finding = incident.finding
    since = moment(finding.held_from or finding.opened_at)
    end, length = incident.end, incident.length
    long = f" for {up_to(end)}{duration(length)}" if length is not None else ""
    where = f"{partition_name(finding)} at offset {text(finding.start_offset)}"
    owner = f' of "{printable(finding.transactional_id)}"' if finding.transactional_id else ""
    who = f"producer {finding.producer_id}{owner}"
    if incident.is_over:
        held = f"From {since} to {moment(end.time if end else None)}, {who} held"
    else:
        held, long = f"Since {since}, {who} has held", f"{long} so far" if long else ""
    yield (
        f"{held} the last stable offset (LSO) of {where}{long}: "
        f"read_committed consumers {'could not' if incident.is_over else 'cannot'} read beyond it."
    )
    yield f"{_why(incident)} {_impact(incident)}"
    done = [what_was_done(incident), what_became(incident)]
    yield " ".join(done if incident.is_over else reversed(done))  # a command stands last, to be copied
    yield _is_over(incident)


def _of_several(incidents: Sequence[IncidentFacts]) -> Iterator[str]:
    names = list(dict.fromkeys(partition_name(each.finding) for each in incidents))
    begun = [each.begun.time for each in incidents if each.begun]
    first = f" The first began at {moment(min(begun))}." if begun else ""
    yield (
        f"{count(len(incidents), 'transaction')} have held the last stable offset (LSO) of "
        f"{_few(names, 'partition', 'partitions')}.{first} read_committed consumers cannot read beyond a held LSO."
    )
    groups = sorted({group for each in incidents for group in each.finding.groups_held or ()})
    yield " ".join([_held(incidents), *([_groups(groups, "waited")] if groups else [])])
    for each in incidents[:MAX_NAMES]:
        if each.marker_step is not None:
            yield f"{_numbers([each]).capitalize()}: {what_was_done(each)}"
    lost = [each for each in incidents if each.is_lost]
    doubt = [each for each in incidents if each.is_lost is None]
    if lost:
        yield f"Committed records were discarded by {_numbers(lost)}."
    if doubt:
        yield f"It is not known whether committed records were discarded by {_numbers(doubt)}."
    if not lost and not doubt:
        yield "No committed record was discarded."
    is_open = [each for each in incidents if not each.is_over]
    yield f"Not over: {_numbers(is_open)}." if is_open else "All are over."


def _held(incidents: Sequence[IncidentFacts]) -> str:
    """The longest hold, and the records held: of each partition the most that one transaction held."""
    longest = max(incidents, key=lambda each: each.length or dt.timedelta())
    by_partition: dict[str, int] = {}
    for each in incidents:
        if each.finding.records_held is not None:
            name = partition_name(each.finding)
            by_partition[name] = max(by_partition.get(name, 0), each.finding.records_held)
    if not by_partition:
        return "How many records were held is not known."
    least = "At least " if any(each.finding.records_held is None for each in incidents) else ""
    held = f"{least}{count(sum(by_partition.values()), 'record')} waited."
    if longest.length is None:
        return held
    so_far = "" if longest.is_over else " so far"
    return f"{held} The longest hold: {up_to(longest.end)}{duration(longest.length)}{so_far}."


def _why(incident: IncidentFacts) -> str:
    cause = incident.finding.cause
    verdict = incident.verdict
    was = "was" if incident.is_over else "is"
    if verdict is Verdict.ENDED:
        verdict_text = "Its verdict while it was open is not known."
    else:
        verdict_text = f"It {was} {verdict}: {verdict.sentence}"
    return f"{verdict_text} Cause: {printable(cause)}." if cause else f"{verdict_text} Its cause is not known."


def _impact(incident: IncidentFacts) -> str:
    finding = incident.finding
    if finding.records_held is None:
        held = "How many records were held is not known."
    else:
        size = "" if finding.bytes_held is None else f" ({count(finding.bytes_held, 'byte')})"
        verb = "was" if incident.is_over else "is"
        verb = verb if finding.records_held == 1 else {"was": "were", "is": "are"}[verb]
        others = "" if incident.other_records is None else f", {incident.other_records:,} of them of other producers"
        held = f"{count(finding.records_held, 'record')}{size} {verb} held{others}."
    return f"{held} {groups_text(incident)}"


def _is_over(incident: IncidentFacts) -> str:
    if incident.ended is not None:
        return f"It is over: {incident.ended.what} at {moment(incident.ended.time)}, by {incident.ended.source}."
    if incident.is_over:
        return "It is over."
    return f"It is not over: it still held the LSO at {moment(incident.finding.observed_at)}."


def _own(records: int) -> str:
    return f"the {records:,} records of the transaction" if records != 1 else "the only record of the transaction"


def _few(names: Sequence[str], one: str, many: str) -> str:
    shown = ", ".join(map(printable, names[:MAX_NAMES]))
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return f"{one if len(names) == 1 else f'{len(names):,} {many}:'} {shown}{more}"


def _numbers(incidents: Sequence[IncidentFacts]) -> str:
    named = [str(each.number) for each in incidents if each.number is not None][: MAX_NAMES * 4]
    if not named:
        return count(len(incidents), "transaction without a section", "transactions without a section")
    more = f" and {len(incidents) - len(named):,} more" if len(incidents) > len(named) else ""
    return f"{'number' if len(incidents) == 1 else 'numbers'} {', '.join(named)}{more}"


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
            moment(each.begun.time if each.begun else None, otherwise=NOT_KNOWN if each.holds else NOT_SEEN),
            moment(each.ended.time if each.ended else None, otherwise=NOT_SEEN),
            NOT_SEEN if each.length is None else f"{up_to(each.end)}{duration(each.length)}",
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
        grids=(_amounts(incidents), _group_grid(incidents), _fates(incidents)),
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


def _causes(incident: IncidentFacts) -> str:
    names = cause_names(incident.finding.cause)
    return ", ".join(names) or NOT_KNOWN


def _amounts(incidents: Sequence[IncidentFacts]) -> Grid:
    columns = ("incident", "records held", "of other producers", "bytes held", "offsets held", "log compaction")
    lines = tuple(
        (
            each.name,
            _number(each.finding.records_held),
            _number(each.other_records),
            _number(each.finding.bytes_held),
            _number(each.finding.offsets_held),
            {None: NOT_KNOWN, True: "waited", False: "did not wait"}[each.finding.compaction_held],
        )
        for each in incidents
        if each.holds
    )
    numbers = frozenset(columns[1:5])
    return Grid(title="Records and bytes", columns=columns, rows=lines, numbers=numbers)


def _number(value: int | None) -> str:
    return NOT_KNOWN if value is None else f"{value:,}"


def _group_grid(incidents: Sequence[IncidentFacts]) -> Grid:
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
    words = {None: NOT_KNOWN, True: "yes", False: "no"}
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
        return (incident.name, name, NOT_KNOWN, *times, f"no source has {missing}")
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
    known = f"Cause: {printable(cause)}." if cause else f"The cause is {NOT_KNOWN}."
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


ITEM_COLUMNS = ("what to do", "why", "owner", "due")
MAX_ITEMS = 10
SAVED_URL = f"{DOCS_URL}commands/#records-that-an-abort-discards"
BUG = "known bug"


def prevention_section(incidents: Sequence[IncidentFacts], tables: ReportTables) -> ReportSection:
    """Settings and clients that let transactions hang, as `exposure` has them."""
    title = "What prevents it"
    if "exposure" in tables.absent:
        lead = "The settings of the brokers were not read: kafka-txn exposure reads them, from a cluster or from files."
        return ReportSection(title=title, lead=lead)
    exposed, unknown, left = _relevant(incidents, tables.exposure)
    if not exposed and not unknown:
        lead = "No setting that was read lets transactions hang." if tables.exposure else "No setting could be read."
        return ReportSection(title=title, lead=lead)
    columns = ("setting, bug or client", "value", "broker", "exposed", "what it means")
    lines = tuple(
        (
            _subject(each),
            text(each.value),
            text(each.broker_id),
            "yes" if each.exposed else "not known",
            printable(each.means) + (f" {text(each.error)}" if each.error else ""),
        )
        for each in (*exposed, *unknown)
    )
    note = f"Left out: {count(left, 'client')} without a transaction in this report." if left else ""
    grid = Grid(title="Exposure", columns=columns, rows=lines, numbers=frozenset({"broker"}), note=note)
    return ReportSection(title=title, grids=(grid,))


def items_section(incidents: Sequence[IncidentFacts], tables: ReportTables) -> ReportSection:
    """What is to be done, with owner and date to fill in; of what is not over, the remedy first."""
    is_open = [each for each in incidents if not each.is_over and each.finding.producer_id is not None]
    items = dict.fromkeys(
        [*(item for each in incidents for item in _of_incident(each)), *_of_cluster(incidents, tables)]
    )
    rows = tuple((*item, "", "") for item in items)
    lead = "Derived from the facts above. Owners and dates are to be filled in, and items of your own added."
    return ReportSection(
        title="Action items",
        lead=lead,
        fields=tuple(Field(each.name, remedy(each.finding)) for each in is_open[:MAX_ITEMS]),
        grids=(Grid(title="To do", columns=ITEM_COLUMNS, rows=rows),),
    )


def _relevant(
    incidents: Sequence[IncidentFacts], exposure: Iterable[Exposure]
) -> tuple[list[Exposure], list[Exposure], int]:
    """What is exposed, what is not known, and how many other clients are exposed."""
    own = {name for each in incidents if (name := each.finding.transactional_id)}
    rows = sorted((each for each in exposure if each.exposed or is_unread(each)), key=lambda each: each.subject == BUG)
    shown = [each for each in rows if each.subject != "transactional_id" or each.transactional_id in own]
    left = sum(each.exposed is True for each in rows) - sum(each.exposed is True for each in shown)
    return [each for each in shown if each.exposed], [each for each in shown if each.exposed is None], left


def is_unread(exposed: Exposure) -> bool:
    """Whether a setting could not be read; another one whose `exposed` is null only describes the cluster."""
    return exposed.exposed is None and exposed.value is None


def _subject(exposed: Exposure) -> str:
    name = f'{exposed.name} of "{text(exposed.transactional_id)}"' if exposed.transactional_id else text(exposed.name)
    return f"{text(exposed.subject).replace('_', ' ')}: {name}"


def _of_incident(incident: IncidentFacts) -> Iterator[tuple[str, str]]:
    finding, name = incident.finding, incident.name
    if finding.producer_id is None:
        if finding.missing:
            yield f"Read what is missing: {printable('; '.join(finding.missing))}", f"{name} could not be diagnosed."
        return
    if not incident.is_over:
        yield (
            "Run the command of its remedy, above." if finding.command else printable(finding.remedy),
            f"{name} is not over.",
        )
    for step in incident.unfinished:
        yield (
            f"Find out whether {step.action} {text(step.target)} took effect.",
            f"The audit trail has its intent at {text(step.at)}, and no outcome.",
        )
    who = f'the owner of "{printable(finding.transactional_id)}"' if finding.transactional_id else "the owner"
    if incident.discarded:
        saved = incident.saved_to
        again = f" If they were not: {SAVED_URL} says what to do with {text(saved)}." if saved else ""
        yield (
            f"Ask {who} whether the discarded records were sent again.{again}",
            f"{name}: an ABORT marker discarded the transaction's records on this partition.",
        )
    if incident.is_lost is None:
        yield (
            "Find out what became of its records: kafka-txn scan --table log_transactions has its marker, and "
            "--table transaction_history what was decided.",
            f"{name}: the outcome of its records is not known.",
        )
    if finding.cause:
        yield (
            f"Let {who} follow {finding_page(incident.verdict, finding.cause)}",
            f"{name}: that page says what prevents this cause in the application.",
        )


def _of_cluster(incidents: Sequence[IncidentFacts], tables: ReportTables) -> Iterator[tuple[str, str]]:
    exposed = (each for each in _relevant(incidents, tables.exposure)[0] if each.subject != BUG)
    for each in itertools.islice(exposed, MAX_ITEMS):
        client = f'the client of "{text(each.transactional_id)}" ({each.name})' if each.transactional_id else ""
        yield f"Change {client or _subject(each)}.", printable(each.means)
    if incidents and not tables.recorded_findings:
        yield (
            f"Run kafka-txn record with --metrics-port, and set the alerts of {RUNBOOK_URL}",
            "No recording shows when this could have been noticed, or which groups waited for how long.",
        )
    elif incidents:
        yield f"Check that the alerts of {RUNBOOK_URL} reach a person.", "The recorder saw it; the report has no pager."
