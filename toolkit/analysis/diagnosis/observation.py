"""One observation of a cluster or of its files, the input of the verdicts; and its open transactions.

There is one per producer and partition, with everything known about it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

from toolkit.analysis.coordinator.transaction_states import OPEN_STATES, TWO_PHASE_COMMIT
from toolkit.analysis.diagnosis.clocks import UNKNOWN_TIME, BrokersTime, TransactionAge
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import Partition, Producer, Transaction
from toolkit.schema.recorded import FirstBatch
from toolkit.schema.table import EVERYTHING, Selection, TopicPartition

OfPartition = TypeVar("OfPartition", Partition, Producer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Whether the coordinators' responses are complete."""

    brokers: Sequence[int] = ()  # every broker of the cluster that was queried
    # what proves completeness, one sentence each: all brokers answered, rights, ``__transaction_state`` read
    proofs: Sequence[str] = ()
    # what is missing, one sentence each, naming the broker, partition or right. Empty means complete: only then does
    # the absence of a transactional id count as evidence.
    gaps: Sequence[str] = ()
    # releases of Apache Kafka that the brokers may be of, by their APIs; none if that is not known
    releases: Sequence[str] = ()
    # what is missing to diagnose the whole cluster: rights without which topics stay hidden
    topic_gaps: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class AsOf:
    """Time up to which files are proven to have what a coordinator did: an age counts up to it, and no further."""

    time: dt.datetime  # the time, by a clock of the brokers, of the machine that copied, or as the caller asserts
    proof: str  # what proves it


