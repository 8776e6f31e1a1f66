"""The sections of a report: its summary, what its incidents held, when and why, and what prevents them.

Values are typed, and texts of others stay as they are: the renderers write and escape both.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from toolkit.analysis.cluster_events import events_around
from toolkit.analysis.diagnosis.decision import ABORT, CAUSES, COMMIT, OUTCOMES, UNDECIDED, UNKNOWN
from toolkit.schema.durations import duration
from toolkit.schema.recorded import INTENT, OUTCOME
from toolkit.schema.verdict import DOCS_URL, RUNBOOK_URL, Verdict
from toolkit.views.document import Columns, Count, Field, Fields, Grid, Section
from toolkit.views.finding_document import (
    cause_names,
    finding_page,
    finding_section,
    first_names,
    groups_text,
    of_one_replica,
    partition_name,
    remedy,
    summary,
    transaction_name,
    up_to,
)
from toolkit.views.report.incident_facts import (
    AUDIT,
    LEADER,
    LOG,
    NOT_KNOWN,
    OFFSETS,
    RECORDER,
    RECORDING,
    GroupStall,
    IncidentFacts,
    IncidentTime,
    ReportTables,
    held_from_source,
    moment,
    opened_source,
    recorded_verdicts,
)
from toolkit.views.row_formats import count

if TYPE_CHECKING:
    from toolkit.schema.live import Exposure, Finding
    from toolkit.schema.log import LogTransaction, LsoStep, PastTransaction
    from toolkit.schema.recorded import ActionStep

T = TypeVar("T")

MAX_FINDINGS = 20
"""Maximum number of findings with a section; the others are in one table."""
_grid = partial(Grid.of, is_precise=True)


def incident_section(incident: IncidentFacts) -> Section:
    """What is said of the transaction everywhere."""
    section = finding_section(incident.finding, end=incident.end)
    return replace(section, title=incident.name, badge=incident.finding.verdict)


MAX_NAMES = 5


def summary_sentences(
    findings: Sequence[Finding],
    incidents: Sequence[IncidentFacts],
    *,
    left: int = 0,
    no_coordinators: str | None = None,
    generated_at: dt.datetime,
) -> Iterator[str]:
    """The paragraphs under the heading.

    `incidents`: all, those with a section first. `left`: how many have none. `no_coordinators`: why no transaction can
    begin. `generated_at`: when the report was made.
    """
    holds = [each for each in incidents if each.holds]
    if len(holds) == 1:
        yield from _of_one(holds[0])
    elif holds:
        yield from _of_several(holds)
    behind = [each for each in incidents if each.is_transaction and not each.holds]
    if behind:
        yield f"Open behind it, and next to hold the LSO: {_numbers(behind)}."
    if left:
        yield f"{count(left, 'of them has', 'of them have')} no section: see the appendix."
    if len(findings) != 1 or not all(each.is_over for each in holds):
        yield f"In short: {summary(findings, scope=no_coordinators)}."
    times = [finding.observed_at for finding in findings]
    as_of = f", from data as of {moment(max(times))}" if times else ""
    yield f"Made at {moment(generated_at)}{as_of}. All times are in UTC."


def what_became(incident: IncidentFacts) -> str:
    """Whether the records of the transaction were lost, delivered or saved, as sentences."""
    own = "the transaction's records" if incident.own_records is None else _own(incident.own_records)
    if not incident.is_over:
        return f"The log still has {own}: nothing is discarded yet."
    if incident.marker == "COMMIT":
        is_published = incident.outcome in {ABORT, UNDECIDED}
        doubt = " But no commit had included them: consumers received what was not committed." if is_published else ""
        return f"The COMMIT marker delivered {own}; nothing is lost.{doubt}"
    if incident.marker is None:
        return "What became of its records is not known: no log was read that has the marker."
    if incident.outcome == UNKNOWN:
        lost = "It is not known whether a commit included them."
    elif incident.outcome == COMMIT:
        lost = "The coordinator had committed them: they are lost for read_committed consumers."
    else:
        lost = f"{OUTCOMES[incident.outcome]} So nothing that was committed is lost."
    saved = f" A copy was saved before: {incident.saved_to}." if incident.saved_to else ""
    return f"The ABORT marker discarded {own}. {lost}{saved}"


def what_was_done(incident: IncidentFacts) -> str:
    """Who ended it and when, as a sentence; or what is safe."""
    step = incident.marker_step
    if step is not None:
        after = "" if step.last_stable_offset_after is None else (
            f"; the LSO moved from {step.last_stable_offset_before} to {step.last_stable_offset_after}"
        )  # fmt: skip
        override = f", with the override {step.override}" if step.override else ""
        marker = f"{incident.marker} marker" if incident.marker else "marker"
        how = f"with kafka-txn {step.action}{override} at {moment(step.at)}"
        return f"{step.who} wrote the {marker} {how}{after}."
    done = [each for each in incident.actions if each.step == OUTCOME and each.error is None]
    if done:
        return f"{done[-1].who} ran kafka-txn {done[-1].action} at {moment(done[-1].at)}."
    if incident.unfinished:
        step = incident.unfinished[-1]
        return f"{step.who} started kafka-txn {step.action} at {moment(step.at)}; its result is not known."
    if incident.is_over and not incident.has_trail:
        return "What was done is not known: no audit trail was included."
    if incident.is_over:
        return "No action is in the audit trail: its client, its coordinator or another tool ended it."
    return "What is safe: the command of its remedy, below." if incident.finding.command else (
        f"What is safe: {incident.finding.remedy}")  # fmt: skip


def _groups(incident: IncidentFacts) -> str:
    """The consumer groups that waited, or that this is not known."""
    groups = incident.groups
    if groups is None:
        return f"Which consumer groups {'waited' if incident.is_over else 'wait'} is not known."
    if not groups:
        return f"No consumer group {'waited' if incident.is_over else 'waits'}."
    others = " Whether others waited is not known." if incident.finding.groups_held is None else ""
    return f"Consumer {groups_text(groups, 'waited' if incident.is_over else 'cannot move')}.{others}"


def _of_one(incident: IncidentFacts) -> Iterator[str]:
    finding = incident.finding
    since = moment(finding.held_from or finding.opened_at)
    end, length = incident.end, incident.length
    long = f" for {up_to(end)}{duration(length)}" if length is not None else ""
    where = transaction_name(finding)
    owner = f' of "{finding.transactional_id}"' if finding.transactional_id else ""
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
    groups = sorted({group for each in incidents for group in each.groups or ()})
    unread = [each for each in incidents if each.finding.groups_held is None]
    of_some = f" for {_numbers(unread)}" if len(unread) < len(incidents) else ""
    not_read = [f"Which consumer groups waited{of_some} is not known."] if unread else []
    yield " ".join([_held(incidents), *([f"Consumer {groups_text(groups, 'waited')}."] if groups else []), *not_read])
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
    return f"{verdict_text} Cause: {cause}." if cause else f"{verdict_text} Its cause is not known."


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
    return f"{held} {_groups(incident)}"


def _is_over(incident: IncidentFacts) -> str:
    if incident.ended is not None:
        return f"It is over: {incident.ended.what} at {moment(incident.ended.time)}, by {incident.ended.source}."
    if incident.is_over:
        return "It is over."
    return f"It is not over: it still held the LSO at {moment(incident.finding.observed_at)}."


def _own(records: int) -> str:
    return f"the {records:,} records of the transaction" if records != 1 else "the only record of the transaction"


def _few(names: Sequence[str], one: str, many: str) -> str:
    return f"{one if len(names) == 1 else f'{len(names):,} {many}:'} {first_names(names, MAX_NAMES)}"


def _numbers(incidents: Sequence[IncidentFacts]) -> str:
    named = [str(each.number) for each in incidents if each.number is not None][: MAX_NAMES * 4]
    if not named:
        return count(len(incidents), "transaction without a section", "transactions without a section")
    more = f" and {len(incidents) - len(named):,} more" if len(incidents) > len(named) else ""
    return f"{'number' if len(incidents) == 1 else 'numbers'} {', '.join(named)}{more}"


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


def overview_section(incidents: Sequence[IncidentFacts]) -> Section:
    """All incidents, one per line."""

    def since(each: IncidentFacts) -> object:
        return each.begun.time if each.begun else NOT_KNOWN if each.holds else None

    columns: Columns = {
        "incident": "name",
        "verdict while open": lambda each: NOT_KNOWN if each.verdict is Verdict.ENDED else each.verdict,
        "held from": since,
        "held to": lambda each: each.ended and each.ended.time,
        "for": lambda each: None if each.length is None else f"{up_to(each.end)}{duration(each.length)}",
        "cause": lambda each: ", ".join(cause_names(each.finding.cause)) or NOT_KNOWN,
        "is it over": "is_over",
    }
    return Section(title="The incidents", parts=(_grid("Overview", incidents, columns),))


def impact_section(incidents: Sequence[IncidentFacts]) -> Section:
    """Held records, bytes and groups, and what became of the transaction's records."""
    waited = {None: NOT_KNOWN, True: "waited", False: "did not wait"}
    amounts: Columns = {
        "incident": "name",
        "records held": lambda each: _known(each.finding.records_held),
        "of other producers": lambda each: _known(each.other_records),
        "bytes held": lambda each: _known(each.finding.bytes_held),
        "offsets held": lambda each: _known(each.finding.offsets_held),
        "log compaction": lambda each: waited[each.finding.compaction_held],
    }
    fates: Columns = {
        "incident": "name",
        "committed records lost": lambda each: NOT_KNOWN if each.is_lost is None else each.is_lost,
        "records of the transaction": lambda each: _known(each.own_records),
        "what became of them": what_became,
    }
    return Section(
        title="Impact",
        lead="Held: from the LSO up to the end of the log, the transaction's own records included.",
        parts=(
            _grid("Records and bytes", (each for each in incidents if each.holds), amounts),
            _group_grid(incidents),
            _grid("Records lost or saved", (each for each in incidents if each.is_transaction), fates),
        ),
    )


