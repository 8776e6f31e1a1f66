"""The open transactions of an observation: one per producer and partition, with everything known about it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from toolkit.analysis.coordinator.transaction_states import OPEN_STATES
from toolkit.analysis.diagnosis.observation import FirstBatch, Observation
from toolkit.schema import Row
from toolkit.schema.table import TopicPartition

__all__ = [
    "MAX_TRANSACTION_TIMEOUT_MS",
    "TWO_PHASE_COMMIT",
    "IndexedObservation",
    "OpenTransaction",
    "TopicPartition",
    "is_held",
]

MAX_TRANSACTION_TIMEOUT_MS = 900_000  # the brokers' default of transaction.max.timeout.ms
TWO_PHASE_COMMIT = 2**31 - 1  # KIP-939 has no wire state of its own: the timeout is the only sign


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """One open transaction on one partition in one observation.

    Parameters
    ----------
    producer
        The leader's producer row, read after the coordinators answered; for a transaction that has written nothing
        to the partition yet, a row without start offset.
    owners
        Coordinator rows with this producer id: none, one, or several that contradict each other.
    leader_row
        The partition's row, read after the coordinators answered.
    leader_moved
        Whether the partition's leader or its epoch changed during the observation, or another replica answered.
    seen_for
        For how long earlier observations have shown the coordinator in this state.
    """

    producer: Row
    owners: Sequence[Row]
    leader_row: Row
    leader_moved: bool
    observation: Observation
    first_batch: FirstBatch | None = None
    seen_for: dt.timedelta = dt.timedelta(0)

    @property
    def tp(self) -> TopicPartition:
        return self.producer["topic"], self.producer["partition"]

    @property
    def key(self) -> tuple[str, int, int, int | None]:
        return *self.tp, self.producer["producer_id"], self.producer.get("current_txn_start_offset")

    @property
    def start(self) -> int | None:
        start: int | None = self.producer.get("current_txn_start_offset")
        return start

    @property
    def epoch(self) -> int:
        epoch: int | None = self.producer.get("producer_epoch")
        return -1 if epoch is None else epoch

    @property
    def owner(self) -> Row:
        """The coordinator's row; empty if no id has this producer id."""
        return self.owners[0] if self.owners else {}

    @property
    def state(self) -> str:
        return self.owner.get("state") or ""

    @property
    def owner_epoch(self) -> int:
        epoch: int | None = self.owner.get("producer_epoch")
        return -1 if epoch is None else epoch

    @property
    def listed(self) -> bool:
        """Whether the coordinator still expects to write a marker to this partition."""
        listed = self.owner.get("topic_partitions") or ()
        return any((tp["topic"], tp["partition"]) == self.tp for tp in listed)

    @property
    def two_phase(self) -> bool:
        return self.owner.get("timeout_ms") == TWO_PHASE_COMMIT

    @property
    def first_epoch(self) -> int | None:
        """Epoch of the batch that opened the transaction; null if that batch was not read."""
        first_batch = self.first_batch
        if first_batch is None or self.start is None or first_batch.producer_id != self.producer["producer_id"]:
            return None
        return first_batch.producer_epoch if first_batch.base_offset <= self.start <= first_batch.last_offset else None

    @property
    def age(self) -> dt.timedelta | None:
        """Time from the coordinator's start time to `now`; null if that is unknown, or the clocks contradict."""
        start: dt.datetime | None = self.owner.get("start_time")
        return None if start is None or start > self.now else self.now - start

    @property
    def now(self) -> dt.datetime:
        """This machine's time; for files, the time up to which they prove the coordinator's state."""
        observed_at: dt.datetime | None = self.owner.get("observed_at") if self.observation.from_files else None
        return observed_at or self.observation.observed_at

    @property
    def expires_at(self) -> dt.datetime | None:
        start: dt.datetime | None = self.owner.get("start_time")
        if start is None or self.two_phase or self.owner.get("timeout_ms") is None:
            return None
        return start + dt.timedelta(milliseconds=self.owner["timeout_ms"])


