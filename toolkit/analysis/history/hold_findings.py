"""Turn LSO holds of one partition into findings: who held it, since when, for how long, and what that blocked.

A hold that is over has the verdict `ended`. An open hold has the current finding, if there is one: only the
coordinators know what is safe to do.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from toolkit.analysis.diagnosis.decision.decide import decide
from toolkit.analysis.diagnosis.decision.decision import Decision
from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER
from toolkit.analysis.diagnosis.evidence_kinds import EndEvidence, GapEvidence
from toolkit.analysis.history.attribution import NOT_READ, Attribution, attribute, past_cause
from toolkit.analysis.history.findings_over_time import close
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.derived import LsoHold
from toolkit.schema.durations import duration
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.log import PastTransaction
from toolkit.schema.table import TransactionKey

MILLISECOND = dt.timedelta(milliseconds=1)
AT_LEAST = "held_at_least_since"  # evidence name of `toolkit.analysis.diagnosis.evidence.explanation.held_since`
NO_FINDINGS = "the coordinators' response: there is no current finding"
NOT_IN_FINDINGS = "the coordinators' response: the current findings do not include this transaction"


def held_findings(
    holds: Iterable[LsoHold],
    *,
    transaction_history: Mapping[int, Sequence[PastTransaction]] | None = None,
    current_findings: Sequence[Finding] | None = None,
    min_held_ms: int = 0,
) -> list[Finding]:
    """Current findings of one partition, and findings of earlier holds of its LSO.

    `current_findings`, where the finding of the LSO's holder gets evidence from the log; one `ended` finding for each
    hold that is over; and one `unknown` finding for a transaction that is open in the log and missing in
    `current_findings`.
    `holds`: the holds, with the records they blocked.
    `transaction_history`: what became of transactional ids, by producer id; null if no coordinator's log was read.
    `current_findings`: current findings; null without a diagnosis.
    `min_held_ms`: leave out ended transactions that are not proven to have held the LSO for that long.
    """
    by_producer = {each.producer_id: each for each in current_findings or () if each.start_offset is not None}
    found: list[Finding] = []
    replaced: set[tuple[int | None, int | None]] = set()
    for hold in holds:
        held = _AttributedHold.of(hold, _attribution(hold, transaction_history))
        finding = by_producer.get(hold.producer_id)
        same = finding if finding is not None and finding.start_offset == hold.first_offset else None
        if hold.marker_offset is not None:
            if held.at_least_ms < min_held_ms and same is None:
                continue
            found.append(_ended(held, same))
        elif finding is None:
            found.append(_open(held, missing=NO_FINDINGS if current_findings is None else NOT_IN_FINDINGS))
        elif same is not None and same.queue_position == 1:
            found.append(_current(held, same))
        else:
            continue
        if same is not None:
            replaced.add((hold.producer_id, hold.first_offset))
    return [*found, *(each for each in current_findings or () if (each.producer_id, each.start_offset) not in replaced)]


def attributed_holds(
    holds: Iterable[LsoHold], transaction_history: Mapping[int, Sequence[PastTransaction]] | None
) -> list[LsoHold]:
    """Holds with the transactional id and the times that the coordinators' log has of them.

    `holds`: the holds, by the log of their partition. `transaction_history`: as for `held_findings`.
    """
    found = []
    for hold in holds:
        held = _AttributedHold.of(hold, _attribution(hold, transaction_history))
        opened_at, opened_at_clock = held.opening
        found.append(
            replace(
                hold,
                transactional_id=held.attribution.transactional_id,
                opened_at=opened_at,
                opened_at_clock=opened_at_clock,
                held_from=held.held_from,
                held_ms=held.held_ms,
            )
        )
    return found


def merge_holds(of_log: Iterable[LsoHold], of_recording: Iterable[LsoHold]) -> list[LsoHold]:
    """Holds in a log and in a recording: one for each transaction, with the times of the log.

    `of_log`: from `attributed_holds`.
    `of_recording`: from `toolkit.analysis.history.findings_over_time.observed_holds`.
    """
    recorded: dict[TransactionKey, LsoHold] = {}
    found: list[LsoHold] = []
    for hold in of_recording:
        if hold.first_offset is None:
            found.append(hold)  # a partition that could not be read
        else:
            recorded[hold.key] = hold
    for hold in of_log:
        same = recorded.pop(hold.key, None)
        if same is not None and hold.transactional_id is None:
            hold = replace(hold, transactional_id=same.transactional_id)
        found.append(hold)
    return [*found, *recorded.values()]


def _attribution(hold: LsoHold, transaction_history: Mapping[int, Sequence[PastTransaction]] | None) -> Attribution:
    if transaction_history is None:
        return NOT_READ
    return attribute(hold, () if hold.producer_id is None else transaction_history.get(hold.producer_id, ()))


def by_producer(transaction_history: Iterable[PastTransaction]) -> Mapping[int, Sequence[PastTransaction]]:
    """What became of transactional ids, by current and by previous producer id."""
    found: defaultdict[int, list[PastTransaction]] = defaultdict(list)
    for past in transaction_history:
        for producer_id in {past.producer_id, past.previous_producer_id}:
            if producer_id is not None:
                found[producer_id].append(past)
    return found


def held_offsets(hold: LsoHold, *, lso: int | None = None, high_watermark: int | None = None) -> tuple[int, int] | None:
    """The first offset that a hold blocked, and the one after the last; null if the log was not read that far.

    `lso`, `high_watermark`: current offsets of the partition; they bound what an open transaction blocks. Null if
    unknown.
    """
    first, end = hold.first_offset, hold.log_end_offset
    if hold.truncated or first is None:
        return None
    if hold.marker_offset is not None:
        return first, hold.marker_offset
    first = max(first, first if lso is None else lso)
    stop = end if high_watermark is None else high_watermark
    return None if stop is None or end is None or stop > end else (first, max(first, stop))


@dataclass(frozen=True, slots=True, kw_only=True)
class _AttributedHold:
    """A hold with its owner, and its times, corrected by the coordinator's."""

    hold: LsoHold
    attribution: Attribution
    held_from: dt.datetime | None
    held_ms: int | None

    @staticmethod
    def of(hold: LsoHold, attribution: Attribution) -> _AttributedHold:
        held_from = hold.held_from
        started = None if attribution.history is None else attribution.history.start_time
        if started is not None and hold.after_offset is None:
            held_from = _not_before(held_from, started)
        if held_from is None or hold.held_to is None:
            return _AttributedHold(hold=hold, attribution=attribution, held_from=held_from, held_ms=None)
        held_from = min(held_from, hold.held_to)
        held_ms = (hold.held_to - held_from) // MILLISECOND
        return _AttributedHold(hold=hold, attribution=attribution, held_from=held_from, held_ms=held_ms)

    @property
    def at_least_ms(self) -> int:
        """The proven minimum of its duration."""
        return (self.hold.least_ms or 0) if self.held_ms is None else self.held_ms

    @property
    def as_of(self) -> dt.datetime:
        """The newest time in the log."""
        known = self.hold.as_of or self.held_from or self.hold.opened_at
        return known or dt.datetime.fromtimestamp(0, dt.UTC)

    @property
    def opening(self) -> tuple[dt.datetime | None, str | None]:
        """When it opened, and by whose clock."""
        history = self.attribution.history
        if history is not None and history.start_time is not None:
            return history.start_time, "coordinator"
        return self.hold.opened_at, self.hold.opened_at_clock

    @property
    def name(self) -> str:
        name = self.attribution.transactional_id
        producer = f"producer {self.hold.producer_id} epoch {self.hold.producer_epoch}"
        return producer.capitalize() if name is None else f'"{name}" ({producer})'

    def finding(self, decision: Decision) -> Finding:
        """Its finding with a decision, as of the end of the hold or of the log."""
        hold, (opened_at, opened_at_clock) = self.hold, self.opening
        is_open = hold.marker_offset is None
        return replace(
            decision.finding(observed_at=self.as_of),
            topic=hold.topic,
            partition=hold.partition,
            producer_id=hold.producer_id,
            producer_epoch=hold.producer_epoch,
            transactional_id=self.attribution.transactional_id,
            start_offset=hold.first_offset,
            queue_position=1 if is_open else None,
            last_stable_offset=hold.first_offset if is_open else None,
            offsets_held=_difference(hold.first_offset, hold.log_end_offset if is_open else hold.marker_offset),
            cause=None if is_open else past_cause(hold, self.attribution),
            evidence=tuple(_evidence(self)),
            opened_at=opened_at,
            opened_at_clock=opened_at_clock,
            records_held=hold.records_held,
            bytes_held=hold.bytes_held,
            held_from=self.held_from,
            held_to=hold.held_to,
            held_ms=_between(self.held_from, self.as_of) if is_open else self.held_ms,
            broker_id=hold.broker_id,
            error=hold.error,
        )


