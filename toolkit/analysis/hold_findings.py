"""Which transaction held a partition's LSO, from and to when, by the partition's log; and the findings of these holds.

The lowest open transaction holds the LSO: from its first batch if no other transaction was open then, otherwise from
the last marker of the transactions that opened before it. The order of the log decides; the time is that of the batch
or marker. Markers carry the time of the partition's leader. The first batch carries its producer's time, which the
markers around it bound, as in `toolkit.analysis.diagnosis.causes.held_since`.

As in `log.lso_timeline`, a transaction that may have begun before the range read begins with its first batch in that
range, and replication is not considered.

A hold that is over has the verdict `ended`. An open hold has the current finding, if there is one: only the
coordinators know what is safe to do.

Whose a hold was, the coordinators' log shows. Kafka assigns a producer id to one transactional id only, so a record
with the producer id proves the transactional id. Epoch, partition, outcome and times select one of the id's
transactions; if several fit, none is selected. Why one that has ended held the LSO is said in the names of
`toolkit.analysis.diagnosis.decision.CAUSES`.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa

from toolkit.analysis.diagnosis.causes import Cause, cause_of, habit
from toolkit.analysis.diagnosis.decision import Decision, decide_ended, decide_open_after_marker, decide_unknown
from toolkit.analysis.findings_over_time import close
from toolkit.analysis.log.log_transactions import (
    CLOCKS,
    LOG_TRANSACTION,
    LogArray,
    LogTransactionField,
    LogTransactions,
    log_transaction_table,
)
from toolkit.analysis.transaction_owners import PREPARE_GRACE, TWO_PHASE_COMMIT
from toolkit.formats.coordinator_records import OFFSETS_TOPIC, STATE_TOPIC
from toolkit.formats.headers import Array, StructuredArray, arrow_table, concatenate, labels, numbers, times
from toolkit.schema import LSO_HOLDS
from toolkit.schema.durations import CLOCKS_DIFFER, duration, elapsed_ms
from toolkit.schema.live import EvidenceEntry, Finding
from toolkit.schema.log import PastTransaction
from toolkit.schema.recorded import LOG_TRANSACTION_COLUMNS, LsoHold
from toolkit.schema.table import EPOCH, LAST_TIME, TransactionKey

NEVER = np.iinfo(np.int64).max
DIFFER_MS = int(CLOCKS_DIFFER.total_seconds() * 1000)
BROKER = CLOCKS.index("broker")
OwnField = Literal[
    "after_offset",
    "not_before",  # ms, as all times
    "not_after",
    "opened_at",
    "opened_at_clock",  # as start_clock
    "held_from",
    "held_ms",
    "least_ms",
    "as_of",
    "records_held",
    "bytes_held",
]
HoldField = LogTransactionField | OwnField
HOLD = np.dtype([*LOG_TRANSACTION.descr, *((name, "i8") for name in get_args(OwnField))])
"""One row per transaction that held or holds the LSO of its log, as `LSO_HOLDS`; -1 is unknown."""

Holds: TypeAlias = StructuredArray[HoldField]
"""A structured array of `HOLD`."""

NO_HOLDS: Holds = np.zeros(0, HOLD)


def lso_holds(*ranges: LogTransactions, min_held_ms: int = 0) -> Holds:
    """Every transaction that held the LSO of one log for long enough, or still does, by first offset.

    `*ranges`: transactions of one log, in any order; if it has missing offsets, those of each range between them. Only
        those open at the end of the last range are known to be open.
    `min_held_ms`: leave out ended transactions that held the LSO for less; those with an unknown duration stay.
    """
    found = [candidates(each, min_held_ms=min_held_ms) for each in ranges]
    found[:-1] = [each[each["marker_offset"] >= 0] for each in found[:-1]]
    return without_short_holds(concatenate(found, HOLD), min_held_ms=min_held_ms)


def candidates(log_transactions: LogTransactions, *, start: int = 0, min_held_ms: int = 0) -> Holds:
    """Candidates for holds from one range of a log; `without_short_holds` selects from the candidates of all ranges.

    They include holds of any duration that need the time of a marker in another range. The first and the last marker of
    this range are rows without first_offset.
    `log_transactions`: of one log, in any order; the transactions in the range are enough.
    `start`: only transactions that became the lowest at a batch or marker from this offset on, so each is in one range.
    `min_held_ms`: as for `lso_holds`.
    """
    marker_times = _MarkerTimes.of(log_transactions, start)
    first, marker = log_transactions["first_offset"], log_transactions["marker_offset"]
    rows = np.flatnonzero(first >= 0)
    rows = rows[np.argsort(first[rows], kind="stable")]
    end = np.where(marker[rows] < 0, NEVER, marker[rows])
    before = np.concatenate(([-1], np.maximum.accumulate(end)))[: len(end)]
    lowest = np.flatnonzero(end > before)  # ends after every transaction that opened before it
    rows, before = rows[lowest], before[lowest]
    first = first[rows]
    alone = first > before  # no other transaction was open when it opened
    became_at = np.where(alone, first, before)  # offset of the batch or marker that made it the lowest
    time_before = np.concatenate(([-1], _known_times(log_transactions["end"])[rows]))[: len(rows)]
    found = _unknown_holds(len(rows))
    for name in get_args(LogTransactionField):
        found[name] = log_transactions[name][rows]
    found["after_offset"] = np.where(alone, -1, became_at)
    found["not_before"] = np.where(alone, marker_times.before(first), -1)
    # If it was not alone, the markers around its first batch may be anywhere before.
    found["not_after"] = np.where(alone, marker_times.after(first), time_before)
    _set_times(found)
    bounded = ~alone | (found["not_after"] >= 0)  # with a marker before it, it can only turn out shorter
    found = found[(became_at >= start) & (~bounded | _long_enough(found, min_held_ms))]
    return concatenate((found, marker_times.ends()), HOLD)


def without_short_holds(found: Holds, *, min_held_ms: int = 0) -> Holds:
    """The holds of one log, from the `candidates` of all its ranges, by first offset.

    `found`: in any order. `min_held_ms`: as for `lso_holds`.
    """
    marker_times = _MarkerTimes.of(found)
    found = found[found["first_offset"] >= 0]
    found = found[np.argsort(found["first_offset"], kind="stable")]
    first, alone = found["first_offset"], found["after_offset"] < 0
    before, after = found["not_before"], found["not_after"]
    found["not_before"] = np.where(alone & (before < 0), marker_times.before(first), before)
    found["not_after"] = np.where(alone & (after < 0), marker_times.after(first), after)
    found["as_of"] = marker_times.times[-1] if len(marker_times.times) else -1
    _set_times(found)
    return found[_long_enough(found, min_held_ms)]


def hold_table(log: LogArray, *, log_end_offset: int | None) -> pa.Table:
    """Holds of a log as an Arrow table with exactly the columns of ``schema.LSO_HOLDS``.

    `log_end_offset`: of the log, for those that are open.
    """
    holds: Holds = log.rows
    log_transactions = log_transaction_table(log).select(LOG_TRANSACTION_COLUMNS)
    amounts: tuple[OwnField, ...] = ("after_offset", "held_ms", "least_ms", "records_held", "bytes_held")
    own_times: tuple[OwnField, ...] = ("not_before", "not_after", "opened_at", "held_from", "as_of")
    is_open = holds["marker_offset"] < 0
    columns = {
        **dict(zip(log_transactions.column_names, log_transactions.columns, strict=True)),
        **{name: numbers(holds[name]) for name in amounts},
        **{name: times(holds[name]) for name in own_times},
        "opened_at_clock": labels(holds["opened_at_clock"], CLOCKS),
        "held_to": times(holds["end"]),
        "log_end_offset": numbers(np.where(is_open, -1 if log_end_offset is None else log_end_offset, -1)),
    }
    return arrow_table(LSO_HOLDS, columns, rows=len(holds))


def marker_rows(offsets: Array | list[int], times: Array | list[int]) -> Holds:
    """Markers as candidates for holds, which they bound: rows without first_offset."""
    found = _unknown_holds(len(offsets))
    found["marker_offset"], found["end"] = offsets, times
    return found


def _unknown_holds(count: int) -> Holds:
    found: Holds = np.full(count, -1, HOLD)
    return found


def _known_times(milliseconds: Array) -> Array:
    """Times, with -1 for what no clock can say, as `toolkit.formats.headers.times`."""
    return np.where((milliseconds < 0) | (milliseconds > LAST_TIME), -1, milliseconds)


def _set_times(found: Holds) -> None:
    """Set the times that follow from the markers around each first batch."""
    alone, not_after = found["after_offset"] < 0, found["not_after"]
    end = _known_times(found["end"])
    until: Array = np.where(end >= 0, end, found["as_of"])
    opened_at, found["opened_at_clock"] = _openings(found)
    held_from: Array = np.where(alone, opened_at, not_after)
    held_from = np.where(end >= 0, np.minimum(held_from, end), held_from)
    found["opened_at"], found["held_from"] = opened_at, held_from
    found["held_ms"] = np.where((end >= 0) & (held_from >= 0), end - held_from, -1)
    found["least_ms"] = np.where((until >= 0) & (not_after >= 0), np.maximum(until - not_after, 0), -1)


def _openings(found: Holds) -> tuple[Array, Array]:
    """When they opened, and by whose clock: the producer's only if the markers around the first batch allow it."""
    not_before, not_after, start = found["not_before"], found["not_after"], _known_times(found["start"])
    by_broker = found["start_clock"] == BROKER
    allowed = (not_before < 0) | (start >= not_before - DIFFER_MS)
    allowed &= (not_after < 0) | (start <= not_after + DIFFER_MS)
    is_plausible = (start >= 0) & (by_broker | allowed)
    clock = np.where(is_plausible, found["start_clock"], np.where(not_before >= 0, BROKER, -1))
    return np.where(is_plausible, start, not_before), clock


