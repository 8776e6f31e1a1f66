"""The facts of an incident: who held an LSO, who saw it and acted when, what was discarded, how long groups waited.

They are derived from `ReportTables`, once, and shown in the sections of the report.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from toolkit.analysis.diagnosis.decision import ABORT, COMMIT, UNDECIDED, UNKNOWN
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.findings_over_time import VERDICT_BEFORE, verdict_before
from toolkit.schema.recorded import OUTCOME, unfinished
from toolkit.schema.verdict import Verdict
from toolkit.views.finding_document import HoldEnd, hold_end, transaction_key, transaction_name

if TYPE_CHECKING:
    from toolkit.schema.live import Exposure, Finding, Partition
    from toolkit.schema.log import ClusterEvent, LogTransaction, LsoStep, OffsetsLogRecord, PastTransaction
    from toolkit.schema.recorded import ActionStep


NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTables:
    """The tables beside the findings; of a recording with the times of its samples."""

    log_transactions: Sequence[LogTransaction] = ()
    lso_timeline: Sequence[LsoStep] = ()
    transaction_history: Sequence[PastTransaction] = ()
    partitions: Sequence[Partition] = ()
    sampled_at: Sequence[dt.datetime | None] = ()  # of each of these partitions, when its sample was due
    recorded_findings: Sequence[tuple[dt.datetime, Finding]] = ()  # each with the time of its sample
    offsets_log: Sequence[OffsetsLogRecord] = ()
    exposure: Sequence[Exposure] = ()
    cluster_events: Sequence[ClusterEvent] = ()
    actions: Sequence[ActionStep] = ()
    absent: Collection[str] = ()  # names of tables that were not given
    problems: Sequence[str] = ()  # what could not be read

    def partition_samples(self, finding: Finding) -> Iterator[tuple[dt.datetime, Partition]]:
        """The samples of a finding's partition that could be read, with the time of each."""
        for sampled_at, sample in zip(self.sampled_at, self.partitions, strict=False):
            is_own = (sample.topic, sample.partition) == (finding.topic, finding.partition)
            if is_own and sampled_at is not None and sample.error is None:
                yield sampled_at, sample


def moment(time: dt.datetime | None) -> str:
    """A time to the second, or "not known"."""
    return NOT_KNOWN if time is None else at(time)


Figure = Any
"""A plotly Figure, or a function that returns one for ``"light"`` and for ``"dark"``; plotly is not imported here."""


LOG, RECORDING = "the log", "the recording"

_OF_LOG = {"held_since", "first_batch"}


def held_from_source(finding: Finding, sampled_at: Collection[dt.datetime | None] = ()) -> str:
    """By what the start of a hold is known: `LOG`, or `RECORDING` if it is the first sample that shows the hold."""
    if finding.held_from is not None and finding.held_from in sampled_at:
        return RECORDING
    evidence = finding.evidence or ()
    is_recorded = any(entry.source == "recording" for entry in evidence)
    return RECORDING if is_recorded and _OF_LOG.isdisjoint(entry.name for entry in evidence) else LOG


AUDIT = "the audit trail (the clock of the machine that acted)"
DIAGNOSIS = "this diagnosis"
OFFSETS = "__consumer_offsets"
LEADER = f"{LOG} (the leader's clock)"
RECORDER = f"{RECORDING} (the recorder's clock)"
MARKERS = ("COMMIT", "ABORT")
WRITES_MARKER = {"abort", "complete"}
BEFORE = dt.timedelta(minutes=10)  # an action on an id so long before is about an earlier transaction
_WORD = re.compile(r"[a-z_]+")
_DECIDED = re.compile(r": (?:Prepare|Complete)(Commit|Abort)\b")


