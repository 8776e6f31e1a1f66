"""One observation of a cluster or of its files, the input of the verdicts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from toolkit.analysis.coordinator.transaction_states import OPEN_STATES
from toolkit.analysis.diagnosis.clocks import UNKNOWN_TIME, BrokersTime
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