def _long_enough(found: Holds, min_held_ms: int) -> Array:
    return (found["held_ms"] < 0) | (found["held_ms"] >= min_held_ms)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _MarkerTimes:
    """Markers with a time, in the order of the log."""

    offsets: Array
    times: Array

    @staticmethod
    def of(log_transactions: LogTransactions, start: int = 0) -> _MarkerTimes:
        """Those from an offset on."""
        offsets, ends = log_transactions["marker_offset"], _known_times(log_transactions["end"])
        rows = np.flatnonzero((offsets >= start) & (ends >= 0))
        rows = rows[np.argsort(offsets[rows], kind="stable")]
        return _MarkerTimes(offsets=offsets[rows], times=ends[rows])

    def before(self, offsets: Array) -> Array:
        """Time of the last marker before each offset; -1 if there is none."""
        return np.concatenate(([-1], self.times))[np.searchsorted(self.offsets, offsets)]

    def after(self, offsets: Array) -> Array:
        """Time of the first marker after each offset; -1 if there is none."""
        return np.concatenate((self.times, [-1]))[np.searchsorted(self.offsets, offsets)]

    def ends(self) -> Holds:
        """The first and the last marker, as rows without first offset."""
        rows = [0, -1] if len(self.offsets) else []
        return marker_rows(self.offsets[rows], self.times[rows])


