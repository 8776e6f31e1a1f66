"""Two consecutive samples are diagnosed like two observations, and one alone proves nothing."""

from dataclasses import replace

import pytest

from tests.analysis.build import COMPLETE, ago, observation, only, partition, producer, transaction, twice
from tests.analysis.logged import by_logs, diagnosed, diagnosed_sample, sample_diagnosis
from toolkit.analysis.diagnosis.observation import Coverage, Observation
from toolkit.analysis.diagnosis.verdicts import Outcome
from toolkit.schema.live import EvidenceEntry, Finding, Transaction
from toolkit.schema.table import TopicPartition
from toolkit.schema.verdict import Verdict

HANGING = observation(transaction(state="Empty", on=()))


def earlier_sample(one: Observation, *, seconds: float = 10) -> Observation:
    return replace(one, observed_at=ago(seconds=seconds))


def test_two_samples_are_two_observations() -> None:
    assert diagnosed_sample(HANGING, earlier_sample(HANGING, seconds=5)) == diagnosed(twice(HANGING))
    assert only(diagnosed_sample(HANGING, earlier_sample(HANGING))).verdict == "hanging"


def test_a_transaction_in_only_one_sample_is_never_hanging() -> None:
    row = only(diagnosed_sample(HANGING))
    assert (row.verdict, row.cause) == ("unknown", None)
    assert row.missing == ("a second sample: it was seen in one only",)
    assert row.reason.startswith("Not proven to be hanging: coordinator 3:")


def test_a_new_partition_has_only_one_observation() -> None:
    new = [partition(), partition(number=1)]
    producers = [producer(), producer(9, partition=1)]
    rows = diagnosed_sample(
        observation(transaction(state="Empty", on=()), partitions=new, producers=producers), earlier_sample(HANGING)
    )
    assert [(row.partition, row.verdict) for row in rows] == [(0, "hanging"), (1, "unknown")]


def test_a_deleted_topic_holds_nothing() -> None:
    assert diagnosed_sample(observation(partitions=[], producers=[]), earlier_sample(HANGING)) == []


def test_missing_evidence_of_either_sample_is_missing() -> None:
    gap = earlier_sample(replace(HANGING, coverage=Coverage(brokers=(1, 2), gaps=("broker 3 did not answer",))))
    assert only(diagnosed_sample(HANGING, gap)).missing == ("broker 3 did not answer",)
    hidden_topics = replace(COMPLETE, topic_gaps=("DESCRIBE on all topics",))
    rows = diagnosed_sample(replace(HANGING, coverage=hidden_topics), earlier_sample(HANGING))
    assert [(row.topic, row.verdict) for row in rows] == [("orders", "hanging"), (None, "unknown")]
    rows = diagnosed_sample(
        observation(
            transaction(state="Empty", on=()), partitions=[partition(), partition("new")], coverage=hidden_topics
        ),
        earlier_sample(HANGING),
    )
    assert [row.topic for row in rows] == ["new", "orders", None], "reported once"
    for partitions, before in (([partition("new", hw=100)], earlier_sample(HANGING)), ([], None)):
        nothing_known = observation(partitions=partitions, producers=[], coverage=hidden_topics)
        assert [row.topic for row in diagnosed_sample(nothing_known, before)] == [None]


def test_requested_partitions_have_a_finding() -> None:
    idle = observation(producers=[], partitions=[partition(hw=100)])
    assert diagnosed_sample(idle) == []
    for earlier in (None, earlier_sample(idle)):
        assert only(diagnosed_sample(idle, earlier, requested=[TopicPartition("orders", 0)])).verdict == "clear"


def recorded_again(*recorded: Finding) -> Finding:
    """The finding of the sample, read again with what was recorded with it."""
    return only(sample_diagnosis(HANGING, earlier_sample(HANGING)).findings(recorded=recorded))


def test_cause_and_impact_are_read_from_the_recording() -> None:
    (found,) = diagnosed_sample(HANGING, earlier_sample(HANGING))
    recorded = replace(found, cause="late (late-after-commit)", records_held=7, groups_held=("g",), held_ms=12)
    assert recorded_again(recorded) == recorded
    unread = recorded_again()
    assert recorded_again(replace(recorded, start_offset=99)) == unread, "another transaction"
    assert recorded_again(replace(recorded, producer_epoch=1)) == unread


def test_without_the_recorded_outcome_nothing_is_hanging() -> None:
    """The log of that time cannot be read again, and an older recorder did not read it."""
    row = recorded_again()
    assert (row.verdict, row.outcome, row.action) == ("unknown", "unknown", None)
    assert row.missing == ("the coordinators' log, which was not read: whether a commit includes these records",)
    (found,) = diagnosed_sample(HANGING, earlier_sample(HANGING))
    row = recorded_again(replace(found, outcome=None, action=None))
    assert (row.verdict, row.outcome, row.action) == ("unknown", "unknown", None)


