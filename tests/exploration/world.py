"""The state of a small Kafka: immutable tuples, so that a state is a key.

Fields named ``ctxn``, ``truths`` and ``promised`` are ghosts: no broker knows them. They record what is true of each
record, so that verdicts and actions can be judged by it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple

NOBODY = -1
NO_SEQUENCE = -1
TICK_MS = 1_000_000  # between two ticks
FIRST_PRODUCER_ID = 1000
Written = tuple[int, int, int, int, int]  # a record: partition, producer id, epoch, sequence, time


class Record(NamedTuple):
    """A batch of a partition's log, data or marker; its offset is its index.

    `time`: in ms since the model's epoch, by the clock of its client (CreateTime) or leader (LogAppendTime, markers).
    Ghost `ctxn`: the coordinator's transaction that it was part of when it was written, -1 if it was part of none.
    """

    kind: str  # data, commit, abort
    pid: int
    epoch: int
    sequence: int
    coordinator_epoch: int
    leader_epoch: int
    time: int
    ctxn: int = NOBODY


class Former(NamedTuple):
    """A former leader that has not learned yet that it no longer leads: it answers as before."""

    leader: int
    leader_epoch: int
    log: tuple[Record, ...]
    high_watermark: int


class Partition(NamedTuple):
    """A partition as its leader has it. Its producer state follows from the log, as after a restart."""

    leader: int
    leader_epoch: int
    log: tuple[Record, ...] = ()
    high_watermark: int = 0
    former: Former | None = None


class ProducerEntry(NamedTuple):
    """ProducerStateEntry."""

    pid: int
    epoch: int
    last_sequence: int
    coordinator_epoch: int
    start: int  # first offset of its open transaction, or -1
    last_time: int


class Meta(NamedTuple):
    """TransactionMetadata of an id. `fencing`: its pending state is PrepareEpochFence, and its epoch is raised."""

    pid: int
    epoch: int
    state: str
    timeout_ms: int = 60_000
    partitions: tuple[int, ...] = ()
    start: int = -1  # by its coordinator's clock, as `updated`
    updated: int = 0
    client_version: int = 0  # 0 for clients of transaction version 1 (TransactionVersion.transactionVersionForEndTxn)
    last_epoch: int = -1
    previous_pid: int = -1
    next_pid: int = -1
    fencing: bool = False
    given_up: bool = False  # a marker was refused for good: TransactionMarkerRequestCompletionHandler sends none again
    ctxn: int = NOBODY


class StateRecord(NamedTuple):
    """A record of ``__transaction_state``; a null meta is a tombstone."""

    offset: int
    id: int
    meta: Meta | None
    time: int
    leader_epoch: int


class Coordinator(NamedTuple):
    """One partition of ``__transaction_state`` and the coordinator that leads it.

    `phase`: ``elected`` (it leads, and has not begun to load: it lists nothing, without an error), ``loading``,
    ``loaded``. `former`: a broker that has not learned yet that it no longer leads, and its cache.
    """

    leader: int
    epoch: int
    phase: str = "loaded"
    cache: tuple[tuple[int, Meta], ...] = ()
    log: tuple[StateRecord, ...] = ()
    end: int = 0
    former: tuple[int, tuple[tuple[int, Meta], ...]] | None = None

    def meta(self, id_: int) -> Meta | None:
        """The cached metadata of an id."""
        return next((meta for name, meta in self.cache if name == id_), None)


class Message(NamedTuple):
    """A request that a client or coordinator took for lost, and that may still arrive."""

    kind: str  # produce, end, init, marker
    id: int
    pid: int
    epoch: int
    partition: int = -1
    sequence: int = -1
    commit: bool = False
    coordinator_epoch: int = -1
    ctxn: int = NOBODY
    version: int = 1  # transaction version of the client


class Client(NamedTuple):
    """A producer instance. `phase`: ``ready``, ``open`` (in a transaction) or ``gone`` (fenced, or crashed)."""

    id: int
    pid: int
    epoch: int
    phase: str = "ready"
    added: tuple[int, ...] = ()
    sequences: tuple[int, ...] = ()
    failed: bool = False  # a send of this transaction timed out: it must abort
    acknowledged: tuple[Written, ...] = ()  # what it wrote in this transaction
    version: int = 1  # transaction version


class Truth(NamedTuple):
    """Ghost: a transaction of a coordinator, and what was decided."""

    id: int
    pid: int
    epoch: int  # of its producer; its markers may have a higher one
    version: int  # of its client
    began: int  # when it began, by a clock that is right
    decision: str = ""  # commit or abort
    partitions: tuple[int, ...] = ()  # that its decision covers


class State(NamedTuple):
    """Everything."""

    clients: tuple[Client, ...]
    coordinators: tuple[Coordinator, ...]
    partitions: tuple[Partition, ...]
    network: tuple[Message, ...] = ()
    clock: int = 0  # milliseconds since the last tick; only coordinators' records move it, and stand between two of it
    tick: int = 0
    next_pid: int = FIRST_PRODUCER_ID
    silent: tuple[int, ...] = ()  # brokers that do not answer this client
    known: tuple[tuple[int, int], ...] = ()  # (leader, epoch) of all partitions in the metadata that brokers return
    spent: tuple[str, ...] = ()  # rare steps so far; each is bounded
    truths: tuple[Truth, ...] = ()
    promised: frozenset[Written] = frozenset()  # acknowledged, and then told that it is committed

    @property
    def leaders(self) -> tuple[tuple[int, int], ...]:
        """Leader and its epoch of every partition, those of ``__transaction_state`` last."""
        of_data = [(each.leader, each.leader_epoch) for each in self.partitions]
        return (*of_data, *((each.leader, each.epoch) for each in self.coordinators))


def written(number: int, record: Record) -> Written:
    """A record by what makes it unique."""
    return number, record.pid, record.epoch, record.sequence, record.time


@lru_cache(maxsize=200_000)
def producer_entries(log: tuple[Record, ...]) -> tuple[ProducerEntry, ...]:
    """Producer state of a log (ProducerStateManager, ProducerAppendInfo.append)."""
    entries: dict[int, ProducerEntry] = {}
    for offset, record in enumerate(log):
        entry = entries.get(record.pid)
        if record.kind == "data":
            start = offset if entry is None or entry.start < 0 else entry.start
            known = -1 if entry is None else entry.coordinator_epoch
            new = ProducerEntry(record.pid, record.epoch, record.sequence, known, start, record.time)
        else:
            sequence = entry.last_sequence if entry and entry.epoch == record.epoch else NO_SEQUENCE
            new = ProducerEntry(record.pid, record.epoch, sequence, record.coordinator_epoch, -1, record.time)
        entries[record.pid] = new
    return tuple(entries.values())


def open_records(log: tuple[Record, ...], pid: int) -> list[Record]:
    """Records that the next marker of a producer decides."""
    entry = next((each for each in producer_entries(log) if each.pid == pid), None)
    if entry is None or entry.start < 0:
        return []
    return [record for record in log[entry.start :] if record.pid == pid and record.kind == "data"]


@lru_cache(maxsize=200_000)
def visible(log: tuple[Record, ...]) -> tuple[tuple[object, ...], ...]:
    """A log without what no broker knows."""
    return tuple(record[:-1] for record in log)


EPOCH = dt.datetime(2026, 11, 24, 12, tzinfo=dt.UTC)
EPOCH_MS = int(EPOCH.timestamp() * 1000)
START_MS = 86_400_000  # when a model begins: no clock shows a time before its epoch


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """A configuration of Kafka and its clients, and how much of what is rare may happen."""

    name: str  # for reports
    # transaction version of the first clients, 1 or 2. Where instances of the other version are among the rare steps,
    # brokers know both
    version: int = 1
    # ``transaction.partition.verification.enable`` (KIP-890, part 1), for clients of version 1
    verification: bool = False
    # ids, partitions, state_partitions: how many transactional ids, data partitions and partitions of
    # ``__transaction_state``
    ids: int = 1
    partitions: int = 2
    state_partitions: int = 1
    timeout_ms: int = 600_000  # of every transaction
    # pace_ms, skew_ms, operator_ms: time between two records of coordinators, and by how much broker 2's clock and our
    # machine's are ahead
    pace_ms: int = 10_000
    skew_ms: int = 0
    operator_ms: int = 0
    # by how much CreateTime is ahead of the time at which a record is produced: of those with an even and an odd
    # sequence number
    event_ms: tuple[int, int] = (0, 0)
    append_time: bool = False  # whether the topic has LogAppendTime
    forgets: bool = False  # whether leaders have forgotten idle producers (producer.id.expiration.ms)
    tail: int = 1  # how many of its newest records a log loses at most
    max_epoch: int = 32_766  # from this epoch on a producer id is exhausted and the id gets another (32766 in Kafka)
    skips_markers: bool = True  # whether the marker of a partition without a leader is skipped (KAFKA-20734)
    bumps: bool = True  # whether a client raises its epoch after a send that timed out (KIP-360)
    # ``open``: no authorizer. ``full``: one that allows everything. ``hidden``: one that hides transactional ids.
    # ``reads_log``: the same, with READ on ``__transaction_state``
    rights: str = "open"
    after: tuple[str, ...] = ()  # steps that have happened already: what is explored begins behind them
    # how often each rare step may happen; what is not named never does. See `steps`
    rare: Mapping[str, int] = field(default_factory=dict)
    first_coordinator: int = 1  # broker of the first coordinator
    # instances, transactions, records: bounds of the number of clients, of coordinators' transactions and of records on
    # a partition
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
