"""The verdict of each rule, and the pitfalls of rules."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import (
    COMPLETE,
    NOW,
    ago,
    first_batch,
    observation,
    only,
    partition,
    producer,
    transaction,
    twice,
)
from tests.analysis.logged import by_logs, diagnosed
from toolkit.analysis.diagnosis.case import DiagnoseOptions, IndexedObservation
from toolkit.analysis.diagnosis.decision import Outcome, decide_merged
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.diagnosis.observation import NOT_OBSERVED, AsOf, Observation
from toolkit.analysis.history.findings_over_time import unread
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema.live import EvidenceEntry, Finding, Transaction
from toolkit.schema.log import PastTransaction
from toolkit.schema.table import EVERYTHING, Selection, TopicPartition

ELSEWHERE = (("payments", 2),)


def verdict(observations: list[Observation]) -> str:
    return only(diagnosed(observations)).verdict


@pytest.mark.parametrize("state", [None, "Empty", "CompleteCommit", "CompleteAbort", "Dead", "elsewhere", "superseded"])
def test_without_the_coordinators_log_nothing_is_hanging(state: str | None) -> None:
    """A coordinator's current state says nothing about an earlier transaction, which may have been committed."""
    owners = {
        "elsewhere": transaction(on=ELSEWHERE),
        "superseded": transaction(epoch=1, last_update_time=ago(seconds=10)),
        None: None,
    }
    owner = owners.get(state, transaction(state=state, on=()))
    row = only(Diagnosis.of(twice(observation(*([owner] if owner else [])))).findings())
    assert (row.verdict, row.outcome, row.action, row.cause) == ("unknown", "unknown", None, None)
    assert row.missing == ("the coordinators' log, which was not read: whether a commit includes these records",)
    assert "kafka-txn abort" not in row.remedy


# Pitfalls