class IncidentTime(NamedTuple):
    """When something happened, and by which source."""

    time: dt.datetime
    what: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStall:
    """How long a consumer group waited."""

    group: str
    # seen_from, seen_to: first and last observation of the group at the held LSO
    seen_from: dt.datetime
    seen_to: dt.datetime
    # not_before, not_after: bounds: the hold began, or a sample was without the group; the group committed a later
    # offset, or a sample was without it. Null if not known, or if it still waits
    not_before: dt.datetime | None
    not_after: dt.datetime | None
    # when the group committed an offset behind the transaction's first one; null if not known
    moved_at: dt.datetime | None
    source: str  # where it was seen

    @property
    def at_least(self) -> dt.timedelta:
        """Between the first and the last observation."""
        return self.seen_to - self.seen_from

    @property
    def at_most(self) -> dt.timedelta | None:
        """Between the bounds; null without both."""
        return None if self.not_before is None or self.not_after is None else self.not_after - self.not_before


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentFacts:
    """What is known of one transaction that holds or held an LSO, or of a partition that could not be read."""

    number: int | None
    finding: Finding
    end: HoldEnd | None
    transaction: LogTransaction | None
    actions: tuple[ActionStep, ...]
    has_trail: bool
    stalls: tuple[GroupStall, ...]
    begun: IncidentTime | None
    seen: IncidentTime | None
    detected: IncidentTime | None
    acted: IncidentTime | None
    ended: IncidentTime | None

    @property
    def name(self) -> str:
        """``orders-0 at offset 15``, with its number if there are several incidents."""
        number = "" if self.number is None else f"{self.number}: "
        return f"{number}{transaction_name(self.finding)}"

    @property
    def is_transaction(self) -> bool:
        """Whether it is about a transaction, and not about a partition that could not be read."""
        return self.finding.producer_id is not None

    @property
    def is_over(self) -> bool:
        """Whether its end is known."""
        return self.finding.verdict is Verdict.ENDED

    @property
    def verdict(self) -> Verdict:
        """The verdict; of an ended one that while it was open, by a recorder or by the check before its marker."""
        checked = self.marker_step.verdict if self.is_over and self.marker_step else None
        return verdict_before(self.finding) or (Verdict(checked) if checked else self.finding.verdict)

    @property
    def holds(self) -> bool:
        """Whether a transaction holds or held the LSO, which a partition that could not be read does not show."""
        return self.finding.producer_id is not None and (self.is_over or self.finding.queue_position == 1)

    @property
    def length(self) -> dt.timedelta | None:
        """How long it held the LSO, so far or by the first sample without it."""
        if self.begun is None or not self.holds:
            return None
        if self.finding.held_ms is not None and not (self.end and self.end.marker):
            return dt.timedelta(milliseconds=self.finding.held_ms)
        until = self.ended.time if self.ended else self.finding.brokers_time
        return None if until is None else max(until - self.begun.time, dt.timedelta())

    @property
    def groups(self) -> Sequence[str] | None:
        """The groups that wait; once it is over, those that waited at any time. Null if no source shows any."""
        held = self.finding.groups_held
        if not (self.is_over and self.stalls):
            return held
        return sorted({*(held or ()), *(stall.group for stall in self.stalls)})

    @property
    def own_records(self) -> int | None:
        """Records of the transaction itself on the partition; null if the log was not read, or not from its start."""
        txn = self.transaction
        return None if txn is None or txn.truncated else txn.records

    @property
    def other_records(self) -> int | None:
        """Held records of other producers."""
        held, own = self.finding.records_held, self.own_records
        return None if held is None or own is None or own > held else held - own

    @property
    def marker(self) -> str | None:
        """COMMIT or ABORT; null if it is open, or no log was read that has the marker."""
        if self.transaction is not None and self.transaction.marker in MARKERS:
            return self.transaction.marker
        values = [entry.value or "" for entry in self.finding.evidence if entry.name == "marker"]
        return next((kind for value in values for kind in MARKERS if kind in value), None)

    @property
    def marker_step(self) -> ActionStep | None:
        """The step of the audit trail that wrote the marker; null if none did."""
        done = (step for step in self.actions if step.step == OUTCOME and step.error is None)
        return next((step for step in done if step.action in WRITES_MARKER), None)

    @property
    def unfinished(self) -> list[ActionStep]:
        """Actions without an outcome: they may have happened."""
        return unfinished(self.actions)

    @property
    def outcome(self) -> str:
        """What was decided about the records before a marker ended it: one of `OUTCOMES`."""
        step = self.marker_step
        if step is not None and step.outcome:
            return step.outcome
        if self.finding.outcome:
            return self.finding.outcome
        values = {entry.name: entry.value or "" for entry in self.finding.evidence}
        if decided := _DECIDED.search(values.get("records", "")):  # of its coordinator, for a transaction that fits
            return decided[1].lower()
        match = _WORD.match(values.get("outcome", ""))  # as it was when it was last seen open
        known = match[0] if match else UNKNOWN
        if known != UNDECIDED or self.verdict is Verdict.HANGING:
            return known
        # It had an owner, or may have had: its coordinator may have decided it since, before an abort marker or after.
        done = (step for step in self.actions if step.step == OUTCOME and step.error is None)
        if any(step.action == "fence" for step in done):
            return ABORT
        txn = self.transaction
        if txn is None or txn.marker_epoch is None or txn.producer_epoch is None:
            return UNKNOWN
        return ABORT if txn.marker_epoch > txn.producer_epoch else UNKNOWN  # by hand it has the epoch of the data

    @property
    def saved_to(self) -> str | None:
        """File of the records that the marker discarded; null if none was written."""
        return None if self.marker_step is None else self.marker_step.records_file

    @property
    def is_lost(self) -> bool | None:
        """Whether committed records were discarded on the partition; null if not known."""
        if not self.is_over or self.marker == "COMMIT":
            return False
        if self.marker is None or self.outcome == UNKNOWN:
            return None
        return self.outcome == COMMIT

    @property
    def discarded(self) -> bool:
        """Whether an ABORT marker ended it."""
        return self.is_over and self.marker == ABORT.upper()


