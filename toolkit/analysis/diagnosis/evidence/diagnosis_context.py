"""An open transaction with its log evidence: its producer's batches, and its coordinator's records.

Here is which logs to read for them. What they do not prove, markers of the same producer on other partitions may.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from toolkit.analysis.cluster_events import LEADER_EVENTS, events_around
from toolkit.analysis.coordinator.coordinator_log import CoordinatorLog, IdHistory, events_of
from toolkit.analysis.diagnosis.evidence.log_excerpts import CLOCKS_DIFFER, Excerpt, ProducerBatches, producer_batches
from toolkit.analysis.diagnosis.evidence.other_markers import (
    MarkerSearch,
    ahead_text,
    lost_end,
    lost_end_text,
    other_markers,
    outcome_by_markers,
    unexplained_marker,
    unexplained_text,
)
from toolkit.analysis.diagnosis.evidence.outcome_proof import find_outcome
from toolkit.analysis.diagnosis.evidence_kinds import OpenEvidence
from toolkit.analysis.diagnosis.evidence_text import FILES, REQUESTS, elsewhere_entry
from toolkit.analysis.diagnosis.observation import OpenTransaction
from toolkit.analysis.diagnosis.verdicts import COMMIT, UNKNOWN, Outcome
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema import utc
from toolkit.schema.live import Partition, Producer
from toolkit.schema.log import PastTransaction, TransactionLogRecord
from toolkit.schema.metadata import ClusterEvent
from toolkit.schema.table import Error, TopicPartition

BEFORE_OPENING = dt.timedelta(minutes=1)  # what happened to the cluster then may be why it hangs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogEvidence:
    """Log evidence of held partitions."""

    excerpts: Mapping[TopicPartition, Excerpt]  # by partition
    coordinators: CoordinatorLog | None = None  # null if their log was not read
    # markers of the producers on other partitions; null if they were not looked for, as all have an owner
    marker_search: MarkerSearch | None = None
    # partition, producer id and start offset of transactions that their leader no longer shows open, once the
    # coordinators' log was read
    ended: Collection[tuple[TopicPartition, int, int]] = ()
    # what happened to the cluster, in order; none if no metadata log was read
    cluster_events: Sequence[ClusterEvent] = ()


@dataclass(frozen=True)
class DiagnosisContext:
    """An open transaction and its log evidence."""

    txn: OpenTransaction
    log: LogEvidence | None  # null if the logs were not read

    @cached_property
    def coordinators(self) -> CoordinatorLog | None:
        """The coordinators' log; null if it was not read."""
        return None if self.log is None else self.log.coordinators

    @cached_property
    def producer_batches(self) -> ProducerBatches | None:
        """The producer's batches around the start offset; null if the log was not read up to it, or has no data yet."""
        excerpt = None if self.log is None else self.log.excerpts.get(self.txn.tp)
        if excerpt is None or self.txn.start is None or excerpt.stop <= self.txn.start:
            return None
        return producer_batches(excerpt, self.txn.producer_id, self.txn.start)

    @cached_property
    def opening(self) -> ProducerBatches | None:
        """`producer_batches`, if they include the batch that opened the transaction; else null."""
        batches = self.producer_batches
        return batches if batches is not None and len(batches.first_batch) else None

    @property
    def opened_after(self) -> dt.datetime | None:
        """A broker's time before the open records, less the tolerated difference of clocks; null if none was read."""
        earlier = None if self.producer_batches is None else self.producer_batches.brokers_time_before
        return None if earlier is None else earlier - CLOCKS_DIFFER

    @property
    def begun_after(self) -> dt.datetime | None:
        """The time of the InitProducerId before its records, less what clocks may differ by; null if it is not left."""
        own = (each for each in self.events if each.producer_id == self.txn.producer_id)
        first = next(own, None)
        if (
            first is None
            or first.state != "Empty"
            or first.timestamp is None
            or (first.producer_epoch or 0) > self.epoch
        ):
            return None
        return first.timestamp - CLOCKS_DIFFER

    @cached_property
    def listed(self) -> frozenset[TopicPartition]:
        """The partitions that the coordinators' records of its producer name."""
        return frozenset(tp for event in self.events for tp in event.topic_partitions or ())

    @cached_property
    def outcome(self) -> Outcome:
        """What was decided about its records."""
        outcome = find_outcome(self.txn, self.producer_batches, self.coordinators)
        if self.log is None or self.log.marker_search is None:
            return outcome
        excerpt = self.log.excerpts.get(self.txn.tp)
        here = () if excerpt is None else other_markers(self.txn.tp, excerpt, self.txn.producer_id)
        markers = list({(each.tp, each.offset): each for each in (*self.log.marker_search.markers, *here)}.values())
        if outcome.is_contradicted:
            return outcome
        if outcome.name == UNKNOWN:
            by_markers = outcome_by_markers(self.txn, self.producer_batches, markers, of_epoch=self.of_epoch)
            return outcome if by_markers is None else replace(by_markers, offsets=outcome.offsets)
        history = self.histories[0] if len(self.histories) == 1 else None
        producer_id = self.txn.producer_id
        # An operator's ABORT marker has the epoch of the data; one that is raised is a coordinator's.
        aborts = [each for each in markers if each.is_raised or outcome.name == COMMIT]
        unexplained = unexplained_marker(producer_id, history, markers, is_commit=True) or unexplained_marker(
            producer_id, history, aborts, is_commit=False
        )
        if unexplained is not None:
            missing, evidence = unexplained_text(unexplained, outcome.offsets), [unexplained.entry]
        elif (ahead := self.log.marker_search.ahead.get(producer_id)) is not None:
            sources = FILES if self.txn.observation.from_files else REQUESTS
            missing, evidence = ahead_text(ahead, outcome.offsets), [elsewhere_entry(ahead, source=sources.producers)]
        elif outcome.name != COMMIT and (lost := lost_end(self.txn, self.producer_batches, history, markers)):
            missing, evidence = lost_end_text(lost, outcome.offsets), [*lost.evidence]
        else:
            return outcome
        return Outcome(
            name=UNKNOWN,
            reason=missing,
            missing=(missing,),
            evidence=tuple(evidence),
            offsets=outcome.offsets,
            is_contradicted=True,
        )

    @property
    def highest_epoch(self) -> int | None:
        """The highest epoch that the coordinators' records have of its producer; null if none is left."""
        of_producer = (each for each in self.events if each.producer_id == self.txn.producer_id)
        return max((each.producer_epoch for each in of_producer if each.producer_epoch is not None), default=None)

    @cached_property
    def epoch(self) -> int:
        """Epoch that opened the transaction; its current epoch if the first batch was not read."""
        return int(self.opening.first_batch["producer_epoch"][0]) if self.opening else self.txn.epoch

    @property
    def written_at(self) -> dt.datetime | None:
        """Time of its first batch, by the batch; null if it was not read."""
        return utc(int(self.opening.first_batch["max_timestamp"][0])) if self.opening else None

    @cached_property
    def cluster_events(self) -> Sequence[ClusterEvent]:
        """What happened to its partition, its coordinator and brokers since a minute before its first batch."""
        written_at, owner = self.written_at, self.txn.owner
        if self.log is None or written_at is None:
            return ()
        around = events_around(
            self.log.cluster_events,
            self.txn.tp,
            transactional_ids={self.txn.transactional_id},
            txn_state_partitions={owner.txn_state_partition} if owner else (),
        )
        since = written_at - BEFORE_OPENING
        near = (each for each in around if each.error or (each.ended_at and each.ended_at >= since))
        return list({(each.timestamp, each.tp, each.text, each.error): each for each in near}.values())

    @cached_property
    def leader_events(self) -> Sequence[ClusterEvent]:
        """Those that changed the leader of its partition."""
        return [each for each in self.cluster_events if each.tp == self.txn.tp and each.event in LEADER_EVENTS]

    def lines(self, event: str) -> Sequence[ClusterEvent]:
        """Lines of brokers' logs about its marker or its partition, or about none, since it was decided or opened."""
        decided, own = self.outcome.transaction, (self.txn.tp, None)
        since = self.written_at if decided is None or decided.decided_at is None else decided.decided_at - CLOCKS_DIFFER
        found = (each for each in self.cluster_events if each.event == event and each.tp in own)
        return [each for each in found if since and each.timestamp and each.timestamp >= since]

    @cached_property
    def histories(self) -> Sequence[IdHistory]:
        """The history of its transactional id; if no id has its producer id any more, of every id that had it."""
        if self.coordinators is None:
            return ()
        return self.coordinators.of(self.txn.producer_id, self.txn.transactional_id)

    @cached_property
    def events(self) -> Sequence[TransactionLogRecord]:
        """The records of `histories`."""
        return events_of(self.histories)

    @cached_property
    def of_epoch(self) -> Sequence[TransactionLogRecord]:
        """Records with the producer id and the epoch that opened the transaction."""
        key = self.txn.producer_id, self.epoch
        return [record for record in self.events if (record.producer_id, record.producer_epoch) == key]

    @cached_property
    def transactions(self) -> Sequence[PastTransaction]:
        """The producer's transactions, in order."""
        past = (each for history in self.histories for each in history.transactions)
        return [each for each in past if each.producer_id == self.txn.producer_id]

    def has(self, transaction: PastTransaction) -> bool:
        """Whether the partition was added to a transaction."""
        return self.txn.tp in (transaction.topic_partitions or ())

    @cached_property
    def was_never_added(self) -> bool:
        """Whether no transaction of the epoch included the partition; false unless all its records were read."""
        first = next(iter(self.of_epoch), None)
        here = any(each.producer_epoch == self.epoch and self.has(each) for each in self.transactions)
        if first is None or here or self.coordinators is None or self.coordinators.gaps:
            return False
        # Compaction removes an id's earlier records first: if the record that began the epoch is left, all are.
        begun_by_end = first.client_transaction_version == 2 and (first.state or "").startswith("Complete")
        return first.state == "Empty" or begun_by_end

    @cached_property
    def is_late(self) -> bool:
        """Whether its first batch belongs to a transaction that a marker had already ended."""
        if self.opening is None or not self.opening.is_late or self.was_never_added:
            return False
        return not self._began_elsewhere_since(int(self.opening.marker_before["max_timestamp"][0]))

    def _began_elsewhere_since(self, marker_ms: int) -> bool:
        """Whether the producer has begun another transaction since the marker, without this partition."""
        if self.txn.state == "Ongoing" and self.epoch == self.txn.owner_epoch:
            return not self.txn.listed
        last = self.transactions[-1] if self.transactions else None
        if last is None or last.start_time is None or self.has(last):
            return False
        return last.start_time.timestamp() * 1000 > marker_ms