@dataclass(frozen=True, slots=True)
class MonotonicSpan:
    """When an observation began and ended, by the monotonic clock of this process, in seconds."""

    began: float
    ended: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One observation, read in this order: partitions, producers, transactions, then producers and partitions again.

    The coordinators answer between two responses of the partition leader. A transaction with the same producer id and
    start offset in both was open when its coordinator answered, so no race can make a finished transaction look
    disowned.
    """

    # partitions, producers, transactions: as their leaders and coordinators answered; error rows included
    partitions: Sequence[Partition]
    producers: Sequence[Producer]
    transactions: Sequence[Transaction]
    # partitions_after, producers_after: the same, read again after the coordinators answered, for every partition that
    # had an open transaction or an LSO below its high watermark
    partitions_after: Sequence[Partition]
    producers_after: Sequence[Producer]
    coverage: Coverage  # whether the coordinators' responses are complete
    selection: Selection = EVERYTHING  # a partition outside of it is not missing
    # why partitions that coordinators have open are not among `partitions`, as an error; null for one that the metadata
    # shows not to exist, so that nothing can be open there
    absent: Mapping[TopicPartition, str | None] = field(default_factory=dict)
    observed_at: dt.datetime  # when the observation ended, by this machine's clock; from files, the newest time in them
    # the brokers' time, read before the coordinators answered; from files, the newest time that a broker wrote
    brokers_time: BrokersTime = UNKNOWN_TIME
    monotonic: MonotonicSpan | None = None  # null if it was not made by this process: from files, or a recording
    # of open transactions, as far as they were read
    first_batches: Sequence[FirstBatch] = ()
    # whether it was read from log directories. Then the rows after are those before, but for what began while the files
    # were copied; `doubts` states what that leaves unproven, and the state of an id is proven up to `as_of` only.
    from_files: bool = False
    # for files: the time up to which partitions are proven to be complete, those of ``__transaction_state`` above all.
    # That of another one counts for what is open there: the caller asserts that its files are of one moment.
    as_of: Mapping[TopicPartition, AsOf] = field(default_factory=dict)
    # what is missing to prove that an open transaction has no owner, one sentence each, by (topic, partition, producer
    # id)
    doubts: Mapping[tuple[str, int, int], Sequence[str]] = field(default_factory=dict)
    # remarks on a partition for its evidence, one sentence each
    notes: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)

    @property
    def unseen(self) -> Mapping[TopicPartition, str]:
        """Partitions of the selection that coordinators have open and that are not among `partitions`, and why."""
        opened = {tp for each in self.transactions if each.state in OPEN_STATES for tp in each.topic_partitions or ()}
        seen = {each.tp for each in self.partitions} if opened else set()
        why = ((tp, self.absent.get(tp, NOT_OBSERVED)) for tp in sorted(opened - seen) if tp in self.selection)
        return {tp: error for tp, error in why if error is not None}

    def on(self, topic_partitions: Container[TopicPartition]) -> Observation:
        """The observation of some partitions only, with all answers of coordinators."""

        def selected(answers: Iterable[OfPartition]) -> list[OfPartition]:
            return [each for each in answers if (each.topic, each.partition) in topic_partitions]

        return replace(
            self,
            selection=replace(self.selection, partitions=topic_partitions),
            partitions=selected(self.partitions),
            producers=selected(self.producers),
            partitions_after=selected(self.partitions_after),
            producers_after=selected(self.producers_after),
        )


NOT_OBSERVED = "NOT_OBSERVED: it was not among the partitions that were read"
MAX_TRANSACTION_TIMEOUT_MS = 900_000  # the brokers' default of transaction.max.timeout.ms


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """One open transaction on one partition in one observation."""

    tp: TopicPartition
    # the leader's producer row, read after the coordinators answered; for a transaction that has written nothing to the
    # partition yet, a row without start offset
    producer: Producer
    start: int | None  # first offset; null if nothing was written yet
    # epoch, first_epoch: epoch of the producer's newest batch, -1 if unknown; and of the batch that opened the
    # transaction, null if that batch was not read
    epoch: int
    first_epoch: int | None
    # coordinator rows with this producer id: none, one, or several that contradict each other
    owners: Sequence[Transaction]
    # owner, state, owner_epoch: the first of them, its state and its epoch; null, ``""`` and -1 if no id has this
    # producer id
    owner: Transaction | None
    state: str
    owner_epoch: int
    listed: bool  # whether the coordinator still expects to write a marker to this partition
    two_phase: bool  # whether its timeout marks two-phase commit (KIP-939)
    as_of: AsOf | None  # for files: the time up to which they prove the coordinator's state; null if nothing proves any
    now: BrokersTime  # the brokers' time; for files, that of `as_of`
    expires_at: dt.datetime | None  # start time plus timeout; null if one is unknown or the transaction does not expire
    leader: Partition  # the partition, read after the coordinators answered
    # the partition's high watermark, read before the coordinators answered; null if unknown
    high_watermark_before: int | None
    # whether the partition's leader or its epoch changed during the observation, or another replica answered
    leader_moved: bool
    observation: Observation
    # why its partition was not read, so that only its coordinator is known to have it open; null if it was read
    partition_error: str | None = None
    first_batch: FirstBatch | None = None  # its first batch; null if that was not read
    # for how long earlier observations have shown the coordinator in this state
    seen_for: dt.timedelta = dt.timedelta(0)
    # for at least how long the same transaction of its owner has been observed, by a monotonic clock
    observed_for: dt.timedelta = dt.timedelta(0)

    @property
    def producer_id(self) -> int:
        """Id of its producer."""
        assert self.producer.producer_id is not None
        return self.producer.producer_id

    @property
    def transactional_id(self) -> str | None:
        """The id that owns its producer id; null if none does."""
        return None if self.owner is None else self.owner.transactional_id

    @property
    def age(self) -> TransactionAge:
        """For how long its owner's transaction is open."""
        start = None if self.owner is None else self.owner.start_time
        return TransactionAge.of(start, self.now, observed_for=self.observed_for)

    @property
    def of_owner(self) -> tuple[object, ...]:
        """What all observations of one transaction of its owner have in common."""
        start = None if self.owner is None else self.owner.start_time
        return self.transactional_id, self.producer_id, self.owner_epoch, self.state, start

    @property
    def is_mixed(self) -> bool:
        """Whether the batch that opened it has an older epoch than its newest one."""
        return self.first_epoch is not None and self.first_epoch < self.epoch