def incident_facts(findings: Sequence[Finding], tables: ReportTables, *, numbered: int) -> list[IncidentFacts]:
    """The facts of findings; the first ones have a section, and a number if they are several.

    `findings`: the findings. `tables`: the tables beside them. `numbered`: how many have a section.
    """
    return [
        _facts(finding, tables, number if number <= numbered > 1 else None)
        for number, finding in enumerate(findings, start=1)
    ]


def is_about(action: ActionStep, finding: Finding) -> bool:
    """Whether a step of the audit trail is about a finding's transaction or its transactional id."""
    if action.topic is not None:
        same = (action.topic, action.partition) == (finding.topic, finding.partition)
        return same and action.start_offset in (None, finding.start_offset)
    since = finding.held_from or finding.opened_at
    is_recent = since is None or action.at >= since - BEFORE
    return is_recent and action.transactional_id is not None and action.transactional_id == finding.transactional_id


def opened_source(finding: Finding) -> str:
    """By what it is known when a transaction opened, and whose clock that is."""
    if finding.opened_at_clock == "coordinator":
        return "the coordinator (its clock)"
    clock = {"producer": "the producer's clock", "broker": "the leader's clock"}.get(finding.opened_at_clock or "")
    return f"{LOG} ({clock})" if clock else LOG


def recorded_verdicts(finding: Finding) -> list[tuple[dt.datetime, str]]:
    """Each verdict that a recorder reached, with the first sample that has it."""
    return sorted(
        (entry.observed_at, match[0])
        for entry in finding.evidence
        if entry.source == "recording" and entry.name == "verdict" and entry.observed_at is not None
        if (match := _WORD.match(entry.value or ""))
    )


def group_stalls(finding: Finding, tables: ReportTables) -> list[GroupStall]:
    """How long each group waited, as far as samples, this diagnosis and the groups' commits show it."""
    key = finding.key
    own = [(sampled_at, each) for sampled_at, each in tables.recorded_findings if each.key == key]
    groups = {*(finding.groups_held or ()), *(group for _, each in own for group in each.groups_held or ())}
    stalls = []
    for group in sorted(groups):
        samples = sorted((due, each.observed_at) for due, each in own if group in (each.groups_held or ()))
        if samples or finding.verdict is not Verdict.ENDED:
            stalls.append(_stall(finding, group, samples, tables))
    return stalls


