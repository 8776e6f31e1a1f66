"""Observations for the tests of verdicts."""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from toolkit.analysis.diagnosis.observation import BrokersTime, Coverage, Observation
from toolkit.schema import FINDINGS
from toolkit.schema.live import Finding, Partition, Producer, Transaction
from toolkit.schema.recorded import FirstBatch
from toolkit.schema.table import Selection

NOW = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)
COMPLETE = Coverage(brokers=(1, 2, 3), proofs=("no broker has an authorizer",))


def ago(**duration: float) -> dt.datetime:
    return NOW - dt.timedelta(**duration)


EARLIER = ago(hours=2)


def partition(
    topic: str = "orders", number: int = 0, *, lso: int | None = 100, hw: int | None = 150, **more: Any
) -> Partition:
    return Partition.of({
        "topic": topic, "partition": number, "leader": 1, "leader_epoch": 4, "replicas": [1, 2], "isr": [1, 2],
        "log_start_offset": 0, "last_stable_offset": lso, "high_watermark": hw, "log_end_offset": hw,
        "broker_id": 1, "observed_at": NOW, "error": None, **more,
    })  # fmt: skip


def producer(pid: int = 7, *, epoch: int = 0, start: int | None = 100, **more: Any) -> Producer:
    return Producer.of({
        "topic": "orders", "partition": 0, "producer_id": pid, "producer_epoch": epoch, "last_sequence": None,
        "last_timestamp": NOW, "coordinator_epoch": 0, "current_txn_start_offset": start,
        "broker_id": 1, "observed_at": NOW, "error": None, **more,
    })  # fmt: skip


def transaction(
    pid: int | None = 7, *, state: str | None = "Ongoing", epoch: int = 0, on: Any = (("orders", 0),), **more: Any
) -> Transaction:
    started = (state or "").startswith(("Ongoing", "Prepare"))
    return Transaction.of({
        "transactional_id": "payments-7", "producer_id": pid, "producer_epoch": epoch, "state": state,
        "timeout_ms": 60_000, "start_time": ago(seconds=10) if started else None,
        "topic_partitions": [{"topic": t, "partition": p} for t, p in on], "coordinator_id": 3,
        "txn_state_partition": 33, "source": "DescribeTransactions", "broker_id": 3, "observed_at": NOW, "error": None,
        **more,
    })  # fmt: skip


def first_batch(pid: int = 7, *, epoch: int = 0, time: dt.datetime | None = EARLIER, **more: Any) -> FirstBatch:
    """That of the transaction of `producer`, of five records."""
    return FirstBatch.of({
        "topic": "orders", "partition": 0, "start_offset": 100, "base_offset": 100, "last_offset": 104,
        "producer_id": pid, "producer_epoch": epoch, "base_timestamp": time, "log_append_time": False, **more,
    })  # fmt: skip


def observation(
    *transactions: Transaction,
    partitions: Any = None,
    producers: Any = None,
    after: Any = None,
    partitions_after: Any = None,
    coverage: Coverage = COMPLETE,
    first_batches: Sequence[FirstBatch] = (),
    at: dt.datetime = NOW,
    brokers_time: BrokersTime | None = None,
    selection: Selection | None = None,
) -> Observation:
    partitions = [partition()] if partitions is None else partitions
    producers = [producer()] if producers is None else producers
    return Observation(
        partitions=partitions,
        producers=producers,
        transactions=transactions,
        partitions_after=partitions if partitions_after is None else partitions_after,
        producers_after=producers if after is None else after,
        coverage=coverage,
        selection=selection or Selection(partitions={each.tp for each in partitions}),
        first_batches=first_batches,
        observed_at=at,
        brokers_time=brokers_time or clock(at),
    )


def clock(time: dt.datetime) -> BrokersTime:
    """The brokers' time by the clock of a controller."""
    return BrokersTime(time=time, source="the clock of controller 1", is_current=True)


def twice(one: Observation, *, apart: float = 5.0) -> list[Observation]:
    before = one.observed_at - dt.timedelta(seconds=apart)
    return [replace(one, observed_at=before, brokers_time=clock(before)), one]


def only(found: Iterable[Finding]) -> Finding:
    """The only finding; it must fit the declared table."""
    found = list(found)
    FINDINGS.arrow([each.row() for each in found])
    assert len(found) == 1, [(each.topic, each.verdict) for each in found]
    return found[0]


def columns(found: Iterable[Finding]) -> Iterator[str]:
    """A line for each column that is known, and one for each entry of the evidence."""
    for number, row in enumerate(FINDINGS.arrow(each.row() for each in found).to_pylist(), start=1):
        yield f"  row {number}"
        for name, value in row.items():
            if name != "evidence" and value not in (None, []):
                yield from f"    {name}: {value}".split("\n")
        for entry in row["evidence"]:
            yield f"      {' | '.join(str(value) for value in entry.values() if value is not None)}"
