"""Which transaction held the LSO, from and to when, and the findings of these holds."""

import datetime as dt
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given

from tests.analysis.build import NOW
from tests.analysis.logged import at
from tests.analysis.random_logs import Step, batches, step_lists
from tests.analysis.test_log_transactions import BASE, all_opened_before
from tests.tiers import fuzzed
from toolkit.analysis.hold_findings import attribute, by_producer, held_findings, held_offsets, lso_holds, merge_holds
from toolkit.analysis.log.log_transactions import (
    OPEN,
    LogTransactions,
    begin,
    finish,
    log_transaction_table,
    lso_steps,
    partial_transactions,
)
from toolkit.formats.batches import CONTROL, TRANSACTIONAL
from toolkit.formats.headers import ABORT, COMMIT, UNREAD_MARKER, Headers
from toolkit.schema import FINDINGS, Row, utc
from toolkit.schema.live import Finding
from toolkit.schema.log import PastTransaction
from toolkit.schema.recorded import LSO_HOLDS, LsoHold
from toolkit.schema.table import LogId
from toolkit.schema.verdict import Verdict

thorough = fuzzed(20)

MINUTE = 60_000


WHERE = LogId(topic="orders", partition=0, broker_id=1)


def table(log_transactions: LogTransactions) -> pa.Table:
    return log_transaction_table(log_transactions, WHERE, files=("00.log",))


def holds_of(*steps: Step, **options: Any) -> list[Row]:
    log_transactions = finish(begin() + partial_transactions(batches(steps)))
    rows: list[Row] = lso_holds(table(log_transactions), **options).to_pylist()
    return rows


def holders_by_offset(headers: Headers, opened: dict[int, tuple[int, int]]) -> list[Any]:
    """Offset by offset, each lowest transaction: its first offset, where it became the lowest, and where it ended."""
    open_ = {producer: start for producer, (start, _) in opened.items()}
    holders: list[Any] = []
    holder = min(((start, producer) for producer, start in open_.items()), default=None)
    if holder:
        holders.append([holder[0], holder[0], None])
    for batch in headers:
        producer, control = int(batch["producer_id"]), batch["attributes"] & CONTROL
        if producer >= 0 and control and int(batch["marker"]) in {COMMIT, ABORT, UNREAD_MARKER}:
            open_.pop(producer, None)
        elif producer >= 0 and not control and batch["attributes"] & TRANSACTIONAL:
            open_.setdefault(producer, int(batch["base_offset"]))
        lowest = min(((start, producer) for producer, start in open_.items()), default=None)
        if holder and lowest != holder:
            holders[-1][2] = int(batch["base_offset"])
        if lowest and lowest != holder:
            holders.append([lowest[0], int(batch["base_offset"]), None])
        holder = lowest
    return [tuple(each) for each in holders]


def became_at(row: Row) -> int:
    return int(row["first_offset"] if row["after_offset"] is None else row["after_offset"])


@thorough
@given(step_lists, all_opened_before)
@example([Step("data", 1), Step("data", 2), Step("commit", 2), Step("data", 2), Step("commit", 2)], {})
def test_the_holders_match_an_offset_by_offset_model(steps: list[Step], opened: dict[int, tuple[int, int]]) -> None:
    headers = batches(steps, base_offset=BASE)
    holds = lso_holds(table(finish(begin(opened_before=opened) + partial_transactions(headers))))
    assert holds.schema.equals(LSO_HOLDS.arrow_schema, check_metadata=True)
    rows = holds.to_pylist()
    assert [(row["first_offset"], became_at(row), row["marker_offset"]) for row in rows] == holders_by_offset(
        headers, opened
    )
    for row in rows:
        assert (row["held_to"] is None) == (row["marker_offset"] is None)
        assert row["held_ms"] is None or row["held_ms"] >= 0
        assert row["held_ms"] is None or row["least_ms"] <= row["held_ms"] + 5_000


