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
from toolkit.analysis.diagnosis.clocks import BrokersTime
from toolkit.analysis.diagnosis.decision.decide import PARTITION_RULES
from toolkit.analysis.diagnosis.decision.disowned_rules import DISOWNED_RULES
from toolkit.analysis.diagnosis.decision.owned_rules import OWNED_RULES
from toolkit.analysis.diagnosis.diagnose import diagnose
from toolkit.analysis.diagnosis.evidence_kinds import LogFacts, TwoSourceEvidence
from toolkit.analysis.diagnosis.evidence_text import at
from toolkit.analysis.diagnosis.observation import AsOf, Coverage, IndexedObservation, Observation
from toolkit.analysis.diagnosis.verdicts import OUTCOMES, VERDICTS, Outcome
from toolkit.formats.coordinator.transaction_log_records import STATE_TOPIC
from toolkit.schema.live import EvidenceEntry, Finding, Partition, Producer, Transaction
from toolkit.schema.log import PastTransaction
from toolkit.schema.table import TopicPartition

ELSEWHERE = (("payments", 2),)


def verdict(observations: list[Observation]) -> str:
    return only(diagnosed(observations)).verdict


# The verdict table, row by row


@pytest.mark.parametrize(
    ("owner", "expected", "outcome", "action"),
    [
        (transaction(), "ongoing", "undecided", None),
        (transaction(start_time=ago(minutes=20), timeout_ms=3_600_000), "long", "undecided", None),
        (transaction(start_time=ago(minutes=2)), "overdue", "undecided", "fence"),
        (transaction(state="PrepareCommit"), "ending", "commit", None),
        (transaction(state="PrepareAbort", epoch=1), "ending", "abort", None),
        (transaction(state="PrepareCommit", last_update_time=ago(minutes=5)), "stuck_ending", "commit", None),
        (transaction(state="PrepareAbort", last_update_time=ago(minutes=5)), "stuck_ending", "abort", None),
        (transaction(timeout_ms=2**31 - 1, start_time=ago(days=30)), "prepared", "undecided", None),
        (None, "hanging", "undecided", "abort"),
        (transaction(state="Empty", on=()), "hanging", "undecided", "abort"),
        (transaction(state="CompleteCommit", on=()), "hanging", "undecided", "abort"),
        (transaction(state="CompleteAbort", on=()), "hanging", "undecided", "abort"),
        (transaction(state="Dead", on=()), "hanging", "undecided", "abort"),
        (transaction(on=ELSEWHERE), "hanging", "undecided", "abort"),
        (transaction(epoch=1, on=ELSEWHERE), "hanging", "undecided", "abort"),
        (transaction(epoch=1, last_update_time=ago(seconds=10)), "hanging", "undecided", "abort"),
        (transaction(epoch=1), "unknown", "unknown", None),
    ],
)
def test_the_verdict_of_each_rule(owner: Transaction | None, expected: str, outcome: str, action: str | None) -> None:
    row = only(diagnosed(twice(observation(*([owner] if owner else [])))))
    assert (row.verdict, row.outcome, row.action) == (expected, outcome, action)


def test_every_verdict_and_outcome_is_explained_and_every_rule_names_one() -> None:
    rules = (*OWNED_RULES, *DISOWNED_RULES)
    assert {rule.verdict for rule in rules} | {rule.verdict for rule in PARTITION_RULES} <= VERDICTS.keys()
    assert {rule.outcome for rule in rules} - {None} == OUTCOMES.keys()


@pytest.mark.parametrize("state", [None, "Empty", "CompleteCommit", "CompleteAbort", "Dead", "elsewhere", "superseded"])
def test_without_the_coordinators_log_nothing_is_hanging(state: str | None) -> None:
    """A coordinator's current state says nothing about an earlier transaction, which may have been committed."""
    owners = {
        "elsewhere": transaction(on=ELSEWHERE),
        "superseded": transaction(epoch=1, last_update_time=ago(seconds=10)),
        None: None,
    }
    owner = owners.get(state, transaction(state=state, on=()))
    row = only(diagnose(twice(observation(*([owner] if owner else [])))).findings())
    assert (row.verdict, row.outcome, row.action, row.cause) == ("unknown", "unknown", None, None)
    assert row.missing == ("the coordinators' log, which was not read: whether a commit includes these records",)
    assert "kafka-txn abort" not in row.remedy


