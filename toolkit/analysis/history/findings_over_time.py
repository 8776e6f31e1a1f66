"""Findings of a recording over time: the first and last sample of each open transaction, and its verdicts.

A failed sample, a partition that could not be read or may be hidden, and a gap between samples prove nothing: the
evidence lists them, and none of them ends a transaction.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.history.closing import close, unread
from toolkit.schema.derived import LsoHold, ObservationTime
from toolkit.schema.durations import duration
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.record import column_values
from toolkit.schema.recorded import RecordedSample
from toolkit.schema.table import Error
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

MILLISECOND = dt.timedelta(milliseconds=1)
LATE = 1.5  # a longer gap, in intervals, is reported
SOURCE = "recording"


def observation_times(samples: Iterable[RecordedSample]) -> list[ObservationTime]:
    """The samples in order, and the gaps between them.

    `samples`: samples of a recorder; only their times, gaps and errors are used.
    """
    found: list[ObservationTime] = []
    failed: list[RecordedSample] = []
    interval: dt.timedelta | None = None
    for sample in sorted(samples, key=lambda each: each.sampled_at):
        if sample.error:
            failed.append(sample)
            continue
        if found:
            last = found[-1].sampled_at
            late = interval is not None and sample.sampled_at - last > LATE * interval
            found[-1] = replace(
                found[-1],
                next_sampled_at=sample.sampled_at,
                missed=_missed(last, sample.sampled_at, failed, late),
                next_topic_gap="; ".join(sample.topic_gaps or ()) or None,
            )
        found.append(ObservationTime(sampled_at=sample.sampled_at))
        failed = []
        interval = None if sample.interval_ms is None else sample.interval_ms * MILLISECOND
    if found:
        found[-1] = replace(found[-1], missed=_missed(found[-1].sampled_at, None, failed, late=False))
    return found


def _missed(start: dt.datetime, end: dt.datetime | None, failed: Sequence[RecordedSample], late: bool) -> str | None:
    if failed:
        count = f"{len(failed)} samples" if len(failed) > 1 else "a sample"
        return f"{count} after {at(start)} failed ({Error.of(failed[0].error).code})"
    return f"no sample from {at(start)} for {duration(end - start)}" if late and end is not None else None


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
    for sampled in _sampled(findings):
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
        LsoHold(
            topic=each.topic,
            partition=each.partition,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            transactional_id=each.transactional_id,
            first_offset=each.start_offset,
            broker_id=each.broker_id,
            error=each.error,
            opened_at=each.opened_at,
            opened_at_clock=each.opened_at_clock,
            held_from=each.held_from,
            held_to=each.held_to,
            held_ms=None if each.held_to is None else each.held_ms,
            as_of=each.observed_at,
            records_held=each.records_held,
            bytes_held=each.bytes_held,
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
    held_to: dt.datetime | None
    broker_id: int | None
    error: str | None


def _sampled(findings: pa.Table) -> Iterator[_Sampled]:
    columns = (column_values(findings[name], enum=Finding.enums.get(name)) for name in _Sampled._fields[1:])
    return map(_Sampled, range(findings.num_rows), *columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lifetime:
    """The samples of a transaction, or of a verdict on a partition."""

    found: Sequence[_Sampled]  # its findings in sample order
    entries: Sequence[EvidenceEntry]  # its verdicts and the gaps as evidence
    # the first sample after the last finding that read the partition without it; null if there is none
    gone: dt.datetime | None

    def finding(self, last: Finding) -> Finding:
        """Its finding. `last`: the last of its findings, whole."""
        gone = None if last.start_offset is None else self.gone
        held_from = self._held_from() if last.start_offset is not None else None
        held_to = None if held_from is None else last.held_to or gone
        ids = [each.transactional_id for each in self.found if each.transactional_id is not None]
        merged = replace(
            last,
            queue_position=last.queue_position if held_to is None else None,
            transactional_id=ids[-1] if ids else None,
            evidence=(*last.evidence, *self.entries),
            held_from=held_from,
            held_to=held_to,
            held_ms=self._held_ms(last, gone),
            observed_at=gone or last.observed_at,
            brokers_time=last.brokers_time and last.brokers_time + ((gone or last.observed_at) - last.observed_at),
        )
        return merged if gone is None else close(merged, end=f"The sample of {at(gone)} no longer has it.", before=last)

    def _held_from(self) -> dt.datetime | None:
        """Since when it has held the LSO, by the log, or when that was first sampled; null if it never did."""
        return self._held_from_by_log() or self._first_held()

    def _held_from_by_log(self) -> dt.datetime | None:
        known = [each.held_from for each in self.found if each.queue_position == 1 and each.held_from is not None]
        return known[-1] if known else None

    def _first_held(self) -> dt.datetime | None:
        return next((each.sampled_at for each in self.found if each.queue_position == 1), None)

    def _held_ms(self, last: Finding, gone: dt.datetime | None) -> int | None:
        """How long it held the LSO. The log has times of brokers, the samples those of the recorder.

        The brokers' time of the last sample, and how much later or earlier something was by the recorder's clock, give
        the brokers' time of that; without it, times of two clocks give no duration.
        """
        now, until = last.brokers_time, gone or last.observed_at
        by_log, first = self._held_from_by_log(), self._first_held()
        if first is None or last.start_offset is None:
            return None
        if by_log is None and last.held_to is None:
            return max((until - first) // MILLISECOND, 0)
        begin = by_log or (None if now is None else now - (last.observed_at - first))
        end = last.held_to or (None if now is None else now + (until - last.observed_at))
        return None if begin is None or end is None else max((end - begin) // MILLISECOND, 0)


def _lifetimes(findings: Iterable[_Sampled], known: Mapping[dt.datetime, ObservationTime]) -> Iterator[_Lifetime]:
    """The transactions of a partition and the verdicts on it, in the order of their keys."""
    by_sample: defaultdict[dt.datetime, list[_Sampled]] = defaultdict(list)
    by_key: defaultdict[tuple[int | None, int | str | None], list[_Sampled]] = defaultdict(list)
    for each in sorted(findings, key=lambda each: each.sampled_at):
        by_sample[each.sampled_at].append(each)
        if each.start_offset is not None:
            by_key[each.start_offset, each.producer_id].append(each)  # a superseding epoch does not end it
        elif each.producer_id is not None and each.error:
            by_key[None, each.producer_id].append(each)  # its partition was not read
        elif each.producer_id is None and each.verdict is not Verdict.CLEAR:
            by_key[None, each.verdict].append(each)
    samples = _Samples(known=known, by_sample=by_sample)
    for _, found in sorted(by_key.items(), key=lambda item: str(item[0])):
        yield samples.lifetime(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """The samples of a partition."""

    known: Mapping[dt.datetime, ObservationTime]  # every sample that did not fail
    by_sample: Mapping[dt.datetime, Sequence[_Sampled]]  # the partition's findings by sample

    def lifetime(self, found: Sequence[_Sampled]) -> _Lifetime:
        """The lifetime of a transaction with these findings."""
        entries: list[EvidenceEntry] = []
        verdict, gone = None, None
        for each, following in zip(found, [*found[1:], None], strict=True):
            if each.verdict != verdict or gone is not None:
                entries.append(_entry(each, "verdict", f"{each.verdict}: {each.reason}"))
            verdict = each.verdict
            gone = self._gone(each, following, entries)
        return _Lifetime(found=found, entries=entries, gone=gone)

    def _gone(self, finding: _Sampled, following: _Sampled | None, entries: list[EvidenceEntry]) -> dt.datetime | None:
        """The first sample that read the partition without a finding; null if `following` comes first, or neither.

        Gaps until then are added to `entries`.
        """
        for observation in self._from(finding.sampled_at):
            sample = observation.next_sampled_at
            if observation.missed:
                entries.append(_entry(finding, "missed", observation.missed))
            if sample is None or (following is not None and sample == following.sampled_at):
                return None
            unread = self._unread(observation)
            if unread is None:
                entries.append(_entry(finding, "gone", f"the sample of {at(sample)} does not have it"))
                return sample
            entries.append(
                _entry(finding, "missed", f"the sample of {at(sample)} could not read the partition ({unread})")
            )
        return None

    def _from(self, sample: dt.datetime | None) -> Iterator[ObservationTime]:
        """Each sample from this one on, until the last, or until one without findings of the partition."""
        while sample is not None and sample in self.by_sample:
            observation = self.known[sample]
            yield observation
            sample = observation.next_sampled_at

    def _unread(self, observation: ObservationTime) -> str | None:
        """Why the next sample could not read the partition; null if it did."""
        found = () if observation.next_sampled_at is None else self.by_sample.get(observation.next_sampled_at, ())
        return unread(found) if found else observation.next_topic_gap


def _entry(finding: _Sampled, name: str, value: str) -> EvidenceEntry:
    return EvidenceEntry(
        source=SOURCE, broker_id=finding.broker_id, observed_at=finding.observed_at, name=name, value=value
    )
