"""What becomes of findings over time: those of samples, of a log and of a later look are one finding per transaction.

A transaction that is known to have ended is `ended`, whatever its verdict while it was open. Its marker in the log
proves the end, and so does a later sample that read its partition completely without it. An error, a failed sample, a
partition that may be hidden and a gap between samples prove nothing: the evidence lists them, and none of them ends a
transaction. All code that reports past findings closes them with `close`. Findings as they were recorded
(``Recording.history``, the pipeline's ``recorded_findings``) and those that state their time (the pipeline's
``current_findings``) stay unchanged.

Two successive samples of a recording serve as two observations. Late transactions are open for longer than their own
timeout plus a padding, from their opening time. Kafka's PartitionsWithLateTransactionsCount (KIP-664) uses the brokers'
maximum timeout and the producer's newest timestamp.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from toolkit.analysis.diagnosis.decision import decide_ended, decide_merged, decide_open_after_marker
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.diagnosis.observation import MAX_TRANSACTION_TIMEOUT_MS, Observation
from toolkit.analysis.transaction_owners import TWO_PHASE_COMMIT
from toolkit.schema.durations import CLOCKS_DIFFER, duration, elapsed_ms
from toolkit.schema.live import EvidenceEntry, Finding, Partition, Producer
from toolkit.schema.log import LogTransaction
from toolkit.schema.recorded import LateTransaction, LsoHold, ObservationTime, RecordedSample
from toolkit.schema.table import Error, TransactionKey, column_values
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    import pyarrow as pa


VERDICT_BEFORE = "verdict_before"
MILLISECOND = dt.timedelta(milliseconds=1)
LATE = 1.5  # a longer gap, in intervals, is reported
SOURCE = "recording"


# The end of a transaction.


def is_open(finding: Finding) -> bool:
    """Whether a finding is of an open transaction."""
    return finding.start_offset is not None and finding.verdict is not Verdict.ENDED


def unread(findings: Iterable[Finding | _Sampled]) -> str | None:
    """Why a sample could not read a partition, by its findings; null if it did."""
    for each in findings:
        if each.verdict is Verdict.UNKNOWN and (each.producer_id is None or each.error is not None):
            return Error.of(each.error or "; ".join(each.missing)).code
    return None


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
        end = f"{end} Last seen open at {at(entry.observed_at)}. While it was open it was {entry.value}{why}"
        evidence = (*(each for each in evidence if each.name != VERDICT_BEFORE), entry)
    closed = decide_ended(end).applied_to(finding)
    return replace(closed, queue_position=None, expires_at=None, evidence=evidence)


def close_by_log(findings: Iterable[Finding], log_transactions: Iterable[LogTransaction]) -> list[Finding]:
    """Close the past findings whose marker is in the log; one that is open after it is `unknown`.

    `findings`: findings, open and closed.
    `log_transactions`: transactions of their logs; findings of all other transactions stay unchanged.
    """
    markers = {
        TransactionKey(each.topic, each.partition, each.producer_id, each.first_offset): each
        for each in log_transactions
        if each.marker_offset is not None
    }
    found = []
    for each in findings:
        if is_open(each) and (marked := markers.get(each.key)) is not None:
            marker = f"{marked.marker} marker" if marked.marker else "marker"
            end = f"Its {marker} is at offset {marked.marker_offset} of the log."
            if (decision := decide_open_after_marker(each, marked.end, end=end)) is not None:
                found.append(decision.applied_to(each))
                continue
            held_to, held_ms = marked.end or each.held_to, elapsed_ms(each.held_from, marked.end)
            ended = replace(each, held_to=each.held_from and held_to, held_ms=held_ms)
            found.append(close(replace(ended, observed_at=marked.end or each.observed_at), end=end, before=each))
        else:
            found.append(each)
    return found


def close_by_observation(findings: Iterable[Finding], later: Iterable[Finding]) -> list[Finding]:
    """Close the past findings whose partition a later sample read without the transaction.

    `findings`: findings, open and closed.
    `later`: findings of a later sample of these partitions; a partition without a finding was not read.
    """
    later = list(later)
    present = {each.key for each in later}
    found = []
    for each in findings:
        seen = [other for other in later if (other.topic, other.partition) == (each.topic, each.partition)]
        has_been_read = bool(seen) and not unread(seen) and seen[0].observed_at > each.observed_at
        is_gone = has_been_read and is_open(each) and each.key not in present
        found.append(_gone(each, seen[0].observed_at) if is_gone else each)
    return found


def _gone(finding: Finding, time: dt.datetime) -> Finding:
    """The finding, closed by a sample without it. `time`: of the sample, by the clock of `Finding.observed_at`."""
    since = time - finding.observed_at
    brokers_time = finding.brokers_time and finding.brokers_time + since
    gone = replace(finding, observed_at=time, brokers_time=brokers_time)
    if finding.held_from is not None and finding.held_to is None:  # a marker's time is nearer than a sample's
        held_ms = None if finding.held_ms is None else finding.held_ms + since // MILLISECOND
        gone = replace(gone, held_to=time, held_ms=held_ms)
    return close(gone, end=f"The sample of {at(time)} no longer has it.", before=finding)


def verdict_before(finding: Finding) -> Verdict | None:
    """The verdict of an ended transaction while it was open; null if there is none."""
    entry = None if finding.verdict is not Verdict.ENDED else _entry_before(finding)
    return None if entry is None or entry.value is None else Verdict(entry.value)


def _entry_before(finding: Finding) -> EvidenceEntry | None:
    """Evidence entry: when a transaction was last seen open, and with which verdict."""
    if finding.verdict is Verdict.ENDED:
        return next((entry for entry in finding.evidence if entry.name == VERDICT_BEFORE), None)
    return EvidenceEntry.of_record(finding, source="findings", name=VERDICT_BEFORE, value=finding.verdict)


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


# A log and a recording.


def merge_findings(of_log: Iterable[Finding], of_recording: Iterable[Finding]) -> list[Finding]:
    """Findings of a log and of a recording: one for each transaction.

    Where both have a transaction, the log's times and amounts win, if it has them (`Finding.merged`); which verdict it
    has is decided on both (`decision.decide_merged`). The recording's verdict becomes evidence if the
    transaction is over.
    `of_log`: from `toolkit.analysis.hold_findings.held_findings`, or from the running cluster.
    `of_recording`: from `over_time`.
    """
    recorded: dict[TransactionKey, Finding] = {}
    found: list[Finding] = []
    for each in sorted(of_recording, key=lambda each: each.observed_at):
        if each.start_offset is None:
            found.append(each)
        else:
            earlier = recorded.get(each.key)
            recorded[each.key] = each if earlier is None else each.merged(earlier)
    for each in of_log:
        same = recorded.pop(each.key, None) if each.start_offset is not None else None
        found.append(each if same is None else _both(each, same))
    return [*found, *recorded.values()]


def _both(log: Finding, recorded: Finding) -> Finding:
    decision = decide_merged(log, recorded)
    if log.verdict is Verdict.ENDED and decision.verdict is not Verdict.ENDED:  # it is open after its marker
        log = decision.applied_to(replace(log, held_to=None, observed_at=recorded.observed_at))
        log = replace(log, held_ms=None, brokers_time=recorded.brokers_time)
    merged = decision.applied_to(log.merged(recorded))
    held_ms = log.held_ms
    if log.verdict is Verdict.ENDED:
        merged = close(merged, end=log.reason, before=recorded)
    elif decision.verdict is Verdict.ENDED:
        at_end = replace(merged, observed_at=recorded.observed_at, held_to=recorded.held_to)
        merged, held_ms = replace(at_end, queue_position=None, expires_at=None), None
    elif recorded.verdict is Verdict.ENDED:
        return replace(merged, held_to=log.held_to, held_ms=held_ms)
    elif log.brokers_time and recorded.brokers_time and recorded.brokers_time > log.brokers_time:
        # It is still open in the later look, and held so long: a report of an old copy said "so far" as of the copy.
        merged = replace(merged, observed_at=recorded.observed_at, brokers_time=recorded.brokers_time)
        held_ms = held_ms if log.held_to else None
    if held_ms is None:
        # A recording may have begin and end by the recorder's clock: its brokers' time and duration give the brokers'.
        begin, now = log.held_from, recorded.brokers_time
        if begin is None and now is not None and recorded.held_ms is not None:
            begin = now - recorded.held_ms * MILLISECOND
        held_ms = elapsed_ms(begin, log.held_to or now)
    return replace(merged, held_ms=held_ms)


# The samples of a recording.


def observation_times(samples: Iterable[RecordedSample]) -> list[ObservationTime]:
    """The samples in order, and the gaps between them.

    `samples`: samples of a recorder; only their times, gaps and errors are used.
    """
    found: list[ObservationTime] = []
    later: RecordedSample | None = None  # the next one that did not fail
    failed: list[RecordedSample] = []  # those before it
    complete: dt.datetime | None = None
    for sample in sorted(samples, key=lambda each: each.sampled_at, reverse=True):
        if sample.error:
            failed.append(sample)
            continue
        found.append(
            ObservationTime(
                sampled_at=sample.sampled_at,
                next_sampled_at=None if later is None else later.sampled_at,
                missed=_missed(sample, later, failed),
                next_topic_gap=None if later is None else "; ".join(later.topic_gaps or ()) or None,
                next_complete_at=complete,
            )
        )
        later, failed = sample, []
        complete = complete if sample.topic_gaps else sample.sampled_at
    return found[::-1]


def _missed(sample: RecordedSample, later: RecordedSample | None, failed: Sequence[RecordedSample]) -> str | None:
    """What is missing between a sample and the next one; null if nothing is. `failed`: between, last first."""
    start, interval_ms = sample.sampled_at, sample.interval_ms
    if failed:
        count = f"{len(failed)} samples" if len(failed) > 1 else "a sample"
        return f"{count} after {at(start)} failed ({Error.of(failed[-1].error).code})"
    if later is None or interval_ms is None or later.sampled_at - start <= LATE * interval_ms * MILLISECOND:
        return None
    return f"no sample from {at(start)} for {duration(later.sampled_at - start)}"


def over_time(findings: pa.Table, samples: Iterable[ObservationTime]) -> list[Finding]:
    """The transactions that were open in a recording, one finding each.

    With ``held_from``, ``held_to`` and ``held_ms``. A transaction held the LSO from the first sample that shows it, or
    from the earlier time in that sample's evidence, until the first sample that read the partition without it: then it
    is `ended`. A transaction still open in the last sample has that sample's decision. Earlier verdicts are evidence.
    Each verdict on the partition itself, such as waiting for replication or unreadable, has a finding without these
    times.
    `findings`: ``schema.RECORDED["findings"]``, of one partition or of several; those of other samples are ignored.
    `samples`: the samples that did not fail.
    """
    known = {each.sampled_at: each for each in samples}
    by_partition: defaultdict[tuple[str | None, int | None], list[_Sampled]] = defaultdict(list)
    columns = (column_values(findings[name], enum=Finding.enums.get(name)) for name in _Sampled._fields[1:])
    for sampled in map(_Sampled, range(findings.num_rows), *columns):
        if sampled.sampled_at in known:
            by_partition[sampled.topic, sampled.partition].append(sampled)
    lifetimes = [lifetime for of_partition in by_partition.values() for lifetime in _lifetimes(of_partition, known)]
    if not lifetimes:
        return []
    last = Finding.of_table(findings.take([each.found[-1].number for each in lifetimes]))
    return [each.finding(finding) for each, finding in zip(lifetimes, last, strict=True)]


def observed_holds(findings: Iterable[Finding]) -> list[LsoHold]:
    """The holds of the LSO that samples show; a partition that could not be read is a hold with its error alone.

    `findings`: findings over time, as by `over_time`.
    """
    return [
        LsoHold.of_record(
            each,
            first_offset=each.start_offset,
            held_ms=None if each.held_to is None else each.held_ms,
            least_ms=each.held_ms if each.held_to is None else None,
            as_of=each.observed_at,
        )
        for each in findings
        if each.held_from is not None or each.error is not None
    ]


class _Sampled(NamedTuple):
    """A finding of a sample, as far as each of them is used; a recording may have hundreds of thousands of them."""

    number: int
    sampled_at: dt.datetime
    observed_at: dt.datetime
    topic: str | None
    partition: int | None
    producer_id: int | None
    start_offset: int | None
    queue_position: int | None
    transactional_id: str | None
    verdict: Verdict
    reason: str
    missing: tuple[str, ...]
    held_from: dt.datetime | None
    broker_id: int | None
    error: str | None

    @property
    def key(self) -> tuple[int | None, int | str | None] | None:
        """Its transaction, or its verdict on the partition; null for a partition that is clear."""
        if self.start_offset is not None:
            return self.start_offset, self.producer_id  # a superseding epoch does not end it
        if self.producer_id is not None and self.error:
            return None, self.producer_id  # its partition was not read
        return None if self.producer_id is not None or self.verdict is Verdict.CLEAR else (None, self.verdict)


@dataclass(slots=True, kw_only=True)
class _Lifetime:
    """The samples of a transaction, or of a verdict on a partition."""

    found: list[_Sampled] = field(default_factory=list)  # its findings in sample order
    entries: list[EvidenceEntry] = field(default_factory=list)  # its verdicts and the gaps as evidence
    # the first sample after the last finding that read the partition without it; null if there is none
    gone: dt.datetime | None = None

    def add(self, finding: _Sampled) -> None:
        """Add the finding of the next sample that has it."""
        is_new = not self.found or self.gone is not None or finding.verdict != self.found[-1].verdict
        self.found.append(finding)
        self.gone = None
        if is_new:
            self.note("verdict", f"{finding.verdict}: {finding.reason}")

    def note(self, name: str, value: str) -> None:
        """Add evidence as of its last finding."""
        last = self.found[-1]
        self.entries.append(
            EvidenceEntry(source=SOURCE, broker_id=last.broker_id, observed_at=last.observed_at, name=name, value=value)
        )

    def finding(self, last: Finding) -> Finding:
        """Its finding. `last`: the last of its findings, whole.

        The log has times of brokers, the samples those of the recorder. The brokers' time of the last sample, and how
        much later or earlier something was by the recorder's clock, give the brokers' time of that; without it, times
        of two clocks give no duration.
        """
        held = [each for each in self.found if each.queue_position == 1 and each.start_offset is not None]
        first = held[0].sampled_at if held else None
        by_log = next((each.held_from for each in reversed(held) if each.held_from is not None), None)
        begin, end = by_log, last.held_to or last.brokers_time
        if by_log is None and last.held_to is None:
            begin, end = first, last.observed_at
        elif by_log is None and first is not None and last.brokers_time is not None:
            begin = last.brokers_time - (last.observed_at - first)
        ids = [each.transactional_id for each in self.found if each.transactional_id is not None]
        merged = replace(
            last,
            queue_position=last.queue_position if first is None or last.held_to is None else None,
            transactional_id=ids[-1] if ids else None,
            evidence=(*last.evidence, *self.entries),
            held_from=by_log or first,
            held_to=None if first is None else last.held_to,
            held_ms=elapsed_ms(begin, end) if first is not None else None,
        )
        return merged if self.gone is None or last.start_offset is None else _gone(merged, self.gone)


def _lifetimes(findings: Iterable[_Sampled], known: Mapping[dt.datetime, ObservationTime]) -> Iterator[_Lifetime]:
    """The transactions of a partition and the verdicts on it, in the order of their keys.

    `known`: every sample that did not fail.
    """
    by_sample: defaultdict[dt.datetime, list[_Sampled]] = defaultdict(list)
    for each in sorted(findings, key=lambda each: each.sampled_at):
        by_sample[each.sampled_at].append(each)
    lifetimes: defaultdict[tuple[int | None, int | str | None], _Lifetime] = defaultdict(_Lifetime)
    followed: set[tuple[int | None, int | str | None]] = set()  # what no sample yet has shown to be gone

    def end(keys: Collection[tuple[int | None, int | str | None]], sample: dt.datetime) -> None:
        for key in keys:
            lifetimes[key].note("gone", f"the sample of {at(sample)} does not have it")
            lifetimes[key].gone = sample

    for (sampled_at, found), next_found in zip_longest(by_sample.items(), [*by_sample][1:]):
        if unread(found) is None:  # what samples in between could not show, as its topic may have been hidden
            end(followed - (now := {each.key for each in found}), sampled_at)
            followed &= now
        for each in found:
            if each.key is not None:
                lifetimes[each.key].add(each)
                followed.add(each.key)
        observation = known[sampled_at]
        following = by_sample.get(sample, []) if (sample := observation.next_sampled_at) else []
        present = {each.key for each in following}
        why = unread(following) if following else observation.next_topic_gap
        for key in followed:
            lifetime = lifetimes[key]
            if observation.missed:
                lifetime.note("missed", observation.missed)
            if sample is None or key in present:
                continue
            if why is None:
                end([key], sample)
            else:
                lifetime.note("missed", f"the sample of {at(sample)} could not read the partition ({why})")
        followed = {key for key in followed if key in present or why is not None}
        complete = observation.next_complete_at  # it has all topics, but nothing of this partition
        if not following and complete is not None and (next_found is None or complete < next_found):
            end(followed, complete)
            followed = set()
    for _, lifetime in sorted(lifetimes.items(), key=lambda item: str(item[0])):
        yield lifetime


def with_earlier(observation: Observation, before: Observation | None) -> list[Observation]:
    """The observations of a sample: what the one before it shows of the same partitions, and its own.

    A transaction in one of them only is `unknown`, never `hanging`, until the next sample.
    `observation`: the sample's. Only its partitions get findings: a deleted topic holds nothing.
    `before`: that of the previous sample, however old; null if there is none.
    """
    twice = {each.tp for each in (before.partitions if before else ())} & {each.tp for each in observation.partitions}
    return [*([before.on(twice)] if before and twice else []), observation]


LATE_PADDING_MS = 300_000  # Kafka's own padding

FirstSeen = Mapping[TransactionKey, dt.datetime]


def late_transactions(
    findings: Iterable[Finding],
    observation: Observation,
    *,
    sampled_at: dt.datetime,
    first_seen: FirstSeen,
    padding_ms: int = LATE_PADDING_MS,
    longest_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS,
) -> list[LateTransaction]:
    """The open transactions that are late.

    Two-phase commit has no timeout, so it is never late.
    `findings`: the findings of a sample.
    `observation`: the newest observation behind the findings.
    `sampled_at`: when the sample was due.
    `first_seen`: when each transaction was first seen open; used if neither a coordinator nor the log has an opening
        time, if no broker's time is known, or if the opening time is after it.
    `padding_ms`: how long past its timeout a transaction may stay open.
    `longest_timeout_ms`: the timeout of a transaction without a known transactional id: the brokers' maximum.
    """
    timeouts = {
        (each.transactional_id, each.producer_id): each.timeout_ms
        for each in observation.transactions
        if each.timeout_ms is not None
    }
    brokers_time = None if observation.brokers_time.time is None else observation.brokers_time.time - CLOCKS_DIFFER
    late: list[LateTransaction] = []
    for finding in findings:
        key = topic, partition, producer_id, start_offset = finding.key
        if topic is None or partition is None or producer_id is None or start_offset is None:
            continue
        timeout_ms = timeouts.get((finding.transactional_id, producer_id), longest_timeout_ms)
        # The times are brokers', or both are the recorder's: when it was first seen, and when it was seen now. A time
        # that brokers have not reached is not used.
        opened_at, opened_at_clock, now = finding.opened_at, finding.opened_at_clock, brokers_time
        if now is None or opened_at is None or opened_at > now + CLOCKS_DIFFER:
            now = observation.observed_at
            opened_at, opened_at_clock = first_seen.get(key) or now, "recorder"
        late_since = opened_at + dt.timedelta(milliseconds=timeout_ms + padding_ms)
        if timeout_ms == TWO_PHASE_COMMIT or now <= late_since:
            continue
        late.append(
            LateTransaction.of_record(
                finding,
                sampled_at=sampled_at,
                opened_at=opened_at,
                opened_at_clock=opened_at_clock,
                timeout_ms=timeout_ms,
                late_since=late_since,
                late_ms=elapsed_ms(late_since, now),
                observed_at=observation.observed_at,
            )
        )
    return late


def first_seen(observation: Observation, before: FirstSeen) -> dict[TransactionKey, dt.datetime]:
    """When each open transaction was first seen open.

    `observation`: the newest observation.
    `before`: the result for the previous observation. A transaction on a partition that cannot be read now, or may be
        hidden, stays in it.
    """
    producers = (*observation.producers, *observation.producers_after)
    answers: list[Partition | Producer] = [*observation.partitions, *observation.partitions_after, *producers]
    unread = {each.tp for each in answers if each.error}
    looked_at, is_hidden = {each.tp for each in answers}, bool(observation.coverage.topic_gaps)
    carried = {key: at for key, at in before.items() if key[:2] in unread or (is_hidden and key[:2] not in looked_at)}
    opened = (
        TransactionKey(each.topic, each.partition, each.producer_id, each.current_txn_start_offset)
        for each in producers
        if each.current_txn_start_offset is not None and each.producer_id is not None
    )
    return carried | {key: before.get(key, observation.observed_at) for key in opened}
