"""Find the transactional id and the ending of a transaction that held the LSO, from the coordinators' log.

Kafka assigns a producer id to one transactional id only, so a record with the producer id proves the transactional id.
Epoch, partition, outcome and times select one of the id's transactions; if several fit, none is selected.

`past_cause` says why one that has ended held the LSO, in the names of `toolkit.analysis.diagnosis.verdicts.CAUSES`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from toolkit.analysis.coordinator.transaction_states import PREPARE_GRACE, TWO_PHASE_COMMIT
from toolkit.analysis.diagnosis.evidence.causes import CauseIndicator, cause_of, habit
from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER
from toolkit.formats.coordinator.offsets_log_records import OFFSETS_TOPIC
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.derived import LsoHold
from toolkit.schema.durations import duration
from toolkit.schema.log import PastTransaction

# By marker; a transaction that is open or has no known end may have ended on this partition already.
ENDED: Mapping[str | None, Collection[str | None]] = {
    "COMMIT": {"commit", "open", "stuck", None},
    "ABORT": {"abort", "timeout", "fence", "open", "stuck", None},
}
NOT_ENDED = {"open", "stuck", None}
MAX_EPOCH_RAISE = 2  # of a marker above its transaction's epoch: 2 in Kafka 4.0.0, else 1
NO_TIME, ONE_SECOND = dt.timedelta(0), dt.timedelta(seconds=1)
MILLISECOND = dt.timedelta(milliseconds=1)


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
    if len(fitting) == 1:
        return Attribution(transactional_id=ids[0], history=fitting[0], sentence=fitting[0].reason)
    if fitting:
        why = f"{len(fitting)} transactions of its transactional id fit; the records do not show which it was."
        return Attribution(transactional_id=ids[0], sentence=why)
    if _has_all_records(hold, events):
        why = "Its coordinator did not know of it: the records of that time are complete, and none has this partition."
        return Attribution(transactional_id=ids[0], was_known=False, sentence=why)
    why = "No transaction of its transactional id fits: its coordinator did not know of it, or its records are gone."
    return Attribution(transactional_id=ids[0], sentence=why)


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
    return (
        _end_fits(hold, past)
        and _epoch_fits(hold, past)
        and _has_partition(hold, past) is not False
        and _lasted(past, hold.least_ms, differ=CLOCKS_DIFFER)
        and (
            _ended_within(hold, past, NO_TIME)
            or (_ended_within(hold, past, CLOCKS_DIFFER) and _lasted_until_marker(hold, past))
        )
    )


def _end_fits(hold: LsoHold, past: PastTransaction) -> bool:
    """Whether it may have ended as the marker shows; an unread marker fits every end."""
    if hold.marker_offset is None:
        return past.ended in NOT_ENDED
    return past.ended in ENDED.get(hold.marker, {past.ended})


def _epoch_fits(hold: LsoHold, past: PastTransaction) -> bool:
    """Whether it has the epoch of the data, or a newer epoch, whose marker also ends data of an older one."""
    epoch, data, marker = past.producer_epoch, hold.producer_epoch, hold.marker_epoch
    if epoch is None or data is None or epoch == data:
        return True
    return marker is not None and data < epoch <= marker <= epoch + MAX_EPOCH_RAISE


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
    return has_earlier and has_later and not any(_touches(hold, each, begins, ends) for each in events)


def _touches(hold: LsoHold, past: PastTransaction, begins: dt.datetime, ends: dt.datetime) -> bool:
    """Whether it is a transaction of that time that may have included the partition."""
    if past.kind != "transaction" or _has_partition(hold, past) is False:
        return False
    start, end = past.start_time, past.end_time
    return (start is None or start <= ends) and (end is None or end >= begins)


UNKNOWN_TO_COORDINATOR = CauseIndicator(
    text="its coordinator did not know of it: a batch came late or was resent, or its partition was never added",
    names=("late-after-commit", "late-after-abort", "never-added"),
)
LEFT_OPEN: Mapping[str | None, CauseIndicator] = {
    "timeout": CauseIndicator(text="its client did not end it in time", names=("client-too-slow",)),
    "fence": CauseIndicator(text="its client left it open, until a new instance took over the id"),
}
"""By ending: the transactions that their client did not end."""


def past_cause(hold: LsoHold, attribution: Attribution) -> str | None:
    """The root cause as a sentence with its names; null if none was found.

    `hold`: a hold that is over. `attribution`: whose transaction it was.
    """
    past = attribution.history
    found = [None if attribution.was_known else UNKNOWN_TO_COORDINATOR, _mixed_epochs(hold)]
    if past is not None:
        found += [_dead_epoch(hold, past), LEFT_OPEN.get(past.ended), _late_marker(hold, past), _two_phase(past)]
    if hold.topic == OFFSETS_TOPIC:
        found.append(CauseIndicator(text="it held offsets of consumer groups", names=("group-offsets",)))
    if past is not None and past.ended in LEFT_OPEN:
        found.append(habit(attribution.transactional_id or "", past.timeout_ms))
    cause = cause_of([each for each in found if each is not None])
    return None if cause is None else cause.sentence


def _mixed_epochs(hold: LsoHold) -> CauseIndicator | None:
    first, last = hold.first_epoch, hold.producer_epoch
    if first is None or last is None or first >= last:
        return None
    return CauseIndicator(
        text=f"mixed epochs in one transaction: epoch {first} opened it, and epoch {last} wrote into it"
    )


def _dead_epoch(hold: LsoHold, past: PastTransaction) -> CauseIndicator | None:
    epoch = past.producer_epoch
    if epoch is None or hold.producer_epoch is None or epoch <= hold.producer_epoch:
        return None
    text = f"superseded epoch: the marker of epoch {epoch} decided what epoch {hold.producer_epoch} had left open"
    return CauseIndicator(text=f"{text}, and made it visible" if hold.marker == "COMMIT" else text)


def _late_marker(hold: LsoHold, past: PastTransaction) -> CauseIndicator | None:
    if past.decided_at is None or hold.held_to is None or hold.held_to - past.decided_at <= PREPARE_GRACE:
        return None
    text = f"its coordinator had decided, and took {duration(hold.held_to - past.decided_at)} to write its marker"
    not_sent = ("marker-not-sent",) if past.client_transaction_version == 2 else ()
    return CauseIndicator(text=text, names=("marker-not-written", *not_sent))


def _two_phase(past: PastTransaction) -> CauseIndicator | None:
    if past.timeout_ms != TWO_PHASE_COMMIT:
        return None
    return CauseIndicator(
        text="a two-phase commit: its external coordinator took that long to decide", names=("two-phase-commit",)
    )
