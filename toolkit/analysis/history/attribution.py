"""Find the transactional id and the ending of a transaction that held the LSO, from the coordinators' log.

Kafka assigns a producer id to one transactional id only, so a record with the producer id proves the transactional id.
Epoch, partition, outcome and times select one of the id's transactions; if several fit, none is selected.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import Row

__all__ = ["NOT_READ", "Attribution", "attribute"]

ENDED = {  # by marker; a transaction that is open or has no known end may have ended on this partition already
    "COMMIT": {"commit", "open", "stuck", None},
    "ABORT": {"abort", "timeout", "fence", "open", "stuck", None},
}
NOT_ENDED = {"open", "stuck", None}
MAX_EPOCH_RAISE = 2  # of a marker above its transaction's epoch: 2 in Kafka 4.0.0, else 1
NO_TIME, ONE_SECOND = dt.timedelta(0), dt.timedelta(seconds=1)
MILLISECOND = dt.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The owner of a transaction, and how the transaction ended.

    Parameters
    ----------
    transactional_id
        Null if no record has the producer id, or records of several ids have it.
    history
        The transaction's row of ``schema.TRANSACTION_HISTORY``; null if no row fits, or several do.
    was_known
        Whether the coordinator may have known the transaction: false if its records of that time are complete and none
        fits.
    sentence
        How the transaction ended, or what is missing to tell.
    """

    transactional_id: str | None = None
    history: Row | None = None
    was_known: bool = True
    sentence: str


NOT_READ = Attribution(sentence=f"No record of {STATE_TOPIC} was read.")


def attribute(hold: Row, transaction_history: Iterable[Row]) -> Attribution:
    """Find the coordinator's transaction that held the LSO of a partition.

    Parameters
    ----------
    hold
        A row of ``schema.LSO_HOLDS``.
    transaction_history
        Rows of ``schema.TRANSACTION_HISTORY``; rows of other producer ids are ignored.
    """
    events = [
        row for row in transaction_history if hold["producer_id"] in (row["producer_id"], row["previous_producer_id"])
    ]
    ids = sorted({row["transactional_id"] for row in events})
    if not ids:
        return Attribution(sentence=f"No record read from {STATE_TOPIC} has its producer id.")
    if len(ids) > 1:
        return Attribution(sentence=f"Records of {len(ids)} transactional ids have its producer id: {', '.join(ids)}.")
    fitting = _fitting(hold, events)
    if len(fitting) == 1:
        return Attribution(transactional_id=ids[0], history=fitting[0], sentence=fitting[0]["reason"])
    if fitting:
        why = f"{len(fitting)} transactions of its transactional id fit; the records do not show which it was."
        return Attribution(transactional_id=ids[0], sentence=why)
    if _has_all_records(hold, events):
        why = "Its coordinator did not know of it: the records of that time are complete, and none has this partition."
        return Attribution(transactional_id=ids[0], was_known=False, sentence=why)
    why = "No transaction of its transactional id fits: its coordinator did not know of it, or its records are gone."
    return Attribution(transactional_id=ids[0], sentence=why)


def _fitting(hold: Row, events: Sequence[Row]) -> Sequence[Row]:
    """The transactions that fit; if several do, only those with more evidence."""
    of_producer = [row for row in events if row["kind"] == "transaction" and row["producer_id"] == hold["producer_id"]]
    once = {(row["txn_state_partition"], row["first_offset"]): row for row in of_producer}  # one of several replicas
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
    """Whether nothing shows that the hold is of another transaction."""
    ended = row["ended"]
    return (
        (ended in NOT_ENDED if hold["marker_offset"] is None else ended in ENDED.get(hold["marker"], {ended}))
        and _epoch_fits(hold, row)
        and _has_partition(hold, row) is not False
        and _lasted(row, hold["least_ms"], differ=CLOCKS_DIFFER)
        and (
            _ended_within(hold, row, NO_TIME)
            or (_ended_within(hold, row, CLOCKS_DIFFER) and _lasted_until_marker(hold, row))
        )
    )


def _epoch_fits(hold: Row, row: Row) -> bool:
    """Whether it has the epoch of the data, or a newer epoch, whose marker also ends data of an older one."""
    epoch, data, marker = row["producer_epoch"], hold["producer_epoch"], hold["marker_epoch"]
    if epoch is None or data is None or epoch == data:
        return True
    return marker is not None and bool(data < epoch <= marker <= epoch + MAX_EPOCH_RAISE)


def _has_partition(hold: Row, row: Row) -> bool | None:
    """Whether it included the partition; null if its records no longer show that."""
    if row["topic_partitions"] is None:
        return None
    partition = hold["topic"], hold["partition"]
    return any((each["topic"], each["partition"]) == partition for each in row["topic_partitions"])


def _ended_within(hold: Row, row: Row, differ: dt.timedelta) -> bool:
    """Whether the marker was written while the transaction's markers were, give or take `differ` between two clocks."""
    marker: dt.datetime | None = hold["held_to"]
    start, end = row["decided_at"] or row["start_time"], row["end_time"]
    if marker is None:
        return True
    return (start is None or start <= marker + differ) and (end is None or marker <= end + differ)


def _lasted_until_marker(hold: Row, row: Row) -> bool:
    """Whether it lasted from the first batch to the marker, give or take a second or a tenth of that time."""
    # Otherwise `opened_at` is only the time of the marker before it.
    is_first_batch_time = hold["opened_at_clock"] == hold["start_clock"]
    if not is_first_batch_time or hold["opened_at"] is None or hold["held_to"] is None:
        return True
    least_ms = (hold["held_to"] - hold["opened_at"]) // MILLISECOND
    return _lasted(row, least_ms, differ=max(ONE_SECOND, least_ms * MILLISECOND / 10))


def _lasted(row: Row, least_ms: int | None, *, differ: dt.timedelta) -> bool:
    """Whether it lasted at least `least_ms` by its coordinator's clock, give or take `differ`."""
    start, end = row["start_time"], row["end_time"]
    if least_ms is None or start is None or end is None:
        return True
    return bool(end - start + differ >= least_ms * MILLISECOND)


def _has_all_records(hold: Row, events: Sequence[Row]) -> bool:
    """Whether the id's records from before to after the hold are complete, and none may have the partition.

    Compaction keeps the last record of an id in the cleaned part, so no record after the first one left is missing.
    """
    opened, marker = hold["opened_at"], hold["held_to"]
    if opened is None or marker is None or any(row["error"] for row in events):
        return False
    begins = opened - CLOCKS_DIFFER
    ends = marker + CLOCKS_DIFFER
    has_earlier = any(row["end_time"] is not None and row["end_time"] < begins for row in events)
    has_later = any((row["start_time"] or row["end_time"] or begins) > ends for row in events)
    return has_earlier and has_later and not any(_touches(hold, row, begins, ends) for row in events)


def _touches(hold: Row, row: Row, begins: dt.datetime, ends: dt.datetime) -> bool:
    """Whether it is a transaction of that time that may have included the partition."""
    if row["kind"] != "transaction" or _has_partition(hold, row) is False:
        return False
    start, end = row["start_time"], row["end_time"]
    return (start is None or start <= ends) and (end is None or end >= begins)
