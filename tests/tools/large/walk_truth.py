"""What became of each record of a walk, as its clients and coordinators know it; no diagnosis takes part.

A decision includes the records that its producer id and epoch wrote before it to a partition that was added to the
transaction: those are what its marker decides. What a coordinator has answered counts, also if its log loses it later.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tests.broker_files import LogBatch
from toolkit.schema.table import TopicPartition


class Truth(StrEnum):
    """What was decided about a record."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    LIVE = "live"
    NEVER = "never included"


class Fate(StrEnum):
    """What consumers receive, by the log of the partition."""

    DELIVERED = "delivered"
    DISCARDED = "discarded"
    OPEN = "open"


@dataclass(slots=True, eq=False, kw_only=True)
class WalkTransaction:
    """A transaction."""

    # transactional_id, producer_id, producer_epoch: its producer
    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int  # transaction version of its client
    timeout_ms: int  # of its client
    begun: float  # when it began
    partitions: set[TopicPartition] = field(default_factory=set)  # those that its coordinator has accepted
    # when its end was requested, and when it was complete; null while it is open
    ended: tuple[float, float] | None = None
    truth: Truth = Truth.LIVE  # what was decided about it

    @property
    def producer(self) -> tuple[str, int, int]:
        """Transactional id, producer id and epoch; a producer id may be given out twice."""
        return self.transactional_id, self.producer_id, self.producer_epoch

    @property
    def last_time(self) -> float:
        """When its end was complete; now if it is open."""
        return time.time() if self.ended is None else self.ended[1] + 0.002

    @property
    def is_overdue(self) -> bool:
        """Whether its timeout has passed."""
        return time.time() > self.begun + self.timeout_ms / 1000


@dataclass(slots=True, eq=False, kw_only=True)
class WalkRecord:
    """A record."""

    value: str
    transactional_id: str
    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    written: float

    @property
    def producer(self) -> tuple[str, int, int]:
        """Transactional id, producer id and epoch."""
        return self.transactional_id, self.producer_id, self.producer_epoch


class Ledger:
    """All transactions and records of a round."""

    def __init__(self) -> None:
        self.transactions: list[WalkTransaction] = []
        self.records: dict[str, WalkRecord] = {}
        self._numbers = itertools.count()

    def next_value(self) -> str:
        """A value that no other record of the round has."""
        return f"w{next(self._numbers):09}"

    def decision(self, record: WalkRecord) -> WalkTransaction | None:
        """The transaction that includes a record; null if none does."""
        for each in self.transactions:
            same = each.producer == record.producer
            # A decision that came first does not include it, nor does one that was given up.
            is_later = each.truth is Truth.LIVE or (each.ended is not None and each.ended[0] > record.written)
            if same and is_later and record.tp in each.partitions:
                return each
        return None

    def truth(self, value: str) -> Truth:
        """What was decided about a record."""
        decision = self.decision(self.records[value])
        return Truth.NEVER if decision is None else decision.truth


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """What one producer has open on a partition, by its log."""

    tp: TopicPartition
    producer_id: int
    start_offset: int
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartitionLogs:
    """The logs of a round at one time."""

    batches: Mapping[TopicPartition, list[LogBatch]]

    def fates(self) -> dict[str, Fate]:
        """By value, of the records that are left."""
        found: dict[str, Fate] = {}
        for batches in self.batches.values():
            waiting: dict[int, list[str]] = {}
            for each in batches:
                if each.is_commit is None:
                    found.update(dict.fromkeys(each.values, Fate.OPEN if each.is_transactional else Fate.DELIVERED))
                    waiting.setdefault(each.producer_id, []).extend(each.values if each.is_transactional else ())
                else:
                    fate = Fate.DELIVERED if each.is_commit else Fate.DISCARDED
                    found.update(dict.fromkeys(waiting.pop(each.producer_id, ()), fate))
        return found

    def open_transactions(self) -> Iterator[OpenTransaction]:
        """Of every producer and partition."""
        for tp, batches in self.batches.items():
            opened: dict[int, list[LogBatch]] = {}
            for each in batches:
                if each.is_commit is not None:
                    opened.pop(each.producer_id, None)
                elif each.is_transactional:
                    opened.setdefault(each.producer_id, []).append(each)
            for producer_id, found in opened.items():
                yield OpenTransaction(
                    tp=tp,
                    producer_id=producer_id,
                    start_offset=found[0].base_offset,
                    values=tuple(value for each in found for value in each.values),
                )

    def markers(self, producer_id: int) -> Iterator[tuple[TopicPartition, LogBatch]]:
        """The markers of a producer."""
        for tp, batches in self.batches.items():
            for each in batches:
                if each.is_commit is not None and each.producer_id == producer_id:
                    yield tp, each

    def lso(self, tp: TopicPartition) -> int | None:
        """The first open offset of a partition; null if none is open."""
        return min((each.start_offset for each in self.open_transactions() if each.tp == tp), default=None)