def _known(value: int | None) -> object:
    return NOT_KNOWN if value is None else Count(value)


def _group_grid(incidents: Sequence[IncidentFacts]) -> Grid:
    columns: Columns = {
        "incident": lambda pair: pair[0].name,
        "consumer group": lambda pair: pair[1].group,
        "stall": lambda pair: stall_text(pair[1]),
        "seen waiting from": lambda pair: pair[1].seen_from,
        "to": lambda pair: pair[1].seen_to,
        "moved on": lambda pair: pair[1].moved_at,
    }
    silent = [f"{each.name} ({left})" for each in incidents if each.holds and (left := _without_stall(each))]
    note = "Seen: by the recorder, or by this diagnosis. Moved on: when the group committed a later offset."
    unknown = f" Not known: {'; '.join(silent)}." if silent else ""
    return _grid(
        "Consumer groups",
        ((each, stall) for each in incidents for stall in each.stalls),
        columns,
        note=note + unknown,
        empty="No group is known to have waited." if silent else "No group waited.",
    )


def _without_stall(incident: IncidentFacts) -> str:
    """Groups whose stall is not known; empty without any."""
    if incident.finding.groups_held is None:
        return "" if incident.stalls else "groups were not queried"
    known = {stall.group for stall in incident.stalls}
    return ", ".join(group for group in incident.finding.groups_held if group not in known)