class IndexedObservation:
    """An observation by partition: rows before and after the coordinators answered, and the open transactions."""

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        unseen = [_unseen_partition(tp, error, observation) for tp, error in observation.unseen.items()]
        self.before = _by_partition([*observation.partitions, *unseen])
        self.after = {**self.before, **_by_partition(observation.partitions_after)}
        self._open_before, self._open_after = _open(observation.producers), _open(observation.producers_after)
        self._owners: dict[int, list[Transaction]] = {}
        for each in observation.transactions:
            if each.producer_id is not None and each.transactional_id is not None:
                self._owners.setdefault(each.producer_id, []).append(each)
        self._errors_before = _errors(chain(observation.partitions, observation.producers, unseen))
        self._errors_after = _errors(chain(observation.partitions_after, observation.producers_after))
        self._first_batches = {
            (each.topic, each.partition, each.start_offset): each for each in observation.first_batches
        }
        self._read_again = {each.tp for each in observation.partitions_after}
        self.cases: dict[TopicPartition, list[OpenTransaction]] = {}
        for txn in chain(self._open_on_leaders(), self._open_on_coordinators()):
            self.cases.setdefault(txn.tp, []).append(txn)

    def same(self, txn: OpenTransaction) -> OpenTransaction | None:
        """The open transaction of the same partition, producer and start offset, if this observation has it."""
        key = txn.producer_id, txn.start
        return next((each for each in self.cases.get(txn.tp, ()) if (each.producer_id, each.start) == key), None)

    def errors(self, tp: TopicPartition) -> list[str]:
        """The partition's distinct errors; none if it recovered, and nothing is open or held on it."""
        before, after = self._errors_before.get(tp, []), self._errors_after.get(tp, [])
        if not after and tp in self._read_again and tp not in self._open_after and not is_held(self.after[tp]):
            return []
        return list(dict.fromkeys(before + after))

    def notable(self) -> set[TopicPartition]:
        """Partitions with an open transaction, an error, or an LSO below the high watermark; others have no finding."""
        held = {tp for tp, partition in self.after.items() if is_held(partition)}
        return held.union(self.cases, self._errors_before, self._errors_after)

    def open_at_any_time(self, tp: TopicPartition) -> bool:
        """Whether a transaction was open before or after the coordinators answered."""
        return tp in self._open_before or tp in self._open_after

    def has_begun(self, tp: TopicPartition) -> bool:
        """Whether a transaction at the LSO that is none of `cases` began while the files were copied."""
        starts = [each.current_txn_start_offset for each in self._open_after.get(tp, {}).values()]
        return self.observation.from_files and self.after[tp].last_stable_offset in starts

    def _open_on_leaders(self) -> Iterator[OpenTransaction]:
        """Open at the same start offset before and after: open when the coordinators answered.

        The next observation covers a transaction that ended or began in between.
        """
        for tp, producers in self._open_after.items():
            for producer_id, producer in producers.items():
                earlier = self._open_before.get(tp, {}).get(producer_id)
                if earlier and earlier.current_txn_start_offset == producer.current_txn_start_offset:
                    yield self._txn(producer)

    def _open_on_coordinators(self) -> Iterator[OpenTransaction]:
        """Open for the coordinator, but not on the partition before the coordinator answered, or not known to be."""
        known = {(txn.tp, txn.producer_id) for txn in chain.from_iterable(self.cases.values())}
        for producer_id, owners in self._owners.items():
            for owner in owners:
                for tp in (owner.topic_partitions or ()) if owner.state in OPEN_STATES else ():
                    if tp not in self.before or (tp, producer_id) in known:
                        continue
                    known.add((tp, producer_id))
                    errors = self.errors(tp)
                    if producer_id in self._open_before.get(tp, {}) and not errors:
                        continue  # it has ended, or another one of its has begun
                    written = None if errors else self._open_after.get(tp, {}).get(producer_id)
                    without_data = Producer(
                        topic=tp[0],
                        partition=tp[1],
                        producer_id=producer_id,
                        producer_epoch=owner.producer_epoch,
                        broker_id=self.after[tp].leader,
                        observed_at=owner.observed_at,
                    )
                    yield self._txn(written or without_data, partition_error=errors[0] if errors else None)

    def _txn(self, producer: Producer, *, partition_error: str | None = None) -> OpenTransaction:
        tp = producer.tp
        before, after = self.before[tp], self.after[tp]
        same_leader = (before.leader, before.leader_epoch) == (after.leader, after.leader_epoch)
        assert producer.producer_id is not None
        producer_id, start = producer.producer_id, producer.current_txn_start_offset
        first = None if start is None else self._first_batches.get((*tp, start))
        first_epoch = None
        if first is not None and start is not None and first.producer_id == producer_id:
            first_epoch = first.producer_epoch if first.base_offset <= start <= first.last_offset else None
        owners = self._owners.get(producer_id, [])
        if partition_error is not None:  # the one that has it open first
            owners = sorted(owners, key=lambda each: tp not in (each.topic_partitions or ()))
        owner = owners[0] if owners else None
        started, timeout_ms = (owner.start_time, owner.timeout_ms) if owner else (None, None)
        as_of, now = self._as_of(owner, tp), self.observation.brokers_time
        if self.observation.from_files:
            now = UNKNOWN_TIME if as_of is None else BrokersTime(time=as_of.time, source=as_of.proof)
        expires_at = None
        if started is not None and timeout_ms is not None and timeout_ms != TWO_PHASE_COMMIT:
            expires_at = started + dt.timedelta(milliseconds=timeout_ms)
        return OpenTransaction(
            tp=tp,
            producer=producer,
            start=start,
            epoch=-1 if producer.producer_epoch is None else producer.producer_epoch,
            first_epoch=first_epoch,
            owners=owners,
            owner=owner,
            state=(owner and owner.state) or "",
            owner_epoch=-1 if owner is None or owner.producer_epoch is None else owner.producer_epoch,
            listed=owner is not None and tp in (owner.topic_partitions or ()),
            two_phase=timeout_ms == TWO_PHASE_COMMIT,
            as_of=as_of,
            now=now,
            expires_at=expires_at,
            leader=after,
            high_watermark_before=before.high_watermark,
            leader_moved=not same_leader or producer.broker_id != before.leader,
            observation=self.observation,
            partition_error=partition_error,
            first_batch=first,
        )

    def _as_of(self, owner: Transaction | None, tp: TopicPartition) -> AsOf | None:
        """The time up to which files prove the state of an id: at least that of its newest record."""
        if owner is None or owner.txn_state_partition is None or not self.observation.from_files:
            return None
        both = TopicPartition(STATE_TOPIC, owner.txn_state_partition), tp
        found = [each for key in both if (each := self.observation.as_of.get(key)) is not None]
        if not found and owner.last_update_time is not None:
            return AsOf(owner.last_update_time, "the newest record of the id")
        return max(found, key=lambda each: each.time, default=None)