def _facts(finding: Finding, tables: ReportTables, number: int | None) -> IncidentFacts:
    actions = tuple(sorted((step for step in tables.actions if is_about(step, finding)), key=lambda step: step.at))
    end = hold_end(finding, tables.log_transactions)
    holds = finding.verdict is Verdict.ENDED or finding.queue_position == 1
    since = finding.held_from or (finding.opened_at if holds else None)
    source = opened_source(finding) if finding.held_from in (None, finding.opened_at) else LEADER
    if held_from_source(finding, tables.sampled_at) == RECORDING:
        source = f"{RECORDER}: the first sample that shows it"
    ended = None if end is None else IncidentTime(end.time, "a sample no longer has it", RECORDER)
    if end is not None and end.marker:
        ended = IncidentTime(end.time, end.marker, LEADER)
    acted = actions[0] if actions else None
    seen = [*_seen(finding)]
    act = IncidentTime(acted.at, f"{acted.action}, {acted.step}, by {acted.who}", AUDIT) if acted else None
    return IncidentFacts(
        number=number,
        finding=finding,
        end=end,
        transaction=next((txn for txn in tables.log_transactions if transaction_key(txn) == finding.key), None),
        actions=actions,
        has_trail="actions" not in tables.absent,
        stalls=tuple(group_stalls(finding, tables)),
        begun=None if since is None else IncidentTime(since, "the hold began", source),
        seen=seen[0] if seen else None,
        detected=_detected(seen, act, finding),
        acted=act,
        ended=ended,
    )


def _seen(finding: Finding) -> Iterator[IncidentTime]:
    """The verdicts that a recorder reached, each with its first time; else that of this diagnosis."""
    recorded = recorded_verdicts(finding)
    for time, verdict in recorded:
        yield IncidentTime(time, verdict, RECORDER)
    if not recorded and verdict_before(finding) is not None:
        seen = next((each.observed_at for each in finding.evidence if each.name == VERDICT_BEFORE), None)
        if seen is not None:
            yield IncidentTime(seen, str(verdict_before(finding)), f"{RECORDER}: last seen open")
    elif not recorded and finding.verdict is not Verdict.ENDED:
        yield IncidentTime(finding.observed_at, finding.verdict, DIAGNOSIS)


def _detected(seen: Sequence[IncidentTime], acted: IncidentTime | None, finding: Finding) -> IncidentTime | None:
    """The first time at which its verdict, or a person's action, says that it does not end by itself."""
    verdict = verdict_before(finding) or finding.verdict
    known = [each for each in seen if each.what == verdict and not verdict.is_healthy]
    return min([*known[:1], *([acted] if acted else [])], key=lambda each: each.time, default=None)


def _hides_groups(sampled: Finding, finding: Finding) -> bool:
    """Whether a sample does not show which groups waited for a transaction: nobody moved by that."""
    is_unread = sampled.tp == finding.tp and sampled.verdict is Verdict.UNKNOWN and sampled.producer_id is None
    return is_unread or (sampled.key == finding.key and sampled.groups_held is None)


def _stall(
    finding: Finding, group: str, samples: Sequence[tuple[dt.datetime, dt.datetime]], tables: ReportTables
) -> GroupStall:
    seen = [at for _, at in samples] or [finding.observed_at]
    before = after = None
    if samples:
        first, last = samples[0][0], samples[-1][0]
        unread = {due for due, each in tables.recorded_findings if _hides_groups(each, finding)}
        others = [(due, each.observed_at) for due, each in tables.partition_samples(finding) if due not in unread]
        before = max((at for due, at in others if due < first), default=None)
        after = min((at for due, at in others if due > last), default=None)
    moved = min(
        (
            each.timestamp
            for each in tables.offsets_log
            if (each.group_id, each.topic, each.partition) == (group, finding.topic, finding.partition)
            and each.timestamp is not None
            and each.timestamp >= seen[-1]
            and (each.committed_offset or 0) > (finding.start_offset or 0)
        ),
        default=None,
    )
    begun = [time for time in (finding.held_from, before) if time is not None and time <= seen[0]]
    ends = [time for time in (moved, after) if time is not None]
    return GroupStall(
        group=group,
        seen_from=seen[0],
        seen_to=seen[-1],
        not_before=max(begun, default=None),
        not_after=min(ends, default=None),
        moved_at=moved,
        source=RECORDER if samples else DIAGNOSIS,
    )