def stall_text(stall: GroupStall) -> str:
    """``12 s to 14 s``: at least between the observations, at most between the bounds."""
    least, most = duration(stall.at_least), stall.at_most
    if most is None:
        return f"at least {least}" if stall.at_least else "not known: it was seen waiting once"
    return least if duration(most) == least else f"{least} to {duration(most)}"


def times_section(incidents: Sequence[IncidentFacts]) -> Section:
    """How long it took to detect, to act, to mitigate, and until groups moved; each with the sources of both times."""
    columns = ("incident", "measure", "time", "from", "to", "sources")
    rows = tuple(line for each in incidents for line in _measures(each))
    return Section(
        title="Time to detect and to mitigate",
        lead="Clocks of different machines may differ. No pager or ticket is among the sources: add those times.",
        parts=(Grid(title="Times", columns=columns, rows=rows, is_precise=True),),
    )


def _measures(incident: IncidentFacts) -> Iterator[tuple[object, ...]]:
    begun = incident.begun
    if incident.seen != incident.detected:
        yield _measure(incident, "until a sample showed it", begun, incident.seen)
    yield _measure(incident, "to detect", begun, incident.detected)
    acted = incident.acted
    if acted is None and incident.has_trail:
        none = "no action" if incident.is_over else "no action yet"
        detected = incident.detected.time if incident.detected else None
        yield incident.name, TO_ACT, none, detected, None, "the audit trail has no action on it"
    else:
        yield _measure(incident, TO_ACT, incident.detected, acted)
    if begun is not None and not incident.is_over:
        seen = f"it was still open at {moment(incident.finding.observed_at)}"
        yield incident.name, TO_MITIGATE, "not over", begun.time, None, seen
    else:
        yield _measure(incident, TO_MITIGATE, begun, incident.ended, at_most=up_to(incident.end))
    moved = [stall.moved_at for stall in incident.stalls if stall.moved_at is not None]
    if moved and incident.ended:
        last = IncidentTime(max(moved), "the last group moved on", OFFSETS)
        yield _measure(incident, "until the last group moved on", incident.ended, last)


