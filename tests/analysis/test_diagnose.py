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
from tests.analysis.logged import diagnosed
from toolkit.analysis.diagnosis.case import DiagnoseOptions, IndexedObservation
from toolkit.analysis.diagnosis.decision import OUTCOMES, PARTITION_RULES, decide_merged
from toolkit.analysis.diagnosis.diagnose import Diagnosis
from toolkit.analysis.diagnosis.observation import NOT_OBSERVED, AsOf, Observation
from toolkit.analysis.diagnosis.rules import DISOWNED_RULES, OWNED_RULES
from toolkit.analysis.findings_over_time import unread
from toolkit.formats.coordinator_records import STATE_TOPIC
from toolkit.schema.live import EvidenceEntry, Finding, Partition, Producer, Transaction
from toolkit.schema.table import EVERYTHING, Selection, TopicPartition
from toolkit.schema.verdict import Verdict

ELSEWHERE = (("payments", 2),)


def verdict(observations: list[Observation]) -> str:
    return only(diagnosed(observations)).verdict


def test_every_verdict_and_outcome_is_explained_and_every_rule_names_one() -> None:
    rules = (*OWNED_RULES, *DISOWNED_RULES)
    assert {rule.verdict for rule in rules} | {rule.verdict for rule in PARTITION_RULES} <= set(Verdict)
    assert {rule.outcome for rule in rules} - {None} == OUTCOMES.keys()


def test_open_transactions_are_sorted_as_they_will_hold_the_lso() -> None:
    producers = [producer(9, start=140), producer(7, start=100), producer(8, start=120)]
    owners = [transaction(8, transactional_id="healthy")]
    rows = diagnosed(twice(observation(*owners, producers=producers)))
    assert [(row.queue_position, row.producer_id, row.verdict) for row in rows] == [
        (1, 7, "hanging"),
        (2, 8, "ongoing"),
        (3, 9, "hanging"),
    ]


# Pitfalls


FIRST, SECOND = twice(observation())
LIVE, ABORTED = transaction(), transaction(state="CompleteAbort", on=())
COMMITTING = twice(observation(transaction(state="PrepareCommit")), apart=61)
GAP = replace(COMPLETE, gaps=("broker 2 did not answer ListTransactions: COORDINATOR_LOAD_IN_PROGRESS",))
OF_COORDINATORS = observation(partitions=[partition(STATE_TOPIC)], producers=[producer(topic=STATE_TOPIC)])
UNAVAILABLE = partition(lso=None, hw=None, error="NOT_LEADER_OR_FOLLOWER: not yet")
MOVED = observation(producers=[producer(start=120)], partitions=[partition(lso=120)])
COMPLETED, FREE = transaction(state="CompleteCommit", on=()), [partition(lso=150)]
OPENED = first_batch()
OPENED_AGAIN = replace(OPENED, base_timestamp=ago(minutes=1))


def by_leader(epoch: int) -> Observation:
    return replace(SECOND, partitions=[partition(leader_epoch=epoch)], partitions_after=[partition(leader_epoch=epoch)])


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
    # The same offset of another log: truncated by a new leader, and grown past its former end; of a topic that was
    # deleted and created again; and that again, of brokers before 2.8 or of a recording.
    "a leader that changed between them": ([FIRST, by_leader(5)], ["unknown"]),
    "a topic that was created again between them": (
        [replace(each, topic_ids={"orders": name}) for each, name in ((FIRST, "old"), (SECOND, "new"))], ["unknown"]
    ),
    "another batch at its start offset": (
        [replace(each, first_batches=[batch]) for each, batch in ((FIRST, OPENED), (SECOND, OPENED_AGAIN))], ["unknown"]
    ),
    "its first batch and topic id were read once": (
        [FIRST, replace(SECOND, topic_ids={"orders": "new"}, first_batches=[OPENED])], ["hanging"]
    ),
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


# Contradictions


def test_a_second_observation_of_fewer_partitions_keeps_the_other_findings() -> None:
    wide = observation(
        transaction(8, transactional_id="fine", on=(("orders", 1),)),
        partitions=[partition(), partition(number=1)],
        producers=[producer(), producer(8, partition=1)],
    )
    narrow = replace(observation(), observed_at=NOW + dt.timedelta(seconds=5))
    assert [(row.partition, row.verdict) for row in diagnosed([wide, narrow])] == [(0, "hanging"), (1, "ongoing")]


def from_files(one: Observation, *doubts: str, as_of: dt.datetime | None = None) -> Observation:
    """The same as read from log directories."""
    proven = {} if as_of is None else {TopicPartition(STATE_TOPIC, 33): AsOf(as_of, "its newest record")}
    return replace(one, from_files=True, doubts={("orders", 0, 7): doubts} if doubts else {}, as_of=proven)


# What the logs show meanwhile


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


def held(**more: Any) -> Finding:
    return only(diagnosed([observation(producers=[], **more)], requested=[TopicPartition("orders", 0)]))


def test_an_lso_is_held_only_if_it_was_before_and_after() -> None:
    """In between, a transaction has ended, or the high watermark has moved on with the LSO behind it."""
    stuck, free = [partition(isr=[1])], [partition(lso=150)]
    found = held(partitions=stuck, partitions_after=stuck)
    assert (found.verdict, found.producer_id, "in sync 1 of 2" in found.remedy) == ("unreplicated", None, True)
    assert held(partitions=stuck, partitions_after=free).verdict == "clear"
    begun = held(partitions=free, partitions_after=[partition(lso=150, hw=160)])
    assert (begun.verdict, begun.reason[:41]) == ("clear", "Nothing was held when it was first read; ")
    assert held(partitions=stuck, partitions_after=[partition(lso=120)]).verdict == "ending"


def test_a_look_that_failed_shows_no_lso_that_was_not_held() -> None:
    """A leader moved in the first look: `clear, nothing was held when it was first read`, or no finding."""
    failed = [partition(lso=None, hw=None, error="NOT_LEADER_OR_FOLLOWER: moved")]
    unread = observation(partitions=failed, partitions_after=failed, producers=[])
    stuck = observation(producers=[])
    assert [each.verdict for each in diagnosed([unread, stuck])] == ["unreplicated"]
    assert [each.verdict for each in diagnosed([unread, stuck, unread])] == ["unknown"]
    free = observation(partitions=[partition(lso=150)], partitions_after=[], producers=[])
    assert diagnosed([free, unread, stuck]) == [], "it was not held before"


def test_a_transaction_above_the_lso_does_not_explain_it() -> None:
    """What opens at 120 cannot hold the LSO at 100: something else does."""
    one = observation(transaction(), producers=[producer(start=120)])
    assert [each.start_offset for each in diagnosed([one])] == [120, None]
    below = diagnosed([observation(transaction(), producers=[producer(start=90)])])
    assert [each.start_offset for each in below] == [90]


def test_an_lso_that_could_not_be_read_is_not_explained_by_what_is_open() -> None:
    unread = partition(lso=None, hw=None, error="REQUEST_TIMED_OUT: no answer")
    found = diagnosed([observation(transaction(), partitions=[unread])])
    assert [(each.verdict, each.start_offset) for each in found] == [("ongoing", 100), ("unknown", None)]


def test_offsets_are_held_from_the_lso_to_the_high_watermark() -> None:
    assert held(partitions=[partition(lso=100, hw=150)]).offsets_held == 50
    assert held(partitions=[partition(lso=150, hw=150)]).offsets_held == 0
    for unknown in (partition(lso=None), partition(hw=None)):
        assert held(partitions=[unknown]).offsets_held is None


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
