"""The summary of a report: what happened, since when, who held what, what was done, is it over; in sentences."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.verdicts import COMMIT, OUTCOMES, UNKNOWN
from toolkit.schema.durations import duration
from toolkit.schema.recorded import OUTCOME
from toolkit.schema.verdict import Verdict
from toolkit.views.document import commands_in
from toolkit.views.findings_text import remedy, summary
from toolkit.views.report.finding_sections import up_to
from toolkit.views.report.incident_facts import IncidentFacts
from toolkit.views.report.report_parts import moment, partition_name, text
from toolkit.views.row_formats import count, printable

if TYPE_CHECKING:
    from toolkit.schema.live import Finding

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
    return "What is safe: the command of its remedy, below." if commands_in(remedy(incident.finding)) else (
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