def _measure(
    incident: IncidentFacts, name: str, start: IncidentTime | None, stop: IncidentTime | None, *, at_most: str = ""
) -> tuple[object, ...]:
    if start is None or stop is None:
        missing = " and ".join(what for what, time in (("its start", start), ("its end", stop)) if time is None)
        times = (start.time if start else None), (stop.time if stop else None)
        return incident.name, name, NOT_KNOWN, *times, f"no source has {missing}"
    elapsed = stop.time - start.time
    length = (
        at_most + duration(elapsed) if elapsed >= dt.timedelta() else f"{duration(elapsed)} before it, by another clock"
    )
    sources = f"from: {start.source}; to: {stop.source}: {stop.what}"
    return incident.name, name, length, start.time, stop.time, sources


def proof_grid(incident: IncidentFacts) -> Grid:
    """The cause of an incident, and the observed values that prove it."""
    order = list(PROOF)
    entries = sorted(
        (entry for entry in incident.finding.evidence if entry.name in PROOF and entry.source != "recording"),
        key=lambda entry: order.index(str(entry.name)),
    )
    once = {(entry.name, entry.broker_id, entry.value): entry for entry in reversed(entries)}
    shown = list(reversed(once.values()))  # seen again, it proves no more
    cause = incident.finding.cause
    known = f"Cause: {cause}." if cause else f"The cause is {NOT_KNOWN}."
    meaning = " ".join(CAUSES[name] for name in cause_names(cause))
    left = f" {len(shown) - MAX_PROOF} more values are in the appendix." if len(shown) > MAX_PROOF else ""
    note = " ".join(f"{known} {meaning}{left}".split())
    columns: Columns = {"what it shows": lambda entry: PROOF[str(entry.name)], **_EVIDENCE, "value": "value"}
    return _grid(incident.name, shown[:MAX_PROOF], columns, note=note)


_EVIDENCE = {"source": "source", "broker": "broker_id", "time": "observed_at"}


def evidence_grid(finding: Finding) -> Grid:
    """Evidence of a finding: values, sources and times."""
    return _grid(_subject(finding), finding.evidence, {**_EVIDENCE, "name": "name", "value": "value"})


MAX_ITEMS = 10
SAVED_URL = f"{DOCS_URL}commands/#records-that-an-abort-discards"
BUG, RELEASE = "known bug", "kafka version"


def prevention_section(incidents: Sequence[IncidentFacts], tables: ReportTables) -> Section:
    """Settings and clients that let transactions hang, as `exposure` has them."""
    exposed, unknown, left = _relevant(incidents, tables.exposure)
    columns: Columns = {
        "setting, bug or client": _setting,
        "value": "value",
        "broker": "broker_id",
        "exposed": lambda each: NOT_KNOWN if each.exposed is None else each.exposed,
        "what it means": lambda each: f"{each.means} {each.error or ''}".rstrip(),
    }
    note = f"Left out: {count(left, 'client')} without a transaction in this report." if left else ""
    lead = ""
    if "exposure" in tables.absent:
        lead = "The settings of the brokers were not read: kafka-txn exposure reads them, from a cluster or from files."
    elif not exposed and not unknown:
        lead = "No setting that was read lets transactions hang." if tables.exposure else "No setting could be read."
        lead += (
            f" But {count(left, 'client is', 'clients are')} exposed: kafka-txn exposure lists them." if left else ""
        )
    parts = () if lead else (_grid("Exposure", (*exposed, *unknown), columns, note=note),)
    return Section(title="What prevents it", lead=lead, parts=parts)