def between(first: Observation, last: Observation) -> dt.timedelta:
    """The time from one observation to another, each at its end: by a monotonic clock, or the recorder's."""
    if first.monotonic is None or last.monotonic is None:
        return last.observed_at - first.observed_at
    return dt.timedelta(seconds=last.monotonic.ended - first.monotonic.ended)


def observed_between(first: Observation, last: Observation) -> dt.timedelta:
    """At least the time between any answers of two observations of one process; 0 of others."""
    if first.monotonic is None or last.monotonic is None:
        return dt.timedelta(0)
    return max(dt.timedelta(seconds=last.monotonic.began - first.monotonic.ended), dt.timedelta(0))


def is_held(partition: Partition) -> bool:
    """Whether a partition's LSO is known to be below its high watermark."""
    lso, high_watermark = partition.last_stable_offset, partition.high_watermark
    return lso is not None and high_watermark is not None and lso < high_watermark


def _unseen_partition(tp: TopicPartition, error: str, observation: Observation) -> Partition:
    return Partition(topic=tp.topic, partition=tp.partition, observed_at=observation.observed_at, error=error)


def _by_partition(partitions: Iterable[Partition]) -> dict[TopicPartition, Partition]:
    return {each.tp: each for each in partitions}


def _errors(answers: Iterable[Partition | Producer]) -> dict[TopicPartition, list[str]]:
    found: dict[TopicPartition, list[str]] = {}
    for each in answers:
        if each.error:
            found.setdefault(each.tp, []).append(each.error)
    return found


def _open(producers: Iterable[Producer]) -> dict[TopicPartition, dict[int, Producer]]:
    found: dict[TopicPartition, dict[int, Producer]] = {}
    for each in producers:
        if each.current_txn_start_offset is not None and each.producer_id is not None:
            found.setdefault(each.tp, {})[each.producer_id] = each
    return found