def _ended(held: _AttributedHold, finding: Finding | None) -> Finding:
    """The finding of a hold that is over; its current finding becomes evidence."""
    hold = held.hold
    marker = f"its {hold.marker} marker" if hold.marker else "its marker"
    end = f"{held.name} held the LSO {_duration(held)} until {marker} at offset {hold.marker_offset}. "
    end += held.attribution.sentence
    ended = held.finding(decide(EndEvidence(proof=end)))
    if finding is None:
        return ended
    known = replace(ended, transactional_id=ended.transactional_id or finding.transactional_id)
    return close(known, end=end, before=finding)


def _open(held: _AttributedHold, *, missing: str) -> Finding:
    """The finding of a transaction open at the log end: the log does not show whether its coordinator will end it."""
    reason = f"{held.name} held the LSO at the end of the log that was read. {held.attribution.sentence}"
    return held.finding(decide(GapEvidence(reason=reason, missing=(missing,))))


def _current(held: _AttributedHold, finding: Finding) -> Finding:
    """A current finding, which rests on an excerpt around the LSO at most, with evidence from the complete log."""
    hold = held.hold
    finding = replace(
        finding,
        records_held=hold.records_held if finding.records_held is None else finding.records_held,
        bytes_held=hold.bytes_held if finding.bytes_held is None else finding.bytes_held,
    )
    at_least = any(entry.name == AT_LEAST for entry in finding.evidence)
    held_from = _current_held_from(hold, finding)
    if held_from is None or (finding.held_from is not None and not at_least):
        return finding
    return replace(
        finding,
        evidence=(*(entry for entry in finding.evidence if entry.name != AT_LEAST), *_since(held)),
        held_from=held_from,
        held_ms=_between(held_from, finding.brokers_time),
    )