class ExcerptStart(NamedTuple):
    """Where the log of a partition is read: around the lowest open transaction that needs it and is still in the log.

    `tp`, `leader`: the partition, also as its leader has it.
    `offset`: first offset of that transaction that is still in the log.
    `producer_ids`: the producers of its transactions, whose markers before the offset are searched.
    """

    tp: TopicPartition
    leader: Partition
    offset: int
    producer_ids: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """The logs to read for open transactions."""

    excerpts: Sequence[ExcerptStart]  # the logs of their partitions, in the order of the transactions
    # those that a transactional id owns, by its partition of ``__transaction_state``; null if that is not known. The
    # records of the id are read
    owned: Mapping[int | None, Sequence[OpenEvidence]]
    producer_ids: frozenset[int]  # producers without an owner: the records of every id that had one of them are read


def select_logs(to_read: Iterable[OpenEvidence]) -> LogSelection:
    """The logs to read for these transactions, from a cluster or from files."""
    by_partition: defaultdict[TopicPartition, list[OpenTransaction]] = defaultdict(list)
    owned: defaultdict[int | None, list[OpenEvidence]] = defaultdict(list)
    producer_ids: set[int] = set()
    for each in to_read:
        by_partition[each.txn.tp].append(each.txn)
        if each.txn.owner is None:
            producer_ids.add(each.txn.producer_id)
        elif each.txn.owner.transactional_id is not None:
            owned[each.txn.owner.txn_state_partition].append(each)
    excerpts = [_excerpt_start(tp, opened) for tp, opened in by_partition.items()]
    return LogSelection(excerpts=excerpts, owned=owned, producer_ids=frozenset(producer_ids))