def test_a_recorded_commit_is_never_aborted() -> None:
    (found,) = diagnosed_sample(HANGING, earlier_sample(HANGING))
    entry = EvidenceEntry(name="outcome", value="commit: the transaction was committed")
    recorded = replace(found, verdict=Verdict.STUCK_ENDING, outcome="commit", action="complete", evidence=(entry,))
    row = recorded_again(recorded)
    assert (row.verdict, row.outcome, row.action) == ("stuck_ending", "commit", "complete")
    assert row.reason.startswith("The transaction was committed")
    assert "kafka-txn abort" not in row.remedy


def test_a_recorded_commit_that_could_not_be_completed_still_cannot() -> None:
    """An older recorder wrote so of committed records behind which a newer epoch had written."""
    (found,) = diagnosed_sample(HANGING, earlier_sample(HANGING))
    entry = EvidenceEntry(name="outcome", value="commit: the transaction was committed")
    row = recorded_again(replace(found, verdict=Verdict.STUCK_ENDING, outcome="commit", action=None, evidence=(entry,)))
    assert (row.verdict, row.outcome, row.action) == ("unknown", "unknown", None)


def test_recorded_committed_records_below_a_live_transaction_are_not_undecided() -> None:
    """Its remedy was to wait, or to fence the id, which discards them."""
    live = observation(transaction(start_time=ago(minutes=20), timeout_ms=3_600_000))
    (found,) = sample_diagnosis(live).findings()
    entry = EvidenceEntry(name="outcome", value="commit: the transaction was committed")
    recorded = replace(found, verdict=Verdict.ONGOING, outcome="commit", evidence=(entry,))
    row = only(sample_diagnosis(live).findings(recorded=[recorded]))
    assert (row.verdict, row.outcome, row.action) == ("ongoing", "commit", None)
    assert "Do not fence the id" in row.remedy


PARTLY = Outcome(
    name="unknown", reason="one", missing=("one decision",), offsets="offsets 4 to 9", is_partly_committed=True
)
LIKELY = Outcome(
    name="unknown", reason="a time", missing=("a time",), offsets="offset 4", commit_claim="they are older than it"
)
NOT_KNOWN = Outcome(name="unknown", reason="its log", missing=("its log",), offsets="offset 4")


@pytest.mark.parametrize("outcome", [PARTLY, LIKELY, NOT_KNOWN], ids=["committed in part", "likely", "not known"])
@pytest.mark.parametrize(
    "owner",
    [
        transaction(start_time=ago(minutes=20), timeout_ms=3_600_000),
        transaction(start_time=ago(minutes=2)),
        transaction(state="Empty", on=()),
    ],
    ids=["long", "overdue", "no owner"],
)
def test_a_finding_that_was_recorded_is_the_same_when_it_is_read(owner: Transaction, outcome: Outcome) -> None:
    one = observation(owner)
    diagnosis = sample_diagnosis(one, earlier_sample(one))
    recorded = only(diagnosis.findings(read=by_logs(diagnosis, replace(outcome, are_markers_sought=True))))
    again = only(diagnosis.findings(recorded=[recorded]))
    names = ("verdict", "outcome", "action", "missing", "cause")
    assert [getattr(again, name) for name in names] == [getattr(recorded, name) for name in names]
    # What is asserted is checked against the logs of the moment, not against the recording.
    for each in (recorded, again):
        assert "kafka-txn fence" not in each.remedy
        assert "kafka-txn abort" not in each.remedy


def test_the_reason_of_a_recorded_abort_has_its_facts_once() -> None:
    (found,) = diagnosed_sample(HANGING, earlier_sample(HANGING))
    entry = EvidenceEntry(name="outcome", value="abort: the transaction was aborted")
    row = recorded_again(replace(found, outcome="abort", evidence=(entry,)))
    assert (row.verdict, row.outcome, row.action) == ("hanging", "abort", "abort")
    assert row.reason.count("coordinator 3") == 1
    assert ": the transaction was aborted (seen twice" in row.reason


def test_what_was_recorded_as_ended_is_not_hanging() -> None:
    (found,) = diagnosed_sample(HANGING, earlier_sample(HANGING))
    row = recorded_again(replace(found, verdict=Verdict.ENDING, outcome=None, action=None))
    assert (row.verdict, row.action) == ("unknown", None)
    assert row.missing == ("a recorded finding that agrees: it was recorded as ending",)


def test_a_recorded_contradiction_of_the_log_still_counts() -> None:
    (found,) = diagnosed_sample(HANGING, earlier_sample(HANGING))
    contradicted = replace(
        found,
        verdict=Verdict.UNKNOWN,
        outcome="unknown",
        action=None,
        reason="It would be.",
        missing=("a log that agrees",),
    )
    row = recorded_again(contradicted)
    assert (row.verdict, row.outcome, row.missing, row.cause) == ("unknown", "unknown", ("a log that agrees",), None)
    once = only(sample_diagnosis(HANGING).findings(recorded=[found]))
    assert (once.verdict, once.missing) == ("unknown", ("a second sample: it was seen in one only",)), (
        "a recorded hanging never overrides unknown"
    )
