"""What proves that a transaction has ended; `tests/spark/test_closing.py` checks every table for it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.analysis.build import NOW, observation, partition, producer, transaction
from tests.analysis.logged import diagnosed_sample
from tests.analysis.test_findings_over_time import due, entries, finding, log_finding, only, recorded_findings, sample
from toolkit.analysis.history.findings_over_time import (
    close_by_log,
    close_by_observation,
    merge_findings,
    observation_times,
    over_time,
    verdict_before,
    without_short,
    without_stale,
)
from toolkit.schema import FINDINGS, RECORDED, Row
from toolkit.schema.live import Finding
from toolkit.schema.log import LogTransaction
from toolkit.schema.verdict import Verdict

PARTITION_ROW = {"producer_id": None, "producer_epoch": None, "start_offset": None, "queue_position": None}


def log_transaction(**fields: Any) -> LogTransaction:
    row: Row = {
        "topic": "orders", "partition": 0, "producer_id": 7, "first_offset": 100, "marker_offset": 110,
        "marker": "ABORT", "end": due(6), **fields,
    }  # fmt: skip
    return LogTransaction.of(row)


# Closing by a later observation.


def test_a_transaction_missing_from_a_later_sample_has_ended() -> None:
    """A report must not call a transaction hanging that was ended before it was written."""
    row = only(recorded_findings(finding(2), finding(3, outcome="undecided", action="abort")))
    assert (row.verdict, row.outcome, row.action) == ("ended", None, None)
    assert (row.remedy, row.held_to) == ("None: it has ended.", due(4))
    assert "While it was open it was hanging: It is, sample 3." in row.reason
    assert verdict_before(row) == "hanging"
    open_row = only(recorded_findings(finding(8), finding(9)))
    assert (open_row.verdict, verdict_before(open_row)) == ("hanging", None)


def test_a_sample_with_another_row_of_the_partition_has_read_it() -> None:
    row = recorded_findings(finding(2), finding(3, "unreplicated", **PARTITION_ROW))[0]
    assert (row.verdict, row.held_to) == ("ended", due(3))


def test_a_partition_without_producer_state_is_not_read() -> None:
    """Its offsets may have arrived anyway: then the finding names what is missing, and has no error."""
    denied = "TOPIC_AUTHORIZATION_FAILED: no."
    partition_row = partition(lso=100, observed_at=NOW)
    hanging = observation(
        transaction(8, state="Empty", on=()), partitions=[partition_row], producers=[producer(8, observed_at=NOW)]
    )
    unread = observation(partitions=[partition_row], producers=[producer(start=None, error=denied, producer_id=None)])
    observations = [
        replace(each, observed_at=due(number)) for number, each in enumerate((hanging, hanging, unread, unread))
    ]
    rows = [
        {**row.row(), "sampled_at": due(number)}
        for number in range(1, 4)
        for row in diagnosed_sample(observations[number], observations[number - 1])
    ]
    assert [(row["verdict"], row["error"]) for row in rows if row["sampled_at"] == due(3)] == [("unknown", None)]
    times = observation_times(sample(number) for number in range(4))
    row, of_partition = over_time(RECORDED["findings"].arrow(rows), times)
    assert (row.verdict, row.outcome, row.held_to) == ("hanging", "undecided", None)
    assert (
        "missed",
        "the sample of 2026-11-21 12:00:20 UTC could not read the partition (TOPIC_AUTHORIZATION_FAILED)",
    ) in (entries(row))
    assert of_partition.verdict == "unknown"


def test_a_missing_partition_proves_nothing_if_topics_may_be_hidden() -> None:
    gap = "DESCRIBE on Topic '*' for this principal"
    samples = [0, 1, 2, *(sample(number, topic_gaps=[gap]) for number in (3, 4))]
    row = only(recorded_findings(finding(2), samples=samples))
    assert (row.verdict, row.held_to) == ("hanging", None)
    assert entries(row)[-1] == ("missed", f"the sample of 2026-11-21 12:00:30 UTC could not read the partition ({gap})")
    other = finding(3, producer_id=8, start_offset=200)
    assert recorded_findings(finding(2), other, samples=samples)[0].verdict == "ended", (
        "that observation has the partition"
    )


@pytest.mark.parametrize("samples", [[0, 1, 2], [0, 1, 2, sample(3, "TIMED_OUT: nobody answered.")]])
def test_without_a_later_sample_the_finding_is_unchanged(samples: Any) -> None:
    assert only(recorded_findings(finding(2), samples=samples)).verdict == "hanging"


def current(*rows: Row, at: float = 20) -> list[Finding]:
    return [Finding.of({**row, "observed_at": due(at)}) for row in rows or [finding(0, "clear", **PARTITION_ROW)]]


def test_a_current_observation_ends_findings_of_a_recording() -> None:
    recorded = recorded_findings(finding(8), finding(9))
    row = only(close_by_observation(recorded, current()))
    assert (row.verdict, row.held_to, row.held_ms) == ("ended", due(20), 120_000)
    assert row.reason.startswith("The sample of 2026-11-21 12:03:20 UTC no longer has it. Last seen open at")
    assert close_by_observation([row], current(at=30)) == [row]


def test_a_later_sample_keeps_the_time_of_a_marker_that_was_read() -> None:
    """A look at the cluster replaced it by its own time; the samples of a recording kept it."""
    recorded = recorded_findings(finding(8), finding(9, "ending", held_to=due(9)))
    row = only(close_by_observation(recorded, current()))
    assert (row.verdict, row.held_from, row.held_to, row.held_ms) == ("ended", due(8), due(9), recorded[0].held_ms)


def test_a_sample_that_has_an_undecided_transaction_has_read_its_partition() -> None:
    other = finding(0, "unknown", producer_id=8, start_offset=200, missing=["an answer"])
    row = only(close_by_observation(recorded_findings(finding(9)), current(other)))
    assert (row.verdict, row.held_to) == ("ended", due(20))


def test_only_transactions_end() -> None:
    of_partition = recorded_findings(finding(9, "unreplicated", **PARTITION_ROW))
    assert close_by_observation(of_partition, current(finding(0))) == of_partition


@pytest.mark.parametrize(
    "later",
    [
        [],
        current(finding(0)),
        current(finding(0, "ongoing", producer_epoch=1)),
        current(finding(0, "unknown", error="NOT_LEADER: moved.", **PARTITION_ROW)),
        current(finding(0, "unknown", missing=["an answer"], **PARTITION_ROW)),
        current(finding(0, "clear", **{**PARTITION_ROW, "partition": 1})),
        current(at=3),
        current(at=9.1),  # the time of the finding
    ],
)
def test_an_observation_without_proof_of_an_end_ends_no_finding(later: list[Finding]) -> None:
    recorded = recorded_findings(finding(8), finding(9))
    assert close_by_observation(recorded, later) == recorded


# Closing by a log.


def test_a_marker_in_a_log_ends_a_finding_of_a_recording() -> None:
    row = only(close_by_log(recorded_findings(finding(8), finding(9)), [log_transaction(end=due(10))]))
    assert (row.verdict, row.held_to, row.held_ms, row.observed_at) == ("ended", due(10), 20_000, due(10))
    assert row.reason.startswith("Its ABORT marker is at offset 110 of the log. Last seen open at")
    FINDINGS.arrow([row.row()])
    assert only(close_by_log([row], [log_transaction()])) == row, "it is already closed"


def test_the_time_of_a_hold_is_never_negative() -> None:
    row = only(close_by_log(recorded_findings(finding(9)), [log_transaction(end=due(8))]))
    assert (row.verdict, row.held_from, row.held_to, row.held_ms) == ("ended", due(9), due(8), 0)


def test_a_marker_without_time_ends_a_finding_at_an_unknown_time() -> None:
    row = only(close_by_log(recorded_findings(finding(9)), [log_transaction(end=None)]))
    assert (row.verdict, row.held_from, row.held_to, row.held_ms) == ("ended", due(9), None, None)


def test_a_transaction_that_was_never_first_in_the_queue_held_nothing() -> None:
    second = recorded_findings(finding(9, queue_position=2))
    row = only(close_by_log(second, [log_transaction(end=due(10))]))
    assert (row.verdict, row.held_to, row.held_ms, row.observed_at) == ("ended", None, None, due(10))


def test_a_transaction_that_ended_twice_has_one_verdict_before() -> None:
    row = only(merge_findings([log_finding()], recorded_findings(finding(2, "ongoing"))))
    assert [value for name, value in entries(row) if name == "verdict_before"] == ["ongoing"]
    row = only(merge_findings([log_finding()], [log_finding()]))
    assert (row.reason, verdict_before(row)) == ("It ended.", None)


@pytest.mark.parametrize(
    "fields", [{"marker_offset": None}, {"first_offset": 101}, {"producer_id": 8}, {"partition": 1}]
)
def test_the_end_of_another_transaction_ends_no_finding(fields: Any) -> None:
    recorded = recorded_findings(finding(8), finding(9))
    assert close_by_log(recorded, [log_transaction(**fields)]) == recorded


def test_an_observation_after_the_log_ends_its_open_transaction() -> None:
    open_row = log_finding(verdict=Verdict.HANGING, queue_position=1, held_to=None, held_ms=90_000, observed_at=due(3))
    row = only(merge_findings([open_row], recorded_findings(finding(2), finding(3))))
    assert (row.verdict, row.held_from, row.held_to, row.held_ms) == ("ended", due(1), due(4), 30_000)
    assert (row.queue_position, row.observed_at, verdict_before(row)) == (None, due(4), "hanging")
    FINDINGS.arrow([row.row()])


def test_an_earlier_observation_does_not_end_a_transaction_of_a_newer_log() -> None:
    open_row = log_finding(verdict=Verdict.HANGING, queue_position=1, held_to=None, observed_at=due(9))
    row = only(merge_findings([open_row], recorded_findings(finding(2), finding(3))))
    assert (row.verdict, row.held_to, row.queue_position) == ("unknown", None, 1)
    assert row.reason.startswith("It is open as of 2026-11-21 12:01:30 UTC. The sample of 2026-11-21 12:00:40")
    assert row.missing == ("why the sample of 2026-11-21 12:00:40 UTC does not have what is open after it",)


# Which findings are reported.


def test_ended_healthy_transactions_are_reported_only_after_long_holds() -> None:
    short = recorded_findings(finding(2, "ongoing"))
    assert without_short(short, min_held_ms=60_000) == []
    assert without_short(short, min_held_ms=10_000) == short
    second_in_queue = recorded_findings(finding(2, "ongoing", queue_position=2))
    assert without_short(second_in_queue, min_held_ms=10_000) == []
    was_hanging, open_rows = recorded_findings(finding(2), finding(3)), recorded_findings(finding(9, "ongoing"))
    for rows in (was_hanging, open_rows, [log_finding(held_ms=1)]):
        assert without_short(rows, min_held_ms=60_000) == rows


@pytest.mark.parametrize(
    ("verdict", "is_reported"),
    [("ongoing", False), ("long", False), ("ending", False), ("clear", False), ("overdue", True), ("prepared", True)],
)
def test_a_verdict_that_needs_no_action_is_healthy(verdict: str, is_reported: bool) -> None:
    assert bool(without_short(recorded_findings(finding(2, verdict)), min_held_ms=60_000)) == is_reported


def test_the_latest_sample_of_a_partition_wins() -> None:
    early, late = (recorded_findings(finding(number, "unknown", **PARTITION_ROW)) for number in (3, 9))
    assert without_stale(early, sampled_at=due(9)) == []
    assert without_stale(late, sampled_at=due(9)) == late
    assert without_stale(late, sampled_at=late[0].observed_at) == late
    assert without_stale(recorded_findings(finding(3)), sampled_at=due(9)) != []
