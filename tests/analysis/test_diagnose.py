"""Open transactions of observations, and what is read again; their verdicts are in `test_rules`."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import NOW, ago, first_batch, observation, only, partition, producer, transaction, twice
from tests.analysis.logged import diagnosed
from toolkit.analysis.diagnosis.case import DiagnoseOptions, IndexedObservation
from toolkit.analysis.diagnosis.decision import OUTCOMES, PARTITION_RULES, decide_merged
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.observation import AsOf, Observation
from toolkit.analysis.diagnosis.rules import DISOWNED_RULES, OWNED_RULES
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema.live import EvidenceEntry, Partition, Producer, Transaction
from toolkit.schema.table import TopicPartition
from toolkit.schema.verdict import Verdict


def test_every_verdict_and_outcome_is_explained_and_every_rule_names_one() -> None:
    rules = (*OWNED_RULES, *DISOWNED_RULES)
    assert {rule.verdict for rule in rules} | {rule.verdict for rule in PARTITION_RULES} <= set(Verdict)
    assert {rule.outcome for rule in rules} - {None} == OUTCOMES.keys()


def from_files(one: Observation, *doubts: str, as_of: dt.datetime | None = None) -> Observation:
    """The same as read from log directories."""
    proven = {} if as_of is None else {TopicPartition(STATE_TOPIC, 33): AsOf(as_of, "its newest record")}
    return replace(one, from_files=True, doubts={("orders", 0, 7): doubts} if doubts else {}, as_of=proven)


# What is read again, and in which order findings come


def test_one_transaction_that_needs_a_second_look_is_enough_for_its_partition() -> None:
    """Behind the live one is one without an owner: with one look it would be `unknown` for ever."""
    live = transaction(8, transactional_id="fine")
    both = observation(live, producers=[producer(8, start=100), producer(7, start=120)])
    assert Diagnosis.of([both]).to_recheck() == [("orders", 0)]
    only_live = observation(transaction(), producers=[producer()])
    assert Diagnosis.of([only_live]).to_recheck() == []


def test_rechecks_reads_and_findings_come_in_the_order_of_partitions() -> None:
    numbers = [5, 3, 8, 1, 7, 2, 6, 4]
    one = observation(
        partitions=[partition(number=number) for number in numbers],
        producers=[producer(number, partition=number) for number in numbers],
    )
    diagnosis = Diagnosis.of(twice(one))
    in_order = [("orders", number) for number in sorted(numbers)]
    assert Diagnosis.of([one]).to_recheck() == in_order
    assert [each.tp for each in diagnosis.to_read()] == in_order
    found = diagnosis.findings(
        requested=[TopicPartition("orders", 1), TopicPartition("orders", 8), TopicPartition("aaa", 0)]
    )
    assert [(each.topic, each.partition) for each in found] == in_order, (
        "a partition that was not observed has none, and hides no other; a held one is not `clear` as well"
    )


def test_an_open_transaction_of_the_coordinator_waits_for_no_other() -> None:
    """An id that has ended does not hide the next one, nor one without partitions."""
    owners = [
        transaction(5, state="CompleteCommit", on=(), transactional_id="a"),
        transaction(6, transactional_id="b", topic_partitions=None),
        transaction(7, transactional_id="c", observed_at=ago(seconds=1)),
    ]
    found = IndexedObservation(observation(*owners, producers=[], partitions=[partition(lso=150)])).cases
    ((txn,),) = found.values()
    assert (txn.transactional_id, txn.start, txn.producer.observed_at) == ("c", None, ago(seconds=1))
    begins = observation(transaction(), producers=[], after=[producer(start=130)], partitions=[partition(lso=150)])
    ((txn,),) = IndexedObservation(begins).cases.values()
    assert txn.start == 130, "it has written since"


# Rows that leaders and coordinators leave incomplete


def test_a_partition_with_an_error_counts_as_recovered_only_if_it_was_read_again_and_nothing_is_open() -> None:
    failed = partition(lso=None, hw=None, error="NOT_LEADER_OR_FOLLOWER: not yet")

    def errors(after: list[Partition], producers_after: list[Producer] | None = None) -> list[str]:
        one = observation(partitions=[failed], partitions_after=after, producers=[], after=producers_after or [])
        return IndexedObservation(one).errors(TopicPartition("orders", 0))

    assert errors([partition(lso=150)]) == []
    assert errors([]) == [failed.error], "it was not read again"
    assert errors([partition()]) == [failed.error], "its LSO is held"
    assert errors([partition(lso=150)], [producer(start=150)]) == [failed.error], "a transaction is open"
    open_there = observation(transaction(), partitions=[failed], producers=[], after=[producer(start=150)])
    assert [each.verdict for each in diagnosed([open_there])] == ["unknown"], "and it is no transaction without data"


def test_a_first_batch_counts_only_for_its_producer_and_offset() -> None:
    def first_epoch(**more: Any) -> int | None:
        batches = [first_batch(**more)]
        ((txn,),) = IndexedObservation(observation(producers=[producer(epoch=1)], first_batches=batches)).cases.values()
        assert txn.is_mixed is (txn.first_epoch == 0)
        return txn.first_epoch

    assert (first_epoch(), first_epoch(producer_epoch=1)) == (0, 1)
    assert first_epoch(base_offset=90, last_offset=100) == 0
    for other in ({"producer_id": 8}, {"base_offset": 101}, {"last_offset": 99}):
        assert first_epoch(**other) is None


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
def test_whatever_its_coordinator_has_not_completed_is_open_without_data_too(state: str) -> None:
    """A commit that is decided may still write its marker to a partition that has no data of it."""
    one = observation(transaction(state=state), producers=[], partitions=[partition(lso=150)])
    assert IndexedObservation(one).cases.keys() == {("orders", 0)}
    ended = observation(transaction(state="CompleteCommit"), producers=[], partitions=[partition(lso=150)])
    assert IndexedObservation(ended).cases == {}


def indexed(*owners: Transaction, **more: Any) -> IndexedObservation:
    return IndexedObservation(observation(*owners, **more))


def test_the_time_now_is_the_brokers_and_that_of_the_owners_record_in_files() -> None:
    owner = transaction(observed_at=ago(seconds=5))
    ((live,),) = indexed(owner).cases.values()
    ((copied,),) = IndexedObservation(from_files(observation(owner), as_of=ago(seconds=5))).cases.values()
    assert (live.now.time, live.age.since_start, live.as_of) == (NOW, dt.timedelta(seconds=10), None)
    assert (copied.now.time, copied.age.since_start) == (ago(seconds=5), dt.timedelta(seconds=5))
    ((unproven,),) = IndexedObservation(from_files(observation(owner))).cases.values()
    assert (unproven.now.time, unproven.age.since_start) == (None, None)
    updated = transaction(last_update_time=ago(seconds=7))
    ((own,),) = IndexedObservation(from_files(observation(updated))).cases.values()
    assert own.as_of == AsOf(ago(seconds=7), "the newest record of the id")
    ((of_broker,),) = indexed(updated).cases.values()
    assert of_broker.as_of is None
    one_moment = from_files(observation(owner), as_of=ago(seconds=5))
    marker = {TopicPartition("orders", 0): AsOf(ago(seconds=3), "its newest marker")}
    ((both,),) = IndexedObservation(replace(one_moment, as_of={**one_moment.as_of, **marker})).cases.values()
    assert both.age.since_start == dt.timedelta(seconds=7)
    ((orphan,),) = IndexedObservation(from_files(observation(), as_of=NOW)).cases.values()
    assert (orphan.now.time, orphan.owner_epoch, orphan.listed) == (None, -1, False)
    ((prepared,),) = indexed(transaction(timeout_ms=2**31 - 1)).cases.values()
    assert (prepared.expires_at, prepared.two_phase) == (None, True)
    ((at_start,),) = indexed(transaction(start_time=NOW)).cases.values()
    assert at_start.age.since_start == dt.timedelta(0)


def test_a_recorded_outcome_has_the_reason_of_its_evidence() -> None:
    """A sample rests on the logs of its time; one whose logs were not read has the outcome alone."""
    (evidence,) = Diagnosis.of(twice(observation(transaction(state="CompleteCommit", on=())))).to_read()
    entries = [
        EvidenceEntry(source="Fetch", observed_at=NOW, name="first_batch", value="offsets: 100"),
        EvidenceEntry(source="__transaction_state", observed_at=NOW, name="outcome", value="abort: it was aborted: so"),
    ]
    row = only(diagnosed([observation()]))
    recorded = replace(row, outcome="abort", reason="It hangs.", evidence=tuple(entries))
    found = replace(evidence, recorded=recorded).outcome
    assert (found.name, found.reason) == ("abort", "it was aborted: so")
    for without in ((), (entries[0],), (replace(entries[1], value=None),)):
        assert replace(evidence, recorded=replace(recorded, evidence=without)).outcome.reason == "It hangs"


def test_of_two_sources_the_recorded_one_is_the_earlier_if_it_is_not_newer() -> None:
    row = only(diagnosed([observation()]))
    for seconds, verdict in ((1, "unknown"), (0, "unknown"), (-1, row.verdict)):
        time = NOW - dt.timedelta(seconds=seconds)
        log, recorded = replace(row, outcome="undecided"), replace(row, observed_at=time, brokers_time=time)
        assert decide_merged(log, replace(recorded, outcome="commit")).verdict == verdict, "a commit was lost, or came"


def test_a_diagnosis_with_the_next_observation_is_that_of_both() -> None:
    first, second = twice(observation())
    for long_after, single in ((900_000, False), (1, True)):
        options = DiagnoseOptions(max_transaction_timeout_ms=long_after, is_sample=single)
        both = Diagnosis.of([first, second], options)
        extended = Diagnosis.of([second], options, earlier=Diagnosis.of([first], options).indexed)
        assert extended.opened == both.opened
        assert extended.observations == both.observations == [first, second]
        assert extended.options == options
