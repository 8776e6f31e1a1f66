"""One observation of a cluster or of its files: the input of the verdicts."""

from __future__ import annotations

import datetime as dt
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from toolkit.schema.live import Partition, Producer, Transaction
from toolkit.schema.table import TopicPartition

OfPartition = TypeVar("OfPartition", Partition, Producer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Whether the coordinators' responses are complete.

    Parameters
    ----------
    brokers
        Every broker of the cluster that was queried.
    proofs
        What proves completeness, one sentence each: all brokers answered, rights, ``__transaction_state`` read.
    gaps
        What is missing, one sentence each, naming the broker, partition or right. Empty means complete: only then does
        the absence of a transactional id count as evidence.
    topic_gaps
        What is missing to diagnose the whole cluster: rights without which topics stay hidden.
    """

    brokers: Sequence[int] = ()
    proofs: Sequence[str] = ()
    gaps: Sequence[str] = ()
    topic_gaps: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBatch:
    """The first batch of an open transaction, read from the log at its start offset."""

    base_offset: int
    last_offset: int
    producer_id: int
    producer_epoch: int
    base_timestamp: dt.datetime | None
    log_append_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One observation, read in this order: partitions, producers, transactions, then producers and partitions again.

    The coordinators answer between two responses of the partition leader. A transaction with the same producer id and
    start offset in both was open when its coordinator answered, so no race can make a finished transaction look
    disowned.

    Parameters
    ----------
    partitions, producers, transactions
        As their leaders and coordinators answered; error rows included.
    partitions_after, producers_after
        The same, read again after the coordinators answered, for every partition that had an open transaction or an
        LSO below its high watermark.
    coverage
        Whether the coordinators' responses are complete.
    first_batches
        First batch by (topic, partition, start offset), if it was read.
    observed_at
        When the observation ended, by this machine's clock; from files, when the newest of them was written.
    from_files
        Whether it was read from log directories. Then the rows after are those before, `doubts` states what that leaves
        unproven, and the state of an id is as old as its own `observed_at`.
    doubts
        What is missing to prove that an open transaction has no owner, one sentence each, by (topic, partition,
        producer id).
    notes
        Remarks on a partition for its evidence, one sentence each.
    """

    partitions: Sequence[Partition]
    producers: Sequence[Producer]
    transactions: Sequence[Transaction]
    partitions_after: Sequence[Partition]
    producers_after: Sequence[Producer]
    coverage: Coverage
    observed_at: dt.datetime
    first_batches: Mapping[tuple[str, int, int], FirstBatch] = field(default_factory=dict)
    from_files: bool = False
    doubts: Mapping[tuple[str, int, int], Sequence[str]] = field(default_factory=dict)
    notes: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)

    def on(self, topic_partitions: Container[TopicPartition]) -> Observation:
        """The observation of some partitions only, with all answers of coordinators."""

        def selected(answers: Iterable[OfPartition]) -> list[OfPartition]:
            return [each for each in answers if (each.topic, each.partition) in topic_partitions]

        return replace(
            self,
            partitions=selected(self.partitions),
            producers=selected(self.producers),
            partitions_after=selected(self.partitions_after),
            producers_after=selected(self.producers_after),
        )