AT_LEAST = "held_at_least_since"  # evidence name of `toolkit.analysis.diagnosis.causes.held_since`
NO_FINDINGS = "the coordinators' response: there is no current finding"
NOT_IN_FINDINGS = "the coordinators' response: the current findings do not include this transaction"

# By marker; a transaction that is open or has no known end may have ended on this partition already.
ENDED: Mapping[str | None, Collection[str | None]] = {
    "COMMIT": {"commit", "open", "stuck", None},
    "ABORT": {"abort", "timeout", "fence", "open", "stuck", None},
}
NOT_ENDED = {"open", "stuck", None}
MAX_EPOCH_RAISE = 2  # of a marker above its transaction's epoch: 2 in Kafka 4.0.0, else 1
NO_TIME, ONE_SECOND = dt.timedelta(0), dt.timedelta(seconds=1)
MILLISECOND = dt.timedelta(milliseconds=1)


History = Mapping[int, Sequence[PastTransaction]]
"""What became of transactional ids, by current and by previous producer id."""


def by_producer(transaction_history: Iterable[PastTransaction]) -> History:
    """What became of transactional ids, by current and by previous producer id."""
    found: defaultdict[int, list[PastTransaction]] = defaultdict(list)
    for past in transaction_history:
        for producer_id in {past.producer_id, past.previous_producer_id}:
            if producer_id is not None:
                found[producer_id].append(past)
    return found


