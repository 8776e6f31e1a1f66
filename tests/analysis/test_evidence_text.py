"""The evidence of a finding: which source showed which value."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.analysis.build import NOW, clock, first_batch, observation, partition, producer, transaction
from tests.analysis.logged import HERE, at, record
from toolkit.analysis.diagnosis.case import IndexedObservation
from toolkit.analysis.diagnosis.evidence_text import (
    case_evidence,
    coverage_evidence,
    event_entry,
    partition_evidence,
    record_entry,
    scope,
)
from toolkit.analysis.diagnosis.observation import Coverage, Observation
from toolkit.schema.coerce import Seen, SeenBrokers
from toolkit.schema.live import EvidenceEntry
from toolkit.schema.log import ClusterEvent, TransactionLogRecord

NOW_TEXT = "2026-11-21T12:00:00.000+00:00"


FIRST_BATCH = first_batch(time=NOW)


def texts(found: Iterable[EvidenceEntry]) -> list[tuple[str | None, ...]]:
    return [(entry.source, entry.name, entry.value) for entry in found]


def of_transaction(one: Observation) -> list[tuple[str | None, ...]]:
    ((case,),) = IndexedObservation(one).cases.values()
    return texts(case_evidence(replace(case, observations=[one])))


def test_a_scope_says_what_was_seen_and_what_was_not() -> None:
    """Of three brokers one is silent, and one is down, so that the metadata does not list it; a third is only old.

    Partitions without the right READ, whose offsets alone are known, counted as seen.
    """
    silent = transaction(None, state=None, transactional_id=None, broker_id=2, error="REQUEST_TIMED_OUT: no answer")
    old = transaction(None, state=None, transactional_id=None, broker_id=1, error="UNSUPPORTED_VERSION: too old")
    hidden = transaction(None, state=None, transactional_id="b", broker_id=1, error="NOT_COORDINATOR: moved", on=())
    unread = transaction(8, transactional_id="c", broker_id=1, error="NOT_COORDINATOR: moved")
    one = observation(
        transaction(), silent, old, hidden, unread,
        partitions=[partition(), partition(number=1, error="TOPIC_AUTHORIZATION_FAILED: no"), partition(number=2)],
        producers=[producer(partition=2, producer_id=None, error="TOPIC_AUTHORIZATION_FAILED: no")],
        coverage=Coverage(brokers=(1, 2), gaps=["broker 2 did not answer"], topic_gaps=["DESCRIBE on Topic '*'"]),
    )  # fmt: skip
    found = scope(one, 5, brokers={1, 2, 3})
    assert found.text("ann") == "3 partitions of broker 1; 1 open transactional id; as ann"
    assert found.partitions == Seen(seen=3, not_seen=2)
    assert found.brokers == SeenBrokers(seen=[1], not_seen=[2, 3])
    assert found.transactional_ids == Seen(seen=1, not_seen=2)
    assert found.missing == ["broker 2 did not answer", "DESCRIBE on Topic '*'"]


def test_the_evidence_of_a_partition() -> None:
    one = replace(observation(), notes={HERE: ["Its checkpoint is older."], ("payments", 3): ["It is elsewhere."]})
    of_leader = {"log_start_offset": "0", "last_stable_offset": "100", "high_watermark": "150"}
    of_leader |= {"log_end_offset": "150", "isr": "[1, 2]", "leader_epoch": "4"}
    assert texts(partition_evidence(partition(), [one])) == [
        *(("ListOffsets", name, value) for name, value in of_leader.items()),
        ("observations", "observations", "1"),
        ("observations", "seconds_apart", "0.0"),
        ("observations", "brokers_time", f"{NOW_TEXT}, by the clock of controller 1"),
        ("Fetch", "note", "Its checkpoint is older."),
        ("coverage", "proof", "no broker has an authorizer"),
    ]
    from_files = texts(partition_evidence(partition(isr=None), [replace(one, from_files=True)]))
    assert from_files[-3:-1] == [("observations", "as_of", NOW_TEXT), ("log", "note", "Its checkpoint is older.")]
    assert {source for source, *_ in from_files[:-3]} == {"log and checkpoints"}
    assert "isr" not in {name for _, name, _ in from_files}


def test_the_evidence_of_a_cluster_is_what_is_proven_and_what_is_missing() -> None:
    one = observation(coverage=Coverage(brokers=(1,), proofs=("It answered.",), gaps=("It may not see all.",)))
    assert texts(coverage_evidence(replace(one, notes={HERE: ["Its checkpoint is older."]}))) == [
        ("observations", "observations", "1"),
        ("observations", "seconds_apart", "0.0"),
        ("observations", "brokers_time", f"{NOW_TEXT}, by the clock of controller 1"),
        ("coverage", "proof", "It answered."),
        ("coverage", "gap", "It may not see all."),
    ]


@pytest.mark.parametrize(("on", "value"), [((HERE,), "true"), ((("payments", 3),), "false")])
def test_whether_the_coordinator_expects_a_marker_here(on: object, value: str) -> None:
    assert ("DescribeTransactions", "expects_marker_here", value) in of_transaction(observation(transaction(on=on)))


@pytest.mark.parametrize(
    ("ahead", "warning"),
    [
        (5, []),
        (-5, []),
        (120, ["This machine's clock is 2 min ahead of the brokers': times are the brokers'."]),
        (-6, ["This machine's clock is 6 s behind the brokers': times are the brokers'."]),
    ],
)
def test_a_clock_of_this_machine_that_is_far_from_the_brokers_is_a_warning(ahead: int, warning: list[str]) -> None:
    brokers_time = replace(clock(NOW), machine_ahead=dt.timedelta(seconds=ahead))
    found = of_transaction(observation(transaction(), brokers_time=brokers_time))
    assert [value for _, name, value in found if name == "clock"] == warning


@pytest.mark.parametrize(("by_broker", "clock"), [(True, "broker"), (False, "producer")])
def test_the_first_batch_has_the_time_of_a_clock(by_broker: bool, clock: str) -> None:
    first = replace(FIRST_BATCH, log_append_time=by_broker)
    found = of_transaction(observation(first_batches=[first]))
    assert [entry for entry in found if entry[0] == "Fetch"] == [
        ("Fetch", "first_batch_producer", "7 epoch 0"),
        ("Fetch", "first_batch_offsets", "100..104"),
        ("Fetch", f"first_batch_time_by_{clock}", NOW_TEXT),
    ]


def test_a_record_of_a_coordinator_as_evidence() -> None:
    ongoing = record(4, "Ongoing", second=1, on=[HERE, ("payments", 3)], timestamp=at(2))
    expired = {**record(5, None, second=9), "topic_partitions": None, "last_update_time": None}
    complete = record(6, "CompleteCommit", second=10)
    entries = [record_entry(TransactionLogRecord.of(row)) for row in (ongoing, expired, complete)]
    assert [entry.value for entry in entries] == [
        "__transaction_state-33 offset 4: Ongoing, producer 7 epoch 0, partitions orders-0, payments-3",
        "__transaction_state-33 offset 5: tombstone",
        "__transaction_state-33 offset 6: CompleteCommit, producer 7 epoch 0",
    ]
    assert [entry.observed_at for entry in entries] == [at(1), at(9), at(10)]


def test_the_evidence_of_an_event_of_the_cluster() -> None:
    fenced = ClusterEvent(event="broker_fenced", text="broker 2 was fenced")
    unread = ClusterEvent(topic="orders", partition=0, error="CORRUPT_BATCH: its checksum differs.")
    repeated = replace(fenced, line_count=3, last_timestamp=NOW)
    assert [(each.name, each.value) for each in map(event_entry, [fenced, unread, repeated])] == [
        ("broker_fenced", "broker 2 was fenced"),
        ("unread", "orders-0: CORRUPT_BATCH: its checksum differs."),
        ("broker_fenced", "broker 2 was fenced (3 lines, until 2026-11-21 12:00:00 UTC)"),
    ]