def test_a_hanging_finding_names_owner_reason_and_remedy() -> None:
    row = only(diagnosed(twice(observation(transaction(state="CompleteAbort", on=()), first_batches=[first_batch()]))))
    assert row.reason == (
        'coordinator 3: id "payments-7" is CompleteAbort, so no coordinator will end this transaction '
        "(seen twice, 5 s apart; all 3 brokers answered)."
    )
    assert row.remedy == "kafka-txn abort --topic orders --partition 0 --start-offset 100"
    assert (row.opened_at, row.opened_at_clock) == (ago(hours=2), "producer")
    assert (row.queue_position, row.offsets_held, row.missing) == (1, 50, ())
    values = {(entry.source, entry.name): entry.value for entry in row.evidence}
    assert values["DescribeTransactions", "state"] == "CompleteAbort"
    assert values["DescribeProducers", "current_txn_start_offset"] == "100"
    assert values["observations", "observations"] == "2"


def test_the_reason_names_a_single_observation() -> None:
    row = only(diagnosed([observation()]))
    assert row.verdict == "hanging"
    assert "seen once" in row.reason
    assert ("observations", "1") in {(entry.name, entry.value) for entry in row.evidence}


def test_a_held_partition_with_nothing_open_is_unreplicated() -> None:
    row = only(diagnosed([observation(producers=[], partitions=[partition(isr=[1], log_end_offset=151)])]))
    assert (row.verdict, row.producer_id) == ("unreplicated", None)
    assert "in sync 1 of 2" in row.remedy


def test_a_clear_partition_has_a_row_only_if_requested() -> None:
    one = observation(producers=[], partitions=[partition(lso=150)])
    assert diagnosed([one]) == []
    assert only(diagnosed([one], requested=[TopicPartition("orders", 0)])).verdict == "clear"


def test_open_transactions_are_sorted_as_they_will_hold_the_lso() -> None:
    producers = [producer(9, start=140), producer(7, start=100), producer(8, start=120)]
    owners = [transaction(8, transactional_id="healthy")]
    rows = diagnosed(twice(observation(*owners, producers=producers)))
    assert [(row.queue_position, row.producer_id, row.verdict) for row in rows] == [
        (1, 7, "hanging"),
        (2, 8, "ongoing"),
        (3, 9, "hanging"),
    ]


def test_an_open_transaction_that_has_written_nothing_holds_nothing() -> None:
    row = only(diagnosed([observation(transaction(), producers=[], partitions=[partition(lso=150)])]))
    assert (row.verdict, row.queue_position, row.start_offset) == ("ongoing", None, None)


# Pitfalls


def test_missing_permissions_give_unknown_and_are_named() -> None:
    gap = "DESCRIBE on TransactionalId 'payments-7'"
    row = only(diagnosed(twice(observation(coverage=Coverage(brokers=(1, 2, 3), gaps=(gap,))))))
    assert (row.verdict, row.missing) == ("unknown", (gap,))
    assert "abort --topic" not in row.remedy


def test_hidden_topics_are_a_finding_of_the_cluster() -> None:
    incomplete = replace(COMPLETE, topic_gaps=("DESCRIBE on Topic '*'",))
    row = only(diagnosed([observation(producers=[], partitions=[partition(lso=150)], coverage=incomplete)]))
    assert (row.topic, row.verdict, row.missing) == (None, "unknown", ("DESCRIBE on Topic '*'",))
    assert row.outcome is None, "nothing is known to be open"


def test_a_gap_in_any_observation_is_a_gap() -> None:
    gap = replace(COMPLETE, gaps=("broker 2 did not answer ListTransactions: COORDINATOR_LOAD_IN_PROGRESS",))
    first, second = twice(observation())
    assert verdict([replace(first, coverage=gap), second]) == "unknown"
    assert verdict([first, replace(second, coverage=gap)]) == "unknown"


@pytest.mark.parametrize("clock", [ago(days=7), NOW + dt.timedelta(minutes=50), None])
def test_the_producers_clock_decides_nothing(clock: dt.datetime | None) -> None:
    assert verdict([observation(transaction(), producers=[producer(last_timestamp=clock)])]) == "ongoing"
    assert verdict(twice(observation(producers=[producer(last_timestamp=clock)]))) == "hanging"


def test_a_transaction_that_ends_between_two_requests_has_no_finding() -> None:
    completed = transaction(state="CompleteCommit", on=())
    rows = diagnosed([observation(completed, after=[producer(start=None)], partitions_after=[partition(lso=150)])])
    assert rows == []