def _excerpt_start(tp: TopicPartition, opened: Sequence[OpenTransaction]) -> ExcerptStart:
    leader = opened[0].leader
    lowest = min(txn.start for txn in opened if txn.start is not None)
    return ExcerptStart(
        tp=tp,
        leader=leader,
        offset=max(leader.log_start_offset or 0, lowest),
        producer_ids=frozenset(txn.producer_id for txn in opened),
    )


MAX_OFFSETS = 20_000  # to read of each partition, from the time of the open records on
MAX_PARTITIONS = 1_000
NONE: Mapping[TopicPartition, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerSearchPlan:
    """Which partitions to read for markers of which open transactions, and what is not read, by producer id.

    `ahead`: as in `MarkerSearch`.
    """

    partitions: Mapping[TopicPartition, Sequence[DiagnosisContext]]
    unread: Mapping[int, str]
    ahead: Mapping[int, Producer]


def plan_marker_search(
    contexts: Iterable[DiagnosisContext], producers: Iterable[Producer], *, unread: Mapping[TopicPartition, str] = NONE
) -> MarkerSearchPlan:
    """Plan which partitions are read for markers of open transactions: where their producers have written since.

    `contexts`: open transactions that no coordinator will end.
    `producers`: where the producers have written; error rows count if the coordinators' records name the partition.
    `unread`: partitions that were not read, and why; likewise.
    """
    of_producer: dict[int, str] = {}
    failed = {tp: f"{tp.topic}-{tp.partition} could not be read ({why})" for tp, why in unread.items()}
    written: defaultdict[int, list[tuple[int, TopicPartition]]] = defaultdict(list)
    highest: dict[int, Producer] = {}
    for each in producers:
        if each.error:
            failed[each.tp] = f"{each.topic}-{each.partition} could not be read ({Error.of(each.error).code})"
        elif each.topic != STATE_TOPIC and each.producer_id is not None and each.producer_epoch is not None:
            written[each.producer_id].append((each.producer_epoch, each.tp))
            before = highest.get(each.producer_id)
            if before is None or each.producer_epoch > (before.producer_epoch or 0):
                highest[each.producer_id] = each
    known: defaultdict[TopicPartition, list[DiagnosisContext]] = defaultdict(list)
    ahead: dict[int, Producer] = {}
    for context in contexts:
        newest, recorded = highest.get(context.txn.producer_id), context.highest_epoch
        if newest is not None and recorded is not None and (newest.producer_epoch or 0) > recorded:
            ahead[context.txn.producer_id] = newest
        producer_id, epoch = context.txn.producer_id, context.txn.epoch
        others = [each for each in written[producer_id] if each[1] != context.txn.tp]
        # Those with the epoch of the open records, or a higher one, may have a marker of their transaction.
        nearest = [tp for _, tp in sorted(others, key=lambda each: (each[0] < epoch, each))]
        for tp in nearest:
            if tp in known or len(known) < MAX_PARTITIONS:
                known[tp].append(context)
            else:
                of_producer[producer_id] = f"more than {MAX_PARTITIONS:,} partitions would have to be read"
        for tp in sorted(context.listed & failed.keys()):
            of_producer[producer_id] = failed[tp]
    return MarkerSearchPlan(partitions=known, unread=of_producer, ahead=ahead)


def cut_search(
    tp: TopicPartition, contexts: Iterable[DiagnosisContext], *, start: int | None, is_cut: bool
) -> str | None:
    """Why not all markers that may count were looked for on a partition; null if they were.

    `MAX_OFFSETS` from a broker's time right before the open records on are enough; from any earlier time on, they may
    end before those.
    `start`: where it was read from if that is not the beginning of the log; `is_cut`: whether the end was not read.
    """
    if all(each.opened_after is not None for each in contexts):
        return None
    if is_cut or (start is not None and search_from(contexts) is None):
        return f"more than {MAX_OFFSETS:,} offsets of {tp.topic}-{tp.partition} would have to be read"
    return None


def named_topics(contexts: Iterable[DiagnosisContext]) -> set[str]:
    """The topics of the open transactions, and those that their coordinators' records name."""
    contexts = list(contexts)
    named = {topic for context in contexts for event in context.events for topic, _ in event.topic_partitions or ()}
    return named | {context.txn.tp[0] for context in contexts}


def search_from(contexts: Iterable[DiagnosisContext]) -> dt.datetime | None:
    """From when on markers of these open transactions are looked for; null if that is not known.

    A broker's time before their records, as markers come after them; else that of their producer's InitProducerId.
    """
    times = [context.opened_after or context.begun_after for context in contexts]
    known = [time for time in times if time is not None]
    return min(known) - BEFORE_OPENING if len(known) == len(times) else None