@thorough
@given(step_lists, all_opened_before)
def test_the_holders_match_the_steps_of_the_lso(steps: list[Step], opened: dict[int, tuple[int, int]]) -> None:
    headers = batches(steps, base_offset=BASE)
    log_transactions = finish(begin(opened_before=opened) + partial_transactions(headers))
    end = int(headers["last_offset"][-1]) + 1 if len(headers) else BASE
    holders: list[tuple[int, int]] = []
    for step in lso_steps(log_transactions, log_end_offset=end):
        holder = int(step["holder_first_offset"])
        if holder >= 0 and holder not in [first for first, _ in holders]:
            holders.append((holder, holder if step["event"] == OPEN else int(step["offset"]) - 1))
    assert [(row["first_offset"], became_at(row)) for row in lso_holds(table(log_transactions)).to_pylist()] == holders


BEFORE = (Step("data", 3), Step("commit", 3))  # a marker at 1002


@pytest.mark.parametrize(
    ("wait", "opened_at", "opened_at_clock", "held_ms"),
    [
        (1, 1003, "producer", MINUTE),
        (-3_600_000, 1002, "broker", MINUTE + 1),  # a backfill, or a clock behind
        (3_600_000, 1002, "broker", MINUTE + 1),  # a clock ahead
        (MINUTE + 1_000, 1002 + MINUTE + 1_000, "producer", 0),  # slightly ahead: the hold has no negative duration
    ],
)
def test_a_producers_clock_counts_within_the_markers(
    wait: int, opened_at: int, opened_at_clock: str, held_ms: int
) -> None:
    steps = (*BEFORE, Step("data", 1, wait=wait), Step("commit", 1, wait=MINUTE + 1 - wait))
    (row,) = [row for row in holds_of(*steps) if row["producer_id"] == 1000]
    assert (row["opened_at"], row["opened_at_clock"], row["held_ms"]) == (utc(opened_at), opened_at_clock, held_ms)
    assert row["held_from"] <= row["held_to"] == utc(1003 + MINUTE)


def holder(*steps: Step, **options: Any) -> Row:
    """The last hold."""
    return holds_of(*steps, **options)[-1]


HOUR = 60 * MINUTE


def test_a_clock_an_hour_behind_is_replaced_by_the_marker_before() -> None:
    row = holder(Step("data", 3, wait=2 * HOUR), Step("commit", 3), Step("data", 1, wait=-HOUR), Step("commit", 1))
    assert (row["opened_at"], row["opened_at_clock"]) == (utc(1001 + 2 * HOUR), "broker")


@pytest.mark.parametrize(
    ("before", "opened_at"),
    [
        ([Step("abort", 3)], 1001),  # of a transaction that wrote nothing: at offset 0
        ([*BEFORE, Step("data", 2), Step("commit", 2)], 1004),  # of a hold that is left out
        ([*BEFORE, Step("data", 2), Step("commit", 2, wait=-1004)], 1002),  # the last one has no time
    ],
)
def test_the_last_marker_with_a_time_shows_when_a_hold_began_at_least(before: list[Step], opened_at: int) -> None:
    row = holder(*before, Step("data", 1, wait=HOUR), Step("commit", 1, wait=5_000 - HOUR), min_held_ms=5)
    assert (row["opened_at"], row["opened_at_clock"]) == (utc(opened_at), "broker")


def test_a_future_time_without_a_previous_marker_is_left_open() -> None:
    steps = (Step("data", 1, wait=3_600_000), Step("data", 2), Step("commit", 2, wait=-3_590_000), Step("commit", 1))
    (row,) = holds_of(*steps, min_held_ms=MINUTE)
    assert (row["opened_at"], row["held_from"], row["held_ms"], row["least_ms"]) == (None, None, None, 1)
    assert row["opened_at_clock"] is None


def test_a_log_is_observed_as_of_its_last_marker() -> None:
    rows = holds_of(*BEFORE, Step("commit", 3, wait=-100), Step("data", 1))
    assert {row["as_of"] for row in rows} == {utc(902)}
    assert [row["as_of"] for row in holds_of(Step("data", 1))] == [None]


HERE = [{"topic": "orders", "partition": 0}]
ELSEWHERE = [{"topic": "orders", "partition": 1}]