def test_the_producers_next_transaction_is_another_one() -> None:
    completed = transaction(state="CompleteCommit", on=())
    row = only(diagnosed([observation(completed, after=[producer(start=130)], partitions_after=[partition(lso=130)])]))
    assert row.verdict == "ending"


def test_contradicting_observations_prove_nothing() -> None:
    first, second = twice(observation(transaction()))
    assert verdict([first, replace(second, transactions=[transaction(state="CompleteAbort", on=())])]) == "unknown"


def test_a_transaction_only_in_the_last_observation_is_not_hanging() -> None:
    first, second = twice(observation())
    first = replace(first, producers=[], producers_after=[])
    assert verdict([first, second]) == "unknown"


def test_a_fence_in_progress_is_not_hanging_until_it_is_logged() -> None:
    """The coordinator raises the epoch before it writes PrepareAbort; the state is still Ongoing.

    Observed over seconds, in both observations, while the coordinator's log waited for a dead follower.
    """
    row = only(diagnosed(twice(observation(transaction(epoch=1)))))
    assert row.verdict == "unknown"
    assert "__transaction_state-33" in row.missing[0]


def test_a_followers_response_is_no_proof() -> None:
    assert verdict(twice(observation(producers=[producer(broker_id=2)]))) == "unknown"


def test_a_leader_change_during_the_observation_is_no_proof() -> None:
    assert verdict(twice(observation(partitions_after=[partition(leader_epoch=5)]))) == "unknown"


def test_a_moving_lso_is_not_unreplicated() -> None:
    moving = observation(producers=[], partitions_after=[partition(lso=120)])
    assert verdict([moving]) == "ending"


def test_the_transactions_own_timeout_decides() -> None:
    flink = transaction(start_time=ago(minutes=50), timeout_ms=3_600_000)
    row = only(diagnosed([observation(flink)]))
    assert (row.verdict, row.expires_at) == ("long", NOW + dt.timedelta(minutes=10))


def test_the_remedy_of_overdue_is_the_coordinator_not_a_marker() -> None:
    row = only(diagnosed([observation(transaction(start_time=ago(minutes=5)))]))
    assert row.verdict == "overdue"
    assert "coordinator 3" in row.remedy
    assert "kafka-txn abort" not in row.remedy


def test_within_the_coordinators_abort_interval_nothing_is_overdue() -> None:
    assert verdict([observation(transaction(start_time=ago(seconds=70)))]) == "ongoing"


@pytest.mark.parametrize("owner", [transaction(timeout_ms=2**31 - 1), transaction(timeout_ms=2**31 - 1, on=ELSEWHERE)])
def test_two_phase_commit_never_expires_and_is_never_hanging(owner: Transaction) -> None:
    row = only(diagnosed(twice(observation(owner))))
    assert row.verdict in {"prepared", "unknown"}
    assert row.expires_at is None
    assert "external coordinator" in row.remedy


def test_transaction_version_2_ends_with_the_next_epoch() -> None:
    ending = transaction(state="PrepareCommit", epoch=1)
    assert verdict([observation(ending)]) == "ending"


def test_an_expired_id_leaves_an_orphan() -> None:
    row = only(diagnosed(twice(observation())))
    assert (row.verdict, row.transactional_id) == ("hanging", None)
    assert "no transactional id has producer 7" in row.reason


def test_the_start_offset_may_be_below_the_log_start() -> None:
    partition_row = partition(lso=6, log_start_offset=9)
    row = only(diagnosed(twice(observation(partitions=[partition_row], producers=[producer(start=0)]))))
    assert (row.verdict, row.start_offset, row.last_stable_offset) == ("hanging", 0, 6)


def test_a_first_batch_of_another_producer_is_ignored() -> None:
    other_batch = first_batch(99, base_offset=103)
    assert only(diagnosed([observation(first_batches=[other_batch])])).opened_at is None


def test_an_unreadable_partition_is_a_row_and_others_are_diagnosed() -> None:
    denied = "TOPIC_AUTHORIZATION_FAILED: not authorized"
    failed = producer(start=None, partition=1, producer_id=None, error=denied)
    rows = diagnosed(twice(observation(partitions=[partition(), partition(number=1)], producers=[producer(), failed])))
    assert [(row.partition, row.verdict, row.missing) for row in rows] == [
        (0, "hanging", ()),
        (1, "unknown", (denied,)),
    ]


