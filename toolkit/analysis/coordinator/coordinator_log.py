"""Records of ``__transaction_state`` as evidence: what they show of each transactional id, and since when.

The remaining records of an expired or rotated id are the only evidence of an orphaned producer id's owner.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from toolkit.analysis.coordinator.transaction_history import transaction_history
from toolkit.analysis.coordinator.transaction_states import EXPIRED, IdReplica, replica_of, state_of
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.schema.table import Error


@dataclass(frozen=True)
class IdHistory:
    """The records of a transactional id."""

    transactional_id: str
    records: Sequence[TransactionLogRecord]  # its readable records, in offset order

    @cached_property
    def transactions(self) -> Sequence[PastTransaction]:
        """Its transactions, in order; the last one may be open."""
        return [each for each in transaction_history(self.records) if each.kind == "transaction"]

    def first_of(self, producer_id: int) -> TransactionLogRecord | None:
        """The first record that has the producer id as its own."""
        return next((record for record in self.records if record.producer_id == producer_id), None)


@dataclass(frozen=True, kw_only=True)
class CoordinatorLog:
    """Records of ``__transaction_state``."""

    # records of the relevant transactional ids, in offset order within a partition
    records: Sequence[TransactionLogRecord] = ()
    # why records may be missing, one sentence per reason; empty if all that are left since the time they are needed for
    # were read
    unread: Sequence[str] = ()
    # for each partition that was not read from its beginning: the time of the first record read
    since: Mapping[int, dt.datetime] = field(default_factory=dict)
    # for each partition, where known: its leader and the leader epoch when it was read
    leaders: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @cached_property
    def gaps(self) -> Sequence[str]:
        """Why records may be missing, those that could not be read included."""
        errors = sorted({Error.of(each.error).code for each in self.records if each.error})
        return [*self.unread, *([f"{STATE_TOPIC} could not be read ({', '.join(errors)})"] if errors else [])]

    @cached_property
    def histories(self) -> Mapping[str, IdHistory]:
        """The records by transactional id; of two copies of the log, the first one."""
        found: defaultdict[str, list[TransactionLogRecord]] = defaultdict(list)
        seen = set()
        for record in self.records:
            if record.transactional_id is None or record.error:
                continue
            key = record.transactional_id, record.txn_state_partition, record.offset, record.state, record.timestamp
            if record.offset is None or key not in seen:
                found[record.transactional_id].append(record)
            seen.add(key)
        return {name: IdHistory(name, records) for name, records in found.items()}

    @cached_property
    def ids_by_producer(self) -> Mapping[int, Sequence[str]]:
        """The transactional ids with a record of a producer id: as its own, as the previous, or as the next one."""
        found: defaultdict[int, dict[str, None]] = defaultdict(dict)
        for name, history in self.histories.items():
            for record in history.records:
                for producer_id in _named_ids(record):
                    found[producer_id][name] = None
        return {producer_id: list(names) for producer_id, names in found.items()}

    def other_ids(self, producer_id: int, transactional_id: str) -> Sequence[str]:
        """Other transactional ids that had a producer id as their own, as far as their records were read."""
        return [
            name
            for name in self.ids_by_producer.get(producer_id, ())
            if name != transactional_id and self.histories[name].first_of(producer_id) is not None
        ]

    def of(self, producer_id: int, transactional_id: str | None) -> Sequence[IdHistory]:
        """Histories of a producer id's owner; if it has none any more, of every id that had it."""
        names = [transactional_id] if transactional_id is not None else self.ids_by_producer.get(producer_id, ())
        return [self.histories[name] for name in names if name in self.histories]


def events_of(histories: Iterable[IdHistory]) -> list[TransactionLogRecord]:
    """The records of several ids, one id after the other."""
    return [record for history in histories for record in history.records]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A transactional id that a producer id belonged to."""

    transactional_id: str
    txn_state_partition: int | None
    # the producer id's highest epoch in the records; null if they only have it as previous or next producer id
    producer_epoch: int | None
    # first_seen, last_seen: times of the first and the last record with the producer id, by the coordinator's clock
    first_seen: dt.datetime | None
    last_seen: dt.datetime | None
    last_offset: int | None  # offset of that last record
    # ``"owner"``, ``"next"`` (the client already has the producer id, and uses it after the end of the transaction),
    # ``"replaced"`` (the id has another producer id now) or ``"expired"`` (the id has expired)
    now: str


def names_any(event: TransactionLogRecord, producer_ids: Collection[int]) -> bool:
    """Whether a record has one of these producer ids: as its own, as the previous, or as the next."""
    return any(each in producer_ids for each in _named_ids(event))


def _named_ids(event: TransactionLogRecord) -> Iterator[int]:
    """Its own producer id, the previous and the next one, as far as it has them."""
    ids = (event.producer_id, event.previous_producer_id, event.next_producer_id)
    return (each for each in ids if each is not None)


def producer_ids(events: Iterable[TransactionLogRecord]) -> dict[int, list[Owner]]:
    """Every producer id in the records, with its owners.

    By producer id. Kafka assigns a producer id to one transactional id only, and never reuses it.
    `events`: the records, in offset order within a partition. A compacted log has lost most producer ids; since Kafka
    4.1, the first record of a new producer id also has the previous one.
    """
    owners: dict[tuple[int, IdReplica], Owner] = {}
    current: dict[IdReplica, int] = {}
    for event in events:
        if event.transactional_id is None or event.error:
            continue
        replica = replica_of(event)
        before = current.pop(replica, None)
        reasons = {before: "replaced", event.previous_producer_id: "replaced", event.next_producer_id: "next"}
        if state_of(event) == EXPIRED:
            reasons = {before: "expired"}
        elif event.producer_id is not None:
            reasons[event.producer_id] = "owner"
            current[replica] = event.producer_id
        for producer_id, now in reasons.items():
            if producer_id is not None:
                key = producer_id, replica
                owners[key] = _updated(owners.get(key), producer_id, event, now=now)
    return _by_producer_id(owners)


def _updated(owner: Owner | None, producer_id: int, event: TransactionLogRecord, *, now: str) -> Owner:
    """The owner, updated with one more record."""
    epochs = [] if owner is None or owner.producer_epoch is None else [owner.producer_epoch]
    if event.producer_id == producer_id and event.producer_epoch is not None:
        epochs.append(event.producer_epoch)
    return Owner(
        transactional_id=event.transactional_id or "",
        txn_state_partition=event.txn_state_partition,
        producer_epoch=max(epochs, default=None),
        first_seen=event.timestamp if owner is None else owner.first_seen,
        last_seen=event.timestamp,
        last_offset=event.offset,
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