def _current_held_from(hold: LsoHold, finding: Finding) -> dt.datetime | None:
    held_from = hold.held_from
    if hold.after_offset is not None:
        return held_from
    now = finding.brokers_time
    is_ahead = held_from is not None and now is not None and held_from > now + CLOCKS_DIFFER
    if is_ahead and hold.opened_at_clock == "producer":
        held_from = hold.not_before
    if finding.opened_at_clock != "coordinator" or finding.opened_at is None:
        return held_from
    return _not_before(held_from, finding.opened_at)


def _duration(held: _AttributedHold) -> str:
    if held.held_ms is not None:
        return f"for {duration(held.held_ms * MILLISECOND)}"
    least = held.at_least_ms
    return f"for at least {duration(least * MILLISECOND)}" if least else "for an unknown time"


def _evidence(held: _AttributedHold) -> Iterator[EvidenceEntry]:
    """Evidence: batches of the log and records of the coordinator."""
    hold, history = held.hold, held.attribution.history
    if not hold.truncated:
        clock = f" by the {hold.start_clock}'s clock" if hold.start is not None and hold.start_clock else ""
        text = f"offset {hold.first_offset}: epoch {hold.first_epoch}, sequence {hold.first_sequence}"
        yield _entry(held, "first_batch", f"{text}, {_time(hold.start)}{clock}")
    yield from _since(held)
    if hold.marker_offset is not None:
        text = f"offset {hold.marker_offset}: {hold.marker or 'not read'}, epoch {hold.marker_epoch}"
        text += f", coordinator epoch {hold.coordinator_epoch}, {_time(hold.held_to)}"
        yield _entry(held, "marker", text)
    if history is not None:
        text = f"{STATE_TOPIC}-{history.txn_state_partition} offsets {history.first_offset}.."
        text += f"{history.last_offset}: {history.state}, started {_time(history.start_time)}, "
        text += f"decided {_time(history.decided_at)}, ended {_time(history.end_time)}"
        yield EvidenceEntry(
            source=STATE_TOPIC,
            broker_id=history.broker_id,
            observed_at=history.end_time or history.start_time,
            name="records",
            value=text,
        )


def _since(held: _AttributedHold) -> Iterator[EvidenceEntry]:
    offset = held.hold.after_offset
    if offset is not None:
        text = f"offset {offset}: marker of the transaction that held the LSO before, {_time(held.hold.held_from)}"
        yield _entry(held, "held_since", text)


def _entry(held: _AttributedHold, name: str, value: str) -> EvidenceEntry:
    return EvidenceEntry(source="log", broker_id=held.hold.broker_id, observed_at=held.as_of, name=name, value=value)


def _not_before(first_batch: dt.datetime | None, started: dt.datetime) -> dt.datetime:
    """The time of the first batch, or the coordinator's start time if the first batch's time precedes it."""
    return started if first_batch is None or first_batch < started - CLOCKS_DIFFER else first_batch


def _between(start: dt.datetime | None, end: dt.datetime | None) -> int | None:
    if start is None or end is None or start > end + CLOCKS_DIFFER:
        return None
    return max((end - start) // MILLISECOND, 0)


def _difference(first: int | None, end: int | None) -> int | None:
    return None if first is None or end is None else end - first


def _time(time: dt.datetime | None) -> str:
    return "time unknown" if time is None else time.astimezone(dt.UTC).isoformat(timespec="milliseconds")
