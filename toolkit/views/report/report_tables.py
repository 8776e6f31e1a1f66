"""Tables of a report: actions, evidence, the timeline of an incident, rows of log and coordinators around it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from toolkit.analysis.cluster_events import events_around
from toolkit.schema.recorded import INTENT
from toolkit.views.document import Grid
from toolkit.views.report.incident_facts import (
    AUDIT,
    LEADER,
    LOG,
    OFFSETS,
    RECORDER,
    RECORDING,
    ReportTables,
    group_stalls,
    held_from_source,
    hold_end,
    is_about,
    opened_source,
    partition_name,
    recorded_verdicts,
    text,
)

if TYPE_CHECKING:
    from toolkit.schema.live import Finding
    from toolkit.schema.log import LogTransaction, LsoStep, PastTransaction
    from toolkit.schema.recorded import ActionStep

MAX_ROWS = 30
"""Maximum rows of transactions and histories on a page: those nearest to the incident."""

AROUND = dt.timedelta(minutes=10)  # events of the coordinator for so long before and after are part of the incident
MAX_EVENTS = 60
AFTER_MARKER = {"commit": " after the COMMIT marker", "abort": " after the ABORT marker"}

T = TypeVar("T")


def action_grid(actions: Iterable[ActionStep]) -> Grid:
    """The audit trail, a line for each step."""
    columns = ("time (UTC)", "who", "step", "target", "sent, or answered", "LSO before", "LSO after")
    lines = tuple(
        (
            text(action.at),
            text(action.who),
            _step(action),
            text(action.target),
            text(action.error or (action.request if action.step == INTENT else action.response)),
            text(action.last_stable_offset_before),
            text(action.last_stable_offset_after),
        )
        for action in sorted(actions, key=lambda action: action.at)
    )
    return Grid(title="Audit trail", columns=columns, rows=lines, numbers=frozenset({"LSO before", "LSO after"}))


def _step(action: ActionStep) -> str:
    """``abort, intent``, and the overridden verdict."""
    override = f", override {text(action.override)}" if action.override else ""
    return f"{text(action.action)}, {text(action.step)}{override}"


def evidence_grid(finding: Finding) -> Grid:
    """Evidence of a finding: values, sources and times."""
    columns = ("source", "broker", "time (UTC)", "name", "value")
    lines = tuple(
        (text(entry.source), text(entry.broker_id), text(entry.observed_at), text(entry.name), text(entry.value))
        for entry in finding.evidence
    )
    return Grid(title=_subject(finding), columns=columns, rows=lines, numbers=frozenset({"broker"}))


def log_transaction_grid(log_transactions: Iterable[LogTransaction], finding: Finding) -> Grid:
    """Transactions of the partition: that of the finding, and those nearest to it in the log."""
    here = [txn for txn in log_transactions if (txn.topic, txn.partition) == (finding.topic, finding.partition)]
    near = _nearest(here, key=_offset, to=finding.start_offset)
    columns = ("from", "to", "marker", "outcome", "producer", "epoch", "start (UTC)", "end (UTC)", "records", "bytes")
    lines = tuple(
        (
            *(text(txn.first_offset), text(txn.last_offset), text(txn.marker_offset), text(txn.outcome)),
            *(text(txn.producer_id), text(txn.producer_epoch), text(txn.start), text(txn.end)),
            *(text(txn.records), text(txn.bytes)),
        )
        for txn in near
    )
    return Grid(
        title=f"Transactions on {partition_name(finding)}",
        columns=columns,
        rows=lines,
        numbers=frozenset({"from", "to", "marker", "producer", "epoch", "records", "bytes"}),
        note=_note(len(lines), len(here)),
    )


def history_grid(transaction_history: Iterable[PastTransaction], finding: Finding) -> Grid:
    """History of the finding's transactional id and producer id around the incident."""
    here = [past for past in transaction_history if _is_owner(past, finding)]
    since = finding.opened_at or finding.held_from
    near = _nearest(here, key=_ended_at, to=since.timestamp() if since else None)
    lines = tuple(
        (
            text(past.transactional_id),
            text(past.kind) + (f", {text(past.ended)}" if past.ended else ""),
            f"{text(past.producer_id)} epoch {text(past.producer_epoch)}",
            text(past.start_time),
            text(past.end_time),
            text(past.reason),
        )
        for past in near
    )
    columns = ("transactional id", "what", "producer", "start (UTC)", "end (UTC)", "what shows it")
    name = finding.transactional_id
    owner = f'"{text(name)}"' if name else f"producer {text(finding.producer_id)}"
    return Grid(title=f"The coordinator about {owner}", columns=columns, rows=lines, note=_note(len(lines), len(here)))


