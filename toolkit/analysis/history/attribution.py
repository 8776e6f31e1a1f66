"""The transactional id and the ending of a transaction that held the LSO, from the coordinators' log.

Kafka gives a producer id to one transactional id only, so a record that names the producer id proves the id. Epoch,
partition, outcome and times decide which of the id's transactions it was; where several fit, none is named.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from toolkit.analysis.diagnosis.impact import CLOCKS_DIFFER
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row

__all__ = ["NOT_READ", "Attribution", "attribute"]

ENDED = {  # by marker; an open one, or one without an end, may have ended on this partition already
    "COMMIT": {"commit", "open", "stuck", None},
    "ABORT": {"abort", "timeout", "fence", "open", "stuck", None},
}
NOT_ENDED = {"open", "stuck", None}
RAISED = 2  # by as much may a marker's epoch be above that of its transaction (in Kafka 4.0.0; else by one)
NO_TIME, A_SECOND = dt.timedelta(0), dt.timedelta(seconds=1)
MILLISECOND = dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """Whose transaction it was, and how it ended.

    Parameters
    ----------
    transactional_id
        Its transactional id; null where no record names its producer id.
    history
        The row of ``schema.TRANSACTION_HISTORY`` of the transaction; null where none fits, or several do.
    was_known
        Whether its coordinator may have known of it: false where all records of that time are left, and none fits.
    sentence
        How it ended, by that row; or what is missing.
    """

    transactional_id: str | None = None
    history: Row | None = None
    was_known: bool = True
    sentence: str


NOT_READ = Attribution(sentence=f"No record of {STATE_TOPIC} was read.")


def attribute(hold: Row, transaction_history: Iterable[Row]) -> Attribution:
    """Find the transaction of a coordinator that held the LSO of a partition.

    Parameters
    ----------
    hold
        A row of ``schema.LSO_HOLDS``.
    transaction_history
        Rows of ``schema.TRANSACTION_HISTORY``; those of other producer ids do not count.
    """
    events = [
        row for row in transaction_history if hold["producer_id"] in (row["producer_id"], row["previous_producer_id"])
    ]
    ids = sorted({row["transactional_id"] for row in events})
    if not ids:
        return Attribution(sentence=f"No record of {STATE_TOPIC} that was read names its producer id.")
    if len(ids) > 1:
        return Attribution(sentence=f"{len(ids)} ids have its producer id in their records: {', '.join(ids)}.")
    fitting = _fitting(hold, events)
    if len(fitting) == 1:
        return Attribution(transactional_id=ids[0], history=fitting[0], sentence=fitting[0]["reason"])
    if fitting:
        why = f"{len(fitting)} transactions of its id fit, and no record shows which it was."
        return Attribution(transactional_id=ids[0], sentence=why)
    if _all_is_there(hold, events):
        why = "Its coordinator knew nothing of it: the records of that time are there, and none is of this partition."
        return Attribution(transactional_id=ids[0], was_known=False, sentence=why)
    why = "No transaction of its id that was read fits: its coordinator did not know of it, or its records are gone."
    return Attribution(transactional_id=ids[0], sentence=why)


def _fitting(hold: Row, events: Sequence[Row]) -> Sequence[Row]:
    """The transactions that fit; of several, those with more evidence."""
    of_producer = [row for row in events if row["kind"] == "transaction" and row["producer_id"] == hold["producer_id"]]
    once = {(row["txn_state_partition"], row["first_offset"]): row for row in of_producer}  # of several replicas, one
    found = [row for row in once.values() if _may_be(hold, row)]
    narrower: tuple[Callable[[Row], bool], ...] = (
        lambda row: row["producer_epoch"] == hold["producer_epoch"],
        lambda row: _has_partition(hold, row) is True,
        lambda row: _ended_within(hold, row, NO_TIME),
    )
    for fits in narrower:
        if len(found) > 1:
            found = [row for row in found if fits(row)] or found
    return found


def _may_be(hold: Row, row: Row) -> bool:
    """Whether nothing contradicts it."""
    ended = row["ended"]
    return (
        (ended in NOT_ENDED if hold["marker_offset"] is None else ended in ENDED.get(hold["marker"], {ended}))
        and _epoch_fits(hold, row)
        and _has_partition(hold, row) is not False
        and _lasted(row, hold["least_ms"], differ=CLOCKS_DIFFER)
        and (
            _ended_within(hold, row, NO_TIME)
            or (_ended_within(hold, row, CLOCKS_DIFFER) and _lasted_as_told(hold, row))
        )
    )


def _epoch_fits(hold: Row, row: Row) -> bool:
    """Whether it has the epoch of the data, or a newer one, whose marker also ends data of a dead epoch."""
    epoch, data, marker = row["producer_epoch"], hold["producer_epoch"], hold["marker_epoch"]
    if epoch is None or data is None or epoch == data:
        return True
    return marker is not None and bool(data < epoch <= marker <= epoch + RAISED)


def _has_partition(hold: Row, row: Row) -> bool | None:
    """Whether it included the partition; null where its records no longer show that."""
    if row["topic_partitions"] is None:
        return None
    partition = hold["topic"], hold["partition"]
    return any((each["topic"], each["partition"]) == partition for each in row["topic_partitions"])


def _ended_within(hold: Row, row: Row, differ: dt.timedelta) -> bool:
    """Whether its markers were written when this one was, within the difference of two brokers' clocks."""
    marker: dt.datetime | None = hold["held_to"]
    start, end = row["decided_at"] or row["start_time"], row["end_time"]
    if marker is None:
        return True
    return (start is None or start <= marker + differ) and (end is None or marker <= end + differ)


def _lasted_as_told(hold: Row, row: Row) -> bool:
    """Whether it lasted from the first batch to the marker, within the difference of two brokers' clocks."""
    first_batch = (
        hold["opened_at_clock"] == hold["start_clock"]
    )  # else no more than the time of the marker before it is known
    if not first_batch or hold["opened_at"] is None or hold["held_to"] is None:
        return True
    events = (hold["held_to"] - hold["opened_at"]) // MILLISECOND
    return _lasted(row, events, differ=max(A_SECOND, events * MILLISECOND / 10))


def _lasted(row: Row, least_ms: int | None, *, differ: dt.timedelta) -> bool:
    """Whether it lasted as long, by its coordinator's clock alone."""
    start, end = row["start_time"], row["end_time"]
    if least_ms is None or start is None or end is None:
        return True
    return bool(end - start + differ >= least_ms * MILLISECOND)


def _all_is_there(hold: Row, events: Sequence[Row]) -> bool:
    """Whether the id's records from before it to after it are left, and show nothing on this partition.

    Compaction keeps the last record of an id in what it has cleaned: after the first record left, all are.
    """
    opened, marker = hold["opened_at"], hold["held_to"]
    if opened is None or marker is None or any(row["error"] for row in events):
        return False
    begins = opened - CLOCKS_DIFFER
    ends = marker + CLOCKS_DIFFER
    there = any(row["end_time"] is not None and row["end_time"] < begins for row in events)
    goes_on = any((row["start_time"] or row["end_time"] or begins) > ends for row in events)
    return there and goes_on and not any(_touches(hold, row, begins, ends) for row in events)


def _touches(hold: Row, row: Row, begins: dt.datetime, ends: dt.datetime) -> bool:
    """Whether it is a transaction of that time which may have had the partition."""
    if row["kind"] != "transaction" or _has_partition(hold, row) is False:
        return False
    start, end = row["start_time"], row["end_time"]
    return (start is None or start <= ends) and (end is None or end >= begins)