class IndexedObservation:
    """An observation by partition: rows before and after the coordinators answered, and the open transactions.

    Parameters
    ----------
    observation
        The observation.
    """

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self.before = {(row["topic"], row["partition"]): row for row in observation.partitions}
        self.after = {**self.before, **{(row["topic"], row["partition"]): row for row in observation.partitions_after}}
        self._open_before, self._open_after = _open(observation.producers), _open(observation.producers_after)
        self._owners = _owners(observation.transactions)
        self._errors_before = _errors(chain(observation.partitions, observation.producers))
        self._errors_after = _errors(chain(observation.partitions_after, observation.producers_after))
        self._read_again = {(row["topic"], row["partition"]) for row in observation.partitions_after}
        self.cases: dict[TopicPartition, list[OpenTransaction]] = {}
        for txn in (*self._open_on_leaders(), *self._open_on_coordinators()):
            self.cases.setdefault(txn.tp, []).append(txn)

    def txn(self, tp: TopicPartition, key: object) -> OpenTransaction | None:
        """The open transaction of the same producer and start offset, if this observation has it."""
        return next((txn for txn in self.cases.get(tp, ()) if txn.key == key), None)

    def errors(self, tp: TopicPartition) -> list[str]:
        """The partition's distinct errors; none if it recovered, and nothing is open or held on it."""
        before, after = self._errors_before.get(tp, []), self._errors_after.get(tp, [])
        if not after and tp in self._read_again and tp not in self._open_after and not is_held(self.after[tp]):
            return []
        return list(dict.fromkeys(before + after))

    def notable(self) -> set[TopicPartition]:
        """Partitions with an open transaction, an error, or an LSO below the high watermark; others have no finding."""
        held = {tp for tp, row in self.after.items() if is_held(row)}
        return held.union(self.cases, self._errors_before, self._errors_after)

    def open_at_any_time(self, tp: TopicPartition) -> bool:
        """Whether a transaction was open before or after the coordinators answered."""
        return tp in self._open_before or tp in self._open_after

    def _open_on_leaders(self) -> Iterator[OpenTransaction]:
        """Open at the same start offset before and after: open when the coordinators answered.

        The next observation covers a transaction that ended or began in between.
        """
        for tp, producers in self._open_after.items():
            for producer_id, row in producers.items():
                earlier = self._open_before.get(tp, {}).get(producer_id, {})
                if earlier.get("current_txn_start_offset") == row["current_txn_start_offset"]:
                    yield self._txn(row)

    def _open_on_coordinators(self) -> Iterator[OpenTransaction]:
        """Open for the coordinator, but not on the partition before the coordinator answered."""
        for producer_id, rows in self._owners.items():
            owner = rows[0]
            if owner.get("state") not in OPEN_STATES:
                continue
            for listed in owner.get("topic_partitions") or ():
                tp = listed["topic"], listed["partition"]
                if tp in self.before and not self.errors(tp) and producer_id not in self._open_before.get(tp, {}):
                    written = self._open_after.get(tp, {}).get(producer_id)
                    yield self._txn(written or _producer_without_data(owner, tp, self.after[tp]))

    def _txn(self, producer: Row) -> OpenTransaction:
        tp = producer["topic"], producer["partition"]
        before, after = self.before[tp], self.after[tp]
        start = producer.get("current_txn_start_offset")
        same_leader = _leader(before) == _leader(after) and producer.get("broker_id") == before.get("leader")
        return OpenTransaction(
            producer=producer,
            owners=self._owners.get(producer["producer_id"], ()),
            leader_row=after,
            leader_moved=not same_leader,
            observation=self.observation,
            first_batch=None if start is None else self.observation.first_batches.get((*tp, start)),
        )


def is_held(row: Row) -> bool:
    """Whether a partition's LSO is known to be below its high watermark."""
    lso, high_watermark = row.get("last_stable_offset"), row.get("high_watermark")
    return lso is not None and high_watermark is not None and bool(lso < high_watermark)


def _errors(rows: Iterable[Row]) -> dict[TopicPartition, list[str]]:
    found: dict[TopicPartition, list[str]] = {}
    for row in rows:
        if row.get("error"):
            found.setdefault((row["topic"], row["partition"]), []).append(row["error"])
    return found


def _open(rows: Iterable[Row]) -> dict[TopicPartition, dict[int, Row]]:
    found: dict[TopicPartition, dict[int, Row]] = {}
    for row in rows:
        if row.get("current_txn_start_offset") is not None and row.get("producer_id") is not None:
            found.setdefault((row["topic"], row["partition"]), {})[row["producer_id"]] = row
    return found


def _owners(transactions: Iterable[Row]) -> Mapping[int, Sequence[Row]]:
    owners: dict[int, list[Row]] = {}
    for row in transactions:
        if row.get("producer_id") is not None and row.get("transactional_id") is not None:
            owners.setdefault(row["producer_id"], []).append(row)
    return owners


def _leader(row: Row) -> tuple[int | None, int | None]:
    return row.get("leader"), row.get("leader_epoch")


def _producer_without_data(owner: Row, tp: TopicPartition, leader_row: Row) -> Row:
    return {
        "topic": tp[0],
        "partition": tp[1],
        "producer_id": owner["producer_id"],
        "producer_epoch": owner.get("producer_epoch"),
        "broker_id": leader_row.get("leader"),
        "observed_at": owner.get("observed_at"),
    }