def items_section(incidents: Sequence[IncidentFacts], tables: ReportTables) -> Section:
    """What is to be done, with owner and date to fill in; of what is not over, the remedy first."""
    is_open = [each for each in incidents if not each.is_over and each.is_transaction]
    items = dict.fromkeys(
        [*(item for each in incidents for item in _of_incident(each)), *_of_cluster(incidents, tables)]
    )
    remedies = tuple(Field(each.name, remedy(each.finding)) for each in is_open[:MAX_ITEMS])
    rows = tuple((*item, "", "") for item in items)
    to_do = Grid(title="To do", columns=("what to do", "why", "owner", "due"), rows=rows)
    lead = "Derived from the facts above. Owners and dates are to be filled in, and items of your own added."
    return Section(title="Action items", lead=lead, parts=(*((Fields(remedies),) if remedies else ()), to_do))


def _relevant(
    incidents: Sequence[IncidentFacts], exposure: Iterable[Exposure]
) -> tuple[list[Exposure], list[Exposure], int]:
    """What is exposed, what is not known, and how many other clients are exposed."""
    own = {name for each in incidents if (name := each.finding.transactional_id)}
    notable = (each for each in exposure if each.exposed or is_unread(each) or _may_have_bug(each))
    rows = sorted(notable, key=lambda each: each.subject == BUG)
    shown = [each for each in rows if each.subject != "transactional_id" or each.transactional_id in own]
    left = sum(each.exposed is True for each in rows) - sum(each.exposed is True for each in shown)
    return [each for each in shown if each.exposed], [each for each in shown if each.exposed is None], left


def is_unread(exposed: Exposure) -> bool:
    """Whether a setting could not be read; another one whose `exposed` is null only describes the cluster."""
    return exposed.exposed is None and exposed.value is None


def _may_have_bug(exposed: Exposure) -> bool:
    """Whether a broker may have a known bug: it depends on its patch release, or on a level that was not read."""
    return exposed.subject == BUG and exposed.name != RELEASE and exposed.exposed is None


def _setting(exposed: Exposure) -> str:
    name = f'{exposed.name} of "{exposed.transactional_id}"' if exposed.transactional_id else exposed.name
    return f"{exposed.subject.replace('_', ' ')}: {name}"


def _of_incident(incident: IncidentFacts) -> Iterator[tuple[str, str]]:
    finding, name = incident.finding, incident.name
    if not incident.is_transaction:
        if finding.missing:
            yield f"Read what is missing: {'; '.join(finding.missing)}", f"{name} could not be diagnosed."
        return
    if not incident.is_over:
        yield ("Run the command of its remedy, above." if finding.command else finding.remedy, f"{name} is not over.")
    for step in incident.unfinished:
        yield (
            f"Find out whether {step.action} {step.target} took effect.",
            f"The audit trail has its intent at {moment(step.at)}, and no outcome.",
        )
    who = f'the owner of "{finding.transactional_id}"' if finding.transactional_id else "the owner"
    if incident.discarded:
        saved = incident.saved_to
        again = f" If they were not: {SAVED_URL} says what to do with {saved}." if saved else ""
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
        client = f'the client of "{each.transactional_id}" ({each.name})' if each.transactional_id else ""
        yield f"Change {client or _setting(each)}.", each.means
    if incidents and not tables.recorded_findings:
        yield (
            f"Run kafka-txn record with --metrics-port, and set the alerts of {RUNBOOK_URL}",
            "No recording shows when this could have been noticed, or which groups waited for how long.",
        )
    elif incidents:
        yield f"Check that the alerts of {RUNBOOK_URL} reach a person.", "The recorder saw it; the report has no pager."


MAX_ROWS = 30
"""Maximum rows of transactions and histories on a page: those nearest to the incident."""

AROUND = dt.timedelta(minutes=10)  # events of the coordinator for so long before and after are part of the incident
MAX_EVENTS = 60
AFTER_MARKER = {"commit": " after the COMMIT marker", "abort": " after the ABORT marker"}


def action_grid(actions: Iterable[ActionStep]) -> Grid:
    """The audit trail, a line for each step."""
    columns: Columns = {
        "time": "at",
        "who": "who",
        "step": _step,
        "target": "target",
        "sent, or answered": lambda each: each.error or (each.request if each.step == INTENT else each.response),
        "LSO before": "last_stable_offset_before",
        "LSO after": "last_stable_offset_after",
    }
    return _grid("Audit trail", sorted(actions, key=lambda action: action.at), columns)