def test_a_partition_that_recovers_during_the_observation_has_no_finding() -> None:
    """Observed on a broker with new topics: a short NOT_LEADER_OR_FOLLOWER made whole clusters `unknown`."""
    unavailable = partition(lso=None, hw=None, error="NOT_LEADER_OR_FOLLOWER: not yet")
    recovered = observation(partitions=[unavailable], partitions_after=[partition(lso=150)], producers=[], after=[])
    assert diagnosed([recovered]) == []
    with_open_transaction = observation(
        partitions=[unavailable], partitions_after=[partition()], producers=[], after=[producer()]
    )
    assert verdict([with_open_transaction]) == "unknown"


def test_an_id_that_cannot_be_described_is_unknown() -> None:
    row = only(diagnosed(twice(observation(transaction(state=None, error="REQUEST_TIMED_OUT: no answer")))))
    assert row.verdict == "unknown"
    assert "REQUEST_TIMED_OUT" in row.missing[0]


def test_without_a_brokers_time_the_start_is_known_and_the_age_is_not() -> None:
    unknown = BrokersTime(error="DescribeQuorum: CLUSTER_AUTHORIZATION_FAILED")
    row = only(diagnosed([observation(transaction(start_time=ago(days=1)), brokers_time=unknown)]))
    assert (row.verdict, row.brokers_time) == ("ongoing", None)
    assert "is Ongoing since 2026-11-20 12:00:00 UTC (no broker's time shows for how long)" in row.reason
    assert ("brokers_time", "unknown: DescribeQuorum: CLUSTER_AUTHORIZATION_FAILED") in {
        (e.name, e.value) for e in row.evidence
    }


def test_transactions_on_transaction_state_are_never_aborted() -> None:
    partition_row = partition("__transaction_state")
    row = only(
        diagnosed(twice(observation(partitions=[partition_row], producers=[producer(topic="__transaction_state")])))
    )
    assert row.verdict == "unknown"


def test_the_remedy_on_consumer_offsets_names_the_dropped_offsets() -> None:
    offsets = partition("__consumer_offsets")
    row = only(diagnosed(twice(observation(partitions=[offsets], producers=[producer(topic="__consumer_offsets")]))))
    assert "offsets in it are dropped" in row.remedy


# Contradictions


def test_a_coordinator_with_an_older_epoch_is_no_proof() -> None:
    assert (
        verdict(twice(observation(transaction(state="CompleteAbort", on=()), producers=[producer(epoch=3)])))
        == "unknown"
    )
    assert verdict(twice(observation(transaction(), producers=[producer(epoch=3)]))) == "unknown"


def test_two_coordinators_for_one_producer_prove_nothing() -> None:
    other = transaction(state="CompleteAbort", on=(), coordinator_id=2)
    row = only(diagnosed(twice(observation(transaction(), other))))
    assert row.verdict == "unknown"
    assert "coordinator 3" in row.missing[0]
    assert "coordinator 2" in row.missing[0]


def test_a_prepare_state_without_the_partition_is_unknown() -> None:
    assert verdict(twice(observation(transaction(state="PrepareCommit", on=ELSEWHERE)))) == "unknown"


def test_a_dead_epoch_below_a_live_one_is_reported_and_never_aborted() -> None:
    first = first_batch(last_offset=100, log_append_time=True)
    row = only(diagnosed([observation(transaction(epoch=1), producers=[producer(epoch=1)], first_batches=[first])]))
    assert (row.verdict, row.cause) == ("ongoing", "mixed epochs in one transaction")
    assert "Never an abort marker" in row.remedy


def test_a_prepare_state_observed_for_a_minute_is_stuck() -> None:
    observations = twice(observation(transaction(state="PrepareAbort")), apart=61)
    assert verdict(observations) == "stuck_ending"
    row = only(diagnosed(observations))
    assert "for 1 min 1 s" in row.reason
    assert "Never an abort marker" in row.remedy


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


def test_doubts_about_files_are_missing_evidence_not_hanging() -> None:
    doubt = "proof that orders-0 is as new as __transaction_state-33"
    row = only(diagnosed([from_files(observation(transaction(state="Empty", on=())), doubt)]))
    assert (row.verdict, row.missing) == ("unknown", (doubt,))
    assert "abort --topic" not in row.remedy


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