def held_findings(
    holds: Iterable[LsoHold],
    *,
    transaction_history: History | None = None,
    current_findings: Sequence[Finding] | None = None,
    min_held_ms: int = 0,
) -> list[Finding]:
    """Current findings, and findings of earlier holds of the LSO of their partitions.

    `current_findings`, where the finding of the LSO's holder gets evidence from the log; one `ended` finding for each
    hold that is over; and one `unknown` finding for a transaction that is open in the log and missing in
    `current_findings`.
    `holds`: the holds of one log of each partition, with the records they blocked.
    `transaction_history`: from `by_producer`; null if no coordinator's log was read.
    `current_findings`: current findings of the same log directories or cluster; null without a diagnosis.
    `min_held_ms`: leave out ended transactions that are not proven to have held the LSO for that long.
    """
    of_open = [each for each in current_findings or () if each.start_offset is not None]
    current = {(each.topic, each.partition, each.producer_id): each for each in of_open}
    found: list[Finding] = []
    replaced: set[TransactionKey] = set()
    for raw in holds:
        finding = current.get((raw.topic, raw.partition, raw.producer_id))
        same = finding if finding is not None and finding.start_offset == raw.first_offset else None
        hold, attribution = _attributed(raw, transaction_history)
        if hold.marker_offset is not None:
            held_ms = hold.least_ms if hold.held_ms is None else hold.held_ms
            if (held_ms or 0) < min_held_ms and same is None:
                continue
            found.append(_ended(hold, attribution, held_ms or 0, same))
        elif finding is None:  # the log does not show whether its coordinator will end it
            reason = f"{_name(hold)} held the LSO at the end of the log that was read. {attribution.sentence}"
            missing = NO_FINDINGS if current_findings is None else NOT_IN_FINDINGS
            found.append(_finding(hold, attribution, decide_unknown(reason, missing=(missing,))))
        elif same is not None and same.queue_position == 1:
            found.append(_current(raw, same))
        else:
            continue
        if same is not None:
            replaced.add(raw.key)
    return [*found, *(each for each in current_findings or () if each.key not in replaced)]


def attributed_holds(holds: Iterable[LsoHold], transaction_history: History | None) -> list[LsoHold]:
    """Holds with the transactional id and the times that the coordinators' log has of them.

    `holds`: the holds, by the log of their partition. `transaction_history`: as for `held_findings`.
    """
    return [_attributed(hold, transaction_history)[0] for hold in holds]


