"""The transactional ids that a producer id belonged to, from the records of ``__transaction_state``.

The remaining records of an expired or rotated id are the only evidence of an orphaned producer id's owner.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from toolkit.analysis.coordinator.transaction_states import EXPIRED, IdReplica, replica_of, state_of
from toolkit.schema import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A transactional id that a producer id belonged to.

    Parameters
    ----------
    transactional_id, txn_state_partition
        The id, and the partition of its records.
    producer_epoch
        The producer id's highest epoch in the records; null if they only have it as previous or next producer id.
    first_seen, last_seen
        Times of the first and the last record with the producer id, by the coordinator's clock.
    last_offset
        Offset of that last record.
    now
        ``"owner"``, ``"next"`` (the client already has the producer id, and uses it after the end of the transaction),
        ``"replaced"`` (the id has another producer id now) or ``"expired"`` (the id has expired).
    """

    transactional_id: str
    txn_state_partition: int | None
    producer_epoch: int | None
    first_seen: dt.datetime | None
    last_seen: dt.datetime | None
    last_offset: int | None
    now: str


def names_any(event: Row, producer_ids: Collection[int]) -> bool:
    """Whether a record has one of these producer ids: as its own, as the previous, or as the next."""
    return any(event[name] in producer_ids for name in ("producer_id", "previous_producer_id", "next_producer_id"))


def producer_ids(events: Iterable[Row]) -> dict[int, list[Owner]]:
    """Every producer id in the records, with its owners.

    Parameters
    ----------
    events
        Rows of ``schema.TRANSACTION_LOG``, in offset order within a partition. A compacted log has lost most producer
        ids; since Kafka 4.1, the first record of a new producer id also has the previous one.

    Returns
    -------
    dict of int to list of Owner
        By producer id. Kafka assigns a producer id to one transactional id only, and never reuses it.
    """
    owners: dict[tuple[int, IdReplica], Owner] = {}
    current: dict[IdReplica, int] = {}
    for event in events:
        if event["transactional_id"] is None or event["error"]:
            continue
        replica = replica_of(event)
        before = current.pop(replica, None)
        reasons = {before: "replaced", event["previous_producer_id"]: "replaced", event["next_producer_id"]: "next"}
        if state_of(event) == EXPIRED:
            reasons = {before: "expired"}
        elif event["producer_id"] is not None:
            reasons[event["producer_id"]] = "owner"
            current[replica] = event["producer_id"]
        for producer_id, now in reasons.items():
            if producer_id is not None:
                key = producer_id, replica
                owners[key] = _updated(owners.get(key), producer_id, event, now=now)
    return _by_producer_id(owners)


def _updated(owner: Owner | None, producer_id: int, event: Row, *, now: str) -> Owner:
    """The owner, updated with one more record."""
    epochs = [] if owner is None or owner.producer_epoch is None else [owner.producer_epoch]
    if event["producer_id"] == producer_id:
        epochs.append(event["producer_epoch"])
    return Owner(
        transactional_id=event["transactional_id"],
        txn_state_partition=event["txn_state_partition"],
        producer_epoch=max(epochs, default=None),
        first_seen=event["timestamp"] if owner is None else owner.first_seen,
        last_seen=event["timestamp"],
        last_offset=event["offset"],
        now=now,
    )


def _by_producer_id(owners: Mapping[tuple[int, IdReplica], Owner]) -> dict[int, list[Owner]]:
    """The owners of each producer id; if several replicas were read, from the longest one."""
    longest: dict[tuple[int, str, int], Owner] = {}
    for (producer_id, replica), owner in owners.items():
        key = producer_id, replica.transactional_id, replica.txn_state_partition
        if key not in longest or (owner.last_offset or 0) > (longest[key].last_offset or 0):
            longest[key] = owner
    found: defaultdict[int, list[Owner]] = defaultdict(list)
    for (producer_id, _, _), owner in sorted(longest.items(), key=lambda item: item[0]):
        found[producer_id].append(owner)
    return dict(found)