def test_what_began_while_files_were_copied_holds_nothing_at_that_moment() -> None:
    opened = [producer(start=100)]
    row = only(diagnosed([from_files(observation(producers=[], after=opened))]))
    assert (row.verdict, row.remedy) == ("clear", "None; a later copy shows whether it ends.")
    assert "the transaction at the LSO 100 began afterwards, while the files were copied" in row.reason
    live = only(diagnosed([observation(producers=[], after=opened)]))
    assert (live.verdict, live.remedy) == ("ending", "None: the blocking transaction ended normally.")
    at_its_end = observation(producers=[], after=opened, partitions=[partition(lso=100, high_watermark=100)])
    (clear,) = diagnose([from_files(at_its_end)]).findings(requested=[TopicPartition("orders", 0)])
    assert clear.reason.startswith("The LSO 100 is the high watermark")
    for after in ([], [producer(start=120)]):  # the marker that the LSO waits for may be followed by what began
        assert only(diagnosed([from_files(observation(producers=[], after=after))])).verdict == "unreplicated"


# What the logs show meanwhile


def with_log(**facts: object) -> Finding:
    """The finding of a transaction that no coordinator owns, with what the logs show of it."""
    diagnosis = diagnose(twice(observation(transaction(state="CompleteCommit", on=()))))
    (evidence,) = diagnosis.to_read()
    return only(diagnosis.findings(log={evidence.key: LogFacts(**facts)}))  # type: ignore[arg-type]


def test_the_marker_that_ended_it_is_in_the_evidence() -> None:
    entry = EvidenceEntry(source="Fetch", observed_at=NOW, name="marker_after", value="COMMIT")
    found = with_log(outcome=decided("commit", end_time=NOW), marker_after="COMMIT marker at 9", marker_entry=entry)
    assert entry in found.evidence


def decided(name: str, *, end_time: dt.datetime | None) -> Outcome:
    past = PastTransaction(
        transactional_id="payments-7", kind="transaction", reason="", producer_epoch=0, end_time=end_time
    )
    return Outcome(name=name, reason="it was decided", transaction=past)


@pytest.mark.parametrize("name", ["commit", "abort"])
def test_a_decision_whose_marker_is_on_the_way_is_ending(name: str) -> None:
    """Its coordinator decided after it had answered: the log has Prepare*, and the marker follows."""
    found = with_log(outcome=decided(name, end_time=None))
    assert (found.verdict, found.outcome, found.action) == ("ending", name, None)


@pytest.mark.parametrize("name", ["commit", "abort"])
def test_a_marker_written_while_the_logs_are_read_is_not_missing(name: str) -> None:
    """The partition is read before the coordinators' records, and its leader once more after them."""
    found = with_log(outcome=decided(name, end_time=NOW), has_ended=True)
    assert (found.verdict, found.outcome, found.action) == ("ending", None, None)


def test_a_missing_marker_is_completed_only_once_its_transaction_is_complete() -> None:
    found = with_log(outcome=decided("commit", end_time=NOW))
    assert (found.verdict, found.outcome, found.action) == ("stuck_ending", "commit", "complete")


# What is read again, and in which order findings come


def test_one_transaction_that_needs_a_second_look_is_enough_for_its_partition() -> None:
    """Behind the live one is one without an owner: with one look it would be `unknown` for ever."""
    live = transaction(8, transactional_id="fine")
    both = observation(live, producers=[producer(8, start=100), producer(7, start=120)])
    assert diagnose([both]).to_recheck() == [("orders", 0)]
    only_live = observation(transaction(), producers=[producer()])
    assert diagnose([only_live]).to_recheck() == []


def test_rechecks_reads_and_findings_come_in_the_order_of_partitions() -> None:
    numbers = [5, 3, 8, 1, 7, 2, 6, 4]
    one = observation(
        partitions=[partition(number=number) for number in numbers],
        producers=[producer(number, partition=number) for number in numbers],
    )
    diagnosis = diagnose(twice(one))
    in_order = [("orders", number) for number in sorted(numbers)]
    assert diagnose([one]).to_recheck() == in_order
    assert [each.txn.tp for each in diagnosis.to_read()] == in_order
    found = diagnosis.findings(
        requested=[TopicPartition("orders", 1), TopicPartition("orders", 8), TopicPartition("aaa", 0)]
    )
    assert [(each.topic, each.partition) for each in found] == in_order, (
        "a partition that was not observed has none, and hides no other; a held one is not `clear` as well"
    )


def test_a_second_transaction_of_a_producer_is_not_its_first() -> None:
    """In the first look another transaction of the same producer was open at another offset: it is a new one."""
    first, second = twice(observation(producers=[producer(start=120)], partitions=[partition(lso=120)]))
    earlier = replace(first, producers=[producer(start=100)], producers_after=[producer(start=100)])
    assert verdict([earlier, second]) == "unknown"


