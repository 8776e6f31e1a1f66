"""A model of one producer's transactions on a partition, which knows what was decided about its open records.

It writes the two logs that a diagnosis reads: the partition's batches and markers, by the clock of its leader, and the
records of the coordinator, by its clock. A leader refuses epochs below that of the producer's newest batch or marker.
Not in the model: clocks that are set back (but for `Txn.set_back`), and transactions with transaction version 2 that
write what they did not add (their brokers add it).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.analysis.build import partition
from tests.analysis.build import transaction as owner_row
from tests.analysis.logged import (
    ELSEWHERE,
    HERE,
    at,
    coordinator_log,
    data,
    excerpt,
    marker,
    open_transaction,
    record,
    with_logs,
)
from toolkit.analysis.diagnosis.case import Case
from toolkit.analysis.diagnosis.decision import Outcome
from toolkit.analysis.transaction_history import CoordinatorLog
from toolkit.formats.headers import ABORT, COMMIT
from toolkit.schema import Row

PARTITION_OF_ID = 33


@dataclass(frozen=True, kw_only=True)
class Txn:
    """A transaction: which partitions it adds, how it ends, and what becomes of its marker here."""

    here: bool = True
    writes: bool = True
    end: str | None = "Commit"  # null: it stays open
    by_coordinator: bool = False  # an abort by its timeout or a fence; a new instance follows
    marker: bool = True
    refused: bool = False  # without its marker, the leader has refused it; else there was none, and a new one follows
    other: bool = False  # the marker of another producer comes right after its data
    twice: bool = False  # a coordinator that took over has written the marker again
    gap: int = 1  # ms before it
    lasts: int = 1  # ms from its start to its decision
    delay: int = 1  # ms from the decision to the marker, and from there to its completion
    set_back: int = 0  # ms by which the clock of the broker that leads both partitions goes back after its data


@dataclass(frozen=True, kw_only=True)
class NewInstance:
    gap: int = 1


@dataclass(frozen=True, kw_only=True)
class LateBatch:
    """A batch that was written in no transaction: late, or never added; a later one with the partition takes it in."""

    gap: int = 1


@dataclass(frozen=True, kw_only=True)
class OperatorAbort:
    """An abort marker by hand, with the epoch of the partition's producer state."""

    gap: int = 1


@dataclass(frozen=True, kw_only=True)
class OperatorCommit:
    """A COMMIT marker by hand (`kafka-txn complete`), where one is missing and nothing else was decided."""

    gap: int = 1


@dataclass(frozen=True, kw_only=True)
class OtherMarker:
    """The marker of another producer: a time of the leader."""

    gap: int = 1


@dataclass(frozen=True, kw_only=True)
class Failover:
    """Another broker coordinates the id, or leads the partition, by a clock of its own (ms ahead of the first one)."""

    of_partition: bool = False
    clock: int = 0
    gap: int = 1


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """The id expires, or goes on with another producer id: nobody owns this producer id any more."""

    tombstone: bool = True
    gap: int = 1


Step = Expiry | Txn | NewInstance | LateBatch | OperatorAbort | OperatorCommit | OtherMarker | Failover


