"""Two consecutive samples are diagnosed like two observations, and one alone proves nothing."""

from dataclasses import replace

from tests.analysis.build import COMPLETE, ago, observation, only, partition, producer, transaction, twice
from toolkit.analysis.diagnosis.diagnose import findings
from toolkit.analysis.diagnosis.observation import Coverage, Observation
from toolkit.analysis.history.sample_findings import diagnose_sample, with_recorded

HANGING = observation(transaction(state="Empty", on=()))


def earlier_sample(one: Observation, *, seconds: float = 10) -> Observation:
    return replace(one, observed_at=ago(seconds=seconds))


def test_two_samples_are_two_observations() -> None:
    assert diagnose_sample(HANGING, earlier_sample(HANGING, seconds=5)) == findings(twice(HANGING))
    assert only(diagnose_sample(HANGING, earlier_sample(HANGING)))["verdict"] == "hanging"


def test_a_transaction_in_only_one_sample_is_never_hanging() -> None:
    row = only(diagnose_sample(HANGING))
    assert (row["verdict"], row["cause"]) == ("unknown", None)
    assert row["missing"] == ["a second sample: it was seen in one only"]
    assert row["reason"].startswith("Not proven to be hanging: coordinator 3:")


def test_a_new_partition_has_only_one_observation() -> None:
    new = [partition(), partition(number=1)]
    producers = [producer(), producer(9, partition=1)]
    rows = diagnose_sample(
        observation(transaction(state="Empty", on=()), partitions=new, producers=producers), earlier_sample(HANGING)
    )
    assert [(row["partition"], row["verdict"]) for row in rows] == [(0, "hanging"), (1, "unknown")]


def test_a_deleted_topic_holds_nothing() -> None:
    assert diagnose_sample(observation(partitions=[], producers=[]), earlier_sample(HANGING)) == []


def test_missing_evidence_of_either_sample_is_missing() -> None:
    gap = earlier_sample(replace(HANGING, coverage=Coverage(brokers=(1, 2), gaps=("broker 3 did not answer",))))
    assert only(diagnose_sample(HANGING, gap))["missing"] == ["broker 3 did not answer"]
    hidden_topics = replace(COMPLETE, topic_gaps=("DESCRIBE on all topics",))
    rows = diagnose_sample(replace(HANGING, coverage=hidden_topics), earlier_sample(HANGING))
    assert [(row["topic"], row["verdict"]) for row in rows] == [("orders", "hanging"), (None, "unknown")]
    rows = diagnose_sample(
        observation(
            transaction(state="Empty", on=()), partitions=[partition(), partition("new")], coverage=hidden_topics
        ),
        earlier_sample(HANGING),
    )
    assert [row["topic"] for row in rows] == ["new", "orders", None], "reported once"


def test_requested_partitions_have_a_finding() -> None:
    idle = observation(producers=[], partitions=[partition(hw=100)])
    assert diagnose_sample(idle) == []
    for earlier in (None, earlier_sample(idle)):
        assert only(diagnose_sample(idle, earlier, requested=[("orders", 0)]))["verdict"] == "clear"


def test_cause_and_impact_are_read_from_the_recording() -> None:
    rows = diagnose_sample(HANGING, earlier_sample(HANGING))
    recorded = [
        {**rows[0], "cause": "late (late-after-commit)", "records_held": 7, "groups_held": ["g"], "held_ms": 12}
    ]
    row = only(with_recorded(rows, recorded))
    assert (row["verdict"], row["cause"], row["records_held"], row["held_ms"]) == (
        "hanging",
        "late (late-after-commit)",
        7,
        12,
    )
    assert with_recorded(rows, [{**recorded[0], "start_offset": 99}]) == rows, "another transaction"
    assert with_recorded(rows, [{**recorded[0], "producer_epoch": 1}]) == rows


def test_a_recorded_contradiction_of_the_log_still_counts() -> None:
    rows = diagnose_sample(HANGING, earlier_sample(HANGING))
    contradicted = {
        **rows[0], "verdict": "unknown", "reason": "It would be.", "missing": ["a log that agrees"], "cause": None,
    }  # fmt: skip
    row = only(with_recorded(rows, [contradicted]))
    assert (row["verdict"], row["missing"], row["cause"]) == ("unknown", ["a log that agrees"], None)
    unchanged = only(with_recorded([contradicted], rows))
    assert (unchanged["verdict"], unchanged["missing"]) == ("unknown", ["a log that agrees"]), (
        "a recorded hanging never overrides unknown"
    )