def hold(**fields: Any) -> LsoHold:
    """Producer 7 from second 0 to 120, at offsets 100 to 110."""
    row: Row = {
        "topic": "orders", "partition": 0, "producer_id": 7, "producer_epoch": 3, "first_epoch": 3, "broker_id": 1,
        "first_offset": 100, "last_offset": 104, "marker_offset": 110, "marker_epoch": 3, "coordinator_epoch": 0,
        "outcome": "commit", "marker": "COMMIT", "start": at(0), "start_clock": "producer", "end": at(120),
        "truncated": False, "opened_at": at(0), "opened_at_clock": "producer", "held_from": at(0), "held_to": at(120),
        "held_ms": 120_000, "least_ms": 0, "first_sequence": 0, "as_of": at(500), "records_held": 9, "bytes_held": 900,
        **fields,
    }  # fmt: skip
    return LsoHold.of(row)


def open_hold(**fields: Any) -> LsoHold:
    unset = ("marker_offset", "marker_epoch", "coordinator_epoch", "marker", "end", "held_to", "held_ms", "least_ms")
    return hold(**{**dict.fromkeys(unset), "outcome": "open", "log_end_offset": 110, **fields})


def history(ended: str | None = "commit", **fields: Any) -> PastTransaction:
    row: Row = {
        "transactional_id": "payments", "txn_state_partition": 33, "kind": "transaction", "producer_id": 7,
        "producer_epoch": 3, "ended": ended, "reason": "Its client did what it did.", "state": "CompleteCommit",
        "start_time": at(0), "decided_at": at(119), "end_time": at(121), "timeout_ms": 600_000,
        "topic_partitions": HERE, "first_offset": 5, "last_offset": 7, "truncated": False, "broker_id": 2, **fields,
    }  # fmt: skip
    return PastTransaction.of(row)


def iso_utc(second: float) -> str:
    return at(second).isoformat(timespec="milliseconds")


def only(rows: list[Finding]) -> Finding:
    FINDINGS.arrow(row.row() for row in rows)
    (row,) = rows
    return row


def finding_of(one: LsoHold, *histories: PastTransaction) -> Finding:
    return only(held_findings([one], transaction_history=by_producer(histories), current_findings=[]))


# The owner of a hold.


def test_a_match_by_the_brokers_clock_wins_over_other_clocks() -> None:
    one, next_one = history(reason="This one."), history(decided_at=at(123), end_time=at(124), first_offset=8)
    assert attribute(hold(), [one, next_one]).sentence == "This one."
    late = history(decided_at=at(122), end_time=at(123))
    assert attribute(hold(), [late]).history == late, "clocks of brokers differ a little"
    slightly_short = replace(late, start_time=at(10))
    assert attribute(hold(), [slightly_short]).history == slightly_short, "by a tenth of the time"
    short = replace(late, start_time=at(60))
    assert attribute(hold(), [short]).history is None
    by_previous_marker = {"opened_at_clock": "broker"}, {"opened_at": None, "opened_at_clock": None}
    for fields in (*by_previous_marker, {**by_previous_marker[1], "start": None, "start_clock": None}):
        assert attribute(hold(**fields), [short]).history == short, "its first batch may be later"
    assert attribute(hold(), [history(decided_at=at(126), end_time=at(127))]).history is None


@pytest.mark.parametrize("partitions", [HERE, None])
def test_two_matches_give_no_owner(partitions: Any) -> None:
    past = history(topic_partitions=partitions)
    owner = attribute(hold(), [replace(past, first_offset=8), past])
    assert (owner.transactional_id, owner.history) == ("payments", None)
    assert owner.sentence == "2 transactions of its transactional id fit; the records do not show which it was."


@pytest.mark.parametrize(
    ("one", "fitting"),
    [
        (hold(), {"commit", "open", "stuck", None}),
        (hold(marker="ABORT"), {"abort", "timeout", "fence", "open", "stuck", None}),
        (hold(marker=None), {"commit", "abort", "timeout", "fence", "open", "stuck", None}),  # it was not read
        (open_hold(), {"open", "stuck", None}),
    ],
)
def test_a_transaction_fits_the_marker_unless_it_ended_otherwise(one: LsoHold, fitting: set[str | None]) -> None:
    ended = ("commit", "abort", "timeout", "fence", "open", "stuck", None)
    assert {each for each in ended if attribute(one, [history(each)]).history is not None} == fitting