def _subject(finding: Finding) -> str:
    return f"{partition_name(finding)}, producer {text(finding.producer_id)}"


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
    if to is None or len(records) <= MAX_ROWS:
        return records[-MAX_ROWS:]
    middle = sum(1 for record in records if (value := key(record)) is not None and value < to)
    first = max(0, min(middle - MAX_ROWS // 2, len(records) - MAX_ROWS))
    return records[first : first + MAX_ROWS]


def _note(shown: int, of: int) -> str:
    return "" if of <= shown else f"{shown} of {of:,} rows: those nearest to the incident."


class _TimelineEntry(NamedTuple):
    time: dt.datetime
    what: str
    source: str


def event_grid(finding: Finding, tables: ReportTables) -> Grid:
    """Events on a finding's partition, in order."""
    entries = [
        *_of_finding(finding, tables),
        *_of_steps(finding, tables.lso_timeline),
        *_of_recording(finding, tables),
        *_of_transaction_history(finding, tables.transaction_history),
        *_of_cluster(finding, tables),
        *_of_actions(finding, tables.actions),
    ]
    events = sorted(dict.fromkeys(entries), key=lambda event: event.time)
    return Grid(
        title=_subject(finding),
        columns=("time (UTC)", "what happened", "source"),
        rows=tuple((text(event.time), event.what, event.source) for event in events[:MAX_EVENTS]),
        note=f"The first {MAX_EVENTS} of {len(events)}." if len(events) > MAX_EVENTS else "",
    )


def _of_finding(finding: Finding, tables: ReportTables) -> Iterator[_TimelineEntry]:
    if finding.opened_at:
        clock = opened_source(finding)
        offset = "" if finding.start_offset is None else f" at offset {finding.start_offset}"
        what = f"producer {text(finding.producer_id)} opened the transaction{offset}"
        yield _TimelineEntry(finding.opened_at, what, clock)
    if finding.held_from and finding.held_from != finding.opened_at:
        source = held_from_source(finding, tables.sampled_at)
        what = "is first seen to hold" if source == RECORDING else "began to hold"
        source = RECORDER if source == RECORDING else source
        yield _TimelineEntry(finding.held_from, f"it {what} the LSO of {partition_name(finding)}", source)
    if finding.expires_at:
        yield _TimelineEntry(finding.expires_at, "its own timeout is over", "the coordinator")
    end = hold_end(finding, tables.log_transactions)
    if end is not None and end.marker:
        yield _TimelineEntry(end.time, end.marker, LEADER)
    elif end is not None:
        since = f"; it was last seen open at {text(end.last_seen)}" if end.last_seen else ""
        yield _TimelineEntry(end.time, f"the first sample without it{since}", RECORDER)
    else:
        what = f"observed and diagnosed as {finding.verdict}"
        yield _TimelineEntry(finding.observed_at, what, "this report's source")


def _of_recording(finding: Finding, tables: ReportTables) -> Iterator[_TimelineEntry]:
    """The recorder's verdicts, and the groups that waited."""
    for time, verdict in recorded_verdicts(finding):
        yield _TimelineEntry(time, f"diagnosed as {verdict}", RECORDER)
    for stall in group_stalls(finding, tables):
        name = f'group "{text(stall.group)}"'
        yield _TimelineEntry(stall.seen_from, f"{name} is first seen waiting", stall.source)
        if stall.moved_at is not None:
            what = f"{name} committed an offset behind the transaction's first one"
            yield _TimelineEntry(stall.moved_at, what, OFFSETS)


def _of_steps(finding: Finding, steps: Iterable[LsoStep]) -> Iterator[_TimelineEntry]:
    """Where the LSO stopped for it, and its next position."""
    was_held = False
    for step in steps:
        if (step.topic, step.partition) != (finding.topic, finding.partition):
            continue
        holder = step.holder_producer_id, step.holder_first_offset
        is_held = holder == (finding.producer_id, finding.start_offset)
        if is_held and not was_held and step.at:
            yield _TimelineEntry(step.at, f"the LSO stops at {step.last_stable_offset}", LOG)
        elif was_held and not is_held and step.at:
            after = AFTER_MARKER.get(step.event or "", "")
            yield _TimelineEntry(
                step.at, f"the LSO moves on to {step.last_stable_offset}{after}", LEADER if after else LOG
            )
        was_held = is_held


def _of_transaction_history(
    finding: Finding, transaction_history: Iterable[PastTransaction]
) -> Iterator[_TimelineEntry]:
    for past in transaction_history:
        for time, what in _moments(past) if _is_owner(past, finding) else ():
            if (near := _near(time, finding)) is not None:
                yield _TimelineEntry(near, f'"{text(past.transactional_id)}": {what}', "the coordinator's log")


def _moments(past: PastTransaction) -> Iterator[tuple[dt.datetime | None, str]]:
    if past.kind != "transaction":
        yield past.end_time, text(past.reason)
        return
    yield past.start_time, f"a transaction of epoch {text(past.producer_epoch)} began"
    yield past.decided_at, f"decided: {text(past.ended)}"
    yield past.end_time, f"its markers are written ({text(past.state)})"


def _near(time: dt.datetime | None, finding: Finding) -> dt.datetime | None:
    """A time near the incident, else null."""
    opened = finding.opened_at or finding.held_from or finding.observed_at
    until = finding.held_to or finding.observed_at
    return time if time is not None and opened - AROUND <= time <= until + AROUND else None


def _of_cluster(finding: Finding, tables: ReportTables) -> Iterator[_TimelineEntry]:
    around = events_around(
        tables.cluster_events,
        (finding.topic, finding.partition),
        transactional_ids={finding.transactional_id},
        txn_state_partitions={p.txn_state_partition for p in tables.transaction_history if _is_owner(p, finding)},
    )
    for event in around:
        if (time := _near(event.timestamp, finding)) is not None:
            name = "" if event.partition is None else f"{text(event.topic)}-{event.partition}: "
            yield _TimelineEntry(time, name + text(event.text), f"{text(event.source)} of node {text(event.broker_id)}")


def _of_actions(finding: Finding, actions: Iterable[ActionStep]) -> Iterator[_TimelineEntry]:
    for action in actions:
        if is_about(action, finding):
            failed = f": {text(action.error)}" if action.error else ""
            what = f"{text(action.target)}: {_step(action)}, by {text(action.who)}{failed}"
            yield _TimelineEntry(action.at, what, AUDIT)