def merge_holds(
    of_log: Iterable[LsoHold], of_recording: Iterable[LsoHold], *, still_open: Collection[TransactionKey] = ()
) -> list[LsoHold]:
    """Holds in a log and in a recording: one for each transaction, with the times of the log.

    `of_log`: from `attributed_holds`.
    `of_recording`: from `toolkit.analysis.findings_over_time.observed_holds`.
    `still_open`: the transactions that are open by both together: a marker in the log may be lost on its leader.
    """
    recorded = list(of_recording)
    by_key = {hold.key: hold for hold in recorded if hold.first_offset is not None}
    found = [hold for hold in recorded if hold.first_offset is None]  # partitions that could not be read
    for hold in of_log:
        same = by_key.pop(hold.key, hold)
        is_open, is_in_log = hold.key in still_open, hold.marker_offset is None
        hold = same if is_open and not is_in_log else held_so_far(hold, same.held_ms, same.least_ms)
        if is_in_log and same.held_to is not None and not is_open:  # a sample after the end of the log has read its end
            hold = replace(hold, held_to=same.held_to, held_ms=hold.least_ms)
        found.append(replace(hold, transactional_id=hold.transactional_id or same.transactional_id))
    return [*found, *by_key.values()]


def held_so_far(hold: LsoHold, *held_ms: int | None) -> LsoHold:
    """A hold; if it is open, with the longest of these times as `least_ms`: no marker may follow it in the log."""
    times = [each for each in (hold.least_ms, *held_ms) if each is not None]
    return hold if hold.marker_offset is not None else replace(hold, least_ms=max(times, default=None))


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


def _attributed(hold: LsoHold, transaction_history: History | None) -> tuple[LsoHold, Attribution]:
    """A hold with its transactional id and its times, corrected by the coordinator's."""
    attribution = NOT_READ
    if transaction_history is not None:
        attribution = attribute(hold, () if hold.producer_id is None else transaction_history.get(hold.producer_id, ()))
    hold = replace(hold, transactional_id=attribution.transactional_id)
    started = None if attribution.history is None else attribution.history.start_time
    if started is not None:
        held_from = _not_before(hold.held_from, started) if hold.after_offset is None else hold.held_from
        hold = replace(hold, held_from=held_from, opened_at=started, opened_at_clock="coordinator")
    if hold.held_from is None or hold.held_to is None:
        return replace(hold, held_ms=None), attribution
    held_from = min(hold.held_from, hold.held_to)
    return replace(hold, held_from=held_from, held_ms=elapsed_ms(held_from, hold.held_to)), attribution


def _finding(hold: LsoHold, attribution: Attribution, decision: Decision) -> Finding:
    """The finding of a hold with a decision, as of the end of the log that was read."""
    is_open, as_of = hold.marker_offset is None, _as_of(hold)
    end = hold.log_end_offset if is_open else hold.marker_offset
    cause = None if is_open else cause_of(list(_causes(hold, attribution)))
    return Finding.of_record(
        hold,
        **decision.parts,
        start_offset=hold.first_offset,
        queue_position=1 if is_open else None,
        last_stable_offset=hold.first_offset if is_open else None,
        offsets_held=None if hold.first_offset is None or end is None else end - hold.first_offset,
        cause=None if cause is None else cause.text,
        evidence=tuple(_evidence(hold, attribution)),
        held_ms=elapsed_ms(hold.held_from, as_of, differ=CLOCKS_DIFFER) if is_open else hold.held_ms,
        observed_at=as_of,
    )


def _as_of(hold: LsoHold) -> dt.datetime:
    """The newest time in the log."""
    return hold.as_of or hold.held_from or hold.opened_at or EPOCH


def _name(hold: LsoHold) -> str:
    producer = f"producer {hold.producer_id} epoch {hold.producer_epoch}"
    return producer.capitalize() if hold.transactional_id is None else f'"{hold.transactional_id}" ({producer})'


def _ended(hold: LsoHold, attribution: Attribution, least_ms: int, finding: Finding | None) -> Finding:
    """The finding of a hold that is over; its current finding becomes evidence."""
    marker = f"its {hold.marker} marker" if hold.marker else "its marker"
    time = f"for at least {duration(least_ms * MILLISECOND)}" if least_ms else "for an unknown time"
    if hold.held_ms is not None:
        time = f"for {duration(hold.held_ms * MILLISECOND)}"
    end = f"{_name(hold)} held the LSO {time} until {marker} at offset {hold.marker_offset}. {attribution.sentence}"
    ended = _finding(hold, attribution, decide_ended(end))
    if finding is None:
        return ended
    if (decision := decide_open_after_marker(finding, hold.held_to, end=end)) is not None:
        return decision.applied_to(finding)
    known = replace(ended, transactional_id=ended.transactional_id or finding.transactional_id)
    return close(known, end=end, before=finding)