def test_the_match_with_the_partition_wins_over_one_with_unknown_partitions() -> None:
    unknown = history(topic_partitions=None, first_offset=8)
    assert attribute(hold(), [unknown, history(reason="This one.")]).sentence == "This one."


def test_an_id_is_named_by_any_record_that_has_its_producer_id() -> None:
    owner = attribute(hold(), [history(producer_id=9, previous_producer_id=7)])
    assert (owner.transactional_id, owner.history) == ("payments", None), "that one is of the next producer id"
    owner = attribute(hold(), [history(producer_id=9)])
    assert (owner.transactional_id, owner.sentence) == (
        None,
        "No record read from __transaction_state has its producer id.",
    )
    owner = attribute(hold(), [history(), history(transactional_id="other")])
    assert owner.transactional_id is None, "Kafka gives a producer id to one id only"


def test_the_marker_of_transaction_version_2_has_the_next_epoch() -> None:
    assert attribute(hold(marker_epoch=4), [history()]).history is not None
    raised = history(producer_epoch=4, first_offset=8)
    assert attribute(hold(marker_epoch=4), [history(reason="This one."), raised]).sentence == "This one."


def test_a_late_batch_does_not_belong_to_the_ended_transaction() -> None:
    before = history(start_time=at(117.9), decided_at=at(118), end_time=at(118))
    assert attribute(hold(opened_at=at(118.1)), [before]).history is None
    owner = attribute(hold(), [before])
    assert (owner.history, owner.was_known) == (None, True)
    assert "did not know of it, or its records are gone" in owner.sentence


def test_records_before_and_after_prove_that_the_coordinator_did_not_own_it() -> None:
    before = history(start_time=at(-99), decided_at=at(-90), end_time=at(-90), first_offset=1)
    after = history(start_time=at(200), decided_at=at(201), end_time=at(201), first_offset=9)
    elsewhere = history(topic_partitions=ELSEWHERE)
    assert not attribute(hold(), [before, elsewhere, after]).was_known
    assert attribute(hold(), [before, elsewhere]).was_known, "its records of that time may not have been read"
    assert attribute(hold(), [elsewhere, after]).was_known, "compaction may have removed them"
    assert attribute(hold(), [replace(before, error="CORRUPT_RECORD: one."), after]).was_known
    for one in (hold(opened_at=None), hold(held_to=None, marker="ABORT")):
        assert attribute(one, [before, elsewhere, after]).was_known, "its time is unknown"


BEFORE_HOLD = history(start_time=at(-99), decided_at=at(-90), end_time=at(-90), first_offset=1)
AFTER = history(start_time=at(200), decided_at=at(201), end_time=at(201), first_offset=9)
INIT: Row = {"kind": "init", "ended": None, "start_time": None, "decided_at": None, "topic_partitions": None}


@pytest.mark.parametrize(
    "fields",
    [
        {"start_time": at(60), "end_time": at(63)},
        {"start_time": None, "decided_at": None, "end_time": at(63)},
        {"start_time": at(60), "end_time": None, "producer_epoch": 9},
    ],
)
def test_a_transaction_of_that_time_whose_partitions_are_unknown_may_be_the_one(fields: Any) -> None:
    assert attribute(hold(), [BEFORE_HOLD, history(topic_partitions=None, **fields), AFTER]).was_known


def test_an_init_during_the_hold_is_no_transaction() -> None:
    assert not attribute(hold(), [BEFORE_HOLD, history(**{**INIT, "end_time": at(60)}), AFTER]).was_known


@pytest.mark.parametrize(("fields", "time"), [({"start": None}, "time unknown"), ({"start_clock": None}, iso_utc(0))])
def test_a_first_batch_without_time_names_no_clock(fields: Any, time: str) -> None:
    assert finding_of(hold(**fields)).evidence[0].value == f"offset 100: epoch 3, sequence 0, {time}"


# The text of a finding.


