"""What prevents an incident: exposed settings and clients; and the action items, with owner and date to fill in."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from toolkit.schema.verdict import DOCS_URL, RUNBOOK_URL
from toolkit.views.document import Field, Grid, commands_in
from toolkit.views.findings_text import finding_page, remedy
from toolkit.views.report.incident_facts import IncidentFacts
from toolkit.views.report.report_parts import ReportSection, ReportTables, text
from toolkit.views.row_formats import count, printable

if TYPE_CHECKING:
    from toolkit.schema.live import Exposure

ITEM_COLUMNS = ("what to do", "why", "owner", "due")
MAX_ITEMS = 10
SAVED_URL = f"{DOCS_URL}commands/#records-that-an-abort-discards"
BUG = "known bug"
OF_CLIENTS = {"transactional_id", "prefix"}


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
    shown = [each for each in rows if each.subject not in OF_CLIENTS or _is_own(each, own)]
    left = sum(each.exposed is True for each in rows) - sum(each.exposed is True for each in shown)
    return [each for each in shown if each.exposed], [each for each in shown if each.exposed is None], left


def is_unread(exposed: Exposure) -> bool:
    """Whether a setting could not be read; another one whose `exposed` is null only describes the cluster."""
    return exposed.exposed is None and exposed.value is None


def _is_own(exposed: Exposure, own: Collection[str]) -> bool:
    if exposed.subject == "prefix":
        return any(each.startswith(exposed.name) for each in own)
    return exposed.transactional_id is not None and exposed.transactional_id in own


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
        has_command = commands_in(remedy(finding))
        yield (
            "Run the command of its remedy, above." if has_command else printable(finding.remedy),
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
