"""Findings of a recording over time, and merged with those of a log."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import NOW
from toolkit.analysis.history.findings_over_time import merge_findings, observation_times, over_time
from toolkit.schema import FINDINGS, RECORDED, Row
from toolkit.schema.live import Finding
from toolkit.schema.recorded import OBSERVATION_TIMES, RecordedSample
from toolkit.schema.verdict import Verdict

INTERVAL_S = 10  # seconds


def due(number: float) -> dt.datetime:
    return NOW + dt.timedelta(seconds=INTERVAL_S * number)


def sample(number: int, error: str | None = None, *, topic_gaps: Any = ()) -> RecordedSample:
    return RecordedSample(
        sampled_at=due(number),
        observed_at=due(number),
        interval_ms=INTERVAL_S * 1000,
        topic_gaps=tuple(topic_gaps),
        error=error,
    )


def finding(number: int, verdict: str = "hanging", **fields: Any) -> Row:
    return {
        **dict.fromkeys(FINDINGS.names),
        "topic": "orders", "partition": 0, "queue_position": 1, "producer_id": 7, "producer_epoch": 0, "start_offset":
        100, "verdict": verdict, "reason": f"It is, sample {number}.", "remedy": "Do what is right.", "missing": [],
        "evidence": [], "sampled_at": due(number), "observed_at": due(number) + dt.timedelta(seconds=1),
        "brokers_time": due(number) + dt.timedelta(seconds=1), **fields,
    }  # fmt: skip


def recorded_findings(*rows: Row, samples: Any = range(10)) -> list[Finding]:
    """Findings of these samples, which are numbers or records."""
    times = observation_times(sample(each) if isinstance(each, int) else each for each in samples)
    found = over_time(RECORDED["findings"].arrow(rows), times)
    FINDINGS.arrow(each.row() for each in found)
    return found


def only(rows: list[Finding]) -> Finding:
    (row,) = rows
    return row


def entries(row: Finding) -> list[tuple[str | None, str | None]]:
    return [(entry.name, entry.value) for entry in row.evidence]


def test_a_finding_lasts_from_its_first_sample_to_the_first_without_it() -> None:
    row = only(recorded_findings(finding(2, "ongoing"), finding(3), finding(4, cause="late-after-commit")))
    assert (row.held_from, row.held_to, row.held_ms) == (due(2), due(5), 30_000)
    expected = {
        "verdict": "ended",
        "reason": "The sample of 2026-11-21 12:00:50 UTC no longer has it. "
        "Last seen open at 2026-11-21 12:00:41 UTC. While it was open it was hanging: It is, sample 4.",
        "cause": "late-after-commit",
        "remedy": "None: it has ended.",
        "queue_position": None,
        "observed_at": due(5),
    }
    assert {name: getattr(row, name) for name in expected} == expected
    assert entries(row) == [
        ("verdict", "ongoing: It is, sample 2."),
        ("verdict", "hanging: It is, sample 3."),
        ("gone", "the sample of 2026-11-21 12:00:50 UTC does not have it"),
        ("verdict_before", "hanging"),
    ]


def test_a_finding_of_the_last_sample_is_still_open() -> None:
    row = only(recorded_findings(finding(8), finding(9)))
    assert (row.held_from, row.held_to, row.held_ms, row.queue_position) == (due(8), None, 11_000, 1)


def test_known_start_and_end_times_win_over_sample_times() -> None:
    row = only(recorded_findings(finding(3), finding(4, held_from=due(1)), finding(5)))
    assert (row.held_from, row.held_ms) == (due(1), 50_000)
    row = only(recorded_findings(finding(3), finding(4, "ending", held_to=due(4))))
    assert (row.held_to, row.held_ms) == (due(4), 10_000)
    assert only(recorded_findings(finding(9, held_from=due(20)))).held_ms == 0


def test_a_transaction_holds_once_it_is_first_in_the_queue() -> None:
    first, second = recorded_findings(finding(1), finding(1, producer_id=8, start_offset=105, queue_position=2),
                         finding(2, producer_id=8, start_offset=105, transactional_id="payments"))  # fmt: skip
    assert (first.held_to, second.held_from, second.held_to) == (due(2), due(2), due(3))
    assert second.transactional_id == "payments"
    unnamed = only(recorded_findings(finding(1, transactional_id="payments"), finding(2)))
    assert unnamed.transactional_id == "payments", "the coordinator did not answer the last sample"
    never_first = only(recorded_findings(finding(1, queue_position=2), finding(2, queue_position=2)))
    assert (never_first.held_from, never_first.held_to, never_first.held_ms) == (None, None, None)
    assert entries(never_first)[-2][0] == "gone"
    assert (never_first.verdict, never_first.held_to) == ("ended", None)


def test_failed_samples_are_reported_and_end_nothing() -> None:
    failed = [sample(3, "TIMED_OUT: nobody answered."), sample(4, "TIMED_OUT: nobody answered.")]
    row = only(recorded_findings(finding(2), finding(5), samples=[0, 1, 2, *failed, 5, 6]))
    assert (row.held_from, row.held_to) == (due(2), due(6))
    assert ("missed", "2 samples after 2026-11-21 12:00:20 UTC failed (TIMED_OUT)") in entries(row)
    row = only(recorded_findings(finding(2), samples=[0, 1, 2, *failed]))
    assert row.held_to is None
    assert ("missed", "2 samples after 2026-11-21 12:00:20 UTC failed (TIMED_OUT)") in entries(row)


def test_one_failed_sample_is_reported() -> None:
    row = only(recorded_findings(finding(2), samples=[0, 1, 2, sample(3, "TIMED_OUT: nobody answered.")]))
    assert ("missed", "a sample after 2026-11-21 12:00:20 UTC failed (TIMED_OUT)") in entries(row)


def test_one_sample_left_out_is_reported() -> None:
    row = only(recorded_findings(finding(2), finding(4), samples=[0, 1, 2, 4, 5]))
    assert ("missed", "no sample from 2026-11-21 12:00:20 UTC for 20 s") in entries(row)


def test_samples_without_an_interval_have_no_gaps() -> None:
    times = observation_times(replace(sample(number), interval_ms=None, topic_gaps=None) for number in (0, 9))
    assert [(row.next_sampled_at, row.missed, row.next_topic_gap) for row in times] == [
        (due(9), None, None),
        (None, None, None),
    ]


def test_transactions_come_before_verdicts_on_their_partition() -> None:
    unreplicated = finding(2, "unreplicated", producer_id=None, start_offset=None, queue_position=None)
    assert [row.start_offset for row in recorded_findings(unreplicated, finding(3))] == [100, None]


def test_a_gap_between_samples_is_reported() -> None:
    row = only(recorded_findings(finding(2), finding(7), samples=[0, 1, 2, 7, 8]))
    assert (row.held_from, row.held_to) == (due(2), due(8))
    assert ("missed", "no sample from 2026-11-21 12:00:20 UTC for 50 s") in entries(row)
    row = only(recorded_findings(finding(2), samples=[0, 1, 2, 7, 8]))
    assert row.held_to == due(7)
    assert ("missed", "no sample from 2026-11-21 12:00:20 UTC for 50 s") in entries(row)


def test_a_sample_that_could_not_read_the_partition_is_no_evidence() -> None:
    unread = finding(3, "unknown", producer_id=None, start_offset=None, queue_position=None, error="NOT_LEADER: moved.")
    row, of_partition = recorded_findings(finding(2), unread, finding(4))
    assert (row.held_from, row.held_to) == (due(2), due(5))
    assert ("missed", "the sample of 2026-11-21 12:00:30 UTC could not read the partition (NOT_LEADER)") in entries(row)
    assert (of_partition.verdict, of_partition.held_from) == ("unknown", None)
    row = recorded_findings(finding(2), unread)[0]
    assert row.held_to == due(4)


def test_a_finding_that_recurs_is_reported_as_such() -> None:
    row = only(recorded_findings(finding(2), finding(5)))
    assert (row.held_from, row.held_to) == (due(2), due(6))
    assert [name for name, _ in entries(row)] == ["verdict", "gone", "verdict", "gone", "verdict_before"]


def test_a_superseding_epoch_does_not_end_a_finding() -> None:
    """Once the new epoch has written, brokers report only that epoch, with the old start offset."""
    row = only(recorded_findings(finding(8), finding(9, "ongoing", producer_epoch=1)))
    assert (row.verdict, row.producer_epoch, row.held_from, row.held_to) == ("ongoing", 1, due(8), None)


def test_transactions_that_hold_nothing_are_left_out() -> None:
    assert recorded_findings(finding(2, "clear", producer_id=None, start_offset=None, queue_position=None)) == []
    assert recorded_findings(finding(2, "ongoing", start_offset=None, queue_position=None)) == []
    unreplicated = finding(2, "unreplicated", producer_id=None, start_offset=None, queue_position=None)
    assert only(recorded_findings(unreplicated)).verdict == "unreplicated"
    assert recorded_findings(finding(3), samples=[0, 1, 2]) == [], "an unfinished sample does not count"


def test_samples_are_read_in_order() -> None:
    times = observation_times([sample(2), sample(1, "DOWN: all."), sample(0), sample(9)])
    OBSERVATION_TIMES.arrow(each.row() for each in times)
    assert [(row.sampled_at, row.next_sampled_at) for row in times] == [
        (due(0), due(2)),
        (due(2), due(9)),
        (due(9), None),
    ]
    assert [row.missed is None for row in times] == [False, False, True]
    assert observation_times([]) == observation_times([sample(1, "DOWN: all.")]) == []


# Merged with the findings of a log.


def log_finding(**fields: Any) -> Finding:
    row = {name: value for name, value in finding(0).items() if name != "sampled_at"}
    times = {"held_from": due(1), "held_to": due(6), "held_ms": 50_000}
    ended = {"verdict": "ended", "reason": "It ended.", "remedy": "None: it has ended.", "queue_position": None}
    clock = {"brokers_time": fields["observed_at"]} if "observed_at" in fields else {}
    return Finding.of({**row, **ended, **times, **clock, **fields})


def test_the_log_gives_the_times_and_the_recording_the_verdict() -> None:
    row = only(
        merge_findings(
            [log_finding()],
            recorded_findings(finding(2, transactional_id="payments", cause="late-after-commit", high_watermark=5)),
        )
    )
    assert (row.verdict, row.remedy, row.transactional_id, row.cause) == (
        "ended",
        "None: it has ended.",
        "payments",
        "late-after-commit",
    )
    last_seen = "Last seen open at 2026-11-21 12:00:21 UTC. While it was open it was hanging."
    assert row.reason == f"It ended. {last_seen}"
    assert (row.held_from, row.held_to, row.held_ms) == (due(1), due(6), 50_000)
    assert row.high_watermark is None
    assert ("verdict", "hanging: It is, sample 2.") in entries(row)


def test_the_recording_supplies_the_verdict_that_a_log_lacks() -> None:
    open_row = log_finding(verdict=Verdict.UNKNOWN, missing=["an answer"], held_to=None, held_ms=90_000)
    row = only(
        merge_findings([open_row], recorded_findings(finding(9, high_watermark=5, outcome="undecided", action="abort")))
    )
    assert (row.verdict, row.missing, row.remedy, row.queue_position) == ("hanging", (), "Do what is right.", 1)
    assert (row.held_from, row.held_to, row.held_ms, row.high_watermark) == (due(1), None, 90_000, 5)
    row = only(merge_findings([log_finding(held_from=None, held_ms=None)], recorded_findings(finding(2))))
    assert (row.held_from, row.held_ms) == (due(2), 40_000)


def test_a_recorded_hanging_without_outcome_decides_nothing() -> None:
    """Versions that did not record the outcome called committed records hanging."""
    open_row = log_finding(verdict=Verdict.UNKNOWN, outcome="unknown", missing=["an answer"], held_to=None)
    row = only(merge_findings([open_row], recorded_findings(finding(9))))
    assert (row.verdict, row.outcome, row.action, row.missing) == ("unknown", "unknown", None, ("an answer",))
    assert only(merge_findings([open_row], recorded_findings(finding(9, "overdue")))).verdict == "overdue"


@pytest.mark.parametrize("recorded_later", [False, True])
def test_what_one_source_proves_committed_is_never_aborted(recorded_later: bool) -> None:
    hanging = {"verdict": "hanging", "outcome": "undecided", "action": "abort", "queue_position": 1, "held_to": None}
    committed = finding(9, "stuck_ending", outcome="commit", action="complete")
    log = log_finding(**hanging, observed_at=due(1 if recorded_later else 20))
    row = only(merge_findings([log], recorded_findings(committed)))
    expected = ("stuck_ending", "commit", "complete") if recorded_later else ("unknown", "unknown", None)
    assert (row.verdict, row.outcome, row.action) == expected
    aborted = replace(log, outcome="abort")
    row = only(merge_findings([aborted], recorded_findings(committed)))
    assert (row.verdict, row.outcome, row.action) == ("unknown", "unknown", None)


def test_of_two_sources_that_prove_the_same_commit_the_newer_counts() -> None:
    commit = {"verdict": "stuck_ending", "outcome": "commit", "action": "complete"}
    log = log_finding(**commit, reason="By the log.", observed_at=due(20), held_to=None)
    row = only(merge_findings([log], recorded_findings(finding(9, **commit))))
    assert (row.verdict, row.outcome, row.action, row.reason) == (*commit.values(), "By the log.")


def test_a_commit_that_the_log_proves_wins_over_an_earlier_sample() -> None:
    log = log_finding(
        verdict=Verdict.STUCK_ENDING, outcome="commit", action="complete", observed_at=due(20), held_to=None
    )
    row = only(merge_findings([log], recorded_findings(finding(9, outcome="undecided", action="abort"))))
    assert (row.verdict, row.outcome, row.action) == ("stuck_ending", "commit", "complete")


@pytest.mark.parametrize("fields", [{"start_offset": 101}, {"producer_id": 8}, {"partition": 1}])
def test_findings_of_only_one_source_are_unchanged(fields: Any) -> None:
    recorded = recorded_findings(finding(2, **fields))
    rows = merge_findings([log_finding()], recorded)
    assert sorted(map(repr, rows)) == sorted(map(repr, [log_finding(), *recorded]))
    unreplicated = recorded_findings(
        finding(2, "unreplicated", producer_id=None, start_offset=None, queue_position=None)
    )
    assert len(merge_findings([log_finding()], unreplicated)) == 2


def test_several_epochs_of_a_transaction_are_one_row_with_the_last_verdict() -> None:
    row = only(merge_findings([log_finding()], recorded_findings(finding(2), finding(3, "ongoing", producer_epoch=1))))
    assert row.reason.endswith("While it was open it was ongoing.")


def test_a_later_read_of_the_log_reopens_what_a_sample_no_longer_had() -> None:
    log = log_finding(verdict=Verdict.UNKNOWN, outcome="unknown", observed_at=due(20), held_to=None, held_ms=190_000)
    row = only(merge_findings([log], recorded_findings(finding(2))))
    assert (row.verdict, row.held_to, row.held_ms) == ("unknown", None, 190_000)


def test_without_an_end_a_transaction_was_held_until_its_last_sample() -> None:
    still_open = {"verdict": "unknown", "outcome": "unknown", "held_to": None, "held_ms": None}
    row = only(merge_findings([log_finding(**still_open)], recorded_findings(finding(9))))
    assert row.held_ms == 81_000
    ahead = log_finding(**still_open, held_from=due(20))
    assert only(merge_findings([ahead], recorded_findings(finding(9)))).held_ms == 0
    waiting = log_finding(**still_open, held_from=None)
    assert only(merge_findings([waiting], recorded_findings(finding(9, queue_position=2)))).held_ms is None


def test_of_several_recorded_findings_the_last_one_counts() -> None:
    log = log_finding(verdict=Verdict.UNKNOWN, outcome="unknown", held_to=None)
    first, last = (only(recorded_findings(finding(9, "ongoing", reason=f"It is at {number}."))) for number in (1, 2))
    last = replace(last, observed_at=due(10))
    for recorded in ([first, last], [last, first]):
        assert only(merge_findings([log], recorded)).reason == "It is at 2."