@pytest.mark.parametrize(
    ("fields", "histories", "cause"),
    [
        ({"marker": "ABORT"}, history("timeout"), "its client did not end it in time (client-too-slow)"),
        ({"marker": "ABORT"}, history("fence"), "its client left it open, until a new instance took over the id"),
        (
            {"first_epoch": 2},
            history(),
            "mixed epochs in one transaction: epoch 2 opened it, and epoch 3 wrote into it",
        ),
        (
            {"marker_epoch": 4},
            history(producer_epoch=4),
            "superseded epoch: the marker of epoch 4 decided what epoch 3 had left open, and made it visible",
        ),
        (
            {},
            history(decided_at=at(30)),
            "its coordinator had decided, and took 1 min 30 s to write its marker (marker-not-written)",
        ),
        (
            {},
            history(decided_at=at(30), client_transaction_version=2),
            "its coordinator had decided, and took 1 min 30 s to write its marker "
            "(marker-not-written, marker-not-sent)",
        ),
        (
            {},
            history(timeout_ms=2**31 - 1),
            "a two-phase commit: its external coordinator took that long to decide (two-phase-commit)",
        ),
        (
            {"marker": "ABORT"},
            history("timeout", transactional_id="sink-3-17", timeout_ms=3_600_000),
            'its client did not end it in time; a hint: "sink-3-17" with a timeout of 1 h looks like Apache Flink, '
            "whose checkpoint decides what to do (client-too-slow, flink-timeout)",
        ),
        (
            {"marker": "ABORT"},
            history("fence", transactional_id="sink-3-17", timeout_ms=3_600_000),
            'its client left it open, until a new instance took over the id; a hint: "sink-3-17" with a timeout of '
            "1 h looks like Apache Flink, whose checkpoint decides what to do (flink-timeout)",
        ),
        ({}, history(transactional_id="sink-3-17", timeout_ms=3_600_000), None),
        ({}, history("open", decided_at=None), None),
        ({"held_to": None, "held_ms": None}, history(decided_at=at(30)), None),
        ({"first_epoch": None}, history(), None),
        ({"producer_epoch": None}, history(), None),
        ({}, history(producer_epoch=None), None),
        ({}, history(), None),
    ],
)
def test_the_cause_of_an_ended_hold(fields: Any, histories: PastTransaction, cause: str | None) -> None:
    assert finding_of(hold(**fields), histories).cause == cause


def test_a_hold_without_owner_has_a_cause() -> None:
    before = history(start_time=at(-99), decided_at=at(-90), end_time=at(-90), first_offset=1)
    after = history(start_time=at(200), decided_at=at(201), end_time=at(201), first_offset=9)
    row = finding_of(hold(marker="ABORT"), before, after)
    assert row.cause is not None
    assert row.cause.endswith(
        "a batch came late or was resent, or its partition was never added "
        "(late-after-commit, late-after-abort, never-added)"
    )
    assert "Its coordinator did not know of it" in row.reason


def test_holds_of_group_offsets_name_their_cause() -> None:
    assert finding_of(hold(topic="__consumer_offsets")).cause == "it held offsets of consumer groups (group-offsets)"


def test_a_start_time_within_the_difference_of_clocks_corrects_nothing() -> None:
    row = finding_of(hold(), history(start_time=at(3)))
    assert (row.held_from, row.opened_at, row.opened_at_clock) == (at(0), at(3), "coordinator")


def test_without_a_start_time_the_opening_is_that_of_the_log() -> None:
    row = finding_of(hold(), history(start_time=None))
    assert (row.transactional_id, row.opened_at, row.opened_at_clock) == ("payments", at(0), "producer")


def test_a_hold_before_its_id_got_another_producer_id_has_an_owner() -> None:
    assert finding_of(hold(), history(producer_id=9, previous_producer_id=7)).transactional_id == "payments"


def test_short_holds_are_left_out() -> None:
    histories = by_producer([history()])
    unknown = hold(opened_at=None, opened_at_clock=None, held_from=None, held_ms=None, least_ms=50_000)
    assert held_findings([unknown], min_held_ms=60_000) == []
    assert only(held_findings([unknown, hold(first_offset=120)], min_held_ms=60_000)).start_offset == 120
    assert len(held_findings([unknown], transaction_history=histories, min_held_ms=60_000)) == 1
    assert "for at least 50 s until" in only(held_findings([unknown], min_held_ms=50_000)).reason
    backfill = hold(opened_at=at(-9999), held_from=at(-9999), held_ms=10_119_000)
    assert held_findings([backfill], transaction_history=histories, min_held_ms=120_001) == []
    assert "for an unknown time until" in only(held_findings([replace(unknown, least_ms=None)])).reason