def _current(hold: LsoHold, finding: Finding) -> Finding:
    """A current finding, which rests on an excerpt around the LSO at most, with evidence from the complete log."""
    finding = replace(
        finding,
        records_held=hold.records_held if finding.records_held is None else finding.records_held,
        bytes_held=hold.bytes_held if finding.bytes_held is None else finding.bytes_held,
    )
    held_from, now = hold.held_from, finding.brokers_time
    if hold.after_offset is None:  # since its first batch
        is_ahead = held_from is not None and now is not None and held_from > now + CLOCKS_DIFFER
        if is_ahead and hold.opened_at_clock == "producer":
            held_from = hold.not_before
        if finding.opened_at_clock == "coordinator" and finding.opened_at is not None:
            held_from = _not_before(held_from, finding.opened_at)
    at_least = any(entry.name == AT_LEAST for entry in finding.evidence)
    if held_from is None or (finding.held_from is not None and not at_least):
        return finding
    return replace(
        finding,
        evidence=(*(entry for entry in finding.evidence if entry.name != AT_LEAST), *_since(hold)),
        held_from=held_from,
        held_ms=elapsed_ms(held_from, now, differ=CLOCKS_DIFFER),
    )


def _evidence(hold: LsoHold, attribution: Attribution) -> Iterator[EvidenceEntry]:
    """Evidence: batches of the log and records of the coordinator."""
    if not hold.truncated:
        clock = f" by the {hold.start_clock}'s clock" if hold.start is not None and hold.start_clock else ""
        text = f"offset {hold.first_offset}: epoch {hold.first_epoch}, sequence {hold.first_sequence}"
        yield _entry(hold, "first_batch", f"{text}, {_time(hold.start)}{clock}")
    yield from _since(hold)
    if hold.marker_offset is not None:
        text = f"offset {hold.marker_offset}: {hold.marker or 'not read'}, epoch {hold.marker_epoch}"
        text += f", coordinator epoch {hold.coordinator_epoch}, {_time(hold.held_to)}"
        yield _entry(hold, "marker", text)
    if (history := attribution.history) is not None:
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


def _since(hold: LsoHold) -> Iterator[EvidenceEntry]:
    if hold.after_offset is not None:
        text = (
            f"offset {hold.after_offset}: marker of the transaction that held the LSO before, {_time(hold.held_from)}"
        )
        yield _entry(hold, "held_since", text)


def _entry(hold: LsoHold, name: str, value: str) -> EvidenceEntry:
    return EvidenceEntry(source="log", broker_id=hold.broker_id, observed_at=_as_of(hold), name=name, value=value)


def _not_before(first_batch: dt.datetime | None, started: dt.datetime) -> dt.datetime:
    """The time of the first batch, or the coordinator's start time if the first batch's time precedes it."""
    return started if first_batch is None or first_batch < started - CLOCKS_DIFFER else first_batch


def _time(time: dt.datetime | None) -> str:
    return "time unknown" if time is None else time.astimezone(dt.UTC).isoformat(timespec="milliseconds")