@dataclass
class World:
    """The logs after some steps."""

    version: int = 1
    leader_clock: int = 0
    coordinator_clock: int = 0
    time: int = 0
    epoch: int = 0  # of the coordinator
    client_epoch: int = 0
    leader_epoch: int = 4
    coordinator_epoch: int = 3
    known_epoch: int = 0  # of the coordinator, on the partition
    batches: list[dict[str, Any]] = field(default_factory=list)
    records: list[Row] = field(default_factory=list)
    open: list[tuple[int, int | None]] = field(default_factory=list)  # offset, and number of its transaction
    last_epoch: int = -1  # of the producer on the partition
    ends: dict[int, str] = field(default_factory=dict)  # decisions by transaction
    without_marker: list[int] = field(default_factory=list)  # decided with the partition since the last marker
    count: int = 0
    state: str = "Empty"
    on: tuple[tuple[str, int], ...] = ()
    fenced: bool = False
    is_owned: bool = True

    def __post_init__(self) -> None:
        self._record("Empty")

    def do(self, step: Step) -> None:
        self.time += step.gap
        if isinstance(step, Txn):
            self._transaction(step)
        elif isinstance(step, NewInstance):
            self._new_instance()
        elif isinstance(step, LateBatch):
            if self.version == 1:
                self._batch(None)
        elif isinstance(step, OperatorAbort | OperatorCommit):
            self._operate(step)
        elif isinstance(step, Expiry):
            self._expire(step)
        elif isinstance(step, OtherMarker):
            self._append(marker(self._offset, COMMIT, pid=1))
        elif step.of_partition:
            self.leader_clock, self.leader_epoch = step.clock, self.leader_epoch + 1
        else:
            self.coordinator_clock, self.coordinator_epoch = step.clock, self.coordinator_epoch + 1

    def _transaction(self, step: Txn) -> None:
        if self.state == "Ongoing":
            return
        if self.fenced:
            self._new_instance()
        number, self.count = self.count, self.count + 1
        self.on = (HERE, ELSEWHERE) if step.here else (ELSEWHERE,)
        started, version = self._now, {"client_transaction_version": 2} if self.version == 2 else {}
        self._record("Ongoing", started=started, **version)
        if step.here and step.writes:
            self.time += 1
            self._batch(number)
        if step.other:
            self._append(marker(self._offset, COMMIT, pid=1))
        if step.end is None:
            return
        self.leader_clock, self.coordinator_clock = (
            each - step.set_back for each in (self.leader_clock, self.coordinator_clock)
        )
        self.time += step.lasts
        if step.here and self.version == 1:  # its marker ends all that is open of its epoch, and late batches with it
            epochs = [self.batches[offset]["producer_epoch"] for offset, _ in self.open]
            self.open = [
                (offset, number if known is None and epoch == self.epoch else known)
                for (offset, known), epoch in zip(self.open, epochs, strict=True)
            ]
        raised = self.version == 2 or (step.by_coordinator and step.end == "Abort")
        self.epoch += raised
        self._record(f"Prepare{step.end}", started=started, **version)
        self.ends[number] = step.end.lower()
        if step.here:
            self.without_marker.append(number)
            self.leader_epoch += not (step.marker or step.refused)
        decided = self._now
        for _ in range((1 + step.twice) if step.here and step.marker else 0):
            self.time += step.delay
            self._marker(COMMIT if step.end == "Commit" else ABORT, self.epoch)
        self.time += step.delay
        self.on = ()
        self._record(f"Complete{step.end}", started=started, last_update_time=at(decided), **version)
        self.fenced = step.by_coordinator and step.end == "Abort"
        self.client_epoch = self.client_epoch if self.fenced else self.epoch

    def _operate(self, step: OperatorAbort | OperatorCommit) -> None:
        is_commit = isinstance(step, OperatorCommit)
        if self.open and (not is_commit or self.of_open_records == self.decisions == {"commit"}):
            self._marker(COMMIT if is_commit else ABORT, self.last_epoch, by_hand=True)

    def _new_instance(self) -> None:
        if self.state != "Ongoing":
            self.epoch, self.fenced = self.epoch + 1, False
            self.client_epoch = self.epoch
            self._record("Empty")
            self.time += 1

    def _expire(self, step: Expiry) -> None:
        state, pid = (None, 7) if step.tombstone else ("Empty", 8)
        self.is_owned = False
        self.records.append(
            record(len(self.records), state, second=self._now, pid=pid, leader_epoch=self.coordinator_epoch)
        )

    @property
    def _now(self) -> float:
        """Seconds, by the coordinator's clock."""
        return (self.time + self.coordinator_clock) / 1000

    @property
    def _offset(self) -> int:
        return len(self.batches)

    def _record(self, state: str, **more: Any) -> None:
        self.state = state
        self.records.append(
            record(
                len(self.records),
                state,
                second=self._now,
                epoch=self.epoch,
                leader_epoch=self.coordinator_epoch,
                on=self.on if state not in {"Empty", "CompleteCommit", "CompleteAbort"} else (),
                **more,
            )
        )

    def _append(self, batch: dict[str, Any]) -> None:
        second = (self.time + self.leader_clock) / 1000
        self.batches.append({**batch, "second": second, "leader_epoch": self.leader_epoch})

    def _batch(self, number: int | None) -> None:
        if self.client_epoch >= self.last_epoch:
            self.open.append((self._offset, number))
            self._append(data(self._offset, epoch=self.client_epoch))
            self.last_epoch = self.client_epoch

    def _marker(self, kind: int, epoch: int, *, by_hand: bool = False) -> None:
        if epoch >= self.last_epoch:
            if not by_hand:
                self.known_epoch = self.coordinator_epoch
            self._append(marker(self._offset, kind, epoch=epoch, coordinator_epoch=self.known_epoch))
            self.open, self.without_marker, self.last_epoch = [], [], epoch

    @property
    def is_one_clock(self) -> bool:
        """Whether one broker leads the partition and coordinates the id now; others may have before."""
        return self.leader_clock == self.coordinator_clock

    @property
    def of_open_records(self) -> set[str]:
        """What was decided about the open records: `commit`, `abort` or `undecided` of each batch."""
        return {"undecided" if number is None else self.ends.get(number, "undecided") for _, number in self.open}

    @property
    def decisions(self) -> set[str]:
        """What was decided with the partition and without a marker since."""
        return {self.ends[number] for number in self.without_marker}

    def outcome(
        self,
        *,
        compacted: int = 0,
        first_record: int = 0,
        first_batch: int = 0,
        cleaned: Collection[int] = (),
        is_one_clock: bool = False,
    ) -> Outcome:
        """The outcome by what is left of the logs.

        `compacted`: of so many records only the last one is left; `first_record`, `first_batch`: read from there on.
        `cleaned`: offsets of batches before the open ones that the cleaner has removed.
        `is_one_clock`: whether it is known that one broker leads both partitions.
        """
        kept = self.records[max(compacted - 1, 0) :][max(first_record - max(compacted - 1, 0), 0) :]
        start = self.open[0][0]
        read = self.batches[min(first_batch, start) :]
        left = [each for each in read if each["base_offset"] >= start or each["base_offset"] not in cleaned]
        log = excerpt(*left, start=int(read[0]["base_offset"]))
        return with_logs(self.open_transaction(), log, self._log(kept, is_one_clock)).outcome

    def _log(self, kept: Sequence[Row], is_one_clock: bool) -> CoordinatorLog:
        leaders = {PARTITION_OF_ID: (1, self.coordinator_epoch)} if is_one_clock else {}
        return coordinator_log(kept, leaders=leaders)

    def open_transaction(self) -> Case:
        owner = owner_row(state=self.state, epoch=self.epoch, on=self.on, coordinator_id=1)
        return open_transaction(
            *([owner] if self.is_owned else []),
            start=self.open[0][0],
            epoch=self.last_epoch,
            leader=partition(leader=1, leader_epoch=self.leader_epoch, high_watermark=len(self.batches)),
        )


def after(*steps: Step, **world: Any) -> World:
    """The world after some steps."""
    found = World(**world)
    for step in steps:
        found.do(step)
    return found