# Open transactions.


def current_finding(**fields: Any) -> Finding:
    row: Row = {
        "topic": "orders", "partition": 0, "queue_position": 1, "producer_id": 7, "producer_epoch": 3, "start_offset":
        100, "verdict": "hanging", "reason": "So it is.", "remedy": "kafka-txn abort.", "missing": [], "evidence": [],
        "opened_at": at(0), "opened_at_clock": "producer", "last_stable_offset": 100, "high_watermark": 109,
        "observed_at": NOW, "brokers_time": NOW, **fields,
    }  # fmt: skip
    return Finding.of(row)


def test_an_open_hold_combines_the_diagnosis_with_the_log() -> None:
    row = only(held_findings([open_hold()], current_findings=[current_finding()]))
    held_ms = (NOW - at(0)) // dt.timedelta(milliseconds=1)
    assert row == current_finding(held_from=at(0), held_ms=held_ms, records_held=9, bytes_held=900)
    with_impact = current_finding(held_from=at(1), held_ms=5, records_held=3, bytes_held=300)
    assert only(held_findings([open_hold()], current_findings=[with_impact])) == with_impact


def test_the_complete_log_wins_over_an_excerpt() -> None:
    since = {"name": "held_at_least_since", "value": "offset 105", "source": "Fetch"}
    from_excerpt = current_finding(held_from=at(60), held_ms=5, evidence=[since])
    row = only(held_findings([open_hold()], current_findings=[from_excerpt]))
    assert (row.held_from, row.evidence) == (at(0), ())
    row = only(held_findings([open_hold(after_offset=103, held_from=at(30))], current_findings=[from_excerpt]))
    assert (row.held_from, [entry.name for entry in row.evidence]) == (at(30), ["held_since"])
    untimed = open_hold(held_from=None, records_held=None, bytes_held=None)
    for one in (untimed, replace(untimed, after_offset=103)):
        assert only(held_findings([one], current_findings=[from_excerpt])) == from_excerpt


def test_a_clock_ahead_of_now_is_replaced_by_the_previous_marker() -> None:
    ahead = open_hold(opened_at=NOW + dt.timedelta(hours=1), held_from=NOW + dt.timedelta(hours=1), not_before=at(-1))
    assert only(held_findings([ahead], current_findings=[current_finding()])).held_from == at(-1)
    row = only(held_findings([replace(ahead, not_before=None)], current_findings=[current_finding()]))
    assert (row.held_from, row.held_ms) == (None, None)
    with_owner = current_finding(opened_at_clock="coordinator", opened_at=at(2))
    assert only(held_findings([replace(ahead, not_before=None)], current_findings=[with_owner])).held_from == at(2)


def test_other_findings_are_unchanged() -> None:
    others = [
        current_finding(queue_position=2, producer_id=8, start_offset=105),
        current_finding(queue_position=None, producer_id=None, start_offset=None, verdict=Verdict.UNREPLICATED),
        current_finding(queue_position=None, producer_id=9, start_offset=None, verdict=Verdict.ONGOING),
    ]
    assert held_findings([], current_findings=others) == others
    assert held_findings([open_hold()], current_findings=[current_finding(start_offset=90)]) == [
        current_finding(start_offset=90)
    ]
    second = current_finding(queue_position=2)
    assert held_findings([open_hold()], current_findings=[second]) == [second], "another replica has one before it"
    ended = hold(producer_id=8, first_offset=80)
    rows = held_findings([open_hold(), ended], current_findings=[second])
    assert [row.verdict for row in rows] == ["ended", "hanging"]
    (row,) = held_findings([hold()], current_findings=[current_finding(brokers_time=at(119))], min_held_ms=120_001)
    assert row.verdict == "ended", "its marker is in the log, however short it was held"


def test_a_transaction_that_has_ended_since_is_reported_once() -> None:
    found = current_finding(transactional_id="payments", brokers_time=at(119))
    row = only(held_findings([hold()], current_findings=[found]))
    assert (row.verdict, row.transactional_id, row.remedy) == ("ended", "payments", "None: it has ended.")
    histories = by_producer([history()])
    found = current_finding(brokers_time=at(119))
    row = only(held_findings([hold()], transaction_history=histories, current_findings=[found]))
    assert row.transactional_id == "payments", "by the coordinators' log"
    before = row.evidence[-1]
    assert (before.name, before.value, before.observed_at) == ("verdict_before", "hanging", NOW)