# Whose a hold was, and why.


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The owner of a transaction, and how the transaction ended."""

    transactional_id: str | None = None  # null if no record has the producer id, or records of several ids have it
    history: PastTransaction | None = None  # the coordinator's transaction; null if none fits, or several do
    # whether the coordinator may have known the transaction: false if its records of that time are complete and none
    # fits
    was_known: bool = True
    sentence: str  # how the transaction ended, or what is missing to tell


NOT_READ = Attribution(sentence=f"No record of {STATE_TOPIC} was read.")


def attribute(hold: LsoHold, transaction_history: Iterable[PastTransaction]) -> Attribution:
    """Find the coordinator's transaction that held the LSO of a partition.

    `transaction_history`: what became of transactional ids; that of other producer ids is ignored.
    """
    events = [each for each in transaction_history if hold.producer_id in (each.producer_id, each.previous_producer_id)]
    ids = sorted({each.transactional_id for each in events})
    if not ids:
        return Attribution(sentence=f"No record read from {STATE_TOPIC} has its producer id.")
    if len(ids) > 1:
        return Attribution(sentence=f"Records of {len(ids)} transactional ids have its producer id: {', '.join(ids)}.")
    fitting = _fitting(hold, events)
    history = fitting[0] if len(fitting) == 1 else None
    was_known = bool(fitting) or not _has_all_records(hold, events)
    if history is not None:
        why = history.reason
    elif fitting:
        why = f"{len(fitting)} transactions of its transactional id fit; the records do not show which it was."
    elif was_known:
        why = (
            "No transaction of its transactional id fits: its coordinator did not know of it, or its records are gone."
        )
    else:
        why = "Its coordinator did not know of it: the records of that time are complete, and none has this partition."
    return Attribution(transactional_id=ids[0], history=history, was_known=was_known, sentence=why)


def _fitting(hold: LsoHold, events: Sequence[PastTransaction]) -> Sequence[PastTransaction]:
    """The transactions that fit; if several do, only those with more evidence."""
    of_producer = [each for each in events if each.kind == "transaction" and each.producer_id == hold.producer_id]
    once = {(each.txn_state_partition, each.first_offset): each for each in of_producer}  # one of several replicas
    found = [each for each in once.values() if _may_be(hold, each)]
    narrower: tuple[Callable[[PastTransaction], bool], ...] = (
        lambda past: past.producer_epoch == hold.producer_epoch,
        lambda past: _has_partition(hold, past) is True,
        lambda past: _ended_within(hold, past, NO_TIME),
    )
    for fits in narrower:
        if len(found) > 1:
            found = [each for each in found if fits(each)] or found
    return found


def _may_be(hold: LsoHold, past: PastTransaction) -> bool:
    """Whether nothing shows that the hold is of another transaction."""
    # It may have ended as the marker shows; an unread marker fits every end.
    ends = NOT_ENDED if hold.marker_offset is None else ENDED.get(hold.marker, {past.ended})
    # It has the epoch of the data, or a newer epoch, whose marker also ends data of an older one.
    epoch, data, marker = past.producer_epoch, hold.producer_epoch, hold.marker_epoch
    has_epoch = epoch is None or data is None or epoch == data
    if not has_epoch and epoch is not None and data is not None and marker is not None:
        has_epoch = data < epoch <= marker <= epoch + MAX_EPOCH_RAISE
    return (
        past.ended in ends
        and has_epoch
        and _has_partition(hold, past) is not False
        and _lasted(past, hold.least_ms, differ=CLOCKS_DIFFER)
        and (
            _ended_within(hold, past, NO_TIME)
            or (_ended_within(hold, past, CLOCKS_DIFFER) and _lasted_until_marker(hold, past))
        )
    )


def _has_partition(hold: LsoHold, past: PastTransaction) -> bool | None:
    """Whether it included the partition; null if its records no longer show that."""
    if past.topic_partitions is None:
        return None
    return (hold.topic, hold.partition) in past.topic_partitions


def _ended_within(hold: LsoHold, past: PastTransaction, differ: dt.timedelta) -> bool:
    """Whether the marker was written while the transaction's markers were, give or take `differ` between two clocks."""
    marker = hold.held_to
    start, end = past.decided_at or past.start_time, past.end_time
    if marker is None:
        return True
    return (start is None or start <= marker + differ) and (end is None or marker <= end + differ)