def _step(action: ActionStep) -> str:
    """``abort, intent``, and the overridden verdict."""
    override = f", override {action.override}" if action.override else ""
    return f"{action.action}, {action.step}{override}"


def log_transaction_grid(log_transactions: Iterable[LogTransaction], finding: Finding) -> Grid:
    """Transactions of the partition: that of the finding, and those nearest to it in the log."""
    here = [txn for txn in log_transactions if (txn.topic, txn.partition) == (finding.topic, finding.partition)]
    near = _nearest(here, key=_offset, to=finding.start_offset)
    columns = {"from": "first_offset", "to": "last_offset", "marker": "marker_offset", "outcome": "outcome"}
    columns |= {"producer": "producer_id", "epoch": "producer_epoch", "start": "start", "end": "end"}
    columns |= {"records": "records", "bytes": "bytes"}
    return _grid(f"Transactions on {partition_name(finding)}", near, columns, note=_note(len(near), len(here)))


def history_grid(transaction_history: Iterable[PastTransaction], finding: Finding) -> Grid:
    """History of the finding's transactional id and producer id around the incident."""
    here = [past for past in transaction_history if _is_owner(past, finding)]
    since = finding.opened_at or finding.held_from
    near = _nearest(here, key=_ended_at, to=since.timestamp() if since else None)
    columns: Columns = {
        "transactional id": "transactional_id",
        "what": lambda past: past.kind + (f", {past.ended}" if past.ended else ""),
        "producer": "producer_id",
        "epoch": "producer_epoch",
        "start": "start_time",
        "end": "end_time",
        "what shows it": "reason",
    }
    name = finding.transactional_id
    owner = f'"{name}"' if name else f"producer {finding.producer_id}"
    return _grid(f"The coordinator about {owner}", near, columns, note=_note(len(near), len(here)))


def _subject(finding: Finding) -> str:
    producer = "" if finding.producer_id is None else f", producer {finding.producer_id}"
    return f"{partition_name(finding)}{producer}"


def _is_owner(past: PastTransaction, finding: Finding) -> bool:
    """Whether a history is of the same transactional id, or of the same producer id."""
    return (finding.transactional_id is not None and past.transactional_id == finding.transactional_id) or (
        finding.producer_id is not None and past.producer_id == finding.producer_id
    )


def _offset(txn: LogTransaction) -> float | None:
    return txn.marker_offset if txn.first_offset is None else txn.first_offset


def _ended_at(past: PastTransaction) -> float | None:
    time = past.end_time or past.decided_at or past.start_time
    return None if time is None else time.timestamp()


