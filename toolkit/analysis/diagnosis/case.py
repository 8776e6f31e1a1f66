"""`Case`: an open transaction of one producer on one partition, with all of its evidence; and those of an observation.

What reads logs imports numpy, and late: most diagnoses read none.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from toolkit.analysis.diagnosis.decision import NOT_READ, PROVEN, UNDECIDED, UNKNOWN, Outcome, recorded_outcome
from toolkit.analysis.diagnosis.observation import (
    BEFORE_OPENING,
    MAX_TRANSACTION_TIMEOUT_MS,
    UNKNOWN_TIME,
    AsOf,
    BrokersTime,
    Observation,
    TransactionAge,
    between,
    is_held,
    observed_between,
)
from toolkit.analysis.transaction_history import begins_producer
from toolkit.analysis.transaction_owners import OPEN_STATES, TWO_PHASE_COMMIT
from toolkit.formats.batches import LOG_APPEND_TIME
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema import utc
from toolkit.schema.checkpoint import FlinkCheckpoint
from toolkit.schema.durations import CLOCKS_DIFFER
from toolkit.schema.live import Finding, Partition, Producer, Transaction
from toolkit.schema.log import ClusterEvent, PastTransaction, TransactionLogRecord
from toolkit.schema.recorded import FirstBatch
from toolkit.schema.table import TopicPartition, TransactionKey
from toolkit.schema.verdict import Verdict

if TYPE_CHECKING:
    from toolkit.analysis.diagnosis.decision import Decision, Rule
    from toolkit.analysis.diagnosis.log_excerpts import Excerpt, OpenPart, ProducerBatches
    from toolkit.analysis.diagnosis.markers import MarkerSearch
    from toolkit.analysis.transaction_history import CoordinatorLog, IdHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnoseOptions:
    """How a source is diagnosed."""

    recheck_after: float = 5.0  # seconds before the confirming second observation; 0 disables it
    # a live transaction older than this is `long`; the default is the brokers' of transaction.max.timeout.ms
    max_transaction_timeout_ms: int = MAX_TRANSACTION_TIMEOUT_MS
    log_evidence: bool = True  # read the log around held LSOs for outcome, cause, opening time and impact
    # whether the last observation is a sample: what is in no earlier one waits for the next
    is_sample: bool = False
    checkpoints: Sequence[FlinkCheckpoint] = ()  # completed checkpoints of Flink jobs


DEFAULTS = DiagnoseOptions()


@dataclass(frozen=True, kw_only=True)
class Case:
    """An open transaction of one producer on one partition, with all of its evidence.

    A rule asks one state of the evidence; more evidence makes another one (`dataclasses.replace`).
    """

    # the leader's producer row, read after the coordinators answered; for a transaction that has written nothing to the
    # partition yet, a row without start offset
    producer: Producer
    # coordinator rows with this producer id: none, one, or several that contradict each other
    owners: Sequence[Transaction]
    # leader_before, leader: the partition, read before the coordinators answered, and after
    leader_before: Partition
    leader: Partition
    observation: Observation  # the last one, which all of these are of
    # why its partition was not read, so that only its coordinator is known to have it open; null if it was read
    partition_error: str | None = None
    first_batch: FirstBatch | None = None  # the batch at its start offset; null if that was not read

    observations: Sequence[Observation] = ()  # all of its partition, in order of time
    brokers_time: BrokersTime | None = None  # by all observations; null if only this one is known
    # the same transaction in each of them, as that one alone shows it; null where it was not open
    history: Sequence[Case | None] = ()
    options: DiagnoseOptions = DEFAULTS

    excerpt: Excerpt | None = None  # the log of its partition around it; null if it was not read
    # the coordinators' log, read after its leader has shown it open; null if it was not read
    coordinators: CoordinatorLog | None = None
    # markers of its producer on other partitions; null if they were not looked for
    marker_search: MarkerSearch | None = None
    has_ended: bool = False  # whether its leader no longer shows it open, once the coordinators' log was read
    cluster_log: Sequence[ClusterEvent] = ()  # what happened to the cluster, in order; none if no metadata log was read
    known_outcome: Outcome | None = None  # what its logs have shown in an earlier sample; null if they are read again
    # the finding that was recorded with this observation, which rests on the logs of that time; null if there is none
    recorded: Finding | None = None

    @cached_property
    def tp(self) -> TopicPartition:
        """Its partition."""
        return self.producer.tp

    @cached_property
    def producer_id(self) -> int:
        """Id of its producer."""
        assert self.producer.producer_id is not None
        return self.producer.producer_id

    @cached_property
    def start(self) -> int | None:
        """Its first offset; null if nothing was written yet."""
        return self.producer.current_txn_start_offset

    @property
    def key(self) -> TransactionKey:
        """The key of the transaction."""
        return TransactionKey(*self.tp, self.producer_id, self.start)

    @cached_property
    def epoch(self) -> int:
        """Epoch of the producer's newest batch; -1 if unknown."""
        return -1 if self.producer.producer_epoch is None else self.producer.producer_epoch

    @cached_property
    def first_epoch(self) -> int | None:
        """Epoch of the batch that opened the transaction, as observed; null if that batch was not read."""
        first, start = self.first_batch, self.start
        if first is None or start is None or first.producer_id != self.producer_id:
            return None
        return first.producer_epoch if first.base_offset <= start <= first.last_offset else None

    @property
    def is_mixed(self) -> bool:
        """Whether the batch that opened it has an older epoch than its newest one."""
        return self.first_epoch is not None and self.first_epoch < self.epoch

    @cached_property
    def owner(self) -> Transaction | None:
        """The coordinator's row of the id that has its producer id; null if none has."""
        return self.owners[0] if self.owners else None

    @property
    def transactional_id(self) -> str | None:
        """The id that owns its producer id; null if none does."""
        return None if self.owner is None else self.owner.transactional_id

    @cached_property
    def state(self) -> str:
        """State of its owner; ``""`` if it has none."""
        return (self.owner and self.owner.state) or ""

    @cached_property
    def owner_epoch(self) -> int:
        """Epoch of its owner; -1 if unknown."""
        return -1 if self.owner is None or self.owner.producer_epoch is None else self.owner.producer_epoch

    @cached_property
    def listed(self) -> bool:
        """Whether its coordinator still expects to write a marker to this partition."""
        return self.owner is not None and self.tp in (self.owner.topic_partitions or ())

    @property
    def two_phase(self) -> bool:
        """Whether the timeout of its owner marks two-phase commit (KIP-939)."""
        return self.owner is not None and self.owner.timeout_ms == TWO_PHASE_COMMIT

    @property
    def leader_moved(self) -> bool:
        """Whether the partition's leader or its epoch changed during the observation, or another replica answered."""
        before, after = self.leader_before, self.leader
        is_same = (before.leader, before.leader_epoch) == (after.leader, after.leader_epoch)
        return not is_same or self.producer.broker_id != before.leader

    @property
    def log(self) -> tuple[object, ...]:
        """What tells the log of its partition from another: a new leader may truncate it, a topic be created again.

        The first batch tells it of brokers before 2.8, without topic ids, and of recordings.
        """
        topic_id = self.observation.topic_ids.get(self.tp.topic)
        return self.leader.leader, self.leader.leader_epoch, topic_id, self.first_batch

    @property
    def is_of_other_logs(self) -> bool:
        """Whether its observations may be of several logs, in which its start offset is of several records."""
        parts = zip(*(each.log for each in self.history if each), strict=True)
        return any(len({*part} - {None}) > 1 for part in parts)

    @cached_property
    def as_of(self) -> AsOf | None:
        """For files: the time up to which they prove the coordinator's state, at least that of its newest record.

        Null if nothing proves any.
        """
        owner = self.owner
        if owner is None or owner.txn_state_partition is None or not self.observation.from_files:
            return None
        both = TopicPartition(STATE_TOPIC, owner.txn_state_partition), self.tp
        known = (self.observation.as_of.get(key) for key in both)
        found = [each for each in known if each is not None and each.contradiction is None]
        if not found and owner.last_update_time is not None:
            return AsOf(owner.last_update_time, "the newest record of the id")
        return max(found, key=lambda each: each.time, default=None)

    @cached_property
    def now(self) -> BrokersTime:
        """The brokers' time; for files, that of `as_of`."""
        if not self.observation.from_files:
            return self.observation.brokers_time if self.brokers_time is None else self.brokers_time
        return UNKNOWN_TIME if self.as_of is None else BrokersTime(time=self.as_of.time, source=self.as_of.proof)

    @cached_property
    def expires_at(self) -> dt.datetime | None:
        """Start time plus timeout of its owner; null if one is unknown or the transaction does not expire."""
        started, timeout_ms = (self.owner.start_time, self.owner.timeout_ms) if self.owner else (None, None)
        if started is None or timeout_ms is None or timeout_ms == TWO_PHASE_COMMIT:
            return None
        return started + dt.timedelta(milliseconds=timeout_ms)

    @cached_property
    def seen_for(self) -> dt.timedelta:
        """For how long observations have shown its owner in this state."""
        first = next((each for each in self.history if each and each.state == self.state), self)
        return between(first.observation, self.observation)

    @cached_property
    def age(self) -> TransactionAge:
        """For how long its owner's transaction is open: by the clocks, and as observed by a monotonic clock."""
        first = next((each for each in self.history if each and each.of_owner == self.of_owner), self)
        observed_for = observed_between(first.observation, self.observation)
        start = None if self.owner is None else self.owner.start_time
        return TransactionAge.of(start, self.now, observed_for=observed_for)

    @cached_property
    def of_owner(self) -> tuple[object, ...]:
        """What all observations of one transaction of its owner have in common."""
        start = None if self.owner is None else self.owner.start_time
        return self.transactional_id, self.producer_id, self.owner_epoch, self.state, start

    @cached_property
    def of_each_observation(self) -> Sequence[Case | None]:
        """The case of each observation alone, with what the logs show; null where it was not open."""
        shown = self.outcome if self.is_read else None
        return [
            each and replace(each, options=self.options, known_outcome=shown, recorded=self.recorded)
            for each in self.history
        ]

    @cached_property
    def checkpoint(self) -> FlinkCheckpoint | None:
        """The checkpoint that is to commit this very transaction; null if none is."""
        own = self.producer_id, self.epoch
        for checkpoint in reversed(self.options.checkpoints):  # the newest of a job first
            if any((each.producer_id, each.producer_epoch) == own for each in checkpoint.committables):
                return checkpoint
        return None

    # What the rules say of this state of the evidence

    @cached_property
    def owned_rule(self) -> Rule[Case] | None:
        """The first rule that applies of those on transactions with an owner; null if none does."""
        from toolkit.analysis.diagnosis.rules import OWNED_RULES

        return next((rule for rule in OWNED_RULES if rule.applies(self)), None)

    @property
    def is_disowned(self) -> bool:
        """Whether the coordinators' answers, as far as they go, show no coordinator that will end it."""
        return self.owned_rule is None

    @cached_property
    def decision(self) -> Decision:
        """The decision on it, by the first rule that applies.

        Its outcome is not `undecided` if logs were read, and do not prove that.
        """
        from toolkit.analysis.diagnosis.rules import DISOWNED_RULES

        rule = self.owned_rule or next(rule for rule in DISOWNED_RULES if rule.applies(self))
        decision = rule.decision(self)
        if decision.outcome == UNDECIDED and self.has_outcome and self.outcome.no_commit.status != PROVEN:
            return replace(decision, outcome=UNKNOWN)
        return decision

    @property
    def needs_recheck(self) -> bool:
        """Whether one observation does not decide: another has to show the same."""
        rule = self.owned_rule
        return rule is None or rule.verdict in {Verdict.UNKNOWN, Verdict.ENDING, Verdict.STUCK_ENDING}

    @property
    def needs_log(self) -> bool:
        """Whether the logs have to be read: to decide, or to explain what holds the LSO for long."""
        return self.start is not None and (self.owned_rule is None or self.owned_rule.is_explained)

    @property
    def needs_markers(self) -> bool:
        """Whether markers of its producer elsewhere may contradict the log: nobody will end it, or a fence would."""
        from toolkit.analysis.diagnosis.rules import doubts

        return not doubts(self) if self.owned_rule is None else self.owned_rule.action == "fence"

    # What the logs show

    @property
    def is_read(self) -> bool:
        """Whether its logs were read, now or for an earlier sample."""
        return self.known_outcome is not None or self.coordinators is not None or self.excerpt is not None

    @property
    def has_outcome(self) -> bool:
        """Whether its logs were read for its outcome, now or when it was recorded."""
        return self.start is not None and (self.is_read or self.recorded is not None)

    @cached_property
    def outcome(self) -> Outcome:
        """What was decided about its records, by the logs, or by the logs of the time of the recording."""
        if self.known_outcome is not None:
            return self.known_outcome
        if not self.is_read:
            return NOT_READ if self.recorded is None else recorded_outcome(self.recorded)
        from toolkit.analysis.diagnosis.markers import checked_by_markers
        from toolkit.analysis.diagnosis.outcome_proof import find_outcome

        found, search, batches = checked_by_markers(self, find_outcome(self)), self.marker_search, self.batches
        found = replace(
            found,
            has_ended=self.has_ended,
            are_markers_sought=search is not None,
            markers_unread=None if search is None else search.unread.get(self.producer_id),
            other_producer_id=None if batches is None else batches.foreign_producer_id,
        )
        if batches is None or not len(batches.markers_after):
            return found
        # Records below the high watermark were in the log when the producers were read.
        is_before = int(batches.markers_after["base_offset"][0]) < (self.leader_before.high_watermark or 0)
        return replace(
            found,
            marker_after=batches.marker_after,
            marker_contradicts=is_before,
            marker_entry=batches.entry("marker_after", batches.markers_after),
        )

    @cached_property
    def batches(self) -> ProducerBatches | None:
        """The producer's batches around the start offset; null if the log was not read up to it, or has no data yet."""
        if self.excerpt is None or self.start is None or self.excerpt.stop <= self.start:
            return None
        from toolkit.analysis.diagnosis.log_excerpts import producer_batches

        return producer_batches(self.excerpt, self.producer_id, self.start)

    @cached_property
    def opening(self) -> ProducerBatches | None:
        """`batches`, if they include the batch that opened the transaction; else null."""
        return self.batches if self.batches is not None and len(self.batches.first_batch) else None

    @cached_property
    def open_parts(self) -> Sequence[OpenPart]:
        """Its open batches, in parts of which the same is known."""
        from toolkit.analysis.diagnosis.log_excerpts import open_parts

        return open_parts(self)

    @cached_property
    def opening_epoch(self) -> int:
        """Epoch that opened the transaction; its current epoch if the first batch was not read."""
        return int(self.opening.first_batch["producer_epoch"][0]) if self.opening else self.epoch

    @property
    def written_at(self) -> dt.datetime | None:
        """Time of its first batch, by the batch; null if it was not read."""
        return utc(int(self.opening.first_batch["max_timestamp"][0])) if self.opening else None

    @property
    def opened_after(self) -> dt.datetime | None:
        """A broker's time before the open records, less the tolerated difference of clocks; null if none was read."""
        earlier = None if self.batches is None else self.batches.brokers_time_before
        return None if earlier is None else earlier - CLOCKS_DIFFER

    @property
    def begun_after(self) -> dt.datetime | None:
        """The time of the InitProducerId before its records, less what clocks may differ by; null if it is not left."""
        first = self.first_record
        if first is None or first.state != "Empty" or first.timestamp is None:
            return None
        return None if (first.producer_epoch or 0) > self.opening_epoch else first.timestamp - CLOCKS_DIFFER

    @cached_property
    def id_histories(self) -> Sequence[IdHistory]:
        """The history of its transactional id; if no id has its producer id any more, of every id that had it."""
        return () if self.coordinators is None else self.coordinators.of(self.producer_id, self.transactional_id)

    @cached_property
    def records(self) -> Sequence[TransactionLogRecord]:
        """The coordinators' records of these ids, one id after the other."""
        return [record for history in self.id_histories for record in history.records]

    @property
    def first_record(self) -> TransactionLogRecord | None:
        """The first record of its producer that is left; null if none is."""
        return next((each for each in self.records if each.producer_id == self.producer_id), None)

    @property
    def highest_epoch(self) -> int | None:
        """The highest epoch that the coordinators' records have of its producer; null if none is left."""
        of_producer = (each for each in self.records if each.producer_id == self.producer_id)
        return max((each.producer_epoch for each in of_producer if each.producer_epoch is not None), default=None)

    @cached_property
    def recorded_partitions(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinators' records name."""
        return frozenset(tp for record in self.records for tp in record.topic_partitions or ())

    @cached_property
    def of_epoch(self) -> Sequence[TransactionLogRecord]:
        """Records with the producer id and the epoch that opened the transaction."""
        key = self.producer_id, self.opening_epoch
        return [record for record in self.records if (record.producer_id, record.producer_epoch) == key]

    @property
    def may_precede_epoch_record(self) -> bool:
        """Whether its first batch may be older than the InitProducerId that is the first record left of its producer.

        A repeated InitProducerId returns the epoch that it has raised already (KIP-360), perhaps after a commit, whose
        records compaction then removes. A client's time proves nothing: it is that of an event.
        """
        first = self.first_record
        if first is None or first.state != "Empty" or begins_producer(first) or first.timestamp is None:
            return False
        after = [self.opened_after]
        if self.written_at is not None and self.opening and self.opening.first_batch["attributes"][0] & LOG_APPEND_TIME:
            after.append(self.written_at - CLOCKS_DIFFER)
        return not any(each is not None and each > first.timestamp for each in after)

    @cached_property
    def past_transactions(self) -> Sequence[PastTransaction]:
        """The producer's transactions by the coordinators' records, in order."""
        past = (each for history in self.id_histories for each in history.transactions)
        return [each for each in past if each.producer_id == self.producer_id]

    @cached_property
    def was_never_added(self) -> bool:
        """Whether no transaction of the epoch included the partition; false unless all its records were read."""
        first, epoch = next(iter(self.of_epoch), None), self.opening_epoch
        here = any(each.producer_epoch == epoch and self._is_in(each) for each in self.past_transactions)
        if first is None or here or self.coordinators is None or self.coordinators.gaps:
            return False
        if self.may_precede_epoch_record:  # a commit of the epoch may be gone
            return False
        # Compaction removes an id's earlier records first: if the record that began the epoch is left, all are.
        begun_by_end = first.client_transaction_version == 2 and (first.state or "").startswith("Complete")
        return first.state == "Empty" or begun_by_end

    def _is_in(self, transaction: PastTransaction) -> bool:
        """Whether the partition was added to a transaction."""
        return self.tp in (transaction.topic_partitions or ())

    @cached_property
    def is_late(self) -> bool:
        """Whether its first batch belongs to a transaction that a marker had already ended."""
        if self.opening is None or not self.opening.is_late or self.was_never_added:
            return False
        return not self._began_elsewhere_since(int(self.opening.marker_before["max_timestamp"][0]))

    def _began_elsewhere_since(self, marker_ms: int) -> bool:
        """Whether the producer has begun another transaction since the marker, without this partition."""
        if self.state == "Ongoing" and self.opening_epoch == self.owner_epoch:
            return not self.listed
        last = self.past_transactions[-1] if self.past_transactions else None
        if last is None or last.start_time is None or self._is_in(last):
            return False
        return last.start_time.timestamp() * 1000 > marker_ms

    @cached_property
    def cluster_events(self) -> Sequence[ClusterEvent]:
        """What happened to its partition, its coordinator and brokers since a minute before its first batch."""
        written_at, owner = self.written_at, self.owner
        if written_at is None:
            return ()
        from toolkit.analysis.cluster_events import events_around

        around = events_around(
            self.cluster_log,
            self.tp,
            transactional_ids={self.transactional_id},
            txn_state_partitions={owner.txn_state_partition} if owner else (),
        )
        since = written_at - BEFORE_OPENING
        near = (each for each in around if each.error or (each.ended_at and each.ended_at >= since))
        return list({(each.timestamp, each.tp, each.text, each.error): each for each in near}.values())

    def lines(self, event: str) -> Sequence[ClusterEvent]:
        """Lines of brokers' logs about its marker or its partition, or about none, since it was decided or opened."""
        decided, own = self.outcome.transaction, (self.tp, None)
        since = self.written_at if decided is None or decided.decided_at is None else decided.decided_at - CLOCKS_DIFFER
        found = (each for each in self.cluster_events if each.event == event and each.tp in own)
        return [each for each in found if since and each.timestamp and each.timestamp >= since]


class IndexedObservation:
    """An observation by partition: rows before and after the coordinators answered, and the open transactions."""

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        unseen = [
            Partition(topic=tp.topic, partition=tp.partition, observed_at=observation.observed_at, error=error)
            for tp, error in observation.unseen.items()
        ]
        self.before = {each.tp: each for each in (*observation.partitions, *unseen)}
        self.after = self.before | {each.tp: each for each in observation.partitions_after}
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
        self.cases: dict[TopicPartition, list[Case]] = {}
        for case in chain(self._open_on_leaders(), self._open_on_coordinators()):
            self.cases.setdefault(case.tp, []).append(case)

    def same(self, case: Case) -> Case | None:
        """The open transaction of the same partition, producer and start offset, if this observation has it."""
        key = case.producer_id, case.start
        return next((each for each in self.cases.get(case.tp, ()) if (each.producer_id, each.start) == key), None)

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

    def _open_on_leaders(self) -> Iterator[Case]:
        """Open at the same start offset before and after: open when the coordinators answered.

        The next observation covers a transaction that ended or began in between.
        """
        for tp, producers in self._open_after.items():
            for producer_id, producer in producers.items():
                earlier = self._open_before.get(tp, {}).get(producer_id)
                if earlier and earlier.current_txn_start_offset == producer.current_txn_start_offset:
                    yield self._case(producer)

    def _open_on_coordinators(self) -> Iterator[Case]:
        """Open for the coordinator, but not on the partition before the coordinator answered, or not known to be."""
        known = {(case.tp, case.producer_id) for case in chain.from_iterable(self.cases.values())}
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
                    yield self._case(written or without_data, partition_error=errors[0] if errors else None)

    def _case(self, producer: Producer, *, partition_error: str | None = None) -> Case:
        tp, start = producer.tp, producer.current_txn_start_offset
        owners = self._owners.get(-1 if producer.producer_id is None else producer.producer_id, [])
        if partition_error is not None:  # the one that has it open first
            owners = sorted(owners, key=lambda each: tp not in (each.topic_partitions or ()))
        return Case(
            producer=producer,
            owners=owners,
            leader_before=self.before[tp],
            leader=self.after[tp],
            observation=self.observation,
            partition_error=partition_error,
            first_batch=None if start is None else self._first_batches.get((*tp, start)),
        )


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
