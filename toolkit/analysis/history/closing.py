"""Close past findings: a transaction that is known to have ended is `ended`, whatever its verdict while it was open.

Its marker in the log proves the end, and so does a later sample that read its partition completely without it. An
error, a failed sample and topics that may be hidden prove nothing. All code that reports past findings closes them with
`close`, the merge of the findings of a log and of a recording, too. Findings as they were recorded
(``Recording.history``, the pipeline's ``recorded_findings``) and those that state their time (the pipeline's
``current_findings``) stay unchanged.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from toolkit.analysis.diagnosis.decision.decide import decide
from toolkit.analysis.diagnosis.diagnose import transaction_key
from toolkit.analysis.diagnosis.evidence_kinds import EndEvidence, TwoSourceEvidence
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.log import LogTransaction
from toolkit.schema.table import Error, TransactionKey
from toolkit.schema.verdict import Verdict

VERDICT_BEFORE = "verdict_before"
MILLISECOND = dt.timedelta(milliseconds=1)


class PartitionFinding(Protocol):
    """What `unread` needs to know of a finding."""

    @property
    def producer_id(self) -> int | None:
        """Producer id (PID); null if the finding is about the partition itself."""

    @property
    def verdict(self) -> str:
        """Its verdict."""

    @property
    def missing(self) -> Sequence[str]:
        """What is missing to reach a verdict."""

    @property
    def error(self) -> str | None:
        """Why the partition could not be read."""


def close(finding: Finding, *, end: str, before: Finding | None = None) -> Finding:
    """The finding of a transaction whose end is known.

    With verdict `ended`, and without outcome and action. Its reason and evidence state when it was last seen open, and
    with which verdict.
    `finding`: the finding, as of the time of the proof.
    `end`: the proof, in sentences.
    `before`: the last finding while it was open, or one that is closed already; null if there is none.
    """
    evidence = finding.evidence
    entry = None if before is None else _entry_before(before)
    if before is not None and entry is not None:
        why = "." if before.verdict is Verdict.ENDED else f": {before.reason}"
        seen_at = "an unknown time" if entry.observed_at is None else at(entry.observed_at)
        end = f"{end} Last seen open at {seen_at}. While it was open it was {entry.value}{why}"
        evidence = (*(each for each in evidence if each.name != VERDICT_BEFORE), entry)
    closed = decide(EndEvidence(proof=end)).applied_to(finding)
    return replace(closed, queue_position=None, expires_at=None, evidence=evidence)


def close_by_log(findings: Iterable[Finding], log_transactions: Iterable[LogTransaction]) -> list[Finding]:
    """Close the past findings whose marker is in the log.

    `findings`: findings, open and closed.
    `log_transactions`: transactions of their logs; findings of all other transactions stay unchanged.
    """
    markers: dict[TransactionKey, LogTransaction] = {
        TransactionKey(each.topic, each.partition, each.producer_id, each.first_offset): each
        for each in log_transactions
        if each.marker_offset is not None
    }
    return [
        each
        if not is_open(each) or (marked := markers.get(transaction_key(each))) is None
        else _close_by_marker(each, marked)
        for each in findings
    ]


def close_by_observation(findings: Iterable[Finding], later: Iterable[Finding]) -> list[Finding]:
    """Close the past findings whose partition a later sample read without the transaction.

    `findings`: findings, open and closed.
    `later`: findings of a later sample of these partitions; a partition without a finding was not read.
    """
    observations: defaultdict[tuple[str | None, int | None], list[Finding]] = defaultdict(list)
    for each in later:
        observations[each.topic, each.partition].append(each)
    return [_close_if_gone(each, observations.get((each.topic, each.partition), [])) for each in findings]


def is_open(finding: Finding) -> bool:
    """Whether a finding is of an open transaction."""
    return finding.start_offset is not None and finding.verdict is not Verdict.ENDED


def unread(findings: Iterable[PartitionFinding]) -> str | None:
    """Why a sample could not read a partition, by its findings; null if it did."""
    for each in findings:
        if each.verdict is Verdict.UNKNOWN and (each.producer_id is None or each.error is not None):
            return Error.of(each.error or "; ".join(each.missing)).code
    return None


def verdict_before(finding: Finding) -> Verdict | None:
    """The verdict of an ended transaction while it was open; null if there is none."""
    entry = None if finding.verdict is not Verdict.ENDED else _entry_before(finding)
    return None if entry is None or entry.value is None else Verdict(entry.value)


def without_short(findings: Iterable[Finding], *, min_held_ms: int) -> list[Finding]:
    """Leave out ended transactions that were healthy and held the LSO for less."""
    return [
        each
        for each in findings
        if (before := verdict_before(each)) is None or not before.is_healthy or (each.held_ms or 0) >= min_held_ms
    ]


def without_stale(findings: Iterable[Finding], *, sampled_at: dt.datetime) -> list[Finding]:
    """Leave out findings of partitions themselves from samples before this one."""
    return [each for each in findings if each.start_offset is not None or each.observed_at >= sampled_at]


def _entry_before(finding: Finding) -> EvidenceEntry | None:
    """Evidence entry: when a transaction was last seen open, and with which verdict."""
    if finding.verdict is Verdict.ENDED:
        return next((entry for entry in finding.evidence if entry.name == VERDICT_BEFORE), None)
    return EvidenceEntry(
        source="findings",
        broker_id=finding.broker_id,
        observed_at=finding.observed_at,
        name=VERDICT_BEFORE,
        value=finding.verdict,
    )


def _close_by_marker(finding: Finding, marked: LogTransaction) -> Finding:
    marker = f"{marked.marker} marker" if marked.marker else "marker"
    end = f"Its {marker} is at offset {marked.marker_offset} of the log."
    return close(_held_by_marker(finding, marked.end), end=end, before=finding)


def _close_if_gone(finding: Finding, last_seen: Sequence[Finding]) -> Finding:
    is_gone = last_seen and not unread(last_seen) and transaction_key(finding) not in map(transaction_key, last_seen)
    if not is_gone or not is_open(finding) or last_seen[0].observed_at <= finding.observed_at:
        return finding
    time = last_seen[0].observed_at
    return close(_held_to(finding, time), end=f"The sample of {at(time)} no longer has it.", before=finding)


def _held_to(finding: Finding, end: dt.datetime) -> Finding:
    """The finding as of its end, by the clock of `Finding.observed_at`."""
    since = end - finding.observed_at
    return replace(
        finding,
        observed_at=end,
        brokers_time=None if finding.brokers_time is None else finding.brokers_time + since,
        held_to=None if finding.held_from is None else end,
        held_ms=None if finding.held_ms is None else finding.held_ms + since // MILLISECOND,
    )


def _held_by_marker(finding: Finding, end: dt.datetime | None) -> Finding:
    """The finding as of its marker's time, with the time for which it held the LSO; null if that is unknown."""
    if end is None:
        return replace(finding, held_ms=None)
    if finding.held_from is None:
        return replace(finding, observed_at=end)
    held_ms = max((end - finding.held_from) // MILLISECOND, 0)
    return replace(finding, observed_at=end, held_to=end, held_ms=held_ms)


T = TypeVar("T")


def merge_findings(of_log: Iterable[Finding], of_recording: Iterable[Finding]) -> list[Finding]:
    """Findings of a log and of a recording: one for each transaction.

    Where both have a transaction, the log's times and amounts win, if it has them; which verdict it has is decided on
    both (`decision.decide.TWO_SOURCE_RULES`). The recording's verdict becomes evidence if the transaction is over.
    `of_log`: from `toolkit.analysis.history.hold_findings.held_findings`, or from the running cluster.
    `of_recording`: from `toolkit.analysis.history.findings_over_time.over_time`.
    """
    recorded: defaultdict[TransactionKey, list[Finding]] = defaultdict(list)
    found: list[Finding] = []
    for each in of_recording:
        if each.start_offset is None:
            found.append(each)
        else:
            recorded[transaction_key(each)].append(each)
    for each in of_log:
        same = recorded.pop(transaction_key(each), []) if each.start_offset is not None else []
        found.append(_both(each, same) if same else each)
    return [*found, *(each for same in recorded.values() for each in same)]


def _both(log: Finding, recorded: Sequence[Finding]) -> Finding:
    """Merge the log's finding with the recording's last one; the recorded ones may have several epochs."""
    last = max(recorded, key=lambda each: each.observed_at)
    decision = decide(TwoSourceEvidence(log=log, recorded=last))
    merged = decision.applied_to(_filled(log, recorded, last))
    if log.verdict is Verdict.ENDED:
        merged = close(merged, end=log.reason, before=last)
    elif decision.verdict is Verdict.ENDED:
        merged = replace(
            merged,
            queue_position=None,
            expires_at=None,
            observed_at=last.observed_at,
            held_to=last.held_to,
            held_ms=None,
        )
    elif last.verdict is Verdict.ENDED:
        return replace(merged, held_to=log.held_to)
    if merged.held_ms is None and merged.held_from is not None:
        # A recording may have begin and end by the recorder's clock: its brokers' time and duration give the brokers'.
        begin, end = log.held_from, log.held_to or last.brokers_time
        if begin is None and last.brokers_time is not None and last.held_ms is not None:
            begin = last.brokers_time - last.held_ms * MILLISECOND
        if begin is not None and end is not None:
            merged = replace(merged, held_ms=max((end - begin) // MILLISECOND, 0))
    return merged


def _filled(log: Finding, recorded: Sequence[Finding], last: Finding) -> Finding:
    """The log's finding, with what only the recording has."""
    filled = replace(
        log,
        transactional_id=_first(log.transactional_id, last.transactional_id),
        cause=_first(log.cause, last.cause),
        opened_at=_first(log.opened_at, last.opened_at),
        opened_at_clock=_first(log.opened_at_clock, last.opened_at_clock),
        offsets_held=_first(log.offsets_held, last.offsets_held),
        records_held=_first(log.records_held, last.records_held),
        bytes_held=_first(log.bytes_held, last.bytes_held),
        groups_held=_first(log.groups_held, last.groups_held),
        compaction_held=_first(log.compaction_held, last.compaction_held),
        held_from=_first(log.held_from, last.held_from),
        held_to=_first(log.held_to, last.held_to),
        evidence=(*log.evidence, *(entry for each in recorded for entry in each.evidence)),
    )
    if log.verdict is Verdict.ENDED:
        return filled
    return replace(
        filled,
        queue_position=_first(log.queue_position, last.queue_position),
        expires_at=_first(log.expires_at, last.expires_at),
        last_stable_offset=_first(log.last_stable_offset, last.last_stable_offset),
        high_watermark=_first(log.high_watermark, last.high_watermark),
    )


def _first(value: T | None, other: T | None) -> T | None:
    return other if value is None else value
