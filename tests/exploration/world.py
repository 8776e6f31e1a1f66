"""What may happen in one small world: its constants, and the bounds of what is rare."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tests.exploration.state import TICK_MS, Coordinator, Partition, State

EPOCH = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
EPOCH_MS = int(EPOCH.timestamp() * 1000)
START_MS = 86_400_000  # when a model begins: no clock shows a time before its epoch


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """A configuration of Kafka and its clients, and how much of what is rare may happen.

    Parameters
    ----------
    name
        For reports.
    version
        Transaction version of the first clients, 1 or 2. Where instances of the other version are among the rare
        steps, brokers know both.
    verification
        ``transaction.partition.verification.enable`` (KIP-890, part 1), for clients of version 1.
    ids, partitions, state_partitions
        How many transactional ids, data partitions and partitions of ``__transaction_state``.
    timeout_ms
        Of every transaction.
    pace_ms, skew_ms, operator_ms
        Time between two records of coordinators, and by how much broker 2's clock and our machine's are ahead.
    event_ms
        By how much CreateTime is ahead of the time at which a record is produced: of those with an even and an odd
        sequence number.
    append_time
        Whether the topic has LogAppendTime.
    tail
        How many of its newest records a log loses at most.
    max_epoch
        From this epoch on a producer id is exhausted and the id gets another (32766 in Kafka).
    skips_markers
        Whether the marker of a partition without a leader is skipped (KAFKA-20734).
    bumps
        Whether a client raises its epoch after a send that timed out (KIP-360).
    rights
        ``open``: no authorizer. ``full``: one that allows everything. ``hidden``: one that hides transactional ids.
        ``reads_log``: the same, with READ on ``__transaction_state``.
    rare
        How often each rare step may happen; what is not named never does. See `steps`.
    first_coordinator
        Broker of the first coordinator.
    after
        Steps that have happened already: what is explored begins behind them.
    instances, transactions, records
        Bounds of the number of clients, of coordinators' transactions and of records on a partition.
    """

    name: str
    version: int = 1
    verification: bool = False
    ids: int = 1
    partitions: int = 2
    state_partitions: int = 1
    timeout_ms: int = 600_000
    pace_ms: int = 10_000
    skew_ms: int = 0
    operator_ms: int = 0
    event_ms: tuple[int, int] = (0, 0)
    append_time: bool = False
    tail: int = 1
    max_epoch: int = 32_766
    skips_markers: bool = True
    bumps: bool = True
    rights: str = "open"
    after: tuple[str, ...] = ()
    rare: Mapping[str, int] = field(default_factory=dict)
    first_coordinator: int = 1
    instances: int = 1
    transactions: int = 2
    records: int = 5

    @cached_property
    def start(self) -> State:
        """The first state."""
        from tests.exploration.steps import successors  # which needs worlds

        state = self._empty
        for label in self.after:
            found = dict(successors(self, state))
            if label not in found:
                raise ValueError(f"{self.name}: no step {label!r}, but {sorted(found)}")
            state = found[label]
        return state

    @property
    def _empty(self) -> State:
        partitions = tuple(Partition(leader=1 + number % 2, leader_epoch=3) for number in range(self.partitions))
        coordinators = tuple(
            Coordinator(leader=self.coordinator_of(number), epoch=7) for number in range(self.state_partitions)
        )
        state = State(clients=(), coordinators=coordinators, partitions=partitions)
        return state._replace(known=state.leaders)

    def time(self, state: State, broker: int = 1) -> int:
        """The time of the next batch, by a broker's clock; the same between two records of a coordinator."""
        ahead = self.skew_ms if broker == 2 else 0
        return START_MS + state.tick * TICK_MS + state.clock * self.pace_ms + ahead

    def create_time(self, state: State, sequence: int) -> int:
        """The time that a client gives its next batch."""
        return self.time(state) + self.event_ms[sequence % 2]

    def now(self, state: State) -> int:
        """The right time while our requests are sent; all of the state happened before."""
        return START_MS + state.tick * TICK_MS + self.since_tick // dt.timedelta(milliseconds=1)

    @property
    def broker_version(self) -> int:
        """Transaction version of the cluster."""
        return 2 if self.version == 2 or {"upgrade", "switch"} & self.rare.keys() else 1

    @cached_property
    def since_tick(self) -> dt.timedelta:
        """The time after a tick; everything of a tick happened before."""
        return dt.timedelta(seconds=10 if self.pace_ms < 100 else 300)

    def coordinator_of(self, number: int) -> int:
        """The first leader of a partition of ``__transaction_state``."""
        return 1 + (number + self.first_coordinator - 1) % 2

    def state_partition(self, id_: int) -> int:
        """The partition of ``__transaction_state`` of an id."""
        return id_ % self.state_partitions