def test_the_time_in_a_state_begins_with_that_state() -> None:
    """A look that has shown it Ongoing does not make Prepare* stuck."""
    committing = observation(transaction(state="PrepareCommit"))
    first, second = twice(committing, apart=61)
    assert verdict([first, second]) == "stuck_ending"
    assert verdict([replace(first, transactions=[transaction()]), second]) == "ending"


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
    stuck, free = [partition()], [partition(lso=150)]
    assert held(partitions=stuck, partitions_after=stuck).verdict == "unreplicated"
    assert held(partitions=stuck, partitions_after=free).verdict == "clear"
    assert held(partitions=free, partitions_after=[partition(lso=150, hw=160)]).verdict == "clear"
    assert held(partitions=stuck, partitions_after=[partition(lso=120)]).verdict == "ending"


def test_a_transaction_above_the_lso_does_not_explain_it() -> None:
    """What opens at 120 cannot hold the LSO at 100: something else does."""
    one = observation(transaction(), producers=[producer(start=120)])
    found = diagnosed([one])
    assert [(each.start_offset, each.verdict) for each in found] == [(120, "ongoing"), (None, "ending")]
    below = diagnosed([observation(transaction(), producers=[producer(start=90)])])
    assert [each.start_offset for each in below] == [90]


def test_an_lso_that_could_not_be_read_is_not_explained_by_what_is_open() -> None:
    unread = partition(lso=None, hw=None, error="REQUEST_TIMED_OUT: no answer")
    found = diagnosed([observation(transaction(), partitions=[unread])])
    assert [(each.verdict, each.start_offset) for each in found] == [("ongoing", 100), ("unknown", None)]


def test_files_do_not_move() -> None:
    open_above = replace(observation(transaction(), producers=[producer(start=120)]), from_files=True)
    assert [each.verdict for each in diagnosed([open_above])][-1] == "unreplicated"


def test_offsets_are_held_from_the_lso_to_the_high_watermark() -> None:
    assert held(partitions=[partition(lso=100, hw=150)]).offsets_held == 50
    assert held(partitions=[partition(lso=150, hw=150)]).offsets_held == 0
    for unknown in (partition(lso=None), partition(hw=None)):
        assert held(partitions=[unknown]).offsets_held is None


# Rows that leaders and coordinators leave incomplete


def test_rows_without_ids_are_no_transactions() -> None:
    """The row of an error has no producer id; that of a broker that answers no DescribeTransactions no id."""
    of_nobody = transaction(transactional_id=None)
    assert verdict(twice(observation(of_nobody))) == verdict(twice(observation())), "it owns nothing"
    nameless = transaction(None, state=None, error="REQUEST_TIMED_OUT: no answer", transactional_id="other")
    assert IndexedObservation(observation(nameless)).cases.keys() == {("orders", 0)}
    rows = [replace(producer(start=100), producer_id=None), producer(8, start=None)]
    assert IndexedObservation(observation(producers=rows)).cases == {}


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


def test_what_was_open_at_any_time_moves_the_lso_and_what_is_clear_is_not_noted() -> None:
    opened, ended, tp = [producer(start=120)], [producer(start=None)], TopicPartition("orders", 0)
    for before, after, expected in ((opened, ended, True), (ended, opened, True), (ended, ended, False)):
        assert indexed(producers=before, after=after).open_at_any_time(tp) is expected
    assert indexed(producers=[], partitions=[partition(lso=150)]).notable() == set()


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
    """A sample rests on the logs of its time; one of an older version has the outcome alone."""
    (evidence,) = diagnose(twice(observation(transaction(state="CompleteCommit", on=())))).to_read()
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
    for seconds, is_earlier in ((1, True), (0, True), (-1, False)):
        time = NOW - dt.timedelta(seconds=seconds)
        log, recorded = row, replace(row, observed_at=time, brokers_time=time, cause="recorded")
        two = TwoSourceEvidence(log=log, recorded=recorded)
        assert (two.earlier, two.later) == ((recorded, log) if is_earlier else (log, recorded))


def test_a_diagnosis_with_the_next_observation_is_that_of_both() -> None:
    first, second = twice(observation())
    for long_after, single in ((900_000, False), (1, True)):
        both = diagnose([first, second], max_transaction_timeout_ms=long_after, is_single_sample=single)
        extended = diagnose([first], max_transaction_timeout_ms=long_after, is_single_sample=single).with_next(second)
        assert extended.opened == both.opened
        assert extended.observations == both.observations == [first, second]
        assert (extended.max_transaction_timeout_ms, extended.is_single_sample) == (long_after, single)
