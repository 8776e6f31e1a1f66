"""The evidence of a finding: which source showed which value."""

import datetime as dt
from collections.abc import Iterable
from dataclasses import replace

from tests.analysis.build import NOW, clock, first_batch, observation, partition, producer, transaction
from tests.analysis.logged import HERE, at, record
from tests.stored import compare
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


def of_transaction(one: Observation) -> Iterable[EvidenceEntry]:
    ((case,),) = IndexedObservation(one).cases.values()
    return case_evidence(replace(case, observations=[one]))


NOTED = replace(observation(), notes={HERE: ["Its checkpoint is older."], ("payments", 3): ["It is elsewhere."]})
OF_FILES = replace(NOTED, from_files=True)
KNOWN = replace(NOTED, coverage=Coverage(brokers=(1,), proofs=("It answered.",), gaps=("It may not see all.",)))
FENCED = ClusterEvent(event="broker_fenced", text="broker 2 was fenced")
RECORDS = [
    record(4, "Ongoing", second=1, on=[HERE, ("payments", 3)], timestamp=at(2)),
    {**record(5, None, second=9), "topic_partitions": None, "last_update_time": None},
    record(6, "CompleteCommit", second=10),
]
EVIDENCE: dict[str, Iterable[EvidenceEntry]] = {
    "a partition": partition_evidence(partition(), [NOTED]),
    "a partition of files, whose replicas in sync nobody knows": partition_evidence(partition(isr=None), [OF_FILES]),
    "a cluster: what is proven and what is missing, and no note": coverage_evidence(KNOWN),
    "a coordinator that expects a marker here": of_transaction(observation(transaction(on=(HERE,)))),
    "and elsewhere": of_transaction(observation(transaction(on=(("payments", 3),)))),
    **{
        f"this machine's clock is {ahead} s ahead of the brokers'": of_transaction(
            observation(transaction(), brokers_time=replace(clock(NOW), machine_ahead=dt.timedelta(seconds=ahead)))
        )
        for ahead in (5, -5, 120, -6)
    },
    **{
        f"a first batch, and whether its time is the broker's: {is_brokers}": of_transaction(
            observation(first_batches=[first_batch(time=NOW, log_append_time=is_brokers)])
        )
        for is_brokers in (True, False)
    },
    "records of a coordinator": [record_entry(TransactionLogRecord.of(row)) for row in RECORDS],
    "events of the cluster": map(event_entry, [
        FENCED, ClusterEvent(topic="orders", partition=0, error="CORRUPT_BATCH: its checksum differs."),
        replace(FENCED, line_count=3, last_timestamp=NOW)]),
}  # fmt: skip


def test_the_evidence_of_what_was_observed() -> None:
    lines = []
    for name, found in EVIDENCE.items():
        lines += [f"# {name}", *(f"{each.source} | {each.name} | {each.value} | {each.observed_at}" for each in found)]
    compare("evidence.txt", lines)