def test_a_transaction_that_is_open_minutes_after_its_marker_has_not_ended() -> None:
    row = only(held_findings([hold()], current_findings=[current_finding()]))
    assert (row.verdict, row.outcome, row.action) == ("unknown", "unknown", None)


def test_a_hold_goes_on_after_a_marker_that_its_leader_lost() -> None:
    """The holds of a recording and of a deposed leader's log said until when it had held the LSO."""
    recorded = open_hold(as_of=at(500))
    (ended,) = merge_holds([hold()], [recorded])
    (goes_on,) = merge_holds([hold()], [recorded], still_open={recorded.key})
    assert (ended.held_to, goes_on.held_to, goes_on.as_of) == (at(120), None, at(500))


def test_a_hold_that_is_open_in_a_log_ends_by_a_later_sample() -> None:
    """The finding had `ended` by the sample, and the hold was open for ever: a copy of its log has no marker."""
    log = open_hold()
    recorded = replace(log, held_to=at(300), held_ms=180_000, least_ms=None)
    (ended,) = merge_holds([log], [recorded])
    (goes_on,) = merge_holds([log], [recorded], still_open={log.key})
    assert (ended.held_to, ended.held_ms, goes_on.held_to) == (at(300), 180_000, None)


@pytest.mark.parametrize(
    ("current_findings", "missing"),
    [
        (None, "the coordinators' response: there is no current finding"),
        ([], "the coordinators' response: the current findings do not include this transaction"),
    ],
)
def test_a_log_alone_gives_no_remedy_for_open_transactions(current_findings: Any, missing: str) -> None:
    histories = by_producer([history("open", reason="Ongoing.", decided_at=None, end_time=None)])
    row = only(held_findings([open_hold()], transaction_history=histories, current_findings=current_findings))
    assert (row.verdict, row.missing, row.queue_position) == ("unknown", (missing,), 1)
    assert row.reason == '"payments" (producer 7 epoch 3) held the LSO at the end of the log that was read. Ongoing.'
    assert (row.held_from, row.held_to, row.held_ms) == (at(0), None, 500_000)
    assert (row.last_stable_offset, row.offsets_held) == (100, 10)
    assert row.remedy.startswith("Do not abort.")
    assert [entry.observed_at for entry in row.evidence if entry.name == "records"] == [at(0)]


def test_a_finding_without_offset_is_not_that_of_an_open_hold() -> None:
    of_coordinator = current_finding(queue_position=None, start_offset=None, verdict=Verdict.ONGOING)
    rows = held_findings([open_hold()], current_findings=[of_coordinator])
    assert [row.verdict for row in rows] == ["unknown", "ongoing"]


@pytest.mark.parametrize(
    ("fields", "as_of"),
    [
        ({}, at(0)),
        ({"after_offset": 103, "held_from": at(30)}, at(30)),
        ({"after_offset": 103, "held_from": None}, at(0)),
        ({"held_from": None, "opened_at": None}, dt.datetime.fromtimestamp(0, dt.UTC)),
    ],
)
def test_a_log_without_times_of_markers_is_as_of_its_last_known_time(fields: Any, as_of: dt.datetime) -> None:
    row = only(held_findings([open_hold(as_of=None, log_end_offset=None, **fields)]))
    assert (row.observed_at, row.offsets_held) == (as_of, None)


def test_held_offsets_are_unknown_unless_the_log_was_read_to_their_end() -> None:
    assert held_offsets(hold()) == (100, 110)
    assert held_offsets(hold(truncated=True)) is None
    assert held_offsets(open_hold()) == (100, 110)
    assert held_offsets(open_hold(), lso=103, high_watermark=109) == (103, 109)
    assert held_offsets(open_hold(), lso=90, high_watermark=111) is None, "the log was not read that far"
    assert held_offsets(open_hold(log_end_offset=None)) is None
    assert held_offsets(open_hold(log_end_offset=None), high_watermark=109) is None