FIRST, SECOND = twice(observation())
LIVE, ABORTED = transaction(), transaction(state="CompleteAbort", on=())
COMMITTING = twice(observation(transaction(state="PrepareCommit")), apart=61)
GAP = replace(COMPLETE, gaps=("broker 2 did not answer ListTransactions: COORDINATOR_LOAD_IN_PROGRESS",))
OF_COORDINATORS = observation(partitions=[partition(STATE_TOPIC)], producers=[producer(topic=STATE_TOPIC)])
UNAVAILABLE = partition(lso=None, hw=None, error="NOT_LEADER_OR_FOLLOWER: not yet")
MOVED = observation(producers=[producer(start=120)], partitions=[partition(lso=120)])
COMPLETED, FREE = transaction(state="CompleteCommit", on=()), [partition(lso=150)]
OBSERVED: dict[str, tuple[list[Observation], list[str]]] = {
    "one observation": ([SECOND], ["hanging"]),
    "a gap in the first observation": ([replace(FIRST, coverage=GAP), SECOND], ["unknown"]),
    "a gap in the second one": ([FIRST, replace(SECOND, coverage=GAP)], ["unknown"]),
    "only in the last one": ([replace(FIRST, producers=[], producers_after=[]), SECOND], ["unknown"]),
    "observations that contradict": (
        [twice(observation(LIVE))[0], twice(observation(ABORTED))[1]], ["unknown"]
    ),
    **{
        f"the producer's clock at {clock}, {what}": (
            twice(observation(*owners, producers=[producer(last_timestamp=clock)])), [expected]
        )
        for clock in (ago(days=7), NOW + dt.timedelta(minutes=50), None)
        for what, owners, expected in (("live", [LIVE], "ongoing"), ("no owner", [], "hanging"))
    },
    # In the first observation another transaction of the same producer was open at another offset.
    "the producer's next transaction": (
        [replace(twice(MOVED)[0], producers=[producer()], producers_after=[producer()]), MOVED], ["unknown"]
    ),
    "a follower's response": (twice(observation(producers=[producer(broker_id=2)])), ["unknown"]),
    "a leader that changed": (twice(observation(partitions_after=[partition(leader_epoch=5)])), ["unknown"]),
    "on the coordinators' topic": (twice(OF_COORDINATORS), ["unknown"]),
    "a coordinator with an older epoch, ended": (
        twice(observation(ABORTED, producers=[producer(epoch=3)])), ["unknown"]
    ),
    "a coordinator with an older epoch, live": (twice(observation(LIVE, producers=[producer(epoch=3)])), ["unknown"]),
    "decided a minute ago": (COMMITTING, ["stuck_ending"]),
    "but ongoing a minute ago": ([replace(COMMITTING[0], transactions=[LIVE]), COMMITTING[1]], ["ending"]),
    "version 2 ends with the next epoch": ([observation(transaction(state="PrepareCommit", epoch=1))], ["ending"]),
    "it ends between two requests": (
        [observation(COMPLETED, after=[producer(start=None)], partitions_after=FREE)], []
    ),
    "and its producer goes on": (
        [observation(COMPLETED, after=[producer(start=130)], partitions_after=[partition(lso=130)])], ["ending"]
    ),
    "nothing is open, and all is clear": ([observation(producers=[], partitions=FREE)], []),
    "a partition that could not be read at first": (
        [observation(partitions=[UNAVAILABLE], partitions_after=FREE, producers=[], after=[])], []
    ),
    "and with an open transaction then": (
        [observation(partitions=[UNAVAILABLE], partitions_after=[partition()], producers=[], after=[producer()])],
        ["unknown"],
    ),
    "a transaction that has written nothing": (
        [observation(LIVE, producers=[], partitions=FREE)], ["ongoing"]
    ),
    "above the LSO": ([observation(LIVE, producers=[producer(start=120)])], ["ongoing", "ending"]),
    "above the LSO, in files, which do not move": (
        [replace(observation(LIVE, producers=[producer(start=120)]), from_files=True)], ["ongoing", "unreplicated"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OBSERVED)
def test_the_verdicts_of_observations(name: str) -> None:
    observations, expected = OBSERVED[name]
    rows = diagnosed(observations)
    assert [row.verdict for row in rows] == expected
    for row in rows:
        assert ("abort --topic" in row.remedy) == (row.verdict == "hanging")


def test_hidden_topics_are_a_finding_of_the_cluster() -> None:
    incomplete = replace(COMPLETE, topic_gaps=("DESCRIBE on Topic '*'",))
    row = only(diagnosed([observation(producers=[], partitions=[partition(lso=150)], coverage=incomplete)]))
    assert (row.topic, row.verdict, row.missing) == (None, "unknown", ("DESCRIBE on Topic '*'",))
    assert row.outcome is None, "nothing is known to be open"


def test_the_remedy_on_consumer_offsets_names_the_dropped_offsets() -> None:
    offsets = partition("__consumer_offsets")
    row = only(diagnosed(twice(observation(partitions=[offsets], producers=[producer(topic="__consumer_offsets")]))))
    assert "offsets in it are dropped" in row.remedy


# Contradictions


def from_files(one: Observation, *doubts: str, as_of: dt.datetime | None = None) -> Observation:
    """The same as read from log directories."""
    proven = {} if as_of is None else {TopicPartition(STATE_TOPIC, 33): AsOf(as_of, "its newest record")}
    return replace(one, from_files=True, doubts={("orders", 0, 7): doubts} if doubts else {}, as_of=proven)


def test_a_verdict_from_files_names_their_broker_and_age() -> None:
    row = only(diagnosed([from_files(observation(transaction(state="Empty", on=())))]))
    assert row.verdict == "hanging"
    assert "read from the files of brokers 1, 2, 3 as of 2026-11-21 12:00:00 UTC" in row.reason
    sources = {entry.source for entry in row.evidence}
    assert sources.isdisjoint({"ListOffsets", "DescribeProducers", "Fetch"})


@pytest.mark.parametrize(
    ("as_of", "live", "prepared"),
    [
        (ago(seconds=280), "ongoing", "ending"),
        (ago(seconds=100), "overdue", "stuck_ending"),
        (None, "ongoing", "ending"),
    ],
)
def test_an_age_from_files_counts_up_to_what_is_proven(as_of: dt.datetime | None, live: str, prepared: str) -> None:
    """A copy may be much newer than the coordinator's last record: its own time makes nothing overdue or stuck."""
    started = ago(seconds=300)
    row = transaction(start_time=started, last_update_time=None if as_of is None else started)
    found = only(diagnosed([from_files(observation(row), as_of=as_of)]))
    assert found.verdict == live
    says = "for a time that the files do not prove" if as_of is None else f"as of {at(as_of)}, by its newest record"
    assert says in found.reason
    entries = [each.value for each in found.evidence if each.name == "proven_until"]
    assert entries == ([] if as_of is None else [f"{at(as_of)}, by its newest record"])
    row = transaction(state="PrepareCommit", last_update_time=started)
    found = only(diagnosed([from_files(observation(row), as_of=as_of)]))
    assert found.verdict == prepared


# What the logs show meanwhile


def with_log(outcome: Outcome, **facts: Any) -> Finding:
    """The finding of a transaction that no coordinator owns, with what the logs show of it."""
    diagnosis = Diagnosis.of(twice(observation(transaction(state="CompleteCommit", on=()))))
    return only(diagnosis.findings(read=by_logs(diagnosis, replace(outcome, **facts))))


def decided(name: str, *, end_time: dt.datetime | None) -> Outcome:
    past = PastTransaction(
        transactional_id="payments-7", kind="transaction", reason="", producer_epoch=0, end_time=end_time
    )
    return Outcome(name=name, reason="it was decided", transaction=past)


@pytest.mark.parametrize("name", ["commit", "abort"])
def test_a_decision_whose_marker_is_on_the_way_is_ending(name: str) -> None:
    """Its coordinator decided after it had answered: the log has Prepare*, and the marker follows."""
    found = with_log(decided(name, end_time=None))
    assert (found.verdict, found.outcome, found.action) == ("ending", name, None)


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


def test_whose_clock_counts_when_it_opened_and_whether_it_expires() -> None:
    first = [first_batch(last_offset=100, log_append_time=True)]

    def opened(*owners: Transaction, **more: Any) -> tuple[Any, ...]:
        found = only(diagnosed(twice(observation(*owners, first_batches=first, **more))))
        return found.opened_at, found.opened_at_clock, found.expires_at

    expires = ago(seconds=-50)
    assert opened(transaction()) == (ago(seconds=10), "coordinator", expires)
    assert opened(transaction(start_time=ago(minutes=2))) == (ago(minutes=2), "coordinator", ago(minutes=1))
    assert opened() == (ago(hours=2), "broker", None)
    elsewhere = transaction(on=ELSEWHERE)
    assert opened(elsewhere) == (ago(hours=2), "broker", None), "the coordinator's transaction is another one"
    assert opened(transaction(start_time=None)) == (ago(hours=2), "broker", None)
    assert opened(transaction(timeout_ms=None)) == (ago(seconds=10), "coordinator", None)


# A partition that is held by nothing


# Rows that leaders and coordinators leave incomplete


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
        extended = Diagnosis.of([first], options).with_next(second)
        assert extended.opened == both.opened
        assert extended.observations == both.observations == [first, second]
        assert extended.options == options


# What coordinators have open on partitions that were not read

PAID = TopicPartition("paid", 1)


@pytest.mark.parametrize(
    ("owner", "options", "why"),
    [
        (transaction(on=[PAID]), {}, "what is open there is not known."),
        (transaction(on=[PAID], state="PrepareCommit"), {}, "whether its marker is written there is not known."),
        (transaction(on=[PAID], state="CompleteCommit"), {}, None),  # its log keeps no partitions, nor would it matter
        (transaction(on=[]), {}, None),  # Ongoing without a partition holds nothing
        (transaction(on=[PAID]), {"selection": Selection(topics=["orders"])}, None),
        (transaction(on=[PAID]), {"selection": Selection(topics=["paid"])}, "what is open there is not known."),
        (transaction(on=[PAID]), {"absent": {PAID: None}}, None),  # its topic was deleted
        (transaction(on=[PAID]), {"absent": {PAID: "TOPIC_AUTHORIZATION_FAILED"}}, "what is open there is not known."),
    ],
    ids=["ongoing", "decided", "ended", "no partition", "not selected", "selected", "deleted", "hidden"],
)
def test_what_a_coordinator_has_open_on_a_partition_that_was_not_read(
    owner: Transaction, options: dict[str, Any], why: str | None
) -> None:
    """It was dropped in silence; a partition that is not selected or does not exist any more is not missing."""
    one = observation(owner, partitions=[partition(lso=150)], producers=[])
    found = Diagnosis.of([replace(one, **{"selection": EVERYTHING, **options})]).findings()
    assert [(each.tp, each.verdict) for each in found] == ([] if why is None else [(PAID, "unknown")])
    for each in found:
        assert each.reason.endswith(f"and paid-1 was not read: {why}")
        assert each.missing == (f"the log of paid-1: {options.get('absent', {}).get(PAID, NOT_OBSERVED)}",)
        assert (each.error is not None, each.transactional_id, each.outcome) == (True, "payments-7", None)


def test_a_leader_that_does_not_answer_hides_no_transaction() -> None:
    """The partition's row alone did not say whose transaction is open there; one that nobody has open keeps its row."""
    failed = partition(lso=None, hw=None, error="LEADER_NOT_AVAILABLE: none")
    owned, free = (Diagnosis.of([observation(*owners, partitions=[failed], producers=[])]).findings()
                   for owners in ([transaction()], []))  # fmt: skip
    assert [(each.producer_id, each.error) for each in (*owned, *free)] == [(7, failed.error), (None, failed.error)]
    assert unread(owned) == unread(free) == "LEADER_NOT_AVAILABLE", "a later sample that did not read it closes nothing"