def _lasted_until_marker(hold: LsoHold, past: PastTransaction) -> bool:
    """Whether it lasted from the first batch to the marker, give or take a second or a tenth of that time."""
    # Otherwise `opened_at` is only the time of the marker before it.
    is_first_batch_time = hold.opened_at_clock == hold.start_clock
    if not is_first_batch_time or hold.opened_at is None or hold.held_to is None:
        return True
    least_ms = (hold.held_to - hold.opened_at) // MILLISECOND
    return _lasted(past, least_ms, differ=max(ONE_SECOND, least_ms * MILLISECOND / 10))


def _lasted(past: PastTransaction, least_ms: int | None, *, differ: dt.timedelta) -> bool:
    """Whether it lasted at least `least_ms` by its coordinator's clock, give or take `differ`."""
    start, end = past.start_time, past.end_time
    if least_ms is None or start is None or end is None:
        return True
    return end - start + differ >= least_ms * MILLISECOND


def _has_all_records(hold: LsoHold, events: Sequence[PastTransaction]) -> bool:
    """Whether the id's records from before to after the hold are complete, and none may have the partition.

    Compaction keeps the last record of an id in the cleaned part, so no record after the first one left is missing.
    """
    opened, marker = hold.opened_at, hold.held_to
    if opened is None or marker is None or any(each.error for each in events):
        return False
    begins = opened - CLOCKS_DIFFER
    ends = marker + CLOCKS_DIFFER
    has_earlier = any(each.end_time is not None and each.end_time < begins for each in events)
    has_later = any((each.start_time or each.end_time or begins) > ends for each in events)
    return (
        has_earlier
        and has_later
        and not any(  # a transaction of that time that may have included the partition
            each.kind == "transaction"
            and _has_partition(hold, each) is not False
            and (each.start_time is None or each.start_time <= ends)
            and (each.end_time is None or each.end_time >= begins)
            for each in events
        )
    )


def _causes(hold: LsoHold, attribution: Attribution) -> Iterator[Cause]:
    """Why a hold that is over lasted."""
    past, first, epoch = attribution.history, hold.first_epoch, hold.producer_epoch
    if not attribution.was_known:
        text = "its coordinator did not know of it: a batch came late or was resent, or its partition was never added"
        yield Cause(text=text, names=("late-after-commit", "late-after-abort", "never-added"))
    if first is not None and epoch is not None and first < epoch:
        text = f"mixed epochs in one transaction: epoch {first} opened it, and epoch {epoch} wrote into it"
        yield Cause(text=text)
    if past is not None:
        if past.producer_epoch is not None and epoch is not None and past.producer_epoch > epoch:
            text = (
                f"superseded epoch: the marker of epoch {past.producer_epoch} decided what epoch {epoch} had left open"
            )
            yield Cause(text=f"{text}, and made it visible" if hold.marker == "COMMIT" else text)
        if past.ended == "timeout":
            yield Cause(text="its client did not end it in time", names=("client-too-slow",))
        if past.ended == "fence":
            yield Cause(text="its client left it open, until a new instance took over the id")
        if past.decided_at is not None and hold.held_to is not None and hold.held_to - past.decided_at > PREPARE_GRACE:
            took = duration(hold.held_to - past.decided_at)
            names = ("marker-not-written", *(("marker-not-sent",) if past.client_transaction_version == 2 else ()))
            yield Cause(text=f"its coordinator had decided, and took {took} to write its marker", names=names)
        if past.timeout_ms == TWO_PHASE_COMMIT:
            text = "a two-phase commit: its external coordinator took that long to decide"
            yield Cause(text=text, names=("two-phase-commit",))
    if hold.topic == OFFSETS_TOPIC:
        yield Cause(text="it held offsets of consumer groups", names=("group-offsets",))
    if past is not None and past.ended in {"timeout", "fence"}:  # its client did not end it
        hint = habit(attribution.transactional_id or "", past.timeout_ms)
        if hint is not None:
            yield hint