def _nearest(records: Sequence[T], *, key: Callable[[T], float | None], to: float | None) -> Sequence[T]:
    """At most `MAX_ROWS` of ordered records: those around a value, or the last ones if it is unknown."""
    values = map(key, records)
    before = len(records) if to is None else sum(value is not None and value < to for value in values)
    first = max(0, min(before - MAX_ROWS // 2, len(records) - MAX_ROWS))
    return records[first : first + MAX_ROWS]


def _note(shown: int, of: int) -> str:
    return "" if of <= shown else f"{shown} of {of:,} rows: those nearest to the incident."


def event_grid(incident: IncidentFacts, tables: ReportTables) -> Grid:
    """Events on a finding's partition, in order."""
    finding = incident.finding
    entries = [
        *_of_facts(incident, tables),
        *_of_steps(finding, tables.lso_timeline),
        *_of_transaction_history(finding, tables.transaction_history),
        *_of_cluster_events(finding, tables),
    ]
    events = sorted(dict.fromkeys(entries), key=lambda event: event.time)
    note = f"The first {MAX_EVENTS} of {len(events)}." if len(events) > MAX_EVENTS else ""
    columns = {"time": "time", "what happened": "what", "source": "source"}
    return _grid(_subject(finding), events[:MAX_EVENTS], columns, note=note)


def _of_facts(incident: IncidentFacts, tables: ReportTables) -> Iterator[IncidentTime]:
    """The transaction, the recorder's verdicts, the groups that waited, and what was done."""
    finding, end = incident.finding, incident.end
    if finding.opened_at:
        offset = "" if finding.start_offset is None else f" at offset {finding.start_offset}"
        what = f"producer {finding.producer_id} opened the transaction{offset}"
        yield IncidentTime(finding.opened_at, what, opened_source(finding))
    if finding.held_from and finding.held_from != finding.opened_at:
        source = held_from_source(finding, tables.sampled_at)
        what = "is first seen to hold" if source == RECORDING else "began to hold"
        source = RECORDER if source == RECORDING else source
        yield IncidentTime(finding.held_from, f"it {what} the LSO of {partition_name(finding)}", source)
    if finding.expires_at:
        yield IncidentTime(finding.expires_at, "its own timeout is over", "the coordinator")
    if end is not None and end.marker:
        yield IncidentTime(end.time, end.marker, LEADER)
    elif end is not None:
        since = f"; it was last seen open at {moment(end.last_seen)}" if end.last_seen else ""
        yield IncidentTime(end.time, f"the first sample without it{since}", RECORDER)
    else:
        what = f"observed and diagnosed as {finding.verdict}"
        yield IncidentTime(finding.observed_at, what, "this report's source")
    for time, verdict in recorded_verdicts(finding):
        yield IncidentTime(time, f"diagnosed as {verdict}", RECORDER)
    for stall in incident.stalls:
        name = f'group "{stall.group}"'
        yield IncidentTime(stall.seen_from, f"{name} is first seen waiting", stall.source)
        if stall.moved_at is not None:
            what = f"{name} committed an offset behind the transaction's first one"
            yield IncidentTime(stall.moved_at, what, OFFSETS)
    for action in incident.actions:
        failed = f": {action.error}" if action.error else ""
        yield IncidentTime(action.at, f"{action.target}: {_step(action)}, by {action.who}{failed}", AUDIT)


def _of_steps(finding: Finding, steps: Iterable[LsoStep]) -> Iterator[IncidentTime]:
    """Where the LSO stopped for it, and its next position."""
    was_held, is_unread = False, False
    of_partition = [each for each in steps if (each.topic, each.partition) == (finding.topic, finding.partition)]
    for step in of_one_replica(of_partition, [finding]):
        is_unread |= bool(step.error)  # from here on, what is open is not known
        if step.error:
            continue
        holder = step.holder_producer_id, step.holder_first_offset
        is_held = holder == (finding.producer_id, finding.start_offset)
        if is_held and not was_held and step.at:
            yield IncidentTime(step.at, f"the LSO stops at {step.last_stable_offset}", LOG)
        elif was_held and not is_held and step.at and not is_unread:
            after = AFTER_MARKER.get(step.event or "", "")
            yield IncidentTime(
                step.at, f"the LSO moves on to {step.last_stable_offset}{after}", LEADER if after else LOG
            )
        was_held = is_held


def _of_transaction_history(finding: Finding, transaction_history: Iterable[PastTransaction]) -> Iterator[IncidentTime]:
    for past in transaction_history:
        for time, what in _moments(past) if _is_owner(past, finding) else ():
            if (near := _near(time, finding)) is not None:
                yield IncidentTime(near, f'"{past.transactional_id}": {what}', "the coordinator's log")


def _moments(past: PastTransaction) -> Iterator[tuple[dt.datetime | None, str]]:
    if past.kind != "transaction":
        yield past.end_time, past.reason
        return
    yield past.start_time, f"a transaction of epoch {past.producer_epoch} began"
    yield past.decided_at, f"decided: {past.ended}"
    yield past.end_time, f"its markers are written ({past.state})"


def _near(time: dt.datetime | None, finding: Finding) -> dt.datetime | None:
    """A time near the incident, else null."""
    opened = finding.opened_at or finding.held_from or finding.observed_at
    until = finding.held_to or finding.observed_at
    return time if time is not None and opened - AROUND <= time <= until + AROUND else None


def _of_cluster_events(finding: Finding, tables: ReportTables) -> Iterator[IncidentTime]:
    around = events_around(
        tables.cluster_events,
        (finding.topic, finding.partition),
        transactional_ids={finding.transactional_id},
        txn_state_partitions={p.txn_state_partition for p in tables.transaction_history if _is_owner(p, finding)},
    )
    for event in around:
        if (time := _near(event.timestamp, finding)) is not None:
            name = "" if event.partition is None else f"{event.topic}-{event.partition}: "
            yield IncidentTime(time, f"{name}{event.text}", f"{event.source} of node {event.broker_id}")
